//! VLAN tags (IEEE 802.1Q clause 9). A tag is four bytes between the source address and the type of
//! an Ethernet frame.
//!
//! ```text
//! | destination 6 | source 6 | TPID 2 | PCP 3 bits, DEI 1 bit, VID 12 bits | type 2 | ...
//! ```

use std::fmt;
use std::num::NonZero;
use std::ops::RangeInclusive;

use crate::WireError;
use crate::ethernet::{self, EtherType};
use crate::field::{cleared, put, u16_at};

/// Length of a tag, in bytes.
pub const LEN: usize = 4;

/// Offset of the first tag in a frame.
pub const OFFSET: usize = 12;

/// Bits of a tag's second half that are its VID.
const VID: u16 = 0xfff;

/// Maximum number of tags that [`skip`] skips: one of a provider, one of a customer.
pub const MAX_TAGS: usize = 2;

/// Maximum number of tags that [`skip_priority`] skips.
pub const MAX_PRIORITY_TAGS: usize = 4;

/// A VLAN that a station can be in: 1 to 4094. The VID 0 of a tag means that the frame has a
/// priority only, and 4095 is reserved (IEEE 802.1Q, table 9-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanId(NonZero<u16>);

impl VlanId {
    /// VLAN 1. Frames without a tag belong to it by default (IEEE 802.1Q, table 9-2).
    pub const DEFAULT: Self = Self(NonZero::<u16>::MIN);
    /// VLAN 4094.
    pub const MAX: Self = Self(NonZero::new(4094).unwrap());

    /// Returns the VLAN of a VID; `None` for 0 and for more than 4094.
    #[must_use]
    pub const fn new(vid: u16) -> Option<Self> {
        match NonZero::new(vid) {
            Some(id) if vid <= Self::MAX.get() => Some(Self(id)),
            _ => None,
        }
    }

    /// Returns the VID.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl Default for VlanId {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of VLANs.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet([u64; 64]);

impl VlanSet {
    /// The set without VLANs.
    pub const EMPTY: Self = Self([0; 64]);

    /// Returns whether the VLAN is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, id: VlanId) -> bool {
        let (word, bit) = Self::place(id);
        self.0[word] & bit != 0
    }

    /// Adds a VLAN. Returns `false` if it was in the set already.
    pub fn insert(&mut self, id: VlanId) -> bool {
        let (word, bit) = Self::place(id);
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// Returns whether there is no VLAN in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Returns the VLANs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        (1..=VlanId::MAX.get()).filter_map(VlanId::new).filter(|&id| self.contains(id))
    }

    /// Returns the ranges of VLANs that follow each other, in ascending order.
    #[must_use]
    pub fn ranges(&self) -> Vec<RangeInclusive<VlanId>> {
        let mut ranges: Vec<RangeInclusive<VlanId>> = Vec::new();
        for id in self.iter() {
            match ranges.last_mut() {
                Some(last) if last.end().get() + 1 == id.get() => *last = *last.start()..=id,
                _ => ranges.push(id..=id),
            }
        }
        ranges
    }

    #[inline]
    fn place(id: VlanId) -> (usize, u64) {
        (usize::from(id.get() / 64), 1 << (id.get() % 64))
    }
}

impl Extend<VlanId> for VlanSet {
    fn extend<I: IntoIterator<Item = VlanId>>(&mut self, ids: I) {
        ids.into_iter().for_each(|id| _ = self.insert(id));
    }
}

impl FromIterator<VlanId> for VlanSet {
    fn from_iter<I: IntoIterator<Item = VlanId>>(ids: I) -> Self {
        let mut set = Self::EMPTY;
        set.extend(ids);
        set
    }
}

/// Writes VLANs and ranges, as `10,20,100-199`.
impl fmt::Display for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, range) in self.ranges().into_iter().enumerate() {
            let comma = if nth > 0 { "," } else { "" };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Kind of the tag: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub tpid: EtherType,
    /// Priority, 0 to 7.
    pub pcp: u8,
    /// True if the frame may be dropped before others.
    pub dei: bool,
    /// VLAN, 0 to 4095. 0 means that the tag carries a priority only.
    pub vid: u16,
}

