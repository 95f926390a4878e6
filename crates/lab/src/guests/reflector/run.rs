//! A trial of the reflector: its loop, its phases and its clock.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use straightline_graph::clock::cycles;
use straightline_guest::HEADER_LEN;
use straightline_guest::endpoints::{Connection, Layout, Memory, Pinned, broken};
use straightline_report::results::NotValid;
use straightline_virtio::ring::{Bursts, DeviceFault, Moved, PackedBursts, SplitBursts};

use super::frames::{Found, Frames};
use super::options::{Load, Options};
use super::report::{Count, Lines, ReflectorReport, Totals, Window, Work};
use super::touch::{Toucher, Touching, Untouched, lines, touched_lines};
use crate::guests::forward::Touch;
use crate::trial::validity::{self, Stopped};

/// The most packets that are taken from a ring at once.
const BURST: usize = 64;

/// Number of turns between two checks of the clock.
const TURNS: u32 = 256;

/// Empty turns in a row after which the thread yields: there may be fewer CPUs than threads.
const IDLE_TURNS: u32 = 4096;

/// Empty turns in a row after which the thread yields if a backend is known to run on this CPU.
const SHARED_IDLE_TURNS: u32 = 4;

/// Interval between two checks of the backends.
const LOOK: Duration = Duration::from_millis(20);

/// Interval between two probes. A probe is a packet that is sent to see whether packets arrive.
const PROBE: Duration = Duration::from_millis(20);

/// A turn of this many cycles or more was interrupted. It does not measure the cost of the guest.
const INTERRUPTED: u64 = 1 << 18;

/// Time without packets after which no more packets are expected to return.
const QUIET: Duration = Duration::from_millis(200);

/// Runs a trial, from connecting to the backends to the end.
///
/// # Errors
/// A resource is not available, or a backend refused something or broke the protocol. Or the trial
/// is not valid: packets have the wrong size, came in one direction only, or differ from the sent
/// packets. [`Stopped`] if the trial was stopped.
pub fn run(options: &Options) -> anyhow::Result<ReflectorReport> {
    run_watched(options, &mut || Ok(()))
}

/// Runs a trial as [`run`] does, and calls `at_edge` before and after the measured time.
///
/// # Errors
/// The errors of [`run`] and of `at_edge`.
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

/// The state of the guest.
struct ReflectorGuest<R, T> {
    touch: T,
    receive: [R; 2],
    transmit: [R; 2],
    /// Buffers that are in no ring.
    spare: Vec<u64>,
    ports: [Connection; 2],
    received: [Count; 2],
    sent: [u64; 2],
    kicks: u64,
    /// Buffers to be sent as soon as packets are known to arrive, by port.
    waiting: [Vec<(u64, u32)>; 2],
    /// The number of probes that were sent.
    probes: usize,
    work: Work,
    clock: u64,
    /// Number of turns since the last turn that found packets.
    idle: u32,
    /// The number of such turns after which the thread yields.
    rests_after: u32,
    /// The time of the last check of the backends.
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

    /// Gives the rings as many receive buffers as they take, and fills the buffers to send. A
    /// flood's packets are in the rings from the start.
    fn prepare(&mut self, options: &Options, memory: &Memory) -> anyhow::Result<Frames> {
        let count = match options.load {
            Load::Loop => options.packets(),
            Load::Flood | Load::OneWay => options.queue_size.into(),
        };
        let frames = Frames::new(options.sizes.draw(2 * count, options.seed), options.segments, options.seed);
        // Otherwise the backend would write some pages first, and the kernel would place them on
        // the backend's node.
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

    /// Waits for the first packets, warms up, measures, and takes the remaining packets out of the
    /// rings.
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

    /// Waits until packets arrive on both ports, then sends all packets of the loop. A switch may
    /// drop packets until it serves both ports. So before that, one packet is sent repeatedly in
    /// each direction.
    fn begin<const FLOOD: bool>(&mut self, options: &Options, memory: &Memory, frames: &Frames) -> anyhow::Result<()> {
        let end = Instant::now() + options.patience;
        let mut next = Instant::now();
        while (0..2).any(|at| options.load.comes_by(at) && self.received[at].packets == 0) {
            let now = Instant::now();
            check_stop(options)?;
            ensure!(now < end, self.nothing_comes(options));
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

    /// Sends the first packet again in each direction in which nothing has arrived.
    fn probe(&mut self, options: &Options, memory: &Memory, frames: &Frames) -> anyhow::Result<()> {
        for at in 0..2 {
            if self.received[1 - at].packets > 0 {
                continue;
            }
            let packet = match self.waiting[at].len() == options.packets() {
                true => self.waiting[at].pop(),
                // The ring must keep space for the waiting packets beside the packets that the
                // backend keeps.
                false if self.transmit[at].out() + self.waiting[at].len() >= usize::from(options.queue_size) => None,
                // A spare buffer: that of the last probe, if the backend has given it back.
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

    fn nothing_comes(&self, options: &Options) -> NotValid {
        let silent = (0..2).filter(|&at| options.load.comes_by(at) && self.received[at].packets == 0);
        let sockets: Vec<_> = silent.map(|at| self.ports[at].socket.display().to_string()).collect();
        validity::nothing_comes(&sockets, options.patience, &options.sizes)
    }

    /// Runs for this time. If the run may end early, it also ends at a stop.
    fn go_on<const FLOOD: bool>(
        &mut self,
        options: &Options,
        time: Duration,
        may_end_early: bool,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut now = start;
        let mut heard = [(0, start); 2];
        let silence = validity::silence(time);
        loop {
            // The time is read before the turns. So even if this thread is descheduled, the turns
            // find all packets that have come until this time.
            let before = now;
            self.some_turns::<FLOOD>()?;
            now = Instant::now();
            for (at, (packets, since)) in heard.iter_mut().enumerate().filter(|&(at, _)| options.load.comes_by(at)) {
                if *packets != self.received[at].packets {
                    (*packets, *since) = (self.received[at].packets, now);
                } else {
                    let silent_for = before.saturating_duration_since(*since);
                    validity::silent(self.ports[at].socket.display(), silent_for, silence).demand()?;
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
            // One backend may sleep while the other keeps this thread busy.
            self.wake();
            if let Some(port) = self.ports.iter().find(|port| port.has_gone()) {
                bail!("{}: the backend has closed the connection", port.socket.display());
            }
        }
        Ok(())
    }

    /// Notes a turn. It begins at the end of the last turn.
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

    /// Sends packets that come on one port through the other port. Returns the number of received
    /// packets.
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

    /// Sends as many packets as the ports accept, and drops received packets. Returns the number of
    /// received packets.
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

    /// Kicks the backends that have asked for a kick.
    #[cold]
    fn wake(&mut self) {
        // The fence orders the index that was published before the notification word that is read
        // now. Either the backend saw the index before it slept, or this thread sees the backend's
        // request for a kick (`ring/notify.rs`). Sending a burst has no fence, so this thread may
        // have missed a request until now.
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

    /// Wakes backends after a turn in which nothing has come.
    #[cold]
    fn rest(&mut self) {
        self.wake();
        self.idle += 1;
        if self.idle.is_multiple_of(self.rests_after) {
            std::thread::yield_now();
        }
    }

    /// Stops sending, and takes packets out of the rings until no more come. Counts the cache lines
    /// of these packets, buffer by buffer.
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
