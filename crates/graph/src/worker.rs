//! The thread that runs turns: polls while there is work, sleeps when there is none.

use std::sync::Arc;
use std::time::Duration;

use straightline_packet::Arena;
use straightline_port::Sleeper;

use crate::clock::{cycles, hertz};
use crate::{Graph, Mailbox, WorkerStats};

/// What a worker does when it finds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls for a little while, then asks for kicks and waits.
    #[default]
    Sleep,
    /// Polls for ever.
    Spin,
}

/// How long a worker polls before it sleeps: about what a sleep and its wake-up cost, so that waiting costs at most
/// twice what it should, whatever comes.
const LINGER: Duration = Duration::from_micros(50);

/// The longest sleep. Nothing depends on it: kicks and the bell wake a worker; a second bounds what a lost one costs.
const NAP: Duration = Duration::from_secs(1);

/// A graph, and the loop that runs it.
pub struct Worker {
    graph: Graph,
    arena: Arena,
    sleeper: Arc<Sleeper>,
    stats: Arc<WorkerStats>,
    idle: Idle,
}

impl Worker {
    /// A worker that has not run yet.
    pub fn new(graph: Graph, arena: Arena, sleeper: Arc<Sleeper>, stats: Arc<WorkerStats>, idle: Idle) -> Self {
        Worker { graph, arena, sleeper, stats, idle }
    }

    /// Runs turns until the mailbox says to stop, on whatever work it finds there. Whoever puts something into it rings
    /// the sleeper.
    pub fn run(&mut self, mailbox: &Mailbox) {
        let _attendance = mailbox.attend();
        let hertz = hertz();
        let linger = in_cycles(LINGER, hertz);
        let second = in_cycles(Duration::from_secs(1), hertz).max(1);
        let started = cycles();
        self.stats.started.add(started);
        self.stats.upto.add(started);
        let mut last_packet = started;
        // One reading ends a stretch of time and begins the next: a poll that finds nothing is so short that a second
        // reading would be a fifth of it.
        let mut from = started;
        while !mailbox.is_full() || mailbox.exchange(&mut self.graph, &mut self.arena) {
            self.arena.set_now(u32::try_from(from.saturating_sub(started) / second).unwrap_or(u32::MAX));
            let packets = self.turn();
            self.stats.turns.add(1);
            let now = cycles();
            let spent = if packets > 0 { &self.stats.busy } else { &self.stats.empty_poll };
            spent.add(now.saturating_sub(from));
            from = now;
            if packets > 0 {
                last_packet = now;
            } else if self.idle == Idle::Sleep && now.saturating_sub(last_packet) > linger {
                from = self.sleep(now);
                last_packet = from;
            } else {
                std::hint::spin_loop();
            }
            self.stats.upto.add(from.wrapping_sub(self.stats.upto.get()));
        }
    }

    /// One turn; returns how many packets it took.
    pub fn turn(&mut self) -> usize {
        let graph = &mut self.graph;
        let before = self.arena.bodies();
        let packets = self.arena.turn(|turn| graph.run(turn));
        let bodies = self.arena.bodies();
        if bodies != before {
            self.stats.bodies_copied.add(bodies.copied - before.copied);
            self.stats.bodies_delivered.add(bodies.delivered - before.delivered);
        }
        packets
    }

    /// Asks for kicks, makes sure that none is missed, waits for one. Returns the time.
    fn sleep(&mut self, from: u64) -> u64 {
        let graph = &self.graph;
        if !self.arena.turn(|turn| graph.arm(turn)) {
            self.stats.asleep_since.add(from);
            if let Err(error) = self.sleeper.wait(NAP) {
                // Without a wait there is only polling; it works, and costs a CPU.
                debug_assert!(false, "epoll_wait: {error}");
            }
            self.stats.asleep_since.add(0_u64.wrapping_sub(from));
        }
        self.arena.turn(|turn| graph.disarm(turn));
        let now = cycles();
        self.stats.idle.add(now.saturating_sub(from));
        now
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and far below 2^64")]
fn in_cycles(time: Duration, hertz: f64) -> u64 {
    (time.as_secs_f64() * hertz) as u64
}
