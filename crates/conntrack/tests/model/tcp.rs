//! TCP as nf_conntrack sees it, once more: a table of words for the states, and numbers without a
//! common path for anything.

use straightline_conntrack::{Invalid, Segment, State, Timeouts};

use crate::reference::{Outcome, end_of};

/// The numbers of a side.
#[derive(Clone, Debug, Default)]
struct Peer {
    end: u32,
    max_end: u32,
    max_window: u32,
    max_ack: Option<u32>,
    scale: Option<u8>,
    /// The scale counts: both sides have offered one.
    shift: u8,
    is_liberal: bool,
    is_unacknowledged: bool,
    closed_first: bool,
}

#[derive(Clone, Debug, Default)]
struct Last {
    kind: &'static str,
    is_reply: bool,
    seq: u32,
    ack: u32,
    end: u32,
    window: u16,
    scale: Option<u8>,
    may_be_challenged: bool,
    retransmissions: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    pub(crate) state: State,
    pub(crate) has_reply: bool,
    is_assured: bool,
    peers: [Peer; 2],
    last: Last,
    both_open: bool,
}

const STATES: [State; 9] = [
    State::SynSent,
    State::SynRecv,
    State::Established,
    State::FinWait,
    State::CloseWait,
    State::LastAck,
    State::TimeWait,
    State::Close,
    State::SynSent2,
];

/// The state after a segment of a kind: of the opener, and of the other side. The columns are the states
/// above. `-` is invalid, `.` passes without an effect.
const TABLE: [(&str, &str, &str); 5] = [
    ("syn", "SS .  .  .  .  .  SS SS S2", "S2 -  -  -  -  -  SS -  S2"),
    ("synack", "-  SR -  -  -  -  -  -  SR", "SR .  .  .  .  .  .  .  SR"),
    ("fin", "-  FW FW LA LA LA TW CL -", "-  FW FW LA LA LA TW CL -"),
    ("ack", "-  ES ES CW CW TW TW CL -", ".  SR ES CW CW TW TW CL ."),
    ("rst", "CL CL CL CL CL CL CL CL CL", "CL CL CL CL CL CL CL CL CL"),
];

fn word(kind: &str, is_reply: bool, state: State) -> &'static str {
    let row = TABLE.iter().find(|row| row.0 == kind).expect("a kind");
    let row = if is_reply { row.2 } else { row.1 };
    let column = STATES.iter().position(|other| *other == state).expect("a state");
    row.split_whitespace().nth(column).expect("a word")
}

fn state(word: &str) -> State {
    let words = ["SS", "SR", "ES", "FW", "CW", "LA", "TW", "CL", "S2"];
    STATES[words.iter().position(|other| *other == word).expect("a state")]
}

fn kind(segment: &Segment) -> Option<&'static str> {
    let has = |flag: u8| segment.flags & flag != 0;
    let [fin, syn, rst, ack, urg] = [1, 2, 4, 16, 32].map(has);
    match (fin, syn, rst, ack, urg) {
        (false, true, false, false, _) => Some("syn"),
        (false, true, false, true, false) => Some("synack"),
        (true, false, false, true, _) => Some("fin"),
        (false, false, false, true, _) => Some("ack"),
        (false, false, true, _, false) => Some("rst"),
        _ => None,
    }
}

/// Returns whether `a` lies before `b`. Numbers that are 2^31 apart lie before each other.
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

fn most(segment: &Segment) -> u32 {
    u32::from(segment.window).max(1)
}

impl Tcp {
    pub(crate) fn open(
        segment: &Segment,
        pickup: bool,
        timeouts: &Timeouts,
        is_liberal: bool,
    ) -> Result<(Self, u32), Invalid> {
        let kind = kind(segment).ok_or(Invalid::Flags)?;
        let end = end_of(segment);
        let mut opener = Peer { end, max_end: end, max_window: most(segment), ..Peer::default() };
        let mut answerer = Peer::default();
        let state = match kind {
            "syn" => {
                opener.scale = segment.scale.map(|scale| scale.min(14));
                opener.shift = opener.scale.unwrap_or(0);
                State::SynSent
            }
            "ack" if pickup => {
                opener.max_end = end.wrapping_add(most(segment));
                opener.is_liberal = true;
                answerer.is_liberal = true;
                State::Established
            }
            _ => return Err(Invalid::NotOpen),
        };
        let mut tcp = Tcp {
            state,
            has_reply: false,
            is_assured: false,
            peers: [opener, answerer],
            last: Last::default(),
            both_open: false,
        };
        if kind == "ack" {
            tcp.window(false, kind, segment, is_liberal).map_err(|(reason, _)| reason)?;
        }
        tcp.last.kind = kind;
        let timeout = tcp.timeout(kind, timeouts);
        Ok((tcp, timeout))
    }

