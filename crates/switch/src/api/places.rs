//! The places of clients, by user: the clients of one user cannot take the places of another user.
//!
//! The user is the one that connected (`SO_PEERCRED`). The root of a container without a user namespace
//! of its own is this machine's root. Each user has shares of connections, answers and streams. All
//! users together have a limit besides, which excludes the switch's own user and root. So these two
//! always reach the switch.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rustix::process::geteuid;
use straightline_packet::IgnorePoison;

use super::{ErrorCode, Refusal};

/// The most that a user may have at a socket, or all other users together.
struct Limits {
    /// Connections without a port and without a stream, each with a thread.
    connections: usize,
    /// Answers that are made or written: they are what takes memory.
    answers: usize,
    streams: usize,
}

/// The limits of each user.
const USER: Limits = Limits { connections: 64, answers: 16, streams: MAX_STREAMS };

/// The limits of all users together, but for the switch's own and root.
const OTHERS: Limits = Limits { connections: 256, answers: 48, streams: 48 };

/// The maximum number of streams of a user.
pub(super) const MAX_STREAMS: usize = 16;

/// The maximum number of clients that have a dynamic port.
const MAX_DYNAMIC_PORTS: usize = 1024;

/// The number of clients that were refused since the start, at all sockets.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of clients that found no place since the start.
pub(crate) fn refused_clients() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// The places of a socket.
#[derive(Default)]
pub(super) struct Places {
    state: Mutex<State>,
    /// An answer's place is free, or the socket stops.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    users: HashMap<u32, Use>,
    others: Use,
    dynamic_ports: usize,
    has_stopped: bool,
}

/// The number of things that a user has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    connections: usize,
    answers: usize,
    streams: usize,
    dynamic_ports: usize,
}

/// The purpose of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Connection,
    Answer,
    Stream,
    DynamicPort,
}

/// A place of a user, until it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    user: u32,
    kind: Kind,
}

impl Places {
    /// Gives a new connection of this user a place.
    ///
    /// # Errors
    /// The user, or all users together, have as many as possible.
    pub(super) fn connection(self: &Arc<Self>, user: u32) -> Result<Place, Refusal> {
        self.take(user, Kind::Connection).inspect_err(|_| {
            REFUSED.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Ends all waiting for answers. No place is given any more.
    pub(super) fn stop(&self) {
        lock(&self.state).has_stopped = true;
        self.changed.notify_all();
    }

    fn take(self: &Arc<Self>, user: u32, kind: Kind) -> Result<Place, Refusal> {
        let mut state = lock(&self.state);
        if let Some(why) = state.full(user, kind) {
            return Err(Refusal::new(ErrorCode::Busy, why));
        }
        state.count(user, kind, |count| *count += 1);
        Ok(Place { places: Arc::clone(self), user, kind })
    }
}

impl Place {
    /// Waits until this user may have one more answer. Returns none when the socket stops.
    pub(super) fn wait_for_answer(&self) -> Option<Place> {
        let mut state = lock(&self.places.state);
        while !state.has_stopped && state.full(self.user, Kind::Answer).is_some() {
            state = self.places.changed.wait(state).ignore_poison();
        }
        if state.has_stopped {
            return None;
        }
        state.count(self.user, Kind::Answer, |count| *count += 1);
        Some(Place { places: Arc::clone(&self.places), user: self.user, kind: Kind::Answer })
    }

    /// Returns a place for a stream, for this one.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn stream(&self) -> Result<Place, Refusal> {
        self.places.take(self.user, Kind::Stream)
    }

    /// Returns a place for a client with a dynamic port, for this one.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn dynamic_port(&self) -> Result<Place, Refusal> {
        self.places.take(self.user, Kind::DynamicPort)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.state).count(self.user, self.kind, |count| *count -= 1);
        if self.kind == Kind::Answer {
            self.places.changed.notify_all();
        }
    }
}

