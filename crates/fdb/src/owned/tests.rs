//! Owners, leases and transactions against a reference model: a list of entries, searched from the
//! start for each question.

use proptest::prelude::*;

use super::*;

const MOST: usize = 5;
const STALE: u64 = 100;
const NAMES: [&str; 2] = ["evpn", "other"];

#[derive(Clone, Debug)]
enum Act {
    /// Entries are a key and a value; a lower value is older.
    Change {
        owner: usize,
        command: OwnedCommand,
        entries: Vec<(u8, u8)>,
    },
    Attach {
        owner: usize,
    },
    Detach {
        owner: usize,
    },
    Pass {
        time: u64,
    },
}

fn acts() -> impl Strategy<Value = Act> {
    let command = prop_oneof![Just(OwnedCommand::Add), Just(OwnedCommand::Delete), Just(OwnedCommand::Replace)];
    let entries = prop::collection::vec((0..7_u8, 0..3_u8), 0..5);
    prop_oneof![
        6 => (0..2_usize, command, entries).prop_map(|(owner, command, entries)| Act::Change { owner, command, entries }),
        2 => (0..2_usize).prop_map(|owner| Act::Attach { owner }),
        2 => (0..2_usize).prop_map(|owner| Act::Detach { owner }),
        2 => (0..150_u64).prop_map(|time| Act::Pass { time }),
    ]
}

/// An entry as the words of the module say it: when it goes, if nobody confirms it.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    key: u8,
    value: u8,
    owner: usize,
    goes: Option<u64>,
}

#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
    attached: [u32; 2],
    now: u64,
}

/// The key that the configuration has.
const FIXED: u8 = 0;

impl Model {
    /// Returns whether the change is done.
    fn change(&mut self, owner: usize, command: OwnedCommand, named: &[(u8, u8)]) -> bool {
        let before = self.entries.clone();
        let is_twice = named.iter().enumerate().any(|(at, (key, _))| named[..at].iter().any(|(other, _)| other == key));
        if is_twice {
            return false;
        }
        let is_named = |key: u8| named.iter().any(|(named, _)| *named == key);
        match command {
            OwnedCommand::Delete => self.entries.retain(|entry| entry.owner != owner || !is_named(entry.key)),
            OwnedCommand::Replace => self.entries.retain(|entry| entry.owner != owner || is_named(entry.key)),
            OwnedCommand::Add => {}
        }
        if command == OwnedCommand::Delete {
            return true;
        }
        for &(key, value) in named.iter().filter(|(key, _)| *key != FIXED) {
            let count = self.entries.len();
            match self.entries.iter_mut().find(|entry| entry.key == key) {
                Some(entry) if entry.owner != owner => {
                    self.entries = before;
                    return false;
                }
                Some(entry) if entry.value > value && command == OwnedCommand::Add => {}
                Some(entry) => {
                    entry.value = value;
                    entry.goes = None;
                }
                None if count >= MOST => {
                    self.entries = before;
                    return false;
                }
                None => self.entries.push(Entry { key, value, owner, goes: None }),
            }
        }
        // An owner that is away and was here before has no time of its own for what it sends now: it has
        // the time that runs.
        true
    }
}

