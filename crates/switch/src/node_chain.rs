//! The configured nodes of a domain's ports, put into a worker's graph.
//!
//! `nodes` of a port stands before the patch or bridge, `egress-nodes` behind it. A node's further edges lead to outputs
//! that deliver copies ([`Graph::copy_output`]). Where these outputs run decides what they see:
//!
//! * As a rule an output for copies runs right after its node, before the next node of the list. So its port gets the
//!   packet as it was at that place.
//! * In a patch with `full = "wait"` it runs after the patch's own outputs. Only then it is known which packets leave
//!   their ring in this turn, and each packet is copied exactly once, in that turn.
//!
//! Each place of a node in the graph has outputs of its own. So a packet comes by each of them at most once, and their
//! batches cannot overflow. A packet that passes two mirrors to one port arrives there twice.

use std::collections::VecDeque;
use std::sync::Arc;

use straightline_graph::{Graph, NodeIndex};
use straightline_port::Port;

use crate::config::{Config, NodeConfig};

/// Builds the lists of nodes of one domain's ports into a graph, from the last node that a packet
/// passes to the first.
pub(crate) struct NodeChains<'a, P> {
    config: &'a Config,
    /// A port as the graph's worker serves it, by its index in the configuration.
    port: P,
    /// Outputs for copies that were built before the domain's own outputs, each list's in the order in which the list
    /// is built.
    late: Option<Vec<(List<'a>, VecDeque<NodeIndex>)>>,
    /// Ingress lists that are built already. Ports with equal lists share one.
    ingress: Vec<(&'a [String], NodeIndex)>,
}

/// One list of nodes, by what it belongs to. Ports with equal `nodes` have one list in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List<'a> {
    Ingress(&'a [String]),
    Egress(usize),
}

impl<'a, P: Fn(usize) -> Arc<dyn Port>> NodeChains<'a, P> {
    /// Lists for a domain whose packets never stay in their rings.
    pub(crate) fn new(config: &'a Config, port: P) -> Self {
        NodeChains { config, port, late: None, ingress: Vec::new() }
    }

    /// Lists for a domain whose packets may stay in their rings (`waits`). The outputs for copies are built here, before
    /// the domain's own. `egress` names the domain's ports, `ingress` those whose packets this worker receives.
    pub(crate) fn waiting(
        config: &'a Config,
        port: P,
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
        let mut chains = Self::new(config, port);
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

    /// Builds the nodes that packets from `port` pass before `end`, the patch or bridge. Returns the first.
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

    /// The nodes of a list, the last first: a graph is built from the end.
    fn nodes(&self, list: List<'_>) -> Vec<&'a NodeConfig> {
        match list {
            List::Egress(port) => self.config.egress_nodes(port).rev().collect(),
            List::Ingress(names) => self.config.nodes_of(names).rev().collect(),
        }
    }

    fn copy_output(&self, graph: &mut Graph, to: &str) -> NodeIndex {
        let port = self.config.port_index(to).expect("a node with an output to no port is in no list");
        graph.copy_output((self.port)(port))
    }
}
