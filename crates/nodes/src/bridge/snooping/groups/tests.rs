//! The table beside a model, and readers beside a writer.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use proptest::collection::vec;
use proptest::prelude::*;
use straightline_wire::{IpVersion, VlanId};

use super::*;

/// The number of ports: sets have two words.
const PORTS: u16 = 66;

/// The ports that do something, in both words.
const ACTIVE: [u16; 5] = [0, 1, 63, 64, 65];

const GROUPS: [&str; 4] = ["239.1.1.1", "239.1.1.2", "ff0e::1", "ff0e::2"];

fn vlan(vid: u16) -> VlanId {
    VlanId::new(vid).unwrap()
}

fn key(vid: u16, group: usize) -> GroupKey {
    GroupKey { vlan: vlan(vid), group: GROUPS[group].parse().unwrap() }
}

fn queriers(vid: u16, is_v6: bool) -> GroupKey {
    GroupKey::of_queriers(vlan(vid), if is_v6 { IpVersion::V6 } else { IpVersion::V4 })
}

#[derive(Clone, Debug)]
enum Step {
    /// A report of one protocol: groups of it by their last bit, with the changes.
    Report(u16, u16, bool, Vec<(usize, Change)>),
    Query(u16, u16, bool, u32, Option<(u8, u16)>),
    Hello(u16, u16, bool),
    SendAll(u16),
    Wait(u32),
    /// A reload puts the ports into another order.
    Reload(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let port = || prop::sample::select(ACTIVE.to_vec());
    let vid = || prop::sample::select(vec![1_u16, 7]);
    let change = prop::sample::select(vec![Change::Join, Change::Join, Change::JoinV1, Change::Leave]);
    let named = prop::option::of((0..8_u8, prop::sample::select(vec![0_u16, 20, 125, 300, 31_744])));
    let wait = prop_oneof![4 => 0..4_u32, 2 => 4..300_u32, 1 => 300..4000_u32];
    prop_oneof![
        6 => (port(), vid(), any::<bool>(), vec((0..2_usize, change), 1..4)).prop_map(|(p, v, f, c)| Step::Report(p, v, f, c)),
        3 => (port(), vid(), any::<bool>(), 0..20_000_u32, named).prop_map(|(p, v, f, r, n)| Step::Query(p, v, f, r, n)),
        1 => (port(), vid(), any::<bool>()).prop_map(|(p, v, f)| Step::Hello(p, v, f)),
        1 => port().prop_map(Step::SendAll),
        4 => wait.prop_map(Step::Wait),
        1 => (0..usize::from(PORTS)).prop_map(Step::Reload),
    ]
}

/// The state that a querier has set: its times, and the seconds of `Queried`.
#[derive(Clone, Copy)]
struct ModelQueried {
    timing: Timing,
    settled: u32,
    until: u32,
}

/// The model: plain maps, in which each second is looked at as a whole.
struct Model {
    now: u32,
    /// Places of each port's own, and places that are common.
    own: usize,
    common: usize,
    members: BTreeMap<(GroupKey, u16), (u32, u32)>,
    queried: BTreeMap<GroupKey, ModelQueried>,
    all: BTreeMap<u16, u32>,
    refused: BTreeMap<u16, u64>,
}

impl Model {
    fn used(&self, port: u16) -> usize {
        self.members.keys().filter(|(_, member)| *member == port).count()
    }

    fn send_all(&mut self, port: u16, until: u32) {
        let before = self.all.entry(port).or_default();
        *before = until.max(*before);
    }

    fn add(&mut self, key: GroupKey, port: u16, secs: u32, is_v1: bool) {
        let until = self.now + secs;
        let v1_until = if is_v1 { until } else { 0 };
        if let Some(member) = self.members.get_mut(&(key, port)) {
            *member = (member.0.max(until), member.1.max(v1_until));
            return;
        }
        let common: usize = ACTIVE.iter().map(|port| self.used(*port).saturating_sub(self.own)).sum();
        if self.used(port) < self.own || common < self.common {
            self.members.insert((key, port), (until, v1_until));
        } else {
            *self.refused.entry(port).or_default() += 1;
            self.send_all(port, until);
        }
    }

    fn has(&self, key: GroupKey) -> bool {
        self.members.keys().any(|(known, _)| *known == key)
    }

    fn report(&mut self, port: u16, queriers: GroupKey, changes: &[(GroupKey, Change)]) {
        let secs = self.queried.get(&queriers).map_or(260, |queried| queried.timing.membership);
        for &(key, change) in changes {
            match change {
                Change::Join => self.add(key, port, secs, false),
                Change::JoinV1 => self.add(key, port, secs, true),
                Change::Leave => {
                    let soon = self.now + 3;
                    if let Some((until, v1_until)) = self.members.get_mut(&(key, port))
                        && *v1_until <= self.now
                    {
                        *until = soon.min(*until);
                    }
                }
            }
        }
    }

