//! The reference model of flow tables: a list of flows, and each request as a sentence of OpenFlow's
//! specification. Generated sequences of requests go through both.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use straightline_flow::{
    Action, Expiry, Field, Flow, FlowChanges, FlowCommand, FlowCount, FlowMod, FlowTables, Match, Owner, PortNumber,
};

/// Counters of a flow, which the test sets.
#[derive(Clone, Debug, Default)]
struct Count(Rc<Cell<(u64, Option<Duration>)>>);

impl FlowCount for Count {
    fn packets(&self) -> u64 {
        self.0.get().0
    }

    fn bytes(&self) -> u64 {
        64 * self.0.get().0
    }

    fn last_used(&self) -> Option<Duration> {
        self.0.get().1
    }
}

/// A flow of the model.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    flow: Flow,
    owner: Owner,
    packets: u64,
    added: Duration,
    changed: Duration,
    used: Duration,
}

/// A list of flows in any order.
#[derive(Clone, Debug, Default)]
struct Model(Vec<Row>);

/// A request is not possible.
#[derive(Debug)]
struct Refused;

impl Model {
    fn apply(&mut self, requests: &[FlowMod], owner: Owner, now: Duration) -> Result<(), Refused> {
        let mut next = self.clone();
        for request in requests {
            next.run(request, owner, now)?;
        }
        *self = next;
        Ok(())
    }

    fn run(&mut self, request: &FlowMod, owner: Owner, now: Duration) -> Result<(), Refused> {
        let is_strict = matches!(request.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        let is_meant = |row: &Row| {
            let key = &row.flow.key;
            let has_table = request.table.is_none_or(|table| table == key.table);
            let has_cookie = row.flow.cookie & request.cookie_filter.1 == request.cookie_filter.0;
            let has_output = request.out_port.is_none_or(|port| row.flow.actions.contains(&Action::Output(port)));
            let matches = if is_strict {
                request.condition == key.condition && request.priority == key.priority
            } else {
                is_wider(&request.condition, &key.condition)
            };
            has_table && has_cookie && has_output && matches
        };
        let meant: Vec<usize> = (0..self.0.len()).filter(|at| is_meant(&self.0[*at])).collect();
        if is_strict && meant.iter().any(|at| self.0[*at].owner != owner) {
            return Err(Refused);
        }
        match request.command {
            FlowCommand::Add => self.add(request, owner, now)?,
            FlowCommand::Modify | FlowCommand::ModifyStrict if meant.is_empty() && request.cookie_filter.1 == 0 => {
                self.add(request, owner, now)?;
            }
            FlowCommand::Modify | FlowCommand::ModifyStrict => {
                for at in meant {
                    let row = &mut self.0[at];
                    if row.owner != owner {
                        continue;
                    }
                    row.flow.actions.clone_from(&request.actions);
                    row.flow.cookie = request.cookie.unwrap_or(row.flow.cookie);
                    row.changed = now;
                    if request.reset_counts {
                        row.packets = 0;
                        row.used = row.added;
                    }
                    goes_on(&row.flow)?;
                }
            }
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                self.0.retain(|row| !is_meant(row) || row.owner != owner)
            }
        }
        Ok(())
    }

    fn add(&mut self, request: &FlowMod, owner: Owner, now: Duration) -> Result<(), Refused> {
        let flow = request.clone().into_flow();
        goes_on(&flow)?;
        let known = self.0.iter().position(|row| row.flow.key == flow.key);
        let overlaps = |row: &Row| {
            let key = &row.flow.key;
            key.table == flow.key.table
                && key.priority == flow.key.priority
                && have_common_packet(&key.condition, &flow.key.condition)
        };
        match known {
            Some(at) if self.0[at].owner != owner => return Err(Refused),
            Some(at) => drop(self.0.remove(at)),
            None if request.check_overlap && self.0.iter().any(overlaps) => return Err(Refused),
            None => {}
        }
        self.0.push(Row { flow, owner, packets: 0, added: now, changed: now, used: now });
        Ok(())
    }

