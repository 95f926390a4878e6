//! Arguments that measurements have in common.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::{Candidate, SwitchKind};
use crate::machine::{Machine, Need};

/// Arguments that all of them take.
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

    /// Takes an argument and its value, where it is one of these.
    pub(crate) fn take(
        &mut self,
        arg: &str,
        value: impl FnOnce() -> Result<String>,
        peers: &[(&str, SwitchKind)],
    ) -> Result<()> {
        match arg {
            "--switch" => {
                let switch = Candidate::read(&value()?, peers)?;
                ensure!(self.switches.iter().all(|s| s.name != switch.name), "--switch {} twice", switch.name);
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

    /// Looks whether what they name is there.
    pub(crate) fn check(&mut self) -> Result<()> {
        ensure!(!self.switches.is_empty(), "--switch is missing: what is to be compared?");
        self.cache = std::path::absolute(&self.cache)?;
        self.switches.iter_mut().try_for_each(Candidate::identify)
    }
}

/// An error where this machine cannot meet a need.
pub(crate) fn require(machine: &Machine, need: Need, instead: &str) -> Result<()> {
    machine.missing(need).map_or(Ok(()), |why| bail!("{why}: {instead}"))
}

/// Names with commas between them, each of one of these.
pub(crate) fn list<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<Vec<T>> {
    let one = |name| {
        let found = known.iter().find(|(known, _)| *known == name);
        let names = || known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        found.map(|(_, value)| *value).with_context(|| format!("{name}: one of {}", names()))
    };
    text.split(',').map(one).collect()
}

pub(crate) fn number<T: std::str::FromStr>(arg: &str, text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{arg} {text}: not a number"))
}
