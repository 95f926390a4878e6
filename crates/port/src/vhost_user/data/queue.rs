//! One virtqueue of a port as workers and control share it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use straightline_packet::{AtTurnEnd, GsoSegment, MAX_BATCH, PortIndex, Served, SourceQueueId, Turn};
use straightline_virtio::memory::{DirtyLog, GuestMemory, fault};
use straightline_virtio::ring::{BURST, First, Ring, RingFault, Standing};

use super::buffer_waiters::BufferWaiters;
use super::delivery_plan::{Planned, PlannedRun};
use crate::notifier::Notifier;
use crate::vhost_user::inbox::PortInbox;
use crate::vhost_user::ring_name::{is_transmit, ring_name};
use crate::{QueueCounters, RingCounters};

/// How often a worker looks for the end of another one's burst before it lets the system wait for it: some bursts long.
const SPINS: u32 = 1000;

/// A ring, where to tell its driver, and what to count. On lines of its own: another worker may have the neighbours.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    /// Where buffers may lie: in other regions than the ring. Looked at only when something has vanished somewhere.
    memory: Mutex<Arc<GuestMemory>>,
    enabled: AtomicBool,
    /// The fault epoch up to which nothing of the guest's memory has vanished.
    pub(crate) clean_epoch: AtomicU64,
    pub(crate) counters: Arc<QueueCounters>,
    /// The frontend gave no kick descriptor: nobody will say when there is something.
    polled: AtomicBool,
    /// The ring's index.
    index: u16,
    /// Whose it is.
    served: Served,
    /// Packets may be left in this ring (`full = "wait"`), so it is given back only at the turn's end.
    /// Changes only while no worker uses the port.
    waits: Arc<AtomicBool>,
    /// Where control learns that a call was sent; `None` for a ring that does not say whether its driver waits.
    watcher: Option<Arc<PortInbox>>,
}

/// The event for which a worker wakes the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Nothing: the thread looks by itself.
    Never,
    /// A call.
    Call,
    /// A call, or a used entry behind this place.
    Movement { from: u16 },
}

