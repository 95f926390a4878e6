//! The loop, its phases and its clock.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use straightline_graph::clock::cycles;
use straightline_virtio::ring::{Bursts, DeviceFault, Moved, PackedBursts, SplitBursts};

use super::frames::{Found, Frames};
use super::options::{Load, Options};
use super::report::{Count, Lines, ReflectorReport, Totals, Window, Work};
use super::touch::{Toucher, Touching, Untouched, lines, touched_lines};
use crate::endpoints::{Connection, Layout, Memory, Pinned, broken};
use crate::forward::Touch;
use crate::guest::HEADER_LEN;

/// The most packets that are taken from a ring at once.
const BURST: usize = 64;

/// Turns between two looks at the clock.
const TURNS: u32 = 256;

/// After so many turns in a row without a packet others may run: there may be fewer CPUs than threads.
const IDLE_TURNS: u32 = 4096;

/// The same where a backend is known to be on this CPU.
const SHARED_IDLE_TURNS: u32 = 4;

/// Between two looks whether the backends are there.
const LOOK: Duration = Duration::from_millis(20);

/// Between two packets that are sent to see whether they arrive.
const PROBE: Duration = Duration::from_millis(20);

/// A turn of so many cycles was interrupted by somebody else: what the guest costs it does not say.
const INTERRUPTED: u64 = 1 << 18;

/// For how long nothing may come from a backend, once something has come: a quarter of the time, within these. Threads that
/// were kept from running for a moment are not silent.
const SILENCE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// For how long nothing more comes where all that will come has.
const QUIET: Duration = Duration::from_millis(200);

/// A trial was ended by [`Options::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before its end")]
pub struct Stopped;

/// Runs a trial from the connection to its end.
///
/// # Errors
/// What could not be had, what a backend refused or did wrong; and a trial that does not count: of packets that have the
/// wrong size, or came one way only, or were not what was sent. [`Stopped`].
pub fn run(options: &Options) -> anyhow::Result<ReflectorReport> {
    run_watched(options, &mut || Ok(()))
}

