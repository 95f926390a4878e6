//! Connections of packets, as the action `ct` finds them.
//!
//! The key of a connection has the side that opened it as its remote side. So each packet is looked up
//! twice: as one of the opener, and as an answer. All connections of a bridge are in one share, and each
//! of its ports has a part of it: that of the openers behind it.

use straightline_conntrack::{
    BadFragment, Direction, Entry, Key, Opened, Opening, Passed, PortShare, Refusal, Side, Table, Verdict,
};
use straightline_flow::ct_state::{ESTABLISHED, INVALID, NEW, RELATED, REPLY, TRACKED};
use straightline_graph::Departs;
use straightline_packet::{MAX_BATCH, PacketId, Packets, Reason};

use super::control::FlowConnections;
use crate::firewall::{Facts, Flow, Fragment, secret};
use crate::headers::Headers;
use crate::tickets::Tickets;

/// The number of the share that has all connections of the bridge.
pub(super) const SHARE: u16 = 0;

/// Openers that have parts of their own. Two ports whose numbers are so far apart share one.
const OPENERS: u16 = 1024;

/// Creates the table of a bridge with this many ports.
pub(super) fn new_table(settings: FlowConnections, ports: usize) -> Table {
    Table::new(settings.tracking, secret(), &[(SHARE, share(settings, ports))])
}

/// Returns the share that has all connections of a bridge. Its parts change as seldom as possible with the
/// number of ports, because the connections are copied then.
pub(super) fn share(settings: FlowConnections, ports: usize) -> PortShare {
    let connections = settings.most.max(1);
    let parts = u32::try_from(ports.max(1).next_power_of_two()).unwrap_or(u32::MAX);
    PortShare {
        connections,
        outbound_reserve: 0,
        each_opener: (connections / parts).max(1),
        openers: OPENERS,
        by_protocol: false,
        half_open: connections,
        new_per_second: u32::MAX,
        fragments: 64,
    }
}

/// The outcome of a search, for the next search of the same packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracked {
    /// Bits of `ct_state`.
    pub(super) state: u8,
    facts: Facts,
    /// The connection, if it is known.
    entry: Option<Entry>,
}

impl Tracked {
    pub(super) const NONE: Tracked = Tracked { state: 0, facts: Facts::Damaged, entry: None };

    fn invalid(facts: Facts) -> Self {
        Tracked { state: TRACKED | INVALID, facts, entry: None }
    }
}

/// Searches of a turn that are noted. Further ones are searched again if their packet comes again.
const NOTED: usize = 4 * MAX_BATCH;

/// The searches of a turn, and the outcomes of those whose packets went back to their ring: each packet
/// counts once for its connection.
pub(super) struct Searches {
    tickets: Tickets<(u8, Option<Entry>)>,
    /// Packets with the zone and the outcome of a search.
    noted: Vec<(PacketId, u16, Tracked)>,
    /// The last search of each packet.
    last: [usize; MAX_BATCH],
}

impl Searches {
    pub(super) fn new() -> Self {
        Searches { tickets: Tickets::new(), noted: Vec::with_capacity(NOTED), last: [0; MAX_BATCH] }
    }

    /// Forgets the searches of the turn before.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.noted.clear();
    }

    /// Issues tickets for the packets that go back to their ring.
    pub(super) fn issue_tickets(&mut self, packets: &Packets<'_>, departs: &Departs) {
        for &(id, zone, Tracked { state, facts, entry }) in self.noted.iter().filter(|(id, ..)| !departs[id.index()]) {
            let port = packets.port(id).0;
            let name = self.tickets.name((port, zone, facts));
            self.tickets.issue(port, name, (state, entry), packets.now());
        }
    }

    /// Takes the ticket of a packet that was searched in an earlier turn.
    fn take(&mut self, packets: &Packets<'_>, id: PacketId, zone: u16, facts: Facts) -> Option<Tracked> {
        let port = packets.port(id).0;
        if !self.tickets.has_some() || !self.tickets.may_have(port, packets.now()) {
            return None;
        }
        let name = self.tickets.name((port, zone, facts));
        let (state, entry) = self.tickets.take(port, name, packets.now())?;
        Some(Tracked { state, facts, entry })
    }

    fn note(&mut self, id: PacketId, zone: u16, found: Tracked) {
        self.last[id.index()] = self.noted.len();
        if self.noted.len() < NOTED {
            self.noted.push((id, zone, found));
        }
    }

    /// Notes that the outcome of a packet's last search is another one.
    fn change(&mut self, id: PacketId, found: Tracked) {
        if let Some((of, _, noted)) = self.noted.get_mut(self.last[id.index()])
            && *of == id
        {
            *noted = found;
        }
    }
}

