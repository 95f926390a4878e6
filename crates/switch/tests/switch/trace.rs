//! Traces of a switch that runs: the ways that packets take, and when traces end.

use straightline_config::{Config, PortConfig, SourceCheckConfig, WhenFull};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::MacPrefix;
use straightline_switch::api::{ErrorCode, Stream, TraceAction, TraceLine, TraceRequest, TracedPacket};
use straightline_testing::packets::{Kind, partial, segmented};
use straightline_testing::tunnel::Net;
use straightline_testing::{
    BASIC, BROADCAST, Rig, bridge, frame, mac, noise, nothing, patch, rig, send, take, wait_until,
};
use straightline_virtio::net_header::NetHeader;

use crate::segments::{self, CSUM, SEND, TAKE};

/// A trace, and what it has sent so far.
struct Trace {
    stream: Box<dyn Stream>,
    packets: Vec<TracedPacket>,
    ports: Vec<(String, bool)>,
    has_ended: bool,
}

fn request(ports: &[&str], count: u32) -> TraceRequest {
    TraceRequest { ports: ports.iter().map(|&name| name.to_owned()).collect(), count, filter: None }
}

fn begin(switch: &straightline_switch::Switch, request: &TraceRequest) -> Trace {
    let (answer, stream) = switch.trace(request).expect("a trace");
    assert_eq!(answer.ports, request.ports);
    Trace { stream, packets: Vec::new(), ports: Vec::new(), has_ended: false }
}

fn trace(rig: &Rig, ports: &[&str], count: u32) -> Trace {
    begin(&rig.switch, &request(ports, count))
}

impl Trace {
    /// Takes what the stream has now.
    fn read(&mut self) {
        if self.has_ended {
            return;
        }
        let mut output = Vec::new();
        self.has_ended = !self.stream.fill(&mut output);
        for line in output.split_inclusive(|byte| *byte == b'\n') {
            match serde_json::from_slice(line).expect("a line of a trace") {
                TraceLine::Packet(packet) => self.packets.push(*packet),
                TraceLine::Port { port, is_present } => self.ports.push((port, is_present)),
                TraceLine::Other => panic!("{:?}", String::from_utf8_lossy(line)),
            }
        }
    }

    /// Waits for `n` packets in all, and takes them.
    fn take(&mut self, n: usize) -> Vec<TracedPacket> {
        wait_until("the packets are traced", || {
            self.read();
            self.packets.len() >= n
        });
        let packets = std::mem::take(&mut self.packets);
        assert_eq!(packets.len(), n, "{packets:?}");
        for packet in &packets {
            for step in &packet.steps {
                assert!(step.packets > 0 || step.node.ends_with("-rx"), "{packet:?}");
            }
            assert!(packet.skipped == 0 && packet.more_steps == 0, "{packet:?}");
        }
        packets
    }

    fn one(&mut self) -> TracedPacket {
        self.take(1).swap_remove(0)
    }
}

/// Returns the steps of a packet in words, such as `p0-rx: received p0`.
fn way(packet: &TracedPacket) -> Vec<String> {
    let action = |action: &TraceAction| match action {
        TraceAction::Received { port } => format!("received {port}"),
        TraceAction::Delivered { port } => format!("delivered {port}"),
        TraceAction::Dropped { port, reason } => format!("dropped {port} {reason}"),
        TraceAction::Segmented { port, segments } => format!("segmented {port} {segments}"),
        TraceAction::Copied { copies } => format!("copied {copies}"),
        TraceAction::HeadersAdded { bytes, .. } => format!("added {bytes}"),
        TraceAction::HeadersRemoved { bytes, .. } => format!("removed {bytes}"),
        other => format!("{other:?}"),
    };
    let step = |step: &straightline_switch::api::TracedStep| {
        format!("{}: {}", step.node, step.actions.iter().map(action).collect::<Vec<_>>().join(", "))
    };
    packet.steps.iter().map(step).collect()
}

fn drops(packet: &TracedPacket) -> Vec<(&str, &str)> {
    packet.dropped.iter().map(|drop| (drop.port.as_str(), drop.reason.as_str())).collect()
}

fn patched(config: &mut Config) {
    config.patches.push(patch(0, 1));
}

fn pair(rig: &Rig) -> (Guest, Guest) {
    (rig.guest(0, &GuestOptions::default()), rig.guest(1, &GuestOptions::default()))
}

