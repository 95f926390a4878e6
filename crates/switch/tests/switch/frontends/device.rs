//! The guest of a scripted program: guest memory, rings, and a driver for each ring.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use rustix::event::{EventfdFlags, eventfd};
use straightline_guest::memory_file;
use straightline_packet::Level;
use straightline_testing::wait_until;
use straightline_virtio::features as f;
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};
use straightline_virtio::ring::{Geometry, PackedDriver, RingOptions, SplitDriver};
use straightline_virtio::vhost_user::RegionSpec;

/// Entries of each ring.
pub(crate) const SIZE: u16 = 256;
/// Bytes that are reserved for each ring, and for the buffers of each.
const RING_ROOM: u64 = 16 << 10;
const BUFFERS: u16 = 32;
const BUFFER: u32 = 2048;
const BUFFER_ROOM: u64 = BUFFERS as u64 * BUFFER as u64;
/// Guest memory has two regions: rings in the lower one, buffers above 4 GiB.
const LOW: u64 = 0x10_0000;
const HIGH: u64 = 4 << 30;
/// The user address of guest memory in a program with addresses of its own.
const USER: u64 = 0x7f00_0000_0000;

/// A value that is neither of the acknowledgements of a command.
const UNTOUCHED: u8 = 0xee;

/// Guest memory and its file.
pub(crate) struct Memory {
    pub(crate) file: OwnedFd,
    pub(crate) specs: [RegionSpec; 2],
    memory: Arc<GuestMemory>,
    offset: u64,
}

impl Memory {
    pub(crate) fn new(rings: u16, same_addresses: bool) -> Result<Memory> {
        let sizes = [RING_ROOM, BUFFER_ROOM].map(|room| room * u64::from(rings));
        let file = memory_file(sizes[0] + sizes[1])?;
        let offset = if same_addresses { 0 } else { USER };
        let spec = |at: usize, guest_addr: u64, mmap_offset: u64| RegionSpec {
            guest_addr,
            size: sizes[at],
            user_addr: guest_addr + offset,
            mmap_offset,
        };
        let specs = [spec(0, LOW, 0), spec(1, HIGH, sizes[0])];
        let map = |spec: &RegionSpec| {
            Region::map(file.as_fd(), spec.mmap_offset, spec.size, spec.guest_addr, spec.user_addr).map(Arc::new)
        };
        let regions = specs.iter().map(map).collect::<Result<Vec<_>, _>>()?;
        let memory = Arc::new(GuestMemory::new(regions).context("regions apart")?);
        Ok(Memory { file, specs, memory, offset })
    }

    /// Returns the place of a ring, in the program's own addresses.
    pub(crate) fn geometry(&self, index: u16, packed: bool) -> Geometry {
        let desc = self.offset + LOW + u64::from(index) * RING_ROOM;
        if packed {
            Geometry { size: SIZE, desc, avail: desc + 0x1000, used: desc + 0x1040 }
        } else {
            Geometry { size: SIZE, desc, avail: desc + 0x1000, used: desc + 0x2000 }
        }
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<()> {
        let len = u32::try_from(bytes.len())?;
        let place = self.memory.segment(addr, len, &mut 0).context("guest memory")?;
        place.write(Level::detect(), bytes);
        Ok(())
    }

    fn read(&self, addr: u64, len: u32) -> Result<Vec<u8>> {
        let place = self.memory.segment(addr, len, &mut 0).context("guest memory")?;
        let mut bytes = vec![0; len as usize];
        place.read(Level::detect(), &mut bytes);
        Ok(bytes)
    }
}

/// The means by which the device sends calls to the driver.
pub(crate) enum Call {
    Eventfd(OwnedFd),
    /// The device's end and the driver's end.
    Socket(UnixStream, #[expect(dead_code, reason = "held open")] UnixStream),
}

impl Call {
    pub(crate) fn new(by_socket: bool) -> Result<Call> {
        if by_socket {
            let (device, driver) = UnixStream::pair()?;
            Ok(Call::Socket(device, driver))
        } else {
            Ok(Call::Eventfd(event()?))
        }
    }
}

impl AsFd for Call {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Call::Eventfd(event) => event.as_fd(),
            Call::Socket(device, _) => device.as_fd(),
        }
    }
}

enum Driver {
    Split(SplitDriver),
    Packed(PackedDriver),
}

/// A ring with its driver.
pub(crate) struct Ring {
    index: u16,
    /// Set once the driver has chosen its features.
    driver: Option<Driver>,
    pub(crate) kick: OwnedFd,
    pub(crate) call: Call,
    pub(crate) err: OwnedFd,
    /// Buffers that the device does not have, and the buffer of each chain, by the id with which it
    /// returns.
    free: Vec<u16>,
    buffer_of: Vec<u16>,
    /// The number of chains that were ever made available.
    available: u16,
}

