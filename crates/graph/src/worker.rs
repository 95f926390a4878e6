//! The thread that runs turns: polls while there is work, sleeps when there is none.

use std::sync::Arc;
use std::time::Duration;

use straightline_packet::Arena;
use straightline_port::{EpollWaiter, Signals};

use crate::clock::{cycles, hertz};
use crate::{Graph, Mailbox, Progress, WorkerStats};

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
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(50);

/// The longest sleep. Nothing depends on it: kicks and `EpollWaiter::wake` wake a worker; a second bounds what a lost one costs.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// A graph, and the loop that runs it.
pub struct Worker {
    graph: Graph,
    arena: Arena,
    waiter: Arc<EpollWaiter>,
    stats: Arc<WorkerStats>,
    idle: Idle,
    /// Of the thread that will run it.
    signals: Option<Signals>,
    progress: Arc<Progress>,
}

impl Worker {
    /// A worker that has not run yet.
    pub fn new(graph: Graph, arena: Arena, waiter: Arc<EpollWaiter>, stats: Arc<WorkerStats>, idle: Idle) -> Self {
        // Made here and not in the worker's thread, so that the caller learns whether the kernel gave a context.
        let signals = Some(Signals::new());
        let progress = Arc::new(Progress::new(arena.watch(), graph.names()));
        Worker { graph, arena, waiter, stats, idle, signals, progress }
    }

    /// Its turns, for a watchdog.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Whether the worker notifies guests itself. If not, helper threads of the ports do.
    pub fn signals_itself(&self) -> bool {
        self.signals.as_ref().is_none_or(Signals::has_context)
    }

    /// Runs turns until the mailbox says to stop, on whatever work it finds there. Whoever puts something into it rings
    /// the waiter.
    pub fn run(&mut self, mailbox: &Mailbox) {
        let _notice = mailbox.announce_exit();
        if let Some(signals) = self.signals.take() {
            signals.install();
        }
        let hertz = hertz();
        let poll_before_sleep = in_cycles(POLL_BEFORE_SLEEP, hertz);
        let second = in_cycles(Duration::from_secs(1), hertz).max(1);
        let started = cycles();
        self.stats.started.add(started);
        self.stats.updated.add(started);
        let mut last_packet = started;
        // One reading ends a stretch of time and begins the next: a poll that finds nothing is so short that a second
        // reading would be a fifth of it.
        let mut from = started;
        while !mailbox.is_full() || self.exchange(mailbox) {
            self.arena.set_now(u32::try_from(from.saturating_sub(started) / second).unwrap_or(u32::MAX));
            let packets = self.turn();
            self.stats.turns.add(1);
            let now = cycles();
            let spent = if packets > 0 { &self.stats.busy } else { &self.stats.empty_poll };
            spent.add(now.saturating_sub(from));
            from = now;
            if packets > 0 {
                last_packet = now;
            } else if self.idle == Idle::Sleep && now.saturating_sub(last_packet) > poll_before_sleep {
                from = self.sleep(now);
                last_packet = from;
            } else {
                std::hint::spin_loop();
            }
            self.stats.updated.add(from.wrapping_sub(self.stats.updated.get()));
        }
    }

    /// Takes new work, if there is any; `false` when the worker is to end.
    #[cold]
    fn exchange(&mut self, mailbox: &Mailbox) -> bool {
        let goes_on = mailbox.exchange(&mut self.graph, &mut self.arena);
        self.progress.set_names(self.graph.names());
        goes_on
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
        if packets > 0 {
            self.arena.begin_round();
        }
        packets
    }

    /// Asks for kicks, makes sure that none is missed, waits for one. Returns the time.
    ///
    /// Packets that were left for want of room keep nobody awake, if they were tried after the last news of room, or after
    /// anything moved: a ring tells of room once, and a turn may be full before it comes to those who wait for it. Where there
    /// is no news, each turn goes on where the one before was full, until all have been tried.
    fn sleep(&mut self, from: u64) -> u64 {
        let graph = &self.graph;
        let (packets, room) = self.arena.turn(|turn| graph.arm(turn));
        if room || !packets {
            self.arena.begin_round();
        }
        if !packets && !room {
            self.stats.asleep_since.add(from);
            if let Err(error) = self.waiter.wait(MAX_SLEEP) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Next, Node};
    use std::sync::atomic::{AtomicBool, Ordering};

    use straightline_packet::{Batch, Packets, PortIndex, Rcu, Settings, Turn};
    use straightline_port::Port;

    /// Has whatever it is port_under_test to have.
    #[derive(Debug, Default)]
    struct ScriptedPort {
        packets: AtomicBool,
        room: AtomicBool,
    }

    impl Port for ScriptedPort {
        fn name(&self) -> &'static str {
            "told"
        }

        fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
            if self.packets.load(Ordering::Relaxed) {
                into.push(turn.accept_owned(PortIndex(0), &[0; 60]).expect("room"));
            }
        }

        fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

        fn arm(&self, _turn: &Turn<'_>, room: bool) -> bool {
            if room { &self.room } else { &self.packets }.load(Ordering::Relaxed)
        }

        fn disarm(&self, _turn: &Turn<'_>, _room: bool) {}
    }

    struct Pass;

    impl Node for Pass {
        fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
            next.extend(0, batch.ids());
        }
    }

    #[test]
    fn a_round_ends_with_what_moves_with_news_of_room_and_with_a_sleep() {
        let port_under_test = Arc::new(ScriptedPort::default());
        let port = || Arc::clone(&port_under_test) as Arc<dyn Port>;
        let mut graph = Graph::new();
        let end = graph.output(port(), true);
        let pass = graph.node("pass", Box::new(Pass), &[end]);
        graph.input(port(), pass);
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let mut worker = Worker::new(graph, arena, Arc::clone(&waiter), Arc::default(), Idle::Sleep);
        let mut before = 0;
        let mut began = |worker: &mut Worker| {
            let round = worker.arena.turn(|turn| turn.round());
            std::mem::replace(&mut before, round) != round
        };
        assert!(worker.turn() == 0 && !began(&mut worker), "nothing came");
        port_under_test.packets.store(true, Ordering::Relaxed);
        assert!(worker.turn() == 1 && began(&mut worker), "something moved");
        worker.sleep(0);
        assert!(!began(&mut worker), "there are packets that nobody has tried");
        port_under_test.room.store(true, Ordering::Relaxed);
        worker.sleep(0);
        assert!(began(&mut worker), "there is room, and packets");
        port_under_test.packets.store(false, Ordering::Relaxed);
        worker.sleep(0);
        assert!(began(&mut worker), "there is room");
        port_under_test.room.store(false, Ordering::Relaxed);
        waiter.wake();
        worker.sleep(0);
        assert!(began(&mut worker), "it has slept");
    }
}
