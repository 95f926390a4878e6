//! Tests of scenarios through our switches, and with faulty backends. The number of packets sent in
//! a time depends on the machine. The tests check what happens to the packets.

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use straightline_guest::endpoints::{Interface, Layout};
use straightline_report::results::Sample;
use straightline_switch::Switch;

use super::*;
use crate::machine::usable_cpus;
use crate::rounds::{Outcome, Record};
use crate::testbed::{Loads, Scenario, TestbedOptions, patched};
use crate::traffic::generator::Rate;
use crate::trial::{Step, Watch};

/// Ignores progress.
#[derive(Default)]
struct Silent(Vec<String>);

impl Watch for Silent {
    fn begins(&mut self, step: &Step) {
        assert!(step.trial >= 1 && step.trial <= step.trials, "{step:?}");
        self.0.push(step.what.clone());
    }

    fn is_invalid(&mut self, _: &Step, _: &str) {}
}

/// Options for few packets in a short time.
fn options(scenario: Scenario) -> TestbedOptions {
    let cpus = usable_cpus().expect("CPUs");
    TestbedOptions {
        loads: Loads { rate: Some(Rate::Pps(5000.0)), ..Loads::default() },
        time: Duration::from_millis(200),
        // On a machine with one CPU, all threads share it, and are slow.
        cpu: cpus.first().copied(),
        switch_cpu: cpus.last().copied(),
        ..TestbedOptions::new(scenario)
    }
}

fn samples(options: &TestbedOptions) -> (Outcome, Vec<Sample>) {
    let (outcome, samples, _) = all(options);
    (outcome, samples)
}

/// Runs with the trials of searches kept.
fn all(options: &TestbedOptions) -> (Outcome, Vec<Sample>, Vec<Sample>) {
    let mut samples = Vec::new();
    let mut trials = Vec::new();
    let outcome = run(options, &mut Silent::default(), &mut |kept| {
        match kept {
            Record::Sample(sample) => samples.push(sample.clone()),
            Record::Trial(trial) => trials.push(trial.clone()),
            Record::Negotiated(..) | Record::Peer(..) => {}
        }
        Ok(())
    });
    (outcome.expect("what can be"), samples, trials)
}

/// Returns the planned and the made visits, the valid samples and the others.
fn counts(outcome: &Outcome) -> [usize; 4] {
    [outcome.planned, outcome.made, outcome.valid, outcome.invalid]
}

fn sockets(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    ["a", "b"].map(|name| folder.path().join(name)).to_vec()
}

#[test]
fn packets_come_as_they_were_sent_in_each_cell() {
    for scenario in [Scenario::Pvp, Scenario::Vm2Vm] {
        let mut options = options(scenario);
        options.sizes = vec!["64".parse().expect("a size"), "imix".parse().expect("a mix")];
        options.layouts = vec![Layout::Split, Layout::Packed];
        options.rounds = 2;
        let mut features = BTreeMap::new();
        let mut samples: Vec<Sample> = Vec::new();
        let outcome = run(&options, &mut Silent::default(), &mut |kept| {
            match kept {
                Record::Sample(sample) => samples.push(sample.clone()),
                Record::Negotiated(whose, names) => drop(features.insert(whose.to_owned(), names.to_vec())),
                Record::Trial(_) | Record::Peer(..) => panic!("nothing was searched, with nobody: {kept:?}"),
            }
            Ok(())
        });
        let outcome = outcome.expect("what can be");
        assert_eq!((outcome.planned, outcome.made, outcome.valid + outcome.invalid), (8, 8, 8), "{samples:?}");
        let order: Vec<_> =
            samples.iter().map(|s| (s.round, s.cell["ring"].as_str(), s.cell["size"].as_str())).collect();
        let round = |n| [(n, "split", "64"), (n, "split", "imix"), (n, "packed", "64"), (n, "packed", "imix")];
        assert_eq!(order, [round(1), round(2)].concat());
        for sample in &samples {
            let metric = |name: &str| sample.metrics.get(name).copied().unwrap_or(-1.0);
            assert!(metric("sent") > 0.0 && metric("lost") < metric("sent"), "{sample:?}");
            assert!(metric("corrupt") == 0.0 && metric("duplicates") == 0.0 && metric("foreign") == 0.0, "{sample:?}");
            assert!(metric("generator_limit_mpps") > 0.0 && metric("switch_cycles_per_packet") > 0.0, "{sample:?}");
            assert_eq!(metric("guest_cycles_per_packet") > 0.0, scenario == Scenario::Pvp, "{sample:?}");
            assert_eq!((sample.scenario.as_str(), sample.variant.as_str()), (scenario.name(), "straightline"));
        }
        let mut whose = vec!["packed", "packed, guest", "split", "split, guest"];
        whose.retain(|whose| scenario == Scenario::Pvp || !whose.ends_with("guest"));
        assert_eq!(features.keys().collect::<Vec<_>>(), whose);
        assert!(features.values().all(|names| names.contains(&"version-1")), "{features:?}");
    }
}

