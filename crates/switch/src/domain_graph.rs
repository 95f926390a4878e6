//! Each worker's graph, built from the specs of its domains and the things that are open.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;

use az::SaturatingAs;
use straightline_firewall::Direction;
use straightline_graph::{Graph, Meter, Node, NodeIndex, NodeStats, Police, Port, PortControl, RateTable, Work};
use straightline_nodes::{
    AllowedAddresses, BindingAgent, BindingOutputs, BindingTable, BridgeRules, BridgeTable, Firewall, FirewallControl,
    FlowControl, Flows, MessageLimit, Neighbours, Patch, PortVlans, SetDscp, Sink, SnoopingTable, TagForm, VlanIn,
    VlanSplit,
};
use straightline_packet::{Drops, Level, PortIndex, Reason};
use straightline_underlay::{Decap, Encap, Gather, OwnPackets, Tunnel, Tunnels, Underlay, UnderlayOutput};
use straightline_wire::VlanId;

use crate::node_chain::NodeChains;
use crate::plan::{DomainSpec, EndSpec, NetworkSpec, PartSpec, PortSpec, UnderlaySpec};
use crate::tables::Tables;

/// The opened things that graphs are made of, by the names that specs give them.
pub(crate) struct LiveParts<'a> {
    pub(crate) ports: HashMap<PortIndex, &'a Arc<dyn PortControl>>,
    /// The drop counters of each slot.
    pub(crate) drops: Vec<Arc<Drops>>,
    pub(crate) tables: &'a Tables,
    pub(crate) level: Level,
}

/// An underlay's output in a worker's graph.
struct Carrier<'a> {
    spec: &'a UnderlaySpec,
    underlay: Arc<Underlay>,
    port: Arc<dyn Port>,
    /// The packets for its tunnels.
    gather: Arc<Gather>,
    output: NodeIndex,
}

/// The first node that packets of an underlay's port pass to the bridge that has the port, too.
struct SharedPort {
    port: PortIndex,
    first: NodeIndex,
}

/// The place in a worker's graph at which a tunnel's received packets enter.
struct Entrance<'a> {
    tunnel: &'a EndSpec,
    /// The first node that they pass.
    first: NodeIndex,
    /// The patch or bridge, behind the tunnel's nodes.
    network: NodeIndex,
}

impl LiveParts<'_> {
    /// Returns a worker's work: the graph of these domains, and the drop counters of all ports.
    pub(crate) fn work(&self, worker: usize, domains: &[Arc<DomainSpec>], node_stats: Vec<Arc<NodeStats>>) -> Work {
        let mut graph = Graph::continuing(node_stats);
        let mut building = Building { live: self, worker, graph: &mut graph, unconnected: None };
        domains.iter().for_each(|domain| building.domain(domain));
        let fan_out = domains.iter().map(|domain| domain.fan_out()).max().unwrap_or(1).max(1);
        Work { graph, drops: self.drops.clone(), fan_out: fan_out.saturating_as::<u32>(), level: self.level }
    }

    /// Returns a meter for the limit of a port, for `rate-in` or `rate-out`. `None`: it has none.
    fn rate(&self, key: &str, end: &EndSpec) -> Option<Meter> {
        Some(self.tables.get::<RateTable>(key, &end.name)?.meter().expediting(end.expedited))
    }

    /// Returns the tunnel of a port.
    fn tunnel(&self, end: &EndSpec) -> Option<Arc<Tunnel>> {
        self.tables.get("tunnel", &end.name)
    }
}

/// A worker's graph while it is built.
struct Building<'a> {
    live: &'a LiveParts<'a>,
    worker: usize,
    graph: &'a mut Graph,
    /// The sink that all unconnected ports share.
    unconnected: Option<NodeIndex>,
}

impl<'a> Building<'a> {
    /// Adds a domain: its underlays' outputs, its parts, its underlays' inputs.
    fn domain(&mut self, domain: &'a DomainSpec) {
        let carriers: Vec<_> = domain.underlays.iter().filter_map(|underlay| self.carrier(underlay)).collect();
        let mut entrances = Vec::new();
        let mut shared = Vec::new();
        for part in &domain.parts {
            entrances.extend(self.part(domain, part, &carriers, &mut shared));
        }
        for carrier in &carriers {
            self.receive(carrier, &entrances, &shared);
        }
    }

    /// Returns a port as this worker serves it.
    fn port(&self, end: &EndSpec) -> Option<Arc<dyn Port>> {
        Some(self.live.ports.get(&end.index())?.for_worker(self.worker))
    }

