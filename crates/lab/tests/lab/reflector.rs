//! The reflector against our own switch: every layout, load and kind of frame arrives intact, and
//! everything that cannot be measured is an error with a reason. A measurement ends by packets, so no
//! result depends on time.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use straightline_guest::endpoints::PortOptions;
use straightline_lab::guests::forward::Touch;
use straightline_lab::guests::reflector::{self, Layout, Load, ReflectorOptions, ReflectorReport, Sizes, Stopped};
use straightline_lab::traffic::Counted;
use straightline_testing::{PATIENCE, Rig, patch, rig, vhost_user, wait_until};

/// Ends a measurement by this many packets of each port.
fn counted(packets: u64) -> Option<Counted> {
    Some(Counted { packets, patience: PATIENCE })
}

/// Options for the first two ports, for some packets: only their arrival matters.
fn options(rig: &Rig) -> ReflectorOptions {
    ReflectorOptions {
        ports: ports(),
        counted: counted(5000),
        ..ReflectorOptions::new([rig.socket(0).clone(), rig.socket(1).clone()])
    }
}

/// Options of ports whose backends may take long to answer.
fn ports() -> PortOptions {
    PortOptions { patience: PATIENCE, ..PortOptions::default() }
}

fn patched() -> Rig {
    rig(2, |config| {
        config.ports.iter_mut().for_each(|port| port.mtu = 9216);
        config.patches.push(patch(0, 1));
    })
}

/// Runs a trial, and compares its counters with the switch's.
fn run(rig: &Rig, change: impl FnOnce(&mut ReflectorOptions)) -> ReflectorReport {
    let mut options = options(rig);
    change(&mut options);
    let counters = || [0, 1].map(|at| rig.port(at).queues.first().map(|queue| (queue.rx.packets, queue.tx.packets)));
    let before = counters();
    let report = reflector::run(&options).unwrap_or_else(|error| panic!("{options:?}: {error:#}"));
    for (at, before) in before.into_iter().enumerate() {
        let (rx, tx) = before.unwrap_or_default();
        let ours = Some((report.ports[at].tx_packets + rx, report.ports[at].rx_packets + tx));
        // The switch counts packets at the end of their turn.
        wait_until("the switch has counted what the guest has", || {
            let theirs = counters()[at];
            if theirs == ours { Ok(()) } else { Err(format!("{theirs:?}, not {ours:?}, at port {at} of {options:?}")) }
        });
    }
    // The cost may be unknown: interrupted turns are not counted.
    assert!(report.mpps > 0.0, "{report:?}");
    report
}

/// Checks that none of `packets` is lost. If the switch started slowly, some probes were sent
/// twice.
fn is_intact(report: &ReflectorReport, packets: u64) {
    assert!(report.lost == Some(0) && report.verified >= packets, "{report:?}");
}

#[test]
fn everything_comes_through_whole() {
    let rig = patched();
    for layout in [Layout::Split, Layout::Packed] {
        for (mergeable, in_order) in [(true, false), (false, false), (true, true), (false, true)] {
            let report = run(&rig, |o| {
                o.ports = PortOptions { layout, mergeable, in_order, ..ports() };
                o.sizes = "imix".parse().expect("sizes");
            });
            is_intact(&report, 1024);
            let wanted = [("mrg-rxbuf", mergeable), ("in-order", in_order), ("ring-packed", layout == Layout::Packed)];
            for (feature, wanted) in wanted {
                assert_eq!(report.features.contains(&feature), wanted, "{feature} in {report:?}");
            }
        }
    }
}

#[test]
fn a_flood_comes_through_whole() {
    let rig = patched();
    for (layout, in_order) in
        [(Layout::Split, false), (Layout::Packed, false), (Layout::Split, true), (Layout::Packed, true)]
    {
        let ports = PortOptions { layout, in_order, queue_size: 256, ..ports() };
        let mut options = ReflectorOptions { load: Load::Flood, ports, ..options(&rig) };
        options.sizes = Sizes::one(1000);
        let report = reflector::run(&options).expect("a trial");
        assert!(report.verified > 0 && report.lost.is_none(), "{report:?}");
        assert!((report.frame_bytes - 1000.0).abs() < 1e-9, "{report:?}");
    }
}

