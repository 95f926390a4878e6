//! The behaviour of a real GoBGP with routes of type 2 and their sequence numbers. `src/lib.rs` explains what
//! follows for the process.

mod daemon;
mod process;
mod scale;
mod switch;

use std::path::Path;

use daemon::{ASN, Daemon, address, programs, table, until, wait_until};
use straightline_evpn::config::Config;
use straightline_evpn::gobgp::{CallError, Event, GoBgp, Told, Version};
use straightline_evpn::{Distinguisher, INGRESS_REPLICATION, Mobility, Pmsi, Route, RouteKey, Target, VXLAN};
use straightline_wire::MacAddr;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const VNI: u32 = 0x0001_0203;

/// Returns host `host`'s route of type 2 for `MAC`.
fn station(host: u8, sequence: u32, vni: u32) -> Route {
    let router = address(host).parse().expect("an address");
    Route {
        key: RouteKey::Station {
            rd: Distinguisher::of_router(router, (vni & 0xffff) as u16),
            tag: 0,
            mac: MAC,
            ip: Some("10.0.0.7".parse().expect("an address")),
        },
        next_hop: router.into(),
        label: vni,
        has_segment: false,
        targets: vec![Target::of_vni(ASN, vni), "192.0.2.1:5".parse().expect("a target"), Target::of_vni(70000, 1)],
        encapsulations: vec![VXLAN],
        mobility: Mobility { sticky: false, sequence },
        pmsi: None,
    }
}

fn flood(host: u8) -> Route {
    let route = station(host, 0, VNI);
    let origin = route.next_hop;
    let pmsi = Some(Pmsi { kind: INGRESS_REPLICATION, label: VNI });
    // The encoded NLRI of this type has no label.
    Route { key: RouteKey::Flood { rd: route.key.rd(), tag: 7, origin }, label: 0, pmsi, ..route }
}

/// All checks use one pair of daemons, because a session takes GoBGP some seconds.
#[test]
fn gobgp() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for program in programs("gobgp") {
        runtime.block_on(async {
            let (mut daemons, [here, there]) = pair(&program).await;
            routes_arrive_as_they_were_sent(&here, &there).await;
            gobgp_checks_sequence_numbers(&here, &there).await;
            version_3_mixes_networks(&here, &there).await;
            a_better_remote_route_leaves_ours_in_place(&here, &there).await;
            scale::gobgp_alone(&here, &there).await;
            clear([&here, &there]).await;
            process::processes(&mut daemons, &program);
            let here = daemons[0].connect().await;
            clear([&here, &there]).await;
            scale::many_stations(&daemons[0], &there).await;
            clear([&here, &there]).await;
            let [one, _two] = daemons;
            the_end_of_a_neighbour_withdraws_its_routes(one, &here, &there).await;
            a_neighbour_with_too_many_routes_is_cut_off(&program).await;
        });
    }
}

/// Deletes the routes that a check has left, and waits until both tables are empty.
async fn clear(gobgp: [&GoBgp; 2]) {
    for one in gobgp {
        for route in table(one).await {
            one.delete(&route.key).await.expect("it is deleted");
        }
    }
    for one in gobgp {
        until_table(one, "an empty table", |routes| routes.is_empty()).await;
    }
}

/// Starts two neighbours. Returns their connections once their session is up.
async fn pair(program: &Path) -> ([Daemon; 2], [GoBgp; 2]) {
    let daemons = [Daemon::start(program, 1, &[2]), Daemon::start(program, 2, &[1])];
    let gobgp = [daemons[0].connect().await, daemons[1].connect().await];
    for gobgp in &gobgp {
        let mut events = gobgp.watch().await.expect("a watch");
        until(&mut events, "the session", |event| match event {
            Event::Neighbour(neighbour) => neighbour.is_up.then_some(()),
            _ => None,
        })
        .await;
    }
    (daemons, gobgp)
}