    /// Runs the requests on an empty model, and takes its flows in place of the owner's.
    fn replace(&mut self, requests: &[FlowMod], owner: Owner, now: Duration) -> Result<(), Refused> {
        let mut new = Model::default();
        new.apply(requests, owner, now)?;
        for row in &self.0 {
            match new.0.iter_mut().find(|other| other.flow.key == row.flow.key) {
                Some(_) if row.owner == Owner::File && owner == Owner::Api => return Err(Refused),
                Some(other) if other.flow == row.flow => *other = Row { owner, ..row.clone() },
                Some(_) => {}
                None if row.owner == owner => {}
                None => new.0.push(row.clone()),
            }
        }
        *self = new;
        Ok(())
    }

    fn expire(&mut self, now: Duration) -> usize {
        let is_over = |since: Duration, timeout: Duration| timeout > Duration::ZERO && now >= since + timeout;
        let before = self.0.len();
        self.0.retain(|row| !is_over(row.changed, row.flow.hard_timeout) && !is_over(row.used, row.flow.idle_timeout));
        before - self.0.len()
    }

    /// Returns a line for each flow.
    fn lines(&self) -> BTreeSet<String> {
        let line = |row: &Row| {
            let Row { flow, owner, packets, added, changed, used } = row;
            format!("{flow:?} {owner:?} {packets} {added:?} {changed:?} {used:?}")
        };
        self.0.iter().map(line).collect()
    }
}

fn lines(tables: &FlowTables<Count>) -> BTreeSet<String> {
    let line = |entry: &straightline_flow::FlowEntry<Count>| {
        let packets = entry.counters.packets();
        let used = entry.counters.last_used().unwrap_or(entry.added);
        format!("{:?} {:?} {packets} {:?} {:?} {used:?}", entry.flow, entry.owner, entry.added, entry.changed)
    };
    tables.entries().map(|entry| line(entry)).collect()
}

/// The values of the two fields that the generated conditions test.
fn packets() -> impl Iterator<Item = (u128, u128)> {
    (0..4).flat_map(|port| (0..4).map(move |register| (port, register)))
}

fn accepts(condition: &Match, packet: (u128, u128)) -> bool {
    condition.accepts(|field| if field == Field::Reg0 { packet.1 } else { packet.0 })
}

fn have_common_packet(one: &Match, other: &Match) -> bool {
    packets().any(|packet| accepts(one, packet) && accepts(other, packet))
}

/// Each packet of the narrow condition meets the wide one.
fn is_wider(wide: &Match, narrow: &Match) -> bool {
    packets().filter(|packet| accepts(narrow, *packet)).all(|packet| accepts(wide, packet))
}

fn goes_on(flow: &Flow) -> Result<(), Refused> {
    let is_backward = |action: &Action| matches!(action, Action::GotoTable(table) if *table <= flow.key.table);
    if flow.actions.iter().any(is_backward) { Err(Refused) } else { Ok(()) }
}

/// Conditions on the low two bits of two fields, so that they often meet.
fn conditions() -> impl Strategy<Value = Match> {
    let test = || (0..4_u128, prop_oneof![Just(0_u128), Just(1), Just(2), Just(3)]);
    (test(), test()).prop_map(|((port, port_mask), (register, register_mask))| {
        let mut condition = Match::new();
        condition.set(Field::Reg1, port, port_mask);
        condition.set(Field::Reg0, register, register_mask);
        condition
    })
}