#[test]
fn a_backend_that_goes_in_a_trial_makes_it_invalid_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let sockets = sockets(&folder);
    let mut options = options(Scenario::PatchExternal);
    let switch = Switch::start(&patched(options.switch_cpu.expect("a CPU"), &sockets)).expect("a switch");
    options.backends = sockets;
    options.rounds = 2;
    // Only the end of the backend can end the trial.
    options.time = Duration::from_secs(3600);
    let (outcome, samples) = std::thread::scope(|scope| {
        let samples = scope.spawn(|| samples(&options));
        while switch.source().runtime().nodes.iter().all(|node| node.packets < 100) {
            assert!(!samples.is_finished(), "it ended before anything came");
            std::thread::sleep(Duration::from_millis(1));
        }
        switch.stop();
        samples.join().expect("it does not panic")
    });
    assert_eq!(counts(&outcome), [2, 2, 0, 2]);
    let why: Vec<_> = samples.iter().map(|sample| sample.validity.reason().expect("invalid")).collect();
    assert!(why[0].contains("the backend has closed the connection"), "{why:?}");
    // The socket may exist a moment longer.
    assert!(why[1].contains(&*folder.path().to_string_lossy()), "{why:?}");
    let shown = table(&samples);
    assert!(why.iter().all(|why| shown.contains(why)), "{shown}");
}

#[test]
fn a_backend_that_never_answers_makes_trials_invalid() {
    let folder = tempfile::tempdir().expect("a folder");
    let sockets = sockets(&folder);
    // These backends accept connections, and never answer.
    let _listeners: Vec<_> = sockets.iter().map(|socket| UnixListener::bind(socket).expect("a socket")).collect();
    let mut options = options(Scenario::PatchExternal);
    options.backends = sockets;
    options.ports.patience = Duration::from_millis(50);
    options.loads = Loads { max: true, ndr: true, soak: Some(Duration::from_secs(1)), ..Loads::default() };
    let (outcome, samples) = samples(&options);
    assert_eq!(counts(&outcome), [2, 2, 0, 2]);
    let loads: Vec<_> = samples.iter().map(|sample| sample.cell["load"].as_str()).collect();
    assert_eq!(loads, ["max", "ndr"]);
    assert!(samples.iter().all(|sample| sample.validity.reason().is_some_and(|why| why.contains("/a"))), "{samples:?}");
}

#[test]
fn a_backend_that_refuses_a_feature_does_not_stop_other_cells() {
    let folder = tempfile::tempdir().expect("a folder");
    let sockets = sockets(&folder);
    let mut options = options(Scenario::PatchExternal);
    let mut config = patched(options.switch_cpu.expect("a CPU"), &sockets);
    for port in &mut config.ports {
        port.kind.as_vhost_user_mut().expect("a vhost-user port").packed = false;
    }
    let switch = Switch::start(&config).expect("a switch");
    options.backends = sockets;
    options.layouts = vec![Layout::Packed, Layout::Split];
    let (outcome, samples) = samples(&options);
    switch.stop();
    assert_eq!((outcome.planned, outcome.made), (2, 2));
    let why = samples[0].validity.reason().expect("refused");
    assert!(why.contains("leave out --ring packed") && !samples[0].metrics.contains_key("sent"), "{why}");
    assert!(samples[1].metrics["sent"] > 0.0, "{samples:?}");
}