/// Waits until `gobgp`'s table has a route that `wanted` accepts.
async fn until_table(gobgp: &GoBgp, what: &str, wanted: impl Fn(&[Route]) -> bool) -> Vec<Route> {
    wait_until(what, async || {
        let routes = table(gobgp).await;
        if wanted(&routes) { Ok(routes) } else { Err(routes) }
    })
    .await
}

/// Both versions take the routes as bytes, tell them to the neighbour, and tell all of them back.
async fn routes_arrive_as_they_were_sent(here: &GoBgp, there: &GoBgp) {
    let mut events = there.watch().await.expect("a watch");
    until(&mut events, "the beginning", |event| (event == Event::Began).then_some(())).await;
    let sticky = Route { mobility: Mobility { sticky: true, sequence: 0 }, ..station(1, 0, VNI) };
    for sent in [station(1, 5, VNI), flood(1), sticky] {
        here.add(&sent).await.expect("it is taken");
        let told = until(&mut events, "the route", |event| match event {
            Event::Path(told) => Some(told),
            _ => None,
        })
        .await;
        assert_eq!(told, Told::Route(sent.clone()), "{:?}", here.version());
        assert!(table(there).await.contains(&sent));
        here.delete(&sent.key).await.expect("it is deleted");
        until(&mut events, "the withdrawal", |event| (event == Event::Path(Told::Withdrawn(sent.key))).then_some(()))
            .await;
        assert_eq!(table(here).await, []);
    }
    // Deleting what is not there is no error.
    here.delete(&flood(1).key).await.expect("it is not there");
    clear([here, there]).await;
}

/// GoBGP checks the sequence number against the highest one that it knows of the station. It refuses a
/// lower one, and adds the community to a path without one.
async fn gobgp_checks_sequence_numbers(here: &GoBgp, there: &GoBgp) {
    there.add(&station(2, 4, VNI)).await.expect("the first one is taken");
    until_table(here, "the remote route", |routes| routes.len() == 1).await;

    // Lower than that of the other host, or equal to it: refused. The table stays.
    for sequence in [1, 4] {
        let refused = here.add(&station(1, sequence, VNI)).await;
        let why = refused.expect_err("a number that is too low").to_string();
        assert!(why.contains("invalid MAC mobility sequence number"), "{why}");
    }
    assert_eq!(table(here).await.len(), 1);

    // Higher: taken as it is. The remote route stays in the table beside it.
    here.add(&station(1, 9, VNI)).await.expect("a higher number");
    let routes = until_table(here, "both routes", |routes| routes.len() == 2).await;
    assert!(routes.contains(&station(1, 9, VNI)) && routes.contains(&station(2, 4, VNI)), "{routes:?}");

    // Of our own path, an equal number is taken, and a lower one is refused.
    here.add(&station(1, 9, VNI)).await.expect("the same again");
    assert!(here.add(&station(1, 8, VNI)).await.is_err());

    // Without the community (our 0), GoBGP adds it with its own idea of the number.
    here.add(&station(1, 0, VNI)).await.expect("without a number");
    until_table(here, "GoBGP's number", |routes| routes.contains(&station(1, 9, VNI))).await;
    here.delete(&station(1, 0, VNI).key).await.expect("it is deleted");
    here.add(&station(1, 0, VNI)).await.expect("without a number");
    until_table(here, "one more than the remote's", |routes| routes.contains(&station(1, 5, VNI))).await;
    clear([here, there]).await;
}

/// A station of another network has its own numbers in version 4. Version 3 mixes them.
async fn version_3_mixes_networks(here: &GoBgp, there: &GoBgp) {
    // The targets of both routes differ, except those that are in all of them: take these away.
    let only = |route: Route| Route { targets: route.targets[..1].to_vec(), ..route };
    there.add(&only(station(2, 4, 77))).await.expect("the first one is taken");
    until_table(here, "the remote route", |routes| routes.len() == 1).await;
    let answer = here.add(&only(station(1, 1, VNI))).await;
    match here.version() {
        Version::V3 => assert!(matches!(answer, Err(CallError::Refused { .. })), "{answer:?}"),
        Version::V4 => answer.expect("another network"),
    }
    // Without a number, both take the path.
    here.add(&only(station(1, 0, VNI))).await.expect("without a number");
    clear([here, there]).await;
}

