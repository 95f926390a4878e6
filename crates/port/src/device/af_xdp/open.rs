//! Opening an interface for AF_XDP, with privileges.
//!
//! ```text
//! look at the interface: Ethernet, up, queues, MTU
//! turn off features by which packets do not arrive as they were sent
//! for each queue: socket, UMEM, rings, bind               (zero-copy or copy)
//! program: load, enter the sockets, attach                (native or generic)
//! ```
//!
//! The sockets work without privileges from then on. Everything ends with the last copy of the
//! descriptors, except for what [`Changes`] restores.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use az::SaturatingAs;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_send_buffer_size_force, set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_options,
};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use straightline_graph::{Clock, DeviceFacts};

use super::frames::{FRAMES, WRITTEN_ENTRIES, umem_len};
use super::rings::RingMemory;
use super::{attached, program};
use crate::device::bpf::{self, XdpMode};
use crate::device::ethtool::{self, Channels, Ethtool, Features, Reception};
use crate::device::interface::Interfaces;
use crate::device::{AfXdpRequest, OpenCause, OpenError, OpenedDevice, Steal, ZeroCopy};

/// Bytes of a frame that holds a whole packet.
pub(super) const FRAME_SIZE: u32 = 2048;

/// Bytes of a frame of a packet that may take several: a page, the most that the kernel allows.
const LARGE_FRAME_SIZE: u32 = 4096;

/// The largest MTU with which a packet fits into one frame of [`FRAME_SIZE`] bytes. The kernel
/// takes 256 of them; the Ethernet header and two VLAN tags take 22.
const MTU_OF_ONE_FRAME: u16 = 1770;

/// The socket's limit of bytes under way in copy mode. The kernel counts up to 4 KiB for a frame,
/// and some hundred bytes of its own.
const SEND_BUFFER: usize = 16 << 20;

/// Further attempts to bind to a queue that is still in use, and the time before each.
const BIND_TRIES: u32 = 25;
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// Features by which a packet is not received as it was sent: its VLAN tag is beside it, or it is
/// several packets in one.
const UNWANTED: [&str; 3] = ["rx-vlan-hw-parse", "rx-lro", "rx-gro-hw"];

/// Changes at an interface, which are undone when this is dropped.
#[derive(Debug)]
pub(crate) struct Changes {
    ethtool: Ethtool,
    ifindex: u32,
    features: Features,
    /// Makes the interface receive packets for further addresses.
    _reception: Option<OwnedFd>,
}

impl Drop for Changes {
    fn drop(&mut self) {
        if !self.features.is_empty() {
            // The interface may have gone.
            let _ = self.ethtool.turn_on_again(self.ifindex, &self.features);
        }
    }
}

/// Opens an interface. Returns the descriptors of the program's link and, for each queue, of a
/// bound socket and its UMEM's file; and the changes at the interface.
pub(crate) fn open(request: &AfXdpRequest, clock: &Clock) -> Result<(OpenedDevice, Changes), OpenError> {
    let opening = Opening::new(request, clock)?;
    let (queues, mut warnings) = opening.queues()?;
    opening.check_program()?;
    let mut fds = Vec::new();
    let mut zero_copy = true;
    for queue in 0..queues {
        let socket = opening.open_queue(queue, &mut fds)?;
        zero_copy &= socket;
    }
    // This comes late: another program may use the interface, and changes could reset it. The
    // sockets receive nothing before the program is attached.
    let changes = opening.prepare()?;
    let (mode, not_native) = opening.attach(queues, &mut fds, zero_copy)?;
    if mode == XdpMode::Generic {
        warnings.push(opening.generic_warning(not_native));
    }
    let Opening { name, driver, ifindex, mtu, mac, frame_size, .. } = opening;
    let facts = DeviceFacts {
        interface: name.to_owned(),
        ifindex,
        driver,
        mode: mode.name().to_owned(),
        zero_copy,
        queues: queues.saturating_as::<u16>(),
        mtu,
        mac,
        features: 0,
        frame_size,
        warnings,
    };
    Ok((OpenedDevice { facts, fds }, changes))
}

/// Returns the bytes of memory that each queue of a port locks.
pub(crate) fn memory_of_queue(request: &AfXdpRequest) -> u64 {
    umem_len(frame_size(request.mtu))
}

fn frame_size(mtu: u16) -> u32 {
    if mtu > MTU_OF_ONE_FRAME { LARGE_FRAME_SIZE } else { FRAME_SIZE }
}

/// An interface that is being opened.
struct Opening<'a> {
    request: &'a AfXdpRequest,
    clock: &'a Clock,
    name: &'a str,
    ethtool: Ethtool,
    ifindex: u32,
    driver: String,
    mtu: u32,
    mac: [u8; 6],
    frame_size: u32,
}