/// A packet that searches for its connection.
struct Search<'a> {
    table: &'a Table,
    /// Port by which the packet came.
    opener: u16,
    now: u32,
}

/// A search for the connection of a packet.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) id: PacketId,
    pub(super) headers: &'a Headers,
    pub(super) zone: u16,
    pub(super) commits: bool,
}

/// Searches for the connection of a packet in a zone. `before` is what the last search of this packet has
/// found: a packet counts once.
///
/// # Errors
/// The packet commits a connection for which its port has no place.
pub(super) fn track(
    table: Option<&Table>,
    packets: &Packets<'_>,
    wanted: Wanted<'_>,
    before: Option<&Tracked>,
    searches: &mut Searches,
) -> Result<Tracked, Reason> {
    let Wanted { id, headers, zone, commits } = wanted;
    let facts = Facts::parsed(packets.head(id), headers, zone);
    let Some(table) = table else { return Ok(Tracked::invalid(facts)) };
    let search = Search { table, opener: packets.port(id).0, now: packets.now().wrapping_mul(1000) };
    let mut found = match before.filter(|before| before.facts == facts) {
        Some(before) => *before,
        None => {
            let found = searches.take(packets, id, zone, facts).unwrap_or_else(|| search.find(facts));
            searches.note(id, zone, found);
            found
        }
    };
    if commits && found.entry.is_none() && found.state & NEW != 0 {
        // A later fragment has no ports: its first one commits the connection.
        if !matches!(facts, Facts::LaterFragment { .. }) {
            let entry = search.commit(&facts)?;
            search.join_fragments(&facts, entry);
            found.entry = Some(entry);
            searches.change(id, found);
        }
    }
    Ok(found)
}

