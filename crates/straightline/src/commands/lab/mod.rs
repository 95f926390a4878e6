//! `straightline lab`: one file for each command with its arguments. This file has what the
//! commands share.

mod compare;
mod exp;
mod generate;
mod guest;
mod machine;
mod progress;
mod reflector;
mod replay;
mod report;
mod scenario;
mod tunnel;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Subcommand, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use straightline_guest::endpoints::{Layout, PortOptions};
use straightline_lab::guests::forward::Noise;

use crate::cli::Cli;

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Reflect packets in an embedded guest between two ports of any vhost-user switch, or flood
    /// the ports
    Loop(Box<reflector::Loop>),
    /// Run an embedded guest with testpmd's forward modes on one or two ports of any vhost-user
    /// switch
    Guest(Box<guest::Guest>),
    /// Measure rates, loss and latencies from a physical port through a virtual machine to a
    /// physical port
    Pvp(Box<scenario::Pvp>),
    /// Measure rates, loss and latencies between two guests
    #[command(name = "vm2vm")]
    Vm2Vm(Box<scenario::Vm2Vm>),
    /// Measure rates, loss and latencies between two ports of any switch, at sockets or interfaces
    PatchExternal(Box<scenario::PatchExternal>),
    /// Run an experiment: measure variants of one thing in the switch's own pipeline, interleaved
    Exp(exp::Exp),
    /// Measure tunnels of each kind between two guests, beside patches that segment alike
    #[command(after_help = tunnel::HELP)]
    Tunnel(tunnel::Tunnel),
    /// Measure the bounds of this machine: bandwidth and latency of its caches and memory, and from
    /// core to core
    #[command(after_help = machine::HELP)]
    Machine(machine::Machine),
    /// Make a report of a folder of results: an HTML page with plots, a Markdown file and a CSV
    /// file
    Report(report::Report),
    /// Compare two folders of results, cell by cell: medians, their ratio with its interval, and a
    /// verdict
    Compare(compare::Compare),
    /// Send streams of packets at a rate through one or two ports of any switch, at sockets or
    /// interfaces, and check what returns
    Generate(Box<generate::Generate>),
    /// Send the frames of a capture, and compare the returned frames
    Replay(Box<replay::Replay>),
}

/// Executes a command of the laboratory.
pub(super) fn execute(lab: &Lab) -> anyhow::Result<()> {
    match lab {
        Lab::Loop(args) => reflector::execute(args),
        Lab::Guest(args) => guest::execute(args),
        Lab::Pvp(args) => scenario::pvp(args),
        Lab::Vm2Vm(args) => scenario::vm2vm(args),
        Lab::PatchExternal(args) => scenario::patch_external(args),
        Lab::Exp(args) => exp::execute(args),
        Lab::Tunnel(args) => tunnel::execute(args),
        Lab::Machine(args) => machine::execute(args),
        Lab::Report(args) => report::execute(args),
        Lab::Compare(args) => compare::execute(args),
        Lab::Generate(args) => generate::execute(args),
        Lab::Replay(args) => replay::execute(args),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RingKind {
    Split,
    Packed,
}

impl From<RingKind> for Layout {
    fn from(ring: RingKind) -> Layout {
        match ring {
            RingKind::Split => Layout::Split,
            RingKind::Packed => Layout::Packed,
        }
    }
}

/// Options of ports that do not depend on the ring layout.
#[derive(Debug, Args)]
pub(crate) struct Ports {
    /// Mergeable receive buffers
    #[arg(long, value_name = "on|off", default_value = "on")]
    mrg: OnOff,
    /// Negotiate that buffers are used in order
    #[arg(long)]
    in_order: bool,
    /// Entries of each ring: a power of two
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = queue_size)]
    queue_size: u16,
    /// Bytes of each buffer, header included; default: 2048; `lab loop` uses larger ones if its
    /// frames need them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(76..=1 << 20))]
    buffer_len: Option<u32>,
    /// Offset of the virtio-net header from the start of a cache line; with 52 the frame starts on
    /// a line
    #[arg(long, value_name = "N", default_value_t = 52, value_parser = clap::value_parser!(u32).range(0..=63))]
    header_offset: u32,
    /// Take the memory from huge pages of 2 MiB
    #[arg(long)]
    hugepages: bool,
}

