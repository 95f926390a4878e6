//! Puts the configured nodes of a domain's ports into a worker's graph.
//!
//! `nodes` of a port comes before the patch or bridge, `egress-nodes` behind it. A node's further
//! edges lead to outputs that deliver copies ([`Graph::copy_output`]) or to tunnels. The packets that they
//! deliver depend on when they run:
//!
//! * Usually an output for copies runs right after its node, before the next node of the list. So
//!   its port gets the packet as it is at that place.
//! * In a patch with `full = "wait"` it runs after the patch's own outputs. Before that, it is not
//!   known which packets leave their ring in this turn. So each packet is copied once, in that
//!   turn.
//!
//! In a bridge, nodes in `egress-nodes` that may change packets are enclosed ([`Graph::enclose`]): the
//! outputs of other ports of a flood do not see the changes. In a patch, a packet has one output
//! only.
//!
//! Each place of a node in the graph has outputs of its own. So each packet reaches such an output
//! at most once, and the output's batch cannot overflow. A packet that passes two mirrors to one
//! port arrives there twice.

use std::collections::VecDeque;
use std::sync::Arc;

use straightline_graph::{Graph, NodeIndex};

use crate::plan::{EndSpec, NodeSpec, PortSpec};

/// Builds the lists of nodes of one domain's ports into a graph, from the last node that a packet
/// passes to the first.
pub(crate) struct NodeChains<'a, C> {
    /// Adds the output that delivers copies to a port.
    copies: C,
    /// Outputs for copies that were built before the domain's own outputs. Each list has its own,
    /// in the order in which the list needs them.
    late: Option<Vec<(List<'a>, VecDeque<NodeIndex>)>>,
    /// Ingress lists that are built already, with their ends. Ports with equal lists share one.
    ingress: Vec<(&'a Arc<[NodeSpec]>, NodeIndex, NodeIndex)>,
}

/// A list of nodes, by its owner. Ports with equal `nodes` share one list.
#[derive(Clone, Copy)]
enum List<'a> {
    Ingress(&'a Arc<[NodeSpec]>),
    Egress(&'a PortSpec),
}

impl PartialEq for List<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (List::Ingress(nodes), List::Ingress(others)) => nodes == others,
            (List::Egress(port), List::Egress(other)) => port.end.index() == other.end.index(),
            _ => false,
        }
    }
}

impl<'a> List<'a> {
    fn nodes(self) -> &'a [NodeSpec] {
        match self {
            List::Ingress(nodes) => nodes,
            List::Egress(port) => &port.egress,
        }
    }
}

impl<'a, C: Fn(&mut Graph, &EndSpec) -> NodeIndex> NodeChains<'a, C> {
    /// Creates the builder for a domain whose packets never stay in their rings.
    pub(crate) fn new(copies: C) -> Self {
        NodeChains { copies, late: None, ingress: Vec::new() }
    }

    /// Creates the builder for a domain whose packets may stay in their rings (`full = "wait"`). It
    /// adds the outputs for copies here, before the domain's own outputs. `egress` lists the
    /// domain's ports, `ingress` those whose packets this worker receives.
    pub(crate) fn waiting(
        copies: C,
        graph: &mut Graph,
        egress: &'a [PortSpec],
        ingress: impl Iterator<Item = &'a PortSpec>,
    ) -> Self {
        let mut lists: Vec<List<'_>> = egress.iter().map(List::Egress).collect();
        for port in ingress {
            let list = List::Ingress(&port.ingress);
            // A list in front of groups, or of the limit of messages, is not shared.
            if port.connections.is_some() || port.limits_messages || !lists.contains(&list) {
                lists.push(list);
            }
        }
        let mut chains = Self::new(copies);
        let mut late = Vec::new();
        for list in lists {
            let outputs = list.nodes().iter().rev().flat_map(|node| &node.outputs);
            late.push((list, outputs.map(|to| (chains.copies)(graph, to)).collect()));
        }
        chains.late = Some(late);
        chains
    }

    /// Builds the nodes that packets to `port` pass before `end`, its output. Returns the first.
    pub(crate) fn egress(&mut self, graph: &mut Graph, port: &'a PortSpec, end: NodeIndex) -> NodeIndex {
        self.build(graph, List::Egress(port), end)
    }

    /// Builds the nodes that packets from `port` pass before `end`: the patch, the bridge, or what is in
    /// front of it. Returns the first.
    pub(crate) fn ingress(&mut self, graph: &mut Graph, port: &'a PortSpec, end: NodeIndex) -> NodeIndex {
        let nodes = &port.ingress;
        if let Some(&(_, _, first)) = self.ingress.iter().find(|(known, to, _)| *known == nodes && *to == end) {
            return first;
        }
        let first = self.build(graph, List::Ingress(nodes), end);
        self.ingress.push((nodes, end, first));
        first
    }

    /// Builds a list, the last node first: a graph is built from the end.
    fn build(&mut self, graph: &mut Graph, list: List<'a>, end: NodeIndex) -> NodeIndex {
        let mut next = end;
        for NodeSpec { node, outputs } in list.nodes().iter().rev() {
            let mut edges = vec![next];
            for to in outputs {
                let mut late = self.late.iter_mut().flatten();
                let late = late.find(|(known, outputs)| *known == list && !outputs.is_empty());
                let output = late.and_then(|(_, outputs)| outputs.pop_front());
                edges.push(output.unwrap_or_else(|| (self.copies)(graph, to)));
            }
            next = graph.node(format!("node.{}", node.name), node.another(), &edges);
        }
        next
    }
}
