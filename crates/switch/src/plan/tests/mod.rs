//! Plans and their differences: what these tests share.

mod any_configuration;
mod assignment;
mod difference;
mod nodes;
mod spec;
mod underlays;

use std::sync::OnceLock;

use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets};

use super::*;
use crate::config::{
    Address, BridgeConfig, NodeConfig, PatchConfig, PathMtuErrors, PortConfig, PortKind, SourceCheckConfig,
    SwitchConfig, TunnelKind, TunnelSettings, UnderlayConfig,
};

/// Plans on a machine whose NUMA nodes are not known.
fn plan(config: &Config, before: Option<Before<'_>>) -> Plan {
    super::plan(config, before, &PlanNodes::default())
}

fn config(ports: usize, workers: &[usize]) -> Config {
    let mut config = Config::default();
    config.switch.workers = workers.to_vec();
    config.ports = (0..ports).map(|n| PortConfig::vhost_user(format!("p{n}"), format!("/s{n}"))).collect();
    config
}

fn patch(a: &str, b: &str) -> PatchConfig {
    PatchConfig { name: format!("{a}{b}"), ports: [a.to_owned(), b.to_owned()], full: WhenFull::Wait }
}

fn bridge(ports: &[&str]) -> BridgeConfig {
    let ports = ports.iter().map(|&port| port.to_owned()).collect();
    BridgeConfig { limit: 16, ..BridgeConfig::new("lan", ports) }
}

#[derive(Clone)]
struct Nothing;

impl Node for Nothing {
    fn process(&mut self, _packets: &mut Packets<'_>, _batch: &Batch, _next: &mut Next<'_>) {}
}

/// One of two nodes with the same name.
fn node(which: usize) -> NodeConfig {
    static NODES: OnceLock<[NodeConfig; 2]> = OnceLock::new();
    NODES.get_or_init(|| [(); 2].map(|()| NodeConfig::new("n", "nothing", Nothing)))[which].clone()
}

fn after(old: &Config, new: &Config) -> (Plan, Plan, Vec<Step>) {
    let first = plan(old, None);
    let before = Before { config: old, plan: &first };
    let second = plan(new, Some(before));
    let steps = difference(before, new, &second);
    (first, second, steps)
}

/// Returns a worker's domains that a change leaves alone.
fn undisturbed(before: Before<'_>, config: &Config, plan: &Plan, worker: usize) -> Vec<ForwardingDomain> {
    let had = specs(before.config, before.plan);
    let specs = specs(config, plan);
    let rests = unchanged(had.get(worker).map_or(&[], Vec::as_slice), &specs[worker]);
    let domains = plan.workers[worker].domains.iter().zip(&specs[worker]);
    domains.filter(|(_, spec)| rests.contains(spec)).map(|(domain, _)| *domain).collect()
}

/// A mirror to `to`.
fn mirror(to: &str) -> NodeConfig {
    let mut node = node(0);
    node.name = "m".to_owned();
    node.with_output(to)
}

/// An underlay on this port.
fn underlay(name: &str, port: &str) -> UnderlayConfig {
    UnderlayConfig {
        name: name.to_owned(),
        port: port.to_owned(),
        addresses: vec![Address { ip: "192.0.2.1".parse().expect("an address"), prefix: 24 }],
        gateways: Vec::new(),
        vlan: None,
        mtu: 1500,
        mac: None,
        neighbours: Vec::new(),
        path_mtu: PathMtuErrors::default(),
    }
}

/// A tunnel of this underlay.
fn tunnel(name: &str, underlay: &str, vni: u32) -> PortConfig {
    let ip = |ip: &str| ip.parse().expect("an address");
    let kind = PortKind::Tunnel(TunnelSettings {
        underlay: underlay.to_owned(),
        kind: TunnelKind::Vxlan { vni },
        networks: Vec::new(),
        drops_tags: false,
        local: ip("192.0.2.1"),
        remotes: vec![ip("192.0.2.2")],
        takes_remotes: false,
        statics: Vec::new(),
        limit: 4096,
        source_port: None,
        verify: true,
        zero_checksum: false,
    });
    PortConfig { kind, mtu: 1450, ..PortConfig::vhost_user(name, "") }
}

fn assignment(rx: &[usize], tx: &[usize], delivering: &[usize]) -> QueueAssignment {
    QueueAssignment { rx_workers: rx.to_vec(), tx_workers: tx.to_vec(), delivering: delivering.to_vec() }
}
