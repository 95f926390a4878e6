//! The way of a packet through flow tables, in words: a slow interpreter that needs no packet.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::action::{Action, Ct, CtZone, PortNumber, Spelling, ct_state};
use crate::field::{Field, Subfield, VLAN_PRESENT};
use crate::flow::{DEFAULT_PRIORITY, FlowKey};
use crate::matching::Match;
use crate::ports::PortNames;
use crate::tables::{FlowCount, FlowEntry, FlowTables};
use crate::text::FlowWriter;

/// Lists of actions that may wait for one that they have called.
const MOST_DEPTH: usize = 64;

/// Most searches of a packet.
const MOST_SEARCHES: usize = 4096;

/// Most lines of a trace.
const MOST_LINES: usize = 10_000;

impl<C: FlowCount> FlowTables<C> {
    /// Returns the flow that a packet matches in a table. The packet has a value for each whole field:
    /// fields without a test are 0.
    #[must_use]
    pub fn find(&self, table: u8, packet: &Match) -> Option<&Arc<FlowEntry<C>>> {
        self.find_with(table, packet, complete_conjunction)
    }

    /// Looks through the priorities. `conjunction` gets the clauses that match at one of them.
    fn find_with(
        &self,
        table: u8,
        packet: &Match,
        conjunction: impl Fn(&[&Arc<FlowEntry<C>>]) -> Option<u32>,
    ) -> Option<&Arc<FlowEntry<C>>> {
        let first = FlowKey { table, priority: u16::MAX, condition: Match::new() };
        let all = self.from(&first).take_while(|entry| entry.flow.key.table == table);
        let mut clauses: Vec<&Arc<FlowEntry<C>>> = Vec::new();
        for entry in all.filter(|entry| entry.flow.key.condition.accepts(|field| packet.get(field).0)) {
            let is_lower = |clause: &&Arc<FlowEntry<C>>| clause.flow.key.priority > entry.flow.key.priority;
            if clauses.first().is_some_and(is_lower) {
                if let Some(id) = conjunction(&clauses) {
                    return self.find_joined(table, packet, id);
                }
                clauses.clear();
            }
            if !entry.flow.is_clause() {
                // As in OvS, it wins over clauses of its priority.
                return Some(entry);
            }
            clauses.push(entry);
        }
        self.find_joined(table, packet, conjunction(&clauses)?)
    }

    /// Returns the flow for a conjunction that the packet completes.
    fn find_joined(&self, table: u8, packet: &Match, id: u32) -> Option<&Arc<FlowEntry<C>>> {
        let joined = packet.clone().with(Field::ConjId, id.into());
        self.find_with(table, &joined, |_| None)
    }

    /// Describes the way of a packet, line by line. Fields without a test are 0. Its state of a connection
    /// is that which [`Action::Ct`] finds: `+trk+new`, if the packet has none.
    #[must_use]
    pub fn trace(&self, packet: &Match, ports: &dyn PortNames) -> Vec<String> {
        let writer = FlowWriter::new(ports);
        let mut packet = packet.clone();
        let (state, mask) = packet.take(Field::CtState);
        let connection = if mask == 0 { ct_state::NEW.into() } else { state } | u128::from(ct_state::TRACKED);
        let mut trace = Trace {
            tables: self,
            writer,
            connection,
            given: packet.clone(),
            packet,
            searches: 0,
            lines: Vec::new(),
            outputs: 0,
        };
        trace.lines.push(format!("packet: {}", trace.describe()));
        trace.search(0, None, 0);
        if trace.outputs == 0 {
            trace.lines.push("no output: the packet is dropped".to_owned());
        }
        trace.lines
    }
}

/// Returns the least conjunction whose clauses are all there.
fn complete_conjunction<C>(clauses: &[&Arc<FlowEntry<C>>]) -> Option<u32> {
    let mut found: BTreeMap<(u32, u8), u64> = BTreeMap::new();
    for action in clauses.iter().flat_map(|entry| &entry.flow.actions) {
        if let Action::Conjunction { id, clause, clauses } = action {
            *found.entry((*id, *clauses)).or_default() |= 1 << clause;
        }
    }
    let is_complete = |((_, clauses), seen): &(&(u32, u8), &u64)| **seen == u64::MAX >> (64 - u32::from(*clauses));
    found.iter().find(is_complete).map(|((id, _), _)| *id)
}

