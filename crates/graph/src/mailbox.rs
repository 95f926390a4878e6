//! The mailbox by which control reaches a worker between two turns. It costs the worker one relaxed
//! load a turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use straightline_packet::{Arena, Drops, IgnorePoison, Level, Observer, ObserverId};

use crate::Graph;

/// The work of a worker: a graph, and the settings of its arena that go with it.
#[derive(Debug)]
pub struct Work {
    /// Graph that the worker runs.
    pub graph: Graph,
    /// Drop counters of every port, by its index.
    pub drops: Vec<Arc<Drops>>,
    /// Number of ports that a packet may be copied to. This number divides the bytes that a turn
    /// accepts.
    pub fan_out: u32,
    /// How bytes are copied.
    pub level: Level,
}

/// A change of the observers that see a worker's packets.
pub enum Observation {
    /// An observer is to see all packets from now on.
    Begin(ObserverId, Box<dyn Observer>),
    /// An observer is to see no packets any more.
    End(ObserverId),
}

impl std::fmt::Debug for Observation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Observation::Begin(id, _) => f.debug_tuple("Begin").field(id).finish(),
            Observation::End(id) => f.debug_tuple("End").field(id).finish(),
        }
    }
}

/// A mailbox of one worker, in which control posts new work and gets the old work back. Control also
/// posts changes of observers there.
///
/// Control posts work, and then wakes the worker by its [`crate::EpollWaiter`]. The
/// worker takes the new work before its next turn, when it holds no packet. Once [`Self::wait`]
/// returns the old work, the worker uses it no more.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Mailbox {
    /// True if there is new work or a request to stop. The lock orders the contents, so relaxed
    /// accesses are enough.
    full: AtomicBool,
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    new: Option<Work>,
    old: Option<Work>,
    /// Changes of observers that the worker has not made yet.
    observations: Vec<Observation>,
    /// Removed observers. Control frees their memory.
    removed: Vec<RemovedObserver>,
    stop: bool,
    ended: bool,
}

/// An observer that no worker has any more.
struct RemovedObserver(#[expect(dead_code, reason = "kept to be dropped by control")] Box<dyn Observer>);

impl std::fmt::Debug for RemovedObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RemovedObserver")
    }
}

impl Mailbox {
    /// Posts a change of observers. [`Self::wait_observed`] must follow.
    pub fn observe(&self, change: Observation) {
        self.lock().observations.push(change);
        self.full.store(true, Ordering::Relaxed);
    }

    /// Waits until the worker has made the changes that were posted. Drops the observers that were
    /// removed. Returns `false` if the worker has ended.
    pub fn wait_observed(&self) -> bool {
        let mut state = self.lock();
        while !state.observations.is_empty() && !state.ended {
            state = self.done.wait(state).ignore_poison();
        }
        let removed = std::mem::take(&mut state.removed);
        let runs = !state.ended;
        drop(state);
        drop(removed);
        runs
    }

    /// Posts work. [`Self::wait`] must follow before the next post.
    pub fn post(&self, work: Work) {
        self.lock().new = Some(work);
        self.full.store(true, Ordering::Relaxed);
    }