impl State {
    /// Returns why this user gets no more of this kind.
    fn full(&self, user: u32, kind: Kind) -> Option<String> {
        let of_user = self.users.get(&user).copied().unwrap_or_default();
        let (what, most_of_user, most_of_others) = match kind {
            Kind::Connection => ("connections", USER.connections, OTHERS.connections),
            Kind::Answer => ("answers", USER.answers, OTHERS.answers),
            Kind::Stream => ("streams", USER.streams, OTHERS.streams),
            Kind::DynamicPort => {
                let is_full = self.dynamic_ports >= MAX_DYNAMIC_PORTS;
                return is_full.then(|| {
                    format!("{MAX_DYNAMIC_PORTS} clients have a port already; end one of them, and try again")
                });
            }
        };
        if of_user.of(kind) >= most_of_user {
            return Some(format!(
                "user {user} has {most_of_user} {what} of this socket already, as many as a user may have; end one \
                 of them, and try again"
            ));
        }
        let is_full = !is_ours(user) && self.others.of(kind) >= most_of_others;
        is_full.then(|| {
            format!(
                "all users together have {most_of_others} {what} of this socket already; try again later, or as \
                 the switch's own user"
            )
        })
    }

    fn count(&mut self, user: u32, kind: Kind, change: impl Fn(&mut usize)) {
        let of_user = self.users.entry(user).or_default();
        change(of_user.of_mut(kind));
        if *of_user == Use::default() {
            self.users.remove(&user);
        }
        if !is_ours(user) {
            change(self.others.of_mut(kind));
        }
        if kind == Kind::DynamicPort {
            change(&mut self.dynamic_ports);
        }
    }
}

impl Use {
    fn of(mut self, kind: Kind) -> usize {
        *self.of_mut(kind)
    }

    fn of_mut(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Connection => &mut self.connections,
            Kind::Answer => &mut self.answers,
            Kind::Stream => &mut self.streams,
            Kind::DynamicPort => &mut self.dynamic_ports,
        }
    }
}

/// Returns whether the limits of all users together do not count this one.
fn is_ours(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEIRS: u32 = 4_000_000;

    #[test]
    fn a_user_takes_no_place_of_another() {
        let places = Arc::<Places>::default();
        let mut all = Vec::new();
        for user in THEIRS.. {
            let of_user: Vec<_> = (0..=USER.connections).map_while(|_| places.connection(user).ok()).collect();
            assert!(of_user.len() <= USER.connections);
            if of_user.is_empty() {
                break;
            }
            all.extend(of_user);
        }
        assert_eq!(all.len(), OTHERS.connections);
        let text = |user| places.connection(user).map(drop).unwrap_err().to_string();
        assert!(text(THEIRS).contains("user 4000000 has 64 connections"), "{}", text(THEIRS));
        assert!(text(THEIRS - 1).contains("all users together"), "{}", text(THEIRS - 1));
        // Our own user and root have theirs besides.
        for user in [geteuid().as_raw(), 0] {
            drop(places.connection(user).unwrap());
        }
        drop(all);
        drop(places.connection(THEIRS).unwrap());
        assert!(lock(&places.state).users.is_empty() && lock(&places.state).others == Use::default());
    }

    #[test]
    fn answers_wait_for_their_turn_and_for_nothing_at_a_stop() {
        let places = Arc::<Places>::default();
        let client = places.connection(THEIRS).unwrap();
        let mut answers: Vec<_> = (0..USER.answers).map(|_| client.wait_for_answer().unwrap()).collect();
        let other = places.connection(THEIRS + 1).unwrap();
        drop(other.wait_for_answer().unwrap());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| client.wait_for_answer().is_some());
            answers.pop();
            assert!(next.join().unwrap());
            let full = client.wait_for_answer().unwrap();
            let next = scope.spawn(|| client.wait_for_answer().is_some());
            places.stop();
            assert!(!next.join().unwrap());
            drop(full);
        });
    }
}
