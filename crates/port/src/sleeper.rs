//! Where a worker waits when it finds nothing: kicks of guests and a bell for control wake it.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::signal::signal;

/// The bell's event.
const BELL: u64 = 0;

/// A descriptor that is waited for, until it is removed with this.
#[derive(Debug)]
pub struct Token(u64);

/// A set of descriptors to wait for. Control adds and removes while the worker sleeps.
#[derive(Debug)]
pub struct Sleeper {
    epoll: OwnedFd,
    bell: OwnedFd,
    next: AtomicU64,
    /// What is in the set.
    watched: Mutex<HashMap<u64, Watched>>,
}

impl AsFd for Sleeper {
    /// Readable when [`Sleeper::wait`] would not wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[derive(Debug)]
struct Watched {
    fd: Arc<OwnedFd>,
    notifier: Notifier,
}

impl Sleeper {
    /// A set with only the bell in it.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        Ok(Sleeper { epoll, bell, next: AtomicU64::new(BELL + 1), watched: Mutex::default() })
    }

    /// Wakes the worker, now or as soon as it would sleep.
    pub fn ring(&self) {
        // A counter that is full wakes just as well, and nothing else can fail.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Adds a kick. The descriptor is watched for edges and, if it is an eventfd, never read: a guest's frontend
    /// shares it and could make a read block.
    pub fn add(&self, fd: Arc<OwnedFd>) -> io::Result<Token> {
        let notifier = Notifier::new(Arc::clone(&fd), OFlags::RDONLY)?;
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        epoll::add(&self.epoll, &*fd, EventData::new_u64(token), EventFlags::IN | EventFlags::ET)?;
        watched.insert(token, Watched { fd, notifier });
        drop(watched);
        self.ring();
        Ok(Token(token))
    }

    /// Takes a kick out again.
    #[expect(clippy::needless_pass_by_value, reason = "a token is used up")]
    pub fn remove(&self, token: Token) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gone) = watched.remove(&token.0) {
            // It is in the set as long as it is in the table; the frontend may have closed its end, not ours.
            let _ = epoll::delete(&self.epoll, &*gone.fd);
        }
    }

    /// Waits for a kick, the bell, or the time-out.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let mut room = [const { MaybeUninit::uninit() }; 16];
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, &mut room, Some(&timeout)) {
            Ok((events, _)) => events.iter().for_each(|event| self.drain(event.data.u64())),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// How many kicks would wake it now, the bell apart.
    #[cfg(test)]
    pub(crate) fn kicked(&self) -> usize {
        let mut room = [const { MaybeUninit::uninit() }; 16];
        let (events, _) = epoll::wait(&self.epoll, &mut room, Some(&Timespec::default())).expect("epoll_wait");
        events.iter().filter(|event| event.data.u64() != BELL).count()
    }

    /// Whether the bell was rung since the last wait.
    #[cfg(test)]
    pub(crate) fn is_rung(&self) -> bool {
        let mut room = [const { MaybeUninit::uninit() }; 16];
        let (events, _) = epoll::wait(&self.epoll, &mut room, Some(&Timespec::default())).expect("epoll_wait");
        events.iter().any(|event| event.data.u64() == BELL)
    }

    /// Empties what was written to, unless it is an eventfd.
    fn drain(&self, token: u64) {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Watched { notifier, .. }) = watched.get(&token) {
            notifier.drain();
        }
    }
}

/// A descriptor that somebody sent us, to be notified by it or to notify.
#[derive(Debug)]
pub(crate) enum Notifier {
    /// Signalled, which never waits; to be woken by it, watched and never read.
    Event(Arc<OwnedFd>),
    /// A handle of our own on a pipe: whether it blocks is ours to say.
    Pipe(OwnedFd),
    /// User Mode Linux sends these. Whether to block is said with each call.
    Socket(Arc<OwnedFd>),
}

impl Notifier {
    /// Looks at what it is. Files and the like are refused: they can block whatever they are told.
    pub(crate) fn new(fd: Arc<OwnedFd>, mode: OFlags) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*fd));
        match FileType::from_raw_mode(fstat(&*fd)?.st_mode) {
            FileType::Fifo => Ok(Notifier::Pipe(open(path, mode | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)),
            FileType::Socket => Ok(Notifier::Socket(fd)),
            _ if std::fs::read_link(path)?.as_os_str() == "anon_inode:[eventfd]" => {
                // Signals need it not; a write does, where there are no signals.
                fcntl_setfl(&*fd, fcntl_getfl(&*fd)? | OFlags::NONBLOCK)?;
                Ok(Notifier::Event(fd))
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no eventfd, no pipe and no socket")),
        }
    }

    /// Notifies the other side.
    pub(crate) fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        // What is full has its notification already; what is closed has nobody left to tell.
        match self {
            Notifier::Event(fd) => signal(fd.as_fd()),
            Notifier::Pipe(fd) => drop(rustix::io::write(fd, &one)),
            Notifier::Socket(fd) => drop(send(fd, &one, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)),
        }
    }

    /// Takes what has been written, so that its writer never finds it full.
    fn drain(&self) {
        let mut bytes = [0; 512];
        // At most a pipe's default size; what a flood adds meanwhile waits for the next time.
        for _ in 0..128 {
            let got = match self {
                Notifier::Event(_) => return,
                Notifier::Pipe(fd) => rustix::io::read(fd, &mut bytes),
                Notifier::Socket(fd) => recv(fd, &mut bytes, RecvFlags::DONTWAIT).map(|(n, _)| n),
            };
            if !got.is_ok_and(|n| n > 0) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_bell_wakes_even_before_the_sleep() {
        let sleeper = Sleeper::new().expect("epoll");
        sleeper.ring();
        let start = Instant::now();
        sleeper.wait(Duration::from_secs(20)).expect("wait");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn every_kick_wakes_though_the_eventfd_is_never_read() {
        let sleeper = Sleeper::new().expect("epoll");
        let kick = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"));
        let token = sleeper.add(Arc::clone(&kick)).expect("add");
        sleeper.wait(Duration::ZERO).expect("the bell of add");
        for _ in 0..3 {
            rustix::io::write(&*kick, &1_u64.to_ne_bytes()).expect("kick");
            let start = Instant::now();
            sleeper.wait(Duration::from_secs(20)).expect("wait");
            assert!(start.elapsed() < Duration::from_secs(10));
        }
        sleeper.remove(token);
        assert_eq!(Arc::strong_count(&kick), 1, "nothing is kept");
    }

    #[test]
    fn a_pipe_is_emptied() {
        let sleeper = Sleeper::new().expect("epoll");
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).expect("pipe");
        let _token = sleeper.add(Arc::new(read)).expect("add");
        for _ in 0..10 {
            for _ in 0..4000 {
                rustix::io::write(&write, &[1; 8]).expect("the pipe has room: it was emptied");
            }
            sleeper.wait(Duration::from_secs(20)).expect("wait");
        }
    }
}
