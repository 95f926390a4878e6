//! Remotes and stations that clients add: two bridges joined by VXLAN, without a remote in the file.
//!
//! ```text
//! A ─ bridge one ─ t1@left ══ wire ══ right@t2 ─ bridge two ─ B
//! ```

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use straightline_graph::Clock;
use straightline_switch::Switch;
use straightline_switch::api::{
    BindingsRequest, ChangeRemotes, ChangeStations, EntriesChanged, EventKind, Link, NetworkEvent, NewStation, Refusal,
    RemotesRequest, StationsRequest, Stream, SubscribeRequest,
};
use straightline_testing::tunnel::{Net, config};
use straightline_testing::{BROADCAST, arrived, frame, has_nothing, mac, send, take, wait_moving, wait_until};
use straightline_wire::{EtherType, MacAddr, arp, ethernet};

/// The time between two looks of the switch at its links and owners.
const LOOK: Duration = Duration::from_millis(100);

/// Seconds after which the entries of an owner that has gone end.
const STALE: u32 = 60;

fn text(dir: &std::path::Path, remotes: &str, keys: &str) -> String {
    let mut text = String::new();
    for (port, mtu) in [("a", 1500), ("left", 1600), ("right", 1600), ("b", 1500), ("c", 1500)] {
        let socket = dir.join(port);
        writeln!(text, "[port.{port}]\nkind = \"vhost-user\"\nsocket = {socket:?}\nmtu = {mtu}").expect("text");
    }
    for (name, ip) in [("left", 1), ("right", 2)] {
        writeln!(text, "[underlay.{name}]\nport = {name:?}\naddress = [\"192.0.2.{ip}/24\"]").expect("text");
    }
    for (name, underlay) in [("t1", "left"), ("t2", "right")] {
        writeln!(
            text,
            "[port.{name}]\nkind = \"vxlan\"\nvni = 7\nunderlay = {underlay:?}\nremotes = [{remotes}]\nmtu = 1500"
        )
        .expect("text");
    }
    text + &format!("[bridge.one]\nports = [\"a\", \"t1\", \"c\"]\n{keys}\n[bridge.two]\nports = [\"t2\", \"b\"]\n")
}

fn start(keys: &str) -> Net {
    start_by(&Clock::real(), keys)
}

fn start_by(clock: &Clock, keys: &str) -> Net {
    let dir = tempfile::tempdir().expect("a folder");
    let text = text(dir.path(), "", keys);
    let net = Net::by(clock, dir, &text);
    net.cut.store(false, Ordering::Relaxed);
    net
}

fn remotes(net: &Net, tunnel: &str, command: &str, remotes: &[&str]) -> Result<EntriesChanged, Refusal> {
    let remotes: Vec<String> = remotes.iter().map(|&remote| remote.to_owned()).collect();
    let request = ChangeRemotes {
        tunnel: tunnel.to_owned(),
        owner: "evpn".to_owned(),
        command: command.to_owned(),
        ..ChangeRemotes::default()
    };
    net.switch.change_remotes(&request, &remotes)
}

fn station(last: u8, port: &str, remote: Option<&str>) -> NewStation {
    NewStation {
        mac: mac(last).to_string(),
        vlan: 1,
        port: port.to_owned(),
        remote: remote.map(str::to_owned),
        ..NewStation::default()
    }
}

fn stations(
    switch: &Switch,
    bridge: &str,
    owner: &str,
    command: &str,
    stations: &[NewStation],
) -> Result<EntriesChanged, Refusal> {
    let request = ChangeStations {
        bridge: bridge.to_owned(),
        owner: owner.to_owned(),
        command: command.to_owned(),
        ..ChangeStations::default()
    };
    switch.change_stations(&request, stations)
}

/// Adds the remotes of both ends, and the station of each guest at the other end.
fn join(net: &Net) {
    add_ends(net);
    wait_until("the tunnels are up", || are_up(net));
}

/// Adds them to a switch with a moved clock.
fn join_moving(clock: &Clock, net: &Net) {
    add_ends(net);
    wait_moving(clock, LOOK, "the tunnels are up", || are_up(net));
}

fn are_up(net: &Net) -> bool {
    ["t1", "t2"].iter().all(|name| net.port(name).link == Link::Up)
}