impl<'a> Opening<'a> {
    /// Looks at the interface.
    fn new(request: &'a AfXdpRequest, clock: &'a Clock) -> Result<Self, OpenError> {
        let name = request.interface.as_str();
        let failed = |errno: Errno| match errno {
            Errno::NODEV => OpenError::missing(name),
            errno => OpenError::new(OpenCause::Failed, format!("cannot look at interface {name}: {errno}")),
        };
        let interfaces = Interfaces::new().map_err(failed)?;
        let ifindex = interfaces.index(name).map_err(failed)?.ok_or_else(|| failed(Errno::NODEV))?;
        let mac = interfaces.mac(name).map_err(failed)?.ok_or_else(|| {
            let message = format!("interface {name} is not Ethernet; AF_XDP ports need an Ethernet interface");
            OpenError::new(OpenCause::Unsupported, message)
        })?;
        if !interfaces.is_up(name).map_err(failed)? {
            return Err(OpenError::set_down(name));
        }
        let mtu = interfaces.mtu(name).map_err(failed)?;
        let driver = interfaces.driver(name).map(|driver| driver.name).unwrap_or_default();
        let ethtool = Ethtool::new(name)
            .map_err(|error| OpenError::new(OpenCause::Failed, format!("cannot look at interface {name}: {error}")))?;
        let frame_size = frame_size(request.mtu);
        Ok(Opening { request, clock, name, ethtool, ifindex, driver, mtu, mac, frame_size })
    }

