//! `peers compare`: switches beside one another, each between the same two sockets with the same guest, round by round.
//!
//! | file | holds |
//! |---|---|
//! | `options` | the command line, and what a trial is |
//! | `switches` | testpmd, Open vSwitch and ours, each started for one trial; the cycles that each says it took |
//! | `guests` | our own guest, and testpmd's virtio-user ports |
//! | `table` | medians, spreads, ratios |

mod guests;
mod options;
mod switches;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use straightline_lab::results::{Environment, Sample, Writer};

use crate::lab::Lab;
use crate::machine::{Machine, Need, two_cpus};
use crate::proc;
use guests::Measured;
pub(crate) use options::USAGE;
use options::{Cell, Guest, Kind, Options};
use switches::Running;

/// A machine that is busier before a trial than this part of its time is not quiet.
const QUIET: f64 = 0.1;

/// Runs all trials; true where each of them counts.
pub(crate) fn run(args: impl Iterator<Item = String>) -> Result<bool> {
    let options = options::parse(args)?;
    let machine = Machine { switch: options.program.clone(), cache: options.cache.clone(), long: false };
    let needs = |need| {
        machine
            .missing(need)
            .map_or(Ok(()), |why| bail!("{why}: leave the peers out, or run it as root with huge pages reserved"))
    };
    let cells = options.cells();
    if options.switches.iter().any(|switch| switch.kind == Kind::Testpmd)
        || cells.iter().any(|cell| cell.guest == Guest::Testpmd)
    {
        needs(Need::Dpdk)?;
    }
    if options.switches.iter().any(|switch| switch.kind == Kind::Ovs) {
        needs(Need::Ovs)?;
    }
    let (guest_cpu, switch_cpu) = two_cpus()?;
    if guest_cpu == switch_cpu {
        bail!("two CPUs are needed, one for the guest and one for the switch");
    }
    proc::catch_interrupts()?;
    let mut writer = options.out.as_deref().map(|out| Writer::create(out, Environment::detect())).transpose()?;
    if let Some(writer) = &mut writer {
        options.switches.iter().try_for_each(|switch| writer.peer(&switch.name, &switch.version))?;
    }
    let total = options.rounds as usize * options.switches.len() * cells.len();
    let (mut table, mut done, mut failed, start) = (table::Table::default(), 0, 0, Instant::now());
    let mut disturbed = 0;
    'rounds: for round in 1..=options.rounds {
        for cell in &cells {
            for switch in &options.switches {
                let busy_before = busy();
                let result = trial(&machine, &options, switch, cell);
                // Whatever has failed by it.
                if proc::interrupted() {
                    eprintln!("interrupted: what was measured so far");
                    break 'rounds;
                }
                let busy_before = busy_before?;
                disturbed += usize::from(busy_before > QUIET);
                done += 1;
                let left = start.elapsed().mul_f64(ratio(total - done, done));
                let head = format!("{done}/{total} {:10} {cell}", switch.name);
                match &result {
                    Ok((measured, cycles)) => {
                        let cycles = cycles.map_or(String::new(), |cycles| format!(", {cycles:.0} cycles a packet"));
                        eprintln!("{head}: {:.3} Mpps{cycles}; {} left", measured.mpps, time(left));
                    }
                    Err(error) => eprintln!("{head}: no valid trial: {error:#}; {} left", time(left)),
                }
                failed += usize::from(result.is_err());
                if let Some(writer) = &mut writer {
                    writer.write(&sample(round, switch, cell, busy_before, &result))?;
                }
                let (measured, cycles) = result.map_or((None, None), |(measured, cycles)| (Some(measured), cycles));
                table.add(&switch.name, cell, measured.as_ref(), cycles);
            }
        }
    }
    println!("{}", table.markdown());
    if disturbed > 0 {
        eprintln!(
            "before {disturbed} of {done} trials the machine was busy with something else: only ratios mean anything"
        );
    }
    if failed > 0 {
        eprintln!("{failed} of {done} trials do not count");
    }
    Ok(failed == 0 && !proc::interrupted())
}

fn trial(
    machine: &Machine,
    options: &Options,
    switch: &options::Switch,
    cell: &Cell,
) -> Result<(Measured, Option<f64>)> {
    let lab = Lab::new(machine, "compare")?;
    let mut running = Running::start(&lab, switch, cell)?;
    let measured = guests::measure(&lab, options, &mut running, switch.copies_nothing, cell)?;
    Ok((measured, running.cycles()?))
}

/// For `lab report` and `lab compare`.
fn sample(
    round: u32,
    switch: &options::Switch,
    cell: &Cell,
    busy_before: f64,
    result: &Result<(Measured, Option<f64>)>,
) -> Sample {
    // What part of the machine was busy with something else before.
    let mut metrics = BTreeMap::from([("busy_before_ratio".to_owned(), busy_before)]);
    if let Ok((measured, cycles)) = result {
        let figures = [
            ("mpps", Some(measured.mpps)),
            ("gbit_per_s", Some(measured.gbit_per_s)),
            ("guest_cycles_per_packet", measured.guest_cycles_per_packet),
            ("switch_cycles_per_packet", *cycles),
            ("lost", measured.lost.and_then(|lost| u32::try_from(lost).ok()).map(f64::from)),
        ];
        metrics.extend(figures.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?))));
    }
    Sample {
        scenario: "compare".to_owned(),
        round,
        variant: switch.name.clone(),
        cell: cell.axes(),
        metrics,
        invalid: result.as_ref().err().map(|error| format!("{error:#}")),
        ..Sample::default()
    }
}

/// The part of the machine's time that somebody works, now that nothing of ours runs.
fn busy() -> Result<f64> {
    let ticks = || -> Result<(u64, u64)> {
        let text = fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal (proc(5))
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        let idle = ticks.get(3).copied().unwrap_or(0) + ticks.get(4).copied().unwrap_or(0);
        Ok((ticks.iter().sum(), idle))
    };
    let (all, idle) = ticks()?;
    proc::pause(Duration::from_millis(200))?;
    let (all_now, idle_now) = ticks()?;
    // The time spent waiting for devices may go back (proc(5)).
    let (idle, all) = (idle_now.saturating_sub(idle), all_now.saturating_sub(all).max(1));
    Ok(1.0 - ratio(usize::try_from(idle.min(all))?, usize::try_from(all)?))
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn time(left: Duration) -> String {
    let secs = left.as_secs();
    if secs >= 3600 {
        format!("{} h {:02} min", secs / 3600, secs / 60 % 60)
    } else {
        format!("{}:{:02} min", secs / 60, secs % 60)
    }
}
