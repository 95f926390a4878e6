//! Snooping of IGMP in a bridge, with guests at its ports.

use std::net::Ipv4Addr;
use std::time::Duration;

use straightline_api::{Row, TableRequest};
use straightline_config::BridgeConfig;
use straightline_graph::Clock;
use straightline_guest::{Guest, GuestOptions};
use straightline_testing::multicast::{data, join, message, query};
use straightline_testing::{Rig, bridge, nothing_at, rig_by, send, take};
use straightline_wire::group_records::{GroupRecord, RecordType};
use straightline_wire::igmp;

const PORTS: usize = 4;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

fn lan() -> (Rig, Vec<Guest>) {
    let rig =
        rig_by(PORTS, &Clock::moved(), |config| config.bridges.push(BridgeConfig { snooping: true, ..bridge(PORTS) }));
    let guests = (0..PORTS).map(|port| rig.guest(port, &GuestOptions::default())).collect();
    (rig, guests)
}

/// A report of so many groups, from 239.7.7.0 on.
fn report(groups: u8) -> Vec<u8> {
    let mut records = Vec::new();
    for last in 0..groups {
        let mut buffer = [0; 8];
        let record = GroupRecord { record_type: RecordType::IS_EXCLUDE, group: [239, 7, 7, last], sources: &[] };
        record.emit(&mut buffer).expect("space");
        records.extend(buffer);
    }
    message(igmp::ALL_V3_ROUTERS, igmp::Repr::ReportV3 { count: groups.into(), records: &records })
}

/// Sends a frame; it arrives, unchanged, at exactly the guests in `to`.
fn expect(rig: &Rig, guests: &mut [Guest], from: usize, frame: &[u8], to: &[usize]) {
    send(&mut guests[from], frame);
    for &port in to {
        assert_eq!(take(&mut guests[port], 1)[0].1, frame, "at {port}");
    }
    let others = guests.iter_mut().enumerate().filter(|(port, _)| !to.contains(port));
    nothing_at(&rig.switch, others.map(|(_, guest)| guest));
}

/// Has a querier at port 0 ask, and lets its members the time to answer. From then on the bridge prunes.
fn settle(rig: &Rig, guests: &mut [Guest]) {
    expect(rig, guests, 0, &query(), &[1, 2, 3]);
    rig.advance(Duration::from_secs(3));
    expect(rig, guests, 3, &data(Ipv4Addr::new(239, 99, 99, 99)), &[0]);
}

fn rows(rig: &Rig) -> Vec<(String, String)> {
    let page = rig.switch.source().table(&TableRequest::new("snooping:lan")).expect("the table");
    let named = |row| match row {
        Row::GroupMember(row) => (row.group, row.port),
        Row::MulticastRouter(row) => (row.protocol, row.port),
        other => panic!("{other:?}"),
    };
    page.rows.into_iter().map(named).collect()
}

fn pair(group: &str, port: &str) -> (String, String) {
    (group.to_owned(), port.to_owned())
}

#[test]
fn packets_go_to_those_who_listen_also_after_a_reload() {
    let (rig, mut guests) = lan();
    expect(&rig, &mut guests, 3, &data(GROUP), &[0, 1, 2]);
    settle(&rig, &mut guests);
    expect(&rig, &mut guests, 1, &join(GROUP), &[0]);
    expect(&rig, &mut guests, 3, &data(GROUP), &[0, 1]);
    expect(&rig, &mut guests, 1, &data(GROUP), &[0]);
    let known = [pair("IGMP", "p0"), pair("239.1.2.3", "p1")];
    assert_eq!(rows(&rig), known);
    // The querier alone listens to another group, and sends to it.
    expect(&rig, &mut guests, 0, &data(Ipv4Addr::new(239, 5, 5, 5)), &[]);
    rig.wait_drops(0, "not-joined", 1);
    // Groups of the link, and what is no multicast of IP.
    expect(&rig, &mut guests, 3, &data(Ipv4Addr::new(224, 0, 0, 251)), &[0, 1, 2]);
    let mut broadcast = data(GROUP);
    broadcast[..6].fill(0xff);
    expect(&rig, &mut guests, 3, &broadcast, &[0, 1, 2]);

    // Port 2 leaves the bridge: the table has a successor.
    let mut config = rig.switch.config();
    config.bridges[0].ports = ["p3", "p1", "p0"].map(str::to_owned).to_vec();
    rig.switch.reload(&config).expect("other ports");
    assert_eq!(rows(&rig), known);
    expect(&rig, &mut guests, 3, &data(GROUP), &[0, 1]);
    config.bridges[0].snooping = false;
    rig.switch.reload(&config).expect("without snooping");
    let refusal = rig.switch.source().table(&TableRequest::new("snooping:lan")).expect_err("no table");
    assert_eq!(refusal.error, "no such table \"snooping:lan\"; tables are bridge:lan");
    expect(&rig, &mut guests, 3, &data(Ipv4Addr::new(239, 5, 5, 5)), &[0, 1]);
}

/// The reports of a guest with many groups are longer than a head, or than any head can be.
#[test]
fn long_reports_are_read_or_have_their_port_get_all_groups() {
    let (rig, mut guests) = lan();
    settle(&rig, &mut guests);
    expect(&rig, &mut guests, 1, &report(50), &[0]);
    assert_eq!(rows(&rig).len(), 51);
    let to = |last| data(Ipv4Addr::new(239, 7, 7, last));
    expect(&rig, &mut guests, 3, &to(49), &[0, 1]);
    expect(&rig, &mut guests, 3, &to(50), &[0]);
    expect(&rig, &mut guests, 2, &report(180), &[0, 1, 3]);
    expect(&rig, &mut guests, 3, &to(50), &[0, 2]);
    assert!(rows(&rig).contains(&pair("all", "p2")));
}
