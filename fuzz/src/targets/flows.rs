//! Fuzz target: text of flows and meters, and tables that it changes.
//!
//! Input: lines of flows, as a client of the API sends them.
//!
//! Invariants:
//! - A flow that is read and written reads back the same, with names of ports and with numbers.
//! - A transaction that fails changes nothing.
//! - A trace ends.

use std::time::Duration;

use straightline_flow::{
    FlowCommand, FlowTables, FlowWriter, Match, NoCount, NoPortNames, Owner, PortNames, PortTable, parse_flow,
    parse_flows, parse_meter,
};

use crate::reached;

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    // As much of the input as is text.
    run(data.utf8_chunks().next().map_or("", |chunk| chunk.valid()));
}

fn run(text: &str) {
    let mut ports = PortTable::default();
    ports.update(["vm1", "vm-2", "3"]);
    if let Ok((number, meter)) = parse_meter(text) {
        assert_eq!(parse_meter(&format!("meter={number} {meter}")), Ok((number, meter)));
        reached("a meter");
    }
    let mut tables = FlowTables::<NoCount>::default();
    for command in [FlowCommand::Add, FlowCommand::Modify, FlowCommand::Delete, FlowCommand::DeleteStrict] {
        let Ok(requests) = parse_flows(text, command, &ports) else { continue };
        for (_, request) in &requests {
            if request.command != FlowCommand::Add {
                continue;
            }
            let flow = request.clone().into_flow();
            for names in [&ports as &dyn PortNames, &NoPortNames] {
                let written = FlowWriter::new(names).flow(&flow);
                let read = parse_flow(&written, FlowCommand::Add, names);
                let read = read.unwrap_or_else(|error| panic!("{written}: {error}"));
                assert_eq!(read.into_flow(), flow, "{written}");
            }
            reached("a flow");
        }
        let before: Vec<_> = tables.entries().map(|entry| entry.flow.clone()).collect();
        match tables.apply(&requests, Owner::Api, Duration::ZERO) {
            Ok(_) => reached("a transaction"),
            Err(_) => {
                assert!(before.iter().eq(tables.entries().map(|entry| &entry.flow)));
                reached("a transaction that fails");
            }
        }
        let packet = requests.first().map_or_else(Match::new, |(_, request)| request.condition.clone());
        let _ = tables.trace(&packet, &ports);
    }
}
