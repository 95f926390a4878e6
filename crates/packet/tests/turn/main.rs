//! The operations of a turn, by the public interface: accepting packets, headers, the copy,
//! segmentation with outer headers, coalescing; sums; and the RCU.

mod accept;
mod annotation;
mod coalescing;
mod headers;
mod no_alloc;
mod outer;
mod rcu;
mod segmentation;
mod store;
mod sums;
mod truncate;