fn add_ends(net: &Net) {
    let added = |count| Ok(EntriesChanged { added: count, ..EntriesChanged::default() });
    assert_eq!(remotes(net, "t1", "add", &["192.0.2.2"]), added(1));
    assert_eq!(remotes(net, "t2", "add", &["192.0.2.1"]), added(1));
    let far = [station(2, "t1", Some("192.0.2.2"))];
    assert_eq!(stations(&net.switch, "one", "evpn", "add", &far), added(1));
    let near = [station(1, "t2", Some("192.0.2.1"))];
    assert_eq!(stations(&net.switch, "two", "evpn", "add", &near), added(1));
}

fn reload(net: &Net, remotes: &str, keys: &str) {
    net.switch.reload(&config(&text(net.dir.path(), remotes, keys))).expect("a reload");
}

#[test]
fn two_guests_reach_each_other_by_what_a_client_has_added() {
    let mut net = start("");
    assert_eq!(net.port("t1").cause.as_deref(), Some("no-remote"));
    let from_a = frame(mac(2), mac(1), 100, 1);
    let from_b = frame(mac(1), mac(2), 100, 2);
    // Without a remote, nothing leaves.
    send(&mut net.a, &from_a);
    wait_until("a drop", || net.port("t1").drops.get("link-down") == Some(&1));
    join(&net);
    // Guest C would see a flood.
    let mut c = straightline_guest::Guest::connect(&net.dir.path().join("c"), &Default::default()).expect("a guest");
    wait_until("the link of C is up", || net.port("c").link == Link::Up);
    for len in [60, 1514] {
        for (from, to, frame) in [(1, 2, frame(mac(2), mac(1), len, 1)), (2, 1, frame(mac(1), mac(2), len, 2))] {
            let (sender, receiver) = if from == 1 { (&mut net.a, &mut net.b) } else { (&mut net.b, &mut net.a) };
            send(sender, &frame);
            assert_eq!(take(receiver, 1)[0].1, frame, "from {from} to {to}");
        }
    }
    net.settle();
    has_nothing(&mut c);
    // A frame for all goes to the remote once.
    let flood = frame(BROADCAST, mac(1), 100, 3);
    send(&mut net.a, &flood);
    assert_eq!(take(&mut net.b, 1)[0].1, flood);
    assert_eq!(take(&mut c, 1)[0].1, flood);
    net.settle();
    has_nothing(&mut net.b);

    // A reload of other keys keeps all; a reload of the tunnels makes them anew.
    for (list, keys) in [("", "ageing = 60"), ("\"192.0.2.77\"", "ageing = 60"), ("", "")] {
        reload(&net, list, keys);
        wait_until("the tunnels are up", || ["t1", "t2"].iter().all(|name| net.port(name).link == Link::Up));
        send(&mut net.a, &from_a);
        assert_eq!(take(&mut net.b, 1)[0].1, from_a, "{list} {keys}");
        send(&mut net.b, &from_b);
        assert_eq!(take(&mut net.a, 1)[0].1, from_b, "{list} {keys}");
        net.settle();
        has_nothing(&mut c);
    }
    let known = net.switch.source().stations(&StationsRequest::new("one")).expect("the stations");
    assert_eq!(known.total, 1);
    assert!(known.stations[0].active && known.stations[0].confirmed, "{known:?}");
    let entries = net.switch.source().fdb().entries;
    assert!(entries.iter().any(|entry| entry.is_owned && entry.port == "t1"), "{entries:?}");

    // Without its remote, a packet goes nowhere, and one from there is of no tunnel.
    assert_eq!(remotes(&net, "t1", "delete", &["192.0.2.2"]).expect("a change").deleted, 1);
    assert_eq!(net.switch.source().stations(&StationsRequest::new("one")).expect("the stations").total, 0);
    send(&mut net.b, &from_b);
    wait_until("a drop", || net.drops().contains_key("tunnel-unknown"));
    net.settle();
    has_nothing(&mut net.a);
    // It comes back under the same index.
    join_again(&net);
    send(&mut net.b, &from_b);
    assert_eq!(take(&mut net.a, 1)[0].1, from_b);
}

fn join_again(net: &Net) {
    assert_eq!(remotes(net, "t1", "replace", &["192.0.2.9", "192.0.2.2"]).expect("a change").added, 2);
    assert_eq!(remotes(net, "t1", "replace", &["192.0.2.2"]).expect("a change").deleted, 1);
    wait_until("the tunnel is up", || net.port("t1").link == Link::Up);
}

