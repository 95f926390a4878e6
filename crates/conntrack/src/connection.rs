//! The words of a connection's state in its entry.
//!
//! | word | contents, lower bits first |
//! |---|---|
//! | 0, 1 | time at which the entry expires; time of the last packet |
//! | 2 | rule |
//! | 3 | opener: 16; state: 8; flags: 8 |
//! | 4 to 7 | opener's sequence numbers: end, max_end, max_window, max_ack |
//! | 8 to 11 | the same of the other side |
//! | 12 | opener's scale: 8, and marks: 8; the same of the other side |
//! | 13 | of the last segment, kind and role: 8; scale: 8; marks: 8; retransmissions: 8 |
//! | 14 to 17 | last segment: seq, ack, end, window. Of UDP: 14 is the time from which it is a stream |
//! | 18, 19 | packets of the opener; of the other side |
//!
//! Words 0 to 3 share a cache line with key and tag. A packet of TCP needs the second line too.

use crate::entries::{Locked, STATE};
use crate::key::Direction;
use crate::state::{Class, State};
use crate::tcp::{Last, Marks, Peer, Role, Tcp};
use crate::transport::Kind;

pub(crate) const EXPIRES: usize = 0;
pub(crate) const SEEN: usize = 1;
pub(crate) const RULE: usize = 2;
pub(crate) const FACTS: usize = 3;
pub(crate) const PEERS: usize = 4;
pub(crate) const SCALES: usize = 12;
pub(crate) const LAST_KIND: usize = 13;
pub(crate) const LAST: usize = 14;
pub(crate) const STREAM_FROM: usize = 14;
pub(crate) const PACKETS: usize = 18;

/// Words of a peer, in their order.
pub(crate) const PEER: usize = 4;
pub(crate) const END: usize = 0;
pub(crate) const MAX_END: usize = 1;
pub(crate) const MAX_WINDOW: usize = 2;
pub(crate) const MAX_ACK: usize = 3;

pub(crate) const INBOUND: u8 = 1;
pub(crate) const HAS_REPLY: u8 = 2;
pub(crate) const ASSURED: u8 = 4;

/// Facts that connections of all protocols have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) opener: u16,
    pub(crate) state: State,
    pub(crate) direction: Direction,
    pub(crate) has_reply: bool,
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
            has_reply: flags & HAS_REPLY != 0,
            is_assured: flags & ASSURED != 0,
        }
    }

    #[inline]
    pub(crate) fn to_word(self) -> u32 {
        let inbound = if self.direction == Direction::Inbound { INBOUND } else { 0 };
        let has_reply = if self.has_reply { HAS_REPLY } else { 0 };
        let assured = if self.is_assured { ASSURED } else { 0 };
        let [a, b] = self.opener.to_le_bytes();
        u32::from_le_bytes([a, b, self.state as u8, inbound | has_reply | assured])
    }

    #[inline]
    pub(crate) fn class(&self) -> Class {
        Class::of(self.state, self.has_reply, self.direction)
    }
}

/// Returns the state of a TCP connection.
pub(crate) fn load_tcp(entry: &Locked<'_>, facts: &Facts) -> Tcp {
    let scales = entry.get(SCALES).to_le_bytes();
    let peer = |role: usize| {
        let word = |n| entry.get(PEERS + PEER * role + n);
        Peer {
            end: word(END),
            max_end: word(MAX_END),
            max_window: word(MAX_WINDOW),
            max_ack: word(MAX_ACK),
            scale: scales[2 * role],
            marks: Marks(scales[2 * role + 1]),
        }
    };
    let [kind_and_role, scale, marks, retransmissions] = entry.get(LAST_KIND).to_le_bytes();
    Tcp {
        state: facts.state,
        peers: [peer(0), peer(1)],
        last: Last {
            kind: kind_from_byte(kind_and_role & !ANSWERER),
            role: if kind_and_role & ANSWERER != 0 { Role::Answerer } else { Role::Opener },
            seq: entry.get(LAST),
            ack: entry.get(LAST + 1),
            end: entry.get(LAST + 2),
            window: lower_16(entry.get(LAST + 3)),
            scale,
            marks: Marks(marks),
            retransmissions,
        },
        has_reply: facts.has_reply,
        is_assured: facts.is_assured,
    }
}

/// Stores the state of a TCP connection, but for the facts.
pub(crate) fn store_tcp(tcp: &Tcp, mut set: impl FnMut(usize, u32)) {
    for (peer, first) in tcp.peers.iter().zip([PEERS, PEERS + PEER]) {
        set(first + END, peer.end);
        set(first + MAX_END, peer.max_end);
        set(first + MAX_WINDOW, peer.max_window);
        set(first + MAX_ACK, peer.max_ack);
    }
    let [a, b] = &tcp.peers;
    set(SCALES, u32::from_le_bytes([a.scale, a.marks.0, b.scale, b.marks.0]));
    let last = &tcp.last;
    let role = if last.role == Role::Answerer { ANSWERER } else { 0 };
    set(LAST_KIND, u32::from_le_bytes([kind_byte(last.kind) | role, last.scale, last.marks.0, last.retransmissions]));
    set(LAST, last.seq);
    set(LAST + 1, last.ack);
    set(LAST + 2, last.end);
    set(LAST + 3, last.window.into());
}

/// Returns the words of a new connection.
pub(crate) fn new_words(facts: Facts, rule: u32, tcp: Option<&Tcp>, expires: u32, now: u32) -> [u32; STATE] {
    let mut words = [0; STATE];
    words[EXPIRES] = expires;
    words[SEEN] = now;
    words[RULE] = rule;
    words[FACTS] = facts.to_word();
    words[PACKETS] = 1;
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
