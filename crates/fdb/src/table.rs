//! The table: the port behind which each station is.
//!
//! All workers of a bridge or tunnel share one table. A station is a MAC address in a VLAN. `word.rs`
//! says how a station and its port fit into one word, and `slots/` where the words are. The hash is
//! seeded, because guests choose addresses.
//!
//! - **Readers** need no lock, and never take one station for another. While a writer moves a
//!   station, a reader may find it twice or not at all. The station may also look older or younger
//!   than it is. The bridge then floods a frame unnecessarily, or forwards by an entry that is about
//!   to be forgotten.
//! - **Writers** hold a lock, so a writer finds each entry exactly once.
//!
//! An entry has one of three origins. The configuration's hold whatever happens. An *owner's* (a client
//! of the API, see [`Fdb::set_owned`]) neither age nor move by learning, and have places of their own.
//! All others are learned.
//!
//! A station that was seen in the same second is not written again. So each known station costs
//! one use of the lock a second. Guests that invent addresses make all workers of their bridge wait
//! for the lock, for a few dozen nanoseconds each time.

mod changes;
mod freeze;
mod owners;

use std::sync::{Arc, Mutex, MutexGuard};

use foldhash::fast::RandomState;
use straightline_packet::{IgnorePoison, PortIndex};
use straightline_wire::{MacAddr, VlanId};

use crate::journal::{FdbChangeKind, Journal};
use crate::port::FdbPort;
use crate::shares::{Reservation, Share, Shares, WhenFull};
use crate::slots::{Found, Slots};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::word::Station;
pub use freeze::{FdbFreeze, PlaceRank, PlaceRanks};
use freeze::{FreezeVerdict, Freezes};
pub use owners::OwnOutcome;

/// Number of slots that [`Fdb::sweep`] looks at.
const SWEPT: usize = 8;

/// Time at which a static station was last seen: no other station has it, and no clock is ahead of
/// it.
const STATIC: u32 = u32::MAX;

/// Time at which a station of an owner was last seen.
const OWNED: u32 = u32::MAX - 1;

/// The latest time at which a station was seen.
const LATEST: u32 = u32::MAX - 2;

/// An entry of the table: a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry<P = PortIndex> {
    /// VLAN in which the station is.
    pub vlan: VlanId,
    /// Address of the station.
    pub mac: MacAddr,
    /// Port behind which the station is.
    pub port: P,
    /// Time at which the station was last seen, in seconds of the worker's clock.
    pub seen: u32,
    /// True if the configuration has the entry: it neither ages nor moves.
    pub is_static: bool,
    /// True if an owner has the entry: it does not age, and only its owner moves it.
    pub is_owned: bool,
}

/// An address that moved from one port to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbMove<P = PortIndex> {
    /// VLAN in which the station is.
    pub vlan: VlanId,
    /// Address of the station.
    pub mac: MacAddr,
    /// Port behind which the station was.
    pub from: P,
    /// Port behind which the station is now.
    pub to: P,
}

/// The number of moves that are kept until they are asked for.
const MOST_MOVES: usize = 16;

/// The outcome of learning an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnOutcome<P = PortIndex> {
    /// The address is known at this port.
    Known,
    /// The address is new.
    Learned,
    /// The address was at another port before: this one.
    Moved {
        /// The port.
        from: P,
    },
    /// The configuration or an owner fixes the address to another port.
    Fixed,
    /// The address is at another port, and stays there: as many addresses have moved to this one in this
    /// second as may ([`Fdb::with_move_limits`]).
    Held,
    /// The address has moved too often, and stays at another port for some seconds. Its frames from this
    /// one are to be dropped ([`Fdb::with_freezes`]).
    Frozen,
    /// The port has filled its share of the table (see [`Share`]). The address is known at no port, or stays
    /// at another one, where it is heard ([`Fdb::with_freezes`]).
    Full,
}

/// Places of a table beside those for learned stations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdbSpace {
    /// Number of stations that owners may have.
    pub owned: usize,
    /// Ports with indices below this number can be added later ([`Fdb::set_ports`]).
    pub ports: usize,
}

