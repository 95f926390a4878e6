//! The answers of a running switch, made from counters that workers write. No worker is stopped for
//! them.

use std::collections::BTreeSet;
use std::iter;
use std::net::IpAddr;
use std::time::SystemTime;

use straightline_fdb::Share;
use straightline_graph::clock::{cycles, seconds};
use straightline_graph::{DeviceStatus, DownCause, NodeControl, NodeStats, QueueCounters, RateTable, Rows, RxFilter};
use straightline_nodes::{self as nodes, BridgeTable};
use straightline_packet::{IgnorePoison, PortIndex};
use straightline_port::{HelperProcess, socket_file};
use straightline_underlay as underlay;
use straightline_virtio::features::names;
use straightline_wire::{EtherType, MacAddr, VlanId};

use crate::api::{
    API_VERSION, Addresses, Bindings, BindingsRequest, BridgeMoves, Cleared, Connections, ConnectionsRequest, Device,
    DownReason, DropCount, Drops, Events, ExplainRequest, Explanation, Fdb, FlowTrace, Flows, FlowsRequest, Groups,
    History, JoinedKind, Link, Meters, MetersRequest, Neighbours, Node, Packets, PathMtu, Port, PortNodes, PortVlans,
    Ports, Privileges, Queue, QueuePairs, Refusal, Remotes, RemotesRequest, RingKind, Row, Runtime, RxMode, Sets,
    SetsRequest, Source, Stations, StationsRequest, Status, Stream, Table, TableRequest, Tables, TraceFlow, Tunnel,
    VlanRole, Worker, since_epoch,
};
use crate::config::{Config, Mechanism, NumaNodes, PortConfig, PortNetwork, PortRate, TunnelSettings, rate_text};
use crate::config_file::AppliedFile;
use crate::plan::PortPlan;
use crate::running::{REMOVED, Running, Snapshot};
use crate::{api, descriptors, sandbox, user_names};

impl Running {
    /// Returns the use of the workers' time since the start.
    fn runtime_since_start(&self) -> Runtime {
        let now = self.now();
        let workers = now.workers.iter().map(|(stats, _)| {
            let times = stats.times(cycles());
            Worker {
                cpu: stats.cpu,
                busy_s: seconds(times.busy),
                empty_poll_s: seconds(times.empty_poll),
                idle_s: seconds(times.idle),
                unexplained_s: seconds(times.unexplained),
                turns: stats.turns.get(),
                sleeps: stats.sleeps.get(),
                is_asleep: stats.asleep_since.get() > 0,
                bodies_copied_bytes: stats.bodies_copied.get(),
                bodies_delivered_bytes: stats.bodies_delivered.get(),
            }
        });
        let removed = Some(self.removed_nodes()).filter(|node| node.calls.get() > 0);
        let node = |n: &NodeStats, worker| Node {
            worker,
            most_packets: n.most.get(),
            ..Node::new(&n.name, n.calls.get(), n.packets.get(), n.cycles.get())
        };
        let of_workers = now.workers.iter().enumerate();
        let nodes = of_workers.flat_map(|(at, (_, nodes))| nodes.iter().map(move |n| node(n, Some(at))));
        let nodes = nodes.chain(removed.map(|n| node(n, None)));
        Runtime { workers: workers.collect(), nodes: nodes.collect(), cleared: None }
    }

    /// Has the answer to `runtime` count from now on.
    pub(crate) fn clear_runtime(&self) {
        let Runtime { workers, nodes, cleared: _ } = self.runtime_since_start();
        *self.cleared.lock().ignore_poison() = Some((self.clock.now(), Cleared { ago_s: 0.0, workers, nodes }));
        let now = self.now();
        now.workers.iter().flat_map(|(_, nodes)| nodes).for_each(|node| node.most.clear());
    }
}