impl Tag {
    /// Reads the tag at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than four bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() < LEN {
            return Err(WireError::Truncated);
        }
        let [high, low] = u16_at(bytes, 2).to_be_bytes();
        Ok(Self {
            tpid: EtherType(u16_at(bytes, 0)),
            pcp: high >> 5,
            dei: high & 0x10 != 0,
            vid: u16::from_be_bytes([high & 0x0f, low]),
        })
    }

    /// Writes the tag to the beginning of `buffer` and returns its length. The caller writes the
    /// frame's type behind it.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than four bytes;
    /// [`WireError::BadValue`] if the priority or the VLAN is out of range.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        if self.pcp > 7 || self.vid > 0xfff {
            return Err(WireError::BadValue);
        }
        let bytes = cleared(buffer, LEN)?;
        let tci = u16::from(self.pcp) << 13 | u16::from(self.dei) << 12 | self.vid;
        put(bytes, 0, &self.tpid.0.to_be_bytes());
        put(bytes, 2, &tci.to_be_bytes());
        Ok(LEN)
    }
}

/// Tags of a frame, and the type and offset of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// Tags, outer tag first.
    pub tags: [Option<Tag>; MAX_TAGS],
    /// Type behind the last tag. In a frame with more than two tags it is the type of the third
    /// tag.
    pub ether_type: EtherType,
    /// Offset of the payload in the frame: 14, 18 or 22.
    pub payload: usize,
}

/// Skips the Ethernet header of `frame` and up to two tags of either kind.
///
/// # Errors
/// [`WireError::Truncated`] if `frame` ends before the type is known.
pub fn skip(frame: &[u8]) -> Result<Tags, WireError> {
    let mut ether_type = ethernet::Header::new_checked(frame)?.ether_type();
    let mut payload = ethernet::LEN;
    let mut tags = [None; MAX_TAGS];
    for tag in &mut tags {
        if !ether_type.is_vlan() {
            break;
        }
        if frame.len() < payload + LEN {
            return Err(WireError::Truncated);
        }
        *tag = Some(Tag::parse(&frame[payload - 2..])?);
        payload += LEN;
        ether_type = EtherType(u16_at(frame, payload - 2));
    }
    Ok(Tags { tags, ether_type, payload })
}

/// Skips the Ethernet header of `frame` and its priority tags: tags of either kind with VID 0, which name
/// no VLAN (IEEE 802.1Q, 6.9.1). Receivers take the frame for one without them. Returns the type behind
/// them, which may be that of a tag for a VLAN, and the offset of what follows.
///
/// # Errors
/// - [`WireError::Truncated`] if `frame` ends before the type is known, or within a tag.
/// - [`WireError::TooManyTags`] if there are more than [`MAX_PRIORITY_TAGS`]. Receivers differ in how many
///   they skip.
#[inline]
pub fn skip_priority(frame: &[u8]) -> Result<(EtherType, usize), WireError> {
    let ether_type = ethernet::Header::new_checked(frame)?.ether_type();
    if ether_type.is_vlan() { skip_priority_tags(frame) } else { Ok((ether_type, ethernet::LEN)) }
}

#[cold]
fn skip_priority_tags(frame: &[u8]) -> Result<(EtherType, usize), WireError> {
    let mut payload = ethernet::LEN;
    loop {
        let ether_type = EtherType(u16_at(frame, payload - 2));
        if !ether_type.is_vlan() {
            return Ok((ether_type, payload));
        }
        if frame.len() < payload + LEN {
            return Err(WireError::Truncated);
        }
        if u16_at(frame, payload) & VID != 0 {
            return Ok((ether_type, payload));
        }
        if payload == ethernet::LEN + MAX_PRIORITY_TAGS * LEN {
            return Err(WireError::TooManyTags);
        }
        payload += LEN;
    }
}

/// Skips the Ethernet header of `frame`, its priority tags as [`skip_priority`] does, and up to two tags
/// behind them as [`skip`] does. Returns the type behind them, and the offset of what follows.
///
/// # Errors
/// Those of both.
#[inline]
pub fn skip_all(frame: &[u8]) -> Result<(EtherType, usize), WireError> {
    let ether_type = ethernet::Header::new_checked(frame)?.ether_type();
    if ether_type.is_vlan() { skip_all_tags(frame) } else { Ok((ether_type, ethernet::LEN)) }
}

#[cold]
fn skip_all_tags(frame: &[u8]) -> Result<(EtherType, usize), WireError> {
    let (_, payload) = skip_priority_tags(frame)?;
    let priority_tags = payload - ethernet::LEN;
    let tags = skip(&frame[priority_tags..])?;
    Ok((tags.ether_type, priority_tags + tags.payload))
}

