//! The windows of TCP: which sequence and acknowledgment numbers a segment may have.
//!
//! After Guido van Rooij, "Real Stateful TCP Packet Filtering in IP Filter" (2000), with the
//! boundaries of nf_conntrack. We are in the middle: segments that we have seen may be lost behind us.
//! For a segment of a sender with bounds `seq` and `end`, the following holds:
//!
//! | bound | condition | otherwise |
//! |---|---|---|
//! | data, upper | `seq` is at most the end of the receiver's greatest window | invalid |
//! | acknowledgment, upper | `ack` is at most the end of what the receiver sent | invalid |
//! | data, lower | `end` is at least the sender's greatest end, less the receiver's window | passes, no effect |
//! | acknowledgment, lower | `ack` is at least the receiver's end, less a window | passes, no effect |

use straightline_wire::tcp::Flags;

use super::{Marks, Peer, Role, Tcp};
use crate::settings::Windows;
use crate::state::State;
use crate::transport::{Kind, Segment};
use crate::verdict::Invalid;

/// The greatest window scale (RFC 7323, section 2.3).
pub(super) const MOST_SCALE: u8 = 14;

/// The least distance that an old acknowledgment may have. It is that of nf_conntrack.
pub(crate) const LEAST_ACK_WINDOW: u32 = 66_000;

/// The outcome of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InWindow {
    Yes,
    /// The segment is outside. It may pass nevertheless, without an effect.
    No {
        reason: Invalid,
        passes: bool,
    },
}

/// Returns whether a sequence number lies before another one (RFC 9293, section 3.4).
#[inline]
pub(super) fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) >= 1 << 31
}

#[inline]
fn is_after(a: u32, b: u32) -> bool {
    is_before(b, a)
}

/// Returns the opener of a connection that begins with this SYN.
pub(super) fn of_syn(segment: &Segment) -> Peer {
    let end = segment.end();
    Peer {
        end,
        max_end: end,
        max_window: u32::from(segment.window).max(1),
        max_ack: 0,
        scale: segment.scale.unwrap_or(0).min(MOST_SCALE),
        marks: Marks(if segment.scale.is_some() { Marks::SCALES } else { 0 }),
    }
}

/// Returns both sides of a connection that is picked up at this segment. Its scales are unknown, so
/// neither side is held to windows.
pub(super) fn picked_up(segment: &Segment) -> (Peer, Peer) {
    let end = segment.end();
    let window = u32::from(segment.window).max(1);
    let marks = Marks(Marks::LIBERAL);
    let opener = Peer { end, max_end: end.wrapping_add(window), max_window: window, marks, ..Peer::default() };
    (opener, Peer { marks, ..Peer::default() })
}

