//! Rules that hold for any configuration, and for any change to another one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use straightline_api::Changed;
use straightline_config::Group;
use straightline_wire::{Dscp, DscpSet};

use super::*;

/// A valid configuration of few names, so that two of them have much in common.
fn configs() -> impl Strategy<Value = Config> {
    let port = (any::<bool>(), 0..3_u16, any::<bool>(), 1..5_u16, (any::<bool>(), 0..5_u8));
    let ports = prop::collection::vec(port, 8);
    // For each port, its network. 0 and 1: a patch; 2 and 3: a bridge; other values: none.
    let joins = prop::collection::vec(0..6_usize, 8);
    // For each underlay, whether it is there, its port's queues, its MTU and that of its port.
    let underlay = (any::<bool>(), 1..4_u16, 0..2_u16, 0..2_u16);
    // For each tunnel, its underlay (the third is not there), its network and its key.
    let tunnel = (0..3_usize, 0..6_usize, 1..3_u32);
    let tunnels = (prop::collection::vec(underlay, 2), prop::collection::vec(tunnel, 4));
    let rest = (any::<[bool; 2]>(), 1..3_u32, 0..2_usize);
    (ports, joins, tunnels, rest).prop_map(|(ports, mut joins, (underlays, tunnels), (waits, ageing, which))| {
        let mut config = config(0, &[0, 1, 2]);
        for (n, (there, mtu, private, queues, (passes, _))) in ports.iter().enumerate().filter(|(_, port)| port.0) {
            let mut port = PortConfig::vhost_user(format!("p{n}"), format!("/s{n}"));
            port.mtu = 1500 + mtu / 2;
            let kind = port.kind.as_vhost_user_mut().expect("a vhost-user port");
            kind.queues = Some(*queues);
            kind.perms = if *private && *there { 0o600 } else { 0o660 };
            port.nodes = if *passes { vec!["n".to_owned()] } else { Vec::new() };
            port.source_check = (mtu % 2 == 1).then(SourceCheckConfig::default);
            port.dscp = Dscp::new(if *private { 46 } else { 64 });
            port.expedited = if *passes { port.dscp.into_iter().collect() } else { DscpSet::default() };
            port.groups = if mtu % 3 == 1 { vec!["g".to_owned()] } else { Vec::new() };
            port.trusted = *private;
            config.ports.push(port);
        }
        for (at, (_, queues, mtu, of_port)) in underlays.iter().enumerate().filter(|(_, underlay)| underlay.0) {
            let mut port = PortConfig::vhost_user(format!("n{at}"), format!("/n{at}"));
            port.kind.as_vhost_user_mut().expect("a vhost-user port").queues = Some(*queues);
            port.mtu = 1501 + of_port;
            config.underlays.push(UnderlayConfig { mtu: 1500 + mtu, ..self::underlay(&format!("u{at}"), &port.name) });
            config.ports.push(port);
        }
        for (n, (at, joined, key)) in tunnels.iter().enumerate() {
            let name = format!("u{at}");
            if config.underlay_index(&name).is_some() {
                config.ports.push(self::tunnel(&format!("t{n}"), &name, *key));
            }
            joins.push(*joined);
        }
        let members = |network: usize| -> Vec<String> {
            let joined = joins.iter().enumerate().filter(|(_, at)| **at == network);
            let names = joined.map(|(n, _)| if n < 8 { format!("p{n}") } else { format!("t{}", n - 8) });
            names.filter(|name| config.port_index(name).is_some()).collect()
        };
        let is_tunnel = |name: &String| name.starts_with('t');
        let patches = (0..2).filter_map(|at| {
            let ports: Vec<_> = members(at).into_iter().take(2).collect();
            let full = if waits[at] && !ports.iter().any(is_tunnel) { WhenFull::Wait } else { WhenFull::Drop };
            let ports = ports.try_into().ok()?;
            Some(PatchConfig { name: format!("x{at}"), ports, full })
        });
        let bridges = (2..4).map(members).enumerate().filter(|(_, ports)| !ports.is_empty());
        let bridges =
            bridges.map(|(at, ports)| BridgeConfig { ageing, limit: 16, ..BridgeConfig::new(format!("b{at}"), ports) });
        let patches = patches.collect();
        let bridges = bridges.collect();
        let rule = if ageing % 2 == 0 { "tcp 80 from any" } else { "tcp 443 from any" };
        let groups = vec![Group::parse("g", &[rule], &[]).expect("a rule")];
        config = Config { patches, bridges, nodes: vec![node(which)], groups, ..config };
        // The first port without a network receives copies from some of the others.
        let joined = |n: usize| {
            config.patches.iter().any(|patch| patch.ports.contains(&config.ports[n].name)) || joins_bridge(&config, n)
        };
        let is_carrier = |name: &String| name.starts_with('n');
        if let Some(to) = (0..config.ports.len()).find(|&n| !joined(n) && !is_carrier(&config.ports[n].name)) {
            config.ports[to].nodes.clear();
            let to = config.ports[to].name.clone();
            if is_tunnel(&to) {
                config.patches.iter_mut().for_each(|patch| patch.full = WhenFull::Drop);
            }
            for port in config.ports.iter_mut().filter(|port| port.name != to && !is_carrier(&port.name)) {
                let n: usize = port.name[1..].parse().expect("its number");
                port.rules.isolated = ports[n].4.1 == 0;
                port.share = if ports[n].4.1 == 1 { 2 } else { 1 };
                match ports[n].4.1 {
                    0 => port.nodes.push("m".to_owned()),
                    1 => port.egress_nodes.push("m".to_owned()),
                    _ => {}
                }
            }
            config.nodes.push(mirror(&to));
        }
        config
    })
}