    fn query(&mut self, port: u16, queriers: GroupKey, timing: Timing) {
        self.add(queriers, port, timing.querier, false);
        if self.has(queriers) {
            let settled = self.now + timing.response;
            let until = self.now + timing.querier;
            let new = ModelQueried { timing, settled, until };
            let before = *self.queried.get(&queriers).unwrap_or(&new);
            let new = ModelQueried { settled: settled.min(before.settled), until: until.max(before.until), ..new };
            self.queried.insert(queriers, new);
        }
    }

    fn expire(&mut self) {
        let now = self.now;
        self.members.retain(|_, (until, _)| *until > now);
        let known: Vec<_> = self.members.keys().map(|(key, _)| *key).collect();
        self.queried.retain(|key, queried| queried.until > now && known.contains(key));
        self.all.retain(|_, until| *until > now);
    }

    fn ports(&self, key: GroupKey) -> Vec<u16> {
        self.members.keys().filter(|(known, _)| *known == key).map(|(_, port)| *port).collect()
    }

    /// Returns the ports for a packet; `None` for all.
    fn outputs(&self, key: GroupKey) -> Option<Vec<u16>> {
        let queried = self.queried.get(&key.queriers())?;
        if self.now < queried.settled {
            return None;
        }
        let mut ports = [self.ports(key), self.ports(key.queriers()), self.all.keys().copied().collect()].concat();
        ports.sort_unstable();
        ports.dedup();
        Some(ports)
    }

