//! What a packet is while a worker holds it: a slot with its head, a body that stays in guest memory,
//! the batch that carries packets between nodes, the state of its checksum and segmentation, and the
//! turn that bounds how long all of it lives.
//!
//! Not here: rings, sockets, protocols beyond what segmentation has to rewrite, and system calls.
//!
//! A packet's first [`HEAD`] bytes are copied into a slot (the *head*); the rest (the *body*) stays where
//! the guest put it and is copied once, straight to where it goes. Nodes see heads only.
//!
//! ```
//! use straightline_packet::{Arena, Batch, Rcu, PortIndex, Settings};
//!
//! let rcu = Rcu::new();
//! let mut arena = Arena::new(rcu.reader(), Settings::default(), Vec::new());
//! let length = arena.turn(|turn| {
//!     let id = turn.accept_owned(PortIndex(0), b"fourteen bytes or more").expect("an empty turn has room");
//!     let mut batch = Batch::new();
//!     batch.push(id);
//!     turn.len(id)
//! });
//! assert_eq!(length, 22);
//! ```

mod batch;
mod coalescing;
mod copy;
#[cfg(feature = "memory-double")]
pub mod double;
mod drops;
mod gso_segments;
mod offload;
mod segment;
mod segmentation;
mod slot;
mod turn;

pub use batch::{Batch, MAX_BATCH, PacketId};
pub use coalescing::Run;
pub use copy::{BodyCursor, Scatter};
pub use drops::{Drops, Reason};
pub use offload::{Checksum, Gso, GsoKind, Offload};
pub use segment::MemorySegment;
pub use segmentation::{GsoSegment, MAX_HEADERS, Segmenter};
pub use slot::{HEAD, HEADROOM};
pub use straightline_simd::{Kernels, Level, WithKernels, prefetch_read};
pub use turn::{
    Arena, AtTurnEnd, BodyCount, MIN_HEADROOM, Outside, Packets, PrependError, Rcu, RcuCell, RcuReader, Served,
    Settings, SourceQueueId, StripError, Turn, TurnWatch,
};

/// Whether packets are copied at all. A build that leaves the copies out (`bench-no-copies`) shows what all the rest costs:
/// rings are worked and headers for receivers written as ever, but no byte of a frame is read or written, nor fetched.
pub const COPIES: bool = cfg!(not(feature = "bench-no-copies"));

/// The longest frame that a port may carry: the 64 KiB of an IP packet behind an Ethernet header.
pub const MAX_FRAME: u32 = 65_550;

/// The shortest frame that means something: an Ethernet header.
pub const MIN_FRAME: u32 = 14;

/// A port of the switch, as an index into every table of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortIndex(pub u16);

impl PortIndex {
    /// The place in a table.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