#[test]
fn a_patch_shows_its_three_steps_and_the_trace_ends() {
    let rig = rig(2, patched);
    let (mut a, mut b) = pair(&rig);
    let mut trace = trace(&rig, &["p0"], 2);
    let (_, udp) = partial(Kind::Udp4, mac(2), mac(1), &[7; 18]);
    for bytes in [udp.clone(), frame(mac(2), mac(1), 900, 1), udp] {
        send(&mut a, &bytes);
        take(&mut b, 1);
        // Packets of another port.
        send(&mut b, &frame(mac(1), mac(2), 60, 1));
        take(&mut a, 1);
    }
    let packets = trace.take(2);
    for (packet, len) in packets.iter().zip([60, 900]) {
        assert_eq!(way(packet), ["p0-rx: received p0", "patch.0-1: ", "p1-tx: delivered p1"]);
        assert_eq!((packet.port.as_str(), packet.length, packet.worker), ("p0", len, 0));
        assert_eq!((packet.delivered.join(" ").as_str(), packet.waits, drops(packet)), ("p1", false, vec![]));
        assert!(packet.steps.iter().all(|step| step.packets == 1 && step.cycles > 0), "{packet:?}");
    }
    let words = "60 bytes, 02:00:00:00:00:01 > 02:00:00:00:00:02, UDP 10.0.0.1:1000 > 10.0.0.2:2000";
    assert_eq!(packets[0].packet, words);
    assert!(packets[0].time <= packets[1].time);
    wait_until("the trace has ended", || {
        trace.read();
        trace.has_ended
    });
    rig.no_drops();
}

#[test]
fn a_bridge_floods_forwards_and_drops() {
    let rig = rig(3, |config| config.bridges.push(bridge(3)));
    let (mut a, mut b) = pair(&rig);
    let mut c = rig.guest(2, &GuestOptions { withhold: true, ..GuestOptions::default() });
    let mut trace = trace(&rig, &["p0", "p1"], 5);
    // One copy finds no buffer.
    send(&mut a, &frame(BROADCAST, mac(1), 60, 1));
    take(&mut b, 1);
    let flood = trace.one();
    let steps = way(&flood);
    assert_eq!(steps[..2], ["p0-rx: received p0", "bridge.lan: copied 2"]);
    let mut outputs = steps[2..].to_vec();
    outputs.sort();
    assert_eq!(outputs, ["p1-tx: delivered p1", "p2-tx: dropped p2 no-buffer"]);
    assert_eq!((flood.delivered.join(" ").as_str(), drops(&flood)), ("p1", vec![("p2", "no-buffer")]));
    // The bridge has learned where A is.
    send(&mut b, &frame(mac(1), mac(2), 60, 2));
    take(&mut a, 1);
    let unicast = trace.one();
    assert_eq!(way(&unicast), ["p1-rx: received p1", "bridge.lan: ", "p0-tx: delivered p0"]);
    // A station behind the port that sends.
    send(&mut a, &frame(mac(1), mac(9), 60, 3));
    let dropped = trace.one();
    assert_eq!(way(&dropped), ["p0-rx: received p0", "bridge.lan: dropped p0 same-port"]);
    assert_eq!((dropped.delivered.len(), drops(&dropped)), (0, vec![("p0", "same-port")]));
    c.give(4);
    send(&mut a, &frame(BROADCAST, mac(1), 60, 1));
    take(&mut b, 1);
    take(&mut c, 1);
    let mut delivered = trace.one().delivered;
    delivered.sort();
    assert_eq!(delivered, ["p1", "p2"]);
}

#[test]
fn a_source_check_and_a_port_that_refuses_are_named() {
    let rig = rig(2, |config| {
        patched(config);
        config.ports[0].source_check = Some(SourceCheckConfig { macs: vec![MacPrefix::exact(mac(1))], ips: None });
    });
    let mut a = rig.guest(0, &GuestOptions { features: CSUM | BASIC, ..GuestOptions::default() });
    let b = rig.guest(1, &GuestOptions::default());
    let mut trace = trace(&rig, &["p0"], 3);
    send(&mut a, &frame(mac(2), mac(7), 60, 1));
    let packet = trace.one();
    let steps = way(&packet);
    assert!(
        steps.len() == 2 && steps[1].starts_with("source-check") && steps[1].contains(": dropped p0 "),
        "{steps:?}"
    );
    assert_eq!(packet.dropped.len(), 1);
    // The checksum lies outside the packet, so no node gets it.
    let (mut header, bad) = partial(Kind::Udp4, mac(2), mac(1), &[7; 600]);
    header.csum_start = 60_000;
    assert!(a.send(&header, &bad));
    a.flush();
    let packet = trace.one();
    assert_eq!(way(&packet), ["p0-rx: dropped p0 checksum-range"]);
    // The other port is down.
    drop(b);
    rig.wait_down(1, "");
    send(&mut a, &frame(mac(2), mac(1), 60, 1));
    assert_eq!(drops(&trace.one()), [("p1", "link-down")]);
}

