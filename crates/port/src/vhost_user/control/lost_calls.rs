//! Calls that a driver does not answer are repeated, so that a lost call does not stop a port for
//! ever.
//!
//! A call can get lost after we have sent it: in an interrupt controller, or in the guest's kernel.
//! With the event index a ring shows it ([`Standing`]): the driver's event word asks for an entry
//! that has been used, and nothing moves. Then the port's own thread repeats the call 10 ms, 100 ms
//! and 1 s after the last movement. A driver that polls may leave such a word on an idle ring. So
//! after three repeats the thread leaves the ring alone until something moves.
//!
//! The thread has a timer only while a ring moves or a call may be repeated. Otherwise it sleeps,
//! and the worker that sends the next call wakes it, once ([`Wake`], under the ring's lock). While
//! a ring moves, the thread checks it every 10 ms and no worker wakes it.

use std::time::{Duration, Instant};

use straightline_virtio::ring::Standing;

use super::frontend::ConnectedFrontend;
use crate::vhost_user::data::queue::{Queue, Wake};

/// The pause before each repeat of a call. The repeats come 10 ms, 100 ms and 1 s after the ring's
/// last movement.
const PAUSES: [Duration; 3] = [Duration::from_millis(10), Duration::from_millis(90), Duration::from_millis(900)];

/// The state of one ring's calls, as the port's thread knows it.
#[derive(Debug, Default)]
pub(crate) struct CallWatch {
    stood: Option<Stood>,
    /// The time of the next check, if no worker asks for it before.
    next: Option<Instant>,
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

