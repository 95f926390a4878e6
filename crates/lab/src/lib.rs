//! The laboratory: a guest in the box, traffic for it, and what is measured with both.
//!
//! [`Guest`] is the driver half of a virtio-net device as a piece of a program: it connects to a vhost-user socket like
//! any VM's frontend, on memory of its own. [`demo`] puts two of them to a switch. [`poller`] is a guest that costs as little
//! as can be, and measures whatever backends it is connected to; [`forward`] is one that does what testpmd does. [`tester`]
//! has the ports of both. [`generator`] sends packets at a rate and checks what comes back, [`trial`] says what counts of it,
//! [`capture`] reads and writes captures; [`scenario`] puts a switch between them; [`exp`] changes one thing at a time and
//! measures that. It is a user of the switch
//! like any other; nothing but the command line imports it.
//!
//! ```
//! use straightline_lab::{Guest, GuestOptions};
//!
//! // Nobody listens there: the error says so.
//! let error = Guest::connect("/nonexistent/vm.sock".as_ref(), &GuestOptions::default()).unwrap_err();
//! assert!(error.to_string().contains("/nonexistent/vm.sock"));
//! ```

pub mod capture;
pub mod demo;
pub mod exp;
pub mod forward;
pub mod generator;
mod guest;
pub mod neighbour;
pub mod poller;
mod random;
pub mod report;
pub mod results;
pub mod scenario;
pub mod search;
mod sizes;
pub mod statistics;
pub mod tester;
mod traffic;
pub mod trial;

pub use guest::{Guest, GuestOptions, PackedDescriptor, Pair, Place, Ring, memory_file};
pub use sizes::Sizes;
pub use traffic::{Sequence, Stream};
