//! The sandbox of the process that makes sockets.

use std::path::PathBuf;

use caps::{Capability, CapsHashSet};
use libc::c_long;
use seccompiler::{BackendError, SeccompRule};
use straightline_port::{HelperProcess, HelperSandbox};

use super::calls::{Allowed, is, masked, number, only};
use super::{capabilities, helper, landlock};

/// Allowed with any arguments.
const ALWAYS: &[c_long] = &[
    // Tasks of the switch, and answers with sockets.
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_close,
    // Socket files: bound, found by device and inode, given away, removed. A datagram finds out
    // whether one is stale, or the kernel's table of sockets.
    libc::SYS_bind,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstat,
    libc::SYS_fchmod,
    libc::SYS_fchownat,
    libc::SYS_unlinkat,
    // The heap.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Our ids, the clock, locks, seeds of hash tables.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
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

/// The capabilities that the process may need. It keeps the last one only where the kernel would
/// keep it from a folder.
pub(crate) const CAPABILITIES: [Capability; 3] =
    [Capability::CAP_CHOWN, Capability::CAP_FOWNER, Capability::CAP_DAC_OVERRIDE];

/// Gives up all rights that sockets of other users in these folders do not take. Giving a socket to
/// another user takes a capability. After that the socket is no longer ours. Then setting its bits
/// takes another one, and so does removing it from a folder with the sticky bit.
///
/// # Errors
/// A mechanism that the configuration names is missing.
pub(crate) fn enter(folders: &[PathBuf], sandbox: &HelperSandbox) -> Result<HelperProcess, String> {
    let kept = capabilities::keep_for_folders(CapsHashSet::from(CAPABILITIES), folders)?;
    helper::enter(&kept, sandbox, || landlock::enter_maker(folders), list)
}

/// Returns all calls that the process makes, including calls with conditions.
fn list() -> Result<Vec<Allowed>, BackendError> {
    let us = u64::from(std::process::id());
    let creates = number(libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | libc::O_TMPFILE);
    let special = u64::from(libc::S_ISUID | libc::S_ISGID | libc::S_ISVTX);
    let exec = number(libc::PROT_EXEC);
    let mut list: Vec<Allowed> = ALWAYS.iter().map(|&call| (call, Vec::new())).collect();
    list.extend([
        sockets()?,
        // Folders and files are looked at, and no file is made.
        only(libc::SYS_openat, &[masked(2, creates, 0)?])?,
        only(libc::SYS_fchmodat, &[masked(2, special, 0)?])?,
        // Builds for tests check that a descriptor is open before they close it.
        only(libc::SYS_fcntl, &[is(1, number(libc::F_GETFD))?])?,
        // Memory that can be written never becomes code, and no code is loaded.
        only(libc::SYS_mmap, &[masked(2, exec, 0)?])?,
        only(libc::SYS_mprotect, &[masked(2, exec, 0)?])?,
        // Abort, but no signals to other processes.
        only(libc::SYS_tgkill, &[is(0, us)?])?,
    ]);
    Ok(list)
}

/// Allows sockets with files, and the question for the kernel's tables of sockets. To close sockets
/// of others by it takes a capability.
fn sockets() -> Result<Allowed, BackendError> {
    let unix = SeccompRule::new(vec![is(0, number(libc::AF_UNIX))?])?;
    let tables = vec![is(0, number(libc::AF_NETLINK))?, is(2, number(libc::NETLINK_SOCK_DIAG))?];
    Ok((libc::SYS_socket, vec![unix, SeccompRule::new(tables)?]))
}
