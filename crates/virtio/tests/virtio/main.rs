//! Rings, guest memory and messages from outside of the crate: in one program, which links once. A
//! test that needs a process of its own is a file beside this folder.

mod dirty_log;
mod inflight;
mod memory;
mod packed_bytes;
mod ring;
mod ring_bursts;
#[cfg(feature = "fail-points")]
mod ring_killed;
mod vhost_user;
