//! A switch, a generator and a guest, connected, and trials with them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use straightline_switch::Switch;
use straightline_switch::api::Runtime;
use tempfile::TempDir;

use super::options::{Options, Scenario};
use crate::exp::{patched, phases};
use crate::forward::{self, Forwarder};
use crate::generator::{Generator, Rate};
use crate::results::Sample;
use crate::sizes::Sizes;
use crate::tester::{Actor, Layout, PortOptions, VhostPort};
use crate::trial::{self, Interrupt, Plan};

/// Of so many packets one is checked for a wrong copy.
const CHECK_EVERY: u32 = 128;

/// Before what counts, on new connections and on others.
const FIRST_WARM_UP: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_millis(100);

/// One cell's switch and guests.
pub(super) struct Bed<'a> {
    options: &'a Options,
    ports: PortOptions,
    sizes: &'a Sizes,
    cpus: [usize; 2],
    /// Million packets a second that the generator makes of them.
    pub(super) limit_mpps: f64,
    /// What was negotiated last, whatever became of the trial.
    pub(super) features: Option<u64>,
    live: Option<Live>,
}

/// What came of a trial.
pub(super) struct Taken {
    /// Of which the place is still to be filled in.
    pub(super) sample: Sample,
    pub(super) sent: u64,
    pub(super) lost: u64,
}

/// All of it, connected. What is connected to the switch goes before it.
struct Live {
    generator: Generator<VhostPort>,
    guest: Option<Box<dyn Forwarder>>,
    features: u64,
    is_new: bool,
    ours: Option<Ours>,
}

/// A switch in this process, and the folder of its sockets.
struct Ours {
    switch: Switch,
    _folder: TempDir,
}

impl<'a> Bed<'a> {
    /// Measures what the generator can do, and connects nothing yet.
    ///
    /// # Errors
    /// Frames of such sizes cannot be made, or there are too few CPUs.
    pub(super) fn new(options: &'a Options, layout: Layout, sizes: &'a Sizes) -> anyhow::Result<Bed<'a>> {
        let cpus = options.cpus()?;
        let limit_mpps = trial::limit(Options::streams(sizes).to_vec(), CHECK_EVERY, Some(cpus[0]))
            .with_context(|| format!("frames of {sizes} bytes"))?;
        Ok(Bed { options, ports: options.ports(layout, sizes), sizes, cpus, limit_mpps, features: None, live: None })
    }

    /// The layout of its rings.
    pub(super) fn layout(&self) -> Layout {
        self.ports.layout
    }

    /// Lengths of its frames.
    pub(super) fn sizes(&self) -> &Sizes {
        self.sizes
    }

    /// Makes a trial. What goes wrong makes it invalid, and the next one begins with new connections.
    pub(super) fn trial(&mut self, rate: Rate, time: Duration) -> Taken {
        let mut live = match self.live.take().map_or_else(|| self.connect(), Ok) {
            Ok(live) => live,
            Err(error) => {
                let invalid = Some(format!("{error:#}"));
                return Taken { sample: Sample { invalid, ..Sample::default() }, sent: 0, lost: 0 };
            }
        };
        let plan = Plan {
            // Each packet has its own time; those that are due together are still sent together.
            burst: 1,
            warm_up: self.options.warm_up.unwrap_or(if live.is_new { FIRST_WARM_UP } else { WARM_UP }),
            cpu: Some(self.cpus[0]),
            limit_mpps: Some(self.limit_mpps),
        };
        live.is_new = false;
        self.features = Some(live.features);
        let before = live.runtime();
        let mut ender = Interrupt(&self.options.stop);
        let mut others: Vec<&mut dyn Actor> = vec![&mut ender];
        if let Some(guest) = &mut live.guest {
            others.push(&mut **guest);
        }
        let outcome = trial::run(&mut live.generator, &mut others, &plan, rate, time);
        let mut sample = outcome.sample();
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
        let (sent, lost) = outcome.sent_and_lost();
        Taken { sample, sent, lost }
    }

    /// Lets backends know that it is over.
    pub(super) fn end(&mut self) {
        if let Some(live) = self.live.take() {
            live.end();
        }
    }

    fn connect(&self) -> anyhow::Result<Live> {
        let (ours, sockets) = self.switch()?;
        let streams = Options::streams(self.sizes).map(|stream| vec![stream]);
        // On the way: one port of the generator, the guest's two, the other one of the generator.
        let (outer, inner) = match &sockets[..] {
            [one, first, second, other] => ([one, other], Some([first, second])),
            [one, other] => ([one, other], None),
            _ => bail!("{} ports for {}", sockets.len(), self.options.scenario.name()),
        };
        let connect = |sockets: [&PathBuf; 2]| VhostPort::connect_all(&sockets.map(PathBuf::clone), &self.ports);
        let guest = inner.map(|inner| {
            let options = forward::Options {
                mode: self.options.mode,
                touch: self.options.touch,
                ports: self.ports.clone(),
                ..forward::Options::default()
            };
            forward::guest(connect(inner)?, &options)
        });
        let guest = guest.transpose()?;
        let ports = if self.options.scenario == Scenario::Pvp {
            connect(outer)?
        } else {
            // Two guests, or who seems to be: each has memory of its own.
            let one = |socket: &PathBuf| VhostPort::connect(socket, &self.ports);
            vec![one(outer[0])?, one(outer[1])?]
        };
        let features = ports.first().map_or(0, VhostPort::features);
        let generator = Generator::new(ports.into_iter().zip(streams).collect(), CHECK_EVERY)?;
        Ok(Live { generator, guest, features, is_new: true, ours })
    }

    /// A switch of ours, unless there is another, and its sockets.
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
    /// The figures of a switch of ours.
    fn runtime(&self) -> Option<Runtime> {
        self.ours.as_ref().map(|ours| ours.switch.source().runtime())
    }

    fn end(self) {
        self.generator.into_ports().for_each(VhostPort::stop);
        drop(self.guest);
        if let Some(ours) = self.ours {
            ours.switch.stop();
        }
    }
}
