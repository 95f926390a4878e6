//! Packets that rules decide about: those that begin connections, and those of a connection that another
//! policy has allowed.

use std::net::IpAddr;

use straightline_classify::Column;
use straightline_conntrack::{self as conntrack, Entry, Opened, Opening, Refusal, Side, Verdict};
use straightline_firewall::{self as firewall, Direction, NEEDS_RULE, Origin, RuleIndex, TRUSTED_SENDER};
use straightline_packet::{Batch, MAX_BATCH, PacketId, Packets, PortIndex, Reason};
use straightline_wire::{EtherType, IpProtocol, ndp};

use super::{Decision, RECENT, Run, Work};
use crate::firewall::control::Denial;
use crate::firewall::facts::{Facts, Flow};
use crate::firewall::messages::flow_of;

impl Run<'_> {
    /// Returns the connection of a packet that `sender` has sent, if the present policy allows it. If
    /// another one has, the policy decides as if the first packet came now. A connection that it denies
    /// ends. So does one whose packets pass without a connection now: rules decide about each.
    pub(super) fn present(&mut self, entry: Entry, flow: &Flow, sender: Side, at: usize) -> Result<Entry, Decision> {
        if !entry.is_stale(self.own.generation) {
            return Ok(entry);
        }
        let table = &self.rules.table;
        let opener = entry.direction().opener();
        let direction = if opener == Side::Local { Direction::Out } else { Direction::In };
        let first = if opener == sender { *flow } else { flow.answer() };
        let key = first.policy_key(direction, false);
        let mut verdicts = [RuleIndex::default(); MAX_BATCH];
        self.own.policy.decide(direction, &[&key].into_iter().collect(), &mut verdicts);
        let rule = verdicts[0];
        if self.own.policy.rule(rule).stateless {
            // The rules are asked about the packet, and it is counted there.
            table.end(entry);
            return Err(Decision::Ask);
        }
        self.own.notes.count(rule);
        let denied = Err(Decision::Drop(Reason::Denied));
        if self.own.policy.rule(rule).begins_connections() {
            return table.renew(entry, self.own.generation, rule.0).map_or(denied, Ok);
        }
        table.end(entry);
        self.work.decided.push((at, rule));
        denied
    }

    /// Asks the rules about all other packets, in their order.
    pub(super) fn ask(&mut self, packets: &mut Packets<'_>, batch: &Batch) {
        let Work { facts, decisions, asking, columns, verdicts, fragments, .. } = &mut *self.work;
        asking.clear();
        columns.clear();
        for (at, &id) in batch.ids().iter().enumerate() {
            if decisions[at] != Decision::Ask {
                continue;
            }
            let is_trusted = self.rules.is_trusted(packets.port(id));
            let key = match facts[at].get_or_insert_with(|| Facts::of(packets, id)) {
                Facts::Packet(flow) | Facts::Single(flow) => flow.policy_key(self.direction, is_trusted),
                Facts::Frame(ether_type) => frame_key(*ether_type, is_trusted),
                Facts::LaterFragment { .. } => {
                    fragments.push((at, None));
                    continue;
                }
                Facts::Error { .. } | Facts::Damaged => {
                    decisions[at] = Decision::Drop(Reason::Hidden);
                    continue;
                }
            };
            asking.push(at);
            columns.push(&key);
        }
        if !asking.is_empty() {
            self.own.policy.decide(self.direction, columns, verdicts);
            if self.direction == Direction::Out && self.own.policy.has_stateless() {
                self.ask_about_questions();
            }
        }
        for nth in 0..self.work.asking.len() {
            let at = self.work.asking[nth];
            let rule = self.work.verdicts[nth];
            let id = batch.ids()[at];
            self.work.decisions[at] = self.decided(rule, at, packets, id);
        }
    }

    /// Puts the rule with `stateless` that allows a question in place of the rule about its answer, where
    /// that yields. Fragments are left out: only those of a connection could follow.
    fn ask_about_questions(&mut self) {
        let Work { facts, asking, answers, columns, verdicts, .. } = &mut *self.work;
        let policy = &self.own.policy;
        answers.clear();
        columns.clear();
        for (nth, &at) in asking.iter().enumerate() {
            let Some(Facts::Packet(flow)) = facts[at] else { continue };
            if flow.fragment.is_some() || !policy.rule(verdicts[nth]).yields_to_stateless() {
                continue;
            }
            let Some(question) = flow.in_words(Direction::Out).question() else { continue };
            answers.push(nth);
            columns.push(&question.key());
        }
        if answers.is_empty() {
            return;
        }
        let mut questions = [RuleIndex::default(); MAX_BATCH];
        policy.decide(Direction::In, columns, &mut questions);
        for (&nth, &rule) in answers.iter().zip(&questions) {
            if policy.rule(rule).stateless {
                verdicts[nth] = rule;
            }
        }
    }

    /// Decides about a packet of a rule.
    fn decided(&mut self, rule: RuleIndex, at: usize, packets: &Packets<'_>, id: PacketId) -> Decision {
        let policy_rule = self.own.policy.rule(rule);
        let facts = self.work.facts[at].unwrap_or(Facts::Damaged);
        self.own.notes.count(rule);
        if !policy_rule.allows() && self.is_unsolicited(&policy_rule.origin, &facts, packets.head(id)) {
            return Decision::Drop(Reason::Unsolicited);
        }
        // An answer is of the flow whose question was noted.
        if policy_rule.log && policy_rule.direction == self.direction || !policy_rule.allows() {
            self.note(rule, &facts);
        }
        if !policy_rule.allows() {
            return Decision::Drop(Reason::Denied);
        }
        let rule = match self.judge_message(policy_rule.origin == Origin::Network, &facts, packets, id) {
            Ok(()) => rule,
            Err(Reason::MessageForm) => match self.allowed_by_group(&facts, at) {
                Some(rule) => rule,
                None => return Decision::Drop(Reason::MessageForm),
            },
            Err(reason) => return Decision::Drop(reason),
        };
        let policy_rule = self.own.policy.rule(rule);
        match facts {
            // One to another station, which was flooded, takes no space of this port.
            Facts::Packet(_) if self.direction == Direction::In && !self.own.is_addressed(packets.head(id)) => {
                Decision::Pass
            }
            Facts::Packet(flow) if policy_rule.begins_connections() => match self.open(&flow, rule, packets.port(id)) {
                Ok(entry) => {
                    if flow.fragment.is_some() {
                        self.work.fragments.push((at, Some(entry)));
                    }
                    Decision::Pass
                }
                Err(reason) => Decision::Drop(reason),
            },
            // To a group address, as Linux: a segment of no connection must begin one.
            Facts::Single(flow) if flow.tcp.is_some() && !self.is_known_or_begins(&flow) => {
                Decision::Drop(Reason::Invalid)
            }
            // It passes without a connection, which its fragments could follow.
            Facts::Packet(flow) if policy_rule.stateless && flow.fragment.is_some() => {
                Decision::Drop(Reason::FragmentRefused)
            }
            _ => Decision::Pass,
        }
    }

    /// Returns the rule of a group that allows a message from the port whose form needs one.
    #[cold]
    fn allowed_by_group(&mut self, facts: &Facts, at: usize) -> Option<RuleIndex> {
        let key = flow_of(facts)?.policy_key(self.direction, false).with(NEEDS_RULE, 1);
        let mut verdicts = [RuleIndex::default(); MAX_BATCH];
        self.own.policy.decide(self.direction, &[&key].into_iter().collect(), &mut verdicts);
        let rule = verdicts[0];
        let policy_rule = self.own.policy.rule(rule);
        if !policy_rule.allows() {
            return None;
        }
        self.own.notes.count(rule);
        if policy_rule.log {
            self.note(rule, facts);
        }
        self.work.decided.push((at, rule));
        Some(rule)
    }

    fn is_known_or_begins(&self, flow: &Flow) -> bool {
        let table = &self.rules.table;
        let key = flow.key(self.port.0, self.sender);
        table.find_one(&key, self.now).is_some() || table.begins(&key, &flow.transport(), self.rules.picks_up(self.now))
    }

    /// Returns whether a denied packet to the port was sent to many stations, or looks for a router, and no
    /// rule of a group speaks of it. Each port of a bridge gets such packets from all others. So they are no
    /// news, and say nothing of an attack. An IP packet to one station is none of them: a sender could put it
    /// into a frame to many.
    fn is_unsolicited(&self, origin: &Origin, facts: &Facts, head: &[u8]) -> bool {
        let is_frame_for_many = head.first().is_some_and(|first| first & 1 != 0);
        let (is_for_many, is_solicitation) = match facts {
            Facts::Packet(flow) | Facts::Single(flow) => (flow.is_to_many(), flow.is_router_solicitation()),
            _ => (true, false),
        };
        let is_such = match origin {
            Origin::Default => is_frame_for_many && is_for_many || is_solicitation,
            Origin::Network => is_solicitation,
            Origin::Group(..) => false,
        };
        self.direction == Direction::In && is_such
    }

    /// Opens a connection that a rule allows.
    fn open(&self, flow: &Flow, rule: RuleIndex, from: PortIndex) -> Result<Entry, Reason> {
        if flow.query.is_some_and(|query| !query.is_question) {
            // An answer without its question begins nothing.
            return Err(Reason::Invalid);
        }
        let table = &self.rules.table;
        let key = flow.key(self.port.0, self.sender);
        let (direction, opener) = match self.direction {
            Direction::Out => (conntrack::Direction::Outbound, 0),
            Direction::In => (conntrack::Direction::Inbound, from.0),
        };
        let transport = flow.transport();
        let opening = Opening {
            direction,
            opener,
            is_trusted: self.rules.is_trusted(from),
            generation: self.own.generation,
            rule: rule.0,
            packet: &transport,
            pickup: self.rules.picks_up(self.now),
        };
        match table.open(&key, &opening, self.now) {
            Ok(Opened::New(entry)) => Ok(entry),
            // A packet before it in the batch has opened the connection, or another worker.
            Ok(Opened::Known(entry)) => match table.advance(entry, self.sender, &transport, self.now) {
                Verdict::Pass(_) => Ok(entry),
                Verdict::Invalid(_) | Verdict::Reopen | Verdict::Gone => Err(Reason::Invalid),
            },
            Err(Refusal::Invalid(_)) => Err(Reason::Invalid),
            Err(Refusal::Full(_) | Refusal::NoShare) => Err(Reason::ConnectionsFull),
        }
    }

    /// Notes a packet for an event, if its flow was not noted in this second.
    fn note(&mut self, rule: RuleIndex, facts: &Facts) {
        let flow = match facts {
            Facts::Packet(flow) | Facts::Single(flow) => Some(flow),
            _ => None,
        };
        let hash = flow.map_or(0, Flow::hash);
        let mark = u64::from(hash) << 32 | u64::from(self.now | 1);
        let recent = &mut self.work.recent[hash as usize % RECENT];
        if *recent == mark {
            return;
        }
        *recent = mark;
        let packet = flow.map(|flow| flow.in_words(self.direction));
        self.own.notes.note(Denial { rule, packet, direction: self.direction });
    }
}

