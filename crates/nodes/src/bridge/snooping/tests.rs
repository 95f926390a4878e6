//! Frames through the snooping of a bridge with four ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use straightline_graph::{NodeControl, Rows, TableView};
use straightline_packet::{Arena, PortIndex, Rcu, Settings};
use straightline_wire::group_records::{GroupRecord, RecordType};
use straightline_wire::{igmp, mld};

use super::frames::*;
use super::*;

const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 1, 2);

struct Rig {
    table: SnoopingTable,
    snooper: Snooper,
    arena: Arena,
    now: u32,
}

impl Rig {
    fn new() -> Self {
        let table = SnoopingTable::new((0..4).map(PortIndex).collect());
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
        Rig { snooper: table.snooper(), table, arena, now: 100 }
    }

    /// Returns the edges that a frame from edge `from` goes to; `None` for all.
    fn send_in(&mut self, vid: u16, from: usize, frame: &[u8]) -> Option<Vec<usize>> {
        self.arena.set_now(self.now);
        let snooper = &mut self.snooper;
        snooper.sweep(self.now);
        self.arena.turn(|turn| {
            let id = turn.accept_owned(PortIndex(0), frame).expect("a free slot");
            let vlan = VlanId::new(vid).expect("a VLAN");
            let outputs = snooper.outputs(turn.packets(), id, vlan, from).expect("few tags");
            outputs.map(|set| set.edges().collect())
        })
    }

    fn send(&mut self, from: usize, frame: &[u8]) -> Option<Vec<usize>> {
        self.send_in(1, from, frame)
    }

    fn wait(&mut self, secs: u32) {
        self.now += secs;
    }

    fn counter(&self, name: &str) -> u64 {
        self.table.counters().into_iter().find(|(known, _)| *known == name).expect("a counter").1
    }
}

/// The whole life of a group, for one protocol.
fn life(query: &[u8], join: &[u8], leave: &[u8], group: IpAddr) {
    let mut rig = Rig::new();
    let data = udp(group);
    assert_eq!(rig.send(3, &data), None, "nobody asks who listens");
    assert_eq!(rig.send(1, join), None, "a router that has not yet asked must hear it");
    assert_eq!(rig.send(0, query), None);
    assert_eq!(rig.send(1, join), Some(vec![0]), "a report goes to the querier alone");
    assert_eq!(rig.send(3, &data), None, "others may still answer");
    rig.wait(3);
    assert_eq!(rig.send(3, &data), Some(vec![0, 1]));
    assert_eq!(rig.send_in(7, 3, &data), None, "another VLAN has no querier");
    assert_eq!(rig.send(2, join), Some(vec![0]));
    assert_eq!(rig.send(3, &data), Some(vec![0, 1, 2]));
    assert_eq!(rig.send(1, leave), Some(vec![0]));
    assert_eq!(rig.send(3, &data), Some(vec![0, 1, 2]), "another host behind the port may want it");
    rig.wait(3);
    assert_eq!(rig.send(3, &data), Some(vec![0, 2]));
    rig.wait(200);
    assert_eq!(rig.send(0, query), None);
    rig.wait(100);
    assert_eq!(rig.send(3, &data), Some(vec![0]), "no report for 303 seconds");
    rig.wait(156);
    assert_eq!(rig.send(3, &data), None, "no query for 256 seconds");
    assert_eq!((rig.counter("queries"), rig.counter("reports")), (2, 4));
}

#[test]
fn groups_live_by_version_2_of_igmp() {
    let join = igmp(GROUP_V4, igmp::Repr::ReportV2(GROUP_V4));
    life(&query(20), &join, &igmp(igmp::ALL_ROUTERS, igmp::Repr::Leave(GROUP_V4)), GROUP_V4.into());
}

#[test]
fn groups_live_by_version_3_of_igmp() {
    let message = |record_type| {
        let mut bytes = [0; 8];
        GroupRecord { record_type, group: GROUP_V4.octets(), sources: &[] }.emit(&mut bytes).unwrap();
        igmp(igmp::ALL_V3_ROUTERS, igmp::Repr::ReportV3 { count: 1, records: &bytes })
    };
    life(&query(20), &message(RecordType::TO_EXCLUDE), &message(RecordType::TO_INCLUDE), GROUP_V4.into());
}

#[test]
fn groups_live_by_version_1_of_mld() {
    let join = mld(GROUP_V6, mld::Repr::Report(GROUP_V6));
    life(&query_v6(2000), &join, &mld(mld::ALL_ROUTERS, mld::Repr::Done(GROUP_V6)), GROUP_V6.into());
}

#[test]
fn groups_live_by_version_2_of_mld() {
    let message = |record_type| {
        let mut bytes = [0; 20];
        GroupRecord { record_type, group: GROUP_V6.octets(), sources: &[] }.emit(&mut bytes).unwrap();
        mld(mld::ALL_V2_ROUTERS, mld::Repr::ReportV2 { count: 1, records: &bytes })
    };
    life(&query_v6(2000), &message(RecordType::TO_EXCLUDE), &message(RecordType::TO_INCLUDE), GROUP_V6.into());
}

