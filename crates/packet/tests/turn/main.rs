//! What a turn does with packets, seen from outside: taking them in, pulling up, copying out, cutting.

mod accept;
mod memory;
mod segmentation;
mod store;
