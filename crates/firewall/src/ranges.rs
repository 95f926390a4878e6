//! Sets of IP addresses as sorted ranges, and as patterns.

use std::net::IpAddr;

use crate::pattern::Pattern;
use crate::prefix::Prefix;

/// A set of IP addresses: sorted ranges that neither overlap nor touch, for each version, and patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    pub(crate) v4: Vec<(u32, u32)>,
    pub(crate) v6: Vec<(u128, u128)>,
    /// Further addresses of IPv6. They may be in the ranges, too.
    pub(crate) patterns: Vec<Pattern>,
}

impl Ranges {
    /// Returns all addresses.
    pub(crate) fn all() -> Self {
        Self { v4: vec![(0, u32::MAX)], v6: vec![(0, u128::MAX)], patterns: Vec::new() }
    }

    /// Returns whether no address of IPv6 is in the set.
    pub(crate) fn is_empty_v6(&self) -> bool {
        self.v6.is_empty() && self.patterns.is_empty()
    }

    /// Returns whether each address of IPv6 in another set is in this one. It may say no although it is
    /// so.
    pub(crate) fn includes_v6(&self, other: &Self) -> bool {
        let has =
            |pattern: &Pattern| self.v6 == [(0, u128::MAX)] || self.patterns.iter().any(|own| own.covers(*pattern));
        includes(&self.v6, &other.v6) && other.patterns.iter().all(has)
    }

    /// Returns whether an address is in the set.
    #[cfg(test)]
    fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.iter().any(|(low, high)| (*low..=*high).contains(&address.to_bits())),
            IpAddr::V6(address) => self.v6.iter().any(|(low, high)| (*low..=*high).contains(&address.to_bits())),
        }
    }
}

impl FromIterator<Prefix> for Ranges {
    fn from_iter<I: IntoIterator<Item = Prefix>>(prefixes: I) -> Self {
        let mut ranges = Self::default();
        for prefix in prefixes {
            let len = u32::from(prefix.len());
            match prefix.address() {
                IpAddr::V4(address) => {
                    let low = address.to_bits();
                    ranges.v4.push((low, low | u32::MAX.checked_shr(len).unwrap_or(0)));
                }
                IpAddr::V6(address) => {
                    let low = address.to_bits();
                    ranges.v6.push((low, low | u128::MAX.checked_shr(len).unwrap_or(0)));
                }
            }
        }
        merge(&mut ranges.v4, |high| high.checked_add(1));
        merge(&mut ranges.v6, |high| high.checked_add(1));
        ranges
    }
}

/// Sorts ranges, and makes one of those that overlap or touch. `next` returns the value behind one, if
/// there is any.
pub(crate) fn merge<T: Copy + Ord>(ranges: &mut Vec<(T, T)>, next: impl Fn(T) -> Option<T>) {
    ranges.sort_unstable();
    ranges.dedup_by(|later, earlier| {
        let touches = next(earlier.1).is_none_or(|next| later.0 <= next);
        if touches {
            earlier.1 = earlier.1.max(later.1);
        }
        touches
    });
}

/// Returns whether each value of some ranges is in others. The others are merged.
pub(crate) fn includes<T: Copy + Ord>(outer: &[(T, T)], inner: &[(T, T)]) -> bool {
    inner.iter().all(|&(low, high)| {
        let at = outer.partition_point(|range| range.1 < low);
        outer.get(at).is_some_and(|range| range.0 <= low && high <= range.1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_that_touch_are_one_range() {
        let prefixes = ["10.0.0.6", "10.0.0.4/31", "10.0.0.5", "255.255.255.255", "10.0.0.8", "fd00::/16", "fd01::/16"];
        let ranges: Ranges = prefixes.into_iter().map(|text| text.parse::<Prefix>().expect(text)).collect();
        assert_eq!(ranges.v4, [(0x0a00_0004, 0x0a00_0006), (0x0a00_0008, 0x0a00_0008), (u32::MAX, u32::MAX)]);
        assert_eq!(ranges.v6, [(0xfd00 << 112, (0xfd02 << 112) - 1)]);
        for (text, is_in) in [("10.0.0.5", true), ("10.0.0.7", false), ("fd01::1", true), ("fd02::", false)] {
            assert_eq!(ranges.has(text.parse().expect(text)), is_in, "{text}");
        }
        let whole: Ranges = ["0.0.0.0/0", "::/0"].iter().map(|text| text.parse::<Prefix>().expect(text)).collect();
        assert_eq!(whole, Ranges::all());
    }

    #[test]
    fn a_range_is_included_in_one_of_others() {
        let outer = [(1, 5), (8, 9)];
        assert!(includes(&outer, &[(1, 5), (9, 9)]) && includes(&outer, &[]));
        assert!(!includes(&outer, &[(5, 6)]) && !includes(&outer, &[(0, 1)]) && !includes(&outer, &[(10, 10)]));
    }
}
