//! Two guests on one thread: each sends a stream, and receives the other's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use az::SaturatingAs;
use straightline_graph::clock::{cycles, hertz, seconds};
use straightline_guest::endpoints::{Endpoint, Received, TestPort, VhostPort};
use straightline_report::results::Validity;
use straightline_switch::api::{Runtime, Source};

use super::super::settings::Settings;
use super::stream::{HEADERS, Probe, Proof, Stream, lane_of};
use crate::guests::forward::{Meter, Passed};
use crate::testbed::drops;
use crate::traffic::Counted;
use crate::trial::validity::{self, Stopped};

/// The most buffers that a turn takes from a ring, and the most packets that a turn puts into a
/// ring.
const BURST: usize = 64;

/// During the measurement, one of this many packets is checked. The number is a prime, so that the
/// checks reach all places in a mix and in a burst.
const SAMPLE: u64 = 1009;

/// Time limit for packets to arrive after the last one was sent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval of probes.
const PROBE: Duration = Duration::from_millis(10);

/// One of the guests.
pub(in crate::experiments) struct Side {
    pub(in crate::experiments) port: VhostPort,
    stream: Stream,
    pub(in crate::experiments) proof: Proof,
    got: Got,
    /// Received packets of each lane; empty if there is one lane.
    lanes: Vec<u64>,
    checked: u64,
    /// A copy of the packet that is checked.
    copy: Vec<u8>,
}

/// Counters of received packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::experiments) struct Got {
    pub(in crate::experiments) packets: u64,
    pub(in crate::experiments) frame_bytes: u64,
    pub(in crate::experiments) payload: u64,
}

/// The measured values.
#[derive(Clone, Debug, Default)]
pub(in crate::experiments) struct Window {
    pub(in crate::experiments) secs: f64,
    /// Packets that both guests sent, and the bytes of their payload.
    pub(in crate::experiments) sent: [u64; 2],
    /// Counters of the packets that each guest received.
    pub(in crate::experiments) got: [Got; 2],
    /// Cycles of both guests in uninterrupted turns, and the bytes of payload received in these
    /// turns.
    pub(in crate::experiments) cycles: u64,
    pub(in crate::experiments) payload: u64,
    /// Whether the measurement is as long as planned: a stop ends it early.
    pub(in crate::experiments) validity: Validity,
    /// The switch's counters at the start and at the end of the measurement.
    pub(in crate::experiments) edges: Vec<Runtime>,
    /// The counters of the wire during the measurement.
    pub(in crate::experiments) passed: Passed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Probes are sent until packets get through.
    Reach,
    WarmUp,
    Measure,
    /// One more window of packets is sent, and every received packet is checked.
    Prove,
    Over,
}

/// Both guests, and the trial.
pub(in crate::experiments) struct Guests {
    sides: [Side; 2],
    /// Bytes of payload that may be under way in one direction.
    most: u64,
    source: Arc<dyn Source>,
    stop: Arc<AtomicBool>,
    times: [u64; 2],
    /// Packets of each guest that end the measurement in place of its time, if they do.
    counted: Option<Counted>,
    phase: Phase,
    since: u64,
    /// The time of the last probe, and what has reached each guest.
    probed: u64,
    reached: [Option<Probe>; 2],
    is_last_sent: bool,
    /// The counters of the wire on the way, if there is one.
    meter: Option<Arc<Meter>>,
    /// The end of each guest's stream, in bytes of payload.
    last: [u64; 2],
    /// Bytes of payload that arrived in the last turn.
    turn_payload: u64,
    window: Window,
}

impl Got {
    #[inline]
    fn add(&mut self, len: usize) {
        let len = len.saturating_as::<u64>();
        self.packets += 1;
        self.frame_bytes += len;
        self.payload += len.saturating_sub(HEADERS as u64);
    }

    fn since(self, then: Got) -> Got {
        Got {
            packets: self.packets - then.packets,
            frame_bytes: self.frame_bytes - then.frame_bytes,
            payload: self.payload - then.payload,
        }
    }
}

impl Side {
    /// Makes a guest that sends `stream` through a port, and expects what `proof` describes.
    pub(in crate::experiments) fn new(port: VhostPort, stream: Stream, proof: Proof) -> Side {
        // One byte more, to detect frames that are too long.
        let copy = vec![0; proof.longest() + 1];
        let lanes = if proof.lanes() > 1 { vec![0; usize::from(proof.lanes())] } else { Vec::new() };
        Side { port, stream, proof, got: Got::default(), lanes, checked: 0, copy }
    }

