//! The generator: an endpoint on one port or two.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use straightline_graph::clock::hertz;
use straightline_guest::endpoints::{Endpoint, Received, Receiver, TestPort};
use straightline_report::results;

use super::checker::{Checker, StreamCounters};
use super::latency::Latencies;
use super::pace::{Pace, PaceCounters, Patience};
use super::rate::Rate;
use super::source::Source;
use super::spec::StreamSpec;
use super::template;
use crate::convert::seconds;
use crate::traffic::Counted;

/// The most packets that a turn takes from a port and puts into a port. With more, later packets of
/// the turn would get a time that is too early.
const BURST: usize = 64;

/// The lateness up to which a packet is still sent, in short and long trials alike. If the thread
/// pauses for this time, the packets that come due still fit into rings of usual sizes.
pub(crate) const CATCH_UP: Duration = Duration::from_millis(1);

/// After the end of a trial, late packets are still sent for this fraction of the trial's time, or
/// for the time of some turns. A full port delays the end of the trial by this time. That is
/// clearly less than the thousandth by which a trial may be too long.
const TAIL: u32 = 2000;
const LEAST_TAIL: Duration = Duration::from_micros(50);

/// The length of each phase of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time of traffic before the measurement.
    pub warm_up: Duration,
    /// Measured time.
    pub time: Duration,
    /// After the last packet is sent, the trial ends when no packet has come for this time and
    /// backends have taken all packets.
    pub quiet: Duration,
    /// Time limit for this wait.
    pub drain: Duration,
    /// The packets that end the measurement in place of its time, if they do. At a rate, the trial then
    /// ends when all of them have come.
    pub counted: Option<Counted>,
}

/// The load of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The rate of all ports together.
    pub rate: Rate,
    /// Number of packets that each port sends together.
    pub burst: u32,
}

/// The measured values of a trial, before its validity is judged.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Counters of each stream, in the order of the ports. If packets are only counted, all count
    /// for the first stream.
    pub streams: Vec<StreamCounters>,
    /// Frames without one of our tags.
    pub foreign: u64,
    /// Number of packets that were due; `None` at maximum rate.
    pub meant: Option<u64>,
    /// Packets that were not sent because a port had no free buffer: the switch did not take them.
    pub refused: u64,
    /// Packets that were not sent because the generator was too late or too slow.
    pub missed: u64,
    /// Planned and actual seconds of the measurement.
    pub seconds: [f64; 2],
    /// Number of packets that came in the measured time, without duplicates, and the bytes of their
    /// frames.
    pub arrived: [u64; 2],
    /// Packets that interfaces have dropped since the measurement began, by reason: the generator's
    /// ports, and the kernel for them. They are also among the lost packets.
    pub drops: BTreeMap<&'static str, u64>,
    /// True if packets still came when the wait at the end was over.
    pub still_coming: bool,
    /// True if, at the end, packets were missing and backends had not taken all packets out of
    /// their rings.
    pub not_taken: bool,
    pub(crate) latencies: Latencies,
}

impl Measured {
    /// Returns the sums of the counters of all streams.
    #[must_use]
    pub fn total(&self) -> StreamCounters {
        self.streams.iter().fold(StreamCounters::default(), |all, one| all.and(*one))
    }

    /// Returns quantiles of the latencies of all packets that count, in microseconds, each with its
    /// name in samples.
    #[must_use]
    pub fn latency_metrics(&self) -> Vec<(&'static str, f64)> {
        self.latencies.metrics(hertz())
    }

    /// Returns the latencies of all packets that count.
    #[must_use]
    pub fn latency(&self) -> results::Latency {
        self.latencies.steps(hertz())
    }
}

/// The generator. It sends streams through each port, and checks the packets that return on any
/// port.
#[derive(Debug)]
pub struct Generator<P> {
    sides: Vec<Side<P>>,
    checker: Checker,
    /// Number of packets that each stream has sent.
    sent: Vec<u64>,
    phase: Phase,
    plan: Plan,
    window: Window,
    /// The drops of the ports when the measurement began.
    drops_before: BTreeMap<&'static str, u64>,
    /// The times of the last received packet and of the last turn.
    heard: u64,
    now: u64,
}