impl Ports {
    fn options(&self) -> PortOptions {
        let usual = PortOptions::default();
        PortOptions {
            mergeable: self.mrg == OnOff::On,
            in_order: self.in_order,
            queue_size: self.queue_size,
            buffer_len: self.buffer_len.unwrap_or(usual.buffer_len),
            header_offset: self.header_offset,
            huge_pages: self.hugepages,
            ..usual
        }
    }
}

/// Options of the guest's forward mode `noisy`.
#[derive(Debug, Args)]
pub(crate) struct Noisy {
    /// Memory in KiB of which a guest in mode `noisy` touches cache lines
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4 << 20))]
    noisy_memory: u32,
    /// Cache lines of this memory that are touched for each packet
    #[arg(long, value_name = "N", default_value_t = 16)]
    noisy_lines: u32,
}

impl Noisy {
    fn noise(&self) -> Noise {
        Noise { footprint: u64::from(self.noisy_memory) << 10, touches: self.noisy_lines }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

/// The first signal ends the command and keeps the results so far. The second signal ends the
/// process at once.
fn stop_on_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        let handled = flag::register_conditional_default(signal, Arc::clone(stop))
            .and_then(|_| flag::register(signal, Arc::clone(stop)));
        handled.context("cannot handle signals")?;
    }
    Ok(())
}

/// Reports a usage error that clap does not find, and ends the program with clap's exit code for
/// usage errors, 2.
fn wrong_usage(kind: ErrorKind, why: &str) -> ! {
    Cli::command().error(kind, why).exit()
}

/// Treats an error in the options, found before anything has started, as a usage error.
fn usage(checked: anyhow::Result<()>) {
    if let Err(error) = checked {
        wrong_usage(ErrorKind::ValueValidation, &format!("{error:#}"));
    }
}

/// Ends the program with a usage error unless the number of backends is one of `counts`.
fn expect_backends(given: &[PathBuf], counts: &[usize]) {
    if !counts.contains(&given.len()) {
        wrong_backends(given, counts);
    }
}

fn wrong_backends(given: &[PathBuf], counts: &[usize]) -> ! {
    let counts: Vec<_> = counts.iter().map(usize::to_string).collect();
    let why = format!("--backend must be given {} times, once for each port, not {}", counts.join(" or "), given.len());
    wrong_usage(ErrorKind::WrongNumberOfValues, &why)
}

fn queue_size(text: &str) -> Result<u16, String> {
    let size = text.parse::<u16>().ok().filter(|size| size.is_power_of_two() && (32..=1024).contains(size));
    size.ok_or_else(|| "a power of two, from 32 to 1024".to_owned())
}

/// Parses a time that must not be 0.
fn time(text: &str) -> Result<Duration, String> {
    let time = seconds(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| "use more than 0 and at most 86400 seconds".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let secs = text.parse::<f64>().ok().filter(|secs| (0.0..=86400.0).contains(secs));
    secs.map(Duration::from_secs_f64).ok_or_else(|| "use 0 to 86400 seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_queue_sizes() {
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        assert_eq!(time("0.5"), Ok(Duration::from_millis(500)));
        assert!(["0", "-1", "86401", "NaN", "x", "1e-12"].iter().all(|text| time(text).is_err()));
        assert_eq!(["32", "256", "1024"].map(queue_size), [Ok(32), Ok(256), Ok(1024)]);
        assert!(["0", "16", "100", "2048", "x"].iter().all(|text| queue_size(text).is_err()));
    }
}