    pub(crate) fn advance(
        &mut self,
        is_reply: bool,
        segment: &Segment,
        timeouts: &Timeouts,
        is_liberal: bool,
        left: u32,
    ) -> Outcome {
        let Some(kind) = kind(segment) else { return Outcome::Invalid(Invalid::Flags) };
        let outcome = self.judge(is_reply, kind, segment, timeouts, is_liberal, left);
        if is_reply && matches!(outcome, Outcome::Renew(_) | Outcome::Pass | Outcome::End) {
            self.has_reply = true;
        }
        outcome
    }

    fn judge(
        &mut self,
        is_reply: bool,
        kind: &'static str,
        segment: &Segment,
        timeouts: &Timeouts,
        is_liberal: bool,
        left: u32,
    ) -> Outcome {
        let old = self.state;
        let word = word(kind, is_reply, old);
        if word == "-" {
            return Outcome::Invalid(Invalid::State);
        }
        let is_over = matches!(old, State::TimeWait | State::Close);
        if word == "SS" && is_over {
            let was_closed = self.peers[0].closed_first || self.peers[1].closed_first;
            let was_reset = self.last.kind == "rst" && self.last.is_reply == is_reply;
            if was_closed || was_reset {
                return Outcome::Reopen;
            }
        }
        if word == "." || word == "SS" && is_over {
            let answers_ignored_syn = kind == "synack"
                && self.last.kind == "syn"
                && self.last.is_reply != is_reply
                && segment.ack == self.last.end;
            if !answers_ignored_syn {
                self.ignore(is_reply, kind, segment);
                return Outcome::Pass;
            }
            let last = self.last.clone();
            let max_ack = None;
            self.peers[usize::from(last.is_reply)] = Peer {
                end: last.end,
                max_end: last.end,
                max_window: u32::from(last.window).max(1),
                max_ack,
                scale: last.scale,
                shift: last.scale.unwrap_or(0),
                ..Peer::default()
            };
            let is_picked_up = self.peers[usize::from(is_reply)].is_liberal;
            self.peers[usize::from(is_reply)] = Peer { is_liberal: is_picked_up, ..Peer::default() };
            self.state = State::SynSent;
            return self.pass_through_window(is_reply, kind, segment, State::SynRecv, timeouts, is_liberal, left);
        }
        let mut next = state(word);
        if next == State::TimeWait && old == State::LastAck && kind == "ack" {
            let is_challenge = self.last.is_reply != is_reply && self.last.kind == "syn" && self.last.may_be_challenged;
            if is_challenge {
                self.last.may_be_challenged = false;
                return Outcome::Pass;
            }
        }
        if next == State::SynSent2 {
            self.both_open = true;
        }
        if next == State::SynRecv && is_reply && kind == "ack" && self.both_open {
            next = State::Established;
        }
        if kind == "rst" {
            return self.reset(is_reply, segment, timeouts, is_liberal, left);
        }
        self.pass_through_window(is_reply, kind, segment, next, timeouts, is_liberal, left)
    }

    fn ignore(&mut self, is_reply: bool, kind: &'static str, segment: &Segment) {
        self.last.kind = kind;
        self.last.is_reply = is_reply;
        self.last.seq = segment.seq;
        self.last.end = end_of(segment);
        self.last.window = segment.window;
        if kind == "syn" && !is_reply {
            self.last.scale = segment.scale.map(|scale| scale.min(14));
            self.last.may_be_challenged = self.state == State::LastAck;
            self.both_open = false;
        }
        if self.state == State::SynSent && kind == "ack" && is_reply {
            self.last.ack = segment.ack;
        }
    }

