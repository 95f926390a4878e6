//! The refusal of a system call: it fails with `EPERM`, is counted, and the log names it.
//!
//! The kernel sends SIGSYS instead of making the call (seccomp(2), `SECCOMP_RET_TRAP`). The
//! alternatives are worse. Failing in silence leaves an operator without a clue. Ending the process
//! takes every other guest down with it. (The kernel ends a thread that has SIGSYS blocked, and the
//! process with it. The C library blocks all signals while it starts a process, which we never do.)

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::calls;

/// The number of refusals that are reported. The rest are only counted, so that no client can flood
/// the log.
const MOST_TOLD: u64 = 16;

static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of system calls that the sandbox has refused.
pub fn refused_calls() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// True if a call's number can be read and its result set on this processor.
pub(super) const KNOWS_PROCESSOR: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Installs the handler for SIGSYS.
pub(super) fn install() {
    // SAFETY: a sigaction of zeros is valid. The handler has the signature that SA_SIGINFO asks
    // for, and does only what a signal handler may (atomics, poll, write).
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigsys;
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut());
    }
}

/// `si_code` of a signal that seccomp sent (asm-generic/siginfo.h). A SIGSYS from elsewhere is
/// ignored.
const SYS_SECCOMP: libc::c_int = 1;

extern "C" fn on_sigsys(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to an SA_SIGINFO handler.
    if unsafe { (*info).si_code } != SYS_SECCOMP {
        return;
    }
    // SAFETY: the third argument of such a handler is the thread's ucontext_t, ours alone until we
    // return.
    let number = refuse(unsafe { &mut *context.cast::<libc::ucontext_t>() });
    if REFUSED.fetch_add(1, Ordering::Relaxed) < MOST_TOLD {
        tell(number);
    }
}

/// Makes the call fail. Returns the call's number, which the kernel leaves where it was
/// (`syscall_rollback`).
#[cfg(target_arch = "x86_64")]
fn refuse(context: &mut libc::ucontext_t) -> i64 {
    let rax = &mut context.uc_mcontext.gregs[libc::REG_RAX as usize];
    std::mem::replace(rax, -i64::from(libc::EPERM))
}

#[cfg(target_arch = "aarch64")]
fn refuse(context: &mut libc::ucontext_t) -> i64 {
    context.uc_mcontext.regs[0] = (-i64::from(libc::EPERM)).cast_unsigned();
    context.uc_mcontext.regs[8].cast_signed()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn refuse(_: &mut libc::ucontext_t) -> i64 {
    -1
}

/// Writes a line to standard error, as a signal handler may: without allocating, without locks.
fn tell(number: i64) {
    let mut line = Line { bytes: [0; 160], len: 0 };
    line.text("warning: the sandbox refused system call ");
    line.number(number);
    if let Some(name) = calls::name(number) {
        line.text(" (");
        line.text(name);
        line.text(")");
    }
    line.text("; see the sandbox in SECURITY.md\n");
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: `stderr` is one pollfd of ours, and the buffer is as long as given. errno is
    // restored, because the interrupted code may read it.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        // No thread waits for the reader of standard error: a line that does not fit is not
        // written.
        if libc::poll(&raw mut stderr, 1, 0) == 1 && stderr.revents & libc::POLLOUT != 0 {
            libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len);
        }
        *errno = before;
    }
}

struct Line {
    bytes: [u8; 160],
    len: usize,
}

impl Line {
    fn text(&mut self, text: &str) {
        for (to, from) in self.bytes[self.len..].iter_mut().zip(text.bytes()) {
            *to = from;
            self.len += 1;
        }
    }

    fn number(&mut self, number: i64) {
        let mut divisor: u64 = 1_000_000_000_000_000_000;
        let number = number.unsigned_abs();
        while divisor > 1 && number / divisor == 0 {
            divisor /= 10;
        }
        while divisor > 0 {
            let digit = usize::try_from(number / divisor % 10).unwrap_or(0);
            self.text(&"0123456789"[digit..=digit]);
            divisor /= 10;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lines_that_are_too_long() {
        for (number, expected) in [(0, "0"), (7, "7"), (59, "59"), (100, "100"), (i64::MAX, "9223372036854775807")] {
            let mut line = Line { bytes: [0; 160], len: 0 };
            line.number(number);
            assert_eq!(&line.bytes[..line.len], expected.as_bytes());
            (0..100).for_each(|_| line.text("more"));
            assert_eq!(line.len, line.bytes.len());
        }
    }
}
