//! Who is in a turn: how control learns that no worker can still hold what it has taken away.
//!
//! A reader (a worker) is *in* from the start of a turn to its end; its word is odd then. Control publishes a
//! new value, then waits until every reader that was in has left at least once. A reader that enters later
//! sees the new value:
//!
//! ```text
//! reader                         control
//! word = odd                     pointer = new
//! fence(SeqCst)          (a)     fence(SeqCst)      (b)
//! read pointer                   read word
//! ```
//! The fences are ordered one way or the other. If (a) is first, control reads the odd word and waits; if (b)
//! is first, the reader reads the new pointer. A sleeping reader is out, so it is never waited for.
//!
//! `rcu_loom.rs` builds this file a second time, on loom's atomics, and tries every order.

use std::any::Any;
use std::fmt;
use std::sync::PoisonError;

use crossbeam_utils::CachePadded;

use super::Turn;
use super::sync::{self, Arc, AtomicPtr, AtomicU64, Mutex, MutexGuard, Ordering, fence};

type Word = CachePadded<AtomicU64>;

#[derive(Default)]
struct Shared {
    readers: Mutex<Vec<Arc<Word>>>,
    /// Values whose [`RcuCell`] was dropped while somebody was in a turn.
    retired: Mutex<Vec<Box<dyn Any + Send>>>,
}

/// The door between workers' turns and control. Cloning it gives another handle to the same door.
#[derive(Clone, Default)]
pub struct Rcu(Arc<Shared>);

impl fmt::Debug for Rcu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rcu").field("readers", &lock(&self.0.readers).len()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rcu {
    /// A door with no readers.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new reader: one for each worker.
    pub fn reader(&self) -> RcuReader {
        let word = Arc::new(Word::default());
        lock(&self.0.readers).push(Arc::clone(&word));
        RcuReader { word, rcu: self.clone() }
    }

    /// Waits until every turn that was under way at the call has ended. Not to be called within a turn: it
    /// would wait for itself.
    pub fn wait(&self) {
        // Taken first: what is retired from here on may be seen by a turn that the loop below has passed by already.
        let retired = std::mem::take(&mut *lock(&self.0.retired));
        fence(Ordering::SeqCst);
        let readers: Vec<_> = lock(&self.0.readers).clone();
        for word in readers {
            let seen = word.load(Ordering::Acquire);
            let mut tries = 0_u32;
            while seen % 2 == 1 && word.load(Ordering::Acquire) == seen {
                tries += 1;
                sync::pause(tries);
            }
        }
        drop(retired);
    }

    fn same(&self, other: &Rcu) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn retire(&self, value: Box<dyn Any + Send>) {
        // No fence: who drops the holder has it alone, so the starts of all turns that read it happened before, and are
        // seen here.
        let busy = lock(&self.0.readers).iter().any(|w| w.load(Ordering::Acquire) % 2 == 1);
        if busy {
            lock(&self.0.retired).push(value);
        }
    }
}

/// A worker's place at the [`Rcu`].
#[derive(Debug)]
pub struct RcuReader {
    word: Arc<Word>,
    rcu: Rcu,
}

impl RcuReader {
    pub(super) fn rcu(&self) -> &Rcu {
        &self.rcu
    }

    /// For whoever wants to know whether the reader is in.
    pub(super) fn state(&self) -> ReaderState {
        ReaderState(Arc::clone(&self.word))
    }

    /// Enters; the guard leaves when it is dropped, also by a panic.
    pub(super) fn enter(&self) -> ReadGuard<'_> {
        let next = self.word.load(Ordering::Relaxed) + 1;
        debug_assert_eq!(next % 2, 1, "a reader is in one turn at a time");
        // Release: control may never see the even word, but that we are in the next turn already. What we read in the
        // last one must come before this word as well.
        self.word.store(next, Ordering::Release);
        fence(Ordering::SeqCst);
        ReadGuard(&self.word)
    }
}

impl Drop for RcuReader {
    fn drop(&mut self) {
        lock(&self.rcu.0.readers).retain(|w| !Arc::ptr_eq(w, &self.word));
    }
}

/// Shows which turn a reader is in.
pub(super) struct ReaderState(Arc<Word>);

impl ReaderState {
    /// The number of the turn, if the reader is in one.
    pub(super) fn turn(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|word| word % 2 == 1)
    }
}

pub(super) struct ReadGuard<'a>(&'a Word);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        let odd = self.0.load(Ordering::Relaxed);
        self.0.store(odd + 1, Ordering::Release);
    }
}

/// A value that control replaces and workers read within a turn, without a lock.
///
/// Within the turn it is read like any reference:
///
/// ```
/// use straightline_packet::{Arena, RcuCell};
/// fn read(arena: &mut Arena, published: &RcuCell<u32>) -> u32 {
///     let mut kept = 0;
///     arena.turn(|turn| kept = published.load(turn).copied().unwrap_or(0));
///     kept
/// }
/// ```
///
/// The reference itself stays there:
///
/// ```compile_fail,E0521
/// use straightline_packet::{Arena, RcuCell};
/// fn read<'a>(arena: &mut Arena, published: &'a RcuCell<u32>) -> &'a u32 {
///     let mut kept = &0;
///     arena.turn(|turn| kept = published.load(turn).unwrap_or(&0));
///     kept
/// }
/// ```
pub struct RcuCell<T: Send + Sync + 'static> {
    at: AtomicPtr<T>,
    rcu: Rcu,
}

impl<T: Send + Sync + 'static> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuCell").field("some", &!self.at.load(Ordering::Relaxed).is_null()).finish()
    }
}

fn into_raw<T>(value: Option<Box<T>>) -> *mut T {
    value.map_or(std::ptr::null_mut(), Box::into_raw)
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// Nothing published yet, for the readers of `rcu`.
    pub fn new(rcu: &Rcu) -> Self {
        RcuCell { at: AtomicPtr::new(std::ptr::null_mut()), rcu: rcu.clone() }
    }

    /// The value, for as long as the turn lasts.
    #[inline]
    pub fn load<'t>(&self, turn: &Turn<'t>) -> Option<&'t T> {
        assert!(self.rcu.same(turn.rcu()), "a value is read through the rcu that it was published for");
        // SAFETY: the pointer is null or came from a Box. Whoever takes it away (`swap`, `drop`) frees it only
        // after every turn under way has ended, and this one is under way until 't is over: 't is a turn's own
        // lifetime (`Arena::turn` takes a closure for any 't), so the reference cannot leave the turn.
        unsafe { self.at.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes `new`, waits until no turn can still see the old value, and gives that back. Not to be called
    /// within a turn.
    pub fn swap(&self, new: Option<Box<T>>) -> Option<Box<T>> {
        let old = self.at.swap(into_raw(new), Ordering::AcqRel);
        self.rcu.wait();
        // SAFETY: the pointer came from a Box in `swap`, was just taken out by us alone, and no turn has it.
        (!old.is_null()).then(|| unsafe { Box::from_raw(old) })
    }
}

impl<T: Send + Sync + 'static> Drop for RcuCell<T> {
    fn drop(&mut self) {
        let old = self.at.load(Ordering::Relaxed);
        if !old.is_null() {
            // SAFETY: as in `swap`; a turn may still read it, so it is freed only when no reader is in one.
            self.rcu.retire(unsafe { Box::from_raw(old) });
        }
    }
}