    /// Returns the error of a step that the system refused.
    fn error(&self, what: &str, error: &io::Error) -> OpenError {
        let name = self.name;
        let (cause, remedy) = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => (
                OpenCause::Denied,
                ": the program needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF; run it as root, or grant them in its \
                 service unit"
                    .to_owned(),
            ),
            Some(libc::EAFNOSUPPORT) => (OpenCause::Unsupported, ": this kernel has no AF_XDP".to_owned()),
            Some(libc::ENODEV | libc::ENXIO) => (OpenCause::Missing, ": the interface has gone".to_owned()),
            _ => (OpenCause::Failed, format!(": {error}")),
        };
        OpenError::new(cause, format!("cannot {what} of interface {name}{remedy}"))
    }

    /// Checks that the interface has no program of others. Attaching one would find that out, too,
    /// but later.
    fn check_program(&self) -> Result<(), OpenError> {
        match attached::program_of(self.ifindex) {
            Ok(Some(_)) => Err(self.not_attached(&io::Error::from_raw_os_error(libc::EBUSY))),
            _ => Ok(()),
        }
    }

    /// Makes the interface receive packets for the addresses that it is opened for, as they were
    /// sent.
    fn prepare(&self) -> Result<Changes, OpenError> {
        let reception = self.reception().map(|reception| ethtool::receive_too(self.ifindex, reception)).transpose();
        let reception = reception.map_err(|error| self.error("change the receive filter", &error))?;
        // The sockets are bound to this index. Another interface may have the name by now.
        let ethtool = Ethtool::of_index(self.ifindex).map_err(|error| self.error("look at settings", &error))?;
        // An interface without ethtool has none of these features.
        let features = match ethtool.turn_off(&UNWANTED) {
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => {
                return Err(self.error("turn off receive offloads", &error));
            }
            features => features.unwrap_or_default(),
        };
        Ok(Changes { ethtool, ifindex: self.ifindex, features, _reception: reception })
    }

    /// Returns the packets to receive beside those for the interface's own address.
    fn reception(&self) -> Option<Reception> {
        match &self.request.steal {
            Steal::All => Some(Reception::All),
            Steal::Address { mac, .. } if mac.is_some_and(|mac| mac != self.mac) => Some(Reception::All),
            // The interface's VLAN filter knows only the kernel's VLANs. This mode switches it off.
            Steal::Address { vlan: Some(_), .. } => Some(Reception::All),
            // The kernel does not join the groups in which neighbours ask for our IPv6 addresses.
            Steal::Address { addresses, .. } => addresses.iter().any(IpAddr::is_ipv6).then_some(Reception::Multicast),
        }
    }

    /// Returns the number of queues to open, with a warning if the interface receives by more.
    fn queues(&self) -> Result<(u32, Vec<String>), OpenError> {
        let (name, Channels { rx, tx }) = (self.name, self.ethtool.channels());
        // A socket sends by the queue that it receives from.
        let has = rx.min(tx);
        let most = u32::from(AfXdpRequest::MOST_QUEUES);
        let refused = |message| Err(OpenError::new(OpenCause::Unsupported, message));
        let wanted = match self.request.queues.map(u32::from) {
            Some(wanted) if wanted > has => {
                return refused(format!(
                    "`queues = {wanted}` is too much for interface {name}, which has {rx} receive and {tx} \
                     transmit queues: use at most {has}, or give it more with `ethtool -L {name}`"
                ));
            }
            None if has > most => {
                return refused(format!(
                    "interface {name} has {has} queues, and a port has at most {most}: reduce them with \
                     `ethtool -L {name} combined {most}`"
                ));
            }
            wanted => wanted.unwrap_or(has),
        };
        let warning = format!(
            "the kernel keeps packets of {} of the {rx} receive queues of {name}, because the port uses {wanted}: \
             reduce the interface's queues with `ethtool -L {name}`",
            rx - wanted
        );
        Ok((wanted, if wanted < rx { vec![warning] } else { Vec::new() }))
    }

    /// Opens the socket of a queue. Adds its descriptor and that of its UMEM to `fds`. Returns
    /// whether it is in zero-copy mode.
    fn open_queue(&self, queue: u32, fds: &mut Vec<OwnedFd>) -> Result<bool, OpenError> {
        let error = |what: &str| {
            let what = format!("{what} for queue {queue}");
            move |error: Errno| self.error(&what, &error.into())
        };
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .map_err(error("open an AF_XDP socket"))?;
        let file = self.create_umem(&socket, queue)?;
        set_xdp_umem_fill_ring_size(&socket, WRITTEN_ENTRIES).map_err(error("make the fill ring"))?;
        set_xdp_umem_completion_ring_size(&socket, FRAMES).map_err(error("make the completion ring"))?;
        set_xdp_rx_ring_size(&socket, FRAMES).map_err(error("make the rx ring"))?;
        set_xdp_tx_ring_size(&socket, WRITTEN_ENTRIES).map_err(error("make the tx ring"))?;
        // Kernels before 6.17 do not have this option, and send 32 packets a call.
        let _ = ethtool::set_send_budget(&socket, FRAMES);
        // All frames may be under way at a time. If the limit stays lower, some of them wait for
        // others.
        let _ = set_socket_send_buffer_size_force(&socket, SEND_BUFFER);
        self.bind(&socket, queue)?;
        let options = xdp_options(&socket).map_err(error("read the mode"))?;
        fds.extend([socket, file]);
        Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Makes the memory that the socket shares with its user, and registers it.
    fn create_umem(&self, socket: &OwnedFd, queue: u32) -> Result<OwnedFd, OpenError> {
        let what = format!("make the packet memory for queue {queue}");
        let error = |error: Errno| self.error(&what, &error.into());
        let len = umem_len(self.frame_size);
        let file = memfd_create("straightline-umem", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(error)?;
        ftruncate(&file, len).map_err(error)?;
        // Nobody can truncate the file while packets lie in it.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(error)?;
        let mapped = RingMemory::map(file.as_fd(), 0, usize::try_from(len).unwrap_or(0))
            .map_err(|cause| self.error(&what, &cause))?;
        let registration = XdpUmemReg {
            addr: mapped.address(),
            len,
            chunk_size: self.frame_size,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        // The kernel keeps the pages, so the mapping may go.
        set_xdp_umem_reg(socket, registration).map_err(|errno| match errno {
            Errno::NOBUFS | Errno::NOMEM => OpenError::new(
                OpenCause::Failed,
                format!(
                    "cannot lock the {} MiB of packet memory for queue {queue} of interface {}: the program needs \
                     CAP_IPC_LOCK or a higher limit (`ulimit -l`, LimitMEMLOCK= in its service unit)",
                    len >> 20,
                    self.name
                ),
            ),
            errno => error(errno),
        })?;
        Ok(file)
    }

    fn bind(&self, socket: &OwnedFd, queue: u32) -> Result<(), OpenError> {
        let name = self.name;
        let mode = match self.request.zero_copy {
            // The kernel chooses zero-copy mode where the driver has it.
            ZeroCopy::Allow => SocketAddrXdpFlags::empty(),
            ZeroCopy::Require => SocketAddrXdpFlags::XDP_ZEROCOPY,
            ZeroCopy::Off => SocketAddrXdpFlags::XDP_COPY,
        };
        let several = match self.frame_size {
            FRAME_SIZE => SocketAddrXdpFlags::empty(),
            _ => SocketAddrXdpFlags::XDP_USE_SG,
        };
        let flags = mode | several | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let address = SocketAddrXdp::new(flags, self.ifindex, queue);
        bind_again(self.clock, || bind(socket, &address)).map_err(|errno| match errno {
            Errno::BUSY => OpenError::new(
                OpenCause::Busy,
                format!("queue {queue} of interface {name} has an AF_XDP socket of another program already: end it"),
            ),
            Errno::OPNOTSUPP if self.request.zero_copy == ZeroCopy::Require => OpenError::new(
                OpenCause::Unsupported,
                format!(
                    "`zero-copy = \"require\"`: the driver {:?} of interface {name} has no zero-copy mode; use \"allow\"",
                    self.driver
                ),
            ),
            Errno::INVAL | Errno::OPNOTSUPP if self.frame_size != FRAME_SIZE => OpenError::new(
                OpenCause::Unsupported,
                format!(
                    "the driver {:?} or the kernel cannot receive packets of several frames on interface {name}, which \
                     `mtu` above {MTU_OF_ONE_FRAME} needs (Linux 6.6): use a smaller `mtu`",
                    self.driver
                ),
            ),
            errno => self.error(&format!("bind the AF_XDP socket for queue {queue}"), &errno.into()),
        })
    }

    /// Loads the program, enters the sockets, and attaches it: native if the driver can, else
    /// generic. Puts its link in front of `fds`. Returns the mode, and the error of the native mode
    /// if the driver has that mode.
    fn attach(
        &self,
        queues: u32,
        fds: &mut Vec<OwnedFd>,
        zero_copy: bool,
    ) -> Result<(XdpMode, Option<io::Error>), OpenError> {
        let error = |what: &'static str| move |error: io::Error| self.error(what, &error);
        let sockets = bpf::create_socket_map(queues).map_err(error("make the map of sockets"))?;
        for (queue, pair) in (0..queues).zip(fds.chunks(2)) {
            bpf::set_socket(sockets.as_fd(), queue, pair[0].as_fd()).map_err(error("enter the sockets"))?;
        }
        let several = self.frame_size != FRAME_SIZE;
        let code = match &self.request.steal {
            Steal::All => program::redirect_all(sockets.as_fd()),
            Steal::Address { addresses, vlan, .. } => program::redirect_addresses(sockets.as_fd(), addresses, *vlan),
        };
        let program = bpf::load(&code, several).map_err(error("load the program"))?;
        let attach = |mode| bpf::attach(program.as_fd(), self.ifindex, mode);
        let (mode, not_native, link) = match attach(XdpMode::Native) {
            Ok(link) => (XdpMode::Native, None, link),
            // Zero-copy mode exists in the driver only.
            Err(refused) if zero_copy || is_taken(&refused) => return Err(self.not_attached(&refused)),
            Err(refused) => {
                let link = attach(XdpMode::Generic).map_err(|refused| self.not_attached(&refused))?;
                let has_native = refused.raw_os_error() != Some(libc::EOPNOTSUPP);
                (XdpMode::Generic, has_native.then_some(refused), link)
            }
        };
        fds.insert(0, link);
        Ok((mode, not_native))
    }

    fn not_attached(&self, error: &io::Error) -> OpenError {
        let name = self.name;
        match error.raw_os_error() {
            _ if is_taken(error) => {
                let id = attached::program_of(self.ifindex).ok().flatten();
                let id = id.map_or_else(|| "an XDP program".to_owned(), |id| format!("XDP program {id}"));
                OpenError::new(
                    OpenCause::Busy,
                    format!(
                        "interface {name} has {id} of another program already: end that program, or detach it with \
                         `ip link set {name} xdp off`"
                    ),
                )
            }
            Some(libc::EOPNOTSUPP | libc::EINVAL) => OpenError::new(
                OpenCause::Unsupported,
                format!("interface {name} (driver {:?}) cannot run XDP programs: {error}", self.driver),
            ),
            Some(libc::ERANGE) => OpenError::new(
                OpenCause::Failed,
                format!("the MTU of interface {name} or of its peer is too large for XDP: reduce it, or raise `mtu`"),
            ),
            _ => self.error("attach the program", error),
        }
    }

    /// Returns a warning about the generic mode. `not_native` is the error of the native mode, if
    /// the driver has it.
    fn generic_warning(&self, not_native: Option<io::Error>) -> String {
        let name = self.name;
        let why = match not_native {
            None => "in generic mode only".to_owned(),
            Some(error) if error.raw_os_error() == Some(libc::ERANGE) => {
                "in generic mode now, because the MTU of the interface or of its peer is too large for the native mode"
                    .to_owned()
            }
            Some(error) => format!("in generic mode now, because it refused the native mode ({error})"),
        };
        let more = if self.driver == "veth" {
            "; large TCP packets of its peer are lost: turn them off with `ethtool -K PEER tx off`"
        } else {
            ""
        };
        format!("the driver {:?} of {name} runs XDP programs {why}, which is slow{more}", self.driver)
    }
}

/// Returns whether a program is not attached because another one is.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// Binds a socket. The kernel frees the queue of a closed socket a moment later, so a queue that is busy
/// is tried again for some time.
fn bind_again(clock: &Clock, mut bind: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    for _ in 0..BIND_TRIES {
        match bind() {
            Err(Errno::BUSY) => clock.sleep(BIND_PAUSE),
            bound => return bound,
        }
    }
    bind()
}

#[cfg(test)]
mod tests;
