//! The generator on interfaces of this machine: through our switch and a guest, and through a bridge
//! of the kernel.

use std::time::Duration;

use straightline_guest::endpoints::{AnyPort, Interface};
use straightline_lab::rounds::{Outcome, Record};
use straightline_lab::scenarios::run;
use straightline_lab::testbed::{Loads, Scenario, TestbedOptions};
use straightline_lab::traffic::Counted;
use straightline_lab::traffic::generator::Rate;
use straightline_lab::trial::{Step, Watch};
use straightline_report::results::Sample;
use straightline_testing::host::Host;
use straightline_testing::{PATIENCE, wait_until};

/// Ignores progress.
struct Silent;

impl Watch for Silent {
    fn begins(&mut self, _: &Step) {}

    fn is_invalid(&mut self, _: &Step, _: &str) {}
}

/// Options for few packets, so few that a wire loses none.
fn options(scenario: Scenario, interfaces: &[&str]) -> TestbedOptions {
    TestbedOptions {
        interfaces: interfaces.iter().map(|text| text.parse().expect("an interface")).collect(),
        loads: Loads { rate: Some(Rate::Pps(500.0)), ..Loads::default() },
        counted: Some(Counted { packets: 100, patience: PATIENCE }),
        warm_up: Some(Duration::ZERO),
        ..TestbedOptions::new(scenario)
    }
}

fn samples(options: &TestbedOptions) -> (Outcome, Vec<Sample>) {
    let mut samples = Vec::new();
    let outcome = run(options, &mut Silent, &mut |kept| {
        if let Record::Sample(sample) = kept {
            samples.push(sample.clone());
        }
        Ok(())
    });
    (outcome.expect("possible options"), samples)
}

/// Checks that the packets of each sample have passed intact.
fn have_passed(samples: &[Sample]) {
    assert!(!samples.is_empty());
    for sample in samples {
        let metric = |name: &str| sample.metrics.get(name).copied().unwrap_or(-1.0);
        assert!(sample.is_valid() && metric("sent") >= 200.0 && metric("lost") < metric("sent"), "{sample:?}");
        let wrong = ["corrupt", "duplicates", "foreign"].map(metric);
        assert!(wrong.iter().all(|count| count.abs() < f64::EPSILON), "{sample:?}");
    }
}

/// Makes pairs of veth interfaces: `v0` and `v1`, `w0` and `w1`.
fn wires(host: &Host, mtu: u32) {
    for pair in ["v", "w"] {
        host.ip(&format!("link add {pair}0 mtu {mtu} type veth peer name {pair}1 mtu {mtu}"));
        for end in 0..2 {
            host.ip(&format!("link set {pair}{end} up"));
        }
    }
}

/// Measures PVP on the generator's ends of two wires. The switch opens the other ends.
fn pvp_passes_wires(kind: &str) {
    let Some(host) = Host::new(&format!("pvp_passes_wires_by_{kind}")) else { return };
    wires(&host, 9000);
    let [first, last] = ["v0", "w0"].map(|name| format!("{kind}:{name}"));
    let mut options = options(Scenario::Pvp, &[&first, &last]);
    options.sizes = ["64", "64:1,1514:1", "9014"].map(|sizes| sizes.parse().expect("sizes")).to_vec();
    let (outcome, samples) = samples(&options);
    assert_eq!((outcome.planned, outcome.made, samples.len()), (3, 3, 3), "{samples:?}");
    have_passed(&samples);
    for sample in &samples {
        for cycles in ["switch_cycles_per_packet", "guest_cycles_per_packet"] {
            assert!(sample.metrics[cycles] > 0.0, "{sample:?}");
        }
        assert_eq!(sample.cell["interfaces"], format!("{kind}, {kind}"));
    }
    let opened = outcome.notes.join("; ");
    for part in [&format!("{first}: veth"), &format!("{last}: veth"), "MTU 9000", "our switch at"] {
        assert!(opened.contains(part), "{part} in {opened}");
    }
}

#[test]
fn pvp_passes_wires_by_packet_sockets() {
    pvp_passes_wires("af-packet");
}

#[test]
fn pvp_passes_wires_by_af_xdp() {
    pvp_passes_wires("af-xdp");
}

/// The generator's ends of the wires are taps. The switch has the interfaces that the host sees.
#[test]
fn taps_are_wires_too() {
    let Some(_host) = Host::new("taps_are_wires_too") else { return };
    let mut options = options(Scenario::Pvp, &["tap:t0", "tap:t1"]);
    options.switch_interfaces = ["af-packet:t0", "af-xdp:t1"].map(|text| text.parse().expect("an interface")).to_vec();
    let (outcome, samples) = samples(&options);
    assert_eq!((outcome.planned, outcome.made), (1, 1));
    have_passed(&samples);
}

/// A bridge of the kernel is the switch under test. One port of the generator is a tap.
#[test]
fn a_bridge_of_the_kernel_is_measured() {
    let Some(host) = Host::new("a_bridge_of_the_kernel_is_measured") else { return };
    wires(&host, 1500);
    host.ip("link add br0 type bridge mcast_snooping 0");
    host.ip("tuntap add dev t0 mode tap vnet_hdr");
    for member in ["v1", "t0"] {
        host.ip(&format!("link set {member} master br0"));
        host.ip(&format!("link set {member} up"));
    }
    host.ip("link set br0 up");
    // The tap has a carrier while somebody has opened it, so the bridge forwards to it a moment later.
    // Packets until then are lost, and are not waited for after the warm-up.
    let mut options = options(Scenario::PatchExternal, &["af-packet:v0", "tap:t0"]);
    options.warm_up = Some(Duration::from_secs(1));
    wait_until("the bridge forwards", || host.run("bridge", "link show").contains("state forwarding"));
    let (outcome, samples) = samples(&options);
    assert_eq!((outcome.planned, outcome.made), (1, 1));
    have_passed(&samples);
    assert!(samples[0].metrics.keys().all(|name| !name.starts_with("switch_")), "{samples:?}");
    assert!(host.ip("link show t0").contains("t0"), "a persistent tap stays");
}

#[test]
fn what_is_wrong_with_an_interface_is_said() {
    let Some(host) = Host::new("what_is_wrong_with_an_interface_is_said") else { return };
    wires(&host, 1500);
    host.ip("link set w0 down");
    let refused = |text: &str| {
        let interface: Interface = text.parse().expect("an interface");
        format!("{:#}", AnyPort::open_all(&[interface], 1518, 1504).expect_err("it cannot be used"))
    };
    for kind in ["af-packet", "af-xdp"] {
        let absent = refused(&format!("{kind}:no-such-one"));
        assert!(absent.contains("no-such-one"), "{absent}");
        let down = refused(&format!("{kind}:w0"));
        assert!(down.contains("w0") && down.contains("ip link set"), "{down}");
        let small = refused(&format!("{kind}:v0"));
        assert!(small.contains("need an MTU of 1504") && small.contains("ip link set dev v0 mtu 1504"), "{small}");
    }
    // The other end of a tap is the kernel, which our switch cannot open as a tap.
    let (_, samples) = samples(&options(Scenario::Pvp, &["tap:t0", "tap:t1"]));
    let why = samples[0].validity.reason().expect("no peer");
    assert!(why.contains("name it by --switch-interface"), "{why}");
}
