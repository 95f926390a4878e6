//! The port that has nothing to give and takes everything: an end for tests and measurements.

use straightline_packet::{Batch, Turn};

use crate::{Counter, Port};

/// Counts what it is given.
#[derive(Debug)]
pub struct Null {
    name: String,
    packets: Counter,
}

impl Null {
    /// A port of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Null { name: name.into(), packets: Counter::default() }
    }

    /// Packets taken so far.
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
        self.packets.add(u64::try_from(batch.len()).unwrap_or(0));
    }

    fn arm(&self, _turn: &Turn<'_>, _room: bool) -> bool {
        false
    }

    fn disarm(&self, _turn: &Turn<'_>, _room: bool) {}
}
