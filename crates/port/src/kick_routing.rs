//! A port's places in the sleepers of its workers: it can be moved to other workers', and no kick is missed meanwhile.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::vhost_user::Sleepers;
use crate::{Sleeper, Token};

/// A kick of the port, until it is removed with this.
#[derive(Debug)]
pub(crate) struct Kick(u64);

/// What a kick says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// There are packets in the transmit ring of this pair.
    Packets(u16),
    /// There is room in a receive ring. Only workers that wait for it want to know.
    Room,
}

/// The kicks of one port, and who is to be woken by them.
#[derive(Debug)]
pub(crate) struct Berth(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    sleepers: Sleepers,
    /// Whether workers want to know when there is room again.
    waits: bool,
    next: u64,
    kicks: HashMap<u64, Watched>,
}

#[derive(Debug)]
struct Watched {
    fd: Arc<OwnedFd>,
    says: Says,
    /// With whom: nobody where nobody wants to know.
    tokens: Vec<(Arc<Sleeper>, Token)>,
}

impl Berth {
    pub(crate) fn new(sleepers: Sleepers, waits: bool) -> Self {
        Berth(Mutex::new(Inner { sleepers, waits, next: 0, kicks: HashMap::new() }))
    }

    /// Wakes all workers.
    pub(crate) fn ring(&self) {
        let inner = self.lock();
        let mut rung: Vec<&Arc<Sleeper>> = Vec::new();
        for sleeper in inner.sleepers.takes.iter().chain(&inner.sleepers.givers) {
            if !rung.iter().any(|other| Arc::ptr_eq(other, sleeper)) {
                sleeper.ring();
                rung.push(sleeper);
            }
        }
    }

    /// Adds a kick.
    pub(crate) fn add(&self, fd: Arc<OwnedFd>, says: Says) -> io::Result<Kick> {
        let mut inner = self.lock();
        let mut tokens = Vec::new();
        watch(&fd, wanted(&inner.sleepers, inner.waits, says), &mut tokens)?;
        let at = inner.next;
        inner.next += 1;
        inner.kicks.insert(at, Watched { fd, says, tokens });
        Ok(Kick(at))
    }

    /// Takes a kick out again.
    #[expect(clippy::needless_pass_by_value, reason = "a kick is used up")]
    pub(crate) fn remove(&self, kick: Kick) {
        let gone = self.lock().kicks.remove(&kick.0);
        gone.into_iter().flat_map(|gone| gone.tokens).for_each(|(sleeper, token)| sleeper.remove(token));
    }

