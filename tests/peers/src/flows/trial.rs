//! Flows, switches and guests of a trial.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use straightline_lab::rounds::Measured;

use super::options::{FlowsCell, Options};
use crate::compare::{OurRun, RunningSwitch, guest_output};
use crate::lab::Lab;
use crate::machine::{Machine, two_cpus};
use crate::measure::{Candidate, SwitchKind};
use crate::ovs::Ovs;
use crate::proc::PATIENCE;

/// Time of traffic before a trial is measured: OvS makes its masks.
const WARM_UP: u32 = 2;

/// Rules of [`FlowsCell::Many`], their masks, and the flows of the guest.
const RULES: u32 = 1000;
const MASKS: u32 = 20;
const FLOWS: u32 = 10_000;

/// Flows of [`FlowsCell::Connections`].
const CONNECTIONS: u32 = 1000;

/// Flows of [`FlowsCell::Explosion`].
const EXPLOSION: u32 = 16_384;

/// The part of a guest's report that is used.
#[derive(Deserialize)]
struct GuestReport {
    ports: Vec<PortReport>,
}

#[derive(Deserialize)]
struct PortReport {
    rx_mpps: f64,
}

/// Runs a trial.
pub(super) fn run(machine: &Machine, options: &Options, switch: &Candidate, cell: &FlowsCell) -> Result<Measured> {
    let lab = Lab::new(machine, "flows")?;
    let file = lab.log("flows.txt");
    fs::write(&file, flows(*cell))?;
    let mut running = match &switch.kind {
        SwitchKind::Ovs => {
            let ovs = Ovs::start(&lab, false)?;
            ovs.replace_flows(&file.display().to_string())?;
            if options.no_emc {
                ovs.leave_out_exact_matches()?;
            }
            RunningSwitch::Ovs(ovs)
        }
        SwitchKind::Ours(ours) => {
            let proc = ours.start_with_flows(&lab, "spin", &file)?;
            RunningSwitch::Ours(OurRun::new(proc, &lab, &ours.program))
        }
        _ => bail!("{} has no flow tables", switch.name),
    };
    let guest = guest_program(options)?;
    guest_run(&lab, &guest, *cell, WARM_UP)?;
    running.go()?;
    let report = guest_run(&lab, &guest, *cell, options.secs)?;
    let cycles = running.cycles()?;
    running.end()?;
    let [first, second] = &report.ports[..] else { bail!("the guest has reported {} ports", report.ports.len()) };
    // What the second port sends arrives at the first one.
    let mpps = first.rx_mpps + second.rx_mpps;
    let metrics = [("mpps", Some(mpps)), ("second_mpps", Some(first.rx_mpps)), ("switch_cycles_per_packet", cycles)];
    let metrics = metrics.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let cycles = cycles.map_or(String::new(), |cycles| format!(", {cycles:.0} cycles a packet"));
    Ok(Measured { metrics, summary: format!("{mpps:.2} Mpps{cycles}"), ..Measured::default() })
}

/// Returns the program with the embedded guest: the first one of ours.
fn guest_program(options: &Options) -> Result<std::path::PathBuf> {
    let ours = options.common.switches.iter().find_map(|switch| match &switch.kind {
        SwitchKind::Ours(ours) => Some(ours.program.clone()),
        _ => None,
    });
    ours.context("no switch is a Straightline binary: its embedded guest sends the packets")
}

fn guest_run(lab: &Lab, program: &std::path::Path, cell: FlowsCell, secs: u32) -> Result<GuestReport> {
    let (flows, spread) = match cell {
        FlowsCell::One => (1, "destinations"),
        FlowsCell::Calm => (1, "prefixes"),
        FlowsCell::Many => (FLOWS, "destinations"),
        FlowsCell::Connections => (CONNECTIONS, "destinations"),
        FlowsCell::Explosion => (EXPLOSION, "prefixes"),
    };
    let mut command = Command::new(program);
    command.args(["lab", "guest", "--json", "--mode", "flowgen", "--size", "64"]);
    command.args(["--flows", &flows.to_string(), "--spread", spread]);
    command.arg("--backend").arg(lab.socket("a")).arg("--backend").arg(lab.socket("b"));
    command.args(["--cpu", &two_cpus()?.0.to_string(), "--secs", &secs.to_string()]);
    let out = guest_output(lab, command, Duration::from_secs(secs.into()) + PATIENCE)?;
    serde_json::from_str(&out).with_context(|| format!("the guest wrote {out}"))
}

/// Returns the flows of a trial. Packets of the first port go to the second one, and back.
fn flows(cell: FlowsCell) -> String {
    let mut text = "priority=1,in_port=1,actions=output:2\npriority=1,in_port=2,actions=output:1\n".to_owned();
    match cell {
        FlowsCell::One => {}
        // Both ports send the same flows, so nobody answers.
        FlowsCell::Connections => {
            text = "priority=9,udp,actions=ct(table=1)\n\
                    table=1,priority=9,udp,ct_state=+new,actions=ct(commit),resubmit(,2)\n\
                    table=1,priority=8,udp,ct_state=+trk,actions=resubmit(,2)\n\
                    table=2,in_port=1,actions=output:2\ntable=2,in_port=2,actions=output:1\n"
                .to_owned();
        }
        FlowsCell::Many => {
            // The destinations of the flows: 10.253.0.0 and 9999 more. Each rule is for some of them.
            for rule in 0..RULES / 2 {
                let kind = rule % MASKS;
                let bits = 23 + kind % 10;
                let mask = u32::MAX << (32 - bits);
                let dst = std::net::Ipv4Addr::from_bits((0x0afd_0000 + rule * (FLOWS / (RULES / 2))) & mask);
                let src = if kind < 10 { "" } else { "nw_src=10.254.0.0/16," };
                for (port, other) in [(1, 2), (2, 1)] {
                    let priority = 100 + bits * 2 + u32::from(kind >= 10);
                    let _ = writeln!(
                        text,
                        "priority={priority},in_port={port},udp,{src}nw_dst={dst}/{bits},actions=output:{other}"
                    );
                }
            }
        }
        // No packet meets them, and each of their bits may be the one that differs.
        FlowsCell::Calm | FlowsCell::Explosion => {
            text += "priority=9,ip,nw_src=10.254.0.0,actions=drop\npriority=8,ip,nw_dst=10.253.0.0,actions=drop\n\
                     priority=7,udp,tp_dst=1001,actions=drop\n";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_have_their_rules_and_masks() {
        let lines = |cell| flows(cell).lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(FlowsCell::One).len(), 2);
        assert_eq!(lines(FlowsCell::Explosion).len(), 5);
        assert_eq!(lines(FlowsCell::Connections).len(), 5);
        let many = lines(FlowsCell::Many);
        assert_eq!(many.len(), 1002);
        let masks: std::collections::BTreeSet<_> = many[2..]
            .iter()
            .map(|line| (line.contains("nw_src"), line.split('/').next_back().unwrap_or_default()[..2].to_owned()))
            .collect();
        assert_eq!(masks.len(), 20);
    }
}
