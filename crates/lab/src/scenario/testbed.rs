//! A testbed: a switch with its endpoints, and trials with them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use straightline_switch::Switch;
use straightline_switch::api::Runtime;
use tempfile::TempDir;

use super::endpoints::{Endpoints, TrialResult, limit};
use super::options::Options;
use crate::endpoints::{Layout, PortOptions};
use crate::exp::{patched, phases};
use crate::forward;
use crate::generator::Rate;
use crate::results::Sample;
use crate::sizes::Sizes;
use crate::trial::Plan;

/// Time of traffic before the measurement, on new connections and on older ones.
const FIRST_WARM_UP: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_millis(100);

/// The switch and the endpoints of one cell.
pub(super) struct Testbed<'a> {
    options: &'a Options,
    ports: PortOptions,
    sizes: &'a Sizes,
    cpus: [usize; 2],
    /// The generator's limit for these frames, in million packets per second.
    pub(super) limit_mpps: f64,
    /// The features that the generator and the guest negotiated in the last trial, whatever its
    /// result.
    pub(super) features: [Option<u64>; 2],
    live: Option<Live>,
}

/// A connected testbed. The endpoints are dropped before the switch.
struct Live {
    endpoints: Endpoints,
    is_new: bool,
    ours: Option<Ours>,
}

/// A switch in this process, and the folder of its sockets.
struct Ours {
    switch: Switch,
    _folder: TempDir,
}

impl<'a> Testbed<'a> {
    /// Measures the generator's limit, and does not connect anything yet.
    ///
    /// # Errors
    /// Frames of these lengths cannot be made, or there are too few CPUs.
    pub(super) fn new(options: &'a Options, layout: Layout, sizes: &'a Sizes) -> anyhow::Result<Testbed<'a>> {
        let cpus = options.cpus()?;
        let limit_mpps = limit(sizes, options.seed, Some(cpus[0]))?;
        let ports = options.ports(layout, sizes);
        Ok(Testbed { options, ports, sizes, cpus, limit_mpps, features: [None; 2], live: None })
    }

    /// Returns the cell's ring layout.
    pub(super) fn layout(&self) -> Layout {
        self.ports.layout
    }

    /// Returns the cell's frame lengths.
    pub(super) fn sizes(&self) -> &Sizes {
        self.sizes
    }

    /// Returns the mean frame length.
    pub(super) fn mean_len(&self) -> f64 {
        self.sizes.mean(self.options.seed)
    }

    /// Makes a trial. A failure makes the trial invalid, and the next trial starts with new
    /// connections.
    pub(super) fn trial(&mut self, rate: Rate, time: Duration) -> TrialResult {
        let mut live = match self.live.take().map_or_else(|| self.connect(), Ok) {
            Ok(live) => live,
            Err(error) => {
                let sample = Sample { invalid: Some(format!("{error:#}")), ..Sample::default() };
                return TrialResult { sample, sent: 0, lost: 0, by_generator: false };
            }
        };
        let plan = Plan {
            // Packets are due one by one, each at its own time. Packets that have come due between
            // two turns are still sent together.
            burst: 1,
            warm_up: self.options.warm_up.unwrap_or(if live.is_new { FIRST_WARM_UP } else { WARM_UP }),
            cpu: Some(self.cpus[0]),
            limit_mpps: Some(self.limit_mpps),
        };
        live.is_new = false;
        self.features = [Some(live.endpoints.features), live.endpoints.guest_features];
        let before = live.runtime();
        let mut trial_result = live.endpoints.run(&plan, &self.options.stop, rate, time);
        let sample = &mut trial_result.sample;
        if let (Some(before), Some(after)) = (before, live.runtime())
            && let Ok(cycles) = phases(&before, &after)
        {
            sample.metrics.insert("switch_cycles_per_packet".to_owned(), cycles.values().sum());
            sample.cycles = cycles;
        }
        if sample.invalid.is_none() {
            self.live = Some(live);
        } else {
            live.end();
        }
        trial_result
    }

    /// Disconnects from the backends.
    pub(super) fn end(&mut self) {
        if let Some(live) = self.live.take() {
            live.end();
        }
    }

    fn connect(&self) -> anyhow::Result<Live> {
        let (ours, sockets) = self.switch()?;
        let options = forward::Options {
            mode: self.options.mode,
            touch: self.options.touch,
            noise: self.options.noise,
            ports: self.ports.clone(),
            ..forward::Options::default()
        };
        let guest = |ports| forward::guest(ports, &options);
        let load = (self.sizes, self.options.seed);
        let endpoints = Endpoints::connect(self.options.scenario, &sockets, [&self.ports; 2], load, guest)?;
        Ok(Live { endpoints, is_new: true, ours })
    }

    /// Starts our switch, unless the options name sockets of another one. Returns the switch, if it
    /// was started, and the sockets.
    fn switch(&self) -> anyhow::Result<(Option<Ours>, Vec<PathBuf>)> {
        if !self.options.backends.is_empty() {
            return Ok((None, self.options.backends.clone()));
        }
        let folder = tempfile::tempdir().context("cannot make a folder for sockets")?;
        let sockets: Vec<_> =
            (0..self.options.scenario.ports()).map(|at| folder.path().join(format!("{at}"))).collect();
        let switch = Switch::start(&patched(self.cpus[1], &sockets))?;
        Ok((Some(Ours { switch, _folder: folder }), sockets))
    }
}

impl Live {
    /// Returns the counters of our switch.
    fn runtime(&self) -> Option<Runtime> {
        self.ours.as_ref().map(|ours| ours.switch.source().runtime())
    }

    fn end(self) {
        self.endpoints.stop();
        if let Some(ours) = self.ours {
            ours.switch.stop();
        }
    }
}
