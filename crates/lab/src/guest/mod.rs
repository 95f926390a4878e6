//! A guest without a VM: memory, two rings, and a driver that polls them.
//!
//! | file | holds |
//! |---|---|
//! | `half` | one ring with its eventfds and buffers |
//! | `send`, `receive` | what a driver does: frames into the transmit ring, frames out of the receive ring |
//! | `raw` | descriptors and indexes written as one likes, for tests |

mod half;
mod raw;
mod receive;
mod send;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use straightline_packet::Level;
use straightline_virtio::features as f;
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::net_header::LEN as HEADER;
use straightline_virtio::vhost_user::{FrontendClient, RegionRef, RegionSpec, SUPPORTED_PROTOCOL_FEATURES};

use half::Half;

/// Where its memory begins, for itself and for the backend: the same number, to keep it simple.
const BASE: u64 = 0x1000_0000;

/// Bytes set aside for each ring: enough for 1024 entries.
const RING_ROOM: u64 = 64 << 10;

/// Bytes of the virtio-net header, as a length of guest memory.
pub(crate) const HEADER_LEN: u32 = 12;
const _: () = assert!(HEADER == 12);

/// The two rings of a network device (virtio 1.2, 5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Ring {
    /// What the guest receives.
    Receive = 0,
    /// What it sends.
    Transmit = 1,
}

/// A part of a memory file that a guest is to live in. The backend is shown the whole file.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file, shared with whoever else lives in it.
    pub file: Arc<OwnedFd>,
    /// Where the guest's own part begins, all zeros, at a multiple of 4096; it is [`GuestOptions::memory_len`] long.
    pub offset: u64,
}

/// How a guest is made.
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// What it would take of what is offered.
    pub features: u64,
    /// Entries in each ring: a power of two, at most 1024.
    pub ring_size: u16,
    /// Bytes in each buffer, header included.
    pub buffer_len: u32,
    /// Bytes of a receive buffer in each descriptor; 0: the whole buffer in one.
    pub receive_cut: u32,
    /// Whether it keeps its receive buffers until it is told to [`Guest::give`] them.
    pub withhold: bool,
    /// Where it lives, if not in a file of its own.
    pub place: Option<Place>,
}

impl Default for GuestOptions {
    fn default() -> Self {
        GuestOptions {
            features: f::VIRTIO_F_VERSION_1 | f::VIRTIO_F_EVENT_IDX | f::VIRTIO_NET_F_MRG_RXBUF,
            ring_size: 256,
            buffer_len: 2048,
            receive_cut: 0,
            withhold: false,
            place: None,
        }
    }
}

impl GuestOptions {
    /// Bytes of memory that such a guest needs: its rings and its buffers.
    pub fn memory_len(&self) -> u64 {
        let buffers = 2 * u64::from(self.ring_size) * u64::from(self.buffer_len);
        2 * RING_ROOM + buffers.next_multiple_of(4096)
    }
}

/// A connected guest.
#[derive(Debug)]
pub struct Guest {
    client: FrontendClient,
    memory: Arc<GuestMemory>,
    file: Arc<OwnedFd>,
    level: Level,
    features: u64,
    buffer_len: u32,
    receive_cut: u32,
    receive: Half,
    transmit: Half,
    /// Transmit buffers that the device does not have.
    spare: Vec<u16>,
    /// The further buffers of a sent chain, by its head.
    chained: HashMap<u16, Vec<u16>>,
    /// Receive buffers that the device does not have, and whether it gets used ones back.
    kept: Vec<u16>,
    withhold: bool,
}

/// A memory file of this many bytes, all zeros.
///
/// # Errors
/// What the system says.
pub fn memory_file(len: u64) -> anyhow::Result<OwnedFd> {
    let file = memfd_create("straightline-guest", MemfdFlags::CLOEXEC).context("cannot make guest memory")?;
    ftruncate(&file, len).context("cannot size guest memory")?;
    Ok(file)
}

fn handshake(client: &mut FrontendClient, wanted: u64) -> anyhow::Result<u64> {
    let agreed = client.handshake(wanted | f::VHOST_USER_F_PROTOCOL_FEATURES, SUPPORTED_PROTOCOL_FEATURES)?;
    client.set_features(agreed.features)?;
    Ok(agreed.features)
}

fn connect(socket: &Path) -> anyhow::Result<FrontendClient> {
    FrontendClient::connect(socket).with_context(|| format!("{}", socket.display()))
}

