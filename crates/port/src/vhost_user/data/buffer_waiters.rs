//! Workers that wait for free buffers of a receive ring.

/// Who waits for room in a receive ring. A ring has one wish for a kick, and where workers share it, it must be that of
/// whoever is content with the least.
#[derive(Debug)]
pub(crate) struct BufferWaiters(Vec<Waiting>);

impl Default for BufferWaiters {
    fn default() -> Self {
        // More have never been seen to share a ring; if they do, the first time costs an allocation.
        BufferWaiters(Vec::with_capacity(8))
    }
}

#[derive(Debug)]
struct Waiting {
    worker: usize,
    /// So many chains were there, and too few.
    known: u16,
    /// He is to be woken.
    is_asleep: bool,
}

impl BufferWaiters {
    /// What came of a worker's delivery: this many chains were there and too few for a packet that waits, or all is well.
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

    /// A worker sleeps if its packets wait here. Beyond how many chains somebody who sleeps is to be woken.
    pub(crate) fn sleep(&mut self, worker: usize) -> Option<u16> {
        self.0.iter_mut().find(|waiting| waiting.worker == worker)?.is_asleep = true;
        self.0.iter().filter(|waiting| waiting.is_asleep).map(|waiting| waiting.known).min()
    }

    pub(crate) fn wake(&mut self, worker: usize) {
        self.0.iter_mut().filter(|waiting| waiting.worker == worker).for_each(|waiting| waiting.is_asleep = false);
    }

    /// Only these workers still wait. Whether somebody slept, and nobody does any more.
    pub(crate) fn retain(&mut self, but_for: impl Fn(usize) -> bool) -> bool {
        let slept = self.any_asleep();
        self.0.retain(|waiting| but_for(waiting.worker));
        slept && !self.any_asleep()
    }

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
        // One finds room, the other sleeps on.
        waiters.wake(1);
        waiters.set(1, None);
        assert!(waiters.any_asleep());
        assert_eq!((waiters.sleep(1), waiters.sleep(0)), (None, Some(7)));
        // What it finds is too little again.
        waiters.wake(0);
        assert!(!waiters.any_asleep());
        waiters.set(0, Some(9));
        assert_eq!(waiters.sleep(0), Some(9));
        // One of them delivers no more.
        waiters.set(1, Some(3));
        assert_eq!(waiters.sleep(1), Some(3));
        assert!(!waiters.retain(|worker| worker == 0) && waiters.any_asleep(), "the other sleeps on");
        assert_eq!((waiters.sleep(1), waiters.sleep(0)), (None, Some(9)));
        assert!(waiters.retain(|_| false) && waiters.0.is_empty());
    }
}
