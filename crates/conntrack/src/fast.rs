//! The path of most packets: a TCP segment with data or an acknowledgment, of a connection that both
//! sides have opened.
//!
//! It computes on the words of the entry what `tcp/` says with names. That is its reference
//! implementation: a test runs both and compares all words. Whatever is unusual goes there.

use straightline_wire::tcp::Flags;

use crate::connection::{
    ACK_BYTE, ANSWERER, ASSURED, FACTS, HAS_REPLY, INBOUND, LAST, MARKS, PACKETS, SIDES, TIMES, halves, pair,
};
use crate::entries::Locked;
use crate::key::Side;
use crate::settings::{Timeouts, deadline};
use crate::state::State;
use crate::tcp::{LEAST_ACK_WINDOW, Marks, Role};
use crate::transport::Segment;

/// Flags that decide. Such a segment has only ACK of them.
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
    let [facts, _] = halves(entry.get(FACTS));
    if facts & USUAL_BITS != USUAL || segment.flags & DECIDING != Flags::ACK.0 {
        return None;
    }
    let is_reply = (side == Side::Local) == (facts & INBOUND_BIT != 0);
    let sender = SIDES[usize::from(is_reply)];
    let receiver = SIDES[usize::from(!is_reply)];
    let [sent, max_ack] = halves(entry.get(sender));
    let [receiver_max_end, window] = halves(entry.get(sender + 1));
    let [received, _] = halves(entry.get(receiver));
    let [allowed, receiver_window] = halves(entry.get(receiver + 1));
    let Segment { seq, ack, .. } = *segment;
    let end = seq.wrapping_add(segment.len);

    // The four bounds of `window.rs`, and that no data lies behind the window at all. Each is a
    // difference that must be negative.
    let bounds = seq.wrapping_sub(allowed).wrapping_sub(1)
        & end.wrapping_sub(allowed).wrapping_sub(1)
        & ack.wrapping_sub(received).wrapping_sub(1)
        & sent.wrapping_sub(receiver_window).wrapping_sub(1).wrapping_sub(end)
        & received.wrapping_sub(window.max(LEAST_ACK_WINDOW)).wrapping_sub(1).wrapping_sub(ack);
    let [mut scales, last_kind] = halves(entry.get(MARKS));
    let last = [pair(seq, ack), pair(end, segment.window.into())];
    let kind = u32::from(ACK_BYTE) | if is_reply { u32::from(ANSWERER) } else { 0 };
    let difference =
        u64::from((last_kind ^ kind) & u32::from(ANSWERER)) | entry.get(LAST) ^ last[0] | entry.get(LAST + 1) ^ last[1];
    if !is_negative(bounds) || difference == 0 || window == 0 || receiver_window == 0 {
        return None;
    }

    let of_sender = if is_reply { 16 } else { 0 };
    let scaled = u32::from(segment.window) << (scales >> of_sender & 0x1f);
    let has_new_data = is_negative(sent.wrapping_sub(end));
    let acks_more = is_negative(max_ack.wrapping_sub(ack)) || scales >> of_sender & HAS_ACKED == 0;
    let allows = ack.wrapping_add(scaled);
    let allows_more = is_negative(receiver_max_end.wrapping_sub(1).wrapping_sub(allows));
    let allows = allows.wrapping_add(u32::from(scaled == 0));
    scales |= (HAS_ACKED | if has_new_data { UNACKNOWLEDGED } else { 0 }) << of_sender;
    if ack == received {
        scales &= !(UNACKNOWLEDGED << (16 - of_sender));
    }

    let next_end = if has_new_data { end } else { sent };
    let next_ack = if acks_more { ack } else { max_ack };
    let next_allowed = if allows_more { allows } else { receiver_max_end };
    entry.set(sender, pair(next_end, next_ack));
    entry.set(sender + 1, pair(next_allowed, window.max(scaled)));
    // The last segment was not sent twice.
    entry.set(MARKS, pair(scales, last_kind & 0x00ff_ff00 | kind));
    entry.set(LAST, last[0]);
    entry.set(LAST + 1, last[1]);
    let timeout = if scales & (UNACKNOWLEDGED | UNACKNOWLEDGED << 16) != 0 {
        timeouts.tcp_established.min(timeouts.tcp_unacknowledged)
    } else if segment.window == 0 {
        timeouts.tcp_established.min(timeouts.tcp_max_retrans)
    } else {
        timeouts.tcp_established
    };
    entry.set(TIMES, pair(deadline(now, timeout), now));
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
    let [opener, other] = halves(entry.get(PACKETS));
    let is_opener = u32::from(!is_reply);
    entry.set(PACKETS, pair(opener.wrapping_add(is_opener), other.wrapping_add(1 - is_opener)));
}
