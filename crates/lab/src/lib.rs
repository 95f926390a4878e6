//! The laboratory: a guest in the box, traffic for it, and what is measured with both.
//!
//! It is a user of the switch like any other; nothing but the command line imports it.
//!
//! | module | holds |
//! |---|---|
//! | [`Guest`] | the driver half of a virtio-net device as a piece of a program: it connects to a vhost-user socket like any VM's frontend, on memory of its own |
//! | [`demo`] | two of them at a switch |
//! | [`poller`] | a guest that costs as little as can be, and measures whatever backends it is connected to |
//! | [`tester`] | ports that send, receive and relay in bursts, and the thread that they work on |
//! | [`forward`] | a guest on such ports that does what testpmd does |
//! | [`generator`], [`capture`] | packets at a rate, and what comes back of them; frames from and to captures |
//! | [`trial`], [`search`] | what counts of that, and which rate is the highest that passes |
//! | [`scenario`] | a switch between them: PVP, VM to VM, anybody's backends |
//! | [`exp`], [`neighbour`] | one thing is changed at a time, and what that costs; a neighbour that fills the caches |
//! | [`results`], [`statistics`], [`report`] | folders of samples, what can be said of them, and how it is shown |
//!
//! ```
//! use straightline_lab::{Guest, GuestOptions};
//!
//! // Nobody listens there: the error says so.
//! let error = Guest::connect("/nonexistent/vm.sock".as_ref(), &GuestOptions::default()).unwrap_err();
//! assert!(error.to_string().contains("/nonexistent/vm.sock"));
//! ```

pub mod capture;
mod convert;
pub mod demo;
pub mod endpoints;
pub mod exp;
pub mod forward;
pub mod generator;
mod guest;
pub mod neighbour;
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

pub use guest::{Guest, GuestOptions, MemoryPlacement, PackedDescriptor, Pair, Ring, memory_file};
pub use sizes::Sizes;
pub use traffic::{Sequence, Stream};
