//! The words of a connection's state in its entry.
//!
//! | word | contents, lower bits first |
//! |---|---|
//! | 0 | time at which the entry expires: 32; time of the last packet: 32 |
//! | 1 | rule: 32; opener: 16; state: 8; flags: 8 |
//! | 2, 3 | opener's sequence numbers: end, max_end; max_window, max_ack |
//! | 4, 5 | the same of the other side |
//! | 6 | eight bytes: scales and marks of both sides; kind and role, scale, marks, repetitions of the last segment |
//! | 7, 8 | last segment: seq, ack; end, window. Of UDP: the time from which it is a stream |
//! | 9 | packets of the opener: 32; of the other side: 32 |
//!
//! Words 0 and 1 share a cache line with key and tag. A packet of TCP needs the second one too.

use crate::entries::{Locked, STATE};
use crate::key::Direction;
use crate::state::{Class, State};
use crate::tcp::{Last, Marks, Peer, Role, Tcp};
use crate::transport::Kind;

pub(crate) const TIMES: usize = 0;
pub(crate) const FACTS: usize = 1;
const PEERS: [usize; 2] = [2, 4];
const BYTES: usize = 6;
const LAST: usize = 7;
pub(crate) const STREAM_FROM: usize = 7;
pub(crate) const PACKETS: usize = 9;

const INBOUND: u8 = 1;
const HAS_REPLY: u8 = 2;
const ASSURED: u8 = 4;

/// Facts that connections of all protocols have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) rule: u32,
    pub(crate) opener: u16,
    pub(crate) state: State,
    pub(crate) direction: Direction,
    pub(crate) has_reply: bool,
    pub(crate) is_assured: bool,
}

impl Facts {
    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        let [rule @ .., a, b, state, flags] = word.to_le_bytes();
        Facts {
            rule: u32::from_le_bytes(rule),
            opener: u16::from_le_bytes([a, b]),
            state: State::from_byte(state),
            direction: if flags & INBOUND != 0 { Direction::Inbound } else { Direction::Outbound },
            has_reply: flags & HAS_REPLY != 0,
            is_assured: flags & ASSURED != 0,
        }
    }

    #[inline]
    pub(crate) fn to_word(self) -> u64 {
        let inbound = if self.direction == Direction::Inbound { INBOUND } else { 0 };
        let has_reply = if self.has_reply { HAS_REPLY } else { 0 };
        let assured = if self.is_assured { ASSURED } else { 0 };
        let [a, b] = self.opener.to_le_bytes();
        let rule = u64::from(self.rule);
        rule | u64::from(u32::from_le_bytes([a, b, self.state as u8, inbound | has_reply | assured])) << 32
    }

    #[inline]
    pub(crate) fn class(&self) -> Class {
        Class::of(self.state, self.has_reply, self.direction)
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

/// Returns the state of a TCP connection.
#[inline]
pub(crate) fn load_tcp(entry: &Locked<'_>, facts: &Facts) -> Tcp {
    let [scale_0, marks_0, scale_1, marks_1, kind_and_role, scale, marks, retransmissions] =
        entry.get(BYTES).to_le_bytes();
    let peer = |at: usize, scale: u8, marks: u8| {
        let [end, max_end] = halves(entry.get(at));
        let [max_window, max_ack] = halves(entry.get(at + 1));
        Peer { end, max_end, max_window, max_ack, scale, marks: Marks(marks) }
    };
    let [seq, ack] = halves(entry.get(LAST));
    let [end, window] = halves(entry.get(LAST + 1));
    let role = if kind_and_role & ANSWERER != 0 { Role::Answerer } else { Role::Opener };
    Tcp {
        state: facts.state,
        peers: [peer(PEERS[0], scale_0, marks_0), peer(PEERS[1], scale_1, marks_1)],
        last: Last {
            kind: kind_from_byte(kind_and_role & !ANSWERER),
            role,
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
#[inline]
pub(crate) fn store_tcp(tcp: &Tcp, mut set: impl FnMut(usize, u64)) {
    for (at, peer) in PEERS.into_iter().zip(&tcp.peers) {
        set(at, pair(peer.end, peer.max_end));
        set(at + 1, pair(peer.max_window, peer.max_ack));
    }
    let last = &tcp.last;
    let role = if last.role == Role::Answerer { ANSWERER } else { 0 };
    let [a, b] = &tcp.peers;
    set(
        BYTES,
        u64::from_le_bytes([
            a.scale,
            a.marks.0,
            b.scale,
            b.marks.0,
            kind_byte(last.kind) | role,
            last.scale,
            last.marks.0,
            last.retransmissions,
        ]),
    );
    set(LAST, pair(last.seq, last.ack));
    set(LAST + 1, pair(last.end, last.window.into()));
}

/// Returns the words of a new connection.
pub(crate) fn new_words(facts: Facts, tcp: Option<&Tcp>, expires: u32, now: u32) -> [u64; STATE] {
    let mut words = [0; STATE];
    words[TIMES] = pair(expires, now);
    words[FACTS] = facts.to_word();
    words[PACKETS] = 1;
    if let Some(tcp) = tcp {
        store_tcp(tcp, |at, word| words[at] = word);
    }
    words
}

/// Bit of the byte of the last segment's kind: the answerer sent it.
const ANSWERER: u8 = 0x80;

#[inline]
fn kind_byte(kind: Option<Kind>) -> u8 {
    match kind {
        None => 0,
        Some(Kind::Syn) => 1,
        Some(Kind::SynAck) => 2,
        Some(Kind::Fin) => 3,
        Some(Kind::Ack) => 4,
        Some(Kind::Rst) => 5,
    }
}

#[inline]
fn kind_from_byte(byte: u8) -> Option<Kind> {
    match byte {
        1 => Some(Kind::Syn),
        2 => Some(Kind::SynAck),
        3 => Some(Kind::Fin),
        4 => Some(Kind::Ack),
        5 => Some(Kind::Rst),
        _ => None,
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower bits")]
fn lower_16(word: u32) -> u16 {
    word as u16
}
