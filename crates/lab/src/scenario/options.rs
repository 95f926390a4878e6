//! What can be asked for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use straightline_virtio::features as f;

use super::endpoints::can_be_made;
use crate::endpoints::{Layout, Pinned, PortOptions};
use crate::exp::{LONGEST, cpu_beside, two_cpus, usable_cpus, used, warning};
use crate::forward::{Mode, Noise, Touch};
use crate::generator::Rate;
use crate::sizes::Sizes;
use crate::trial::{Length, length};

/// What stands between the generator's two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A switch between each of them and a guest, which hands on what it gets: physical, virtual, physical.
    Pvp,
    /// A switch: they are two guests.
    Vm2Vm,
    /// Any switch that runs already, and hands on between two sockets.
    PatchExternal,
}

impl Scenario {
    /// Its name on the command line and in samples.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Pvp => "pvp",
            Scenario::Vm2Vm => "vm2vm",
            Scenario::PatchExternal => "patch-external",
        }
    }

    /// Ports that the switch has.
    #[must_use]
    pub fn ports(self) -> usize {
        if self == Scenario::Pvp { 4 } else { 2 }
    }
}

/// What is measured in each cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loads {
    /// What comes back of as much as there is room for (MRR).
    pub max: bool,
    /// What comes back of this.
    pub rate: Option<Rate>,
    /// The most without loss.
    pub ndr: bool,
    /// The most with so much loss, as a part of all.
    pub pdr: Option<f64>,
    /// Latencies at nearly nothing, and at 10, 50 and 90 % of the PDR.
    pub latency: bool,
    /// Whether a load is carried for so long: `rate`, or 90 % of the NDR.
    pub soak: Option<Duration>,
}

impl Loads {
    /// Whether anything has to be searched for.
    #[must_use]
    pub fn searches(&self) -> bool {
        self.ndr || self.pdr.is_some() || self.latency || (self.soak.is_some() && self.rate.is_none())
    }

