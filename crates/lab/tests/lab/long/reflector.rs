//! Real trials of the reflector.

use std::time::Duration;

use straightline_guest::endpoints::PortOptions;
use straightline_lab::guests::reflector::{self, Load, ReflectorOptions};
use straightline_testing::{Rig, patch, rig};

fn patched() -> Rig {
    rig(2, |config| config.patches.push(patch(0, 1)))
}

fn options(rig: &Rig, load: Load, time: Duration) -> ReflectorOptions {
    ReflectorOptions {
        load,
        ports: PortOptions { queue_size: 256, ..PortOptions::default() },
        warm_up: Duration::from_millis(100),
        time,
        ..ReflectorOptions::new([rig.socket(0).clone(), rig.socket(1).clone()])
    }
}

#[test]
fn each_load_is_measured_for_its_time() {
    let Some(_cpus) = super::cpus() else { return };
    for load in [Load::Loop, Load::Flood, Load::OneWay] {
        let rig = patched();
        let report = reflector::run(&options(&rig, load, Duration::from_secs(1))).expect("a trial");
        assert!(report.secs >= 1.0 && report.mpps > 0.0 && report.lost.is_none_or(|lost| lost == 0), "{report:?}");
    }
}

/// Nothing passes from the start of the measurement on. A quarter of its time is too long a silence.
#[test]
fn a_side_that_goes_silent_is_said_in_a_short_trial_too() {
    let Some(_cpus) = super::cpus() else { return };
    for load in [Load::Loop, Load::Flood, Load::OneWay] {
        let rig = patched();
        let mut at_edge = || rig.switch.set_link("p0", false);
        let options = options(&rig, load, Duration::from_millis(900));
        let error = reflector::run_watched(&options, &mut at_edge).expect_err("nothing comes").to_string();
        assert!(error.contains("nothing has come from") && error.contains("225 ms"), "{error}");
    }
}
