//! Tests of the observer with turns that the test makes by itself.

use std::sync::Arc;

use straightline_packet::{Arena, ObserverId, PacketId, PortIndex, Rcu, Reason, Settings, Step, StepKind, Turn};

use super::*;
use crate::PortTable;

const A: PortIndex = PortIndex(0);
const B: PortIndex = PortIndex(1);

/// A worker with one trace of port A.
fn worker(packets: u32, traces: usize, filter: Option<&str>) -> (Arena, TraceReader) {
    let table = Arc::new(PortTable::default());
    table.set([(A, 0)]);
    let filter = filter.map(|text| text.parse().unwrap());
    let (observer, reader) = TraceObserver::new(filter, table, Arc::new(Wanted::new(packets)), 1, traces);
    let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
    arena.add_observer(ObserverId(1), Box::new(observer));
    (arena, reader)
}

fn receive(turn: &mut Turn<'_>, port: PortIndex, count: u8) -> Vec<PacketId> {
    let ids: Vec<_> = (0..count).map(|n| turn.accept_owned(port, &[n; 60]).expect("a free slot")).collect();
    turn.observe_received(Some(port), &ids);
    step(turn, "rx", StepKind::Input, &ids);
    ids
}

fn step(turn: &mut Turn<'_>, name: &str, kind: StepKind, ids: &[PacketId]) {
    turn.observe_notes();
    let ways = |id: PacketId| id.index() + 1;
    turn.observe_step(&Step { name, kind, cycles: 90, packets: ids.len(), ways: &ways }, ids);
}

/// Takes all traces, as text.
fn read(reader: &mut TraceReader) -> Vec<String> {
    let text = |trace: &Trace| {
        let steps = trace.steps.iter().map(|step| format!("{} {}/{}", step.name(), step.cycles, step.packets));
        let events = trace.events.iter().map(|event| format!("{}: {:?} {}", event.step, event.what, event.port.0));
        let first = trace.heads[0].bytes()[0];
        let waits = if trace.waits { " waits" } else { "" };
        format!("{first}{waits} [{}] [{}]", steps.collect::<Vec<_>>().join(", "), events.collect::<Vec<_>>().join(", "))
    };
    std::iter::from_fn(|| reader.next(text)).collect()
}

#[test]
fn steps_and_events_belong_to_their_packet() {
    let (mut arena, mut reader) = worker(10, 10, None);
    arena.turn(|turn| {
        let ids = receive(turn, A, 3);
        receive(turn, B, 2);
        turn.discard(ids[1], Reason::Runt);
        step(turn, "node", StepKind::Node, &ids);
        turn.head_mut(ids[0])[1] = 9;
        turn.observe_delivery(Some(B), &[ids[0], ids[2]]);
        step(turn, "b-tx", StepKind::Output, &[ids[0], ids[2]]);
    });
    let expected = [
        "0 [rx 90/3, node 90/3, b-tx 90/2] [0: Received 0, 2: Delivered 1]",
        "1 [rx 90/3, node 90/3] [0: Received 0, 1: Dropped(Runt) 0]",
        "2 [rx 90/3, node 90/3, b-tx 90/2] [0: Received 0, 2: Delivered 1]",
    ];
    assert_eq!(read(&mut reader), expected);
}

#[test]
fn a_packet_that_its_port_refuses_has_a_trace() {
    let (mut arena, mut reader) = worker(10, 10, Some("less 70"));
    arena.turn(|turn| {
        let refused = turn.accept_owned(A, &[7; 60]).expect("a free slot");
        let filtered = turn.accept_owned(A, &[8; 80]).expect("a free slot");
        turn.drop_at(A, &[refused], Reason::ChecksumRange);
        turn.drop_at(A, &[filtered], Reason::ChecksumRange);
        // The port of the trace counts the drop of another port's packet.
        let other = turn.accept_owned(B, &[9; 60]).expect("a free slot");
        turn.drop_at(A, &[other], Reason::NoBuffer);
        step(turn, "rx", StepKind::Input, &[]);
    });
    assert_eq!(read(&mut reader), ["7 [rx 90/0] [0: Dropped(ChecksumRange) 0]"]);
}

#[test]
fn a_trace_ends_after_its_packets_and_skips_what_has_no_memory() {
    let (mut arena, mut reader) = worker(5, 2, None);
    let turn = |arena: &mut Arena| arena.turn(|turn| drop(receive(turn, A, 3)));
    turn(&mut arena);
    turn(&mut arena);
    assert_eq!(read(&mut reader).len(), 2);
    turn(&mut arena);
    assert_eq!(reader.next(|trace| trace.skipped), Some(4));
    assert_eq!(reader.next(|trace| trace.skipped), Some(0));
    turn(&mut arena);
    assert_eq!(reader.next(|trace| trace.skipped), Some(1), "the fifth of five packets");
    turn(&mut arena);
    assert_eq!(read(&mut reader), [""; 0]);
}

#[test]
fn long_ways_and_names_are_cut() {
    let (mut arena, mut reader) = worker(1, 1, None);
    arena.turn(|turn| {
        let ids = receive(turn, A, 1);
        for n in 0..300_u16 {
            turn.head_mut(ids[0])[..2].copy_from_slice(&n.to_be_bytes());
            turn.note_delivered(B, &ids);
            step(turn, &"ä".repeat(30), StepKind::Node, &ids);
        }
    });
    let seen = reader.next(|trace| {
        assert_eq!(trace.steps[1].name(), "ä".repeat(24));
        assert!(trace.events.iter().all(|event| usize::from(event.step) < trace.steps.len()), "{:?}", trace.events);
        (trace.steps.len(), trace.more_steps, trace.heads.len())
    });
    assert_eq!(seen, Some((128, 173, 16)));
}
