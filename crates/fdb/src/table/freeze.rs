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
//!    series of moves keeps its beginning, whatever the windows of the count.
//! 3. A freeze does not end the comparison. A port of a higher rank than all ports before takes the
//!    station, which is frozen there from then on. Otherwise two ports could agree on a place before the
//!    station is heard at its own port.
//!
//! In a loop, the frames of a station behind an ordinary port come back by two uplinks. Both have the
//! same rank, so the station stays where it is, and the frames that come back are refused.
//!
//! A series begins anew when the station has settled: it was heard at its place long after the last
//! move. Among ports of equal rank, that is the time of ageing. After so long a silence, the place before
//! would be forgotten anyway. So nobody becomes the first by a claim while the station is silent.
//!
//! A station that was first at a port of lower rank is in doubt. If it is silent at its place for
//! [`FREEZE`] seconds, the freeze ends early: the frames there were echoes, and they have ended. Then the
//! station is as good as new, and is learned where it is heard next.
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
//! # Ports without space
//!
//! A station does not move to a port that has filled its share. If that port has no higher rank, the
//! station stays where it is, and the move counts as any other. So a full port takes nobody's place from the
//! table. If the station is silent at its place, it may have moved, and its place is forgotten.
//!
//! # Where the state is
//!
//! The moves of each station are beside its slot, so no number of moving stations displaces the counts
//! of others. A frozen station has a mark in its slot, which readers need no lock for:
//!
//! ```text
//! | 1 | highest rank: 2 | end of the freeze, second modulo 2^13: 13 | uplinks of refused frames: 16 |
//! ```
//!
//! The mark may be read wrongly two hours after a freeze, for some seconds, by a station that was
//! silent all the time. Writers know the whole time, and correct the mark.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Fdb, OWNED, STATIC, Writer};
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

/// Seconds after the last move from which on a station has settled, if its place has another rank than
/// the first one. Among equal ranks, it is the time of ageing, if that is longer.
const SETTLED: u32 = 2 * WINDOW;

/// Seconds for which a refused frame keeps its station frozen.
const FREEZE: u32 = 10;

/// Number of freezes that are kept until they are asked for.
const KEPT: usize = 16;

/// Bit of a mark: the station is frozen.
const IS_FROZEN: u32 = 1 << 31;

/// Bits of a second in a mark.
const SECOND: u32 = (1 << 13) - 1;

/// The place of the highest rank in a mark.
const RANK_SHIFT: u32 = 29;

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

/// The verdict of a freeze on a frame from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreezeVerdict {
    /// The station is not frozen.
    None,
    /// The frame is refused, and the freeze goes on.
    Refused,
    /// The station is silent where it was frozen. It is as good as new.
    Silent,
    /// The port of the frame has a higher rank than all before.
    Outranked,
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
    /// The second of the last move.
    last: u32,
    moves: u16,
    /// Several ports have the highest rank.
    is_tied: bool,
    is_frozen: bool,
    /// The station is frozen, and the freeze ends if it is silent at its place.
    is_in_doubt: bool,
    /// The station stayed where it was at the last move, because the other port had no space.
    is_without_space: bool,
}

impl Series {
    fn of([places, rest]: [u64; 2]) -> Self {
        let [first_high, first_low, best_high, best_low, since @ ..] = places.to_be_bytes();
        let [last_0, last_1, last_2, last_3, _, moves_high, moves_low, flags] = rest.to_be_bytes();
        Series {
            first: u16::from_be_bytes([first_high, first_low]),
            best: u16::from_be_bytes([best_high, best_low]),
            since: u32::from_be_bytes(since),
            last: u32::from_be_bytes([last_0, last_1, last_2, last_3]),
            moves: u16::from_be_bytes([moves_high, moves_low]),
            is_tied: flags & 1 != 0,
            is_frozen: flags & 2 != 0,
            is_in_doubt: flags & 4 != 0,
            is_without_space: flags & 8 != 0,
        }
    }

    fn words(self) -> [u64; 2] {
        let places = u64::from(self.first) << 48 | u64::from(self.best) << 32 | u64::from(self.since);
        let flags = [self.is_tied, self.is_frozen, self.is_in_doubt, self.is_without_space];
        let flags = flags.into_iter().rev().fold(0, |bits, flag| bits << 1 | u64::from(flag));
        [places, u64::from(self.last) << 32 | u64::from(self.moves) << 8 | flags]
    }

