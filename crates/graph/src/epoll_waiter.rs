//! The wait of a worker that finds nothing to do. Kicks of guests wake the worker, and so does an
//! eventfd that control writes.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use straightline_packet::IgnorePoison;

/// The event of the eventfd that control writes.
const WAKE: u64 = 0;

/// Names a watched descriptor. The descriptor stays watched until it is removed with this token.
#[derive(Debug)]
pub struct Token(u64);

/// The time in which a descriptor is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Always.
    Always,
    /// Only while the worker waits. For each packet that a tap or socket sends or receives, the
    /// kernel tells all sets that the descriptor is in. That costs a worker that polls a tenth of
    /// its cycles.
    Waiting,
}

/// A set of descriptors that one worker waits for. Control adds and removes descriptors while the
/// worker sleeps.
#[derive(Debug)]
pub struct EpollWaiter {
    epoll: OwnedFd,
    wake_event: OwnedFd,
    next: AtomicU64,
    watched: Mutex<Watched>,
}

/// The descriptors of a set.
#[derive(Debug, Default)]
struct Watched {
    always: HashMap<u64, Arc<OwnedFd>>,
    /// The descriptors that are in the set only while the worker waits.
    waiting: HashMap<u64, Arc<OwnedFd>>,
    waits: bool,
}

