//! The connections of one port: its share of the table.
//!
//! Each port has entries and buckets of its own. So a port's traffic fills nothing of another port.
//!
//! - **Packets of known connections** take no lock of the port. They lock their entry (`entries.rs`).
//! - **New connections, and those whose class changes,** take the lock of the port. It comes first: a
//!   thread that holds it may lock an entry, and never the other way round.

use std::sync::{Mutex, MutexGuard};

use straightline_packet::IgnorePoison;
use straightline_wire::IpProtocol;

use crate::buckets::{Buckets, Hash};
use crate::connection::{
    ASSURED_FROM, FACTS, Facts, TIMES, facts_and_rule, halves, load_tcp, new_words, pair, store_tcp,
};
use crate::entries::{Entries, Locked, Tag};
use crate::fast;
use crate::fragments::{BAD, BadFragment, Fragments};
use crate::handle::{Opened, Opening};
use crate::hash::Secret;
use crate::key::{Direction, Key, Side, protocol_of, service_of};
use crate::settings::{PortShare, Settings, deadline, has_come};
use crate::state::{Class, State, has_streams};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::tcp::{Role, Rules, Step, Tcp};
use crate::transport::{Segment, Transport};
use crate::verdict::{FULL, Full, Invalid, Passed, Refusal, Verdict};

mod admission;
mod quota;

use admission::{Listed, Writer, idle};
use quota::Quota;

/// Time after which an answered exchange is assured, and one of UDP a stream, in milliseconds.
const ASSURED_AFTER: u32 = 2000;

/// The port of DNS. Its exchanges count the questions that are open.
const DNS: u64 = 53;

/// Time after which an exchange of DNS ends when all its questions are answered, in milliseconds.
const ANSWERED: u32 = 2000;

/// Time after which an exchange that is not assured ends while the share is crowded, in milliseconds.
const CROWDED: u32 = 5000;

/// The connections of a port.
pub(crate) struct Connections {
    pub(crate) entries: Entries,
    pub(crate) buckets: Buckets,
    writer: Mutex<Writer>,
    pub(crate) share: PortShare,
    quota: Quota,
    /// Most places of each direction are taken ([`Quota::is_crowded`]): outbound ones first.
    crowded: [AtomicBool; 2],
    refused: [AtomicU64; FULL],
    /// Datagrams in fragments that the local side sends, and the remote sides.
    fragments: [Mutex<Fragments>; 2],
    bad_fragments: [AtomicU64; BAD],
    evicted: AtomicU64,
}

/// Facts that all ports of a table have in common.
pub(crate) struct Common {
    pub(crate) settings: Settings,
    pub(crate) secret: Secret,
}

impl Connections {
    pub(crate) fn new(share: PortShare) -> Self {
        let count = share.connections as usize;
        Connections {
            entries: Entries::new(count),
            buckets: Buckets::new(count),
            writer: Mutex::new(Writer::new(&share)),
            quota: Quota::new(&share),
            crowded: Default::default(),
            share,
            refused: Default::default(),
            fragments: std::array::from_fn(|_| Mutex::new(Fragments::new(share.fragments))),
            bad_fragments: Default::default(),
            evicted: AtomicU64::new(0),
        }
    }

