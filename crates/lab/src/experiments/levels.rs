//! The gain of nodes that are compiled for a wider instruction set: `docs/experiments/levels.md`.
//!
//! Each node is on the path of all packets, like those of `prefetch`. Its loop over the batch is
//! compiled for each instruction set by `Level::run`, as in `examples/macswap`.
//!
//! - `swap` swaps the addresses of each packet.
//! - `flow-hash` asks for the hash of each packet's flow, as a tunnel or a table of flows does. The
//!   switch keeps the hash, so later nodes do not compute it again.
//! - `layout` asks for the places of each packet's headers.
//! - `stations` looks up both addresses of each packet in a table of stations, as a bridge does.

use std::hint::black_box;
use std::sync::Arc;

use straightline_config::NodeConfig;
use straightline_fdb::{Fdb, Station};
use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Kernels, Level, PacketId, Packets, PortIndex, WithKernels};
use straightline_wire::{MacAddr, VlanId};

use super::cold::swapped;
use super::prefetch::with_node;
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::rounds::Shown;

/// Stations in the table: as many as a bridge learns by default.
const STATIONS: u16 = 4096;

/// Work on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Swap,
    FlowHash,
    Layout,
    Stations,
}

impl Work {
    const ALL: [Work; 4] = [Work::Swap, Work::FlowHash, Work::Layout, Work::Stations];

    fn name(self) -> &'static str {
        match self {
            Work::Swap => "swap",
            Work::FlowHash => "flow-hash",
            Work::Layout => "layout",
            Work::Stations => "stations",
        }
    }
}

/// A node whose loop is compiled for this level.
#[derive(Clone, Debug)]
struct Levelled {
    work: Work,
    level: Level,
    stations: Arc<Fdb<PortIndex>>,
}

impl Levelled {
    fn new(work: Work, level: Level) -> Self {
        // Those of the guest's packets end in 1 and 2.
        let station = |n: u16| (VlanId::DEFAULT, mac(n), PortIndex(n % 2));
        let fixed: Vec<_> = (0..STATIONS).map(station).collect();
        let ports = [PortIndex(0), PortIndex(1)];
        Levelled { work, level, stations: Arc::new(Fdb::new(usize::from(STATIONS), 300, &ports, &fixed)) }
    }
}

/// Returns the address of the guest's port with this number, or of another station.
fn mac(n: u16) -> MacAddr {
    let [high, low] = n.to_be_bytes();
    MacAddr([2, 0, 0, 0, high, low])
}

impl Node for Levelled {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        match self.work {
            Work::Swap => self.level.run(All { packets, batch, one: Swap }),
            Work::FlowHash => self.level.run(All { packets, batch, one: FlowHash }),
            Work::Layout => self.level.run(All { packets, batch, one: Layout }),
            Work::Stations => self.level.run(All { packets, batch, one: Lookup(&self.stations) }),
        }
        next.extend(0, batch.ids());
    }
}

/// Work on all packets of a batch.
struct All<'w, 't, O> {
    packets: &'w mut Packets<'t>,
    batch: &'w Batch,
    one: O,
}

impl<O: One> WithKernels for All<'_, '_, O> {
    type Output = ();

    #[inline(always)]
    fn with<K: Kernels>(self, _: K) {
        let All { packets, batch, one } = self;
        let sum = batch.ids().iter().fold(0_u64, |sum, &id| sum.wrapping_add(one.handle(packets, id)));
        black_box(sum);
    }
}

/// Work on one packet. The result keeps the compiler from removing it.
trait One {
    fn handle(&self, packets: &mut Packets<'_>, id: PacketId) -> u64;
}

struct Swap;

impl One for Swap {
    #[inline(always)]
    fn handle(&self, packets: &mut Packets<'_>, id: PacketId) -> u64 {
        if let Some(first) = packets.head_mut(id).first_chunk_mut() {
            *first = swapped(*first);
        }
        0
    }
}

struct FlowHash;

impl One for FlowHash {
    #[inline(always)]
    fn handle(&self, packets: &mut Packets<'_>, id: PacketId) -> u64 {
        packets.flow_hash(id).into()
    }
}

struct Layout;

impl One for Layout {
    #[inline(always)]
    fn handle(&self, packets: &mut Packets<'_>, id: PacketId) -> u64 {
        packets.layout(id).ok().and_then(|layout| layout.layers.ok()).map_or(0, |layers| layers.l4.into())
    }
}

struct Lookup<'s>(&'s Fdb<PortIndex>);

