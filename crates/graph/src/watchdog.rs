//! The watchdog: it notices stalled workers, whose turn does not end.
//!
//! A turn takes microseconds. A long turn waits for the kernel. The kernel works on something that
//! a guest's frontend can influence: memory that is swapped out or removed, or an eventfd with a
//! million watchers. During that time the worker serves no other port, so an operator must learn
//! the port that causes the stall.
//!
//! A thread calls [`Watchdog::look`] every [`Watchdog::PERIOD`]. A worker that waits for the kernel
//! looks to the watchdog like one that the kernel does not run. A virtual machine has such stalls,
//! too, when the host takes its processors away.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use straightline_packet::{IgnorePoison, Served, TurnWatch};

/// The progress of a worker's turns, for a watchdog.
#[derive(Debug)]
pub struct Progress {
    watch: TurnWatch,
    names: Mutex<Names>,
}

/// The names of the ports and nodes of a graph. The graph and the watchdog share them, because a
/// worker hands them over between two turns.
pub(crate) type Names = Arc<Vec<(Served, String)>>;

impl Progress {
    pub(crate) fn new(watch: TurnWatch, names: Names) -> Self {
        Progress { watch, names: Mutex::new(names) }
    }

    /// Sets the names of the worker's new graph.
    pub(crate) fn set_names(&self, names: Names) {
        *self.names.lock().ignore_poison() = names;
    }

    fn name(&self, served: Served) -> String {
        let names = self.names.lock().ignore_poison();
        names.iter().find(|(known, _)| *known == served).map_or_else(String::new, |(_, name)| name.clone())
    }
}

/// A turn that took too long, and may still last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Index of the worker among those that are watched.
    pub worker: usize,
    /// Port or node that the worker served when the stall was noticed; empty if none.
    pub port: String,
    /// Port whose packets cost the turn most, if some were sent by system calls or copied several
    /// times; else empty.
    pub source: String,
}

/// A watchdog over the turns of several workers.
#[derive(Debug)]
pub struct Watchdog(Vec<Watched>);

#[derive(Debug)]
struct Watched {
    progress: Arc<Progress>,
    /// Turn that was under way at the last look, the time of the first look that saw it, and
    /// whether it was reported.
    turn: Option<(u64, Instant, bool)>,
}

impl Watchdog {
    /// Duration from which on a turn is a stall.
    pub const LIMIT: Duration = Duration::from_millis(100);

    /// Time between two looks. A stall is noticed after the limit and at most two periods more.
    pub const PERIOD: Duration = Duration::from_millis(50);

    /// Creates a watchdog over these workers.
    pub fn new(workers: Vec<Arc<Progress>>) -> Self {
        Watchdog(workers.into_iter().map(|progress| Watched { progress, turn: None }).collect())
    }

    /// Looks at all workers, and returns the stalls that are new. Each turn is reported once.
    pub fn look(&mut self, now: Instant) -> Vec<Stall> {
        let stalls = self.0.iter_mut().enumerate().filter_map(|(worker, watched)| {
            let Some((turn, served, source)) = watched.progress.watch.look() else {
                watched.turn = None;
                return None;
            };
            match &mut watched.turn {
                Some((known, since, reported)) if *known == turn => {
                    if *reported || now.saturating_duration_since(*since) < Self::LIMIT {
                        return None;
                    }
                    *reported = true;
                    let [port, source] = [served, source].map(|served| watched.progress.name(served));
                    Some(Stall { worker, port, source })
                }
                other => {
                    *other = Some((turn, now, false));
                    None
                }
            }
        });
        stalls.collect()
    }