fn joins_bridge(config: &Config, port: usize) -> bool {
    config.bridges.iter().any(|bridge| bridge.ports.contains(&config.ports[port].name))
}

/// The ports that run, by name.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    ports: BTreeMap<String, (PortConfig, PortPlan)>,
    underlays: BTreeMap<String, UnderlayConfig>,
    patches: BTreeMap<String, PatchConfig>,
    bridges: BTreeMap<String, BridgeConfig>,
    nodes: Vec<NodeConfig>,
    groups: Vec<Group>,
}

impl Model {
    fn of(config: &Config, plan: &Plan) -> Model {
        let ports = config.ports.iter().zip(&plan.ports);
        Model {
            ports: ports.map(|(port, place)| (port.name.clone(), (port.clone(), place.clone()))).collect(),
            underlays: config.underlays.iter().map(|of| (of.name.clone(), of.clone())).collect(),
            patches: config.patches.iter().map(|patch| (patch.name.clone(), patch.clone())).collect(),
            bridges: config.bridges.iter().map(|bridge| (bridge.name.clone(), bridge.clone())).collect(),
            nodes: config.nodes.clone(),
            groups: config.groups.clone(),
        }
    }

    fn apply(&mut self, steps: &[Step], old: &Config, new: &Config, plan: &Plan) {
        for step in steps {
            match step {
                Step::PortAdded(at) => {
                    let port = &new.ports[*at];
                    assert!(self.ports.insert(port.name.clone(), (port.clone(), plan.ports[*at].clone())).is_none());
                }
                Step::PortRemade { old: was, new: is, .. } | Step::PortMoved { old: was, new: is, .. } => {
                    self.ports.remove(&old.ports[*was].name).expect("it ran");
                    let port = &new.ports[*is];
                    self.ports.insert(port.name.clone(), (port.clone(), plan.ports[*is].clone()));
                }
                Step::PortNodes { new: is } => {
                    let port = self.ports.get_mut(&new.ports[*is].name).expect("it runs");
                    port.0.nodes.clone_from(&new.ports[*is].nodes);
                    port.0.egress_nodes.clone_from(&new.ports[*is].egress_nodes);
                }
                Step::PortSourceCheck { new: is } => {
                    let port = self.ports.get_mut(&new.ports[*is].name).expect("it runs");
                    port.0.source_check.clone_from(&new.ports[*is].source_check);
                }
                Step::PortShare { new: is } => {
                    let from = &new.ports[*is];
                    self.ports.get_mut(&from.name).expect("it runs").0.share = from.share;
                }
                Step::PortGroups { new: is } => {
                    let from = &new.ports[*is];
                    let port = &mut self.ports.get_mut(&from.name).expect("it runs").0;
                    (port.connections, port.trusted) = (from.connections, from.trusted);
                    port.groups.clone_from(&from.groups);
                }
                Step::PortClasses { new: is, .. } => {
                    let from = &new.ports[*is];
                    let port = &mut self.ports.get_mut(&from.name).expect("it runs").0;
                    (port.dscp, port.expedited) = (from.dscp, from.expedited);
                }
                Step::PortRate { new: is, key, .. } => {
                    let from = &new.ports[*is];
                    let port = self.ports.get_mut(&from.name).expect("it runs");
                    match *key {
                        "rate-in" => port.0.rate_in.clone_from(&from.rate_in),
                        "rate-out" => port.0.rate_out.clone_from(&from.rate_out),
                        key => panic!("{key} is no rate"),
                    }
                }
                Step::Group(name, Changed::Changed) => {
                    let group = new.groups.iter().find(|group| group.name == *name).expect("it is there");
                    self.groups = vec![group.clone()];
                }
                // What is the same in all configurations.
                Step::SwitchKey(key) => panic!("{key} has changed"),
                Step::Group(name, _) | Step::Set(name, _) => panic!("{name} came or went"),
                Step::Firewall => panic!("the firewall has changed"),
                Step::PortRules { new: is } => {
                    let port = self.ports.get_mut(&new.ports[*is].name).expect("it runs");
                    port.0.rules.clone_from(&new.ports[*is].rules);
                }
                Step::PortRemoved { old: was } => drop(self.ports.remove(&old.ports[*was].name).expect("it ran")),
                Step::UnderlayAdded(at) | Step::UnderlayChanged { new: at, .. } => {
                    drop(self.underlays.insert(new.underlays[*at].name.clone(), new.underlays[*at].clone()));
                }
                Step::UnderlayRemoved { old: was } => {
                    drop(self.underlays.remove(&old.underlays[*was].name).expect("it ran"));
                }
                Step::PatchAdded(at) | Step::PatchChanged { new: at, .. } => {
                    drop(self.patches.insert(new.patches[*at].name.clone(), new.patches[*at].clone()));
                }
                Step::PatchRemoved { old: was } => {
                    drop(self.patches.remove(&old.patches[*was].name).expect("it ran"));
                }
                Step::BridgeAdded(at) | Step::BridgeChanged { new: at, .. } => {
                    drop(self.bridges.insert(new.bridges[*at].name.clone(), new.bridges[*at].clone()));
                }
                Step::BridgeRemoved { old: was } => {
                    drop(self.bridges.remove(&old.bridges[*was].name).expect("it ran"));
                }
                Step::NodeAdded(at) => self.nodes.push(new.nodes[*at].clone()),
                Step::NodeChanged { old: was, new: is } => self.nodes[*was] = new.nodes[*is].clone(),
                Step::NodeRemoved { old: was } => drop(self.nodes.remove(*was)),
            }
        }
    }
}