/// What one worker uses at a time.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) ring: Ring,
    call: Option<Notifier>,
    /// What makes control look at the ring again.
    wake: Wake,
    /// Who waits for room.
    pub(crate) buffer_waiters: BufferWaiters,
    /// The round in which all that was taken from it was left for want of room: what is in it waits behind that. In another
    /// round it is to be tried again; a turn may be full before it comes to this ring.
    waiting_round: Option<u64>,
    /// The chains found last.
    pub(crate) firsts: Box<[First; BURST]>,
    /// The packets of the frame being delivered, with the buffers reserved for them.
    pub(crate) plan: Vec<Planned>,
    /// Those of them that are one packet together.
    pub(crate) runs: Vec<PlannedRun>,
    /// The segment being cut, where one is, or the headers of a run.
    pub(crate) segment: Box<GsoSegment>,
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
        let inner = Inner {
            ring,
            call: None,
            wake: Wake::Call,
            buffer_waiters: BufferWaiters::default(),
            waiting_round: None,
            firsts: Box::new([First::default(); BURST]),
            plan: Vec::with_capacity(MAX_BATCH),
            runs: Vec::with_capacity(MAX_BATCH / 2),
            segment: Box::default(),
        };
        Queue {
            inner: Mutex::new(inner),
            memory: Mutex::new(memory),
            enabled: AtomicBool::new(enabled),
            // Its memory may have vanished before it was made: the first use looks.
            clean_epoch: AtomicU64::new(u64::MAX),
            counters,
            polled: AtomicBool::new(polled),
            index,
            served: Served::Nobody,
            waits,
            watcher: None,
        }
    }

    /// Tells `watcher` of calls from now on. Control then repeats those that the driver does not answer.
    pub(crate) fn watched_by(self, watcher: Arc<PortInbox>) -> Self {
        Queue { watcher: Some(watcher), ..self }
    }

    /// The same as a ring of this port.
    pub(crate) fn of_port(self, port: PortIndex) -> Self {
        Queue { served: Served::Port(port), ..self }
    }

    /// What messages call its ring.
    #[cold]
    pub(crate) fn name(&self) -> String {
        ring_name(self.index)
    }

    /// Whether the guest's memory has vanished in part, which is looked at only when any of the process has. For whoever
    /// takes from the ring. It stays so: a report of it may go unheard, where it is about a link that is being replaced.
    #[inline]
    pub(crate) fn has_vanished(&self, memory: &GuestMemory) -> bool {
        let epoch = fault::epoch();
        epoch != self.clean_epoch.load(Ordering::Relaxed)
            && (memory.poisoned() || {
                self.clean_epoch.store(epoch, Ordering::Relaxed);
                false
            })
    }

    /// Whether nobody will kick.
    pub(crate) fn polled(&self) -> bool {
        self.polled.load(Ordering::Relaxed)
    }

    /// Sets whether nobody will kick from now on. A worker that sleeps already is to be woken.
    pub(crate) fn set_polled(&self, polled: bool) {
        self.polled.store(polled, Ordering::Relaxed);
    }

    /// Held for a burst by a worker, for a moment by control.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => self.lock_after_others(),
        }
    }

    /// Whoever has it needs it for a burst's copies: a system call would take as long. Unless he does not run.
    #[cold]
    fn lock_after_others(&self) -> MutexGuard<'_, Inner> {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            match self.inner.try_lock() {
                Ok(inner) => return inner,
                Err(TryLockError::Poisoned(error)) => return error.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whom to tell. The driver may be waiting for just this descriptor: it is told once, needed or not.
    pub(crate) fn set_call(&self, call: Option<Notifier>) {
        let mut inner = self.lock();
        inner.call.clone_from(&call);
        let watcher = if call.is_some() { self.watcher_after(&mut inner, true) } else { None };
        drop(inner);
        // Workers may wait for the lock, so no system call is made with it.
        if let Some(call) = call {
            call.notify();
        }
        if let Some(watcher) = watcher {
            watcher.report_call();
        }
    }

    /// Returns whom to wake after buffers were given back, with a call or without, if control does not look by itself.
    #[inline]
    fn watcher_after(&self, inner: &mut Inner, with_call: bool) -> Option<&PortInbox> {
        let wakes = match inner.wake {
            Wake::Never => false,
            Wake::Call => with_call,
            Wake::Movement { from } => with_call || inner.ring.used() != from,
        };
        let watcher = self.watcher.as_deref().filter(|_| wakes)?;
        // Once: control comes, looks and says what wakes it next.
        inner.wake = Wake::Never;
        Some(watcher)
    }

    /// Has control judge whether the driver has answered its calls, and repeats the last one if that is due. `judge` is
    /// told where the ring stands and how many calls workers have sent; its result says whether the call is due, and for
    /// which event a worker wakes control next. It is called with the ring's lock held; for a ring that does not say
    /// whether its driver waits, it is not called, and the result is `None`.
    pub(crate) fn check_call<T>(&self, judge: impl FnOnce(Standing, u64) -> (bool, Wake, T)) -> Option<T> {
        let mut inner = self.lock();
        let standing = if inner.ring.poisoned() { None } else { inner.ring.standing() };
        let counters = self.counters();
        let judged = match (standing, &inner.call) {
            (Some(standing), Some(_)) => Some(judge(standing, counters.kicks_sent.get())),
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

    /// The guest has more memory now.
    pub(crate) fn set_memory(&self, memory: Arc<GuestMemory>) {
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = memory;
    }

    /// For a link that is new: what is written into the ring is marked in this log from now on, and whoever takes from the
    /// ring, which may be another worker, tries what is in it.
    pub(crate) fn renew(&self, log: Option<Arc<DirtyLog>>) {
        let mut inner = self.lock();
        inner.ring.set_log(log);
        inner.waiting_round = None;
    }

    /// Whether packets may be left in it.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Whether packets may pass. Takes effect with the next turn.
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

    /// Asks for a kick with the next chain; `true` if there is something to take already, or if nobody will kick. What
    /// was left for want of room in this round does not count: it is room that is waited for.
    pub(crate) fn arm(&self, round: u64) -> Result<bool, RingFault> {
        let mut inner = self.lock();
        Ok((inner.ring.arm(0)? || self.polled()) && inner.waiting_round != Some(round))
    }

    /// Where a worker's packets wait for room: asks for a kick with the next chain; `true` if there are more chains by now
    /// than there were when there were too few. That is news once: whoever waits finds out whether they suffice, or is
    /// gone.
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

    /// A worker asks for room by itself again. Others may sleep still.
    pub(crate) fn disarm_for_buffers(&self, worker: usize) {
        let mut inner = self.lock();
        inner.buffer_waiters.wake(worker);
        if !inner.buffer_waiters.any_asleep() {
            inner.ring.disarm();
        }
    }

    /// From now on only these workers' packets go there, if any: of the others nobody waits for room. Whoever sleeps would not
    /// look at it when he wakes, and its driver would kick for nobody.
    pub(crate) fn retain_buffer_waiters(&self, but_for: impl Fn(usize) -> bool) {
        let mut inner = self.lock();
        if inner.buffer_waiters.retain(but_for) {
            inner.ring.disarm();
        }
    }

    /// What this ring counts.
    #[inline]
    fn counters(&self) -> &RingCounters {
        if is_transmit(self.index) { &self.counters.rx } else { &self.counters.tx }
    }
}

impl AtTurnEnd for Queue {
    fn give_back(&self, turn: &mut Turn<'_>, source: SourceQueueId) {
        let mut inner = self.lock();
        let Inner { ring, waiting_round, .. } = &mut *inner;
        // Also where nothing is held any more.
        *waiting_round = None;
        if ring.outstanding() == 0 || ring.poisoned() {
            return;
        }
        if self.waits() {
            // Each of the last chains has its packet: see `receive`.
            let (left, bytes) = turn.roll_back(source);
            *waiting_round = (left > 0 && left == usize::from(ring.outstanding())).then(|| turn.round());
            ring.untake(u16::try_from(left).unwrap_or(u16::MAX).min(ring.outstanding()));
            // They come again, and are counted then.
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
        let counter = if is_wanted { &self.counters().kicks_sent } else { &self.counters().kicks_suppressed };
        counter.add(1);
        let call = if is_wanted { inner.call.clone() } else { None };
        let watcher = self.watcher_after(&mut inner, call.is_some());
        // Its frontend can make this a long call of the kernel's, and other workers may want the ring.
        drop(inner);
        if let Some(call) = call {
            call.notify();
        }
        if let Some(watcher) = watcher {
            watcher.report_call();
        }
    }

    fn served(&self) -> Served {
        self.served
    }

    fn poisoned(&self) -> bool {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).poisoned()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use straightline_virtio::memory::Region;
    use straightline_virtio::ring::{Geometry, Options, SplitDevice};

    /// A ring of eight entries, all zeros.
    pub(crate) fn queue() -> Arc<Queue> {
        let file = memfd_create("queue", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 1 << 16).expect("memory");
        queue_in(&file)
    }

    fn queue_in(file: &OwnedFd) -> Arc<Queue> {
        Arc::new(queue_with(file, Options::default()))
    }

    pub(crate) fn queue_with(file: &OwnedFd, options: Options) -> Queue {
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
