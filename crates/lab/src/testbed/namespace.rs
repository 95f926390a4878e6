//! A network namespace that ends with the process.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// A network namespace. It ends with this value and with the sockets and interfaces that were made
/// in it.
#[derive(Debug)]
pub(crate) struct Namespace(File);

impl Namespace {
    /// Makes a namespace without interfaces, except `lo`.
    ///
    /// # Errors
    /// The system's error: this takes CAP_SYS_ADMIN.
    pub(crate) fn new() -> io::Result<Namespace> {
        // A thread of its own makes it: the calling thread stays where it is.
        on_a_thread(|| {
            unshare(UnshareFlags::NEWNET)?;
            File::open("/proc/thread-self/ns/net").map(Namespace)
        })
    }

    /// Calls `f` on a thread in this namespace.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(f())
        })
    }
}

/// Moves this process into a user namespace in which it has all capabilities.
///
/// # Errors
/// The system's error: the machine forbids it to this user, or the process has several threads.
pub(crate) fn enter_user_namespace() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER)
}

#[expect(deprecated, reason = "only FILES can make this call unsafe")]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

fn on_a_thread<T: Send>(f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, f)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
    })
}
