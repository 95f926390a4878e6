//! The ports that listen to each group, with their timers.
//!
//! A key is a group in a VLAN, or the queriers of a protocol there. It has members: ports, each until a
//! second of the workers' clocks. Queriers are ports with a multicast router behind them.
//!
//! - **Lookups** take no lock (`store.rs`).
//! - **Changes** hold the lock: reports, queries and the sweep. Reports are rare. A guest that floods them
//!   takes the lock once for each.
//! - **Shares.** Each membership takes one place of its port's share ([`Shares`]). A port whose share is
//!   full, or whose report cannot be read, gets all groups until its reports would have expired. So a
//!   guest harms itself only: it gets more than it wants, and no other port gets less or more.

use std::iter;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use foldhash::fast::RandomState;
use straightline_fdb::{Reservation, Share, Shares, WhenFull};
use straightline_packet::{IgnorePoison, PortIndex};

use super::edge_set::{self, EdgeSet, place};
use super::key::GroupKey;
use super::store::{Read, Store};
use super::timing::{LAST_MEMBER, NEVER, Timing};

/// Number of memberships in a table of few ports.
const LIMIT: usize = 4096;

/// Number of memberships for each port in a table of many ports.
const LIMIT_OF_PORT: usize = 64;

/// Number of keys that one step of a sweep looks at.
const SWEPT: usize = 64;

/// A change that a report asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A host listens.
    Join,
    /// A host of version 1 listens. Such hosts leave without a word.
    JoinV1,
    /// A host has left. Others behind the same port may still listen: the querier asks them.
    Leave,
}

/// A port that listens to a group, or that a querier is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub(super) key: GroupKey,
    pub(super) edge: usize,
    /// Second at which it is forgotten.
    pub(super) until: u32,
}

/// The table of a bridge. Its workers share it.
pub(super) struct Groups {
    /// The port of each edge.
    ports: Vec<PortIndex>,
    store: Store<RandomState>,
    shares: Shares,
    /// The edges that get all groups.
    all_groups: Box<[AtomicU64]>,
    /// The second of the last whole sweep. The clocks of workers differ by less than a second, so it may be
    /// ahead of some.
    swept: AtomicU32,
    writer: Mutex<Writer>,
}

/// State of the writer that holds the lock. It has cache lines that readers do not read.
#[derive(Default)]
#[repr(align(128))]
struct Writer {
    /// The state of each entry of the store, by its index; `None` if it is free.
    entries: Vec<Option<Entry>>,
    /// The indexes of free entries.
    free: Vec<usize>,
    /// The second until which each edge gets all groups.
    all_until: Vec<u32>,
    /// The entry where the next step of the sweep begins.
    sweep_at: usize,
}

/// A key with its members.
struct Entry {
    key: GroupKey,
    /// The members, by their edges.
    members: Vec<Member>,
    /// For queriers: what their queries have set.
    queried: Option<Queried>,
}

/// The state that general queries have set.
#[derive(Clone, Copy)]
struct Queried {
    /// The times of the last query.
    timing: Timing,
    /// Second from which hosts have had the time to answer.
    settled: u32,
    /// Second until which queries are expected.
    until: u32,
}

#[derive(Clone, Copy)]
struct Member {
    edge: usize,
    until: u32,
    /// Second until which a host of version 1 is believed to listen.
    v1_until: u32,
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups")
            .field("ports", &self.ports)
            .field("used", &self.shares.total().used)
            .finish_non_exhaustive()
    }
}

impl Groups {
    /// Creates an empty table for a bridge of these ports, in the order of its edges.
    pub(super) fn new(ports: Vec<PortIndex>) -> Self {
        let limit = LIMIT.max(ports.len() * LIMIT_OF_PORT);
        Self::with_limit(ports, limit)
    }

