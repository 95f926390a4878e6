//! The tester's side of a switch under test (RFC 2544's word): ports, and who works on them.

mod port;

pub use port::{Actor, Received, TestPort};
