//! Packets in a guest's memory, as a port takes and delivers them.

use std::ops::Range;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use straightline_packet::{Level, PacketId, PortIndex, SourceQueueId, Turn};
use straightline_virtio::memory::{GuestMemory, Region};

use crate::{END, region};

/// Address to which packets are delivered; the sender uses the first half of the memory.
pub(crate) const SINK: u64 = END / 2;
/// The longest packet that fits into half of the memory together with its header.
pub(crate) const LONGEST: usize = 0x7000;

/// Accepts a packet at `at` as a port does, in one segment or several.
pub(crate) fn accept<'t>(
    turn: &mut Turn<'t>,
    memory: &'t GuestMemory,
    at: u64,
    len: usize,
    splits: [u16; 3],
) -> Option<PacketId> {
    let mark = turn.mark();
    let mut done = 0;
    for split in splits.map(usize::from).into_iter().chain([usize::MAX]) {
        let n = split.min(len - done);
        let staged = memory.segments(at + done as u64, n as u32, &mut 0, |segment| turn.stage(segment));
        assert!(staged, "it lies in memory");
        done += n;
    }
    let id = turn.accept_staged(PortIndex(0), SourceQueueId::NONE, mark, 0)?;
    assert_eq!(turn.len(id) as usize, len);
    Some(id)
}

/// Stages `len` bytes of the sink, lets `store` write into them, and returns them.
pub(crate) fn stored<'t>(
    turn: &mut Turn<'t>,
    memory: &'t GuestMemory,
    len: usize,
    store: impl FnOnce(&mut Turn<'t>, Range<usize>),
) -> Vec<u8> {
    let mark = turn.mark();
    assert!(memory.segments(SINK, len as u32, &mut 0, |segment| turn.stage(segment)));
    let to = mark..turn.mark();
    store(turn, to);
    let mut bytes = vec![0; len];
    let mut at = 0;
    for segment in turn.staged(mark) {
        at += segment.read(Level::Scalar, &mut bytes[at..]);
    }
    turn.unstage(mark);
    bytes
}

thread_local! {
    /// Memory of the packets. A new mapping for each input would cost more than the code under test.
    static REGION: Arc<Region> = {
        let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd_create");
        ftruncate(&fd, END).expect("ftruncate");
        region(&fd, 0, END)
    };
}

/// Returns the memory of packets that enter a graph: one region, which all of this thread share.
pub(crate) fn guest_memory() -> GuestMemory {
    GuestMemory::new(vec![REGION.with(Arc::clone)]).expect("no overlap")
}
