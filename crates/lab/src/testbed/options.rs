//! Options of a scenario.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use straightline_guest::endpoints::{Interface, Layout, Pinned, PortOptions};
use straightline_virtio::features as f;

use super::endpoints::can_be_made;
use super::patched::LONGEST;
use crate::guests::forward::{Mode, Noise, Touch};
use crate::machine::{cpu_beside, two_cpus, usable_cpus, used, warning};
use crate::traffic::generator::Rate;
use crate::traffic::{Counted, Sizes};
use crate::trial::{Length, length};

/// The device between the generator's two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A switch between physical ports and a guest that forwards packets: physical, virtual,
    /// physical.
    Pvp,
    /// A switch between two guests.
    Vm2Vm,
    /// Any running switch that forwards between two sockets.
    PatchExternal,
}

impl Scenario {
    /// Returns the scenario's name on the command line and in samples.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Pvp => "pvp",
            Scenario::Vm2Vm => "vm2vm",
            Scenario::PatchExternal => "patch-external",
        }
    }

    /// Returns the number of ports of the switch.
    #[must_use]
    pub fn ports(self) -> usize {
        if self == Scenario::Pvp { 4 } else { 2 }
    }
}

/// The loads to measure in each cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loads {
    /// True to measure at maximum rate (MRR).
    pub max: bool,
    /// A rate to measure at.
    pub rate: Option<Rate>,
    /// True to search the highest rate without loss.
    pub ndr: bool,
    /// The loss ratio for which to search the highest rate.
    pub pdr: Option<f64>,
    /// True to measure latencies at nearly no load, and at 10, 50 and 90 % of the PDR.
    pub latency: bool,
    /// The time for which to carry a load: `rate`, or 90 % of the NDR.
    pub soak: Option<Duration>,
}

impl Loads {
    /// Returns whether a search is needed.
    #[must_use]
    pub fn searches(&self) -> bool {
        self.ndr || self.pdr.is_some() || self.latency || (self.soak.is_some() && self.rate.is_none())
    }

    /// Returns whether there are trials at a rate, which must send packets at their due times.
    #[must_use]
    pub fn are_paced(&self) -> bool {
        self.rate.is_some() || self.searches() || self.soak.is_some()
    }
}

/// Options of a scenario.
#[derive(Clone, Debug)]
pub struct TestbedOptions {
    /// The scenario.
    pub scenario: Scenario,
    /// The sockets of the switch's ports, in the order of the packets' path. If empty, a
    /// Straightline switch in this process is measured, except in `patch-external`.
    pub backends: Vec<PathBuf>,
    /// The interfaces of the generator's ports, in the order of the packets' path. In PVP they take
    /// the place of the first and the last socket, in `patch-external` that of the last ones.
    pub interfaces: Vec<Interface>,
    /// The interfaces of our switch at the other ends of `interfaces`. If empty, these are the peers
    /// of veth interfaces, opened by the same kinds of port.
    pub switch_interfaces: Vec<Interface>,
    /// The name of the switch in samples.
    pub name: String,
    /// Frame lengths. Each of them makes a cell with each layout.
    pub sizes: Vec<Sizes>,
    /// Ring layouts.
    pub layouts: Vec<Layout>,
    /// Options of ports, without the layout.
    pub ports: PortOptions,
    /// The guest's forward mode.
    pub mode: Mode,
    /// The guest's touch policy.
    pub touch: Touch,
    /// Options of the mode `noisy`.
    pub noise: Noise,
    /// Random seed for frame lengths.
    pub seed: u64,
    /// The loads.
    pub loads: Loads,
    /// Measured time of a trial.
    pub time: Duration,
    /// Time of traffic before the measurement. The default is half a second on new connections,
    /// because some backends need a while to set them up. Otherwise it is a tenth of a second.
    pub warm_up: Option<Duration>,
    /// The packets of each stream that end a measurement in place of its time, if they do.
    pub counted: Option<Counted>,
    /// Number of rounds, each of which measures everything once.
    pub rounds: u32,
    /// The CPU of the generator and of the guest; default: the first one that this process may use.
    pub cpu: Option<usize>,
    /// The CPU of our switch; default: one of another core, if there is one.
    pub switch_cpu: Option<usize>,
    /// A flag that ends everything as soon as it is set.
    pub stop: Arc<AtomicBool>,
}

impl TestbedOptions {
    /// Returns options for the maximum throughput of frames of 64 bytes in one second.
    #[must_use]
    pub fn new(scenario: Scenario) -> TestbedOptions {
        TestbedOptions {
            scenario,
            backends: Vec::new(),
            interfaces: Vec::new(),
            switch_interfaces: Vec::new(),
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
            counted: None,
            rounds: 1,
            cpu: None,
            switch_cpu: None,
            stop: Arc::default(),
        }
    }