#[test]
fn a_change_with_a_wrong_entry_changes_nothing_and_says_which() {
    let net = start("api-stations = 3\nstatic = { \"02:00:00:00:00:63\" = \"a\" }");
    let state = |net: &Net| {
        let source = net.switch.source();
        let remotes = source.remotes(&RemotesRequest::new("t1")).expect("the remotes");
        (source.fdb(), remotes, source.stations(&StationsRequest::new("one")).expect("the stations"))
    };
    let refusal = |done: Result<EntriesChanged, Refusal>| {
        let refusal = done.expect_err("a refusal");
        (refusal.index, refusal.error)
    };
    for (wrong, why) in [
        ("192.0.2.1", "an address of our own"),
        ("198.51.100.1", "no gateway"),
        ("::1", "not of the IP version"),
        ("x", "no IP address"),
        ("192.0.2.2", "named twice"),
    ] {
        let before = state(&net);
        let (index, error) = refusal(remotes(&net, "t1", "add", &["192.0.2.2", wrong]));
        assert!(index == Some(1) && error.contains(why), "{index:?} {error}");
        assert_eq!(state(&net), before, "{wrong}");
    }
    remotes(&net, "t1", "add", &["192.0.2.2"]).expect("a change");
    let good = station(2, "t1", Some("192.0.2.2"));
    let with = |change: &dyn Fn(&mut NewStation)| {
        let mut station = station(3, "t1", Some("192.0.2.2"));
        change(&mut station);
        station
    };
    for (wrong, why) in [
        (with(&|station| station.mac = "01:00:5e:00:00:01".to_owned()), "multicast"),
        (with(&|station| station.mac = "02:00".to_owned()), "six bytes"),
        (with(&|station| station.vlan = 0), "VLAN 0"),
        (with(&|station| station.vlan = 7), "not in VLAN 7"),
        (with(&|station| station.port = "b".to_owned()), "no such port"),
        (with(&|station| station.port = "a".to_owned()), "no table of remotes"),
        (with(&|station| station.remote = None), "name one of 192.0.2.2"),
        (with(&|station| station.remote = Some("192.0.2.3".to_owned())), "add it first"),
        (with(&|station| station.ips = vec!["224.0.0.1".to_owned()]), "not the address of a station"),
        (good.clone(), "named twice"),
    ] {
        let before = state(&net);
        let (index, error) = refusal(stations(&net.switch, "one", "evpn", "add", &[good.clone(), wrong]));
        assert!(index == Some(1) && error.contains(why), "{index:?} {error}");
        assert_eq!(state(&net), before, "{error}");
    }
    // The file wins, the limit holds, and nobody takes another owner's.
    let own = [station(99, "t1", Some("192.0.2.2")), good.clone(), station(4, "a", None), station(5, "a", None)];
    let done = stations(&net.switch, "one", "evpn", "add", &own).expect("a change");
    assert_eq!((done.added, done.kept), (3, 1));
    let before = state(&net);
    let (index, error) = refusal(stations(&net.switch, "one", "evpn", "add", &[good.clone(), station(6, "a", None)]));
    assert!(index == Some(1) && error.contains("api-stations"), "{error}");
    let (index, error) = refusal(stations(&net.switch, "one", "other", "add", std::slice::from_ref(&good)));
    assert!(index == Some(0) && error.contains("\"evpn\" has it"), "{error}");
    assert_eq!(
        stations(&net.switch, "one", "other", "delete", std::slice::from_ref(&good)).expect("a change").deleted,
        0
    );
    for owner in ["file", "", "a b"] {
        stations(&net.switch, "one", owner, "add", std::slice::from_ref(&good)).expect_err("a wrong name");
    }
    assert_eq!(state(&net), before);
    // To add an older entry changes nothing. A replacement holds as it is, and removes the rest.
    let newer = NewStation { sequence: 5, ..station(2, "a", None) };
    let older = NewStation { sequence: 4, ..good };
    assert_eq!(stations(&net.switch, "one", "evpn", "add", std::slice::from_ref(&newer)).expect("a change").changed, 1);
    assert_eq!(stations(&net.switch, "one", "evpn", "add", &[older]).expect("a change").kept, 1);
    let after_return = NewStation { sequence: 3, ..newer };
    let done = stations(&net.switch, "one", "evpn", "replace", &[after_return]).expect("a change");
    assert_eq!((done.changed, done.deleted), (1, 2));
    let known = net.switch.source().stations(&StationsRequest::new("one")).expect("the stations");
    assert_eq!((known.total, known.stations[0].port.as_str(), known.stations[0].sequence), (1, "a", 3));
    let tunnel = net.switch.source().fdb().remotes;
    assert!(tunnel.iter().all(|entry| entry.port != "t1"), "no station is left in the tunnel: {tunnel:?}");
}

