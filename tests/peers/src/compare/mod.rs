//! `peers compare`: compares switches side by side, each between the same two sockets with the same
//! guest, in rounds.
//!
//! | file | holds |
//! |---|---|
//! | `options` | the command line, and the axes of a trial |
//! | `switches` | testpmd, Open vSwitch and ours, each started for one trial; the cycles that each reports |
//! | `guests` | our own guest and generator, and testpmd's virtio-user ports |
//! | `pvp` | `peers pvp`: the same switches between physical ports and a guest |
//! | `table` | medians, spreads, ratios |

mod guests;
mod options;
pub(crate) mod pvp;
mod switches;
mod table;

pub(crate) use guests::{GuestReport, output_of as guest_output, rates};
pub(crate) use switches::{ovs_cycles, testpmd_cycles};

use anyhow::{Result, bail};
use straightline_lab::rounds::Measured;

use crate::lab::Lab;
use crate::machine::{Machine, Need, two_cpus};
use crate::measure::{Candidate, SwitchKind, TrialPlan, require};
pub(crate) use options::Options;
use options::{CompareCell, TrafficSource};
pub(crate) use switches::{OurRun, RunningSwitch};

/// Runs all trials. Returns true if each of them is valid.
pub(crate) fn run(options: Options) -> Result<bool> {
    let options = options::checked(options)?;
    let common = &options.common;
    let machine = Machine { switch: options.program.clone(), cache: common.cache.clone(), long: false };
    let cells = options.cells();
    let has_kind = |kind| common.switches.iter().any(|switch| switch.kind == kind);
    let without = "leave testpmd and ovs out, or run as root with huge pages reserved";
    if has_kind(SwitchKind::Testpmd) || cells.iter().any(|cell| cell.guest == TrafficSource::Testpmd) {
        require(&machine, Need::Dpdk, without)?;
    }
    if has_kind(SwitchKind::Ovs) {
        require(&machine, Need::Ovs, without)?;
    }
    let (guest_cpu, switch_cpu) = two_cpus()?;
    if guest_cpu == switch_cpu {
        bail!("this process may use one CPU only: two are needed, one for the guest and one for the switch");
    }
    let rounds = common.rounds;
    let switches = &common.switches[..];
    let out = common.out.as_deref();
    let near = common.near;
    let plan = TrialPlan { scenario: "compare", rounds, switches, cells: &cells, out, near };
    let done = plan.run(|switch, cell| trial(&machine, &options, switch, cell))?;
    println!("{}", table::markdown(switches, &cells, &done.samples));
    Ok(done.judge())
}

fn trial(machine: &Machine, options: &Options, switch: &Candidate, cell: &CompareCell) -> Result<Measured> {
    let lab = Lab::new(machine, "compare")?;
    let mut running = RunningSwitch::start(&lab, switch, cell)?;
    let seen = guests::measure(&lab, options, &mut running, switch.copies_nothing, cell)?;
    let cycles = running.cycles()?;
    running.end()?;
    let metrics = [
        ("mpps", Some(seen.mpps)),
        ("gbit_per_s", Some(seen.gbit_per_s)),
        ("guest_cycles_per_packet", seen.guest_cycles_per_packet),
        ("switch_cycles_per_packet", cycles),
        ("lost", seen.lost.and_then(|lost| u32::try_from(lost).ok()).map(f64::from)),
    ];
    let metrics = metrics.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let metrics = metrics.chain(seen.found).collect();
    let cycles = cycles.map_or(String::new(), |cycles| format!(", {cycles:.0} cycles a packet"));
    let least = if seen.validity.is_lower_bound() { "at least " } else { "" };
    Ok(Measured {
        metrics,
        summary: format!("{least}{:.3} Mpps{cycles}", seen.mpps),
        validity: seen.validity,
        ..Measured::default()
    })
}
