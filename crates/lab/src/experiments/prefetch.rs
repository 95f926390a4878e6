//! The best distance for a node's prefetches: `docs/experiments/prefetch.md`.
//!
//! There are three nodes. Each is on the path of all packets, and uses the public trait like any
//! third-party node:
//!
//! - `swap` swaps the addresses at the start of a head by one shuffle, as `examples/macswap` and the
//!   sample node of VPP do. In this switch a head is in a slot of the worker and was copied there in
//!   the same turn: The worker's core has just written the bytes that this node touches.
//! - `lookup` reads one line of a table for each packet, like a flow table or a list of addresses.
//!   The packet's bytes determine the line. The table is as large as one of the caches, or larger
//!   than all. The line's index is a hash of the head and of the call's number. So a packet that
//!   returns looks like a packet of another flow.
//! - `lookup-and-hash` also hashes the head, byte by byte. This work keeps the processor from
//!   looking ahead. Without it, the processor would begin to look up the next packet by itself.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use straightline_config::{Config, NodeConfig};
use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Kernels, PacketId, Packets, WithKernels, prefetch_read};

use super::bench::{TrafficPath, bench};
use super::cold::swapped;
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::guests::reflector::{ReflectorOptions, Sizes};
use crate::rounds::{Measured, Shown};

/// The distances to try. 0, no prefetch, comes first, so that the others are compared with it.
const DISTANCES: RangeInclusive<usize> = 0..=8;

/// Frame lengths without checksum, each with a number of bursts of 32 packets that loop from each
/// port. The bursts determine how many packets a node gets at once, and how many buffers are in
/// use.
const SWAPS: [(u32, u16); 4] = [(64, 1), (64, 8), (64, 32), (1514, 32)];

/// Table sizes: within the first-level cache, within the second, within the third, and larger than
/// all.
const TABLES: [usize; 4] = [16 << 10, 256 << 10, 8 << 20, 128 << 20];

/// Swaps both addresses.
#[derive(Clone, Debug)]
struct Swap {
    ahead: usize,
}

impl Node for Swap {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        packets.level().run(SwapAll { ahead: self.ahead, packets, batch });
        next.extend(0, batch.ids());
    }
}

/// The work of `swap` on a batch, compiled for each instruction set.
struct SwapAll<'w, 't> {
    ahead: usize,
    packets: &'w mut Packets<'t>,
    batch: &'w Batch,
}

impl WithKernels for SwapAll<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with<K: Kernels>(self, _: K) {
        let SwapAll { ahead, packets, batch } = self;
        for (id, later) in batch.ahead(ahead) {
            packets.prefetch(later);
            if let Some(first) = packets.head_mut(id).first_chunk_mut() {
                *first = swapped(*first);
            }
        }
    }
}

/// A line of a table.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line(u64);

/// Looks up each packet.
#[derive(Clone, Debug)]
struct Lookup {
    ahead: usize,
    table: Arc<[Line]>,
    /// True if the node also hashes each packet's head.
    hashes: bool,
    calls: u64,
}

impl Lookup {
    /// Returns the line of the table for a packet.
    fn line(&self, packets: &Packets<'_>, id: PacketId) -> &Line {
        let mut key = [0; 8];
        // The bytes that differ between packets follow the headers. The addresses are the same in
        // all packets.
        if let Some(bytes) = packets.head(id).get(42..50) {
            key.copy_from_slice(bytes);
        }
        let hash = (u64::from_le_bytes(key) ^ self.calls).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        // The upper half of a product with the number of lines is below the number of lines.
        let at = (u128::from(hash) * self.table.len() as u128) >> 64;
        &self.table[usize::try_from(at).unwrap_or(0)]
    }
}

impl Node for Lookup {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        self.calls += 1;
        let mut sum = 0_u64;
        for (id, later) in batch.ahead(self.ahead) {
            if let Some(later) = later {
                prefetch_read(std::ptr::from_ref(self.line(packets, later)).cast());
            }
            let mut found = self.line(packets, id).0;
            if self.hashes {
                // FNV-1a: a multiplication for each byte, which waits for the one before.
                let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                found = packets.head(id).iter().fold(found, step);
            }
            sum = sum.wrapping_add(found);
        }
        black_box(sum);
        next.extend(0, batch.ids());
    }
}

/// A table that is allocated at its first use. Tables are large, and some plans are made without
/// being run.
#[derive(Clone, Debug)]
struct Table {
    bytes: usize,
    lines: Arc<OnceLock<Arc<[Line]>>>,
}

impl Table {
    fn new(bytes: usize) -> Table {
        Table { bytes, lines: Arc::default() }
    }

    fn lines(&self) -> Arc<[Line]> {
        let make = || (0..self.bytes / size_of::<Line>()).map(|at| Line(at as u64)).collect();
        Arc::clone(self.lines.get_or_init(make))
    }
}