    /// Returns the event that wakes the thread before that.
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
    /// workers have sent.
    pub(crate) fn check(&mut self, at: Standing, calls: u64, now: Instant) -> CallCheck {
        let after = |repeats: usize| PAUSES.get(repeats).and_then(|pause| now.checked_add(*pause));
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

impl ConnectedFrontend {
    /// Checks the rings that are due, and repeats calls that seem to be lost. Returns how long the
    /// next check may wait; `None` if a worker wakes the thread for it.
    pub(crate) fn repeat_lost_calls(&mut self) -> Option<Duration> {
        let called = self.shared.inbox.take_called();
        if !called && self.next_check.is_none() {
            return None;
        }
        let now = Instant::now();
        if called || self.next_check.is_some_and(|next| next <= now) {
            self.next_check = None;
            for ring in self.rings.iter_mut().flatten() {
                if ring.watch.next.map_or(called, |next| next <= now) {
                    let check = check_ring(&ring.queue, &mut ring.watch, now);
                    ring.watch.next = check.next.at();
                    if check.is_due {
                        let (port, name) = (&self.shared.config.name, ring.queue.name());
                        tracing::debug!(
                            port,
                            "the {name} makes no progress, so its call is repeated: {:?}",
                            ring.watch
                        );
                    }
                }
                self.next_check = self.next_check.into_iter().chain(ring.watch.next).min();
            }
        }
        self.next_check.map(|next| next.saturating_duration_since(now))
    }
}

/// Checks whether a ring's driver has answered its calls, and repeats the last one if that is due.
fn check_ring(queue: &Queue, watch: &mut CallWatch, now: Instant) -> CallCheck {
    let check = queue.check_call(|at, calls| {
        let check = watch.check(at, calls, now);
        (check.is_due, check.next.wake(), check)
    });
    check.unwrap_or(CallCheck { is_due: false, next: NextCheck::Call })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use straightline_virtio::ring::Options;

    use crate::call_helper::CallHelper;
    use crate::notifier::Notifier;
    use crate::vhost_user::data::queue::tests::queue_with;
    use crate::vhost_user::inbox::PortInbox;

    fn standing(used: u16, is_asked: bool) -> Standing {
        Standing { event: 0, available: 0, used, is_asked }
    }

    /// Returns the milliseconds after `from` at which the call is repeated, while nothing moves and
    /// every check comes in time.
    fn repeats(watch: &mut CallWatch, at: Standing, from: Instant) -> Vec<u128> {
        let mut now = from;
        let mut repeated = Vec::new();
        loop {
            let check = watch.check(at, 1, now);
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
        let (mut watch, start) = (CallWatch::default(), Instant::now());
        assert_eq!(repeats(&mut watch, standing(1, true), start), [10, 100, 1000]);
        // A check for another ring changes nothing.
        let later = start + Duration::from_secs(3600);
        assert_eq!(watch.check(standing(1, true), 1, later).next, NextCheck::Movement(1));
        assert_eq!(repeats(&mut watch, standing(1, true), later), [0_u128; 0]);
        // Something has moved.
        assert_eq!(repeats(&mut watch, standing(2, true), later), [10, 100, 1000]);
        // The call descriptor is replaced.
        watch.start_again();
        assert_eq!(repeats(&mut watch, standing(2, true), later), [10, 100, 1000]);
    }

    #[test]
    fn a_new_call_is_a_movement() {
        let (mut watch, start) = (CallWatch::default(), Instant::now());
        assert_eq!(repeats(&mut watch, standing(1, true), start).len(), 3);
        // A packed ring comes back to the same positions after two rounds.
        let check = watch.check(standing(1, true), 2, start + Duration::from_secs(5));
        assert!(!check.is_due && check.next.at().is_some());
    }

    #[test]
    fn an_answered_call_is_never_repeated_and_the_ring_is_left_alone() {
        let (mut watch, start) = (CallWatch::default(), Instant::now());
        assert!(watch.check(standing(1, true), 1, start).next.at().is_some());
        // The driver has moved its event word.
        let answered = Standing { event: 1, ..standing(1, false) };
        let soon = start + Duration::from_millis(9);
        assert_eq!(repeats(&mut watch, answered, soon), [0_u128; 0]);
        assert_eq!(watch.check(answered, 1, soon).next, NextCheck::Call);
    }

    #[test]
    fn a_late_look_repeats_a_call_once() {
        let (mut watch, start) = (CallWatch::default(), Instant::now());
        watch.check(standing(1, true), 1, start);
        let late = start + Duration::from_secs(60);
        let due = [(); 3].map(|()| watch.check(standing(1, true), 1, late).is_due);
        assert_eq!(due, [true, false, false]);
    }

    #[test]
    fn a_ring_that_moves_is_looked_at_every_ten_milliseconds_and_not_called() {
        let mut watch = CallWatch::default();
        let mut now = Instant::now();
        for used in 0..1000 {
            let check = watch.check(standing(used, used % 2 == 0), u64::from(used), now);
            assert!(!check.is_due);
            assert_eq!(check.next, NextCheck::At(now + PAUSES[0]));
            now += PAUSES[0];
        }
    }

    #[test]
    fn a_call_wakes_control_once_until_it_has_stopped_watching() {
        let file = memfd_create("calls", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 1 << 16).expect("memory");
        let inbox = Arc::new(PortInbox::new().expect("an eventfd"));
        let helper = CallHelper::new("test", || ());
        let event = || Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
        let call = || Notifier::new(event(), &helper).expect("a call");
        let queue = queue_with(&file, Options { event_idx: true, ..Options::default() });
        let queue = queue.watched_by(Arc::clone(&inbox));
        assert!(!inbox.take_called());
        queue.set_call(Some(call()));
        assert!(inbox.take_called());
        queue.set_call(Some(call()));
        assert!(!inbox.take_called(), "control knows it already");
        let (mut watch, start) = (CallWatch::default(), Instant::now());
        let next = check_ring(&queue, &mut watch, start).next.at().expect("it may still move");
        queue.set_call(Some(call()));
        assert!(!inbox.take_called(), "control will check again");
        assert!(check_ring(&queue, &mut watch, next).next.at().is_none(), "the driver waits for nothing that is used");
        queue.set_call(Some(call()));
        assert!(inbox.take_called(), "control does not check by itself any more");
        // Without the event index the ring does not show whether the driver waits.
        let queue = queue_with(&file, Options::default());
        queue.set_call(Some(call()));
        assert!(!inbox.take_called());
        assert!(check_ring(&queue, &mut CallWatch::default(), start).next.at().is_none());
    }
}
