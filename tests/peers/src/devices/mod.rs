//! `peers devices`: compares switches at device ports, in rounds.
//!
//! | file | holds |
//! |---|---|
//! | `options` | the command line, and the axes of a trial |
//! | `kernel_side` | system calls alone (`kernel_side.c`): the bound, and the other end of packets |
//! | `packets` | trials with packets of one length |
//! | `guests` | trials with a Linux guest and iperf3 |
//! | `nodes` | loops of a node by reference, at an AF_XDP socket |
//! | `table` | medians, spreads, ratios |

mod guests;
mod kernel_side;
mod nodes;
mod options;
mod packets;
mod table;

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};

use crate::lab::Lab;
use crate::linux::rte;
use crate::machine::{Machine, Need, two_cpus};
use crate::measure::{Candidate, SwitchKind, TrialPlan, require};
use crate::proc;
pub(crate) use kernel_side::KernelSide;
pub(crate) use options::Options;
use options::{DeviceCell, Load};

/// Runs all trials. Returns true if each of them is valid.
pub(crate) fn run(options: Options) -> Result<bool> {
    let options = options::checked(options)?;
    let common = &options.common;
    ensure!(rustix::process::geteuid().is_root(), "namespaces, taps and AF_XDP need root: use sudo");
    let (guest_cpu, switch_cpu) = two_cpus()?;
    if guest_cpu == switch_cpu {
        bail!("this process may use one CPU only: two are needed, one for the load and one for the switch");
    }
    if options.nodes {
        let machine = Machine { switch: PathBuf::new(), cache: common.cache.clone(), long: false };
        let kernel = KernelSide::build(&common.cache)?;
        return nodes::run(&machine, &kernel, common.rounds, options.time(), common.out.as_deref());
    }
    let ours = common.switches.iter().find_map(|switch| match &switch.kind {
        SwitchKind::Ours(ours) => Some(ours.program.clone()),
        _ => None,
    });
    // The program has the embedded guest that loads other switches.
    let program = ours.unwrap_or_else(|| PathBuf::from("target/release/straightline"));
    let machine = Machine { switch: program, cache: common.cache.clone(), long: false };
    let groups = groups(&common.switches, &options.cells());
    let has_kind = |kind| groups.iter().flat_map(|(switches, _)| switches).any(|switch| switch.kind == kind);
    if has_kind(SwitchKind::Testpmd) {
        require(&machine, Need::Dpdk, "leave testpmd out, or reserve huge pages")?;
    }
    if has_kind(SwitchKind::Ovs) {
        require(&machine, Need::Ovs, "leave ovs out, or reserve huge pages")?;
    }
    let rte = if has_kind(SwitchKind::RteVhost) {
        require(&machine, Need::RteVhost, "leave rte out, or reserve huge pages")?;
        Some(rte::build(&common.cache)?)
    } else {
        None
    };
    let kernel = KernelSide::build(&common.cache)?;
    let iperf_secs = u32::try_from((2 * options.time()).as_secs().max(1))?;
    let mut valid = true;
    let mut tables = String::new();
    for (number, (switches, cells)) in (1..).zip(&groups) {
        let out = common.out.as_ref().map(|out| out.join(number.to_string()));
        let rounds = common.rounds;
        let near = common.near;
        let plan = TrialPlan { scenario: "devices", rounds, switches, cells, out: out.as_deref(), near };
        let done = plan.run(|switch, cell| {
            let lab = Lab::new(&machine, "devices")?;
            match cell.load {
                Load::Iperf(guest) => guests::trial(&lab, rte.as_deref(), iperf_secs, switch, cell, guest),
                Load::Out | Load::In | Load::Loop => packets::trial(&lab, &kernel, options.time(), switch, cell),
            }
        })?;
        tables += &format!("{}\n", table::markdown(switches, cells, &done.samples));
        valid &= done.judge();
        if proc::interrupted() {
            break;
        }
    }
    println!("Medians (smallest-largest); ratios of the medians [95 % interval, from six rounds on].\n\n{tables}");
    Ok(valid)
}

/// Returns rows that have the same switches, each time with these switches.
fn groups(switches: &[Candidate], cells: &[DeviceCell]) -> Vec<(Vec<Candidate>, Vec<DeviceCell>)> {
    let mut groups: Vec<(Vec<Candidate>, Vec<DeviceCell>)> = Vec::new();
    for &cell in cells {
        let takes: Vec<Candidate> = switches.iter().filter(|switch| cell.takes(switch)).cloned().collect();
        let names = |switches: &[Candidate]| switches.iter().map(|switch| switch.name.clone()).collect::<Vec<_>>();
        match groups.iter_mut().find(|(group, _)| names(group) == names(&takes)) {
            Some((_, cells)) => cells.push(cell),
            None if takes.is_empty() => {}
            None => groups.push((takes, vec![cell])),
        }
    }
    groups
}
