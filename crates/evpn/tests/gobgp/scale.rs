//! Many hosts with many stations, injected into GoBGP. `STRAIGHTLINE_LONG=1` has 200 hosts with 500
//! stations each, and prints how long each step takes (`docs/benchmarks/evpn.md`).

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use straightline_evpn::gobgp::{Event, GoBgp, Told};
use straightline_evpn::process::Status;
use straightline_evpn::{Distinguisher, INGRESS_REPLICATION, Mobility, Pmsi, Route, RouteKey, Target, VXLAN};
use straightline_wire::MacAddr;

use crate::daemon::{ASN, Daemon, table, until};
use crate::process::{Running, until_status};
use crate::switch::{FakeSwitch, Table};

const VNI: u32 = 100;

/// The number of hosts, and of stations of each.
fn size() -> (u16, u16) {
    let is_long = std::env::var_os("STRAIGHTLINE_LONG").is_some_and(|long| long == "1");
    if is_long { (200, 500) } else { (4, 20) }
}

fn flood(host: u16) -> Route {
    let [high, low] = host.to_be_bytes();
    let address = Ipv4Addr::new(198, 18, high, low);
    let rd = Distinguisher::of_router(address, 100);
    Route {
        key: RouteKey::Flood { rd, tag: 0, origin: address.into() },
        next_hop: address.into(),
        label: 0,
        has_segment: false,
        targets: vec![Target::of_vni(ASN, VNI)],
        encapsulations: vec![VXLAN],
        mobility: Mobility::default(),
        pmsi: Some(Pmsi { kind: INGRESS_REPLICATION, label: VNI }),
    }
}

/// Returns the route of station `number` at a host.
fn station(host: u16, number: u32, sequence: u32) -> Route {
    let flood = flood(host);
    let mac = MacAddr::from_u64(0x0200_0000_0000 | u64::from(number));
    let key = RouteKey::Station { rd: flood.key.rd(), tag: 0, mac, ip: None };
    Route { key, label: VNI, mobility: Mobility { sticky: false, sequence }, pmsi: None, ..flood }
}

/// Prints a figure of the long run.
fn figure(what: &str, began: Instant) {
    if size().0 > 10 {
        let _ = writeln!(std::io::stdout(), "{what}: {:.1} s", began.elapsed().as_secs_f64());
    }
}

fn is_behind(table: &Table, route: &Route) -> bool {
    let RouteKey::Station { mac, .. } = route.key else { return false };
    let wanted = (route.next_hop.to_string(), u64::from(route.mobility.sequence));
    table.stations.get(&mac.to_string()) == Some(&wanted)
}

/// The number of stations that come one after the other.
fn count() -> u32 {
    if size().0 > 10 { 100 } else { 3 }
}

/// Stations are heard at one host, one after the other: the time until another switch has each.
pub(crate) fn one_station_after_the_other(here: &FakeSwitch, there: &FakeSwitch) {
    let times = (0..count())
        .map(|number| {
            let mac = MacAddr::from_u64(0x0200_0001_0000 | u64::from(number)).to_string();
            let began = Instant::now();
            here.hear(&mac);
            there.wait("the station", |table| table.stations.contains_key(&mac));
            began.elapsed()
        })
        .collect();
    quantiles("a station is known elsewhere", times);
}

/// The same without the process and the switches: the time from a call at one GoBGP until the other one tells
/// the route.
pub(crate) async fn gobgp_alone(here: &GoBgp, there: &GoBgp) {
    let mut events = there.watch().await.expect("a watch");
    until(&mut events, "the beginning", |event| (event == Event::Began).then_some(())).await;
    let mut times = Vec::new();
    for number in 0..count() {
        let route = station(0, number, 0);
        let began = Instant::now();
        here.add(&route).await.expect("it is taken");
        let is_it = |event| matches!(event, Event::Path(Told::Route(told)) if told.key == route.key).then_some(());
        until(&mut events, "the route", is_it).await;
        times.push(began.elapsed());
    }
    quantiles("GoBGP alone tells a route", times);
}

/// Prints some of these times, in a long run.
fn quantiles(what: &str, mut times: Vec<Duration>) {
    times.sort();
    if let [.., last] = *times
        && times.len() == 100
    {
        let [half, most, last] = [times[49], times[94], last].map(|time| time.as_secs_f64() * 1e3);
        let _ = writeln!(std::io::stdout(), "{what}: {half:.1} ms, {most:.1} ms (95 %), {last:.1} ms");
    }
}

/// `there` announces all stations; the process of `here` puts them into its switch. Then some of them
/// move, and one host goes away.
pub(crate) async fn many_stations(daemon: &Daemon, there: &GoBgp) {
    let folder = tempfile::tempdir().expect("a folder");
    let switch = FakeSwitch::start(&folder.path().join("api.sock"));
    let running = Running::start(&folder, 1, daemon, &switch);
    let (hosts, each) = size();
    let total = u32::from(hosts) * u32::from(each);
    let numbers = |host: u16| (0..u32::from(each)).map(move |at| u32::from(host) * u32::from(each) + at);

    let began = Instant::now();
    for host in 0..hosts {
        there.add(&flood(host)).await.expect("it is taken");
        for number in numbers(host) {
            there.add(&station(host, number, 0)).await.expect("it is taken");
        }
    }
    figure("GoBGP has taken all routes", began);
    let all = |table: &Table| table.stations.len() == total as usize && table.remotes.len() == usize::from(hosts);
    let found = switch.wait("all stations", all);
    figure("the switch has all stations", began);
    for host in 0..hosts {
        for number in numbers(host) {
            assert!(is_behind(&found, &station(host, number, 0)), "station {number}");
        }
    }

    let began = Instant::now();
    let count = table(there).await.len();
    assert!(count >= total as usize + usize::from(hosts), "{count}");
    figure("GoBGP has listed its table", began);

    // A second process, which finds everything at once.
    drop(running);
    switch.restart();
    let began = Instant::now();
    let _running = Running::start(&folder, 1, daemon, &switch);
    switch.wait("all stations", all);
    figure("a new process has told a new switch all stations", began);

    // Some stations of host 0 move to host 1, as their new host says.
    let began = Instant::now();
    let moving: Vec<Route> = numbers(0).take(1000).map(|number| station(1, number, 1)).collect();
    for route in &moving {
        there.add(route).await.expect("it is taken");
    }
    switch.wait("the moves", |table| moving.iter().all(|route| is_behind(table, route)));
    figure(&format!("{} stations have moved", moving.len()), began);

    // The last host goes away, as all its routes say.
    let last = hosts - 1;
    let began = Instant::now();
    for number in numbers(last) {
        there.delete(&station(last, number, 0).key).await.expect("it is deleted");
    }
    there.delete(&flood(last).key).await.expect("it is deleted");
    let left = (total - u32::from(each)) as usize;
    let host: IpAddr = flood(last).next_hop;
    switch
        .wait("the end of a host", |table| table.stations.len() == left && !table.remotes.contains(&host.to_string()));
    figure("a host has gone", began);
    let kept = |status: &Status| status.networks.iter().map(|network| network.elsewhere).sum::<usize>() == left;
    let status = until_status(&folder, "the same in the status", kept);
    assert_eq!(status.switch.refused, 0, "{status:?}");
}
