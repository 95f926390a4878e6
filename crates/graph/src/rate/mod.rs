//! Rates: limits of the bytes and packets that pass a port in a second.
//!
//! ```text
//! TokenBucket   tokens of one or two limits, at a time that is an argument      bucket.rs
//! RateBucket    a bucket that several meters share: each takes a quantum        shared.rs
//! Meter         the credit of one input or output of one worker's graph         meter.rs
//! Policer       a bucket that packets take tokens from one by one                policer.rs
//! RateTable     the control half: bucket and counters across reloads            table.rs
//! ```
//!
//! - **Bytes** are those of Ethernet frames without the check sequence. A GSO packet counts as the
//!   segments that it becomes, each with headers of its own.
//! - **Debt.** A packet passes while the credit is positive, and may make it negative. So a packet of
//!   64 KiB passes a small bucket, and the next one waits longer.
//! - **Quanta.** A meter takes what a millisecond brings, at most 64 KiB and 64 packets. Meters that
//!   wait are served in turn. A meter returns the credit that it does not use, so the bucket's rate is
//!   exceeded by one quantum for each meter at most.
//!
//! An input whose port takes packets back *shapes*: it is not received from until it has credit, and its
//! packets wait in their ring. All others *police*: they drop packets beyond the rate. For tunnels the node
//! [`Police`](crate::Police) does it.
//!
//! Packets of some classes of service can be *expedited* where a meter polices: they pass first, and without
//! credit ([`Meter::expediting`]). A ring has one order, so nothing is expedited where a meter shapes.

mod bucket;
mod meter;
mod policer;
mod shared;
mod table;

pub use bucket::{Cost, Limit, RateLimits, TokenBucket};
pub use meter::{Meter, RateStats};
pub use policer::Policer;
pub use shared::RateBucket;
pub use table::{RateOwner, RateTable};
