//! Settings of network interfaces, by the ioctls of netdevice(7).
//!
//! Reading takes no privileges. Writing takes `CAP_NET_ADMIN`.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// A socket for ioctls on interfaces of its network namespace.
#[derive(Debug)]
pub(crate) struct Interfaces(OwnedFd);

/// The driver of an interface, as `ethtool -i` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Driver {
    pub(crate) name: String,
    /// The place of the device; `tap` or `tun` for these kinds.
    pub(crate) bus: String,
}

/// The request number that a bridge answers with its ports (linux/if_bridge.h).
const BRCTL_GET_PORT_LIST: libc::c_ulong = 7;
/// The most ports of a bridge (BR_MAX_PORTS).
const BRIDGE_PORTS: usize = 1024;
const ETHTOOL_GDRVINFO: u32 = 3;

const SIOCGIFFLAGS: libc::Ioctl = 0x8913;
const SIOCSIFFLAGS: libc::Ioctl = 0x8914;
const SIOCGIFMTU: libc::Ioctl = 0x8921;
const SIOCSIFMTU: libc::Ioctl = 0x8922;
const SIOCSIFHWADDR: libc::Ioctl = 0x8924;
const SIOCGIFHWADDR: libc::Ioctl = 0x8927;
const SIOCGIFINDEX: libc::Ioctl = 0x8933;
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const SIOCBRADDIF: libc::Ioctl = 0x89a2;
const SIOCDEVPRIVATE: libc::Ioctl = 0x89f0;

impl Interfaces {
    /// Opens the socket.
    pub(crate) fn new() -> Result<Self, Errno> {
        // A socket of any family takes these ioctls.
        Ok(Interfaces(socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?))
    }

    /// Returns the index of an interface, or `None` if it does not exist.
    pub(crate) fn index(&self, name: &str) -> Result<Option<u32>, Errno> {
        match self.call(SIOCGIFINDEX, request(name)?) {
            // SAFETY: the kernel has stored the index.
            Ok(answer) => Ok(u32::try_from(unsafe { answer.ifr_ifru.ifru_ifindex }).ok()),
            Err(Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the MTU.
    pub(crate) fn mtu(&self, name: &str) -> Result<u32, Errno> {
        // SAFETY: the kernel has stored the MTU.
        self.call(SIOCGIFMTU, request(name)?)
            .map(|answer| u32::try_from(unsafe { answer.ifr_ifru.ifru_mtu }).unwrap_or(0))
    }

    /// Sets the MTU.
    pub(crate) fn set_mtu(&self, name: &str, mtu: u16) -> Result<(), Errno> {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_mtu = mtu.into();
        self.call(SIOCSIFMTU, request).map(|_| ())
    }

    /// Returns the MAC address, or `None` if the interface is not Ethernet.
    pub(crate) fn mac(&self, name: &str) -> Result<Option<[u8; 6]>, Errno> {
        let answer = self.call(SIOCGIFHWADDR, request(name)?)?;
        // SAFETY: the kernel has stored the address and its type.
        let address = unsafe { answer.ifr_ifru.ifru_hwaddr };
        let [a, b, c, d, e, f, ..] = address.sa_data.map(libc::c_char::cast_unsigned);
        Ok((address.sa_family == libc::ARPHRD_ETHER).then_some([a, b, c, d, e, f]))
    }

    /// Sets the MAC address.
    pub(crate) fn set_mac(&self, name: &str, mac: [u8; 6]) -> Result<(), Errno> {
        let mut request = request(name)?;
        let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
        address.sa_data[..6].copy_from_slice(&mac.map(u8::cast_signed));
        request.ifr_ifru.ifru_hwaddr = address;
        self.call(SIOCSIFHWADDR, request).map(|_| ())
    }

    /// Returns whether the interface is up, as an administrator sets it.
    pub(crate) fn is_up(&self, name: &str) -> Result<bool, Errno> {
        Ok(self.flags(name)? & UP != 0)
    }

    /// Sets the interface up.
    pub(crate) fn set_up(&self, name: &str) -> Result<(), Errno> {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags = self.flags(name)? | UP;
        self.call(SIOCSIFFLAGS, request).map(|_| ())
    }

    fn flags(&self, name: &str) -> Result<libc::c_short, Errno> {
        // SAFETY: the kernel has stored the flags.
        self.call(SIOCGIFFLAGS, request(name)?).map(|answer| unsafe { answer.ifr_ifru.ifru_flags })
    }

    /// Returns the driver, or `None` if the interface does not tell it.
    pub(crate) fn driver(&self, name: &str) -> Option<Driver> {
        /// `struct ethtool_drvinfo` (linux/ethtool.h).
        #[repr(C)]
        struct DriverInfo {
            command: u32,
            driver: [u8; 32],
            version: [u8; 32],
            firmware: [u8; 32],
            bus: [u8; 32],
            rest: [u8; 64],
        }
        let text = |bytes: &[u8]| {
            CStr::from_bytes_until_nul(bytes).ok().and_then(|text| text.to_str().ok()).map(str::to_owned)
        };
        let command = ETHTOOL_GDRVINFO;
        let empty = [0; 32];
        let mut info =
            DriverInfo { command, driver: empty, version: empty, firmware: empty, bus: empty, rest: [0; 64] };
        let mut request = request(name).ok()?;
        request.ifr_ifru.ifru_data = (&raw mut info).cast();
        self.call(SIOCETHTOOL, request).ok()?;
        Some(Driver { name: text(&info.driver)?, bus: text(&info.bus)? })
    }

    /// Returns whether a bridge has this interface as a port.
    pub(crate) fn is_bridge_port(&self, bridge: &str, index: u32) -> Result<bool, Errno> {
        let mut ports = [0_i32; BRIDGE_PORTS];
        let mut arguments =
            [BRCTL_GET_PORT_LIST, (&raw mut ports).addr() as libc::c_ulong, BRIDGE_PORTS as libc::c_ulong, 0];
        let mut request = request(bridge)?;
        request.ifr_ifru.ifru_data = (&raw mut arguments).cast();
        self.call(SIOCDEVPRIVATE, request)?;
        Ok(ports.iter().any(|&port| u32::try_from(port) == Ok(index)))
    }

    /// Makes the interface a port of a bridge.
    pub(crate) fn add_to_bridge(&self, bridge: &str, index: u32) -> Result<(), Errno> {
        let mut request = request(bridge)?;
        request.ifr_ifru.ifru_ifindex = index.try_into().map_err(|_| Errno::INVAL)?;
        self.call(SIOCBRADDIF, request).map(|_| ())
    }

    /// Performs one of this file's ioctls. Returns the request with the kernel's answer.
    fn call(&self, number: libc::Ioctl, mut request: libc::ifreq) -> Result<libc::ifreq, Errno> {
        // SAFETY: the descriptor is ours and open. All numbers of this file take an `ifreq`, which
        // the kernel reads and writes during the call. A pointer in it points to a structure of
        // the size that the number asks for; the caller keeps it for the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), number, &raw mut request) } {
            -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
            _ => Ok(request),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "IFF_UP is the lowest bit")]
const UP: libc::c_short = libc::IFF_UP as libc::c_short;

/// Returns a request about the interface of this name, with zeros in its other fields.
pub(super) fn request(name: &str) -> Result<libc::ifreq, Errno> {
    // SAFETY: `ifreq` is plain data, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    // The last byte stays zero.
    let Some(space) = request.ifr_name.get_mut(..name.len()).filter(|_| name.len() < libc::IFNAMSIZ) else {
        return Err(Errno::INVAL);
    };
    for (to, from) in space.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}
