//! `peers tunnels`: compares tunnels between two switches, in rounds.
//!
//! ```text
//! guest 1 - switch - AF_XDP - veth pair - AF_XDP - switch - guest 2
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `options` | the command line, and the axes of a trial |
//! | `host` | one side of a trial: a namespace, a switch and a guest |
//! | `mask` | what makes Open vSwitch serve User Mode Linux: a connection with fewer features |
//! | `table` | medians, spreads, ratios |

mod host;
pub(crate) mod mask;
mod options;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use straightline_lab::rounds::Measured;

use crate::lab::Lab;
use crate::machine::{Machine, Need, two_cpus};
use crate::measure::{SwitchKind, TrialPlan, require};
use crate::net::{self, Namespace};
use crate::traffic::{self, Iperf};
use host::{Host, INTERFACE};
pub(crate) use host::{Side, UNDERLAY_MTU, joined_port};
pub(crate) use options::{MTU, Options, Path};
use options::{TunnelCell, Variant};

/// Runs all trials. Returns true if each of them is valid.
pub(crate) fn run(options: Options) -> Result<bool> {
    let options = options::checked(options)?;
    let common = &options.common;
    ensure!(rustix::process::geteuid().is_root(), "namespaces and AF_XDP need root: use sudo");
    let (one, other) = two_cpus()?;
    if one == other {
        bail!("this process may use one CPU only: two are needed, one for each switch");
    }
    let machine = Machine { switch: PathBuf::new(), cache: common.cache.clone(), long: false };
    require(&machine, Need::Uml(2), "`cargo xtask test` installs the packages for the guests")?;
    require(&machine, Need::Namespaces, "use another machine")?;
    let variants = options.variants();
    if variants.iter().any(|variant| !matches!(variant.switch.kind, SwitchKind::Ours(_))) {
        require(&machine, Need::Ovs, "leave ovs and ovs-sleep out, or reserve huge pages")?;
    }
    let switches: Vec<_> = variants.iter().map(|variant| variant.switch.clone()).collect();
    let rounds = common.rounds;
    let out = common.out.as_deref();
    let near = common.near;
    let plan = TrialPlan { scenario: "tunnels", rounds, switches: &switches, cells: &[TunnelCell], out, near };
    let done = plan.run(|switch, _| {
        let variant = variants.iter().find(|variant| variant.switch.name == switch.name);
        trial(&machine, options.secs, variant.context("each switch is that of a variant")?)
    })?;
    println!("Medians (smallest-largest); ratios of the medians [95 % interval, from six rounds on].\n");
    println!("{}", table::markdown(&variants, &done.samples));
    Ok(done.judge())
}

/// Boots two guests. Each sends to the other for `secs`.
fn trial(machine: &Machine, secs: u32, variant: &Variant) -> Result<Measured> {
    let [near, far] = [Lab::new(machine, "tunnels-near")?, Lab::new(machine, "tunnels-far")?];
    let namespaces = [Namespace::silent("near")?, Namespace::silent("far")?];
    net::veth([(&namespaces[0], INTERFACE), (&namespaces[1], INTERFACE)], 1, UNDERLAY_MTU)?;
    let mut one = Host::start(&near, &namespaces[0], Side::Near, variant)?;
    let mut other = Host::start(&far, &namespaces[1], Side::Far, variant)?;
    for host in [&mut one, &mut other] {
        host.guest.configure(MTU)?;
    }
    let address = other.guest.ip();
    traffic::reach(&mut one.guest, &address)?;
    let ticks = |hosts: [&Host<'_>; 2]| -> Result<u64> { Ok(hosts[0].cpu_ticks()? + hosts[1].cpu_ticks()?) };
    let before = ticks([&one, &other])?;
    let mut both = Vec::new();
    for reverse in [false, true] {
        traffic::iperf3_server(&mut other.guest)?;
        let began = Instant::now();
        both.push(traffic::iperf3_client(&mut one.guest, &address, secs, reverse)?);
        // A shorter time means that the guest's clock is wrong.
        if began.elapsed() < Duration::from_secs(secs.into()) {
            bail!("iperf3 ended before its time: the guest's clock is fast");
        }
    }
    let cpu_s = f64::from(u32::try_from(ticks([&one, &other])? - before)?) / 100.0;
    let mut lost = Lost { veth: 0.0, guests: Some(0.0) };
    for (host, namespace) in [&mut one, &mut other].into_iter().zip(&namespaces) {
        traffic::no_errors(&mut host.guest)?;
        lost.veth += dropped(namespace)?;
        lost.guests = lost.guests.zip(host.drops()?).map(|(sum, drops)| sum + drops);
    }
    one.end()?;
    other.end()?;
    Ok(metrics(&both, cpu_s, &lost))
}

/// Packets that were lost on the way.
struct Lost {
    /// At the veth pair.
    veth: f64,
    /// At the ports of both guests, for a switch that tells.
    guests: Option<f64>,
}

/// Returns the packets that an end of the veth pair has dropped.
fn dropped(namespace: &Namespace) -> Result<f64> {
    let text = namespace.sh(&format!("cd /sys/class/net/{INTERFACE}/statistics; cat rx_dropped tx_dropped"))?;
    Ok(text.lines().filter_map(|line| line.parse::<f64>().ok()).sum())
}

/// Returns the metrics of a trial: from both directions, the CPU time of both switches, and the lost
/// packets.
fn metrics(both: &[Iperf], cpu_s: f64, lost: &Lost) -> Measured {
    let sum = |of: fn(&Iperf) -> f64| both.iter().map(of).sum::<f64>();
    let gbit_per_s = sum(|iperf| iperf.gbit_per_s) / 2.0;
    let retransmits = sum(|iperf| iperf.retransmits);
    let cpu_s_per_gb = cpu_s / (sum(|iperf| iperf.bytes) / 1e9);
    let metrics = [
        ("gbit_per_s", gbit_per_s),
        ("retransmits", retransmits),
        ("veth_drops", lost.veth),
        ("switch_cpu_s_per_gb", cpu_s_per_gb),
    ];
    let mut metrics: BTreeMap<String, f64> = metrics.map(|(name, value)| (name.to_owned(), value)).into();
    metrics.extend(lost.guests.map(|drops| ("guest_drops".to_owned(), drops)));
    for (name, iperf) in ["forward_gbit_per_s", "back_gbit_per_s"].into_iter().zip(both) {
        metrics.insert(name.to_owned(), iperf.gbit_per_s);
    }
    let summary = format!("{gbit_per_s:.2} Gbit/s, {retransmits:.0} retransmits, {cpu_s_per_gb:.2} CPU s/GB");
    Measured { metrics, summary, ..Measured::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_make_one_result() {
        let iperf = |gbit_per_s, bytes| Iperf { gbit_per_s, bytes, retransmits: 3.0 };
        let lost = Lost { veth: 5.0, guests: None };
        let result = metrics(&[iperf(2.0, 1e9), iperf(4.0, 2e9)], 6.0, &lost);
        assert_eq!(result.summary, "3.00 Gbit/s, 6 retransmits, 2.00 CPU s/GB");
        let metric_of = |name: &str| result.metrics[name];
        assert_eq!(
            [metric_of("forward_gbit_per_s"), metric_of("back_gbit_per_s"), metric_of("veth_drops")],
            [2.0, 4.0, 5.0]
        );
        assert!(!result.metrics.contains_key("guest_drops"));
    }
}
