//! Bindings: which MAC address has an IP address.
//!
//! A binding is from one of four sources. The configuration's and those of owners (clients of the API)
//! hold until they are removed. *Checked* ones were heard from a port whose guest may claim certain
//! addresses only; *leased* ones were told by a DHCP server. These two share a limit: each port has its
//! share ([`Shares`]).
//!
//! - **An address is never bound twice.** Whoever claims an address that is bound elsewhere is refused
//!   and counted. The station that has it is asked; if it does not answer, the address is free for the
//!   next claim.
//! - **The nearest witness counts.** The configuration comes first, then what was heard here, then what an
//!   owner says of other hosts. A claim of a checked port overrules an owner: the switch has compared it
//!   with the addresses of that port, while an owner repeats the word of another host. RFC 9161 leaves
//!   it to the implementation; it wants the local entry of an address to be right. The owner's binding stays
//!   behind it, and counts when the other one goes.
//! - **A server's newer word counts.** It has given the address anew, so the lease before is over.
//! - **A quiet station keeps its address.** When a checked binding has not been heard for the ageing time,
//!   its station is asked, up to [`MOST_QUESTIONS`] times. Only if it does not answer, the binding goes.
//!   A leased binding ends with its lease.
//!
//! - **A station that moves here** claims its address while an owner still has it elsewhere. When the
//!   owner gives it up, the claim counts.
//!
//! This knows no packets and no clock. Workers read it for questions only, so a lock is good enough: a
//! worker that finds it taken does without ([`Bindings::find`]).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use straightline_packet::{IgnorePoison, PortIndex};
use straightline_wire::{MacAddr, VlanId};

use crate::journal::Kept;
use crate::shares::{Reservation, Share, Shares, WhenFull};
use crate::sync::{AtomicU64, Ordering};

/// The most questions to a station before its binding goes.
pub const MOST_QUESTIONS: u8 = 3;

/// The most questions in a second, for the whole table.
const MOST_ASKED: usize = 256;

/// The most questions in a second to stations behind one port. A port takes that many at once, beside its
/// answers.
const MOST_ASKED_OF_PORT: u8 = 16;

/// Bindings that a call of [`Bindings::tick`] looks at: a worker calls it, so it takes some microseconds.
const LOOKED_AT: usize = 256;

/// The most claims that wait for an owner to give up an address, and the seconds that they wait.
const MOST_DEFERRED: usize = 256;
const DEFERRED_S: u32 = 30;

/// The most refused claims of a port that make the table ask, in a second.
const MOST_CHALLENGES: u32 = 8;

/// An IP address in a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpKey {
    /// The VLAN.
    pub vlan: VlanId,
    /// The address.
    pub ip: IpAddr,
}

/// The way in which a binding became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingSource {
    /// The configuration has it.
    Static,
    /// A client of the API has added it.
    Owner,
    /// It was heard from a port whose claims are checked.
    Checked,
    /// A DHCP server has told it, for a number of seconds.
    Leased {
        /// The second at which the lease ends.
        until: u32,
    },
}

/// A binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The IP address.
    pub key: IpKey,
    /// The MAC address.
    pub mac: MacAddr,
    /// The port behind which it is. `None`: the configuration does not say it.
    pub port: Option<PortIndex>,
    /// How it became known.
    pub source: BindingSource,
    /// The second at which it was last heard; 0 for those that do not age.
    pub seen: u32,
    /// The number of questions that were not answered yet.
    pub asked: u8,
}

/// A claim: a station says, or a server says, that it has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The IP address.
    pub key: IpKey,
    /// The MAC address.
    pub mac: MacAddr,
    /// The port behind which it is.
    pub port: PortIndex,
    /// The end of the lease, if a server says it.
    pub until: Option<u32>,
    /// The port's claims are not checked: this one shows that a known binding is alive, and binds nothing.
    pub only_known: bool,
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindOutcome {
    /// The binding is known.
    Known,
    /// The binding is new.
    Bound,
    /// The address is bound to another station, or behind another port.
    Elsewhere,
    /// The port has no place left.
    Full,
    /// The claim counts for known bindings only, and this is none.
    Unknown,
    /// Another thread has the table. The claim is not counted.
    Busy,
}

/// A change of the bindings that were heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingChange {
    /// The binding.
    pub binding: Binding,
    /// False: it has gone.
    pub is_bound: bool,
}

