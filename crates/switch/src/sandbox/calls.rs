//! The system calls that a switch makes once it has read its configuration, by purpose.
//!
//! A call that is missing here fails with `EPERM` and is named in the log. Add it with its purpose,
//! and with the arguments that it needs if other arguments would do harm.

use libc::c_long;
use seccompiler::{
    BackendError, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition, SeccompRule,
};

use crate::config::Needs;

/// A call that is allowed if any of these rules holds. Without a rule it is always allowed.
pub(super) type Allowed = (c_long, Vec<SeccompRule>);

/// Allowed with any arguments.
const ALWAYS: &[c_long] = &[
    // Packets: kicks, waiting for them, sleeping.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_eventfd2,
    // Notifications by asynchronous I/O, which never wait on a full eventfd.
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
    // The kernel's version: it decides whether a sender on a UNIX socket may have to wait.
    libc::SYS_uname,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    // The clock, where it cannot be read without the kernel.
    libc::SYS_clock_gettime,
    // Frontends and the API: sockets that listen, carry messages and descriptors.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_close,
    // Socket files: their identity, their removal.
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstat,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    // The kind of a descriptor that was sent to us.
    libc::SYS_fstatfs,
    libc::SYS_readlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    // The number of open descriptors.
    libc::SYS_getdents64,
    // The configuration, read again.
    libc::SYS_lseek,
    libc::SYS_getcwd,
    // Guest memory, stacks, the heap.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // The NUMA node of a ring's memory.
    libc::SYS_get_mempolicy,
    // Buffers in flight, which a frontend keeps for us. Zeros in place of guest memory that has
    // vanished.
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    // A device's state, by a frontend's pipe.
    libc::SYS_pipe2,
    libc::SYS_splice,
    // Threads: their start and end, locks, the CPU that a worker is pinned to.
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals: SIGBUS of vanished memory, SIGTERM, SIGHUP, a stack to handle an overflow on.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Our user and group, to find out whether a socket must be given to others.
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    // Seeds of hash tables.
    libc::SYS_getrandom,
    // The last message of the C library.
    libc::SYS_writev,
];

/// Returns the name of a call. It knows calls that are allowed with some arguments, and calls that
/// an attacker in this process would try.
pub(super) fn name(number: c_long) -> Option<&'static str> {
    let tried: &[(&str, c_long)] = &[
        ("socket", libc::SYS_socket),
        ("openat", libc::SYS_openat),
        ("mmap", libc::SYS_mmap),
        ("mprotect", libc::SYS_mprotect),
        ("clone", libc::SYS_clone),
        ("fcntl", libc::SYS_fcntl),
        ("ioctl", libc::SYS_ioctl),
        ("prctl", libc::SYS_prctl),
        ("setsockopt", libc::SYS_setsockopt),
        ("connect", libc::SYS_connect),
        ("fchmod", libc::SYS_fchmod),
        ("fchownat", libc::SYS_fchownat),
        ("fchmodat", libc::SYS_fchmodat),
        ("tgkill", libc::SYS_tgkill),
        ("kill", libc::SYS_kill),
        ("execve", libc::SYS_execve),
        ("execveat", libc::SYS_execveat),
        ("ptrace", libc::SYS_ptrace),
        ("mount", libc::SYS_mount),
        ("unshare", libc::SYS_unshare),
        ("bpf", libc::SYS_bpf),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        #[cfg(target_arch = "x86_64")]
        ("fork", libc::SYS_fork),
        #[cfg(target_arch = "x86_64")]
        ("open", libc::SYS_open),
        #[cfg(target_arch = "x86_64")]
        ("chown", libc::SYS_chown),
        #[cfg(target_arch = "x86_64")]
        ("chmod", libc::SYS_chmod),
    ];
    tried.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

