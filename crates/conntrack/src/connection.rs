//! The words of a connection's state in its entry.
//!
//! | word | lower half | upper half |
//! |---|---|---|
//! | 0 | time at which the entry expires | time of the last packet |
//! | 1 | opener: 16; state: 8; flags: 8 | rule |
//! | 2 | opener's `end` | opener's `max_ack` |
//! | 3 | other side's `max_end` | opener's `max_window` |
//! | 4, 5 | the same as in 2 and 3, with the sides exchanged | |
//! | 6 | opener's scale: 8, marks: 8; the same of the other side | last segment: kind and role, scale, marks, retransmissions: 8 each |
//! | 7 | `seq` of the last segment. Not TCP: the time from which it is assured | `ack`. DNS: open questions |
//! | 8 | `end` of the last segment | `window` |
//! | 9 | packets of the opener | packets of the other side |
//!
//! Words 0 and 1 share a cache line with key and tag. A packet of TCP needs the second line too. Numbers
//! that a packet changes together are in one word: a lock waits for all stores before it.

use crate::entries::{Locked, STATE};
use crate::key::Direction;
use crate::state::{Class, State};
use crate::tcp::{Last, Marks, Peer, Role, Tcp};
use crate::transport::Kind;

pub(crate) const TIMES: usize = 0;
pub(crate) const FACTS: usize = 1;
/// Numbers of a side: `end` and `max_ack`. Behind it are those that its packets grant: `max_end` of the
/// other side, and its own `max_window`.
pub(crate) const SIDES: [usize; 2] = [2, 4];
pub(crate) const MARKS: usize = 6;
pub(crate) const LAST: usize = 7;
pub(crate) const ASSURED_FROM: usize = 7;
pub(crate) const PACKETS: usize = 9;

pub(crate) const INBOUND: u8 = 1;
pub(crate) const HAS_REPLY: u8 = 2;
pub(crate) const ASSURED: u8 = 4;
pub(crate) const TRUSTED: u8 = 8;

/// Facts that connections of all protocols have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) opener: u16,
    pub(crate) state: State,
    pub(crate) direction: Direction,
    /// The opener of an inbound connection is behind a trusted port.
    pub(crate) is_trusted: bool,
    pub(crate) has_reply: bool,
    /// TCP: both sides have acknowledged. Other protocols: the exchange lasts for some seconds.
    pub(crate) is_assured: bool,
}

impl Facts {
    #[inline]
    pub(crate) fn from_word(word: u32) -> Self {
        let [a, b, state, flags] = word.to_le_bytes();
        Facts {
            opener: u16::from_le_bytes([a, b]),
            state: State::from_byte(state),
            direction: if flags & INBOUND != 0 { Direction::Inbound } else { Direction::Outbound },
            is_trusted: flags & TRUSTED != 0,
            has_reply: flags & HAS_REPLY != 0,
            is_assured: flags & ASSURED != 0,
        }
    }

    #[inline]
    pub(crate) fn to_word(self) -> u32 {
        let inbound = if self.direction == Direction::Inbound { INBOUND } else { 0 };
        let has_reply = if self.has_reply { HAS_REPLY } else { 0 };
        let assured = if self.is_assured { ASSURED } else { 0 };
        let trusted = if self.is_trusted { TRUSTED } else { 0 };
        let [a, b] = self.opener.to_le_bytes();
        u32::from_le_bytes([a, b, self.state as u8, inbound | has_reply | assured | trusted])
    }

    /// Returns the class of the connection.
    #[inline]
    pub(crate) fn class(&self) -> Class {
        match self.state {
            State::Unreplied | State::Replied | State::Stream => Class::exchange(self.direction),
            State::LastAck | State::TimeWait | State::Close => Class::closed(self.direction),
            State::SynSent | State::SynRecv | State::SynSent2 => Class::half_open(self.direction),
            // A connection that was picked up is confirmed by a packet of the other side.
            _ if !self.has_reply => Class::half_open(self.direction),
            _ if self.direction == Direction::Outbound => Class::OpenOutbound,
            _ if self.is_trusted => Class::OpenTrusted,
            _ => Class::OpenInbound,
        }
    }
}