/// Reads a stream as a client does.
struct Reader {
    stream: Box<dyn Stream>,
    lines: Vec<NetworkEvent>,
}

impl Reader {
    /// Returns the lines up to one that is so.
    fn until(&mut self, what: &str, is_so: impl Fn(&NetworkEvent) -> bool) -> Vec<NetworkEvent> {
        let at = wait_until(&format!("the stream has the {what}"), || {
            let mut output = Vec::new();
            assert!(self.stream.fill(&mut output));
            let text = String::from_utf8(output).expect("text");
            self.lines.extend(text.lines().map(|line| serde_json::from_str(line).expect("an event")));
            self.lines.iter().position(&is_so).ok_or_else(|| self.lines.clone())
        });
        self.lines.drain(..=at).collect()
    }
}

fn subscribe(net: &Net, owner: Option<&str>, stale_s: u32) -> (u64, Reader) {
    let request = SubscribeRequest { owner: owner.map(str::to_owned), stale_s, bridges: vec!["one".to_owned()] };
    let (answer, stream) = net.switch.subscribe(&request).expect("a stream");
    (answer.unconfirmed, Reader { stream, lines: Vec::new() })
}

#[test]
fn a_subscriber_has_the_state_and_each_change() {
    let clock = Clock::moved();
    let mut net = start_by(&clock, "static = { \"02:00:00:00:00:63\" = \"a\" }");
    send(&mut net.a, &frame(BROADCAST, mac(1), 60, 1));
    wait_until("the station is learned", || {
        net.switch.source().fdb().entries.iter().any(|e| e.mac == mac(1).to_string())
    });
    let (_, mut reader) = subscribe(&net, None, 60);
    let state = reader.until("state", |line| *line == NetworkEvent::Synced);
    assert_eq!(state[0], NetworkEvent::Begin);
    let learned: Vec<_> = state
        .iter()
        .filter_map(|line| match line {
            NetworkEvent::Learned { mac, port, is_static, .. } => Some((mac.as_str(), port.as_str(), *is_static)),
            _ => None,
        })
        .collect();
    let macs = [mac(1), mac(99)].map(|mac| mac.to_string());
    let mut sorted = learned;
    sorted.sort_unstable();
    assert_eq!(sorted, [(macs[0].as_str(), "a", false), (macs[1].as_str(), "a", true)]);
    assert!(state.contains(&NetworkEvent::Link { port: "a".to_owned(), up: true }));

    join_moving(&clock, &net);
    send(&mut net.a, &frame(BROADCAST, mac(5), 60, 1));
    reader.until(
        "station",
        |line| matches!(line, NetworkEvent::Learned { mac: m, port, .. } if *m == mac(5).to_string() && port == "a"),
    );
    // The address of a station far away appears here: it is claimed, and goes on to its owner's place.
    send(&mut net.a, &frame(BROADCAST, mac(2), 60, 1));
    reader.until(
        "claim",
        |line| matches!(line, NetworkEvent::Claimed { mac: m, port, .. } if *m == mac(2).to_string() && port == "a"),
    );
    // The owner lets it go, and the next frame is learned.
    let gone = [station(2, "", None)];
    assert_eq!(stations(&net.switch, "one", "evpn", "delete", &gone).expect("a change").deleted, 1);
    send(&mut net.a, &frame(BROADCAST, mac(2), 60, 1));
    reader.until("station", |line| matches!(line, NetworkEvent::Learned { mac: m, .. } if *m == mac(2).to_string()));
    // An owner takes a learned station.
    let taken = [station(5, "t1", Some("192.0.2.2"))];
    stations(&net.switch, "one", "evpn", "add", &taken).expect("a change");
    reader.until("loss", |line| matches!(line, NetworkEvent::Aged { mac: m, .. } if *m == mac(5).to_string()));
    // Another table after a reload: the whole state comes again.
    reload(&net, "", "ageing = 40");
    let state = reader.until("state", |line| *line == NetworkEvent::Synced);
    assert!(state.contains(&NetworkEvent::Begin), "{state:?}");
    // Without traffic, stations age all the same.
    clock.advance(Duration::from_secs(40));
    reader.until("ageing", |line| matches!(line, NetworkEvent::Aged { mac: m, .. } if *m == mac(2).to_string()));
}

