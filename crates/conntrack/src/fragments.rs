//! Fragments: the datagrams of a port whose first fragment was allowed, and whose others may come.
//!
//! Only the first fragment of a datagram has the transport header. So it decides, and the others follow
//! it; they pass if they fit. What the receiver puts together is then what was checked:
//!
//! | refused | because |
//! |---|---|
//! | a first fragment without the whole transport header | a later one could hold what the policy asks for |
//! | a fragment that overlaps another one | the receiver might take the bytes of either (RFC 5722, RFC 3128) |
//! | a fragment whose first one was not seen, or not allowed | nobody knows what it belongs to |
//! | a fragment beyond the end, or beyond 65 535 bytes | no datagram has it |
//!
//! The places are in sets of eight, and the hash of a key names a set. So a search takes a bounded time.
//! A sender has half of a set's places. If it takes more, its own oldest datagram makes place. In a full
//! set, the oldest one makes place of the sender that has most, if it has at least two more than the new
//! one. So every sender gets a place, and keeps it, as long as a set has no more than eight senders.

use crate::handle::Entry;
use crate::key::{KEY_WORDS, Side};
use crate::settings::{deadline, has_come};

/// Places of a set.
const SET: usize = 8;

/// Places of a set that one sender may have.
const EACH_SENDER: usize = SET / 2;

/// Ranges of a datagram that may stand alone. Fragments in their order need one.
const RANGES: usize = 6;

/// The greatest datagram.
const MOST: u32 = 65_535;

/// Bytes of a unit of offsets (RFC 791, section 3.1).
const UNIT: u32 = 8;

/// A fragment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Side that sent it.
    pub sender: Side,
    /// Number of its sender, if that is remote: a sending port, or a prefix. Otherwise 0.
    pub opener: u16,
    /// Offset in the datagram, in bytes.
    pub offset: u32,
    /// Number of bytes.
    pub len: u32,
    /// No fragment lies behind it.
    pub is_last: bool,
}

/// The reason why a fragment is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BadFragment {
    /// The first fragment has not the whole transport header.
    Tiny,
    /// No first fragment was seen and allowed, or it is too long ago, or it found no place.
    Unknown,
    /// It overlaps another fragment, or repeats it.
    Overlap,
    /// It lies beyond the end of the datagram, or beyond 65 535 bytes.
    Beyond,
    /// It has no bytes, or another one lies behind it and its length is no multiple of 8.
    Length,
    /// The fragments come in too wild an order.
    Order,
}

/// Number of reasons in [`BadFragment`].
pub(crate) const BAD: usize = 6;

impl BadFragment {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; BAD] = [Self::Tiny, Self::Unknown, Self::Overlap, Self::Beyond, Self::Length, Self::Order];

    /// Returns the name of the reason.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Unknown => "no-first",
            Self::Overlap => "overlap",
            Self::Beyond => "beyond",
            Self::Length => "length",
            Self::Order => "order",
        }
    }
}

/// The datagrams of one direction of a port.
pub(crate) struct Fragments {
    places: Box<[Option<Datagram>]>,
    /// Datagrams that were removed for a newer one of the same sender, or of a sender with fewer.
    pub(crate) evicted: u64,
}

#[derive(Clone, Copy)]
struct Datagram {
    key: [u64; KEY_WORDS],
    /// The connection; none while nobody has opened it.
    entry: Option<Entry>,
    opener: u16,
    expires: u32,
    covered: Covered,
}

/// The parts of a datagram that have come.
#[derive(Clone, Copy, Default)]
struct Covered {
    /// Ranges of units: the first unit, and the one behind the last. No range touches another.
    ranges: [[u16; 2]; RANGES],
    count: u8,
    /// Bytes of the datagram; 0 if its last fragment has not come.
    total: u32,
}

impl Fragments {
    /// Creates places for about this number of datagrams.
    pub(crate) fn new(datagrams: u32) -> Self {
        let sets = (datagrams as usize).div_ceil(SET).next_power_of_two();
        Fragments { places: vec![None; sets * SET].into(), evicted: 0 }
    }

    /// Notes the first fragment of a datagram, which belongs to this connection, or to none so far.
    pub(crate) fn begin(
        &mut self,
        key: &[u64; KEY_WORDS],
        hash: u64,
        fragment: &Fragment,
        entry: Option<Entry>,
        [now, timeout]: [u32; 2],
    ) -> Result<(), BadFragment> {
        let mut covered = Covered::default();
        covered.add(fragment)?;
        if fragment.offset != 0 {
            return Err(BadFragment::Unknown);
        }
        let set = self.set(hash);
        if live(set, key, now).is_some() {
            // The receiver may still have parts of the datagram before.
            return Err(BadFragment::Overlap);
        }
        if covered.is_whole() {
            return Ok(());
        }
        let at = place_for(set, fragment.opener, now).ok_or(BadFragment::Unknown)?;
        let place = &mut set[at];
        let evicts = place.is_some();
        *place = Some(Datagram { key: *key, entry, opener: fragment.opener, expires: deadline(now, timeout), covered });
        self.evicted += u64::from(evicts);
        Ok(())
    }