/// Returns whether a byte of `frame` is behind its Ethernet header and all tags, with every type that some
/// receiver takes for one. A byte within them is what decides the frame's way.
#[inline]
#[must_use]
pub fn is_behind_tags(frame: &[u8], at: usize) -> bool {
    let mut payload = ethernet::LEN;
    while payload <= at.min(frame.len()) {
        if !EtherType(u16_at(frame, payload - 2)).may_be_vlan() {
            return true;
        }
        payload += LEN;
    }
    false
}

/// Returns whether `frame` begins with two tags, as [`skip`] finds them. It reads nothing else.
#[inline]
#[must_use]
pub fn has_two_tags(frame: &[u8]) -> bool {
    let Some(front) = frame.first_chunk::<{ ethernet::LEN + 2 * LEN }>() else { return false };
    [OFFSET, OFFSET + LEN].into_iter().all(|at| EtherType(u16_at(front, at)).is_vlan())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSES: [u8; 12] = [9; 12];

    fn frame(rest: &[u8]) -> Vec<u8> {
        [&ADDRESSES, rest].concat()
    }

    #[test]
    fn two_tags_are_those_that_are_skipped() {
        let types = [[0x81, 0], [0x88, 0xa8], [8, 0]];
        for (first, second) in types.into_iter().flat_map(|first| types.map(|second| (first, second))) {
            let frame = frame(&[&first[..], &[0, 10], &second, &[0, 20], &[8, 0], &[1; 4]].concat());
            for len in 0..=frame.len() {
                let skipped = skip(&frame[..len]).is_ok_and(|tags| tags.tags.iter().all(Option::is_some));
                assert_eq!(has_two_tags(&frame[..len]), skipped, "{:x?}", &frame[..len]);
            }
        }
    }

    #[test]
    fn tags_are_skipped_up_to_two() {
        let plain = skip(&frame(&[8, 0])).unwrap();
        assert_eq!(plain, Tags { tags: [None; 2], ether_type: EtherType::IPV4, payload: 14 });

        let inner = Tag { tpid: EtherType::VLAN, pcp: 5, dei: true, vid: 0xabc };
        let one = skip(&frame(&[0x81, 0, 0xba, 0xbc, 8, 0])).unwrap();
        assert_eq!(one, Tags { tags: [Some(inner), None], ether_type: EtherType::IPV4, payload: 18 });

        let outer = Tag { tpid: EtherType::SERVICE_VLAN, pcp: 0, dei: false, vid: 1 };
        let two = skip(&frame(&[0x88, 0xa8, 0, 1, 0x81, 0, 0xba, 0xbc, 0x86, 0xdd])).unwrap();
        assert_eq!(two, Tags { tags: [Some(outer), Some(inner)], ether_type: EtherType::IPV6, payload: 22 });

        let three = skip(&frame(&[0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0])).unwrap();
        assert_eq!((three.ether_type, three.payload), (EtherType::VLAN, 22));
    }

    #[test]
    fn a_cut_tag_is_truncated() {
        let whole = frame(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0]);
        for len in 0..whole.len() {
            assert_eq!(skip(&whole[..len]), Err(WireError::Truncated), "{len}");
        }
        assert_eq!(Tag::parse(&[0x81, 0, 0]), Err(WireError::Truncated));
    }

    #[test]
    fn priority_tags_are_skipped_up_to_four() {
        let kinds = [&[0x81, 0, 0, 0][..], &[0x88, 0xa8, 0xf0, 0], &[0x81, 0, 0xe0, 0], &[0x88, 0xa8, 0, 0]];
        for count in 0..=4 {
            let stack = kinds[..count].concat();
            for rest in [&[8, 0][..], &[0x91, 0, 0, 0, 8, 0], &[0x81, 0, 0, 5, 8, 0], &[0x88, 0xa8, 0x1f, 0xff, 8, 0]] {
                let bytes = frame(&[&stack[..], rest, &[1; 4]].concat());
                let ether_type = EtherType(u16::from_be_bytes([rest[0], rest[1]]));
                let behind = 14 + 4 * count;
                assert_eq!(skip_priority(&bytes), Ok((ether_type, behind)), "{count} {rest:x?}");
                // A tag for a VLAN is whole, too.
                let least = if ether_type.is_vlan() { behind + 4 } else { behind };
                for len in 0..least {
                    assert_eq!(skip_priority(&bytes[..len]), Err(WireError::Truncated), "{count} {rest:x?} {len}");
                }
            }
        }
        let five = frame(&[&kinds.concat()[..], &[0x81, 0, 0, 0, 8, 0]].concat());
        assert_eq!(skip_priority(&five), Err(WireError::TooManyTags));
    }

    #[test]
    fn priority_tags_and_two_more_are_skipped() {
        let priority = [&[0x81, 0, 0, 0][..], &[0x88, 0xa8, 0xf0, 0], &[0x81, 0, 0xe0, 0], &[0x88, 0xa8, 0, 0]];
        let others = [&[0x88, 0xa8, 0, 5][..], &[0x81, 0, 0, 0]];
        for (before, behind) in (0..=4).flat_map(|before| (0..=2).map(move |behind| (before, behind))) {
            let stack = [&priority[..before], &others[..behind]].concat().concat();
            let bytes = frame(&[&stack[..], &[8, 0], &[1; 4]].concat());
            let payload = 14 + stack.len();
            assert_eq!(skip_all(&bytes), Ok((EtherType::IPV4, payload)), "{stack:x?}");
            for len in 0..payload {
                assert_eq!(skip_all(&bytes[..len]), Err(WireError::Truncated), "{len} of {stack:x?}");
            }
        }
        let five = frame(&[&priority.concat()[..], &[0x81, 0, 0, 0, 8, 0]].concat());
        assert_eq!(skip_all(&five), Err(WireError::TooManyTags));
        let three = frame(&[&others[0].repeat(3)[..], &[8, 0]].concat());
        assert_eq!(skip_all(&three), Ok((EtherType::SERVICE_VLAN, 22)));
    }

    #[test]
    fn a_byte_is_behind_all_tags_or_not() {
        let kinds = [[0x81, 0, 0, 0], [0x88, 0xa8, 0, 5], [0x91, 0, 0x0f, 0xff]];
        for count in 0..40 {
            let stack: Vec<u8> = kinds.into_iter().cycle().take(count).flatten().collect();
            let bytes = frame(&[&stack[..], &[8, 0], &[1; 30]].concat());
            let payload = 14 + 4 * count;
            for at in 0..bytes.len() + 4 {
                assert_eq!(is_behind_tags(&bytes, at), at >= payload, "{at} behind {count}");
            }
            for len in 0..payload {
                assert!(!is_behind_tags(&bytes[..len], payload), "{len} of {count}");
            }
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let tag = Tag { tpid: EtherType::VLAN, pcp: 7, dei: true, vid: 0xfff };
        assert_eq!(tag.emit(&mut [0; 4]), Ok(4));
        assert_eq!(tag.emit(&mut [0; 3]), Err(WireError::BufferTooSmall));
        assert_eq!(Tag { pcp: 8, ..tag }.emit(&mut [0; 4]), Err(WireError::BadValue));
        assert_eq!(Tag { vid: 0x1000, ..tag }.emit(&mut [0; 4]), Err(WireError::BadValue));
    }

    #[test]
    fn a_vlan_is_neither_a_priority_nor_reserved() {
        let valid = |vid| VlanId::new(vid).map(VlanId::get);
        assert_eq!([0, 1, 4094, 4095, u16::MAX].map(valid), [None, Some(1), Some(4094), None, None]);
        assert_eq!((VlanId::default().get(), VlanId::MAX.to_string()), (1, "4094".to_owned()));
    }

    #[test]
    fn a_set_names_its_ranges() {
        let ids = [4094, 1, 20, 21, 22, 64, 63].map(|vid| VlanId::new(vid).unwrap());
        let mut set: VlanSet = ids.into_iter().collect();
        assert_eq!(set.to_string(), "1,20-22,63-64,4094");
        assert!(ids.iter().all(|&id| set.contains(id)));
        assert_eq!(set.iter().count(), ids.len());
        assert!(!set.insert(VlanId::MAX) && set.insert(VlanId::new(4093).unwrap()));
        assert_eq!(set.to_string(), "1,20-22,63-64,4093-4094");
        assert!(VlanSet::EMPTY.is_empty() && !set.is_empty());
        assert_eq!(VlanSet::EMPTY.to_string(), "");
    }
}
