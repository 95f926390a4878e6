//! Fuzz target: messages of IGMP, MLD and PIM over many seconds, whole and damaged, through a bridge with
//! VLANs that prunes multicast.
//!
//! Invariants:
//! - A frame goes to ports of its VLAN only, and never back.
//! - A port that has reported a group gets its packets until 260 seconds later, or until it leaves. A port
//!   whose report is too long gets all packets. A querier gets packets and reports until 255 seconds later.
//! - In a VLAN in which nobody asks, packets go to all ports. So do those to groups of a link.
//! - While a querier asks, no other port than these gets a packet.
//! - A damaged message changes nothing but what its own port gets, and whether packets are pruned.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::bridge::{BridgeRig, Sent};
use crate::reached;
use arbitrary::{Result, Unstructured};
use straightline_nodes::{BridgePort, PortRules, PortVlans, VlanRole};
use straightline_packet::PortIndex;
use straightline_wire::group_records::{GroupRecord, RecordType};
use straightline_wire::{EtherType, VlanId, igmp, mld};

#[allow(dead_code)]
#[path = "../../../crates/nodes/src/bridge/snooping/frames.rs"]
mod frames;

/// The most events of an input.
const MOST_EVENTS: usize = 100;
/// Seconds that reports and queries count at least, and at most.
const REPORT: u32 = 260;
const QUERY: u32 = 255;
const LONGEST: u32 = 3600;
/// Memberships that a step of the bridge's sweep looks at.
const SWEPT: usize = 64;

/// Numbers of records in a report. None of them makes a frame that just fills a head.
const RECORDS: [usize; 7] = [1, 2, 3, 10, 20, 40, 100];

const VLANS: [u16; 2] = [10, 20];
const GROUPS_V4: [[u8; 4]; 3] = [[239, 1, 1, 1], [239, 1, 1, 2], [224, 0, 0, 251]];
const GROUPS_V6: [u16; 3] = [0xff0e, 0xff05, 0xff02];

/// Access ports of both VLANs, and a trunk.
fn ports() -> Vec<BridgePort> {
    let [first, second] = VLANS.map(|vid| VlanId::new(vid).expect("a VLAN"));
    let vlans = Box::new([first, second].into_iter().collect());
    let trunk = VlanRole::Trunk { tpid: EtherType::VLAN, vlans, native: None };
    let access = PortVlans::access;
    let all = [access(first), access(first), access(second), access(second), PortVlans { role: trunk, priority: 0 }];
    let port = |(index, vlans)| {
        let rules = PortRules { vlans: Some(vlans), ..PortRules::default() };
        BridgePort { index: PortIndex(index), rules, move_limit: None, has_groups: false, leads_on: false }
    };
    (0..).zip(all).map(port).collect()
}

const TRUNK: usize = 4;

/// Returns the ports of a VLAN.
fn ports_of(vid: u16) -> Vec<usize> {
    if vid == VLANS[0] { vec![0, 1, TRUNK] } else { vec![2, 3, TRUNK] }
}

/// Seconds until which something is surely so, and may be so.
#[derive(Clone, Copy, Debug, Default)]
struct Until {
    surely: u32,
    maybe: u32,
}

impl Until {
    fn extend(&mut self, surely: u32, maybe: u32) {
        self.surely = self.surely.max(surely);
        self.maybe = self.maybe.max(maybe);
    }
}

/// The queriers of a protocol in a VLAN.
#[derive(Debug, Default)]
struct Queriers {
    ports: BTreeMap<usize, Until>,
    /// Second from which packets are surely pruned.
    settled: Option<u32>,
    /// Seconds until which somebody asks.
    asks: Until,
}

/// Bounds of what the bridge knows. VLAN and group, or VLAN and protocol, are the keys.
#[derive(Debug, Default)]
struct Model {
    now: u32,
    members: BTreeMap<(u16, IpAddr, usize), Until>,
    queriers: BTreeMap<(u16, bool), Queriers>,
    /// Ports that get all groups.
    all_groups: BTreeMap<usize, Until>,
}

