//! The turns that send and receive frames on a port of the switch.

use std::fmt;
use std::sync::Arc;

use anyhow::Context;
use straightline_graph::Port;
use straightline_packet::{Arena, Batch, Drops, Level, MAX_BATCH, PortIndex, Rcu, RcuCell, Settings, SourceQueueId};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;

use super::packet::TurnPacket;
use crate::endpoints::Receiver;
use crate::endpoints::vhost::{Memory, PortOptions};

/// The port's index in drop counters, and the generator's: packets that are sent come from the
/// latter.
pub(super) const PORT: PortIndex = PortIndex(0);
const GENERATOR: PortIndex = PortIndex(1);

/// The offloads that a frame to be sent may ask for: all of them. A port finishes what its
/// interface does not do.
const OFFLOADS: u64 =
    f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_HOST_TSO6 | f::VIRTIO_NET_F_HOST_USO;

/// Sends and receives frames on a port of the switch, each in turns of its own.
pub(super) struct Turns {
    port: Arc<dyn Port>,
    arena: Arena,
    /// Frames to be sent, one in each buffer. A turn reads them through the cell.
    memory: Arc<Memory>,
    shared: RcuCell<Arc<Memory>>,
    buffers: Box<[Buffer]>,
    /// The index of the next buffer.
    next: usize,
    /// The number of frames before `next` that are to be sent.
    pending: usize,
    /// True if the port may still have frames that the kernel did not take at once.
    may_hold_frames: bool,
    level: Level,
}

/// A buffer for a frame to be sent.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    addr: u64,
    /// The template that the buffer holds.
    template: Option<usize>,
    header: NetHeader,
    len: u32,
}

impl fmt::Debug for Turns {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Turns").field("port", &self.port).field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl Turns {
    /// Prepares turns on a port that reads its link through `rcu`. Frames have at most `longest`
    /// bytes. `drops` are the port's drop counters.
    ///
    /// # Errors
    /// Memory for frames is not available.
    pub(super) fn new(port: Arc<dyn Port>, rcu: &Rcu, drops: Arc<Drops>, longest: u32) -> anyhow::Result<Turns> {
        // The memory has two buffers for each ring entry, so this is a buffer for each packet of a
        // turn.
        let queue_size = u16::try_from(MAX_BATCH / 2)?;
        let options = PortOptions { queue_size, buffer_len: longest.max(76), longest, ..PortOptions::default() };
        options.check()?;
        let memory = Arc::new(Memory::new(&options, 1).context("no memory for frames")?);
        let shared = RcuCell::new(rcu);
        shared.swap(Some(Box::new(Arc::clone(&memory))));
        let buffer = |addr| Buffer { addr, template: None, header: NetHeader::default(), len: 0 };
        let settings = Settings::default();
        Ok(Turns {
            port,
            arena: Arena::new(rcu.reader(), settings, vec![drops, Arc::default()]),
            buffers: memory.buffers().into_iter().map(buffer).collect(),
            memory,
            shared,
            next: 0,
            pending: 0,
            may_hold_frames: false,
            level: settings.level,
        })
    }

    /// Returns the number of frames for which there is a buffer.
    #[inline]
    pub(super) fn free_buffers(&self) -> usize {
        self.buffers.len().min(MAX_BATCH) - self.pending
    }

    /// Writes a frame into the next buffer: see [`TestPort::send`](crate::endpoints::TestPort).
    /// Returns false if there is none, or if the frame is longer than a buffer.
    #[inline]
    pub(super) fn put(
        &mut self,
        template: usize,
        header: &NetHeader,
        frame: &[u8],
        patches: &[(usize, &[u8])],
    ) -> bool {
        let Ok(len) = u32::try_from(frame.len()) else { return false };
        if self.free_buffers() == 0 {
            return false;
        }
        let buffer = &mut self.buffers[self.next];
        let Some(bytes) = self.memory.buffer(buffer.addr, len).filter(|bytes| bytes.len() == len) else {
            return false;
        };
        if buffer.template != Some(template) {
            bytes.write(self.level, frame);
            (buffer.template, buffer.header, buffer.len) = (Some(template), *header, len);
        }
        for &(at, patch) in patches {
            bytes.split_at(u32::try_from(at).unwrap_or(len)).1.write(self.level, patch);
        }
        self.next = (self.next + 1) % self.buffers.len();
        self.pending += 1;
        true
    }

