//! A port that receives nothing and takes every packet: an endpoint for tests and measurements.

use az::SaturatingAs;
use straightline_packet::{Batch, Turn};

use crate::{Counter, Port};

/// A port that counts the packets delivered to it.
#[derive(Debug)]
pub struct Null {
    name: String,
    packets: Counter,
}

impl Null {
    /// Returns a port of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Null { name: name.into(), packets: Counter::default() }
    }

    /// Returns the packets delivered so far.
    pub fn packets(&self) -> u64 {
        self.packets.get()
    }
}

impl Port for Null {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&self, _turn: &mut Turn<'_>, _into: &mut Batch, _max: usize) {}

    fn deliver(&self, _turn: &mut Turn<'_>, batch: &Batch, _wait: bool) {
        self.packets.add(batch.len().saturating_as::<u64>());
    }

    fn arm(&self, _turn: &Turn<'_>, _for_buffers: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _for_buffers: bool) {}
}