    /// Moves to other sleepers, or stays in these and begins or ceases to wait for room. All kicks are watched there
    /// before they are taken out here, and adding one wakes. On an error all is as before.
    pub(crate) fn change(&self, sleepers: Sleepers, waits: bool) -> io::Result<()> {
        let mut inner = self.lock();
        let mut added = HashMap::new();
        for (&at, kick) in &inner.kicks {
            let has = |sleeper: &Arc<Sleeper>| kick.tokens.iter().any(|(other, _)| Arc::ptr_eq(other, sleeper));
            let new = wanted(&sleepers, waits, kick.says).filter(|sleeper| !has(sleeper));
            let mut tokens = Vec::new();
            if let Err(error) = watch(&kick.fd, new, &mut tokens) {
                let others = added.into_values().flatten();
                others.for_each(|(sleeper, token): (Arc<Sleeper>, _)| sleeper.remove(token));
                return Err(error);
            }
            added.insert(at, tokens);
        }
        for (at, kick) in &mut inner.kicks {
            let stays = |sleeper: &Arc<Sleeper>| wanted(&sleepers, waits, kick.says).any(|s| Arc::ptr_eq(s, sleeper));
            let (keep, gone): (Vec<_>, Vec<_>) = kick.tokens.drain(..).partition(|(sleeper, _)| stays(sleeper));
            gone.into_iter().for_each(|(sleeper, token)| sleeper.remove(token));
            kick.tokens = keep;
            kick.tokens.extend(added.remove(at).into_iter().flatten());
        }
        (inner.sleepers, inner.waits) = (sleepers, waits);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who wants to know of a kick.
fn wanted(sleepers: &Sleepers, waits: bool, says: Says) -> impl Iterator<Item = &Arc<Sleeper>> {
    let of_pair = |pair: u16| sleepers.takes.get(usize::from(pair)).or(sleepers.takes.first());
    let (one, all) = match says {
        Says::Packets(pair) => (of_pair(pair), &[][..]),
        Says::Room if waits => (None, &sleepers.givers[..]),
        Says::Room => (None, &[][..]),
    };
    one.into_iter().chain(all)
}

/// Adds a kick to all of these, or to none.
fn watch<'s>(
    fd: &Arc<OwnedFd>,
    sleepers: impl Iterator<Item = &'s Arc<Sleeper>>,
    tokens: &mut Vec<(Arc<Sleeper>, Token)>,
) -> io::Result<()> {
    for sleeper in sleepers {
        match sleeper.add(Arc::clone(fd)) {
            Ok(token) => tokens.push((Arc::clone(sleeper), token)),
            Err(error) => {
                tokens.drain(..).for_each(|(sleeper, token)| sleeper.remove(token));
                return Err(error);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn kick() -> Arc<OwnedFd> {
        Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"))
    }

    fn write(kick: &OwnedFd) {
        rustix::io::write(kick, &1_u64.to_ne_bytes()).expect("kick");
    }

    #[test]
    fn a_kick_wakes_the_sleeper_that_the_port_moved_to() {
        let [old, new] = [0, 1].map(|_| Arc::new(Sleeper::new().expect("epoll")));
        let berth = Berth::new(Arc::clone(&old).into(), false);
        let fd = kick();
        let token = berth.add(Arc::clone(&fd), Says::Packets(0)).expect("add");
        old.woken_by();
        write(&fd);
        assert_eq!(old.woken_by().0, 1);
        // Kicked before it moves, and nobody has looked: the new one learns of it.
        write(&fd);
        berth.change(Arc::clone(&new).into(), false).expect("change");
        assert_eq!((new.woken_by().0, old.woken_by().0), (1, 0));
        write(&fd);
        assert_eq!((new.woken_by().0, old.woken_by().0), (1, 0));
        berth.remove(token);
        assert_eq!(Arc::strong_count(&fd), 1, "nothing is kept");
    }

    #[test]
    fn each_pair_wakes_its_own_worker_and_room_all_who_deliver() {
        let [a, b, c] = [0, 1, 2].map(|_| Arc::new(Sleeper::new().expect("epoll")));
        let all = [&a, &b, &c];
        let of = |takes: [usize; 2], givers: &[usize]| Sleepers {
            takes: takes.iter().map(|&at| Arc::clone(all[at])).collect(),
            givers: givers.iter().map(|&at| Arc::clone(all[at])).collect(),
        };
        let berth = Berth::new(of([0, 1], &[0, 1]), true);
        let fds = [0, 1, 2].map(|_| kick());
        let says = [Says::Packets(0), Says::Packets(1), Says::Room];
        let tokens = [0, 1, 2].map(|at| berth.add(Arc::clone(&fds[at]), says[at]).expect("add"));
        let woken = |at: usize| {
            all.iter().for_each(|sleeper| _ = sleeper.woken_by());
            write(&fds[at]);
            all.map(|sleeper| sleeper.woken_by().0)
        };
        assert_eq!([0, 1, 2].map(woken), [[1, 0, 0], [0, 1, 0], [1, 1, 0]]);
        // The first stays with its worker, the others move.
        berth.change(of([0, 2], &[2]), true).expect("change");
        assert_eq!([0, 1, 2].map(woken), [[1, 0, 0], [0, 0, 1], [0, 0, 1]]);
        berth.ring();
        assert_eq!(all.map(|sleeper| sleeper.woken_by().1), [true, false, true]);
        tokens.into_iter().for_each(|token| berth.remove(token));
        fds.iter().for_each(|fd| assert_eq!(Arc::strong_count(fd), 1, "nothing is kept"));
    }

    #[test]
    fn room_is_watched_for_only_while_somebody_waits() {
        let sleeper = Arc::new(Sleeper::new().expect("epoll"));
        let berth = Berth::new(Arc::clone(&sleeper).into(), false);
        let fd = kick();
        let token = berth.add(Arc::clone(&fd), Says::Room).expect("add");
        for waits in [false, true, true, false] {
            berth.change(Arc::clone(&sleeper).into(), waits).expect("change");
            sleeper.woken_by();
            write(&fd);
            assert_eq!(sleeper.woken_by().0, usize::from(waits));
        }
        berth.remove(token);
        assert_eq!(Arc::strong_count(&fd), 1, "nothing is kept");
    }
}
