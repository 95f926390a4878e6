//! The RCU with real threads: no turn sees a value that was freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use straightline_packet::{Arena, Rcu, RcuCell, Settings};
use straightline_testing::{KernelThread, wait_until};

/// A value that counts its living instances, and shows if one is read after it was freed.
struct Canary(Arc<AtomicUsize>, AtomicBool);

impl Drop for Canary {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn canary(alive: &Arc<AtomicUsize>) -> Box<Canary> {
    alive.fetch_add(1, Ordering::SeqCst);
    Box::new(Canary(Arc::clone(alive), AtomicBool::new(false)))
}

#[test]
fn swapped_values_outlive_the_turns_that_see_them() {
    let rcu = Rcu::new();
    let alive = Arc::new(AtomicUsize::new(0));
    let published = Arc::new(RcuCell::new(&rcu));
    published.swap(Some(canary(&alive)));
    let stop = Arc::new(AtomicBool::new(false));
    let turns = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let workers: Vec<_> = (0..2)
        .map(|worker| {
            let mut arena = Arena::new(rcu.reader(), Settings::default(), Vec::new());
            let published = Arc::clone(&published);
            let stop = Arc::clone(&stop);
            let turns = Arc::clone(&turns);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    arena.turn(|turn| {
                        if let Some(canary) = published.load(turn) {
                            for _ in 0..20 {
                                assert!(!canary.1.load(Ordering::SeqCst), "freed within a turn");
                            }
                        }
                    });
                    turns[worker].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    // Repeats until both threads have run for a while: a machine with few CPUs starts them late.
    let enough = || turns.iter().all(|n| n.load(Ordering::Relaxed) >= 1000) || workers.iter().any(|w| w.is_finished());
    for i in (0..).take_while(|&i| i < 2000 || !enough()) {
        let new = (i % 3 != 0).then(|| canary(&alive));
        drop(published.swap(new));
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("no worker saw a freed value");
    }
    drop(published);
    rcu.wait();
    assert_eq!(alive.load(Ordering::SeqCst), 0, "nothing leaks");
}

#[test]
fn dropping_the_holder_within_a_turn_keeps_the_value() {
    let rcu = Rcu::new();
    let alive = Arc::new(AtomicUsize::new(0));
    let published = RcuCell::new(&rcu);
    published.swap(Some(canary(&alive)));
    let mut arena = Arena::new(rcu.reader(), Settings::default(), Vec::new());
    let mut held = Some(published);
    arena.turn(|turn| {
        let canary = held.as_ref().and_then(|p| p.load(turn)).expect("published");
        drop(held.take());
        assert!(!canary.1.load(Ordering::SeqCst));
    });
    rcu.wait();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// A reader is out when `wait` checks it. It then enters a turn and reads a value, which is retired
/// before `wait` has checked the other readers. This call of `wait` must not free that value.
#[test]
fn a_value_retired_during_a_wait_outlives_the_turn_that_reads_it() {
    let rcu = Rcu::new();
    let arena = || Arena::new(rcu.reader(), Settings::default(), Vec::new());
    let mut late = arena();
    let mut early = arena();
    let alive = Arc::new(AtomicUsize::new(0));
    let mut published = Some(RcuCell::new(&rcu));
    published.as_ref().expect("just made").swap(Some(canary(&alive)));
    let [inside, leave, done] = [const { AtomicBool::new(false) }; 3];
    let until = |what: &str, flag: &AtomicBool| wait_until(what, || flag.load(Ordering::SeqCst));
    let (tell, told) = channel();
    std::thread::scope(|s| {
        s.spawn(|| {
            early.turn(|_| {
                inside.store(true, Ordering::SeqCst);
                until("the early reader may leave", &leave);
            });
        });
        until("the early reader is in a turn", &inside);
        s.spawn(|| {
            tell.send(KernelThread::current()).expect("this test waits for it");
            rcu.wait();
            done.store(true, Ordering::SeqCst);
        });
        // It has checked the late reader then, which was the first to register.
        told.recv().expect("the thread runs").wait_until_blocked("the call waits for the early reader");
        late.turn(|turn| {
            let canary = published.as_ref().and_then(|p| p.load(turn)).expect("published");
            drop(published.take());
            leave.store(true, Ordering::SeqCst);
            until("the call returns", &done);
            assert_eq!(alive.load(Ordering::SeqCst), 1, "freed within a turn");
            assert!(!canary.1.load(Ordering::SeqCst));
        });
    });
    rcu.wait();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn a_member_that_is_out_is_not_waited_for() {
    let rcu = Rcu::new();
    let _asleep = rcu.reader();
    rcu.wait();
}
