//! Traffic of many flows between guests with several queue pairs, and its check.

use std::collections::{BTreeMap, BTreeSet};

use straightline_config::WhenFull;
use straightline_guest::{Guest, GuestOptions, Pair};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::frame::{Checksum, Frame as Headers, Net, Transport};

use crate::{Rig, mac, patch, rig, vhost_user, wait_until};

/// Queue pairs of each port.
pub const PAIRS: u16 = 4;
/// Number of flows.
pub const FLOWS: u16 = 40;

/// One worker, and two that share the queue pairs.
pub const WORKERS: [&[usize]; 2] = [&[], &[0, 1]];

/// Two ports on a patch.
pub fn patched(full: WhenFull, workers: &[usize]) -> Rig {
    rig(2, |config| {
        config.switch.workers = workers.to_vec();
        for port in &mut config.ports {
            vhost_user(port).queues = Some(PAIRS);
            vhost_user(port).packed = true;
        }
        config.patches.push(patch(0, 1));
        config.patches[0].full = full;
    })
}

/// Returns the options of a guest with `queue_pairs` queue pairs.
pub fn options(queue_pairs: u16, packed: bool) -> GuestOptions {
    let layout = if packed { f::VIRTIO_F_RING_PACKED } else { 0 };
    GuestOptions { features: GuestOptions::default().features | layout, queue_pairs, ..GuestOptions::default() }
}

/// A UDP packet of a flow with its number in it, of one length or another.
pub fn numbered(flow: u16, number: u64) -> Vec<u8> {
    let payload_len = [18, 500, 1400][usize::try_from(number % 3).expect("small")];
    let headers = Headers {
        src: mac(1),
        dst: mac(2),
        tags: [None, None],
        net: Net::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        transport: Transport::Udp { src_port: 1000 + flow, dst_port: 2000 },
        payload_len,
    };
    let mut frame = vec![0; headers.headers_len()];
    headers.emit(&mut frame, Checksum::Zero).expect("headers");
    frame.extend(flow.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.resize(headers.headers_len() + usize::from(payload_len), 0);
    frame
}

/// Flow and number of the packets that arrived at a pair.
pub fn collect(pair: &mut Pair) -> Vec<(u16, u64)> {
    let level = pair.level();
    let mut got = Vec::new();
    pair.receive(usize::MAX, |_, parts| {
        let mut bytes = [0; 52];
        assert_eq!(parts[0].read(level, &mut bytes), 52);
        let (flow, number) = bytes[42..].split_at(2);
        let number = number.try_into().map(u64::from_be_bytes).expect("eight bytes");
        got.push((flow.try_into().map(u16::from_be_bytes).expect("two bytes"), number));
    });
    got
}

/// Traffic of many flows, each through one transmit ring, and its check.
#[derive(Default)]
pub struct Traffic {
    /// Packets sent, by flow.
    pub sent: BTreeMap<u16, u64>,
    /// Packets sent, by queue pair.
    pub sent_by: [u64; PAIRS as usize],
    /// For each flow and pair, the least number that may come next.
    pub seen: BTreeMap<(u16, usize), u64>,
    /// Packets that arrived, by queue pair.
    pub seen_at: [u64; PAIRS as usize],
}

impl Traffic {
    /// Returns the sum of the counts of all pairs.
    pub fn total(counts: &[u64]) -> u64 {
        counts.iter().sum()
    }

    /// Sends the next packet of a flow. Returns false if its ring has no free buffer.
    pub fn send(&mut self, source: &mut Guest, flow: u16) -> bool {
        let at = usize::from(flow) % source.pairs().len();
        let pair = &mut source.pairs()[at];
        let number = self.sent.entry(flow).or_default();
        if !pair.send(&NetHeader::default(), &numbered(flow, *number)) {
            return false;
        }
        *number += 1;
        self.sent_by[at] += 1;
        true
    }

    /// Takes the packets that have arrived, and checks the order of each flow.
    pub fn collect(&mut self, sink: &mut Guest) {
        for (at, pair) in sink.pairs().iter_mut().enumerate() {
            for (flow, number) in collect(pair) {
                let next = self.seen.entry((flow, at)).or_default();
                assert!(number >= *next, "flow {flow} at pair {at}: {number} after {next}");
                *next = number + 1;
                self.seen_at[at] += 1;
            }
        }
    }

    /// Sends `count` packets of all flows and waits until all have arrived. Fewer packets are under
    /// way than any ring holds.
    pub fn run(&mut self, source: &mut Guest, sink: &mut Guest, count: u64) {
        let end = Self::total(&self.sent_by) + count;
        wait_until("all have arrived", || {
            while Self::total(&self.sent_by) < end
                && Self::total(&self.sent_by) - Self::total(&self.seen_at) < 128
                && self.send(source, u16::try_from(Self::total(&self.sent_by) % u64::from(FLOWS)).expect("small"))
            {
            }
            source.pairs().iter_mut().for_each(Pair::flush);
            self.collect(sink);
            Self::total(&self.seen_at) == end
        });
    }

    /// The pairs at which each flow was seen.
    pub fn pairs_of(&self) -> BTreeMap<u16, BTreeSet<usize>> {
        let mut pairs: BTreeMap<u16, BTreeSet<usize>> = BTreeMap::new();
        for &(flow, at) in self.seen.keys() {
            pairs.entry(flow).or_default().insert(at);
        }
        pairs
    }

    /// Checks that the switch has counted the same packets for each queue.
    pub fn check_counters(&self, rig: &Rig) {
        let from = rig.port(0);
        let to = rig.port(1);
        for at in 0..usize::from(PAIRS) {
            assert_eq!(from.queues[at].rx.packets, self.sent_by[at], "pair {at}");
            assert_eq!(to.queues[at].tx.packets, self.seen_at[at], "pair {at}");
            assert_eq!(usize::from(to.queues[at].index), at);
        }
        assert_eq!((from.queues.len(), to.queues.len()), (PAIRS.into(), PAIRS.into()));
    }
}
