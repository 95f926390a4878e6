//! The cost of tunnels, beside patches that segment alike: `docs/experiments/tunnel.md`.
//!
//! | file | holds |
//! |---|---|
//! | `report` | one line for each kind, from the samples of a run |

mod report;

use std::sync::Arc;

use anyhow::Context;
use straightline_graph::Clock;
use straightline_graph::clock::hertz;
use straightline_guest::endpoints::{Endpoint, EventLoop, PortOptions, VhostPort};
use straightline_switch::Switch;
use straightline_switch::api::{Link, Runtime, Source};
use straightline_virtio::features as f;

use super::offload::{self, Guests, OffloadCase, Proof, Side, Stream, Window, Workload};
use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::convert::float;
use crate::guests::forward::{LINE_OVERHEAD, Wire};
use crate::rounds::{Measured, Shown};
use crate::testbed::tunnel::{Encapsulation, Sockets, Testbed};
use crate::testbed::{phases, spent};
use crate::trial::validity;
pub use report::{
    CostReport, LineReport, ManyCost, ManyReport, TunnelReport, many_reports, many_table, reports, table,
};

/// Name of the variant without tunnels.
const PLAIN: &str = "plain";

/// The variants of [`many_plan`]: one tunnel; several tunnels with traffic in one; several tunnels
/// with traffic in each.
const ONE: &str = "one";
const ONE_OF_MANY: &str = "one of many";
const ALL_OF_MANY: &str = "all of many";

/// The packets between the guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    /// Packets of 1500 bytes.
    Packets,
    /// TCP packets of 64 KiB, which are segmented for the wire and coalesced behind it.
    Segments,
    /// The shortest frames: 64 bytes with the Ethernet checksum.
    Small,
    /// Packets of 1500 bytes over a line of a fixed rate.
    Line,
}

impl Load {
    const ALL: [Load; 4] = [Load::Packets, Load::Segments, Load::Small, Load::Line];

    fn name(self) -> &'static str {
        match self {
            Load::Packets => "1500",
            Load::Segments => "64k",
            Load::Small => "64",
            Load::Line => "line",
        }
    }

    fn workload(self) -> Workload {
        match self {
            Load::Packets | Load::Line => Workload::Frames,
            Load::Segments => Workload::Segments,
            Load::Small => Workload::Small,
        }
    }
}

/// The choice of kinds and of the underlay.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The kinds of tunnels.
    pub kinds: Vec<Encapsulation>,
    /// True if the underlays use IPv4 instead of IPv6.
    pub ipv4: bool,
    /// Rate of the line in bits a second, in each direction.
    pub line: f64,
}

impl Default for Choice {
    fn default() -> Self {
        Choice { kinds: Encapsulation::ALL.to_vec(), ipv4: false, line: 5e8 }
    }
}

/// Traffic through a testbed.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    testbed: Testbed,
    load: Load,
    lanes: u16,
    line: f64,
}

pub(super) fn plan(_: &Settings, quick: bool) -> Plan {
    let (kinds, loads) = if quick { (2, 3) } else { (Encapsulation::ALL.len(), Load::ALL.len()) };
    let choice = Choice { kinds: Encapsulation::ALL[..kinds].to_vec(), ..Choice::default() };
    plan_of(&choice, &Load::ALL[..loads])
}

/// Returns the plan that compares kinds with patches that segment alike.
#[must_use]
pub fn tunnel_plan(choice: &Choice) -> Plan {
    plan_of(choice, &Load::ALL)
}

fn plan_of(choice: &Choice, loads: &[Load]) -> Plan {
    let variant = |load: Load, encapsulation: Option<Encapsulation>| {
        let testbed = Testbed { encapsulation, ipv4: choice.ipv4, many: None };
        let traffic = Traffic { testbed, load, lanes: 1, line: choice.line };
        let name = encapsulation.map_or(PLAIN, Encapsulation::name);
        Variant::new(name, move |settings: &Settings| trial(settings, traffic))
    };
    let cell = |&load: &Load| {
        let all = [None].into_iter().chain(choice.kinds.iter().copied().map(Some));
        Cell::new([("load", &load.name())], all.map(|encapsulation| variant(load, encapsulation)))
    };
    Plan { name: "tunnel", shown: shown(), cells: loads.iter().map(cell).collect(), left_out: Vec::new() }
}

