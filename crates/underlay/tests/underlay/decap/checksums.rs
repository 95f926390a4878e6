//! Outer checksums: verified, absent, unfinished.

use straightline_packet::{Checksum, Offload, Reason};
use straightline_wire::checksum;

use super::rig::{End, Kind, Rig, addresses, fill_ipv4_checksum, inner_frame, inner_frame_of, outside, udp};

/// The offsets of the UDP header and of its checksum.
fn offsets(v4: bool) -> (usize, usize) {
    let l4 = if v4 { 34 } else { 54 };
    (l4, l4 + 6)
}

fn partial(start: usize, offset: u16) -> Offload {
    Offload { checksum: Checksum::Partial { start: u16::try_from(start).unwrap(), offset }, gso: None }
}

/// Returns whether the inner checksum of an Ethernet frame is right, by a pass over all bytes. The
/// frame has UDP or TCP behind an IP header without options.
fn inner_is_right(frame: &[u8]) -> bool {
    let (addresses, protocol, l4) = if frame[14] >> 4 == 4 { (26..34, 23, 34) } else { (22..54, 20, 54) };
    let len = u16::try_from(frame.len() - l4).unwrap();
    let pseudo = [&frame[addresses], &[0, frame[protocol]], &len.to_be_bytes()].concat();
    checksum::add(checksum::sum(&pseudo), checksum::sum(&frame[l4..])) == 0xffff
}

/// Returns whether the outer checksum of a UDP packet is right, by a pass over all bytes.
fn outer_is_right(packet: &[u8]) -> bool {
    let (v4, l4) = if packet[12] == 8 { (true, 34) } else { (false, 54) };
    let len = u16::try_from(packet.len() - l4).unwrap();
    let pseudo = [&addresses(v4)[..], &[0, 17], &len.to_be_bytes()].concat();
    checksum::add(checksum::sum(&pseudo), checksum::sum(&packet[l4..])) == 0xffff
}

