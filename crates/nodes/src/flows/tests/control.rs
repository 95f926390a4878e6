//! The control half: changes, and successors.

use straightline_flow::{FlowCommand, Meter, MeterUnit, Owner, parse_flows};
use straightline_graph::{Clock, NodeControl};

use super::*;

fn settings(lines: &[&str]) -> FlowSettings {
    FlowSettings {
        ports: vec![("vm1".to_owned(), PortIndex(0)), ("vm2".to_owned(), PortIndex(1))],
        meters: Vec::new(),
        lines: lines.iter().map(|&line| line.to_owned()).collect(),
        connections: FlowConnections { most: 64, tracking: straightline_conntrack::Settings::default() },
    }
}

/// Adds flows as a client does.
fn add_lines(control: &FlowControl, lines: &str) -> bool {
    let added = control
        .change(|tables, names, now| tables.apply(&parse_flows(lines, FlowCommand::Add, names)?, Owner::Api, now));
    added.is_ok()
}

fn count(control: &FlowControl) -> usize {
    control.view(|tables, _, _| tables.len())
}

#[test]
fn a_successor_has_the_flows_of_clients_and_the_table_of_workers() {
    let rcu = Rcu::new();
    let before =
        FlowControl::new(settings(&["in_port=vm1,actions=vm2", "in_port=vm2,actions=vm1"]), &rcu, Clock::real())
            .unwrap();
    assert!(add_lines(&before, "priority=5,actions=drop\ntable=1,actions=normal"));
    assert_eq!(count(&before), 4);
    let after = FlowControl::new(settings(&["in_port=vm2,actions=vm1"]), &rcu, Clock::real()).unwrap();
    assert!(!Arc::ptr_eq(after.table(), before.table()));
    after.prepare(Some(&before)).unwrap();
    assert_eq!(count(&after), 1, "nothing has changed yet");
    after.commit(&before);
    assert_eq!(count(&after), 3);
    assert!(Arc::ptr_eq(after.table(), before.table()));
}

#[test]
fn a_change_is_made_or_not() {
    let rcu = Rcu::new();
    let control = FlowControl::new(settings(&["actions=normal"]), &rcu, Clock::real()).unwrap();
    assert!(!add_lines(&control, "in_port=vm1,actions=vm2\nactions=drop"), "the file has this flow");
    assert!(!add_lines(&control, "in_port=vm1,actions=meter:1,vm2"), "there is no meter");
    assert_eq!(count(&control), 1);
    assert!(FlowControl::new(settings(&["in_port=vm9,actions=normal"]), &rcu, Clock::real()).is_err());
}

#[test]
fn a_meter_that_clients_use_stays() {
    let rcu = Rcu::new();
    let meter = Meter { unit: MeterUnit::Packets, rate: 9, burst: None };
    let with_meter = FlowSettings { meters: vec![(1, meter)], ..settings(&["actions=normal"]) };
    let before = FlowControl::new(with_meter, &rcu, Clock::real()).unwrap();
    assert!(add_lines(&before, "in_port=vm1,actions=meter:1,vm2"));
    assert_eq!(before.meter(1, |stats| stats.packets.get()), Some(0));
    let after = FlowControl::new(settings(&["actions=normal"]), &rcu, Clock::real()).unwrap();
    assert!(after.prepare(Some(&before)).is_err());
}
