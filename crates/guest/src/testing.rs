//! Received packets laid out by hand, for tests of guests.

use straightline_packet::{Level, MemorySegment};
use straightline_virtio::net_header::NetHeader;

use crate::endpoints::{Memory, Packet, PortOptions, Received};

/// A frame in buffers of a given length.
#[derive(Debug)]
pub struct Laid {
    memory: Memory,
    buffers: Vec<(u64, u32)>,
}

impl Laid {
    /// Lays out a frame with its virtio-net header in buffers of `buffer_len` bytes.
    ///
    /// # Panics
    /// The frame needs more than 8 buffers.
    pub fn new(frame: &[u8], header: &NetHeader, buffer_len: u32) -> Laid {
        let options = PortOptions { buffer_len, queue_size: 32, ..PortOptions::default() };
        let memory = Memory::new(&options, 8).expect("memory");
        let bytes = [&header.to_bytes(), frame].concat();
        let mut buffers = Vec::new();
        for (addr, chunk) in memory.buffers().into_iter().zip(bytes.chunks(buffer_len as usize)) {
            let len = u32::try_from(chunk.len()).expect("a buffer's length");
            memory.buffer(addr, len).expect("a buffer").write(Level::Scalar, chunk);
            buffers.push((addr, len));
        }
        Laid { memory, buffers }
    }

    /// Returns the first buffer, as far as it is filled.
    ///
    /// # Panics
    /// The frame is empty and has no header.
    pub fn first(&self) -> MemorySegment<'_> {
        let (addr, len) = self.buffers[0];
        self.memory.buffer(addr, len).expect("a buffer")
    }

    /// Returns the packet as a port hands it out.
    ///
    /// # Panics
    /// The frame is shorter than a virtio-net header.
    pub fn packet(&self) -> Packet<'_> {
        Packet::new(&self.memory, Level::detect(), &self.buffers).expect("a packet")
    }

    /// Returns the memory that has the buffers.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the buffers: address and length of each.
    pub fn buffers(&self) -> &[(u64, u32)] {
        &self.buffers
    }

    /// Returns the entire frame as it is now.
    ///
    /// # Panics
    /// The packet cannot be read to its end.
    pub fn frame(&self) -> Vec<u8> {
        let packet = self.packet();
        let mut frame = vec![0; packet.len()];
        assert_eq!(packet.read(0, &mut frame), frame.len());
        frame
    }
}
