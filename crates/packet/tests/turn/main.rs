//! What a turn does with packets, seen from outside: taking them in, pulling up, copying out, cutting; and the gate.

mod accept;
mod coalescing;
mod gate;
mod memory;
mod segmentation;
mod store;
