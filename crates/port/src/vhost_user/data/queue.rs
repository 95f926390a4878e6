//! One virtqueue of a port, as workers and control share it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use az::SaturatingAs;
use straightline_graph::{QueueCounters, RingCounters};
use straightline_packet::{AtTurnEnd, IgnorePoison, MAX_BATCH, PortIndex, Served, SourceQueueId, Turn};
use straightline_virtio::memory::{DirtyLog, GuestMemory, fault};
use straightline_virtio::ring::{BURST, First, Ring, RingFault, Standing};

use super::buffer_waiters::BufferWaiters;
use super::queue_state::{QueueState, Wake};
use crate::notify::notifier::Notifier;
use crate::vhost_user::inbox::PortInbox;
use crate::vhost_user::ring_name::{is_transmit, ring_name};

/// The number of times that a worker retries a lock before it lets the system wait for it: longer
/// than a few bursts.
const SPINS: u32 = 1000;

/// A virtqueue: its ring, the call that notifies its driver, and its counters. It has cache lines
/// of its own, because another worker may use the neighbours.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Queue {
    inner: Mutex<QueueState>,
    /// The memory that buffers may lie in, which includes other regions than the ring's. Read only
    /// when memory has vanished somewhere.
    memory: Mutex<Arc<GuestMemory>>,
    enabled: AtomicBool,
    /// The fault epoch up to which nothing of the guest's memory has vanished.
    pub(crate) clean_epoch: AtomicU64,
    pub(crate) counters: Arc<QueueCounters>,
    /// The frontend gave no kick descriptor: no kick will come, so the ring must be polled.
    polled: AtomicBool,
    /// The ring's index.
    index: u16,
    /// The port that the ring belongs to. The turn records which port is being served.
    served: Served,
    /// Packets may stay in this ring (`full = "wait"`), so it is given back only at the turn's end.
    /// Changes only while no worker uses the port.
    waits: Arc<AtomicBool>,
    /// The inbox of the thread that watches for unanswered calls. `None` for a ring that does not
    /// say whether its driver waits.
    watcher: Option<Arc<PortInbox>>,
}

impl Queue {
    pub(crate) fn new(
        ring: Ring,
        index: u16,
        memory: Arc<GuestMemory>,
        enabled: bool,
        counters: Arc<QueueCounters>,
        waits: Arc<AtomicBool>,
        polled: bool,
    ) -> Self {
        let inner = QueueState {
            ring,
            call: None,
            wake: Wake::Call,
            buffer_waiters: BufferWaiters::default(),
            waiting_round: None,
            firsts: Box::new([First::default(); BURST]),
            most_found: 0,
            plan: Vec::with_capacity(MAX_BATCH),
            segment: Box::default(),
        };
        Queue {
            inner: Mutex::new(inner),
            memory: Mutex::new(memory),
            enabled: AtomicBool::new(enabled),
            // The memory may have vanished before the queue was made, so the first use checks it.
            clean_epoch: AtomicU64::new(u64::MAX),
            counters,
            polled: AtomicBool::new(polled),
            index,
            served: Served::Nobody,
            waits,
            watcher: None,
        }
    }

    /// Makes `watcher` learn of calls from now on. It repeats those that the driver does not
    /// answer.
    pub(crate) fn watched_by(self, watcher: Arc<PortInbox>) -> Self {
        Queue { watcher: Some(watcher), ..self }
    }

    /// Sets the port that the ring belongs to.
    pub(crate) fn of_port(self, port: PortIndex) -> Self {
        Queue { served: Served::Port(port), ..self }
    }

    /// Returns the ring's name in messages.
    #[cold]
    pub(crate) fn name(&self) -> String {
        ring_name(self.index)
    }

    /// Returns whether part of the guest's memory has vanished. For workers that take from the
    /// ring.
    ///
    /// The memory is checked only when some memory of the process has vanished since the last
    /// check. The result stays true. A report about a link that is being replaced may be lost, so
    /// each later turn must find the loss again.
    #[inline]
    pub(crate) fn has_vanished(&self, memory: &GuestMemory) -> bool {
        let epoch = fault::epoch();
        epoch != self.clean_epoch.load(Ordering::Relaxed)
            && (memory.poisoned() || {
                self.clean_epoch.store(epoch, Ordering::Relaxed);
                false
            })
    }

    /// Returns whether the ring must be polled because no kick will come.
    pub(crate) fn polled(&self) -> bool {
        self.polled.load(Ordering::Relaxed)
    }

    /// Sets whether the ring must be polled. The caller wakes workers that sleep already.
    pub(crate) fn set_polled(&self, polled: bool) {
        self.polled.store(polled, Ordering::Relaxed);
    }