    /// Delivers the written frames to the port. The port counts the frames that it drops.
    pub(super) fn flush(&mut self) {
        if self.pending == 0 {
            return;
        }
        let buffers = &self.buffers;
        let pending = std::mem::take(&mut self.pending);
        self.may_hold_frames = true;
        let first = self.next + buffers.len() - pending;
        let shared = &self.shared;
        let port = &self.port;
        self.arena.turn(|turn| {
            let Some(memory) = shared.load(turn) else { return };
            let mut batch = Batch::new();
            for at in first..first + pending {
                let Buffer { addr, header, len, .. } = buffers[at % buffers.len()];
                let Some(bytes) = memory.buffer(addr, len) else { continue };
                let Some(id) = turn.accept(GENERATOR, SourceQueueId::NONE, bytes) else { continue };
                match header.check(OFFLOADS, turn, id) {
                    Ok(offload) => {
                        turn.set_offload(id, offload);
                        batch.push(id);
                    }
                    Err(reason) => turn.discard(id, reason),
                }
            }
            port.deliver(turn, &batch, false);
        });
    }

    /// Lets the port send frames that the kernel did not take at once. A port does this when its
    /// worker prepares to sleep.
    pub(super) fn send_rest(&mut self) {
        if self.may_hold_frames {
            let port = &self.port;
            self.may_hold_frames = self.arena.turn(|turn| {
                let is_busy = port.arm(turn, false);
                port.disarm(turn, false);
                is_busy
            });
        }
    }