    /// Creates connections with another share, which go on with those of these ones. Connections that
    /// both sides use come first, if there are too many. Nobody may use either of both during the call.
    pub(crate) fn successor(&self, share: PortShare, secret: &Secret) -> Self {
        let next = Self::new(share);
        let mut to = next.lock();
        let from = self.lock();
        for class in [
            Class::OpenOutbound,
            Class::OpenInbound,
            Class::OpenTrusted,
            Class::ExchangeOutbound,
            Class::ExchangeInbound,
            Class::HalfOpenOutbound,
            Class::HalfOpenInbound,
            Class::ClosedOutbound,
            Class::ClosedInbound,
        ] {
            for at in from.members.of(class) {
                let Some(tag) = self.entries.tag(at) else { continue };
                let Some(entry) = self.entries.lock(at, tag) else { continue };
                let Some(free) = to.members.free() else { break };
                let key = entry.key();
                if !next.buckets.insert(secret.hash(&key), free) {
                    continue;
                }
                let (facts, _) = facts_and_rule(entry.get(FACTS));
                let words = std::array::from_fn(|word| entry.get(word));
                next.entries.fill(free, &key, &words, tag.generation());
                let [_, seen] = halves(entry.get(TIMES));
                to.put(free, &Listed { class, opener: facts.opener, seen, key: &key }, secret);
                to.count(&facts);
            }
        }
        next.note_crowd(&to);
        drop(to);
        let counters = next.refused.iter().zip(&self.refused).chain(next.bad_fragments.iter().zip(&self.bad_fragments));
        for (next, before) in counters.chain([(&next.evicted, &self.evicted)]) {
            next.store(before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        next
    }

    /// Finds the entry of a key, whatever its time is.
    #[inline]
    pub(crate) fn find(&self, key: &Key, hash: Hash) -> Option<(u32, Tag)> {
        let guess = self.buckets.guess(hash)?;
        let Some(tag) = self.entries.find(guess, key.words()) else { return self.find_further(key, hash) };
        Some((guess, tag))
    }

    /// Finds the entry of a key among all candidates: the first one has another key.
    #[cold]
    pub(crate) fn find_further(&self, key: &Key, hash: Hash) -> Option<(u32, Tag)> {
        let tagged = |at| Some((at, self.entries.find(at, key.words())?));
        self.buckets.candidates(hash).find_map(tagged)
    }

    /// Returns whether the entry has expired.
    #[inline]
    pub(crate) fn has_expired(&self, at: u32, now: u32) -> bool {
        has_come(halves(self.entries.peek(at, TIMES))[0], now)
    }

    /// Advances the state of a connection by a packet.
    #[inline]
    pub(crate) fn advance(
        &self,
        at: u32,
        tag: Tag,
        side: Side,
        packet: &Transport,
        common: &Common,
        now: u32,
    ) -> Verdict {
        let Some(entry) = self.entries.lock(at, tag) else { return Verdict::Gone };
        if let Transport::Tcp(segment) = packet
            && let Some(role) = fast::advance(&entry, side, segment, &common.settings.timeouts, now)
        {
            let is_reply = role == Role::Answerer;
            return Verdict::Pass(Passed { state: State::Established, is_reply, has_reply: true });
        }
        self.advance_rare(at, entry, side, packet, common, now)
    }

    /// Does the part of [`Self::advance`] for all other packets.
    #[inline(never)]
    fn advance_rare(
        &self,
        at: u32,
        entry: Locked<'_>,
        side: Side,
        packet: &Transport,
        common: &Common,
        now: u32,
    ) -> Verdict {
        let advanced = advance_by_any(&entry, side, packet, &common.settings, &self.crowded, now);
        let tag = entry.tag();
        // The lock of the port comes before that of an entry.
        drop(entry);
        if advanced.ends {
            // If another thread was faster, the packet is looked up again.
            let ended = self.end(at, tag, &common.secret);
            if !ended && advanced.verdict == Verdict::Reopen {
                return Verdict::Gone;
            }
        } else if advanced.changes_class {
            self.classify(at, tag, &common.secret);
        }
        advanced.verdict
    }

    /// Puts an entry into the list of its class, after it has changed. A connection ends whose handshake is
    /// over, if its prefix has too many.
    #[cold]
    fn classify(&self, at: u32, tag: Tag, secret: &Secret) {
        let mut writer = self.lock();
        let Some(entry) = self.entries.lock(at, tag) else { return };
        self.put_locked(&mut writer, at, &entry, secret);
        if writer.members.class_of(at) == Class::OpenTrusted {
            let prefix = writer.place_of_prefix(&entry.key(), secret);
            if self.is_one_too_many(&writer, prefix) {
                self.end_locked(&mut writer, at, entry, secret);
                self.refused[Full::Opener as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Puts a locked entry into the list of its class.
    fn put_locked(&self, writer: &mut Writer, at: u32, entry: &Locked<'_>, secret: &Secret) {
        let facts = facts_and_rule(entry.get(FACTS)).0;
        let [_, seen] = halves(entry.get(TIMES));
        let listed = Listed { class: facts.class(), opener: facts.opener, seen, key: &entry.key() };
        writer.put(at, &listed, secret);
    }

    /// Ends a connection. Returns whether it had not ended yet.
    #[cold]
    pub(crate) fn end(&self, at: u32, tag: Tag, secret: &Secret) -> bool {
        let mut writer = self.lock();
        let entry = self.entries.lock(at, tag);
        entry.map(|entry| self.end_locked(&mut writer, at, entry, secret)).is_some()
    }

    /// Opens a connection.
    pub(crate) fn open(
        &self,
        key: &Key,
        opening: &Opening<'_>,
        settings: &Settings,
        secret: &Secret,
        now: u32,
    ) -> Result<Opened<(u32, Tag)>, Refusal> {
        let begin = begin(key, opening.packet, opening.pickup, settings).map_err(Refusal::Invalid)?;
        let hash = secret.hash(key.words());
        let mut writer = self.lock();
        // Another worker may have been faster.
        if let Some((at, tag)) = self.find(key, hash) {
            if !self.has_expired(at, now) {
                return Ok(Opened::Known((at, tag)));
            }
            if let Some(entry) = self.entries.lock(at, tag) {
                self.end_locked(&mut writer, at, entry, secret);
            }
        }
        let opened = self.admit(&mut writer, key, opening, secret, now);
        let full = |full: Full| {
            self.refused[full as usize].fetch_add(1, Ordering::Relaxed);
            Refusal::Full(full)
        };
        let at = opened.map_err(full)?;
        if !self.buckets.insert(hash, at) {
            return Err(full(Full::Places));
        }
        let facts = Facts {
            opener: opening.opener,
            state: begin.state,
            direction: opening.direction,
            is_trusted: opening.is_trusted && opening.direction == Direction::Inbound,
            has_reply: false,
            is_assured: false,
        };
        let mut timeout = begin.timeout;
        if begin.tcp.is_none() && is_crowded(&self.crowded, facts.direction) {
            timeout = timeout.min(CROWDED);
        }
        let mut words = new_words(facts, opening.rule, begin.tcp.as_ref(), deadline(now, timeout), now);
        if begin.tcp.is_none() {
            // The first packet is a question. Where nothing is scarce by protocol, some stay open.
            let open = if self.share.by_protocol { 1 } else { u32::MAX };
            words[ASSURED_FROM] = pair(now.wrapping_add(ASSURED_AFTER), open);
        }
        let tag = self.entries.fill(at, key.words(), &words, opening.generation);
        let listed = Listed { class: facts.class(), opener: facts.opener, seen: now, key: key.words() };
        writer.put(at, &listed, secret);
        writer.count(&facts);
        self.note_crowd(&writer);
        Ok(Opened::New((at, tag)))
    }

    fn end_locked(&self, writer: &mut Writer, at: u32, entry: Locked<'_>, secret: &Secret) {
        let facts = facts_and_rule(entry.get(FACTS)).0;
        let key = entry.key();
        self.buckets.remove(secret.hash(&key), at);
        entry.end();
        writer.put(at, &Listed { class: Class::Free, opener: 0, seen: 0, key: &key }, secret);
        writer.forget(&facts);
        self.note_crowd(writer);
    }

    /// Notes whether most places are taken, for packets of exchanges.
    fn note_crowd(&self, writer: &Writer) {
        let used = writer.used();
        for direction in [Direction::Outbound, Direction::Inbound] {
            let is_crowded = self.quota.is_crowded(&used, direction);
            let crowded = &self.crowded[direction as usize];
            // Workers read it: the line is written only if it changes.
            if crowded.load(Ordering::Relaxed) != is_crowded {
                crowded.store(is_crowded, Ordering::Relaxed);
            }
        }
    }

    /// Ends the connections that have expired, among a number of entries that begin with one. Returns
    /// the number of the entry behind them; none at the end.
    pub(crate) fn sweep(&self, from: u32, count: u32, secret: &Secret, now: u32) -> Option<u32> {
        let used = self.lock().members.used();
        let end = from.saturating_add(count).min(used);
        // One answer for the whole sweep: what ends does not depend on the order of entries.
        let crowded = [Direction::Outbound, Direction::Inbound].map(|direction| is_crowded(&self.crowded, direction));
        for at in from..end {
            if self.is_over(at, crowded, now)
                && let Some(tag) = self.entries.tag(at)
            {
                self.end_expired(at, tag, secret, crowded, now);
            }
        }
        (end < used).then_some(end)
    }

    fn end_expired(&self, at: u32, tag: Tag, secret: &Secret, crowded: [bool; 2], now: u32) {
        let mut writer = self.lock();
        let Some(entry) = self.entries.lock(at, tag) else { return };
        // A packet may have come meanwhile.
        if self.is_over(at, crowded, now) {
            self.end_locked(&mut writer, at, entry, secret);
        }
    }

    /// Returns whether an entry has expired, or lives too long for a crowded share.
    fn is_over(&self, at: u32, crowded: [bool; 2], now: u32) -> bool {
        let facts = facts_and_rule(self.entries.peek(at, FACTS)).0;
        let [expires, seen] = halves(self.entries.peek(at, TIMES));
        has_come(expires, now)
            || !facts.state.is_tcp()
                && !facts.is_assured
                && crowded[facts.direction as usize]
                && idle(seen, now) >= CROWDED
    }

    /// Ends all connections.
    pub(crate) fn end_all(&self, secret: &Secret) {
        let used = self.lock().members.used();
        for at in 0..used {
            if let Some(tag) = self.entries.tag(at) {
                self.end(at, tag, secret);
            }
        }
    }

    /// Does something with the fragmented datagrams that a side sends.
    pub(crate) fn with_fragments<T>(
        &self,
        sender: Side,
        work: impl FnOnce(&mut Fragments) -> Result<T, BadFragment>,
    ) -> Result<T, BadFragment> {
        let outcome = work(&mut self.fragments(sender));
        outcome.inspect_err(|bad| self.count_bad(*bad))
    }

    /// Returns the fragmented datagrams that a side sends.
    pub(crate) fn fragments(&self, sender: Side) -> MutexGuard<'_, Fragments> {
        self.fragments[sender as usize].lock().ignore_poison()
    }

    pub(crate) fn count_bad(&self, bad: BadFragment) {
        self.bad_fragments[bad as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn bad_fragments(&self, bad: BadFragment) -> u64 {
        self.bad_fragments[bad as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn evicted_datagrams(&self) -> u64 {
        self.fragments.iter().map(|fragments| fragments.lock().ignore_poison().evicted).sum()
    }

    /// Returns the number of entries that were ever used.
    pub(crate) fn used(&self) -> u32 {
        self.lock().members.used()
    }

    pub(crate) fn count(&self, class: Class) -> u32 {
        self.lock().members.count(class)
    }

    pub(crate) fn inbound(&self) -> u32 {
        self.lock().used().both(Direction::Inbound)
    }

    pub(crate) fn refused(&self, full: Full) -> u64 {
        self.refused[full as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().ignore_poison()
    }
}

/// The outcome of a packet, and what remains to be done with the lock of the port.
struct Advanced {
    verdict: Verdict,
    ends: bool,
    changes_class: bool,
}

/// Advances the state of a locked connection, by any packet.
fn advance_by_any(
    entry: &Locked<'_>,
    side: Side,
    packet: &Transport,
    settings: &Settings,
    crowded: &[AtomicBool; 2],
    now: u32,
) -> Advanced {
    let (mut facts, rule) = facts_and_rule(entry.get(FACTS));
    let class = facts.class();
    let role = if side == facts.direction.opener() { Role::Opener } else { Role::Answerer };
    let [expires, seen] = halves(entry.get(TIMES));
    let step = match packet {
        Transport::Tcp(segment) => advance_tcp(entry, &mut facts, role, segment, settings, expires.wrapping_sub(now)),
        Transport::Other => advance_other(entry, &mut facts, role, settings, crowded, now),
    };
    let verdict = match step {
        Step::Invalid(reason) => Verdict::Invalid(reason),
        Step::InvalidAndShorten(reason, timeout) => {
            entry.set(TIMES, pair(deadline(now, timeout), seen));
            Verdict::Invalid(reason)
        }
        Step::Reopen => Verdict::Reopen,
        Step::Renew(_) | Step::Pass | Step::End => {
            let expires = if let Step::Renew(timeout) = step { deadline(now, timeout) } else { expires };
            let is_reply = role == Role::Answerer;
            entry.set(TIMES, pair(expires, now));
            fast::count(entry, is_reply);
            Verdict::Pass(Passed { state: facts.state, is_reply, has_reply: facts.has_reply })
        }
    };
    entry.set(FACTS, pair(facts.to_word(), rule));
    let ends = matches!(step, Step::End | Step::Reopen);
    Advanced { verdict, ends, changes_class: facts.class() != class }
}

/// A segment of a TCP connection, which lives for `left` milliseconds without it.
fn advance_tcp(
    entry: &Locked<'_>,
    facts: &mut Facts,
    role: Role,
    segment: &Segment,
    settings: &Settings,
    left: u32,
) -> Step {
    if !facts.state.is_tcp() {
        return Step::Invalid(Invalid::Protocol);
    }
    let rules = Rules { timeouts: &settings.timeouts, windows: settings.windows };
    let mut tcp = load_tcp(entry, facts);
    let step = tcp.advance(role, segment, rules, left);
    facts.state = tcp.state;
    facts.has_reply = tcp.has_reply;
    facts.is_assured = tcp.is_assured;
    store_tcp(&tcp, |at, word| entry.set(at, word));
    step
}

/// A packet of a protocol without states.
#[inline]
fn advance_other(
    entry: &Locked<'_>,
    facts: &mut Facts,
    role: Role,
    settings: &Settings,
    crowded: &[AtomicBool; 2],
    now: u32,
) -> Step {
    let [first, ..] = entry.key();
    let protocol = protocol_of(first);
    if facts.state.is_tcp() {
        return Step::Invalid(Invalid::Protocol);
    }
    // A packet is judged by what was seen before it (as nf_conntrack does).
    facts.is_assured |= facts.has_reply && has_come(halves(entry.get(ASSURED_FROM))[0], now);
    let is_stream = has_streams(protocol) && facts.is_assured;
    facts.has_reply |= role == Role::Answerer;
    facts.state = match facts.state {
        _ if is_stream => State::Stream,
        State::Unreplied if facts.has_reply => State::Replied,
        state => state,
    };
    let mut timeout = facts.state.timeout(&settings.timeouts, protocol);
    if protocol == IpProtocol::UDP && service_of(first, facts.direction) == DNS && !has_open_question(entry, role) {
        timeout = timeout.min(ANSWERED);
    }
    if !facts.is_assured && is_crowded(crowded, facts.direction) {
        timeout = timeout.min(CROWDED);
    }
    Step::Renew(timeout)
}

/// Counts a packet of DNS: a question of the opener, or an answer. Returns whether a question is open. An
/// answer that comes twice counts for another question that is open, too.
#[inline]
fn has_open_question(entry: &Locked<'_>, role: Role) -> bool {
    let [assured_from, open] = halves(entry.get(ASSURED_FROM));
    let open = if role == Role::Opener { open.saturating_add(1) } else { open.saturating_sub(1) };
    entry.set(ASSURED_FROM, pair(assured_from, open));
    open > 0
}

#[inline]
fn is_crowded(crowded: &[AtomicBool; 2], direction: Direction) -> bool {
    crowded[direction as usize].load(Ordering::Relaxed)
}

/// The state of a connection with its first packet.
pub(crate) struct Begin {
    state: State,
    tcp: Option<Tcp>,
    timeout: u32,
}

pub(crate) fn begin(key: &Key, packet: &Transport, pickup: bool, settings: &Settings) -> Result<Begin, Invalid> {
    let protocol = key.protocol();
    match packet {
        Transport::Tcp(segment) if protocol == IpProtocol::TCP => {
            let rules = Rules { timeouts: &settings.timeouts, windows: settings.windows };
            let (tcp, timeout) = Tcp::open(segment, pickup, rules)?;
            Ok(Begin { state: tcp.state, tcp: Some(tcp), timeout })
        }
        Transport::Other if protocol != IpProtocol::TCP => {
            let timeout = State::Unreplied.timeout(&settings.timeouts, protocol);
            Ok(Begin { state: State::Unreplied, tcp: None, timeout })
        }
        _ => Err(Invalid::Protocol),
    }
}

#[cfg(test)]
mod tests;