#[test]
fn entries_of_an_owner_that_has_gone_end_unless_it_confirms_them() {
    let clock = Clock::moved();
    let net = start_by(&clock, "");
    let (unconfirmed, mut first) = subscribe(&net, Some("evpn"), STALE);
    assert_eq!(unconfirmed, 0);
    first.until("state", |line| *line == NetworkEvent::Synced);
    join_moving(&clock, &net);
    let list = || net.switch.source().stations(&StationsRequest::new("one")).expect("the stations").stations;
    stations(&net.switch, "one", "evpn", "add", &[station(7, "a", None)]).expect("a change");
    drop(first);
    clock.advance(Duration::from_secs((STALE - 1).into()));
    let (unconfirmed, second) = subscribe(&net, Some("evpn"), STALE);
    assert_eq!(unconfirmed, 5, "two remotes and three stations");
    assert!(list().iter().all(|station| !station.confirmed && station.active));
    assert_eq!(remotes(&net, "t1", "add", &["192.0.2.2"]), Ok(EntriesChanged::default()));
    let far = [station(2, "t1", Some("192.0.2.2"))];
    assert_eq!(stations(&net.switch, "one", "evpn", "add", &far), Ok(EntriesChanged::default()));
    assert_eq!(list().len(), 2);
    clock.advance(Duration::from_secs(1));
    let expired = EventKind::OwnerExpired { owner: "evpn".to_owned() };
    assert!(net.switch.source().events(0).events.iter().any(|event| event.kind == expired));
    let left: Vec<_> = list().into_iter().map(|station| (station.mac, station.confirmed)).collect();
    assert_eq!(left, [(mac(2).to_string(), true)]);
    let remotes = |tunnel| net.switch.source().remotes(&RemotesRequest::new(tunnel)).expect("the remotes").total;
    assert_eq!((remotes("t1"), remotes("t2")), (1, 0));
    // Another owner has no lease, and stays.
    stations(&net.switch, "one", "cli", "add", &[station(8, "a", None)]).expect("a change");
    drop(second);
    clock.advance(Duration::from_secs((STALE - 1).into()));
    assert_eq!(list().len(), 2);
    clock.advance(Duration::from_secs(1));
    assert_eq!(list().len(), 1);
    assert_eq!(list()[0].owner, "cli");
}

/// Returns an ARP message of the station with this last byte in both addresses.
fn arp(operation: arp::Operation, from: u8, to: MacAddr, target: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    ethernet::Repr { dst: to, src: mac(from), ether_type: EtherType::ARP }.emit(&mut frame).expect("a header");
    let repr = arp::Repr {
        operation,
        sender_mac: mac(from),
        sender_ip: [10, 0, 0, from].into(),
        target_mac: if to.is_multicast() { MacAddr::default() } else { to },
        target_ip: [10, 0, 0, target].into(),
    };
    repr.emit(&mut frame[14..]).expect("a message");
    frame
}