#[test]
fn whoever_touches_packets_leaves_them_as_they_are() {
    let rig = patched();
    for layout in [Layout::Split, Layout::Packed] {
        for load in [Load::Loop, Load::Flood, Load::OneWay] {
            for (touch, touched) in [(Touch::None, 0.0), (Touch::Header, 2.0), (Touch::Read, 17.0), (Touch::Edit, 17.0)]
            {
                let in_order = touch == Touch::Edit;
                let sizes = Sizes::one(1024);
                let ports = PortOptions { layout, in_order, queue_size: 256, ..ports() };
                let options = ReflectorOptions { ports, load, touch, sizes, ..options(&rig) };
                let report = reflector::run(&options).unwrap_or_else(|error| panic!("{options:?}: {error:#}"));
                assert!(report.verified > 0 && report.lost.is_none_or(|lost| lost == 0), "{report:?}");
                // The header before a line, 16 lines of frame.
                assert!((report.lines_per_packet - 17.0).abs() < 1e-9, "{report:?}");
                assert!((report.touched_lines_per_packet - touched).abs() < 1e-9, "{report:?}");
                if load == Load::OneWay {
                    assert_eq!((report.ports[0].rx_packets, report.ports[1].tx_packets), (0, 0), "{report:?}");
                }
            }
        }
    }
}

#[test]
fn edges_are_told_and_a_stop_ends_it() {
    let rig = patched();
    let mut edges = Vec::new();
    let mut at_edge = || {
        edges.push(rig.switch.source().runtime().nodes.iter().map(|node| node.packets).sum::<u64>());
        Ok(())
    };
    reflector::run_watched(&options(&rig), &mut at_edge).expect("a trial");
    assert!(edges.len() == 2 && edges[1] > edges[0], "{edges:?}");
    let mut failing = || anyhow::bail!("no counters");
    let error = reflector::run_watched(&options(&rig), &mut failing).expect_err("an edge that fails");
    assert_eq!(error.to_string(), "no counters");
    // Only the stop can end these.
    let stop = Arc::new(AtomicBool::new(false));
    let options = ReflectorOptions { stop: Some(Arc::clone(&stop)), counted: counted(u64::MAX), ..options(&rig) };
    let mut at_first = || {
        stop.store(true, Ordering::Relaxed);
        Ok(())
    };
    let error = reflector::run_watched(&options, &mut at_first).expect_err("stopped");
    assert_eq!(error.downcast_ref(), Some(&Stopped), "{error:#}");
    // Before the first packet.
    assert_eq!(reflector::run(&options).expect_err("stopped").downcast_ref(), Some(&Stopped));
}

#[test]
fn what_was_measured_until_a_stop_may_be_kept() {
    let rig = patched();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Some(Arc::clone(&stop));
    let counted = counted(u64::MAX);
    let options = ReflectorOptions { stop: stopped, may_end_early: true, counted, ..options(&rig) };
    let (measures, begins) = std::sync::mpsc::channel();
    let mut at_edge = || {
        _ = measures.send(());
        Ok(())
    };
    let report = std::thread::scope(|scope| {
        let trial = scope.spawn(|| reflector::run_watched(&options, &mut at_edge));
        begins.recv().expect("it begins");
        let passed = || rig.port(0).queues.first().map_or(0, |queue| queue.rx.packets);
        // More than are under way: some of them have returned more than once.
        let enough = passed() + 5000;
        wait_until("packets go round", || passed() > enough);
        stop.store(true, Ordering::Relaxed);
        trial.join().expect("the trial").expect("a report")
    });
    assert!(report.mpps > 0.0 && report.lost == Some(0), "{report:?}");
    // Before the measurement there is nothing to report.
    let options = ReflectorOptions { stop: Some(Arc::new(AtomicBool::new(true))), ..options };
    assert_eq!(reflector::run(&options).expect_err("stopped").downcast_ref(), Some(&Stopped));
}

