//! Frames arrive as they were sent: every length, every layout in buffers, both directions, in
//! order.

use straightline_guest::{Guest, GuestOptions};
use straightline_testing::{self as testing, ANY_LEN, BASIC, Rig, arrived, frame, mac, noise, patch, rig, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};

/// A layout of a frame in buffers.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// Header and frame in one buffer.
    One,
    /// The header in a buffer of its own.
    HeaderApart,
    /// Split at any place, also in the header; a part may be empty.
    Anywhere,
}

fn parts(bytes: &[u8], layout: Layout, seed: u64, longest: usize) -> Vec<&[u8]> {
    let random = noise(seed, 4);
    let at = |n: usize| usize::from(random[n]);
    let (first, step) = match layout {
        Layout::One => return vec![bytes],
        Layout::HeaderApart => (HEADER, longest),
        Layout::Anywhere => (at(0) % 16, (bytes.len() / (1 + at(1) % 9) + at(2) % 64 + 1).min(longest)),
    };
    let (head, rest) = bytes.split_at(first);
    std::iter::once(head).chain(rest.chunks(step)).collect()
}

fn send(guest: &mut Guest, frame: &[u8], layout: Layout, indirect: bool, seed: u64, longest: usize) {
    let bytes = [&NetHeader::default().to_bytes(), frame].concat();
    let parts = parts(&bytes, layout, seed, longest);
    wait_until("there are transmit buffers", || {
        guest.flush();
        guest.send_chain(&parts, indirect)
    });
}

/// Every length from 14 to 2100, then lengths in steps, then the longest.
fn lengths() -> impl Iterator<Item = usize> {
    (14..=2100).chain((2101..65_550).step_by(1297)).chain([9000, 65_535, 65_549, 65_550])
}

/// Sends every length in both directions; `capacity` is the number of bytes that a receive ring can
/// hold at a time.
fn exchange(options: &GuestOptions, layout: Layout, lengths: impl Iterator<Item = usize>, capacity: usize) {
    let rig = rig(2, |config| {
        config.patches.push(patch(0, 1));
        config.ports.iter_mut().for_each(|port| port.mtu = ANY_LEN);
    });
    let mut guests = [rig.guest(0, options), rig.guest(1, options)];
    let indirect = guests[0].features() & f::VIRTIO_F_INDIRECT_DESC != 0;
    assert_eq!(indirect, options.features & f::VIRTIO_F_INDIRECT_DESC != 0);
    let mut batch = Vec::new();
    let mut held = 0;
    for len in lengths {
        // A frame may leave most of its last buffer empty.
        let cost = len + options.buffer_len as usize + HEADER;
        if held + cost > capacity {
            pass(&mut guests, &std::mem::take(&mut batch), layout, indirect, options);
            held = 0;
        }
        batch.push(len);
        held += cost;
    }
    pass(&mut guests, &batch, layout, indirect, options);
    check_counters(&rig);
}

fn pass(guests: &mut [Guest; 2], lens: &[usize], layout: Layout, indirect: bool, options: &GuestOptions) {
    let longest = options.buffer_len as usize;
    let frame = |from: usize, len: usize| frame(mac(9), mac(8), len, (len * 2 + from) as u64);
    for &len in lens {
        for (from, guest) in guests.iter_mut().enumerate() {
            send(guest, &frame(from, len), layout, indirect, len as u64, longest);
            guest.flush();
        }
    }
    for (to, guest) in guests.iter_mut().enumerate() {
        let got = testing::take(guest, lens.len());
        for ((header, bytes), &len) in got.into_iter().zip(lens) {
            assert_eq!((header.flags, header.gso_type), (0, 0));
            assert!(bytes == frame(1 - to, len), "{layout:?}: {len} bytes to {to}; got {}", bytes.len());
        }
    }
}

fn check_counters(rig: &Rig) {
    rig.no_drops();
    let [a, b] = [0, 1].map(|port| rig.port(port).queues.swap_remove(0));
    assert_eq!(a.rx, b.tx);
    assert_eq!(b.rx, a.tx);
    assert!(a.rx.packets >= 2000 && a.rx.bytes > 14 * a.rx.packets);
}

fn mergeable(buffer_len: u32, features: u64) -> GuestOptions {
    GuestOptions { features: BASIC | f::VIRTIO_NET_F_MRG_RXBUF | features, buffer_len, ..GuestOptions::default() }
}

fn whole(features: u64) -> GuestOptions {
    GuestOptions { features: BASIC | features, buffer_len: 65_600, ring_size: 32, ..GuestOptions::default() }
}

#[test]
fn one_buffer_each() {
    exchange(&whole(0), Layout::One, lengths(), 1 << 20);
}