    fn report_outputs(&self, queriers: GroupKey) -> Option<Vec<u16>> {
        self.queried.contains_key(&queriers).then(|| self.ports(queriers))
    }
}

fn ports(first: usize) -> Vec<PortIndex> {
    let mut ports: Vec<_> = (0..PORTS).map(PortIndex).collect();
    ports.rotate_left(first);
    ports
}

fn edge(groups: &Groups, port: u16) -> usize {
    groups.ports().iter().position(|known| known.0 == port).unwrap()
}

fn named(groups: &Groups, edges: &EdgeSet) -> Vec<u16> {
    let mut ports: Vec<_> = edges.edges().map(|edge| groups.ports()[edge].0).collect();
    ports.sort_unstable();
    ports
}

fn outputs(groups: &Groups, key: GroupKey, now: u32) -> Option<Vec<u16>> {
    let mut set = groups.set();
    let mut scratch = groups.set();
    groups.outputs(key, now, &mut set, &mut scratch).then(|| named(groups, &set))
}

fn report_outputs(groups: &Groups, queriers: GroupKey) -> Option<Vec<u16>> {
    let mut set = groups.set();
    groups.report_outputs(queriers, &mut set).then(|| named(groups, &set))
}

fn sweep_all(groups: &Groups, now: u32) {
    while !groups.sweep(now) {}
}

fn compare(groups: &Groups, model: &Model) -> Result<(), TestCaseError> {
    for vid in [1, 7] {
        for group in 0..GROUPS.len() {
            prop_assert_eq!(outputs(groups, key(vid, group), model.now), model.outputs(key(vid, group)));
        }
        for is_v6 in [false, true] {
            let queriers = queriers(vid, is_v6);
            prop_assert_eq!(report_outputs(groups, queriers), model.report_outputs(queriers));
        }
    }
    let known = groups.memberships(model.now).into_iter();
    let known: BTreeMap<_, _> = known.map(|known| ((known.key, groups.ports()[known.edge].0), known.until)).collect();
    let expected: BTreeMap<_, _> = model.members.iter().map(|(member, (until, _))| (*member, *until)).collect();
    prop_assert_eq!(known, expected);
    for port in ACTIVE {
        let share = groups.share(PortIndex(port));
        prop_assert_eq!(share.used as usize, model.used(port));
        prop_assert_eq!(share.refused, model.refused.get(&port).copied().unwrap_or(0));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_model(limit in prop_oneof![Just(70_usize), Just(500)], steps in vec(step(), 0..60)) {
        let mut groups = Groups::with_limit(ports(0), limit);
        let own = (limit / 2 / usize::from(PORTS)).max(1);
        let mut model = Model {
            now: 5,
            own,
            common: limit - own * usize::from(PORTS),
            members: BTreeMap::new(),
            queried: BTreeMap::new(),
            all: BTreeMap::new(),
            refused: BTreeMap::new(),
        };
        for step in steps {
            match step {
                Step::Report(port, vid, is_v6, changes) => {
                    let queriers = queriers(vid, is_v6);
                    let of_protocol = |group| key(vid, group + if is_v6 { 2 } else { 0 });
                    let changes: Vec<_> = changes.into_iter().map(|(group, change)| (of_protocol(group), change)).collect();
                    groups.report(queriers, edge(&groups, port), model.now, changes.iter().copied());
                    model.report(port, queriers, &changes);
                }
                Step::Query(port, vid, is_v6, response, named) => {
                    let timing = Timing::new(response, named);
                    groups.query(queriers(vid, is_v6), edge(&groups, port), model.now, timing);
                    model.query(port, queriers(vid, is_v6), timing);
                }
                Step::Hello(port, vid, is_v6) => {
                    groups.hello(queriers(vid, is_v6), edge(&groups, port), model.now);
                    model.add(queriers(vid, is_v6), port, 255, false);
                }
                Step::SendAll(port) => {
                    groups.send_all(edge(&groups, port), model.now);
                    model.send_all(port, model.now + 260);
                }
                Step::Wait(secs) => {
                    model.now += secs;
                    sweep_all(&groups, model.now);
                    model.expire();
                }
                Step::Reload(first) => {
                    let after = Groups::with_limit(ports(first), limit);
                    after.take_over(&groups);
                    groups = after;
                }
            }
            compare(&groups, &model)?;
        }
        // All places are free again at the end.
        model.now += 10_000;
        sweep_all(&groups, model.now);
        prop_assert_eq!(groups.total().used, 0);
        prop_assert_eq!(groups.all_groups(model.now), []);
    }
}

#[test]
fn a_port_without_a_place_gets_all_groups_and_takes_none_from_others() {
    let groups = Groups::with_limit(vec![PortIndex(0), PortIndex(1), PortIndex(2)], 12);
    let queriers = queriers(1, false);
    groups.query(queriers, 0, 0, Timing::new(1000, None));
    let group = |last: u8| GroupKey { vlan: VlanId::DEFAULT, group: IpAddr::from([239, 9, 9, last]) };
    groups.report(queriers, 1, 0, (0..100).map(|last| (group(last), Change::Join)));
    // Two of its own, and six common ones.
    assert_eq!((groups.share(PortIndex(1)).used, groups.share(PortIndex(1)).refused), (8, 92));
    assert_eq!(groups.all_groups(0), [(1, 260)]);
    assert_eq!(outputs(&groups, group(99), 2), Some(vec![0, 1]), "a group that has no place");
    groups.report(queriers, 2, 2, [(group(200), Change::Join)].into_iter());
    assert_eq!(groups.share(PortIndex(2)).refused, 0);
    assert_eq!(outputs(&groups, group(200), 2), Some(vec![0, 1, 2]));
    assert_eq!(outputs(&groups, group(201), 2), Some(vec![0, 1]));
    sweep_all(&groups, 261);
    assert_eq!(groups.all_groups(261), []);
}

#[test]
fn a_reload_forgets_the_ports_that_are_gone() {
    let before = Groups::new(vec![PortIndex(0), PortIndex(1), PortIndex(2)]);
    let queriers = queriers(1, true);
    before.query(queriers, 0, 0, Timing::new(1000, None));
    for edge in [1, 2] {
        before.report(queriers, edge, 0, [(key(1, 2), Change::Join)].into_iter());
    }
    let after = Groups::new(vec![PortIndex(2), PortIndex(0)]);
    after.take_over(&before);
    assert_eq!(outputs(&after, key(1, 2), 2), Some(vec![0, 2]));
    assert_eq!((after.total().used, after.total().refused), (2, 0));
    let without_querier = Groups::new(vec![PortIndex(1), PortIndex(2)]);
    without_querier.take_over(&before);
    assert_eq!(outputs(&without_querier, key(1, 2), 2), None);
}

/// A writer joins and expires groups beside readers. The group that stays is found by each of them, with
/// its own members.
#[test]
fn readers_find_what_stays() {
    let groups = Groups::with_limit(vec![PortIndex(0), PortIndex(1), PortIndex(2)], 64);
    let queriers = queriers(1, false);
    let timing = Timing::new(1000, None);
    let kept = key(1, 0);
    let join =
        |edge: usize, key: GroupKey, now: u32| groups.report(queriers, edge, now, [(key, Change::Join)].into_iter());
    groups.query(queriers, 0, 0, timing);
    join(1, kept, 0);
    let is_over = AtomicBool::new(false);
    let read = || {
        let mut set = groups.set();
        let mut scratch = groups.set();
        let mut found = 0_u64;
        // The kept group is there at the end, too: a reader that begins late finds it then.
        loop {
            let is_last = is_over.load(Ordering::Relaxed);
            if groups.outputs(kept, 1_000_000, &mut set, &mut scratch) {
                assert_eq!(set.edges().collect::<Vec<_>>(), [0, 1]);
                found += 1;
            }
            if is_last {
                return found;
            }
        }
    };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        for round in 0..2000_u32 {
            let now = round * 100;
            groups.query(queriers, 0, now, timing);
            join(1, kept, now);
            let [.., high, low] = round.to_be_bytes();
            // None of these is the kept group.
            for third in 10..18 {
                join(2, GroupKey { group: [239, third, high, low].into(), ..kept }, now);
            }
            while !groups.sweep(now) {}
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
}