#[test]
fn a_stop_ends_it_with_what_there_is() {
    let mut options = options(Scenario::Vm2Vm);
    options.rounds = 1000;
    let mut kept = 0;
    let outcome = run(&options, &mut Silent::default(), &mut |record| {
        kept += usize::from(matches!(record, Record::Sample(_)));
        options.stop.store(kept == 2, Ordering::Relaxed);
        Ok(())
    });
    let outcome = outcome.expect("no error");
    assert!(outcome.is_cut_short());
    assert_eq!((kept, outcome.made <= 2), (2, true));
}

#[test]
fn what_a_stop_interrupts_is_kept_with_its_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let sockets = sockets(&folder);
    let mut options = options(Scenario::PatchExternal);
    let switch = Switch::start(&patched(options.switch_cpu.expect("a CPU"), &sockets)).expect("a switch");
    options.backends = sockets;
    options.ports.queue_size = 256;
    options.warm_up = Some(Duration::ZERO);
    // Only the stop can end the trial.
    options.time = Duration::from_secs(3600);
    let soak = Loads { soak: Some(options.time), ..options.loads.clone() };
    for loads in [Loads { max: true, ..Loads::default() }, soak] {
        options.loads = loads;
        options.stop.store(false, Ordering::Relaxed);
        let passed = || switch.source().runtime().nodes.iter().map(|node| node.packets).max().unwrap_or(0);
        let before = passed();
        let (outcome, samples) = std::thread::scope(|scope| {
            let samples = scope.spawn(|| samples(&options));
            // More packets were sent than fit into the rings, so some have returned.
            while passed() < before + 2500 {
                assert!(!samples.is_finished(), "it ended before anything came");
                std::thread::sleep(Duration::from_millis(1));
            }
            options.stop.store(true, Ordering::Relaxed);
            samples.join().expect("it does not panic")
        });
        assert!(outcome.is_cut_short());
        assert_eq!(counts(&outcome), [1, 0, 0, 1]);
        let why = samples[0].validity.reason().expect("it is not whole");
        assert!(why.starts_with("interrupted, after ") && why.ends_with(" of 3600.0 s"), "{why}");
        assert!(samples[0].metrics["mpps"] > 0.0 && samples[0].metrics["secs"] > 0.0, "{samples:?}");
        let shown = table(&samples);
        assert!(shown.contains(why) && shown.contains(" 0/1\n"), "{shown}");
    }
    switch.stop();
}

#[test]
fn a_soak_that_is_not_carried_is_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let sockets = sockets(&folder);
    let mut options = options(Scenario::PatchExternal);
    let mut config = patched(options.switch_cpu.expect("a CPU"), &sockets);
    // Every other packet is too long for the switch.
    config.ports.iter_mut().for_each(|port| port.mtu = 1500);
    options.sizes = vec!["64:1,2000:1".parse().expect("sizes")];
    let switch = Switch::start(&config).expect("a switch");
    options.backends = sockets;
    options.loads.soak = Some(options.time);
    let (outcome, samples, trials) = all(&options);
    let drops = switch.source().drops().drops;
    switch.stop();
    assert_eq!((outcome.planned, outcome.made), (1, 1));
    // However many packets were sent in the time, the long packets are lost, and no wrong packets
    // come.
    assert!(drops.iter().any(|drop| drop.reason == "too-big" && drop.count > 0), "{drops:?}");
    let lengths: Vec<_> = trials.iter().map(|trial| (trial.metrics["gbit_per_s"], trial.metrics["mpps"])).collect();
    assert!(lengths.iter().all(|(gbit, mpps)| (gbit * 1e3 / 8.0 - mpps * 64.0).abs() < 1e-6), "{lengths:?}");
    // On a busy machine no trial may be valid.
    match samples[0].carried {
        Some(carried) => assert!(!carried && outcome.not_carried == 1, "{outcome:?}: {samples:?}"),
        None => assert!(!samples[0].is_valid() && outcome.not_carried == 0, "{outcome:?}: {samples:?}"),
    }
    let is_told = outcome.notes.iter().any(|note| note.contains("soak 0.2 s: "));
    assert_eq!(is_told, outcome.not_carried == 1, "{outcome:?}");
}

