//! Packet sockets and their options (packet(7)).

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Bytes that a socket's buffers should hold: more than one burst of the longest packets.
const BUFFER: libc::c_int = 8 << 20;

/// A packet socket that gets nothing until it is bound.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Makes a socket. It takes CAP_NET_RAW.
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol it gets no packets of other interfaces before it is bound.
        Ok(PacketSocket(socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?))
    }

    /// Sets the options that each of our sockets has.
    pub(super) fn set_options(&self) -> Result<(), Errno> {
        self.set_packet(libc::PACKET_VNET_HDR, &1)?;
        self.set_packet(libc::PACKET_AUXDATA, &1)?;
        self.set_packet(libc::PACKET_IGNORE_OUTGOING, &1)?;
        // Longer buffers lose fewer packets. The system may refuse them.
        for (option, forced) in [(libc::SO_RCVBUF, libc::SO_RCVBUFFORCE), (libc::SO_SNDBUF, libc::SO_SNDBUFFORCE)] {
            if self.set(libc::SOL_SOCKET, forced, &BUFFER).is_err() {
                let _ = self.set(libc::SOL_SOCKET, option, &BUFFER);
            }
        }
        Ok(())
    }

    /// Returns whether the kernel's virtio-net header knows UDP segmentation, which it does since
    /// Linux 6.2. Since 6.4 the header's length can be asked for, so older kernels count as if they
    /// did not know it.
    pub(super) fn knows_uso(&self) -> bool {
        get::<libc::c_int>(&self.0, libc::PACKET_VNET_HDR_SZ).is_ok()
    }

    /// Binds the socket to all packets of an interface.
    pub(super) fn bind(&self, index: u32) -> Result<(), Errno> {
        // SAFETY: the structure is plain data, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
        address.sll_family = FAMILY;
        address.sll_protocol = ALL.to_be();
        address.sll_ifindex = index.try_into().map_err(|_| Errno::INVAL)?;
        // SAFETY: the descriptor is ours and open. The kernel reads the address during the call.
        let result =
            unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length::<libc::sockaddr_ll>()) };
        check(result)
    }

    /// Makes the interface receive packets for any address, for as long as the socket is open.
    pub(super) fn promiscuous(&self, index: u32) -> Result<(), Errno> {
        let index = index.try_into().map_err(|_| Errno::INVAL)?;
        let kind = libc::c_ushort::try_from(libc::PACKET_MR_PROMISC).map_err(|_| Errno::INVAL)?;
        let request = libc::packet_mreq { mr_ifindex: index, mr_type: kind, mr_alen: 0, mr_address: [0; 8] };
        self.set_packet(libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Makes the bound socket the first of a group, over which the kernel distributes flows.
    /// Returns the number of the group.
    pub(super) fn begin_fanout(&self) -> Result<u16, Errno> {
        self.set_packet(libc::PACKET_FANOUT, &(HASH | UNIQUE))?;
        let argument: libc::c_int = get(&self.0, libc::PACKET_FANOUT)?;
        u16::try_from(argument & 0xffff).map_err(|_| Errno::INVAL)
    }

    /// Adds the bound socket to a group.
    pub(super) fn join_fanout(&self, group: u16) -> Result<(), Errno> {
        self.set_packet(libc::PACKET_FANOUT, &(HASH | libc::c_int::from(group)))
    }

    /// Returns the descriptor.
    pub(super) fn into_fd(self) -> OwnedFd {
        self.0
    }

    fn set_packet<T: Copy>(&self, option: libc::c_int, value: &T) -> Result<(), Errno> {
        self.set(libc::SOL_PACKET, option, value)
    }

    fn set<T: Copy>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> Result<(), Errno> {
        // SAFETY: the descriptor is ours and open. The kernel reads the value during the call, and
        // no more than its length.
        check(unsafe {
            libc::setsockopt(self.0.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length::<T>())
        })
    }
}

/// Returns the packets that a socket has lost because its buffer was full, since the last call.
pub(super) fn take_lost(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    let statistics: libc::tpacket_stats = get(&socket, libc::PACKET_STATISTICS)?;
    Ok(statistics.tp_drops)
}

/// Types for which each bit pattern is a valid value, so the kernel may write any bytes.
trait Plain: Copy {}
impl Plain for libc::c_int {}
impl Plain for libc::tpacket_stats {}

fn get<T: Plain>(socket: &impl AsRawFd, option: libc::c_int) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = length::<T>();
    // SAFETY: the socket's owner or borrow keeps the descriptor open. The kernel writes at most
    // `len` bytes, the value's length.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value.as_mut_ptr().cast(), &raw mut len)
    })?;
    // SAFETY: all bytes are initialized, and each pattern is a valid value.
    Ok(unsafe { value.assume_init() })
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "structures of a few bytes")]
const fn length<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

#[expect(clippy::cast_possible_truncation, reason = "a constant of 16 bits")]
const FAMILY: libc::c_ushort = libc::AF_PACKET as libc::c_ushort;
#[expect(clippy::cast_possible_truncation, reason = "a constant of 16 bits")]
const ALL: u16 = libc::ETH_P_ALL as u16;

/// The kind of fanout, in the upper half of the option's argument.
#[expect(clippy::cast_possible_wrap, reason = "a constant of 16 bits")]
const HASH: libc::c_int = (libc::PACKET_FANOUT_HASH as libc::c_int) << 16;
/// The kernel chooses the group's number.
#[expect(clippy::cast_possible_wrap, reason = "a constant of 16 bits")]
const UNIQUE: libc::c_int = (libc::PACKET_FANOUT_FLAG_UNIQUEID as libc::c_int) << 16;