/// As [`run`]; calls `at_edge` before the time that is measured begins, and once it is over.
///
/// # Errors
/// As [`run`], and those of `at_edge`.
pub fn run_watched(
    options: &Options,
    at_edge: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<ReflectorReport> {
    options.check()?;
    let how = options.port();
    let memory = Memory::new(&how, 2)?;
    let port = |at: usize| Connection::connect(&options.backends[at], &memory, at, &how);
    let ports = [port(0)?, port(1)?];
    let _pinned = options.cpu.map(Pinned::to).transpose()?;
    match options.layout {
        Layout::Split => touched::<SplitBursts>(options, &memory, ports, at_edge),
        Layout::Packed => touched::<PackedBursts>(options, &memory, ports, at_edge),
    }
}

fn touched<R: Bursts>(
    options: &Options,
    memory: &Memory,
    ports: [Connection; 2],
    at_edge: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<ReflectorReport> {
    match options.touch {
        Touch::None => trial::<R, _>(options, memory, ports, Untouched, at_edge),
        touch => {
            let touching = Touching::new(touch, memory, HEADER_LEN + options.sizes.longest());
            trial::<R, _>(options, memory, ports, touching, at_edge)
        }
    }
}

fn trial<R: Bursts, T: Toucher>(
    options: &Options,
    memory: &Memory,
    ports: [Connection; 2],
    touch: T,
    at_edge: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<ReflectorReport> {
    let mut guest = ReflectorGuest::<R, T>::new(options, memory, ports, touch)?;
    let frames = guest.prepare(options, memory)?;
    for port in &mut guest.ports {
        port.start(memory)?;
    }
    let (window, totals) = match options.load {
        Load::Loop => guest.measure::<false>(options, memory, &frames, at_edge)?,
        Load::Flood | Load::OneWay => guest.measure::<true>(options, memory, &frames, at_edge)?,
    };
    let report = ReflectorReport::new(options, &guest.ports, window, totals)?;
    guest.ports.into_iter().for_each(Connection::stop);
    Ok(report)
}

/// The guest at work.
struct ReflectorGuest<R, T> {
    touch: T,
    receive: [R; 2],
    transmit: [R; 2],
    /// Buffers that no ring has.
    spare: Vec<u64>,
    ports: [Connection; 2],
    received: [Count; 2],
    sent: [u64; 2],
    kicks: u64,
    /// What is to be sent once it is known that it arrives; by port.
    waiting: [Vec<(u64, u32)>; 2],
    /// Packets that were sent to see whether they arrive.
    probes: usize,
    work: Work,
    clock: u64,
    /// Turns since one that found any.
    idle: u32,
    /// After so many of them others may run.
    rests_after: u32,
    /// When we last looked whether the backends are there.
    looked: Instant,
}

impl<R: Bursts, T: Toucher> ReflectorGuest<R, T> {
    fn new(
        options: &Options,
        memory: &Memory,
        ports: [Connection; 2],
        touch: T,
    ) -> anyhow::Result<ReflectorGuest<R, T>> {
        let [receive0, transmit0] = ports[0].rings(memory, &options.port())?;
        let [receive1, transmit1] = ports[1].rings(memory, &options.port())?;
        Ok(ReflectorGuest {
            touch,
            receive: [receive0, receive1],
            transmit: [transmit0, transmit1],
            spare: memory.buffers(),
            ports,
            received: [Count::default(); 2],
            sent: [0; 2],
            kicks: 0,
            waiting: [Vec::new(), Vec::new()],
            probes: 0,
            work: Work::default(),
            clock: 0,
            idle: 0,
            rests_after: if options.shares_cpu { SHARED_IDLE_TURNS } else { IDLE_TURNS },
            looked: Instant::now(),
        })
    }

    /// Gives all buffers for receiving that the rings take, and fills those that are to be sent: a flood is in its rings
    /// from the beginning.
    fn prepare(&mut self, options: &Options, memory: &Memory) -> anyhow::Result<Frames> {
        let count = match options.load {
            Load::Loop => options.packets(),
            Load::Flood | Load::OneWay => options.queue_size.into(),
        };
        let frames = Frames::new(options.sizes.draw(2 * count, options.seed), options.segments, options.seed);
        // Else some of its memory would be on the backend's node.
        frames.claim(memory, &self.spare);
        for ring in &mut self.receive {
            let rest = self.spare.len() - usize::from(options.queue_size);
            ring.fill(self.spare.drain(rest..).map(|addr| (addr, 0)));
        }
        for (at, ring) in self.transmit.iter_mut().enumerate() {
            if !options.load.comes_by(1 - at) {
                continue;
            }
            let rest = self.spare.len() - count;
            let numbers = at * count..(at + 1) * count;
            let filled = self.spare.drain(rest..).zip(numbers).map(|(addr, number)| frames.fill(memory, addr, number));
            self.waiting[at] = filled.collect::<anyhow::Result<_>>()?;
            if options.load != Load::Loop {
                self.sent[at] = wide(ring.fill(self.waiting[at].drain(..)));
            }
        }
        Ok(frames)
    }

    /// Waits for the first packets, warms up, measures, and takes out what is left.
    fn measure<const FLOOD: bool>(
        &mut self,
        options: &Options,
        memory: &Memory,
        frames: &Frames,
        at_edge: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<(Window, Totals)> {
        self.begin::<FLOOD>(options, memory, frames)?;
        self.go_on::<FLOOD>(options, options.warm_up, false)?;
        at_edge()?;
        let (counters, work, start) = (self.received, self.work, Instant::now());
        self.go_on::<FLOOD>(options, options.time, options.may_end_early)?;
        let window = Window {
            counters: [0, 1].map(|at| self.received[at].since(counters[at])),
            work: self.work.since(work),
            secs: start.elapsed().as_secs_f64(),
        };
        at_edge()?;
        let (found, lines) = self.drain(options, memory, frames)?;
        let is_loop = options.load == Load::Loop;
        let lost =
            (is_loop && options.verify).then(|| frames.lost(&found, self.probes)).transpose()?.map(u64::try_from);
        let totals = Totals {
            received: self.received.map(|count| count.packets),
            sent: self.sent,
            lost: lost.transpose()?,
            verified: u64::try_from(found.packets)?,
            kicks: self.kicks,
            lines,
        };
        Ok((window, totals))
    }

    /// Until packets come by both ports; then all that are to go in a circle are sent. What is sent before a switch serves
    /// both ports it may drop, so it is one packet again and again for each way.
    fn begin<const FLOOD: bool>(&mut self, options: &Options, memory: &Memory, frames: &Frames) -> anyhow::Result<()> {
        let end = Instant::now() + options.patience;
        let mut next = Instant::now();
        while (0..2).any(|at| options.load.comes_by(at) && self.received[at].packets == 0) {
            let now = Instant::now();
            check_stop(options)?;
            ensure!(now < end, "{}", self.nothing_comes(options));
            if !FLOOD && now >= next {
                next = now + PROBE;
                self.probe(options, memory, frames)?;
            }
            self.some_turns::<FLOOD>()?;
        }
        for (at, ring) in self.transmit.iter_mut().enumerate() {
            self.sent[at] += wide(ring.fill(self.waiting[at].drain(..)));
        }
        Ok(())
    }

    /// Sends the first packet of each way by which nothing has come, once more.
    fn probe(&mut self, options: &Options, memory: &Memory, frames: &Frames) -> anyhow::Result<()> {
        for at in 0..2 {
            if self.received[1 - at].packets > 0 {
                continue;
            }
            let packet = match self.waiting[at].len() == options.packets() {
                true => self.waiting[at].pop(),
                // Beside those that the backend keeps there is to be room for all that waits.
                false if self.transmit[at].out() + self.waiting[at].len() >= usize::from(options.queue_size) => None,
                // The buffer of the one before has been given back, or the backend keeps it.
                false => self
                    .spare
                    .pop()
                    .map(|addr| frames.fill(memory, addr, (at + 1) * options.packets() - 1))
                    .transpose()?,
            };
            let sent = self.transmit[at].fill(packet);
            self.sent[at] += wide(sent);
            self.probes += sent;
        }
        Ok(())
    }

    fn nothing_comes(&self, options: &Options) -> String {
        let silent = (0..2).filter(|&at| options.load.comes_by(at) && self.received[at].packets == 0);
        let sockets: Vec<_> = silent.map(|at| self.ports[at].socket.display().to_string()).collect();
        format!(
            "nothing has come from {} within {} s: does the switch hand on what comes by one of the two ports to the other, \
             and does it take frames of {} bytes?",
            sockets.join(" and "),
            options.patience.as_secs(),
            options.sizes
        )
    }

    /// Goes on for so long, or until it is stopped, where it may end early.
    fn go_on<const FLOOD: bool>(
        &mut self,
        options: &Options,
        time: Duration,
        may_end_early: bool,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut now = start;
        let mut heard = [(0, start); 2];
        let silence = silence(time);
        loop {
            // Whatever has come until then is found by the turns, even where this thread was kept from running meanwhile.
            let before = now;
            self.some_turns::<FLOOD>()?;
            now = Instant::now();
            for (at, (packets, since)) in heard.iter_mut().enumerate().filter(|&(at, _)| options.load.comes_by(at)) {
                if *packets != self.received[at].packets {
                    (*packets, *since) = (self.received[at].packets, now);
                } else if before.saturating_duration_since(*since) > silence {
                    let socket = self.ports[at].socket.display();
                    bail!("not a valid trial: nothing has come from {socket} for {} ms", silence.as_millis());
                }
            }
            let stopped = check_stop(options);
            if now - start >= time || (may_end_early && stopped.is_err()) {
                return Ok(());
            }
            stopped?;
        }
    }

    fn some_turns<const FLOOD: bool>(&mut self) -> anyhow::Result<()> {
        self.clock = cycles();
        for _ in 0..TURNS {
            let moved = if FLOOD { self.flood()? } else { self.bounce()? };
            self.note(moved);
        }
        if self.looked.elapsed() > LOOK {
            self.looked = Instant::now();
            // One backend may sleep while the other keeps us from resting.
            self.wake();
            if let Some(port) = self.ports.iter().find(|port| port.has_gone()) {
                bail!("{}: the backend has closed the connection", port.socket.display());
            }
        }
        Ok(())
    }

    /// The time since the last turn is this one's.
    #[inline]
    fn note(&mut self, moved: usize) {
        let now = cycles();
        if moved > 0 {
            let took = now.wrapping_sub(self.clock);
            if took < INTERRUPTED {
                self.work.cycles += took;
                self.work.packets += wide(moved);
                self.work.turns += 1;
            }
            self.idle = 0;
        } else {
            self.rest();
        }
        self.clock = now;
    }

    /// What comes by one port goes by the other; returns how many packets came.
    #[inline]
    fn bounce(&mut self) -> anyhow::Result<usize> {
        let mut packets = 0;
        for (from, to) in [(0, 1), (1, 0)] {
            let (receive, transmit, touch) = (&mut self.receive[from], &mut self.transmit[to], &mut self.touch);
            let back = transmit.reclaim(&mut self.spare);
            back.map_err(|fault| broken(&self.ports[to], fault))?;
            let moved = R::forward_each(receive, transmit, &mut self.spare, BURST, |addr, len| touch.touch(addr, len));
            let moved = moved.map_err(|fault| broken(&self.ports[from], fault))?;
            packets += moved.packets;
            self.received[from].add(&moved);
            self.sent[to] += wide(moved.packets);
            if moved.packets > 0 && transmit.kick_due() {
                self.ports[to].kick(1);
                self.kicks += 1;
            }
        }
        Ok(packets)
    }

    /// Both ports send what they can, and drop what comes; returns how many packets came.
    #[inline]
    fn flood(&mut self) -> anyhow::Result<usize> {
        let mut packets = 0;
        for at in 0..2 {
            let (receive, transmit, touch) = (&mut self.receive[at], &mut self.transmit[at], &mut self.touch);
            let sent = recycle(transmit, touch).map_err(|fault| broken(&self.ports[at], fault))?;
            let moved = recycle(receive, touch).map_err(|fault| broken(&self.ports[at], fault))?;
            packets += moved.packets;
            self.received[at].add(&moved);
            self.sent[at] += wide(sent.packets);
            if sent.packets > 0 && transmit.kick_due() {
                self.ports[at].kick(1);
                self.kicks += 1;
            }
        }
        Ok(packets)
    }

    /// Kicks whoever wishes it.
    #[cold]
    fn wake(&mut self) {
        // Between what was published and what is read now: either the backend has seen it before it went to sleep, or we
        // see its wish (`ring/notify.rs`). Behind a burst the fence is left out, so a wish may have been missed until now.
        fence(Ordering::SeqCst);
        for at in 0..2 {
            for (number, ring) in [&mut self.receive[at], &mut self.transmit[at]].into_iter().enumerate() {
                if ring.kick_due() {
                    self.ports[at].kick(number);
                    self.kicks += 1;
                }
            }
        }
    }

    /// Nothing has come: is there somebody to be woken?
    #[cold]
    fn rest(&mut self) {
        self.wake();
        self.idle += 1;
        if self.idle.is_multiple_of(self.rests_after) {
            std::thread::yield_now();
        }
    }

    /// Sends nothing more, and takes out of the rings what comes, until nothing does. Of that, buffer by buffer, the lines
    /// are counted.
    fn drain(&mut self, options: &Options, memory: &Memory, frames: &Frames) -> anyhow::Result<(Found, Lines)> {
        let mut found = Found::default();
        let mut all = Lines::default();
        let mut taken = Vec::new();
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            for at in 0..2 {
                let back = self.transmit[at].reclaim(&mut self.spare);
                back.map_err(|fault| broken(&self.ports[at], fault))?;
                let received = &mut self.received[at];
                let collected = self.receive[at].collect(usize::MAX, |addr, len| {
                    received.add(&Moved { packets: 1, bytes: len.into(), longest: len });
                    taken.push((addr, len));
                });
                collected.map_err(|fault| broken(&self.ports[at], fault))?;
            }
            if taken.is_empty() {
                self.rest();
                continue;
            }
            for (addr, len) in taken.drain(..) {
                all.packets += 1;
                all.lines += lines(addr, len);
                all.touched += touched_lines(options.touch, addr, len);
                if options.verify {
                    frames.find(memory, addr, len, &mut found)?;
                }
            }
            last = Instant::now();
        }
        Ok((found, all))
    }
}

/// For how long nothing may come within this time.
fn silence(time: Duration) -> Duration {
    (time / 4).clamp(SILENCE[0], SILENCE[1])
}

fn check_stop(options: &Options) -> Result<(), Stopped> {
    let stopped = options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
    if stopped { Err(Stopped) } else { Ok(()) }
}

#[inline]
fn recycle<R: Bursts, T: Toucher>(ring: &mut R, touch: &mut T) -> Result<Moved, DeviceFault> {
    if T::TOUCHES { ring.recycle_each(BURST, |addr, len| touch.touch(addr, len)) } else { ring.recycle(BURST) }
}

impl Count {
    #[inline]
    fn add(&mut self, moved: &Moved) {
        self.packets += wide(moved.packets);
        self.bytes += moved.bytes;
        self.longest = self.longest.max(moved.longest);
    }
}

#[inline]
fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_found_within_the_time() {
        for (time, limit) in [(0, 100), (300, 100), (1000, 250), (2000, 500), (60_000, 1000)] {
            assert_eq!(silence(Duration::from_millis(time)), Duration::from_millis(limit));
        }
    }
}