/// A port and its streams.
#[derive(Debug)]
struct Side<P> {
    port: P,
    sources: Vec<Source>,
    /// The order of the streams. The order repeats.
    order: Vec<usize>,
    at: usize,
    /// The number of this port's first stream.
    first: usize,
    pace: Option<Pace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    WarmUp,
    Measure,
    Drain,
    Over,
}

/// The phases of a trial, in cycles.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    warm_up: u64,
    time: u64,
    /// The longest time of the measurement: its planned time, unless packets end it.
    most: u64,
    quiet: u64,
    drain: u64,
    patience: Patience,
    /// Packets of each stream that end the measurement; `None` if its time does.
    counted: Option<u64>,
    /// Cycles between two packets of a port.
    interval: Option<f64>,
    burst: u32,
}

/// Values at the start and the end of the measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// The start of this phase.
    since: u64,
    lasted: u64,
    arrived: [u64; 2],
    pace_counters: PaceCounters,
    still_coming: bool,
    not_taken: bool,
}

impl<P: TestPort> Generator<P> {
    /// Makes a generator on these ports, each with its streams. One of every `check_every` packets
    /// is checked for a wrong copy; 0: none.
    ///
    /// # Errors
    /// A stream cannot be built.
    pub fn new(ports: Vec<(P, Vec<StreamSpec>)>, check_every: u32) -> anyhow::Result<Generator<P>> {
        let mut sides = Vec::with_capacity(ports.len());
        let mut number = 0_u16;
        let mut places = Vec::new();
        for (port, specs) in ports {
            let first = usize::from(number);
            let mut sources = Vec::new();
            let mut templates = 0;
            for spec in &specs {
                let source = Source::new(spec, number, templates)?;
                templates += source.templates();
                places.push(template::tag_at(spec));
                sources.push(source);
                number =
                    number.checked_add(1).context("more than 65535 streams are not possible: use fewer streams")?;
            }
            let order = interleaved(&sources);
            sides.push(Side { port, sources, order, at: 0, first, pace: None });
        }
        ensure!(number > 0, "no stream is given: give at least one");
        places.sort_unstable();
        places.dedup();
        let streams = usize::from(number);
        Ok(Generator {
            sides,
            checker: Checker::new(streams, &places, check_every),
            sent: vec![0; streams],
            phase: Phase::Idle,
            plan: Plan::default(),
            window: Window::default(),
            drops_before: BTreeMap::new(),
            heard: 0,
            now: 0,
        })
    }

    /// Counts every received frame as a packet of the first stream, without examination. This is
    /// for a switch that does not copy the bytes of packets.
    pub fn count_only(&mut self) {
        self.checker.counts_only = true;
    }

    /// Returns the processes of the ports' backends that are known.
    #[must_use]
    pub fn backends(&self) -> Vec<u32> {
        self.sides.iter().filter_map(|side| side.port.backend()).collect()
    }

    /// Returns the mean length of the generator's frames.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "there are few ports")]
    pub fn mean_len(&self) -> f64 {
        let sending: Vec<f64> = self.sides.iter().filter_map(Side::mean_len).collect();
        sending.iter().sum::<f64>() / sending.len().max(1) as f64
    }

