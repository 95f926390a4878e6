//! The arguments that all comparisons have in common.

use std::marker::PhantomData;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;

use super::{Candidate, SwitchKind};
use crate::machine::{Machine, Need};

/// The switches of a comparison, and its number of rounds.
pub(crate) trait Peers: Send + Sync + 'static {
    /// Third-party switches by their names on the command line.
    const KNOWN: &'static [(&'static str, SwitchKind)];

    /// The switches that are compared if the command line names none.
    const DEFAULT: &'static [&'static str];

    /// The number of rounds, unless the command line tells it. It is text because clap computes a
    /// typed default once for all comparisons.
    const ROUNDS: &'static str;
}

/// Arguments of all comparisons.
#[derive(Debug, Args)]
pub(crate) struct CommonOptions<P: Peers> {
    /// Switch to compare, from the list below; repeatable
    #[arg(
        long = "switch",
        value_name = "SWITCH",
        value_parser = candidate::<P>,
        default_values = P::DEFAULT,
        hide_default_value = true,
        required = P::DEFAULT.is_empty()
    )]
    pub(crate) switches: Vec<Candidate>,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value = P::ROUNDS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Nanoseconds that a line's round trip between the first two CPUs takes at most. A hypervisor moves CPUs,
    /// so a visit of a switch waits for a moment when they are near. It is made up to three times, until they
    /// still are at its end
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) near: Option<u32>,
    /// New folder for the trials, for `straightline lab report` and `compare`
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Folder for logs and the guests' file systems
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    pub(crate) cache: PathBuf,
    #[arg(skip)]
    peers: PhantomData<P>,
}

impl<P: Peers> CommonOptions<P> {
    /// Checks that no name is given twice.
    pub(crate) fn check(&self) -> Result<()> {
        for (number, switch) in self.switches.iter().enumerate() {
            let twice = self.switches[..number].iter().any(|other| other.name == switch.name);
            ensure!(!twice, "--switch {} is given twice: use another name", switch.name);
        }
        Ok(())
    }

    /// Checks that all programs exist, and asks each for its version.
    pub(crate) fn identify(&mut self) -> Result<()> {
        self.cache = std::path::absolute(&self.cache)?;
        self.switches.iter_mut().try_for_each(Candidate::identify)
    }

    /// Like [`Self::identify`], for a comparison in which something reads the packets: `reader`.
    pub(crate) fn identify_copying(&mut self, reader: &str) -> Result<()> {
        self.identify()?;
        match self.switches.iter().find(|switch| switch.copies_nothing) {
            Some(bare) => {
                bail!("--switch {}: this build copies no packets, and {reader}: use another build", bare.name)
            }
            None => Ok(()),
        }
    }
}

fn candidate<P: Peers>(text: &str) -> Result<Candidate, String> {
    Candidate::read(text, P::KNOWN).map_err(|error| format!("{error:#}"))
}

/// Returns an error if this machine does not meet a requirement.
pub(crate) fn require(machine: &Machine, need: Need, instead: &str) -> Result<()> {
    machine.missing(need).map_or(Ok(()), |why| bail!("{why}: {instead}"))
}

/// Parses a number of seconds, from 0.1 to `most`.
pub(crate) fn secs(text: &str, most: f64) -> Result<f64, String> {
    let secs = text.parse().ok().filter(|secs| (0.1..=most).contains(secs));
    secs.ok_or_else(|| format!("use 0.1 to {most} seconds"))
}

/// Parses a line of arguments with `|` between them.
#[cfg(test)]
pub(crate) fn parsed<A: Args>(line: &str) -> Result<A> {
    let command = A::augment_args(clap::Command::new("test").no_binary_name(true));
    Ok(A::from_arg_matches(&command.try_get_matches_from(line.split('|').filter(|arg| !arg.is_empty()))?)?)
}
