//! Descriptors that a frontend sent for kicks and calls. Only kinds that cannot hold a worker up
//! are accepted.
//!
//! Kicks are eventfds. Calls are eventfds too, or UNIX stream sockets, which User Mode Linux sends.
//! All others are refused:
//!
//! - A file can block regardless of its flags.
//! - The kernel reads and writes pipes, and reads sockets, under a lock. A process that shares the
//!   descriptor can read into memory that is missing (a userfaultfd), or write from it. It then
//!   keeps the lock for as long as the memory is missing. No flag helps the next process that wants
//!   the lock.
//!
//! A write into a UNIX stream socket takes no such lock.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SendFlags, SocketType, send};
use rustix::system::uname;
use straightline_graph::{is_eventfd, signal};

use crate::notify::call_cost::CallCost;
use crate::notify::call_helper::{CallHelper, PendingCalls};

/// A descriptor by which a guest is notified. Clones are the same notifier.
#[derive(Clone, Debug)]
pub(crate) struct Notifier(Arc<Target>);

#[derive(Debug)]
struct Target {
    kind: Kind,
    /// The state of the helper, which notifies where the caller would have to wait. The state is
    /// dropped when the frontend has left.
    calls: Weak<PendingCalls>,
    /// The time that the notifications of its port take.
    cost: Arc<CallCost>,
    /// True if the helper was asked to notify and has not begun.
    is_pending: AtomicBool,
}

#[derive(Debug)]
enum Kind {
    Event(Arc<OwnedFd>),
    Socket(Arc<OwnedFd>),
}

impl Notifier {
    /// Checks the kind of descriptor. `helper` belongs to the frontend that sent the descriptor.
    pub(crate) fn new(fd: Arc<OwnedFd>, helper: &CallHelper) -> io::Result<Self> {
        let kind = if is_eventfd(&fd)? {
            // A signal does not need O_NONBLOCK; a write by the helper does.
            fcntl_setfl(&*fd, fcntl_getfl(&*fd)? | OFlags::NONBLOCK)?;
            Kind::Event(fd)
        } else {
            let is_socket = FileType::from_raw_mode(fstat(&*fd)?.st_mode) == FileType::Socket;
            if !is_socket || socket_domain(&*fd)? != AddressFamily::UNIX || socket_type(&*fd)? != SocketType::STREAM {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither an eventfd nor a UNIX stream socket"));
            }
            Kind::Socket(fd)
        };
        let calls = Arc::downgrade(helper.calls());
        let cost = Arc::clone(helper.cost());
        Ok(Notifier(Arc::new(Target { kind, calls, cost, is_pending: AtomicBool::new(false) })))
    }

    /// Notifies the other side, and never waits.
    pub(crate) fn notify(&self) {
        let cost = &self.0.cost;
        let is_done = match &self.0.kind {
            _ if cost.is_slow() => false,
            Kind::Event(fd) => cost.measure(|| signal(fd.as_fd())),
            Kind::Socket(fd) if !senders_may_wait() => {
                cost.measure(|| write_socket(fd));
                true
            }
            Kind::Socket(_) => false,
        };
        if !is_done && let Some(calls) = self.0.calls.upgrade() {
            calls.ask(self);
        }
    }

    /// Marks the notifier as waiting for the helper. Returns whether the mark was set already.
    pub(crate) fn set_pending(&self, is_pending: bool) -> bool {
        // The caller's writes into the ring come before the helper's notification.
        self.0.is_pending.swap(is_pending, Ordering::AcqRel)
    }

    /// Notifies by a system call that may wait for as long as the frontend likes. Only the helper
    /// calls it.
    pub(crate) fn notify_blocking(&self) {
        let one = 1_u64.to_ne_bytes();
        // A full counter or socket has its notification already; a closed one has no reader left to
        // notify.
        match &self.0.kind {
            Kind::Event(fd) => drop(rustix::io::write(fd, &one)),
            Kind::Socket(fd) => write_socket(fd),
        }
    }

    /// Ends the wait of a write into a full eventfd.
    pub(crate) fn drain(&self) {
        let Kind::Event(fd) = &self.0.kind else { return };
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
    }
}

