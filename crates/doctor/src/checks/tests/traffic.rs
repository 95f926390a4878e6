//! Drops, moves and drift.

use straightline_api::{DropCount, Event, EventKind, VlanRole};
use straightline_packet::Reason;

use super::*;

pub(super) const FAULTS: &[Fault] = &[
    // A source check that eats all packets of a VM.
    ("drops", |facts| lose(facts, 0, "spoofed", 40, 40), Fail, "allowed-ips"),
    // A tunnel with another cookie or key at its other end.
    ("drops", |facts| lose(facts, 2, "tunnel-cookie", 20, 20_000), Warn, "Set the same cookie at both ends"),
    (
        "drops",
        |facts| lose(facts, 2, "tunnel-unknown", 20, 20),
        Fail,
        "Compare the addresses and the key of the tunnel",
    ),
    ("drops", |facts| lose(facts, 0, "too-big", 200, 10_200), Warn, "capture vm1 --dropped=too-big"),
    (
        "drops",
        // Few since the start, and many now.
        |facts| {
            lose(facts, 0, "bad-source", 20, 1_000_000);
            before(facts, 0).drops.clear();
            before(facts, 0).queues[0].rx.packets = 999_900;
        },
        Warn,
        "a unicast MAC address",
    ),
    (
        "rates",
        |facts| {
            let rate = facts.ports[0].port.rate_in.as_mut().unwrap();
            (rate.passed_bytes, rate.wait_count, rate.waited_ms) = (950_000, 500, 480);
        },
        Warn,
        "raise it",
    ),
    (
        "rates",
        |facts| facts.ports[0].port.rate_in.as_mut().unwrap().burst_bytes = Some(900),
        Warn,
        "raise `burst` to 1000 bytes or more",
    ),
    ("groups", |facts| facts.ports[0].port.groups = None, Warn, "name its `groups`"),
    ("groups", |facts| switch(facts).groups.ports.clear(), Warn, "firewall group ssh --delete"),
    (
        "groups",
        |facts| switch(facts).groups.groups[1].inbound.push("tcp 22 from 192.0.2.7".to_owned()),
        Warn,
        "with `straightline firewall group ssh`",
    ),
    (
        "groups",
        |facts| switch(facts).groups.groups[1].inbound.push("tcp 80 from 10.0.0.1".to_owned()),
        Warn,
        "remove it, or move it up",
    ),
    (
        "groups",
        |facts| facts.ports[0].port.groups.as_mut().unwrap().used.connections = 950,
        Warn,
        "raise `connections`",
    ),
    (
        "groups",
        |facts| facts.ports[0].port.groups.as_mut().unwrap().used.refused = 1,
        Warn,
        "straightline connections vm1",
    ),
    ("guest-memory", move_nothing, Fail, "share=on"),
    ("moves", |facts| to_and_fro(facts, &["02::1"], "vm2"), Fail, "a MAC address of its own"),
    ("moves", |facts| to_and_fro(facts, &["02::1", "02::2"], "vm2"), Fail, "straightline link vm2 down"),
    ("moves", |facts| to_and_fro(facts, &["02::1"], "nic"), Fail, "`bridge link`"),
    (
        "moves",
        // It has ended.
        |facts| {
            to_and_fro(facts, &["02::1"], "nic");
            let moves = switch(facts).status.moves.clone();
            switch(facts).moves_before = moves;
        },
        Warn,
        "`bridge link`",
    ),
    (
        "moves",
        |facts| (0..2).for_each(|at| facts.ports[at].port.mac = Some("02::1".to_owned())),
        Warn,
        "`mac` in the port's section",
    ),
    ("vlans", |facts| join(facts, VlanRole::Access, "30", Some(30)), Warn, "add VLAN 30 to `trunk`"),
    ("vlans", |facts| join(facts, VlanRole::Access, "1", Some(1)), Warn, "correct `vlan` of [port.vm1]"),
    ("vlans", |facts| lose_tags(facts, VlanRole::Access, Some(10)), Warn, "make [port.vm1] a `trunk`"),
    ("vlans", |facts| lose_tags(facts, VlanRole::Networks, None), Warn, "set `inner-tags = \"keep\"` of [port.vm1]"),
    ("vlans", |facts| lose_tags(facts, VlanRole::Trunk, None), Warn, "set `native-vlan` of [port.vm1]"),
    ("vlans", |facts| lose_tags(facts, VlanRole::Trunk, Some(10)), Warn, "add the VLANs to `trunk` of [port.vm1]"),
    ("querier", |facts| switch(facts).snooping[0].rows.clear(), Warn, "remove `snooping` of [bridge.lan]"),
    ("querier", |facts| switch(facts).snooping[0].rows.push(member("ff0e::1")), Warn, "mcast_querier 1"),
    ("querier", |facts| switch(facts).snooping[0].rows[0] = querier(20, "IGMP"), Warn, "mcast_querier 1"),
    ("drift", |facts| file(facts).changed = Some(true), Warn, "straightline reload"),
    (
        "drift",
        |facts| {
            file(facts).changed = Some(true);
            event(facts, 0.0, EventKind::ReloadFailed { error: "line 3: bad".to_owned() });
        },
        Fail,
        "straightline check /etc/switch.toml",
    ),
    ("drift", |facts| switch(facts).runs_named_file = Some(false), Warn, "straightline doctor /etc/switch.toml"),
];