/// A forwarding database: learns the port of each address, and forgets addresses that age.
///
/// Workers share it, and read it without a lock.
pub struct Fdb<P = PortIndex> {
    stations: Slots,
    limit: usize,
    ageing: u32,
    shares: Shares,
    fixed: u32,
    /// Number of stations that owners may have.
    most_owned: u32,
    /// Number of stations that owners have.
    owned: AtomicU32,
    /// The number of moves so far.
    moves: AtomicU64,
    /// The number of moves that were held, and of claims that were not told.
    held: AtomicU64,
    /// Somebody follows the changes.
    is_followed: AtomicBool,
    /// The number of all changes.
    changes: AtomicU64,
    /// The last claim, as a number of it, so that a row of frames takes the lock once a second.
    claimed: AtomicU64,
    /// The ranks of ports. `None`: no station is frozen.
    ranks: Option<Arc<dyn PlaceRanks<P>>>,
    /// The number of freezes so far.
    frozen: AtomicU64,
    /// The last frame of a fixed station from elsewhere, as a number of it.
    contested: AtomicU64,
    writer: Mutex<Writer<P>>,
}

/// State of the writer that holds the lock. It has cache lines that readers do not read.
#[repr(align(128))]
struct Writer<P> {
    /// Slot where the next sweep begins.
    sweep_at: usize,
    /// The last moves: the move with number `n` is at `n % MOST_MOVES`.
    moves: [Option<FdbMove<P>>; MOST_MOVES],
    /// The limits of moves to a port, by the port's index.
    move_limits: Vec<PortLimit>,
    /// The limits of claims, by the port's index.
    claim_limits: Vec<PortLimit>,
    freezes: Freezes<P>,
    journal: Journal,
}

/// The moves to a port, or its claims, in a second.
#[derive(Clone, Copy, Debug, Default)]
struct PortLimit {
    /// `None`: any number.
    most: Option<u32>,
    second: u32,
    count: u32,
}

impl PortLimit {
    /// Counts one. Returns `false` if it is beyond the limit.
    fn take(&mut self, now: u32) -> bool {
        let Some(most) = self.most else { return true };
        if self.second != now {
            (self.second, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= most
    }
}

impl<P: FdbPort> std::fmt::Debug for Fdb<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fdb").field("limit", &self.limit).field("learned", &self.learned()).finish_non_exhaustive()
    }
}

/// Returns the place of a move with this number.
fn place(number: u64) -> usize {
    usize::try_from(number % MOST_MOVES as u64).unwrap_or(0)
}

impl<P: FdbPort> Fdb<P> {
    /// Creates a table for at most `limit` addresses that are learned at `ports`. An address is
    /// forgotten `ageing` seconds after it was last seen (at least 1). The entries in `fixed` are in the table
    /// from the start, and do not count towards the limit.
    pub fn new(limit: usize, ageing: u32, ports: &[P], fixed: &[(VlanId, MacAddr, P)]) -> Self {
        Self::with_space(limit, ageing, ports, fixed, FdbSpace::default())
    }

    /// Creates a table as [`Self::new`] does, with more places.
    pub fn with_space(limit: usize, ageing: u32, ports: &[P], fixed: &[(VlanId, MacAddr, P)], space: FdbSpace) -> Self {
        let indices = || ports.iter().map(|port| usize::from(port.index()));
        let all_ports = ports.iter().chain(fixed.iter().map(|(_, _, port)| port));
        let port_count = all_ports.map(|port| usize::from(port.index()) + 1).max().unwrap_or(0).max(space.ports);
        Fdb {
            stations: with_fixed(limit + fixed.len() + space.owned, port_count, fixed),
            limit,
            ageing: ageing.max(1),
            shares: Shares::with_space(limit, indices(), space.ports, WhenFull::Refuse),
            fixed: fixed.len().try_into().unwrap_or(u32::MAX),
            most_owned: space.owned.try_into().unwrap_or(u32::MAX),
            owned: AtomicU32::new(0),
            moves: AtomicU64::new(0),
            held: AtomicU64::new(0),
            is_followed: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            claimed: AtomicU64::new(u64::MAX),
            ranks: None,
            frozen: AtomicU64::new(0),
            contested: AtomicU64::new(u64::MAX),
            writer: Mutex::new(Writer {
                sweep_at: 0,
                moves: [None; MOST_MOVES],
                move_limits: Vec::new(),
                claim_limits: vec![changes::CLAIM_LIMIT; port_count],
                freezes: Freezes::none(),
                journal: Journal::default(),
            }),
        }
    }

