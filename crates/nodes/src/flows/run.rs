//! A round of the node: searches, and the actions of packets.

use straightline_flow::{Ct, CtZone, PortNumber};
use straightline_graph::{Departs, Next};
use straightline_packet::{Batch, PacketId, Packets, Reason};

use super::ct;
use super::fields::View;
use super::keys::{self, Group};
use super::program::{CompiledTable, FlowProgram, Matcher, Step};
use super::state::{Frame, MOST_CALLS, MOST_DEPTH, MOST_ROUNDS, NO_FRAME};
use super::{Hit, NONE_EDGE, Saved, Ways, Work};
use crate::headers::Headers;

/// All edges, in [`State::used`](super::state::State::used).
const ALL_EDGES: u64 = u64::MAX;

/// How the actions of a packet end for now.
enum Outcome {
    /// It waits for a search, or for the next round.
    Waits,
    Done,
    Failed(Reason),
}

/// A round of the node.
pub(super) struct Run<'a, 'n> {
    pub(super) work: &'a mut Work,
    pub(super) program: &'a FlowProgram,
    pub(super) ways: &'a Ways,
    pub(super) next: &'a mut Next<'n>,
    /// A packet was sent in this round.
    pub(super) sent: bool,
}

impl Run<'_, '_> {
    /// Goes on with the packets that have waited for outputs.
    pub(super) fn go_on(&mut self, packets: &mut Packets<'_>, departs: Option<&Departs>) {
        if self.work.later.is_empty() {
            return;
        }
        self.work.rounds += 1;
        let too_many = self.work.rounds > MOST_ROUNDS;
        let later = std::mem::take(&mut self.work.later);
        for &id in later.ids() {
            if departs.is_some_and(|departs| !departs[id.index()]) {
                continue;
            }
            let Saved { outside, vlan, mark } = &self.work.saved[id.index()];
            packets.restore_outside(id, outside);
            packets.set_vlan(id, *vlan);
            packets.set_mark(id, *mark);
            let state = &mut self.work.states[id.index()];
            state.used = 0;
            // Its body may have become a part of its head meanwhile. What was written of a header whose
            // extensions are damaged is not read from it.
            if std::mem::take(&mut state.has_headers) {
                let before = &self.work.headers[id.index()];
                let fields = (before.ttl, before.tos, before.label);
                self.parse(packets, id);
                let headers = &mut self.work.headers[id.index()];
                (headers.ttl, headers.tos, headers.label) = fields;
            }
            let outcome = if too_many { Outcome::Failed(Reason::FlowLimit) } else { self.resume(packets, id) };
            self.settle(packets, id, outcome);
        }
        self.search(packets);
    }

    /// Searches tables until no packet waits for a search.
    pub(super) fn search(&mut self, packets: &mut Packets<'_>) {
        while let Some(&first) = self.work.waiting.ids().first() {
            let number = self.work.states[first.index()].table;
            // The packets that wait for one table are searched together, in their order.
            let mut group = Batch::new();
            let states = &self.work.states;
            self.work.waiting.retain(|id| {
                let is_other = states[id.index()].table != number;
                if !is_other {
                    group.push(id);
                }
                is_other
            });
            match self.program.table(number) {
                Some(table) => self.search_in(packets, table, &group),
                None => group.ids().iter().for_each(|&id| self.found(packets, id, None)),
            }
        }
    }

    fn search_in(&mut self, packets: &mut Packets<'_>, table: &CompiledTable, group: &Batch) {
        let snapshot = match &table.matcher {
            Matcher::Always(flow) => {
                group.ids().iter().for_each(|&id| self.found(packets, id, Some(*flow)));
                return;
            }
            Matcher::Search(snapshot) => snapshot,
        };
        let mut readable = group.clone();
        if table.needs_headers {
            readable.retain(|id| {
                self.parse(packets, id);
                let headers = &self.work.headers[id.index()];
                let unknown = match headers {
                    Headers { is_hidden: true, .. } => Some(Reason::Hidden),
                    Headers { is_cut: true, .. } if table.needs_all => Some(Reason::FlowHeaders),
                    _ => None,
                };
                if let Some(reason) = unknown {
                    self.settle(packets, id, Outcome::Failed(reason));
                }
                unknown.is_none()
            });
        }
        let Work { keys, best, headers, states, .. } = &mut *self.work;
        let has_vlans = self.ways.has_vlans;
        keys::fill(keys, &table.columns, &Group { packets, ids: readable.ids(), headers, states, has_vlans });
        snapshot.lookup(keys, best);
        let best = *best;
        for (&id, &rank) in readable.ids().iter().zip(&best) {
            self.found(packets, id, snapshot.result(rank));
        }
    }

