//! A generator of packets, and the check of what becomes of them.
//!
//! Each stream's frames are built once; packet by packet only what changes is written: fields that step, repeat or are
//! drawn, the checksums over them, and a tag with the packet's number and time. By the tag a packet is known again wherever
//! it comes back, with whatever headers.
//!
//! | file | holds |
//! |---|---|
//! | `spec` | what a stream is, and its form as text |
//! | `values` | the values of a header field, packet by packet |
//! | `template` | the frames of a stream, and what is written into them |
//! | `tag` | what stands at the beginning of each payload |
//! | `source` | a stream at work |
//! | `rate` | how fast packets are sent |
//! | `pace` | the clock by which they are: which are due, and what became of those that were |
//! | `checker` | loss, duplicates, reordering, wrong copies |
//! | `latency` | latencies |
//! | `actor` | all of it turn by turn, on one port or two |
//! | `replay` | frames of a capture, sent as they are |
//! | `echo` | a port whose frames come back at once |
//!
//! ```
//! use straightline_lab::generator::StreamSpec;
//!
//! let stream: StreamSpec = "size=imix,vlan=100,src-port=step:1000-1999,dst-ip=random:10.0.0.0/24".parse().unwrap();
//! assert_eq!(stream.sizes.to_string(), "64:7,570:4,1518:1");
//! ```

mod checker;
mod echo;
mod engine;
mod latency;
mod pace;
mod rate;
mod replay;
mod source;
mod spec;
mod tag;
mod template;
mod values;

#[cfg(test)]
mod tests;

pub use checker::StreamCounters;
pub use echo::Echo;
pub(crate) use engine::CATCH_UP;
pub use engine::{Generator, Load, Measured, Timing};
pub use rate::Rate;
pub use replay::{Replay, Replayed, Timing as ReplayTiming};
pub use spec::{Protocol, StreamSpec, Sum};
