//! A trial of the reflector: its phases. Each phase is a run of the event loop.

use std::fmt::Display;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use straightline_guest::endpoints::{Connection, Endpoint, EventLoop, Layout, LoopEnd, Memory, Pinned, Round, Work};
use straightline_report::results::{NotValid, Validity};
use straightline_virtio::ring::{Bursts, PackedBursts, SplitBursts};

use super::frames::{Found, Frames};
use super::guest::{Accesses, ReflectorGuest, Touching, Untouched, wide};
use super::options::{Load, ReflectorOptions};
use super::report::{Lines, ReflectorReport, Totals, Window};
use crate::guests::touch::{Touch, lines};
use crate::trial::validity::{self, Stopped};

/// Interval between two probes. A probe is a packet that is sent to see whether packets arrive.
const PROBE: Duration = Duration::from_millis(20);

/// Time without packets after which no more packets are expected to return.
const QUIET: Duration = Duration::from_millis(200);

/// Runs a trial, from connecting to the backends to the end.
///
/// # Errors
/// A resource is not available, or a backend refused something or broke the protocol. Or the trial
/// is not valid: packets have the wrong size, came in one direction only, or differ from the sent
/// packets. [`Stopped`] if the trial was stopped.
pub fn run(options: &ReflectorOptions) -> anyhow::Result<ReflectorReport> {
    run_watched(options, &mut || Ok(()))
}

