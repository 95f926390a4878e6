//! Packets of some classes of service that pass before others: at full rings, and at limits.

use straightline_config::{Config, PortRate, WhenFull};
use straightline_graph::{Limit, RateLimits};
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::tunnel::{Net, V4};
use straightline_testing::{BASIC, Rig, bridge, frame, mac, patch, rig, send, take, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::{Dscp, DscpSet};

const LAYOUTS: [u64; 3] = [BASIC, BASIC | f::VIRTIO_F_EVENT_IDX, BASIC | f::VIRTIO_F_RING_PACKED];

/// Expedited forwarding (RFC 3246), and best effort.
const EF: u8 = 46;
const BEST_EFFORT: u8 = 0;

fn ef() -> DscpSet {
    Dscp::new(EF).into_iter().collect()
}

/// Two ports in a bridge. `EF` is expedited at the second.
fn expedited(rules: impl FnOnce(&mut Config)) -> Rig {
    rig(2, |config| {
        config.bridges.push(bridge(2));
        config.ports[1].expedited = ef();
        rules(config);
    })
}

/// Returns packet `n` of this class, with `len` bytes.
fn of_class(dscp: u8, len: usize, n: u64) -> Vec<u8> {
    let mut frame = frame(mac(2), mac(1), len, n);
    let net = u16::try_from(len - 14).expect("a short frame");
    frame[12..16].copy_from_slice(&[8, 0, 0x45, dscp << 2]);
    frame[16..18].copy_from_slice(&net.to_be_bytes());
    frame
}

fn send_all(guest: &mut Guest, frames: impl IntoIterator<Item = Vec<u8>>) {
    frames.into_iter().for_each(|frame| send(guest, &frame));
}

fn numbered(dscp: u8, numbers: std::ops::Range<u64>) -> impl Iterator<Item = Vec<u8>> {
    numbers.map(move |n| of_class(dscp, 100, n))
}

/// Waits until port 1 was sent, or has dropped, this many packets. Returns the number that were sent.
fn sent_of(rig: &Rig, all: u64) -> u64 {
    let sent = || rig.port(1).queues.iter().map(|queue| queue.tx.packets).sum::<u64>();
    wait_until("all packets are counted", || sent() + rig.port(1).drops.values().sum::<u64>() >= all);
    sent()
}

#[test]
fn a_full_ring_keeps_buffers_for_expedited_packets() {
    for layout in LAYOUTS {
        // One buffer for each packet, and several.
        for (buffer_len, each) in [(2048, 1), (50, 3)] {
            let rig = expedited(|_| ());
            let mut a = rig.guest(0, &GuestOptions::default());
            let features = layout | f::VIRTIO_NET_F_MRG_RXBUF;
            let mut b = rig.guest(1, &GuestOptions { features, buffer_len, ..GuestOptions::default() });
            // An eighth of 256 buffers stays free.
            let others = 224 / each;
            send_all(&mut a, numbered(BEST_EFFORT, 0..400));
            assert_eq!(sent_of(&rig, 400), others, "{layout:x}, {each} buffers a packet");
            let first = (256 - others * each) / each;
            send_all(&mut a, numbered(EF, 0..50));
            assert_eq!(sent_of(&rig, 450), others + first, "{layout:x}, {each} buffers a packet");
            assert_eq!(rig.drops(1, "no-buffer"), 450 - others - first);
            let got = take(&mut b, usize::try_from(others + first).expect("few"));
            let expected = numbered(BEST_EFFORT, 0..others).chain(numbered(EF, 0..first));
            assert!(got.into_iter().map(|(_, frame)| frame).eq(expected), "{layout:x}, {each} buffers a packet");
            // The guest has given its buffers back: all pass again.
            send_all(&mut a, numbered(BEST_EFFORT, 500..510));
            assert!(take(&mut b, 10).into_iter().map(|(_, frame)| frame).eq(numbered(BEST_EFFORT, 500..510)));
        }
    }
}

#[test]
fn packets_that_wait_for_buffers_keep_their_order() {
    let rig = rig(2, |config| {
        config.patches.push(patch(0, 1));
        config.patches[0].full = WhenFull::Wait;
        config.ports[1].expedited = ef();
    });
    let mut a = rig.guest(0, &GuestOptions::default());
    let mut b = rig.guest(1, &GuestOptions::default());
    let mixed = |n| of_class(if n % 2 == 0 { EF } else { BEST_EFFORT }, 100, n);
    send_all(&mut a, (0..300).map(mixed));
    assert!(take(&mut b, 300).into_iter().map(|(_, frame)| frame).eq((0..300).map(mixed)));
    rig.no_drops();
}

/// A limit from which no tokens come, however slow the test is.
fn slow() -> Option<PortRate> {
    let limit = Limit { per_second: 0, burst: 20 };
    Some(PortRate::Own(RateLimits { bytes: None, packets: Some(limit) }))
}

/// A packet beyond the limit drops there, although later ones of its sender wait for buffers.
#[test]
fn packets_that_wait_behind_one_that_drops_come_again() {
    let rig = rig(2, |config| {
        config.patches.push(patch(0, 1));
        config.patches[0].full = WhenFull::Wait;
        config.ports[1].expedited = ef();
        config.ports[1].rate_out = slow();
    });
    let mut a = rig.guest(0, &GuestOptions::default());
    let mut b = rig.guest(1, &GuestOptions { ring_size: 32, ..GuestOptions::default() });
    send_all(&mut a, numbered(BEST_EFFORT, 0..20));
    assert_eq!(sent_of(&rig, 20), 20);
    // Twelve buffers are free, for 20 packets that borrow tokens.
    for frame in numbered(BEST_EFFORT, 20..21).chain(numbered(EF, 0..20)) {
        assert!(a.send(&NetHeader::default(), &frame), "a free buffer");
    }
    a.flush();
    assert_eq!(sent_of(&rig, 33), 32);
    let got = take(&mut b, 32);
    let rest = take(&mut b, 8);
    let expected = numbered(BEST_EFFORT, 0..20).chain(numbered(EF, 0..20));
    assert!(got.into_iter().chain(rest).map(|(_, frame)| frame).eq(expected));
    assert_eq!((rig.drops(1, "rate"), rig.port(0).drops.len()), (1, 0), "{:?}", rig.port(0).drops);
}

#[test]
fn a_limit_lets_expedited_packets_pass_when_others_drop() {
    let rig = expedited(|config| config.ports[1].rate_out = slow());
    let mut a = rig.guest(0, &GuestOptions::default());
    let mut b = rig.guest(1, &GuestOptions::default());
    send_all(&mut a, numbered(BEST_EFFORT, 0..100));
    assert_eq!(sent_of(&rig, 100), 20);
    // They borrow a burst.
    send_all(&mut a, numbered(EF, 0..100));
    assert_eq!(sent_of(&rig, 200), 40);
    assert_eq!(rig.drops(1, "rate"), 160);
    let expected = numbered(BEST_EFFORT, 0..20).chain(numbered(EF, 0..20));
    assert!(take(&mut b, 40).into_iter().map(|(_, frame)| frame).eq(expected));
}

#[test]
fn a_tunnel_expedites_at_its_limit() {
    let keys = "kind = \"vxlan\"\nvni = 5";
    let limited = format!("{keys}\nexpedited = [\"ef\"]\nrate-out = \"50 packet/s\"\nburst = \"64 packet\"");
    let mut net = Net::start(V4, &limited, keys);
    net.wait_up();
    let rate = |net: &Net| net.port("t1").rate_out.expect("a limit");
    let counted = |net: &Net, all| {
        wait_until("all packets are counted", || rate(net).passed_packets + rate(net).dropped == all);
        rate(net)
    };
    send_all(&mut net.a, numbered(BEST_EFFORT, 0..400));
    let before = counted(&net, 400);
    assert!(before.dropped > 0, "{before:?}");
    // A burst is lent, and what comes meanwhile is on top of it.
    send_all(&mut net.a, numbered(EF, 0..60));
    assert_eq!(counted(&net, 460).dropped, before.dropped);
}

#[test]
fn a_reload_changes_the_classes_and_the_guest_stays() {
    let rig = expedited(|_| ());
    let mut a = rig.guest(0, &GuestOptions::default());
    let mut b = rig.guest(1, &GuestOptions::default());
    assert_eq!(rig.port(1).expedited, ["ef"]);
    let mut config = rig.switch.config();
    config.ports[1].expedited = DscpSet::default();
    let changes = rig.switch.reload(&config).expect("a reload").changes;
    let texts: Vec<_> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["port \"p1\" changed: expedited ef is now none"]);
    // No buffer is kept now.
    send_all(&mut a, numbered(BEST_EFFORT, 0..300));
    assert_eq!(sent_of(&rig, 300), 256);
    take(&mut b, 256);
    config.ports[1].expedited = ["cs6", "af21"].iter().filter_map(|name| name.parse::<Dscp>().ok()).collect();
    let changes = rig.switch.reload(&config).expect("a reload").changes;
    assert_eq!(changes[0].to_string(), "port \"p1\" changed: expedited none is now af21, cs6");
    send_all(&mut a, numbered(EF, 0..300));
    assert_eq!(sent_of(&rig, 600), 256 + 224);
}
