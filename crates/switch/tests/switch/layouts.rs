//! Guests with split and with packed rings at one switch: packets arrive with any layouts, and
//! rings continue where they were.

use std::collections::VecDeque;

use straightline_guest::{Guest, GuestOptions, PackedDescriptor, Ring, Sequence, Stream};
use straightline_switch::api::{Link, Port, RingKind};
use straightline_testing::{Rig, frame, mac, patch, rig, send, take, vhost_user, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::NEXT;

fn patched() -> Rig {
    rig(2, |config| {
        for port in &mut config.ports {
            vhost_user(port).packed = true;
            port.mtu = 9000;
        }
        config.patches.push(patch(0, 1));
    })
}

/// Small rings, which wrap many times.
fn options(packed: bool) -> GuestOptions {
    let layout = if packed { f::VIRTIO_F_RING_PACKED } else { 0 };
    GuestOptions { features: GuestOptions::default().features | layout, ring_size: 64, ..GuestOptions::default() }
}

/// Sends frames of many lengths from one to the other, each compared byte by byte.
fn exchange(from: &mut Guest, to: &mut Guest, count: u64, longest: usize) {
    let lens = [60, 244, 256, 1000, 1514, 2100, 9014];
    let lens: Vec<usize> = lens.into_iter().filter(|&len| len <= longest).collect();
    let make = |n: u64| frame(mac(2), mac(1), lens[usize::try_from(n).unwrap_or(0) % lens.len()], n);
    let mut expected = VecDeque::new();
    for n in 0..count {
        send(from, &make(n));
        expected.push_back(n);
        // At most 5 buffers each: fewer than the ring has.
        if expected.len() == 8 || n + 1 == count {
            for (_, bytes) in take(to, expected.len()) {
                assert!(expected.pop_front().map(make) == Some(bytes), "within packet {n}");
            }
        }
    }
}

#[test]
fn every_layout_to_every_other() {
    for (left, right) in [(false, true), (true, false), (true, true)] {
        let rig = patched();
        let large = |packed| GuestOptions { buffer_len: 9100, ..options(packed) };
        let mut a = rig.guest(0, &large(left));
        let mut b = rig.guest(1, &options(right));
        for (at, packed) in [(0, left), (1, right)] {
            let ring = if packed { RingKind::Packed } else { RingKind::Split };
            assert_eq!(rig.port(at).ring, Some(ring));
        }
        exchange(&mut a, &mut b, 300, 9014);
        // The other one has no buffer for a jumbo frame.
        exchange(&mut b, &mut a, 300, 1514);
        rig.no_drops();
    }
}

#[test]
fn receive_buffers_in_pieces() {
    let rig = patched();
    let features = options(true).features & !f::VIRTIO_NET_F_MRG_RXBUF;
    let mut source = rig.guest(0, &options(true));
    // Chains of three descriptors, one packet in each.
    let mut sink = rig.guest(1, &GuestOptions { features, receive_split: 700, ..options(true) });
    exchange(&mut source, &mut sink, 100, 1514);
    rig.no_drops();
}

#[test]
fn a_packet_in_several_buffers() {
    let rig = patched();
    let mut source = rig.guest(0, &options(true));
    let mut sink = rig.guest(1, &options(true));
    for n in 0..100 {
        let sent = frame(mac(2), mac(1), 1400, n);
        let (head, body) = sent.split_at(300);
        let header = NetHeader::default().to_bytes();
        wait_until("three buffers are free", || {
            source.flush();
            source.send_chain(&[&header, head, body], false)
        });
        source.flush();
        assert!(take(&mut sink, 1)[0].1 == sent, "packet {n}");
    }
    wait_until("all buffers are back", || {
        source.flush();
        source.spare() == 64
    });
}

#[test]
fn a_connection_that_ends_costs_no_buffer() {
    for packed in [false, true] {
        let rig = patched();
        let mut source = rig.guest(0, &options(packed));
        let mut sink = rig.guest(1, &options(packed));
        let mut stream = Stream::prepare(&mut source, mac(1), mac(2), &[60, 1514]).expect("a stream");
        let mut seen = Sequence::default();
        for round in 0..20 {
            for _ in 0..40 {
                stream.send(&mut source);
            }
            source.flush();
            // In the middle of it, or with used buffers in the rings that the guest has not taken
            // yet.
            if round % 2 == 0 {
                wait_until("all are delivered or lost", || {
                    let from = rig.port(0);
                    let to = rig.port(1);
                    let gone = |port: &Port| port.drops.values().sum::<u64>();
                    to.queues[0].tx.packets + gone(&from) + gone(&to) == stream.sent()
                });
            }
            sink.reconnect(rig.socket(1)).expect("the same rings on a new connection");
            source.reconnect(rig.socket(0)).expect("the same rings on a new connection");
            wait_until("all transmit buffers are back", || {
                source.flush();
                let level = sink.level();
                sink.receive(64, |_, parts| seen.note(level, parts));
                source.spare() == 64
            });
        }
        // Packets sent without a port are lost; no buffer is, so an entire ring of packets arrives
        // at once.
        let level = sink.level();
        wait_until("what is delivered is seen", || {
            sink.receive(64, |_, parts| seen.note(level, parts));
            rig.port(1).queues[0].tx.packets == seen.packets
        });
        let before = seen.packets;
        wait_until("the link is up", || rig.port(1).link == Link::Up);
        for _ in 0..64 {
            assert!(stream.send(&mut source));
        }
        source.flush();
        wait_until("an entire ring of packets has arrived", || {
            sink.receive(64, |_, parts| seen.note(level, parts));
            seen.packets == before + 64
        });
    }
}

/// DPDK's virtio-user starts again with the rings' first base after its backend was away, whatever
/// they hold.
#[test]
fn a_frontend_that_forgot_the_base() {
    for (packed, base) in [(false, 0), (true, 0x8000_8000)] {
        let rig = patched();
        let mut a = rig.guest(0, &options(packed));
        let mut b = rig.guest(1, &options(packed));
        for round in 0..3 {
            exchange(&mut a, &mut b, 100 + 7 * round, 1514);
            exchange(&mut b, &mut a, 90, 1514);
            for guest in [&mut a, &mut b] {
                guest.stop().expect("rings stop");
                guest.resume(&[[base, base]]).expect("rings start");
            }
            rig.wait_up(0);
            rig.wait_up(1);
        }
        exchange(&mut a, &mut b, 100, 1514);
        rig.no_drops();
    }
}

// Cites packed-2.8.1-1, vhost-user-reset-device-1, vhost-user-get-vring-base-2.
#[test]
fn the_rings_of_a_reset_device_begin_anew() {
    // In a packed ring both wrap counters begin with 1.
    for (packed, base) in [(false, 0), (true, 0x8000_8000)] {
        let rig = patched();
        let mut a = rig.guest(0, &options(packed));
        let mut b = rig.guest(1, &options(packed));
        exchange(&mut a, &mut b, 30, 1514);
        exchange(&mut b, &mut a, 20, 1514);
        a.client().reset_device().expect("reset");
        assert_eq!(a.stop().expect("positions"), [[base, base]], "packed: {packed}");
    }
}

#[test]
fn packed_rings_laid_bare() {
    let rig = patched();
    let mut good = rig.guest(1, &options(false));
    let guest = rig.guest(0, &GuestOptions { withhold: true, ..options(true) });
    let sent = frame(mac(2), mac(1), 800, 7);
    let whole = [&NetHeader::default().to_bytes()[..], &sent].concat();
    let addr = guest.buffer_address(Ring::Transmit, 3);
    assert!(guest.write_memory(addr, &whole));
    let parts = [
        PackedDescriptor { addr, len: 100, id: 0, flags: NEXT },
        PackedDescriptor { addr: addr + 100, len: 712, id: 9, flags: 0 },
    ];
    guest.publish_packed(Ring::Transmit, 0, true, &parts);
    assert!(take(&mut good, 1)[0].1 == sent);
    let first = || guest.packed_descriptor(Ring::Transmit, 0).expect("in memory");
    wait_until("it is used", || first().is_used(true));
    assert_eq!(first().id, 9);
    let second = guest.packed_descriptor(Ring::Transmit, 1).expect("in memory");
    assert!(second.is_used(true), "omissions of a used chain are marked, for a backend that must find its place again");
    assert_eq!((second.addr, second.len), (parts[1].addr, parts[1].len));
}
