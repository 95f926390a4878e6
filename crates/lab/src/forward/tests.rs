//! What each mode makes of frames, in one buffer and in several: what another implementation builds with the fields that
//! there should be, checksums included.

use etherparse::{PacketBuilder, VlanId};
use straightline_virtio::net_header::NetHeader;

use super::engine::Mode;
use super::five_tuple::FiveTupleSwap;
use super::io::Io;
use super::mac::Mac;
use super::macswap::MacSwap;
use super::{own, peer};
use crate::tester::Received;
use crate::tester::tests::Laid;

/// Buffers that hold all of it, the headers, and a part of these only.
const BUFFERS: [u32; 3] = [2048, 128, 76];

/// Addresses and ports of a frame: source, then destination.
#[derive(Clone, Copy)]
struct Ends {
    macs: [[u8; 6]; 2],
    hosts: [u8; 2],
    ports: [u16; 2],
}

const ENDS: Ends = Ends { macs: [[2, 0, 0, 0, 0, 0xaa], [2, 0, 0, 0, 0, 0xbb]], hosts: [1, 2], ports: [1000, 53] };

/// Does what the mode does; returns the frame then. It goes on, by port 1.
fn done(mode: &mut impl Mode, frame: &[u8], buffer_len: u32) -> Vec<u8> {
    let laid = Laid::new(frame, &NetHeader::default(), buffer_len);
    assert!(mode.packet(&laid.packet(), 1));
    assert_eq!(laid.packet().header(), NetHeader::default());
    laid.frame()
}

/// Frames of every kind that modes look into, between these ends.
fn frames(Ends { macs: [src, dst], hosts: [a, b], ports: [from, to] }: Ends) -> [Vec<u8>; 6] {
    let payload: Vec<u8> = (0..101).collect();
    let v4 = |host| [10, 0, 0, host];
    let v6 = |host| [host; 16];
    let ethernet = || PacketBuilder::ethernet2(src, dst);
    let tagged = || ethernet().single_vlan(VlanId::try_new(7).expect("a VLAN"));
    let mut all: [Vec<u8>; 6] = Default::default();
    ethernet().ipv4(v4(a), v4(b), 64).udp(from, to).write(&mut all[0], &payload).expect("UDP");
    ethernet().ipv4(v4(a), v4(b), 64).tcp(from, to, 7, 99).write(&mut all[1], &payload).expect("TCP");
    ethernet().ipv6(v6(a), v6(b), 64).udp(from, to).write(&mut all[2], &payload).expect("UDP");
    tagged().ipv6(v6(a), v6(b), 64).tcp(from, to, 7, 99).write(&mut all[3], &payload).expect("TCP");
    tagged().ipv4(v4(a), v4(b), 64).udp(from, to).write(&mut all[4], &payload).expect("UDP");
    ethernet().ipv4(v4(a), v4(b), 64).icmpv4_echo_request(1, 2).write(&mut all[5], &payload).expect("ICMP");
    all
}

/// Of each frame between `ENDS` the mode makes one between these.
fn makes(mode: &mut impl Mode, ends: Ends) {
    for (kind, (frame, want)) in frames(ENDS).iter().zip(frames(ends)).enumerate() {
        for buffer_len in BUFFERS {
            assert!(done(mode, frame, buffer_len) == want, "frame {kind} in buffers of {buffer_len}");
        }
    }
}

fn swapped<T: Copy>([a, b]: [T; 2]) -> [T; 2] {
    [b, a]
}

#[test]
fn io_changes_nothing() {
    makes(&mut Io, ENDS);
}

#[test]
fn mac_writes_both_addresses() {
    makes(&mut Mac, Ends { macs: [own(1).0, peer(1).0], ..ENDS });
}

#[test]
fn macswap_swaps_them() {
    makes(&mut MacSwap, Ends { macs: swapped(ENDS.macs), ..ENDS });
}

#[test]
fn five_tuple_swap_swaps_addresses_and_ports() {
    let Ends { macs, hosts, ports } = ENDS;
    makes(&mut FiveTupleSwap, Ends { macs: swapped(macs), hosts: swapped(hosts), ports: swapped(ports) });
}

#[test]
fn frames_that_end_anywhere_are_borne() {
    let swap = |frame: &[u8]| done(&mut FiveTupleSwap, frame, 76);
    for frame in frames(ENDS) {
        for len in 0..frame.len() {
            let cut = &frame[..len];
            assert_eq!(swap(cut).len(), len);
            // What is swapped twice is what it was.
            assert!(swap(&swap(cut)) == cut, "{len} bytes of {frame:?}");
            for changed in [done(&mut MacSwap, cut, 76), done(&mut Mac, cut, 76)] {
                assert_eq!(changed.get(12..), cut.get(12..));
            }
        }
    }
}