    /// Adds the output of an underlay.
    fn carrier(&mut self, spec: &'a UnderlaySpec) -> Option<Carrier<'a>> {
        let gather = Arc::new(Gather::default());
        let port = self.port(&spec.carrier)?;
        let underlay: Arc<Underlay> = self.live.tables.get("underlay", &spec.settings.name)?;
        let output = UnderlayOutput::new(Arc::clone(&underlay), Arc::clone(&port), Arc::clone(&gather));
        let output = self.graph.output(Arc::new(output), false);
        Some(Carrier { spec, underlay, port, gather, output })
    }

    /// Adds a patch, bridge or unconnected port with its outputs, its nodes and its inputs. All
    /// unconnected ports share one sink. Returns the entrances of its tunnels. An input of a port that
    /// an underlay shares is left to that underlay.
    fn part(
        &mut self,
        domain: &'a DomainSpec,
        part: &'a PartSpec,
        carriers: &[Carrier<'_>],
        shared: &mut Vec<SharedPort>,
    ) -> Vec<Entrance<'a>> {
        let ends = Ends { live: self.live, worker: self.worker, carriers, waits: domain.waits };
        let copies = |graph: &mut Graph, to: &EndSpec| ends.copy_output(graph, to);
        let mut chains = if domain.waits {
            let worker = self.worker;
            let received = part.ports.iter().filter(|port| port.end.is_received_by(worker));
            NodeChains::waiting(copies, self.graph, &part.ports, received)
        } else {
            NodeChains::new(copies)
        };
        let (kind, name) = &part.name;
        let mut flows = None;
        let mut vlan_in = None;
        let mut bindings = None;
        let is_in_patch = matches!(part.network, NetworkSpec::Patch);
        let node: Option<Box<dyn Node>> = match &part.network {
            NetworkSpec::Patch => Some(Box::new(Patch::new(part.ports[0].end.index()))),
            NetworkSpec::Bridge { .. } => {
                let Some(table) = self.live.tables.get::<BridgeTable>("bridge", name) else { return Vec::new() };
                let bridge = table.node(domain.workers);
                flows = self.live.tables.get::<FlowControl>("flows", name).map(|flows| (Arc::clone(&table), flows));
                let has_groups = part.ports.iter().any(|port| port.connections.is_some());
                bindings = self
                    .live
                    .tables
                    .get::<BindingTable>("bindings", name)
                    .map(|bindings| (Arc::clone(&table), bindings));
                vlan_in = (flows.is_some() || has_groups || bindings.is_some()).then(|| VlanIn::new(&table)).flatten();
                let bridge = if vlan_in.is_some() { bridge.behind_vlan_in() } else { bridge };
                let groups = self.live.tables.get::<SnoopingTable>("snooping", name);
                Some(Box::new(match groups {
                    Some(groups) => bridge.snooped_by(&groups),
                    None => bridge,
                }))
            }
            NetworkSpec::Unconnected => None,
        };
        let network = match node {
            Some(node) => {
                let graph = &mut *self.graph;
                let output = |port: &'a PortSpec| {
                    let output = ends.output(graph, &port.end);
                    chains.egress(graph, port, output)
                };

                let edges: Vec<_> = part.ports.iter().map(output).collect();
                if let NetworkSpec::Bridge { rules, .. } = &part.network {
                    self.separate(part, rules, &edges);
                }
                if let Some((_, bindings)) = &bindings {
                    self.own_packets(name, part, bindings, &edges);
                }
                // Groups see a packet as it is in the bridge, before it gets the form of its port.
                let firsts = edges.iter().zip(&part.ports);
                let edges: Vec<_> =
                    firsts.map(|(&first, port)| self.guard(port, Direction::In, is_in_patch, None, first)).collect();
                let network = self.graph.node(format!("{kind}.{name}"), node, &edges);
                let network = match flows {
                    Some((table, flows)) => self.flows(name, &table, &flows, edges, network),
                    None => network,
                };
                match &bindings {
                    Some((table, bindings)) => {
                        let node = Neighbours::new(Arc::clone(bindings), table);
                        self.graph.node(format!("neighbours.{name}"), Box::new(node), &[network])
                    }
                    None => network,
                }
            }
            None => self.unconnected(),
        };
        // Packets of ports with groups come to them in their VLAN.
        let behind_vlan_in = network;
        let network = match &vlan_in {
            Some(vlan_in) => self.graph.node(format!("vlan-in.{name}"), Box::new(vlan_in.clone()), &[network]),
            None => network,
        };
        let mut entrances = Vec::new();
        for port in &part.ports {
            let end = &port.end;
            if end.tunnel.is_none() && !end.is_received_by(self.worker) {
                continue;
            }
            let end_of_nodes = if port.connections.is_some() || port.limits_messages {
                let bindings = bindings.as_ref().map(|(_, bindings)| Arc::clone(bindings));
                let first = self.guard(port, Direction::Out, is_in_patch, bindings, behind_vlan_in);
                let first = self.limit_messages(port, first);
                match &vlan_in {
                    Some(vlan_in) => {
                        self.graph.node(format!("vlan-in.{}", end.name), Box::new(vlan_in.clone()), &[first])
                    }
                    None => first,
                }
            } else {
                network
            };
            let mut first = chains.ingress(self.graph, port, end_of_nodes);
            if let Some(dscp) = port.dscp {
                first = self.graph.node(format!("dscp.{}", end.name), Box::new(SetDscp::new(dscp)), &[first]);
            }
            // The source check comes before all other nodes, so that they see only true sources.
            if let Some(allowed) = self.live.tables.get::<AllowedAddresses>("source-check", &end.name) {
                let name = format!("source-check.{}", end.name);
                first = self.graph.node(name, Box::new(allowed.node()), &[first]);
            }
            if end.tunnel.is_some() {
                if let Some(rate) = self.live.rate("rate-in", end) {
                    let police = Police::new(rate, end.index());
                    first = self.graph.node(format!("rate-in.{}", end.name), Box::new(police), &[first]);
                }
                entrances.push(Entrance { tunnel: end, first, network });
            } else if carriers.iter().any(|carrier| carrier.spec.carrier.index() == end.index()) {
                shared.push(SharedPort { port: end.index(), first });
            } else if let Some(input) = self.port(end) {
                self.input(end, input, first);
            }
        }
        entrances
    }

