//! The operations of a turn, by the public interface: accepting packets, headers, the copy,
//! segmentation, coalescing; and the RCU.

mod accept;
mod coalescing;
mod headers;
mod memory;
mod rcu;
mod segmentation;
mod store;
