//! The requests to an opener, and its answers. All of it is plain data: requests and answers also
//! pass between processes.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use straightline_graph::{DeviceFacts, Down, DownCause};

/// An interface to be opened, with the settings of its port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceRequest {
    /// A tap interface, which is made if it does not exist.
    Tap(TapRequest),
    /// An existing interface, by packet sockets.
    AfPacket(AfPacketRequest),
    /// An existing interface, by AF_XDP sockets.
    AfXdp(AfXdpRequest),
}

impl DeviceRequest {
    /// Returns the interface's name.
    pub fn interface(&self) -> &str {
        match self {
            Self::Tap(tap) => &tap.name,
            Self::AfPacket(request) => &request.interface,
            Self::AfXdp(request) => &request.interface,
        }
    }

    /// Returns the most queues that an opener opens for the interface.
    pub(super) fn most_queues(&self) -> u16 {
        match self {
            Self::Tap(request) => request.queues,
            Self::AfPacket(request) => request.queues,
            Self::AfXdp(request) => request.queues.unwrap_or(AfXdpRequest::MOST_QUEUES),
        }
    }

    /// Returns the bytes of memory that an opener locks for the interface. An AF_XDP port without a
    /// number of queues counts as one queue.
    pub fn locked_memory(&self) -> u64 {
        match self {
            Self::Tap(_) | Self::AfPacket(_) => 0,
            Self::AfXdp(request) => {
                u64::from(request.queues.unwrap_or(1)) * crate::device::af_xdp::open::memory_of_queue(request)
            }
        }
    }
}

/// A tap interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapRequest {
    /// The interface's name.
    pub name: String,
    /// The number of queues, at least 1.
    pub queues: u16,
    /// The MTU to set.
    pub mtu: u16,
    /// The MAC address to set; the kernel chooses one if there is none.
    pub mac: Option<[u8; 6]>,
    /// The work that the kernel may leave to the switch.
    pub offloads: TapOffloads,
    /// True if the interface stays when the switch ends.
    pub persist: bool,
    /// The user that may open the tap later without privileges.
    pub owner: Option<u32>,
    /// The group that may open the tap later without privileges.
    pub group: Option<u32>,
    /// The Linux bridge that the tap joins.
    pub bridge: Option<String>,
}

/// The work that the kernel may leave to the switch. `tso` and `uso` are never set without `csum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapOffloads {
    /// Partial checksums.
    pub csum: bool,
    /// TCP packets larger than the MTU.
    pub tso: bool,
    /// UDP packets larger than the MTU.
    pub uso: bool,
}

/// An interface, by packet sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfPacketRequest {
    /// The interface's name.
    pub interface: String,
    /// The number of sockets, at least 1. The kernel distributes flows to them.
    pub queues: u16,
}

/// An interface, by AF_XDP sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfXdpRequest {
    /// The interface's name.
    pub interface: String,
    /// The number of the interface's queues to use. `None`: all of them.
    pub queues: Option<u16>,
    /// The packets that are taken from the kernel.
    pub steal: Steal,
    /// The use of zero-copy mode.
    pub zero_copy: ZeroCopy,
    /// The MTU of the port, which decides the size of frames.
    pub mtu: u16,
}

impl AfXdpRequest {
    /// The most queues of a port. Each takes two descriptors, and one message passes 250 of them.
    pub const MOST_QUEUES: u16 = 64;
}

/// The packets that an AF_XDP port takes from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steal {
    /// All packets.
    #[default]
    All,
    /// Packets for the addresses of the switch, and what ARP and neighbour discovery tell and ask
    /// about these. The kernel keeps the others.
    Address {
        /// The addresses of the switch.
        addresses: Vec<IpAddr>,
        /// The VLAN that they are in.
        vlan: Option<u16>,
        /// The MAC address of the switch. `None`: the interface's own.
        mac: Option<[u8; 6]>,
    },
}

impl Steal {
    /// Returns the value of the configuration key `steal`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Address { .. } => "address",
        }
    }
}

/// The use of AF_XDP's zero-copy mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroCopy {
    /// Zero-copy mode where the driver has it, else copy mode.
    #[default]
    Allow,
    /// Zero-copy mode; the port does not open without it.
    Require,
    /// Copy mode.
    Off,
}

/// An open interface: descriptors that need no privileges, and facts for operators.
#[derive(Debug)]
pub struct OpenedDevice {
    /// The facts.
    pub facts: DeviceFacts,
    /// The descriptors, in an order that the kind defines.
    pub fds: Vec<OwnedFd>,
}

/// The reason why an interface cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct OpenError {
    /// The cause, which decides what happens next.
    pub cause: OpenCause,
    /// The reason and the remedy, in words.
    pub message: String,
}

/// The cause of an [`OpenError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpenCause {
    /// There is no such interface now.
    Missing,
    /// Another program uses the interface or its queue.
    Busy,
    /// An administrator has set the interface down.
    Down,
    /// This process lacks a privilege.
    Denied,
    /// The interface or the kernel cannot do what the port needs.
    Unsupported,
    /// Another failure of the system.
    Failed,
}

impl OpenError {
    /// Returns an error of this cause.
    pub fn new(cause: OpenCause, message: impl Into<String>) -> Self {
        OpenError { cause, message: message.into() }
    }

    /// Returns the error of an interface that does not exist.
    pub(crate) fn missing(interface: &str) -> Self {
        Self::new(OpenCause::Missing, format!("interface {interface} does not exist; `ip link` shows those that do"))
    }

    /// Returns the error of an interface that an administrator has to set up.
    pub(crate) fn set_down(interface: &str) -> Self {
        let message = format!("interface {interface} is down; set it up with `ip link set {interface} up`");
        Self::new(OpenCause::Down, message)
    }

    /// Returns the link of a port whose interface cannot be opened for this reason.
    pub(crate) fn down(&self) -> Down {
        let cause = match self.cause {
            OpenCause::Missing => DownCause::InterfaceMissing,
            OpenCause::Busy => DownCause::InterfaceBusy,
            OpenCause::Down => DownCause::InterfaceDown,
            OpenCause::Denied => DownCause::InterfaceDenied,
            OpenCause::Unsupported => DownCause::InterfaceUnsupported,
            OpenCause::Failed => DownCause::InterfaceFailed,
        };
        Down::new(cause, &self.message)
    }

    /// Returns whether the cause may end by itself, so that a later attempt is worthwhile.
    pub fn may_pass(&self) -> bool {
        matches!(self.cause, OpenCause::Missing | OpenCause::Busy | OpenCause::Down | OpenCause::Failed)
    }
}
