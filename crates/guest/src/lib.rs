//! Guests without a VM: the driver half of virtio-net, for tests and measurements.
//!
//! A guest connects to a vhost-user socket like the frontend of a VM, with memory of its own. This
//! crate knows no switch: any vhost-user backend will do. It opens interfaces by the switch's own
//! kinds of ports.
//!
//! | module | holds |
//! |---|---|
//! | [`guest`] | a device's driver half as a library: memory, queue pairs, one packet at a time |
//! | [`endpoints`] | ports that send, receive and relay in bursts, and the event loop that runs them |
//! | [`stream`] | numbered packets from one guest to another, and their count |
//! | [`netlink`] | questions to the kernel about interfaces |
//! | [`testing`] | received packets laid out by hand, for tests |
//!
//! ```
//! use straightline_guest::{Guest, GuestOptions};
//!
//! // No backend listens at this path: the error names it.
//! let error = Guest::connect("/nonexistent/vm.sock".as_ref(), &GuestOptions::default()).unwrap_err();
//! assert!(error.to_string().contains("/nonexistent/vm.sock"));
//! ```

pub mod endpoints;
pub mod guest;
pub mod netlink;
pub mod stream;
pub mod testing;

pub use guest::{Guest, GuestOptions, HEADER_LEN, MemoryPlacement, PackedDescriptor, Pair, Ring, memory_file};
pub use stream::{Sequence, Stream, guest_mac};