#[test]
fn tunnels_show_what_they_add_and_remove() {
    let vxlan = "kind = \"vxlan\"\nvni = 5";
    let mut net = Net::start(["192.0.2.1", "192.0.2.2"], vxlan, vxlan);
    net.wait_up();
    // The next hops are known after this.
    send(&mut net.a, &frame(mac(2), mac(1), 100, 1));
    net.take_at_b();
    let mut sender = begin(&net.switch, &request(&["a"], 1));
    let mut outside = begin(&net.switch, &TraceRequest { filter: Some("udp".to_owned()), ..request(&["right"], 1) });
    let inside = begin(&net.switch, &request(&["t2"], 1));
    let filter = Some("ether dst 02:00:00:00:00:02".to_owned());
    let either = begin(&net.switch, &TraceRequest { filter, ..request(&["right", "t2"], 1) });
    send(&mut net.a, &frame(mac(2), mac(1), 100, 2));
    net.take_at_b();
    let packet = sender.one();
    let expected = ["a-rx: received a", "patch.one: ", "encap.t1: delivered t1", "left-tx: added 50, delivered left"];
    assert_eq!(way(&packet), expected);
    let TraceAction::HeadersAdded { packet: words, .. } = &packet.steps[3].actions[0] else { panic!("{packet:?}") };
    assert!(words.contains("UDP 192.0.2.1:") && words.ends_with("> 192.0.2.2:4789, VXLAN 5"), "{words}");
    let packet = outside.one();
    let expected =
        ["right-rx: received right", "decap.right: removed 50, received t2", "patch.two: ", "b-tx: delivered b"];
    assert_eq!(way(&packet), expected);
    assert_eq!(packet.length, 150);
    for mut inside in [inside, either] {
        let packet = inside.one();
        assert_eq!(way(&packet), ["decap.right: received t2", "patch.two: ", "b-tx: delivered b"]);
        assert_eq!((packet.port.as_str(), packet.length), ("t2", 100));
    }
}

#[test]
fn a_segmented_packet_shows_its_segments() {
    let rig = rig(3, |config| config.bridges.push(bridge(3)));
    let mut a = segments::guest(&rig, 0, CSUM | SEND);
    let mut b = segments::guest(&rig, 1, 0);
    let mut c = segments::guest(&rig, 2, CSUM | TAKE);
    let mut trace = trace(&rig, &["p0"], 1);
    let (header, bytes) = segmented(Kind::Tcp4, BROADCAST, mac(1), &noise(3, 10_000), 1400);
    assert!(a.send(&header, &bytes));
    a.flush();
    take(&mut b, 8);
    take(&mut c, 1);
    let packet = trace.one();
    assert_eq!((packet.gso_size, packet.length), (Some(1400), 10_054));
    let mut steps = way(&packet)[2..].to_vec();
    steps.sort();
    assert_eq!(steps, ["p1-tx: delivered p1, segmented p1 8", "p2-tx: delivered p2"]);
}

#[test]
fn a_packet_that_waits_is_told_once_and_traced_when_it_goes() {
    let rig = rig(2, |config| {
        patched(config);
        config.patches[0].full = WhenFull::Wait;
    });
    let mut a = rig.guest(0, &GuestOptions::default());
    let mut b = rig.guest(1, &GuestOptions { withhold: true, ..GuestOptions::default() });
    let mut trace = trace(&rig, &["p0"], 4);
    for n in 0..3 {
        assert!(a.send(&NetHeader::default(), &frame(mac(2), mac(1), 60, n)));
    }
    a.flush();
    nothing(&rig.switch, &mut b);
    let packet = trace.one();
    assert!(packet.waits && packet.delivered.is_empty() && packet.dropped.is_empty(), "{packet:?}");
    assert_eq!(way(&packet), ["p0-rx: received p0", "patch.0-1: ", "p1-tx: Waits"]);
    nothing(&rig.switch, &mut b);
    trace.read();
    assert_eq!(trace.packets, []);
    b.give(3);
    take(&mut b, 3);
    assert!(trace.take(3).iter().all(|packet| !packet.waits && packet.delivered == ["p1"]));
}

