//! Checksums and segmentation that a sender leaves to others: passed on if the receiver negotiated
//! them, done here if it did not, refused if the sender did not.

use straightline_config::Offloads;
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::packets::{Kind, NEEDS_CSUM, check, partial, segmented};
use straightline_testing::{self as testing, BASIC, Rig, mac, noise, patch, rig, take, vhost_user};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

const CSUM: u64 = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM;
const TSO: u64 = f::VIRTIO_NET_F_HOST_TSO4
    | f::VIRTIO_NET_F_HOST_TSO6
    | f::VIRTIO_NET_F_GUEST_TSO4
    | f::VIRTIO_NET_F_GUEST_TSO6
    | f::VIRTIO_NET_F_HOST_ECN
    | f::VIRTIO_NET_F_GUEST_ECN;
const USO: u64 = f::VIRTIO_NET_F_HOST_USO | f::VIRTIO_NET_F_GUEST_USO4 | f::VIRTIO_NET_F_GUEST_USO6;

fn options(features: u64, mergeable: bool) -> GuestOptions {
    let merge = if mergeable { f::VIRTIO_NET_F_MRG_RXBUF } else { 0 };
    let base = GuestOptions { features: BASIC | merge | features, ..GuestOptions::default() };
    GuestOptions { buffer_len: 65_600, ring_size: 128, ..base }
}

/// The kinds that a guest may send, or be sent.
fn sends(guest: &Guest, kind: Kind) -> bool {
    let feature = match kind {
        Kind::Tcp4 => f::VIRTIO_NET_F_HOST_TSO4,
        Kind::Tcp6 => f::VIRTIO_NET_F_HOST_TSO6,
        Kind::Udp4 | Kind::Udp6 => f::VIRTIO_NET_F_HOST_USO,
    };
    guest.features() & feature != 0
}

fn takes(guest: &Guest, kind: Kind) -> bool {
    let feature = match kind {
        Kind::Tcp4 => f::VIRTIO_NET_F_GUEST_TSO4,
        Kind::Tcp6 => f::VIRTIO_NET_F_GUEST_TSO6,
        Kind::Udp4 => f::VIRTIO_NET_F_GUEST_USO4,
        Kind::Udp6 => f::VIRTIO_NET_F_GUEST_USO6,
    };
    guest.features() & feature != 0
}

fn takes_partial(guest: &Guest) -> bool {
    guest.features() & f::VIRTIO_NET_F_GUEST_CSUM != 0
}

/// Sends one of everything from `source` to `sink`, whatever they negotiated.
fn everything(rig: &Rig, source: &mut Guest, sink: &mut Guest) {
    let mut refused = 0;
    for kind in Kind::ALL {
        for len in [1, 100, 1001, 1400] {
            let payload = noise(len as u64, len);
            let (header, frame) = partial(kind, mac(2), mac(1), &payload);
            let before = refusals(rig);
            assert!(source.send(&header, &frame));
            source.flush();
            if source.features() & f::VIRTIO_NET_F_CSUM == 0 {
                asks_in_vain(rig, sink, before, &frame);
                continue;
            }
            let (got, bytes) = take(sink, 1).remove(0);
            assert_eq!(check_partial(&got, sink, &bytes, &header), payload);
        }
        for (len, size) in [(65_000, 1400), (65_400, 536), (9000, 1440), (3000, 1000), (2999, 1234), (10, 1000)] {
            let payload = noise(len as u64, len);
            let (header, frame) = segmented(kind, mac(2), mac(1), &payload, size);
            let before = refusals(rig);
            assert!(source.send(&header, &frame));
            source.flush();
            if source.features() & f::VIRTIO_NET_F_CSUM == 0 {
                asks_in_vain(rig, sink, before, &frame);
            } else if !sends(source, kind) {
                refused += 1;
                rig.wait_drops(0, "bad-header", refused);
            } else if takes(sink, kind) {
                let (got, bytes) = take(sink, 1).remove(0);
                assert_eq!(bytes, frame, "passed on unchanged");
                let told = (got.gso_type, got.gso_size, got.hdr_len, got.flags);
                // A packet of one segment is plain.
                let gso = if len > size.into() { (header.gso_type, size, header.hdr_len) } else { (0, 0, 0) };
                assert_eq!(told, (gso.0, gso.1, gso.2, NEEDS_CSUM));
                check_partial(&got, sink, &bytes, &header);
            } else {
                segments(sink, kind, &header, &payload, size);
            }
        }
    }
    assert!(rig.port(1).drops.is_empty());
}

