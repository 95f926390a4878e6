//! Fuzz target: headers of tunnels, and messages of ICMP, at the beginning of the input.
//!
//! Invariants:
//! - A header that is accepted lies within the input.
//! - Its values build a header that has the same values.
//! - Options and extensions cover the header once.

use crate::reached;
use straightline_wire::l2tpv3::Carrier;
use straightline_wire::{WireError, geneve, gre, gtpu, icmpv4, icmpv6, l2tpv3, mpls, vxlan, vxlan_gpe};

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    l2tpv3_header(data, Carrier::Ip);
    l2tpv3_header(data, Carrier::Udp);
    vxlan_header(data);
    geneve_header(data);
    gre_header(data);
    gtpu_header(data);
    mpls_stack(data);
    icmp_message(data);
}

/// Builds a header from accepted values.
fn built(emit: impl FnOnce(&mut [u8]) -> Result<usize, WireError>) -> Vec<u8> {
    let mut bytes = vec![0; geneve::MIN_LEN + geneve::MAX_OPTIONS];
    let len = emit(&mut bytes).expect("values that were read");
    bytes.truncate(len);
    bytes
}

fn l2tpv3_header(data: &[u8], carrier: Carrier) {
    let Ok(header) = l2tpv3::Header::new_checked(data, carrier) else { return };
    for (cookie_len, has_sublayer) in [(0, false), (4, true), (8, false), (8, true)] {
        let Ok(repr) = l2tpv3::Repr::parse(&header, cookie_len, has_sublayer) else { continue };
        assert!(repr.header_len() <= data.len());
        let built = built(|buffer| repr.emit(buffer));
        let again = l2tpv3::Header::new_checked(&built, carrier).expect("built");
        assert_eq!(l2tpv3::Repr::parse(&again, cookie_len, has_sublayer), Ok(repr));
        match carrier {
            Carrier::Ip => reached("L2TPv3 over IP"),
            Carrier::Udp => reached("L2TPv3 over UDP"),
        }
    }
}

fn vxlan_header(data: &[u8]) {
    if let Ok(header) = vxlan::Header::new_checked(data) {
        let repr = vxlan::Repr::parse(&header);
        let built = built(|buffer| repr.emit(buffer));
        assert_eq!(vxlan::Repr::parse(&vxlan::Header::new_checked(&built).expect("built")), repr);
        reached("VXLAN");
    }
    if let Ok(header) = vxlan_gpe::Header::new_checked(data) {
        let repr = vxlan_gpe::Repr::parse(&header);
        let built = built(|buffer| repr.emit(buffer));
        assert_eq!(vxlan_gpe::Repr::parse(&vxlan_gpe::Header::new_checked(&built).expect("built")), repr);
        if repr.next_protocol == vxlan_gpe::NextProtocol::IPV4 {
            reached("VXLAN-GPE with IP");
        }
    }
}

fn geneve_header(data: &[u8]) {
    let Ok(header) = geneve::Header::new_checked(data) else { return };
    assert!(header.header_len() <= data.len());
    let options: Result<Vec<_>, _> = header.options().collect();
    let Ok(options) = options else {
        reached("an option of Geneve that is too long");
        assert_eq!(geneve::Repr::parse(&header).emit(&mut [0; 512]), Err(WireError::BadLength));
        return;
    };
    let len: usize = options.iter().map(|option| 4 + option.data.len()).sum();
    assert_eq!(len, header.option_bytes().len());
    let repr = geneve::Repr::parse(&header);
    let built = built(|buffer| repr.emit(buffer));
    let again = geneve::Header::new_checked(&built).expect("built");
    assert_eq!(geneve::Repr::parse(&again), repr);
    if again.has_critical() {
        assert!(options.iter().any(|option| option.is_critical()));
        reached("a critical option of Geneve");
    }
    reached("Geneve");
}

fn gre_header(data: &[u8]) {
    let Ok(header) = gre::Header::new_checked(data) else { return };
    assert!(header.header_len() <= data.len());
    let repr = gre::Repr::parse(&header);
    let built = built(|buffer| repr.emit(buffer));
    assert_eq!(built.len(), header.header_len());
    assert_eq!(gre::Repr::parse(&gre::Header::new_checked(&built).expect("built")), repr);
    if repr.checksum.is_some() && repr.key.is_some() && repr.sequence.is_some() {
        reached("GRE with all fields");
    }
}

fn gtpu_header(data: &[u8]) {
    let Ok(header) = gtpu::Header::new_checked(data) else { return };
    assert!(header.header_len() <= data.len());
    assert!(header.header_len() <= gtpu::MIN_LEN + usize::from(header.length()));
    let extensions: usize = header.extensions().map(|(_, content)| content.len() + 2).sum();
    let repr = gtpu::Repr::parse(&header);
    let built = built(|buffer| repr.emit(buffer));
    assert_eq!(gtpu::Repr::parse(&gtpu::Header::new_checked(&built).expect("built")), repr);
    if extensions > 0 {
        assert_eq!(extensions, header.header_len() - gtpu::LONG_LEN);
        reached("GTP-U with an extension");
    }
    reached("GTP-U");
}

fn mpls_stack(mut data: &[u8]) {
    while let Ok(entry) = mpls::Entry::parse(data) {
        assert_eq!(built(|buffer| entry.emit(buffer)), data[..mpls::LEN]);
        data = &data[mpls::LEN..];
        if entry.is_bottom {
            reached("the bottom of a stack of labels");
            break;
        }
    }
}

fn icmp_message(data: &[u8]) {
    if let Some(repr) = icmpv4::Header::new_checked(data).ok().and_then(|header| icmpv4::Repr::parse(&header)) {
        let built = built(|buffer| repr.emit(buffer, 0));
        assert_eq!(icmpv4::Repr::parse(&icmpv4::Header::new_checked(&built).expect("built")), Some(repr));
        if matches!(repr, icmpv4::Repr::FragmentationNeeded { .. }) {
            reached("fragmentation needed");
        }
    }
    if let Some(repr) = icmpv6::Header::new_checked(data).ok().and_then(|header| icmpv6::Repr::parse(&header)) {
        let built = built(|buffer| repr.emit(buffer, 0));
        assert_eq!(icmpv6::Repr::parse(&icmpv6::Header::new_checked(&built).expect("built")), Some(repr));
        if matches!(repr, icmpv6::Repr::TooBig { .. }) {
            reached("packet too big");
        }
    }
}
