//! Plans on made-up machines with several NUMA nodes.

use std::fs;

use super::*;
use crate::config::{AfPacketConfig, NumaNodes};

/// Makes the description of a machine: CPUs 0 and 2 on node 0, CPUs 1 and 3 on node 1, and interface
/// `eth1` on node 1.
fn two_nodes() -> NumaNodes {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("devices/system/node/node0/cpulist", "0,2"),
        ("devices/system/node/node1/cpulist", "1,3"),
        ("class/net/eth1/device/numa_node", "1"),
    ] {
        let path = root.path().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    NumaNodes::below(root.path())
}

/// Returns patches between ports 0 and 1, and 2 and 3.
fn two_patches(workers: &[usize]) -> Config {
    let mut config = config(4, workers);
    config.patches = vec![patch("p0", "p1"), patch("p2", "p3")];
    config
}

fn plan_there(config: &Config, before: Option<Before<'_>>, memory: &[(&str, &[usize])]) -> Plan {
    let memory =
        |port: &str| memory.iter().find(|(name, _)| *name == port).map_or(Vec::new(), |(_, nodes)| nodes.to_vec());
    super::super::plan(config, before, &PlanNodes::new(config, &two_nodes(), memory))
}

/// Returns the worker of each port.
fn workers(plan: &Plan) -> Vec<Option<usize>> {
    plan.ports.iter().map(PortPlan::only_worker).collect()
}

#[test]
fn a_domain_is_served_on_the_node_of_its_interface() {
    for (cpus, nearest) in [([0, 1], 1), ([1, 0], 0)] {
        for at in 0..2 {
            let mut config = two_patches(&cpus);
            let interface = AfPacketConfig { interface: "eth1".to_owned(), queues: 1 };
            config.ports = config
                .ports
                .iter()
                .enumerate()
                .map(|(n, port)| PortConfig {
                    kind: if n == 2 * at { PortKind::AfPacket(interface.clone()) } else { port.kind.clone() },
                    ..port.clone()
                })
                .collect();
            // The two patches can use a worker for each direction, but there are as many patches as
            // workers.
            let plan = plan_there(&config, None, &[]);
            assert_eq!(plan.ports[2 * at].only_worker(), Some(nearest), "{cpus:?} {at} {plan:?}");
            assert_eq!(plan.ports[2 - 2 * at].only_worker(), Some(1 - nearest), "{cpus:?} {at} {plan:?}");
        }
    }
}

#[test]
fn a_domain_moves_to_the_node_of_its_guests_once_it_is_known() {
    let config = two_patches(&[0, 1]);
    let first = plan_there(&config, None, &[]);
    assert_eq!(workers(&first), [Some(0), Some(0), Some(1), Some(1)]);
    // Both guests of the first patch are on the other node. Those of the second one say nothing.
    let before = Before { config: &config, plan: &first };
    let second = plan_there(&config, Some(before), &[("p0", &[1]), ("p1", &[1])]);
    assert_eq!(workers(&second), [Some(1), Some(1), Some(1), Some(1)]);
    let steps = difference(before, &config, &second);
    let moved = |step: &Step| matches!(step, Step::PortMoved { old: 0 | 1, .. });
    assert!(steps.len() == 2 && steps.iter().all(moved), "{steps:?}");
    // Then it stays, and it also stays where one guest is here and the other one there.
    for memory in [[("p0", &[1]), ("p1", &[1])], [("p0", &[0]), ("p1", &[1])]] {
        let memory = memory.map(|(port, nodes)| (port, &nodes[..]));
        let third = plan_there(&config, Some(Before { config: &config, plan: &second }), &memory);
        assert_eq!(workers(&third), workers(&second));
    }
}

#[test]
fn a_wide_domain_keeps_as_many_workers() {
    // A bridge that can use three workers, of which two are on node 1.
    let mut config = config(2, &[0, 1, 3]);
    let wide = |name: &str| PortConfig::vhost_user(name, format!("/{name}"));
    config.ports = ["p0", "p1"].map(wide).into_iter().collect();
    config.patches = vec![patch("p0", "p1")];
    let memory: &[(&str, &[usize])] = &[("p0", &[1]), ("p1", &[1])];
    let served = |plan: &Plan| {
        let at = plan.workers.iter().enumerate().filter(|(_, worker)| !worker.domains.is_empty());
        at.map(|(at, _)| at).collect::<Vec<_>>()
    };
    let first = plan_there(&config, None, &[]);
    assert_eq!(served(&first), [0, 1], "a worker for each direction");
    let second = plan_there(&config, Some(Before { config: &config, plan: &first }), memory);
    assert_eq!(served(&second), [1, 2]);
    // With one worker there, it stays with both.
    config.switch.workers = vec![0, 1];
    let first = plan_there(&config, None, &[]);
    let second = plan_there(&config, Some(Before { config: &config, plan: &first }), memory);
    assert_eq!((served(&first), served(&second)), (vec![0, 1], vec![0, 1]));
}

#[test]
fn without_nodes_nothing_moves() {
    let config = two_patches(&[0, 1]);
    let first = plan(&config, None);
    let unknown = PlanNodes::new(&config, &NumaNodes::default(), |_| vec![1]);
    let second = super::super::plan(&config, Some(Before { config: &config, plan: &first }), &unknown);
    assert_eq!(second, first);
}
