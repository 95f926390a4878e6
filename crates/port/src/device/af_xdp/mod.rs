//! AF_XDP ports: packets of an interface, past the kernel's network stack.
//!
//! A program at the interface redirects packets to AF_XDP sockets, one for each of its queues. A
//! socket has memory that it shares with the kernel, its UMEM, and four rings that pass frames of
//! this memory to and fro.
//!
//! | module | holds |
//! |---|---|
//! | `rings` | the four rings |
//! | `frames` | the frames of a UMEM |
//! | `queue` | a socket with its UMEM and rings; which frame is where |
//! | `receive`, `deliver` | packets from the interface, and to it |
//! | `open` | opening, with privileges |
//! | `program` | the program that redirects packets |
//! | `attached` | the program that an interface has already |
//!
//! The kernel's side is described in `Documentation/networking/af_xdp.rst`.

mod attached;
mod deliver;
mod frames;
pub(crate) mod open;
mod program;
mod queue;
mod receive;
mod rings;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use frames::{FRAMES, Umem, WRITTEN_ENTRIES};
use queue::{Queue, Rings};
use rings::{Consumer, Producer, Ring, RingLayout, RingMemory};
use rustix::net::sockopt::{xdp_mmap_offsets, xdp_statistics};
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpRingOffset,
};
use straightline_graph::RingCounters;
use straightline_packet::{Batch, PortIndex, Turn};

use crate::device::link::{DeviceLink, DevicePortData};
use crate::device::{OpenCause, OpenError, OpenedDevice};

/// An open AF_XDP interface.
#[derive(Debug)]
pub(crate) struct AfXdpLink {
    queues: Box<[Queue]>,
    /// Packets may take several frames.
    several: bool,
    /// Received checksums may be unfinished, although nothing says so.
    unfinished: bool,
    /// Holds the program at the interface for as long as it is open.
    _program: OwnedFd,
}

impl AfXdpLink {
    /// Returns the link of an open interface. The descriptors are those of [`open::open`]: the
    /// program's link, then a bound socket and its UMEM's file for each queue.
    pub(crate) fn new(opened: OpenedDevice, port: PortIndex) -> Result<Self, OpenError> {
        let OpenedDevice { facts, fds } = opened;
        let failed = |message: String| {
            OpenError::new(
                OpenCause::Failed,
                format!("cannot use the AF_XDP sockets of {}: {message}", facts.interface),
            )
        };
        let mut fds = fds.into_iter();
        let program = fds.next().ok_or_else(|| failed("the program's descriptor is missing".to_owned()))?;
        let mut queues = Vec::new();
        while let (Some(socket), Some(file)) = (fds.next(), fds.next()) {
            let umem = Umem::map(file.as_fd(), facts.frame_size).map_err(|error| failed(error.to_string()))?;
            let rings = map_rings(&socket).map_err(|error| failed(format!("mapping its rings: {error}")))?;
            let queue = Queue::new(Arc::new(socket), umem, rings, port).map_err(|fault| failed(fault.to_string()))?;
            queues.push(queue);
        }
        if queues.is_empty() {
            return Err(failed("there is none".to_owned()));
        }
        Ok(AfXdpLink {
            queues: queues.into(),
            several: facts.frame_size > open::FRAME_SIZE,
            // In generic mode, any interface passes on what a local sender has left to be finished.
            unfinished: facts.mode == "generic" || ["veth", "tun"].contains(&facts.driver.as_str()),
            _program: program,
        })
    }
}

/// Maps the rings of a socket that nobody has used yet.
fn map_rings(socket: &OwnedFd) -> std::io::Result<Rings> {
    let offsets = xdp_mmap_offsets(socket)?;
    Ok(Rings {
        rx: Consumer::new(map_ring(socket, XDP_PGOFF_RX_RING, offsets.rx, FRAMES)?),
        fill: Producer::new(map_ring(socket, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, WRITTEN_ENTRIES)?),
        tx: Producer::new(map_ring(socket, XDP_PGOFF_TX_RING, offsets.tx, WRITTEN_ENTRIES)?),
        completion: Consumer::new(map_ring(socket, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, FRAMES)?),
    })
}

fn map_ring<const W: usize>(
    socket: &OwnedFd,
    offset: u64,
    parts: XdpRingOffset,
    entries: u32,
) -> std::io::Result<Ring<W>> {
    let layout = RingLayout::of_kernel(parts).ok_or(std::io::ErrorKind::Unsupported)?;
    let memory = RingMemory::map(socket.as_fd(), offset, layout.memory_len(entries, W))?;
    Ring::new(Arc::new(memory), layout, entries).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

impl DeviceLink for AfXdpLink {
    fn receive<'t>(&'t self, port: &DevicePortData, queue: usize, turn: &mut Turn<'t>, into: &mut Batch, max: usize) {
        let counters = port.counters.get(queue).map(|counters| &counters.rx);
        if let Some(queue) = self.queues.get(queue) {
            receive::receive(queue, port, counters, self.unfinished, turn, into, max);
        }
    }

    fn leaves_unfinished(&self) -> bool {
        self.unfinished
    }

    fn deliver<'t>(&'t self, port: &DevicePortData, queue: usize, turn: &mut Turn<'t>, batch: &Batch) {
        let counters: Option<&RingCounters> = port.counters.get(queue).map(|counters| &counters.tx);
        if let Some(queue) = self.queues.get(queue) {
            deliver::deliver(queue, port, counters, self.several, turn, batch);
        }
    }

    fn arm(&self, port: &DevicePortData, queue: usize) -> bool {
        let Some(queue) = self.queues.get(queue) else { return false };
        let is_busy = queue.is_busy();
        if queue.is_faulted() {
            // The packets in its rx ring stay there, so they must not keep the worker awake.
            port.report_fault();
            return false;
        }
        is_busy
    }

    fn send_waiting(&self, queue: usize) -> bool {
        self.queues.get(queue).is_some_and(Queue::send_unsent)
    }

    /// Does nothing: the kernel wakes us at each packet, also while the worker polls.
    fn disarm(&self, _queue: usize) {}

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn wake_fd(&self, queue: usize) -> &Arc<OwnedFd> {
        &self.queues[queue].socket
    }

    /// Returns `rx_dropped` (the fill ring was empty, or a packet did not fit) and `rx_ring_full`.
    fn kernel_drops(&self) -> Vec<(&'static str, u64)> {
        let mut dropped = 0;
        let mut ring_full = 0;
        for statistics in self.queues.iter().filter_map(|queue| xdp_statistics(&queue.socket).ok()) {
            dropped += statistics.rx_dropped;
            ring_full += statistics.rx_ring_full.unwrap_or(0);
        }
        vec![("rx_dropped", dropped), ("rx_ring_full", ring_full)]
    }
}
