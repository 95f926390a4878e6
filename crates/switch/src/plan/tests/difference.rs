//! The steps from one configuration to another, and the domains that they disturb.

use super::*;

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