/// The number of claims and questions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindingCounts {
    /// Bindings that were heard and are known.
    pub bound: u64,
    /// Claims of addresses that are bound elsewhere.
    pub elsewhere: u64,
    /// Claims of checked ports that have overruled an owner.
    pub overruled: u64,
    /// Claims of ports without a place.
    pub full: u64,
    /// Questions to stations.
    pub asked: u64,
    /// Bindings that went because nobody answered, or their lease was over.
    pub withdrawn: u64,
}

/// A binding that was heard.
#[derive(Clone, Copy, Debug)]
struct Heard {
    mac: MacAddr,
    port: u16,
    seen: u32,
    /// The end of the lease; 0 for a checked one.
    until: u32,
    asked: u8,
}

impl Heard {
    fn binding(self, key: IpKey) -> Binding {
        let source = if self.until == 0 { BindingSource::Checked } else { BindingSource::Leased { until: self.until } };
        Binding { key, mac: self.mac, port: Some(PortIndex(self.port)), source, seen: self.seen, asked: self.asked }
    }
}

/// A binding that holds until it is removed. There may be 100 000 of them, so it is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fixed {
    mac: [u8; 6],
    port: u16,
}

/// No port, or one that nobody has.
const NO_PORT: u16 = u16::MAX;

/// The bindings of a bridge.
#[derive(Debug)]
pub struct Bindings {
    limit: usize,
    ageing: u32,
    shares: Shares,
    changes: AtomicU64,
    lease_changes: AtomicU64,
    state: Mutex<State>,
}

/// A round of questions: it looks at each binding that was heard, from the last one to the first.
#[derive(Debug, Default)]
struct Round {
    /// The second in which it has begun.
    since: Option<u32>,
    /// The bindings that it has not looked at yet: the first ones.
    left: usize,
    /// Questions so far: all, and those to stations behind each port.
    asked: usize,
    of_port: Vec<u8>,
}

impl Round {
    fn begin(&mut self, now: u32, left: usize) {
        (self.since, self.left, self.asked) = (Some(now), left, 0);
        self.of_port.fill(0);
    }

    /// Returns whether a station behind a port may be asked in this round, and counts the question. Others
    /// are asked in the next one: a question that is not sent must not count.
    fn takes_question(&mut self, port: u16) -> bool {
        let Some(of_port) = self.of_port.get_mut(usize::from(port)) else { return false };
        let is_possible = self.asked < MOST_ASKED && *of_port < MOST_ASKED_OF_PORT;
        self.asked += usize::from(is_possible);
        *of_port += u8::from(is_possible);
        is_possible
    }
}

#[derive(Debug, Default)]
struct State {
    statics: HashMap<IpKey, MacAddr, RandomState>,
    /// Those of owners, for each version of IP. The key of version 4 has the VLAN above the address.
    v4: HashMap<u64, Fixed, RandomState>,
    v6: HashMap<IpKey, Fixed, RandomState>,
    /// Those that were heard. They have places in a row, so a round of questions goes on where it was.
    heard: IndexMap<IpKey, Heard, RandomState>,
    round: Round,
    counts: BindingCounts,
    /// Claims of stations whose addresses an owner has elsewhere, each with its time: the last ones.
    deferred: Vec<(Claim, u32)>,
    /// The challenges of each port in a second.
    challenges: Vec<(u32, u32)>,
    /// The latest second that somebody has told.
    now: u32,
    journal: Kept<BindingChange>,
}