/// The header of a driver without negotiated offloads requests nothing (virtio 1.2, 5.1.6.2) and is
/// not read. The frame counts without its header, and is too long if it is longer than the port
/// carries.
fn asks_in_vain(rig: &Rig, sink: &mut Guest, before: [u64; 2], frame: &[u8]) {
    let mut got = Vec::new();
    testing::wait_until("it is dropped or delivered", || {
        got.extend(testing::arrived(sink));
        !got.is_empty() || refusals(rig) != before
    });
    let fits = frame.len() <= usize::from(rig.port(0).mtu) + 18;
    let [headers, lengths] = before;
    let expected = if fits { (1, [headers, lengths]) } else { (0, [headers, lengths + 1]) };
    assert_eq!((got.len(), refusals(rig)), expected);
    for (header, bytes) in got {
        assert_eq!((header.flags, header.gso_type, header.gso_size), (0, 0, 0));
        assert!(bytes == frame);
    }
}

/// Returns the frames that were refused so far: for their header, and for their length.
fn refusals(rig: &Rig) -> [u64; 2] {
    [rig.drops(0, "bad-header"), rig.drops(0, "too-big")]
}

/// Checks a frame that is one packet: its checksum is completed, or left as it was for a receiver
/// that negotiated that.
fn check_partial(got: &NetHeader, sink: &Guest, bytes: &[u8], sent: &NetHeader) -> Vec<u8> {
    if takes_partial(sink) {
        assert_eq!(got.flags, NEEDS_CSUM);
        assert_eq!((got.csum_start, got.csum_offset), (sent.csum_start, sent.csum_offset));
    } else {
        assert_eq!((got.flags, got.csum_start, got.csum_offset), (0, 0, 0));
    }
    check(bytes, takes_partial(sink)).payload
}

fn segments(sink: &mut Guest, kind: Kind, header: &NetHeader, payload: &[u8], size: u16) {
    let count = payload.len().div_ceil(size.into());
    let got = take(sink, count);
    let mut at = 0;
    for (n, (told, bytes)) in got.iter().enumerate() {
        assert_eq!((told.gso_type, told.gso_size), (0, 0));
        assert!(bytes.len() <= 1518);
        assert_eq!(
            check_partial(told, sink, bytes, header).len(),
            payload.len().min(size.into()).min(payload.len() - at)
        );
        let parsed = check(bytes, takes_partial(sink));
        assert!(parsed.payload == payload[at..at + parsed.payload.len()], "{kind:?}: segment {n}");
        if kind.is_tcp() {
            let sent = u32::try_from(at).expect("short");
            assert_eq!(parsed.seq, 0xffff_fff0_u32.wrapping_add(sent));
            // ACK in all, PSH in the last.
            assert_eq!(parsed.flags, if n + 1 == count { 0x18 } else { 0x10 });
        }
        if matches!(kind, Kind::Tcp4 | Kind::Udp4) {
            assert_eq!(usize::from(parsed.ident), n);
        }
        at += parsed.payload.len();
    }
    assert_eq!(at, payload.len());
}

/// Returns all that a port can be told to offer, and a driver to accept.
fn combinations() -> Vec<(Offloads, u64)> {
    let offers = [(false, false), (true, false), (true, true)];
    let takes = [0, CSUM, CSUM | TSO, CSUM | USO, CSUM | TSO | USO];
    let offers = offers.map(|(csum, segments)| Offloads { csum, tso: segments, uso: segments });
    offers.into_iter().flat_map(|offer| takes.map(|take| (offer, take))).collect()
}

