//! Packets in a guest's memory, as a port takes and delivers them.

use std::ops::Range;

use straightline_packet::{Level, PacketId, PortIndex, SourceQueueId, Turn};
use straightline_virtio::memory::GuestMemory;

use crate::END;

/// Where packets are delivered to: the sender's half of the memory is the first.
pub const SINK: u64 = END / 2;
/// What fits into a half, with what is put in front.
pub const LONGEST: usize = 0x7000;

/// As a port takes a packet that stands at `at`, in one segment or several.
pub fn accept<'t>(
    turn: &mut Turn<'t>,
    memory: &'t GuestMemory,
    at: u64,
    len: usize,
    cuts: [u16; 3],
) -> Option<PacketId> {
    let mark = turn.mark();
    let mut done = 0;
    for cut in cuts.map(usize::from).into_iter().chain([usize::MAX]) {
        let n = cut.min(len - done);
        let staged = memory.segments(at + done as u64, n as u32, &mut 0, |segment| turn.stage(segment));
        assert!(staged, "it lies in memory");
        done += n;
    }
    let id = turn.accept_staged(PortIndex(0), SourceQueueId::NONE, mark, 0)?;
    assert_eq!(turn.len(id) as usize, len);
    Some(id)
}

/// Stages as many bytes as are to be stored, and gives what was stored there.
pub fn stored<'t>(
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
