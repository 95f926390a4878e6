//! Cases of flow tables that the model has no words for: messages, limits, meters.

use std::time::Duration;

use straightline_flow::{
    FlowChanges, FlowCommand, FlowError, FlowTables, MAX_COMBINATIONS, MAX_FLOWS, Meter, MeterUnit, NoCount,
    NoPortNames, Owner, parse_flows,
};

fn apply(tables: &mut FlowTables<NoCount>, text: &str, owner: Owner) -> Result<FlowChanges, FlowError> {
    let requests = parse_flows(text, FlowCommand::Add, &NoPortNames)?;
    tables.apply(&requests, owner, Duration::ZERO)
}

fn tables(text: &str, owner: Owner) -> FlowTables<NoCount> {
    let mut tables = FlowTables::default();
    apply(&mut tables, text, owner).expect("flows");
    tables
}

#[test]
fn a_mistake_in_line_700_of_1000_changes_nothing() {
    let mut all = tables("priority=1,actions=normal", Owner::Api);
    let lines = |wrong: &str| {
        let line = |number: usize| match number {
            700 => wrong.to_owned(),
            _ => format!("ip,nw_src=10.0.{}.{},actions=drop\n", number / 256, number % 256),
        };
        (1..=1000).map(line).collect::<String>()
    };
    let error = apply(&mut all, &lines("ip,nw_src=10.0.0.256,actions=drop\n"), Owner::Api).expect_err("a mistake");
    assert!(error.to_string().starts_with("line 700: `nw_src=10.0.0.256` "), "{error}");
    let error = apply(&mut all, &lines("check_overlap,ip,actions=drop\n"), Owner::Api).expect_err("an overlap");
    assert!(error.to_string().starts_with("line 700: `check_overlap` "), "{error}");
    assert!(error.problem.contains("table=0,ip,nw_src=10.0."), "{error}");
    assert_eq!(all.len(), 1);
    assert_eq!(apply(&mut all, &lines("\n"), Owner::Api).map(|done| done.added), Ok(999));
}

#[test]
fn one_flow_more_than_the_limit_is_refused() {
    let text: String = (0..MAX_FLOWS).map(|number| format!("reg0={number},actions=1\n")).collect();
    let mut all = tables(&text, Owner::Api);
    assert_eq!(all.len(), MAX_FLOWS);
    assert!(apply(&mut all, "reg1=1,actions=1", Owner::Api).expect_err("too many").problem.contains("65536"));
    apply(&mut all, "reg0=7,actions=2", Owner::Api).expect("a flow in place of another");
    // As many loose deletions would compare each with each.
    let loose: String = (0..2000).map(|number| format!("delete reg0={number}/0xfffff\n")).collect();
    assert!(apply(&mut all, &loose, Owner::Api).expect_err("too much work").problem.contains("split it"));
    assert_eq!(all.len(), MAX_FLOWS);
    let strict: String = (0..MAX_FLOWS).map(|number| format!("delete_strict table=0,reg0={number}\n")).collect();
    assert_eq!(apply(&mut all, &strict, Owner::Api).map(|done| done.deleted), Ok(MAX_FLOWS));
}

#[test]
fn conjunctions_have_a_limit_together() {
    let clauses = |priority: usize, first: usize, second: usize| {
        let clause =
            |number: usize, field: &str| format!("priority={priority},{field},actions=conjunction(7,{number}/2)\n");
        let of_first = (0..first).map(|at| clause(1, &format!("ip,nw_src=10.0.{}.{}", at / 256, at % 256)));
        let of_second = (0..second).map(|at| clause(2, &format!("tcp,tp_dst={at}")));
        of_first.chain(of_second).collect::<String>()
    };
    let mut all = tables(&clauses(1, 1024, 60), Owner::File);
    let error = apply(&mut all, &clauses(2, 1024, 5), Owner::Api).expect_err("too many");
    assert!(error.problem.contains("conjunction 7 of table 0 has 61440"), "{error}");
    assert_eq!(all.len(), 1084, "nothing was changed");
    apply(&mut all, &clauses(2, 1024, 4), Owner::Api).expect("as many as possible");
    let combinations: usize = all.conjunctions().values().map(|clauses| clauses.combinations().len()).sum();
    assert_eq!(combinations, MAX_COMBINATIONS);
    let more = parse_flows(&clauses(3, 1, 1), FlowCommand::Add, &NoPortNames).expect("flows");
    let replaced = all.replace(&more, Owner::File, Duration::ZERO).expect("fewer");
    assert_eq!(replaced.deleted, 1084);
}

