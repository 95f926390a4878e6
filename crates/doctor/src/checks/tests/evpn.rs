//! Faults of `straightline evpn`, and of bindings.

use straightline_evpn::process::{GoBgpStatus, HostStatus, NeighbourStatus, NetworkStatus, Status, SwitchStatus};

use super::*;

/// Returns the counters of a bridge whose bindings are well.
pub(super) fn bindings() -> TableSummary {
    TableSummary { table: "bindings:lan".to_owned(), rows: 2, counters: [("bound-elsewhere".to_owned(), 2)].into() }
}

/// Returns the status of a process that works: one host on the link, one behind a gateway.
pub(super) fn status() -> Status {
    let neighbours = vec![NeighbourStatus { address: "192.0.2.2".to_owned(), asn: 65000, up: true }];
    let network = NetworkStatus {
        network: "net".to_owned(),
        bridge: "net".to_owned(),
        tunnel: "far".to_owned(),
        remotes: ["192.0.2.2", "198.51.100.9"].map(str::to_owned).to_vec(),
        ..NetworkStatus::default()
    };
    Status {
        gobgp: GoBgpStatus { up: true, neighbours, ..GoBgpStatus::default() },
        switch: SwitchStatus { up: true, ..SwitchStatus::default() },
        networks: vec![network],
        // Routes of other networks are no fault.
        refused: [("no-common-target".to_owned(), 5)].into(),
        ..Status::default()
    }
}

fn process(facts: &mut Facts) -> &mut Status {
    match facts.evpn.as_mut().unwrap() {
        EvpnFacts::Runs(status) => status,
        other => panic!("{other:?}"),
    }
}

fn network(facts: &mut Facts) -> &mut NetworkStatus {
    &mut process(facts).networks[0]
}

fn refuse(facts: &mut Facts, reason: &str) {
    process(facts).refused.insert(reason.to_owned(), 1);
}

fn count(facts: &mut Facts, counter: &str, number: u64) {
    switch(facts).tables.tables[0].counters.insert(counter.to_owned(), number);
}

pub(super) const FAULTS: &[Fault] = &[
    ("evpn", |facts| facts.evpn = Ok(EvpnFacts::Ended("/run/evpn.sock".into())), Fail, "restart straightline-evpn"),
    ("evpn", |facts| process(facts).gobgp.up = false, Fail, "start gobgpd"),
    ("evpn", |facts| process(facts).switch.up = false, Fail, "correct `api`"),
    ("evpn", |facts| process(facts).switch.refused = 7, Fail, "`api-stations`"),
    ("evpn-sessions", |facts| process(facts).gobgp.neighbours[0].up = false, Fail, "TCP port 179"),
    ("evpn-sessions", |facts| process(facts).gobgp.neighbours.clear(), Fail, "add [[neighbor]]"),
    ("evpn-routes", |facts| network(facts).remotes.clear(), Warn, "compare `route-targets`"),
    ("evpn-routes", |facts| refuse(facts, "vni-mismatch"), Warn, "use one `vni` for a network"),
    ("evpn-routes", |facts| refuse(facts, "own-distinguisher"), Warn, "`router-id` of its own"),
    ("evpn-routes", |facts| network(facts).duplicate = 1, Warn, "the same MAC address"),
    (
        "evpn-routes",
        |facts| process(facts).hosts = vec![HostStatus { host: "192.0.2.2".to_owned(), routes: 20_000, refused: 1 }],
        Warn,
        "raise `host-routes`",
    ),
    ("evpn-mtu", |facts| network(facts).bridge = "lan".to_owned(), Warn, "set `mtu = 1450` in [port."),
    ("evpn-mtu", |facts| network(facts).tunnel = "vx9".to_owned(), Fail, "correct `tunnel` in [network.net]"),
    (
        "evpn-next-hops",
        |facts| network(facts).remotes.push("203.0.113.7".to_owned()),
        Fail,
        "straightline ping wan 203.0.113.7",
    ),
    ("evpn-next-hops", |facts| hop(facts).state = NeighbourState::Unanswered, Fail, "[underlay.wan]"),
    ("evpn-next-hops", |facts| network(facts).tunnel = "vx9".to_owned(), Fail, "add the port to the switch"),
    ("bindings", |facts| count(facts, "bound-elsewhere", 10), Warn, "straightline bindings lan"),
    ("bindings", |facts| count(facts, "refused", 1), Warn, "raise `limit` in [bridge.lan]"),
];

/// Without the process, its checks do not apply.
#[test]
fn a_switch_without_evpn_is_well() {
    let mut facts = healthy();
    facts.evpn = Ok(EvpnFacts::Absent);
    for name in ["evpn", "evpn-sessions", "evpn-routes", "evpn-mtu", "evpn-next-hops"] {
        let found = findings(&facts, name);
        assert!(found.len() == 1 && found[0].result == Verdict::Skip, "{found:?}");
    }
}