/// Checks the rules that hold for every plan.
fn check(config: &Config, plan: &Plan) {
    let mut slots: Vec<_> = plan.ports.iter().map(|place| place.slot).collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), config.ports.len(), "each port has a slot of its own");
    let mut served = vec![0; config.ports.len()];
    for (at, worker) in plan.workers.iter().enumerate() {
        for domain in &worker.domains {
            for port in domain.ports(config) {
                let place = &plan.ports[port];
                served[port] += place.assignment.rx_workers.iter().filter(|worker| **worker == at).count();
                assert_eq!(place.waits, domain.waits(config));
            }
        }
        for (port, place) in plan.ports.iter().enumerate() {
            let is_here = worker.domains.iter().any(|domain| domain.ports(config).contains(&port));
            let assignment = &place.assignment;
            assert!(is_here || !assignment.rx_workers.contains(&at));
            let copies = worker.domains.iter().any(|domain| domain.copy_ports(config).contains(&port));
            assert!(is_here || copies || !assignment.delivering.contains(&at));
        }
    }
    for (port, served) in served.into_iter().enumerate() {
        let assignment = &plan.ports[port].assignment;
        let pairs = config.ports[port].kind.queues();
        if config.ports[port].kind.as_tunnel().is_some() {
            let carrier = config.carrier(port).expect("the port of its underlay");
            assert_eq!(*assignment, plan.ports[carrier].assignment, "a tunnel has no queues of its own");
            continue;
        }
        assert_eq!(
            (served, assignment.rx_workers.len(), assignment.tx_workers.len()),
            (pairs, pairs, pairs),
            "each pair, once"
        );
        assert!(assignment.tx_workers.iter().all(|owner| assignment.delivering.contains(owner)), "{assignment:?}");
        let distinct: std::collections::BTreeSet<_> = assignment.delivering.iter().collect();
        assert_eq!(distinct.len(), assignment.delivering.len(), "{assignment:?}");
        let is_patched = domains(config)
            .iter()
            .any(|domain| matches!(domain, ForwardingDomain::Patch(_)) && domain.ports(config).contains(&port));
        if is_patched {
            // Each worker that delivers has a ring of its own.
            assert!(
                assignment.delivering.iter().all(|worker| assignment.tx_workers.contains(worker)),
                "{assignment:?}"
            );
        }
    }
    // Each worker that has packets for a port is one of the port's delivering workers.
    for domain in plan
        .workers
        .iter()
        .flat_map(|worker| &worker.domains)
        .filter(|d| !matches!(d, ForwardingDomain::Unconnected(_)))
    {
        let ports = domain.ports(config);
        for (&from, &to) in ports.iter().flat_map(|from| ports.iter().map(move |to| (from, to))) {
            let receiving = &plan.ports[from].assignment.rx_workers;
            assert!(from == to || receiving.iter().all(|worker| plan.ports[to].assignment.delivering.contains(worker)));
        }
    }
    // The workers that have copies for a port deliver to it.
    let reached = reached_ports(config);
    for (port, place) in plan.ports.iter().enumerate() {
        let delivers = |to: &String, worker: &usize| {
            let to = config.port_index(to).expect("it is there");
            plan.ports[to].assignment.delivering.contains(worker)
        };
        for to in config.ingress_nodes(port).flat_map(NodeConfig::outputs) {
            assert!(place.assignment.rx_workers.iter().all(|worker| delivers(to, worker)), "{plan:?}");
        }
        let egress = config.egress_nodes(port).filter(|_| reached.contains(config.ports[port].name.as_str()));
        for to in egress.flat_map(NodeConfig::outputs) {
            assert!(place.assignment.delivering.iter().all(|worker| delivers(to, worker)), "{plan:?}");
        }
    }
}

