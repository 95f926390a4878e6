//! A guest of two ports that only polls: to measure what is between them, ours or anybody's vhost-user backend.
//!
//! It sends what it receives by one port by the other one, as testpmd's `io` does, or floods both, or one of them, and drops
//! what comes. A packet stays in its buffer and the guest reads nothing of it, unless it is asked to: a received buffer is sent as it is, virtio-net header
//! included, and a sent one is given for receiving, in whichever ring; both backends are shown the same memory. What
//! arrives is looked at only once the measurement is over: each packet has a number and bytes that follow from it.
//!
//! Its memory and its connections are those of `tester::vhost`.
//!
//! | file | holds |
//! |---|---|
//! | `options` | what can be asked for |
//! | `frames` | what is sent, and whether it has come back |
//! | `touch` | what the guest does with a packet's bytes |
//! | `run` | the loop, its phases and its clock |
//! | `report` | what came of it, and whether it counts |

mod frames;
mod options;
mod report;
mod run;
mod touch;

pub use crate::endpoints::Layout;
pub use options::{Load, Options};
pub use report::{PortReport, ReflectorReport};
pub use run::{Stopped, run, run_watched};
pub use straightline_graph::clock::hertz;
pub use touch::{lines, touched_lines};

pub use crate::sizes::Sizes;
