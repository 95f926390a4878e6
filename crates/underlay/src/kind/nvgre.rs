//! NVGRE (RFC 7637): GRE with a key, which is the subnet and 8 bits of the flow. It is parsed as GRE.

use straightline_wire::{EtherType, IpProtocol, WireError, gre};

use super::{Form, Traits, Varying};

pub(super) fn traits(vsid: u32) -> Traits {
    let repr = gre::Repr { protocol: EtherType::ETHERNET, checksum: None, key: Some(vsid << 8), sequence: None };
    let traits = Traits::in_ip("nvgre", Form::Nvgre, vsid, IpProtocol::GRE, |to| {
        if vsid > gre::MAX_VSID { Err(WireError::BadValue) } else { repr.emit(to) }
    });
    Traits { varying: Some((Varying::FlowId, 6)), ..traits.keyed(format!("vsid {vsid}")) }
}

/// Returns whether packets of the keyed GRE tunnel `a` look like those of the NVGRE tunnel `b`
/// (RFC 7637, 3.2). A tunnel is found by its key, and what it carries is checked later.
pub(super) fn is_keyed_gre(a: &Traits, b: &Traits) -> bool {
    (a.form, b.form) == (Form::GreKeyed, Form::Nvgre) && a.key >> 8 == b.key
}