#[test]
fn a_question_for_a_far_neighbour_is_answered_here() {
    const KEYS: &str = "neighbour-suppression = true\nageing = 60";
    let clock = Clock::moved();
    let mut net = start_by(&clock, KEYS);
    let checked = |net: &Net| {
        let text = text(net.dir.path(), "", KEYS);
        let keys = "source-check = \"mac\"\nallowed-macs = [\"02:00:00:00:00:01\"]\nallowed-ips = [\"10.0.0.1\", \"10.0.0.9\"]\n[port.left]";
        net.switch.reload(&config(&text.replacen("[port.left]", keys, 1))).expect("a reload");
    };
    checked(&net);
    join_moving(&clock, &net);
    let far =
        NewStation { ips: vec!["10.0.0.2".to_owned(), "10.0.0.9".to_owned()], ..station(2, "t1", Some("192.0.2.2")) };
    let done = stations(&net.switch, "one", "evpn", "add", &[NewStation { sequence: 1, ..far }]).expect("a change");
    assert_eq!(done.changed, 1);
    let (_, mut reader) = subscribe(&net, None, 60);
    reader.until("state", |line| *line == NetworkEvent::Synced);
    // The far guest hears nothing of the question.
    send(&mut net.a, &arp(arp::Operation::REQUEST, 1, BROADCAST, 2));
    let answer = take(&mut net.a, 1).remove(0).1;
    let expected = arp(arp::Operation::REPLY, 2, mac(1), 1);
    assert_eq!(answer, expected[..42]);
    net.settle();
    has_nothing(&mut net.b);
    // The address of the guest that has asked is known now, as that of a checked port.
    let bound = reader.until("binding", |line| matches!(line, NetworkEvent::Bound { ip, .. } if ip == "10.0.0.1"));
    let expected = NetworkEvent::Bound {
        bridge: "one".to_owned(),
        vlan: 1,
        ip: "10.0.0.1".to_owned(),
        mac: mac(1).to_string(),
        port: "a".to_owned(),
        source: "checked".to_owned(),
    };
    assert_eq!(bound.last(), Some(&expected));
    // So is its station: the port may send from its own address only.
    let is_checked =
        |line: &NetworkEvent| matches!(line, NetworkEvent::Learned { port, is_checked: true, .. } if port == "a");
    if !bound.iter().any(is_checked) {
        reader.until("a station of a checked port", is_checked);
    }
    let bindings = || net.switch.source().bindings(&BindingsRequest { limit: 10, ..BindingsRequest::default() });
    let known: Vec<_> =
        bindings().expect("bindings").bindings.into_iter().map(|known| (known.ip, known.port, known.owner)).collect();
    let evpn = Some("evpn".to_owned());
    let expected = [("10.0.0.1", "a", None), ("10.0.0.2", "t1", evpn.clone()), ("10.0.0.9", "t1", evpn)];
    assert_eq!(known, expected.map(|(ip, port, owner)| (ip.to_owned(), port.to_owned(), owner)));
    // A question for an address that nobody has goes to all.
    let question = arp(arp::Operation::REQUEST, 1, BROADCAST, 3);
    send(&mut net.a, &question);
    assert_eq!(take(&mut net.b, 1)[0].1, question);
    let counter = |name: &str| {
        let tables = net.switch.source().tables().tables;
        tables.iter().find(|table| table.table == "bindings:one").expect("the bindings").counters[name]
    };
    assert_eq!((counter("answered"), counter("bound-elsewhere")), (1, 0));
    // A guest that is quiet is asked, and keeps its address by its answer.
    let asks = || arrived(&mut net.a).pop();
    let question = wait_moving(&clock, Duration::from_secs(1), "the guest is asked", asks).1;
    let asked = arp::Header::new_checked(&question[14..]).expect("a question");
    assert_eq!((asked.operation(), asked.target_ip()), (arp::Operation::REQUEST, [10, 0, 0, 1].into()));
    let bridge = asked.sender_mac();
    send(&mut net.a, &arp(arp::Operation::REPLY, 1, bridge, 0));
    wait_until("the answer is heard", || {
        bindings().expect("bindings").bindings.iter().any(|known| known.ip == "10.0.0.1" && !known.probed)
    });
    net.settle();
    has_nothing(&mut net.b);
    // A far question is flooded here: the other end answers for its own guests.
    let far = arp(arp::Operation::REQUEST, 2, BROADCAST, 1);
    send(&mut net.b, &far);
    assert_eq!(take(&mut net.a, 1)[0].1, far);
    // A reload keeps what the owner has said, and what was heard.
    checked(&net);
    assert_eq!(bindings().expect("bindings").total, 3);
    // An owner says that an address is far away, and a checked guest here claims it: the switch knows better.
    let mut claim = arp(arp::Operation::REQUEST, 1, BROADCAST, 3);
    claim[28..32].copy_from_slice(&[10, 0, 0, 9]);
    send(&mut net.a, &claim);
    assert_eq!(take(&mut net.b, 1)[0].1, claim);
    wait_until("the claim counts", || {
        let known = bindings().expect("bindings").bindings;
        known.iter().any(|known| known.ip == "10.0.0.9" && known.port == "a" && known.owner.is_none())
    });
    assert_eq!((bindings().expect("bindings").total, counter("overruled")), (3, 1));
    let gone = [station(2, "", None)];
    stations(&net.switch, "one", "evpn", "delete", &gone).expect("a change");
    assert_eq!(bindings().expect("bindings").total, 2);
}