pub(super) fn file(facts: &mut Facts) -> &mut ConfigurationFile {
    switch(facts).status.configuration.as_mut().unwrap()
}

/// Gives the first port these VLANs.
fn join(facts: &mut Facts, role: VlanRole, list: &str, untagged: Option<u16>) {
    let vlans = facts.ports[0].port.vlans.as_mut().unwrap();
    (vlans.role, vlans.vlans, vlans.untagged) = (role, list.to_owned(), untagged);
}

/// Has the first port drop frames of VLANs that are not its own.
fn lose_tags(facts: &mut Facts, role: VlanRole, untagged: Option<u16>) {
    join(facts, role, "10,20-29", untagged);
    facts.ports[0].port.drops.insert("vlan-not-allowed".to_owned(), 7);
}

fn before(facts: &mut Facts, at: usize) -> &mut Port {
    &mut switch(facts).ports_before[at]
}

/// Makes a port drop packets, all of them before the look, of so many that came and went.
fn lose(facts: &mut Facts, at: usize, reason: &str, count: u64, of: u64) {
    let port = &mut facts.ports[at].port;
    port.drops.insert(reason.to_owned(), count);
    port.queues = vec![Queue {
        rx: Packets { packets: of, bytes: 0 },
        tx: Packets { packets: of - count, bytes: 0 },
        ..Queue::default()
    }];
    let found = Reason::ALL.iter().find(|one| one.name() == reason).expect("a reason");
    let name = port.name.clone();
    let before = port.clone();
    let switch = switch(facts);
    switch.ports_before[at] = before;
    switch.drops.drops.push(DropCount {
        port: name,
        reason: reason.to_owned(),
        count,
        meaning: found.meaning().to_owned(),
        remedy: found.remedy().to_owned(),
    });
}

/// The link is up, and nothing ever moved.
pub(super) fn move_nothing(facts: &mut Facts) {
    let port = &mut facts.ports[0].port;
    (port.link_since_s, port.queues) = (60.0, vec![Queue::default()]);
    port.drops = [("no-buffer".to_owned(), 40)].into();
}

fn event(facts: &mut Facts, time: f64, kind: EventKind) {
    let events = &mut switch(facts).events;
    events.push(Event { seq: events.len() as u64 + 1, time, message: String::new(), skipped: 0, kind });
}

/// Makes addresses move between `vm1` and another port.
fn to_and_fro(facts: &mut Facts, macs: &[&str], other: &str) {
    for mac in macs {
        for (from, to) in [("vm1", other), (other, "vm1"), ("vm1", other)] {
            let [bridge, mac, from, to] = ["lan", mac, from, to].map(str::to_owned);
            event(facts, 9_999.0, EventKind::Moved { bridge, mac, from, to });
        }
    }
    switch(facts).status.moves[0].count = 99;
}

