//! Underlays and tunnels.

use super::*;

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
    let at = ForwardingDomain::Underlay;
    let unconnected = ForwardingDomain::Unconnected;
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
    let assignment_of = |port: usize| &plan.ports[port].assignment;
    assert_eq!(assignment_of(6), assignment_of(0));
    assert_eq!(assignment_of(0), &assignment(&[0, 1], &[0, 1], &[0, 1]));
    // Both workers have packets for the guest.
    assert_eq!(assignment_of(2).delivering, [0, 1]);
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