    /// Waits until the worker has taken the posted work. Returns its former work, or `None` if the
    /// worker has ended.
    pub fn wait(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some(old) = state.old.take() {
                return Some(old);
            }
            if state.ended {
                return None;
            }
            state = self.done.wait(state).ignore_poison();
        }
    }

    /// Asks the worker to end.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.full.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Exchanges the worker's work for the posted one, if there is any. Returns `false` if the
    /// worker is to end.
    #[cold]
    pub(crate) fn exchange(&self, graph: &mut Graph, arena: &mut Arena) -> bool {
        let mut state = self.lock();
        self.full.store(false, Ordering::Relaxed);
        if let Some(mut work) = state.new.take() {
            std::mem::swap(graph, &mut work.graph);
            (work.drops, work.fan_out) = arena.change(work.drops, work.fan_out);
            work.level = arena.change_level(work.level);
            state.old = Some(work);
            self.done.notify_all();
        }
        for change in std::mem::take(&mut state.observations) {
            match change {
                Observation::Begin(id, observer) => arena.add_observer(id, observer),
                Observation::End(id) => {
                    let removed = arena.remove_observer(id).map(RemovedObserver);
                    state.removed.extend(removed);
                }
            }
            self.done.notify_all();
        }
        !state.stop
    }

    /// Returns a guard of the worker. When it is dropped, also by a panic, control learns that the
    /// worker has ended.
    pub(crate) fn announce_exit(&self) -> impl Drop + '_ {
        struct ExitNotice<'a>(&'a Mailbox);
        impl Drop for ExitNotice<'_> {
            fn drop(&mut self) {
                self.0.lock().ended = true;
                self.0.done.notify_all();
            }
        }
        ExitNotice(self)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use straightline_packet::{Batch, PacketId, Packets, PortIndex, Rcu, Reason, Settings, Turn};

    use super::*;
    use crate::{EpollWaiter, Idle, Next, Node, Null, Port, Worker, WorkerStats};

    struct Nothing;
    impl Node for Nothing {
        fn process(&mut self, _packets: &mut Packets<'_>, _batch: &Batch, _next: &mut Next<'_>) {}
    }

    fn work(name: &str, fan_out: u32, earlier: Vec<Arc<crate::NodeStats>>) -> Work {
        let mut graph = Graph::continuing(earlier);
        let node = graph.node(name, Box::new(Nothing), &[]);
        graph.input(Arc::new(Null::new("in")) as Arc<dyn Port>, node);
        Work { graph, drops: vec![Arc::default(); 3], fan_out, level: Level::Scalar }
    }

    /// Starts a worker. Returns its mailbox, its waiter and its thread.
    fn worker(idle: Idle) -> (Arc<Mailbox>, Arc<EpollWaiter>, std::thread::JoinHandle<()>) {
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
        let mut worker = Worker::new(Graph::new(), arena, Arc::clone(&waiter), Arc::<WorkerStats>::default(), idle);
        let mailbox = Arc::<Mailbox>::default();
        let seen = Arc::clone(&mailbox);
        (mailbox, waiter, std::thread::spawn(move || worker.run(&seen)))
    }

    #[test]
    fn work_is_exchanged_and_the_old_comes_back() {
        for idle in [Idle::Sleep, Idle::Spin] {
            let (mailbox, waiter, thread) = worker(idle);
            let mut before = (1, 0);
            for round in 0..100 {
                mailbox.post(work(&format!("n{round}"), 2 + round, Vec::new()));
                waiter.wake();
                let old = mailbox.wait().expect("it runs");
                assert_eq!((old.fan_out, old.drops.len()), before);
                let names: Vec<_> = old.graph.stats().iter().map(|node| node.name.clone()).collect();
                assert_eq!(names.contains(&format!("n{}", round.wrapping_sub(1))), round > 0, "{names:?}");
                before = (2 + round, 3);
            }
            mailbox.stop();
            waiter.wake();
            thread.join().expect("it ended");
            mailbox.post(work("late", 0, Vec::new()));
            assert!(mailbox.wait().is_none(), "the worker has ended");
        }
    }

    struct Counter(Arc<AtomicBool>);

    impl Observer for Counter {
        fn received(&mut self, _: &Turn<'_>, _: PortIndex, _: &[PacketId]) {}
        fn delivered(&mut self, _: &Turn<'_>, _: PortIndex, _: &[PacketId]) {}
        fn dropped(&mut self, _: &Turn<'_>, _: PortIndex, _: PacketId, _: Reason) {}
        fn turn_ended(&mut self, _: &Turn<'_>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn observers_begin_and_end_while_the_worker_runs() {
        let (mailbox, waiter, thread) = worker(Idle::Spin);
        let seen = Arc::new(AtomicBool::new(false));
        let id = ObserverId(3);
        mailbox.observe(Observation::Begin(id, Box::new(Counter(Arc::clone(&seen)))));
        waiter.wake();
        assert!(mailbox.wait_observed());
        // New work leaves observers alone.
        mailbox.post(work("n", 1, Vec::new()));
        waiter.wake();
        assert!(mailbox.wait().is_some());
        seen.store(false, Ordering::Relaxed);
        while !seen.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        mailbox.observe(Observation::End(id));
        waiter.wake();
        assert!(mailbox.wait_observed());
        assert_eq!(Arc::strong_count(&seen), 1, "the observer is dropped");
        mailbox.stop();
        waiter.wake();
        thread.join().expect("it ended");
        mailbox.observe(Observation::End(id));
        assert!(!mailbox.wait_observed(), "the worker has ended");
    }

    #[test]
    fn nodes_of_the_same_name_go_on_counting() {
        let first = work("n", 0, Vec::new()).graph.stats();
        let second = work("n", 0, first.clone()).graph.stats();
        assert_eq!(first.len(), 3);
        assert!(first.iter().zip(&second).all(|(a, b)| Arc::ptr_eq(a, b)));
        let other = work("m", 0, first.clone()).graph.stats();
        assert_eq!(other.iter().filter(|node| first.iter().any(|was| Arc::ptr_eq(was, node))).count(), 2);
    }
}