    /// Creates an empty table for at most `limit` memberships.
    pub(super) fn with_limit(ports: Vec<PortIndex>, limit: usize) -> Self {
        let words = edge_set::words(ports.len());
        let writer = Writer { all_until: vec![0; ports.len()], ..Writer::default() };
        Groups {
            store: Store::new(limit, words, RandomState::default()),
            shares: Shares::new(limit, ports.iter().map(|port| port.index()), WhenFull::Refuse),
            all_groups: iter::repeat_with(AtomicU64::default).take(words).collect(),
            swept: AtomicU32::new(0),
            writer: Mutex::new(writer),
            ports,
        }
    }

    /// Returns the ports, in the order of their edges.
    pub(super) fn ports(&self) -> &[PortIndex] {
        &self.ports
    }

    /// Returns an empty set for [`Self::outputs`].
    pub(super) fn set(&self) -> EdgeSet {
        EdgeSet::new(self.ports.len())
    }

    /// Returns a port's share of the table.
    pub(super) fn share(&self, port: PortIndex) -> Share {
        self.shares.get(port.index())
    }

    /// Returns the sum of all shares.
    pub(super) fn total(&self) -> Share {
        self.shares.total()
    }

    /// Finds the edges for a packet to a group: those of its members, of queriers, and of ports that get
    /// all groups. Returns `false` if they are all edges: no querier is known, or hosts have not yet had
    /// the time to answer it. `scratch` is of the same size as `outputs`.
    // RFC 4541, 2.1.2: packets to unregistered groups go to the routers only.
    #[inline]
    pub(super) fn outputs(&self, key: GroupKey, now: u32, outputs: &mut EdgeSet, scratch: &mut EdgeSet) -> bool {
        let is_settled = match self.store.read(key.queriers().words(), outputs.words_mut()) {
            Read::Found(since) => now >= since,
            Read::Absent | Read::Busy => false,
        };
        if !is_settled {
            return false;
        }
        match self.store.read(key.words(), scratch.words_mut()) {
            Read::Found(_) => outputs.add(scratch.words()),
            Read::Absent => {}
            Read::Busy => return false,
        }
        outputs.add(self.all_groups.iter().map(|word| word.load(Ordering::Relaxed)));
        true
    }

    /// Finds the edges for a report: those of queriers. A host that hears the report of another one keeps
    /// silent, and the bridge would not learn of it. Returns `false` if they are all edges: no querier is
    /// known.
    // RFC 4541, 2.1.1, 1: reports go to the routers only.
    pub(super) fn report_outputs(&self, queriers: GroupKey, outputs: &mut EdgeSet) -> bool {
        matches!(self.store.read(queriers.words(), outputs.words_mut()), Read::Found(since) if since != NEVER)
    }

    /// Makes the changes of a report that came from `edge`. All keys are of the VLAN and the protocol of
    /// `queriers`.
    pub(super) fn report(
        &self,
        queriers: GroupKey,
        edge: usize,
        now: u32,
        changes: impl Iterator<Item = (GroupKey, Change)>,
    ) {
        let mut writer = self.lock();
        let known = self.store.find(queriers.words()).and_then(|at| writer.entry(at)?.queried);
        let timing = known.map_or_else(Timing::default, |queried| queried.timing);
        for (key, change) in changes {
            match change {
                Change::Join => self.add(&mut writer, key, edge, now, timing.membership, false),
                Change::JoinV1 => self.add(&mut writer, key, edge, now, timing.membership, true),
                Change::Leave => self.leave(&mut writer, key, edge, now),
            }
        }
    }

    /// Notes a general query that came from `edge`.
    pub(super) fn query(&self, queriers: GroupKey, edge: usize, now: u32, timing: Timing) {
        let mut writer = self.lock();
        self.add(&mut writer, queriers, edge, now, timing.querier, false);
        let Some(at) = self.store.find(queriers.words()) else { return };
        let Some(entry) = writer.entry_mut(at) else { return };
        // Until hosts had the time to answer, packets go to all ports. A query with an endless response
        // time does not delay this for those that follow.
        let settled = now.saturating_add(timing.response);
        let until = now.saturating_add(timing.querier);
        let before = entry.queried.unwrap_or(Queried { timing, settled, until });
        let queried = Queried { timing, settled: settled.min(before.settled), until: until.max(before.until) };
        entry.queried = Some(queried);
        self.store.set_since(at, queried.settled);
    }

