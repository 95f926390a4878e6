//! Trials with two Linux guests: one sends to the other by iperf3, over a limited port.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use straightline_lab::rounds::Measured;

use super::options::{Offload, OneRate};
use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Machine;
use crate::measure::{self, Candidate, SwitchKind};
use crate::net::Namespace;
use crate::ovs::Ovs;
use crate::proc::Proc;
use crate::traffic::{self, Iperf};
use crate::tunnels::mask;

const MTU: u32 = 1500;

/// A running switch. Linux's bridge has no process.
enum Limited<'lab> {
    Ours(Proc),
    Ovs(Ovs<'lab>),
    Bridge(Namespace),
}

impl<'lab> Limited<'lab> {
    /// Starts a switch on which the packets of guest 1 are limited.
    fn start(lab: &'lab Lab<'_>, switch: &Candidate, rate: Option<OneRate>) -> Result<Self> {
        match &switch.kind {
            SwitchKind::Ours(ours) => {
                let limited = rate.map(|rate| ours.with("a", &format!("rate-in = {:?}", rate.text)));
                Ok(Self::Ours(limited.as_ref().unwrap_or(ours).start(lab, "sleep")?))
            }
            SwitchKind::OvsSleeping => {
                let ovs = Ovs::start_policed(lab, rate.map(|rate| rate.per_second / 1000))?;
                mask::start(&lab.socket("guest1"), &lab.socket("a"))?;
                mask::start(&lab.socket("guest2"), &lab.socket("b"))?;
                Ok(Self::Ovs(ovs))
            }
            SwitchKind::Tbf => {
                let bridge = Namespace::silent("tbf")?;
                bridge.sh("ip link add br0 type bridge && ip link set br0 up")?;
                for tap in ["t1", "t2"] {
                    bridge.sh(&format!("ip tuntap add {tap} mode tap vnet_hdr && ip link set {tap} master br0 up"))?;
                }
                if let Some(OneRate { per_second, .. }) = rate {
                    let limit = format!("rate {per_second}bit burst 256kb latency 50ms");
                    bridge.sh(&format!("tc qdisc add dev t2 root tbf {limit}"))?;
                }
                Ok(Self::Bridge(bridge))
            }
            _ => bail!("{} has no limit for Linux guests", switch.name),
        }
    }

    fn guests(&self, lab: &Lab) -> Result<[LinuxGuest; 2]> {
        match self {
            Self::Ours(_) => LinuxGuest::boot_pair(lab, GuestKind::Uml, MTU),
            Self::Ovs(_) => boot([
                LinuxGuest::start(lab, GuestKind::Uml, 1, "guest1")?,
                LinuxGuest::start(lab, GuestKind::Uml, 2, "guest2")?,
            ]),
            Self::Bridge(bridge) => {
                let start = |number, tap| {
                    LinuxGuest::start_on_tap(lab, GuestKind::Uml, number, |program| bridge.command(program), tap)
                };
                boot([start(1, "t1")?, start(2, "t2")?])
            }
        }
    }

    /// Returns the CPU time of the switch in ticks of 10 ms, if it has a process.
    fn cpu_ticks(&self) -> Result<Option<u64>> {
        match self {
            Self::Ours(proc) => proc.cpu_ticks().map(Some),
            Self::Ovs(ovs) => ovs.cpu_ticks().map(Some),
            Self::Bridge(_) => Ok(None),
        }
    }
}

fn boot(mut guests: [LinuxGuest; 2]) -> Result<[LinuxGuest; 2]> {
    guests.iter_mut().try_for_each(|guest| guest.configure(MTU))?;
    Ok(guests)
}

/// Boots two guests. The first sends to the second for `secs`.
pub(super) fn trial(
    machine: &Machine,
    secs: u32,
    switch: &Candidate,
    rate: Option<OneRate>,
    offload: Offload,
) -> Result<Measured> {
    let lab = Lab::new(machine, "rates")?;
    let switch = Limited::start(&lab, switch, rate)?;
    let [mut one, mut two] = switch.guests(&lab)?;
    let off: &[&str] = match (offload, &switch) {
        (Offload::Tso, _) => &[],
        // A guest at a tap cannot turn checksums off.
        (Offload::None, Limited::Bridge(_)) => &["tso", "gso", "gro"],
        (Offload::None, _) => &["tso", "gso", "gro", "tx", "rx"],
    };
    for guest in [&mut one, &mut two] {
        traffic::turn_off(guest, off)?;
    }
    let second = two.ip();
    traffic::reach(&mut one, &second)?;
    traffic::iperf3_server(&mut two)?;
    let before = switch.cpu_ticks()?;
    let began = Instant::now();
    let moved = traffic::iperf3_client(&mut one, &second, secs, false)?;
    ensure!(
        began.elapsed() >= Duration::from_secs(secs.into()),
        "iperf3 ended before its time: the guest's clock is fast"
    );
    let after = switch.cpu_ticks()?;
    traffic::no_errors(&mut one)?;
    traffic::no_errors(&mut two)?;
    if let Limited::Ours(proc) = switch {
        measure::end(proc)?;
    }
    let cpu_s = before.zip(after).map(|(before, after)| u32::try_from(after - before)).transpose()?;
    Ok(metrics(rate, &moved, cpu_s.map(|ticks| f64::from(ticks) / 100.0)))
}

fn metrics(rate: Option<OneRate>, moved: &Iperf, cpu_s: Option<f64>) -> Measured {
    let Iperf { gbit_per_s, bytes, retransmits } = *moved;
    let share = rate.map(|rate| gbit_per_s * 1e9 / f64::from(rate.per_second));
    let metrics = [
        ("gbit_per_s", Some(gbit_per_s)),
        ("payload_share", share),
        ("retransmits", Some(retransmits)),
        ("switch_cpu_s_per_gb", cpu_s.map(|cpu_s| cpu_s / (bytes / 1e9))),
    ];
    let metrics = metrics.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let shown = share.map_or(String::new(), |share| format!(", {share:.3} of the rate"));
    let summary = format!("{gbit_per_s:.3} Gbit/s{shown}, {retransmits:.0} retransmits");
    Measured { metrics, summary, ..Measured::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_a_share_of_the_rate() {
        let moved = Iperf { gbit_per_s: 0.5, bytes: 2e9, retransmits: 3.0 };
        let measured = metrics(Some(OneRate::ALL[0]), &moved, Some(1.0));
        assert_eq!([measured.metrics["payload_share"], measured.metrics["switch_cpu_s_per_gb"]], [0.5, 0.5]);
        assert_eq!(measured.summary, "0.500 Gbit/s, 0.500 of the rate, 3 retransmits");
        assert!(!metrics(None, &moved, None).metrics.contains_key("payload_share"));
    }
}
