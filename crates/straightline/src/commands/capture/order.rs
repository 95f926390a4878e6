//! The order of packets that come from several workers.
//!
//! Each worker's packets come in their order, but one worker may hand its packets over later than
//! another. So packets wait for two ticks. After that, no earlier packet comes, unless a worker did
//! not run for so long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use straightline_capture::record::{Packet, Place};

/// Bytes of packets that wait at most. Beyond, the oldest packets do not wait.
const MAX_BYTES: usize = 64 << 20;

/// Packets that wait for earlier ones.
#[derive(Debug)]
pub(super) struct Order {
    is_needed: bool,
    waiting: BinaryHeap<Reverse<Waiting>>,
    bytes: usize,
    /// The number of packets that came, so that packets of one time stay in order.
    came: u64,
    /// The times of the last two ticks.
    ticks: [u64; 2],
    /// Packets up to this time need not wait.
    until: u64,
}

/// A packet that waits. The order of the fields is the order of packets.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    time: u64,
    came: u64,
    interface: u16,
    len: u32,
    place: (u8, u8, bool),
    bytes: Box<[u8]>,
}

impl Waiting {
    pub(super) fn as_packet(&self) -> Packet<'_> {
        let place = match self.place {
            (0, ..) => Place::Received,
            (1, ..) => Place::Delivered,
            (_, reason, on_way_in) => Place::Dropped { reason, on_way_in },
        };
        Packet { interface: self.interface, place, time: self.time, len: self.len, bytes: &self.bytes }
    }
}

impl Order {
    /// Creates the order for packets of so many workers.
    pub(super) fn new(workers: usize) -> Self {
        Order { is_needed: workers > 1, waiting: BinaryHeap::new(), bytes: 0, came: 0, ticks: [0; 2], until: 0 }
    }

    /// Returns whether packets have to wait. Those of one worker are in order.
    pub(super) fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// Adds a packet.
    pub(super) fn add(&mut self, packet: &Packet<'_>) {
        let &Packet { interface, place, time, len, bytes } = packet;
        let place = match place {
            Place::Received => (0, 0, false),
            Place::Delivered => (1, 0, false),
            Place::Dropped { reason, on_way_in } => (2, reason, on_way_in),
        };
        self.bytes += bytes.len();
        self.came += 1;
        self.waiting.push(Reverse(Waiting { time, came: self.came, interface, len, place, bytes: bytes.into() }));
    }

    /// Notes a tick at this time.
    pub(super) fn tick(&mut self, time: u64) {
        self.until = self.ticks[0];
        self.ticks = [self.ticks[1], time];
    }

    /// Lets all packets go.
    pub(super) fn end(&mut self) {
        self.until = u64::MAX;
    }

    /// Returns the next packet that need not wait any more.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        let Reverse(first) = self.waiting.peek()?;
        if first.time > self.until && self.bytes <= MAX_BYTES {
            return None;
        }
        let Reverse(first) = self.waiting.pop()?;
        self.bytes -= first.bytes.len();
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(order: &mut Order) -> Vec<u64> {
        std::iter::from_fn(|| order.next()).map(|packet| packet.as_packet().time).collect()
    }

    fn add(order: &mut Order, time: u64, bytes: &[u8]) {
        order.add(&Packet { interface: 0, place: Place::Received, time, len: 60, bytes });
    }

    #[test]
    fn packets_wait_for_earlier_ones() {
        let mut order = Order::new(2);
        [30, 10, 20].into_iter().for_each(|time| add(&mut order, time, &[]));
        order.tick(25);
        order.tick(35);
        assert!(times(&mut order).is_empty());
        add(&mut order, 15, &[]);
        order.tick(45);
        assert_eq!(times(&mut order), [10, 15, 20]);
        order.tick(55);
        assert_eq!(times(&mut order), [30]);
        add(&mut order, 60, &[]);
        order.end();
        assert_eq!(times(&mut order), [60]);
    }

    #[test]
    fn packets_of_one_time_keep_their_order() {
        let mut order = Order::new(2);
        (0..50_u8).for_each(|n| add(&mut order, 7, &[n]));
        order.end();
        let bytes: Vec<_> = std::iter::from_fn(|| order.next()).map(|packet| packet.bytes[0]).collect();
        assert_eq!(bytes, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn waiting_packets_take_bounded_memory() {
        let mut order = Order::new(2);
        let mut left = 0;
        for time in 1..=2000 {
            add(&mut order, time, &[0; 65_000]);
            left += times(&mut order).len();
        }
        assert!(order.bytes <= MAX_BYTES && left > 900, "{left}");
    }
}