    /// Counts a move from the place `from`. Begins a window of the count before, or a series, if it is time.
    fn count(&mut self, from: u16, has_settled: bool, now: u32) {
        if self.moves == 0 || has_settled {
            *self = Series { first: from, best: from, since: now, ..Series::default() };
        } else if now.saturating_sub(self.since) >= WINDOW {
            self.since = now;
            self.moves = 0;
        }
        self.moves = self.moves.saturating_add(1);
        self.last = now;
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

/// Returns the rank that a port must exceed to take the station of a mark, as a number.
#[inline]
fn rank_of(mark: u32) -> u32 {
    mark >> RANK_SHIFT & 3
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
        let Some((found, ranks)) = self.stations.find(station).zip(self.ranks.as_ref()) else { return false };
        let mark = found.frozen();
        lasts(mark, now) && self.port_of(found) != port && ranks.rank(station, port) as u32 <= rank_of(mark)
    }

    /// Returns whether a frame from `port`, where the station is not, is refused, and changes nothing: such a
    /// frame was refused in this second already. It takes no lock.
    #[inline]
    pub(super) fn is_refused(&self, (key, station): (Station, Found<'_>), port: P, now: u32) -> bool {
        let mark = station.frozen();
        let is_known = |ranks: &Arc<dyn PlaceRanks<P>>| {
            ranks.uplink_bit(port) & !uplinks_of(mark) == 0 && ranks.rank(key, port) as u32 <= rank_of(mark)
        };
        is_renewed(mark, now) && self.ranks.as_ref().is_some_and(is_known)
    }

    /// Returns the verdict of a station's freeze on a frame from `port`, where the station is not. Forgets a
    /// freeze that has ended. The caller holds the lock.
    pub(super) fn judge(
        &self,
        writer: &mut Writer<P>,
        (key, station): (Station, Found<'_>),
        port: P,
        now: u32,
    ) -> FreezeVerdict {
        let Some(ranks) = self.ranks.as_ref().filter(|_| station.frozen() != 0) else { return FreezeVerdict::None };
        let mut series = writer.freezes.get(station.slot());
        if !series.is_frozen || now.saturating_sub(series.since) >= FREEZE {
            writer.freezes.clear(station);
            return FreezeVerdict::None;
        }
        if series.is_in_doubt && now.saturating_sub(station.seen()) >= FREEZE {
            writer.freezes.clear(station);
            return FreezeVerdict::Silent;
        }
        if ranks.rank(key, port) as u32 > rank_of(station.frozen()) {
            return FreezeVerdict::Outranked;
        }
        series.since = series.since.max(now);
        let uplinks = uplinks_of(station.frozen()) | ranks.uplink_bit(port);
        self.mark(writer, (key, station), series, uplinks);
        FreezeVerdict::Refused
    }

    /// Freezes a station, which is frozen elsewhere, at a port of a higher rank, to which it moves. The caller
    /// holds the lock.
    pub(super) fn refreeze(&self, writer: &mut Writer<P>, (key, station): (Station, Found<'_>), port: P, now: u32) {
        let from = self.port_of(station);
        let mut series = writer.freezes.get(station.slot());
        series.best = port.index();
        series.is_tied = false;
        series.is_in_doubt = true;
        series.since = series.since.max(now);
        let bit = |port| self.ranks.as_ref().map_or(0, |ranks| ranks.uplink_bit(port));
        let uplinks = (uplinks_of(station.frozen()) | bit(from)) & !bit(port);
        self.mark(writer, (key, station), series, uplinks);
        self.note_freeze(writer, FdbFreeze { station: key, home: port, at: from });
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
    fn mark(&self, writer: &mut Writer<P>, (key, station): (Station, Found<'_>), series: Series, uplinks: u16) {
        let rank = match station.seen() {
            STATIC => PlaceRank::Checked,
            // An owner's word is between a source check and an uplink.
            OWNED => PlaceRank::Uplink,
            _ => self.rank(key, P::from_index(series.best)),
        };
        let end = series.since.wrapping_add(FREEZE) & SECOND;
        station.set_frozen(IS_FROZEN | (rank as u32) << RANK_SHIFT | end << 16 | u32::from(uplinks));
        writer.freezes.set(station.slot(), series);
    }

    fn rank(&self, key: Station, port: P) -> PlaceRank {
        self.ranks.as_ref().map_or(PlaceRank::Ordinary, |ranks| ranks.rank(key, port))
    }

    /// Returns whether a learned station is heard at its place, so that a port without space takes nothing
    /// from it. A port of a higher rank does. The caller holds the lock.
    pub(super) fn stays(&self, (key, station): (Station, Found<'_>), to: P, now: u32) -> bool {
        let is_heard = now.saturating_sub(station.seen()) < FREEZE;
        self.ranks.is_some() && is_heard && self.rank(key, to) <= self.rank(key, self.port_of(station))
    }

    /// Counts a move of a station that was learned. Returns `None` if it moves, and the place where it is
    /// frozen if it has moved too often. `share` is the port that has reserved the station's place in the
    /// table: the new port, or the old one if the new one has no space. The caller holds the lock.
    pub(super) fn freezes_at(
        &self,
        writer: &mut Writer<P>,
        (key, station): (Station, Found<'_>),
        to: P,
        share: P,
        now: u32,
    ) -> Option<P> {
        let ranks = self.ranks.as_ref()?;
        let from = self.port_of(station);
        let rank = |port: u16| ranks.rank(key, P::from_index(port));
        let mut series = writer.freezes.get(station.slot());
        let is_equal = rank(series.first) == rank(from.index());
        let settled = if is_equal { self.ageing.max(SETTLED) } else { SETTLED };
        series.count(from.index(), station.seen().saturating_sub(series.last) >= settled, now);
        match rank(to.index()).cmp(&rank(series.best)) {
            Ordering::Greater => {
                series.best = to.index();
                series.is_tied = false;
            }
            Ordering::Equal if to.index() != series.best => series.is_tied = true,
            Ordering::Equal | Ordering::Less => {}
        }
        let was_without_space = series.is_without_space;
        series.is_without_space = share != to;
        writer.freezes.set(station.slot(), series);
        if series.moves <= MOST_MOVES {
            return None;
        }
        let is_first_best = rank(series.first) == rank(series.best);
        let place = P::from_index(if series.is_tied || is_first_best { series.first } else { series.best });
        if !self.relocate(writer, (key, station), share, place) {
            return None;
        }
        series.is_frozen = true;
        series.is_in_doubt = !is_first_best || was_without_space;
        series.since = now;
        let elsewhere = if place == to { from } else { to };
        let uplinks = [from, to].into_iter().filter(|port| *port != place);
        let uplinks = uplinks.fold(0, |bits, port| bits | ranks.uplink_bit(port));
        self.mark(writer, (key, station), series, uplinks);
        self.note_freeze(writer, FdbFreeze { station: key, home: place, at: elsewhere });
        Some(place)
    }

    /// Moves a station's reserved place from a port's share to another one's. Returns `false` if that has no
    /// space: then nothing changes. The caller holds the lock.
    pub(super) fn transfer(&self, from: P, to: P) -> bool {
        if from == to {
            return true;
        }
        self.shares.release(from.index().into());
        let is_granted = self.shares.reserve(to.index().into()) == Reservation::Granted;
        if !is_granted {
            // The place that was just released is free, because writers wait for this one.
            let _ = self.shares.reserve(from.index().into());
        }
        is_granted
    }

    /// Has a station stay at `place`, where it was. `share` has its place in the table. Returns `false` if
    /// `place` has no space.
    fn relocate(&self, writer: &mut Writer<P>, (key, station): (Station, Found<'_>), share: P, place: P) -> bool {
        let from = self.port_of(station);
        let is_granted = self.transfer(share, place);
        // The new place of a station is told by the caller.
        if is_granted && from != place && share != place {
            self.stations.set_port(station, place.index());
            self.note(writer, key, place.index(), FdbChangeKind::Moved { from: from.index() });
        }
        is_granted
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
        if self.is_refused((key, station), port, now) {
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
        if self.judge(&mut writer, (key, station), port, now) == FreezeVerdict::Refused {
            return LearnOutcome::Frozen;
        }
        let mut series = writer.freezes.get(station.slot());
        let before = series.best;
        let is_in_window = series.moves != 0 && now.saturating_sub(series.since) < WINDOW;
        if !is_in_window || before != port.index() {
            series.count(port.index(), false, now);
        }
        series.best = port.index();
        writer.freezes.set(station.slot(), series);
        if series.moves <= MOST_MOVES {
            return LearnOutcome::Fixed;
        }
        series.is_frozen = true;
        series.since = now;
        let uplinks = ranks.uplink_bit(port) | ranks.uplink_bit(P::from_index(before));
        self.mark(&mut writer, (key, station), series, uplinks);
        self.note_freeze(&mut writer, FdbFreeze { station: key, home: self.port_of(station), at: port });
        LearnOutcome::Frozen
    }

    /// Takes over the moves of the stations that this table has taken over at the same places, and the
    /// freezes that nobody has asked for. The moves of a station whose ports have other ranks now are
    /// forgotten. So are the uplinks of marks, because their bits may have other meanings.
    pub(super) fn take_over_freezes(&self, before: &Self) {
        let Some((ranks, old_ranks)) = self.ranks.as_ref().zip(before.ranks.as_ref()) else { return };
        let mut old = before.lock();
        let mut new = self.lock();
        for station in before.stations.all() {
            let series = old.freezes.get(station.slot());
            let key = before.stations.key(station);
            let place = before.port_of(station);
            let keeps_rank = |port: P| ranks.rank(key, port) == old_ranks.rank(key, port);
            let stays = |port: u16| self.shares.is_member(port.into()) && keeps_rank(P::from_index(port));
            if series.moves == 0 || !stays(series.first) || !stays(series.best) || !keeps_rank(place) {
                continue;
            }
            if let Some(same) = self.stations.find(key).filter(|same| self.port_of(*same) == place) {
                same.set_frozen(station.frozen() & !u32::from(u16::MAX));
                new.freezes.set(same.slot(), series);
            }
        }
        new.freezes.news.append(&mut old.freezes.news);
        self.frozen.store(before.frozen(), Relaxed);
    }
}

#[cfg(test)]
mod tests;