/// With an Ethernet segment of ten zero bytes, GoBGP neither withdraws nor hides our path when a
/// better one comes: to withdraw it is up to us.
async fn a_better_remote_route_leaves_ours_in_place(here: &GoBgp, there: &GoBgp) {
    here.add(&station(1, 1, VNI)).await.expect("the first one is taken");
    until_table(there, "our route", |routes| routes.len() == 1).await;
    let mut events = there.watch().await.expect("a watch");
    until(&mut events, "the beginning", |event| (event == Event::Began).then_some(())).await;
    there.add(&station(2, 2, VNI)).await.expect("a higher number");
    let routes = until_table(here, "the remote route", |routes| routes.len() == 2).await;
    assert!(routes.contains(&station(1, 1, VNI)), "{routes:?}");
    // A third route comes behind both. Until it is there, no withdrawal of ours has come.
    here.add(&flood(1)).await.expect("it is taken");
    until(&mut events, "the third route", |event| match event {
        Event::Path(Told::Withdrawn(key)) => panic!("{key} is withdrawn"),
        Event::Path(Told::Route(route)) => (route == flood(1)).then_some(()),
        _ => None,
    })
    .await;
    assert_eq!(table(there).await.len(), 3);
    clear([here, there]).await;
}

/// The end of a daemon ends the watch of its neighbour's routes with withdrawals.
async fn the_end_of_a_neighbour_withdraws_its_routes(one: Daemon, here: &GoBgp, there: &GoBgp) {
    here.add(&station(1, 0, VNI)).await.expect("it is taken");
    until_table(there, "the route", |routes| routes.len() == 1).await;
    let mut events = there.watch().await.expect("a watch");
    until(&mut events, "the beginning", |event| (event == Event::Began).then_some(())).await;
    drop(one);
    let key = station(1, 0, VNI).key;
    until(&mut events, "the withdrawal", |event| (event == Event::Path(Told::Withdrawn(key))).then_some(())).await;
    // The connection to the dead daemon tells it.
    assert!(here.add(&flood(1)).await.is_err());
}

/// A generated configuration limits the routes of a neighbour: its session ends, and stays down.
async fn a_neighbour_with_too_many_routes_is_cut_off(program: &Path) {
    let own = address(3);
    let text = format!(
        "asn = {ASN}\nrouter-id = \"{own}\"\naddress = \"192.0.2.1\"\ngobgp = \"127.0.0.1:1\"\nlisten-port = 1790\n\
         [network.net]\nbridge = \"lan\"\ntunnel = \"vx0\"\nvni = 100\n\
         [[neighbor]]\naddress = \"{}\"\nmax-routes = 3\n",
        address(4)
    );
    let config = Config::parse(&text, Path::new("evpn.toml")).expect("it is right");
    let generated = config.gobgpd().expect("it is right");
    // Only the port differs: both daemons are on this machine.
    let text = generated.replace("passive-mode = false", "passive-mode = false\nremote-port = 1790");
    assert!(text != generated, "{generated}");
    let there = Daemon::start(program, 4, &[3]);
    let here = Daemon::with_configuration(program, &text);
    let connections = [here.connect().await, there.connect().await];
    let mut events = connections[0].watch().await.expect("a watch");
    let session = |event, up| match event {
        Event::Neighbour(neighbour) => (neighbour.is_up == up).then_some(()),
        _ => None,
    };
    until(&mut events, "the session", |event| session(event, true)).await;
    for number in 0..8 {
        let mac = MacAddr([2, 0, 0, 0, 1, number]);
        let mut route = station(4, 0, VNI);
        if let RouteKey::Station { mac: of, ip, .. } = &mut route.key {
            *of = mac;
            *ip = None;
        }
        connections[1].add(&route).await.expect("it is taken");
    }
    until(&mut events, "the end of the session", |event| session(event, false)).await;
    until_table(&connections[0], "no route of the neighbour", |routes| routes.is_empty()).await;
}