/// The meaning of a whole message.
enum Event {
    Query(u32),
    Hello,
    /// Groups that are joined (`true`) or left.
    Report(Vec<(IpAddr, bool)>),
    /// A report that does not fit into a head.
    LongReport,
    Packet(IpAddr),
}

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    let _ = run(&mut Unstructured::new(data));
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut rig = BridgeRig::new(&ports(), true);
    let mut model = Model { now: 1, ..Model::default() };
    let mut damaged = 0;
    for _ in 0..MOST_EVENTS {
        if u.is_empty() {
            break;
        }
        if u.ratio(1, 4)? {
            let longest = if u.ratio(1, 4)? { LONGEST + 1 } else { 200 };
            model.now += u.int_in_range(1..=longest)?;
            sweep(&mut rig, &model, damaged);
            continue;
        }
        let vid = VLANS[u.choose_index(VLANS.len())?];
        let from = *u.choose(&ports_of(vid))?;
        let is_v6: bool = u.arbitrary()?;
        let (mut bytes, event) = message(u, is_v6)?;
        if u.ratio(1, 8)? {
            damage(u, &mut bytes)?;
            damaged += 1;
            let sent = sent(u, from, vid, bytes)?;
            let outputs = forward(&mut rig, &model, sent);
            assert!(!outputs.contains(&from));
            model.damaged(from);
            reached("a damaged message");
        } else {
            let sent = sent(u, from, vid, bytes)?;
            let outputs = forward(&mut rig, &model, sent);
            model.check(vid, is_v6, from, &event, &outputs);
            model.learn(vid, is_v6, from, event);
        }
    }
    Ok(())
}

/// Has the bridge forget what has expired: a batch of frames for each step.
fn sweep(rig: &mut BridgeRig, model: &Model, damaged: usize) {
    // A damaged report can name as many groups as a head has place for.
    for _ in 0..1 + damaged {
        let bytes = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9, 0x88, 0xb5, 0, 0]].concat();
        forward(rig, model, Sent { port: 0, bytes, splits: [u16::MAX; 3], checksum: None });
    }
    const { assert!(512 / 8 <= SWEPT) };
}

fn sent(u: &mut Unstructured<'_>, port: usize, vid: u16, mut bytes: Vec<u8>) -> Result<Sent> {
    if port == TRUNK {
        let [high, low] = vid.to_be_bytes();
        bytes.splice(12..12, [0x81, 0, high, low]);
    }
    let splits = if u.ratio(1, 4)? { u.arbitrary()? } else { [u16::MAX; 3] };
    Ok(Sent { port, bytes, splits, checksum: None })
}

/// Returns the ports that get a frame.
fn forward(rig: &mut BridgeRig, model: &Model, sent: Sent) -> Vec<usize> {
    rig.set_now(model.now);
    let drops = rig.dropped();
    let got = rig.forward(vec![sent]);
    assert!(got.iter().all(|frames| frames.len() < 2));
    let outputs: Vec<_> = (0..got.len()).filter(|&port| !got[port].is_empty()).collect();
    assert_eq!(rig.dropped() - drops, u64::from(outputs.is_empty()));
    outputs
}

/// Makes a message, or a packet to a group.
fn message(u: &mut Unstructured<'_>, is_v6: bool) -> Result<(Vec<u8>, Event)> {
    let group = if is_v6 {
        IpAddr::from([GROUPS_V6[u.choose_index(3)?], 0, 0, 0, 0, 0, 0, 7])
    } else {
        IpAddr::from(GROUPS_V4[u.choose_index(3)?])
    };
    Ok(match u.int_in_range(0..=9_u8)? {
        0 => {
            let seconds = u.int_in_range(1..=20_u8)?;
            let frame = if is_v6 { frames::query_v6(u16::from(seconds) * 1000) } else { frames::query(seconds * 10) };
            (frame, Event::Query(seconds.into()))
        }
        1 => (if is_v6 { frames::hello_v6() } else { frames::hello() }, Event::Hello),
        2 => (first_report(group), Event::Report(vec![(group, true)])),
        3 => (first_leave(group), Event::Report(vec![(group, false)])),
        4 => records(group, is_v6, &[[u.arbitrary()?, false]]),
        5 => records(group, is_v6, &vec![[u.arbitrary()?, u.arbitrary()?]; *u.choose(&RECORDS)?]),
        _ => (frames::udp(group), Event::Packet(group)),
    })
}