    /// Starts a trial at this value of the time-stamp counter.
    pub fn begin(&mut self, load: Load, timing: &Timing, now: u64) {
        let hertz = hertz();
        let tail = (timing.time / TAIL).clamp(LEAST_TAIL, CATCH_UP);
        #[expect(clippy::cast_precision_loss, reason = "there are few ports")]
        let senders = self.sides.iter().filter(|side| !side.sources.is_empty()).count() as f64;
        // At maximum rate a switch may drop packets. Only those of a rate are waited for.
        let quiet = timing.counted.filter(|_| load.rate != Rate::Max).map_or(timing.quiet, |counted| counted.patience);
        self.plan = Plan {
            warm_up: cycles(timing.warm_up, hertz),
            time: cycles(timing.time, hertz),
            most: cycles(timing.counted.map_or(timing.time, |counted| counted.patience), hertz),
            quiet: cycles(quiet, hertz),
            drain: cycles(timing.counted.map_or(timing.drain, |counted| counted.patience), hertz),
            counted: timing.counted.map(|counted| counted.packets),
            patience: Patience { bound: cycles(CATCH_UP, hertz), tail: cycles(tail, hertz) },
            interval: load.rate.pps(self.mean_len()).map(|pps| hertz * senders / pps),
            burst: load.burst,
        };
        self.window = Window { since: now, ..Window::default() };
        self.phase = Phase::WarmUp;
        self.pace(now, self.plan.warm_up);
    }

    /// Returns whether the trial is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns the measured values so far. Before the end of the warm-up, all counters are 0.
    #[must_use]
    pub fn measured(&self) -> Measured {
        if matches!(self.phase, Phase::Idle | Phase::WarmUp) {
            // Before the measurement, the checker still has the counters of the previous trial.
            let streams = vec![StreamCounters::default(); self.sent.len()];
            let meant = self.plan.interval.map(|_| 0);
            return Measured {
                streams,
                meant,
                seconds: [seconds(self.plan.time, hertz()), 0.0],
                ..Measured::default()
            };
        }
        let Window { mut pace_counters, mut lasted, mut arrived, still_coming, not_taken, since } = self.window;
        if self.phase == Phase::Measure {
            (pace_counters, lasted, arrived) = (self.pace_counters(), self.now.saturating_sub(since), self.arrived());
        }
        let hertz = hertz();
        Measured {
            streams: self.checker.counters(self.sent.iter().copied()),
            foreign: self.checker.foreign,
            meant: self.plan.interval.map(|_| pace_counters.sent + pace_counters.refused + pace_counters.missed),
            refused: pace_counters.refused,
            missed: pace_counters.missed,
            seconds: [self.plan.time, lasted].map(|cycles| seconds(cycles, hertz)),
            arrived,
            drops: self.drops(),
            still_coming,
            not_taken,
            latencies: self.checker.latencies.clone(),
        }
    }

    /// Returns its ports.
    pub fn into_ports(self) -> impl Iterator<Item = P> {
        self.sides.into_iter().map(|side| side.port)
    }

    fn pace(&mut self, now: u64, lasts: u64) {
        let Plan { interval, burst, patience, .. } = self.plan;
        for side in &mut self.sides {
            let pace = interval.filter(|_| !side.sources.is_empty());
            side.pace = pace.map(|interval| Pace::new(now, lasts, interval, burst, patience));
        }
    }