#[test]
fn a_router_without_queries_gets_packets_and_prunes_nothing() {
    let mut rig = Rig::new();
    assert_eq!(rig.send(2, &hello()), None);
    assert_eq!(rig.send(3, &udp(GROUP_V4.into())), None);
    rig.send(0, &query(20));
    rig.wait(3);
    assert_eq!(rig.send(3, &udp(GROUP_V4.into())), Some(vec![0, 2]));
    assert_eq!(rig.send(3, &udp(GROUP_V6.into())), None, "MLD has no querier");
}

#[test]
fn a_host_of_version_1_is_not_left_by_the_leave_of_another() {
    let mut rig = Rig::new();
    rig.send(0, &query(20));
    rig.send(1, &igmp(GROUP_V4, igmp::Repr::ReportV1(GROUP_V4)));
    rig.send(1, &igmp(igmp::ALL_ROUTERS, igmp::Repr::Leave(GROUP_V4)));
    rig.wait(10);
    assert_eq!(rig.send(3, &udp(GROUP_V4.into())), Some(vec![0, 1]));
}

#[test]
fn a_forged_report_is_flooded_and_counted() {
    let mut rig = Rig::new();
    rig.send(0, &query(20));
    rig.wait(3);
    let mut forged = igmp(GROUP_V4, igmp::Repr::ReportV2(GROUP_V4));
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(rig.send(1, &forged), None);
    assert_eq!((rig.counter("invalid"), rig.counter("reports")), (1, 0));
    assert_eq!(rig.send(3, &udp(GROUP_V4.into())), Some(vec![0]));
    // A port whose groups are not known gets those of others.
    rig.snooper.shared.groups.send_all(1, rig.now);
    assert_eq!(rig.send(3, &udp(GROUP_V4.into())), Some(vec![0, 1]));
}

#[test]
fn ethernet_addresses_of_groups_are_known() {
    let number = |text: &str| text.parse::<straightline_wire::MacAddr>().unwrap().as_u64();
    for prunable in ["01:00:5e:00:00:00", "01:00:5e:7f:ff:ff", "33:33:00:00:00:00", "33:33:ff:ff:ff:ff"] {
        assert!(Snooper::may_prune(number(prunable)), "{prunable}");
    }
    let others =
        ["01:00:5e:80:00:00", "01:00:5d:7f:ff:ff", "33:34:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:80:c2:00:00:10"];
    for other in others {
        assert!(!Snooper::may_prune(number(other)), "{other}");
    }
}

#[test]
fn operators_see_members_routers_and_full_shares() {
    let mut rig = Rig::new();
    rig.send(0, &query(20));
    rig.send_in(7, 2, &query_v6(1000));
    rig.send(1, &igmp(GROUP_V4, igmp::Repr::ReportV2(GROUP_V4)));
    rig.snooper.shared.groups.send_all(3, 100);
    let name = |port: PortIndex| format!("vm{}", port.0);
    let view = TableView { now: 110.5, port: &name };
    let shown = |table: &SnoopingTable| {
        let mut rows = Rows::all();
        table.rows(&view, &mut rows);
        rows.into_page().0.iter().map(|row| serde_json::to_string(row).unwrap()).collect::<Vec<_>>()
    };
    let expected = [
        r#"{"kind":"multicast-router","vlan":1,"protocol":"IGMP","port":"vm0","left_s":245}"#,
        r#"{"kind":"group-member","vlan":1,"group":"239.1.2.3","port":"vm1","left_s":250}"#,
        r#"{"kind":"multicast-router","vlan":7,"protocol":"MLD","port":"vm2","left_s":245}"#,
        r#"{"kind":"group-member","group":"all","port":"vm3","left_s":250}"#,
    ];
    assert_eq!(shown(&rig.table), expected);
    // A reload with another port knows all that the old table knew.
    let after = SnoopingTable::new((0..5).map(PortIndex).collect());
    after.commit(&rig.table);
    assert_eq!(shown(&after), expected);
    assert_eq!(after.counters(), rig.table.counters());
    assert_eq!(after.events(&view), []);
    let queriers = GroupKey::of_queriers(VlanId::DEFAULT, straightline_wire::IpVersion::V4);
    let many = (0..10_000_u16).map(|number| {
        let [high, low] = number.to_be_bytes();
        (GroupKey { vlan: VlanId::DEFAULT, group: [239, 8, high, low].into() }, groups::Change::Join)
    });
    after.shared.groups.report(queriers, 1, 100, many);
    let events = after.events(&view);
    let [event] = &events[..] else { panic!("{events:?}") };
    assert!(event.message.starts_with("port \"vm1\": ") && event.message.ends_with("all groups"), "{event:?}");
    assert_eq!(after.events(&view), [], "told once a minute");
}