    /// Returns the number of workers whose turn was a stall at the last look, and still lasted.
    pub fn stalled(&self) -> usize {
        self.0.iter().filter(|watched| matches!(watched.turn, Some((_, _, true)))).count()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use straightline_packet::{Arena, Batch, Level, Packets, PortIndex, Rcu, Settings, Turn};

    use super::*;
    use crate::{
        Clock, EpollWaiter, Graph, Idle, Mailbox, Next, Node, NodeIndex, Null, Port, Work, Worker, WorkerStats,
    };

    /// A barrier: each call announces that it is reached, and waits until it is released.
    #[derive(Debug)]
    struct Barrier {
        reached: Sender<()>,
        release: Mutex<Receiver<()>>,
    }

    impl Barrier {
        fn new() -> (Self, Receiver<()>, Sender<()>) {
            let ((reached, is_reached), (release, released)) = (channel(), channel());
            (Barrier { reached, release: Mutex::new(released) }, is_reached, release)
        }

        fn pass(&self) {
            // At the end of the test, both channels are closed.
            let _ = self.reached.send(());
            let _ = self.release.lock().expect("one thread at a time").recv();
        }
    }

    /// A port with an index, which waits at the barrier in each call.
    #[derive(Debug)]
    struct Slow(Barrier);

    impl Port for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn index(&self) -> Option<PortIndex> {
            Some(PortIndex(7))
        }

        fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {
            self.0.pass();
        }

        fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

        fn arm(&self, _turn: &Turn<'_>, _room: bool) -> bool {
            false
        }

        fn disarm(&self, _turn: &Turn<'_>, _room: bool) {}
    }

    /// A port without an index, which always has a packet.
    #[derive(Debug)]
    struct Full;

    impl Port for Full {
        fn name(&self) -> &'static str {
            "full"
        }

        fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, _max: usize) {
            into.push(turn.accept_owned(PortIndex(0), &[0; 60]).expect("a free slot"));
        }

        fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {}

        fn arm(&self, _turn: &Turn<'_>, _room: bool) -> bool {
            true
        }

        fn disarm(&self, _turn: &Turn<'_>, _room: bool) {}
    }

    struct SlowNode(Barrier);

    impl Node for SlowNode {
        fn process(&mut self, _packets: &mut Packets<'_>, _batch: &Batch, _next: &mut Next<'_>) {
            self.0.pass();
        }
    }

    struct Nothing;

    impl Node for Nothing {
        fn process(&mut self, _packets: &mut Packets<'_>, _batch: &Batch, _next: &mut Next<'_>) {}
    }

    fn worker(graph: Graph, waiter: &Arc<EpollWaiter>) -> Worker {
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
        Worker::new(graph, arena, Arc::clone(waiter), Arc::default(), Idle::Sleep)
    }

    fn waiter() -> Arc<EpollWaiter> {
        Arc::new(EpollWaiter::new().expect("epoll"))
    }

    /// Runs a worker whose third turn stays at the barrier, and looks at it.
    fn names_the_port_that_is_slow(graph: Graph, reached: &Receiver<()>, release: Sender<()>, name: &str) {
        let mut worker = worker(graph, &waiter());
        let mut watchdog = Watchdog::new(vec![worker.progress()]);
        let start = Clock::moved().now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(watchdog.look(at(0)), [], "it has not begun");
        let thread = std::thread::spawn(move || {
            for _ in 0..3 {
                worker.turn();
            }
        });
        for _ in 0..2 {
            reached.recv().expect("it is at the barrier");
            assert_eq!(watchdog.look(at(0)), []);
            release.send(()).expect("it waits");
        }
        reached.recv().expect("it is at the barrier");
        assert_eq!(watchdog.look(at(1000)), [], "another turn than at the last look");
        assert_eq!(watchdog.look(at(1099)), [], "it does not last long enough");
        let stall = Stall { worker: 0, port: name.to_owned(), source: String::new() };
        assert_eq!(watchdog.look(at(1100)), [stall]);
        assert_eq!(watchdog.look(at(5000)), [], "each turn once");
        drop(release);
        thread.join().expect("it ended");
        assert_eq!(watchdog.look(at(9000)), []);
        assert_eq!(watchdog.look(at(9500)), [], "no turn is under way");
    }

    #[test]
    fn a_port_that_holds_a_turn_up_is_named_once() {
        let (barrier, reached, release) = Barrier::new();
        let mut graph = Graph::new();
        let node = graph.node("nothing", Box::new(Nothing), &[]);
        graph.input(Arc::new(Null::new("first")), node);
        graph.input(Arc::new(Slow(barrier)), node);
        names_the_port_that_is_slow(graph, &reached, release, "slow");
    }

    #[test]
    fn a_node_that_holds_a_turn_up_is_named_once() {
        let (barrier, reached, release) = Barrier::new();
        let mut graph = Graph::new();
        let node = graph.node("bridge.lan", Box::new(SlowNode(barrier)), &[]);
        graph.input(Arc::new(Full), node);
        names_the_port_that_is_slow(graph, &reached, release, "bridge.lan");
    }

    /// A port without an index, which has many packets, and sends by calls that wait at the barrier.
    #[derive(Debug)]
    struct SlowSends(Barrier);

    impl Port for SlowSends {
        fn name(&self) -> &'static str {
            "tap0"
        }

        fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
            (0..max).for_each(|_| into.push(turn.accept_owned(PortIndex(0), &[0; 60]).expect("a free slot")));
        }

        fn deliver(&self, _turn: &mut Turn<'_>, _batch: &Batch, _wait: bool) {
            self.0.pass();
        }

        fn makes_calls(&self) -> bool {
            true
        }

        fn arm(&self, _turn: &Turn<'_>, _room: bool) -> bool {
            true
        }

        fn disarm(&self, _turn: &Turn<'_>, _room: bool) {}
    }

    #[test]
    fn the_source_of_packets_that_are_sent_by_calls_is_named() {
        names_the_source(|graph, port| graph.output(port, false));
    }

    /// A node that sends all packets along its first edge.
    struct ToFirst;

    impl Node for ToFirst {
        fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
            next.extend(0, batch.ids());
        }
    }

    /// The output delivers before another node runs.
    #[test]
    fn the_source_of_packets_that_are_sent_early_is_named() {
        names_the_source(|graph, port| {
            let later = graph.node("later", Box::new(Nothing), &[]);
            let output = graph.output(port, false);
            graph.node("mirror", Box::new(ToFirst), &[output, later])
        });
    }

    /// `add` adds the output, and the nodes on the way to it. It returns the first of them.
    fn names_the_source(add: impl FnOnce(&mut Graph, Arc<dyn Port>) -> NodeIndex) {
        let (barrier, reached, release) = Barrier::new();
        let port = Arc::new(SlowSends(barrier));
        let mut graph = Graph::new();
        let first = add(&mut graph, Arc::clone(&port) as Arc<dyn Port>);
        graph.input(Arc::new(Full), first);
        graph.input(port, first);
        let mut worker = worker(graph, &waiter());
        let mut watchdog = Watchdog::new(vec![worker.progress()]);
        let thread = std::thread::spawn(move || worker.turn());
        reached.recv().expect("it is at the barrier");
        let start = Clock::moved().now();
        assert_eq!(watchdog.look(start), []);
        let name = || "tap0".to_owned();
        assert_eq!(watchdog.look(start + Watchdog::LIMIT), [Stall { worker: 0, port: name(), source: name() }]);
        drop(release);
        thread.join().expect("it ended");
    }

    #[test]
    fn a_worker_that_sleeps_does_not_stall() {
        let waiter = waiter();
        let stats = Arc::<WorkerStats>::default();
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
        let mut worker = Worker::new(Graph::new(), arena, Arc::clone(&waiter), Arc::clone(&stats), Idle::Sleep);
        let mut watchdog = Watchdog::new(vec![worker.progress()]);
        let mailbox = Arc::<Mailbox>::default();
        let seen = Arc::clone(&mailbox);
        let thread = std::thread::spawn(move || worker.run(&seen));
        let start = Clock::moved().now();
        loop {
            let asleep = stats.asleep_since.get();
            let stalls: Vec<_> = (0..10).flat_map(|step| watchdog.look(start + step * Watchdog::LIMIT)).collect();
            // If the worker woke up in between, the watchdog may have seen a turn.
            if asleep > 0 && asleep == stats.asleep_since.get() {
                assert_eq!(stalls, []);
                break;
            }
            std::thread::yield_now();
        }
        mailbox.stop();
        waiter.wake();
        thread.join().expect("it ended");
    }

    #[test]
    fn names_are_those_of_the_graph_at_work() {
        let waiter = waiter();
        let mut worker = worker(Graph::new(), &waiter);
        let mut watchdog = Watchdog::new(vec![worker.progress()]);
        let mailbox = Arc::<Mailbox>::default();
        let seen = Arc::clone(&mailbox);
        let thread = std::thread::spawn(move || worker.run(&seen));
        let (barrier, reached, release) = Barrier::new();
        let mut graph = Graph::new();
        let node = graph.node("nothing", Box::new(Nothing), &[]);
        graph.input(Arc::new(Slow(barrier)), node);
        mailbox.post(Work { graph, drops: Vec::new(), fan_out: 1, level: Level::Scalar });
        waiter.wake();
        reached.recv().expect("it is at the barrier");
        let start = Clock::moved().now();
        assert_eq!(watchdog.look(start), []);
        assert_eq!(watchdog.look(start + Watchdog::LIMIT)[0].port, "slow");
        mailbox.stop();
        drop(release);
        waiter.wake();
        thread.join().expect("it ended");
    }
}