pub(super) fn plan(_: &Settings, quick: bool) -> Plan {
    let swaps = if quick { &SWAPS[1..2] } else { &SWAPS[..] };
    let mut cells: Vec<_> = swaps.iter().map(|&(size, bursts)| cell(TestedNode::Swap, size, bursts)).collect();
    for bytes in TABLES {
        let table = Table::new(bytes);
        let look_up = |hashes, bursts| cell(TestedNode::LookUp { table: table.clone(), hashes }, 64, bursts);
        let is_large = bytes == TABLES[3];
        if is_large || !quick {
            cells.push(look_up(false, 8));
        }
        // Small batches are tried only with tables: only there has a node something to wait for.
        if is_large && !quick {
            cells.push(look_up(false, 1));
        }
        if is_large || (bytes == TABLES[1] && !quick) {
            cells.push(look_up(true, 8));
        }
    }
    Plan {
        name: "prefetch",
        shown: vec![
            Shown::NODE_CYCLES,
            Shown { metric: "node_packets_per_call", title: "Packets that the node gets per call" },
            Shown::SWITCH_CYCLES,
            Shown::MPPS,
        ],
        cells,
        left_out: vec![
            "a patch: it does not read heads".to_owned(),
            "a bridge, and the prefetches of rings and buffers: their distance cannot be set".to_owned(),
        ],
    }
}

/// A node to measure.
#[derive(Clone, Debug)]
enum TestedNode {
    Swap,
    LookUp { table: Table, hashes: bool },
}

impl TestedNode {
    fn name(&self) -> &'static str {
        match self {
            TestedNode::Swap => "swap",
            TestedNode::LookUp { hashes: false, .. } => "lookup",
            TestedNode::LookUp { hashes: true, .. } => "lookup-and-hash",
        }
    }

    /// Returns whether the node leaves packets unchanged.
    fn leaves_packets(&self) -> bool {
        !matches!(self, TestedNode::Swap)
    }

    fn table_bytes(&self) -> usize {
        match self {
            TestedNode::Swap => 0,
            TestedNode::LookUp { table, .. } => table.bytes,
        }
    }

    fn config(&self, ahead: usize) -> NodeConfig {
        match self {
            TestedNode::Swap => NodeConfig::new("swap", self.name(), Swap { ahead }),
            TestedNode::LookUp { table, hashes } => {
                let node = Lookup { ahead, table: table.lines(), hashes: *hashes, calls: 0 };
                NodeConfig::new("lookup", self.name(), node)
            }
        }
    }
}

fn cell(what: TestedNode, size: u32, bursts: u16) -> Cell {
    let name = what.name();
    let packets = 32 * bursts;
    let table_kib = what.table_bytes() >> 10;
    let verify = what.leaves_packets();
    let variants = DISTANCES.map(|ahead| {
        let what = what.clone();
        let name = if ahead == 0 { "none".to_owned() } else { format!("{ahead} ahead") };
        Variant::new(name, move |settings: &Settings| with_node(settings, what.config(ahead), (size, bursts), verify))
    });
    Cell::new([("node", &name), ("size", &size), ("packets", &packets), ("table_kib", &table_kib)], variants)
}

/// Makes a trial with this node on the path. If the node leaves packets unchanged, returned packets
/// are compared with what was sent, and missing ones count as lost.
pub(super) fn with_node(
    settings: &Settings,
    node: NodeConfig,
    (size, bursts): (u32, u16),
    verify: bool,
) -> anyhow::Result<Measured> {
    let configure = |config: &mut Config| {
        config.ports.iter_mut().for_each(|port| port.nodes.push(node.name.clone()));
        config.nodes.push(node);
    };
    let choose = |options: &mut ReflectorOptions| {
        (options.sizes, options.bursts, options.verify) = (Sizes::one(size), Some(bursts), verify);
    };
    let mut measured = bench(settings, TrafficPath::LOOP, configure, choose)?;
    if let Some(&cycles) = measured.cycles.get("node") {
        measured.note([(Shown::NODE_CYCLES.metric, cycles)]);
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{by_packets, labels, names, settings};
    use super::*;

    #[test]
    fn cells_and_variants() {
        let quick = plan(&settings(), true);
        let expected = [
            "node=swap packets=256 size=64 table_kib=0",
            "node=lookup packets=256 size=64 table_kib=131072",
            "node=lookup-and-hash packets=256 size=64 table_kib=131072",
        ];
        assert_eq!(labels(&quick), expected);
        assert_eq!(names(&quick)[0][..3], ["none", "1 ahead", "2 ahead"]);
        let whole = plan(&settings(), false);
        assert_eq!((whole.cells.len(), names(&whole)[10].len()), (11, 9));
    }

    #[test]
    fn a_node_that_changes_packets_is_told_from_one_that_leaves_them() {
        let table = Table::new(64);
        let look_up = |hashes| TestedNode::LookUp { table: table.clone(), hashes };
        assert_eq!(
            [TestedNode::Swap, look_up(false), look_up(true)].map(|what| what.leaves_packets()),
            [false, true, true]
        );
    }

    #[test]
    fn each_node_is_on_the_way_of_all_packets() {
        let settings = by_packets();
        let table = Table::new(1 << 20);
        let nodes = [TestedNode::Swap, TestedNode::LookUp { table: table.clone(), hashes: true }];
        for node in nodes {
            for variant in [0, 8] {
                let cell = cell(node.clone(), 64, 8);
                let measured = cell.variants[variant].measure(&settings).expect("a trial");
                assert!(measured.metrics["node_cycles_per_packet"] > 0.0, "{measured:?}");
                assert!(measured.metrics["node_packets_per_call"] >= 1.0, "{measured:?}");
            }
        }
        assert_eq!(table.lines().len(), (1 << 20) / 64);
    }
}