proptest! {
    #[test]
    fn owners_agree_with_a_list(acts in prop::collection::vec(acts(), 1..80)) {
        let mut owners = Owners::default();
        let ids = NAMES.map(|name| owners.named(name).unwrap());
        let mut table: OwnedTable<u8, u8> = OwnedTable::default();
        let mut model = Model::default();
        // The time at which what an absent owner has goes.
        let mut away: [Option<u64>; 2] = [None; 2];
        for act in acts {
            match act {
                Act::Change { owner, command, entries } => {
                    let compare = |new: &u8, old: &u8| match new.cmp(old) {
                        std::cmp::Ordering::Less => Newer::Older,
                        std::cmp::Ordering::Equal => Newer::Equal,
                        std::cmp::Ordering::Greater => Newer::Newer,
                    };
                    let plan = table.plan(ids[owner], command, &entries, MOST, |key| *key == FIXED, compare);
                    prop_assert_eq!(plan.is_ok(), model.change(owner, command, &entries), "{:?}", plan);
                    if let Ok(plan) = plan {
                        table.apply(ids[owner], owners.epoch(ids[owner]), &plan, entries);
                    }
                    // What an owner sends while it is away goes with the rest.
                    for entry in model.entries.iter_mut().filter(|entry| entry.owner == owner && entry.goes.is_none()) {
                        entry.goes = away[owner];
                    }
                }
                Act::Attach { owner } => {
                    owners.attach(ids[owner], STALE, model.now);
                    if model.attached[owner] == 0 {
                        let end = away[owner].unwrap_or(model.now + STALE);
                        for entry in model.entries.iter_mut().filter(|entry| entry.owner == owner) {
                            entry.goes.get_or_insert(end);
                        }
                        away[owner] = None;
                    }
                    model.attached[owner] += 1;
                }
                Act::Detach { owner } if model.attached[owner] > 0 => {
                    owners.detach(ids[owner], model.now);
                    model.attached[owner] -= 1;
                    if model.attached[owner] == 0 {
                        let end = model.now + STALE;
                        away[owner] = Some(end);
                        for entry in model.entries.iter_mut().filter(|entry| entry.owner == owner) {
                            entry.goes.get_or_insert(end);
                        }
                    }
                }
                Act::Detach { .. } => {}
                Act::Pass { time } => {
                    model.now += time;
                    for (owner, latest) in owners.due(model.now) {
                        table.remove_stale(owner, latest);
                    }
                    let now = model.now;
                    model.entries.retain(|entry| entry.goes.is_none_or(|end| end > now));
                    for end in &mut away {
                        // From now on the owner has no lease, until it comes back.
                        *end = end.filter(|end| *end > now);
                    }
                }
            }
            let mut expected: Vec<_> = model.entries.iter().map(|entry| (entry.key, entry.value, ids[entry.owner])).collect();
            expected.sort_unstable();
            let has: Vec<_> = table.iter().map(|(key, row)| (*key, row.value, row.owner)).collect();
            prop_assert_eq!(has, expected);
        }
    }
}

#[test]
fn a_controller_that_crashes_again_and_again_keeps_nothing_old() {
    let mut owners = Owners::default();
    let evpn = owners.named("evpn").unwrap();
    let mut table = OwnedTable::default();
    let add = |owners: &Owners, table: &mut OwnedTable<u8, ()>, key| {
        let plan = table.plan(evpn, OwnedCommand::Add, &[(key, ())], 9, |_| false, |(), ()| Newer::Equal).unwrap();
        table.apply(evpn, owners.epoch(evpn), &plan, vec![(key, ())]);
    };
    owners.attach(evpn, 1000, 0);
    add(&owners, &mut table, 1);
    add(&owners, &mut table, 2);
    for now in (0..2000).step_by(50) {
        owners.detach(evpn, now);
        owners.attach(evpn, 1000, now + 10);
        add(&owners, &mut table, 2);
        assert!(owners.0[0].deadlines.len() <= MOST_DEADLINES);
        for (owner, latest) in owners.due(now) {
            table.remove_stale(owner, latest);
        }
    }
    assert_eq!(table.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [2], "what is confirmed each time stays");
}

#[test]
fn owners_are_limited() {
    let mut owners = Owners::default();
    let names: Vec<_> = (0..MOST_OWNERS).map(|n| format!("o{n}")).collect();
    let ids: Vec<_> = names.iter().map(|name| owners.named(name).unwrap()).collect();
    assert_eq!((owners.named("more"), owners.named("o3")), (None, Some(ids[3])));
    assert_eq!(owners.name(ids[7]), "o7");
    // Those with a connection or an entry stay.
    owners.attach(ids[1], 1000, 0);
    owners.forget_unused(|owner| owner == ids[2]);
    let known: Vec<_> = names.iter().filter(|name| owners.find(name).is_some()).collect();
    assert_eq!(known, ["o1", "o2"]);
    assert_eq!((owners.named("more"), owners.named("again")), (Some(ids[0]), Some(ids[3])));
}
