//! The state machine of TCP, as a station in the middle sees a connection.
//!
//! It is that of nf_conntrack (Linux 6.18), so that both agree packet by packet. `transition.rs` has
//! the states, `window.rs` the check of sequence and acknowledgment numbers. There are two meant
//! differences: the highest edge of SACK blocks is not looked at, because the acknowledgment number
//! says as much; and a connection without SYN is taken up only if the caller says so.

mod transition;
mod window;

#[cfg(test)]
mod tests;

pub(crate) use self::window::LEAST_ACK_WINDOW;

use self::transition::Next;
use self::window::InWindow;
use crate::settings::{Timeouts, Windows};
use crate::state::State;
use crate::transport::{Kind, Segment};
use crate::verdict::Invalid;

/// The number of times that an equal segment is seen before the timeout becomes short.
const MOST_RETRANSMISSIONS: u8 = 3;

/// The sender of a packet: whether it opened the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    Opener = 0,
    Answerer = 1,
}

impl Role {
    #[inline]
    pub(crate) fn other(self) -> Self {
        match self {
            Role::Opener => Role::Answerer,
            Role::Answerer => Role::Opener,
        }
    }
}

/// Marks of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(pub(crate) u8);

impl Marks {
    /// The side offered window scaling.
    pub(crate) const SCALES: u8 = 1;
    /// Its segments are not held to windows: the connection was picked up.
    pub(crate) const LIBERAL: u8 = 2;
    /// The other side has not acknowledged all its data.
    pub(crate) const UNACKNOWLEDGED: u8 = 4;
    /// It has acknowledged data, so `max_ack` is known.
    pub(crate) const HAS_ACKED: u8 = 8;
    /// It was the first to close the connection.
    pub(crate) const CLOSED_FIRST: u8 = 16;
    /// Of the last segment: it was a SYN in LAST_ACK, which a station answers by a challenge ACK
    /// (RFC 5961).
    pub(crate) const EXPECTS_CHALLENGE: u8 = 32;
    /// Of the last segment: both sides have opened the connection at once.
    pub(crate) const BOTH_OPEN: u8 = 64;

    #[inline]
    pub(crate) fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, mark: u8) {
        self.0 |= mark;
    }

    #[inline]
    pub(crate) fn clear(&mut self, mark: u8) {
        self.0 &= !mark;
    }
}

/// The sequence numbers of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Greatest sequence number behind a segment that the side sent.
    pub(crate) end: u32,
    /// Greatest sequence number that the other side allows.
    pub(crate) max_end: u32,
    /// Greatest window that the side allowed; 0 if it sent nothing yet.
    pub(crate) max_window: u32,
    /// Greatest acknowledgment number that the side sent.
    pub(crate) max_ack: u32,
    /// Window scale.
    pub(crate) scale: u8,
    pub(crate) marks: Marks,
}

/// The last segment of a connection that was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) kind: Option<Kind>,
    pub(crate) role: Role,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) end: u32,
    pub(crate) window: u16,
    pub(crate) scale: u8,
    pub(crate) marks: Marks,
    pub(crate) retransmissions: u8,
}

/// The state of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) state: State,
    /// The opener, and the other side.
    pub(crate) peers: [Peer; 2],
    pub(crate) last: Last,
    /// The answerer has sent a packet.
    pub(crate) has_reply: bool,
    /// Both sides have used the connection.
    pub(crate) is_assured: bool,
}

/// The outcome of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The segment passes, and the connection has a new timeout.
    Renew(u32),
    /// The segment passes, and the timeout stays.
    Pass,
    /// The segment passes, and the connection ends.
    End,
    /// The connection is over. The segment opens another one.
    Reopen,
    /// The segment is invalid.
    Invalid(Invalid),
    /// The segment is invalid, and the connection lives for at most this time.
    InvalidAndShorten(Invalid, u32),
}