impl Guest {
    /// Connects to the backend that listens at `socket`, negotiates, and sets both rings going with all receive
    /// buffers given.
    ///
    /// # Errors
    /// What could not be had, or what the backend refused.
    pub fn connect(socket: &Path, options: &GuestOptions) -> anyhow::Result<Guest> {
        let mut guest = Guest::prepare(socket, options)?;
        guest.start()?;
        Ok(guest)
    }

    /// As [`Self::connect`], but stops before the backend is told of memory and rings: [`Self::start`] does that.
    ///
    /// # Errors
    /// What could not be had, or what the backend refused.
    pub fn prepare(socket: &Path, options: &GuestOptions) -> anyhow::Result<Guest> {
        let &GuestOptions { ring_size, buffer_len, receive_cut, withhold, .. } = options;
        ensure!(
            ring_size.is_power_of_two() && ring_size <= 1024,
            "a ring has a power of two of entries, at most 1024: not {ring_size}"
        );
        let mut client = connect(socket)?;
        let features = handshake(&mut client, options.features)?;
        let (file, offset) = match &options.place {
            Some(place) => (Arc::clone(&place.file), place.offset),
            None => (Arc::new(memory_file(options.memory_len())?), 0),
        };
        let len = u64::try_from(fstat(&file)?.st_size)?;
        let region = Region::map(file.as_fd(), 0, len, BASE, BASE)?;
        let memory = Arc::new(GuestMemory::new(vec![Arc::new(region)]).context("guest memory overlaps itself")?);

        let event_idx = features & f::VIRTIO_F_EVENT_IDX != 0;
        let buffers = BASE + offset + 2 * RING_ROOM;
        let half = |at: u64| {
            let buffers = buffers + at * u64::from(ring_size) * u64::from(buffer_len);
            Half::new(&memory, BASE + offset + at * RING_ROOM, buffers, ring_size, buffer_len, event_idx)
        };
        Ok(Guest {
            receive: half(0)?,
            transmit: half(1)?,
            client,
            memory: Arc::clone(&memory),
            file,
            level: Level::detect(),
            features,
            buffer_len,
            receive_cut,
            spare: (0..ring_size).rev().collect(),
            chained: HashMap::new(),
            kept: (0..ring_size).rev().collect(),
            withhold,
        })
    }

    /// Tells the backend of memory and rings, gives it the receive buffers, and enables both rings.
    ///
    /// # Errors
    /// What the backend refused.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.share_memory()?;
        self.resume([0, 0])?;
        if !self.withhold {
            self.give(usize::MAX);
        }
        Ok(())
    }

    /// SET_MEM_TABLE with the guest's one region; sent again, the backend maps it anew.
    ///
    /// # Errors
    /// What the backend refused.
    pub fn share_memory(&mut self) -> anyhow::Result<()> {
        let size = self.memory.regions().first().map_or(0, |region| region.size());
        let spec = RegionSpec { guest_addr: BASE, size, user_addr: BASE, mmap_offset: 0 };
        self.client.set_mem_table(&[RegionRef { spec, fd: self.file.as_fd() }])?;
        Ok(())
    }

    /// Stops both rings; returns where they stand, the receive ring first.
    ///
    /// # Errors
    /// What the backend refused.
    pub fn stop(&mut self) -> anyhow::Result<[u32; 2]> {
        Ok([self.client.get_vring_base(Ring::Receive as u16)?, self.client.get_vring_base(Ring::Transmit as u16)?])
    }

    /// Sets both rings going from where [`Self::stop`] left them.
    ///
    /// # Errors
    /// What the backend refused.
    pub fn resume(&mut self, [receive, transmit]: [u32; 2]) -> anyhow::Result<()> {
        self.receive.start(&mut self.client, Ring::Receive as u16, receive)?;
        self.transmit.start(&mut self.client, Ring::Transmit as u16, transmit)
    }

    /// Connects again, with the memory and the rings as they are, as a frontend does whose backend went away: what the
    /// backend had not used is still available.
    ///
    /// # Errors
    /// What the backend refused.
    pub fn reconnect(&mut self, socket: &Path) -> anyhow::Result<()> {
        self.client = connect(socket)?;
        let features = handshake(&mut self.client, self.features)?;
        ensure!(features == self.features, "the backend offers other features than before");
        self.share_memory()?;
        let bases = [Ring::Receive, Ring::Transmit].map(|ring| u32::from(self.used_index(ring)));
        self.resume(bases)
    }

    /// What was negotiated.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// The protocol, for what a guest seldom does: disable a ring, set other addresses, ask.
    pub fn client(&mut self) -> &mut FrontendClient {
        &mut self.client
    }

    /// The memory file, for tests that take it away.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// The memory, as the guest itself sees it.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// The instruction set that it copies with.
    pub fn level(&self) -> Level {
        self.level
    }
}
