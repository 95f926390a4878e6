//! A testbed: a switch with its endpoints, and trials with them.

use std::time::Duration;

use straightline_guest::endpoints::{AnyPort, Layout, PortOptions};
use straightline_report::results::Sample;

use super::endpoints::{Endpoints, TrialResult, limit, needed_mtu};
use super::options::TestbedOptions;
use super::our_switch::OurSwitch;
use super::phases::phases;
use crate::convert::float;
use crate::guests::forward;
use crate::traffic::Sizes;
use crate::traffic::generator::Rate;
use crate::trial::Plan;
use crate::trial::validity::of_error;

/// Time of traffic before the measurement, on new connections and on older ones.
const FIRST_WARM_UP: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_millis(100);

/// The switch and the endpoints of one cell, which trials measure.
pub(crate) struct Testbed<'a> {
    options: &'a TestbedOptions,
    layout: Layout,
    sizes: &'a Sizes,
    /// The generator's limit for these frames, in million packets per second.
    pub(crate) limit_mpps: f64,
    /// The features that the generator and the guest negotiated in the last trial, whatever its
    /// result.
    pub(crate) features: [Option<u64>; 2],
    /// Descriptions of the interfaces of the last trial.
    pub(crate) interfaces: Vec<String>,
    maker: Box<dyn TrialMaker + 'a>,
}

/// A maker of trials: the switch with its endpoints, or a fake.
pub(crate) trait TrialMaker {
    /// Makes a trial. A failure makes the trial invalid.
    fn trial(&mut self, rate: Rate, time: Duration) -> MadeTrial;

    /// Disconnects from the backends.
    fn end(&mut self) {}
}

/// A trial, with what its connections have negotiated.
pub(crate) struct MadeTrial {
    pub(crate) result: TrialResult,
    /// The features of the generator and of the guest. `None` if nothing was connected.
    pub(crate) features: Option<[Option<u64>; 2]>,
    /// Descriptions of the interfaces.
    pub(crate) interfaces: Vec<String>,
}

impl<'a> Testbed<'a> {
    /// Measures the generator's limit, and does not connect anything yet.
    ///
    /// # Errors
    /// Frames of these lengths cannot be made, or there are too few CPUs.
    pub(crate) fn new(options: &'a TestbedOptions, layout: Layout, sizes: &'a Sizes) -> anyhow::Result<Testbed<'a>> {
        let cpus = options.cpus()?;
        let limit_mpps = limit(sizes, options.seed, Some(cpus[0]))?;
        let ports = options.ports(layout, sizes);
        let maker = Box::new(Connected { options, ports, sizes, cpus, limit_mpps, live: None });
        Ok(Testbed::made_by(maker, options, (layout, sizes), limit_mpps))
    }

    /// Makes a testbed whose trials have this maker.
    pub(crate) fn made_by(
        maker: Box<dyn TrialMaker + 'a>,
        options: &'a TestbedOptions,
        (layout, sizes): (Layout, &'a Sizes),
        limit_mpps: f64,
    ) -> Testbed<'a> {
        Testbed { options, layout, sizes, limit_mpps, features: [None; 2], interfaces: Vec::new(), maker }
    }

    /// Returns the cell's ring layout.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the cell's frame lengths.
    pub(crate) fn sizes(&self) -> &Sizes {
        self.sizes
    }

    /// Returns the mean frame length.
    pub(crate) fn mean_len(&self) -> f64 {
        self.sizes.mean(self.options.seed)
    }

    /// Makes a trial. A failure makes the trial invalid, and the next trial starts with new
    /// connections.
    pub(crate) fn trial(&mut self, rate: Rate, time: Duration) -> TrialResult {
        let MadeTrial { result, features, interfaces } = self.maker.trial(rate, time);
        self.features = features.unwrap_or(self.features);
        if self.interfaces.is_empty() {
            self.interfaces = interfaces;
        }
        result
    }

    /// Disconnects from the backends.
    pub(crate) fn end(&mut self) {
        self.maker.end();
    }
}

