//! The sandboxes of helper processes, as far as they are alike.

use libc::c_long;
use seccompiler::BackendError;
use straightline_port::{HelperProcess, HelperSandbox};

use super::calls::{Allowed, is, masked, number, only};
use super::capabilities::KeptCapabilities;
use super::seccomp;
use crate::config::Mechanism;

/// The calls that each helper process makes, with any arguments.
const ALWAYS: &[c_long] = &[
    // Messages of the switch, and answers with descriptors.
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_bind,
    libc::SYS_recvfrom,
    libc::SYS_close,
    // The heap.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Our ids, the clock, locks, seeds of hash tables.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_geteuid,
    libc::SYS_getegid,
    libc::SYS_clock_gettime,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_getrandom,
    // The message of a panic, and the end.
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals, which the process ignores.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
];

/// Returns the calls that each helper process makes, and these of its purpose, which are allowed with
/// any arguments.
pub(super) fn calls(purpose: &[c_long]) -> Result<Vec<Allowed>, BackendError> {
    let us = u64::from(std::process::id());
    let creates = number(libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | libc::O_TMPFILE);
    let exec = number(libc::PROT_EXEC);
    let mut list: Vec<Allowed> = ALWAYS.iter().chain(purpose).map(|&call| (call, Vec::new())).collect();
    list.extend([
        // Folders and devices are opened, and no file is made.
        only(libc::SYS_openat, &[masked(2, creates, 0)?])?,
        // Memory that can be written never becomes code, and no code is loaded.
        only(libc::SYS_mmap, &[masked(2, exec, 0)?])?,
        only(libc::SYS_mprotect, &[masked(2, exec, 0)?])?,
        // Abort, but no signals to other processes.
        only(libc::SYS_tgkill, &[is(0, us)?])?,
    ]);
    Ok(list)
}

/// Confines this process, which has given up all capabilities but those that it `kept`. It has done
/// so whatever the configuration says: they are the reason for the process.
pub(super) fn enter(
    kept: &KeptCapabilities,
    sandbox: &HelperSandbox,
    restrict_files: impl FnOnce() -> Result<String, String>,
    calls: impl FnOnce() -> Result<Vec<Allowed>, BackendError>,
) -> Result<HelperProcess, String> {
    let mut mechanisms = vec![Mechanism::Capabilities.as_str().to_owned()];
    let is_wanted = |mechanism: Mechanism| sandbox.mechanisms.iter().any(|name| name == mechanism.as_str());
    let mut note = |mechanism: Mechanism, entered: Result<String, String>| match entered {
        Ok(_) => {
            mechanisms.push(mechanism.as_str().to_owned());
            Ok(())
        }
        Err(why) if sandbox.required => {
            Err(format!("sandbox {:?} of a helper process is not available: {why}", mechanism.as_str()))
        }
        // The switch's own sandbox warns about the same lack.
        Err(_) => Ok(()),
    };
    // The order matters: the rules for files open files, and the filter of system calls forbids
    // that.
    if is_wanted(Mechanism::Landlock) {
        note(Mechanism::Landlock, restrict_files())?;
    }
    if is_wanted(Mechanism::Seccomp) {
        note(Mechanism::Seccomp, seccomp::allow_only(calls()))?;
    }
    Ok(HelperProcess { pid: std::process::id(), capabilities: kept.names(), mechanisms })
}