#[test]
fn a_soak_is_not_carried_where_a_backend_fails_and_not_where_the_generator_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut absent = options(Scenario::PatchExternal);
    absent.backends = sockets(&folder);
    absent.ports.patience = Duration::from_millis(50);
    let mut beyond = options(Scenario::Vm2Vm);
    beyond.loads.rate = Some(Rate::Pps(1e12));
    for (mut options, fails, says) in [(absent, true, "/a"), (beyond, false, "more than the generator makes")] {
        options.loads.soak = Some(options.time);
        let (outcome, samples, trials) = all(&options);
        let why = samples[0].validity.reason().expect("no trial counts");
        assert!(why.contains(says) && trials.len() == 4, "{why}: {trials:?}");
        assert_eq!(outcome.not_carried, usize::from(fails), "{samples:?}");
        let is_noted = |note: &String| {
            note.contains("4 trials were not valid because of a backend, the last one: ") && note.contains(says)
        };
        assert_eq!(outcome.notes.iter().any(is_noted), fails, "{outcome:?}");
    }
}

#[test]
fn a_search_finds_bounds_or_says_why_not() {
    let mut options = options(Scenario::Vm2Vm);
    options.time = Duration::from_millis(2);
    options.loads = Loads { pdr: Some(0.5), latency: true, ..Loads::default() };
    let (outcome, samples, trials) = all(&options);
    assert_eq!((outcome.planned, outcome.made), (1, 1));
    assert_eq!(samples[0].cell["load"], "pdr 50 %");
    let counted = trials.iter().filter(|trial| trial.is_valid() && trial.metrics["sent"] > 0.0).count();
    let counted = f64::from(u32::try_from(counted).expect("few"));
    let places: Vec<_> = trials.iter().map(|trial| (trial.scenario.as_str(), trial.cell["load"].as_str())).collect();
    // The search starts by measuring the maximum throughput, which needs more than a moment.
    let max = places.iter().take_while(|(_, load)| *load == "max").count();
    assert_eq!(max, 3, "{places:?}");
    let is_rate = |load: &str| load == "max" || load.ends_with("pps");
    assert!(places.iter().all(|(scenario, load)| *scenario == "vm2vm" && is_rate(load)), "{places:?}");
    // On a busy machine no trial may be valid.
    match samples[0].validity.reason() {
        None => {
            let values = ["duplicates", "corrupt"].map(|name| samples[0].metrics[name]);
            assert!(samples[0].metrics["mpps"] > 0.0 && values == [0.0; 2], "{samples:?}");
            assert!((1.0..=counted).contains(&samples[0].metrics["trials"]), "{counted}: {samples:?}");
            let loads: Vec<_> = samples[1..].iter().map(|sample| sample.cell["load"].as_str()).collect();
            assert_eq!(loads, ["latency 0 %", "latency 10 %", "latency 50 %", "latency 90 %"]);
        }
        // There may be no load that was too high; then latencies are measured at the greatest load
        // tried.
        Some(why) => assert!(why.contains("is too high") || samples.len() == 1, "{samples:?}"),
    }
}

