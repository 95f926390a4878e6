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
//! Each place of a node in the graph has outputs of its own. So each packet reaches such an output
//! at most once, and the output's batch cannot overflow. A packet that passes two mirrors to one
//! port arrives there twice.

use std::collections::VecDeque;

use straightline_graph::{Graph, NodeIndex};

use crate::config::{Config, NodeConfig};

/// Builds the lists of nodes of one domain's ports into a graph, from the last node that a packet
/// passes to the first.
pub(crate) struct NodeChains<'a, C> {
    config: &'a Config,
    /// Adds the output that delivers copies to a port, by the port's index in the configuration.
    copies: C,
    /// Outputs for copies that were built before the domain's own outputs. Each list has its own,
    /// in the order in which the list needs them.
    late: Option<Vec<(List<'a>, VecDeque<NodeIndex>)>>,
    /// Ingress lists that are built already. Ports with equal lists share one.
    ingress: Vec<(&'a [String], NodeIndex)>,
}

/// A list of nodes, by its owner. Ports with equal `nodes` share one list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List<'a> {
    Ingress(&'a [String]),
    Egress(usize),
}

impl<'a, C: Fn(&mut Graph, usize) -> NodeIndex> NodeChains<'a, C> {
    /// Creates the builder for a domain whose packets never stay in their rings.
    pub(crate) fn new(config: &'a Config, copies: C) -> Self {
        NodeChains { config, copies, late: None, ingress: Vec::new() }
    }

    /// Creates the builder for a domain whose packets may stay in their rings (`full = "wait"`). It
    /// adds the outputs for copies here, before the domain's own outputs. `egress` lists the
    /// domain's ports, `ingress` those whose packets this worker receives.
    pub(crate) fn waiting(
        config: &'a Config,
        copies: C,
        graph: &mut Graph,
        egress: &[usize],
        ingress: impl Iterator<Item = usize>,
    ) -> Self {
        let mut lists: Vec<List<'_>> = egress.iter().map(|&port| List::Egress(port)).collect();
        for port in ingress {
            let list = List::Ingress(&config.ports[port].nodes);
            if !lists.contains(&list) {
                lists.push(list);
            }
        }
        let mut chains = Self::new(config, copies);
        let mut late = Vec::new();
        for list in lists {
            let outputs = chains.nodes(list).into_iter().flat_map(NodeConfig::outputs);
            late.push((list, outputs.map(|to| chains.copy_output(graph, to)).collect()));
        }
        chains.late = Some(late);
        chains
    }

    /// Builds the nodes that packets to `port` pass before `end`, its output. Returns the first.
    pub(crate) fn egress(&mut self, graph: &mut Graph, port: usize, end: NodeIndex) -> NodeIndex {
        self.build(graph, List::Egress(port), end)
    }

    /// Builds the nodes that packets from `port` pass before `end`, the patch or bridge. Returns
    /// the first.
    pub(crate) fn ingress(&mut self, graph: &mut Graph, port: usize, end: NodeIndex) -> NodeIndex {
        let names = self.config.ports[port].nodes.as_slice();
        if let Some(&(_, first)) = self.ingress.iter().find(|(known, _)| *known == names) {
            return first;
        }
        let first = self.build(graph, List::Ingress(names), end);
        self.ingress.push((names, first));
        first
    }

    fn build(&mut self, graph: &mut Graph, list: List<'a>, end: NodeIndex) -> NodeIndex {
        let mut next = end;
        for node in self.nodes(list) {
            let mut edges = vec![next];
            for to in node.outputs() {
                let late = self.late.iter_mut().flatten().find(|(known, _)| *known == list);
                let output = late.and_then(|(_, outputs)| outputs.pop_front());
                edges.push(output.unwrap_or_else(|| self.copy_output(graph, to)));
            }
            next = graph.node(format!("node.{}", node.name), node.another(), &edges);
        }
        next
    }

    /// Returns the nodes of a list, the last one first: a graph is built from the end.
    fn nodes(&self, list: List<'_>) -> Vec<&'a NodeConfig> {
        match list {
            List::Egress(port) => self.config.egress_nodes(port).rev().collect(),
            List::Ingress(names) => self.config.nodes_of(names).rev().collect(),
        }
    }

    fn copy_output(&self, graph: &mut Graph, to: &str) -> NodeIndex {
        let port = self.config.port_index(to).expect("a node with an output to no port is in no list");
        (self.copies)(graph, port)
    }
}
