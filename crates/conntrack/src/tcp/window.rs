//! The windows of TCP: which sequence and acknowledgment numbers a segment may have.
//!
//! Written from Guido van Rooij's paper "Real Stateful TCP Packet Filtering in IP Filter" (2001), and
//! from packets that Linux and this crate judge alike. We are in the middle: what we have seen may be
//! lost behind us. So a bound is never narrower than what either station may know. There are four
//! ([`Bounds`]):
//!
//! | bound | of | is | a segment beyond it |
//! |---|---|---|---|
//! | data, upper | `seq` | the end of the greatest window that the receiver has allowed | is invalid, but for a window's worth |
//! | ack, upper | `ack` | the end of what the receiver has sent | is invalid |
//! | data, lower | `end` | the end of what the sender has sent, less the receiver's greatest window | passes without an effect |
//! | ack, lower | `ack` | the end of what the receiver has sent, less a window | passes without an effect |

use straightline_wire::tcp::Flags;

use super::{Last, Marks, Peer, Role, Tcp};
use crate::settings::Windows;
use crate::state::State;
use crate::transport::{Kind, Segment};
use crate::verdict::Invalid;

/// The greatest window scale (RFC 7323, section 2.3).
pub(super) const MOST_SCALE: u8 = 14;

/// The least distance that an old acknowledgment may have: the paper's `MAXACKWINDOW`.
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
fn is_at_most(number: u32, upper: u32) -> bool {
    is_before(number, upper.wrapping_add(1))
}

#[inline]
fn is_at_least(number: u32, lower: u32) -> bool {
    is_before(lower.wrapping_sub(1), number)
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
        let state = self.state;
        let mut sides = Sides::new(&mut self.peers, role);
        if !sides.introduce(role, segment, state) {
            return InWindow::Yes;
        }
        let numbers = sides.numbers(kind, segment, state);
        if let Err(outside) = sides.judge(&numbers) {
            return if sides.sender.is_liberal(windows) { InWindow::Yes } else { outside };
        }
        sides.note(&numbers);
        if kind == Kind::Ack {
            self.last.note_ack(role, &numbers, segment.window);
        }
        InWindow::Yes
    }
}

/// The numbers of a segment that the bounds are compared with.
struct Numbers {
    seq: u32,
    /// The number behind the data.
    end: u32,
    ack: u32,
    /// The window in bytes.
    window: u32,
    has_ack: bool,
}

/// The bounds of a segment's numbers.
struct Bounds {
    most_seq: u32,
    most_ack: u32,
    /// None while the receiver has allowed nothing.
    least_end: Option<u32>,
    least_ack: u32,
}

/// Both sides, as a segment has them.
struct Sides<'t> {
    sender: &'t mut Peer,
    receiver: &'t mut Peer,
}

impl<'t> Sides<'t> {
    #[inline]
    fn new([opener, answerer]: &'t mut [Peer; 2], role: Role) -> Self {
        match role {
            Role::Opener => Sides { sender: opener, receiver: answerer },
            Role::Answerer => Sides { sender: answerer, receiver: opener },
        }
    }

    /// Notes a side that sends its first segment, or that begins anew. Returns whether there is more to
    /// check: a SYN alone acknowledges nothing.
    #[inline]
    fn introduce(&mut self, role: Role, segment: &Segment, state: State) -> bool {
        let is_known = self.sender.max_window != 0;
        if !segment.has(Flags::SYN) {
            if !is_known {
                self.join(segment);
            }
            return true;
        }
        let is_opening = matches!(state, State::SynSent | State::SynRecv);
        if is_known && !(is_opening && is_before(self.sender.end, segment.end())) {
            return true;
        }
        self.begin(role, segment);
        segment.has(Flags::ACK) || is_known && role == Role::Opener
    }

    /// Notes the numbers and options of a side that sends a SYN.
    fn begin(&mut self, role: Role, segment: &Segment) {
        let Sides { sender, receiver } = self;
        let kept = sender.marks.0 & Marks::LIBERAL;
        **sender = Peer { max_ack: sender.max_ack, ..of_syn(segment) };
        sender.marks.set(kept);
        // Windows are scaled only if both sides offer it (RFC 7323, section 1.3).
        let both_scale = sender.marks.has(Marks::SCALES) && receiver.marks.has(Marks::SCALES);
        if role == Role::Answerer && !both_scale {
            sender.scale = 0;
            receiver.scale = 0;
        }
    }

    /// Notes a side whose begin is unknown: its first segment stands for all before.
    fn join(&mut self, segment: &Segment) {
        let Sides { sender, receiver } = self;
        sender.end = segment.end();
        sender.max_window = (u32::from(segment.window) << sender.scale).max(1);
        sender.max_end = sender.end.wrapping_add(sender.max_window);
        if receiver.max_window == 0 {
            receiver.end = segment.ack;
            receiver.max_end = segment.ack;
        } else if segment.ack == receiver.end.wrapping_add(1) {
            // This answers a probe of an idle connection, which has a byte that was sent before.
            receiver.end = segment.ack;
        }
    }

