//! A packet in the guest's buffers: in one buffer, or in several if the buffers are mergeable.

use az::SaturatingAs;
use straightline_packet::{Level, MemorySegment};
use straightline_virtio::net_header::{LEN as HEADER, NetHeader};

use super::memory::Memory;
use crate::endpoints::Received;
use crate::guest::HEADER_LEN;

/// A packet in its buffers. The backend, and every process that maps the memory, may still write to
/// these buffers. So bytes are copied out before they are examined, and only a copy is read twice.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'m> {
    memory: &'m Memory,
    level: Level,
    /// The first buffer, header included.
    first: MemorySegment<'m>,
    /// All buffers: address and bytes of each; the first one includes the header.
    buffers: &'m [(u64, u32)],
    len: u32,
}

impl<'m> Packet<'m> {
    /// Returns `None` if there is no buffer, or if the first one is too short for a header.
    #[inline]
    pub fn new(memory: &'m Memory, level: Level, buffers: &'m [(u64, u32)]) -> Option<Packet<'m>> {
        let &[(addr, len), ref rest @ ..] = buffers else { return None };
        let first = memory.buffer(addr, len).filter(|first| first.len() >= HEADER_LEN)?;
        let len = rest.iter().fold(first.len() - HEADER_LEN, |sum, part| sum.saturating_add(part.1));
        Some(Packet { memory, level, first, buffers, len })
    }

    /// Returns the buffers: address and bytes of each; the first one includes the header.
    pub fn buffers(&self) -> &[(u64, u32)] {
        self.buffers
    }

    /// Returns the instruction set with which bytes of the packet are copied.
    #[inline]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Writes the packet's virtio-net header.
    pub fn set_header(&self, header: &NetHeader) {
        self.first.write(self.level, &header.to_bytes());
    }

    /// Writes bytes of the frame from `offset` on, up to the end of the frame at most. Returns the
    /// number of written bytes.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> usize {
        let frame = self.first.split_at(HEADER_LEN).1;
        if offset + bytes.len() <= frame.len() as usize {
            return frame.split_at(low(offset)).1.write(self.level, bytes);
        }
        let mut done = 0;
        self.chunks(offset, bytes.len(), |chunk| done += chunk.write(self.level, &bytes[done..]));
        done
    }

    /// Implements [`Received::words`] for words that are in several buffers.
    #[cold]
    fn words_apart(&self, offset: usize) -> Option<[u64; 3]> {
        let mut bytes = [0; 24];
        let is_complete = self.read(offset, &mut bytes) == bytes.len();
        let (words, _) = bytes.as_chunks::<8>();
        is_complete.then(|| std::array::from_fn(|at| u64::from_be_bytes(words[at])))
    }

    /// Calls `each` with at most `len` bytes of the frame from `offset` on, one part for each
    /// buffer.
    pub fn chunks(&self, offset: usize, len: usize, mut each: impl FnMut(MemorySegment<'m>)) {
        let mut skip = low(offset);
        let mut left = low(len);
        for (at, &(addr, bytes)) in self.buffers.iter().enumerate() {
            let chunk = match at {
                0 => Some(self.first.split_at(HEADER_LEN).1),
                _ => self.memory.buffer(addr, bytes),
            };
            let Some(chunk) = chunk else { return };
            let step = skip.min(chunk.len());
            let chunk = chunk.split_at(step).1.split_at(left).0;
            skip -= step;
            left -= chunk.len();
            if !chunk.is_empty() {
                each(chunk);
            }
        }
    }
}

impl Received for Packet<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn header(&self) -> NetHeader {
        NetHeader::parse(&self.first.read12().unwrap_or([0; HEADER]))
    }

    #[inline]
    fn read(&self, offset: usize, bytes: &mut [u8]) -> usize {
        let frame = self.first.split_at(HEADER_LEN).1;
        if offset + bytes.len() <= frame.len() as usize {
            return frame.split_at(low(offset)).1.read(self.level, bytes);
        }
        let mut done = 0;
        let len = bytes.len();
        self.chunks(offset, len, |chunk| done += chunk.read(self.level, &mut bytes[done..]));
        done
    }

    #[inline]
    fn words(&self, offset: usize) -> Option<[u64; 3]> {
        let frame = self.first.split_at(HEADER_LEN).1;
        frame.split_at(low(offset)).1.read_words().or_else(|| self.words_apart(offset))
    }
}

/// Converts an offset in a frame; an offset beyond 4 GiB is outside every frame.
#[inline]
fn low(offset: usize) -> u32 {
    offset.saturating_as::<u32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Laid;

    #[test]
    fn bytes_are_found_wherever_they_are() {
        let frame: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let header = NetHeader { flags: 1, csum_start: 34, num_buffers: 7, ..NetHeader::default() };
        for buffer_len in [2048, 1012, 1011, 512, 76] {
            let laid = Laid::new(&frame, &header, buffer_len);
            let packet = laid.packet();
            assert_eq!((packet.len(), packet.header()), (1000, header));
            for (offset, len) in [(0, 1000), (0, 14), (60, 10), (63, 1), (64, 1), (900, 100), (999, 1)] {
                let mut bytes = vec![0; len];
                assert_eq!(packet.read(offset, &mut bytes), len);
                assert_eq!(bytes, frame[offset..offset + len], "{len} from {offset} in {buffer_len}");
            }
            for offset in [0, 40, 59, 60, 63, 64, 500, 976] {
                let bytes = packet.words(offset).expect("inside").map(u64::to_be_bytes).concat();
                assert_eq!(bytes, frame[offset..offset + 24], "from {offset} in {buffer_len}");
            }
            assert_eq!([977, 1000, usize::MAX / 2].map(|offset| packet.words(offset)), [None; 3]);
            let mut beyond = [0; 20];
            assert_eq!(packet.read(990, &mut beyond), 10);
            assert_eq!(packet.read(1000, &mut beyond), 0);
            assert_eq!(packet.read(usize::MAX / 2, &mut beyond), 0);
        }
    }

    #[test]
    fn bytes_are_written_wherever_they_are() {
        for buffer_len in [2048, 76] {
            let laid = Laid::new(&[7; 300], &NetHeader::default(), buffer_len);
            let packet = laid.packet();
            let mut want = vec![7; 300];
            for (offset, len) in [(0, 12), (60, 10), (100, 150), (299, 1)] {
                let bytes: Vec<u8> = (1..=200).cycle().take(len).collect();
                assert_eq!(packet.write(offset, &bytes), len);
                want[offset..offset + len].copy_from_slice(&bytes);
                assert_eq!(laid.frame(), want);
            }
            assert_eq!(packet.write(295, &[9; 10]), 5);
            packet.set_header(&NetHeader { flags: 3, ..NetHeader::default() });
            assert_eq!(packet.header().flags, 3);
            assert_eq!(laid.frame()[..295], want[..295]);
        }
        let laid = Laid::new(b"", &NetHeader::default(), 76);
        assert!(laid.packet().is_empty());
        assert!(Packet::new(laid.memory(), Level::Scalar, &[]).is_none());
        assert!(Packet::new(laid.memory(), Level::Scalar, &[(laid.buffers()[0].0, 11)]).is_none());
    }
}