impl AsFd for EpollWaiter {
    /// Returns a descriptor that is readable when [`EpollWaiter::wait`] would not wait. Descriptors
    /// with `Watch::Waiting` have no effect on it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl EpollWaiter {
    /// Returns a set that only [`Self::wake`] wakes.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake_event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake_event, EventData::new_u64(WAKE), EventFlags::IN | EventFlags::ET)?;
        Ok(EpollWaiter { epoll, wake_event, next: AtomicU64::new(WAKE + 1), watched: Mutex::default() })
    }

    /// Wakes the worker, now or as soon as it would sleep.
    pub fn wake(&self) {
        // A full counter also wakes the worker, and the write has no other error.
        let _ = rustix::io::write(&self.wake_event, &1_u64.to_ne_bytes());
    }

    /// Adds a kick, which must be an eventfd. It is watched for edges and never read: a guest's
    /// frontend shares it and could make a read block.
    pub fn add(&self, fd: Arc<OwnedFd>) -> io::Result<Token> {
        if !is_eventfd(&fd)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an eventfd"));
        }
        self.watch(fd, Watch::Always)
    }

    /// Adds a descriptor. Each new edge of its readiness to read wakes the worker. With
    /// [`Watch::Waiting`], so does readiness at the beginning of a wait.
    pub fn watch(&self, fd: Arc<OwnedFd>, watch: Watch) -> io::Result<Token> {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let mut watched = self.lock();
        if watch == Watch::Always || watched.waits {
            self.insert(token, &fd)?;
        }
        match watch {
            Watch::Always => watched.always.insert(token, fd),
            Watch::Waiting => watched.waiting.insert(token, fd),
        };
        drop(watched);
        self.wake();
        Ok(Token(token))
    }

    fn insert(&self, token: u64, fd: &OwnedFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN | EventFlags::ET)?)
    }

    /// Removes a kick.
    #[expect(clippy::needless_pass_by_value, reason = "a token is used up")]
    pub fn remove(&self, token: Token) {
        let mut watched = self.lock();
        if let Some(gone) = watched.always.remove(&token.0).or_else(|| watched.waiting.remove(&token.0)) {
            // The descriptor is ours, so it is open. It may be absent from the set now.
            let _ = epoll::delete(&self.epoll, &*gone);
        }
    }

    /// Waits for a kick, for [`Self::wake`], or until the time has passed.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let waited = self.begin_wait().and_then(|()| self.wait_for_events(timeout));
        self.end_wait();
        waited
    }

    /// Completes the set.
    fn begin_wait(&self) -> io::Result<()> {
        let mut watched = self.lock();
        watched.waits = true;
        watched.waiting.iter().try_for_each(|(&token, fd)| self.insert(token, fd))
    }

    /// Takes the descriptors out of the set that are in it only while the worker waits.
    fn end_wait(&self) {
        let mut watched = self.lock();
        watched.waits = false;
        for fd in watched.waiting.values() {
            // It is absent if the wait failed before it was added.
            let _ = epoll::delete(&self.epoll, &**fd);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().ignore_poison()
    }

    fn wait_for_events(&self, timeout: Duration) -> io::Result<()> {
        let mut events = [const { MaybeUninit::uninit() }; 16];
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the number of kicks that would wake the worker now, and whether [`Self::wake`] was
    /// called since the last wait. Tests of ports ask for it.
    ///
    /// # Panics
    /// If the system refuses to look.
    pub fn woken_by(&self) -> (usize, bool) {
        self.begin_wait().expect("the set is complete");
        let mut events = [const { MaybeUninit::uninit() }; 16];
        let (ready, _) = epoll::wait(&self.epoll, &mut events, Some(&Timespec::default())).expect("epoll_wait");
        self.end_wait();
        let wakes = ready.iter().filter(|event| event.data.u64() == WAKE).count();
        (ready.len() - wakes, wakes > 0)
    }
}

/// Returns whether the descriptor is an eventfd: its inode is anonymous, and the inode's name says
/// so.
///
/// # Errors
/// The descriptor is not listed in `/proc`.
pub fn is_eventfd(fd: &OwnedFd) -> io::Result<bool> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(std::fs::read_link(path)?.as_os_str() == "anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use straightline_testing::wait_until;

    use super::*;

    /// Waits for an hour in a thread, which must be woken.
    fn is_woken(waiter: &Arc<EpollWaiter>) {
        let thread = std::thread::spawn({
            let waiter = Arc::clone(waiter);
            move || waiter.wait(Duration::from_secs(3600))
        });
        wait_until("the waiter is woken", || thread.is_finished());
        thread.join().expect("no panic").expect("wait");
    }

    #[test]
    fn the_bell_wakes_even_before_the_sleep() {
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        waiter.wake();
        is_woken(&waiter);
    }

    #[test]
    fn every_kick_wakes_though_the_eventfd_is_never_read() {
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let kick = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"));
        let token = waiter.add(Arc::clone(&kick)).expect("add");
        waiter.wait(Duration::ZERO).expect("the wake_event of add");
        for _ in 0..3 {
            rustix::io::write(&*kick, &1_u64.to_ne_bytes()).expect("kick");
            is_woken(&waiter);
        }
        waiter.remove(token);
        assert_eq!(Arc::strong_count(&kick), 1, "nothing is kept");
    }

    #[test]
    fn a_descriptor_of_ours_is_in_the_set_only_while_the_worker_waits() {
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let one = Arc::new(OwnedFd::from(one));
        let token = waiter.watch(Arc::clone(&one), Watch::Waiting).expect("watch");
        waiter.wait(Duration::ZERO).expect("the wake of watch");
        let in_set = || match epoll::delete(&waiter.epoll, &*one) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::NOENT);
                false
            }
        };
        assert!(!in_set());
        // It wakes the worker also if it is readable before the wait, and each time.
        rustix::io::write(&other, b"a").expect("write");
        for _ in 0..3 {
            is_woken(&waiter);
            assert!(!in_set());
        }
        rustix::io::read(&*one, &mut [0; 1]).expect("read");
        let thread = std::thread::spawn({
            let waiter = Arc::clone(&waiter);
            move || waiter.wait(Duration::from_secs(3600))
        });
        wait_until("the thread waits", || waiter.lock().waits);
        rustix::io::write(&other, b"b").expect("write");
        wait_until("the waiter is woken", || thread.is_finished());
        thread.join().expect("no panic").expect("wait");
        waiter.remove(token);
        assert_eq!(Arc::strong_count(&one), 1, "nothing is kept");
    }

    #[test]
    fn only_an_eventfd_is_waited_for() {
        let waiter = EpollWaiter::new().expect("epoll");
        let (pipe, _write) = io::pipe().expect("a pipe");
        let (socket, _theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        for fd in [OwnedFd::from(pipe), socket.into()] {
            let error = waiter.add(Arc::new(fd)).expect_err("it would have to be emptied");
            assert_eq!(error.to_string(), "not an eventfd");
        }
    }
}
