//! Workers that wait for free buffers of a receive ring.

/// Workers whose packets wait for free buffers of one receive ring (`full = "wait"`).
///
/// A ring has one event index, so its driver kicks at one threshold. Where several workers share
/// the ring, the threshold must be the lowest of all workers that sleep.
#[derive(Debug)]
pub(crate) struct BufferWaiters(Vec<Waiting>);

impl Default for BufferWaiters {
    fn default() -> Self {
        // More than 8 workers have never been seen to share a ring. If they do, the first time
        // costs an allocation.
        BufferWaiters(Vec::with_capacity(8))
    }
}

#[derive(Debug)]
struct Waiting {
    worker: usize,
    /// The chains that were available when they were too few for the worker's packet.
    known: u16,
    /// The worker sleeps and must be woken by a kick.
    is_asleep: bool,
}

impl BufferWaiters {
    /// Records the outcome of a worker's delivery. `short` is the number of chains that were too
    /// few for a packet that now waits, or `None` if no packet waits.
    #[inline]
    pub(crate) fn set(&mut self, worker: usize, short: Option<u16>) {
        if short.is_some() || !self.0.is_empty() {
            self.note(worker, short);
        }
    }

    #[cold]
    fn note(&mut self, worker: usize, short: Option<u16>) {
        self.0.retain(|waiting| waiting.worker != worker);
        self.0.extend(short.map(|known| Waiting { worker, known, is_asleep: false }));
    }

    /// Notes that a worker goes to sleep, if its packets wait here. Returns the number of chains
    /// above which a sleeping worker must be woken, or `None` if this worker's packets do not wait.
    pub(crate) fn sleep(&mut self, worker: usize) -> Option<u16> {
        self.0.iter_mut().find(|waiting| waiting.worker == worker)?.is_asleep = true;
        self.0.iter().filter(|waiting| waiting.is_asleep).map(|waiting| waiting.known).min()
    }

    /// Notes that a worker is awake. Its packets still wait for free buffers.
    pub(crate) fn wake(&mut self, worker: usize) {
        self.0.iter_mut().filter(|waiting| waiting.worker == worker).for_each(|waiting| waiting.is_asleep = false);
    }

    /// Keeps only workers for which `but_for` is true. Returns true if a worker slept before and
    /// none sleeps now.
    pub(crate) fn retain(&mut self, but_for: impl Fn(usize) -> bool) -> bool {
        let slept = self.any_asleep();
        self.0.retain(|waiting| but_for(waiting.worker));
        slept && !self.any_asleep()
    }

    /// Returns whether any waiting worker sleeps.
    pub(crate) fn any_asleep(&self) -> bool {
        self.0.iter().any(|waiting| waiting.is_asleep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_who_wait_for_room_the_one_content_with_least_is_woken_first() {
        let mut waiters = BufferWaiters::default();
        waiters.set(0, None);
        assert_eq!((waiters.sleep(0), waiters.any_asleep()), (None, false), "nobody waits");
        waiters.set(0, Some(7));
        waiters.set(1, Some(3));
        assert_eq!(waiters.sleep(0), Some(7), "the other polls still");
        assert_eq!((waiters.sleep(1), waiters.sleep(0)), (Some(3), Some(3)));
        // One finds free buffers, the other sleeps on.
        waiters.wake(1);
        waiters.set(1, None);
        assert!(waiters.any_asleep());
        assert_eq!((waiters.sleep(1), waiters.sleep(0)), (None, Some(7)));
        // The buffers that it finds are too few again.
        waiters.wake(0);
        assert!(!waiters.any_asleep());
        waiters.set(0, Some(9));
        assert_eq!(waiters.sleep(0), Some(9));
        // One of the workers does not deliver any more.
        waiters.set(1, Some(3));
        assert_eq!(waiters.sleep(1), Some(3));
        assert!(!waiters.retain(|worker| worker == 0) && waiters.any_asleep(), "the other sleeps on");
        assert_eq!((waiters.sleep(1), waiters.sleep(0)), (None, Some(9)));
        assert!(waiters.retain(|_| false) && waiters.0.is_empty());
    }
}
