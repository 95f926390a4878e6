//! The generator, trials and replays through our own switch, and a guest that forwards. A measurement
//! ends by packets, so no result depends on time.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use straightline_config::{PatchConfig, WhenFull};
use straightline_guest::endpoints::{Layout, PortOptions, VhostPort};
use straightline_lab::guests::forward::{self, ForwardOptions, Mode, Touch};
use straightline_lab::traffic::Counted;
use straightline_lab::traffic::capture::Capture;
use straightline_lab::traffic::generator::{Generator, Rate, Replay, ReplayTiming, StreamSpec};
use straightline_lab::trial::{self, Plan, TrialOutcome};
use straightline_testing::{PATIENCE, Rig, patch, rig};

/// A time that no trial here takes: packets, an error or the switch end each.
const NEVER: Duration = Duration::from_secs(3600);

/// Patches that wait while a ring is full: the generator may be descheduled.
fn patched(ports: usize) -> Rig {
    rig(ports, |config| {
        config.ports.iter_mut().for_each(|port| port.mtu = 9216);
        let waiting = |port| PatchConfig { full: WhenFull::Wait, ..patch(port, port + 1) };
        config.patches = (0..ports).step_by(2).map(waiting).collect();
    })
}

fn ports(rig: &Rig, numbers: &[usize], options: &PortOptions) -> Vec<VhostPort> {
    let sockets: Vec<_> = numbers.iter().map(|&number| rig.socket(number).clone()).collect();
    let ports = VhostPort::connect_all(&sockets, options).expect("ports");
    numbers.iter().for_each(|&number| rig.wait_up(number));
    ports
}

fn options(layout: Layout) -> PortOptions {
    PortOptions { layout, queue_size: 256, longest: 9018, ..PortOptions::default() }
}

/// Each port sends the first stream, the second port in the opposite direction.
fn generator(ports: Vec<VhostPort>, text: &str) -> Generator<VhostPort> {
    let spec: StreamSpec = text.parse().expect(text);
    let specs = [vec![spec.clone()], vec![spec.reversed()]];
    Generator::new(ports.into_iter().zip(specs).collect(), 1).expect("a generator")
}

/// Ends a measurement when this many packets of each stream have returned.
fn plan() -> Plan {
    let counted = Some(Counted { packets: 1000, patience: PATIENCE });
    Plan { burst: 1, warm_up: Duration::ZERO, cpu: None, limit_mpps: None, counted }
}

/// Checks that everything that was sent has returned intact.
fn whole(outcome: &TrialOutcome) {
    let measured = outcome.measured.as_ref().expect("it was made");
    let total = measured.total();
    assert!(total.sent >= 2000, "{outcome:?}");
    assert_eq!(
        (total.lost(), total.duplicates, total.reordered, total.corrupt, measured.foreign),
        (0, 0, 0, 0, 0),
        "{outcome:?}"
    );
    let sample = outcome.sample();
    assert!(outcome.validity.is_valid(), "{outcome:?}");
    assert!(sample.metrics["latency_min_us"] <= sample.metrics["latency_max_us"], "{sample:?}");
}

#[test]
fn two_ports_of_the_generator_exchange_streams() {
    let rig = patched(2);
    for (layout, text) in [
        (Layout::Split, "size=64,src-ip=step:10.0.0.1-10.0.0.99,src-port=random:1-60000"),
        (Layout::Packed, "size=imix"),
        (Layout::Split, "size=uniform:114-9018,vni=step:1-9,outer-src-port=random:49152-65535"),
        (Layout::Packed, "size=80+1522,vlan=step:1-4000,protocol=tcp"),
    ] {
        let mut generator = generator(ports(&rig, &[0, 1], &options(layout)), text);
        whole(&trial::run(&mut generator, &mut [], &plan(), Rate::Pps(20_000.0), NEVER));
        // Once more on the same ports: earlier packets do not count.
        whole(&trial::run(&mut generator, &mut [], &plan(), Rate::Bits(20e6), NEVER));
    }
}

