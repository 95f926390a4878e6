//! A switch with hundreds of ports: its memory, its graphs, and what a reload tells. This is the only
//! test of its process, because it reads the memory of the entire process.

use std::fs;

use straightline_config::BridgeConfig;
use straightline_switch::raise_descriptor_limit;
use straightline_testing::{bridge, rig};

const PORTS: usize = 400;

/// The memory of a port, in KiB. The stack of its thread and its queue assignment need most of it.
const MOST_KIB: usize = 64;

fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("our status");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
    resident.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn ports_cost_memory_by_their_number_and_a_reload_names_what_changed() {
    raise_descriptor_limit().expect("descriptors");
    // The code and the memory that any switch needs.
    drop(rig(1, |_| {}));
    let before = resident_kib();
    let rig = rig(PORTS, |config| config.bridges.push(bridge(PORTS)));
    let of_port = resident_kib().saturating_sub(before) / PORTS;
    assert!(of_port <= MOST_KIB, "{of_port} KiB for each port");

    let mut config = rig.switch.config();
    let moved = config.bridges[0].ports.remove(7);
    config.bridges.push(BridgeConfig { name: "other".to_owned(), ports: vec![moved], ..bridge(0) });
    let changes = rig.switch.reload(&config).expect("a reload").changes;
    let lines: Vec<_> = changes.iter().map(ToString::to_string).collect();
    let expected =
        ["port \"p7\" moved: now in bridge \"other\"", "bridge \"lan\" changed: p7 left", "bridge \"other\" added: p7"];
    assert_eq!(lines, expected);

    // Unconnected ports share the node that drops their packets.
    config.bridges.clear();
    rig.switch.reload(&config).expect("a reload");
    let nodes = rig.switch.nodes();
    let named = |name: &str| nodes.iter().filter(|node| node.name == name).count();
    assert_eq!((named("unconnected"), named("p7-rx"), named("p7-tx")), (1, 1, 0));
    assert_eq!(nodes.len(), PORTS + 2, "an input for each port, the sink and the turn's end");
}
