//! The reference implementation: a map of connections, and one struct for each. It is slow, and says
//! each rule at one place.

use std::collections::HashMap;

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
    pub(crate) rule: u32,
    pub(crate) generation: u32,
    pub(crate) expires: u32,
    /// Number of the step in which it came into its class.
    pub(crate) since: u64,
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
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Open,
    /// An inbound exchange that was answered and does not last.
    Answered,
    HalfOpen,
    Closed,
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
            State::SynSent | State::SynSent2 | State::SynRecv | State::Unreplied => Class::HalfOpen,
            State::LastAck | State::TimeWait | State::Close => Class::Closed,
            _ if !self.has_reply() => Class::HalfOpen,
            _ => match self.protocol {
                Protocol::Other { lasts: false, .. } if self.direction == Direction::Inbound => Class::Answered,
                _ => Class::Open,
            },
        }
    }
}

/// A table of one port.
pub(crate) struct Reference {
    pub(crate) settings: Settings,
    pub(crate) share: PortShare,
    pub(crate) connections: HashMap<Key, Connection>,
    pub(crate) refused: HashMap<Full, u64>,
    pub(crate) evicted: u64,
    pub(crate) step: u64,
    /// Thousandths of new connections that may be opened, and since when: outbound ones, and those of each
    /// opener.
    allowances: HashMap<Option<u16>, (u64, u32)>,
}

