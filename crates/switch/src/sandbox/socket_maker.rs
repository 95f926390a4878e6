//! The sandbox of the process that makes sockets.

use std::path::PathBuf;

use caps::{Capability, CapsHashSet};
use libc::c_long;
use seccompiler::{BackendError, SeccompRule};
use straightline_port::{HelperProcess, HelperSandbox};

use super::calls::{Allowed, is, no_special_bits, number, only};
use super::{capabilities, helper, landlock};

/// Allowed with any arguments, beside the calls of each helper process. Socket files are found by
/// device and inode, given away and removed. A datagram finds out whether one is stale, or the
/// kernel's table of sockets.
const SOCKET_FILES: &[c_long] = &[
    libc::SYS_sendto,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstat,
    libc::SYS_fchownat,
    libc::SYS_unlinkat,
    // Whether a socket is for another user than ours.
    libc::SYS_getuid,
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
    let mut list = helper::calls(SOCKET_FILES)?;
    list.extend([
        sockets()?,
        only(libc::SYS_fchmod, &[no_special_bits(1)?])?,
        only(libc::SYS_fchmodat, &[no_special_bits(2)?])?,
        // Builds for tests check that a descriptor is open before they close it.
        only(libc::SYS_fcntl, &[is(1, number(libc::F_GETFD))?])?,
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
