//! The endpoints of a switch under test: the generator, and a guest that forwards.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use straightline_guest::endpoints::{AnyPort, Endpoint, PortOptions, VhostPort};
use straightline_report::results::Sample;

use super::options::Scenario;
use crate::guests::forward::Forwarder;
use crate::traffic::Sizes;
use crate::traffic::generator::{Echo, Generator, Rate, StreamSpec};
use crate::trial::{self, Plan};

/// One of this many packets is checked for a wrong copy.
const CHECK_EVERY: u32 = 128;

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// The endpoints: the generator, and in PVP the guest between the generator's two ports.
pub(crate) struct Endpoints {
    generator: Generator<AnyPort>,
    guest: Option<Box<dyn Forwarder>>,
    /// The features that the generator's first port on a socket negotiated.
    pub(crate) features: Option<u64>,
    /// The features that the guest negotiated, if there is one.
    pub(crate) guest_features: Option<u64>,
    /// Descriptions of the generator's interfaces.
    pub(crate) interfaces: Vec<String>,
}

/// The results of a trial.
pub(crate) struct TrialResult {
    /// A sample. Its scenario, cell, variant and round are still to be filled in.
    pub(crate) sample: Sample,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
}

impl Endpoints {
    /// Connects the endpoints to a switch's sockets, which are in the order of the packets' path.
    /// The generator also has the ports `wires` on interfaces: in PVP the first and the last of the
    /// path, else the last ones. The generator's other ports have the first options of `ports`, and
    /// a guest's ports have the second. `guest` makes the guest on its ports. Frames have these
    /// lengths, in an order that the seed determines.
    ///
    /// # Errors
    /// A resource is not available, or a backend refused something.
    pub(crate) fn connect(
        scenario: Scenario,
        wires: Vec<AnyPort>,
        sockets: &[PathBuf],
        ports: [&PortOptions; 2],
        (sizes, seed): (&Sizes, u64),
        guest: impl FnOnce(Vec<VhostPort>) -> anyhow::Result<Box<dyn Forwarder>>,
    ) -> anyhow::Result<Endpoints> {
        // The path: one port of the generator, the guest's two, the other port of the generator.
        let (outer, inner) = match (wires.len(), sockets) {
            (0, [one, first, second, other]) => (vec![one.clone(), other.clone()], vec![first.clone(), second.clone()]),
            (2, [first, second]) => (Vec::new(), vec![first.clone(), second.clone()]),
            (wires, sockets) if wires + sockets.len() == 2 => (sockets.to_vec(), Vec::new()),
            (wires, _) => {
                bail!("{} ports do not fit the scenario {}", wires + sockets.len(), scenario.name())
            }
        };
        let inner = if inner.is_empty() { None } else { Some(VhostPort::connect_all(&inner, ports[1])?) };
        let guest_features = inner.as_ref().and_then(|inner| inner.first()).map(VhostPort::features);
        let guest = inner.map(guest).transpose()?;
        let mut both = Vec::new();
        if scenario == Scenario::Pvp {
            both = AnyPort::connect_all(&outer, ports[0])?;
        } else {
            // The switch sees two guests, so each port has memory of its own.
            for socket in outer {
                both.extend(AnyPort::connect_all(&[socket], ports[0])?);
            }
        }
        both.extend(wires);
        let features = both.iter().find_map(AnyPort::features);
        let interfaces = both.iter().filter_map(AnyPort::description).collect();
        let streams = streams(sizes, seed).map(|stream| vec![stream]);
        let generator = Generator::new(both.into_iter().zip(streams).collect(), CHECK_EVERY)?;
        Ok(Endpoints { generator, guest, features, guest_features, interfaces })
    }

    /// Makes a trial. The trial ends early if `stop` is set.
    pub(crate) fn run(&mut self, plan: &Plan, stop: &AtomicBool, rate: Rate, time: Duration) -> TrialResult {
        self.run_beside(None, plan, stop, rate, time)
    }

    /// Makes a trial as [`Self::run`] does. `other` takes turns with the generator too.
    pub(crate) fn run_beside(
        &mut self,
        other: Option<&mut dyn Endpoint>,
        plan: &Plan,
        stop: &AtomicBool,
        rate: Rate,
        time: Duration,
    ) -> TrialResult {
        let mut others: Vec<&mut dyn Endpoint> = Vec::new();
        let has_guest = self.guest.is_some();
        if let Some(guest) = &mut self.guest {
            others.push(&mut **guest);
        }
        if let Some(other) = other {
            others.push(other);
        }
        let outcome = trial::run_until(Some(stop), &mut self.generator, &mut others, plan, (rate, time));
        let mut sample = outcome.sample();
        if let Some(cycles) = outcome.others.first().filter(|_| has_guest).and_then(|guest| guest.cycles_per_packet()) {
            sample.metrics.insert("guest_cycles_per_packet".to_owned(), cycles);
        }
        let (sent, lost) = outcome.sent_and_lost();
        TrialResult { sample, sent, lost }
    }

    /// Counts packets without examining them.
    pub(crate) fn count_only(&mut self) {
        self.generator.count_only();
    }

    /// Returns the counters of the guest's mode: [`Forwarder::notes`].
    pub(crate) fn guest_notes(&self) -> Vec<(&'static str, u64)> {
        self.guest.as_ref().map_or_else(Vec::new, |guest| guest.notes())
    }

    /// Disconnects from the backends.
    pub(crate) fn stop(self) {
        self.generator.into_ports().for_each(AnyPort::stop);
    }
}

/// Returns the generator's limit for frames of these lengths, in million packets per second. If
/// `cpu` is set, it is measured on this CPU.
///
/// # Errors
/// Frames of these lengths cannot be made, or there is no such CPU.
pub(crate) fn limit(sizes: &Sizes, seed: u64, cpu: Option<usize>) -> anyhow::Result<f64> {
    trial::limit(streams(sizes, seed).to_vec(), CHECK_EVERY, cpu).with_context(|| format!("frames of {sizes} bytes"))
}

/// Checks that frames of these lengths can be made.
///
/// # Errors
/// A length is not possible.
pub(crate) fn can_be_made(sizes: &Sizes, seed: u64) -> anyhow::Result<()> {
    let made = Generator::new(vec![(Echo::default(), streams(sizes, seed).to_vec())], CHECK_EVERY);
    made.map(drop).with_context(|| format!("frames of {sizes} bytes"))
}

/// Returns the MTU that frames of these lengths need: an Ethernet header is no part of it.
pub(crate) fn needed_mtu(sizes: &Sizes) -> u32 {
    sizes.longest().saturating_sub(ETHERNET)
}

/// Returns the streams of the generator's ports.
fn streams(sizes: &Sizes, seed: u64) -> [StreamSpec; 2] {
    let mut spec = StreamSpec::new(sizes.clone());
    spec.seed = seed;
    let reversed = spec.reversed();
    [spec, reversed]
}