#[test]
fn what_differs_from_a_usual_guest_is_said_in_each_place() {
    let mut options = options(Scenario::Pvp);
    assert!(options.particulars().is_empty());
    options.mode = crate::guests::forward::Mode::Noisy;
    options.noise = crate::guests::forward::Noise { footprint: 64 << 10, touches: 3 };
    options.seed = 7;
    let ports = &mut options.ports;
    (ports.buffer_len, ports.header_offset, ports.queue_size, ports.huge_pages) = (512, 0, 256, true);
    (ports.mergeable, ports.in_order) = (false, true);
    let said: Vec<_> = options.particulars().iter().map(|(axis, value)| format!("{axis}={value}")).collect();
    let wanted = "mode=noisy, noisy-memory=64 KiB, noisy-lines=3, mrg=off, in-order=on, queue=256, buffer=512, header=0, \
                  pages=2 MiB, seed=7";
    assert_eq!(said.join(", "), wanted);
    options.mode = crate::guests::forward::Mode::Io;
    assert!(options.particulars().iter().all(|(axis, _)| !axis.starts_with("noisy")));
}

/// Returns interfaces that do not exist.
fn interfaces(count: usize) -> Vec<Interface> {
    vec!["af-xdp:no-such-one".parse().expect("an interface"); count]
}

#[test]
fn what_cannot_be_is_said_before_anything_begins() {
    let refused = |scenario, change: fn(&mut TestbedOptions)| {
        let mut options = options(scenario);
        change(&mut options);
        let error = run(&options, &mut Silent::default(), &mut |_| panic!("nothing can be measured"));
        format!("{:#}", error.expect_err("it cannot be"))
    };
    use Scenario::{PatchExternal, Pvp, Vm2Vm};
    let refusal = refused(PatchExternal, |_| {});
    assert!(refusal.contains("needs 2 sockets or interfaces of a switch") && refusal.ends_with("not 0"), "{refusal}");
    let refusal = refused(Pvp, |o| o.backends = vec!["/a".into()]);
    assert!(refusal.contains("needs 4 sockets of a switch") && refusal.contains("or none to use ours"), "{refusal}");
    let refusal = refused(Pvp, |o| o.interfaces = interfaces(1));
    assert!(refusal.contains("needs 2 interfaces for the generator"), "{refusal}");
    let refusal = refused(Pvp, |o| (o.interfaces, o.backends) = (interfaces(2), vec!["/a".into()]));
    assert!(refusal.contains("needs 2 sockets of a switch for the guest"), "{refusal}");
    let refusal = refused(Pvp, |o| (o.interfaces, o.switch_interfaces) = (interfaces(2), interfaces(1)));
    assert!(refusal.contains("needs 2 interfaces for our switch"), "{refusal}");
    assert!(refused(Pvp, |o| o.switch_interfaces = interfaces(2)).contains("for `pvp` with interfaces only"));
    assert!(refused(PatchExternal, |o| o.interfaces = interfaces(3)).ends_with("not 3"));
    let refusal = refused(Pvp, |o| o.mode = crate::guests::forward::Mode::RxOnly);
    assert!(refusal.ends_with(": use one of io, mac, macswap, 5tswap, csum, noisy"), "{refusal}");
    assert!(refused(Pvp, |o| o.touch = crate::guests::forward::Touch::Edit).contains("none, header or read"));
    assert!(refused(Vm2Vm, |o| o.sizes = vec!["20".parse().expect("a size")]).contains("20"));
    assert!(refused(Vm2Vm, |o| o.sizes = vec!["9300".parse().expect("a size")]).contains("9234"));
    assert!(refused(Vm2Vm, |o| o.ports.queue_size = 100).contains("power of two"));
    assert!(refused(Vm2Vm, |o| o.time = Duration::ZERO).contains("must be more than 0"));
    let elsewhere = |options: &mut TestbedOptions| options.cpu = Some(rustix::thread::CpuSet::MAX_CPU);
    assert!(refused(Vm2Vm, elsewhere).contains("no CPU"));
    // The options would be possible on a machine with more CPUs.
    let mut options = options(Vm2Vm);
    elsewhere(&mut options);
    options.check_usage().expect("right in itself");
    let max =
        |o: &mut TestbedOptions| o.loads = Loads { rate: Some(Rate::Max), soak: Some(o.time), ..Loads::default() };
    assert!(refused(Vm2Vm, max).contains("1mpps"));
}