fn write_socket(fd: &OwnedFd) {
    // A full socket has its notification already; a closed one has no reader left to notify.
    let _ = send(fd, &1_u64.to_ne_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Returns whether a sender on a UNIX socket may have to wait although it asks not to.
///
/// Before Linux 6.10, each sender waits for the garbage collection of sockets that are in flight in
/// messages (`unix_gc`). Any user can make this collection take long. In later kernels, only
/// processes that send sockets in messages wait.
fn senders_may_wait() -> bool {
    static MAY_WAIT: OnceLock<bool> = OnceLock::new();
    *MAY_WAIT.get_or_init(|| {
        let release = uname();
        version(&release.release().to_string_lossy()).is_none_or(|version| version < (6, 10))
    })
}

/// Returns the major and minor version of a kernel release such as 6.18.44-cloud.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::UdpSocket;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use rustix::event::{EventfdFlags, epoll, eventfd};
    use straightline_graph::Signals;

    use super::*;

    fn helper() -> CallHelper {
        CallHelper::new("test", Arc::new(CallCost::new()), || ())
    }

    #[test]
    fn what_can_hold_up_whoever_rings_is_no_notifier() {
        let refused = |what: &str, fd: OwnedFd| {
            let error = Notifier::new(Arc::new(fd), &helper()).expect_err(what);
            assert_eq!(error.to_string(), "neither an eventfd nor a UNIX stream socket", "{what}");
        };
        let (reader, writer) = io::pipe().expect("a pipe");
        refused("a pipe's end to read", reader.into());
        refused("a pipe's end to write", writer.into());
        refused("a datagram socket", UnixDatagram::unbound().expect("a socket").into());
        refused("an Internet socket", UdpSocket::bind("127.0.0.1:0").expect("a socket").into());
        refused("a file", std::fs::File::open("/proc/self/stat").expect("a file").into());
        refused("a device", std::fs::File::open("/dev/null").expect("a device").into());
    }

    #[test]
    fn versions_of_kernels() {
        for (release, expected) in [
            ("6.18.44-cloud", Some((6, 18))),
            ("5.4.0-1", Some((5, 4))),
            ("6.1.0+rc2", Some((6, 1))),
            ("7.0", Some((7, 0))),
            ("6", None),
            ("six.1", None),
            ("", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
    }

    #[test]
    fn what_rings() {
        assert!(Signals::prepare_control(), "the kernel has asynchronous requests");
        let mut helper = helper();
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
        Notifier::new(Arc::clone(&event), &helper).expect("an eventfd").notify();
        let mut bytes = [0; 8];
        rustix::io::read(&*event, &mut bytes).expect("it was rung");
        assert_eq!(u64::from_ne_bytes(bytes), 1);

        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let socket = Notifier::new(Arc::new(ours.into()), &helper).expect("User Mode Linux's");
        socket.notify();
        helper.start_if_wanted().expect("a thread");
        theirs.read_exact(&mut bytes).expect("it was rung");
        assert_eq!(u64::from_ne_bytes(bytes), 1);
        // The socket is full, and blocks: neither the caller nor the helper waits.
        (0..100_000).for_each(|_| socket.notify_blocking());
    }

    /// Each epoll instance watches each descriptor of the eventfd, and each watch makes each signal
    /// longer.
    #[test]
    fn an_eventfd_that_is_watched_too_often_is_left_to_the_helper() {
        assert!(Signals::prepare_control(), "the kernel has asynchronous requests");
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd"));
        let descriptors: Vec<_> = (0..200).map(|_| event.try_clone().expect("a descriptor")).collect();
        let watch = || {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
            let add = |fd: &OwnedFd| {
                epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).expect("a watch")
            };
            descriptors.iter().for_each(add);
            epoll
        };
        let watches: Vec<_> = (0..200).map(|_| watch()).collect();

        let cost = Arc::new(CallCost::new());
        let mut helper = CallHelper::new("test", Arc::clone(&cost), || ());
        let notifier = Notifier::new(Arc::clone(&event), &helper).expect("an eventfd");
        let count = || {
            let mut bytes = [0; 8];
            rustix::io::read(&*event, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
        };
        let direct = (0..1000).take_while(|_| {
            notifier.notify();
            !cost.is_slow()
        });
        let direct = direct.count() as u64 + 1;
        assert!(cost.is_slow() && count() == direct, "{direct} calls, {cost:?}");
        // The caller signals no more: there is no helper's thread yet.
        notifier.notify();
        assert_eq!(count(), 0);
        helper.start_if_wanted().expect("a thread");
        while count() == 0 {
            std::thread::yield_now();
        }
        // Without the watches, the helper's calls become short, and the caller signals again.
        drop(watches);
        while cost.is_slow() {
            notifier.notify();
        }
    }
}
