//! Measurements that end by packets in place of time.

use std::time::Duration;

/// The end of a measurement by packets. No part of it is judged by time, so a thread may be
/// descheduled as long as it likes. Its rates are those of the time that it took.
///
/// For tests, which show that each packet passes intact, on however busy a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Packets that come in the measurement: in each stream of a generator, or by each port of a
    /// guest.
    pub packets: u64,
    /// Time limit of each wait for packets.
    pub patience: Duration,
}
