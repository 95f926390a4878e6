//! The worker: a thread that runs turns, polls while there is work, and sleeps while there is none.

use std::sync::Arc;
use std::time::Duration;

use straightline_packet::Arena;

use crate::clock::{cycles, hertz, in_cycles, nanoseconds};
use crate::{Clock, EpollWaiter, Graph, Mailbox, Progress, Signals, WorkerStats};

/// The behaviour of a worker that finds no packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls for 50 µs, then asks for kicks and sleeps.
    #[default]
    Sleep,
    /// Polls all the time.
    Spin,
}

/// Time that a worker polls before it sleeps. It equals about the cost of one sleep and wake-up. So
/// waiting costs at most twice the minimum, no matter when the next packet comes.
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(50);

/// Longest sleep. Kicks and `EpollWaiter::wake` wake a worker earlier. A lost kick costs a second
/// at most.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// A worker does not sleep if packets may pass a rate again within this time: to sleep and wake takes as
/// long.
const MIN_SLEEP: Duration = Duration::from_micros(30);

/// A graph, its arena, and the loop that runs turns.
pub struct Worker {
    graph: Graph,
    arena: Arena,
    waiter: Arc<EpollWaiter>,
    stats: Arc<WorkerStats>,
    idle: Idle,
    /// Notification context of the thread that will run the worker; taken by that thread.
    signals: Option<Signals>,
    progress: Arc<Progress>,
    /// Shows the time of turns in whole seconds. Rates and counters of time use the time-stamp counter.
    clock: Clock,
}

impl Worker {
    /// Creates a worker that does not run yet.
    pub fn new(graph: Graph, arena: Arena, waiter: Arc<EpollWaiter>, stats: Arc<WorkerStats>, idle: Idle) -> Self {
        // Created here and not in the worker's thread, so that the caller learns whether the kernel
        // granted a context.
        let signals = Some(Signals::new());
        let progress = Arc::new(Progress::new(arena.watch(), graph.names()));
        Worker { graph, arena, waiter, stats, idle, signals, progress, clock: Clock::real() }
    }

