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

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::lab::Lab;
use crate::machine::{Machine, Need, two_cpus};
use crate::proc;
use guests::Measured;
pub(crate) use options::USAGE;
use options::{Cell, Guest, Kind, Options};
use switches::Running;

/// A machine that is busier before a trial than this part of its time is not quiet.
const QUIET: f64 = 0.1;

/// One trial, as a line of JSON.
#[derive(Debug, Serialize)]
struct Trial<'a> {
    round: u32,
    switch: &'a str,
    #[serde(flatten)]
    cell: &'a Cell,
    #[serde(flatten)]
    measured: Option<Measured>,
    /// Cycles of the time-stamp counter that the switch took for a packet, as it says.
    switch_cycles_per_packet: Option<f64>,
    /// Why it does not count.
    error: Option<String>,
    /// What part of the machine was busy with something else before.
    busy_before: f64,
}

/// What the samples come from.
#[derive(Serialize)]
struct Environment {
    cpu: String,
    cpus: usize,
    kernel: String,
    huge_pages: bool,
    switches: Vec<String>,
    secs: f64,
    rounds: u32,
}

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
    let mut lines = options.json.as_deref().map(create).transpose()?;
    if let Some(lines) = &mut lines {
        write_line(lines, &environment(&options))?;
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
                let error = result.as_ref().err().map(|error| format!("{error:#}"));
                failed += usize::from(error.is_some());
                let (measured, cycles) = result.map_or((None, None), |(measured, cycles)| (Some(measured), cycles));
                table.add(&switch.name, cell, measured.as_ref(), cycles);
                let trial = Trial {
                    round,
                    switch: &switch.name,
                    cell,
                    measured,
                    switch_cycles_per_packet: cycles,
                    error,
                    busy_before,
                };
                if let Some(lines) = &mut lines {
                    write_line(lines, &trial)?;
                }
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

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot create {}", path.display()))
}

fn write_line(file: &mut File, line: &impl Serialize) -> Result<()> {
    Ok(file.write_all(format!("{}\n", serde_json::to_string(line)?).as_bytes())?)
}

fn environment(options: &Options) -> Environment {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    Environment {
        cpu: model.map_or_else(String::new, |(_, name)| name.to_owned()),
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        huge_pages: options.huge_pages,
        switches: options.switches.iter().map(|switch| format!("{}: {}", switch.name, switch.version)).collect(),
        secs: options.secs,
        rounds: options.rounds,
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
