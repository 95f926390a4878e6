//! The ioctls of tap devices (Linux, Documentation/networking/tuntap.rst).

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::interface;

/// The device that taps are made by.
pub(crate) const DEVICE: &str = "/dev/net/tun";

/// Bytes of the virtio-net header before each packet.
const HEADER: libc::c_int = 12;
const _: () = assert!(HEADER.unsigned_abs() as usize == straightline_virtio::net_header::LEN);

/// The work that the kernel may leave to the reader of a tap (`TUN_F_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offload(libc::c_uint);

impl Offload {
    /// Packets arrive complete.
    pub(crate) const NONE: Self = Offload(0);
    /// Partial checksums.
    pub(crate) const CSUM: Self = Offload(libc::TUN_F_CSUM);
    /// TCP segmentation, with [`Self::CSUM`].
    pub(crate) const TSO: Self = Offload(libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN);
    /// UDP segmentation, with [`Self::CSUM`]. The kernel has it since Linux 6.2.
    pub(crate) const USO: Self = Offload(libc::TUN_F_USO4 | libc::TUN_F_USO6);

    /// Returns the work of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Offload(self.0 | other.0)
    }

    /// Returns whether all of `other` is included.
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A queue of a tap: a descriptor that reads and writes one packet a call.
#[derive(Debug)]
pub(crate) struct Queue(OwnedFd);

impl Queue {
    /// Opens a queue of the tap of this name, which is made if it does not exist. Packets have a
    /// virtio-net header. `several` must say whether the tap has several queues.
    pub(crate) fn open(device: &Path, name: &str, several: bool) -> Result<Self, AttachError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(device, flags, Mode::empty()).map_err(AttachError::Device)?;
        let mut request = interface::request(name).map_err(AttachError::Attach)?;
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        let flags = flags | if several { libc::IFF_MULTI_QUEUE } else { 0 };
        request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).map_err(|_| AttachError::Attach(Errno::INVAL))?;
        // SAFETY: the descriptor is ours and open. TUNSETIFF reads and writes an `ifreq`, and this
        // one lives for the call.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        check(result).map_err(AttachError::Attach)?;
        Ok(Queue(fd))
    }

    /// Returns the name that the tap has now. It may have been renamed since it was opened.
    pub(crate) fn name(&self) -> Result<String, Errno> {
        let mut request = interface::request("")?;
        // SAFETY: the descriptor is ours and open. TUNGETIFF writes an `ifreq`, and this one lives
        // for the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNGETIFF, &raw mut request) })?;
        let bytes = request.ifr_name.map(libc::c_char::cast_unsigned);
        let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8(name.to_vec()).map_err(|_| Errno::ILSEQ)
    }

    /// Sets the header's length and its byte order, which is little-endian as virtio has it.
    pub(crate) fn set_header(&self) -> Result<(), Errno> {
        self.set_int(libc::TUNSETVNETHDRSZ, HEADER)?;
        self.set_int(libc::TUNSETVNETLE, 1)
    }

    /// Sets the work that the kernel may leave to us.
    pub(crate) fn set_offload(&self, offload: Offload) -> Result<(), Errno> {
        self.set(libc::TUNSETOFFLOAD, offload.0)
    }

    /// Keeps the tap when its last queue is closed.
    pub(crate) fn persist(&self) -> Result<(), Errno> {
        self.set(libc::TUNSETPERSIST, 1)
    }

    /// Sets the user that may open the tap without privileges.
    pub(crate) fn set_owner(&self, user: u32) -> Result<(), Errno> {
        self.set(libc::TUNSETOWNER, user)
    }

    /// Sets the group that may open the tap without privileges.
    pub(crate) fn set_group(&self, group: u32) -> Result<(), Errno> {
        self.set(libc::TUNSETGROUP, group)
    }

    /// Returns the descriptor.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Performs an ioctl whose argument is a number.
    fn set(&self, number: libc::Ioctl, value: libc::c_uint) -> Result<(), Errno> {
        // SAFETY: the descriptor is ours and open. The numbers that are passed here take a number,
        // no pointer.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), number, libc::c_ulong::from(value)) })
    }

    /// Performs an ioctl whose argument points to an `int`.
    fn set_int(&self, number: libc::Ioctl, value: libc::c_int) -> Result<(), Errno> {
        // SAFETY: the descriptor is ours and open. The numbers that are passed here read an `int`,
        // and this one lives for the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), number, &raw const value) })
    }
}

/// The step at which a queue could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachError {
    /// The device file cannot be opened.
    Device(Errno),
    /// The kernel does not attach the descriptor to the tap.
    Attach(Errno),
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    match result {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}