/// Returns the verdicts of a check after a change to healthy facts.
fn verdicts(name: &str, change: fn(&mut Facts)) -> Vec<Verdict> {
    let mut facts = healthy();
    change(&mut facts);
    findings(&facts, name).iter().map(|finding| finding.result).collect()
}

#[test]
fn few_drops_and_usual_ones_are_no_finding() {
    let harmless: &[fn(&mut Facts)] = &[
        |facts| lose(facts, 0, "spoofed", 1, 1),
        |facts| lose(facts, 0, "too-big", 99, 10_000),
        |facts| lose(facts, 0, "bad-source", 100, 1_000_000),
        |facts| lose(facts, 0, "link-local", 400, 1_000),
        |facts| lose(facts, 2, "not-ours", 9_000, 100_000),
        |facts| lose(facts, 2, "tunnel-unknown", 2, 2),
        // The link was down for a time, and is up.
        |facts| lose(facts, 0, "link-down", 100_000, 100_000),
        // The check `ring-size` has it.
        |facts| lose(facts, 0, "no-buffer", 1_000, 2_000),
    ];
    for (at, change) in harmless.iter().enumerate() {
        assert_eq!(verdicts("drops", *change), [Verdict::Pass], "{at}");
    }
}

#[test]
fn a_limit_that_seldom_holds_is_no_finding() {
    let harmless: &[fn(&mut Facts)] = &[
        // Much, and nothing waited in the look.
        |facts| facts.ports[0].port.rate_in.as_mut().unwrap().passed_bytes = 999_000,
        |facts| {
            let rate = facts.ports[0].port.rate_in.as_mut().unwrap();
            (rate.passed_bytes, rate.wait_count) = (500_000, 9);
        },
        // The drops of a limit are this check's.
        |facts| lose(facts, 0, "rate", 5_000, 9_000),
    ];
    for (at, change) in harmless.iter().enumerate() {
        assert_eq!(verdicts("rates", *change), [Verdict::Pass], "{at}");
        assert_eq!(verdicts("drops", *change), [Verdict::Pass], "{at}");
    }
}

#[test]
fn a_loss_that_has_ended_warns_and_does_not_fail() {
    let found = verdicts("drops", |facts| {
        lose(facts, 0, "spoofed", 5_000, 9_000);
        before(facts, 0).queues[0].rx.packets -= 100;
    });
    assert_eq!(found, [Warn]);
}

#[test]
fn the_worst_loss_comes_first_and_says_both_numbers() {
    let mut facts = healthy();
    lose(&mut facts, 0, "too-big", 5_000, 1_000_000);
    lose(&mut facts, 1, "spoofed", 30, 30);
    before(&mut facts, 1).drops.insert("spoofed".to_owned(), 18);
    before(&mut facts, 1).queues[0].rx.packets = 18;
    let found = findings(&facts, "drops");
    let [first, second] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((first.result, second.result), (Fail, Warn));
    assert_eq!(first.symptom, "port vm2: 30 of 30 packets dropped as spoofed");
    assert!(first.detail.ends_with("; 12 of 12 in the time of this look"), "{first:?}");
    assert_eq!(second.symptom, "port vm1: 5000 of 1000000 packets dropped as too-big");
}

#[test]
fn an_address_that_moves_once_is_a_migration() {
    let found = verdicts("moves", |facts| {
        let [bridge, mac, from, to] = ["lan", "02::1", "vm1", "vm2"].map(str::to_owned);
        event(facts, 9_999.0, EventKind::Moved { bridge, mac, from, to });
    });
    assert_eq!(found, [Verdict::Pass]);
    let long_ago = verdicts("moves", |facts| {
        to_and_fro(facts, &["02::1"], "vm2");
        switch(facts).events.iter_mut().for_each(|event| event.time = 9_000.0);
    });
    assert_eq!(long_ago, [Verdict::Pass]);
}
