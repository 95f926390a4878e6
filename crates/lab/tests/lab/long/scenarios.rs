//! Real trials of each scenario: a rate, a search and a soak.

use std::time::Duration;

use straightline_config::{Config, PatchConfig, PortConfig, WhenFull};
use straightline_lab::rounds::{Outcome, Record};
use straightline_lab::scenarios::run;
use straightline_lab::testbed::{Loads, Scenario, TestbedOptions};
use straightline_lab::traffic::generator::Rate;
use straightline_report::results::Sample;
use straightline_switch::Switch;
use straightline_testing::host::skip;

use crate::experiments::Quiet;

/// Rounds in which one is valid.
const ROUNDS: u32 = 5;

fn options(scenario: Scenario, loads: Loads) -> TestbedOptions {
    TestbedOptions { loads, time: Duration::from_millis(200), rounds: ROUNDS, ..TestbedOptions::new(scenario) }
}

/// Runs a scenario. Returns its samples, and the trials of its searches; `None` if this machine has one
/// CPU.
fn samples(options: &TestbedOptions) -> Option<(Outcome, Vec<Sample>, Vec<Sample>)> {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        skip("a scenario", "it needs two CPUs");
        return None;
    }
    let mut samples = Vec::new();
    let mut trials = Vec::new();
    let outcome = run(options, &mut Quiet, &mut |record| {
        match record {
            Record::Sample(sample) => samples.push(sample.clone()),
            Record::Trial(trial) => trials.push(trial.clone()),
            Record::Negotiated(..) | Record::Peer(..) => {}
        }
        Ok(())
    });
    Some((outcome.expect("possible options"), samples, trials))
}

#[test]
fn a_rate_is_carried_between_ports_and_between_guests() {
    let Some(_cpus) = super::cpus() else { return };
    for scenario in [Scenario::Pvp, Scenario::Vm2Vm] {
        let loads = Loads { rate: Some(Rate::Pps(5000.0)), ..Loads::default() };
        let Some((outcome, samples, _)) = samples(&options(scenario, loads)) else { return };
        assert!(outcome.valid > 0, "{samples:?}");
        for sample in samples.iter().filter(|sample| sample.is_valid()) {
            assert!(sample.metrics["lost"].abs() < 0.5 && sample.metrics["latency_max_us"] > 0.0, "{sample:?}");
        }
    }
}

#[test]
fn a_search_finds_bounds() {
    let Some(_cpus) = super::cpus() else { return };
    let loads = Loads { pdr: Some(0.5), latency: true, ..Loads::default() };
    let mut options = options(Scenario::Vm2Vm, loads);
    options.time = Duration::from_millis(20);
    let Some((_, samples, trials)) = samples(&options) else { return };
    let of_search = |sample: &&Sample| sample.cell["load"] == "pdr 50 %";
    let found = samples.iter().filter(of_search).find(|sample| sample.is_valid() || sample.is_at_least());
    let found = found.unwrap_or_else(|| panic!("no round has a result: {samples:?}"));
    assert!(found.metrics["lower_mpps"] > 0.0 && found.metrics["duplicates"] + found.metrics["corrupt"] < 0.5);
    assert!(trials.iter().any(|trial| trial.is_valid() && trial.metrics["sent"] > 0.0), "{trials:?}");
}

/// Every other packet is too long for the switch.
#[test]
fn a_soak_that_is_not_carried_is_told_of() {
    let Some(_cpus) = super::cpus() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let sockets = ["a", "b"].map(|name| folder.path().join(name));
    let ports = [0, 1].map(|at: usize| PortConfig::vhost_user(format!("p{at}"), &sockets[at]));
    let patch =
        PatchConfig { name: "patch".to_owned(), ports: ports.clone().map(|port| port.name), full: WhenFull::Drop };
    let config = Config { ports: ports.into_iter().collect(), patches: vec![patch], ..Config::default() };
    let switch = Switch::start(&config).expect("a switch");
    let rate = Some(Rate::Pps(5000.0));
    let loads = Loads { rate, soak: Some(Duration::from_millis(200)), ..Loads::default() };
    let mut options = options(Scenario::PatchExternal, loads);
    options.backends = sockets.to_vec();
    options.sizes = vec!["64:1,2000:1".parse().expect("sizes")];
    let ran = samples(&options);
    let drops = switch.source().drops().drops;
    switch.stop();
    let Some((outcome, samples, _)) = ran else { return };
    assert!(drops.iter().any(|drop| drop.reason == "too-big" && drop.count > 0), "{drops:?}");
    assert!(samples.iter().any(|sample| sample.carried == Some(false)) && outcome.not_carried > 0, "{samples:?}");
    assert!(outcome.notes.iter().any(|note| note.contains("soak 0.2 s: ")), "{outcome:?}");
}