    /// Notes that a router is behind `edge` which announces itself without a query.
    pub(super) fn hello(&self, queriers: GroupKey, edge: usize, now: u32) {
        self.add(&mut self.lock(), queriers, edge, now, Timing::default().querier, false);
    }

    /// Has `edge` get all groups, because the table does not know its groups.
    pub(super) fn send_all(&self, edge: usize, now: u32) {
        self.send_all_until(&mut self.lock(), edge, now.saturating_add(Timing::default().membership));
    }

    fn send_all_until(&self, writer: &mut Writer, edge: usize, until: u32) {
        if let Some(before) = writer.all_until.get_mut(edge) {
            *before = until.max(*before);
            let (word, bit) = place(edge);
            self.all_groups[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Adds a member for `secs` seconds, or lets it stay longer.
    fn add(&self, writer: &mut Writer, key: GroupKey, edge: usize, now: u32, secs: u32, is_v1: bool) {
        let until = now.saturating_add(secs);
        let v1_until = if is_v1 { until } else { 0 };
        self.add_member(writer, key, Member { edge, until, v1_until });
    }

    /// Adds a member, or merges it with the one of its edge. If the port's share is full, the port gets
    /// all groups instead.
    fn add_member(&self, writer: &mut Writer, key: GroupKey, member: Member) {
        let Some(port) = self.ports.get(member.edge) else { return };
        let known = self.store.find(key.words());
        let member_at = known.and_then(|at| Some((at, writer.entry(at)?.member(member.edge).ok()?)));
        if let Some((at, member_at)) = member_at {
            if let Some(entry) = writer.entry_mut(at) {
                let before = &mut entry.members[member_at];
                before.until = before.until.max(member.until);
                before.v1_until = before.v1_until.max(member.v1_until);
            }
            return;
        }
        if self.shares.reserve(port.index()) != Reservation::Granted {
            return self.send_all_until(writer, member.edge, member.until);
        }
        let at = known.unwrap_or_else(|| {
            let at = writer.allocate(key);
            self.store.insert(at, key.words(), if key.is_queriers() { NEVER } else { 0 });
            at
        });
        if let Some(entry) = writer.entry_mut(at) {
            let member_at = entry.member(member.edge).unwrap_or_else(|place| place);
            entry.members.insert(member_at, member);
        }
        self.store.add_edge(at, place(member.edge));
    }

    /// Has a member go soon, unless a report comes from its port meanwhile.
    fn leave(&self, writer: &mut Writer, key: GroupKey, edge: usize, now: u32) {
        let Some(entry) = self.store.find(key.words()).and_then(|at| writer.entry_mut(at)) else { return };
        let Ok(at) = entry.member(edge) else { return };
        let member = &mut entry.members[at];
        // A host of version 1 does not answer a query for one group (RFC 2236, 5).
        if member.v1_until <= now {
            member.until = member.until.min(now.saturating_add(LAST_MEMBER));
        }
    }

    /// Does a step of the sweep, which forgets what has expired. Returns whether the whole table was
    /// swept in this second. Called with each batch, it costs one load when there is nothing to do. It
    /// never waits for the lock.
    #[inline]
    pub(super) fn sweep(&self, now: u32) -> bool {
        self.swept.load(Ordering::Relaxed) >= now || self.sweep_step(now)
    }

    #[inline(never)]
    fn sweep_step(&self, now: u32) -> bool {
        let Ok(mut writer) = self.writer.try_lock() else { return false };
        let end = writer.entries.len().min(writer.sweep_at + SWEPT);
        for at in writer.sweep_at..end {
            self.expire(&mut writer, at, now);
        }
        writer.sweep_at = end;
        if end < writer.entries.len() {
            return false;
        }
        writer.sweep_at = 0;
        for (edge, until) in writer.all_until.iter_mut().enumerate().filter(|(_, until)| **until <= now) {
            let (word, bit) = place(edge);
            *until = 0;
            self.all_groups[word].fetch_and(!bit, Ordering::Relaxed);
        }
        self.swept.store(now, Ordering::Relaxed);
        true
    }

    /// Removes the members of an entry that have expired, and the entry if none are left.
    fn expire(&self, writer: &mut Writer, at: usize, now: u32) {
        let Some(entry) = writer.entry_mut(at) else { return };
        entry.members.retain(|member| {
            let stays = member.until > now;
            if !stays {
                self.shares.release(self.ports[member.edge].index());
                self.store.remove_edge(at, place(member.edge));
            }
            stays
        });
        if entry.members.is_empty() {
            self.store.remove(entry.key.words());
            writer.release(at);
        } else if entry.queried.is_some_and(|queried| queried.until <= now) {
            // The routers that are left do not query, so memberships would expire.
            entry.queried = None;
            self.store.set_since(at, NEVER);
        }
    }

    /// Returns all memberships at `now`, in no order.
    pub(super) fn memberships(&self, now: u32) -> Vec<Membership> {
        let writer = self.lock();
        let entries = writer.entries.iter().flatten();
        let of_entry = |entry: &Entry| {
            let key = entry.key;
            let members = entry.members.clone().into_iter().filter(move |member| member.until > now);
            members.map(move |Member { edge, until, .. }| Membership { key, edge, until })
        };
        entries.flat_map(of_entry).collect()
    }

    /// Returns the edges that get all groups, with the second until which they do.
    pub(super) fn all_groups(&self, now: u32) -> Vec<(usize, u32)> {
        let writer = self.lock();
        let edges = writer.all_until.iter().copied().enumerate();
        edges.filter(|(_, until)| *until > now).collect()
    }

    /// Takes over what the table `before` knows of ports that are here too. No worker may use either
    /// table during the call, and this one knows nothing yet.
    pub(super) fn take_over(&self, before: &Self) {
        let known = before.lock();
        let mut writer = self.lock();
        let edge_of = |edge: usize| self.ports.iter().position(|port| *port == before.ports[edge]);
        for entry in known.entries.iter().flatten() {
            for member in &entry.members {
                if let Some(edge) = edge_of(member.edge) {
                    self.add_member(&mut writer, entry.key, Member { edge, ..*member });
                }
            }
            let Some(queried) = entry.queried else { continue };
            let Some(at) = self.store.find(entry.key.words()) else { continue };
            if let Some(entry) = writer.entry_mut(at) {
                entry.queried = Some(queried);
                self.store.set_since(at, queried.settled);
            }
        }
        for (edge, &until) in known.all_until.iter().enumerate() {
            if let Some(edge) = edge_of(edge).filter(|_| until > 0) {
                self.send_all_until(&mut writer, edge, until);
            }
        }
        // A membership that was not taken over does not count as a refusal.
        self.shares.continue_counts(&before.shares);
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().ignore_poison()
    }
}

impl Writer {
    fn entry(&self, at: usize) -> Option<&Entry> {
        self.entries.get(at)?.as_ref()
    }

    fn entry_mut(&mut self, at: usize) -> Option<&mut Entry> {
        self.entries.get_mut(at)?.as_mut()
    }

    /// Makes an entry without members. Each entry has a member that holds a place, so there are never
    /// more entries than places.
    fn allocate(&mut self, key: GroupKey) -> usize {
        let entry = Some(Entry { key, members: Vec::new(), queried: None });
        if let Some(at) = self.free.pop() {
            self.entries[at] = entry;
            return at;
        }
        self.entries.push(entry);
        self.entries.len() - 1
    }

    fn release(&mut self, at: usize) {
        self.entries[at] = None;
        self.free.push(at);
    }
}

impl Entry {
    /// Returns the place of an edge's member, or the place where it would be.
    fn member(&self, edge: usize) -> Result<usize, usize> {
        self.members.binary_search_by_key(&edge, |member| member.edge)
    }
}

#[cfg(test)]
mod tests;