    fn reset(
        &mut self,
        is_reply: bool,
        segment: &Segment,
        timeouts: &Timeouts,
        is_liberal: bool,
        left: u32,
    ) -> Outcome {
        let mut next = State::Close;
        if matches!(self.state, State::FinWait | State::LastAck | State::TimeWait | State::Close | State::CloseWait) {
            return self.take(is_reply, "rst", next, timeouts);
        }
        let is_established = self.state == State::Established && self.is_assured;
        if let Some(expected) = self.peers[usize::from(!is_reply)].max_ack.filter(|_| self.last.kind != "syn") {
            let answers_syn = segment.seq == 0 && !is_established;
            if !answers_syn && is_before(segment.seq, expected) {
                return Outcome::Invalid(Invalid::Reset);
            }
            let follows_last =
                self.last.kind == "ack" && self.last.is_reply == is_reply && segment.seq == self.last.end;
            if answers_syn || !is_established || segment.seq == expected || follows_last {
                return self.pass_through_window(is_reply, "rst", segment, next, timeouts, is_liberal, left);
            }
            next = self.state;
        }
        let answers_ignored = (self.has_reply && self.last.kind == "syn"
            || !self.is_assured && self.last.kind == "ack")
            && self.last.is_reply != is_reply
            && segment.ack == self.last.end;
        let answers_challenge = self.state == State::SynSent
            && self.last.kind == "ack"
            && self.last.is_reply
            && segment.seq == self.last.ack;
        if answers_ignored || answers_challenge {
            return self.take(is_reply, "rst", next, timeouts);
        }
        self.pass_through_window(is_reply, "rst", segment, next, timeouts, is_liberal, left)
    }

    #[expect(clippy::too_many_arguments, reason = "it is called at four places of this file")]
    fn pass_through_window(
        &mut self,
        is_reply: bool,
        kind: &'static str,
        segment: &Segment,
        next: State,
        timeouts: &Timeouts,
        is_liberal: bool,
        left: u32,
    ) -> Outcome {
        match self.window(is_reply, kind, segment, is_liberal) {
            Ok(()) => self.take(is_reply, kind, next, timeouts),
            Err((_, true)) => Outcome::Pass,
            Err((reason, false)) => {
                if self.is_assured && matches!(kind, "fin" | "rst") {
                    if self.last.is_reply != is_reply && matches!(self.last.kind, "fin" | "rst") {
                        if left >= 120_000 && left > timeouts.tcp_unacknowledged {
                            return Outcome::InvalidAndShorten(reason, timeouts.tcp_unacknowledged);
                        }
                    } else {
                        self.last.kind = kind;
                        self.last.is_reply = is_reply;
                    }
                }
                Outcome::Invalid(reason)
            }
        }
    }

    fn take(&mut self, is_reply: bool, kind: &'static str, next: State, timeouts: &Timeouts) -> Outcome {
        let old = self.state;
        self.last.kind = kind;
        self.last.is_reply = is_reply;
        self.state = next;
        if old != next && next == State::FinWait {
            self.peers[usize::from(is_reply)].closed_first = true;
        }
        let timeout = self.timeout(kind, timeouts);
        if self.has_reply {
            self.is_assured |= matches!(old, State::SynRecv | State::Established) && next == State::Established;
        } else if kind == "rst" {
            return Outcome::End;
        } else if kind == "syn" && old == State::SynSent {
            return Outcome::Pass;
        }
        Outcome::Renew(timeout)
    }

    fn timeout(&self, kind: &str, timeouts: &Timeouts) -> u32 {
        let of_state = match self.state {
            State::SynSent | State::SynSent2 => timeouts.tcp_syn_sent,
            State::SynRecv => timeouts.tcp_syn_recv,
            State::Established => timeouts.tcp_established,
            State::FinWait => timeouts.tcp_fin_wait,
            State::CloseWait => timeouts.tcp_close_wait,
            State::LastAck => timeouts.tcp_last_ack,
            State::TimeWait => timeouts.tcp_time_wait,
            _ => timeouts.tcp_close,
        };
        let is_unacknowledged = self.peers.iter().any(|peer| peer.is_unacknowledged);
        let mut timeout = of_state;
        if self.last.retransmissions >= 3 && of_state > timeouts.tcp_max_retrans {
            timeout = timeouts.tcp_max_retrans;
        } else if kind == "rst" {
            timeout = timeouts.tcp_close;
        } else if is_unacknowledged && of_state > timeouts.tcp_unacknowledged {
            timeout = timeouts.tcp_unacknowledged;
        } else if !is_unacknowledged && self.last.window == 0 && of_state > timeouts.tcp_max_retrans {
            timeout = timeouts.tcp_max_retrans;
        }
        if !self.has_reply && self.state == State::Established {
            timeout = timeout.min(timeouts.tcp_unacknowledged);
        }
        timeout
    }

