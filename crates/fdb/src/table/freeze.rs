//! Frozen stations: an address that moves again and again stays at one place.
//!
//! A station that moves is a machine that migrates, or a pair of routers that take turns. A station that
//! moves more than [`MOST_MOVES`] times in [`WINDOW`] seconds is a loop, or somebody claims its address.
//! Then its place is *frozen*: it moves no more, and its frames from other ports are refused
//! ([`LearnOutcome::Frozen`]). The freeze ends [`FREEZE`] seconds after the last refused frame.
//!
//! # The place
//!
//! 1. Ports have ranks for a station ([`PlaceRank`]). It stays at the port of the highest rank among
//!    those where it was in this series of moves.
//! 2. If several ports have that rank, it stays where it was before the first of these moves. So a
//!    series of moves keeps its beginning while moves go on, whatever the windows of the count.
//!
//! In a loop, the frames of a station behind an ordinary port come back by two uplinks. Both have the
//! same rank, so the station stays where it is, and the frames that come back are refused.
//!
//! A station that was first at a port of lower rank is frozen at another one. If it is silent there for
//! [`FREEZE`] seconds, the freeze ends early: the frames there were echoes, and they have ended.
//!
//! # Stations behind a loop
//!
//! Two uplinks may lead to one network. A flood of a station there comes in by both. The copy by the other
//! uplink is refused. But the copy by the station's own uplink leaves by the other one, and comes back by
//! the station's own: no frame is from elsewhere. So floods of a station that is frozen at an uplink do
//! not leave by the uplinks from which its frames were refused ([`Fdb::echoes`]).
//!
//! # Fixed stations
//!
//! A station of the configuration or of an owner has its place already. Frames of it from elsewhere pass,
//! and nothing is learned. They come from one port if the station migrates before its owner says so. In a
//! loop they come by several ports in turn. Each change counts as a move, and freezes as above. A port with the
//! rank [`PlaceRank::Checked`] has more right to a station than its owner's word.
//!
//! # Where the state is
//!
//! The moves of each station are beside its slot, so no number of moving stations displaces the counts
//! of others. A frozen station has a mark in its slot, which readers need no lock for:
//!
//! ```text
//! | 1 | end of the freeze, second modulo 2^15: 15 | uplinks of refused frames: 16 |
//! ```
//!
//! The mark may be read wrongly nine hours after a freeze, for some seconds, by a station that was
//! silent all the time. Writers know the whole time, and correct the mark.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Fdb, OWNED, Writer};
use crate::journal::FdbChangeKind;
use crate::port::FdbPort;
use crate::shares::Reservation;
use crate::slots::{Found, Slots};
use crate::sync::Ordering::Relaxed;
use crate::table::LearnOutcome;
use crate::word::Station;

/// The most moves of a station in a window. Each of them passes at once.
const MOST_MOVES: u16 = 10;

/// Seconds in which moves are counted.
const WINDOW: u32 = 10;

/// Seconds for which a refused frame keeps its station frozen.
const FREEZE: u32 = 10;

/// Number of freezes that are kept until they are asked for.
const KEPT: usize = 16;

/// Bit of a mark: the station is frozen.
const IS_FROZEN: u32 = 1 << 31;

/// Bits of a second in a mark.
const SECOND: u32 = (1 << 15) - 1;

/// The rank of a port as the place of a station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlaceRank {
    /// Any port.
    #[default]
    Ordinary,
    /// A port that leads to other networks.
    Uplink,
    /// A port whose source check allows the address.
    Checked,
}

/// The ranks of ports.
pub trait PlaceRanks<P>: Send + Sync {
    /// Returns the rank of a port as the place of a station.
    fn rank(&self, station: Station, port: P) -> PlaceRank;

    /// Returns the bit of an uplink, one of 16; 0 for other ports, and for uplinks beyond 16.
    fn uplink_bit(&self, port: P) -> u16;
}

/// A station that was frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbFreeze<P> {
    /// The station.
    pub station: Station,
    /// The port where it stays.
    pub home: P,
    /// The other port where it appeared.
    pub at: P,
}

/// The freezes of a table.
pub(super) struct Freezes<P> {
    /// The moves of the station in each slot. Memory that was never written costs nothing.
    series: Vec<[u64; 2]>,
    /// The freezes that nobody has asked for.
    news: Vec<FdbFreeze<P>>,
}