fn requests() -> impl Strategy<Value = FlowMod> {
    use FlowCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
    let command = proptest::sample::select(vec![Add, Add, Add, Modify, ModifyStrict, Delete, DeleteStrict]);
    let actions = prop_oneof![
        Just(Vec::new()),
        (1..4_u16).prop_map(|port| vec![Action::Output(PortNumber(port))]),
        Just(vec![Action::Normal, Action::GotoTable(1)]),
    ];
    let filter = (prop_oneof![4 => Just(0_u64), 1 => Just(1)], 0..2_u64);
    let out_port = prop_oneof![4 => Just(None), 1 => Just(Some(PortNumber(1)))];
    let flags = (proptest::bool::weighted(0.2), any::<bool>());
    let numbers = (proptest::option::of(0..2_u8), 1..3_u16, proptest::option::of(0..2_u64), 0..3_u64, 0..3_u64);
    (command, conditions(), actions, filter, out_port, flags, numbers).prop_map(
        |(command, condition, actions, (mask, cookie), out_port, (check_overlap, reset_counts), numbers)| {
            let (table, priority, new_cookie, idle, hard) = numbers;
            let deletes = matches!(command, Delete | DeleteStrict);
            let mut request = FlowMod::new(command);
            request.table = table;
            request.priority = priority;
            request.condition = condition;
            request.cookie = new_cookie.filter(|_| !deletes);
            request.cookie_filter = if command == Add { (0, 0) } else { (cookie & mask, mask) };
            request.out_port = out_port.filter(|_| deletes);
            request.check_overlap = check_overlap && !deletes;
            request.reset_counts = reset_counts && !deletes;
            request.idle_timeout = Duration::from_secs(2 * idle);
            request.hard_timeout = Duration::from_secs(3 * hard);
            request.actions = if deletes { Vec::new() } else { actions };
            request
        },
    )
}

/// A step of a sequence.
#[derive(Clone, Debug)]
enum Event {
    Apply(Vec<FlowMod>, Owner),
    Replace(Vec<FlowMod>, Owner),
    /// Packets of a flow, chosen by its place.
    Packets(usize),
    /// Seconds pass.
    Wait(u64),
}

fn events() -> impl Strategy<Value = Event> {
    let owner = || prop_oneof![3 => Just(Owner::Api), 1 => Just(Owner::File)];
    prop_oneof![
        6 => (proptest::collection::vec(requests(), 1..4), owner()).prop_map(|(all, owner)| Event::Apply(all, owner)),
        1 => (proptest::collection::vec(requests(), 0..6), owner()).prop_map(|(all, owner)| Event::Replace(all, owner)),
        2 => any::<usize>().prop_map(Event::Packets),
        2 => (1..3_u64).prop_map(Event::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn tables_do_what_the_model_does(events in proptest::collection::vec(events(), 0..40)) {
        let mut tables = FlowTables::<Count>::default();
        let mut model = Model::default();
        let mut now = Duration::from_secs(100);
        for event in events {
            match event {
                Event::Apply(requests, owner) => {
                    let numbered: Vec<_> = (1..).zip(requests.iter().cloned()).collect();
                    let done = tables.apply(&numbered, owner, now);
                    prop_assert_eq!(done.is_ok(), model.apply(&requests, owner, now).is_ok(), "{:?}", done);
                }
                Event::Replace(requests, owner) => {
                    let numbered: Vec<_> = (1..).zip(requests.iter().cloned()).collect();
                    let before: Vec<Flow> = tables.entries().map(|entry| entry.flow.clone()).collect();
                    let done = tables.replace(&numbered, owner, now);
                    prop_assert_eq!(done.is_ok(), model.replace(&requests, owner, now).is_ok(), "{:?}", done);
                    if let Ok(FlowChanges { added, modified, deleted, .. }) = done {
                        prop_assert_eq!(before.len() + added - deleted, tables.len());
                        let new = tables.entries().filter(|entry| !before.contains(&entry.flow)).count();
                        prop_assert_eq!(new, added + modified);
                    }
                }
                Event::Packets(at) => {
                    let entry = tables.entries().nth(at % tables.len().max(1)).cloned();
                    if let Some(entry) = entry {
                        entry.counters.0.set((entry.counters.packets() + 1, Some(now)));
                        let row = model.0.iter_mut().find(|row| row.flow.key == entry.flow.key).expect("the same flows");
                        row.packets += 1;
                        row.used = now;
                    }
                }
                Event::Wait(seconds) => {
                    now += Duration::from_secs(seconds);
                    let ended = tables.expire(now);
                    let is_right = |why: &Expiry, flow: &Flow| match why {
                        Expiry::Idle => flow.idle_timeout > Duration::ZERO,
                        Expiry::Hard => flow.hard_timeout > Duration::ZERO,
                    };
                    prop_assert!(ended.iter().all(|(entry, why)| is_right(why, &entry.flow)));
                    prop_assert_eq!(ended.len(), model.expire(now));
                }
            }
            prop_assert_eq!(lines(&tables), model.lines());
        }
    }
}
