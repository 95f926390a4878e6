//! Tests of scenarios: their plans, searches and judgements with a switch that is made up, and packets
//! through our switches. No result depends on time: a measurement ends by packets, or by an event.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use straightline_graph::Clock;
use straightline_guest::endpoints::{Interface, Layout};
use straightline_report::results::{Sample, Validity};
use straightline_switch::Switch;
use straightline_testing::{PATIENCE, wait_until};
use straightline_virtio::features::VIRTIO_F_VERSION_1;

use super::run::run_on;
use super::*;
use crate::machine::usable_cpus;
use crate::rounds::{Outcome, Record};
use crate::testbed::{Loads, MadeTrial, Scenario, Testbed, TestbedOptions, TrialMaker, TrialResult, patched};
use crate::traffic::Counted;
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

/// Options for few packets, whatever time they take.
fn options(scenario: Scenario) -> TestbedOptions {
    let cpus = usable_cpus().expect("CPUs");
    TestbedOptions {
        loads: Loads { rate: Some(Rate::Pps(5000.0)), ..Loads::default() },
        warm_up: Some(Duration::ZERO),
        counted: Some(Counted { packets: 300, patience: PATIENCE }),
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
        assert_eq!(counts(&outcome), [8, 8, 8, 0], "{samples:?}");
        let order: Vec<_> =
            samples.iter().map(|s| (s.round, s.cell["ring"].as_str(), s.cell["size"].as_str())).collect();
        let round = |n| [(n, "split", "64"), (n, "split", "imix"), (n, "packed", "64"), (n, "packed", "imix")];
        assert_eq!(order, [round(1), round(2)].concat());
        for sample in &samples {
            let metric = |name: &str| sample.metrics.get(name).copied().unwrap_or(-1.0);
            assert!(metric("sent") >= 600.0 && metric("lost") == 0.0, "{sample:?}");
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
    options.counted = None;
    options.time = Duration::from_secs(3600);
    let (outcome, samples) = std::thread::scope(|scope| {
        let samples = scope.spawn(|| samples(&options));
        wait_until("packets come", || {
            assert!(!samples.is_finished(), "it ended before anything came");
            switch.source().runtime().nodes.iter().any(|node| node.packets >= 100)
        });
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
    assert!(samples[1].is_valid() && samples[1].metrics["sent"] >= 600.0, "{samples:?}");
}

#[test]
fn what_a_stop_interrupts_is_kept_with_its_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let sockets = sockets(&folder);
    let mut options = options(Scenario::PatchExternal);
    let switch = Switch::start(&patched(options.switch_cpu.expect("a CPU"), &sockets)).expect("a switch");
    options.backends = sockets;
    options.ports.queue_size = 256;
    // Only the stop can end the trial.
    options.counted = None;
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
            wait_until("packets pass", || {
                assert!(!samples.is_finished(), "it ended before anything came");
                passed() >= before + 2500
            });
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

/// Changes the result of a trial, by its number.
type Change = Box<dyn Fn(usize, &mut TrialResult)>;

/// A switch that is made up. It forwards `most` packets a second, and drops all others. At maximum rate
/// the generator offers it two million. The clock of the test moves by the time of each trial.
struct FakeSwitch {
    most: f64,
    clock: Clock,
    trials: Rc<RefCell<Vec<Rate>>>,
    /// Changes the trial with this number, from 1.
    change: Change,
}

/// The most that the generator can send, and what it sends at maximum rate, in million packets a second.
const LIMIT: f64 = 10.0;
const OFFERED: f64 = 2.0;

impl TrialMaker for FakeSwitch {
    fn trial(&mut self, rate: Rate, time: Duration) -> MadeTrial {
        self.clock.advance(time);
        self.trials.borrow_mut().push(rate);
        let seconds = time.as_secs_f64();
        let offered = rate.pps(64.0).unwrap_or(OFFERED * 1e6);
        let packets = |pps: f64| (pps * seconds).round();
        let sent = packets(offered);
        let lost = packets((offered - self.most).max(0.0));
        let values = [
            ("secs", seconds),
            ("sent", sent),
            ("lost", lost),
            ("offered_mpps", offered / 1e6),
            ("mpps", (sent - lost) / seconds / 1e6),
            ("loss_ratio", lost / sent),
            ("duplicates", 0.0),
            ("corrupt", 0.0),
            ("latency_p50_us", 7.0),
        ];
        let metrics = values.map(|(name, value)| (name.to_owned(), value)).into();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of packets")]
        let [sent, lost] = [sent as u64, lost as u64];
        let mut result = TrialResult { sample: Sample { metrics, ..Sample::default() }, sent, lost };
        (self.change)(self.trials.borrow().len(), &mut result);
        MadeTrial { result, features: Some([Some(VIRTIO_F_VERSION_1), None]), interfaces: Vec::new() }
    }
}

/// The results of a run with a fake switch.
struct FakeRun {
    outcome: Outcome,
    samples: Vec<Sample>,
    /// The trials of searches and soaks that were kept.
    kept: Vec<Sample>,
    /// The rates of all trials.
    rates: Vec<f64>,
    /// The time that all trials took.
    took: Duration,
    features: Vec<String>,
}

fn fake_run(
    options: &TestbedOptions,
    most: f64,
    change: impl Fn(usize, &mut TrialResult) + Clone + 'static,
) -> FakeRun {
    let clock = Clock::moved();
    let began = clock.now();
    let trials = Rc::new(RefCell::new(Vec::new()));
    let testbed = |cell| {
        let trials = Rc::clone(&trials);
        let maker = FakeSwitch { most, clock: clock.clone(), trials, change: Box::new(change.clone()) };
        Testbed::made_by(Box::new(maker), options, cell, LIMIT)
    };
    let mut samples = Vec::new();
    let mut kept = Vec::new();
    let mut features = Vec::new();
    let outcome = run_on(options, options.cells().map(testbed).collect(), &mut Silent::default(), &mut |record| {
        match record {
            Record::Sample(sample) => samples.push(sample.clone()),
            Record::Trial(trial) => kept.push(trial.clone()),
            Record::Negotiated(whose, names) => features.push(format!("{whose}: {}", names.join(", "))),
            Record::Peer(..) => panic!("nobody else takes part"),
        }
        Ok(())
    });
    let rates = trials.borrow().iter().map(|rate: &Rate| rate.pps(64.0).unwrap_or(f64::INFINITY)).collect();
    FakeRun { outcome: outcome.expect("no error"), samples, kept, rates, took: clock.since(began), features }
}

/// Options of a run in seconds of a clock that a test moves.
fn of_a_second(loads: Loads) -> TestbedOptions {
    TestbedOptions { loads, ..TestbedOptions::new(Scenario::Vm2Vm) }
}

fn load(sample: &Sample) -> &str {
    &sample.cell["load"]
}

#[test]
fn cells_follow_one_another_in_each_round() {
    let mut options = of_a_second(Loads { max: true, rate: Some(Rate::Pps(5000.0)), ..Loads::default() });
    options.sizes = ["64", "imix"].map(|sizes| sizes.parse().expect("sizes")).to_vec();
    options.layouts = vec![Layout::Split, Layout::Packed];
    options.rounds = 2;
    let FakeRun { outcome, samples, took, features, .. } = fake_run(&options, 1e6, |_, _| ());
    assert_eq!(counts(&outcome), [16, 16, 16, 0]);
    assert_eq!(took, Duration::from_secs(16));
    let order: Vec<_> =
        samples.iter().map(|s| (s.round, s.cell["ring"].as_str(), s.cell["size"].as_str(), load(s))).collect();
    let cell = |n, ring, size| [(n, ring, size, "max"), (n, ring, size, "5kpps")];
    let round =
        |n| [cell(n, "split", "64"), cell(n, "split", "imix"), cell(n, "packed", "64"), cell(n, "packed", "imix")];
    assert_eq!(order, [round(1), round(2)].concat().concat());
    // Half of the offered two million are lost, and nothing of the five thousand.
    let ratios: Vec<_> =
        samples[..2].iter().map(|sample| (sample.metrics["mpps"], sample.metrics["loss_ratio"])).collect();
    assert_eq!(ratios, [(1.0, 0.5), (0.005, 0.0)]);
    assert!(samples.iter().all(|sample| (sample.metrics["generator_limit_mpps"] - LIMIT).abs() < 1e-9));
    assert_eq!((features.len(), features[0].as_str()), (16, "split: version-1"));
}

#[test]
fn a_stop_ends_it_with_what_there_is() {
    let mut options = of_a_second(Loads { max: true, ..Loads::default() });
    options.rounds = 1000;
    let stop = options.stop.clone();
    // The stop comes in the third trial, which has packets; or which has none.
    for (mpps, kept) in [(0.5, 3), (0.0, 2)] {
        options.stop.store(false, Ordering::Relaxed);
        let stop = stop.clone();
        let FakeRun { outcome, samples, rates, .. } = fake_run(&options, 1e6, move |number, result| {
            if number == 3 {
                stop.store(true, Ordering::Relaxed);
                result.sample.metrics.insert("mpps".to_owned(), mpps);
                result.sample.validity = Validity::Interrupted("interrupted, after 0.5 of 1.0 s".to_owned());
            }
        });
        assert!(outcome.is_cut_short());
        assert_eq!((counts(&outcome), samples.len(), rates.len()), ([1000, 2, 2, kept - 2], kept, 3));
        assert!(samples[..2].iter().all(Sample::is_valid));
        let shown = table(&samples);
        assert!(shown.contains(&format!("2/{kept}")), "{shown}");
    }
}

#[test]
fn a_search_finds_bounds_or_says_why_not() {
    let options = of_a_second(Loads { ndr: true, pdr: Some(0.005), latency: true, ..Loads::default() });
    let FakeRun { outcome, samples, kept, rates, .. } = fake_run(&options, 1.2e6, |_, _| ());
    assert_eq!(counts(&outcome), [1, 1, 6, 0], "{samples:?}");
    let loads: Vec<_> = samples.iter().map(load).collect();
    assert_eq!(loads, ["ndr", "pdr 0.5 %", "latency 0 %", "latency 10 %", "latency 50 %", "latency 90 %"]);
    // The switch forwards 1.2 Mpps. Of 1.206 Mpps half a percent is lost. Bounds are half a percent apart.
    for (sample, most) in samples.iter().zip([1.2, 1.2 / 0.995]) {
        let [lower, upper] = ["lower_mpps", "upper_mpps"].map(|name| sample.metrics[name]);
        assert!(lower <= most + 1e-6 && most <= upper + 1e-6 && upper / lower < 1.0051, "{lower} to {upper}");
        assert!((sample.metrics["duplicates"], sample.metrics["corrupt"]) == (0.0, 0.0));
    }
    // First the maximum throughput is measured, three times.
    assert!(kept[..3].iter().all(|trial| load(trial) == "max") && kept[3..].iter().all(|trial| load(trial) != "max"));
    assert_eq!(kept.len() + 4, rates.len());
    let pdr = samples[1].metrics["lower_mpps"] * 1e6;
    let parts: Vec<_> = rates[kept.len()..].iter().map(|rate| (rate / pdr * 1e4).round()).collect();
    assert_eq!(parts, [(1000.0 / pdr * 1e4).round(), 1000.0, 5000.0, 9000.0]);
}

#[test]
fn a_switch_that_takes_all_has_a_bound_that_was_not_reached() {
    let options = of_a_second(Loads { ndr: true, latency: true, ..Loads::default() });
    let FakeRun { outcome, samples, .. } = fake_run(&options, 1e9, |_, _| ());
    let why = samples[0].validity.reason().expect("no load is too high");
    // The greatest load is a quarter more than the two million at maximum rate.
    assert!(samples[0].is_at_least() && why.contains("no load up to 2500000 packets a second is too high"), "{why}");
    assert_eq!(outcome.at_least, 2, "the one without loss and the one with little");
    assert_eq!(samples.len(), 6, "latencies are measured at parts of the greatest load");
    assert!(outcome.notes.iter().any(|note| note.contains("loads are parts of 2.500 Mpps")), "{outcome:?}");
}

#[test]
fn what_the_load_side_spoils_is_tried_again_and_then_said() {
    let late = || Validity::SpoiltByLoad("the generator was descheduled".to_owned());
    // The first trial of each latency is late, and the search has late ones too.
    let options = of_a_second(Loads { pdr: Some(0.005), latency: true, ..Loads::default() });
    let FakeRun { samples, kept, rates, .. } = fake_run(&options, 1.2e6, move |number, result| {
        if number % 2 == 0 {
            result.sample.validity = late();
        }
    });
    assert!(samples.iter().all(Sample::is_valid), "{samples:?}");
    // Each late trial is kept, and each latency has a valid one.
    assert_eq!(kept.iter().filter(|trial| !trial.is_valid()).count(), rates.len() / 2);
    assert_eq!((samples.len(), rates.len() - kept.len()), (5, 4));

    // No trial at all is in time: nothing is known, and nothing depends on it.
    let FakeRun { outcome, samples, kept, .. } = fake_run(&options, 1.2e6, |_, result| {
        result.sample.validity = Validity::SpoiltByLoad("the generator was descheduled".to_owned());
    });
    assert_eq!((counts(&outcome), kept.len()), ([1, 1, 0, 1], 3));
    assert!(samples[0].validity.is_spoilt_by_load() && load(&samples[0]) == "pdr 0.5 %", "{samples:?}");
}

#[test]
fn a_soak_says_whether_its_load_was_carried() {
    let minute = Duration::from_secs(60);
    let options = of_a_second(Loads { rate: Some(Rate::Pps(1e6)), soak: Some(minute), ..Loads::default() });
    let backend = |number: usize, result: &mut TrialResult| {
        if number == 2 {
            result.sample.validity = Validity::SpoiltByBackend("the backend was silent".to_owned());
        }
    };
    let load_side = |number: usize, result: &mut TrialResult| {
        if number == 2 {
            result.sample.validity = Validity::SpoiltByLoad("the generator was descheduled".to_owned());
        }
    };
    let nothing = |_: usize, _: &mut TrialResult| ();
    // One packet of ten million may be lost: 6 of a minute.
    let carried = fake_run(&options, 1e6, nothing);
    assert_eq!((carried.samples[0].carried, carried.outcome.not_carried), (Some(true), 0));
    assert_eq!((carried.took, carried.samples[0].metrics["sent"]), (minute, 60e6));
    assert_eq!(carried.outcome.notes, Vec::<String>::new());
    let lost = fake_run(&options, 1e6 - 1.0, nothing);
    assert_eq!((lost.samples[0].carried, lost.outcome.not_carried), (Some(false), 1));
    assert!(
        lost.outcome.notes.iter().any(|note| note.contains("soak 60 s: more than one packet")),
        "{:?}",
        lost.outcome
    );
    // A repeated trial makes good for a generator that was late, but not for a backend that failed.
    let late = fake_run(&options, 1e6, load_side);
    assert_eq!((late.samples[0].carried, late.outcome.not_carried), (Some(true), 0), "{:?}", late.samples);
    let failed = fake_run(&options, 1e6, backend);
    assert_eq!((failed.samples[0].carried, failed.outcome.not_carried), (Some(false), 1), "{:?}", failed.samples);
    assert!(failed.outcome.notes.iter().any(|note| note.contains("1 trials were not valid because of a backend")));
}