/// Returns an inner frame of TCP, made of one of UDP.
fn tcp_frame(v4: bool, len: usize) -> Vec<u8> {
    let mut frame = inner_frame_of(v4, 0, len);
    let (protocol, l4) = if v4 { (23, 34) } else { (20, 54) };
    frame[protocol] = 6;
    if v4 {
        fill_ipv4_checksum(&mut frame[14..34]);
    }
    let tcp = &mut frame[l4..];
    tcp[..20].copy_from_slice(&[0xc3, 0x50, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    let addresses = if v4 { 26..34 } else { 22..54 };
    let len = u16::try_from(frame.len() - l4).unwrap();
    let pseudo = [&frame[addresses], &[0, 6], &len.to_be_bytes()].concat();
    let sum = checksum::add(checksum::sum(&pseudo), checksum::sum(&frame[l4..]));
    frame[l4 + 16..l4 + 18].copy_from_slice(&(!sum).to_be_bytes());
    assert!(inner_is_right(&frame));
    frame
}

/// A peer on this machine may leave a checksum, but not one over a tag of the inner frame: its value would
/// choose another VLAN than the one that was judged.
#[test]
fn an_unfinished_checksum_begins_behind_the_inner_tags() {
    let kind = Kind::vxlan(7);
    let mut rig = Rig::new(vec![kind.config(true)]);
    let plain = inner_frame();
    for (tags, payload) in [(&[][..], 14), (&[0x81, 0, 0, 0], 18), (&[0x91, 0, 0, 5, 0x88, 0xa8, 0, 5], 22)] {
        let inner = [&plain[..12], tags, &plain[12..]].concat();
        let mut packet = kind.packet(true, &inner);
        // Without an outer checksum.
        packet[40..42].fill(0);
        let front = packet.len() - inner.len();
        for start in 0..payload + 4 {
            let end = rig.send_unfinished(&packet, partial(front + start, 0));
            if start < payload {
                assert_eq!(end, End::Dropped(1, Reason::TunnelChecksum), "{start} behind {tags:x?}");
            } else {
                assert_eq!(end, End::Inside(0, inner.clone(), partial(start, 0)));
            }
        }
    }
}

#[test]
fn a_wrong_checksum_is_found_wherever_the_fault_is() {
    for v4 in [true, false] {
        let kind = Kind::vxlan(7);
        let mut rig = Rig::new(vec![kind.config(v4)]);
        let (l4, field) = offsets(v4);
        // Short packets, and long ones that no inner checksum covers.
        let mut no_checksum = inner_frame_of(true, 0, 501);
        no_checksum[40..42].fill(0);
        let mut fragment = inner_frame_of(true, 0, 501);
        fragment[20] = 0x20;
        let icmp = [&inner_frame_of(true, 0, 501)[..23], &[1], &inner_frame_of(true, 0, 501)[24..]].concat();
        let padded = [&inner_frame_of(false, 0, 501)[..], &[0; 6]].concat();
        let tagged = [&inner_frame()[..12], &[0x81, 0, 0, 5], &inner_frame_of(true, 0, 501)[12..]].concat();
        for inner in [inner_frame(), no_checksum, fragment, icmp, padded, tagged] {
            let packet = kind.packet(v4, &inner);
            assert_eq!(rig.send(&packet).inside(), inner);
            // Behind the VNI, so that the tunnel is found.
            for at in (l4 + 16..packet.len()).step_by(7).chain([field, packet.len() - 1]) {
                let mut wrong = packet.clone();
                wrong[at] ^= 0x10;
                assert_eq!(rig.send(&wrong), End::Dropped(1, Reason::TunnelChecksum), "{at}");
            }
        }
        let inner = inner_frame_of(v4, 0, 501);
        let mut config = kind.config(v4);
        config.verify = false;
        let mut wrong = kind.packet(v4, &inner);
        wrong[field] ^= 0x10;
        assert_eq!(Rig::new(vec![config]).send(&wrong).inside(), inner);
    }
}

/// The bodies of these packets are in guest memory. Their receivers find faults in them.
#[test]
fn an_inner_checksum_vouches_for_a_body() {
    for (v4, inner_v4) in [(true, true), (true, false), (false, true), (false, false)] {
        for inner in [inner_frame_of(inner_v4, 0, 500), inner_frame_of(inner_v4, 0, 501), tcp_frame(inner_v4, 501)] {
            let kind = Kind::vxlan(7);
            let mut rig = Rig::new(vec![kind.config(v4)]);
            let packet = kind.packet(v4, &inner);
            let (l4, field) = offsets(v4);
            let begin = packet.len() - inner.len();
            assert_eq!(rig.send(&packet).inside(), inner);
            let mut found = 0;
            for at in (l4 + 16..packet.len()).chain([field, field + 1]) {
                let mut wrong = packet.clone();
                wrong[at] ^= 0x10;
                assert!(!outer_is_right(&wrong));
                let end = rig.send(&wrong);
                if end == End::Dropped(1, Reason::TunnelChecksum) {
                    found += 1;
                    continue;
                }
                assert!(at > begin + 14, "a fault at {at} is in the outer packet");
                assert_eq!(end.inside(), wrong[begin..], "{at}");
                assert!(!inner_is_right(&wrong[begin..]), "a fault at {at} would be found by nobody");
            }
            assert!(found > 14 + 8, "faults in headers are found at once");
            // Two faults whose sum is 0: the outer checksum is right, and says nothing about them.
            let mut twice = packet.clone();
            (twice[begin], twice[begin + 400]) = (twice[begin] + 2, twice[begin + 400] - 2);
            assert!(outer_is_right(&twice));
            assert_eq!(rig.send(&twice).inside(), twice[begin..]);
        }
    }
}

#[test]
fn a_checksum_covers_the_addresses() {
    let kind = Kind::vxlan(7);
    let mut config = kind.config(false);
    config.remotes = vec![super::rig::ip("fd00::101")];
    let mut packet = kind.packet(false, &inner_frame());
    packet[36] = 1;
    assert_eq!(Rig::new(vec![config]).send(&packet), End::Dropped(1, Reason::TunnelChecksum));
}

#[test]
fn no_checksum_is_for_ipv4_or_for_those_who_allow_it() {
    for kind in Kind::all().into_iter().filter(|kind| kind.protocol == 17) {
        for (v4, allowed, verify) in
            [(true, false, true), (false, false, true), (false, true, true), (false, false, false)]
        {
            let mut packet = kind.packet(v4, &kind.inner());
            let (_, field) = offsets(v4);
            packet[field..field + 2].fill(0);
            let mut config = kind.config(v4);
            (config.zero_checksum, config.verify) = (allowed, verify);
            let end = Rig::new(vec![config]).send(&packet);
            if v4 || allowed {
                assert_eq!(end.inside(), kind.outcome(&kind.inner()));
            } else {
                assert_eq!(end, End::Dropped(1, Reason::TunnelChecksum), "{kind:?}");
            }
        }
    }
}

/// Zero on the wire would mean "none", so such a sum is written as 0xffff (RFC 768).
#[test]
fn a_checksum_of_zero_is_written_otherwise() {
    for v4 in [true, false] {
        let kind = Kind::vxlan(7);
        let mut inner = inner_frame();
        // The last two bytes make the sum what it must be.
        let end = inner.len() - 2;
        inner[end..].fill(0);
        let (_, field) = offsets(v4);
        let packet = kind.packet(v4, &inner);
        inner[end..].copy_from_slice(&packet[field..field + 2]);
        let mut packet = kind.packet(v4, &inner);
        assert_eq!(packet[field..field + 2], [0xff; 2]);
        let mut rig = Rig::new(vec![kind.config(v4)]);
        assert_eq!(rig.send(&packet).inside(), inner);
        packet[field] = 0xfe;
        assert_eq!(rig.send(&packet).reason(), Reason::TunnelChecksum);
    }
}

/// A guest leaves the outer checksum to us: its field holds the pseudo header's sum.
#[test]
fn an_unfinished_outer_checksum_is_gone_with_its_header() {
    for v4 in [true, false] {
        for kind in Kind::all().into_iter().filter(|kind| kind.protocol == 17) {
            let (l4, field) = offsets(v4);
            let mut packet = kind.packet(v4, &kind.inner());
            let len = u16::try_from(packet.len() - l4).unwrap();
            let pseudo = checksum::sum(&[&addresses(v4)[..], &[0, 17], &len.to_be_bytes()].concat());
            // Whatever the field holds: even zero does not mean "none" here.
            for value in [pseudo, 0, 0x1234] {
                packet[field..field + 2].copy_from_slice(&value.to_be_bytes());
                let end = Rig::new(vec![kind.config(v4)]).send_unfinished(&packet, partial(l4, 6));
                assert_eq!(end, End::Inside(0, kind.outcome(&kind.inner()), Offload::default()), "{kind:?}");
            }
        }
    }
}

/// A guest with checksum offload sends the inner packet unfinished, and the outer checksum as it
/// will be right once the inner one is finished.
#[test]
fn local_checksum_offload_is_verified() {
    let finished = inner_frame();
    let unfinished = unfinish(&finished);
    for v4 in [true, false] {
        for kind in Kind::all().into_iter().filter(|kind| !kind.kind.carries_ip()) {
            let outer = kind.packet(v4, &finished);
            let packet = [&outer[..outer.len() - finished.len()], &unfinished].concat();
            let start = packet.len() - unfinished.len() + 34;
            let mut rig = Rig::new(vec![kind.config(v4)]);
            let expected = End::Inside(0, unfinished.clone(), partial(34, 6));
            assert_eq!(rig.send_unfinished(&packet, partial(start, 6)), expected, "{kind:?}");
            let has_checksum = kind.protocol == 17 || kind.header[0] & 0x80 != 0 && kind.protocol == 47;
            if has_checksum {
                // A fault in the inner headers in front of the inner checksum's start.
                let mut wrong = packet.clone();
                wrong[start - 30] ^= 4;
                assert_eq!(rig.send_unfinished(&wrong, partial(start, 6)), End::Dropped(1, Reason::TunnelChecksum));
                // Read as a finished packet, the outer checksum is wrong.
                assert_eq!(rig.send(&packet), End::Dropped(1, Reason::TunnelChecksum));
            }
        }
    }
}

/// Behind a veth interface, nothing says that the inner checksum is unfinished.
#[test]
fn an_unfinished_inner_checksum_is_recognised() {
    for v4 in [true, false] {
        for kind in Kind::all() {
            let finished = kind.outcome(&kind.inner());
            let unfinished = unfinish(&finished);
            // What kinds that carry IP send has no Ethernet header.
            let l3 = if kind.kind.carries_ip() { 14 } else { 0 };
            let outer = kind.packet(v4, &finished[l3..]);
            let inner = outer.len() - finished.len() + l3;
            let packet = [&outer[..inner], &unfinished[l3..]].concat();
            let mut rig = Rig::new(vec![kind.config(v4)]);
            rig.underlay.set_leaves_unfinished(true);
            assert_eq!(rig.send(&packet), End::Inside(0, unfinished.clone(), partial(34, 6)), "{kind:?}");
            assert_eq!(rig.send(&outer), End::Inside(0, finished.clone(), Offload::default()), "{kind:?}");
            let has_checksum = kind.protocol == 17 || kind.header[0] & 0x80 != 0 && kind.protocol == 47;
            if has_checksum {
                // A fault in the inner IP header, in its identification.
                let mut wrong = packet.clone();
                wrong[inner + 18 - l3] ^= 4;
                assert_eq!(rig.send(&wrong), End::Dropped(1, Reason::TunnelChecksum), "{kind:?}");
            }
        }
    }
}

/// These headers do not name the version of the IP packet inside.
#[test]
fn an_unfinished_checksum_of_ipv6_inside_is_recognised() {
    let finished = inner_frame_of(false, 0, 36);
    let mut inner = finished[14..].to_vec();
    let pseudo = checksum::sum(&[&inner[8..40], &[0, 17], &inner[4..6]].concat());
    inner[46..48].copy_from_slice(&pseudo.to_be_bytes());
    for kind in [Kind::gtpu(inner.len()), Kind::mpls()] {
        let outer = kind.packet(true, &finished[14..]);
        let packet = [&outer[..outer.len() - inner.len()], &inner].concat();
        let mut rig = Rig::new(vec![kind.config(true)]);
        rig.underlay.set_leaves_unfinished(true);
        assert_eq!(rig.send(&packet), End::Inside(0, kind.outcome(&inner), partial(54, 6)), "{kind:?}");
    }
}

/// GRE has no pseudo header, so an unfinished checksum is zero.
#[test]
fn an_unfinished_checksum_of_gre_is_recognised() {
    let kind = Kind::gre(0x80, false, 0x6558, &[0; 4]);
    let mut rig = Rig::new(vec![kind.config(true)]);
    let mut packet = kind.packet(true, &inner_frame());
    packet[38..40].fill(0);
    assert_eq!(rig.send(&packet), End::Dropped(1, Reason::TunnelChecksum));
    rig.underlay.set_leaves_unfinished(true);
    assert_eq!(rig.send(&packet).inside(), inner_frame());
    packet[39] = 1;
    assert_eq!(rig.send(&packet), End::Dropped(1, Reason::TunnelChecksum));
}

/// Returns an inner frame whose UDP checksum is that of its pseudo header alone.
fn unfinish(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let len = u16::try_from(frame.len() - 34).unwrap();
    let pseudo = checksum::sum(&[&frame[26..34], &[0, 17], &len.to_be_bytes()].concat());
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    frame
}

/// The inner checksum may begin at an odd offset from the outer one's beginning.
#[test]
fn local_checksum_offload_at_an_odd_offset() {
    let kind = Kind::vxlan(7);
    let mut inner = [&[2; 12][..], &[0x88, 0xb5, 1]].concat();
    let mut message = vec![0x12, 0x34, 0, 0, 0x56, 0x78, 0x9a];
    let pseudo = 0xabcd;
    message[2..4].copy_from_slice(&u16::to_be_bytes(pseudo));
    let mut finished = message.clone();
    finished[2..4].copy_from_slice(&(!checksum::sum(&message)).to_be_bytes());
    inner.extend(&finished);
    let mut packet = outside(true, 17, 0, &udp(true, 4789, &[&kind.header, &inner[..]].concat()));
    let start = packet.len() - message.len();
    assert!((start - 34) % 2 == 1);
    packet[start..].copy_from_slice(&message);
    let mut rig = Rig::new(vec![kind.config(true)]);
    assert!(matches!(rig.send_unfinished(&packet, partial(start, 2)), End::Inside(..)));
    packet[start - 1] ^= 1;
    assert_eq!(rig.send_unfinished(&packet, partial(start, 2)).reason(), Reason::TunnelChecksum);
}

/// A guest may ask for a checksum whose field is at an odd offset. What is then behind the outer
/// checksum does not follow from headers alone.
#[test]
fn local_checksum_offload_of_a_field_at_an_odd_offset() {
    let kind = Kind::vxlan(7);
    let pseudo = 0xabcd_u16.to_be_bytes();
    // With the whole packet in its head, and with a body.
    for len in [9, 10, 600, 601] {
        for padding in [0, 1] {
            let mut inner = [&[2; 12][..], &[0x88, 0xb5], &vec![1; padding]].concat();
            let mut message: Vec<u8> = (0..len).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
            message[3..5].copy_from_slice(&pseudo);
            let mut finished = message.clone();
            finished[3..5].copy_from_slice(&(!checksum::sum(&message)).to_be_bytes());
            inner.extend(&finished);
            let mut packet = outside(true, 17, 0, &udp(true, 4789, &[&kind.header, &inner[..]].concat()));
            let start = packet.len() - message.len();
            packet[start..].copy_from_slice(&message);
            let mut rig = Rig::new(vec![kind.config(true)]);
            let inside = rig.send_unfinished(&packet, partial(start, 3)).inside();
            assert!(inside.ends_with(&message), "{len} bytes with {padding} in front of them");
            packet[start - 1] ^= 1;
            assert_eq!(rig.send_unfinished(&packet, partial(start, 3)).reason(), Reason::TunnelChecksum);
        }
    }
}

/// A port that has verified the outermost checksum need not be told twice. That the inner one is
/// right does not follow.
#[test]
fn a_verified_checksum_is_the_outer_one() {
    let kind = Kind::vxlan(7);
    let mut rig = Rig::new(vec![kind.config(true)]);
    let mut packet = kind.packet(true, &inner_frame());
    packet[40] ^= 1;
    let verified = Offload { checksum: Checksum::Verified, gso: None };
    assert_eq!(rig.send_unfinished(&packet, verified), End::Inside(0, inner_frame(), Offload::default()));
}

#[test]
fn a_checksum_across_the_header_is_refused() {
    let kind = Kind::keyed_l2tpv3(&[]);
    let mut rig = Rig::new(vec![kind.config(false)]);
    let packet = kind.packet(false, &inner_frame());
    // It starts in the outer header, and its field is in the inner packet.
    let end = rig.send_unfinished(&packet, partial(50, 20));
    assert_eq!(end, End::Dropped(1, Reason::TunnelChecksum));
    // Its field is behind the packet, in the padding.
    let start = packet.len();
    let padded = [&packet[..], &[0; 20]].concat();
    assert_eq!(rig.send_unfinished(&padded, partial(start, 6)), End::Dropped(1, Reason::TunnelHeader));
}

#[test]
fn checksums_of_gre_are_verified() {
    for v4 in [true, false] {
        let kind = Kind::gre(0x80, false, 0x6558, &[0; 4]);
        let packet = kind.packet(v4, &inner_frame());
        let mut rig = Rig::new(vec![kind.config(v4)]);
        assert_eq!(rig.send(&packet).inside(), inner_frame());
        let l4 = if v4 { 34 } else { 54 };
        for at in l4 + 4..packet.len() {
            // The two bytes behind the checksum are reserved, and covered.
            let mut wrong = packet.clone();
            wrong[at] ^= 1;
            assert_eq!(rig.send(&wrong), End::Dropped(1, Reason::TunnelChecksum), "{at}");
        }
        let mut config = kind.config(v4);
        config.verify = false;
        let mut wrong = packet.clone();
        wrong[l4 + 4] ^= 1;
        assert_eq!(Rig::new(vec![config]).send(&wrong).inside(), inner_frame());
    }
}