    /// Enters the next phase if it is time.
    fn advance(&mut self, now: u64) -> anyhow::Result<()> {
        let passed = now.saturating_sub(self.window.since);
        match self.phase {
            Phase::WarmUp if passed >= self.plan.warm_up => {
                self.phase = Phase::Measure;
                self.drops_before = BTreeMap::new();
                self.drops_before = self.drops();
                self.checker.begin(self.sent.iter().copied());
                self.window = Window { since: now, arrived: self.checker.arrived, ..Window::default() };
                self.pace(now, self.plan.most);
            }
            Phase::Measure => {
                if !self.is_measured(now, passed) {
                    return Ok(());
                }
                self.phase = Phase::Drain;
                let arrived = self.arrived();
                let pace_counters = self.pace_counters();
                self.window = Window { since: now, lasted: passed, arrived, pace_counters, ..self.window };
                self.heard = now;
            }
            Phase::Drain => {
                let is_late = passed >= self.plan.drain;
                let is_quiet = now.saturating_sub(self.heard) >= self.plan.quiet;
                let is_complete = self.is_complete();
                // A backend on a busy machine may only pause. Packets that it has not taken yet are
                // not lost.
                let is_sending = (is_late || is_quiet) && !is_complete && self.is_sending()?;
                self.window.still_coming = is_late && !is_quiet;
                self.window.not_taken = is_late && is_sending;
                if is_late || is_complete || (is_quiet && !is_sending) {
                    self.phase = Phase::Over;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the measurement ends: all that was due by its time was sent or given up, or
    /// the packets have come that end it.
    fn is_measured(&mut self, now: u64, passed: u64) -> bool {
        if let Some(packets) = self.plan.counted {
            let came = self.checker.counters(self.sent.iter().copied()).iter().all(|stream| stream.received >= packets);
            return came || self.checker.foreign >= packets || passed >= self.plan.most;
        }
        passed >= self.plan.time && self.sides.iter_mut().all(|side| side.is_over(now))
    }

    /// Returns whether no packet is missing. Where packets end the measurement, one that came with
    /// another tag is not missing either.
    fn is_complete(&self) -> bool {
        let is_complete = self.checker.complete(self.sent.iter().copied());
        if is_complete || self.plan.counted.is_none() {
            return is_complete;
        }
        let streams = self.checker.counters(self.sent.iter().copied());
        let total = streams.into_iter().fold(StreamCounters::default(), StreamCounters::and);
        total.received + self.checker.foreign >= total.sent
    }

    /// Waits once more for missing packets, because another endpoint still has packets to send.
    /// Returns false if there is no time left to wait.
    pub(crate) fn wait_on(&mut self, now: u64) -> bool {
        let is_late = now.saturating_sub(self.window.since) >= self.plan.drain;
        if self.phase == Phase::Over && !is_late && !self.is_complete() {
            (self.phase, self.heard) = (Phase::Drain, now);
        }
        !self.is_over()
    }

    /// Returns the number of packets that came since the measurement began, and their bytes.
    fn arrived(&self) -> [u64; 2] {
        [0, 1].map(|n| self.checker.arrived[n] - self.window.arrived[n])
    }

    /// Returns the packets that the ports have dropped since the measurement began, by reason.
    fn drops(&self) -> BTreeMap<&'static str, u64> {
        let mut drops = BTreeMap::new();
        for (reason, count) in self.sides.iter().flat_map(|side| side.port.drops()) {
            *drops.entry(reason).or_default() += count;
        }
        for (reason, count) in &mut drops {
            *count -= self.drops_before.get(reason).copied().unwrap_or(0).min(*count);
        }
        drops.retain(|_, count| *count > 0);
        drops
    }

    fn pace_counters(&self) -> PaceCounters {
        let paces = self.sides.iter().filter_map(|side| side.pace.as_ref());
        paces.fold(PaceCounters::default(), |all, Pace { counters, .. }| PaceCounters {
            sent: all.sent + counters.sent,
            refused: all.refused + counters.refused,
            missed: all.missed + counters.missed,
        })
    }

    fn receive(&mut self, now: u64) -> anyhow::Result<usize> {
        let mut moved = 0;
        let mut check = Check { checker: &mut self.checker, sent: &self.sent, now, ours: false };
        for side in &mut self.sides {
            side.port.will_read(check.checker.expected());
            moved += side.port.receive(BURST, &mut check)?;
        }
        // Foreign frames may come forever, so only our own packets prolong the wait.
        if check.ours {
            self.heard = now;
        }
        Ok(moved)
    }

    fn send(&mut self, now: u64) -> anyhow::Result<usize> {
        let mut moved = 0;
        for side in &mut self.sides {
            moved += side.send(now, &mut self.sent)?;
        }
        Ok(moved)
    }
}

/// Checks the frames that come in one turn.
struct Check<'a> {
    checker: &'a mut Checker,
    sent: &'a [u64],
    now: u64,
    /// True if one of the frames is a packet of our streams.
    ours: bool,
}

impl Receiver for Check<'_> {
    #[inline]
    fn frame(&mut self, frame: &impl Received) {
        self.ours |= self.checker.note(frame, self.now, self.sent);
    }
}

impl<P: TestPort> Side<P> {
    /// Returns the mean length of the frames that this port sends, if it sends any.
    fn mean_len(&self) -> Option<f64> {
        let mean_len = |which: &usize| self.sources.get(*which).map_or(0.0, Source::mean_len);
        #[expect(clippy::cast_precision_loss, reason = "weights are small")]
        let mean = self.order.iter().map(mean_len).sum::<f64>() / self.order.len() as f64;
        (!self.order.is_empty()).then_some(mean)
    }

