//! The reflector: a guest with two ports that polls. It measures the switch between its ports: our
//! switch or any other vhost-user backend.
//!
//! The reflector sends packets that it receives on one port through the other port, as testpmd's
//! `io` does. Or it floods both ports, or one of them, and drops received packets.
//!
//! A packet stays in its buffer, and the guest reads none of its bytes unless asked to. A received
//! buffer is sent as it is, virtio-net header included. A used transmit buffer can go to either
//! receive ring, because both backends map the same memory. Packets are compared only after the
//! measurement. Each packet has a number, and its other bytes follow from the number.
//!
//! Guest memory and connections come from `endpoints::vhost`.
//!
//! | file | holds |
//! |---|---|
//! | `options` | options of a trial |
//! | `frames` | frames to send, and the check of what returns |
//! | `guest` | the guest as an endpoint: its rings, and a turn of each load |
//! | `run` | the phases of a trial, each a run of the event loop |
//! | `report` | the results of a trial |

mod frames;
mod guest;
mod options;
mod report;
mod run;

pub use options::{Load, ReflectorOptions};
pub use report::{PortReport, ReflectorReport};
pub use run::{run, run_watched};
pub use straightline_guest::endpoints::Layout;

pub use crate::traffic::Sizes;
pub use crate::trial::validity::Stopped;
