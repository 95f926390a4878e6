use std::collections::BTreeMap;

use std::sync::OnceLock;

use proptest::prelude::*;
use straightline_graph::{Next, Node};
use straightline_packet::{Batch, Packets};
use straightline_port::vhost_user::MAX_QUEUE_PAIRS;

use super::*;
use crate::config::{
    Address, BridgeConfig, NodeConfig, PatchConfig, PortConfig, PortKind, SourceCheckConfig, SwitchConfig, TunnelKind,
    TunnelSettings, UnderlayConfig,
};

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
    BridgeConfig { name: "lan".to_owned(), ports, ageing: 300, limit: 16, statics: Vec::new() }
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

#[test]
fn without_cpus_there_is_one_worker() {
    let plan = plan(&config(2, &[]), None);
    assert_eq!(plan.workers.len(), 1);
    assert_eq!(plan.workers[0].cpu, None);
    assert_eq!(plan.workers[0].domains, [ForwardingDomain::Unconnected(0), ForwardingDomain::Unconnected(1)]);
}

#[test]
fn a_domain_stays_together_and_the_load_is_shared() {
    let mut config = config(8, &[3, 5]);
    config.patches = vec![patch("p0", "p1"), patch("p2", "p3")];
    config.bridges = vec![bridge(&["p4", "p5", "p6", "p7"])];
    let plan = plan(&config, None);
    assert_eq!(plan.workers[0].domains, [ForwardingDomain::Bridge(0)]);
    assert_eq!(plan.workers[1].domains, [ForwardingDomain::Patch(0), ForwardingDomain::Patch(1)]);
    let workers = plan.ports.iter().map(|place| place.only_worker());
    assert_eq!(workers.collect::<Option<Vec<_>>>().as_deref(), Some(&[1, 1, 1, 1, 0, 0, 0, 0][..]));
    assert_eq!(
        plan.ports.iter().map(|place| place.waits).collect::<Vec<_>>(),
        [true, true, true, true, false, false, false, false]
    );
    assert_eq!(plan.ports.iter().map(|place| place.slot).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// Ports with these numbers of queue pairs, all in patches of two.
fn patched(pairs: &[u16], workers: &[usize]) -> Config {
    let mut config = config(pairs.len(), workers);
    for (port, &pairs) in config.ports.iter_mut().zip(pairs) {
        let kind = port.kind.as_vhost_user_mut().expect("a vhost-user port");
        kind.queues = Some(pairs);
    }
    config.patches =
        (0..pairs.len() / 2).map(|at| patch(&format!("p{}", 2 * at), &format!("p{}", 2 * at + 1))).collect();
    config
}

fn assignment(rx: &[usize], tx: &[usize], delivering: &[usize]) -> QueueAssignment {
    QueueAssignment { rx_workers: rx.to_vec(), tx_workers: tx.to_vec(), delivering: delivering.to_vec() }
}

#[test]
fn a_patch_by_itself_is_served_by_all_who_can_be_used() {
    let assignments = |pairs: &[u16], workers: &[usize]| -> Vec<QueueAssignment> {
        plan(&patched(pairs, workers), None).ports.into_iter().map(|place| place.assignment).collect()
    };
    // One worker serves both rings of each pair.
    assert_eq!(
        assignments(&[2, 2], &[0, 1]),
        [assignment(&[0, 1], &[0, 1], &[0, 1]), assignment(&[0, 1], &[0, 1], &[0, 1])]
    );
    // One worker for each direction.
    assert_eq!(assignments(&[1, 1], &[0, 1]), [assignment(&[0], &[1], &[1]), assignment(&[1], &[0], &[0])]);
    assert_eq!(assignments(&[1, 1], &[0, 1, 2, 3]), assignments(&[1, 1], &[0, 1]), "more find nothing to do");
    // No two workers ever deliver into the same ring.
    assert_eq!(assignments(&[3, 1], &[0, 1]), [assignment(&[0, 0, 0], &[1, 1, 1], &[1]), assignment(&[1], &[0], &[0])]);
    assert_eq!(
        assignments(&[2, 2], &[0, 1, 2, 3]),
        [assignment(&[0, 1], &[2, 3], &[2, 3]), assignment(&[2, 3], &[0, 1], &[0, 1])]
    );
    // An uneven deal begins with one worker at the first port, and with the other worker at the
    // second port.
    assert_eq!(
        assignments(&[3, 3], &[0, 1]),
        [assignment(&[0, 1, 0], &[0, 1, 0], &[0, 1]), assignment(&[1, 0, 1], &[1, 0, 1], &[0, 1])]
    );
    assert_eq!(assignments(&[4, 4], &[]), [QueueAssignment::one(0, 4), QueueAssignment::one(0, 4)]);
}

#[test]
fn enough_domains_share_nothing_and_few_are_given_the_workers_that_are_left() {
    let workers = |config: &Config| -> Vec<Vec<ForwardingDomain>> {
        plan(config, None).workers.into_iter().map(|worker| worker.domains).collect()
    };
    let patches = |at: &[usize]| at.iter().map(|&at| ForwardingDomain::Patch(at)).collect::<Vec<_>>();
    assert_eq!(workers(&patched(&[4, 4, 4, 4], &[0, 1])), [patches(&[0]), patches(&[1])]);
    // The domain with the most pairs gets the third worker.
    assert_eq!(workers(&patched(&[1, 1, 4, 4], &[0, 1, 2])), [patches(&[1]), patches(&[1]), patches(&[0])]);
    // A bridge of ports with one pair keeps one worker. A bridge with a port of several pairs gets
    // more.
    let mut config = patched(&[1, 1, 1], &[0, 1]);
    config.patches.clear();
    config.bridges = vec![bridge(&["p0", "p1", "p2"])];
    assert_eq!(workers(&config), [vec![ForwardingDomain::Bridge(0)], vec![]]);
    let kind = config.ports[1].kind.as_vhost_user_mut().expect("a vhost-user port");
    kind.queues = Some(2);
    assert_eq!(workers(&config), [[ForwardingDomain::Bridge(0)], [ForwardingDomain::Bridge(0)]]);
    let assignments: Vec<_> = plan(&config, None).ports.into_iter().map(|place| place.assignment).collect();
    // Both workers need the first port's single ring.
    let expected =
        [assignment(&[0], &[0], &[0, 1]), assignment(&[1, 0], &[1, 0], &[0, 1]), assignment(&[1], &[1], &[0, 1])];
    assert_eq!(assignments, expected);
}

#[test]
fn a_domain_keeps_its_workers_until_it_can_use_others() {
    let old = patched(&[2, 2, 1, 1], &[0, 1]);
    let mut first = old.clone();
    first.patches.pop();
    let (before, after, _) = after(&first, &old);
    // The first domain keeps its worker when a second one is added.
    assert_eq!(before.ports[0].assignment, assignment(&[0, 1], &[0, 1], &[0, 1]));
    assert_eq!(after.ports[..2], before.ports[..2]);
    assert_eq!(undisturbed(Before { config: &first, plan: &before }, &old, &after, 1), [ForwardingDomain::Patch(0)]);
    // With one pair, the patch can still have a worker for each direction. With more pairs again,
    // it takes the free workers.
    let mut fewer = old.clone();
    for port in &mut fewer.ports[..2] {
        let kind = port.kind.as_vhost_user_mut().expect("a vhost-user port");
        kind.queues = Some(1);
    }
    let third = plan(&fewer, Some(Before { config: &old, plan: &after }));
    assert_eq!(third.ports[0].assignment, assignment(&[0], &[1], &[1]));
    let alone = patched(&[1, 1], &[0, 1, 2, 3]);
    let wide = patched(&[4, 4], &[0, 1, 2, 3]);
    let first = plan(&alone, None);
    let second = plan(&wide, Some(Before { config: &alone, plan: &first }));
    assert_eq!(second.ports[0].assignment, assignment(&[0, 1, 2, 3], &[0, 1, 2, 3], &[0, 1, 2, 3]));
}

#[test]
fn nothing_changed_is_nothing_to_do() {
    let mut old = config(4, &[0, 1]);
    old.patches = vec![patch("p0", "p1")];
    let (first, second, steps) = after(&old, &old);
    assert_eq!((first, steps), (second, Vec::new()));
    // The order of sections in the file has no effect.
    let mut new = old.clone();
    new.ports.reverse();
    assert_eq!(after(&old, &new).2, []);
}

#[test]
fn a_slot_that_becomes_free_is_not_taken_at_once() {
    let old = config(3, &[]);
    let mut new = old.clone();
    new.ports.remove(1);
    new.ports.push(PortConfig::vhost_user("q", "/q"));
    let (_, second, steps) = after(&old, &new);
    assert_eq!(second.ports.iter().map(|place| place.slot).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(steps, [Step::PortAdded(2), Step::PortRemoved { old: 1 }]);
    let mut more = new.clone();
    more.ports.push(PortConfig::vhost_user("r", "/r"));
    let third = plan(&more, Some(Before { config: &new, plan: &second }));
    assert_eq!(third.ports[3].slot, 1, "now it is");
}

#[test]
fn what_the_guest_negotiated_makes_a_port_anew_and_the_message_says_what() {
    let old = config(2, &[]);
    let mut new = old.clone();
    new.ports[1].mtu = 9000;
    let kind = new.ports[1].kind.as_vhost_user_mut().expect("a vhost-user port");
    (kind.packed, kind.offloads.uso) = (false, false);
    let (_, second, steps) = after(&old, &new);
    let why = "mtu 1500 is now 9000, packed true is now false, offloads csum+tso+uso is now csum+tso".to_owned();
    assert_eq!(steps, [Step::PortRemade { old: 1, new: 1, why }]);
    assert_eq!(second.ports[1].slot, 2);

    let mut new = old.clone();
    let kind = new.ports[1].kind.as_vhost_user_mut().expect("a vhost-user port");
    kind.perms = 0o660;
    let (_, _, steps) = after(&old, &new);
    assert_eq!(steps, [Step::PortMoved { old: 1, new: 1, permissions: true, network: None }]);
}

#[test]
fn a_port_that_joins_another_workers_bridge_moves_and_its_guest_stays() {
    let mut old = config(5, &[0, 1]);
    old.bridges = vec![bridge(&["p0", "p1", "p2"])];
    old.patches = vec![patch("p3", "p4")];
    let mut new = old.clone();
    new.patches.clear();
    new.bridges[0].ports.push("p3".to_owned());
    let (first, second, steps) = after(&old, &new);
    assert_ne!(first.ports[3].only_worker(), second.ports[3].only_worker());
    assert_eq!(first.ports[3].slot, second.ports[3].slot);
    assert_eq!(
        steps,
        [
            Step::PortMoved { old: 3, new: 3, permissions: false, network: Some("bridge \"lan\"".to_owned()) },
            Step::PortMoved { old: 4, new: 4, permissions: false, network: Some("no patch and no bridge".to_owned()) },
            Step::PatchRemoved { old: 0 },
            Step::BridgeChanged { old: 0, new: 0 },
        ]
    );
}

#[test]
fn a_port_whose_packets_pass_another_node_stays() {
    let mut old = config(2, &[0]);
    old.patches.push(patch("p0", "p1"));
    old.nodes.push(node(0));
    let mut new = old.clone();
    new.ports[1].nodes.push("n".to_owned());
    let (first, second, steps) = after(&old, &new);
    assert_eq!(steps, [Step::PortNodes { new: 1 }]);
    assert_eq!(undisturbed(Before { config: &old, plan: &first }, &new, &second, 0), [], "the patch rests");
    let mut other = new.clone();
    other.nodes[0] = node(1);
    let (first, second, steps) = after(&new, &other);
    assert_eq!(steps, [Step::NodeChanged { old: 0, new: 0 }]);
    assert_eq!(undisturbed(Before { config: &new, plan: &first }, &other, &second, 0), [], "the patch rests");
    let (first, second, steps) = after(&new, &new);
    assert_eq!((steps, undisturbed(Before { config: &new, plan: &first }, &new, &second, 0).len()), (vec![], 1));
}

/// A mirror to `to`.
fn mirror(to: &str) -> NodeConfig {
    let mut node = node(0);
    node.name = "m".to_owned();
    node.with_output(to)
}

#[test]
fn a_port_that_gets_no_packets_adds_no_worker_to_its_mirror_port() {
    let mut config = config(4, &[0, 1]);
    config.patches = vec![patch("p0", "p1")];
    config.nodes = vec![mirror("p2")];
    config.ports[0].nodes = vec!["m".to_owned()];
    let of_mirror_port = |config: &Config| plan(config, None).ports[2].assignment.clone();
    let expected = of_mirror_port(&config);
    // An unconnected port, and then the only port of a bridge.
    config.ports[3].egress_nodes = vec!["m".to_owned()];
    assert_eq!(of_mirror_port(&config), expected);
    config.bridges = vec![bridge(&["p3"])];
    assert_eq!(of_mirror_port(&config).delivering, expected.delivering);
}

#[test]
fn all_workers_that_mirror_to_a_port_deliver_to_it() {
    // A patch with a worker for each direction, and a port by itself.
    let mut config = config(3, &[0, 1]);
    config.patches = vec![patch("p0", "p1")];
    config.nodes = vec![mirror("p2")];
    let assignments = |config: &Config| -> Vec<QueueAssignment> {
        plan(config, None).ports.into_iter().map(|place| place.assignment).collect()
    };
    let [first, second, alone] = assignments(&config).try_into().expect("three");
    let one = |worker| vec![worker; usize::from(MAX_QUEUE_PAIRS)];
    assert_eq!((&first.rx_workers[0], &second.rx_workers[0], alone.rx_workers.len()), (&0, &1, one(0).len()));
    let served = alone.rx_workers[0];
    assert_eq!(alone.delivering, [served], "nobody mirrors to it");
    // One worker receives from the first port; the other worker delivers to it.
    let with = |nodes: &[usize], egress: &[usize]| {
        let mut config = config.clone();
        nodes.iter().for_each(|&at| config.ports[at].nodes = vec!["m".to_owned()]);
        egress.iter().for_each(|&at| config.ports[at].egress_nodes = vec!["m".to_owned()]);
        assignments(&config)
    };
    for (nodes, egress, delivering) in [
        (&[0][..], &[][..], &[0][..]),
        (&[1], &[], &[1]),
        (&[], &[0], &[1]),
        (&[], &[1], &[0]),
        (&[0], &[1], &[0]),
        (&[0, 1], &[], &[0, 1]),
        (&[0], &[0], &[0, 1]),
    ] {
        let [a, b, to] = with(nodes, egress).try_into().expect("three");
        assert_eq!((&a, &b), (&first, &second), "the patch is as it was");
        assert_eq!(
            (to.rx_workers, to.delivering),
            (alone.rx_workers.clone(), delivering.to_vec()),
            "{nodes:?} {egress:?}"
        );
        assert!(to.tx_workers.iter().all(|owner| delivering.contains(owner)));
    }
}

#[test]
fn a_mirror_that_changes_disturbs_those_that_have_it() {
    let mut old = config(6, &[0, 1]);
    old.patches = vec![patch("p0", "p1")];
    old.bridges = vec![bridge(&["p2", "p3"])];
    let undisturbed = |old: &Config, new: &Config| {
        let (first, second, steps) = after(old, new);
        let before = Before { config: old, plan: &first };
        let mut calm: Vec<_> = (0..2).flat_map(|worker| undisturbed(before, new, &second, worker)).collect();
        calm.sort_by_key(|domain| domain.name(new));
        calm.dedup();
        (calm, steps)
    };
    let (patched, bridged, free) =
        (ForwardingDomain::Patch(0), ForwardingDomain::Bridge(0), |at| ForwardingDomain::Unconnected(at));
    let mut one = old.clone();
    one.nodes = vec![mirror("p4")];
    one.ports[0].egress_nodes = vec!["m".to_owned()];
    let (calm, steps) = undisturbed(&old, &one);
    assert!(!calm.contains(&patched), "{calm:?}");
    assert!(calm.contains(&bridged) && calm.contains(&free(5)), "{calm:?}");
    assert!(steps.contains(&Step::PortNodes { new: 0 }) && steps.contains(&Step::NodeAdded(0)), "{steps:?}");
    assert!(!steps.iter().any(|step| matches!(step, Step::PortRemade { .. })), "{steps:?}");
    // The mirror has another port now.
    let mut other = one.clone();
    other.nodes = vec![mirror("p5")];
    let (calm, steps) = undisturbed(&one, &other);
    assert!(!calm.contains(&patched) && calm.contains(&bridged), "{calm:?}");
    assert!(steps.contains(&Step::NodeChanged { old: 0, new: 0 }), "{steps:?}");
    // A second port uses the mirror, at another worker. So rings of the mirror's port have other
    // owners.
    let mut both = one.clone();
    both.ports[2].nodes = vec!["m".to_owned()];
    let (calm, _) = undisturbed(&one, &both);
    assert_eq!(calm, [free(5)]);
    // The mirror's port is made anew.
    let mut anew = one.clone();
    anew.ports[4].mtu = 9000;
    let (calm, _) = undisturbed(&one, &anew);
    assert_eq!(calm, [bridged, free(5)]);
    assert_eq!(undisturbed(&one, &one).0.len(), 4);
}

#[test]
fn a_port_whose_claims_are_compared_stays() {
    let mut old = config(2, &[0]);
    old.patches.push(patch("p0", "p1"));
    let mut new = old.clone();
    new.ports[1].source_check = Some(SourceCheckConfig::default());
    let mut listed = new.clone();
    listed.ports[1].source_check = Some(SourceCheckConfig { ips: Some(Vec::new()), ..SourceCheckConfig::default() });
    for (old, new) in [(&old, &new), (&new, &listed), (&listed, &old)] {
        let (first, second, steps) = after(old, new);
        assert_eq!((first.ports == second.ports, steps), (true, vec![Step::PortSourceCheck { new: 1 }]));
        let rests = undisturbed(Before { config: old, plan: &first }, new, &second, 0);
        assert_eq!(rests, [], "the patch rests");
    }
    new.ports[1].mtu = 9000;
    let why = "mtu 1500 is now 9000".to_owned();
    assert_eq!(after(&old, &new).2, [Step::PortRemade { old: 1, new: 1, why }]);
}

#[test]
fn keys_that_need_a_restart_are_named() {
    let old = SwitchConfig::default();
    assert_eq!(needs_restart(&old, &old), None);
    let new = SwitchConfig { workers: vec![0], api: Some("/a".into()), ..old.clone() };
    assert_eq!(needs_restart(&old, &new).as_deref(), Some("workers, api"));
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
    }
}

/// A tunnel of this underlay.
fn tunnel(name: &str, underlay: &str, vni: u32) -> PortConfig {
    let ip = |ip: &str| ip.parse().expect("an address");
    let kind = PortKind::Tunnel(TunnelSettings {
        underlay: underlay.to_owned(),
        kind: TunnelKind::Vxlan { vni },
        local: ip("192.0.2.1"),
        remotes: vec![ip("192.0.2.2")],
        statics: Vec::new(),
        source_port: None,
        verify: true,
        zero_checksum: false,
    });
    PortConfig { kind, mtu: 1450, ..PortConfig::vhost_user(name, "") }
}

/// Ports `p0` to `p5`, the first two of them with the underlays `u` and `v`, and the tunnels `t` of
/// `u` and `s` of `v`, which have the indexes 6 and 7.
fn with_underlays(workers: &[usize]) -> Config {
    let mut config = config(6, workers);
    config.underlays = vec![underlay("u", "p0"), underlay("v", "p1")];
    config.ports.push(tunnel("t", "u", 1));
    config.ports.push(tunnel("s", "v", 1));
    config
}

/// A patch that drops packets for which its destination has no free buffers.
fn dropping(a: &str, b: &str) -> PatchConfig {
    PatchConfig { full: WhenFull::Drop, ..patch(a, b) }
}

#[test]
fn an_underlay_joins_what_its_tunnels_are_in() {
    let (at, unconnected) = (ForwardingDomain::Underlay, ForwardingDomain::Unconnected);
    let all = |config: &Config| {
        let mut all = domains(config);
        all.sort_by_key(|domain| domain.name(config));
        all
    };
    let mut config = with_underlays(&[0]);
    // Without patches and bridges, a tunnel is a part of its underlay's domain all the same.
    assert_eq!(all(&config)[4..], [at(0), at(1)]);
    assert_eq!((at(0).ports(&config), at(0).parts(&config)), (vec![0, 6], vec![unconnected(6)]));
    config.patches = vec![dropping("p2", "t"), dropping("p4", "p5")];
    config.bridges = vec![bridge(&["p3", "s"])];
    assert_eq!(all(&config), [ForwardingDomain::Patch(1), at(0), at(1)]);
    assert_eq!((at(0).ports(&config), at(0).parts(&config)), (vec![0, 2, 6], vec![ForwardingDomain::Patch(0)]));
    // A bridge of tunnels of both underlays makes them one.
    config.patches.remove(0);
    config.bridges = vec![bridge(&["p2", "s", "t"])];
    assert_eq!((at(0).underlays(&config), at(0).ports(&config)), (vec![0, 1], vec![0, 1, 2, 7, 6]));
    assert_eq!(all(&config), [ForwardingDomain::Patch(0), unconnected(3), at(0)]);
    // So does a mirror to a tunnel.
    config.bridges[0].ports.pop();
    assert_eq!(all(&config)[2..], [at(0), at(1)]);
    config.nodes = vec![mirror("t")];
    config.ports[2].nodes = vec!["m".to_owned()];
    assert_eq!((at(0).underlays(&config), at(0).ports(&config)), (vec![0, 1], vec![0, 1, 2, 7, 6]));
    // The mirror's patch may have no tunnel itself.
    config.ports[4].nodes = vec!["m".to_owned()];
    assert_eq!(all(&config), [unconnected(3), at(0)]);
}

#[test]
fn tunnels_have_the_workers_of_their_underlay() {
    let mut config = with_underlays(&[0, 1]);
    config.underlays.pop();
    config.ports.pop();
    config.patches = vec![dropping("p2", "t")];
    config.ports[0].kind.as_vhost_user_mut().expect("a vhost-user port").queues = Some(2);
    let plan = plan(&config, None);
    let of = |port: usize| &plan.ports[port].assignment;
    assert_eq!(of(6), of(0));
    assert_eq!(of(0), &assignment(&[0, 1], &[0, 1], &[0, 1]));
    // Both workers have packets for the guest.
    assert_eq!(of(2).delivering, [0, 1]);
    assert_eq!(plan.workers.iter().filter(|worker| worker.domains.contains(&ForwardingDomain::Underlay(0))).count(), 2);
}

#[test]
fn a_change_of_an_underlay_makes_its_tunnels_anew_and_no_others() {
    let mut old = with_underlays(&[0]);
    old.patches = vec![dropping("p2", "t"), dropping("p3", "s")];
    let calm = |new: &Config| {
        let (first, second, steps) = after(&old, new);
        let calm = undisturbed(Before { config: &old, plan: &first }, new, &second, 0);
        (calm, steps)
    };
    let tunnel_remade = |why: &str| Step::PortRemade { old: 6, new: 6, why: why.to_owned() };
    let mut new = old.clone();
    new.underlays[0].gateways = vec!["192.0.2.254".parse().expect("an address")];
    let why = "gateway has changed".to_owned();
    let expected = [tunnel_remade("underlay \"u\" has changed"), Step::UnderlayChanged { old: 0, new: 0, why }];
    let (rests, steps) = calm(&new);
    assert_eq!(steps, expected);
    assert!(rests.contains(&ForwardingDomain::Underlay(1)) && !rests.contains(&ForwardingDomain::Underlay(0)));
    // The port of an underlay that is made anew has another index.
    let mut new = old.clone();
    new.ports[0].mtu = 9000;
    let (_, steps) = calm(&new);
    let why = "port \"p0\" is made anew".to_owned();
    assert_eq!(
        steps[1..],
        [tunnel_remade("underlay \"u\" has changed"), Step::UnderlayChanged { old: 0, new: 0, why }]
    );
    // Another cookie or key concerns its own tunnel only, but the underlay's other tunnels pause.
    let mut new = old.clone();
    new.ports[6] = tunnel("t", "u", 2);
    let (rests, steps) = calm(&new);
    assert_eq!(steps, [tunnel_remade("keys of vxlan")]);
    assert!(!rests.contains(&ForwardingDomain::Underlay(0)));
    let mut new = old.clone();
    new.ports[6] = tunnel("t", "v", 2);
    new.underlays.remove(0);
    let (_, steps) = calm(&new);
    assert!(steps.contains(&tunnel_remade("underlay u is now v, keys of vxlan")), "{steps:?}");
    assert!(steps.contains(&Step::UnderlayRemoved { old: 0 }), "{steps:?}");
}

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
        let bridges = bridges.map(|(at, ports)| BridgeConfig {
            name: format!("b{at}"),
            ports,
            ageing,
            limit: 16,
            statics: Vec::new(),
        });
        let (patches, bridges) = (patches.collect(), bridges.collect());
        config = Config { patches, bridges, nodes: vec![node(which)], ..config };
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
            let (from, to) = (from, to);
            let receiving = &plan.ports[from].assignment.rx_workers;
            assert!(from == to || receiving.iter().all(|worker| plan.ports[to].assignment.delivering.contains(worker)));
        }
    }
    // The workers that have copies for a port deliver to it.
    for (port, place) in plan.ports.iter().enumerate() {
        let delivers = |to: &String, worker: &usize| {
            let to = config.port_index(to).expect("it is there");
            plan.ports[to].assignment.delivering.contains(worker)
        };
        for to in config.ingress_nodes(port).flat_map(NodeConfig::outputs) {
            assert!(place.assignment.rx_workers.iter().all(|worker| delivers(to, worker)), "{plan:?}");
        }
        let egress = config.egress_nodes(port).filter(|_| is_delivered_to(config, port));
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
                    None => prop_assert!(!before.is_taken(place.slot)),
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
            for (tunnel, _) in next.ports.iter().enumerate().filter(|(_, port)| port.kind.as_tunnel().is_some()) {
                let carrier = next.carrier(tunnel).expect("the port of its underlay");
                let is_here = |domain: &ForwardingDomain, port| domain.ports(&next).contains(&port);
                prop_assert!(domains(&next).iter().all(|domain| is_here(domain, tunnel) == is_here(domain, carrier)));
            }
            for worker in 0..new_plan.workers.len() {
                for domain in undisturbed(before, &next, &new_plan, worker) {
                    for underlay in domain.underlays(&next) {
                        prop_assert!(before.same_underlay(&next, underlay).is_some());
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
                    }
                }
            }
            now = (next, new_plan);
        }
    }
}
