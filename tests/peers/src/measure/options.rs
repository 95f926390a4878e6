//! The arguments that all comparisons have in common.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::{Candidate, SwitchKind};
use crate::machine::{Machine, Need};

/// Arguments of all comparisons.
#[derive(Debug)]
pub(crate) struct CommonOptions {
    pub(crate) switches: Vec<Candidate>,
    pub(crate) rounds: u32,
    pub(crate) out: Option<PathBuf>,
    pub(crate) cache: PathBuf,
}

impl CommonOptions {
    pub(crate) fn new() -> Self {
        Self { switches: Vec::new(), rounds: 5, out: None, cache: "target/peers".into() }
    }

    /// Parses one of these arguments and its value.
    pub(crate) fn take(
        &mut self,
        arg: &str,
        value: impl FnOnce() -> Result<String>,
        peers: &[(&str, SwitchKind)],
    ) -> Result<()> {
        match arg {
            "--switch" => {
                let switch = Candidate::read(&value()?, peers)?;
                ensure!(
                    self.switches.iter().all(|s| s.name != switch.name),
                    "--switch {} is given twice: use another name",
                    switch.name
                );
                self.switches.push(switch);
            }
            "--rounds" => {
                self.rounds = number(arg, &value()?)?;
                ensure!((1..=1000).contains(&self.rounds), "--rounds takes 1 to 1000, not {}", self.rounds);
            }
            "--out" => self.out = Some(value()?.into()),
            "--cache" => self.cache = value()?.into(),
            other => bail!("unknown argument {other}"),
        }
        Ok(())
    }

    /// Checks that all switches exist.
    pub(crate) fn check(&mut self) -> Result<()> {
        ensure!(!self.switches.is_empty(), "--switch is missing: name at least one switch to compare");
        self.cache = std::path::absolute(&self.cache)?;
        self.switches.iter_mut().try_for_each(Candidate::identify)
    }
}

/// Returns an error if this machine does not meet a requirement.
pub(crate) fn require(machine: &Machine, need: Need, instead: &str) -> Result<()> {
    machine.missing(need).map_or(Ok(()), |why| bail!("{why}: {instead}"))
}

/// Parses a list of known names, separated by commas.
pub(crate) fn list<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<Vec<T>> {
    let value_of = |name| {
        let found = known.iter().find(|(known, _)| *known == name);
        let names = || known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        found.map(|(_, value)| *value).with_context(|| format!("unknown value {name:?}: use one of {}", names()))
    };
    text.split(',').map(value_of).collect()
}

pub(crate) fn number<T: std::str::FromStr>(arg: &str, text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{arg} {text}: not a number in range"))
}