/// Returns a report of IGMPv1, IGMPv2 or MLDv1.
fn first_report(group: IpAddr) -> Vec<u8> {
    match group {
        IpAddr::V4(group) => frames::igmp(group, igmp::Repr::ReportV2(group)),
        IpAddr::V6(group) => frames::mld(group, mld::Repr::Report(group)),
    }
}

/// Returns a leave of IGMPv2 or MLDv1.
fn first_leave(group: IpAddr) -> Vec<u8> {
    match group {
        IpAddr::V4(group) => frames::igmp(igmp::ALL_ROUTERS, igmp::Repr::Leave(group)),
        IpAddr::V6(group) => frames::mld(mld::ALL_ROUTERS, mld::Repr::Done(group)),
    }
}

/// Returns a report of IGMPv3 or MLDv2 with records: whether each joins the group, and whether it names a
/// source.
fn records(group: IpAddr, is_v6: bool, records: &[[bool; 2]]) -> (Vec<u8>, Event) {
    let mut bytes = Vec::new();
    for &[joins, has_source] in records {
        let record_type = match (joins, has_source) {
            (true, false) => RecordType::TO_EXCLUDE,
            (true, true) => RecordType::ALLOW,
            (false, _) => RecordType::TO_INCLUDE,
        };
        let sources = usize::from(joins && has_source);
        match group {
            IpAddr::V4(group) => {
                let sources = &[[10, 0, 0, 9]; 1][..sources];
                bytes.extend(emitted(&GroupRecord { record_type, group: group.octets(), sources }));
            }
            IpAddr::V6(group) => {
                let sources = &[[0xfd; 16]; 1][..sources];
                bytes.extend(emitted(&GroupRecord { record_type, group: group.octets(), sources }));
            }
        }
    }
    let count = u16::try_from(records.len()).expect("few records");
    let frame = if is_v6 {
        frames::mld(mld::ALL_V2_ROUTERS, mld::Repr::ReportV2 { count, records: &bytes })
    } else {
        frames::igmp(igmp::ALL_V3_ROUTERS, igmp::Repr::ReportV3 { count, records: &bytes })
    };
    // A head has place for 512 bytes.
    let event = if frame.len() > 512 {
        reached("a report that is too long");
        Event::LongReport
    } else {
        if frame.len() > 256 {
            reached("a report that is pulled up");
        }
        Event::Report(records.iter().map(|&[joins, _]| (group, joins)).collect())
    };
    (frame, event)
}

fn emitted<const N: usize>(record: &GroupRecord<'_, N>) -> Vec<u8> {
    let mut bytes = vec![0; record.record_len()];
    record.emit(&mut bytes).expect("space");
    bytes
}

/// Changes bytes of a frame behind its addresses, or cuts it. Its type stays: a tag would lead it into
/// another VLAN.
fn damage(u: &mut Unstructured<'_>, bytes: &mut Vec<u8>) -> Result<()> {
    for _ in 0..u.int_in_range(1..=3_u8)? {
        let at = u.int_in_range(14..=bytes.len() - 1)?;
        bytes[at] = u.arbitrary()?;
    }
    if u.ratio(1, 4)? {
        bytes.truncate(u.int_in_range(14..=bytes.len())?);
    }
    Ok(())
}

/// Returns whether packets to this group are pruned: it is no group of a link.
fn is_tracked(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[0] == 239,
        IpAddr::V6(group) => group.segments()[0] != 0xff02,
    }
}

