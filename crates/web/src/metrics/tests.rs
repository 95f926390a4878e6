use std::collections::{BTreeMap, BTreeSet};

use straightline_api::{
    Addresses, ConnectionUse, Device, DropCount, Joined, JoinedKind, Neighbour, NeighbourState, Node, OwnAddress, Port,
    PortGroups, PortRate, Queue, Runtime, Stalls, Status, TableSummary, Tunnel, Worker,
};
use straightline_evpn::process::{NeighbourStatus, NetworkStatus, Status as EvpnStatus};

use super::*;

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// Answers of a switch that has everything once, so that each metric has a sample.
fn everything() -> Answers {
    let device = Device {
        kernel_drops: [("rx_dropped".to_owned(), 4)].into(),
        warnings: vec![String::new()],
        ..Device::default()
    };
    let port = Port {
        name: "vm1".to_owned(),
        kind: "vhost-user".to_owned(),
        queues: vec![Queue::default(), Queue { index: 1, calls_sent: 7, ..Queue::default() }],
        drops: [("too-big".to_owned(), 3), ("runt".to_owned(), 2)].into(),
        joined: Some(Joined { kind: JoinedKind::Bridge, name: "lan".to_owned() }),
        addresses: Some(Addresses { learned: 5, refused: 1 }),
        groups: Some(PortGroups {
            used: ConnectionUse { connections: 3, most: 10_000, refused: 4, evicted: 0 },
            ..PortGroups::default()
        }),
        rate_in: Some(PortRate { bits: Some(8000), waited_ms: 1500, ..PortRate::default() }),
        rate_out: Some(PortRate { dropped: 9, ..PortRate::default() }),
        device: Some(device),
        tunnel: Some(Tunnel { addresses: vec![Addresses { learned: 2, refused: 4 }; 2], ..Tunnel::default() }),
        ..Port::default()
    };
    let drop = DropCount { port: "vm1".to_owned(), reason: "too-big".to_owned(), count: 3, ..DropCount::default() };
    let hop = |ip: &str| Neighbour {
        underlay: "wan".to_owned(),
        ip: ip.to_owned(),
        mac: Some("02:00:00:00:00:09".to_owned()),
        state: NeighbourState::Asked,
        age_s: None,
    };
    let mut answers = Answers::default();
    let stalls = vec![Stalls { worker: 0, port: "vm1".to_owned(), count: 2 }];
    answers.status =
        Status { version: "9".to_owned(), simd: "avx2".to_owned(), stalls, fds_free: Some(8), ..Status::default() };
    answers.ports.ports = vec![port];
    let worker = Worker { cpu: Some(3), busy_s: 1.5, ..Worker::default() };
    // Two nodes of one name on one worker are one series.
    let nodes = vec![Node { worker: Some(0), ..Node::new("lan", 1, 2, 30) }; 2];
    answers.runtime = Runtime { workers: vec![worker], nodes, cleared: None };
    answers.drops.drops = vec![drop];
    answers.neighbours.neighbours = vec![hop("192.0.2.1"), hop("192.0.2.2")];
    let own = |conflict: Option<&str>| OwnAddress {
        underlay: "wan".to_owned(),
        ip: "192.0.2.9".to_owned(),
        conflict: conflict.map(str::to_owned),
        ..OwnAddress::default()
    };
    let counters = [("answered".to_owned(), 5)].into();
    answers.tables.tables = vec![TableSummary { table: "bindings:lan".to_owned(), rows: 4, counters }];
    answers.evpn = Some(Ok(evpn()));
    answers.neighbours.addresses = vec![own(None), own(Some("02:00:00:00:00:07"))];
    answers
}

fn evpn() -> EvpnStatus {
    let network = NetworkStatus {
        network: "net".to_owned(),
        vlan: 10,
        here: 2,
        moves_away: 3,
        remotes: vec!["192.0.2.2".to_owned(); 2],
        ..NetworkStatus::default()
    };
    let mut status = EvpnStatus { received: 7, networks: vec![network], ..EvpnStatus::default() };
    let neighbour = |up| NeighbourStatus { address: "192.0.2.2".to_owned(), asn: 65000, up };
    status.gobgp.neighbours = vec![neighbour(true), neighbour(false), neighbour(true)];
    status.refused = [("host-full".to_owned(), 9)].into();
    status
}

fn rendered(polled: Polled) -> String {
    render(&Arc::new(polled)).expect("it is rendered")
}

/// The interface of a metric: type, unit and labels.
#[derive(Debug, Default, PartialEq, Eq)]
struct Interface {
    kind: String,
    unit: String,
    labels: BTreeSet<String>,
}

/// Returns the interface that the text of a scrape has, by the name of its samples.
fn in_text(text: &str) -> BTreeMap<String, Interface> {
    let mut families = BTreeMap::<String, Interface>::new();
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "TYPE", name, kind] => families.entry(name.to_owned()).or_default().kind = kind.to_owned(),
            ["#", "UNIT", name, unit] => families.entry(name.to_owned()).or_default().unit = unit.to_owned(),
            ["#", ..] => {}
            _ => {
                let (series, _) = line.rsplit_once(' ').expect("a value");
                let (name, labels) = series.split_once('{').unwrap_or((series, ""));
                let labels = labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('='));
                let family = name.strip_suffix("_total").or(name.strip_suffix("_info")).unwrap_or(name);
                let Interface { kind, unit, .. } = families.get(family).expect("its type stands before it");
                let labels = labels.map(|(label, _)| label.to_owned()).collect();
                let one = Interface { kind: kind.clone(), unit: unit.clone(), labels };
                if let Some(other) = found.insert(name.to_owned(), one) {
                    assert_eq!(&other, &found[name], "{name}");
                }
            }
        }
    }
    found
}

