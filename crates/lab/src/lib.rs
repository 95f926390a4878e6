//! The laboratory: an embedded guest, traffic for it, and measurements with both.
//!
//! The laboratory uses the switch like any other program: it speaks vhost-user and reads the
//! switch's API. It opens interfaces by the switch's own kinds of ports. It is not a part of the
//! switch, and only the command line imports it.
//!
//! | module | holds |
//! |---|---|
//! | [`Guest`] | the driver half of a virtio-net device as a library: it connects to a vhost-user socket like the frontend of a VM, with memory of its own |
//! | [`demo`] | two guests, or two network namespaces, and a switch |
//! | [`reflector`] | a guest with the least possible cost, which measures any backends it is connected to |
//! | [`endpoints`] | ports that send, receive and relay in bursts, and the thread that runs them |
//! | [`forward`] | a guest on such ports with testpmd's forward modes |
//! | [`generator`], [`capture`] | packets at a rate and the check of what returns; frames from and to capture files |
//! | [`trial`], [`search`] | the validity of a measurement, and the search for the highest rate that passes |
//! | [`scenario`] | endpoints around a device under test: PVP, VM to VM, third-party backends |
//! | [`exp`], [`neighbour`] | experiments, each of which varies one thing; a neighbour that fills the caches |
//! | [`tunnel`] | kinds of tunnels, and a switch with a tunnel between two guests |
//! | [`results`], [`statistics`], [`report`] | folders of samples, their statistics, and reports |
//!
//! ```
//! use straightline_lab::{Guest, GuestOptions};
//!
//! // No backend listens at this path: the error names it.
//! let error = Guest::connect("/nonexistent/vm.sock".as_ref(), &GuestOptions::default()).unwrap_err();
//! assert!(error.to_string().contains("/nonexistent/vm.sock"));
//! ```

pub mod capture;
mod convert;
pub mod demo;
mod drops;
pub mod endpoints;
pub mod exp;
pub mod forward;
pub mod generator;
mod guest;
pub mod neighbour;
mod netlink;
mod random;
pub mod reflector;
pub mod report;
pub mod results;
pub mod scenario;
pub mod search;
mod sizes;
pub mod statistics;
mod traffic;
pub mod trial;
pub mod tunnel;

pub use guest::{Guest, GuestOptions, MemoryPlacement, PackedDescriptor, Pair, Ring, memory_file};
pub use sizes::Sizes;
pub use traffic::{Sequence, Stream};