    /// Goes on with a packet for which a search has found a flow, or none.
    #[inline]
    fn found(&mut self, packets: &mut Packets<'_>, id: PacketId, flow: Option<u32>) {
        let state = &mut self.work.states[id.index()];
        state.conjunction = 0;
        let outcome = if let Some(flow) = flow {
            self.work.hits.push(Hit { flow, id });
            let is_first = state.frame == NO_FRAME && state.used == 0;
            if is_first && let Some(port) = self.program.flow(flow).and_then(|flow| flow.only_output) {
                // Nothing else runs, so it does not wait.
                self.output(packets, id, port);
                return self.settle(packets, id, Outcome::Done);
            }
            let state = &self.work.states[id.index()];
            let parent = state.frame;
            let frame = Frame { flow, next: 0, depth: state.depth, table: state.table, parent, is_untracked: false };
            self.act(packets, id, frame)
        } else {
            if state.frame == NO_FRAME && !state.is_sent {
                state.unsent = Reason::NoFlow;
            }
            self.resume(packets, id)
        };
        self.settle(packets, id, outcome);
    }

    /// Goes on with the list of actions that waits.
    fn resume(&mut self, packets: &mut Packets<'_>, id: PacketId) -> Outcome {
        match self.next_list(id) {
            Some(frame) => self.act(packets, id, frame),
            None => Outcome::Done,
        }
    }

    /// Drops a packet that was not sent, or whose actions have failed.
    #[inline]
    fn settle(&mut self, packets: &mut Packets<'_>, id: PacketId, outcome: Outcome) {
        let state = &self.work.states[id.index()];
        match outcome {
            Outcome::Waits => {}
            Outcome::Done if state.is_sent => {}
            Outcome::Done => packets.discard(id, state.unsent),
            Outcome::Failed(reason) => {
                let is_sent = state.is_sent;
                self.end_frames(id);
                if is_sent {
                    packets.drop_at(packets.port(id), &[id], reason);
                } else {
                    packets.discard(id, reason);
                }
            }
        }
    }

    fn end_frames(&mut self, id: PacketId) {
        let state = &mut self.work.states[id.index()];
        while state.frame != NO_FRAME {
            state.frame = self.work.frames.pop(state.frame).parent;
        }
    }

    fn parse(&mut self, packets: &mut Packets<'_>, id: PacketId) {
        let state = &mut self.work.states[id.index()];
        if !state.has_headers {
            state.has_headers = true;
            self.work.headers[id.index()] = Headers::of(packets, id);
        }
    }