    /// Adds the limit of messages of a port without groups, if it has one, in front of `to`.
    fn limit_messages(&mut self, port: &PortSpec, to: NodeIndex) -> NodeIndex {
        let control = self.live.tables.get::<FirewallControl>("firewall", "ports").filter(|_| port.limits_messages);
        let Some(control) = control else { return to };
        let node = MessageLimit::new(&control, port.end.index());
        self.graph.node(format!("messages.{}", port.end.name), Box::new(node), &[to])
    }

    /// Adds the groups of a port, if it has some, in front of `to`. `bindings` are those of its bridge.
    fn guard(
        &mut self,
        port: &PortSpec,
        direction: Direction,
        is_in_patch: bool,
        bindings: Option<Arc<BindingTable>>,
        to: NodeIndex,
    ) -> NodeIndex {
        if port.connections.is_none() {
            return to;
        }
        let name = format!("groups-{}.{}", direction.as_str(), port.end.name);
        match self.live.tables.get::<FirewallControl>("firewall", "ports") {
            Some(control) => {
                let node = Firewall::new(&control, port.end.index(), direction, is_in_patch).knowing(bindings);
                self.graph.node(name, Box::new(node), &[to])
            }
            None => self.graph.node(name, Box::new(Sink::new(Reason::Denied)), &[]),
        }
    }

    /// Adds an input, with the limit of its port.
    fn input(&mut self, end: &EndSpec, port: Arc<dyn Port>, to: NodeIndex) {
        self.graph.input_with(port, to, end.share.into(), self.live.rate("rate-in", end));
    }

    /// Has each output of a bridge see its own form of a flooded packet, which all of them share.
    /// `edges` are the beginnings of their nodes.
    fn separate(&mut self, part: &PartSpec, rules: &BridgeRules, edges: &[NodeIndex]) {
        let mut forms: Vec<(TagForm, Vec<NodeIndex>)> = Vec::new();
        for ((&first, port), member) in edges.iter().zip(&part.ports).zip(&rules.ports) {
            let form = member.rules.vlans.as_ref().and_then(PortVlans::form);
            let changes = port.egress.iter().any(|spec| spec.node.changes_packets());
            // Nodes of a port, and its tunnel, see its frames with its tags: they come behind the form.
            let has_nodes = !port.egress.is_empty() || port.end.tunnel.is_some();
            if changes || form.is_some() && has_nodes {
                self.graph.enclose(first);
            }
            let Some(form) = form else { continue };
            match forms.iter_mut().find(|(known, _)| *known == form) {
                Some((_, entries)) => entries.push(first),
                None => forms.push((form, vec![first])),
            }
        }
        for (form, entries) in forms {
            self.graph.form(Box::new(form), &entries);
        }
    }

    /// Adds the flow tables of a bridge in front of it. `edges` are the bridge's. Returns the first node
    /// that frames pass.
    fn flows(
        &mut self,
        name: &str,
        table: &BridgeTable,
        flows: &FlowControl,
        mut edges: Vec<NodeIndex>,
        bridge: NodeIndex,
    ) -> NodeIndex {
        edges.push(bridge);
        self.graph.node(format!("flows.{name}"), Box::new(Flows::new(table, flows.table())), &edges)
    }