    /// Returns whether a switch in this process is measured.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.backends.is_empty() && self.scenario != Scenario::PatchExternal
    }

    /// Returns the interfaces of our switch: the given ones, or else the peers of the generator's.
    ///
    /// # Errors
    /// An interface has no peer in this network namespace.
    pub(crate) fn switch_ends(&self) -> anyhow::Result<Vec<Interface>> {
        match &self.switch_interfaces[..] {
            [] => self.interfaces.iter().map(Interface::peer).collect(),
            given => Ok(given.to_vec()),
        }
    }

    /// Returns whether the run is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the CPUs of the generator and of our switch.
    pub(crate) fn cpus(&self) -> anyhow::Result<[usize; 2]> {
        if !self.is_ours() {
            // A third-party switch has CPUs of its own.
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

    /// Finds the length of trials at a rate on these CPUs; this takes two seconds.
    ///
    /// # Errors
    /// There are too few CPUs, or this process may not use one of them.
    pub fn length(&self) -> anyhow::Result<Length> {
        let mut cpus = self.cpus()?.to_vec();
        cpus.dedup();
        length(&cpus)
    }

    /// Returns the CPUs in the form that results have ([`straightline_report::results::Environment::used_cpus`]).
    ///
    /// # Errors
    /// There are too few.
    pub fn used_cpus(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut used = used(self.cpus()?);
        if !self.is_ours() {
            used.remove("switch");
        }
        Ok(used)
    }

    /// Returns what users must know about the CPUs before they trust results.
    pub(crate) fn warning(&self) -> anyhow::Result<Option<String>> {
        Ok(warning(self.cpus()?))
    }

    /// Returns the options of ports with this layout, for frames of these lengths.
    pub(crate) fn ports(&self, layout: Layout, sizes: &Sizes) -> PortOptions {
        PortOptions { layout, longest: self.ports.longest.max(sizes.longest()), ..self.ports.clone() }
    }

    /// Checks that the options are possible on this machine, before anything is connected or
    /// created.
    ///
    /// # Errors
    /// The errors of [`Self::check_usage`], and CPUs that this process may not use.
    pub fn check(&self) -> anyhow::Result<()> {
        self.check_usage()?;
        let [cpu, switch_cpu] = self.cpus()?;
        // This only tests whether the thread can be pinned: the thread leaves each CPU at once.
        [cpu, switch_cpu].into_iter().try_for_each(|cpu| Pinned::to(cpu).map(drop))
    }

    /// Checks that the options are possible on some machine.
    ///
    /// # Errors
    /// An option is not possible; the error says what would be right.
    pub fn check_usage(&self) -> anyhow::Result<()> {
        self.check_places()?;
        ensure!(!self.time.is_zero() && self.rounds > 0, "`--secs` must be more than 0, and `--rounds` at least 1");
        ensure!(
            self.mode.forwards(),
            "mode {} does not forward packets: use one of {}",
            self.mode,
            Mode::ALL.iter().filter(|mode| mode.forwards()).map(|mode| mode.name()).collect::<Vec<_>>().join(", ")
        );
        ensure!(
            self.touch != Touch::Edit,
            "touch `edit` overwrites the tags that the generator needs: use none, header or read"
        );
        for (layout, sizes) in self.cells() {
            let ports = self.ports(layout, sizes);
            ports.check()?;
            ensure!(
                (!self.is_ours() && self.interfaces.is_empty()) || sizes.longest() <= LONGEST,
                "frames of {} bytes do not pass our ports: use at most {LONGEST}",
                sizes.longest()
            );
            can_be_made(sizes, self.seed)?;
        }
        Ok(())
    }

    /// Checks that there are as many sockets and interfaces as the scenario has ports.
    fn check_places(&self) -> anyhow::Result<()> {
        let scenario = self.scenario.name();
        let ports = self.scenario.ports();
        let [sockets, interfaces, ends] = [self.backends.len(), self.interfaces.len(), self.switch_interfaces.len()];
        match self.scenario {
            Scenario::PatchExternal => ensure!(
                sockets + interfaces == 2,
                "{scenario} needs 2 sockets or interfaces of a switch (`--backend`, `--interface`), not {}",
                sockets + interfaces
            ),
            Scenario::Pvp if interfaces > 0 => {
                ensure!(
                    interfaces == 2,
                    "{scenario} needs 2 interfaces for the generator (`--interface`), or none, not {interfaces}"
                );
                ensure!(
                    [0, 2].contains(&sockets),
                    "{scenario} with interfaces needs 2 sockets of a switch for the guest (`--backend`), or none to use \
                     ours, not {sockets}"
                );
                ensure!(
                    ends == 0 || (ends == 2 && sockets == 0),
                    "{scenario} needs 2 interfaces for our switch (`--switch-interface`), or none to use veth peers"
                );
                return Ok(());
            }
            Scenario::Pvp | Scenario::Vm2Vm => ensure!(
                interfaces == 0 && [0, ports].contains(&sockets),
                "{scenario} needs {ports} sockets of a switch (`--backend`), or none to use ours, not {sockets}"
            ),
        }
        ensure!(ends == 0, "interfaces of our switch are for `pvp` with interfaces only");
        Ok(())
    }

    /// Returns layouts and frame lengths, in the order of measurement.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (Layout, &Sizes)> {
        self.layouts.iter().flat_map(|&layout| self.sizes.iter().map(move |sizes| (layout, sizes)))
    }

    /// Returns the options that differ from those of a usual guest. They are a part of the cell.
    pub(crate) fn particulars(&self) -> Vec<(&'static str, String)> {
        let usual = PortOptions::default();
        let noise = Noise::default();
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
        let kinds: Vec<_> = self.interfaces.iter().map(|interface| interface.kind.name()).collect();
        note(!kinds.is_empty(), "interfaces", kinds.join(", "));
        all
    }

    /// Returns the names of features.
    pub(crate) fn names(features: u64) -> Vec<&'static str> {
        f::names(features).collect()
    }
}