impl Source for Running {
    fn ports(&self) -> Ports {
        let now = self.now();
        let networks = now.config.networks();
        let with_vlans: Vec<_> = now.config.bridges.iter().map(|bridge| now.config.has_vlans(bridge)).collect();
        let ports = now.config.ports.iter().zip(&now.ports).zip(&now.plan.ports);
        let ports = ports.map(|((config, port), place)| {
            let status = port.status();
            let history = port.history();
            let socket = config.kind.socket().map(|path| path.display().to_string());
            let cause = status.cause.filter(|_| !status.up);
            let network = networks.get(config.name.as_str()).copied();
            let tunnel = now.tables.get::<underlay::Tunnel>("tunnel", &config.name);
            let tunnel = tunnel.as_deref().zip(config.kind.as_tunnel()).map(|(tunnel, config)| ends(tunnel, config));
            let next_hop = tunnel.as_ref().and_then(|ends| Some((ends.underlay.as_str(), ends.next_hop.as_deref()?)));
            let interface = config.kind.interface();
            let remedy = |cause: DownCause| cause.remedy(&config.name, socket.as_deref(), interface, next_hop);
            let described = config.described();
            let is_bridged = network.filter(|network| network.kind == JoinedKind::Bridge);
            let rules = is_bridged.map(|network| config.rules_in(with_vlans[network.at]));
            Port {
                link: if status.up { Link::Up } else { Link::Down },
                cause: cause.map(|cause| cause.code().to_owned()),
                remedy: cause.map(remedy),
                reason: (!status.up).then_some(status.reason),
                pid: status.peer.and_then(|peer| peer.pid),
                user: status.peer.map(|peer| user_names::name(peer.uid)),
                link_since_s: self.clock.since(history.since).as_secs_f64(),
                link_changes: history.changes,
                reasons: history.reasons.into_iter().map(down_reason).collect(),
                features: status.features.iter().map(|&f| f.to_owned()).collect(),
                ring: status.ring.map(|ring| if ring.packed { RingKind::Packed } else { RingKind::Split }),
                ring_size: status.ring.map_or(0, |ring| ring.size.into()),
                regions: status.regions.try_into().unwrap_or(u32::MAX),
                nodes: port_nodes(NumaNodes::of_this_machine(), &now.config, place, status.memory_nodes, interface),
                queues: port.counters().iter().enumerate().map(|(at, counters)| queue(at, counters, place)).collect(),
                drops: port.drops().nonzero().map(|(reason, n)| (reason.name().to_owned(), n)).collect(),
                slow_calls: status.slow_calls,
                rx_mode: status.receives.map(rx_mode),
                mac: described.mac.or(status.mac.map(|mac| MacAddr(mac).to_string())),
                queue_pairs: described.queue_pairs.map(|pairs| QueuePairs { enabled: status.pairs, ..pairs }),
                vlans: rules.as_ref().and_then(|rules| rules.vlans.as_ref()).map(port_vlans),
                isolated: rules.is_some_and(|rules| rules.isolated),
                groups: now.groups(config, place.slot),
                trusted: config.trusted,
                rate_in: now.rate(config, "rate-in"),
                rate_out: now.rate(config, "rate-out"),
                joined: network.map(|network| network.joined(&now.config)),
                addresses: network.and_then(|network| now.addresses(network, place)),
                device: status.device.map(device),
                tunnel,
                ..described
            }
        });
        Ports { ports: ports.collect() }
    }

    fn runtime(&self) -> Runtime {
        let cleared = self.cleared.lock().ignore_poison().as_ref().map(|(at, cleared)| {
            let ago_s = self.clock.since(*at).as_secs_f64();
            Cleared { ago_s, ..cleared.clone() }
        });
        Runtime { cleared, ..self.runtime_since_start() }
    }

    fn drops(&self) -> Drops {
        let now = self.now();
        let ports = now.config.ports.iter().map(|port| port.name.as_str()).zip(now.drops.iter());
        let counts = ports.chain([(REMOVED, self.removed_drops())]).flat_map(|(port, drops)| {
            drops.nonzero().map(move |(reason, count)| DropCount {
                port: port.to_owned(),
                reason: reason.name().to_owned(),
                count,
                meaning: reason.meaning().to_owned(),
                remedy: reason.remedy().to_owned(),
            })
        });
        Drops { drops: counts.collect() }
    }

    fn tables(&self) -> Tables {
        let now = self.now();
        Tables { tables: now.view(|view| now.tables.summaries(view)) }
    }

    fn table(&self, request: &TableRequest) -> Result<Table, Refusal> {
        let now = self.now();
        now.view(|view| now.tables.page(view, request))
    }

    fn flows(&self, request: &FlowsRequest) -> Result<Flows, Refusal> {
        self.now().flows(request)
    }

    fn meters(&self, request: &MetersRequest) -> Result<Meters, Refusal> {
        self.now().meters(&request.bridge)
    }

    fn trace_flow(&self, request: &TraceFlow) -> Result<FlowTrace, Refusal> {
        self.now().trace_flow(request)
    }

    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, Refusal> {
        self.now().explain(request)
    }