/// Runs a trial as [`run`] does, and calls `at_edge` before and after the measured time.
///
/// # Errors
/// The errors of [`run`] and of `at_edge`.
pub fn run_watched(
    options: &ReflectorOptions,
    at_edge: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<ReflectorReport> {
    options.check()?;
    let how = options.port();
    let memory = Memory::new(&how, 2)?;
    let port = |at: usize| Connection::connect(&options.backends[at], &memory, at, &how);
    let ports = [port(0)?, port(1)?];
    let _pinned = options.cpu.map(Pinned::to).transpose()?;
    match how.layout {
        Layout::Split => touched::<SplitBursts>(options, &memory, ports, at_edge),
        Layout::Packed => touched::<PackedBursts>(options, &memory, ports, at_edge),
    }
}

fn touched<R: Bursts + Send>(
    options: &ReflectorOptions,
    memory: &Memory,
    ports: [Connection; 2],
    at_edge: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<ReflectorReport> {
    match options.touch {
        Touch::None => loaded::<R, _>(options, memory, ports, Untouched, at_edge),
        touch => loaded::<R, _>(options, memory, ports, Touching::new(touch, memory), at_edge),
    }
}

fn loaded<R: Bursts + Send, A: Accesses>(
    options: &ReflectorOptions,
    memory: &Memory,
    ports: [Connection; 2],
    accesses: A,
    at_edge: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<ReflectorReport> {
    match options.load {
        Load::Loop => Trial::<R, A, false>::new(options, memory, ports, accesses)?.run(at_edge),
        Load::Flood | Load::OneWay => Trial::<R, A, true>::new(options, memory, ports, accesses)?.run(at_edge),
    }
}

/// A trial, with its guest and the packets that the guest sends.
struct Trial<'a, R, A, const FLOOD: bool> {
    options: &'a ReflectorOptions,
    memory: &'a Memory,
    guest: ReflectorGuest<R, A, FLOOD>,
    outgoing: Outgoing,
}

/// The packets that the guest sends.
struct Outgoing {
    frames: Frames,
    /// Buffers to be sent as soon as packets are known to arrive, by port.
    waiting: [Vec<(u64, u32)>; 2],
    /// The number of probes that were sent.
    probes: usize,
}

impl<'a, R: Bursts + Send, A: Accesses, const FLOOD: bool> Trial<'a, R, A, FLOOD> {
    fn new(
        options: &'a ReflectorOptions,
        memory: &'a Memory,
        ports: [Connection; 2],
        accesses: A,
    ) -> anyhow::Result<Self> {
        let count = match options.load {
            Load::Loop => options.packets(),
            Load::Flood | Load::OneWay => options.ports.queue_size.into(),
        };
        let frames = Frames::new(options.sizes.draw(2 * count, options.seed), options.ports.segments, options.seed);
        let guest = ReflectorGuest::new(options, memory, ports, accesses)?;
        let outgoing = Outgoing { frames, waiting: [Vec::new(), Vec::new()], probes: 0 };
        let mut trial = Trial { options, memory, guest, outgoing };
        trial.prepare(count)?;
        Ok(trial)
    }

    /// Gives the rings as many receive buffers as they take, and fills the buffers to send, `count`
    /// for each port. A flood's packets are in the rings from the start.
    fn prepare(&mut self, count: usize) -> anyhow::Result<()> {
        let Trial { options, memory, guest, outgoing: Outgoing { frames, waiting, .. } } = self;
        // Otherwise the backend would write some pages first, and the kernel would place them on
        // the backend's node.
        frames.claim(memory, &guest.spare);
        for ring in &mut guest.receive {
            let rest = guest.spare.len() - usize::from(options.ports.queue_size);
            ring.fill(guest.spare.drain(rest..).map(|addr| (addr, 0)));
        }
        let shift = u64::from(options.sent_shift());
        for (at, ring) in guest.transmit.iter_mut().enumerate() {
            if !options.load.comes_by(1 - at) {
                continue;
            }
            let rest = guest.spare.len() - count;
            let numbers = at * count..(at + 1) * count;
            let filled = guest.spare.drain(rest..).zip(numbers);
            let filled = filled.map(|(addr, number)| frames.fill(memory, addr + shift, number));
            waiting[at] = filled.collect::<anyhow::Result<_>>()?;
            if FLOOD {
                guest.sent[at] = wide(ring.fill(waiting[at].drain(..)));
            }
        }
        Ok(())
    }

    /// Starts the rings, waits for the first packets, warms up, measures, and takes the remaining
    /// packets out of the rings.
    fn run(mut self, at_edge: &mut dyn FnMut() -> anyhow::Result<()>) -> anyhow::Result<ReflectorReport> {
        let Trial { options, memory, .. } = self;
        for port in &mut self.guest.ports {
            port.start(memory)?;
        }
        self.begin()?;
        if options.counted.is_none() {
            self.go_on(options.warm_up, false)?;
        }
        at_edge()?;
        let counters = self.guest.received;
        let start = Instant::now();
        let work = self.go_on(options.time, options.may_end_early)?;
        let secs = start.elapsed().as_secs_f64();
        let counters = [0, 1].map(|at| self.guest.received[at].since(counters[at]));
        at_edge()?;
        let Trial { mut guest, outgoing: Outgoing { frames, probes, .. }, .. } = self;
        let (found, lines) = {
            let taken = Vec::new();
            let found = Found::default();
            let all = Lines::default();
            Drain { options, memory, guest: &mut guest, frames: &frames, taken, found, lines: all }.run()?
        };
        let lost = match options.load {
            Load::Loop if options.verify => Some(u64::try_from(frames.lost(&found, probes)?)?),
            _ => None,
        };
        let totals = Totals {
            received: guest.received.map(|count| count.packets),
            sent: guest.sent,
            lost,
            verified: u64::try_from(found.packets)?,
            kicks: guest.kicks,
            lines,
        };
        let report = ReflectorReport::new(options, &guest.ports, Window { counters, work, secs }, totals)?;
        guest.ports.into_iter().for_each(Connection::stop);
        Ok(report)
    }

    /// Waits until packets arrive on both ports, then sends all packets of the loop. A switch may
    /// drop packets until it serves both ports. So before that, one packet is sent repeatedly in
    /// each direction.
    fn begin(&mut self) -> anyhow::Result<()> {
        let Trial { options, memory, guest, outgoing } = self;
        let mut next = Instant::now();
        let patience = options.counted.map_or(options.ports.patience, |counted| counted.patience);
        let events = EventLoop { deadline: next.checked_add(patience), ..events(options) };
        let (_, ended) = events.run_with(&mut [&mut *guest], |guests, round| {
            if guests[0].silent_ports(options.load).next().is_none() {
                return Ok(ControlFlow::Break(()));
            }
            if !FLOOD && round.ended >= next {
                next = round.ended + PROBE;
                outgoing.probe(options, memory, guests[0])?;
            }
            Ok(ControlFlow::Continue(()))
        });
        match ended? {
            LoopEnd::Over => {}
            LoopEnd::Stopped => bail!(Stopped),
            LoopEnd::Deadline => bail!(nothing_comes(options, patience, guest)),
        }
        for (at, ring) in guest.transmit.iter_mut().enumerate() {
            guest.sent[at] += wide(ring.fill(outgoing.waiting[at].drain(..)));
        }
        Ok(())
    }

    /// Runs for this time, or until the packets have come that end the measurement. If the run may end
    /// early, it also ends at a stop.
    fn go_on(&mut self, time: Duration, may_end_early: bool) -> anyhow::Result<Work> {
        let start = Instant::now();
        let options = self.options;
        let before = self.guest.received;
        let silence = options.counted.map_or_else(|| validity::silence(time), |counted| counted.patience);
        let mut silent = [0, 1].map(|_| Silence::new(start, silence));
        let deadline = if options.counted.is_some() { None } else { start.checked_add(time) };
        let events = EventLoop { deadline, ..events(options) };
        let (work, ended) = events.run_with(&mut [&mut self.guest], |guests, round| {
            let guest = &*guests[0];
            let mut is_enough = options.counted.is_some();
            for at in (0..2).filter(|&at| options.load.comes_by(at)) {
                let received = guest.received[at].packets;
                silent[at].judge(received, round, guest.ports[at].socket.display()).demand()?;
                let came = received - before[at].packets;
                is_enough &= options.counted.is_some_and(|counted| came >= counted.packets);
            }
            Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        ensure!(ended? != LoopEnd::Stopped || may_end_early, Stopped);
        Ok(work.first().copied().unwrap_or_default())
    }
}

/// The time for which nothing has come from a backend.
struct Silence {
    received: u64,
    since: Instant,
    limit: Duration,
}

impl Silence {
    fn new(start: Instant, limit: Duration) -> Silence {
        Silence { received: 0, since: start, limit }
    }

    /// Judges a backend after a round of turns, by the number of packets from it so far. Time for which
    /// this thread was descheduled is no silence: its next turns find what has come meanwhile.
    fn judge(&mut self, received: u64, round: Round, socket: impl Display) -> Validity {
        if self.received != received {
            (self.received, self.since) = (received, round.ended);
            return Validity::Valid;
        }
        validity::silent(socket, round.began.saturating_duration_since(self.since), self.limit)
    }
}

impl Outgoing {
    /// Sends the first packet again in each direction in which nothing has arrived.
    fn probe<R: Bursts, A: Accesses, const FLOOD: bool>(
        &mut self,
        options: &ReflectorOptions,
        memory: &Memory,
        guest: &mut ReflectorGuest<R, A, FLOOD>,
    ) -> anyhow::Result<()> {
        let Outgoing { frames, waiting, probes } = self;
        for (at, waiting) in waiting.iter_mut().enumerate() {
            if guest.received[1 - at].packets > 0 {
                continue;
            }
            let packet = match waiting.len() == options.packets() {
                true => waiting.pop(),
                // The ring must keep space for the waiting packets beside the packets that the
                // backend keeps.
                false if guest.transmit[at].out() + waiting.len() >= usize::from(options.ports.queue_size) => None,
                // A spare buffer: that of the last probe, if the backend has given it back.
                false => {
                    let number = (at + 1) * options.packets() - 1;
                    guest.spare.pop().map(|addr| frames.fill(memory, addr, number)).transpose()?
                }
            };
            let sent = guest.transmit[at].fill(packet);
            guest.sent[at] += wide(sent);
            *probes += sent;
        }
        Ok(())
    }
}

/// Stops sending, and takes packets out of the rings until no more come. Counts the cache lines of
/// these packets, buffer by buffer.
struct Drain<'a, R, A, const FLOOD: bool> {
    options: &'a ReflectorOptions,
    memory: &'a Memory,
    guest: &'a mut ReflectorGuest<R, A, FLOOD>,
    frames: &'a Frames,
    taken: Vec<(u64, u32)>,
    found: Found,
    lines: Lines,
}

impl<R: Bursts + Send, A: Accesses, const FLOOD: bool> Drain<'_, R, A, FLOOD> {
    fn run(mut self) -> anyhow::Result<(Found, Lines)> {
        let mut packets = 0;
        let mut heard = Instant::now();
        // A trial that was stopped is drained too.
        let events = EventLoop { stop: None, ..events(self.options) };
        let (_, ended) = events.run_with(&mut [&mut self], |drains, round| {
            if packets != drains[0].lines.packets {
                (packets, heard) = (drains[0].lines.packets, round.ended);
            }
            let quiet = drains[0].quiet();
            let is_quiet = round.began.saturating_duration_since(heard) >= quiet;
            Ok(if is_quiet { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        ended?;
        Ok((self.found, self.lines))
    }

    /// Returns the time without packets after which no more are expected. Where packets end the
    /// measurement, each packet of a loop is waited for.
    fn quiet(&self) -> Duration {
        let Drain { options, guest, frames, found, lines, .. } = self;
        let Some(counted) = options.counted else { return QUIET };
        let received: u64 = guest.received.iter().map(|count| count.packets).sum();
        let is_over = if FLOOD { lines.packets > 0 } else { received >= guest.sent.iter().sum() };
        let is_missing = !FLOOD && options.verify && frames.missing(found) > 0;
        match (is_over, is_missing) {
            (true, _) => Duration::ZERO,
            (false, true) => counted.patience,
            // A probe that the switch has dropped at its start is still counted.
            (false, false) => QUIET,
        }
    }
}

impl<R: Bursts + Send, A: Accesses, const FLOOD: bool> Endpoint for Drain<'_, R, A, FLOOD> {
    fn turn(&mut self, _now: u64) -> anyhow::Result<usize> {
        let Drain { options, memory, guest, frames, taken, found, lines: all } = self;
        guest.collect(|addr, len| taken.push((addr, len)))?;
        let packets = taken.len();
        for (addr, len) in taken.drain(..) {
            all.packets += 1;
            all.lines += lines(addr, len);
            all.touched += options.touch.lines(addr, len);
            if options.verify {
                frames.find(memory, addr, len, found)?;
            }
        }
        Ok(packets)
    }

    fn wake(&mut self) {
        self.guest.wake();
    }
}

/// Returns the event loop of a trial.
fn events(options: &ReflectorOptions) -> EventLoop<'_> {
    EventLoop { shares_cpu: options.shares_cpu, stop: options.stop.as_deref(), ..EventLoop::default() }
}

fn nothing_comes<R: Bursts, A: Accesses, const FLOOD: bool>(
    options: &ReflectorOptions,
    patience: Duration,
    guest: &ReflectorGuest<R, A, FLOOD>,
) -> NotValid {
    let silent = guest.silent_ports(options.load);
    let sockets: Vec<_> = silent.map(|at| guest.ports[at].socket.display().to_string()).collect();
    validity::nothing_comes(&sockets, patience, &options.sizes)
}

#[cfg(test)]
mod tests {
    use straightline_graph::Clock;

    use super::*;

    /// A backend is silent after its limit, however long this thread was away before.
    #[test]
    fn silence_is_judged_by_the_time_in_which_packets_were_looked_for() {
        let start = Clock::moved().now();
        let millis = Duration::from_millis;
        let round = |began, ended| Round { began: start + millis(began), ended: start + millis(ended) };
        let limit = millis(100);
        let mut silence = Silence::new(start, limit);
        let mut judge = |received, began, ended| silence.judge(received, round(began, ended), "/a");
        assert_eq!(judge(5, 0, 10), Validity::Valid);
        // The limit itself is kept: 100 ms after the end of the round in which packets came.
        assert_eq!(judge(5, 110, 111), Validity::Valid);
        // This round took two seconds, since the thread was descheduled. What came meanwhile is found.
        assert_eq!(judge(6, 110, 2110), Validity::Valid);
        assert_eq!(judge(6, 2110, 4110), Validity::Valid);
        let silent = judge(6, 2211, 4110);
        assert!(silent.is_spoilt_by_backend(), "{silent:?}");
        assert_eq!(silent.reason(), Some("nothing has come from /a for 100 ms"));
        // A packet ends the silence.
        assert_eq!(judge(7, 5000, 5001), Validity::Valid);
    }
}
