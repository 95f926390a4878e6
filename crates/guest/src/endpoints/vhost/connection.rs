//! The connection to one backend.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use straightline_graph::peer;
use straightline_virtio::features as f;
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::ring::{Buffers, Bursts, DeviceFault, Geometry, RingOptions};
use straightline_virtio::vhost_user::FrontendClient;

use super::memory::Memory;
use super::options::PortOptions;
use crate::guest::driver::lay_out;
use crate::guest::half::{event, notify, set_up};
use crate::guest::{GOING, connect, handshake};

/// Start positions of rings, in the form of SET_VRING_BASE: index 0, and for a packed ring also
/// wrap counters of 1.
const SPLIT_START: u32 = 0;
const PACKED_START: u32 = 0x8000_8000;

/// The connection to a backend, with the eventfds of the receive ring and of the transmit ring.
#[derive(Debug)]
pub struct Connection {
    /// The path of the socket.
    pub socket: PathBuf,
    /// The negotiated features.
    pub features: u64,
    client: FrontendClient,
    status: bool,
    geometries: [Geometry; 2],
    kicks: [OwnedFd; 2],
    calls: [OwnedFd; 2],
}

impl Connection {
    /// Connects and negotiates features. A backend that lacks a wanted feature is an error.
    pub fn connect(socket: &Path, memory: &Memory, number: usize, options: &PortOptions) -> anyhow::Result<Connection> {
        let mut client = connect(socket, options.patience)
            .context("no backend answers: is it running, and does it listen there?")?;
        let wanted = options.features();
        let agreed = handshake(&mut client, wanted, 1).with_context(|| format!("{}", socket.display()))?;
        let (features, protocol_features) = agreed;
        let lacks = wanted & !features;
        ensure!(
            lacks == 0,
            "{}: the backend does not offer {}: leave out {}",
            socket.display(),
            f::list(f::names(lacks)),
            instead(lacks)
        );
        let geometries = [0, 1].map(|ring| lay_out(memory.ring(2 * number + ring), options.queue_size, features));
        Ok(Connection {
            socket: socket.to_owned(),
            features: features & !f::VHOST_USER_F_PROTOCOL_FEATURES,
            client,
            status: protocol_features & f::VHOST_USER_PROTOCOL_F_STATUS != 0,
            geometries,
            kicks: [event()?, event()?],
            calls: [event()?, event()?],
        })
    }

    /// Returns the process that listened at the socket, if it is one of our PID namespace.
    pub fn backend(&self) -> Option<u32> {
        peer(self.client.as_fd()).ok()?.pid
    }

    /// Returns the driver halves of the receive ring and of the transmit ring, both empty.
    pub fn rings<R: Bursts>(&self, memory: &Memory, options: &PortOptions) -> anyhow::Result<[R; 2]> {
        Ok([
            self.bursts(0, memory, options, Buffers::Receive(options.buffer_len))?,
            self.bursts(1, memory, options, Buffers::Transmit)?,
        ])
    }

    /// Returns the driver half of the receive ring (0) or of the transmit ring (1), empty.
    pub(super) fn bursts<R: Bursts>(
        &self,
        at: usize,
        memory: &Memory,
        options: &PortOptions,
        buffers: Buffers,
    ) -> anyhow::Result<R> {
        self.ring(at, memory, options, |memory, geometry, flags| R::new(memory, geometry, flags, buffers))
    }

    /// Returns a ring as [`Self::bursts`] does, with any kind of driver half.
    pub(super) fn ring<R>(
        &self,
        at: usize,
        memory: &Memory,
        options: &PortOptions,
        new: impl FnOnce(&GuestMemory, Geometry, RingOptions) -> Result<R, &'static str>,
    ) -> anyhow::Result<R> {
        let flags = RingOptions { in_order: options.in_order, ..RingOptions::default() };
        new(&memory.guest, self.geometries[at], flags).map_err(|part| {
            anyhow::anyhow!(
                "a ring of {} entries is not possible: its {part} does not fit into guest memory",
                options.queue_size
            )
        })
    }

    /// Tells the backend of memory and rings, and enables the rings.
    pub fn start(&mut self, memory: &Memory) -> anyhow::Result<()> {
        self.set_going(memory).with_context(|| format!("{}", self.socket.display()))
    }

    fn set_going(&mut self, memory: &Memory) -> anyhow::Result<()> {
        memory.share(&mut self.client)?;
        let base = if self.features & f::VIRTIO_F_RING_PACKED != 0 { PACKED_START } else { SPLIT_START };
        for (index, at) in [(0, 0), (1, 1)] {
            let events = [self.calls[at].as_fd(), self.kicks[at].as_fd()];
            set_up(&mut self.client, index, self.geometries[at], base, events)?;
        }
        for index in 0..2 {
            self.client.set_vring_enable(index, true)?;
        }
        if self.status {
            // Some backends start only after this message.
            self.client.set_status(GOING)?;
        }
        Ok(())
    }

    /// Kicks the receive ring (0) or the transmit ring (1).
    #[cold]
    pub fn kick(&self, ring: usize) {
        notify(self.kicks[ring].as_fd());
    }

    /// Returns whether the backend has closed the connection.
    pub fn has_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.client, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut fds, Some(&now)), Ok(1)) && !fds[0].revents().is_empty()
    }

    /// Stops both rings. A backend that is gone need not be told.
    pub fn stop(mut self) {
        for index in 0..2 {
            if self.client.get_vring_base(index).is_err() {
                break;
            }
        }
    }
}

/// Returns the options to leave out if the backend lacks these features.
fn instead(features: u64) -> &'static str {
    if features & f::VIRTIO_F_VERSION_1 != 0 {
        "this backend (virtio 1.0 is needed)"
    } else if features & f::VIRTIO_F_RING_PACKED != 0 {
        "--ring packed"
    } else if features & f::VIRTIO_NET_F_MRG_RXBUF != 0 {
        "--mrg on"
    } else if features & f::VIRTIO_F_IN_ORDER != 0 {
        "--in-order"
    } else if features & SEGMENTATION != 0 {
        "--segments, or `segment=` of the streams"
    } else {
        "--segments, or `checksum=partial` of the streams"
    }
}

/// The features that leave segmentation to the other side.
const SEGMENTATION: u64 =
    f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_GUEST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO6;

/// Turns a device fault into an error that names the port.
#[cold]
pub fn broken(connection: &Connection, fault: DeviceFault) -> anyhow::Error {
    anyhow::anyhow!("{}: {fault}: the ring is unusable: the connection must be restarted", connection.socket.display())
}
