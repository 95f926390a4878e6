//! Kick routing: which workers a port's kicks wake. It can change while packets pass, and no kick
//! is missed meanwhile.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use straightline_graph::{EpollWaiter, Token, Waiters, Watch, is_eventfd};
use straightline_packet::IgnorePoison;

/// Names a kick of the port. The kick stays routed until it is removed with this.
#[derive(Debug)]
pub(crate) struct Kick(u64);

/// The event that a kick announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KickKind {
    /// There are packets in the transmit ring of this pair.
    Packets(u16),
    /// A receive ring has free buffers again. Only workers whose packets wait for buffers are
    /// woken.
    Buffers,
}

/// The kicks of one port, and the workers that each of them wakes.
#[derive(Debug)]
pub(crate) struct KickRouting(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    waiters: Waiters,
    /// True if packets may wait for free buffers.
    waits: bool,
    next: u64,
    kicks: HashMap<u64, Watched>,
}

#[derive(Debug)]
struct Watched {
    fd: Arc<OwnedFd>,
    kind: KickKind,
    watch: Watch,
    /// The waiters that watch the kick. There are none if no worker waits for this kind.
    tokens: Vec<(Arc<EpollWaiter>, Token)>,
}

impl KickRouting {
    pub(crate) fn new(waiters: Waiters, waits: bool) -> Self {
        KickRouting(Mutex::new(Inner { waiters, waits, next: 0, kicks: HashMap::new() }))
    }

    /// Wakes all workers.
    pub(crate) fn wake(&self) {
        let inner = self.lock();
        let mut woken: Vec<&Arc<EpollWaiter>> = Vec::new();
        for waiter in inner.waiters.rx.iter().chain(&inner.waiters.tx) {
            if !woken.iter().any(|other| Arc::ptr_eq(other, waiter)) {
                waiter.wake();
                woken.push(waiter);
            }
        }
    }

    /// Adds a kick of a peer, which must be an eventfd.
    pub(crate) fn add(&self, fd: Arc<OwnedFd>, kind: KickKind) -> io::Result<Kick> {
        if !is_eventfd(&fd)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an eventfd"));
        }
        self.insert(fd, kind, Watch::Always)
    }

    /// Adds a descriptor of ours, such as a tap's queue: readiness to read is the kick. A worker
    /// that does not wait is not told.
    pub(crate) fn add_own(&self, fd: Arc<OwnedFd>, kind: KickKind) -> io::Result<Kick> {
        self.insert(fd, kind, Watch::Waiting)
    }

    fn insert(&self, fd: Arc<OwnedFd>, kind: KickKind, how: Watch) -> io::Result<Kick> {
        let mut inner = self.lock();
        let mut tokens = Vec::new();
        watch(&fd, how, wanted(&inner.waiters, inner.waits, kind), &mut tokens)?;
        let at = inner.next;
        inner.next += 1;
        inner.kicks.insert(at, Watched { fd, kind, watch: how, tokens });
        Ok(Kick(at))
    }

    /// Removes a kick.
    #[expect(clippy::needless_pass_by_value, reason = "a kick is used up")]
    pub(crate) fn remove(&self, kick: Kick) {
        let gone = self.lock().kicks.remove(&kick.0);
        gone.into_iter().flat_map(|gone| gone.tokens).for_each(|(waiter, token)| waiter.remove(token));
    }

    /// Changes the waiters, or whether packets wait for free buffers. Every kick is added to its
    /// new waiters before it is removed from the old ones, and adding one wakes the worker. On an
    /// error the routing stays as it was.
    pub(crate) fn change(&self, waiters: Waiters, waits: bool) -> io::Result<()> {
        let mut inner = self.lock();
        let mut added = HashMap::new();
        for (&at, kick) in &inner.kicks {
            let is_watched_by =
                |waiter: &Arc<EpollWaiter>| kick.tokens.iter().any(|(other, _)| Arc::ptr_eq(other, waiter));
            let new = wanted(&waiters, waits, kick.kind).filter(|waiter| !is_watched_by(waiter));
            let mut tokens = Vec::new();
            if let Err(error) = watch(&kick.fd, kick.watch, new, &mut tokens) {
                let others = added.into_values().flatten();
                others.for_each(|(waiter, token): (Arc<EpollWaiter>, _)| waiter.remove(token));
                return Err(error);
            }
            added.insert(at, tokens);
        }
        for (at, kick) in &mut inner.kicks {
            let stays = |waiter: &Arc<EpollWaiter>| wanted(&waiters, waits, kick.kind).any(|s| Arc::ptr_eq(s, waiter));
            let (keep, gone): (Vec<_>, Vec<_>) = kick.tokens.drain(..).partition(|(waiter, _)| stays(waiter));
            gone.into_iter().for_each(|(waiter, token)| waiter.remove(token));
            kick.tokens = keep;
            kick.tokens.extend(added.remove(at).into_iter().flatten());
        }
        (inner.waiters, inner.waits) = (waiters, waits);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().ignore_poison()
    }
}