#[test]
fn one_buffer_each_with_the_event_index() {
    exchange(&whole(f::VIRTIO_F_EVENT_IDX), Layout::HeaderApart, lengths(), 1 << 20);
}

#[test]
fn merged_buffers() {
    exchange(&mergeable(2048, f::VIRTIO_F_EVENT_IDX), Layout::Anywhere, lengths(), 256 * 2048);
}

#[test]
fn merged_buffers_of_an_odd_length() {
    exchange(&mergeable(333, 0), Layout::Anywhere, lengths(), 256 * 333);
}

#[test]
fn indirect_tables() {
    let features = f::VIRTIO_F_INDIRECT_DESC | f::VIRTIO_F_EVENT_IDX;
    exchange(&mergeable(4096, features), Layout::Anywhere, lengths(), 256 * 4096);
}

#[test]
fn indirect_tables_without_merging() {
    exchange(&whole(f::VIRTIO_F_INDIRECT_DESC), Layout::HeaderApart, lengths(), 1 << 20);
}

#[test]
fn receive_buffers_of_several_descriptors() {
    let options = GuestOptions { receive_split: 700, ..mergeable(2048, 0) };
    exchange(&options, Layout::HeaderApart, lengths(), 80 * 2048);
}

#[test]
fn receive_buffers_that_cut_the_header() {
    let options = GuestOptions { receive_split: 5, ring_size: 1024, ..mergeable(60, 0) };
    exchange(&options, Layout::Anywhere, 14..=2100, 80 * 60);
}

#[test]
fn whole_packets_in_chains_as_legacy_drivers_offer_them() {
    let options = GuestOptions { receive_split: 4096, ring_size: 256, ..whole(0) };
    exchange(&options, Layout::HeaderApart, lengths(), 14 * 65_600);
}

#[test]
fn two_copies_deliver_the_same() {
    let rig = rig(2, |config| {
        config.patches.push(patch(0, 1));
        config.ports.iter_mut().for_each(|port| port.mtu = ANY_LEN);
        config.switch.copies = straightline_config::Copies::Two;
    });
    let options = mergeable(2048, 0);
    let mut guests = [rig.guest(0, &options), rig.guest(1, &options)];
    for len in lengths() {
        pass(&mut guests, &[len], Layout::Anywhere, false, &options);
    }
    check_counters(&rig);
}

#[test]
fn what_is_too_long_or_too_short_is_counted_where_it_came_from() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let options = GuestOptions { buffer_len: 65_600, ring_size: 32, ..GuestOptions::default() };
    let mut source = rig.guest(0, &options);
    let mut sink = rig.guest(1, &options);
    let longest = 1500 + 18;
    for len in [0, 1, 13, longest + 1, 65_550, longest] {
        assert!(source.send(&NetHeader::default(), &noise(7, len)));
    }
    source.flush();
    assert_eq!(testing::take(&mut sink, 1)[0].1, noise(7, longest));
    rig.wait_drops(0, "runt", 3);
    rig.wait_drops(0, "too-big", 2);
    assert!(source.send(&NetHeader::default(), &noise(7, 65_551)));
    assert!(source.send_chain(&[&[0; 11]], false));
    source.flush();
    rig.wait_drops(0, "long-chain", 1);
    rig.wait_drops(0, "short-chain", 1);
    assert_eq!(arrived(&mut sink).len(), 0);
    assert!(rig.port(1).drops.is_empty());
}

#[test]
fn what_is_too_long_for_the_destination_is_counted_there() {
    let rig = rig(2, |config| {
        config.patches.push(patch(0, 1));
        config.ports[0].mtu = 9000;
    });
    let options = GuestOptions { buffer_len: 9100, ring_size: 32, ..GuestOptions::default() };
    let mut source = rig.guest(0, &options);
    let mut sink = rig.guest(1, &options);
    for len in [9018, 1519, 1518] {
        testing::send(&mut source, &noise(7, len));
    }
    assert_eq!(testing::take(&mut sink, 1)[0].1, noise(7, 1518));
    assert_eq!(rig.drops(1, "too-big"), 2);
    assert!(rig.port(0).drops.is_empty());
}

#[test]
fn a_buffer_that_is_too_small_and_cannot_be_merged() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = rig.guest(0, &GuestOptions::default());
    let small = GuestOptions { features: BASIC, buffer_len: 512, ..GuestOptions::default() };
    let mut sink = rig.guest(1, &small);
    for len in [501, 500, 1500, 60] {
        testing::send(&mut source, &noise(7, len));
    }
    let got = testing::take(&mut sink, 2);
    assert_eq!((got[0].1.len(), got[1].1.len()), (500, 60));
    assert_eq!(rig.drops(1, "buffer-too-small"), 2);
}
