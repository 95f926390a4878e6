//! The machine that a trial runs on: its time, the turns of its endpoints, and what disturbs them. A
//! test makes up all three.

use straightline_graph::clock::cycles;
use straightline_guest::endpoints::{Endpoint, EventLoop, LoopEnd, Work};

use super::disturbance::Counters;

/// The machine that a trial runs on.
pub(super) trait TrialMachine {
    /// Returns the time-stamp counter.
    fn cycles(&self) -> u64;

    /// Reads the counters of what disturbs the threads of this process and of these others.
    fn counters(&self, others: &[u32]) -> Counters;

    /// Lets endpoints take turns as [`EventLoop::run`] does.
    fn run(&self, events: &EventLoop<'_>, endpoints: &mut [&mut dyn Endpoint]) -> (Vec<Work>, anyhow::Result<LoopEnd>);
}

/// The machine that this process runs on.
pub(super) struct ThisMachine;

impl TrialMachine for ThisMachine {
    fn cycles(&self) -> u64 {
        cycles()
    }

    fn counters(&self, others: &[u32]) -> Counters {
        Counters::read(others)
    }

    fn run(&self, events: &EventLoop<'_>, endpoints: &mut [&mut dyn Endpoint]) -> (Vec<Work>, anyhow::Result<LoopEnd>) {
        events.run(endpoints)
    }
}

#[cfg(test)]
pub(super) mod moved {
    //! A machine of a test.

    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use straightline_graph::clock::{hertz, in_cycles};

    use super::*;

    /// The time of a turn.
    const TURN: Duration = Duration::from_micros(1);

    /// The time-stamp counter at the start.
    const START: u64 = 5_000_000_000_000;

    /// A machine whose time passes by turns: each takes a microsecond, however long it really takes.
    pub(in crate::trial) struct MovedMachine {
        turn: u64,
        hertz: f64,
        now: Cell<u64>,
        /// The times for which the thread is descheduled, each with its start since the machine's.
        pauses: RefCell<VecDeque<(Duration, Duration)>>,
        /// The kernel's counters, in the order of questions. If none is left, the kernel tells nothing.
        counters: RefCell<VecDeque<Counters>>,
    }

    impl MovedMachine {
        pub(in crate::trial) fn new() -> MovedMachine {
            let hertz = hertz();
            MovedMachine {
                turn: in_cycles(TURN, hertz),
                hertz,
                now: Cell::new(START),
                pauses: RefCell::default(),
                counters: RefCell::default(),
            }
        }

        /// Deschedules the thread once, from this time on and for this time.
        pub(in crate::trial) fn with_pause(self, at: Duration, lasts: Duration) -> MovedMachine {
            self.pauses.borrow_mut().push_back((at, lasts));
            self
        }

        /// Sets the kernel's counters before and after the trial.
        pub(in crate::trial) fn with_counters(self, counters: [Counters; 2]) -> MovedMachine {
            self.counters.borrow_mut().extend(counters);
            self
        }

        fn pass(&self) {
            let mut now = self.now.get() + self.turn;
            let mut pauses = self.pauses.borrow_mut();
            if let Some(&(at, lasts)) = pauses.front()
                && now >= START + in_cycles(at, self.hertz)
            {
                pauses.pop_front();
                now += in_cycles(lasts, self.hertz);
            }
            self.now.set(now);
        }
    }

    impl TrialMachine for MovedMachine {
        fn cycles(&self) -> u64 {
            self.now.get()
        }

        fn counters(&self, _: &[u32]) -> Counters {
            self.counters.borrow_mut().pop_front().unwrap_or_else(Counters::unknown)
        }

        fn run(
            &self,
            events: &EventLoop<'_>,
            endpoints: &mut [&mut dyn Endpoint],
        ) -> (Vec<Work>, anyhow::Result<LoopEnd>) {
            let mut work = vec![Work::default(); endpoints.len()];
            let mut turns = || loop {
                if events.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                    return Ok(LoopEnd::Stopped);
                }
                for (endpoint, work) in endpoints.iter_mut().zip(&mut work) {
                    let moved = endpoint.turn(self.now.get())?;
                    if moved > 0 {
                        let packets = u64::try_from(moved)?;
                        work.add(Work { turns: 1, packets, cycles: self.turn, span: None });
                    }
                }
                self.pass();
                if endpoints.iter().any(|endpoint| endpoint.is_over()) {
                    return Ok(LoopEnd::Over);
                }
            };
            let ended = turns();
            (work, ended)
        }
    }
}