    fn receive(&mut self, looks_at_all: bool) -> anyhow::Result<usize> {
        let Side { port, proof, got, lanes, checked, copy, .. } = self;
        let mut fault = None;
        let packets = port.receive(BURST, &mut |frame: &dyn Received| {
            let mut place = (got.packets, got.payload);
            if !lanes.is_empty() {
                let mut dst = [0; 6];
                frame.read(0, &mut dst);
                let lane = lane_of(dst);
                // Packets stay in order within a lane only. A lane that does not exist is found by
                // the check.
                match lanes.get_mut(usize::from(lane)) {
                    Some(nth) => {
                        place = proof.place(lane, *nth);
                        *nth += 1;
                    }
                    None => {
                        fault = fault.take().or(Some(anyhow!("a packet came in lane {lane}, which does not exist")))
                    }
                }
            }
            if looks_at_all || got.packets.is_multiple_of(SAMPLE) {
                *checked += 1;
                let len = frame.read(0, copy);
                let found = proof.check(place.0, place.1, &frame.header(), &copy[..len]);
                let why = || format!("packet {} differs from the sent packet", got.packets);
                fault = fault.take().or(found.with_context(why).err());
            }
            got.add(frame.len());
        })?;
        validity::same_packet(port.socket().display(), fault).demand()?;
        Ok(packets)
    }

    /// Sends packets until `most` bytes of payload are under way, but not beyond the end `last`.
    /// `arrived` is the payload that has arrived.
    fn send(&mut self, arrived: u64, most: u64, last: u64) -> anyhow::Result<usize> {
        let Side { port, stream, .. } = self;
        let end = last.min(arrived + most);
        if stream.payload >= end {
            return Ok(0);
        }
        let free = port.free_buffers().min(BURST);
        let mut count = 0;
        while count < free && stream.payload < end && stream.send(port) {
            count += 1;
        }
        port.flush()?;
        Ok(count)
    }
}

impl Guests {
    /// Makes guests that warm up and are measured as the settings say. At most this many bytes of
    /// payload are under way in one direction.
    pub(in crate::experiments) fn new(
        sides: [Side; 2],
        most: u64,
        source: Arc<dyn Source>,
        settings: &Settings,
    ) -> Guests {
        let times = [settings.warm_up, settings.time].map(in_cycles);
        let stop = Arc::clone(&settings.stop);
        let counted = settings.counted;
        let phase = Phase::WarmUp;
        let since = cycles();
        let last = [u64::MAX; 2];
        let window = Window::default();
        let probed = 0;
        let reached = [None; 2];
        let meter = None;
        Guests {
            sides,
            most,
            source,
            stop,
            times,
            counted,
            phase,
            since,
            probed,
            reached,
            is_last_sent: false,
            meter,
            last,
            turn_payload: 0,
            window,
        }
    }

    /// Expects a wire with these counters on the way. Before the warm-up, the guests send probes
    /// until packets get through in both directions.
    #[must_use]
    pub(in crate::experiments) fn over_wire(mut self, meter: Arc<Meter>) -> Guests {
        (self.phase, self.meter) = (Phase::Reach, Some(meter));
        self
    }

    /// Returns the measured values, and the number of packets that were checked.
    ///
    /// # Errors
    /// The trial is not valid.
    pub(in crate::experiments) fn end(self) -> anyhow::Result<(Window, u64)> {
        let Guests { sides, window, phase, .. } = self;
        validity::checks_done(phase == Phase::Over).demand()?;
        let sockets = sides.each_ref().map(|side| side.port.socket().display());
        validity::balance(window.got.map(|got| got.packets), [true; 2], [&sockets[0], &sockets[1]]).demand()?;
        let checked = sides.iter().map(|side| side.checked).sum();
        sides.into_iter().for_each(|side| side.port.stop());
        Ok((window, checked))
    }

    /// Sends probes and drops what arrives. Packets stay in order, so no probe is under way when
    /// both guests have received a last one.
    fn reach(&mut self, now: u64) -> anyhow::Result<usize> {
        let mut moved = 0;
        for (side, reached) in self.sides.iter_mut().zip(&mut self.reached) {
            moved += side.port.receive(BURST, &mut |frame: &dyn Received| {
                *reached = (*reached).max(Probe::of(frame));
            })?;
        }
        let next = match self.reached {
            [Some(Probe::Last), Some(Probe::Last)] => {
                (self.phase, self.since) = (Phase::WarmUp, cycles());
                return Ok(moved);
            }
            _ if self.is_last_sent => None,
            reached if !reached.contains(&None) => Some(Probe::Last),
            _ => (now.saturating_sub(self.probed) >= in_cycles(PROBE)).then_some(Probe::Early),
        };
        if let Some(probe) = next {
            let mut are_sent = true;
            for side in &mut self.sides {
                are_sent &= side.stream.probe(&mut side.port, probe);
                side.port.flush()?;
            }
            self.is_last_sent = are_sent && probe == Probe::Last;
            self.probed = now;
        }
        let patience = self.patience();
        let is_late = now.saturating_sub(self.since) >= in_cycles(patience);
        validity::through(is_late, patience, || drops(&*self.source)).demand()?;
        Ok(moved)
    }