impl Bindings {
    /// Creates a table for at most `limit` bindings that are heard behind `ports`. They are asked for when
    /// they were not heard for `ageing` seconds.
    pub fn new(
        limit: usize,
        ageing: u32,
        ports: &[PortIndex],
        statics: impl IntoIterator<Item = (IpKey, MacAddr)>,
    ) -> Self {
        let indices = || ports.iter().map(|port| port.index());
        let size = indices().map(|index| index + 1).max().unwrap_or(0);
        let state = State {
            statics: statics.into_iter().collect(),
            // A worker that hears a claim allocates nothing.
            heard: IndexMap::with_capacity_and_hasher(limit, RandomState::default()),
            round: Round { of_port: vec![0; size], ..Round::default() },
            deferred: Vec::with_capacity(MOST_DEFERRED),
            challenges: vec![(0, 0); size],
            ..State::default()
        };
        let shares = Shares::new(limit, indices(), WhenFull::Refuse);
        let [changes, lease_changes] = [0; 2].map(AtomicU64::new);
        Bindings { limit, ageing: ageing.max(1), shares, changes, lease_changes, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Takes over what `before` has heard, as far as its port is one of this table and the configuration does
    /// not have the address. Bindings of owners are not taken over: their lists are elsewhere.
    pub fn take_over(&self, before: &Self) {
        let (heard, counts) = {
            let state = before.lock();
            (state.heard.iter().map(|(key, heard)| (*key, *heard)).collect::<Vec<_>>(), state.counts)
        };
        let mut state = self.lock();
        for (key, heard) in heard {
            let owner = usize::from(heard.port);
            if !state.statics.contains_key(&key) && self.shares.reserve(owner) == Reservation::Granted {
                state.heard.insert(key, heard);
            }
        }
        state.counts = BindingCounts { bound: 0, ..counts };
        self.shares.continue_counts(&before.shares);
    }

    /// Returns a binding, to answer for it. `None`: nobody has the address, or another thread has the
    /// table: this never waits.
    pub fn find(&self, key: IpKey) -> Option<Binding> {
        self.state.try_lock().ok()?.find(key)
    }

    /// Takes a claim. It never waits.
    pub fn claim(&self, claim: Claim, now: u32) -> BindOutcome {
        let Ok(mut state) = self.state.try_lock() else { return BindOutcome::Busy };
        state.now = state.now.max(now);
        let Claim { key, mac, port, until, only_known } = claim;
        if let Some(fixed) = state.statics.get(&key) {
            let is_here = *fixed == mac;
            return if only_known { BindOutcome::Unknown } else { state.known_or_refused(is_here) };
        }
        if let Some(known) = state.heard.get(&key).copied() {
            return self.claim_heard(&mut state, claim, known, now);
        }
        if only_known {
            return BindOutcome::Unknown;
        }
        if let Some(owned) = state.owned(key) {
            let is_same = owned.mac == mac.0;
            let is_here = is_same && (owned.port == NO_PORT || owned.port == port.0);
            if is_here || until.is_some() {
                if is_same && !is_here {
                    state.defer(claim, now);
                }
                return state.known_or_refused(is_here);
            }
        }
        self.bind(&mut state, claim, now)
    }

    /// Takes a claim of an address that was heard before.
    fn claim_heard(&self, state: &mut State, claim: Claim, known: Heard, now: u32) -> BindOutcome {
        let Claim { key, mac, port, until, only_known } = claim;
        if known.mac == mac && known.port == port.0 {
            let seen = known.seen.max(now);
            state.heard.insert(key, Heard { seen, asked: 0, until: until.unwrap_or(known.until), ..known });
            if known.until == 0 && until.is_some() {
                self.lease_changes.fetch_add(1, Ordering::Release);
            }
            return BindOutcome::Known;
        }
        if only_known {
            return BindOutcome::Unknown;
        }
        if until.is_some() && known.until > 0 {
            self.withdraw(state, key);
            return self.bind(state, claim, now);
        }
        // Whoever has it is asked soon, and loses it by not answering.
        if known.asked == 0 && state.may_challenge(port, now) {
            state.heard.insert(key, Heard { asked: 1, ..known });
        }
        state.known_or_refused(false)
    }

    /// Binds an address that was not heard before, if the port has a place.
    fn bind(&self, state: &mut State, claim: Claim, now: u32) -> BindOutcome {
        let Claim { key, mac, port, until, .. } = claim;
        if self.shares.reserve(port.index()) != Reservation::Granted {
            state.counts.full += 1;
            return BindOutcome::Full;
        }
        if state.heard.len() >= self.limit {
            self.shares.cancel(port.index());
            return BindOutcome::Full;
        }
        state.counts.overruled += u64::from(state.owned(key).is_some_and(|owned| owned.mac != mac.0));
        let heard = Heard { mac, port: port.0, seen: now, until: until.unwrap_or(0), asked: 0 };
        state.heard.insert(key, heard);
        self.note(state, heard.binding(key), true);
        BindOutcome::Bound
    }

    /// Ends the lease of an address.
    pub fn release(&self, key: IpKey, mac: MacAddr) {
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.heard.get(&key).is_some_and(|heard| heard.mac == mac && heard.until > 0) {
            self.withdraw(&mut state, key);
        }
    }

    /// Withdraws bindings whose time is over, and has `ask` send a question to each station that must be
    /// asked now. A round begins in each second; a call looks at a part of the bindings. Returns whether
    /// the round goes on: then it must be called again soon. It never waits: if another thread has the
    /// table, the round goes on later.
    pub fn tick(&self, now: u32, mut ask: impl FnMut(&Binding)) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return true };
        let state = &mut *state;
        state.now = state.now.max(now);
        if state.round.left == 0 && state.round.since != Some(now) {
            state.round.begin(now, state.heard.len());
        }
        // Some may have gone meanwhile.
        let end = state.round.left.min(state.heard.len());
        state.round.left = end.saturating_sub(LOOKED_AT);
        // In this order, the one that takes the place of one that goes was looked at already.
        for at in (state.round.left..end).rev() {
            self.look(state, at, now, &mut ask);
        }
        state.round.left > 0
    }