/// Settings that a segment is judged by.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'s> {
    pub(crate) timeouts: &'s Timeouts,
    pub(crate) windows: Windows,
}

impl Tcp {
    /// Returns the state of a connection that begins with this segment, and its timeout. With
    /// `pickup`, a segment in the middle of a connection is one.
    pub(crate) fn open(segment: &Segment, pickup: bool, rules: Rules<'_>) -> Result<(Self, u32), Invalid> {
        let kind = segment.kind().ok_or(Invalid::Flags)?;
        let (state, opener, answerer) = match kind {
            Kind::Syn => (State::SynSent, window::of_syn(segment), Peer::default()),
            Kind::Ack if pickup => {
                let (opener, answerer) = window::picked_up(segment);
                (State::Established, opener, answerer)
            }
            _ => return Err(Invalid::NotOpen),
        };
        let mut tcp =
            Tcp { state, peers: [opener, answerer], last: Last::default(), has_reply: false, is_assured: false };
        if kind == Kind::Ack
            && let InWindow::No { reason, .. } = tcp.in_window(Role::Opener, kind, segment, rules.windows)
        {
            return Err(reason);
        }
        tcp.last.kind = Some(kind);
        let timeout = tcp.timeout(kind, rules.timeouts);
        Ok((tcp, timeout))
    }

    /// Advances the state by a segment that the side with this role sent.
    #[inline]
    pub(crate) fn advance(&mut self, role: Role, segment: &Segment, rules: Rules<'_>, left: u32) -> Step {
        let Some(kind) = segment.kind() else { return Step::Invalid(Invalid::Flags) };
        let step = if kind == Kind::Ack && self.state == State::Established {
            self.take(role, kind, segment, State::Established, rules, left)
        } else {
            self.advance_rare(role, kind, segment, rules, left)
        };
        if role == Role::Answerer && !matches!(step, Step::Invalid(_) | Step::InvalidAndShorten(..) | Step::Reopen) {
            self.has_reply = true;
        }
        step
    }

    /// Does the part of [`Self::advance`] for segments that may change the state.
    #[inline(never)]
    fn advance_rare(&mut self, role: Role, kind: Kind, segment: &Segment, rules: Rules<'_>, left: u32) -> Step {
        let old = self.state;
        let next = match transition::next(kind, role, old) {
            Next::Invalid => return Step::Invalid(Invalid::State),
            Next::Ignore => return self.ignore_or_agree(role, kind, segment, rules, left),
            Next::To(next) => next,
        };
        match next {
            State::SynSent if matches!(old, State::TimeWait | State::Close) => {
                let has_closed = self.peers.iter().any(|peer| peer.marks.has(Marks::CLOSED_FIRST));
                if has_closed || self.last.role == role && self.last.kind == Some(Kind::Rst) {
                    return Step::Reopen;
                }
                return self.ignore_or_agree(role, kind, segment, rules, left);
            }
            State::TimeWait => {
                let is_challenge = old == State::LastAck
                    && kind == Kind::Ack
                    && self.last.role != role
                    && self.last.kind == Some(Kind::Syn)
                    && self.last.marks.has(Marks::EXPECTS_CHALLENGE);
                if is_challenge {
                    self.last.marks.clear(Marks::EXPECTS_CHALLENGE);
                    return Step::Pass;
                }
            }
            State::SynSent2 => self.last.marks.set(Marks::BOTH_OPEN),
            State::SynRecv if role == Role::Answerer && kind == Kind::Ack && self.last.marks.has(Marks::BOTH_OPEN) => {
                return self.take(role, kind, segment, State::Established, rules, left);
            }
            State::Close if kind == Kind::Rst => return self.reset(role, segment, rules, left),
            _ => {}
        }
        self.take(role, kind, segment, next, rules, left)
    }