    fn groups(&self) -> Groups {
        self.now().all_groups()
    }

    fn sets(&self, request: &SetsRequest) -> Result<Sets, Refusal> {
        self.now().sets(request)
    }

    fn connections(&self, request: &ConnectionsRequest) -> Result<Connections, Refusal> {
        self.now().connections(request)
    }

    fn remotes(&self, request: &RemotesRequest) -> Result<Remotes, Refusal> {
        self.networks.lock().ignore_poison().list_remotes(&self.now(), request)
    }

    fn stations(&self, request: &StationsRequest) -> Result<Stations, Refusal> {
        self.networks.lock().ignore_poison().list_stations(&self.now(), request)
    }

    fn bindings(&self, request: &BindingsRequest) -> Result<Bindings, Refusal> {
        self.networks.lock().ignore_poison().list_bindings(&self.now(), request)
    }

    fn fdb(&self) -> Fdb {
        let mut fdb = Fdb::default();
        for row in self.now().rows() {
            match row {
                Row::Station(entry) => fdb.entries.push(entry),
                Row::TunnelStation(entry) => fdb.remotes.push(entry),
                _ => {}
            }
        }
        fdb
    }

    fn neighbours(&self) -> Neighbours {
        let mut neighbours = Neighbours::default();
        for row in self.now().rows() {
            match row {
                Row::NextHop(next_hop) => neighbours.neighbours.push(next_hop),
                Row::OwnAddress(own) => neighbours.addresses.push(own),
                _ => {}
            }
        }
        neighbours
    }

    fn status(&self) -> Status {
        let now = self.now();
        let moves = |table: &BridgeTable| BridgeMoves { bridge: table.bridge().to_owned(), count: table.moved() };
        Status {
            version: crate::VERSION.to_owned(),
            api_version: API_VERSION,
            uptime_s: self.clock.since(self.since).as_secs_f64(),
            simd: now.config.switch.level().name().to_owned(),
            workers: now.workers.len(),
            worker_nodes: worker_nodes(NumaNodes::of_this_machine(), &now.config),
            ports_up: now.ports.iter().filter(|port| port.status().up).count(),
            ports: now.ports.len(),
            sandbox: sandbox::in_force().iter().map(|mechanism| mechanism.as_str().to_owned()).collect(),
            privileges: self.privileges(),
            refused_calls: sandbox::refused_calls(),
            api_refused_clients: crate::api::refused_clients(),
            api_held_threads: crate::api::held_threads(),
            notifications: self.notifications.to_owned(),
            stalls: self.stalls.list(),
            workers_stalled: self.stalls.now(),
            fds_free: descriptors::free(),
            configuration: self.file.lock().ignore_poison().as_ref().map(AppliedFile::status),
            moves: now.tables.all().map(moves).collect(),
            flow_tables: now.flow_searches(),
        }
    }

    fn history(&self) -> History {
        self.traffic.lock().ignore_poison().answer()
    }

    fn events(&self, since: u64) -> Events {
        self.events.events(since)
    }

    fn follow_events(&self, since: u64) -> Result<(Events, Box<dyn Stream>), Refusal> {
        self.events.follow(since)
    }
}

impl Running {
    /// Returns the privileges of this process and of its helper processes.
    fn privileges(&self) -> Vec<Privileges> {
        let in_force = |mechanism: Mechanism| sandbox::in_force().contains(&mechanism);
        let ours = Privileges {
            process: Privileges::SWITCH.to_owned(),
            pid: std::process::id(),
            running: true,
            capabilities: sandbox::held_capabilities(),
            seccomp: in_force(Mechanism::Seccomp),
            landlock: in_force(Mechanism::Landlock),
        };
        let opener = self.devices.as_ref().and_then(|devices| devices.opener().helper());
        let opener = opener.map(|helper| of_helper(Privileges::OPENER, helper.process(), helper.is_running()));
        let maker = socket_file::maker_process();
        let maker = maker.map(|(process, running)| of_helper(Privileges::SOCKETS, process, running));
        iter::once(ours).chain(opener).chain(maker).collect()
    }
}

impl Snapshot {
    /// Returns the number of addresses that the bridge of a port has learned there.
    fn addresses(&self, network: PortNetwork, place: &PortPlan) -> Option<Addresses> {
        let bridge = self.config.bridges.get(network.at).filter(|_| network.kind == JoinedKind::Bridge)?;
        let table = self.tables.get::<BridgeTable>("bridge", &bridge.name)?;
        Some(addresses(table.share(PortIndex(place.slot))))
    }

