//! The reference implementation: a map of connections, and one struct for each. It is slow, and says
//! each rule at one place.

use std::collections::HashMap;
use std::net::IpAddr;

use straightline_conntrack::{
    Direction, Full, Invalid, Key, Passed, PortShare, Refusal, Segment, Settings, Side, State, Timeouts, Transport,
    Verdict, Windows,
};
use straightline_wire::IpProtocol;

use crate::tcp::Tcp;

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) direction: Direction,
    pub(crate) opener: u16,
    pub(crate) is_trusted: bool,
    pub(crate) rule: u32,
    pub(crate) generation: u32,
    pub(crate) expires: u32,
    /// Time of the last packet that passed.
    pub(crate) seen: u32,
    /// Its place among those of its class, and the time of its last packet when it came there.
    pub(crate) order: u64,
    pub(crate) filed: u32,
    pub(crate) packets: [u32; 2],
    pub(crate) protocol: Protocol,
}

#[derive(Clone, Debug)]
pub(crate) enum Protocol {
    Tcp(Tcp),
    /// `lasts`: it was answered, and had a packet two seconds after its first one.
    Other {
        has_reply: bool,
        assured_from: u32,
        has_streams: bool,
        lasts: bool,
        /// Questions of DNS that are not answered; none for other packets.
        questions: Option<u32>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Open,
    HalfOpen,
    Closed,
    /// A connection of another protocol than TCP.
    Exchange,
}

impl Connection {
    pub(crate) fn state(&self) -> State {
        match &self.protocol {
            Protocol::Tcp(tcp) => tcp.state,
            Protocol::Other { has_streams: true, lasts: true, .. } => State::Stream,
            Protocol::Other { has_reply: true, .. } => State::Replied,
            Protocol::Other { .. } => State::Unreplied,
        }
    }

    pub(crate) fn has_reply(&self) -> bool {
        match &self.protocol {
            Protocol::Tcp(tcp) => tcp.has_reply,
            Protocol::Other { has_reply, .. } => *has_reply,
        }
    }

    pub(crate) fn class(&self) -> Class {
        match self.state() {
            State::Unreplied | State::Replied | State::Stream => Class::Exchange,
            State::SynSent | State::SynSent2 | State::SynRecv => Class::HalfOpen,
            State::LastAck | State::TimeWait | State::Close => Class::Closed,
            _ if !self.has_reply() => Class::HalfOpen,
            _ => Class::Open,
        }
    }

    fn is_exchange(&self) -> bool {
        self.class() == Class::Exchange
    }

    /// It is an established inbound connection whose opener is behind a trusted port.
    fn is_of_prefix(&self) -> bool {
        self.is_trusted && self.direction == Direction::Inbound && self.class() == Class::Open
    }

    fn is_short_exchange(&self) -> bool {
        matches!(self.protocol, Protocol::Other { lasts: false, .. })
    }
}

/// A table of one port.
pub(crate) struct Reference {
    pub(crate) settings: Settings,
    pub(crate) share: PortShare,
    pub(crate) connections: HashMap<Key, Connection>,
    pub(crate) refused: HashMap<Full, u64>,
    pub(crate) evicted: u64,
    /// Number of the last place that was given in the order of a class.
    pub(crate) order: u64,
    /// Thousandths of new connections that may be opened, and since when: outbound ones, and those of each
    /// opener; exchanges, and others.
    allowances: HashMap<(Option<u16>, bool), (u64, u32)>,
}

/// A new connection.
#[derive(Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) direction: Direction,
    pub(crate) opener: u16,
    pub(crate) is_trusted: bool,
    pub(crate) rule: u32,
    pub(crate) generation: u32,
    pub(crate) pickup: bool,
}

impl Reference {
    pub(crate) fn new(settings: Settings, share: PortShare) -> Self {
        Reference {
            settings,
            share,
            connections: HashMap::new(),
            refused: HashMap::new(),
            evicted: 0,
            order: 0,
            allowances: HashMap::new(),
        }
    }

    pub(crate) fn find(&self, key: &Key, now: u32) -> Option<&Connection> {
        self.connections.get(key).filter(|connection| connection.expires > now)
    }