#[test]
fn traces_and_captures_run_beside_each_other_and_through_reloads() {
    let rig = rig(2, patched);
    let (mut a, mut b) = pair(&rig);
    let whole = rig.switch.config();
    let mut traces = [trace(&rig, &["p0", "p1"], 100), trace(&rig, &["p1"], 100)];
    let filter = Some("greater 500".to_owned());
    let mut filtered = begin(&rig.switch, &TraceRequest { filter, ..request(&["p0"], 100) });
    let capture = straightline_switch::api::CaptureRequest {
        ports: vec!["p0".to_owned()],
        received: true,
        delivered: true,
        dropped: None,
        filter: None,
        snaplen: 100,
    };
    let capture = rig.switch.capture(&capture).expect("a capture");
    send(&mut a, &frame(mac(2), mac(1), 60, 1));
    take(&mut b, 1);
    send(&mut b, &frame(mac(1), mac(2), 900, 1));
    take(&mut a, 1);
    send(&mut a, &frame(mac(2), mac(1), 901, 1));
    take(&mut b, 1);
    let lengths_of = |packets: &[TracedPacket]| packets.iter().map(|packet| packet.length).collect::<Vec<_>>();
    assert_eq!(lengths_of(&traces[0].take(3)), [60, 900, 901]);
    assert_eq!(lengths_of(&traces[1].take(1)), [900]);
    assert_eq!(lengths_of(&filtered.take(1)), [901]);
    drop(capture);
    // The port goes, another one comes, and the port comes again.
    let mut less = whole.clone();
    less.patches.clear();
    less.ports.truncate(1);
    less.ports.push(PortConfig::vhost_user("p2", rig.socket(0).with_file_name("p2")));
    rig.switch.reload(&less).expect("a reload");
    wait_until("the port is gone", || {
        traces[1].read();
        traces[1].ports == [("p1".to_owned(), false)]
    });
    send(&mut a, &frame(mac(2), mac(1), 61, 1));
    let packet = traces[0].one();
    assert_eq!((packet.length, drops(&packet)), (61, vec![("p0", "not-connected")]));
    rig.switch.reload(&whole).expect("a reload");
    drop(b);
    let mut b = rig.guest(1, &GuestOptions::default());
    send(&mut b, &frame(mac(1), mac(2), 62, 1));
    take(&mut a, 1);
    assert_eq!(lengths_of(&traces[1].take(1)), [62]);
    assert_eq!(traces[1].ports, [("p1".to_owned(), false), ("p1".to_owned(), true)]);
}

#[test]
fn a_stream_that_is_not_read_skips_packets_and_loses_none() {
    let rig = rig(2, patched);
    let (mut a, mut b) = pair(&rig);
    let mut trace = trace(&rig, &["p0"], 1000);
    for n in 0..400 {
        send(&mut a, &frame(mac(2), mac(1), 60, n));
        take(&mut b, 1);
    }
    trace.read();
    let kept = trace.packets.len();
    assert_eq!(kept, straightline_capture::trace::MAX_TRACES);
    send(&mut a, &frame(mac(2), mac(1), 60, 400));
    take(&mut b, 1);
    wait_until("the next one is traced", || {
        trace.read();
        trace.packets.len() > kept
    });
    assert_eq!(trace.packets[kept].skipped, 400 - kept as u64);
    rig.no_drops();
}

#[test]
fn wrong_requests_are_refused_and_traces_are_limited() {
    let rig = rig(2, patched);
    let refused = |request: &TraceRequest| {
        let refusal = rig.switch.trace(request).map(drop).unwrap_err();
        (refusal.code, refusal.error)
    };
    let (code, error) = refused(&request(&["p0", "vm7"], 1));
    assert_eq!((code, error.as_str()), (ErrorCode::UnknownPort, "no such port \"vm7\"; ports are p0, p1"));
    let wrong = [
        (request(&[], 1), "trace: 0 ports"),
        (request(&["p0"], 0), "count of 0 is out of range"),
        (request(&["p0"], 10_001), "count of 10001 is out of range"),
        (TraceRequest { filter: Some("tcp prot".to_owned()), ..request(&["p0"], 1) }, "filter, column 5"),
    ];
    for (request, words) in wrong {
        let (code, error) = refused(&request);
        assert!(code == ErrorCode::BadRequest && error.contains(words), "{error}");
    }
    let mut traces: Vec<_> = (0..4).map(|_| trace(&rig, &["p0"], 1)).collect();
    assert_eq!(refused(&request(&["p0"], 1)).0, ErrorCode::Busy);
    traces.pop();
    traces.push(trace(&rig, &["p0"], 1));
    // The switch ends before its traces do.
    drop(rig);
    traces.iter_mut().for_each(Trace::read);
}
