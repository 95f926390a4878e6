//! A guest without a VM: memory, two rings, and a driver that polls them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_packet::{Level, Segment};
use straightline_virtio::features as f;
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};
use straightline_virtio::ring::{Geometry, SplitDriver};
use straightline_virtio::vhost_user::{
    FrontendClient, RegionRef, RegionSpec, RingAddresses, SUPPORTED_PROTOCOL_FEATURES,
};

/// Where its memory begins, for itself and for the backend: the same number, to keep it simple.
const BASE: u64 = 0x1000_0000;

/// Bytes set aside for each ring: enough for 1024 entries.
const RING_ROOM: u64 = 64 << 10;

/// The guest's receive ring and its transmit ring.
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;

/// How a guest is made.
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// What it would take of what is offered.
    pub features: u64,
    /// Entries in each ring: a power of two, at most 1024.
    pub ring_size: u16,
    /// Bytes in each buffer, header included.
    pub buffer_len: u32,
}

impl Default for GuestOptions {
    fn default() -> Self {
        GuestOptions {
            features: f::VIRTIO_F_VERSION_1 | f::VIRTIO_F_EVENT_IDX | f::VIRTIO_NET_F_MRG_RXBUF,
            ring_size: 256,
            buffer_len: 2048,
        }
    }
}

/// A connected guest.
#[derive(Debug)]
pub struct Guest {
    client: FrontendClient,
    memory: Arc<GuestMemory>,
    file: OwnedFd,
    level: Level,
    features: u64,
    buffer_len: u32,
    receive: Half,
    transmit: Half,
    /// Transmit buffers that the device does not have.
    spare: Vec<u16>,
}

/// One ring with its buffers.
#[derive(Debug)]
struct Half {
    driver: SplitDriver,
    geometry: Geometry,
    kick: Arc<OwnedFd>,
    call: OwnedFd,
    buffers: u64,
    /// Which buffer the chain with this head is.
    buffer_of: Vec<u16>,
    hint: usize,
}

impl Half {
    fn new(memory: &GuestMemory, place: u64, buffers: u64, size: u16, event_idx: bool) -> anyhow::Result<Self> {
        let n = u64::from(size);
        let geometry =
            Geometry { size, desc: place, avail: place + 16 * n, used: (place + 18 * n + 6).next_multiple_of(64) };
        let driver = SplitDriver::new(memory, geometry, event_idx)
            .map_err(|part| anyhow::anyhow!("a ring of {size} entries: its {part} does not fit"))?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Half {
            driver,
            geometry,
            kick: Arc::new(event()?),
            call: event()?,
            buffers,
            buffer_of: vec![0; usize::from(size)],
            hint: 0,
        })
    }

    fn kick(&mut self) {
        self.driver.publish();
        if self.driver.must_kick() {
            // A counter that is full has its kick already.
            let _ = rustix::io::write(&*self.kick, &1_u64.to_ne_bytes());
        }
    }
}

impl Guest {
    /// Connects to the backend that listens at `socket`, negotiates, and sets both rings going with all receive
    /// buffers given.
    ///
    /// # Errors
    /// What could not be had, or what the backend refused.
    pub fn connect(socket: &Path, options: &GuestOptions) -> anyhow::Result<Guest> {
        ensure!(
            options.ring_size.is_power_of_two() && options.ring_size <= 1024,
            "a ring has a power of two of entries, at most 1024: not {}",
            options.ring_size
        );
        let mut client = FrontendClient::connect(socket).with_context(|| format!("{}", socket.display()))?;
        let agreed =
            client.handshake(options.features | f::VHOST_USER_F_PROTOCOL_FEATURES, SUPPORTED_PROTOCOL_FEATURES)?;
        client.set_features(agreed.features)?;

        let n = u64::from(options.ring_size);
        let size = 2 * RING_ROOM + 2 * n * u64::from(options.buffer_len);
        let file = memfd_create("straightline-guest", MemfdFlags::CLOEXEC).context("cannot make guest memory")?;
        ftruncate(&file, size).context("cannot size guest memory")?;
        let region = Region::map(file.as_fd(), 0, size, BASE, BASE)?;
        let memory = Arc::new(GuestMemory::new(vec![Arc::new(region)]).context("guest memory overlaps itself")?);
        let spec = RegionSpec { guest_addr: BASE, size, user_addr: BASE, mmap_offset: 0 };
        client.set_mem_table(&[RegionRef { spec, fd: file.as_fd() }])?;

        let event_idx = agreed.features & f::VIRTIO_F_EVENT_IDX != 0;
        let buffers = BASE + 2 * RING_ROOM;
        let half = |at: u64| {
            let buffers = buffers + at * n * u64::from(options.buffer_len);
            Half::new(&memory, BASE + at * RING_ROOM, buffers, options.ring_size, event_idx)
        };
        let mut guest = Guest {
            receive: half(0)?,
            transmit: half(1)?,
            client,
            memory: Arc::clone(&memory),
            file,
            level: Level::detect(),
            features: agreed.features,
            buffer_len: options.buffer_len,
            spare: (0..options.ring_size).rev().collect(),
        };
        guest.start()?;
        Ok(guest)
    }