/// Packets of one burst with different requests.
#[test]
fn each_packet_of_a_burst_has_its_own_header() {
    let plain = |n| (NetHeader::default(), testing::frame(mac(2), mac(1), 700, n));
    let asks = |kind, len| partial(kind, mac(2), mac(1), &noise(len as u64, len));
    for layout in [0, f::VIRTIO_F_RING_PACKED] {
        for takes in [0, CSUM, CSUM | TSO | USO] {
            let rig = rig(2, |config| config.patches.push(patch(0, 1)));
            let mut source = rig.guest(0, &options(layout | CSUM, true));
            let mut sink = rig.guest(1, &options(layout | takes, true));
            let burst =
                [plain(1), asks(Kind::Tcp4, 900), plain(2), asks(Kind::Udp6, 300), asks(Kind::Tcp6, 500), plain(3)];
            for (header, frame) in &burst {
                assert!(source.send(header, frame));
            }
            source.flush();
            for ((told, bytes), (header, frame)) in take(&mut sink, burst.len()).iter().zip(&burst) {
                let expected = match header.flags {
                    NEEDS_CSUM if takes != 0 => (NEEDS_CSUM, header.csum_start, header.csum_offset),
                    _ => (0, 0, 0),
                };
                assert_eq!((told.flags, told.csum_start, told.csum_offset), expected);
                assert_eq!((told.gso_type, told.num_buffers), (0, 1));
                if header.flags == NEEDS_CSUM {
                    let payload = check(bytes, takes != 0).payload;
                    assert!(bytes.len() == frame.len() && frame.ends_with(&payload));
                } else {
                    assert!(bytes == frame);
                }
            }
        }
    }
}

/// One side changes, the other has everything.
fn against_everything(changed: usize) {
    for (offer, take) in combinations() {
        for mergeable in [false, true] {
            let rig = rig(2, |config| {
                config.patches.push(patch(0, 1));
                vhost_user(&mut config.ports[changed]).offloads = offer;
            });
            let all = options(CSUM | TSO | USO, mergeable);
            let mine = options(take, mergeable);
            let mut source = rig.guest(0, if changed == 0 { &mine } else { &all });
            let mut sink = rig.guest(1, if changed == 1 { &mine } else { &all });
            let agreed = if changed == 0 { source.features() } else { sink.features() };
            assert_eq!(agreed & CSUM != 0, offer.csum && take & CSUM != 0);
            assert_eq!(agreed & TSO != 0, offer.tso && take & TSO != 0);
            everything(&rig, &mut source, &mut sink);
        }
    }
}

#[test]
fn whatever_the_sender_agreed_on() {
    against_everything(0);
}

#[test]
fn whatever_the_receiver_agreed_on() {
    against_everything(1);
}

#[test]
fn neither_agreed_on_the_same() {
    for take in [0, CSUM, CSUM | TSO, CSUM | USO] {
        for give in [CSUM, CSUM | TSO, CSUM | USO] {
            let rig = rig(2, |config| config.patches.push(patch(0, 1)));
            let mut source = rig.guest(0, &options(give, true));
            let mut sink = rig.guest(1, &options(take, true));
            everything(&rig, &mut source, &mut sink);
        }
    }
}

#[test]
fn one_kind_of_segments_is_not_another() {
    let only = f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_TSO4 | f::VIRTIO_NET_F_GUEST_USO6;
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = rig.guest(0, &options(CSUM | TSO | USO, true));
    let mut sink = rig.guest(1, &options(only, true));
    assert!(takes(&sink, Kind::Tcp4) && !takes(&sink, Kind::Tcp6));
    everything(&rig, &mut source, &mut sink);
}

#[test]
fn segmentation_without_the_checksum_is_not_agreed_on() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = rig.guest(0, &options(CSUM | TSO | USO, true));
    // A driver with an error (virtio 1.2, 5.1.3.1: GUEST_TSO needs GUEST_CSUM) still gets no
    // partial checksum.
    let sink = Guest::connect(rig.socket(1), &options(TSO | USO, true));
    if let Ok(mut sink) = sink {
        let payload = noise(1, 5000);
        let (header, frame) = segmented(Kind::Tcp4, mac(2), mac(1), &payload, 1000);
        assert!(source.send(&header, &frame));
        source.flush();
        for (got, bytes) in take(&mut sink, 5) {
            assert_eq!((got.flags, got.gso_type), (0, 0));
            check(&bytes, false);
        }
    }
}