    /// Looks at the binding at a place of those that were heard.
    fn look(&self, state: &mut State, at: usize, now: u32, ask: &mut impl FnMut(&Binding)) {
        let Some((&key, heard)) = state.heard.get_index_mut(at) else { return };
        let is_over = heard.until > 0 && now >= heard.until;
        let is_due = heard.asked > 0 || heard.until == 0 && now.saturating_sub(heard.seen) >= self.ageing;
        if is_over || is_due && heard.asked > MOST_QUESTIONS {
            self.withdraw(state, key);
        } else if is_due && state.round.takes_question(heard.port) {
            // The first step of a challenge is not a question yet.
            heard.asked = heard.asked.max(1) + 1;
            state.counts.asked += 1;
            ask(&heard.binding(key));
        }
    }

    fn withdraw(&self, state: &mut State, key: IpKey) {
        if let Some(heard) = state.heard.swap_remove(&key) {
            self.shares.release(heard.port.into());
            state.counts.withdrawn += 1;
            self.note(state, heard.binding(key), false);
        }
    }

    /// Binds an address for an owner. Returns `false` if another station has it: one of the configuration, one
    /// of another binding of an owner, or one that was heard here. In the last case the binding counts when
    /// that one goes.
    pub fn set_owned(&self, key: IpKey, mac: MacAddr, port: PortIndex) -> bool {
        let mut state = self.lock();
        let fixed = state.statics.get(&key).copied();
        let owned = state.owned(key).map(|owned| MacAddr(owned.mac));
        if fixed.or(owned).is_some_and(|other| other != mac) {
            state.counts.elsewhere += 1;
            return false;
        }
        if fixed.is_some() {
            return true;
        }
        state.put(key, Some(Fixed { mac: mac.0, port: port.0 }));
        let Some(heard) = state.heard.get_mut(&key) else { return true };
        if heard.mac != mac {
            state.counts.elsewhere += 1;
            return false;
        }
        // The station has gone elsewhere, says the owner. It is asked whether it is still here.
        if heard.port != port.0 {
            heard.asked = heard.asked.max(1);
        }
        true
    }

    /// Ends the binding of an owner, if it is that of this station.
    pub fn remove_owned(&self, key: IpKey, mac: MacAddr) {
        let mut state = self.lock();
        if state.owned(key).is_some_and(|fixed| fixed.mac == mac.0) {
            state.put(key, None);
            self.bind_deferred(&mut state, key, mac);
        }
    }

    /// Binds an address that its owner has given up to the same station at the port where it was heard
    /// last: it has moved here, and a server says so only once.
    fn bind_deferred(&self, state: &mut State, key: IpKey, mac: MacAddr) {
        let Some(at) = state.deferred.iter().position(|(claim, _)| claim.key == key && claim.mac == mac) else {
            return;
        };
        let (claim, heard) = state.deferred.swap_remove(at);
        let is_recent = state.now.saturating_sub(heard) < DEFERRED_S;
        if is_recent && !state.heard.contains_key(&key) {
            self.bind(state, claim, heard);
        }
    }

    /// Returns all bindings.
    pub fn entries(&self) -> Vec<Binding> {
        let state = self.lock();
        let statics = state.statics.keys().filter_map(|key| state.find(*key));
        let owned = state.v4.keys().map(|key| unpacked(*key)).chain(state.v6.keys().copied());
        // What was heard here stands in front of an owner's.
        let owned = owned.filter(|key| !state.heard.contains_key(key)).filter_map(|key| state.find(key));
        let heard = state.heard.iter().map(|(key, heard)| heard.binding(*key));
        statics.chain(owned).chain(heard).collect()
    }

    /// Returns the bindings of the configuration, and those that a DHCP server has told.
    pub fn told(&self) -> Vec<Binding> {
        let state = self.lock();
        let statics = state.statics.keys().filter_map(|key| state.find(*key));
        let leases = state.heard.iter().filter(|(_, heard)| heard.until > 0);
        statics.chain(leases.map(|(key, heard)| heard.binding(*key))).collect()
    }