    /// Locks the part that one worker uses at a time. A worker holds the lock for a burst, control
    /// for a moment.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueState> {
        match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => self.lock_after_others(),
        }
    }

    /// Spins first: the holder needs the lock for the copies of one burst, and a system call would
    /// take as long. Waits in the system only if that fails, because the holder may be preempted.
    #[cold]
    fn lock_after_others(&self) -> MutexGuard<'_, QueueState> {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            match self.inner.try_lock() {
                Ok(inner) => return inner,
                Err(TryLockError::Poisoned(error)) => return error.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.inner.lock().ignore_poison()
    }

    /// Sets the call descriptor. The driver may be waiting for just this descriptor, so it is
    /// called once, needed or not.
    pub(crate) fn set_call(&self, call: Option<Notifier>) {
        let mut inner = self.lock();
        inner.call.clone_from(&call);
        let watcher = if call.is_some() { self.watcher_after(&mut inner, true) } else { None };
        drop(inner);
        // No system call with the lock held: workers may wait for it.
        if let Some(call) = call {
            call.notify();
        }
        if let Some(watcher) = watcher {
            watcher.report_call();
        }
    }

    /// Returns the inbox to wake after buffers were given back, with a call or without one. `None`
    /// if the port's thread checks the ring by itself.
    #[inline]
    fn watcher_after(&self, inner: &mut QueueState, with_call: bool) -> Option<&PortInbox> {
        let wakes = match inner.wake {
            Wake::Never => false,
            Wake::Call => with_call,
            Wake::Movement { from } => with_call || inner.ring.used() != from,
        };
        let watcher = self.watcher.as_deref().filter(|_| wakes)?;
        // Once: the thread checks the ring and sets what wakes it next.
        inner.wake = Wake::Never;
        Some(watcher)
    }

    /// Checks whether the driver has answered its calls, and repeats the last call if `judge` says
    /// that it is due.
    ///
    /// `judge` receives the ring's standing and the number of calls that workers have sent. It
    /// returns whether the call is due, the event at which a worker wakes the port's thread next,
    /// and a result for the caller. It runs with the ring's lock held. For a ring that does not say
    /// whether its driver waits, it is not called, and the result is `None`.
    pub(crate) fn check_call<T>(&self, judge: impl FnOnce(Standing, u64) -> (bool, Wake, T)) -> Option<T> {
        let mut inner = self.lock();
        let standing = if inner.ring.poisoned() { None } else { inner.ring.standing() };
        let counters = self.counters();
        let judged = match (standing, &inner.call) {
            (Some(standing), Some(_)) => Some(judge(standing, counters.calls_sent.get())),
            _ => None,
        };
        let (is_due, wake, result) = match judged {
            Some((is_due, wake, result)) => (is_due, wake, Some(result)),
            None => (false, Wake::Call, None),
        };
        inner.wake = wake;
        let call = if is_due { inner.call.clone() } else { None };
        if call.is_some() {
            counters.calls_repeated.add(1);
        }
        drop(inner);
        if let Some(call) = call {
            call.notify();
        }
        result
    }

    /// Sets the guest's memory after it has grown or shrunk.
    pub(crate) fn set_memory(&self, memory: Arc<GuestMemory>) {
        *self.memory.lock().ignore_poison() = memory;
    }

    /// Prepares the ring for a new link. Writes into the ring are marked in `log` from now on.
    /// Packets that wait in the ring are tried again by its worker, which may be another one.
    pub(crate) fn renew(&self, log: Option<Arc<DirtyLog>>) {
        let mut inner = self.lock();
        inner.ring.set_log(log);
        inner.waiting_round = None;
    }

    /// Returns whether packets may stay in the ring (`full = "wait"`).
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Sets whether packets may pass. Takes effect with the next turn.
    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Release);
    }

    #[inline]
    pub(crate) fn enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    pub(crate) fn base(&self) -> u32 {
        self.lock().ring.base()
    }

    pub(crate) fn is_packed(&self) -> bool {
        self.lock().ring.is_packed()
    }

    pub(crate) fn size(&self) -> u16 {
        self.lock().ring.size()
    }

    /// Asks for a kick with the next chain. Returns true if there is a chain already, or if no kick
    /// will come. Packets that were left in this round because their destination is full do not
    /// count: the worker waits for free buffers there.
    pub(crate) fn arm(&self, round: u64) -> Result<bool, RingFault> {
        let mut inner = self.lock();
        // Cites vhost-user-set-vring-kick-2.
        Ok((inner.ring.arm(0)? || self.polled()) && inner.waiting_round != Some(round))
    }

    /// Asks for a kick with the next chain, if packets of this worker wait for free buffers.
    /// Returns true if there are more chains now than when they were too few. That is reported
    /// once: then the worker tries again and records whether the chains suffice.
    pub(crate) fn arm_for_buffers(&self, worker: usize) -> Result<bool, RingFault> {
        let mut inner = self.lock();
        let Some(known) = inner.buffer_waiters.sleep(worker) else { return Ok(false) };
        let more = inner.ring.arm(known)?;
        if more {
            inner.buffer_waiters.set(worker, None);
        }
        Ok(more || self.polled())
    }

    pub(crate) fn disarm(&self) {
        self.lock().ring.disarm();
    }

    /// Notes that a worker is awake again and checks for free buffers by itself. Other workers may
    /// still sleep.
    pub(crate) fn disarm_for_buffers(&self, worker: usize) {
        let mut inner = self.lock();
        inner.buffer_waiters.wake(worker);
        if !inner.buffer_waiters.any_asleep() {
            inner.ring.disarm();
        }
    }

    /// Forgets waiting workers for which `but_for` is false, because they do not deliver to this
    /// ring any more. They would not check the ring when they wake, so the driver's kick would be
    /// wasted.
    pub(crate) fn retain_buffer_waiters(&self, but_for: impl Fn(usize) -> bool) {
        let mut inner = self.lock();
        if inner.buffer_waiters.retain(but_for) {
            inner.ring.disarm();
        }
    }

    /// Returns the counters of this ring.
    #[inline]
    fn counters(&self) -> &RingCounters {
        if is_transmit(self.index) { &self.counters.rx } else { &self.counters.tx }
    }
}