/// Returns all calls that a configuration with these needs makes, including calls with conditions.
pub(super) fn list(needs: Needs) -> Result<Vec<Allowed>, BackendError> {
    let mut list: Vec<Allowed> = ALWAYS.iter().map(|&call| (call, Vec::new())).collect();
    let us = u64::from(std::process::id());
    let unix = number(libc::AF_UNIX);
    let socket_level = number(libc::SOL_SOCKET);
    let thread = number(libc::CLONE_THREAD);
    let exec = number(libc::PROT_EXEC);
    let creates = number(libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | libc::O_TMPFILE);
    list.extend([
        // No network.
        only(libc::SYS_socket, &[is(0, unix)?])?,
        only(libc::SYS_setsockopt, &[is(1, socket_level)?])?,
        // Files are read and pipes written. No file is made.
        only(libc::SYS_openat, &[masked(2, creates, 0)?])?,
        // The bits of a socket that is not bound yet. With special bits, a program that a frontend
        // sent us would run with our rights.
        only(libc::SYS_fchmod, &[no_special_bits(1)?])?,
        // Memory that can be written never becomes code, and no code is loaded.
        only(libc::SYS_mmap, &[masked(2, exec, 0)?])?,
        only(libc::SYS_mprotect, &[masked(2, exec, 0)?])?,
        // Threads, no processes.
        only(libc::SYS_clone, &[masked(0, thread, thread)?])?,
        // Abort, but no signals to other processes.
        only(libc::SYS_tgkill, &[is(0, us)?])?,
        // A thread's name.
        only(libc::SYS_prctl, &[is(0, number(libc::PR_SET_NAME))?])?,
        // The blocking mode of a socket, and the check whether standard error is a terminal.
        any(libc::SYS_ioctl, 1, &[libc::FIONBIO, libc::TCGETS])?,
        // The blocking mode of a descriptor, duplicates of a descriptor, and seals on memory of
        // ours.
        any(libc::SYS_fcntl, 1, &FCNTLS.map(|command| libc::c_ulong::from(command.unsigned_abs())))?,
    ]);
    // Landlock does not cover these: they work on any path. So they are allowed only where the
    // configuration needs them.
    if needs.connects {
        list.push((libc::SYS_connect, Vec::new()));
    }
    // Packets of interfaces. Their descriptors come from the opener process. Any `ioctl` and
    // `setsockopt` that would change an interface is refused above.
    if needs.has_device {
        let calls = [libc::SYS_readv, libc::SYS_recvmmsg, libc::SYS_sendmmsg];
        list.extend(calls.map(|call| (call, Vec::new())));
    }
    if needs.has_owner {
        list.push((libc::SYS_fchownat, Vec::new()));
    }
    if needs.sets_bits {
        list.push(only(libc::SYS_fchmodat, &[no_special_bits(2)?])?);
    }
    Ok(list)
}

const FCNTLS: [libc::c_int; 7] = [
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

pub(super) fn number(flag: libc::c_int) -> u64 {
    u64::from(flag.unsigned_abs())
}

/// The argument has this value. The calls that we check take 32 bits of it.
pub(super) fn is(argument: u8, value: u64) -> Result<Condition, BackendError> {
    Condition::new(argument, Len::Dword, Op::Eq, value)
}

/// The argument is a null pointer.
pub(super) fn is_null(argument: u8) -> Result<Condition, BackendError> {
    Condition::new(argument, Len::Qword, Op::Eq, 0)
}

/// Under this mask the argument has this value.
pub(super) fn masked(argument: u8, mask: u64, value: u64) -> Result<Condition, BackendError> {
    Condition::new(argument, Len::Dword, Op::MaskedEq(mask), value)
}

/// The argument is a file's mode without bits that let a program run as another user.
pub(super) fn no_special_bits(argument: u8) -> Result<Condition, BackendError> {
    masked(argument, u64::from(libc::S_ISUID | libc::S_ISGID | libc::S_ISVTX), 0)
}

pub(super) fn only(call: c_long, conditions: &[Condition]) -> Result<Allowed, BackendError> {
    Ok((call, vec![SeccompRule::new(conditions.to_vec())?]))
}

pub(super) fn any(call: c_long, argument: u8, values: &[libc::c_ulong]) -> Result<Allowed, BackendError> {
    let rules = values.iter().map(|&value| SeccompRule::new(vec![is(argument, value)?]));
    Ok((call, rules.collect::<Result<_, BackendError>>()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_stands_once() {
        let all = Needs { connects: true, has_owner: true, sets_bits: true, has_device: true, ..Needs::default() };
        let list = list(all).unwrap();
        let numbers: BTreeSet<_> = list.iter().map(|(call, _)| *call).collect();
        assert_eq!(numbers.len(), list.len());
        let with_rules = list.iter().filter(|(_, rules)| !rules.is_empty());
        assert!(with_rules.clone().count() > 8 && with_rules.clone().all(|(call, _)| name(*call).is_some()));
    }

    #[test]
    fn calls_that_few_ports_make_are_there_only_where_they_are_needed() {
        let allows = |needs| {
            let list = list(needs).unwrap();
            [libc::SYS_connect, libc::SYS_fchownat, libc::SYS_fchmodat, libc::SYS_recvmmsg]
                .map(|call| list.iter().any(|(allowed, _)| *allowed == call))
        };
        let nothing = Needs::default();
        assert_eq!(allows(nothing), [false; 4]);
        assert_eq!(allows(Needs { connects: true, ..nothing }), [true, false, false, false]);
        assert_eq!(allows(Needs { has_owner: true, ..nothing }), [false, true, false, false]);
        assert_eq!(allows(Needs { sets_bits: true, ..nothing }), [false, false, true, false]);
        assert_eq!(allows(Needs { has_device: true, ..nothing }), [false, false, false, true]);
    }
}
