//! Captures of a switch that runs: what they have, what they leave out, and when they end.

use std::time::{SystemTime, UNIX_EPOCH};

use straightline_capture::record::{Place, Record};
use straightline_config::{Config, PortConfig, WhenFull};
use straightline_guest::{Guest, GuestOptions};
use straightline_packet::Reason;
use straightline_switch::Switch;
use straightline_switch::api::{CaptureRequest, ErrorCode, Stream};
use straightline_testing::packets::{Kind, partial};
use straightline_testing::tunnel::Net;
use straightline_testing::{BASIC, Rig, frame, mac, nothing, patch, rig, send, take, wait_until};
use straightline_virtio::features::VIRTIO_NET_F_CSUM;
use straightline_virtio::net_header::NetHeader;

/// A captured packet.
#[derive(Clone, PartialEq)]
struct Seen {
    interface: u16,
    place: Place,
    len: u32,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Seen { interface, place, len, bytes } = self;
        write!(f, "{place:?} by {interface}, {} of {len} bytes: {:02x?}", bytes.len(), &bytes[..bytes.len().min(24)])
    }
}

/// A capture, and what it has sent so far.
struct Capture {
    stream: Box<dyn Stream>,
    input: Vec<u8>,
    packets: Vec<Seen>,
    times: Vec<u64>,
    /// Selected and missed packets of each interface.
    counts: [(u64, u64); 2],
    ports: Vec<(u16, bool)>,
}

fn request(ports: &[&str]) -> CaptureRequest {
    CaptureRequest {
        ports: ports.iter().map(|&name| name.to_owned()).collect(),
        received: true,
        delivered: true,
        dropped: None,
        filter: None,
        snaplen: 1 << 18,
    }
}

fn capture(rig: &Rig, request: &CaptureRequest) -> Capture {
    begin(&rig.switch, request)
}

fn begin(switch: &Switch, request: &CaptureRequest) -> Capture {
    let (answer, stream) = switch.capture(request).expect("a capture");
    assert_eq!(
        answer.interfaces.iter().map(|interface| &interface.name).collect::<Vec<_>>(),
        Vec::from_iter(&request.ports)
    );
    Capture {
        stream,
        input: Vec::new(),
        packets: Vec::new(),
        times: Vec::new(),
        counts: [(0, 0); 2],
        ports: Vec::new(),
    }
}

impl Capture {
    /// Takes what the stream has now.
    fn read(&mut self) {
        assert!(self.stream.fill(&mut self.input));
        let mut at = 0;
        while let Some((record, len)) = Record::parse(&self.input[at..]).expect("a record") {
            at += len;
            match record {
                Record::Packet(packet) => {
                    let interface = packet.interface;
                    let place = packet.place;
                    let len = packet.len;
                    let bytes = packet.bytes;
                    self.packets.push(Seen { interface, place, len, bytes: bytes.to_vec() });
                    self.times.push(packet.time);
                }
                Record::Counts { interface, selected, missed } => {
                    self.counts[usize::from(interface)] = (selected, missed);
                }
                Record::Port { interface, is_present } => self.ports.push((interface, is_present)),
                Record::Tick { .. } | Record::Nothing => {}
            }
        }
        self.input.drain(..at);
    }

    /// Waits for `n` packets in all, and takes them.
    fn take(&mut self, n: usize) -> Vec<Seen> {
        wait_until("the packets are captured", || {
            self.read();
            self.packets.len() >= n
        });
        let packets = std::mem::take(&mut self.packets);
        assert_eq!(packets.len(), n, "{packets:?}");
        packets
    }
}

fn seen(interface: u16, place: Place, bytes: &[u8]) -> Seen {
    Seen { interface, place, len: u32::try_from(bytes.len()).unwrap(), bytes: bytes.to_vec() }
}

fn dropped(reason: Reason, on_way_in: bool) -> Place {
    Place::Dropped { reason: reason as u8, on_way_in }
}

fn patched(config: &mut Config) {
    config.patches.push(patch(0, 1));
}

fn pair(rig: &Rig) -> (Guest, Guest) {
    (rig.guest(0, &GuestOptions::default()), rig.guest(1, &GuestOptions::default()))
}