    /// Notes the connection of a datagram that belonged to none.
    pub(crate) fn join(&mut self, key: &[u64; KEY_WORDS], hash: u64, entry: Entry, now: u32) {
        if let Some(Some(datagram)) = live(self.set(hash), key, now) {
            datagram.entry = Some(entry);
        }
    }

    /// Returns the connection of a further fragment; none if its datagram belongs to none so far.
    pub(crate) fn go_on(
        &mut self,
        key: &[u64; KEY_WORDS],
        hash: u64,
        fragment: &Fragment,
        now: u32,
    ) -> Result<Option<Entry>, BadFragment> {
        let place = live(self.set(hash), key, now).ok_or(BadFragment::Unknown)?;
        let Some(datagram) = place else { return Err(BadFragment::Unknown) };
        datagram.covered.add(fragment)?;
        let entry = datagram.entry;
        if datagram.covered.is_whole() {
            *place = None;
        }
        Ok(entry)
    }

    fn set(&mut self, hash: u64) -> &mut [Option<Datagram>] {
        let sets = self.places.len() / SET;
        let set = usize::try_from(hash & u64::from(u32::MAX)).unwrap_or(0) % sets;
        &mut self.places[set * SET..][..SET]
    }
}

/// Returns the place for a datagram of this sender. In a full set, another datagram gives its place up.
fn place_for(set: &[Option<Datagram>], opener: u16, now: u32) -> Option<usize> {
    let count = |opener: u16| set.iter().flatten().filter(|other| other.opener == opener).count();
    let oldest_of = |opener: u16| {
        let age = |other: &Datagram| now.wrapping_sub(other.expires).wrapping_add(1 << 31);
        let of_sender = set.iter().enumerate().filter_map(|(at, place)| Some((at, (*place)?)));
        let oldest = of_sender.filter(|(_, other)| other.opener == opener).max_by_key(|(_, other)| age(other));
        oldest.map(|(at, _)| at)
    };
    let own = count(opener);
    if own >= EACH_SENDER {
        return oldest_of(opener);
    }
    if let Some(free) = set.iter().position(Option::is_none) {
        return Some(free);
    }
    let greatest = set.iter().flatten().map(|other| other.opener).max_by_key(|other| count(*other))?;
    oldest_of(if count(greatest) > own + 1 { greatest } else { opener })
}

/// Returns the place of a datagram. Those whose time is over become free.
fn live<'p>(set: &'p mut [Option<Datagram>], key: &[u64; KEY_WORDS], now: u32) -> Option<&'p mut Option<Datagram>> {
    for place in &mut *set {
        if place.is_some_and(|datagram| has_come(datagram.expires, now)) {
            *place = None;
        }
    }
    set.iter_mut().find(|place| place.is_some_and(|datagram| datagram.key == *key))
}

impl Covered {
    /// Adds a fragment, if it fits.
    fn add(&mut self, fragment: &Fragment) -> Result<(), BadFragment> {
        let Fragment { offset, len, is_last, .. } = *fragment;
        if len == 0 || offset % UNIT != 0 || !is_last && len % UNIT != 0 {
            return Err(BadFragment::Length);
        }
        let end = offset.checked_add(len).filter(|end| *end <= MOST).ok_or(BadFragment::Beyond)?;
        let unit = |byte: u32| u16::try_from(byte.div_ceil(UNIT)).map_err(|_| BadFragment::Beyond);
        let mut range = [unit(offset)?, unit(end)?];
        let known = &self.ranges[..usize::from(self.count)];
        if known.iter().any(|[first, behind]| *first < range[1] && range[0] < *behind) {
            return Err(BadFragment::Overlap);
        }
        let is_beyond_end = self.total != 0 && (is_last || end > self.total);
        let has_more = is_last && known.iter().any(|[_, behind]| *behind > range[1]);
        if is_beyond_end || has_more {
            return Err(BadFragment::Beyond);
        }
        // Ranges that touch become one.
        let mut joined = *self;
        joined.count = 0;
        for other in known {
            if other[1] == range[0] {
                range[0] = other[0];
            } else if other[0] == range[1] {
                range[1] = other[1];
            } else {
                joined.push(*other)?;
            }
        }
        joined.push(range)?;
        if is_last {
            joined.total = end;
        }
        *self = joined;
        Ok(())
    }

    fn push(&mut self, range: [u16; 2]) -> Result<(), BadFragment> {
        let place = self.ranges.get_mut(usize::from(self.count)).ok_or(BadFragment::Order)?;
        *place = range;
        self.count += 1;
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.total != 0 && self.count == 1 && self.ranges[0][0] == 0
    }
}

#[cfg(test)]
mod tests;