    /// Returns the numbers of a segment. Those that it does not have are as the other side expects them.
    #[inline]
    fn numbers(&self, kind: Kind, segment: &Segment, state: State) -> Numbers {
        let is_reset = kind == Kind::Rst;
        // Some stations send a RST with ACK, and the acknowledgment number 0.
        let has_number = segment.has(Flags::ACK) && !(is_reset && segment.ack == 0);
        // A RST that answers a SYN has no sequence number of its own.
        let answers_syn = is_reset && segment.seq == 0 && state == State::SynSent;
        let scale = if segment.has(Flags::SYN) { 0 } else { self.sender.scale };
        Numbers {
            seq: if answers_syn { self.sender.end } else { segment.seq },
            end: if answers_syn { self.sender.end } else { segment.end() },
            ack: if has_number { segment.ack } else { self.receiver.end },
            window: u32::from(segment.window) << scale,
            has_ack: segment.has(Flags::ACK),
        }
    }

    #[inline]
    fn bounds(&self) -> Bounds {
        let Sides { sender, receiver } = self;
        let allowed = receiver.max_window;
        Bounds {
            most_seq: sender.max_end,
            most_ack: receiver.end,
            least_end: (allowed != 0).then(|| sender.end.wrapping_sub(allowed)),
            least_ack: receiver.end.wrapping_sub(sender.max_window.max(LEAST_ACK_WINDOW)),
        }
    }

    /// Compares the numbers of a segment with their bounds. The first that it exceeds is the reason.
    #[inline]
    fn judge(&mut self, numbers: &Numbers) -> Result<(), InWindow> {
        let bounds = self.bounds();
        if !is_at_most(numbers.seq, bounds.most_seq) {
            return Err(self.overshoot(&bounds, numbers));
        }
        if !is_at_most(numbers.ack, bounds.most_ack) {
            return Err(InWindow::No { reason: Invalid::AckHigh, passes: false });
        }
        if bounds.least_end.is_some_and(|least| !is_at_least(numbers.end, least)) {
            return Err(InWindow::No { reason: Invalid::SeqLow, passes: true });
        }
        if !is_at_least(numbers.ack, bounds.least_ack) {
            return Err(InWindow::No { reason: Invalid::AckLow, passes: true });
        }
        Ok(())
    }

    /// Judges data behind the window. Some stations send more than the window allows. The other side may
    /// take it, up to a window's worth, and then acknowledges it.
    #[cold]
    fn overshoot(&mut self, bounds: &Bounds, numbers: &Numbers) -> InWindow {
        let beyond = numbers.end.wrapping_sub(bounds.most_seq).wrapping_add(1);
        let is_near = bounds.least_end.is_some_and(|least| is_at_least(numbers.end, least));
        let is_ack_good = is_at_most(numbers.ack, bounds.most_ack) && is_at_least(numbers.ack, bounds.least_ack);
        let passes = is_near && is_ack_good && beyond <= self.receiver.max_window;
        if passes {
            self.sender.note_end(numbers.end);
        }
        InWindow::No { reason: Invalid::SeqHigh, passes }
    }

    /// Notes the numbers of a segment in the window.
    #[inline]
    fn note(&mut self, numbers: &Numbers) {
        let Sides { sender, receiver } = self;
        sender.max_window = sender.max_window.max(numbers.window);
        if is_before(sender.end, numbers.end) {
            sender.note_end(numbers.end);
        }
        if numbers.has_ack {
            sender.note_max_ack(numbers.ack);
        }
        if receiver.max_window != 0 && is_before(sender.max_end, numbers.end) {
            // The last segment is longer than the window: the receiver has allowed that much.
            let more = numbers.end.wrapping_sub(sender.max_end);
            receiver.max_window = receiver.max_window.wrapping_add(more);
        }
        receiver.note_ack(numbers);
    }
}

impl Peer {
    #[inline]
    fn is_liberal(&self, windows: Windows) -> bool {
        windows == Windows::Liberal || self.marks.has(Marks::LIBERAL)
    }

    /// Notes data of this side that the other one has not acknowledged.
    #[inline]
    fn note_end(&mut self, end: u32) {
        self.end = end;
        self.marks.set(Marks::UNACKNOWLEDGED);
    }

    /// Notes the greatest acknowledgment number of this side.
    #[inline]
    fn note_max_ack(&mut self, ack: u32) {
        if !self.marks.has(Marks::HAS_ACKED) || is_before(self.max_ack, ack) {
            self.max_ack = ack;
            self.marks.set(Marks::HAS_ACKED);
        }
    }

    /// Notes what the other side acknowledges, and allows. Where its window is closed, this side may send
    /// a byte to probe it.
    #[inline]
    fn note_ack(&mut self, numbers: &Numbers) {
        let allowed = numbers.ack.wrapping_add(numbers.window);
        if is_at_least(allowed, self.max_end) {
            self.max_end = allowed.wrapping_add(u32::from(numbers.window == 0));
        }
        if numbers.ack == self.end {
            self.marks.clear(Marks::UNACKNOWLEDGED);
        }
    }
}

