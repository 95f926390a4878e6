//! A signal that ends a thread's wait in the kernel, and does nothing else.
//!
//! A user can make `close` wait for long, for example on a socket that lingers (`SO_LINGER`,
//! socket(7)). The signal ends such a wait. One wait goes on: that for a file of a file system that
//! another process serves (FUSE).

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::io;

/// A signal that nobody else sends, and that programs must expect at any time. By default it is
/// ignored, and then it ends no wait.
const SIGNAL: libc::c_int = libc::SIGURG;

/// Makes the signal end waits, if nobody handles it yet. A handler of the program that embeds the
/// switch does the same.
pub(super) fn prepare() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a sigaction of zeros is valid, the pointers are those of live values, and the handler
    // has the signature of a handler without SA_SIGINFO. It does nothing.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(SIGNAL, std::ptr::null(), &raw mut action) != 0 {
            return Err(io::Error::last_os_error());
        }
        if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN {
            return Ok(());
        }
        let handler: extern "C" fn(libc::c_int) = nothing;
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends the wait of a thread of this process, if it is in one.
pub(super) fn interrupt(thread: rustix::thread::Pid) {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: the call has no pointers. The kernel sends nothing to threads of other processes.
    unsafe {
        libc::syscall(libc::SYS_tgkill, process, thread.as_raw_nonzero().get(), SIGNAL);
    }
}