    /// Limits the stations that move to each of these ports in a second. A station beyond the limit stays
    /// where it was.
    #[must_use]
    pub fn with_move_limits(self, limits: impl IntoIterator<Item = (P, u32)>) -> Self {
        let mut writer = self.lock();
        for (port, most) in limits {
            let at = usize::from(port.index());
            if writer.move_limits.len() <= at {
                writer.move_limits.resize(at + 1, PortLimit::default());
            }
            writer.move_limits[at].most = Some(most);
        }
        drop(writer);
        self
    }

    /// Divides the places anew among these ports, whose indices have space. Stations at other ports go,
    /// whoever has them, unless the configuration fixes them.
    pub fn set_ports(&self, ports: &[P]) {
        let mut writer = self.lock();
        let is_port = |index: usize| ports.iter().any(|port| usize::from(port.index()) == index);
        let gone: Vec<bool> =
            (0..self.shares.space()).map(|index| self.shares.is_member(index) && !is_port(index)).collect();
        let is_gone = |station: &Found<'_>| {
            let port = usize::from(self.stations.port(*station));
            station.seen() != STATIC && gone.get(port).is_some_and(|is_gone| *is_gone)
        };
        // Workers wait for the lock while they learn, so the table is not looked at for nothing.
        let mut at = if gone.contains(&true) { 0 } else { self.stations.len() };
        while at < self.stations.len() {
            match self.stations.get(at).filter(is_gone) {
                // Another station may have moved into this slot, so it is looked at again.
                Some(station) => self.forget(&mut writer, station),
                None => at += 1,
            }
        }
        self.shares.set_owners(ports.iter().map(|port| port.index().into()));
    }

    /// Limits the stations that are learned behind each of these ports.
    #[must_use]
    pub fn with_limits(mut self, limits: impl IntoIterator<Item = (P, u32)>) -> Self {
        for (port, most) in limits {
            self.shares = self.shares.with_most(port.index().into(), most);
        }
        self
    }

    /// Takes over what the table `before` has learned, with these settings. No worker may use either
    /// table during the call, and this one has learned nothing yet.
    ///
    /// An address is taken over if its port is one of this table's, if `keep` returns true, and if there
    /// is a place for it. Addresses that were seen last come first.
    pub fn take_over(&self, before: &Self, keep: impl Fn(&FdbEntry<P>) -> bool) {
        let mut known: Vec<FdbEntry<P>> = before.stations.all().map(|station| before.entry(station)).collect();
        let owned = known.iter().filter(|entry| entry.is_owned && keep(entry));
        for entry in owned {
            // A place that is missing now is no loss: the owner's list is elsewhere.
            let _ = self.set_owned(Station::new(entry.vlan, entry.mac), entry.port);
        }
        known.retain(|entry| {
            !entry.is_static && !entry.is_owned && self.shares.is_member(entry.port.index().into()) && keep(entry)
        });
        known.sort_by_key(|entry| std::cmp::Reverse(entry.seen));
        for entry in known {
            self.learn(Station::new(entry.vlan, entry.mac), entry.port, entry.seen);
        }
        // An address that was not taken over does not count as a refusal.
        self.shares.continue_counts(&before.shares);
        // Nor is an address that was taken over a move. Moves that nobody has asked for stay.
        self.moves.store(before.moves.load(Ordering::Relaxed), Ordering::Relaxed);
        let moves = before.lock().moves;
        self.lock().moves = moves;
        self.take_over_freezes(before);
    }

    /// Returns the number of times that an address moved from one port to another.
    pub fn moved(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Returns the moves after the first `since` ones, oldest first, as far as they are kept, and the
    /// number of all moves.
    pub fn moves(&self, since: u64) -> (Vec<FdbMove<P>>, u64) {
        let writer = self.lock();
        let count = self.moved();
        let first = since.max(count.saturating_sub(MOST_MOVES as u64));
        ((first..count).filter_map(|n| writer.moves[place(n)]).collect(), count)
    }

    /// Returns the number of addresses learned and not yet forgotten.
    pub fn learned(&self) -> u32 {
        self.shares.total().used
    }

    /// Returns the number of times that an address was not learned, because its port had no place
    /// left.
    pub fn full(&self) -> u64 {
        self.shares.total().refused
    }

    /// Returns a port's share of the table.
    pub fn share(&self, port: P) -> Share {
        self.shares.get(port.index().into())
    }

    /// Returns the ageing time: the seconds after which an address that was not seen again is
    /// forgotten.
    pub fn ageing(&self) -> u32 {
        self.ageing
    }

    /// Returns the port behind which a station is, if it is known at `now`.
    #[inline]
    pub fn lookup(&self, station: Station, now: u32) -> Option<P> {
        let found = self.stations.find(station)?;
        self.is_known(found, now).then(|| self.port_of(found))
    }

    /// Returns whether the table has so many stations that a lookup is likely to wait for the third cache or
    /// for memory.
    #[inline]
    pub fn has_many(&self) -> bool {
        self.stations.are_many()
    }

    /// Prefetches the places of stations that the caller will look up, if the table has many. Lookups one
    /// after the other would wait one by one: where a search ends depends on what it has read.
    #[inline]
    pub fn prefetch(&self, stations: impl Iterator<Item = Station>) {
        if self.has_many() {
            stations.for_each(|station| self.stations.prefetch(station));
        }
    }

    /// Learns that `station` is behind `port`, because a frame with this source came in there.
    #[inline]
    pub fn learn(&self, station: Station, port: P, now: u32) -> LearnOutcome<P> {
        if let Some(found) = self.stations.find(station) {
            let is_here = self.port_of(found) == port;
            let seen = found.seen();
            // The clocks of workers differ by less than a second. An entry's time never goes back.
            if is_here && seen >= now {
                return LearnOutcome::Known;
            }
            if seen >= OWNED {
                if seen == OWNED && self.is_followed.load(Ordering::Relaxed) {
                    self.claim(station, port, now);
                }
                return self.contest((station, found), port, now);
            }
            if !is_here && self.is_refused((station, found), port, now) {
                return LearnOutcome::Frozen;
            }
        }
        self.update(station, port, now)
    }

    /// Does the part of [`Self::learn`] that writes, with the lock held. It looks again, because
    /// another writer may have been faster.
    #[cold]
    #[inline(never)]
    fn update(&self, key: Station, port: P, now: u32) -> LearnOutcome<P> {
        let mut writer = self.lock();
        let Some(station) = self.stations.find(key) else { return self.add(&mut writer, key, port, now) };
        let before = self.port_of(station);
        let seen = station.seen();
        if seen >= OWNED {
            return if before == port { LearnOutcome::Known } else { LearnOutcome::Fixed };
        }
        if before == port {
            self.thaw(&mut writer, station, now);
            if seen < now {
                station.set_seen(now.min(LATEST));
            }
            return LearnOutcome::Known;
        }
        // A station that has aged is as good as new.
        let is_new = !self.is_known(station, now);
        let verdict = if is_new { FreezeVerdict::Silent } else { self.judge(&mut writer, (key, station), port, now) };
        if verdict == FreezeVerdict::Refused {
            return LearnOutcome::Frozen;
        }
        let limit = writer.move_limits.get_mut(usize::from(port.index())).filter(|_| !is_new);
        if limit.is_some_and(|limit| !limit.take(now)) {
            self.held.fetch_add(1, Ordering::Relaxed);
            return LearnOutcome::Held;
        }
        let has_space = self.transfer(before, port);
        if !has_space && (is_new || !self.stays((key, station), port, now)) {
            // The station has left its old port, so the old entry must go. Its refusal is counted.
            self.forget(&mut writer, station);
            return LearnOutcome::Full;
        }
        match verdict {
            FreezeVerdict::None => {
                let share = if has_space { port } else { before };
                let place = self.freezes_at(&mut writer, (key, station), port, share, now);
                if place.is_some_and(|place| place != port) {
                    return LearnOutcome::Frozen;
                }
            }
            FreezeVerdict::Outranked => self.refreeze(&mut writer, (key, station), port, now),
            FreezeVerdict::Silent | FreezeVerdict::Refused => Self::forget_moves(&mut writer, station),
        }
        if !has_space {
            return LearnOutcome::Full;
        }
        if seen < now {
            station.set_seen(now.min(LATEST));
        }
        self.stations.set_port(station, port.index());
        self.note(&mut writer, key, port.index(), FdbChangeKind::Moved { from: before.index() });
        let count = self.moves.load(Ordering::Relaxed);
        let moved = FdbMove { vlan: key.vlan(), mac: key.mac(), from: before, to: port };
        writer.moves[place(count)] = Some(moved);
        self.moves.store(count + 1, Ordering::Relaxed);
        LearnOutcome::Moved { from: before }
    }

    /// Adds a station that is not in the table. The caller holds the lock.
    fn add(&self, writer: &mut Writer<P>, key: Station, port: P, now: u32) -> LearnOutcome<P> {
        let owner = port.index().into();
        if self.shares.reserve(owner) != Reservation::Granted {
            return LearnOutcome::Full;
        }
        if !self.stations.insert(key, port.index(), now.min(LATEST)) {
            // All 64 slots are taken in which the station may be. That hardly ever happens: two
            // fifths of all slots are taken at most, and nobody knows the seed of the hash.
            self.shares.cancel(owner);
            return LearnOutcome::Full;
        }
        self.note(writer, key, port.index(), FdbChangeKind::Learned);
        LearnOutcome::Learned
    }

    /// Returns whether the configuration has a station.
    pub fn is_fixed(&self, station: Station) -> bool {
        self.stations.find(station).is_some_and(|found| found.seen() == STATIC)
    }

    /// Returns the number of moves and claims that were beyond the limit of their port.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Removes a station that the configuration does not fix. The caller holds the lock.
    fn forget(&self, writer: &mut Writer<P>, station: Found<'_>) {
        if station.seen() == OWNED {
            self.owned.fetch_sub(1, Ordering::Relaxed);
        } else {
            let port = self.stations.port(station);
            self.shares.release(port.into());
            self.note(writer, self.stations.key(station), port, FdbChangeKind::Forgotten);
        }
        writer.freezes.remove(&self.stations, station);
    }

    /// Sweeps the next eight slots: forgets the addresses that have aged.
    ///
    /// Called with every batch, it passes over the whole table again and again. It never delays a
    /// packet: if another thread holds the lock, it does nothing.
    pub fn sweep(&self, now: u32) {
        let Ok(mut writer) = self.writer.try_lock() else { return };
        for _ in 0..SWEPT {
            if let Some(station) = self.stations.get(writer.sweep_at).filter(|station| !self.is_known(*station, now)) {
                // Another station may have moved into this slot. The next pass checks that one.
                self.forget(&mut writer, station);
            }
            writer.sweep_at = self.stations.next(writer.sweep_at);
        }
    }

    /// Returns all stations known at `now`.
    pub fn entries(&self, now: u32) -> Vec<FdbEntry<P>> {
        let known = self.stations.all().filter(|station| self.is_known(*station, now));
        known.map(|station| self.entry(station)).collect()
    }

    /// Returns the number of entries that the configuration fixes.
    pub fn fixed(&self) -> u32 {
        self.fixed
    }

    fn lock(&self) -> MutexGuard<'_, Writer<P>> {
        self.writer.lock().ignore_poison()
    }

    #[inline]
    fn is_known(&self, station: Found<'_>, now: u32) -> bool {
        now.saturating_sub(station.seen()) < self.ageing
    }

    #[inline]
    fn port_of(&self, station: Found<'_>) -> P {
        P::from_index(self.stations.port(station))
    }

    fn entry(&self, station: Found<'_>) -> FdbEntry<P> {
        let key = self.stations.key(station);
        let seen = station.seen();
        let is_static = seen == STATIC;
        let is_owned = seen == OWNED;
        FdbEntry {
            vlan: key.vlan(),
            mac: key.mac(),
            port: self.port_of(station),
            seen: if is_static || is_owned { 0 } else { seen },
            is_static,
            is_owned,
        }
    }
}

/// Creates slots with the stations that the configuration fixes. Of several entries for a station,
/// the last one holds.
fn with_fixed<P: FdbPort>(count: usize, ports: usize, fixed: &[(VlanId, MacAddr, P)]) -> Slots {
    loop {
        let stations = Slots::new(count, ports, &RandomState::default());
        let all_fit = fixed.iter().all(|&(vlan, mac, port)| {
            let key = Station::new(vlan, mac);
            if let Some(before) = stations.find(key) {
                stations.set_port(before, port.index());
                return true;
            }
            stations.insert(key, port.index(), STATIC)
        });
        // Another seed spreads the stations in another way.
        if all_fit {
            return stations;
        }
    }
}

#[cfg(test)]
mod tests;