    /// Returns the worker with the time of this clock in its turns.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        clock.wake_worker(&self.waiter);
        Worker { clock, ..self }
    }

    /// Returns the progress of the worker's turns, for a watchdog.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Returns whether the worker notifies guests itself. If not, helper threads of the ports do
    /// it.
    pub fn signals_itself(&self) -> bool {
        self.signals.as_ref().is_none_or(Signals::has_context)
    }

    /// Takes the memory of its turns anew, on the NUMA node of the calling thread's CPU. Call it
    /// before [`Self::run`], on the worker's CPU.
    pub fn settle(&mut self) {
        self.arena.settle();
    }

    /// Runs turns until the mailbox says stop, with the work that control posts there. After a
    /// post, control must wake the waiter.
    pub fn run(&mut self, mailbox: &Mailbox) {
        let _notice = mailbox.announce_exit();
        if let Some(signals) = self.signals.take() {
            signals.install();
        }
        let hertz = hertz();
        let poll_before_sleep = in_cycles(POLL_BEFORE_SLEEP, hertz);
        let started = cycles();
        self.stats.started.add(started);
        self.stats.updated.add(started);
        let mut last_packet = started;
        // One reading of the counter ends a period and begins the next. A poll without packets is
        // so short that a second reading would take a fifth of it.
        let mut from = started;
        while !mailbox.is_full() || self.exchange(mailbox) {
            self.arena.set_now(self.clock.seconds_at(from));
            let packets = self.turn();
            self.stats.turns.add(1);
            let now = cycles();
            let spent = if packets > 0 { &self.stats.busy } else { &self.stats.empty_poll };
            spent.add(now.saturating_sub(from));
            from = now;
            if packets > 0 {
                // Packets that waited for their rate are followed by others when there are tokens again.
                if !self.graph.waits_only() {
                    last_packet = now;
                }
            } else if self.idle == Idle::Sleep && now.saturating_sub(last_packet) > poll_before_sleep {
                let longest = self.longest_sleep(now);
                if longest > MIN_SLEEP {
                    from = self.sleep(now, longest);
                    if longest == MAX_SLEEP || from.saturating_sub(now) < in_cycles(longest, hertz) {
                        last_packet = from;
                    }
                }
            } else {
                std::hint::spin_loop();
            }
            self.stats.updated.add(from.wrapping_sub(self.stats.updated.get()));
        }
    }

    /// Takes new work from the mailbox if there is any. Returns `false` if the worker is to end.
    #[cold]
    fn exchange(&mut self, mailbox: &Mailbox) -> bool {
        let goes_on = mailbox.exchange(&mut self.graph, &mut self.arena);
        self.progress.set_names(self.graph.names());
        goes_on
    }

    /// Runs one turn. Returns the number of packets that moved.
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

    /// Returns the longest sleep from the time `now` on: until packets that wait for their rate may pass.
    fn longest_sleep(&self, now: u64) -> Duration {
        let until = |ready_at: u64| Duration::from_nanos(ready_at.saturating_sub(nanoseconds(now)));
        self.graph.ready_at().map_or(MAX_SLEEP, |ready_at| until(ready_at).min(MAX_SLEEP))
    }

    /// Arms kicks, and sleeps at most for `longest` if no packet has come before that. Returns the time
    /// after the sleep.
    ///
    /// A packet that waits for free buffers must not keep the worker awake, once the worker has
    /// tried it in the present round. A new round begins when packets have moved, when an output
    /// has free buffers again, and after a sleep. A destination's ring announces free buffers once.
    /// A turn may be full before it comes to the packets that wait for these buffers. Within a
    /// round, each turn continues where the last one was full, until all packets have been tried.
    fn sleep(&mut self, from: u64, longest: Duration) -> u64 {
        let graph = &mut self.graph;
        let (packets, has_buffers) = self.arena.turn(|turn| graph.arm(turn));
        if has_buffers || !packets {
            self.arena.begin_round();
        }
        if !packets && !has_buffers {
            self.stats.sleeps.add(1);
            self.stats.asleep_since.add(from);
            if let Err(error) = self.waiter.wait(longest) {
                // If the wait fails, the worker polls. That works, but costs a CPU.
                debug_assert!(false, "epoll_wait: {error}");
            }
            self.stats.asleep_since.add(0_u64.wrapping_sub(from));
        }
        let graph = &mut self.graph;
        self.arena.turn(|turn| graph.disarm(turn));
        let now = cycles();
        self.stats.idle.add(now.saturating_sub(from));
        now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use straightline_packet::{Batch, Packets, PortIndex, Rcu, Settings, Turn};

    use super::*;
    use crate::{Next, Node, Port};

    /// A port whose packets and free buffers the test sets.
    #[derive(Debug, Default)]
    struct ScriptedPort {
        packets: AtomicBool,
        has_buffers: AtomicBool,
        still_sends: AtomicBool,
    }

    impl Port for ScriptedPort {
        fn name(&self) -> &'static str {
            "told"
        }

        fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
            if self.packets.load(Ordering::Relaxed) {
                into.push(turn.accept_owned(PortIndex(0), &[0; 60]).expect("a free slot"));
            }
        }

        fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

        fn send_waiting(&self, _turn: &Turn<'_>) -> bool {
            self.still_sends.load(Ordering::Relaxed)
        }

        fn arm(&self, _turn: &Turn<'_>, has_buffers: bool) -> bool {
            if has_buffers { &self.has_buffers } else { &self.packets }.load(Ordering::Relaxed)
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
        worker.sleep(0, MAX_SLEEP);
        assert!(!began(&mut worker), "there are packets that were not tried yet");
        port_under_test.has_buffers.store(true, Ordering::Relaxed);
        worker.sleep(0, MAX_SLEEP);
        assert!(began(&mut worker), "there are free buffers, and packets");
        port_under_test.packets.store(false, Ordering::Relaxed);
        worker.sleep(0, MAX_SLEEP);
        assert!(began(&mut worker), "there are free buffers");
        port_under_test.has_buffers.store(false, Ordering::Relaxed);
        waiter.wake();
        worker.sleep(0, MAX_SLEEP);
        assert!(began(&mut worker), "it has slept");
        port_under_test.still_sends.store(true, Ordering::Relaxed);
        worker.sleep(0, MAX_SLEEP);
        assert!(!began(&mut worker), "an output has packets to send, so nobody sleeps");
    }
}