/// Stations of other hosts come and go, ten at a time, while two guests exchange packets: none is lost. With
/// `STRAIGHTLINE_LONG=1` there are 100 000 stations, and 6000 changes.
#[test]
fn churn_of_stations_loses_no_packet() {
    const BATCH: u32 = 10;
    let is_long = std::env::var_os("STRAIGHTLINE_LONG").is_some_and(|long| long == "1");
    let (kept, batches) = if is_long { (99_000, 6000) } else { (1000, 50) };
    let mut net = start("api-stations = 100000");
    join(&net);
    let Net { switch, a, b, seen, .. } = &mut net;
    let switch: &Switch = switch;
    let all = |command: &str, numbers: std::ops::Range<u32>| {
        let list: Vec<NewStation> = numbers.map(|number| NewStation { ips: Vec::new(), ..numbered(number) }).collect();
        stations(switch, "one", "evpn", command, &list).expect("a change");
    };
    all("add", 0..kept);
    let done = AtomicBool::new(false);
    let exchanged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in 0..batches {
                // Those that come in one batch go in the next one.
                let first = kept + batch / 2 * BATCH;
                all(if batch % 2 == 0 { "add" } else { "delete" }, first..first + BATCH);
                // Packets pass between two changes.
                let before = exchanged.load(Ordering::Relaxed);
                wait_until("packets are exchanged", || exchanged.load(Ordering::Relaxed) > before + 1);
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let sent = exchanged.load(Ordering::Relaxed);
            let there = frame(mac(2), mac(1), 100, sent);
            let back = frame(mac(1), mac(2), 100, sent);
            send(a, &there);
            send(b, &back);
            assert_eq!(take(b, 1)[0].1, there, "packet {sent}");
            assert_eq!(take(a, 1)[0].1, back, "packet {sent}");
            exchanged.store(sent + 1, Ordering::Relaxed);
            // The wire keeps what has passed.
            seen.lock().expect("no panic").clear();
        }
    });
    let sent = exchanged.into_inner();
    if is_long {
        let _ = std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{sent} packets each way, none lost\n"));
    }
}

/// Returns a station by its number.
fn numbered(number: u32) -> NewStation {
    let [a, b, c, d] = number.to_be_bytes();
    NewStation {
        mac: MacAddr([2, 1, a, b, c, d]).to_string(),
        ips: vec![format!("10.{b}.{c}.{d}")],
        ..station(0, "t1", Some("192.0.2.2"))
    }
}

#[test]
fn a_hundred_thousand_stations_are_one_transaction() {
    const COUNT: u32 = 100_000;
    let net = start("api-stations = 100000\nneighbour-suppression = true");
    remotes(&net, "t1", "add", &["192.0.2.2"]).expect("a change");
    let mut all: Vec<_> = (0..COUNT).map(numbered).collect();
    let done = stations(&net.switch, "one", "evpn", "replace", &all).expect("a change");
    assert_eq!(done.added, u64::from(COUNT));
    // The same again confirms all, and one more is too many.
    assert_eq!(stations(&net.switch, "one", "evpn", "replace", &all), Ok(EntriesChanged::default()));
    all.push(numbered(COUNT));
    let refusal = stations(&net.switch, "one", "evpn", "replace", &all).expect_err("a refusal");
    assert_eq!(refusal.index, Some(u64::from(COUNT)));
    // Pages have each station once, all of them active.
    let mut request = StationsRequest { limit: StationsRequest::MOST, ..StationsRequest::new("one") };
    let mut seen = 0;
    loop {
        let page = net.switch.source().stations(&request).expect("the stations");
        assert!(page.stations.iter().all(|station| station.active && station.confirmed));
        assert!(page.stations.is_sorted_by_key(|station| station.mac.clone()));
        seen += page.stations.len();
        match page.next {
            Some(_) => request.after = page.next,
            None => break,
        }
    }
    assert_eq!(seen, COUNT as usize);
    let some = |limit| net.switch.source().bindings(&BindingsRequest { limit, ..BindingsRequest::default() });
    assert_eq!(some(3).expect("bindings").total, u64::from(COUNT));
    // A reload keeps them, and the remote takes them with it.
    reload(&net, "", "api-stations = 100000\nneighbour-suppression = true\nageing = 60");
    let last = StationsRequest { limit: 1, after: request.after, ..request };
    assert!(net.switch.source().stations(&last).expect("a station").stations[0].active);
    remotes(&net, "t1", "delete", &["192.0.2.2"]).expect("a change");
    assert_eq!(
        (net.switch.source().stations(&last).expect("stations").total, some(1).expect("bindings").total),
        (0, 0)
    );
}