impl Ring {
    pub(crate) fn new(index: u16, call_by_socket: bool) -> Result<Ring> {
        Ok(Ring {
            index,
            driver: None,
            kick: event()?,
            call: Call::new(call_by_socket)?,
            err: event()?,
            free: (0..BUFFERS).rev().collect(),
            buffer_of: vec![0; usize::from(SIZE)],
            available: 0,
        })
    }

    /// Sets up the ring in guest memory, as the driver does.
    pub(crate) fn set_up(&mut self, memory: &Memory, features: u64) -> Result<()> {
        let packed = features & f::VIRTIO_F_RING_PACKED != 0;
        let geometry = memory.geometry(self.index, packed);
        let options = RingOptions {
            event_idx: features & f::VIRTIO_F_EVENT_IDX != 0,
            in_order: features & f::VIRTIO_F_IN_ORDER != 0,
            indirect: false,
        };
        let place = &memory.memory;
        let wrong = |part| anyhow!("ring {}: its {part} does not fit", self.index);
        self.driver = Some(if packed {
            Driver::Packed(PackedDriver::new(place, geometry, options).map_err(wrong)?)
        } else {
            Driver::Split(SplitDriver::new(place, geometry, options).map_err(wrong)?)
        });
        Ok(())
    }

    fn driver(&mut self) -> Result<&mut Driver> {
        self.driver.as_mut().context("a ring that is set up")
    }

    fn buffer(&self, buffer: u16) -> u64 {
        HIGH + u64::from(self.index) * BUFFER_ROOM + u64::from(buffer) * u64::from(BUFFER)
    }

    fn add(&mut self, parts: &[(u64, u32, bool)]) -> Result<u16> {
        let head = match self.driver()? {
            Driver::Split(driver) => driver.add(parts),
            Driver::Packed(driver) => driver.add(parts),
        };
        self.available = self.available.wrapping_add(1);
        head.context("free descriptors")
    }

    fn used(&mut self) -> Result<Option<(u16, u32)>> {
        let used = match self.driver()? {
            Driver::Split(driver) => driver.used(),
            Driver::Packed(driver) => driver.used(),
        };
        used.transpose().map_err(|fault| anyhow!("ring {}: {fault:?}", self.index))
    }

    /// Publishes what was added, and kicks if the device wants that.
    fn publish(&mut self) -> Result<()> {
        let must_kick = match self.driver()? {
            Driver::Split(driver) => {
                driver.publish();
                driver.must_kick()
            }
            Driver::Packed(driver) => {
                driver.publish();
                driver.must_kick()
            }
        };
        if must_kick {
            rustix::io::write(&self.kick, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Returns the positions of a split ring: the used index, and the available one.
    pub(crate) fn places(&self) -> Option<(u16, u16)> {
        match &self.driver {
            Some(Driver::Split(driver)) => Some((driver.base(), self.available)),
            _ => None,
        }
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, memory: &Memory, frame: &[u8]) -> Result<()> {
        while let Some((head, _)) = self.used()? {
            self.free.push(self.buffer_of[usize::from(head)]);
        }
        let buffer = self.free.pop().context("a free buffer")?;
        let bytes = [&NetHeader::default().to_bytes()[..], frame].concat();
        memory.write(self.buffer(buffer), &bytes)?;
        let head = self.add(&[(self.buffer(buffer), u32::try_from(bytes.len())?, false)])?;
        self.buffer_of[usize::from(head)] = buffer;
        self.publish()
    }

    /// Gives the device all receive buffers that it does not have.
    pub(crate) fn give(&mut self) -> Result<()> {
        while let Some(buffer) = self.free.pop() {
            let head = self.add(&[(self.buffer(buffer), BUFFER, true)])?;
            self.buffer_of[usize::from(head)] = buffer;
        }
        self.publish()
    }

    /// Returns frames that have arrived, each in a buffer of its own.
    pub(crate) fn receive(&mut self, memory: &Memory) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        while let Some((head, len)) = self.used()? {
            let buffer = self.buffer_of[usize::from(head)];
            frames.push(memory.read(self.buffer(buffer), len)?.split_off(HEADER));
            self.free.push(buffer);
        }
        if !frames.is_empty() {
            self.give()?;
        }
        Ok(frames)
    }

    /// Sends a command of the control queue; returns its acknowledgement.
    pub(crate) fn command(&mut self, memory: &Memory, command: &[u8]) -> Result<u8> {
        let [ask, answer] = [self.buffer(0), self.buffer(1)];
        memory.write(ask, command)?;
        memory.write(answer, &[UNTOUCHED])?;
        let class = 2;
        let data = u32::try_from(command.len())? - 2;
        self.add(&[(ask, class, false), (ask + 2, data, false), (answer, 1, true)])?;
        self.publish()?;
        let mut used = Ok(None);
        wait_until("the command is used", || {
            used = self.used();
            !matches!(used, Ok(None))
        });
        used?;
        Ok(memory.read(answer, 1)?[0])
    }
}

fn event() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}
