//! The things behind which stations are.

use straightline_packet::PortIndex;

/// A thing behind which stations are: the port of a bridge, or the remote of a tunnel. A table knows
/// it by its index.
pub trait FdbPort: Copy + Eq + std::fmt::Debug {
    /// Returns the port of an index.
    fn from_index(index: u16) -> Self;
    /// Returns the index.
    fn index(self) -> u16;
}

impl FdbPort for PortIndex {
    fn from_index(index: u16) -> Self {
        PortIndex(index)
    }

    fn index(self) -> u16 {
        self.0
    }
}