/// The moves of a station; 0 moves if it has not moved lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Series {
    /// The port where the station was before the first move.
    first: u16,
    /// The port of the highest rank so far. Of a fixed station: the port of the last frame.
    best: u16,
    /// The second in which the window of the count began. Of a frozen station: that of the last refused
    /// frame.
    since: u32,
    moves: u16,
    /// Several ports have the highest rank.
    is_tied: bool,
    is_frozen: bool,
    /// The station was first at a port of lower rank than the one where it is frozen.
    is_by_rank: bool,
}

impl Series {
    fn of([places, rest]: [u64; 2]) -> Self {
        let [first_high, first_low, best_high, best_low, since @ ..] = places.to_be_bytes();
        let [.., moves_high, moves_low, flags] = rest.to_be_bytes();
        Series {
            first: u16::from_be_bytes([first_high, first_low]),
            best: u16::from_be_bytes([best_high, best_low]),
            since: u32::from_be_bytes(since),
            moves: u16::from_be_bytes([moves_high, moves_low]),
            is_tied: flags & 1 != 0,
            is_frozen: flags & 2 != 0,
            is_by_rank: flags & 4 != 0,
        }
    }

    fn words(self) -> [u64; 2] {
        let places = u64::from(self.first) << 48 | u64::from(self.best) << 32 | u64::from(self.since);
        let flags = u64::from(self.is_tied) | u64::from(self.is_frozen) << 1 | u64::from(self.is_by_rank) << 2;
        [places, u64::from(self.moves) << 8 | flags]
    }

    /// Begins a window of the count, or a series, if it is time. `from` is the place of the station.
    fn begin(&mut self, from: u16, now: u32) {
        let age = now.saturating_sub(self.since);
        if self.moves == 0 || age >= 2 * WINDOW {
            *self = Series { first: from, best: from, since: now, ..Series::default() };
        } else if age >= WINDOW {
            self.since = now;
            self.moves = 0;
        }
    }
}

/// Returns whether a mark says that a refused frame came in this second. Clocks of workers differ by less
/// than one.
#[inline]
fn is_renewed(mark: u32, now: u32) -> bool {
    mark & IS_FROZEN != 0 && (mark >> 16).wrapping_sub(now.wrapping_add(FREEZE)) & SECOND <= 1
}

/// Returns whether the freeze of a mark lasts.
fn lasts(mark: u32, now: u32) -> bool {
    let left = (mark >> 16).wrapping_sub(now) & SECOND;
    mark & IS_FROZEN != 0 && (1..=FREEZE + 1).contains(&left)
}

/// Returns the uplinks of a mark.
#[expect(clippy::cast_possible_truncation, reason = "they are the lower 16 bits")]
fn uplinks_of(mark: u32) -> u16 {
    mark as u16
}

impl<P: FdbPort> Freezes<P> {
    pub(super) fn none() -> Self {
        Freezes { series: Vec::new(), news: Vec::new() }
    }

    fn new(slots: usize) -> Self {
        Freezes { series: vec![[0; 2]; slots], news: Vec::with_capacity(KEPT) }
    }

    fn get(&self, slot: usize) -> Series {
        self.series.get(slot).map_or(Series::default(), |words| Series::of(*words))
    }

    fn set(&mut self, slot: usize, series: Series) {
        if let Some(words) = self.series.get_mut(slot) {
            *words = series.words();
        }
    }

    /// Forgets the moves of a station.
    fn clear(&mut self, station: Found<'_>) {
        // Words that were never written stay so.
        if station.frozen() != 0 || self.get(station.slot()).moves != 0 {
            station.set_frozen(0);
            self.set(station.slot(), Series::default());
        }
    }

    /// Removes a station from the slots. The moves of others follow them.
    pub(super) fn remove(&mut self, stations: &Slots, station: Found<'_>) {
        if self.series.is_empty() {
            stations.remove(station, |_, _| ());
            return;
        }
        let series = &mut self.series;
        let free = stations.remove(station, |from, to| {
            if series[from] != series[to] {
                series[to] = series[from];
            }
        });
        if series[free] != [0; 2] {
            series[free] = [0; 2];
        }
    }
}

impl<P: FdbPort> Fdb<P> {
    /// Freezes stations that move again and again, by these ranks of ports.
    #[must_use]
    pub fn with_freezes(mut self, ranks: Arc<dyn PlaceRanks<P>>) -> Self {
        self.lock().freezes = Freezes::new(self.stations.len());
        self.ranks = Some(ranks);
        self
    }

    /// Returns the number of times that a station was frozen.
    pub fn frozen(&self) -> u64 {
        self.frozen.load(Relaxed)
    }