    fn start(&mut self) -> anyhow::Result<()> {
        for (index, half) in [(RECEIVE, &mut self.receive), (TRANSMIT, &mut self.transmit)] {
            half.driver.want_interrupt(false);
            let Geometry { size, desc, avail, used } = half.geometry;
            self.client.set_vring_num(index, size)?;
            self.client.set_vring_base(index, 0)?;
            self.client.set_vring_addr(index, RingAddresses { desc, avail, used })?;
            self.client.set_vring_call(index, Some(half.call.as_fd()))?;
            self.client.set_vring_kick(index, Some(half.kick.as_fd()))?;
            self.client.set_vring_enable(index, true)?;
        }
        for buffer in 0..self.receive.geometry.size {
            self.offer(buffer);
        }
        self.receive.kick();
        Ok(())
    }

    /// What was negotiated.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// The protocol, for what a guest seldom does: stop a ring, leave, ask.
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

    /// Transmit buffers that are free.
    pub fn spare(&self) -> usize {
        self.spare.len()
    }

    /// The transmit buffer that the next frame goes into, from its virtio-net header on.
    pub fn next_buffer(&mut self) -> Option<(u16, Segment<'_>)> {
        let &buffer = self.spare.last()?;
        let addr = self.transmit.buffers + u64::from(buffer) * u64::from(self.buffer_len);
        let segment = self.memory.segment(addr, self.buffer_len, &mut self.transmit.hint)?;
        Some((buffer, segment))
    }

    /// A transmit buffer by its number, to be filled before traffic starts.
    pub fn buffer(&mut self, buffer: u16) -> Option<Segment<'_>> {
        let addr = self.transmit.buffers + u64::from(buffer) * u64::from(self.buffer_len);
        self.memory.segment(addr, self.buffer_len, &mut self.transmit.hint)
    }

    /// Makes the first `len` bytes (header included) of the buffer that [`Self::next_buffer`] gave available; seen by
    /// the backend after [`Self::flush`].
    pub fn send_next(&mut self, len: u32) -> bool {
        let Some(&buffer) = self.spare.last() else { return false };
        let addr = self.transmit.buffers + u64::from(buffer) * u64::from(self.buffer_len);
        let Some(head) = self.transmit.driver.add(&[(addr, len.min(self.buffer_len), false)]) else { return false };
        self.transmit.buffer_of[usize::from(head)] = buffer;
        self.spare.pop();
        true
    }

    /// Sends one frame behind a header. `false` where no buffer is free, or none is large enough.
    pub fn send(&mut self, header: &NetHeader, frame: &[u8]) -> bool {
        let level = self.level;
        let Some((_, segment)) = self.next_buffer() else { return false };
        let total = HEADER + frame.len();
        if total > segment.len() as usize {
            return false;
        }
        let rest = segment.split_at(u32::try_from(HEADER).unwrap_or(0)).1;
        segment.write(level, &header.to_bytes());
        rest.write(level, frame);
        self.send_next(u32::try_from(total).unwrap_or(u32::MAX))
    }

    /// Lets the backend see what was sent, and takes back the buffers that it is done with.
    pub fn flush(&mut self) {
        self.transmit.kick();
        while let Some(used) = self.transmit.driver.used() {
            if let Ok((head, _)) = used {
                self.spare.push(self.transmit.buffer_of[usize::from(head)]);
            }
        }
    }

    fn offer(&mut self, buffer: u16) {
        let addr = self.receive.buffers + u64::from(buffer) * u64::from(self.buffer_len);
        if let Some(head) = self.receive.driver.add(&[(addr, self.buffer_len, true)]) {
            self.receive.buffer_of[usize::from(head)] = buffer;
        }
    }

    /// Hands every packet that has arrived, at most `most`, to `each`, with its header and its pieces (the first begins
    /// with the frame, past the header); then gives the buffers back. Returns how many.
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(&NetHeader, &[Segment<'_>])) -> usize {
        let mut packets = 0;
        let mergeable = self.features & f::VIRTIO_NET_F_MRG_RXBUF != 0;
        let memory = Arc::clone(&self.memory);
        let mut pieces: Vec<Segment<'_>> = Vec::new();
        while packets < most {
            let Some((buffer, segment)) = self.take(&memory) else { break };
            let mut bytes = [0; HEADER];
            segment.read(self.level, &mut bytes);
            let header = NetHeader::parse(&bytes);
            let first = segment.split_at(u32::try_from(HEADER).unwrap_or(0)).1;
            let more = if mergeable { header.num_buffers.saturating_sub(1) } else { 0 };
            if more == 0 {
                each(&header, &[first]);
            } else {
                pieces.clear();
                pieces.push(first);
                let mut buffers = Vec::with_capacity(more.into());
                for _ in 0..more {
                    // All buffers of a packet become visible together.
                    let Some((buffer, segment)) = self.take(&memory) else { break };
                    pieces.push(segment);
                    buffers.push(buffer);
                }
                each(&header, &pieces);
                for buffer in buffers {
                    self.offer(buffer);
                }
            }
            self.offer(buffer);
            packets += 1;
        }
        if packets > 0 {
            self.receive.kick();
        }
        packets
    }

    /// The next used buffer: its number and the bytes that were written.
    fn take<'m>(&mut self, memory: &'m GuestMemory) -> Option<(u16, Segment<'m>)> {
        loop {
            // A head that is not out is the backend's mistake; there is nothing behind it to look at.
            let Ok((head, len)) = self.receive.driver.used()? else { continue };
            let buffer = self.receive.buffer_of[usize::from(head)];
            let addr = self.receive.buffers + u64::from(buffer) * u64::from(self.buffer_len);
            let segment = memory.segment(addr, len.min(self.buffer_len), &mut self.receive.hint)?;
            return Some((buffer, segment));
        }
    }

    /// The instruction set that it copies with.
    pub fn level(&self) -> Level {
        self.level
    }
}