    /// Checks the window, and goes to the next state.
    #[inline]
    fn take(&mut self, role: Role, kind: Kind, segment: &Segment, next: State, rules: Rules<'_>, left: u32) -> Step {
        match self.in_window(role, kind, segment, rules.windows) {
            InWindow::Yes => self.finish(role, kind, next, rules.timeouts),
            InWindow::No { passes: true, .. } => Step::Pass,
            InWindow::No { reason, .. } => self.invalid(role, kind, reason, rules.timeouts, left),
        }
    }

    /// Goes to the next state with a segment that is in the window.
    #[inline]
    fn finish(&mut self, role: Role, kind: Kind, next: State, timeouts: &Timeouts) -> Step {
        let old = self.state;
        self.last.kind = Some(kind);
        self.last.role = role;
        self.state = next;
        if old != next && next == State::FinWait {
            self.peers[role as usize].marks.set(Marks::CLOSED_FIRST);
        }
        let timeout = self.timeout(kind, timeouts);
        if self.has_reply {
            let was_open = matches!(old, State::SynRecv | State::Established);
            if was_open && next == State::Established {
                self.is_assured = true;
            }
            return Step::Renew(timeout);
        }
        match kind {
            // A connection that is refused at once needs no entry.
            Kind::Rst => Step::End,
            // A SYN that is sent again and again does not keep the entry alive.
            Kind::Syn if old == State::SynSent => Step::Pass,
            _ => Step::Renew(timeout),
        }
    }

    /// Returns the timeout after a segment of this kind.
    #[inline]
    fn timeout(&self, kind: Kind, timeouts: &Timeouts) -> u32 {
        let of_state = match self.state {
            State::Established => timeouts.tcp_established,
            state => state.timeout(timeouts, straightline_wire::IpProtocol::TCP),
        };
        let marks = self.peers[0].marks.0 | self.peers[1].marks.0;
        let timeout = if self.last.retransmissions >= MOST_RETRANSMISSIONS && of_state > timeouts.tcp_max_retrans {
            timeouts.tcp_max_retrans
        } else if kind == Kind::Rst {
            timeouts.tcp_close
        } else if Marks(marks).has(Marks::UNACKNOWLEDGED) {
            of_state.min(timeouts.tcp_unacknowledged)
        } else if self.last.window == 0 {
            of_state.min(timeouts.tcp_max_retrans)
        } else {
            of_state
        };
        if !self.has_reply && self.state == State::Established {
            return timeout.min(timeouts.tcp_unacknowledged);
        }
        timeout
    }

    /// A segment that may be right, although it does not fit: the stations may know more than we. It
    /// passes. If the other side agrees by a SYN-ACK, the connection begins anew.
    fn ignore_or_agree(&mut self, role: Role, kind: Kind, segment: &Segment, rules: Rules<'_>, left: u32) -> Step {
        let last = self.last;
        let agrees =
            kind == Kind::SynAck && last.kind == Some(Kind::Syn) && last.role != role && segment.ack == last.end;
        if agrees {
            self.peers[last.role as usize] = Peer {
                end: last.end,
                max_end: last.end,
                max_window: u32::from(last.window).max(1),
                scale: last.scale,
                marks: Marks(last.marks.0 & Marks::SCALES),
                ..self.peers[last.role as usize]
            };
            let liberal = self.peers[role as usize].marks.0 & Marks::LIBERAL;
            self.peers[role as usize] = Peer { marks: Marks(liberal), ..Peer::default() };
            // The window is checked as that of an answer to a SYN.
            self.state = State::SynSent;
            return self.take(role, kind, segment, State::SynRecv, rules, left);
        }
        self.last.kind = Some(kind);
        self.last.role = role;
        self.last.seq = segment.seq;
        self.last.end = segment.end();
        self.last.window = segment.window;
        if kind == Kind::Syn && role == Role::Opener {
            let scale = segment.scale;
            self.last.scale = scale.unwrap_or(0).min(window::MOST_SCALE);
            self.last.marks = Marks(if scale.is_some() { Marks::SCALES } else { 0 });
            if self.state == State::LastAck {
                self.last.marks.set(Marks::EXPECTS_CHALLENGE);
            }
        }
        if self.state == State::SynSent && kind == Kind::Ack && role == Role::Answerer {
            // This may be a challenge ACK. The opener answers it by a RST with this number.
            self.last.ack = segment.ack;
        }
        Step::Pass
    }