fn now() -> u64 {
    // The time is the subject: captured packets have the time of day.
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

#[test]
fn packets_are_there_whole_in_order_and_with_their_direction() {
    let rig = rig(2, patched);
    let (mut a, mut b) = pair(&rig);
    let mut capture = capture(&rig, &request(&["p0", "p1"]));
    let began = now();
    // Lengths around the head of 256 bytes.
    for (n, len) in (0..).zip([14, 60, 255, 256, 257, 700, 1514]) {
        let there = frame(mac(2), mac(1), len, n);
        let back = frame(mac(1), mac(2), len, n + 100);
        send(&mut a, &there);
        take(&mut b, 1);
        send(&mut b, &back);
        take(&mut a, 1);
        let expected = [
            seen(0, Place::Received, &there),
            seen(1, Place::Delivered, &there),
            seen(1, Place::Received, &back),
            seen(0, Place::Delivered, &back),
        ];
        assert!(capture.take(4) == expected, "{len} bytes");
    }
    let ended = now();
    // Two clocks are read one after the other, so the times may be a little off.
    let millisecond = 1_000_000;
    assert!(capture.times.is_sorted_by(|a, b| *a < b + millisecond), "{:?}", capture.times);
    let second = 1_000_000_000;
    assert!(capture.times[0] > began - second && *capture.times.last().unwrap() < ended + second);
    wait_until("the counts are told", || {
        capture.read();
        capture.counts == [(14, 0), (14, 0)]
    });
}

#[test]
fn directions_filters_and_lengths_select() {
    let rig = rig(2, patched);
    let (mut a, mut b) = pair(&rig);
    let only = |change: &dyn Fn(&mut CaptureRequest)| {
        let mut request = request(&["p0"]);
        change(&mut request);
        capture(&rig, &request)
    };
    let mut received = only(&|request| request.delivered = false);
    let mut delivered = only(&|request| request.received = false);
    let mut filtered = only(&|request| request.filter = Some("ether src 02:00:00:00:00:01 and greater 500".to_owned()));
    let mut short = only(&|request| request.snaplen = 300);
    let (small, large, back) =
        (frame(mac(2), mac(1), 60, 1), frame(mac(2), mac(1), 900, 2), frame(mac(1), mac(2), 900, 3));
    send(&mut a, &small);
    send(&mut a, &large);
    take(&mut b, 2);
    send(&mut b, &back);
    take(&mut a, 1);
    assert_eq!(received.take(2), [seen(0, Place::Received, &small), seen(0, Place::Received, &large)]);
    assert_eq!(delivered.take(1), [seen(0, Place::Delivered, &back)]);
    assert_eq!(filtered.take(1), [seen(0, Place::Received, &large)]);
    let cut = short.take(3);
    assert!(cut[0].bytes == small && cut[1].bytes == large[..300] && cut[2].bytes == back[..300]);
    assert_eq!(cut.iter().map(|packet| packet.len).collect::<Vec<_>>(), [60, 900, 900]);
}

#[test]
fn a_packet_is_either_delivered_or_dropped_with_its_reason() {
    let rig = rig(2, patched);
    let mut a = rig.guest(0, &GuestOptions::default());
    let mut b = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    let mut all = capture(&rig, &CaptureRequest { dropped: Some(String::new()), ..request(&["p1"]) });
    let other = Some("too-big".to_owned());
    let mut others =
        capture(&rig, &CaptureRequest { dropped: other, received: false, delivered: false, ..request(&["p1"]) });
    b.give(2);
    let frames: Vec<_> = (0..5).map(|n| frame(mac(2), mac(1), 700, n)).collect();
    for frame in &frames {
        send(&mut a, frame);
    }
    rig.wait_drops(1, "no-buffer", 3);
    let place = |n: usize| if n < 2 { Place::Delivered } else { dropped(Reason::NoBuffer, false) };
    let expected: Vec<_> = frames.iter().enumerate().map(|(n, frame)| seen(0, place(n), frame)).collect();
    assert_eq!(all.take(5), expected);
    others.read();
    assert_eq!(others.packets, []);
}

#[test]
fn packets_that_a_port_refuses_or_a_node_drops_belong_to_their_source() {
    let rig = rig(1, |_| {});
    let mut a = rig.guest(0, &GuestOptions { features: BASIC | VIRTIO_NET_F_CSUM, ..GuestOptions::default() });
    let mut capture = capture(&rig, &CaptureRequest { dropped: Some(String::new()), ..request(&["p0"]) });
    let good = frame(mac(2), mac(1), 700, 1);
    send(&mut a, &good);
    rig.wait_drops(0, "not-connected", 1);
    // The checksum lies outside the packet, so no node gets it.
    let (mut header, bad) = partial(Kind::Udp4, mac(2), mac(1), &[7; 600]);
    header.csum_start = 60_000;
    assert!(a.send(&header, &bad));
    a.flush();
    rig.wait_drops(0, "checksum-range", 1);
    let expected = [
        seen(0, Place::Received, &good),
        seen(0, dropped(Reason::NotConnected, true), &good),
        seen(0, dropped(Reason::ChecksumRange, true), &bad),
    ];
    assert_eq!(capture.take(3), expected);
}

#[test]
fn a_tunnel_has_inner_packets_and_its_underlay_has_outer_ones() {
    let vxlan = "kind = \"vxlan\"\nvni = 5";
    let mut net = Net::start(["192.0.2.1", "192.0.2.2"], vxlan, vxlan);
    net.wait_up();
    // The next hops are known after this.
    send(&mut net.a, &frame(mac(2), mac(1), 100, 1));
    net.take_at_b();
    let filter = Some("udp or ether src 02:00:00:00:00:01".to_owned());
    let capture_of =
        |ports: [&str; 2]| begin(&net.switch, &CaptureRequest { filter: filter.clone(), ..request(&ports) });
    let mut near = capture_of(["t1", "left"]);
    let mut far = capture_of(["t2", "right"]);
    for len in [60, 300, 1514] {
        let inner = frame(mac(2), mac(1), len, 7);
        send(&mut net.a, &inner);
        net.take_at_b();
        for (capture, place) in [(&mut near, Place::Delivered), (&mut far, Place::Received)] {
            let mut packets = capture.take(2);
            packets.sort_by_key(|packet| packet.interface);
            assert_eq!(packets[0], seen(0, place, &inner));
            let outer = &packets[1];
            assert!((outer.interface, outer.place) == (1, place) && outer.bytes[50..] == inner, "{outer:?}");
        }
    }
}

#[test]
fn packets_that_wait_in_their_ring_are_captured_once() {
    let rig = rig(2, |config| {
        patched(config);
        config.patches[0].full = WhenFull::Wait;
    });
    let mut a = rig.guest(0, &GuestOptions::default());
    let mut b = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    let mut capture = capture(&rig, &request(&["p0", "p1"]));
    let frames: Vec<_> = (0..100).map(|n| frame(mac(2), mac(1), 700, n)).collect();
    for frame in &frames {
        assert!(a.send(&NetHeader::default(), frame));
    }
    a.flush();
    nothing(&rig.switch, &mut b);
    let mut packets = Vec::new();
    for give in [1, 2, 50, 47] {
        b.give(give);
        take(&mut b, give);
        packets.extend(capture.take(2 * give));
    }
    for (interface, place) in [(0, Place::Received), (1, Place::Delivered)] {
        let expected: Vec<_> = frames.iter().map(|frame| seen(interface, place, frame)).collect();
        let got: Vec<_> = packets.iter().filter(|packet| packet.place == place).cloned().collect();
        assert!(got == expected, "{place:?}");
    }
    wait_until("the counts are told", || {
        capture.read();
        capture.counts == [(100, 0), (100, 0)]
    });
}

#[test]
fn a_capture_goes_on_when_ports_go_and_come() {
    let rig = rig(2, patched);
    let (mut a, mut b) = pair(&rig);
    let whole = rig.switch.config();
    let mut capture = capture(&rig, &CaptureRequest { delivered: false, ..request(&["p0", "p1"]) });
    send(&mut a, &frame(mac(2), mac(1), 60, 1));
    take(&mut b, 1);
    capture.take(1);
    let mut less = whole.clone();
    less.patches.clear();
    less.ports.truncate(1);
    // Another port comes, which the capture is not for.
    less.ports.push(PortConfig::vhost_user("p2", rig.socket(0).with_file_name("p2")));
    rig.switch.reload(&less).expect("a reload");
    wait_until("the port is gone", || {
        capture.read();
        capture.ports == [(1, false)]
    });
    let mut other = Guest::connect(&rig.socket(0).with_file_name("p2"), &GuestOptions::default()).expect("a guest");
    send(&mut other, &frame(mac(2), mac(3), 60, 2));
    wait_until("it is dropped", || rig.drops(1, "not-connected") == 1);
    let lonely = frame(mac(2), mac(1), 60, 3);
    send(&mut a, &lonely);
    assert_eq!(capture.take(1), [seen(0, Place::Received, &lonely)]);
    rig.switch.reload(&whole).expect("a reload");
    drop(b);
    let mut b = rig.guest(1, &GuestOptions::default());
    let back = frame(mac(1), mac(2), 60, 4);
    send(&mut b, &back);
    take(&mut a, 1);
    assert_eq!(capture.take(1), [seen(1, Place::Received, &back)]);
    assert_eq!(capture.ports, [(1, false), (1, true)]);
}

#[test]
fn a_stream_that_is_not_read_misses_packets_and_loses_none() {
    let rig = rig(2, patched);
    let (mut a, mut b) = pair(&rig);
    let mut capture = capture(&rig, &CaptureRequest { delivered: false, ..request(&["p0"]) });
    // More than the ring has.
    let sent = straightline_capture::RING_BYTES / 1500 + 1000;
    let frame = frame(mac(2), mac(1), 1514, 1);
    for _ in 0..sent / 100 {
        for _ in 0..100 {
            assert!(a.send(&NetHeader::default(), &frame));
        }
        a.flush();
        take(&mut b, 100);
        a.flush();
    }
    let sent = sent / 100 * 100;
    wait_until("all is sent and counted", || {
        capture.read();
        let (selected, missed) = capture.counts[0];
        selected == sent as u64 && capture.packets.len() as u64 + missed == selected && missed > 0
    });
    rig.no_drops();
    // It goes on where there is space again.
    capture.packets.clear();
    send(&mut a, &frame);
    take(&mut b, 1);
    capture.take(1);
}

#[test]
fn wrong_requests_are_refused_and_captures_are_limited() {
    let rig = rig(2, patched);
    let refused = |request: &CaptureRequest| {
        let refusal = rig.switch.capture(request).map(drop).unwrap_err();
        (refusal.code, refusal.error)
    };
    let (code, error) = refused(&request(&["p0", "vm7"]));
    assert_eq!((code, error.as_str()), (ErrorCode::UnknownPort, "no such port \"vm7\"; ports are p0, p1"));
    let wrong = [
        (request(&[]), "0 ports"),
        (CaptureRequest { snaplen: 0, ..request(&["p0"]) }, "snaplen of 0 is out of range"),
        (CaptureRequest { received: false, delivered: false, ..request(&["p0"]) }, "nothing is to be captured"),
        (CaptureRequest { dropped: Some("rain".to_owned()), ..request(&["p0"]) }, "no such drop reason \"rain\""),
        (CaptureRequest { filter: Some("tcp prot".to_owned()), ..request(&["p0"]) }, "filter, column 5"),
    ];
    for (request, words) in wrong {
        let (code, error) = refused(&request);
        assert!(code == ErrorCode::BadRequest && error.contains(words), "{error}");
    }
    let mut captures: Vec<_> = (0..4).map(|_| capture(&rig, &request(&["p0"]))).collect();
    assert_eq!(refused(&request(&["p0"])).0, ErrorCode::Busy);
    captures.pop();
    captures.push(capture(&rig, &request(&["p0"])));
    // The switch ends before its captures do.
    drop(rig);
    captures.iter_mut().for_each(Capture::read);
}
