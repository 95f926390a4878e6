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
    sleeps: bool,
}

impl BufferWaiters {
    /// What came of a worker's delivery: this many chains were there and too few for a packet that waits, or all is well.
    #[inline]
    pub(crate) fn wants(&mut self, worker: usize, short: Option<u16>) {
        if short.is_some() || !self.0.is_empty() {
            self.note(worker, short);
        }
    }

    #[cold]
    fn note(&mut self, worker: usize, short: Option<u16>) {
        self.0.retain(|waiting| waiting.worker != worker);
        self.0.extend(short.map(|known| Waiting { worker, known, sleeps: false }));
    }

    /// A worker sleeps if its packets wait here. Beyond how many chains somebody who sleeps is to be woken.
    pub(crate) fn sleeps(&mut self, worker: usize) -> Option<u16> {
        self.0.iter_mut().find(|waiting| waiting.worker == worker)?.sleeps = true;
        self.0.iter().filter(|waiting| waiting.sleeps).map(|waiting| waiting.known).min()
    }

    pub(crate) fn wakes(&mut self, worker: usize) {
        self.0.iter_mut().filter(|waiting| waiting.worker == worker).for_each(|waiting| waiting.sleeps = false);
    }

    /// Only these workers still wait. Whether somebody slept, and nobody does any more.
    pub(crate) fn forget(&mut self, but_for: impl Fn(usize) -> bool) -> bool {
        let slept = self.any_sleeps();
        self.0.retain(|waiting| but_for(waiting.worker));
        slept && !self.any_sleeps()
    }

    pub(crate) fn any_sleeps(&self) -> bool {
        self.0.iter().any(|waiting| waiting.sleeps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_who_wait_for_room_the_one_content_with_least_is_woken_first() {
        let mut room = BufferWaiters::default();
        room.wants(0, None);
        assert_eq!((room.sleeps(0), room.any_sleeps()), (None, false), "nobody waits");
        room.wants(0, Some(7));
        room.wants(1, Some(3));
        assert_eq!(room.sleeps(0), Some(7), "the other polls still");
        assert_eq!((room.sleeps(1), room.sleeps(0)), (Some(3), Some(3)));
        // One finds room, the other sleeps on.
        room.wakes(1);
        room.wants(1, None);
        assert!(room.any_sleeps());
        assert_eq!((room.sleeps(1), room.sleeps(0)), (None, Some(7)));
        // What it finds is too little again.
        room.wakes(0);
        assert!(!room.any_sleeps());
        room.wants(0, Some(9));
        assert_eq!(room.sleeps(0), Some(9));
        // One of them delivers no more.
        room.wants(1, Some(3));
        assert_eq!(room.sleeps(1), Some(3));
        assert!(!room.forget(|worker| worker == 0) && room.any_sleeps(), "the other sleeps on");
        assert_eq!((room.sleeps(1), room.sleeps(0)), (None, Some(9)));
        assert!(room.forget(|_| false) && room.0.is_empty());
    }
}