/// A new connection.
#[derive(Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) direction: Direction,
    pub(crate) opener: u16,
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
            step: 0,
            allowances: HashMap::new(),
        }
    }

    pub(crate) fn find(&self, key: &Key, now: u32) -> Option<&Connection> {
        self.connections.get(key).filter(|connection| connection.expires > now)
    }

    pub(crate) fn open(&mut self, key: Key, opening: &Opening, packet: &Transport, now: u32) -> Result<(), Refusal> {
        self.step += 1;
        let timeouts = self.settings.timeouts;
        let (protocol, timeout) = match packet {
            Transport::Tcp(segment) => {
                let (tcp, timeout) =
                    Tcp::open(segment, opening.pickup, &timeouts, self.is_liberal()).map_err(Refusal::Invalid)?;
                (Protocol::Tcp(tcp), timeout)
            }
            Transport::Other => {
                let has_streams = key.protocol() == IpProtocol::UDP;
                let other = Protocol::Other { has_reply: false, assured_from: now + 2000, has_streams, lasts: false };
                (other, timeout_of(key.protocol(), false, &timeouts))
            }
        };
        // It was not found, so its time is over.
        self.connections.remove(&key);
        self.admit(opening, now).map_err(|full| {
            *self.refused.entry(full).or_default() += 1;
            Refusal::Full(full)
        })?;
        let connection = Connection {
            direction: opening.direction,
            opener: opening.opener,
            rule: opening.rule,
            generation: opening.generation,
            expires: now + timeout,
            since: self.step,
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

    fn admit(&mut self, opening: &Opening, now: u32) -> Result<(), Full> {
        let Opening { direction, opener, .. } = *opening;
        let share = self.share;
        let each_second = u64::from(share.new_per_second);
        let whose = (direction == Direction::Inbound).then_some(opener % share.openers);
        let (allowance, since) = self.allowances.entry(whose).or_insert((each_second * 1000, now));
        *allowance = (*allowance + u64::from(now - *since) * each_second).min(each_second * 1000);
        *since = now;
        *allowance = allowance.checked_sub(1000).ok_or(Full::Rate)?;

        let is_of_direction = |c: &Connection| c.direction == direction;
        let is_half_open = |c: &Connection| is_of_direction(c) && c.class() == Class::HalfOpen;
        if direction == Direction::Outbound {
            if self.count(is_half_open) >= share.half_open && !self.evict(Class::HalfOpen, opening) {
                return Err(Full::HalfOpen);
            }
        } else {
            let place = opener % share.openers;
            let is_own = |c: &Connection| is_of_direction(c) && c.opener % share.openers == place;
            let left = share.half_open.saturating_sub(self.count(is_half_open));
            let has_enough = |own, left| left == 0 || share.leaves_part && own >= left;
            if has_enough(self.count(|c| is_own(c) && is_half_open(c)), left)
                && !self.evict_of_greater(Class::HalfOpen, opening, is_half_open)
                && !self.evict(Class::HalfOpen, opening)
            {
                return Err(Full::HalfOpen);
            }
            if self.count(is_own) >= share.each_opener
                && !self.evict(Class::Closed, opening)
                && !self.evict(Class::HalfOpen, opening)
            {
                return Err(Full::Opener);
            }
            let left = (share.connections - share.outbound_reserve).saturating_sub(self.count(is_of_direction));
            if has_enough(self.count(is_own), left) && !self.make_place(opening) {
                return Err(if left == 0 { Full::Inbound } else { Full::Opener });
            }
        }
        if self.count(|_| true) >= share.connections && !self.make_place(opening) {
            return Err(Full::Connections);
        }
        Ok(())
    }

    fn make_place(&mut self, opening: &Opening) -> bool {
        let of_greater = |table: &mut Self, class| {
            opening.direction == Direction::Inbound && table.evict_of_greater(class, opening, |_| true)
        };
        self.evict(Class::Closed, opening)
            || of_greater(self, Class::Closed)
            || of_greater(self, Class::HalfOpen)
            || self.evict(Class::HalfOpen, opening)
            || of_greater(self, Class::Answered)
    }

    /// Evicts the oldest connection of a class, of the same opener if it is inbound.
    fn evict(&mut self, class: Class, opening: &Opening) -> bool {
        let openers = self.share.openers;
        self.evict_if(class, opening.direction, |opener| {
            opening.direction == Direction::Outbound || opener % openers == opening.opener % openers
        })
    }

    /// Evicts an inbound connection of the opener that has most of these, if it has at least two more
    /// than this one.
    fn evict_of_greater(&mut self, class: Class, opening: &Opening, is_counted: impl Fn(&Connection) -> bool) -> bool {
        let openers = self.share.openers;
        let mut counts: HashMap<u16, u32> = HashMap::new();
        let mut with_class = Vec::new();
        for connection in self.connections.values().filter(|c| c.direction == Direction::Inbound) {
            let place = connection.opener % openers;
            *counts.entry(place).or_default() += u32::from(is_counted(connection));
            if connection.class() == class {
                with_class.push(place);
            }
        }
        let own = counts.get(&(opening.opener % openers)).copied().unwrap_or(0);
        // Of those that have the same, the last one.
        let greatest = with_class.into_iter().max_by_key(|place| (counts[place], *place));
        greatest
            .filter(|place| counts[place] > own + 1)
            .is_some_and(|greatest| self.evict_if(class, Direction::Inbound, |opener| opener % openers == greatest))
    }

    fn evict_if(&mut self, class: Class, direction: Direction, is_one: impl Fn(u16) -> bool) -> bool {
        let all = self.connections.iter();
        let of_class = all.filter(|(_, c)| c.class() == class && c.direction == direction && is_one(c.opener));
        let Some(key) = of_class.min_by_key(|(_, connection)| connection.since).map(|(key, _)| *key) else {
            return false;
        };
        self.connections.remove(&key);
        self.evicted += 1;
        true
    }

    pub(crate) fn advance(&mut self, key: &Key, side: Side, packet: &Transport, now: u32) -> Verdict {
        self.step += 1;
        let is_liberal = self.is_liberal();
        let timeouts = self.settings.timeouts;
        let connection = self.connections.get_mut(key).expect("it was found");
        let is_reply = side != connection.direction.opener();
        let class = connection.class();
        let outcome = match (&mut connection.protocol, packet) {
            (Protocol::Tcp(tcp), Transport::Tcp(segment)) => {
                tcp.advance(is_reply, segment, &timeouts, is_liberal, connection.expires - now)
            }
            (Protocol::Other { has_reply, assured_from, has_streams, lasts }, Transport::Other) => {
                *lasts |= *has_reply && now >= *assured_from;
                *has_reply |= is_reply;
                Outcome::Renew(timeout_of(key.protocol(), *has_streams && *lasts, &timeouts))
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
        if connection.class() != class {
            connection.since = self.step;
        }
        let passed = Passed { state: connection.state(), is_reply, has_reply: connection.has_reply() };
        if ends {
            self.connections.remove(key);
        }
        Verdict::Pass(passed)
    }

    pub(crate) fn sweep(&mut self, now: u32) {
        self.connections.retain(|_, connection| connection.expires > now);
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
