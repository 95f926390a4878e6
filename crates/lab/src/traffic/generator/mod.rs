//! A generator of packets, and the check of received packets.
//!
//! The frames of each stream are built once. Only some bytes change from packet to packet: fields
//! that step, repeat or are random, their checksums, and a tag. The tag has the packet's number and
//! time. By its tag a packet is recognised on every port and with any headers.
//!
//! | file | holds |
//! |---|---|
//! | `spec` | the description of a stream, and its text form |
//! | `values` | the values of a header field, packet by packet |
//! | `template` | the frames of a stream, and the changes of each packet |
//! | `tag` | the tag at the start of each payload |
//! | `source` | a stream that sends |
//! | `rate` | rates |
//! | `pace` | the clock of a port: the packets that are due, and their outcome |
//! | `checker` | loss, duplicates, reordering, wrong copies |
//! | `latency` | latencies |
//! | `engine` | the generator: an endpoint on one port or two |
//! | `replay` | frames of a capture, sent unchanged |
//! | `echo` | a port whose frames return at once |
//!
//! ```
//! use straightline_lab::traffic::generator::StreamSpec;
//!
//! let stream: StreamSpec = "size=imix,src-port=step:1000-1999,dst-ip=random:10.0.0.0/24".parse().unwrap();
//! assert_eq!(stream.sizes.to_string(), "60:7,566:4,1514:1");
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