    /// Begins the next phase if it is due. Returns whether the phase has changed.
    fn advance(&mut self, now: u64) -> anyhow::Result<bool> {
        let before = self.phase;
        let passed = now.saturating_sub(self.since);
        let sent = [0, 1].map(|at| self.sides[at].stream.payload);
        match self.phase {
            Phase::WarmUp if passed >= self.times[0] => {
                self.window.edges.push(self.source.runtime());
                self.window.got = [0, 1].map(|at| self.sides[at].got);
                self.window.sent = self.sent();
                self.window.passed = self.passed();
                (self.phase, self.since) = (Phase::Measure, cycles());
            }
            Phase::Measure if self.is_measured(passed) || self.is_stopped() => {
                let secs = seconds(passed);
                (self.window.secs, self.window.validity) = (secs, validity::whole(secs, seconds(self.times[1])));
                self.window.got = [0, 1].map(|at| self.sides[at].got.since(self.window.got[at]));
                let then = self.window.sent;
                let now = self.sent();
                self.window.sent = [0, 1].map(|n| now[n] - then[n]);
                self.window.edges.push(self.source.runtime());
                self.window.passed = self.passed().since(self.window.passed);
                self.last = sent.map(|sent| sent + self.most);
                (self.phase, self.since) = (Phase::Prove, cycles());
            }
            Phase::Prove => {
                let got = [1, 0].map(|at| self.sides[at].got.payload);
                if sent == got && (0..2).all(|at| sent[at] >= self.last[at]) {
                    self.phase = Phase::Over;
                } else {
                    let is_late = passed > in_cycles(self.patience());
                    validity::arrived(is_late, sent, got, || drops(&*self.source)).demand()?;
                }
            }
            _ => {}
        }
        Ok(self.phase != before)
    }

    /// Returns whether the measurement ends after this time.
    fn is_measured(&self, passed: u64) -> bool {
        let Some(counted) = self.counted else { return passed >= self.times[1] };
        let came = [0, 1].map(|at| self.sides[at].got.since(self.window.got[at]).packets);
        came.iter().all(|&packets| packets >= counted.packets) || passed >= in_cycles(counted.patience)
    }

    fn patience(&self) -> Duration {
        self.counted.map_or(PATIENCE, |counted| counted.patience)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn sent(&self) -> [u64; 2] {
        let [a, b] = [0, 1].map(|at| &self.sides[at].stream);
        [a.packets + b.packets, a.payload + b.payload]
    }

    fn passed(&self) -> Passed {
        self.meter.as_ref().map_or_else(Passed::default, |meter| meter.read())
    }

    fn arrived(&self) -> u64 {
        self.sides.iter().map(|side| side.got.payload).sum()
    }
}

impl Endpoint for Guests {
    fn turn(&mut self, now: u64) -> anyhow::Result<usize> {
        if self.phase == Phase::Over {
            return Ok(0);
        }
        if self.phase == Phase::Reach {
            return self.reach(now);
        }
        // The switch's counters are read between phases, which is no work of the guests.
        if self.advance(now)? {
            return Ok(0);
        }
        let before = self.arrived();
        let mut moved = 0;
        for side in &mut self.sides {
            moved += side.receive(self.phase == Phase::Prove)?;
        }
        for at in 0..2 {
            let arrived = self.sides[1 - at].got.payload;
            moved += self.sides[at].send(arrived, self.most, self.last[at])?;
        }
        self.turn_payload = self.arrived() - before;
        Ok(moved)
    }

    fn worked(&mut self, cycles: u64) {
        if self.phase == Phase::Measure {
            self.window.cycles += cycles;
            self.window.payload += self.turn_payload;
        }
    }

    fn wake(&mut self) {
        self.sides.iter_mut().for_each(|side| side.port.wake());
    }

    fn check(&mut self) -> anyhow::Result<()> {
        // After a stop, a measurement that has begun is completed with the time so far, however
        // short.
        let has_begun = !matches!(self.phase, Phase::Reach | Phase::WarmUp);
        ensure!(has_begun || !self.is_stopped(), Stopped);
        self.sides.iter_mut().try_for_each(|side| side.port.check())
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time that fits, and is not negative")]
fn in_cycles(time: Duration) -> u64 {
    (time.as_secs_f64() * hertz()) as u64
}
