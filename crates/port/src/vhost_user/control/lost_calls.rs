//! Calls that a driver does not answer are repeated, so that a lost call does not stop a port for
//! ever.
//!
//! A call can get lost after we have sent it: in an interrupt controller, or in the guest's kernel.
//! With the event index a ring shows it ([`Standing`](straightline_virtio::ring::Standing)): the driver's event word asks for an entry
//! that has been used, and nothing moves. Then the port's own thread repeats the call after each of the
//! port's [`CALL_PAUSES`](crate::vhost_user::CALL_PAUSES). A driver that polls may leave such a word on an idle ring. So
//! after three repeats the thread leaves the ring alone until something moves.
//!
//! The thread has a timer only while a ring moves or a call may be repeated. Otherwise it sleeps,
//! and the worker that sends the next call wakes it, once ([`Wake`](crate::vhost_user::data::queue_state::Wake), under the ring's lock). While
//! a ring moves, the thread checks it every 10 ms and no worker wakes it.

use std::time::{Duration, Instant};

use super::call_watch::{CallCheck, CallWatch, NextCheck};
use super::frontend::ConnectedFrontend;
use crate::vhost_user::data::queue::Queue;

impl ConnectedFrontend {
    /// Checks the rings that are due, and repeats calls that seem to be lost. Returns the time of
    /// the next check; `None` if a worker wakes the thread for it.
    pub(crate) fn repeat_lost_calls(&mut self) -> Option<Instant> {
        let called = self.shared.inbox.take_called();
        if !called && self.next_check.is_none() {
            return None;
        }
        let now = self.shared.clock().now();
        if called || self.next_check.is_some_and(|next| next <= now) {
            self.next_check = None;
            for ring in self.rings.iter_mut().flatten() {
                if ring.watch.next.map_or(called, |next| next <= now) {
                    let check = check_ring(&ring.queue, &mut ring.watch, now, &self.shared.config.call_pauses);
                    ring.watch.next = check.next.at();
                    if check.is_due {
                        let port = &self.shared.config.name;
                        let name = ring.queue.name();
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
        self.next_check
    }
}

/// Checks whether a ring's driver has answered its calls, and repeats the last one if that is due.
fn check_ring(queue: &Queue, watch: &mut CallWatch, now: Instant, pauses: &[Duration]) -> CallCheck {
    let check = queue.check_call(|at, calls| {
        let check = watch.check(at, calls, now, pauses);
        (check.is_due, check.next.wake(), check)
    });
    check.unwrap_or(CallCheck { is_due: false, next: NextCheck::Call })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use straightline_graph::Clock;
    use straightline_virtio::ring::RingOptions;

    use super::*;
    use crate::notify::call_cost::CallCost;
    use crate::notify::call_helper::CallHelper;
    use crate::notify::notifier::Notifier;
    use crate::vhost_user::CALL_PAUSES;
    use crate::vhost_user::data::queue::tests::queue_with;
    use crate::vhost_user::inbox::PortInbox;

    #[test]
    fn a_call_wakes_control_once_until_it_has_stopped_watching() {
        let file = memfd_create("calls", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&file, 1 << 16).expect("memory");
        let inbox = Arc::new(PortInbox::new().expect("an eventfd"));
        let helper = CallHelper::new("test", Arc::new(CallCost::new()), || ());
        let event = || Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
        let call = || Notifier::new(event(), &helper).expect("a call");
        let queue = queue_with(&file, RingOptions { event_idx: true, ..RingOptions::default() });
        let queue = queue.watched_by(Arc::clone(&inbox));
        assert!(!inbox.take_called());
        queue.set_call(Some(call()));
        assert!(inbox.take_called());
        queue.set_call(Some(call()));
        assert!(!inbox.take_called(), "control knows it already");
        let mut watch = CallWatch::default();
        let start = Clock::moved().now();
        let next = check_ring(&queue, &mut watch, start, &CALL_PAUSES).next.at().expect("it may still move");
        queue.set_call(Some(call()));
        assert!(!inbox.take_called(), "control will check again");
        assert!(
            check_ring(&queue, &mut watch, next, &CALL_PAUSES).next.at().is_none(),
            "the driver waits for nothing that is used"
        );
        queue.set_call(Some(call()));
        assert!(inbox.take_called(), "control does not check by itself any more");
        // Without the event index the ring does not show whether the driver waits.
        let queue = queue_with(&file, RingOptions::default());
        queue.set_call(Some(call()));
        assert!(!inbox.take_called());
        assert!(check_ring(&queue, &mut CallWatch::default(), start, &CALL_PAUSES).next.at().is_none());
    }
}