#[test]
fn combinations_are_those_that_packets_can_meet() {
    let text = "ip,nw_src=10.0.0.0/24,actions=conjunction(1,1/3)\nudp,actions=conjunction(1,2/3),conjunction(2,1/2)\n\
                tcp,actions=conjunction(1,2/3)\ntcp,tp_dst=80,actions=conjunction(1,3/3)";
    let all = tables(text, Owner::Api);
    let conjunctions: Vec<_> = all.conjunctions().into_iter().collect();
    assert_eq!(conjunctions.len(), 2);
    assert_eq!(conjunctions[0].1.combinations().len(), 1, "TCP only");
    assert!(conjunctions[1].1.combinations().is_empty(), "no flow for its second clause");
}

#[test]
fn clients_leave_the_flows_of_the_file_alone() {
    let mut all = tables("table=1,tcp,actions=1\nudp,actions=1", Owner::File);
    apply(&mut all, "arp,actions=flood", Owner::Api).expect("a flow");
    let error = apply(&mut all, "arp,actions=1\ntable=1,tcp,actions=2", Owner::Api).expect_err("the file's flow");
    assert_eq!(error.to_string(), "line 2: `table=1,tcp` is a flow of the configuration file: change it there");
    let error = apply(&mut all, "delete_strict udp", Owner::Api).expect_err("the file's flow");
    assert_eq!(error.word, "table=0,udp");
    let done = apply(&mut all, "delete", Owner::Api).expect("a deletion");
    assert_eq!((done.deleted, done.kept, all.len()), (1, 2, 2));
}

#[test]
fn a_later_table_is_checked_when_a_flow_changes() {
    let mut all = tables("table=3,tcp,actions=1\ntable=1,tcp,actions=1", Owner::Api);
    let error = apply(&mut all, "modify tcp,actions=goto_table:3", Owner::Api).expect_err("a loop");
    assert_eq!(error.word, "goto_table:3");
    assert_eq!(apply(&mut all, "modify tcp,actions=goto_table:4", Owner::Api).map(|done| done.modified), Ok(2));
}

#[test]
fn meters_are_there_as_long_as_flows_use_them() {
    let mut all = FlowTables::<NoCount>::default();
    let meter = Meter { unit: MeterUnit::Packets, rate: 10, burst: None };
    assert!(apply(&mut all, "actions=meter:1,2", Owner::Api).expect_err("no meter").problem.contains("add it first"));
    all.set_meter(1, meter, Owner::Api, false).expect("a meter");
    assert!(all.set_meter(1, meter, Owner::Api, false).is_err());
    all.set_meter(1, Meter { rate: 20, ..meter }, Owner::Api, true).expect("another rate");
    apply(&mut all, "actions=meter:1,2", Owner::Api).expect("a flow");
    assert!(all.delete_meter(1, Owner::Api).expect_err("in use").problem.contains("1 flows"));
    assert!(all.delete_meter(2, Owner::Api).is_err());
    apply(&mut all, "delete", Owner::Api).expect("a deletion");
    all.delete_meter(1, Owner::Api).expect("a deletion");
    all.replace_file_meters(&[(5, meter)]).expect("meters of the file");
    assert!(all.set_meter(5, meter, Owner::Api, true).is_err());
    assert!(all.delete_meter(5, Owner::Api).is_err());
    apply(&mut all, "actions=meter:5,2", Owner::Api).expect("a flow");
    assert!(all.replace_file_meters(&[]).expect_err("in use").problem.contains("keep it"));
    assert_eq!(all.meters().map(|(number, ..)| number).collect::<Vec<_>>(), [5]);
}
