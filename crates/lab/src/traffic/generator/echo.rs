//! A port whose frames return at once. It shows the generator's limit with nothing between its
//! ports.

use straightline_virtio::net_header::NetHeader;

use straightline_guest::endpoints::{Received, Receiver, TestPort};

/// Number of buffers in the port's ring, as in a usual virtio ring.
const BUFFERS: usize = 256;

/// A port that stores each frame as a real port does, in a buffer that may already hold the
/// template. Then the frame is received again. The buffers are used in turn, as in a ring.
#[derive(Debug)]
pub struct Echo {
    buffers: Box<[Buffer]>,
    /// The buffer of the next frame to receive, and the number of frames from there on.
    first: usize,
    count: usize,
}

impl Default for Echo {
    fn default() -> Echo {
        let buffers = (0..BUFFERS).map(|_| Buffer::default()).collect();
        Echo { buffers, first: 0, count: 0 }
    }
}

#[derive(Debug, Default)]
struct Buffer {
    template: Option<usize>,
    header: NetHeader,
    bytes: Vec<u8>,
}

impl Received for Buffer {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn header(&self) -> NetHeader {
        self.header
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> usize {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        len
    }

    #[inline]
    fn words(&self, offset: usize) -> Option<[u64; 3]> {
        let (words, _) = self.bytes.get(offset..)?.first_chunk::<24>()?.as_chunks::<8>();
        Some(std::array::from_fn(|at| u64::from_be_bytes(words[at])))
    }
}

impl Buffer {
    /// Copies a patch. Words are copied one by one: see [`MemorySegment::write_words`].
    ///
    /// [`MemorySegment::write_words`]: straightline_packet::MemorySegment::write_words
    #[inline]
    fn patch(&mut self, at: usize, bytes: &[u8]) {
        let Some(place) = self.bytes.get_mut(at..at + bytes.len()) else { return };
        let (words, rest) = bytes.as_chunks::<8>();
        if rest.is_empty() {
            place.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(to, from)| *to = *from);
        } else {
            place.copy_from_slice(bytes);
        }
    }
}

impl TestPort for Echo {
    fn free_buffers(&mut self) -> usize {
        BUFFERS - self.count
    }

    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
        if self.count == BUFFERS {
            return false;
        }
        let buffer = &mut self.buffers[(self.first + self.count) % BUFFERS];
        if buffer.template != Some(template) {
            buffer.bytes.clear();
            buffer.bytes.extend_from_slice(frame);
            (buffer.template, buffer.header) = (Some(template), *header);
        }
        patches.iter().for_each(|(at, patch)| buffer.patch(*at, patch));
        self.count += 1;
        true
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn receive(&mut self, most: usize, each: &mut impl Receiver) -> anyhow::Result<usize> {
        let count = most.min(self.count);
        for _ in 0..count {
            each.frame(&self.buffers[self.first]);
            self.first = (self.first + 1) % BUFFERS;
            self.count -= 1;
        }
        Ok(count)
    }
}
