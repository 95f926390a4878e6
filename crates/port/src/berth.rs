//! A port's place in the sleeper of its worker: it can be moved to another worker's, and no kick is missed meanwhile.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Sleeper, Token};

/// A kick of the port, until it is removed with this.
#[derive(Debug)]
pub(crate) struct Kick(u64);

/// The kicks of one port, and who is to be woken by them.
#[derive(Debug)]
pub(crate) struct Berth(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    sleeper: Arc<Sleeper>,
    /// Whether the worker wants to know when there is room again.
    waits: bool,
    next: u64,
    kicks: HashMap<u64, Watched>,
}

#[derive(Debug)]
struct Watched {
    fd: Arc<OwnedFd>,
    /// It says that there is room, not that there are packets.
    room: bool,
    /// None while nobody wants to know.
    token: Option<Token>,
}

impl Berth {
    pub(crate) fn new(sleeper: Arc<Sleeper>, waits: bool) -> Self {
        Berth(Mutex::new(Inner { sleeper, waits, next: 0, kicks: HashMap::new() }))
    }

    /// Wakes the worker.
    pub(crate) fn ring(&self) {
        self.lock().sleeper.ring();
    }

    /// Adds a kick; with `room`, one that says that there is room, which only a worker that waits for it wants to know.
    pub(crate) fn add(&self, fd: Arc<OwnedFd>, room: bool) -> io::Result<Kick> {
        let mut inner = self.lock();
        let token = if room && !inner.waits { None } else { Some(inner.sleeper.add(Arc::clone(&fd))?) };
        let at = inner.next;
        inner.next += 1;
        inner.kicks.insert(at, Watched { fd, room, token });
        Ok(Kick(at))
    }

    /// Takes a kick out again.
    #[expect(clippy::needless_pass_by_value, reason = "a kick is used up")]
    pub(crate) fn remove(&self, kick: Kick) {
        let mut inner = self.lock();
        if let Some(token) = inner.kicks.remove(&kick.0).and_then(|gone| gone.token) {
            inner.sleeper.remove(token);
        }
    }

    /// Moves to another sleeper, or stays in this one and begins or ceases to wait for room. All kicks are watched there
    /// before they are taken out here, and adding one wakes. On an error all is as before.
    pub(crate) fn change(&self, sleeper: &Arc<Sleeper>, waits: bool) -> io::Result<()> {
        let mut inner = self.lock();
        let moved = !Arc::ptr_eq(sleeper, &inner.sleeper);
        let mut added = Vec::new();
        for (&at, kick) in &inner.kicks {
            if (waits || !kick.room) && (moved || kick.token.is_none()) {
                match sleeper.add(Arc::clone(&kick.fd)) {
                    Ok(token) => added.push((at, token)),
                    Err(error) => {
                        added.into_iter().for_each(|(_, token)| sleeper.remove(token));
                        return Err(error);
                    }
                }
            }
        }
        let old = std::mem::replace(&mut inner.sleeper, Arc::clone(sleeper));
        inner.waits = waits;
        for kick in inner.kicks.values_mut() {
            if (moved || (kick.room && !waits))
                && let Some(token) = kick.token.take()
            {
                old.remove(token);
            }
        }
        for (at, token) in added {
            if let Some(kick) = inner.kicks.get_mut(&at) {
                kick.token = Some(token);
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let berth = Berth::new(Arc::clone(&old), false);
        let fd = kick();
        let token = berth.add(Arc::clone(&fd), false).expect("add");
        old.woken_by();
        write(&fd);
        assert_eq!(old.woken_by().0, 1);
        // Kicked before it moves, and nobody has looked: the new one learns of it.
        write(&fd);
        berth.change(&new, false).expect("change");
        assert_eq!((new.woken_by().0, old.woken_by().0), (1, 0));
        write(&fd);
        assert_eq!((new.woken_by().0, old.woken_by().0), (1, 0));
        berth.remove(token);
        assert_eq!(Arc::strong_count(&fd), 1, "nothing is kept");
    }

    #[test]
    fn room_is_watched_for_only_while_somebody_waits() {
        let sleeper = Arc::new(Sleeper::new().expect("epoll"));
        let berth = Berth::new(Arc::clone(&sleeper), false);
        let fd = kick();
        let token = berth.add(Arc::clone(&fd), true).expect("add");
        for waits in [false, true, true, false] {
            berth.change(&sleeper, waits).expect("change");
            sleeper.woken_by();
            write(&fd);
            assert_eq!(sleeper.woken_by().0, usize::from(waits));
        }
        berth.remove(token);
        assert_eq!(Arc::strong_count(&fd), 1, "nothing is kept");
    }
}
