//! What a turn does with packets, seen from outside: taking them in, pulling up, copying out, cutting; and the rcu.

mod accept;
mod coalescing;
mod headers;
mod memory;
mod rcu;
mod segmentation;
mod store;