proptest! {
    /// A change to another configuration gives the same plan as a start with that configuration.
    /// Parts that both have in common stay as they are.
    #[test]
    fn the_difference_leads_from_one_to_the_other(a in configs(), b in configs(), c in configs()) {
        let mut now = (a.clone(), plan(&a, None));
        check(&now.0, &now.1);
        for next in [b, c] {
            let (old, old_plan) = now;
            let before = Before { config: &old, plan: &old_plan };
            let new_plan = plan(&next, Some(before));
            check(&next, &new_plan);
            let steps = difference(before, &next, &new_plan);
            let mut model = Model::of(&old, &old_plan);
            model.apply(&steps, &old, &next, &new_plan);
            prop_assert_eq!(&model, &Model::of(&next, &new_plan));
            for (port, place) in new_plan.ports.iter().enumerate() {
                match before.same_port(&next, port) {
                    Some(at) => prop_assert_eq!(old_plan.ports[at].slot, place.slot),
                    None => prop_assert!(!before.plan.ports.iter().any(|old| old.slot == place.slot)),
                }
            }
            for (at, bridge) in next.bridges.iter().enumerate().filter(|(_, bridge)| old.bridges.contains(bridge)) {
                // Nothing of the domain changes, so its packets must keep passing.
                let members = ForwardingDomain::Bridge(at).ports(&next);
                let is_same = |port: usize| {
                    before.same_port(&next, port).is_some_and(|was| {
                        let copied = |config: &Config, plan: &Plan, port: usize| -> Vec<PortPlan> {
                            let nodes = config.ingress_nodes(port).chain(config.egress_nodes(port));
                            let ports = nodes.flat_map(NodeConfig::outputs).filter_map(|port| config.port_index(port));
                            ports.map(|port| plan.ports[port].clone()).collect()
                        };
                        old.ingress_nodes(was).eq(next.ingress_nodes(port))
                            && old.egress_nodes(was).eq(next.egress_nodes(port))
                            && copied(&old, &old_plan, was) == copied(&next, &new_plan, port)
                            && old.ports[was].source_check == next.ports[port].source_check
                            && old.ports[was].dscp == next.ports[port].dscp
                            && old.ports[was].groups == next.ports[port].groups
                    })
                };
                if members.iter().all(|&port| is_same(port)) {
                    for worker in 0..new_plan.workers.len() {
                        let calm = undisturbed(before, &next, &new_plan, worker);
                        let serves = new_plan.workers[worker].domains.contains(&ForwardingDomain::Bridge(at));
                        prop_assert_eq!(calm.contains(&ForwardingDomain::Bridge(at)), serves, "{}", bridge.name);
                    }
                }
            }
            let same = crate::tables::same(&old, &old_plan, &next, &new_plan);
            for (tunnel, port) in next.ports.iter().enumerate().filter(|(_, port)| port.kind.as_tunnel().is_some()) {
                // The port of a tunnel and its table live and end together.
                let stays = before.same_port(&next, tunnel).is_some();
                prop_assert_eq!(same.contains(&format!("tunnel:{}", port.name)), stays);
                let carrier = next.carrier(tunnel).expect("the port of its underlay");
                let is_here = |domain: &ForwardingDomain, port| domain.ports(&next).contains(&port);
                prop_assert!(domains(&next).iter().all(|domain| is_here(domain, tunnel) == is_here(domain, carrier)));
            }
            for underlay in &next.underlays {
                let is_other = |step: &Step| match step {
                    Step::UnderlayAdded(at) | Step::UnderlayChanged { new: at, .. } => next.underlays[*at].name == underlay.name,
                    _ => false,
                };
                let stays = !steps.iter().any(is_other);
                prop_assert_eq!(same.contains(&format!("underlay:{}", underlay.name)), stays);
            }
            for worker in 0..new_plan.workers.len() {
                for domain in undisturbed(before, &next, &new_plan, worker) {
                    for underlay in domain.underlays(&next) {
                        let table = format!("underlay:{}", next.underlays[underlay].name);
                        prop_assert!(same.contains(&table));
                    }
                    for part in domain.parts(&next).into_iter().filter(|part| part.name(&next).0 == "bridge") {
                        let table = format!("bridge:{}", part.name(&next).1);
                        prop_assert!(same.contains(&table));
                    }
                    let had = &old_plan.workers[worker].domains;
                    prop_assert!(had.iter().any(|was| was.name(&old) == domain.name(&next)));
                    for port in domain.ports(&next) {
                        let remade = |step: &Step| matches!(step, Step::PortAdded(at) | Step::PortRemade { new: at, .. } if *at == port);
                        prop_assert!(!steps.iter().any(remade));
                        let was = old.port_index(&next.ports[port].name).expect("it is not new");
                        prop_assert!(old.ingress_nodes(was).eq(next.ingress_nodes(port)));
                        prop_assert!(old.egress_nodes(was).eq(next.egress_nodes(port)));
                        prop_assert_eq!(&old.ports[was].source_check, &next.ports[port].source_check);
                        prop_assert_eq!(old.ports[was].dscp, next.ports[port].dscp);
                        prop_assert_eq!(old.ports[was].groups.is_empty(), next.ports[port].groups.is_empty());
                    }
                }
            }
            now = (next, new_plan);
        }
    }
}
