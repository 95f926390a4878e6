//! Parts that tests and benches of several crates share. Only dev-dependencies name this crate, so
//! no program that users run contains it.
//!
//! | feature | module | contents |
//! |---|---|---|
//! | | [`allocations`] | an allocator that counts the allocations of a thread |
//! | | [`golden`] | frames of each kind of tunnel, which this project's code did not make |
//! | | (the root) | [`wait_until`], the one wait of all tests |
//! | | (the root) | [`KernelThread`], a thread that has to wait before a test goes on |
//! | `frames` | `frames` | frames of all kinds for flow tables |
//! | `packet` | `memory` | memory in place of guest memory, and arenas to run turns in |
//! | `graph` | `ports` | ports of a graph that send packets of a test, and keep what they get |
//! | `loads` | `loads` | the bound that memory sets to lookups in a table |
//! | `ring` | `guest_ring` | a guest's memory with one ring in it |
//! | `switch` | (the root) | a switch with guests, and what a test does with them |
//! | `switch` | `flows` | traffic of many flows between guests with several queue pairs |
//! | `switch` | `host` | a network namespace with its interfaces |
//! | `switch` | `multicast` | packets to multicast groups, and messages of IGMP |
//! | `switch` | `packets` | packets that are still to be segmented or checksummed |
//! | `switch` | `tunnel` | two underlays with a wire between them, and tunnels over it |
//!
//! A test inside a crate's `src` gets nothing here for types of that same crate: Cargo builds the
//! crate twice then, and this crate knows the other build. Tests in `tests` and benches do.

pub mod allocations;
#[cfg(feature = "switch")]
pub mod flows;
#[cfg(feature = "frames")]
pub mod frames;
pub mod golden;
#[cfg(feature = "ring")]
pub mod guest_ring;
#[cfg(feature = "switch")]
pub mod host;
#[cfg(feature = "loads")]
pub mod loads;
#[cfg(feature = "packet")]
pub mod memory;
#[cfg(feature = "switch")]
pub mod multicast;
#[cfg(feature = "switch")]
pub mod packets;
#[cfg(feature = "graph")]
pub mod ports;
#[cfg(feature = "switch")]
mod rig;
mod thread;
#[cfg(feature = "switch")]
pub mod tunnel;
mod wait;

#[cfg(feature = "switch")]
pub use rig::*;
pub use thread::KernelThread;
pub use wait::{Answer, PATIENCE, wait_until};