/// Returns the waiters that a kick of this kind wakes.
fn wanted(waiters: &Waiters, waits: bool, kind: KickKind) -> impl Iterator<Item = &Arc<EpollWaiter>> {
    let of_pair = |pair: u16| waiters.rx.get(usize::from(pair)).or(waiters.rx.first());
    let (one, all) = match kind {
        KickKind::Packets(pair) => (of_pair(pair), &[][..]),
        KickKind::Buffers if waits => (None, &waiters.tx[..]),
        KickKind::Buffers => (None, &[][..]),
    };
    one.into_iter().chain(all)
}

/// Adds a kick to all of these waiters, or to none.
fn watch<'s>(
    fd: &Arc<OwnedFd>,
    how: Watch,
    waiters: impl Iterator<Item = &'s Arc<EpollWaiter>>,
    tokens: &mut Vec<(Arc<EpollWaiter>, Token)>,
) -> io::Result<()> {
    for waiter in waiters {
        match waiter.watch(Arc::clone(fd), how) {
            Ok(token) => tokens.push((Arc::clone(waiter), token)),
            Err(error) => {
                tokens.drain(..).for_each(|(waiter, token)| waiter.remove(token));
                return Err(error);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn kick() -> Arc<OwnedFd> {
        Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"))
    }

    fn write(kick: &OwnedFd) {
        rustix::io::write(kick, &1_u64.to_ne_bytes()).expect("kick");
    }

    #[test]
    fn a_kick_wakes_the_sleeper_that_the_port_moved_to() {
        let [old, new] = [0, 1].map(|_| Arc::new(EpollWaiter::new().expect("epoll")));
        let routing = KickRouting::new(Arc::clone(&old).into(), false);
        let fd = kick();
        let token = routing.add(Arc::clone(&fd), KickKind::Packets(0)).expect("add");
        old.woken_by();
        write(&fd);
        assert_eq!(old.woken_by().0, 1);
        // No waiter has seen the kick before the change: the new waiter is woken by it.
        write(&fd);
        routing.change(Arc::clone(&new).into(), false).expect("change");
        assert_eq!((new.woken_by().0, old.woken_by().0), (1, 0));
        write(&fd);
        assert_eq!((new.woken_by().0, old.woken_by().0), (1, 0));
        routing.remove(token);
        assert_eq!(Arc::strong_count(&fd), 1, "nothing is kept");
    }

    #[test]
    fn each_pair_wakes_its_own_worker_and_room_all_who_deliver() {
        let [a, b, c] = [0, 1, 2].map(|_| Arc::new(EpollWaiter::new().expect("epoll")));
        let all = [&a, &b, &c];
        let waiters_of = |rx: [usize; 2], tx: &[usize]| Waiters {
            rx: rx.iter().map(|&at| Arc::clone(all[at])).collect(),
            tx: tx.iter().map(|&at| Arc::clone(all[at])).collect(),
        };
        let routing = KickRouting::new(waiters_of([0, 1], &[0, 1]), true);
        let fds = [0, 1, 2].map(|_| kick());
        let kind = [KickKind::Packets(0), KickKind::Packets(1), KickKind::Buffers];
        let tokens = [0, 1, 2].map(|at| routing.add(Arc::clone(&fds[at]), kind[at]).expect("add"));
        let woken = |at: usize| {
            all.iter().for_each(|waiter| _ = waiter.woken_by());
            write(&fds[at]);
            all.map(|waiter| waiter.woken_by().0)
        };
        assert_eq!([0, 1, 2].map(woken), [[1, 0, 0], [0, 1, 0], [1, 1, 0]]);
        // The first kick stays with its worker, the others move.
        routing.change(waiters_of([0, 2], &[2]), true).expect("change");
        assert_eq!([0, 1, 2].map(woken), [[1, 0, 0], [0, 0, 1], [0, 0, 1]]);
        routing.wake();
        assert_eq!(all.map(|waiter| waiter.woken_by().1), [true, false, true]);
        tokens.into_iter().for_each(|token| routing.remove(token));
        fds.iter().for_each(|fd| assert_eq!(Arc::strong_count(fd), 1, "nothing is kept"));
    }

    #[test]
    fn room_is_watched_for_only_while_somebody_waits() {
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let routing = KickRouting::new(Arc::clone(&waiter).into(), false);
        let fd = kick();
        let token = routing.add(Arc::clone(&fd), KickKind::Buffers).expect("add");
        for waits in [false, true, true, false] {
            routing.change(Arc::clone(&waiter).into(), waits).expect("change");
            waiter.woken_by();
            write(&fd);
            assert_eq!(waiter.woken_by().0, usize::from(waits));
        }
        routing.remove(token);
        assert_eq!(Arc::strong_count(&fd), 1, "nothing is kept");
    }
}