    /// Returns the freezes since the last call, as far as they are kept.
    pub fn freezes(&self) -> Vec<FdbFreeze<P>> {
        self.lock().freezes.news.drain(..).collect()
    }

    /// Returns the bits of the uplinks by which floods of a station do not leave: it is behind an uplink, and
    /// its frames came back from there.
    pub fn echoes(&self, station: Station, now: u32) -> u16 {
        let Some((found, ranks)) = self.stations.find(station).zip(self.ranks.as_ref()) else { return 0 };
        let is_behind_uplink = || ranks.uplink_bit(self.port_of(found)) != 0;
        if lasts(found.frozen(), now) && is_behind_uplink() { uplinks_of(found.frozen()) } else { 0 }
    }

    /// Returns whether a station is frozen at another port, so that its frames from `port` are refused.
    pub fn refuses(&self, station: Station, port: P, now: u32) -> bool {
        self.stations.find(station).is_some_and(|found| lasts(found.frozen(), now) && self.port_of(found) != port)
    }

    /// Returns whether a frame from `port`, where the station is not, is refused, and changes nothing: such a
    /// frame was refused in this second already. It takes no lock.
    #[inline]
    pub(super) fn is_refused(&self, station: Found<'_>, port: P, now: u32) -> bool {
        let mark = station.frozen();
        let has_uplink = || self.ranks.as_ref().is_some_and(|ranks| ranks.uplink_bit(port) & !uplinks_of(mark) == 0);
        is_renewed(mark, now) && has_uplink()
    }

    /// Returns whether a frame of the station from `port`, where it is not, is refused because the station is
    /// frozen. Then the freeze goes on. Forgets a freeze that has ended. The caller holds the lock.
    pub(super) fn renews(&self, writer: &mut Writer<P>, station: Found<'_>, port: P, now: u32) -> bool {
        let Some(ranks) = self.ranks.as_ref().filter(|_| station.frozen() != 0) else { return false };
        let mut series = writer.freezes.get(station.slot());
        let is_silent = series.is_by_rank && now.saturating_sub(station.seen()) >= FREEZE;
        if !series.is_frozen || now.saturating_sub(series.since) >= FREEZE || is_silent {
            writer.freezes.clear(station);
            return false;
        }
        series.since = series.since.max(now);
        let uplinks = uplinks_of(station.frozen()) | ranks.uplink_bit(port);
        Self::mark(writer, station, series, uplinks);
        true
    }

    /// Forgets the freeze of a station that was heard at its place, if it has ended, so that its mark is
    /// never read hours later. The caller holds the lock.
    pub(super) fn thaw(&self, writer: &mut Writer<P>, station: Found<'_>, now: u32) {
        if station.frozen() != 0 && now.saturating_sub(writer.freezes.get(station.slot()).since) >= FREEZE {
            writer.freezes.clear(station);
        }
    }

    /// Forgets the moves of a station. The caller holds the lock.
    pub(super) fn forget_moves(writer: &mut Writer<P>, station: Found<'_>) {
        writer.freezes.clear(station);
    }

    /// Writes the state of a frozen station.
    fn mark(writer: &mut Writer<P>, station: Found<'_>, series: Series, uplinks: u16) {
        let end = series.since.wrapping_add(FREEZE) & SECOND;
        station.set_frozen(IS_FROZEN | end << 16 | u32::from(uplinks));
        writer.freezes.set(station.slot(), series);
    }