/// Returns the key of a frame that is no IP packet.
fn frame_key(ether_type: EtherType, is_trusted: bool) -> straightline_classify::Key {
    let key = straightline_classify::Key::default();
    key.with(Column::EtherType, ether_type.0.into()).with(TRUSTED_SENDER, u32::from(is_trusted))
}

impl Flow {
    /// Returns whether the packet is for a group, or for all.
    fn is_to_many(&self) -> bool {
        match self.address(self.dst) {
            IpAddr::V4(dst) => dst.is_multicast() || dst.is_broadcast(),
            IpAddr::V6(dst) => dst.is_multicast(),
        }
    }

    fn is_router_solicitation(&self) -> bool {
        let is_solicitation = self.icmp[0] == ndp::Kind::RouterSolicitation as u8;
        self.is_ipv6 && self.protocol == IpProtocol::ICMPV6.0 && is_solicitation
    }

    /// Returns the key of a packet for rules of this direction.
    fn policy_key(&self, direction: Direction, is_trusted: bool) -> straightline_classify::Key {
        self.in_words_of(direction, is_trusted).key()
    }

    /// Returns the packet in words.
    fn in_words(&self, direction: Direction) -> firewall::Flow {
        self.in_words_of(direction, false)
    }

    fn in_words_of(&self, direction: Direction, from_trusted: bool) -> firewall::Flow {
        let remote = if direction == Direction::Out { self.dst } else { self.src };
        firewall::Flow {
            direction,
            ether_type: if self.is_ipv6 { EtherType::IPV6.0 } else { EtherType::IPV4.0 },
            remote: Some(self.address(remote)),
            protocol: self.protocol,
            source_port: self.src_port,
            port: self.dst_port,
            icmp: (self.icmp[0], self.icmp[1]),
            hops: self.hops,
            from_trusted,
        }
    }
}