/// Returns the plan that compares many tunnels on one underlay with one tunnel there. All tunnels
/// are ports of a bridge. Kinds that carry IP are left out, because a bridge cannot tell their
/// tunnels by MAC addresses.
#[must_use]
pub fn many_plan(choice: &Choice, many: u16) -> Plan {
    let variant = |load: Load, encapsulation: Encapsulation, (name, many, lanes): (&'static str, u16, u16)| {
        let testbed = Testbed { encapsulation: Some(encapsulation), ipv4: choice.ipv4, many: Some(many) };
        let traffic = Traffic { testbed, load, lanes, line: choice.line };
        Variant::new(name, move |settings: &Settings| trial(settings, traffic))
    };
    let (bridged, routed): (Vec<_>, Vec<_>) = choice.kinds.iter().partition(|kind| !kind.carries_ip());
    let cell = |load: Load, kind: Encapsulation| {
        let variants = [(ONE, 1, 1), (ONE_OF_MANY, many, 1), (ALL_OF_MANY, many, many)];
        let variants = variants.map(|one| variant(load, kind, one));
        Cell::new([("kind", &kind), ("load", &load.name())], variants)
    };
    let cells = bridged.into_iter().flat_map(|&kind| [Load::Packets, Load::Small].map(|load| cell(load, kind)));
    let left_out = routed.into_iter().map(|kind| format!("many tunnels of the kind {kind}, which carries IP"));
    Plan { name: "tunnel", shown: shown(), cells: cells.collect(), left_out: left_out.collect() }
}

fn shown() -> Vec<Shown> {
    vec![
        Shown { metric: "switch_cycles_per_byte", title: "Cycles of the switch per inner byte, from guest to guest" },
        Shown { metric: "switch_cycles_per_packet", title: "Cycles of the switch per packet on the wire" },
        Shown { metric: "payload_gbit_per_s", title: "Gbit/s of payload, both directions together" },
        Shown { metric: "core_mpps", title: "Million packets per second for which the switch's core has the cycles" },
        Shown { metric: "wire_frame_bytes", title: "Bytes of a frame on the wire" },
        Shown { metric: "out_cycles_per_packet", title: "Cycles per packet: encapsulation and delivery to the wire" },
        Shown { metric: "in_cycles_per_packet", title: "Cycles per packet: receiving from the wire and decapsulation" },
    ]
}

fn trial(settings: &Settings, traffic: Traffic) -> anyhow::Result<Measured> {
    let folder = tempfile::tempdir().context("cannot make a folder for sockets")?;
    let sockets = Sockets::new(folder.path());
    let switch = Switch::start(&traffic.testbed.polling(&sockets, settings.cpus[1])?)?;
    let measured = connect(traffic, &sockets).and_then(|(sides, wire)| {
        let features = f::names(sides[0].port.features()).collect();
        let measured = measure(settings, traffic, sides, wire, switch.source())?;
        let negotiated = (OffloadCase::Coalesced.negotiates(traffic.load.workload()), features);
        Ok(Measured { negotiated: Some(negotiated), ..measured })
    });
    switch.stop();
    measured
}

/// Connects the two guests and the wire.
fn connect(traffic: Traffic, sockets: &Sockets) -> anyhow::Result<([Side; 2], Wire)> {
    let load = traffic.load.workload();
    let who = OffloadCase::Coalesced;
    let options = PortOptions {
        longest: u32::try_from(offload::longest(load, who)?)?,
        offloads: who.features(load),
        ..PortOptions::default()
    };
    let side = |from: u8, socket| {
        let port = VhostPort::connect(socket, &options)?;
        let stream = Stream::new(load, who, from)?.in_lanes(traffic.lanes);
        anyhow::Ok(Side::new(port, stream, Proof::new(load, who, 3 - from)?.in_lanes(traffic.lanes)))
    };
    let wire = VhostPort::connect_all(&sockets.wire, &PortOptions::default())?;
    let wire = Wire::new(wire, (traffic.load == Load::Line).then_some(traffic.line))?;
    Ok(([side(1, &sockets.guests[0])?, side(2, &sockets.guests[1])?], wire))
}