impl One for Lookup<'_> {
    #[inline(always)]
    fn handle(&self, packets: &mut Packets<'_>, id: PacketId) -> u64 {
        let Some(addresses) = packets.head(id).first_chunk::<12>() else { return 0 };
        let (addresses, _) = addresses.as_chunks::<6>();
        let port = |mac: &[u8; 6]| self.0.lookup(Station::new(VlanId::DEFAULT, MacAddr(*mac)), 0);
        // A station that is not known counts less than one at any port.
        addresses.iter().map(|mac| port(mac).map_or(0, |port| u64::from(port.0) + 1)).sum()
    }
}

/// Returns the levels that compile nodes differently: the baseline, which is in the first, and wider
/// sets. Those for comparisons of copies do not.
fn levels() -> Vec<Level> {
    let all: Vec<Level> = Level::supported().collect();
    let is_baseline = |level: &&Level| matches!(level.name(), "sse2" | "neon");
    let baseline = all.iter().find(is_baseline).or(all.first()).copied();
    let wider = all.iter().filter(|level| matches!(level.name(), "avx2" | "avx512"));
    baseline.into_iter().chain(wider.copied()).collect()
}

pub(super) fn plan(_: &Settings, _quick: bool) -> Plan {
    let levels = levels();
    let cells = Work::ALL.map(|work| {
        let variants = levels.iter().map(|&level| {
            Variant::new(level.name(), move |settings: &Settings| {
                let node = NodeConfig::new("levelled", work.name(), Levelled::new(work, level));
                with_node(settings, node, (64, 8), work != Work::Swap)
            })
        });
        Cell::new([("node", &work.name())], variants)
    });
    let widest = levels.last().map_or("", |level| level.name());
    let left_out = ["avx2", "avx512"].into_iter().filter(|set| levels.iter().all(|level| level.name() != *set));
    Plan {
        name: "levels",
        shown: vec![Shown::NODE_CYCLES, Shown::SWITCH_CYCLES],
        cells: cells.into(),
        left_out: left_out.map(|set| format!("{set}: the widest set of this machine is {widest}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{by_packets, labels, names, settings};
    use super::*;

    #[test]
    fn cells_and_variants() {
        let plan = plan(&settings(), false);
        assert_eq!(labels(&plan), ["node=swap", "node=flow-hash", "node=layout", "node=stations"]);
        let names = names(&plan);
        assert!(names.iter().all(|names| names[0] != "scalar" || cfg!(not(target_arch = "x86_64"))));
        assert_eq!(names[0].len() + plan.left_out.len(), 3);
    }

    /// Otherwise a lookup would end at the first empty place.
    #[test]
    fn the_guests_addresses_are_in_the_table() {
        let stations = Levelled::new(Work::Stations, Level::detect()).stations;
        let port = |last| stations.lookup(Station::new(VlanId::DEFAULT, MacAddr([2, 0, 0, 0, 0, last])), 0);
        assert_eq!([port(1), port(2)], [Some(PortIndex(1)), Some(PortIndex(0))]);
        assert_eq!(stations.fixed(), u32::from(STATIONS));
    }

    #[test]
    fn each_node_passes_packets_at_each_level() {
        let settings = by_packets();
        for cell in plan(&settings, true).cells {
            for variant in &cell.variants {
                let measured = variant.measure(&settings).expect("a trial");
                assert!(measured.metrics[Shown::NODE_CYCLES.metric] > 0.0, "{measured:?}");
            }
        }
    }
}