    /// Checks the window. An error says whether the segment passes nevertheless.
    fn window(
        &mut self,
        is_reply: bool,
        kind: &str,
        segment: &Segment,
        is_liberal: bool,
    ) -> Result<(), (Invalid, bool)> {
        let has_syn = segment.flags & 2 != 0;
        let has_ack = segment.flags & 16 != 0;
        let mut sender = self.peers[usize::from(is_reply)].clone();
        let mut receiver = self.peers[usize::from(!is_reply)].clone();
        let mut seq = segment.seq;
        let mut ack = segment.ack;
        let mut end = end_of(segment);

        let begins_anew = sender.max_window != 0
            && is_before(sender.end, end)
            && matches!(self.state, State::SynSent | State::SynRecv);
        if has_syn && (sender.max_window == 0 || begins_anew) {
            sender.end = end;
            sender.max_end = end;
            sender.max_window = most(segment);
            sender.scale = segment.scale.map(|scale| scale.min(14));
            sender.shift = sender.scale.unwrap_or(0);
            sender.is_unacknowledged = false;
            sender.closed_first = false;
            sender.max_ack = None;
            if is_reply && (sender.scale.is_none() || receiver.scale.is_none()) {
                sender.shift = 0;
                receiver.shift = 0;
            }
            self.peers[usize::from(is_reply)] = sender.clone();
            self.peers[usize::from(!is_reply)] = receiver.clone();
            if !has_ack && (!begins_anew || is_reply) {
                return Ok(());
            }
        } else if sender.max_window == 0 {
            sender.end = end;
            sender.max_window = (u32::from(segment.window) << sender.shift).max(1);
            sender.max_end = end.wrapping_add(sender.max_window);
            if receiver.max_window == 0 {
                receiver.end = ack;
                receiver.max_end = ack;
            } else if ack == receiver.end.wrapping_add(1) {
                receiver.end = ack;
            }
            self.peers[usize::from(is_reply)] = sender.clone();
            self.peers[usize::from(!is_reply)] = receiver.clone();
        }
        if !has_ack || kind == "rst" && ack == 0 {
            ack = receiver.end;
        }
        if kind == "rst" && seq == 0 && self.state == State::SynSent {
            seq = sender.end;
            end = sender.end;
        }

        let old_ack = receiver.end.wrapping_sub(sender.max_window.max(66_000));
        let seq_fits = is_before(seq, sender.max_end.wrapping_add(1));
        let ack_fits = is_before(ack, receiver.end.wrapping_add(1));
        let is_recent = is_before(sender.end.wrapping_sub(receiver.max_window).wrapping_sub(1), end);
        let is_recent_ack = is_before(old_ack.wrapping_sub(1), ack);
        let mut refused = None;
        if !seq_fits {
            let more = end.wrapping_sub(sender.max_end).wrapping_add(1);
            let may_fit = receiver.max_window != 0 && is_recent && more <= receiver.max_window;
            let passes = may_fit && ack_fits && is_recent_ack;
            if passes {
                let peer = &mut self.peers[usize::from(is_reply)];
                peer.end = end;
                peer.is_unacknowledged = true;
            }
            refused = Some((Invalid::SeqHigh, passes));
        } else if !ack_fits {
            refused = Some((Invalid::AckHigh, false));
        } else if receiver.max_window != 0 && !is_recent {
            refused = Some((Invalid::SeqLow, true));
        } else if !is_recent_ack {
            refused = Some((Invalid::AckLow, true));
        }
        if let Some(refused) = refused {
            return if is_liberal || sender.is_liberal { Ok(()) } else { Err(refused) };
        }

        let window = u32::from(segment.window) << if has_syn { 0 } else { sender.shift };
        if is_before(sender.max_end, end) && receiver.max_window != 0 {
            receiver.max_window = receiver.max_window.wrapping_add(end.wrapping_sub(sender.max_end));
        }
        sender.max_window = sender.max_window.max(window);
        if is_before(sender.end, end) {
            sender.end = end;
            sender.is_unacknowledged = true;
        }
        if has_ack && sender.max_ack.is_none_or(|before| is_before(before, ack)) {
            sender.max_ack = Some(ack);
        }
        let allowed = ack.wrapping_add(window);
        if is_before(receiver.max_end.wrapping_sub(1), allowed) {
            receiver.max_end = allowed.wrapping_add(u32::from(window == 0));
        }
        if ack == receiver.end {
            receiver.is_unacknowledged = false;
        }
        self.peers[usize::from(is_reply)] = sender;
        self.peers[usize::from(!is_reply)] = receiver;
        if kind == "ack" {
            let last = &mut self.last;
            let is_same = last.is_reply == is_reply
                && [last.seq, last.ack, last.end] == [seq, ack, end]
                && last.window == segment.window;
            if is_same {
                last.retransmissions = last.retransmissions.saturating_add(1);
            } else {
                *last = Last { is_reply, seq, ack, end, window: segment.window, retransmissions: 0, ..last.clone() };
            }
        }
        Ok(())
    }
}