    /// Adds the input for packets of a bridge's own. `edges` lead to the outputs of its ports.
    fn own_packets(&mut self, name: &str, part: &PartSpec, bindings: &Arc<BindingTable>, edges: &[NodeIndex]) {
        let ports = part.ports.iter().map(|port| port.end.index()).collect();
        let own = self.graph.node(format!("own.{name}"), Box::new(BindingOutputs::new(ports)), edges);
        self.graph.input(Arc::new(BindingAgent::new(Arc::clone(bindings), name)), own);
    }

    fn unconnected(&mut self) -> NodeIndex {
        let graph = &mut *self.graph;
        *self
            .unconnected
            .get_or_insert_with(|| graph.node("unconnected", Box::new(Sink::new(Reason::NotConnected)), &[]))
    }

    /// Adds the inputs of an underlay: its port, and packets of its own.
    fn receive(&mut self, carrier: &Carrier<'_>, entrances: &[Entrance<'_>], shared: &[SharedPort]) {
        let name = &carrier.spec.settings.name;
        let end = &carrier.spec.carrier;
        let is_own = |end: &EndSpec| end.tunnel.as_ref().is_some_and(|tunnel| tunnel.underlay == *name);
        let tunnels = entrances.iter().filter(|entrance| is_own(entrance.tunnel));
        let live = tunnels.filter_map(|entrance| Some((entrance, self.live.tunnel(entrance.tunnel)?)));
        let (tunnels, table): (Vec<_>, Vec<_>) = live.unzip();
        let edges = |node: fn(&Entrance<'_>) -> NodeIndex| -> Vec<NodeIndex> {
            iter::once(carrier.output).chain(tunnels.iter().map(|entrance| node(entrance))).collect()
        };
        let indexes: Vec<_> = tunnels.iter().map(|entrance| entrance.tunnel.index()).collect();
        if end.is_received_by(self.worker) {
            let decap = Decap::new(Arc::clone(&carrier.underlay), Tunnels::new(table));
            let decap = self.graph.node(format!("decap.{name}"), Box::new(decap), &edges(|entrance| entrance.first));
            let shared = shared.iter().find(|shared| shared.port == end.index());
            let first = match shared.zip(carrier.spec.settings.vlan.and_then(VlanId::new)) {
                Some((shared, vlan)) => {
                    self.graph.node(format!("split.{name}"), Box::new(VlanSplit::new(vlan)), &[shared.first, decap])
                }
                None => decap,
            };
            self.input(end, Arc::clone(&carrier.port), first);
        }
        let own = OwnPackets::new(end.index(), indexes);
        let own = self.graph.node(format!("own.{name}"), Box::new(own), &edges(|entrance| entrance.network));
        self.graph.input(carrier.underlay.agent(Arc::clone(&carrier.port)), own);
    }
}

/// Adds the outputs of a part's ports and of its nodes.
struct Ends<'a> {
    live: &'a LiveParts<'a>,
    worker: usize,
    carriers: &'a [Carrier<'a>],
    waits: bool,
}

impl Ends<'_> {
    /// Adds the output of a port.
    fn output(&self, graph: &mut Graph, end: &EndSpec) -> NodeIndex {
        let output = if let Some(encap) = self.encap(graph, end) {
            encap
        } else {
            let output = graph.output(self.port(end), self.waits);
            if !end.expedited.is_empty() {
                graph.expedite(output, end.expedited);
            }
            output
        };
        self.limited(graph, end, output)
    }

    /// Limits an output to the rate of its port.
    fn limited(&self, graph: &mut Graph, end: &EndSpec, output: NodeIndex) -> NodeIndex {
        match self.live.rate("rate-out", end) {
            None => output,
            Some(rate) if end.tunnel.is_some() => {
                graph.node(format!("rate-out.{}", end.name), Box::new(Police::new(rate, end.index())), &[output])
            }
            Some(rate) => {
                graph.limit_output(output, rate);
                output
            }
        }
    }

    /// Adds an output that delivers copies to a port.
    fn copy_output(&self, graph: &mut Graph, end: &EndSpec) -> NodeIndex {
        let output = self.encap(graph, end).unwrap_or_else(|| graph.copy_output(self.port(end)));
        self.limited(graph, end, output)
    }

    fn port(&self, end: &EndSpec) -> Arc<dyn Port> {
        self.live.ports[&end.index()].for_worker(self.worker)
    }

    /// Adds the node that sends packets by a tunnel.
    fn encap(&self, graph: &mut Graph, end: &EndSpec) -> Option<NodeIndex> {
        let settings = end.tunnel.as_ref()?;
        let carrier = self.carriers.iter().find(|carrier| carrier.spec.settings.name == settings.underlay)?;
        let encap = Encap::new(Arc::clone(&carrier.gather), self.live.tunnel(end)?);
        Some(graph.node(format!("encap.{}", end.name), Box::new(encap), &[carrier.output]))
    }
}
