//! A ring that runs, with the descriptors that its frontend sent for it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use straightline_virtio::vhost_user::RingSetup;

use super::call_watch::CallWatch;
use crate::notify::call_helper::CallHelper;
use crate::notify::kick_routing::{Kick, KickKind, KickRouting};
use crate::notify::notifier::Notifier;
use crate::vhost_user::data::queue::Queue;
use crate::vhost_user::ring_name::{CONTROL_RING, is_transmit, ring_name};

/// A ring that workers use.
pub(crate) struct RunningRing {
    pub(crate) queue: Arc<Queue>,
    pub(crate) kick: Option<Arc<OwnedFd>>,
    pub(crate) call: Option<Arc<OwnedFd>>,
    pub(crate) token: Option<Kick>,
    /// Routes the ring's kicks.
    pub(crate) routing: Arc<KickRouting>,
    /// The state of unanswered calls.
    pub(crate) watch: CallWatch,
    /// The NUMA node of its descriptors when it started, if it is known.
    pub(crate) node: Option<usize>,
}

impl RunningRing {
    /// Takes over the new descriptors of a ring's set-up. Returns the call descriptor that was
    /// replaced: it must outlive the turns under way.
    pub(crate) fn update_descriptors(
        &mut self,
        index: u16,
        setup: &RingSetup,
        calls: &CallHelper,
    ) -> Result<Option<Arc<OwnedFd>>, String> {
        let name = ring_name(index);
        if !same(self.kick.as_ref(), setup.kick.as_ref()) {
            self.unwatch_kick();
            if let Some(kick) = &setup.kick {
                let kind = if index == CONTROL_RING || is_transmit(index) {
                    KickKind::Packets(index / 2)
                } else {
                    KickKind::Buffers
                };
                let token = self.routing.add(Arc::clone(kick), kind);
                self.token = Some(token.map_err(|e| format!("{name}: cannot wait for its kick: {e}"))?);
            }
            self.kick = setup.kick.clone();
        }
        if setup.polled != self.queue.polled() {
            self.queue.set_polled(setup.polled);
            // No kick would wake a worker that sleeps.
            self.routing.wake();
        }
        if !same(self.call.as_ref(), setup.call.as_ref()) {
            let call = setup.call.clone().map(|call| Notifier::new(call, calls)).transpose();
            self.queue.set_call(call.map_err(|e| format!("{name}: cannot use its call descriptor: {e}"))?);
            self.watch.start_again();
            return Ok(std::mem::replace(&mut self.call, setup.call.clone()));
        }
        Ok(None)
    }

    /// Stops waiting for the ring's kick.
    pub(crate) fn unwatch_kick(&mut self) {
        if let Some(token) = self.token.take() {
            self.routing.remove(token);
        }
    }
}

impl Drop for RunningRing {
    fn drop(&mut self) {
        self.unwatch_kick();
    }
}

fn same(a: Option<&Arc<OwnedFd>>, b: Option<&Arc<OwnedFd>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use straightline_graph::EpollWaiter;

    use super::*;
    use crate::notify::call_cost::CallCost;
    use crate::vhost_user::data::queue::tests::queue;

    fn running(routing: &Arc<KickRouting>) -> RunningRing {
        RunningRing {
            queue: queue(),
            kick: None,
            call: None,
            token: None,
            routing: Arc::clone(routing),
            watch: CallWatch::default(),
            node: None,
        }
    }

    /// Returns a set-up as the frontend sends it: with a kick descriptor, or with the message that
    /// there is none.
    fn started(kick: Option<OwnedFd>) -> RingSetup {
        let mut setup = RingSetup::default();
        let polled = kick.is_none();
        (setup.kick, setup.polled) = (kick.map(Arc::new), polled);
        setup
    }

    // Cites vhost-user-ring-states-10, vhost-user-set-vring-kick-2.
    #[test]
    fn a_ring_that_runs_may_lose_its_kick_and_get_one_again() {
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let routing = Arc::new(KickRouting::new(Arc::clone(&waiter).into(), false));
        let mut ring = running(&routing);
        let calls = CallHelper::new("test", Arc::new(CallCost::new()), || ());
        let kick = || Some(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"));
        ring.update_descriptors(1, &started(kick()), &calls).expect("a kick");
        waiter.wait(std::time::Duration::ZERO).expect("the wake of the kick");
        assert_eq!(ring.queue.arm(0), Ok(false), "a worker may sleep");
        ring.update_descriptors(1, &started(None), &calls).expect("no kick");
        assert!(waiter.woken_by().1, "a sleeping worker looks again");
        assert_eq!(ring.queue.arm(0), Ok(true), "nobody will kick");
        ring.update_descriptors(1, &started(kick()), &calls).expect("a kick");
        assert_eq!(ring.queue.arm(0), Ok(false));
        ring.unwatch_kick();
    }

    #[test]
    fn a_call_that_is_replaced_is_handed_over_and_not_closed() {
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let mut ring = running(&Arc::new(KickRouting::new(waiter.into(), false)));
        let calls = CallHelper::new("test", Arc::new(CallCost::new()), || ());
        let event = || Some(Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd")));
        let with = |call: Option<Arc<OwnedFd>>| {
            let mut setup = started(None);
            setup.call = call;
            setup
        };
        let first = event();
        let second = event();
        assert!(ring.update_descriptors(1, &with(first.clone()), &calls).expect("a call").is_none());
        assert!(ring.update_descriptors(1, &with(first.clone()), &calls).expect("the same").is_none());
        let replaced = ring.update_descriptors(1, &with(second), &calls).expect("another call");
        assert!(same(replaced.as_ref(), first.as_ref()), "the caller gets the replaced descriptor");
        assert!(ring.update_descriptors(1, &with(None), &calls).expect("no call").is_some());
    }
}
