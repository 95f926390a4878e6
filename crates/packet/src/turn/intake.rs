//! Rules for the packets that a turn accepts from one input.

use std::ops::Range;

use super::Turn;
use crate::PacketId;

/// Rules for packets of one input.
///
/// The turn knows the number of copies of a packet only after its nodes have run. Packets that then
/// exceed a bound go back to their ring, if the input's ring takes them back. Other inputs cannot
/// return packets. So the turn accepts fewer of them, as if each packet were flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputRules {
    /// True if the input's queues take packets back ([`Turn::leave_tail`]).
    pub returns: bool,
    /// True if the input's queues keep all buffers until the turn ends, so that any packet can go
    /// back. Else they may give buffers back early whose packets lie in slots completely.
    pub keeps_buffers: bool,
}

impl InputRules {
    /// Rules of an input whose packets can go back, and mostly do not.
    pub const RETURNING: InputRules = InputRules { returns: true, keeps_buffers: false };
}

/// The bytes of bodies that a turn accepts of each input in any case: more than a burst of 64 frames
/// of 1518 bytes.
const MIN_INTAKE: u32 = 128 << 10;

impl Turn<'_> {
    /// Begins to receive from an input with these rules.
    #[inline]
    pub fn begin_input(&mut self, rules: InputRules) {
        self.input = rules;
        self.input_limit = if rules.returns { self.body_limit } else { self.limit_of_flooded() };
    }

    /// Returns the limit of body bytes for an input whose packets cannot go back.
    fn limit_of_flooded(&self) -> u32 {
        let bodies = self.borrowed.saturating_add(self.bounced);
        let own = (self.body_limit / self.fan_out).max(MIN_INTAKE);
        bodies.saturating_add(own).min(self.body_limit)
    }

    /// Returns whether the present input's queues keep all buffers until the turn ends.
    #[inline]
    pub fn keeps_buffers(&self) -> bool {
        self.input.keeps_buffers
    }

    /// Returns the number of packets accepted so far. The next packet's index is this number.
    #[inline]
    pub fn accepted(&self) -> usize {
        self.used
    }

    /// Returns the accepted packets with these indexes.
    pub fn ids(&self, indexes: Range<usize>) -> impl Iterator<Item = PacketId> + use<> {
        (indexes.start..indexes.end.min(self.used)).map(PacketId::new)
    }

    /// Returns the number of GSO segments that the accepted packets may become.
    #[inline]
    pub fn gso_segments(&self) -> u32 {
        self.gso_segments
    }
}