    pub(crate) fn open(&mut self, key: Key, opening: &Opening, packet: &Transport, now: u32) -> Result<(), Refusal> {
        let timeouts = self.settings.timeouts;
        let (protocol, mut timeout) = match packet {
            Transport::Tcp(segment) => {
                let (tcp, timeout) =
                    Tcp::open(segment, opening.pickup, &timeouts, self.is_liberal()).map_err(Refusal::Invalid)?;
                (Protocol::Tcp(tcp), timeout)
            }
            Transport::Other => {
                let has_streams = key.protocol() == IpProtocol::UDP;
                let service = match opening.direction {
                    Direction::Outbound => key.remote_port(),
                    Direction::Inbound => key.local_port(),
                };
                let questions = (has_streams && service == 53 && self.share.by_protocol).then_some(1);
                let assured_from = now + 2000;
                let other = Protocol::Other { has_reply: false, assured_from, has_streams, lasts: false, questions };
                (other, timeout_of(key.protocol(), false, &timeouts))
            }
        };
        // It was not found, so its time is over.
        self.connections.remove(&key);
        let is_exchange = matches!(protocol, Protocol::Other { .. });
        self.admit(&key, opening, is_exchange, now).map_err(|full| {
            *self.refused.entry(full).or_default() += 1;
            Refusal::Full(full)
        })?;
        if is_exchange && self.is_crowded(opening.direction) {
            timeout = timeout.min(5000);
        }
        self.order += 1;
        let connection = Connection {
            direction: opening.direction,
            opener: opening.opener,
            is_trusted: opening.is_trusted,
            rule: opening.rule,
            generation: opening.generation,
            expires: now + timeout,
            seen: now,
            order: self.order,
            filed: now,
            packets: [1, 0],
            protocol,
        };
        self.connections.insert(key, connection);
        Ok(())
    }

    fn is_liberal(&self) -> bool {
        self.settings.windows == Windows::Liberal
    }

    fn count(&self, matches: impl Fn(&Connection) -> bool) -> u32 {
        u32::try_from(self.connections.values().filter(|connection| matches(connection)).count()).expect("few")
    }

    fn place(&self, opener: u16) -> u16 {
        opener % self.share.openers
    }

    /// Connections of a direction and kind, and how many places are for these alone.
    fn used(&self, direction: Direction, is_exchange: bool) -> (u32, u32) {
        let used = self.count(|c| c.direction == direction && c.is_exchange() == is_exchange);
        let half = match direction {
            Direction::Outbound => self.share.outbound_reserve,
            Direction::Inbound => self.inbound_half(),
        };
        (used, if self.share.by_protocol { half / 4 } else { 0 })
    }

    fn inbound_half(&self) -> u32 {
        self.share.connections - self.share.outbound_reserve
    }

    /// Places that connections of a direction take or keep free. A new one needs none that is kept for its
    /// kind.
    fn taken(&self, direction: Direction, new: Option<bool>) -> u32 {
        let taken = |is_exchange| {
            let (used, alone) = self.used(direction, is_exchange);
            if new == Some(is_exchange) { used } else { used.max(alone) }
        };
        taken(true) + taken(false)
    }

    fn check(&self, direction: Direction, is_exchange: bool) -> Result<(), Full> {
        let own = self.taken(direction, Some(is_exchange));
        if direction == Direction::Inbound && own >= self.inbound_half() {
            return Err(Full::Inbound);
        }
        let other = if direction == Direction::Inbound { Direction::Outbound } else { Direction::Inbound };
        if own + self.taken(other, None) >= self.share.connections { Err(Full::Connections) } else { Ok(()) }
    }

    fn is_crowded(&self, direction: Direction) -> bool {
        let exchanges = self.used(direction, true);
        let all = exchanges.0 + self.used(direction, false).0;
        let places = match direction {
            Direction::Inbound => self.inbound_half(),
            Direction::Outbound => self.share.connections - 2 * self.used(Direction::Inbound, true).1,
        };
        let is_near = |used: u32, most: u32| used * 8 >= most * 7;
        self.share.by_protocol
            && (is_near(all, places)
                || is_near(exchanges.0, places - exchanges.1)
                || is_near(self.count(|_| true), self.share.connections))
    }

    /// Established inbound TCP connections that there is room for: the others are lent to outbound ones.
    fn most_established(&self) -> u32 {
        let outbound = Direction::Outbound;
        let open = self.count(|c| c.direction == outbound && c.class() == Class::Open);
        let lent = (open + self.used(outbound, true).1).saturating_sub(self.share.outbound_reserve);
        (self.inbound_half() - self.used(Direction::Inbound, true).1).saturating_sub(lent)
    }