    /// Runs a list of actions of a packet, and those that wait for it, until the packet must wait or ends.
    fn act(&mut self, packets: &mut Packets<'_>, id: PacketId, mut frame: Frame) -> Outcome {
        let program = self.program;
        loop {
            let steps = program.flow(frame.flow).map_or(&[][..], |flow| &flow.steps);
            let Some(step) = steps.get(frame.next as usize) else {
                match self.next_list(id) {
                    Some(waiting) => frame = waiting,
                    None => return Outcome::Done,
                }
                continue;
            };
            if self.work.states[id.index()].used != 0 && step.changes_packet() {
                return self.suspend(packets, id, frame);
            }
            let is_last = frame.next as usize + 1 == steps.len();
            let done = match step {
                Step::Output(number) => self.output(packets, id, *number),
                Step::OutputField(from) => {
                    let number = self.view(packets, id).read_bits(*from);
                    match u16::try_from(number) {
                        Ok(number) if number == PortNumber::IN_PORT.0 => self.in_port(packets, id),
                        Ok(number) => self.output(packets, id, PortNumber(number)),
                        Err(_) => true,
                    }
                }
                Step::InPort => self.in_port(packets, id),
                Step::Normal => {
                    let edge = self.ways.normal;
                    self.push(id, edge, ALL_EDGES)
                }
                Step::Flood => match self.flood(packets, id) {
                    Ok(done) => done,
                    Err(reason) => return Outcome::Failed(reason),
                },
                Step::Set { field, value, mask } => match self.view(packets, id).write(*field, *value, *mask) {
                    Ok(()) => true,
                    Err(reason) => return Outcome::Failed(reason),
                },
                Step::Move { from, to } => {
                    let mut view = self.view(packets, id);
                    let value = view.read_bits(*from) << to.offset;
                    match view.write(to.field, value & to.mask(), to.mask()) {
                        Ok(()) => true,
                        Err(reason) => return Outcome::Failed(reason),
                    }
                }
                Step::DecTtl => {
                    if let Err(reason) = self.view(packets, id).decrement_ttl() {
                        // OvS ends this list of actions, and those that have called it go on.
                        self.note_unsent(id, reason);
                        match self.next_list(id) {
                            Some(waiting) => frame = waiting,
                            None => return Outcome::Done,
                        }
                        continue;
                    }
                    true
                }
                Step::PushVlan(tpid) => match self.view(packets, id).push_tag(*tpid) {
                    Ok(()) => true,
                    Err(reason) => return Outcome::Failed(reason),
                },
                Step::StripVlan => match self.view(packets, id).strip_tag() {
                    Ok(()) => true,
                    Err(reason) => return Outcome::Failed(reason),
                },
                Step::Meter(meter) if meter.admits(packets, id) => true,
                Step::Meter(_) => return Outcome::Failed(Reason::FlowMeter),
                Step::Join(conjunction) => {
                    self.work.states[id.index()].conjunction = *conjunction;
                    self.work.waiting.push(id);
                    return Outcome::Waits;
                }
                Step::Ct(ct) => {
                    if let Err(reason) = self.connect(packets, id, ct) {
                        return Outcome::Failed(reason);
                    }
                    if let Some(table) = ct.table {
                        return self.call(id, frame, is_last, table, None);
                    }
                    true
                }
                Step::CtClear => {
                    self.work.states[id.index()].facts.set_connection(0, 0);
                    true
                }
                Step::Goto(table) => return self.call(id, frame, is_last, *table, None),
                Step::Resubmit { port, table } => return self.call(id, frame, is_last, *table, *port),
            };
            if !done {
                // The step waits for the outputs before it.
                return self.suspend(packets, id, frame);
            }
            frame.next += 1;
        }
    }

    /// Takes the list of actions that waits for the one that has ended.
    fn next_list(&mut self, id: PacketId) -> Option<Frame> {
        let state = &mut self.work.states[id.index()];
        if state.frame == NO_FRAME {
            return None;
        }
        let frame = self.work.frames.pop(state.frame);
        state.frame = frame.parent;
        if frame.is_untracked {
            state.facts.set_connection(0, 0);
        }
        Some(Frame { is_untracked: false, ..frame })
    }

    /// Searches for the connection of a packet. If the packet goes on in another table, that table sees the
    /// connection. As in OvS, nobody else does: neither the actions behind, nor lists that wait.
    fn connect(&mut self, packets: &mut Packets<'_>, id: PacketId, ct: &Ct) -> Result<(), Reason> {
        let zone = match ct.zone {
            CtZone::Number(zone) => zone,
            CtZone::Field(from) => u16::try_from(self.view(packets, id).read_bits(from)).unwrap_or(0),
        };
        self.parse(packets, id);
        let Work { headers, states, tracked, searches, frames, .. } = &mut *self.work;
        let state = &mut states[id.index()];
        let before = std::mem::replace(&mut state.is_tracked, true).then(|| &tracked[id.index()]);
        let connections = self.program.connections.as_deref();
        let wanted = ct::Wanted { id, headers: &headers[id.index()], zone, commits: ct.commit };
        let found = ct::track(connections, packets, wanted, before, searches)?;
        tracked[id.index()] = found;
        if ct.table.is_some() {
            frames.untrack(state.frame);
            state.facts.set_connection(found.state, zone);
        } else {
            state.facts.set_connection(0, 0);
        }
        Ok(())
    }

    fn view<'v, 't>(&'v mut self, packets: &'v mut Packets<'t>, id: PacketId) -> View<'v, 't> {
        self.parse(packets, id);
        View {
            packets,
            id,
            headers: &mut self.work.headers[id.index()],
            facts: &mut self.work.states[id.index()].facts,
            has_vlans: self.ways.has_vlans,
        }
    }