/// The switch and the endpoints, connected while trials are valid.
struct Connected<'a> {
    options: &'a TestbedOptions,
    ports: PortOptions,
    sizes: &'a Sizes,
    cpus: [usize; 2],
    limit_mpps: f64,
    live: Option<Live>,
}

/// A connected testbed. The endpoints are dropped before the switch.
struct Live {
    endpoints: Endpoints,
    is_new: bool,
    ours: Option<OurSwitch>,
}

impl TrialMaker for Connected<'_> {
    fn trial(&mut self, rate: Rate, time: Duration) -> MadeTrial {
        let mut live = match self.live.take().map_or_else(|| self.connect(), Ok) {
            Ok(live) => live,
            Err(error) => {
                let sample = Sample { validity: of_error(&error), ..Sample::default() };
                let result = TrialResult { sample, sent: 0, lost: 0 };
                return MadeTrial { result, features: None, interfaces: Vec::new() };
            }
        };
        let plan = Plan {
            // Packets are due one by one, each at its own time. Packets that have come due between
            // two turns are still sent together.
            burst: 1,
            warm_up: self.options.warm_up.unwrap_or(if live.is_new { FIRST_WARM_UP } else { WARM_UP }),
            cpu: Some(self.cpus[0]),
            limit_mpps: Some(self.limit_mpps),
            counted: self.options.counted,
        };
        live.is_new = false;
        let features = Some([live.endpoints.features, live.endpoints.guest_features]);
        let mut interfaces = live.endpoints.interfaces.clone();
        interfaces.extend(live.ours.iter().flat_map(OurSwitch::interfaces));
        let read = |live: &Live| live.ours.as_ref().map(|ours| (ours.runtime(), ours.drops()));
        let before = read(&live);
        let mut result = live.endpoints.run(&plan, &self.options.stop, rate, time);
        let sample = &mut result.sample;
        if let (Some((before, old)), Some((after, drops))) = (before, read(&live)) {
            for (reason, count) in drops {
                let count = count - old.get(&reason).copied().unwrap_or(0).min(count);
                if count > 0 {
                    sample.metrics.insert(format!("switch_dropped_{}", reason.replace('-', "_")), float(count));
                }
            }
            if let Ok(cycles) = phases(&before, &after) {
                sample.metrics.insert("switch_cycles_per_packet".to_owned(), cycles.values().sum());
                sample.cycles = cycles;
            }
        }
        if sample.is_valid() {
            self.live = Some(live);
        } else {
            live.end();
        }
        MadeTrial { result, features, interfaces }
    }

    fn end(&mut self) {
        if let Some(live) = self.live.take() {
            live.end();
        }
    }
}

impl Connected<'_> {
    fn connect(&self) -> anyhow::Result<Live> {
        // The generator's interfaces come first: a tap has a carrier for the other end once it is open.
        let wires = AnyPort::open_all(&self.options.interfaces, self.ports.longest, needed_mtu(self.sizes))?;
        let (ours, sockets) = if self.options.is_ours() {
            let (ours, sockets) = OurSwitch::start(self.options, self.cpus[1], self.sizes)?;
            (Some(ours), sockets)
        } else {
            (None, self.options.backends.clone())
        };
        let options = forward::ForwardOptions {
            mode: self.options.mode,
            touch: self.options.touch,
            noise: self.options.noise,
            ports: self.ports.clone(),
            ..forward::ForwardOptions::default()
        };
        let guest = |ports| forward::guest(ports, &options);
        let load = (self.sizes, self.options.seed);
        let endpoints = Endpoints::connect(self.options.scenario, wires, &sockets, [&self.ports; 2], load, guest)?;
        Ok(Live { endpoints, is_new: true, ours })
    }
}

impl Live {
    fn end(self) {
        self.endpoints.stop();
        if let Some(ours) = self.ours {
            ours.stop();
        }
    }
}
