//! Packets, for as long as a worker holds them.
//!
//! - A packet's first [`HEAD`] bytes are copied into a slot: the *head*. The other bytes, the
//!   *body*, stay in guest memory and are copied once, into the buffers of their destination.
//! - A [`Turn`] is one iteration of a worker's loop. It bounds the life of packets and of borrowed
//!   memory.
//! - [`Packets`] are what a node sees of a turn: heads, offloads, and the operations on them.
//! - A [`Batch`] carries packets from one node to the next.
//! - An [`Offload`] is the work that a packet's sender left to others: a checksum to finish, GSO
//!   segments to make. [`Segmenter`] makes them; [`Run`] is the inverse.
//! - An [`Rcu`] lets control replace what workers read within their turns.
//!
//! This crate does not know rings, ports, sockets or system calls. It knows protocols as far as
//! segmentation has to rewrite their headers.
//!
//! ```
//! use straightline_packet::{Arena, Batch, Rcu, PortIndex, Settings};
//!
//! let rcu = Rcu::new();
//! let mut arena = Arena::new(rcu.reader(), Settings::default(), Vec::new());
//! let length = arena.turn(|turn| {
//!     let id = turn.accept_owned(PortIndex(0), b"fourteen bytes or more").expect("an empty turn has free slots");
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
mod ignore_poison;
mod offload;
mod segment;
mod segmentation;
mod slot;
mod turn;
mod unfinished;

pub use batch::{Batch, MAX_BATCH, PacketId};
pub use coalescing::Run;
pub use copy::{BodyCursor, Scatter, WrongChecksum};
pub use drops::{Drops, Reason};
pub use ignore_poison::IgnorePoison;
pub use offload::{Checksum, Gso, GsoKind, GsoKinds, Offload, Outer, OuterChecksum};
pub use segment::MemorySegment;
pub use segmentation::{GsoSegment, MAX_HEADERS, Segmenter};
pub use slot::{HEAD, HEADROOM, PacketVlan, SourceQueueId};
pub use straightline_simd::{Kernels, Level, WithKernels, prefetch_read};
pub use turn::{
    Arena, AtTurnEnd, BodyCount, ChangedPackets, Decision, DropTally, InputRules, KeptPackets, MIN_HEADROOM, NoteMark,
    Observer, ObserverId, Outside, Packets, PrependError, Rcu, RcuCell, RcuReader, Served, Settings, Step, StepKind,
    StripError, Turn, TurnWatch,
};
pub use unfinished::{unfinished, unfinished_ip};

/// True if packets are copied at all. A build without copies (`bench-no-copies`) measures the cost
/// of everything else. It serves rings and writes headers for receivers as usual. It reads, writes
/// and prefetches no byte of a packet.
pub const COPIES: bool = cfg!(not(feature = "bench-no-copies"));

/// Length of the longest frame that a port may carry: an IP packet of 64 KiB with its Ethernet
/// header.
pub const MAX_FRAME: u32 = 65_550;

/// Length of the shortest valid frame: an Ethernet header.
pub const MIN_FRAME: u32 = 14;

/// A port of the switch: an index into every table of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortIndex(pub u16);

impl PortIndex {
    /// Returns the index into a table.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
