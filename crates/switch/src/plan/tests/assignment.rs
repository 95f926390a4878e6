//! The workers of domains and of queue pairs.

use straightline_port::vhost_user::MAX_QUEUE_PAIRS;

use super::*;

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
    let all_pairs = |worker| vec![worker; usize::from(MAX_QUEUE_PAIRS)];
    assert_eq!((&first.rx_workers[0], &second.rx_workers[0], alone.rx_workers.len()), (&0, &1, all_pairs(0).len()));
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

/// With a hundred pairs for each port, a list for each two ports would take a gigabyte.
#[test]
fn the_lists_of_a_plan_grow_with_the_number_of_ports() {
    let mut config = config(300, &[0, 1]);
    let ports: Vec<_> = config.ports.iter().map(|port| port.name.clone()).collect();
    config.bridges = vec![bridge(&ports.iter().map(String::as_str).collect::<Vec<_>>())];
    config.ports[0].kind.as_vhost_user_mut().expect("a vhost-user port").queues = Some(2);
    let plan = plan(&config, None);
    assert_eq!(plan.ports[5].assignment.delivering, [0, 1]);
    let longest = plan.ports.iter().map(|place| place.assignment.delivering.capacity()).max();
    assert!(longest.is_some_and(|longest| longest <= 16), "{longest:?} places for two workers");
}