fn measure(
    settings: &Settings,
    traffic: Traffic,
    sides: [Side; 2],
    mut wire: Wire,
    source: Arc<dyn Source>,
) -> anyhow::Result<Measured> {
    // The link of a tunnel is up once the wire passes packets.
    let vhost_user = |name: &str| ["a", "b", "nic0", "nic1"].contains(&name);
    offload::links_are_up(settings, &Clock::real(), || {
        source.ports().ports.iter().all(|port| port.link != Link::Down || !vhost_user(&port.name))
    })?;
    let most = u64::try_from(offload::window(traffic.load.workload())?)?;
    let mut guests = Guests::new(sides, most, source, settings).over_wire(wire.meter());
    let endpoints: &mut [&mut dyn Endpoint] = &mut [&mut guests, &mut wire];
    EventLoop { cpu: Some(settings.cpus[0]), ..EventLoop::default() }.run(endpoints).1?;
    let (window, checked) = guests.end()?;
    let mut measured = metrics(traffic, &window)?;
    measured.note([("checked_packets", float(checked))]);
    Ok(Measured { validity: window.validity, ..measured })
}

fn metrics(traffic: Traffic, window: &Window) -> anyhow::Result<Measured> {
    let [before, after] = &window.edges[..] else { anyhow::bail!("the switch's counters were not read") };
    let [a, b] = window.got;
    let arrived = float(a.packets + b.packets);
    let bytes = float(a.frame_bytes + b.frame_bytes);
    let payload = float(a.payload + b.payload);
    let [_, sent_payload] = window.sent.map(float);
    let busy = |runtime: &Runtime| runtime.workers.iter().map(|worker| worker.busy_s).sum::<f64>();
    let cycles = (busy(after) - busy(before)) * hertz();
    // Each packet on the wire comes back to the switch.
    let sum = |chosen: fn(&str) -> bool, value: fn(&crate::testbed::Spent<'_>) -> f64| {
        spent(before, after).filter(|node| chosen(node.name)).map(|node| value(&node)).sum::<f64>()
    };
    let on_wire = sum(is_wire_rx, |node| node.packets);
    validity::wire_packets(on_wire, payload).demand()?;
    let wire = window.passed;
    let wire_frame_bytes = float(wire.bytes) / float(wire.packets.max(1));
    let line_bits = float(wire.bytes + wire.packets * LINE_OVERHEAD) * 8.0;
    // Rates over a line are those by its own clock.
    let secs = if traffic.load == Load::Line { wire.secs } else { window.secs };
    let mut measured = Measured::default();
    for (phase, cycles) in phases(before, after)? {
        measured.cycles.insert(phase, cycles);
    }
    measured.note([
        ("payload_gbit_per_s", payload * 8.0 / secs / 1e9),
        ("gbit_per_s", bytes * 8.0 / secs / 1e9),
        ("mpps", arrived / secs / 1e6),
        ("switch_cycles_per_byte", cycles / sent_payload.max(1.0)),
        ("switch_cycles_per_packet", cycles / on_wire),
        ("switch_busy_percent", 100.0 * cycles / (hertz() * window.secs)),
        ("core_mpps", hertz() * on_wire / cycles / 1e6),
        ("core_gbit_per_s", hertz() * sent_payload * 8.0 / cycles / 1e9),
        ("wire_frame_bytes", wire_frame_bytes),
        ("wire_gbit_per_s", line_bits / secs / 1e9),
        ("frame_bytes", bytes / arrived),
        ("out_cycles_per_packet", sum(is_way_out, |node| node.cycles) / on_wire),
        ("in_cycles_per_packet", sum(is_way_in, |node| node.cycles) / on_wire),
        ("wire_packets_per_call", on_wire / sum(is_wire_rx, |node| node.calls).max(1.0)),
    ]);
    if traffic.load == Load::Line {
        let used = line_bits / secs / (2.0 * traffic.line);
        measured.note([("line_used_percent", 100.0 * used)]);
        validity::line_used(used).demand()?;
    }
    Ok(measured)
}

/// Returns whether a node receives from the wire.
fn is_wire_rx(name: &str) -> bool {
    name.starts_with("nic") && name.ends_with("-rx")
}

/// Returns whether a node encapsulates, or delivers to the wire.
fn is_way_out(name: &str) -> bool {
    name.starts_with("nic") && name.ends_with("-tx") || name.contains("encap")
}

/// Returns whether a node receives from the wire, or decapsulates.
fn is_way_in(name: &str) -> bool {
    is_wire_rx(name) || name.contains("decap")
}