#[test]
fn ecn_is_a_feature_of_its_own() {
    const ECN: u8 = 0x80;
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = rig.guest(0, &options(CSUM | TSO, true));
    let mut sink = rig.guest(1, &options(CSUM | TSO & !f::VIRTIO_NET_F_GUEST_ECN, true));
    let (mut header, mut frame) = segmented(Kind::Tcp4, mac(2), mac(1), &noise(1, 3000), 1000);
    header.gso_type |= ECN;
    let cwr = 0x80;
    frame[34 + 13] |= cwr;
    assert!(source.send(&header, &frame));
    source.flush();
    let flags: Vec<_> = take(&mut sink, 3).iter().map(|(_, bytes)| check(bytes, true).flags & cwr).collect();
    assert_eq!(flags, [cwr, 0, 0], "only the first segment has it (RFC 3168, 6.1.2)");
}

#[test]
fn headers_that_ask_for_the_impossible() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = rig.guest(0, &options(CSUM | TSO | USO, true));
    let mut sink = rig.guest(1, &options(0, true));
    let (good, frame) = segmented(Kind::Tcp4, mac(2), mac(1), &noise(1, 5000), 1000);
    let plain = NetHeader { gso_type: 0, gso_size: 0, ..good };
    let short = &frame[..1000];
    let mut expected = std::collections::BTreeMap::new();
    let mut refuse = |header: NetHeader, frame: &[u8], reason: &'static str| {
        assert!(source.send(&header, frame));
        source.flush();
        let n = expected.entry(reason).or_insert(0);
        *n += 1;
        rig.wait_drops(0, reason, *n);
    };
    refuse(NetHeader { gso_size: 0, ..good }, &frame, "segment-size");
    refuse(NetHeader { flags: 0, ..good }, &frame, "bad-header");
    for unknown in [2, 3, 6, 7, 0x40, 0x80, 0x85] {
        refuse(NetHeader { gso_type: unknown, ..good }, &frame, "bad-header");
    }
    refuse(NetHeader { gso_type: Kind::Tcp6.gso_type(), ..good }, &frame, "segment-headers");
    refuse(NetHeader { gso_type: Kind::Udp4.gso_type(), ..good }, &frame, "segment-headers");
    refuse(NetHeader { csum_start: 35, ..good }, &frame, "segment-headers");
    refuse(NetHeader { csum_offset: 6, ..good }, &frame, "segment-headers");
    refuse(NetHeader { csum_start: 0, ..plain }, short, "checksum-range");
    refuse(NetHeader { csum_start: 13, ..plain }, short, "checksum-range");
    for (start, offset) in [(999, 0), (34, 965), (65_535, 65_535), (1000, 0), (14, 65_535), (65_535, 0)] {
        refuse(NetHeader { csum_start: start, csum_offset: offset, ..plain }, short, "checksum-range");
    }
    refuse(NetHeader { csum_start: 900, csum_offset: 16, ..plain }, short, "checksum-depth");
    // The hint of the headers' length is never trusted.
    for hdr_len in [0, 1, 53, 5000, 65_535] {
        assert!(source.send(&NetHeader { hdr_len, ..good }, &frame));
        source.flush();
        for (_, bytes) in take(&mut sink, 5) {
            check(&bytes, false);
        }
    }
    // Segments that no port of this MTU carries.
    let (huge, frame) = segmented(Kind::Tcp4, mac(2), mac(1), &noise(1, 5000), 4000);
    assert!(source.send(&huge, &frame));
    source.flush();
    testing::wait_until("it is dropped", || rig.drops(1, "too-big") + rig.drops(0, "segment-size") == 2);
}

#[test]
fn a_header_is_cut_into_segments_wherever_it_lies() {
    let rig = rig(2, |config| config.patches.push(patch(0, 1)));
    let mut source = rig.guest(0, &options(CSUM | TSO | USO, true));
    let mut sink = rig.guest(1, &options(0, true));
    let payload = noise(1, 2500);
    for kind in Kind::ALL {
        let (header, frame) = segmented(kind, mac(2), mac(1), &payload, 1000);
        let bytes = [&header.to_bytes(), &frame[..]].concat();
        for cut in 1..100 {
            let (a, b) = bytes.split_at(cut);
            assert!(source.send_chain(&[a, b], false));
            source.flush();
            segments(&mut sink, kind, &header, &payload, 1000);
        }
    }
}