#[test]
fn frames_and_rings_of_other_sizes() {
    let rig = patched();
    let report = run(&rig, |o| (o.sizes, o.ports.queue_size) = (Sizes::one(9018), 32));
    is_intact(&report, 64);
    assert_eq!(report.queue_size, 32);
    is_intact(&run(&rig, |o| (o.ports.header_offset, o.bursts) = (0, Some(1))), 64);
    let report = run(&rig, |o| (o.sizes, o.buffer_len, o.ports.queue_size) = (Sizes::one(1518), Some(1531), 64));
    assert_eq!((report.lost, report.buffer_len), (Some(0), 1531));
}

#[test]
fn large_segments_stay_whole() {
    let rig = patched();
    for layout in [Layout::Split, Layout::Packed] {
        let report = run(&rig, |o| {
            o.ports = PortOptions { layout, segments: true, queue_size: 32, ..ports() };
            o.sizes = "65214,1514".parse().expect("sizes");
        });
        is_intact(&report, 64);
    }
}

fn fails(options: &ReflectorOptions) -> String {
    format!("{:#}", reflector::run(options).expect_err("not a valid trial"))
}

#[test]
fn what_is_not_there_or_not_offered_is_said() {
    let rig = rig(2, |config| {
        config.ports.iter_mut().for_each(|port| vhost_user(port).packed = false);
        config.ports.iter_mut().for_each(|port| vhost_user(port).offloads.tso = false);
        config.patches.push(patch(0, 1));
    });
    let absent = ReflectorOptions::new([rig.socket(0).clone(), "/nonexistent/b".into()]);
    assert!(fails(&absent).contains("/nonexistent/b"), "{}", fails(&absent));
    let ports = PortOptions { layout: Layout::Packed, ..PortOptions::default() };
    let packed = fails(&ReflectorOptions { ports, ..options(&rig) });
    assert!(packed.contains("does not offer ring-packed: leave out --ring packed"), "{packed}");
    let ports = PortOptions { segments: true, ..PortOptions::default() };
    let segments = fails(&ReflectorOptions { ports, sizes: Sizes::one(65_214), ..options(&rig) });
    assert!(segments.contains("--segments") && segments.contains("host-tso4"), "{segments}");
    let huge = fails(&ReflectorOptions { sizes: Sizes::one(80_000), ..options(&rig) });
    assert!(huge.contains("65549"), "{huge}");
}

#[test]
fn silence_is_said() {
    let soon = Some(Counted { packets: 1, patience: Duration::from_millis(300) });
    // Ports that are not connected, and frames that the switch drops.
    let apart = rig(4, |config| config.patches = vec![patch(0, 2), patch(1, 3)]);
    let error = fails(&ReflectorOptions { counted: soon, ..options(&apart) });
    assert!(error.contains("nothing has come from") && error.contains("p0 and "), "{error}");
    let strict = rig(2, |config| config.patches.push(patch(0, 1)));
    let error = fails(&ReflectorOptions { counted: soon, sizes: Sizes::one(1519), ..options(&strict) });
    assert!(error.contains("1519 bytes"), "{error}");
    // A backend that never answers.
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("mute");
    let _mute = UnixListener::bind(&path).expect("a socket");
    let mut options = options(&strict);
    options.backends[0].clone_from(&path);
    options.ports.patience = Duration::from_millis(200);
    let error = fails(&options);
    assert!(error.contains("mute"), "{error}");
}

#[test]
fn a_backend_that_goes_away_is_said() {
    let rig = patched();
    let options = ReflectorOptions { counted: counted(u64::MAX), ..options(&rig) };
    let trial = std::thread::spawn(move || fails(&options));
    wait_until("packets pass", || rig.port(0).queues.first().is_some_and(|queue| queue.rx.packets > 2000));
    rig.switch.stop();
    let error = trial.join().expect("the trial");
    assert!(error.contains("closed the connection"), "{error}");
}