    /// Counts a move of a station that was learned. Returns `None` if it moves, and the place where it is
    /// frozen if it has moved too often. The caller holds the lock.
    pub(super) fn freezes_at(
        &self,
        writer: &mut Writer<P>,
        (key, station): (Station, Found<'_>),
        to: P,
        now: u32,
    ) -> Option<P> {
        let ranks = self.ranks.as_ref()?;
        let from = self.port_of(station);
        let mut series = writer.freezes.get(station.slot());
        series.begin(from.index(), now);
        series.moves += 1;
        let rank = |port: u16| ranks.rank(key, P::from_index(port));
        match rank(to.index()).cmp(&rank(series.best)) {
            Ordering::Greater => {
                series.best = to.index();
                series.is_tied = false;
            }
            Ordering::Equal if to.index() != series.best => series.is_tied = true,
            Ordering::Equal | Ordering::Less => {}
        }
        writer.freezes.set(station.slot(), series);
        if series.moves <= MOST_MOVES {
            return None;
        }
        let stays_first = series.is_tied || rank(series.first) == rank(series.best);
        let place = P::from_index(if stays_first { series.first } else { series.best });
        let place = if place == to || self.relocate(writer, (key, station), place) { place } else { from };
        series.is_frozen = true;
        series.is_by_rank = place.index() != series.first && rank(place.index()) > rank(series.first);
        series.since = now;
        let elsewhere = if place == to { from } else { to };
        let uplinks = [from, to].into_iter().filter(|port| *port != place);
        let uplinks = uplinks.fold(0, |bits, port| bits | ranks.uplink_bit(port));
        Self::mark(writer, station, series, uplinks);
        self.note_freeze(writer, FdbFreeze { station: key, home: place, at: elsewhere });
        Some(place)
    }

    /// Moves a station back to a place where it was. Returns `false` if that has no space: then it stays.
    fn relocate(&self, writer: &mut Writer<P>, (key, station): (Station, Found<'_>), place: P) -> bool {
        let from = self.port_of(station);
        if from == place {
            return true;
        }
        self.shares.release(from.index().into());
        if self.shares.reserve(place.index().into()) != Reservation::Granted {
            // The place that was just released is free, because writers wait for this one.
            let _ = self.shares.reserve(from.index().into());
            return false;
        }
        self.stations.set_port(station, place.index());
        self.note(writer, key, place.index(), FdbChangeKind::Moved { from: from.index() });
        true
    }

    fn note_freeze(&self, writer: &mut Writer<P>, freeze: FdbFreeze<P>) {
        self.frozen.fetch_add(1, Relaxed);
        if writer.freezes.news.len() < KEPT {
            writer.freezes.news.push(freeze);
        }
    }

    /// Counts a frame of a fixed station from another port. A row of frames from one port takes the lock once
    /// a second.
    #[cold]
    #[inline(never)]
    pub(super) fn contest(&self, (key, station): (Station, Found<'_>), port: P, now: u32) -> LearnOutcome<P> {
        let Some(ranks) = &self.ranks else { return LearnOutcome::Fixed };
        if station.seen() == OWNED && ranks.rank(key, port) == PlaceRank::Checked {
            return LearnOutcome::Fixed;
        }
        if self.is_refused(station, port, now) {
            return LearnOutcome::Frozen;
        }
        let number = key.number() ^ u64::from(port.index()) << 48 ^ u64::from(now) << 20;
        if self.contested.swap(number, Relaxed) == number {
            return LearnOutcome::Fixed;
        }
        let mut writer = self.lock();
        let Some(station) = self.stations.find(key).filter(|station| station.seen() >= OWNED) else {
            return LearnOutcome::Fixed;
        };
        if self.port_of(station) == port {
            return LearnOutcome::Fixed;
        }
        if self.renews(&mut writer, station, port, now) {
            return LearnOutcome::Frozen;
        }
        let mut series = writer.freezes.get(station.slot());
        let before = series.best;
        series.begin(port.index(), now);
        if series.moves == 0 || before != port.index() {
            series.moves += 1;
        }
        series.best = port.index();
        writer.freezes.set(station.slot(), series);
        if series.moves <= MOST_MOVES {
            return LearnOutcome::Fixed;
        }
        series.is_frozen = true;
        series.since = now;
        let uplinks = ranks.uplink_bit(port) | ranks.uplink_bit(P::from_index(before));
        Self::mark(&mut writer, station, series, uplinks);
        self.note_freeze(&mut writer, FdbFreeze { station: key, home: self.port_of(station), at: port });
        LearnOutcome::Frozen
    }

    /// Takes over the moves of the stations that this table has taken over at the same places, and the
    /// freezes that nobody has asked for.
    pub(super) fn take_over_freezes(&self, before: &Self) {
        if self.ranks.is_none() || before.ranks.is_none() {
            return;
        }
        let mut old = before.lock();
        let mut new = self.lock();
        for station in before.stations.all() {
            let series = old.freezes.get(station.slot());
            let is_member = |port: u16| self.shares.is_member(port.into());
            if series.moves == 0 || !is_member(series.first) || !is_member(series.best) {
                continue;
            }
            let same = self.stations.find(before.stations.key(station));
            if let Some(same) = same.filter(|same| self.port_of(*same) == before.port_of(station)) {
                same.set_frozen(station.frozen());
                new.freezes.set(same.slot(), series);
            }
        }
        new.freezes.news.append(&mut old.freezes.news);
        self.frozen.store(before.frozen(), Relaxed);
    }
}

#[cfg(test)]
mod tests;