    /// Whether packets have to be sent at their times.
    #[must_use]
    pub fn are_paced(&self) -> bool {
        self.rate.is_some() || self.searches() || self.soak.is_some()
    }
}

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What stands between the generator's ports.
    pub scenario: Scenario,
    /// Where the switch's ports listen, in the order in which they follow one another on the way; none: a switch of ours,
    /// in this process.
    pub backends: Vec<PathBuf>,
    /// What the switch is called in samples.
    pub name: String,
    /// Lengths of frames, each a cell with each layout.
    pub sizes: Vec<Sizes>,
    /// Layouts of rings.
    pub layouts: Vec<Layout>,
    /// How ports are made, whatever the layout.
    pub ports: PortOptions,
    /// What the guest does with packets.
    pub mode: Mode,
    /// What it touches of them.
    pub touch: Touch,
    /// What it does besides where it is noisy.
    pub noise: Noise,
    /// What mixed lengths are drawn by.
    pub seed: u64,
    /// What is measured.
    pub loads: Loads,
    /// How long a trial is, without warm-up.
    pub time: Duration,
    /// Before what counts; default: half a second on new connections, as some backends take a while to look at what they
    /// were given, and a tenth later.
    pub warm_up: Option<Duration>,
    /// So many times everything is measured.
    pub rounds: u32,
    /// The CPU of the generator and of the guest; default: the first one that this process may use.
    pub cpu: Option<usize>,
    /// The CPU of a switch of ours; default: one of another core, where there is one.
    pub switch_cpu: Option<usize>,
    /// Ends everything as soon as it is set.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// The most of 64 bytes that a switch takes, one second long.
    #[must_use]
    pub fn new(scenario: Scenario) -> Options {
        Options {
            scenario,
            backends: Vec::new(),
            name: "straightline".to_owned(),
            sizes: vec![Sizes::one(64)],
            layouts: vec![Layout::Split],
            ports: PortOptions::default(),
            mode: Mode::Io,
            touch: Touch::None,
            noise: Noise::default(),
            seed: 1,
            loads: Loads { max: true, ..Loads::default() },
            time: Duration::from_secs(1),
            warm_up: None,
            rounds: 1,
            cpu: None,
            switch_cpu: None,
            stop: Arc::default(),
        }
    }

    /// Whether it is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The CPU of the generator, and of a switch of ours.
    pub(super) fn cpus(&self) -> anyhow::Result<[usize; 2]> {
        if !self.backends.is_empty() {
            // Where their switch runs is theirs to say.
            let first = usable_cpus()?.first().copied().unwrap_or(0);
            return Ok([self.cpu.unwrap_or(first); 2]);
        }
        match (self.cpu, self.switch_cpu) {
            (Some(cpu), Some(switch)) => Ok([cpu, switch]),
            (Some(cpu), None) => Ok([cpu, cpu_beside(cpu)?]),
            (None, Some(switch)) => Ok([cpu_beside(switch)?, switch]),
            (None, None) => two_cpus(),
        }
    }

    /// How long trials at a rate can be on these CPUs: it takes two seconds to know.
    ///
    /// # Errors
    /// There are too few, or one that this process may not have.
    pub fn length(&self) -> anyhow::Result<Length> {
        let mut cpus = self.cpus()?.to_vec();
        cpus.dedup();
        length(&cpus)
    }

    /// The CPUs, as results have them ([`crate::results::Environment::used_cpus`]).
    ///
    /// # Errors
    /// There are too few.
    pub fn used_cpus(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut used = used(self.cpus()?);
        if !self.backends.is_empty() {
            used.remove("switch");
        }
        Ok(used)
    }

    /// What has to be known of the CPUs before any figure is believed.
    pub(super) fn warning(&self) -> anyhow::Result<Option<String>> {
        Ok(warning(self.cpus()?))
    }

    /// How ports of this layout are made, for frames of these sizes.
    pub(super) fn ports(&self, layout: Layout, sizes: &Sizes) -> PortOptions {
        PortOptions { layout, longest: self.ports.longest.max(sizes.longest()), ..self.ports.clone() }
    }

    /// Whether all of it can be, before anything is connected or made.
    ///
    /// # Errors
    /// Those of [`Self::check_usage`]; and CPUs that this process does not have.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_usage()?;
        let [cpu, switch_cpu] = self.cpus()?;
        // Each is left again at once.
        [cpu, switch_cpu].into_iter().try_for_each(|cpu| Pinned::to(cpu).map(drop))
    }

    /// Whether all of it could be, on whatever machine.
    ///
    /// # Errors
    /// What cannot be, and what would.
    pub fn check_usage(&self) -> anyhow::Result<()> {
        let (scenario, ports) = (self.scenario.name(), self.scenario.ports());
        ensure!(
            self.backends.len() == ports || (self.backends.is_empty() && self.scenario != Scenario::PatchExternal),
            "{scenario} needs {ports} sockets of a switch{}, not {}",
            if self.scenario == Scenario::PatchExternal { "" } else { ", or none for one of ours" },
            self.backends.len()
        );
        ensure!(!self.time.is_zero() && self.rounds > 0, "nothing is measured in no time and in no round");
        ensure!(
            self.mode.forwards(),
            "a guest in mode {} does not hand on what comes: one of {} does",
            self.mode,
            Mode::ALL.iter().filter(|mode| mode.forwards()).map(|mode| mode.name()).collect::<Vec<_>>().join(", ")
        );
        ensure!(
            self.touch != Touch::Edit,
            "a guest that edits all bytes leaves nothing by which the generator knows its packets: none, header or read"
        );
        for (layout, sizes) in self.cells() {
            let ports = self.ports(layout, sizes);
            ports.check()?;
            ensure!(
                self.backends.len() == self.scenario.ports() || sizes.longest() <= LONGEST,
                "frames of {} bytes: at most {LONGEST} pass our switch",
                sizes.longest()
            );
            can_be_made(sizes, self.seed)?;
        }
        Ok(())
    }

    /// Layouts and sizes, in the order in which they are gone through.
    pub(super) fn cells(&self) -> impl Iterator<Item = (Layout, &Sizes)> {
        self.layouts.iter().flat_map(|&layout| self.sizes.iter().map(move |sizes| (layout, sizes)))
    }

    /// What differs from a usual guest: it belongs to where something was measured.
    pub(super) fn particulars(&self) -> Vec<(&'static str, String)> {
        let (usual, noise) = (PortOptions::default(), Noise::default());
        let mut all = Vec::new();
        let mut note = |differs: bool, axis, value: String| {
            if differs {
                all.push((axis, value));
            }
        };
        note(self.mode != Mode::Io, "mode", self.mode.to_string());
        note(self.touch != Touch::None, "touch", self.touch.to_string());
        if self.mode == Mode::Noisy {
            let Noise { footprint, touches } = self.noise;
            note(footprint != noise.footprint, "noisy-memory", format!("{} KiB", footprint >> 10));
            note(touches != noise.touches, "noisy-lines", touches.to_string());
        }
        note(!self.ports.mergeable, "mrg", "off".to_owned());
        note(self.ports.in_order, "in-order", "on".to_owned());
        note(self.ports.queue_size != usual.queue_size, "queue", self.ports.queue_size.to_string());
        note(self.ports.buffer_len != usual.buffer_len, "buffer", self.ports.buffer_len.to_string());
        note(self.ports.header_offset != usual.header_offset, "header", self.ports.header_offset.to_string());
        note(self.ports.huge_pages, "pages", "2 MiB".to_owned());
        note(self.seed != 1, "seed", self.seed.to_string());
        all
    }

    /// Names of features.
    pub(super) fn names(features: u64) -> Vec<&'static str> {
        f::names(features).collect()
    }
}
