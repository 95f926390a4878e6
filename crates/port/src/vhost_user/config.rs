//! The configuration of a vhost-user port, and the features that it offers to its guest.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use straightline_graph::{Clock, Permissions};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{MAX_QUEUE_PAIRS, NetConfig, Offer, SUPPORTED_PROTOCOL_FEATURES};
use straightline_wire::FrameLimit;

use crate::ClosedApart;

/// The most memory regions of one guest.
const MAX_REGIONS: u64 = 64;

/// The pauses before the repeats of a call that a driver does not answer. The repeats come 10 ms,
/// 100 ms and 1 s after the ring's last movement.
pub const CALL_PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(90), Duration::from_millis(900)];

/// The side that listens; the other side connects.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The port listens, and the users with these permissions may connect.
    Server(Permissions),
    /// The frontend listens. The port connects. It connects again, without end, when connecting
    /// fails or the connection ends.
    Client,
    /// A Unix socket that another process has opened. It listens, or it is connected to a frontend.
    /// When that connection ends, the port closes it and accepts no other.
    Given(Arc<ClosedApart<OwnedFd>>),
}

/// Features that let a driver send commands, offered with any configuration.
const CONTROL: u64 = f::VIRTIO_NET_F_CTRL_VQ
    | f::VIRTIO_NET_F_CTRL_RX
    | f::VIRTIO_NET_F_CTRL_RX_EXTRA
    | f::VIRTIO_NET_F_CTRL_VLAN
    | f::VIRTIO_NET_F_CTRL_MAC_ADDR
    | f::VIRTIO_NET_F_GUEST_ANNOUNCE;

/// The configuration of a vhost-user port.
#[derive(Clone, Debug)]
pub struct VhostUserConfig {
    /// The port's name.
    pub name: String,
    /// The path of the socket at which the port or the frontend listens.
    pub socket: PathBuf,
    /// The side that listens.
    pub mode: Mode,
    /// The MTU. The port reports it to the guest. Longer packets are neither received nor
    /// delivered.
    pub mtu: u16,
    /// The MAC address that the port reports to the guest.
    pub mac: Option<[u8; 6]>,
    /// The MAC address that the port reports to the guest if `mac` is `None`.
    pub default_mac: Option<[u8; 6]>,
    /// Offers partial checksums.
    pub csum: bool,
    /// Offers TCP segmentation. Needs `csum`.
    pub tso: bool,
    /// Offers UDP segmentation. Needs `csum`.
    pub uso: bool,
    /// The most queue pairs, 1 to 127. With `None`, a frontend that reads the configuration space
    /// gets the value 1. Others may start as many as the protocol can name.
    pub queues: Option<u16>,
    /// Offers the packed ring.
    pub packed: bool,
    /// `full = "wait"`. Packets for a full destination stay in this guest's rings. Packets for this
    /// guest wait for free buffers, so its workers must wake when there are some.
    pub waits: bool,
    /// The pauses before the repeats of a call that a driver does not answer.
    pub call_pauses: [Duration; 3],
    /// The clock of the port's threads.
    pub clock: Clock,
}

impl VhostUserConfig {
    /// Returns the defaults. The port listens at `socket`, has an MTU of 1500, and offers all
    /// offloads and the packed ring. Its frontend chooses the number of queue pairs. Nothing waits.
    pub fn new(name: impl Into<String>, socket: impl Into<PathBuf>) -> Self {
        VhostUserConfig {
            name: name.into(),
            socket: socket.into(),
            mode: Mode::Server(Permissions::default()),
            mtu: 1500,
            mac: None,
            default_mac: None,
            csum: true,
            tso: true,
            uso: true,
            queues: None,
            packed: true,
            waits: false,
            call_pauses: CALL_PAUSES,
            clock: Clock::real(),
        }
    }

    /// Returns the most queue pairs that a frontend may start.
    pub(crate) fn most_pairs(&self) -> u16 {
        self.queues.unwrap_or(MAX_QUEUE_PAIRS).clamp(1, MAX_QUEUE_PAIRS)
    }

    /// Returns the number of queue pairs in the configuration space. Its readers start that many,
    /// whether their driver uses them or not.
    pub(crate) fn told_pairs(&self) -> u16 {
        self.queues.unwrap_or(1).clamp(1, MAX_QUEUE_PAIRS)
    }

    /// Descriptors besides those of rings: four of the connection, three during a transfer of
    /// device state, the listener, and eight that come with a message.
    pub const OTHER_DESCRIPTORS: u64 = 4 + 3 + 1 + 8;

    /// Returns the most descriptors that a frontend with `pairs` queue pairs has the switch keep:
    /// three for each ring and for the control ring, and others.
    #[must_use]
    pub fn descriptors(pairs: u16) -> u64 {
        3 * (2 * u64::from(pairs) + 1) + Self::OTHER_DESCRIPTORS
    }

    /// Returns the descriptors that are reserved for the port: those for the queue pairs in the
    /// configuration space.
    #[must_use]
    pub fn reserved_descriptors(&self) -> u64 {
        Self::descriptors(self.told_pairs())
    }

    fn told_mac(&self) -> Option<[u8; 6]> {
        self.mac.or(self.default_mac)
    }

    /// Returns the features that the guest is offered. Segmentation needs the checksum, so it is
    /// offered only with it (virtio 1.2, 5.1.3).
    pub(crate) fn offer(&self) -> Offer {
        let mut features = f::VIRTIO_F_VERSION_1
            | f::VIRTIO_F_EVENT_IDX
            | f::VIRTIO_F_INDIRECT_DESC
            | f::VIRTIO_F_IN_ORDER
            | f::VIRTIO_NET_F_MRG_RXBUF
            | f::VIRTIO_NET_F_STATUS
            | f::VHOST_F_LOG_ALL
            | f::VIRTIO_NET_F_MTU;
        if self.packed {
            features |= f::VIRTIO_F_RING_PACKED;
        }
        if self.told_mac().is_some() {
            features |= f::VIRTIO_NET_F_MAC;
        }
        features |= CONTROL;
        if self.most_pairs() > 1 {
            features |= f::VIRTIO_NET_F_MQ;
        }
        if self.csum {
            features |= f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_CTRL_GUEST_OFFLOADS;
            if self.tso {
                features |= f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_HOST_ECN;
                features |= f::VIRTIO_NET_F_GUEST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO6 | f::VIRTIO_NET_F_GUEST_ECN;
            }
            if self.uso {
                features |= f::VIRTIO_NET_F_HOST_USO | f::VIRTIO_NET_F_GUEST_USO4 | f::VIRTIO_NET_F_GUEST_USO6;
            }
        }
        let link_up = 1;
        Offer {
            features,
            protocol_features: SUPPORTED_PROTOCOL_FEATURES,
            queue_pairs: self.most_pairs(),
            max_mem_slots: MAX_REGIONS,
            config: NetConfig {
                mac: self.told_mac().unwrap_or_default(),
                status: link_up,
                max_virtqueue_pairs: self.told_pairs(),
                mtu: self.mtu,
            },
        }
    }

    /// Returns the bytes of the longest packet that may be delivered unsegmented.
    pub(crate) fn max_len(&self) -> u32 {
        FrameLimit::new(self.mtu).bytes()
    }
}
