//! The watch over one ring's calls. It decides when to repeat a call that the ring's driver does
//! not answer.
//!
//! `lost_calls` explains why. This module has no thread and no clock of its own.

use std::time::{Duration, Instant};

use straightline_virtio::ring::Standing;

use crate::vhost_user::data::queue_state::Wake;

/// The state of one ring's calls, as the port's thread knows it.
#[derive(Debug, Default)]
pub(crate) struct CallWatch {
    stood: Option<Stood>,
    /// The time of the next check, unless a worker asks for an earlier one.
    pub(crate) next: Option<Instant>,
}

/// The standing of a ring at the last check.
#[derive(Debug)]
struct Stood {
    at: Standing,
    /// Calls that workers had sent.
    calls: u64,
    /// The number of repeats at this standing.
    repeats: usize,
    /// The time from which the call may be repeated again.
    due: Option<Instant>,
}

/// The outcome of a check.
#[derive(Debug)]
pub(crate) struct CallCheck {
    /// The call must be repeated now.
    pub(crate) is_due: bool,
    pub(crate) next: NextCheck,
}

/// The time or event at which the thread checks a ring again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextCheck {
    At(Instant),
    /// With the next call: the driver has answered.
    Call,
    /// With the next used entry after this position: the driver has not answered, and no repeat is
    /// left.
    Movement(u16),
}

impl NextCheck {
    pub(crate) fn at(self) -> Option<Instant> {
        match self {
            NextCheck::At(at) => Some(at),
            NextCheck::Call | NextCheck::Movement(_) => None,
        }
    }

    /// Returns the event that wakes the thread before the next check is due.
    pub(crate) fn wake(self) -> Wake {
        match self {
            NextCheck::At(_) => Wake::Never,
            NextCheck::Call => Wake::Call,
            NextCheck::Movement(from) => Wake::Movement { from },
        }
    }
}

impl CallWatch {
    /// Forgets the repeats so far: the next calls go to another descriptor.
    pub(crate) fn start_again(&mut self) {
        self.stood = None;
    }

    /// Compares the ring's standing with the last check. `calls` is the number of calls that
    /// workers have sent. `pauses` come before the repeats of a call.
    pub(crate) fn check(&mut self, at: Standing, calls: u64, now: Instant, pauses: &[Duration]) -> CallCheck {
        let after = |repeats: usize| pauses.get(repeats).and_then(|pause| now.checked_add(*pause));
        let mut is_due = false;
        let stood = match &mut self.stood {
            Some(stood) if stood.at == at && stood.calls == calls => {
                if !at.is_asked {
                    return CallCheck { is_due, next: NextCheck::Call };
                }
                if stood.due.is_some_and(|due| due <= now) {
                    is_due = true;
                    stood.repeats += 1;
                    // Counted from now, because this check may be late.
                    stood.due = after(stood.repeats);
                }
                stood
            }
            stood => stood.insert(Stood { at, calls, repeats: 0, due: after(0) }),
        };
        CallCheck { is_due, next: stood.due.map_or(NextCheck::Movement(at.used), NextCheck::At) }
    }
}

#[cfg(test)]
mod tests {
    use straightline_graph::Clock;

    use super::*;
    use crate::vhost_user::CALL_PAUSES;

    fn standing(used: u16, is_asked: bool) -> Standing {
        Standing { event: 0, available: 0, used, is_asked }
    }

    /// Returns the milliseconds after `from` at which the call is repeated, while nothing moves and
    /// every check comes in time.
    fn repeats(watch: &mut CallWatch, at: Standing, from: Instant) -> Vec<u128> {
        let mut now = from;
        let mut repeated = Vec::new();
        loop {
            let check = watch.check(at, 1, now, &CALL_PAUSES);
            if check.is_due {
                repeated.push(now.duration_since(from).as_millis());
            }
            let Some(next) = check.next.at() else { return repeated };
            assert!(next > now, "a check must not be followed by another at once");
            now = next;
        }
    }

    #[test]
    fn an_unanswered_call_is_repeated_three_times() {
        let mut watch = CallWatch::default();
        let start = Clock::moved().now();
        assert_eq!(repeats(&mut watch, standing(1, true), start), [10, 100, 1000]);
        // A check for another ring changes nothing.
        let later = start + Duration::from_secs(3600);
        assert_eq!(watch.check(standing(1, true), 1, later, &CALL_PAUSES).next, NextCheck::Movement(1));
        assert_eq!(repeats(&mut watch, standing(1, true), later), [0_u128; 0]);
        // Something has moved.
        assert_eq!(repeats(&mut watch, standing(2, true), later), [10, 100, 1000]);
        // The call descriptor is replaced.
        watch.start_again();
        assert_eq!(repeats(&mut watch, standing(2, true), later), [10, 100, 1000]);
    }

    #[test]
    fn a_new_call_is_a_movement() {
        let mut watch = CallWatch::default();
        let start = Clock::moved().now();
        assert_eq!(repeats(&mut watch, standing(1, true), start).len(), 3);
        // A packed ring comes back to the same positions after two rounds.
        let check = watch.check(standing(1, true), 2, start + Duration::from_secs(5), &CALL_PAUSES);
        assert!(!check.is_due && check.next.at().is_some());
    }

    #[test]
    fn an_answered_call_is_never_repeated_and_the_ring_is_left_alone() {
        let mut watch = CallWatch::default();
        let start = Clock::moved().now();
        assert!(watch.check(standing(1, true), 1, start, &CALL_PAUSES).next.at().is_some());
        // The driver has moved its event word.
        let answered = Standing { event: 1, ..standing(1, false) };
        let soon = start + Duration::from_millis(9);
        assert_eq!(repeats(&mut watch, answered, soon), [0_u128; 0]);
        assert_eq!(watch.check(answered, 1, soon, &CALL_PAUSES).next, NextCheck::Call);
    }

    #[test]
    fn a_late_look_repeats_a_call_once() {
        let mut watch = CallWatch::default();
        let start = Clock::moved().now();
        watch.check(standing(1, true), 1, start, &CALL_PAUSES);
        let late = start + Duration::from_secs(60);
        let due = [(); 3].map(|()| watch.check(standing(1, true), 1, late, &CALL_PAUSES).is_due);
        assert_eq!(due, [true, false, false]);
    }

    #[test]
    fn a_ring_that_moves_is_looked_at_every_ten_milliseconds_and_not_called() {
        let mut watch = CallWatch::default();
        let mut now = Clock::moved().now();
        for used in 0..1000 {
            let check = watch.check(standing(used, used % 2 == 0), u64::from(used), now, &CALL_PAUSES);
            assert!(!check.is_due);
            assert_eq!(check.next, NextCheck::At(now + CALL_PAUSES[0]));
            now += CALL_PAUSES[0];
        }
    }
}