/// A packet on its way.
struct Trace<'a, C> {
    tables: &'a FlowTables<C>,
    writer: FlowWriter<'a>,
    given: Match,
    /// State of its connection.
    connection: u128,
    /// The packet as it is now.
    packet: Match,
    searches: usize,
    lines: Vec<String>,
    outputs: usize,
}

/// The way on behind an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    /// The packet's processing ends.
    End,
}

impl<C: FlowCount> Trace<'_, C> {
    fn describe(&self) -> String {
        let text = self.writer.condition(DEFAULT_PRIORITY, &self.packet);
        if text.is_empty() { "any".to_owned() } else { text }
    }

    fn say(&mut self, depth: usize, text: &str) {
        if self.lines.len() < MOST_LINES {
            self.lines.push(format!("{}{text}", " ".repeat(4 * depth)));
        }
    }

    /// Searches in a table, and runs the actions of the flow.
    fn search(&mut self, table: u8, port: Option<PortNumber>, depth: usize) -> Next {
        self.searches += 1;
        if depth >= MOST_DEPTH || self.searches > MOST_SEARCHES {
            self.say(depth, &format!("{table:2}. too many searches: the packet is dropped"));
            return Next::End;
        }
        let mut looked_up = self.packet.clone();
        if let Some(port) = port {
            looked_up.take(Field::InPort);
            looked_up.set(Field::InPort, port.0.into(), u128::MAX);
        }
        let Some(entry) = self.tables.find(table, &looked_up).cloned() else {
            self.say(depth, &format!("{table:2}. no flow matches"));
            return Next::GoOn;
        };
        let FlowKey { priority, condition, .. } = &entry.flow.key;
        let condition = self.writer.condition(DEFAULT_PRIORITY, condition);
        let comma = if condition.is_empty() { "" } else { ", " };
        self.say(depth, &format!("{table:2}. {condition}{comma}priority {priority}"));
        if entry.flow.actions.is_empty() {
            self.say(depth + 1, "drop");
        }
        for action in &entry.flow.actions {
            if self.run(action, table, depth + 1) == Next::End {
                return Next::End;
            }
        }
        Next::GoOn
    }

    fn run(&mut self, action: &Action, table: u8, depth: usize) -> Next {
        let text = self.writer.action(action);
        let shown = if let Action::OutputField(from) = *action {
            let number = from.whole().of(self.packet.get(from.whole().field).0);
            let name = u16::try_from(number)
                .map_or_else(|_| "no port".to_owned(), |port| self.writer.action(&Action::Output(PortNumber(port))));
            format!("{text}: {name}")
        } else {
            text
        };
        match *action {
            Action::Output(_)
            | Action::OutputField(_)
            | Action::InPort
            | Action::Normal
            | Action::Flood
            | Action::All => {
                self.outputs += 1;
                let changed =
                    if self.packet == self.given { String::new() } else { format!(" (packet: {})", self.describe()) };
                self.say(depth, &format!("{shown}{changed}"));
            }
            Action::DecTtl => {
                let ttl = self.packet.get(Field::IpTtl).0;
                if ttl <= 1 && self.packet.meets(Field::IpTtl.prerequisite()) {
                    self.say(depth, &format!("{shown}: the time to live is {ttl}: the packet ends here"));
                    return Next::End;
                }
                self.say(depth, &shown);
                self.set(Field::IpTtl, ttl.saturating_sub(1), u128::MAX);
            }
            Action::GotoTable(to) => {
                self.say(depth, &shown);
                return self.search(to, None, depth);
            }
            Action::Resubmit { port, table: to } => {
                self.say(depth, &shown);
                return self.search(to.unwrap_or(table), port, depth);
            }
            Action::Ct(Ct { table: Some(to), zone, .. }) => {
                self.packet.take(Field::CtState);
                self.packet.set(Field::CtState, self.connection, u128::MAX);
                let found = Match::new().with(Field::CtState, self.connection);
                let zone = match zone {
                    CtZone::Number(zone) => zone.into(),
                    CtZone::Field(from) => from.whole().of(self.packet.get(from.whole().field).0),
                };
                self.set(Field::CtZone, zone, u128::MAX);
                self.say(depth, &format!("{shown}: {}", self.writer.condition(DEFAULT_PRIORITY, &found)));
                let next = self.search(to, None, depth);
                self.untrack();
                return next;
            }
            Action::Ct(_) | Action::CtClear => {
                self.say(depth, &shown);
                self.untrack();
            }
            _ => {
                self.say(depth, &shown);
                self.change(action);
            }
        }
        Next::GoOn
    }

    /// Forgets the connection that was found.
    fn untrack(&mut self) {
        self.packet.take(Field::CtState);
        self.packet.take(Field::CtZone);
    }

    fn change(&mut self, action: &Action) {
        match *action {
            Action::SetField { field, value, mask, spelling } => {
                let named = if let Spelling::Load(to) = spelling { to.field } else { field };
                if self.has(named) {
                    self.set(field, value, mask);
                }
            }
            Action::Move { from, to } if self.has(from.field) && self.has(to.field) => {
                let Subfield { field, offset, .. } = to.whole();
                let value = from.whole().of(self.packet.get(from.whole().field).0);
                self.set(field, value << offset, to.whole().mask());
            }
            // As in OvS, the new tag has VLAN 0 and priority 0.
            Action::PushVlan(_) => self.set(Field::VlanTci, u128::from(VLAN_PRESENT), 0xffff),
            Action::StripVlan => self.set(Field::VlanTci, 0, 0xffff),
            _ => {}
        }
    }

    /// Returns whether the packet has a field now.
    fn has(&self, field: Field) -> bool {
        self.packet.meets(field.prerequisite())
    }

    /// Sets bits of a field. The others keep their values.
    fn set(&mut self, field: Field, value: u128, mask: u128) {
        let (before, _) = self.packet.take(field);
        let all = field.greatest();
        let mut value = (before & !mask) | (value & mask);
        // Without the bit that says so, there is no tag.
        if field == Field::VlanTci && value & u128::from(VLAN_PRESENT) == 0 {
            value = 0;
        }
        self.packet.set(field, value, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowCommand;
    use crate::parse::{parse_flow, parse_flows};
    use crate::ports::NoPortNames;
    use crate::tables::NoCount;

    fn trace(flows: &str, packet: &str) -> Vec<String> {
        let flows = parse_flows(flows, FlowCommand::Add, &NoPortNames).expect("flows");
        let tables = FlowTables::<NoCount>::unchecked(flows.into_iter().map(|(_, flow)| flow.into_flow()));
        let packet = parse_flow(packet, FlowCommand::Delete, &NoPortNames).expect("a packet");
        tables.trace(&packet.condition, &NoPortNames)
    }

    #[test]
    fn each_table_rule_and_change_has_a_line() {
        let flows = "priority=9,tcp,actions=mod_nw_dst:10.0.0.9,mod_vlan_vid:5,resubmit(,2),dec_ttl,goto_table:3\n\
                     table=2,actions=load:7->NXM_NX_REG0[0..15],move:NXM_NX_REG0[0..3]->NXM_NX_REG1[4..7]\n\
                     table=3,reg1=0x70,dl_vlan=5,actions=strip_vlan,output:NXM_NX_REG0[0..15]\n";
        let lines = trace(flows, "tcp,in_port=1,nw_dst=10.0.0.1,tp_dst=80,nw_ttl=64");
        assert_eq!(
            lines.join("\n"),
            "packet: tcp,in_port=1,nw_dst=10.0.0.1,nw_ttl=64,tp_dst=80
 0. tcp, priority 9
    mod_nw_dst:10.0.0.9
    mod_vlan_vid:5
    resubmit(,2)
     2. priority 32768
        load:0x7->NXM_NX_REG0[0..15]
        move:NXM_NX_REG0[0..3]->NXM_NX_REG1[4..7]
    dec_ttl
    goto_table:3
     3. reg1=0x70,dl_vlan=5, priority 32768
        strip_vlan
        output:NXM_NX_REG0[0..15]: output:7 (packet: tcp,reg0=0x7,reg1=0x70,in_port=1,vlan_tci=0x0000,nw_dst=10.0.0.9,nw_ttl=63,tp_dst=80)"
        );
        assert_eq!(trace(flows, "udp,in_port=1")[1..], [" 0. no flow matches", "no output: the packet is dropped"]);
        let ended = trace(flows, "tcp,nw_ttl=1").join("\n");
        assert!(ended.ends_with("the packet ends here\nno output: the packet is dropped"), "{ended}");
    }

    #[test]
    fn conjunctions_need_all_their_clauses() {
        let flows = "conj_id=7,ip,actions=output:3\n\
                     ip,nw_src=10.0.0.1,actions=conjunction(7,1/2)\nip,nw_src=10.0.0.2,actions=conjunction(7,1/2)\n\
                     tcp,tp_dst=80,actions=conjunction(7,2/2)\npriority=1,ip,actions=output:4\n";
        let way = |packet: &str| trace(flows, packet).last().cloned().unwrap_or_default();
        assert_eq!(way("tcp,nw_src=10.0.0.2,tp_dst=80"), "    output:3");
        assert_eq!(way("tcp,nw_src=10.0.0.2,tp_dst=81"), "    output:4");
        assert_eq!(way("tcp,nw_src=10.0.0.3,tp_dst=80"), "    output:4");
        let same = trace(
            &format!("{flows}dl_dst=02:00:00:00:00:01,actions=drop"),
            "tcp,nw_src=10.0.0.1,tp_dst=80,dl_dst=02:00:00:00:00:01",
        );
        assert_eq!(same.last().map(String::as_str), Some("no output: the packet is dropped"));
    }

    #[test]
    fn connections_are_new_unless_the_packet_says_otherwise() {
        let flows = "tcp,actions=ct(table=1,zone=7)\n\
                     table=1,tcp,ct_state=+trk+new,ct_zone=7,actions=ct(commit,zone=7),output:2\n\
                     table=1,tcp,ct_state=+trk+est,actions=ct_clear,resubmit(,2)\n\
                     table=2,ct_state=0,ct_zone=0,actions=output:3\n";
        assert_eq!(
            trace(flows, "tcp")[1..],
            [
                " 0. tcp, priority 32768",
                "    ct(table=1,zone=7): ct_state=new|trk",
                "     1. ct_state=+new+trk,ct_zone=7,tcp, priority 32768",
                "        ct(commit,zone=7)",
                "        output:2",
            ]
        );
        let known = trace(flows, "tcp,ct_state=+est");
        assert_eq!(known[0], "packet: tcp");
        assert!(known[2].ends_with("ct_state=est|trk"), "{known:?}");
        assert_eq!(known.last().map(String::as_str), Some("            output:3"), "{known:?}");
    }

    #[test]
    fn loops_end() {
        let lines = trace("actions=resubmit(,0)", "tcp");
        assert!(lines.iter().any(|line| line.contains("too many searches")), "{lines:?}");
        let lines = trace(
            "table=0,actions=resubmit(,1),resubmit(,1)\ntable=1,actions=resubmit(,2),resubmit(,2)\ntable=2,actions=resubmit(,0)",
            "tcp",
        );
        assert!(lines.len() <= MOST_LINES + 2);
    }

    #[test]
    fn the_port_of_a_resubmit_is_for_the_search_only() {
        let flows = "in_port=1,actions=resubmit(5,1),output:2\ntable=1,in_port=5,actions=output:5\ntable=1,in_port=1,actions=drop";
        assert_eq!(
            trace(flows, "in_port=1")[2..],
            ["    resubmit(5,1)", "     1. in_port=5, priority 32768", "        output:5", "    output:2"]
        );
    }
}