    /// Returns a limit of a port, and its use.
    fn rate(&self, port: &PortConfig, key: &str) -> Option<api::PortRate> {
        let rate = port.rate(key)?;
        let table = self.tables.get::<RateTable>(key, &port.name)?;
        let limits = table.limits();
        let stats = table.stats();
        Some(api::PortRate {
            limit: rate_text(&limits),
            bits: limits.bytes.map(|limit| limit.per_second * 8),
            packets: limits.packets.map(|limit| limit.per_second),
            burst_bytes: limits.bytes.map(|limit| limit.burst),
            burst_packets: limits.packets.map(|limit| limit.burst),
            shared: if let PortRate::Shared(name) = rate { Some(name.clone()) } else { None },
            owner: if let PortRate::Live(_) = rate { "api" } else { "file" }.to_owned(),
            waits: key == "rate-in" && port.kind.can_wait(),
            passed_bytes: stats.bytes.get(),
            passed_packets: stats.packets.get(),
            wait_count: stats.waits.get(),
            waited_ms: stats.waited.get() / 1_000_000,
            dropped: stats.dropped.get(),
        })
    }

    /// Returns the rows of all tables.
    fn rows(&self) -> Vec<Row> {
        self.view(|view| {
            let rows = |control: &dyn NodeControl| {
                let mut rows = Rows::all();
                control.rows(view, &mut rows);
                rows.into_page().0
            };
            self.tables.controls().flat_map(rows).collect()
        })
    }
}

/// Returns the node of each worker's CPU; nothing for a machine with one node.
fn worker_nodes(machine: &NumaNodes, config: &Config) -> Vec<Option<usize>> {
    let workers = config.switch.workers.iter().filter(|_| machine.are_several());
    workers.map(|&cpu| machine.of_cpu(cpu)).collect()
}

/// Returns where the workers, the guest's memory and the interface of a port are; nothing for a
/// machine with one node.
fn port_nodes(
    machine: &NumaNodes,
    config: &Config,
    place: &PortPlan,
    memory: Vec<usize>,
    interface: Option<&str>,
) -> Option<PortNodes> {
    let nodes = worker_nodes(machine, config);
    let serving = place.assignment.rx_workers.iter().chain(&place.assignment.delivering);
    let serving: BTreeSet<usize> = serving.filter_map(|&worker| nodes.get(worker).copied().flatten()).collect();
    machine.are_several().then(|| PortNodes {
        workers: serving.into_iter().collect(),
        memory,
        interface: interface.and_then(|name| machine.of_interface(name)),
    })
}

fn addresses(share: Share) -> Addresses {
    Addresses { learned: share.used, refused: share.refused }
}

fn of_helper(name: &str, process: &HelperProcess, running: bool) -> Privileges {
    let in_force = |mechanism: Mechanism| process.mechanisms.iter().any(|name| name == mechanism.as_str());
    Privileges {
        process: name.to_owned(),
        pid: process.pid,
        running,
        capabilities: process.capabilities.clone(),
        seccomp: in_force(Mechanism::Seccomp),
        landlock: in_force(Mechanism::Landlock),
    }
}

fn device(DeviceStatus { facts, kernel_drops }: DeviceStatus) -> Device {
    Device {
        interface: facts.interface,
        driver: facts.driver,
        mode: facts.mode,
        zero_copy: facts.zero_copy,
        queues: facts.queues,
        mtu: facts.mtu,
        mac: MacAddr(facts.mac).to_string(),
        kernel_drops: kernel_drops.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        offloads: names(facts.features).map(str::to_owned).collect(),
        warnings: facts.warnings,
    }
}

fn ends(tunnel: &underlay::Tunnel, config: &TunnelSettings) -> Tunnel {
    let underlay::TunnelStatus {
        local,
        remotes,
        next_hop,
        state: of_hop,
        conflict,
        overhead,
        mtu_inside,
        path_mtus,
        errors_refused,
    } = tunnel.status();
    let path_mtu = |(remote, mtu): (IpAddr, u16)| PathMtu { remote: remote.to_string(), mtu };
    Tunnel {
        underlay: config.underlay.clone(),
        local: local.to_string(),
        remote: remotes.iter().map(ToString::to_string).collect(),
        vnis: config.networks.iter().map(|network| (network.vlan.get(), network.vni)).collect(),
        next_hop: next_hop.map(|ip| ip.to_string()),
        state: of_hop.map(Into::into),
        conflict: conflict.map(|mac| mac.to_string()),
        overhead,
        mtu_inside,
        addresses: tunnel.shares().into_iter().map(addresses).collect(),
        path_mtus: path_mtus.into_iter().map(path_mtu).collect(),
        errors_refused,
    }
}

