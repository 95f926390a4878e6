//! RCU: control replaces values that workers read without a lock.
//!
//! A reader (a worker) is *in* from the start of a turn to its end. Its word is odd then. Control
//! publishes a new value, and then waits until every reader that was in has left at least once.
//! After that no reader can hold the old value, because a reader that enters later sees the new
//! one:
//!
//! ```text
//! reader                         control
//! word = odd                     pointer = new
//! fence(SeqCst)          (a)     fence(SeqCst)      (b)
//! read pointer                   read word
//! ```
//!
//! The two fences have one order, which all threads agree on:
//!
//! - If (a) comes first, control reads the odd word and waits.
//! - If (b) comes first, the reader reads the new pointer.
//!
//! A worker that sleeps is out, so control never waits for it.
//!
//! `rcu_loom.rs` compiles this file a second time, with the atomics of loom, and tries every order.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::any::Any;
use std::fmt;

use crossbeam_utils::CachePadded;

use super::Packets;
use super::sync::{self, Arc, AtomicPtr, AtomicU64, Mutex, MutexGuard, Ordering, fence};
use crate::IgnorePoison;

type Word = CachePadded<AtomicU64>;

#[derive(Default)]
struct Shared {
    readers: Mutex<Vec<Arc<Word>>>,
    /// Values whose [`RcuCell`] was dropped while a reader was in a turn. The next wait frees them.
    retired: Mutex<Vec<Box<dyn Any + Send>>>,
}

/// The readers of published values, for control to wait for. A clone is another handle to the same
/// readers.
#[derive(Clone, Default)]
pub struct Rcu(Arc<Shared>);

impl fmt::Debug for Rcu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rcu").field("readers", &lock(&self.0.readers).len()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

impl Rcu {
    /// Creates an RCU without readers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a reader. Each worker needs one.
    pub fn reader(&self) -> RcuReader {
        let word = Arc::new(Word::default());
        lock(&self.0.readers).push(Arc::clone(&word));
        RcuReader { word, rcu: self.clone() }
    }

    /// Waits until every turn that was under way at the call has ended. A call within a turn would
    /// wait for itself, so it is not allowed.
    pub fn wait(&self) {
        // The list is taken first. A value that is retired later may be in use by a turn that the
        // loop below has already checked.
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
        // No fence is needed. The caller is the last owner of the cell, so every turn that read the
        // value began before, and its odd word is visible here.
        let busy = lock(&self.0.readers).iter().any(|w| w.load(Ordering::Acquire) % 2 == 1);
        if busy {
            lock(&self.0.retired).push(value);
        }
    }
}

/// A reader of the [`Rcu`]: one worker.
#[derive(Debug)]
pub struct RcuReader {
    word: Arc<Word>,
    rcu: Rcu,
}

impl RcuReader {
    pub(super) fn rcu(&self) -> &Rcu {
        &self.rcu
    }

    /// Returns a view that shows whether the reader is in a turn.
    pub(super) fn state(&self) -> ReaderState {
        ReaderState(Arc::clone(&self.word))
    }

    /// Enters a turn. The turn ends when the guard is dropped, also by a panic.
    pub(super) fn enter(&self) -> ReadGuard<'_> {
        let next = self.word.load(Ordering::Relaxed) + 1;
        debug_assert_eq!(next % 2, 1, "a reader is in one turn at a time");
        // Release, although a turn begins here: control may miss the even word of the last turn and
        // see this one. The reads of the last turn must come before this word, too.
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

/// The state of a reader, for other threads.
pub(super) struct ReaderState(Arc<Word>);

impl ReaderState {
    /// Returns the number of the turn that the reader is in, or `None` between turns.
    pub(super) fn turn(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|word| word % 2 == 1)
    }
}

/// A turn of a reader. It ends when this is dropped.
pub(super) struct ReadGuard<'a>(&'a Word);

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        let odd = self.0.load(Ordering::Relaxed);
        self.0.store(odd + 1, Ordering::Release);
    }
}

/// A value that control replaces and workers read within a turn, without a lock.
///
/// Within a turn the value is read by reference:
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
/// The reference cannot leave the turn:
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
    /// Creates an empty cell for the readers of `rcu`.
    pub fn new(rcu: &Rcu) -> Self {
        RcuCell { at: AtomicPtr::new(std::ptr::null_mut()), rcu: rcu.clone() }
    }

    /// Returns the value, for as long as the turn of these packets lasts. A [`Turn`](super::Turn) is
    /// taken as its packets.
    ///
    /// # Panics
    /// If the turn belongs to a reader of another [`Rcu`].
    #[inline]
    pub fn load<'t>(&self, packets: &Packets<'t>) -> Option<&'t T> {
        assert!(self.rcu.same(packets.rcu()), "a value is read through the rcu that it was published for");
        // SAFETY: the pointer is null or came from a Box. `swap` and `drop` take it out, and free
        // it only after every turn under way has ended. The turn of these packets is under way until
        // 't is over. 't is a turn's own lifetime: `Arena::turn` takes a closure for any 't. So the
        // reference cannot leave the turn.
        unsafe { self.at.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes `new`, waits until no turn can still see the old value, and returns the old value.
    /// It must not be called within a turn.
    pub fn swap(&self, new: Option<Box<T>>) -> Option<Box<T>> {
        let old = self.at.swap(into_raw(new), Ordering::AcqRel);
        self.rcu.wait();
        // SAFETY: the pointer came from a Box in `swap`, was just taken out by this call alone, and
        // no turn has it any more.
        (!old.is_null()).then(|| unsafe { Box::from_raw(old) })
    }
}

impl<T: Send + Sync + 'static> Drop for RcuCell<T> {
    fn drop(&mut self) {
        let old = self.at.load(Ordering::Relaxed);
        if !old.is_null() {
            // SAFETY: as in `swap`. A turn may still read the value, so it is freed only when no
            // reader is in a turn.
            self.rcu.retire(unsafe { Box::from_raw(old) });
        }
    }
}