impl AtTurnEnd for Queue {
    fn give_back(&self, turn: &mut Turn<'_>, source: SourceQueueId) {
        let mut inner = self.lock();
        let QueueState { ring, waiting_round, .. } = &mut *inner;
        // This happens even if the ring holds nothing any more.
        *waiting_round = None;
        if ring.outstanding() == 0 || ring.poisoned() {
            return;
        }
        if self.waits() || turn.leaves_packets() {
            // Each chain that is still outstanding has its packet; `receive` sees to that.
            let (left, bytes) = turn.roll_back(source);
            *waiting_round = (left > 0 && left == usize::from(ring.outstanding())).then(|| turn.round());
            ring.untake(left.saturating_as::<u16>().min(ring.outstanding()));
            // These packets come again, and are counted then.
            self.counters.rx.packets.take_back(left.try_into().unwrap_or(0));
            self.counters.rx.bytes.take_back(bytes);
        }
        let used = ring.outstanding();
        ring.give_back(used);
    }

    fn notify(&self) {
        let mut inner = self.lock();
        if inner.ring.poisoned() {
            return;
        }
        let is_wanted = inner.ring.must_notify();
        let counter = if is_wanted { &self.counters().calls_sent } else { &self.counters().calls_suppressed };
        counter.add(1);
        // Cites vhost-user-set-vring-call-1.
        let call = if is_wanted { inner.call.clone() } else { None };
        let watcher = self.watcher_after(&mut inner, call.is_some());
        // The frontend can make the notification a long system call, and other workers may wait for
        // the lock.
        drop(inner);
        if let Some(call) = call {
            call.notify();
        }
        if let Some(watcher) = watcher {
            watcher.report_call();
        }
    }

    fn can_keep(&self) -> bool {
        let inner = self.lock();
        // Buffers that were given back early are gone.
        inner.ring.outstanding() > 0 && !inner.ring.poisoned()
    }

    fn served(&self) -> Served {
        self.served
    }

    fn poisoned(&self) -> bool {
        self.memory.lock().ignore_poison().poisoned()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use straightline_virtio::memory::Region;
    use straightline_virtio::ring::{Geometry, RingOptions, SplitDevice};

    use super::*;

    /// Returns a queue whose ring has eight entries, all zeros.
    pub(crate) fn queue() -> Arc<Queue> {
        let file = memfd_create("queue", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 1 << 16).expect("memory");
        queue_in(&file)
    }

    fn queue_in(file: &OwnedFd) -> Arc<Queue> {
        Arc::new(queue_with(file, RingOptions::default()))
    }

    pub(crate) fn queue_with(file: &OwnedFd, options: RingOptions) -> Queue {
        let region = Region::map(file.as_fd(), 0, 1 << 16, 0, 0).expect("mapped");
        let memory = Arc::new(GuestMemory::new(vec![Arc::new(region)]).expect("one region"));
        let geometry = Geometry { size: 8, desc: 0, avail: 0x1000, used: 0x2000 };
        let ring = SplitDevice::new(&memory, geometry, 0, options).expect("in memory");
        let (counters, waits) = Default::default();
        Queue::new(Ring::Split(ring), 1, memory, true, counters, waits, false)
    }

    #[test]
    fn memory_that_has_vanished_stays_so() {
        let file = memfd_create("vanished", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 1 << 16).expect("memory");
        let queue = queue_in(&file);
        let memory = Arc::clone(&queue.memory.lock().expect("nobody has it"));
        assert!(!queue.has_vanished(&memory));
        ftruncate(&file, 0).expect("it is a file");
        assert_eq!(queue.arm(0), Ok(false), "zeros");
        assert_eq!([(); 3].map(|()| queue.has_vanished(&memory)), [true; 3]);
    }
}