impl Search<'_> {
    fn find(&self, facts: Facts) -> Tracked {
        match facts {
            Facts::Packet(flow) => self.find_flow(facts, &flow),
            // Queries alone have a key of ICMP.
            Facts::Single(flow) if !flow.is_icmp() => self.find_flow(facts, &flow),
            Facts::Error { about, seq } => match self.related(&about, seq) {
                Some(state) => Tracked { state: TRACKED | state, facts, entry: None },
                None => Tracked::invalid(facts),
            },
            Facts::LaterFragment { flow, fragment } => self.find_fragment(facts, &flow, &fragment),
            Facts::Single(_) | Facts::Frame(_) | Facts::Damaged => Tracked::invalid(facts),
        }
    }

    fn find_flow(&self, facts: Facts, flow: &Flow) -> Tracked {
        let transport = flow.transport();
        for side in [Side::Remote, Side::Local] {
            let key = flow.key(SHARE, side);
            let Some(entry) = self.table.find_one(&key, self.now) else { continue };
            match self.table.advance(entry, side, &transport, self.now) {
                Verdict::Pass(passed) => {
                    let found = Tracked { state: TRACKED | bits(passed), facts, entry: Some(entry) };
                    return if self.first_fragment(&found).is_ok() { found } else { Tracked::invalid(facts) };
                }
                Verdict::Invalid(_) => return Tracked::invalid(facts),
                // The connection is over: the packet may begin another one.
                Verdict::Reopen | Verdict::Gone => {}
            }
        }
        let asks = flow.query.is_none_or(|query| query.is_question);
        let found = Tracked { state: TRACKED | NEW, facts, entry: None };
        let begins = asks && self.table.begins(&flow.key(SHARE, Side::Remote), &transport, true);
        if begins && self.first_fragment(&found).is_ok() { found } else { Tracked::invalid(facts) }
    }

    /// Returns the state of an ICMP error about a packet of this flow.
    fn related(&self, about: &Flow, seq: Option<u32>) -> Option<u8> {
        [Side::Remote, Side::Local].into_iter().find_map(|sender| {
            let entry = self.table.find_one(&about.key(SHARE, sender), self.now)?;
            match self.table.related(entry, sender, seq) {
                Verdict::Pass(passed) => Some(RELATED | if passed.is_reply { REPLY } else { 0 }),
                _ => None,
            }
        })
    }

    /// Finds the connection of a later fragment, which has no ports. It has the state of its first one,
    /// which a later table may commit.
    fn find_fragment(&self, facts: Facts, flow: &Flow, place: &Fragment) -> Tracked {
        let key = flow.fragments_key(SHARE, Side::Remote, place);
        let entry = self.table.next_fragment(&key, &place.noted(Side::Remote, self.opener), self.now);
        let Ok(entry) = entry else { return Tracked::invalid(facts) };
        let Some(entry) = entry else { return Tracked { state: TRACKED | NEW, facts, entry: None } };
        let Some(connection) = self.table.connection_of(entry, self.now) else { return Tracked::invalid(facts) };
        let is_reply = connection.key.remote() != flow.address(flow.src);
        let has_reply = is_reply || connection.answer_packets > 0;
        let passed = Passed { state: connection.state, is_reply, has_reply };
        Tracked { state: TRACKED | bits(passed), facts, entry: Some(entry) }
    }

    fn commit(&self, facts: &Facts) -> Result<Entry, Reason> {
        let (Facts::Packet(flow) | Facts::Single(flow)) = facts else { return Err(Reason::Invalid) };
        let packet = &flow.transport();
        let opening = Opening {
            direction: Direction::Inbound,
            opener: self.opener,
            is_trusted: false,
            generation: 0,
            rule: 0,
            packet,
            pickup: true,
        };
        let key: Key = flow.key(SHARE, Side::Remote);
        match self.table.open(&key, &opening, self.now) {
            Ok(Opened::New(entry)) => Ok(entry),
            Ok(Opened::Known(entry)) => {
                // Another worker has committed it meanwhile.
                let _ = self.table.advance(entry, Side::Remote, packet, self.now);
                Ok(entry)
            }
            Err(Refusal::Full(_) | Refusal::NoShare) => Err(Reason::ConnectionsFull),
            Err(Refusal::Invalid(_)) => Err(Reason::Invalid),
        }
    }

    /// Notes the first fragment of a datagram, if the packet is one.
    fn first_fragment(&self, found: &Tracked) -> Result<(), BadFragment> {
        let (Facts::Packet(flow) | Facts::Single(flow)) = found.facts else { return Ok(()) };
        let Some(fragment) = flow.fragment else { return Ok(()) };
        let key = flow.fragments_key(SHARE, Side::Remote, &fragment);
        let noted = fragment.noted(Side::Remote, self.opener);
        self.table.first_fragment(&key, &noted, Some(fragment.header.into()), found.entry, self.now)
    }

    /// Notes the connection of a first fragment that has committed it.
    fn join_fragments(&self, facts: &Facts, entry: Entry) {
        let (Facts::Packet(flow) | Facts::Single(flow)) = facts else { return };
        let Some(fragment) = flow.fragment else { return };
        let key = flow.fragments_key(SHARE, Side::Remote, &fragment);
        self.table.join_fragments(&key, Side::Remote, entry, self.now);
    }
}

/// Returns the bits of a packet of a known connection.
fn bits(passed: Passed) -> u8 {
    let reply = if passed.is_reply { REPLY } else { 0 };
    reply | if passed.has_reply { ESTABLISHED } else { NEW }
}