impl Last {
    /// Counts how often a segment comes without a change. `window` is that of its header.
    #[inline]
    fn note_ack(&mut self, role: Role, numbers: &Numbers, window: u16) {
        let before = (self.role, self.seq, self.end, self.ack, self.window);
        if before == (role, numbers.seq, numbers.end, numbers.ack, window) {
            self.retransmissions = self.retransmissions.saturating_add(1);
            return;
        }
        let Numbers { seq, end, ack, .. } = *numbers;
        *self = Last { role, seq, end, ack, window, retransmissions: 0, ..*self };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A sender that has sent up to 5000 and may send up to 6000, and a receiver that has sent up to 900.
    fn sides() -> [Peer; 2] {
        let sender = Peer { end: 5000, max_end: 6000, max_window: 500, ..Peer::default() };
        let receiver = Peer { end: 900, max_end: 1400, max_window: 2000, ..Peer::default() };
        [sender, receiver]
    }

    fn judge(peers: &mut [Peer; 2], [seq, len, ack]: [u32; 3]) -> Result<(), InWindow> {
        let numbers = Numbers { seq, end: seq.wrapping_add(len), ack, window: 100, has_ack: true };
        Sides::new(peers, Role::Opener).judge(&numbers)
    }

    /// The last number on each side of each bound, as the oracle judges it.
    #[test]
    fn each_bound_has_two_sides() {
        let no = |reason, passes| Err(InWindow::No { reason, passes });
        let oldest_ack = 900_u32.wrapping_sub(LEAST_ACK_WINDOW);
        let cases = [
            ("data up to the window", [6000, 0, 900], Ok(())),
            ("a byte behind it", [6001, 0, 900], no(Invalid::SeqHigh, true)),
            ("a window's worth behind it", [6001, 1998, 900], no(Invalid::SeqHigh, true)),
            ("more", [6001, 1999, 900], no(Invalid::SeqHigh, false)),
            ("behind it, and acknowledges too much", [6001, 0, 901], no(Invalid::SeqHigh, false)),
            ("a long segment that begins in the window", [6000, 9000, 900], Ok(())),
            ("acknowledges all", [5000, 0, 900], Ok(())),
            ("acknowledges more", [5000, 0, 901], no(Invalid::AckHigh, false)),
            ("data that ends a window ago", [2900, 100, 900], Ok(())),
            ("older data", [2899, 100, 900], no(Invalid::SeqLow, true)),
            ("an old acknowledgment", [5000, 0, oldest_ack], Ok(())),
            ("an older one", [5000, 0, oldest_ack.wrapping_sub(1)], no(Invalid::AckLow, true)),
            ("old data that acknowledges too much", [100, 0, 901], no(Invalid::AckHigh, false)),
        ];
        for (name, numbers, expected) in cases {
            assert_eq!(judge(&mut sides(), numbers), expected, "{name}");
        }
        let mut silent = sides();
        silent[1].max_window = 0;
        assert_eq!(judge(&mut silent, [0, 0, 900]), Ok(()), "the receiver has allowed nothing yet");
        assert_eq!(judge(&mut silent, [6001, 0, 900]), no(Invalid::SeqHigh, false));
    }

    proptest! {
        /// Numbers begin again after 2^32: bounds move with them.
        #[test]
        fn bounds_move_with_the_numbers(
            by in any::<[u32; 2]>(), seq in 0..9000_u32, len in 0..3000_u32, ack in 0..2000_u32,
        ) {
            let moved = |[mut sender, mut receiver]: [Peer; 2]| {
                (sender.end, sender.max_end) = (sender.end.wrapping_add(by[0]), sender.max_end.wrapping_add(by[0]));
                (receiver.end, receiver.max_end) = (receiver.end.wrapping_add(by[1]), receiver.max_end.wrapping_add(by[1]));
                [sender, receiver]
            };
            let mut here = sides();
            let mut there = moved(sides());
            let expected = judge(&mut here, [seq, len, ack]);
            let numbers = [seq.wrapping_add(by[0]), len, ack.wrapping_add(by[1])];
            prop_assert_eq!(judge(&mut there, numbers), expected);
            prop_assert_eq!(there, moved(here));
        }
    }

    /// A closed window lets one byte through, which probes it.
    #[test]
    fn a_closed_window_can_be_probed() {
        let [mut peer, _] = sides();
        peer.note_ack(&Numbers { seq: 0, end: 0, ack: 6000, window: 0, has_ack: true });
        assert_eq!(peer.max_end, 6001);
        peer.note_ack(&Numbers { seq: 0, end: 0, ack: 5900, window: 50, has_ack: true });
        assert_eq!(peer.max_end, 6001, "it never goes back");
    }
}