    /// Returns the number of changes of [`Self::told`] so far.
    pub fn lease_changes(&self) -> u64 {
        self.lease_changes.load(Ordering::Acquire)
    }

    /// Returns the number of bindings, of claims and of questions.
    pub fn counts(&self) -> BindingCounts {
        let state = self.lock();
        BindingCounts { bound: state.heard.len() as u64, ..state.counts }
    }

    /// Returns a port's share of the bindings that are heard.
    pub fn share(&self, port: PortIndex) -> Share {
        self.shares.get(port.index())
    }

    /// Keeps changes from now on. Returns the number of those so far.
    pub fn follow(&self) -> u64 {
        let mut state = self.lock();
        state.journal.begin();
        state.journal.count()
    }

    /// Returns the changes after the first `since` ones, and the number of all. `None`: some of them are
    /// not kept any more.
    pub fn changes(&self, since: u64) -> Option<(Vec<BindingChange>, u64)> {
        if self.changes.load(Ordering::Acquire) == since {
            return Some((Vec::new(), since));
        }
        let state = self.lock();
        Some((state.journal.after(since)?, state.journal.count()))
    }

    fn note(&self, state: &mut State, binding: Binding, is_bound: bool) {
        if matches!(binding.source, BindingSource::Leased { .. }) {
            self.lease_changes.fetch_add(1, Ordering::Release);
        }
        state.journal.add(BindingChange { binding, is_bound });
        self.changes.store(state.journal.count(), Ordering::Release);
    }
}

/// Returns the key of an address of version 4 among those of owners.
fn packed(key: IpKey) -> Option<u64> {
    match key.ip {
        IpAddr::V4(ip) => Some(u64::from(key.vlan.get()) << 32 | u64::from(ip.to_bits())),
        IpAddr::V6(_) => None,
    }
}

fn unpacked(key: u64) -> IpKey {
    let [_, _, _, _, a, b, c, d] = key.to_be_bytes();
    let vlan = u16::try_from(key >> 32).ok().and_then(VlanId::new).unwrap_or_default();
    IpKey { vlan, ip: [a, b, c, d].into() }
}

impl State {
    fn owned(&self, key: IpKey) -> Option<Fixed> {
        match packed(key) {
            Some(packed) => self.v4.get(&packed),
            None => self.v6.get(&key),
        }
        .copied()
    }

    fn put(&mut self, key: IpKey, fixed: Option<Fixed>) {
        match (packed(key), fixed) {
            (Some(packed), Some(fixed)) => drop(self.v4.insert(packed, fixed)),
            (Some(packed), None) => drop(self.v4.remove(&packed)),
            (None, Some(fixed)) => drop(self.v6.insert(key, fixed)),
            (None, None) => drop(self.v6.remove(&key)),
        }
    }

    /// Returns the binding that counts.
    fn find(&self, key: IpKey) -> Option<Binding> {
        let binding = |mac, port, source| Binding { key, mac, port, source, seen: 0, asked: 0 };
        if let Some(mac) = self.statics.get(&key) {
            return Some(binding(*mac, None, BindingSource::Static));
        }
        if let Some(heard) = self.heard.get(&key) {
            return Some(heard.binding(key));
        }
        let Fixed { mac, port } = self.owned(key)?;
        let port = Some(PortIndex(port)).filter(|port| port.0 != NO_PORT);
        Some(binding(MacAddr(mac), port, BindingSource::Owner))
    }

    /// Remembers a claim, until the owner gives up the address.
    fn defer(&mut self, claim: Claim, now: u32) {
        self.deferred.retain(|(known, seen)| known.key != claim.key && now.saturating_sub(*seen) < DEFERRED_S);
        if self.deferred.len() < MOST_DEFERRED {
            self.deferred.push((claim, now));
        }
    }

    fn known_or_refused(&mut self, is_known: bool) -> BindOutcome {
        if is_known {
            return BindOutcome::Known;
        }
        self.counts.elsewhere += 1;
        BindOutcome::Elsewhere
    }

    /// Returns whether a claim of this port may make the table ask whoever has the address.
    fn may_challenge(&mut self, port: PortIndex, now: u32) -> bool {
        let Some((second, count)) = self.challenges.get_mut(port.index()) else { return false };
        if *second != now {
            (*second, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= MOST_CHALLENGES
    }
}

#[cfg(test)]
mod tests;