/// Returns a word of two halves.
#[inline]
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Returns both halves of a word, the lower one first.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves")]
pub(crate) fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// Returns the facts of an entry, and its rule.
#[inline]
pub(crate) fn facts_and_rule(word: u64) -> (Facts, u32) {
    let [facts, rule] = halves(word);
    (Facts::from_word(facts), rule)
}

/// Returns the state of a TCP connection.
pub(crate) fn load_tcp(entry: &Locked<'_>, facts: &Facts) -> Tcp {
    let [scales, last] = halves(entry.get(MARKS));
    let scales = scales.to_le_bytes();
    let peer = |role: usize| {
        let [end, max_ack] = halves(entry.get(SIDES[role]));
        let [_, max_window] = halves(entry.get(SIDES[role] + 1));
        let [max_end, _] = halves(entry.get(SIDES[1 - role] + 1));
        Peer { end, max_end, max_window, max_ack, scale: scales[2 * role], marks: Marks(scales[2 * role + 1]) }
    };
    let [kind_and_role, scale, marks, retransmissions] = last.to_le_bytes();
    let [seq, ack] = halves(entry.get(LAST));
    let [end, window] = halves(entry.get(LAST + 1));
    Tcp {
        state: facts.state,
        peers: [peer(0), peer(1)],
        last: Last {
            kind: kind_from_byte(kind_and_role & !ANSWERER),
            role: if kind_and_role & ANSWERER != 0 { Role::Answerer } else { Role::Opener },
            seq,
            ack,
            end,
            window: lower_16(window),
            scale,
            marks: Marks(marks),
            retransmissions,
        },
        has_reply: facts.has_reply,
        is_assured: facts.is_assured,
    }
}

/// Stores the state of a TCP connection, but for the facts.
pub(crate) fn store_tcp(tcp: &Tcp, mut set: impl FnMut(usize, u64)) {
    let [a, b] = &tcp.peers;
    for (at, peer, other) in [(SIDES[0], a, b), (SIDES[1], b, a)] {
        set(at, pair(peer.end, peer.max_ack));
        set(at + 1, pair(other.max_end, peer.max_window));
    }
    let last = &tcp.last;
    let role = if last.role == Role::Answerer { ANSWERER } else { 0 };
    let scales = u32::from_le_bytes([a.scale, a.marks.0, b.scale, b.marks.0]);
    let kind = u32::from_le_bytes([kind_byte(last.kind) | role, last.scale, last.marks.0, last.retransmissions]);
    set(MARKS, pair(scales, kind));
    set(LAST, pair(last.seq, last.ack));
    set(LAST + 1, pair(last.end, last.window.into()));
}

/// Returns the words of a new connection.
pub(crate) fn new_words(facts: Facts, rule: u32, tcp: Option<&Tcp>, expires: u32, now: u32) -> [u64; STATE] {
    let mut words = [0; STATE];
    words[TIMES] = pair(expires, now);
    words[FACTS] = pair(facts.to_word(), rule);
    words[PACKETS] = pair(1, 0);
    if let Some(tcp) = tcp {
        store_tcp(tcp, |at, word| words[at] = word);
    }
    words
}

/// Bit of the byte of the last segment's kind: the answerer sent it.
pub(crate) const ANSWERER: u8 = 0x80;

/// The byte of a last segment that had an ACK.
pub(crate) const ACK_BYTE: u8 = 4;

#[inline]
fn kind_byte(kind: Option<Kind>) -> u8 {
    match kind {
        None => 0,
        Some(Kind::Syn) => 1,
        Some(Kind::SynAck) => 2,
        Some(Kind::Fin) => 3,
        Some(Kind::Ack) => ACK_BYTE,
        Some(Kind::Rst) => 5,
    }
}

#[inline]
fn kind_from_byte(byte: u8) -> Option<Kind> {
    match byte {
        1 => Some(Kind::Syn),
        2 => Some(Kind::SynAck),
        3 => Some(Kind::Fin),
        ACK_BYTE => Some(Kind::Ack),
        5 => Some(Kind::Rst),
        _ => None,
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower bits")]
fn lower_16(word: u32) -> u16 {
    word as u16
}