/// Returns the interface that the document's table promises.
fn in_document() -> BTreeMap<String, Interface> {
    let rows = DOCUMENT.lines().filter(|line| line.starts_with("| `straightline_"));
    let metrics = rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let labels = cells[3].split(',').map(|label| label.trim().to_owned()).filter(|label| !label.is_empty());
        (cells[0].clone(), Interface { kind: cells[1].clone(), unit: cells[2].clone(), labels: labels.collect() })
    });
    metrics.collect()
}

#[test]
fn the_document_and_the_output_have_the_same_metrics() {
    assert_eq!(in_document(), in_text(&rendered(Ok(everything()))));
}

#[test]
fn the_document_has_the_words_of_the_table() {
    for family in table::FAMILIES.iter().chain([&table::UP]) {
        assert!(DOCUMENT.contains(&format!("| {} |", family.help)), "{}", family.help);
    }
}

#[test]
fn names_follow_the_rules() {
    for (name, Interface { kind, unit, .. }) in in_text(&rendered(Ok(everything()))) {
        assert!(
            name.starts_with("straightline_") && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        );
        let family = name.strip_suffix("_total");
        assert_eq!(family.is_some(), kind == "counter", "{name}");
        assert!(["", "seconds", "bytes"].contains(&unit.as_str()), "{name} has a unit that is no base unit");
        assert!(unit.is_empty() || family.unwrap_or(&name).ends_with(&format!("_{unit}")), "{name}");
    }
}

#[test]
fn samples_have_the_values_of_the_answers() {
    let text = rendered(Ok(everything()));
    for sample in [
        "straightline_up 1",
        "straightline_build_info{version=\"9\",simd=\"avx2\"} 1",
        "straightline_port_info{port=\"vm1\",kind=\"vhost-user\",joined=\"lan\",joined_kind=\"bridge\"} 1",
        "straightline_port_up{port=\"vm1\"} 0",
        "straightline_port_drops_total{port=\"vm1\"} 5",
        "straightline_port_drops_by_reason_total{port=\"vm1\",reason=\"too-big\"} 3",
        "straightline_port_calls_sent_total{port=\"vm1\",queue=\"1\"} 7",
        "straightline_worker_seconds_total{worker=\"0\",state=\"busy\"} 1.5",
        "straightline_port_rate_limit_bytes{port=\"vm1\",direction=\"in\"} 1000",
        "straightline_port_rate_waited_seconds_total{port=\"vm1\",direction=\"in\"} 1.5",
        "straightline_port_connections{port=\"vm1\"} 3",
        "straightline_port_connections_refused_total{port=\"vm1\"} 4",
        "straightline_port_rate_dropped_total{port=\"vm1\",direction=\"out\"} 9",
        "straightline_neighbours{underlay=\"wan\",state=\"asked\"} 2",
        "straightline_duplicate_addresses{underlay=\"wan\"} 1",
        "straightline_node_cycles_total{node=\"lan\",worker=\"0\"} 60",
        "straightline_stalls_total{worker=\"0\",at=\"vm1\"} 2",
        "straightline_bindings{bridge=\"lan\"} 4",
        "straightline_bindings_events_total{bridge=\"lan\",event=\"answered\"} 5",
        "straightline_evpn_up 1",
        "straightline_evpn_sessions{state=\"up\"} 2",
        "straightline_evpn_sessions{state=\"down\"} 1",
        "straightline_evpn_routes_received 7",
        "straightline_evpn_refused_total{reason=\"host-full\"} 9",
        "straightline_evpn_stations{network=\"net\",vlan=\"10\",place=\"here\"} 2",
        "straightline_evpn_moves_total{network=\"net\",vlan=\"10\",direction=\"away\"} 3",
        "straightline_evpn_hosts{network=\"net\",vlan=\"10\"} 2",
    ] {
        assert!(text.lines().any(|line| line == sample), "{sample} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    for address in ["02:00", "192.0.2"] {
        assert!(!text.contains(address), "a label has an address");
    }
}

/// The process of EVPN may be away; without `--evpn`, nobody asks for it.
#[test]
fn a_process_of_evpn_that_does_not_answer_is_down() {
    for (evpn, expected) in [(Some(Err("gone".to_owned())), vec!["straightline_evpn_up 0"]), (None, vec![])] {
        let mut answers = everything();
        answers.evpn = evpn;
        let text = rendered(Ok(answers));
        let samples: Vec<_> = text.lines().filter(|line| line.starts_with("straightline_evpn")).collect();
        assert_eq!(samples, expected);
    }
}

#[test]
fn a_switch_that_does_not_answer_is_down() {
    let text = rendered(Err("gone".to_owned()));
    let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(samples, ["straightline_up 0"]);
}

#[test]
fn the_shipped_rules_and_dashboard_use_documented_metrics() {
    const SHIPPED: [&str; 2] = [
        include_str!("../../../../dist/prometheus/straightline.rules.yml"),
        include_str!("../../../../dist/grafana/straightline.json"),
    ];
    let known = in_document();
    for text in SHIPPED {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let used: BTreeSet<_> = words.filter(|word| word.starts_with("straightline_")).collect();
        assert!(used.len() > 10, "{used:?}");
        for name in used {
            assert!(known.contains_key(name), "{name} is not in docs/metrics.md");
        }
    }
}