    /// Established inbound connections of each port that is not trusted.
    fn of_ports(&self) -> HashMap<u16, u32> {
        let mut counts = HashMap::new();
        let is_one = |c: &&Connection| c.direction == Direction::Inbound && c.class() == Class::Open && !c.is_trusted;
        for connection in self.connections.values().filter(is_one) {
            *counts.entry(self.place(connection.opener)).or_default() += 1;
        }
        counts
    }

    /// Returns what each of these ports keeps when a network behind a trusted port wants a place.
    fn part(&self) -> u32 {
        let ports = u32::try_from(self.of_ports().len()).expect("few");
        self.most_established() / (ports + 2)
    }

    /// Whether a network behind a trusted port with so many connections gets no more.
    fn is_much(&self, own: u32) -> bool {
        let most = self.most_established();
        let of_ports = self.of_ports();
        let ports = u32::try_from(of_ports.len()).expect("few");
        let kept_for_ports = of_ports.values().sum::<u32>().min(ports * self.part()).max(most / 8);
        let left = i64::from(most) - i64::from(kept_for_ports) - i64::from(self.count(Connection::is_of_prefix));
        self.share.by_protocol && i64::from(own) >= left.max(0)
    }

    fn of_prefix(&self, key: &Key) -> u32 {
        let of = |key: &Key| match key.remote() {
            IpAddr::V4(address) => address.to_bits() >> 8,
            IpAddr::V6(_) => panic!("no flow has it"),
        };
        let all = self.connections.iter().filter(|(other, c)| of(other) == of(key) && c.is_of_prefix());
        u32::try_from(all.count()).expect("few")
    }

    fn admit(&mut self, key: &Key, opening: &Opening, is_exchange: bool, now: u32) -> Result<(), Full> {
        let Opening { direction, opener, is_trusted, .. } = *opening;
        let share = self.share;
        let is_inbound = direction == Direction::Inbound;
        let each_second = u64::from(share.new_per_second);
        let whose = (is_inbound.then_some(self.place(opener)), is_exchange);
        let (allowance, since) = self.allowances.entry(whose).or_insert((each_second * 1000, now));
        *allowance = (*allowance + u64::from(now - *since) * each_second).min(each_second * 1000);
        *since = now;
        *allowance = allowance.checked_sub(1000).ok_or(Full::Rate)?;

        let place = self.place(opener);
        if !is_exchange {
            if is_inbound && is_trusted && self.is_much(self.of_prefix(key)) {
                return Err(Full::Opener);
            }
            let is_half_open = |c: &Connection| c.direction == direction && c.class() == Class::HalfOpen;
            if self.count(is_half_open) >= share.half_open
                && !(is_inbound && self.evict_half_open_of_greater(place))
                && !self.evict_oldest(Class::HalfOpen, direction, place)
            {
                return Err(Full::HalfOpen);
            }
        }
        if is_inbound {
            let own = self.count(|c| c.direction == direction && self.place(c.opener) == place);
            if own >= share.each_opener
                && !self.evict_oldest(Class::Closed, direction, place)
                && !self.evict_idlest(Class::Exchange, direction, place, now)
                && !self.evict_oldest(Class::HalfOpen, direction, place)
            {
                return Err(Full::Opener);
            }
        }
        for _ in 0..4 {
            let Err(full) = self.check(direction, is_exchange) else { break };
            if !self.make_place(opening, is_exchange, full, now) {
                return Err(full);
            }
        }
        self.check(direction, is_exchange)
    }

    fn make_place(&mut self, opening: &Opening, is_exchange: bool, full: Full, now: u32) -> bool {
        let Opening { direction, is_trusted, .. } = *opening;
        let place = self.place(opening.opener);
        let is_inbound = direction == Direction::Inbound;
        let has_more = |table: &Self, direction, kind| {
            let (used, alone) = table.used(direction, kind);
            used > alone
        };
        if (!is_exchange || has_more(self, direction, false)) && self.evict_closed(direction, place) {
            return true;
        }
        if (is_exchange || has_more(self, direction, true)) && self.evict_exchange(direction, place, now) {
            return true;
        }
        let outbound = Direction::Outbound;
        let is_borrowing = self.taken(outbound, None) > self.share.outbound_reserve;
        if is_inbound && full == Full::Connections && is_borrowing {
            let has_more_tcp = has_more(self, outbound, false);
            if has_more_tcp && self.evict_closed(outbound, 0)
                || has_more(self, outbound, true) && self.evict_exchange(outbound, 0, now)
                || has_more_tcp && self.evict_oldest(Class::HalfOpen, outbound, 0)
            {
                return true;
            }
        }
        !is_exchange
            && (is_inbound
                && (self.evict_half_open_of_greater(place) || self.evict_established(place, is_trusted, now))
                || self.evict_oldest(Class::HalfOpen, direction, place))
    }

