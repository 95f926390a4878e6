//! The path of most packets: a TCP segment with data or an acknowledgment, of a connection that both
//! sides have opened.
//!
//! It computes on the words of the entry what `tcp/` says with names. That is its reference
//! implementation: a test runs both and compares all words. Whatever is unusual goes there.

use straightline_wire::tcp::Flags;

use crate::connection::{
    ACK_BYTE, ANSWERER, ASSURED, END, EXPIRES, FACTS, HAS_REPLY, INBOUND, LAST, LAST_KIND, MAX_ACK, MAX_END,
    MAX_WINDOW, PACKETS, PEER, PEERS, SCALES, SEEN,
};
use crate::entries::Locked;
use crate::key::Side;
use crate::settings::{Timeouts, deadline};
use crate::state::State;
use crate::tcp::{LEAST_ACK_WINDOW, Marks, Role};
use crate::transport::Segment;

/// Flags of which such a segment has ACK only.
const DECIDING: u8 = Flags::FIN.0 | Flags::SYN.0 | Flags::RST.0 | Flags::ACK.0 | Flags::URG.0;

/// Facts of such a connection: its state, and that both sides use it.
const USUAL: u32 = u32::from_le_bytes([0, 0, State::Established as u8, HAS_REPLY | ASSURED]);
const USUAL_BITS: u32 = u32::from_le_bytes([0, 0, 0xff, HAS_REPLY | ASSURED]);
const INBOUND_BIT: u32 = u32::from_le_bytes([0, 0, 0, INBOUND]);

/// Marks of the opener. Those of the other side are 16 bits further up.
const UNACKNOWLEDGED: u32 = u32::from_le_bytes([0, Marks::UNACKNOWLEDGED, 0, 0]);
const HAS_ACKED: u32 = u32::from_le_bytes([0, Marks::HAS_ACKED, 0, 0]);

/// Advances the connection by a segment, and returns the role of its sender. Returns none, and changes
/// nothing, if the segment or the connection is not of the usual kind.
#[inline]
pub(crate) fn advance(
    entry: &Locked<'_>,
    side: Side,
    segment: &Segment,
    timeouts: &Timeouts,
    now: u32,
) -> Option<Role> {
    let facts = entry.get(FACTS);
    if facts & USUAL_BITS != USUAL || segment.flags & DECIDING != Flags::ACK.0 {
        return None;
    }
    let is_reply = (side == Side::Local) == (facts & INBOUND_BIT != 0);
    let sender = PEERS + PEER * usize::from(is_reply);
    let receiver = PEERS + PEER * usize::from(!is_reply);
    let sent = entry.get(sender + END);
    let allowed = entry.get(sender + MAX_END);
    let window = entry.get(sender + MAX_WINDOW);
    let received = entry.get(receiver + END);
    let receiver_window = entry.get(receiver + MAX_WINDOW);
    let Segment { seq, ack, .. } = *segment;
    let end = seq.wrapping_add(segment.len);

    // The four bounds of `window.rs`, and that no data lies behind the window at all. Each is a
    // difference that must be negative.
    let bounds = seq.wrapping_sub(allowed).wrapping_sub(1)
        & end.wrapping_sub(allowed).wrapping_sub(1)
        & ack.wrapping_sub(received).wrapping_sub(1)
        & sent.wrapping_sub(receiver_window).wrapping_sub(1).wrapping_sub(end)
        & received.wrapping_sub(window.max(LEAST_ACK_WINDOW)).wrapping_sub(1).wrapping_sub(ack);
    let kind = u32::from(ACK_BYTE) | if is_reply { u32::from(ANSWERER) } else { 0 };
    let last_kind = entry.get(LAST_KIND);
    let difference = (last_kind ^ kind) & u32::from(ANSWERER)
        | entry.get(LAST) ^ seq
        | entry.get(LAST + 1) ^ ack
        | entry.get(LAST + 2) ^ end
        | entry.get(LAST + 3) ^ u32::from(segment.window);
    if !is_negative(bounds) || difference == 0 || window == 0 || receiver_window == 0 {
        return None;
    }

    let mut scales = entry.get(SCALES);
    let of_sender = if is_reply { 16 } else { 0 };
    let scaled = u32::from(segment.window) << (scales >> of_sender & 0x1f);
    let has_new_data = is_negative(sent.wrapping_sub(end));
    let max_ack = entry.get(sender + MAX_ACK);
    let acks_more = is_negative(max_ack.wrapping_sub(ack)) || scales >> of_sender & HAS_ACKED == 0;
    let max_end = entry.get(receiver + MAX_END);
    let allows = ack.wrapping_add(scaled);
    let allows_more = is_negative(max_end.wrapping_sub(1).wrapping_sub(allows));
    scales |= (HAS_ACKED | if has_new_data { UNACKNOWLEDGED } else { 0 }) << of_sender;
    if ack == received {
        scales &= !(UNACKNOWLEDGED << (16 - of_sender));
    }

    entry.set(sender + END, if has_new_data { end } else { sent });
    entry.set(sender + MAX_WINDOW, window.max(scaled));
    entry.set(sender + MAX_ACK, if acks_more { ack } else { max_ack });
    let allows = allows.wrapping_add(u32::from(scaled == 0));
    entry.set(receiver + MAX_END, if allows_more { allows } else { max_end });
    entry.set(SCALES, scales);
    // No segment was sent twice in a row.
    entry.set(LAST_KIND, last_kind & 0x00ff_ff00 | kind);
    entry.set(LAST, seq);
    entry.set(LAST + 1, ack);
    entry.set(LAST + 2, end);
    entry.set(LAST + 3, segment.window.into());
    let timeout = if scales & (UNACKNOWLEDGED | UNACKNOWLEDGED << 16) != 0 {
        timeouts.tcp_established.min(timeouts.tcp_unacknowledged)
    } else if segment.window == 0 {
        timeouts.tcp_established.min(timeouts.tcp_max_retrans)
    } else {
        timeouts.tcp_established
    };
    entry.set(EXPIRES, deadline(now, timeout));
    entry.set(SEEN, now);
    count(entry, is_reply);
    Some(if is_reply { Role::Answerer } else { Role::Opener })
}

#[inline]
fn is_negative(difference: u32) -> bool {
    difference >> 31 != 0
}

/// Counts a packet of one side.
#[inline]
pub(crate) fn count(entry: &Locked<'_>, is_reply: bool) {
    let word = PACKETS + usize::from(is_reply);
    entry.set(word, entry.get(word).wrapping_add(1));
}