impl Model {
    /// Checks where a frame has gone.
    fn check(&self, vid: u16, is_v6: bool, from: usize, event: &Event, outputs: &[usize]) {
        let others: Vec<_> = ports_of(vid).into_iter().filter(|&port| port != from).collect();
        assert!(outputs.iter().all(|port| others.contains(port)), "{outputs:?} of {others:?}");
        let nobody = Queriers::default();
        let queriers = self.queriers.get(&(vid, is_v6)).unwrap_or(&nobody);
        let may_prune = queriers.asks.maybe > self.now;
        let group = match event {
            Event::Packet(group) if is_tracked(*group) && may_prune => Some(*group),
            Event::Report(_) if may_prune => None,
            Event::LongReport | Event::Query(_) | Event::Hello | Event::Packet(_) | Event::Report(_) => {
                assert_eq!(outputs, others, "it goes to all");
                if matches!(event, Event::Packet(_)) {
                    reached("a packet that goes to all");
                }
                return;
            }
        };
        let untils = |port: &usize| {
            let mut untils = vec![queriers.ports.get(port)];
            if let Some(group) = group {
                untils.extend([self.members.get(&(vid, group, *port)), self.all_groups.get(port)]);
            }
            untils.into_iter().flatten().copied().collect::<Vec<_>>()
        };
        let surely = |port: &&usize| untils(port).iter().any(|until| until.surely > self.now);
        let maybe = |port: &&usize| untils(port).iter().any(|until| until.maybe > self.now);
        let lost: Vec<_> = others.iter().filter(surely).filter(|port| !outputs.contains(port)).collect();
        assert!(lost.is_empty(), "{lost:?} should get {group:?}: {self:?}");
        let is_settled = group.is_none() || queriers.settled.is_some_and(|settled| settled <= self.now);
        if queriers.asks.surely > self.now && is_settled {
            let more: Vec<_> = outputs.iter().filter(|port| !maybe(port)).collect();
            assert!(more.is_empty(), "{more:?} should not get {group:?}: {self:?}");
            if outputs.len() < others.len() && group.is_some() {
                reached("a packet that is pruned");
            }
        }
    }

    /// Notes what the bridge learns from a message.
    fn learn(&mut self, vid: u16, is_v6: bool, from: usize, event: Event) {
        let now = self.now;
        let longest = now + LONGEST;
        let queriers = self.queriers.entry((vid, is_v6)).or_default();
        match event {
            Event::Query(response) => {
                let is_first = queriers.asks.surely <= now;
                let settled = now + response + 1;
                queriers.settled = Some(queriers.settled.filter(|_| !is_first).unwrap_or(settled).min(settled));
                queriers.asks.extend(now + QUERY, longest);
                queriers.ports.entry(from).or_default().extend(now + QUERY, longest);
                reached("a query");
            }
            Event::Hello => queriers.ports.entry(from).or_default().extend(now + QUERY, longest),
            Event::Report(changes) => {
                for (group, joins) in changes {
                    let member = self.members.entry((vid, group, from)).or_default();
                    if joins {
                        member.extend(now + REPORT, longest);
                        reached("a report");
                    } else {
                        // A host of IGMPv1, which leaves without a word, may have been damaged bytes.
                        member.surely = 0;
                        reached("a leave");
                    }
                }
            }
            Event::LongReport => self.all_groups.entry(from).or_default().extend(now + REPORT, longest),
            Event::Packet(_) => {}
        }
    }

    /// A damaged message from a port may have said anything.
    fn damaged(&mut self, from: usize) {
        let longest = self.now + LONGEST;
        for (_, until) in self.members.iter_mut().filter(|((.., port), _)| *port == from) {
            until.surely = 0;
        }
        self.all_groups.entry(from).or_default().extend(0, longest);
        for vid in VLANS {
            for is_v6 in [false, true] {
                let queriers = self.queriers.entry((vid, is_v6)).or_default();
                queriers.asks.extend(0, longest);
                // It may be a querier, which gets reports, too.
                queriers.ports.entry(from).or_default().extend(0, longest);
            }
        }
    }
}