    /// Sends a packet to another table.
    fn call(&mut self, id: PacketId, frame: Frame, is_last: bool, table: u8, port: Option<PortNumber>) -> Outcome {
        let state = &mut self.work.states[id.index()];
        if state.calls >= MOST_CALLS || frame.depth >= MOST_DEPTH {
            return Outcome::Failed(Reason::FlowLimit);
        }
        state.calls += 1;
        // As in OvS, a call to a later table is not limited in depth; but a list that waits is.
        let is_limited = table <= frame.table || !is_last;
        state.depth = frame.depth + u8::from(is_limited);
        state.table = table;
        state.lookup_port = port.map_or(state.facts.in_port, |port| port.0);
        if !is_last {
            state.frame = self.work.frames.push(Frame { next: frame.next + 1, ..frame });
        }
        self.work.waiting.push(id);
        Outcome::Waits
    }

    /// Keeps a packet for the next round, and its list of actions.
    fn suspend(&mut self, packets: &Packets<'_>, id: PacketId, frame: Frame) -> Outcome {
        let state = &mut self.work.states[id.index()];
        state.frame = self.work.frames.push(frame);
        let saved = &mut self.work.saved[id.index()];
        *saved = Saved { outside: packets.save_outside(id), vlan: packets.vlan(id), mark: packets.mark_of(id) };
        self.work.later.push(id);
        Outcome::Waits
    }

    /// Sends a packet along an edge, unless it was sent along one of these edges in this round.
    #[inline]
    fn push(&mut self, id: PacketId, edge: usize, edges: u64) -> bool {
        let state = &mut self.work.states[id.index()];
        if state.used & edges != 0 {
            return false;
        }
        state.used |= edges;
        state.is_sent = true;
        self.sent = true;
        self.next.push(edge, id);
        true
    }

    /// Sends a packet to a port, unless it came by it. Returns false if the packet must wait.
    #[inline]
    fn output(&mut self, packets: &Packets<'_>, id: PacketId, number: PortNumber) -> bool {
        if self.work.states[id.index()].facts.in_port == number.0 {
            self.note_unsent(id, Reason::SamePort);
            return true;
        }
        self.send(packets, id, number)
    }

    fn in_port(&mut self, packets: &Packets<'_>, id: PacketId) -> bool {
        let number = self.work.states[id.index()].facts.in_port;
        self.send(packets, id, PortNumber(number))
    }

    #[inline]
    fn send(&mut self, packets: &Packets<'_>, id: PacketId, number: PortNumber) -> bool {
        let port = self.program.ports.port(number);
        let edge = port.and_then(|port| self.ways.edges.get(port.index()).copied()).filter(|edge| *edge != NONE_EDGE);
        let (Some(edge), Some(port)) = (edge, port) else {
            self.note_unsent(id, Reason::NoReceiver);
            return true;
        };
        match self.ways.may_leave(packets, id, port) {
            Ok(()) => self.push(id, edge, 1 << (edge % 64)),
            Err(reason) => {
                self.note_unsent(id, reason);
                true
            }
        }
    }

    /// Sends a packet to all ports but its own. Returns `false` if the packet must wait, and the reason if it
    /// is beyond a limit.
    fn flood(&mut self, packets: &Packets<'_>, id: PacketId) -> Result<bool, Reason> {
        let state = &self.work.states[id.index()];
        if state.used != 0 {
            return Ok(false);
        }
        let from = self.program.ports.port(PortNumber(state.facts.in_port));
        let ways = self.ways;
        if ways.rules.as_ref().is_some_and(|rules| !rules.may_be_flooded(packets, id)) {
            return Err(Reason::Storm);
        }
        self.note_unsent(id, Reason::NoReceiver);
        for (edge, &port) in ways.ports.iter().enumerate().filter(|(_, port)| Some(**port) != from) {
            match ways.may_leave(packets, id, port) {
                Ok(()) => {
                    self.push(id, edge, 0);
                }
                Err(reason) => self.note_unsent(id, reason),
            }
        }
        let state = &mut self.work.states[id.index()];
        if state.is_sent {
            state.used = ALL_EDGES;
        }
        Ok(true)
    }

    fn note_unsent(&mut self, id: PacketId, reason: Reason) {
        self.work.states[id.index()].unsent = reason;
    }
}