    fn is_over(&mut self, now: u64) -> bool {
        self.pace.as_mut().is_none_or(|pace| pace.over(now))
    }

    /// Sends the packets that are due, or at maximum rate as many as the port takes. Returns the
    /// number of sent packets.
    fn send(&mut self, now: u64, sent: &mut [u64]) -> anyhow::Result<usize> {
        if self.order.is_empty() {
            return Ok(0);
        }
        let free = self.port.free_buffers();
        let due = match &mut self.pace {
            None => free.min(BURST),
            Some(pace) => usize::try_from(pace.due(now, u64::try_from(free)?, u64::try_from(BURST)?))?,
        };
        // A packet's latency begins when it is due. So it includes the wait for this thread or for
        // a free buffer.
        let handed_out = u64::try_from(due)?;
        let mut times = self.pace.as_ref().map(|pace| pace.times(handed_out));
        let mut count = 0;
        while count < due {
            let which = self.order[self.at];
            let source = &mut self.sources[which];
            let time = times.as_mut().and_then(Iterator::next).unwrap_or(now);
            if !source.send(&mut self.port, time) {
                break;
            }
            sent[self.first + which] = source.sequence;
            self.at = if self.at + 1 < self.order.len() { self.at + 1 } else { 0 };
            count += 1;
        }
        if let Some(pace) = self.pace.as_mut().filter(|_| count < due) {
            pace.unsent(u64::try_from(due - count)?);
        }
        // This call also reports what the port found wrong with the frames to send.
        self.port.flush()?;
        Ok(count)
    }
}

impl<P: TestPort> Endpoint for Generator<P> {
    fn turn(&mut self, now: u64) -> anyhow::Result<usize> {
        // Received packets are examined first, while `now` is still close to the time at which they
        // came.
        self.now = now;
        let moved = self.receive(now)?;
        self.advance(now)?;
        match self.phase {
            Phase::WarmUp | Phase::Measure => Ok(moved + self.send(now)?),
            Phase::Idle | Phase::Drain | Phase::Over => Ok(moved),
        }
    }

    fn wake(&mut self) {
        self.sides.iter_mut().for_each(|side| side.port.wake());
    }

    fn is_sending(&mut self) -> anyhow::Result<bool> {
        self.sides.iter_mut().try_fold(false, |some, side| Ok(side.port.is_sending()? || some))
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.sides.iter_mut().try_for_each(|side| side.port.check())
    }

    fn is_over(&self) -> bool {
        Generator::is_over(self)
    }
}

/// Returns an order of streams that interleaves them by their weights. The next packet always comes
/// from the stream that lags most.
fn interleaved(sources: &[Source]) -> Vec<usize> {
    let all: u32 = sources.iter().map(|source| source.weight).sum();
    let mut credit = vec![0_i64; sources.len()];
    let next_stream = |_| {
        for (credit, source) in credit.iter_mut().zip(sources) {
            *credit += i64::from(source.weight);
        }
        let which = (0..sources.len()).max_by_key(|which| credit[*which]).unwrap_or(0);
        credit[which] -= i64::from(all);
        which
    };
    (0..all).map(next_stream).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn cycles(time: Duration, hertz: f64) -> u64 {
    (time.as_secs_f64() * hertz).round() as u64
}
