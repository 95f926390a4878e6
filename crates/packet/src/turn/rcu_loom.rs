//! `rcu.rs` with the atomics of loom: readers and control run in every order, with every stale
//! value that the memory model allows.

use std::sync::Mutex as Untracked;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

#[path = "rcu.rs"]
#[expect(
    clippy::duplicate_mod,
    dead_code,
    unreachable_pub,
    reason = "the test compiles the same source with other atomics"
)]
mod rcu;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
    pub(super) use loom::sync::{Arc, Mutex, MutexGuard};

    pub(super) fn pause(_tries: u32) {
        loom::thread::yield_now();
    }
}

use rcu::{Rcu, RcuCell};

/// The packets of a turn, as far as the RCU is concerned.
struct Packets<'t>(&'t Rcu);

impl<'t> Packets<'t> {
    fn rcu(&self) -> &'t Rcu {
        self.0
    }
}

/// The memory of a value. It is written when the value is made and when it is freed. Loom fails
/// where a read is not ordered against these writes. The lock makes this type `Sync`; loom does not
/// see the lock.
#[derive(Clone)]
struct Memory(std::sync::Arc<Untracked<UnsafeCell<()>>>);

impl Memory {
    fn new() -> Self {
        Memory(std::sync::Arc::new(Untracked::new(UnsafeCell::new(()))))
    }

    fn read(&self) {
        self.0.lock().expect("no reader fails").with(|_| ());
    }

    fn write(&self) {
        self.0.lock().expect("no reader fails").with_mut(|_| ());
    }
}

/// A published value. Dropping it writes its memory.
struct Value(Memory);

impl Drop for Value {
    fn drop(&mut self) {
        // A failed model unwinds. Another panic would hide the reason.
        if !std::thread::panicking() {
            self.0.write();
        }
    }
}

/// Makes a value and returns it with its memory, which outlives it.
fn value() -> (Option<Box<Value>>, Memory) {
    let memory = Memory::new();
    (Some(Box::new(Value(memory.clone()))), memory)
}

#[test]
fn what_swap_gives_back_no_turn_can_see() {
    loom::model(|| {
        let rcu = Rcu::new();
        let published = Arc::new(RcuCell::new(&rcu));
        let (old, old_memory) = value();
        let old_at = old.as_deref().map(std::ptr::from_ref).map(<*const _>::addr);
        let (new, new_memory) = value();
        assert!(published.swap(old).is_none());
        let reader = rcu.reader();
        let worker = {
            let published = Arc::clone(&published);
            let new_memory = new_memory.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let guard = reader.enter();
                    // Only the address is compared: if the RCU failed, the pointer would dangle.
                    let at = published.load(&Packets(reader.rcu())).map(std::ptr::from_ref).map(<*const _>::addr);
                    if at == old_at { &old_memory } else { &new_memory }.read();
                    drop(guard);
                }
            })
        };
        new_memory.write();
        drop(published.swap(new).expect("published"));
        worker.join().expect("the worker ends");
    });
}

/// The last owner of a cell drops it while a turn may have the value. The next wait frees the
/// value.
#[test]
fn a_value_outlives_its_holder_for_the_turns_that_see_it() {
    loom::model(|| {
        let rcu = Rcu::new();
        let (new, memory) = value();
        let published = Arc::new(RcuCell::new(&rcu));
        assert!(published.swap(new).is_none());
        let worker = {
            let rcu = rcu.clone();
            let published = Arc::clone(&published);
            thread::spawn(move || {
                let reader = rcu.reader();
                let guard = reader.enter();
                assert!(published.load(&Packets(reader.rcu())).is_some());
                drop(published);
                memory.read();
                drop(guard);
            })
        };
        drop(published);
        rcu.wait();
        worker.join().expect("the worker ends");
        rcu.wait();
    });
}

/// A thread of control may free the value that it takes out, also one that another thread made.
#[test]
fn threads_of_control_take_each_others_values() {
    loom::model(|| {
        let published = Arc::new(RcuCell::new(&Rcu::new()));
        let replace = |published: &RcuCell<Value>| {
            let (new, memory) = value();
            memory.write();
            drop(published.swap(new));
        };
        let other = {
            let published = Arc::clone(&published);
            thread::spawn(move || replace(&published))
        };
        replace(&published);
        other.join().expect("it ends");
    });
}