    /// Passes at most `most` received packets to `each`. Returns their number.
    pub(super) fn receive(&mut self, most: usize, each: &mut impl Receiver) -> usize {
        let port = &self.port;
        self.arena.turn(|turn| {
            let mut batch = Batch::new();
            port.receive(turn, &mut batch, most.min(MAX_BATCH));
            for &id in batch.ids() {
                each.frame(&TurnPacket { turn, id });
            }
            batch.len()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use straightline_packet::{Checksum, Offload, Turn};

    use super::*;
    use crate::endpoints::Received;

    /// A port that stores what is delivered to it, and receives it again in segments of a length.
    #[derive(Debug)]
    struct Returns {
        stored: Mutex<Vec<(Vec<u8>, Offload)>>,
        /// The last received frames. A turn reads them through the cell.
        memory: RcuCell<Memory>,
        segment: u32,
        /// The number of calls of `arm`. The first two tell that the port has something to do.
        armed: AtomicU32,
    }

    impl Port for Returns {
        fn name(&self) -> &'static str {
            "returns"
        }

        fn receive(&self, turn: &mut Turn<'_>, into: &mut Batch, max: usize) {
            let mut stored = self.stored.lock().expect("no panic");
            let memory = self.memory.load(turn).expect("it is there");
            let count = max.min(stored.len());
            for ((bytes, offload), addr) in stored.drain(..count).zip(memory.buffers()) {
                let mark = turn.mark();
                let mut rest =
                    memory.buffer(addr, u32::try_from(bytes.len()).expect("a frame")).expect("it is long enough");
                rest.write(Level::Scalar, &bytes);
                while !rest.is_empty() {
                    let (part, others) = rest.split_at(self.segment);
                    turn.stage(part);
                    rest = others;
                }
                let id = turn.accept_staged(PORT, SourceQueueId::NONE, mark, 0).expect("a slot");
                turn.set_offload(id, offload);
                into.push(id);
            }
        }

        fn deliver(&self, turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
            for &id in batch.ids() {
                let mut bytes = turn.head(id).to_vec();
                for segment in turn.body(id) {
                    let at = bytes.len();
                    bytes.resize(at + segment.len() as usize, 0);
                    segment.read(Level::Scalar, &mut bytes[at..]);
                }
                self.stored.lock().expect("no panic").push((bytes, turn.offload(id)));
            }
        }

        fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
            self.armed.fetch_add(1, Ordering::Relaxed) < 2
        }

        fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
    }

    fn turns(segment: u32) -> Turns {
        with_port(segment).0
    }

    fn with_port(segment: u32) -> (Turns, Arc<Returns>) {
        let rcu = Rcu::new();
        let memory = RcuCell::new(&rcu);
        let options = PortOptions { buffer_len: 9000, queue_size: 128, ..PortOptions::default() };
        memory.swap(Some(Box::new(Memory::new(&options, 1).expect("memory"))));
        let port = Arc::new(Returns { stored: Mutex::default(), memory, segment, armed: AtomicU32::new(0) });
        let shared = Arc::clone(&port);
        (Turns::new(shared, &rcu, Arc::default(), 9000).expect("memory"), port)
    }

    fn received(turns: &mut Turns, most: usize) -> Vec<(Vec<u8>, NetHeader)> {
        let mut all = Vec::new();
        let count = turns.receive(most, &mut |packet: &dyn Received| {
            let mut bytes = vec![0; packet.len()];
            assert_eq!(packet.read(0, &mut bytes), bytes.len());
            // Any part reads as the same part of the whole.
            for (offset, len) in [(0, 1), (14, 40), (255, 2), (256, 300), (700, 1000), (bytes.len(), 4), (9999, 1)] {
                let want = bytes.get(offset..).unwrap_or_default();
                let want = &want[..want.len().min(len)];
                let mut part = vec![0; len];
                assert_eq!(packet.read(offset, &mut part), want.len());
                assert_eq!(&part[..want.len()], want);
            }
            all.push((bytes, packet.header()));
        });
        assert_eq!(count, all.len());
        all
    }

    #[test]
    fn frames_of_all_lengths_pass_both_ways() {
        for segment in [u32::MAX, 2048, 100] {
            let mut turns = turns(segment);
            let frames: Vec<Vec<u8>> =
                [60, 256, 257, 1518, 9000].map(|len| (0..=250).cycle().take(len).collect()).to_vec();
            for (template, frame) in frames.iter().enumerate() {
                assert!(turns.put(template, &NetHeader::default(), frame, &[]));
            }
            assert_eq!(received(&mut turns, 64).len(), 0, "nothing is sent before the flush");
            turns.flush();
            let expected: Vec<_> =
                frames.into_iter().map(|frame| (frame, NetHeader { num_buffers: 1, ..NetHeader::default() })).collect();
            assert!(received(&mut turns, 2) == expected[..2]);
            assert!(received(&mut turns, 64) == expected[2..]);
        }
    }

    #[test]
    fn a_template_is_patched_in_any_buffer() {
        let mut turns = turns(u32::MAX);
        let frame = vec![7_u8; 600];
        for number in 0..1000_u32 {
            let patch = number.to_be_bytes();
            assert!(turns.put(3, &NetHeader::default(), &frame, &[(300, &patch)]));
            if number % 7 == 0 {
                turns.flush();
                let last = received(&mut turns, 64).pop().expect("a frame").0;
                assert_eq!((&last[..300], &last[300..304], &last[304..]), (&frame[..300], &patch[..], &frame[304..]));
            }
        }
    }

    #[test]
    fn a_port_is_asked_to_send_the_rest_until_it_has_nothing_to_do() {
        let (mut turns, port) = with_port(u32::MAX);
        turns.send_rest();
        assert_eq!(port.armed.load(Ordering::Relaxed), 0, "nothing was sent");
        assert!(turns.put(0, &NetHeader::default(), &[1; 60], &[]));
        turns.flush();
        for expected in [1, 2, 3, 3, 3] {
            turns.send_rest();
            assert_eq!(port.armed.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn no_more_is_taken_than_there_are_buffers() {
        let mut turns = turns(u32::MAX);
        let all = turns.free_buffers();
        assert_eq!(all, MAX_BATCH);
        let put = |turns: &mut Turns| turns.put(0, &NetHeader::default(), &[1; 60], &[]);
        assert!((0..all).all(|_| put(&mut turns)));
        assert!(!put(&mut turns) && turns.free_buffers() == 0);
        turns.flush();
        assert_eq!((received(&mut turns, 1000).len(), turns.free_buffers()), (all, all));
        assert!(!turns.put(1, &NetHeader::default(), &[1; 9001], &[]), "it fits in no buffer");
    }

    #[test]
    fn offloads_of_a_frame_go_with_it() {
        let mut turns = turns(u32::MAX);
        let header = NetHeader { flags: 1, csum_start: 34, csum_offset: 6, ..NetHeader::default() };
        assert!(turns.put(0, &header, &[0; 60], &[]));
        // The checksum's field is outside the frame.
        assert!(turns.put(1, &NetHeader { csum_start: 58, ..header }, &[0; 60], &[]));
        turns.flush();
        let got = received(&mut turns, 64);
        assert_eq!(got.len(), 1, "the port gets no frame with a wrong header");
        let offload = Offload { checksum: Checksum::Partial { start: 34, offset: 6 }, gso: None };
        assert_eq!(got[0].1, NetHeader::for_receiver(offload, 1));
    }
}