    /// Returns the opener that has most of these inbound connections: their number, and its place. Of
    /// those that have the same, the last one.
    fn greatest(&self, class: Class) -> Option<(u32, u16)> {
        let is_one = |c: &&Connection| {
            let is_free = class != Class::Open || !c.is_trusted;
            c.direction == Direction::Inbound && c.class() == class && is_free
        };
        let mut counts: HashMap<u16, u32> = HashMap::new();
        for connection in self.connections.values().filter(is_one) {
            *counts.entry(self.place(connection.opener)).or_default() += 1;
        }
        counts.into_iter().map(|(place, count)| (count, place)).max()
    }

    fn evict_closed(&mut self, direction: Direction, place: u16) -> bool {
        self.evict_oldest(Class::Closed, direction, place)
            || direction == Direction::Inbound
                && self
                    .greatest(Class::Closed)
                    .is_some_and(|(_, place)| self.evict_oldest(Class::Closed, direction, place))
    }

    fn evict_exchange(&mut self, direction: Direction, place: u16, now: u32) -> bool {
        let class = Class::Exchange;
        let own = self.of(class, direction, place).len();
        match self.greatest(class).filter(|_| direction == Direction::Inbound) {
            Some((most, greatest)) if own == 0 || most as usize > own + 1 => {
                self.evict_idlest(class, direction, greatest, now)
            }
            _ => self.evict_idlest(class, direction, place, now),
        }
    }

    fn evict_half_open_of_greater(&mut self, place: u16) -> bool {
        let class = Class::HalfOpen;
        let own = self.of(class, Direction::Inbound, place).len();
        let greatest = self.greatest(class).filter(|(count, _)| *count as usize > own + 1);
        greatest.is_some_and(|(_, place)| self.evict_oldest(class, Direction::Inbound, place))
    }

    fn evict_established(&mut self, place: u16, is_trusted: bool, now: u32) -> bool {
        let inbound = Direction::Inbound;
        let own: usize = [Class::Open, Class::HalfOpen].map(|class| self.of(class, inbound, place).len()).iter().sum();
        let kept = if is_trusted { self.part() } else { u32::try_from(own).expect("few") + 1 };
        let greatest = self.greatest(Class::Open).filter(|(count, _)| *count > kept && self.share.by_protocol);
        greatest.is_some_and(|(_, place)| self.evict_idlest(Class::Open, inbound, place, now))
    }

    /// Returns the connections of a class in their order: inbound ones of one place.
    fn of(&self, class: Class, direction: Direction, place: u16) -> Vec<Key> {
        let is_one = |c: &Connection| {
            let is_free = class != Class::Open || !c.is_trusted;
            let is_here = direction == Direction::Outbound || self.place(c.opener) == place;
            c.class() == class && c.direction == direction && is_here && is_free
        };
        let mut all: Vec<_> = self.connections.iter().filter(|(_, c)| is_one(c)).collect();
        all.sort_by_key(|(_, connection)| connection.order);
        all.into_iter().map(|(key, _)| *key).collect()
    }

    fn evict_oldest(&mut self, class: Class, direction: Direction, place: u16) -> bool {
        let oldest = self.of(class, direction, place).first().copied();
        oldest.is_some_and(|key| self.evict(&key))
    }

    /// Evicts the one that is idle longest. Those that had packets since are moved to their second, at the end.
    fn evict_idlest(&mut self, class: Class, direction: Direction, place: u16, now: u32) -> bool {
        let second = |time: u32| time / 1000 % 128;
        loop {
            let all = self.of(class, direction, place).into_iter();
            // Seconds are told apart modulo 128.
            let age = |c: &Connection| (second(now) + 128 - second(c.filed)) % 128;
            let Some(key) = all.min_by_key(|key| {
                let connection = &self.connections[key];
                (127 - age(connection), connection.order)
            }) else {
                return false;
            };
            let connection = self.connections.get_mut(&key).expect("it was found");
            if now - connection.seen >= 127_000 || second(connection.filed) == second(connection.seen) {
                return self.evict(&key);
            }
            self.order += 1;
            connection.order = self.order;
            connection.filed = connection.seen;
        }
    }