fn down_reason((time, reason): (SystemTime, String)) -> DownReason {
    DownReason { time: since_epoch(time), reason }
}

/// Returns the VLANs of a port as the API shows them.
fn port_vlans(vlans: &nodes::PortVlans) -> PortVlans {
    let (role, native_tagged, tag) = match &vlans.role {
        nodes::VlanRole::Access(_) => (VlanRole::Access, false, None),
        nodes::VlanRole::Customer(_) => (VlanRole::Customer, false, None),
        nodes::VlanRole::Networks { .. } => (VlanRole::Networks, false, None),
        nodes::VlanRole::Trunk { tpid, native, .. } => {
            let tag = if *tpid == EtherType::SERVICE_VLAN { "802.1ad" } else { "802.1Q" };
            (VlanRole::Trunk, native.is_some_and(|native| native.is_tagged), Some(tag.to_owned()))
        }
    };
    PortVlans {
        role,
        vlans: vlans.all().to_string(),
        untagged: vlans.untagged().map(VlanId::get),
        native_tagged,
        tag,
        priority: vlans.priority,
    }
}

fn rx_mode(receives: RxFilter) -> RxMode {
    let text = |mac: [u8; 6]| MacAddr(mac).to_string();
    RxMode {
        promiscuous: receives.promiscuous,
        all_multicast: receives.all_multicast,
        all_unicast: receives.all_unicast,
        no_multicast: receives.no_multicast,
        no_unicast: receives.no_unicast,
        no_broadcast: receives.no_broadcast,
        mac: receives.mac.map(text),
        unicast: receives.unicast.into_iter().map(text).collect(),
        multicast: receives.multicast.into_iter().map(text).collect(),
        vlans: receives.vlans,
    }
}

fn queue(index: usize, counters: &QueueCounters, place: &PortPlan) -> Queue {
    let calls_sent = counters.rx.calls_sent.get() + counters.tx.calls_sent.get();
    let calls_suppressed = counters.rx.calls_suppressed.get() + counters.tx.calls_suppressed.get();
    Queue {
        index: index.try_into().unwrap_or(u16::MAX),
        rx: Packets { packets: counters.rx.packets.get(), bytes: counters.rx.bytes.get() },
        tx: Packets { packets: counters.tx.packets.get(), bytes: counters.tx.bytes.get() },
        calls_sent,
        calls_repeated: counters.rx.calls_repeated.get() + counters.tx.calls_repeated.get(),
        calls_suppressed,
        kicks_sent: calls_sent,
        kicks_suppressed: calls_suppressed,
        rx_worker: place.assignment.rx_workers.get(index).copied(),
        tx_worker: place.assignment.tx_workers.get(index).copied(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use straightline_graph::QueueAssignment;

    use super::*;

    #[test]
    fn places_are_told_on_a_machine_with_several_nodes() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join("sys").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let mut config = Config::default();
        config.switch.workers = vec![0, 1, 7];
        let assignment = QueueAssignment { rx_workers: vec![1, 2], tx_workers: vec![1, 2], delivering: vec![1] };
        let place = PortPlan { assignment, ..PortPlan::default() };
        let places = |memory: &[usize]| {
            port_nodes(&NumaNodes::below(root.path()), &config, &place, memory.to_vec(), Some("eth1"))
        };
        file("devices/system/node/node0/cpulist", "0");
        file("class/net/eth1/device/numa_node", "0");
        assert_eq!((places(&[0]), worker_nodes(&NumaNodes::below(root.path()), &config)), (None, Vec::new()));
        file("devices/system/node/node1/cpulist", "1");
        assert_eq!(worker_nodes(&NumaNodes::below(root.path()), &config), [Some(0), Some(1), None]);
        // Worker 2 is on a CPU that the machine does not describe.
        let places = places(&[0, 1]).unwrap();
        assert_eq!(places, PortNodes { workers: vec![1], memory: vec![0, 1], interface: Some(0) });
        assert_eq!(places.apart().collect::<Vec<_>>(), [0, 0]);
    }
}