    /// A RST: it closes the connection only with the sequence number that the other side expects.
    fn reset(&mut self, role: Role, segment: &Segment, rules: Rules<'_>, left: u32) -> Step {
        let mut next = State::Close;
        let last = self.last;
        let is_over =
            matches!(self.state, State::FinWait | State::LastAck | State::TimeWait | State::Close | State::CloseWait);
        if is_over {
            // The stations may have opened another connection, which we do not know.
            return self.finish(role, Kind::Rst, next, rules.timeouts);
        }
        let other = self.peers[role.other() as usize];
        let is_established = self.state == State::Established && self.is_assured;
        if other.marks.has(Marks::HAS_ACKED) && last.kind != Some(Kind::Syn) {
            if segment.seq == 0 && !is_established {
                return self.take(role, Kind::Rst, segment, next, rules, left);
            }
            if window::is_before(segment.seq, other.max_ack) {
                return Step::Invalid(Invalid::Reset);
            }
            let is_behind_last = last.kind == Some(Kind::Ack) && last.role == role && segment.seq == last.end;
            if !is_established || segment.seq == other.max_ack || is_behind_last {
                return self.take(role, Kind::Rst, segment, next, rules, left);
            }
            // The other side will not believe it without asking (RFC 5961, section 3.2).
            next = self.state;
        }
        let answers_ignored =
            self.has_reply && last.kind == Some(Kind::Syn) || !self.is_assured && last.kind == Some(Kind::Ack);
        let answers_challenge = self.state == State::SynSent
            && last.kind == Some(Kind::Ack)
            && last.role == Role::Answerer
            && segment.seq == last.ack;
        if answers_ignored && last.role != role && segment.ack == last.end || answers_challenge {
            return self.finish(role, Kind::Rst, next, rules.timeouts);
        }
        self.take(role, Kind::Rst, segment, next, rules, left)
    }

    /// An invalid segment. FIN or RST from both sides outside of the windows: the stations have
    /// closed the connection, and we do not understand how. So it lives a short time only.
    #[cold]
    fn invalid(&mut self, role: Role, kind: Kind, reason: Invalid, timeouts: &Timeouts, left: u32) -> Step {
        const LEAST: u32 = 120_000;
        if !self.is_assured || !matches!(kind, Kind::Fin | Kind::Rst) {
            return Step::Invalid(reason);
        }
        if self.last.role != role && matches!(self.last.kind, Some(Kind::Fin | Kind::Rst)) {
            if left >= LEAST && left > timeouts.tcp_unacknowledged {
                return Step::InvalidAndShorten(reason, timeouts.tcp_unacknowledged);
            }
        } else {
            self.last.kind = Some(kind);
            self.last.role = role;
        }
        Step::Invalid(reason)
    }

    /// Returns whether an ICMP error may quote a segment with this sequence number of the side with
    /// this role: the side has sent it, and the other one has not acknowledged it.
    pub(crate) fn is_in_flight(&self, role: Role, seq: u32) -> bool {
        let sender = &self.peers[role as usize];
        let receiver = &self.peers[role.other() as usize];
        if sender.max_window == 0 || !window::is_before(seq, sender.end) {
            return false;
        }
        let first = if receiver.marks.has(Marks::HAS_ACKED) {
            receiver.max_ack
        } else {
            sender.end.wrapping_sub(receiver.max_window.max(LEAST_ACK_WINDOW))
        };
        !window::is_before(seq, first)
    }
}