    fn evict(&mut self, key: &Key) -> bool {
        self.evicted += 1;
        self.connections.remove(key).is_some()
    }

    pub(crate) fn advance(&mut self, key: &Key, side: Side, packet: &Transport, now: u32) -> Verdict {
        let is_liberal = self.is_liberal();
        let timeouts = self.settings.timeouts;
        let is_crowded = self.connections.get(key).is_some_and(|connection| self.is_crowded(connection.direction));
        let connection = self.connections.get_mut(key).expect("it was found");
        let is_reply = side != connection.direction.opener();
        let class = connection.class();
        let outcome = match (&mut connection.protocol, packet) {
            (Protocol::Tcp(tcp), Transport::Tcp(segment)) => {
                tcp.advance(is_reply, segment, &timeouts, is_liberal, connection.expires - now)
            }
            (Protocol::Other { has_reply, assured_from, has_streams, lasts, questions }, Transport::Other) => {
                *lasts |= *has_reply && now >= *assured_from;
                *has_reply |= is_reply;
                let mut timeout = timeout_of(key.protocol(), *has_streams && *lasts, &timeouts);
                if let Some(questions) = questions {
                    *questions = if is_reply { questions.saturating_sub(1) } else { *questions + 1 };
                    if *questions == 0 {
                        timeout = timeout.min(2000);
                    }
                }
                Outcome::Renew(if is_crowded && !*lasts { timeout.min(5000) } else { timeout })
            }
            _ => Outcome::Invalid(Invalid::Protocol),
        };
        let mut ends = false;
        match outcome {
            Outcome::Invalid(reason) => return Verdict::Invalid(reason),
            Outcome::InvalidAndShorten(reason, timeout) => {
                connection.expires = now + timeout;
                return Verdict::Invalid(reason);
            }
            Outcome::Reopen => {
                self.connections.remove(key);
                return Verdict::Reopen;
            }
            Outcome::Renew(timeout) => connection.expires = now + timeout,
            Outcome::Pass => {}
            Outcome::End => ends = true,
        }
        connection.packets[usize::from(is_reply)] += 1;
        connection.seen = now;
        let comes_to_class = connection.class() != class;
        if comes_to_class {
            self.order += 1;
            connection.order = self.order;
            connection.filed = now;
        }
        let passed = Passed { state: connection.state(), is_reply, has_reply: connection.has_reply() };
        let is_of_prefix = connection.is_of_prefix();
        if ends {
            self.connections.remove(key);
        } else if comes_to_class && is_of_prefix && self.is_one_too_many(key) {
            *self.refused.entry(Full::Opener).or_default() += 1;
        }
        Verdict::Pass(passed)
    }

    /// Ends a connection whose handshake is over, if its network has too many without it.
    fn is_one_too_many(&mut self, key: &Key) -> bool {
        let connection = self.connections.remove(key).expect("it was found");
        let is_one = self.is_much(self.of_prefix(key));
        if !is_one {
            self.connections.insert(*key, connection);
        }
        is_one
    }

    pub(crate) fn sweep(&mut self, now: u32) {
        let crowded = [Direction::Outbound, Direction::Inbound].map(|direction| self.is_crowded(direction));
        self.connections.retain(|_, connection| {
            let is_too_long = connection.is_short_exchange()
                && crowded[connection.direction as usize]
                && now - connection.seen >= 5000;
            connection.expires > now && !is_too_long
        });
    }
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Renew(u32),
    Pass,
    End,
    Reopen,
    Invalid(Invalid),
    InvalidAndShorten(Invalid, u32),
}

fn timeout_of(protocol: IpProtocol, is_stream: bool, timeouts: &Timeouts) -> u32 {
    match protocol {
        _ if is_stream => timeouts.udp_stream,
        IpProtocol::UDP => timeouts.udp,
        IpProtocol::ICMP => timeouts.icmp,
        _ => timeouts.generic,
    }
}

/// Returns the sequence number behind a segment.
pub(crate) fn end_of(segment: &Segment) -> u32 {
    let marks = u32::from(segment.flags & 2 != 0) + u32::from(segment.flags & 1 != 0);
    segment.seq.wrapping_add(segment.len).wrapping_add(marks)
}