impl Tcp {
    /// Checks a segment of the side with this role, and notes its numbers if it is in the window.
    #[inline]
    pub(super) fn in_window(&mut self, role: Role, kind: Kind, segment: &Segment, windows: Windows) -> InWindow {
        let has_ack = segment.has(Flags::ACK);
        let has_syn = segment.has(Flags::SYN);
        let is_reset = kind == Kind::Rst;
        let mut seq = segment.seq;
        let mut ack = segment.ack;
        let mut end = segment.end();
        let mut window = u32::from(segment.window);

        let [opener, answerer] = &mut self.peers;
        let (sender, receiver) = match role {
            Role::Opener => (opener, answerer),
            Role::Answerer => (answerer, opener),
        };
        if sender.max_window == 0 {
            if has_syn {
                begin(sender, receiver, role, segment);
                if !has_ack {
                    return InWindow::Yes;
                }
            } else {
                // The begin of the connection is unknown.
                sender.end = end;
                sender.max_window = (window << sender.scale).max(1);
                sender.max_end = end.wrapping_add(sender.max_window);
                if receiver.max_window == 0 {
                    receiver.end = ack;
                    receiver.max_end = ack;
                } else if ack == receiver.end.wrapping_add(1) {
                    // This answers a probe of an idle connection, which has a byte that was sent before.
                    receiver.end = ack;
                }
            }
        } else if has_syn && is_after(end, sender.end) && matches!(self.state, State::SynSent | State::SynRecv) {
            // The side begins anew, with other numbers and options.
            begin(sender, receiver, role, segment);
            if role == Role::Answerer && !has_ack {
                return InWindow::Yes;
            }
        }
        // Some stations send a RST with ACK, and the acknowledgment number 0.
        if !has_ack || is_reset && ack == 0 {
            ack = receiver.end;
        }
        if is_reset && seq == 0 && self.state == State::SynSent {
            // It answers a SYN.
            seq = sender.end;
            end = sender.end;
        }

        let ack_window = sender.max_window.max(LEAST_ACK_WINDOW);
        let is_seq_low = is_before(seq, sender.max_end.wrapping_add(1));
        let is_ack_low = is_before(ack, receiver.end.wrapping_add(1));
        let is_end_high = is_after(end, sender.end.wrapping_sub(receiver.max_window).wrapping_sub(1));
        let is_ack_high = is_after(ack, receiver.end.wrapping_sub(ack_window).wrapping_sub(1));
        let in_receive_window = receiver.max_window == 0 || is_end_high;
        if !(is_seq_low && is_ack_low && in_receive_window && is_ack_high) {
            let is_liberal = sender.marks.has(Marks::LIBERAL) || windows == Windows::Liberal;
            if is_seq_low {
                let (reason, passes) = match (is_ack_low, in_receive_window) {
                    (false, _) => (Invalid::AckHigh, false),
                    (true, false) => (Invalid::SeqLow, true),
                    (true, true) => (Invalid::AckLow, true),
                };
                return outside(reason, passes, is_liberal);
            }
            // Some stations send more than the window allows. The other side may take it, and then
            // acknowledges it.
            let overshot = end.wrapping_sub(sender.max_end).wrapping_add(1);
            let fits = receiver.max_window != 0 && is_end_high && overshot <= receiver.max_window;
            let passes = fits && is_ack_low && is_ack_high;
            if passes {
                sender.end = end;
                sender.marks.set(Marks::UNACKNOWLEDGED);
            }
            return outside(Invalid::SeqHigh, passes, is_liberal);
        }

        if !has_syn {
            window <<= sender.scale;
        }
        sender.max_window = sender.max_window.max(window);
        if is_after(end, sender.end) {
            sender.end = end;
            sender.marks.set(Marks::UNACKNOWLEDGED);
        }
        if has_ack && (!sender.marks.has(Marks::HAS_ACKED) || is_after(ack, sender.max_ack)) {
            sender.max_ack = ack;
            sender.marks.set(Marks::HAS_ACKED);
        }
        if receiver.max_window != 0 && is_after(end, sender.max_end) {
            let more = end.wrapping_sub(sender.max_end);
            receiver.max_window = receiver.max_window.wrapping_add(more);
        }
        let allowed = ack.wrapping_add(window);
        if is_after(allowed, receiver.max_end.wrapping_sub(1)) {
            receiver.max_end = allowed.wrapping_add(u32::from(window == 0));
        }
        if ack == receiver.end {
            receiver.marks.clear(Marks::UNACKNOWLEDGED);
        }
        if kind == Kind::Ack {
            let last = &mut self.last;
            let is_same = last.role == role
                && last.seq == seq
                && last.ack == ack
                && last.end == end
                && last.window == segment.window;
            if is_same {
                last.retransmissions = last.retransmissions.saturating_add(1);
            } else {
                last.role = role;
                last.seq = seq;
                last.ack = ack;
                last.end = end;
                last.window = segment.window;
                last.retransmissions = 0;
            }
        }
        InWindow::Yes
    }
}

/// Notes the numbers and options of a side that sends a SYN.
fn begin(sender: &mut Peer, receiver: &mut Peer, role: Role, segment: &Segment) {
    let kept = sender.marks.0 & Marks::LIBERAL;
    *sender = Peer { max_ack: sender.max_ack, ..of_syn(segment) };
    sender.marks.set(kept);
    // Windows are scaled only if both sides offer it (RFC 7323, section 1.3).
    let both_scale = sender.marks.has(Marks::SCALES) && receiver.marks.has(Marks::SCALES);
    if role == Role::Answerer && !both_scale {
        sender.scale = 0;
        receiver.scale = 0;
    }
}

/// A segment outside of the window: a liberal side may send it.
#[cold]
fn outside(reason: Invalid, passes: bool, is_liberal: bool) -> InWindow {
    if is_liberal { InWindow::Yes } else { InWindow::No { reason, passes } }
}