#[test]
fn a_guest_that_changes_headers_is_no_matter() {
    let rig = patched(4);
    for (layout, mode) in
        [(Layout::Split, Mode::MacSwap), (Layout::Packed, Mode::FiveTupleSwap), (Layout::Split, Mode::Io)]
    {
        let ours = ports(&rig, &[0, 2], &options(layout));
        let guests = ForwardOptions { mode, ports: options(layout), ..ForwardOptions::default() };
        let mut guest = forward::guest(ports(&rig, &[1, 3], &guests.ports), &guests).expect("a guest");
        let mut generator = generator(ours, "size=imix,src-port=step:1-1000");
        whole(&trial::run(&mut generator, &mut [&mut *guest], &plan(), Rate::Pps(20_000.0), NEVER));
    }
}

#[test]
fn a_guest_that_changes_the_payload_is_seen() {
    let rig = patched(4);
    let ours = ports(&rig, &[0, 2], &options(Layout::Split));
    let guests = ForwardOptions { touch: Touch::Edit, ports: options(Layout::Split), ..ForwardOptions::default() };
    let mut guest = forward::guest(ports(&rig, &[1, 3], &guests.ports), &guests).expect("a guest");
    let mut generator = generator(ours, "size=200");
    let outcome = trial::run(&mut generator, &mut [&mut *guest], &plan(), Rate::Pps(20_000.0), NEVER);
    // The guest inverts all bytes, also those of the tags, so no packet is recognised.
    let measured = outcome.measured.expect("it was made");
    assert_eq!(measured.total().received, 0);
    assert!(measured.foreign >= measured.total().sent && measured.total().sent > 0, "{measured:?}");
    assert!(!outcome.validity.is_valid());
}

#[test]
fn a_switch_that_goes_away_makes_the_trial_invalid() {
    let rig = patched(2);
    let mut generator = generator(ports(&rig, &[0, 1], &options(Layout::Split)), "size=64");
    rig.switch.stop();
    let outcome = trial::run(&mut generator, &mut [], &plan(), Rate::Max, NEVER);
    let why = outcome.validity.reason().expect("it is gone");
    assert!(why.contains("closed the connection"), "{why}");
}

#[test]
fn frames_that_a_port_does_not_take_are_named() {
    let rig = patched(2);
    let small = PortOptions { longest: 1518, ..options(Layout::Split) };
    let mut generator = generator(ports(&rig, &[0, 1], &small), "size=2000");
    let outcome = trial::run(&mut generator, &mut [], &plan(), Rate::Max, NEVER);
    let why = outcome.validity.reason().expect("they are too long");
    assert!(why.contains("frames of at most 1518 bytes") && why.contains("2000"), "{why}");
}

#[test]
fn a_capture_is_replayed_byte_for_byte() {
    let rig = patched(2);
    // The second one has a frame for each of fifteen tunnels and VLAN tags, built by hand from RFC
    // fields, a second apart.
    let captures: [(&[u8], usize, f64); 2] = [
        (include_bytes!("../captures/wireshark.pcapng"), 4, 100.0),
        (include_bytes!("../captures/tunnels.pcap"), 15, 1000.0),
    ];
    for (file, count, speed) in captures {
        let capture = Capture::parse(file).expect("a capture");
        assert_eq!((capture.frames.len(), capture.shortened), (count, 0));
        for layout in [Layout::Split, Layout::Packed] {
            for timing in [ReplayTiming::Captured(speed), ReplayTiming::Rate(Rate::Pps(1000.0))] {
                let ports = ports(&rig, &[0, 1], &options(layout));
                let replay = Replay::new(ports, &capture, timing, 2, PATIENCE, true).expect("a replay");
                let (report, kept, ended) = replay.run(None, &AtomicBool::new(false));
                ended.expect("sound backends");
                assert_eq!((report.fault(), report.sent), (None, u64::try_from(2 * count).expect("few")));
                let came: Vec<_> = kept.into_iter().map(|frame| frame.bytes).collect();
                let sent: Vec<_> =
                    capture.frames.iter().cycle().take(2 * count).map(|frame| frame.bytes.clone()).collect();
                assert_eq!(came, sent);
                assert!(report.secs > 0.0, "{report:?}");
            }
        }
    }
}
