//! Rules, and their order.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::column::Column;
use crate::keys::Key;

/// A test of one column: a range, or a mask that is no prefix.
///
/// A prefix is a range of values. So structures have two cases only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Test {
    /// The value is in a range.
    Range {
        /// Least value.
        low: u32,
        /// Greatest value. The test never succeeds if it is below `low`.
        high: u32,
    },
    /// The bits of the mask are those of a value.
    Masked {
        /// Mask.
        mask: u32,
        /// Bits that the mask selects; others are 0.
        value: u32,
    },
}

impl Test {
    /// Returns whether a value passes the test.
    #[inline]
    #[must_use]
    pub fn accepts(self, given: u32) -> bool {
        match self {
            Self::Range { low, high } => (low..=high).contains(&given),
            Self::Masked { mask, value } => given & mask == value,
        }
    }

    /// Returns the test of a mask, as a range if the mask is a prefix of the column.
    fn masked(column: Column, value: u32, mask: u32) -> Self {
        let mask = mask & column.greatest();
        let value = value & mask;
        let rest = column.greatest() & !mask;
        if rest & rest.wrapping_add(1) == 0 {
            Self::Range { low: value, high: value | rest }
        } else {
            Self::Masked { mask, value }
        }
    }
}

/// A rule: tests of columns, a priority and a result. A packet matches if it passes all tests.
///
/// ```
/// use straightline_classify::{Column, Key, Rule};
///
/// let web = Rule::new(10, 1)
///     .ipv4_src([10, 0, 0, 0].into(), 8)
///     .exact(Column::Protocol, 6)
///     .range(Column::DstPort, 80, 443);
/// let key = Key::default()
///     .with(Column::EtherType, 0x0800)
///     .with(Column::IpSrc3, 0x0a01_0203)
///     .with(Column::Protocol, 6)
///     .with(Column::DstPort, 80);
/// assert!(web.matches(&key));
/// assert!(!web.matches(&key.with(Column::DstPort, 22)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    tests: Vec<(Column, Test)>,
    priority: u32,
    result: u32,
}

impl Rule {
    /// Creates a rule without tests, which each packet matches.
    #[must_use]
    pub fn new(priority: u32, result: u32) -> Self {
        Self { tests: Vec::new(), priority, result }
    }

    /// Adds a test for one value.
    #[must_use]
    pub fn exact(self, column: Column, value: u32) -> Self {
        self.test(column, Test::Range { low: value, high: value })
    }

    /// Adds a test for the values from `low` to `high`.
    #[must_use]
    pub fn range(self, column: Column, low: u32, high: u32) -> Self {
        self.test(column, Test::Range { low, high })
    }

    /// Adds a test of the bits that a mask selects.
    #[must_use]
    pub fn masked(self, column: Column, value: u32, mask: u32) -> Self {
        self.test(column, Test::masked(column, value, mask))
    }

    /// Adds a test for IPv4, and for source addresses with a prefix of `bits` bits.
    #[must_use]
    pub fn ipv4_src(self, address: Ipv4Addr, bits: u32) -> Self {
        self.exact(Column::EtherType, 0x0800).word_prefix(Column::IpSrc3, address.to_bits(), bits)
    }

    /// Adds a test for IPv4, and for destination addresses with a prefix of `bits` bits.
    #[must_use]
    pub fn ipv4_dst(self, address: Ipv4Addr, bits: u32) -> Self {
        self.exact(Column::EtherType, 0x0800).word_prefix(Column::IpDst3, address.to_bits(), bits)
    }

    /// Adds a test for IPv6, and for source addresses with a prefix of `bits` bits.
    #[must_use]
    pub fn ipv6_src(self, address: Ipv6Addr, bits: u32) -> Self {
        self.exact(Column::EtherType, 0x86dd).words_prefix(Column::IP_SRC, address, bits)
    }

    /// Adds a test for IPv6, and for destination addresses with a prefix of `bits` bits.
    #[must_use]
    pub fn ipv6_dst(self, address: Ipv6Addr, bits: u32) -> Self {
        self.exact(Column::EtherType, 0x86dd).words_prefix(Column::IP_DST, address, bits)
    }

    /// Adds a test for values that begin with the first `bits` bits of a word.
    #[must_use]
    pub fn word_prefix(self, column: Column, value: u32, bits: u32) -> Self {
        let cut = column.bits().saturating_sub(bits);
        self.masked(column, value, u32::MAX.checked_shl(cut).unwrap_or(0))
    }

    fn words_prefix(mut self, columns: [Column; 4], address: Ipv6Addr, bits: u32) -> Self {
        let address = address.to_bits();
        for (column, place) in columns.into_iter().zip(0..) {
            #[expect(clippy::cast_possible_truncation, reason = "one word of four")]
            let word = (address >> (96 - 32 * place)) as u32;
            self = self.word_prefix(column, word, bits.saturating_sub(32 * place));
        }
        self
    }

    /// Adds a test, unless each value passes it.
    #[must_use]
    pub fn test(mut self, column: Column, test: Test) -> Self {
        let everything = match test {
            Test::Range { low, high } => low == 0 && high >= column.greatest(),
            Test::Masked { mask, .. } => mask == 0,
        };
        if !everything && !self.tests.contains(&(column, test)) {
            self.tests.push((column, test));
        }
        self
    }

    /// Returns the tests. A column may have several.
    #[must_use]
    pub fn tests(&self) -> &[(Column, Test)] {
        &self.tests
    }

    /// Returns the priority. The greatest one wins.
    #[must_use]
    pub fn priority(&self) -> u32 {
        self.priority
    }

    /// Returns the result, which this crate does not interpret.
    #[must_use]
    pub fn result(&self) -> u32 {
        self.result
    }

    /// Returns whether a packet passes all tests.
    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        self.tests.iter().all(|&(column, test)| test.accepts(key.get(column)))
    }

    /// Returns the values of a column that rules without masks let through.
    pub(crate) fn span(&self, column: Column) -> (u32, u32) {
        let mut span = (0, column.greatest());
        for &(at, test) in &self.tests {
            if let (true, Test::Range { low, high }) = (at == column, test) {
                span = (span.0.max(low), span.1.min(high));
            }
        }
        span
    }

    /// Returns the tests of a column by masks.
    pub(crate) fn masks(&self, column: Column) -> impl Iterator<Item = (u32, u32)> {
        self.tests.iter().filter_map(move |&(at, test)| match test {
            Test::Masked { mask, value } if at == column => Some((mask, value)),
            _ => None,
        })
    }
}

/// Place of a rule in its list: the rule of the least rank wins.
pub type Rank = u32;

/// The rank of a lookup that no rule matches.
pub const NONE: Rank = Rank::MAX;

/// Rules by rank: the greatest priority first, and in the order of the list within a priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Returns the rule of a rank; `None` for [`NONE`].
    #[must_use]
    pub fn get(&self, rank: Rank) -> Option<&Rule> {
        self.0.get(usize::try_from(rank).ok()?)
    }

    /// Returns all rules by rank.
    #[must_use]
    pub fn as_slice(&self) -> &[Rule] {
        &self.0
    }

    /// Returns the columns that rules test.
    pub(crate) fn columns(&self) -> Vec<Column> {
        let is_tested = |column| self.0.iter().any(|rule| rule.tests.iter().any(|&(at, _)| at == column));
        Column::ALL.iter().copied().filter(|&column| is_tested(column)).collect()
    }

    /// Returns the rules with their ranks.
    pub(crate) fn ranked(&self) -> impl Iterator<Item = (Rank, &Rule)> {
        (0..).zip(&self.0)
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        let mut rules: Vec<_> = rules.into_iter().collect();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        Self(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_ranges() {
        let rule = Rule::new(0, 0).word_prefix(Column::IpSrc3, 0x0a0b_0c0d, 8);
        assert_eq!(rule.tests(), [(Column::IpSrc3, Test::Range { low: 0x0a00_0000, high: 0x0aff_ffff })]);
        let rule = Rule::new(0, 0).masked(Column::Vlan, 0x7, 0xfff0_fff0);
        assert_eq!(rule.tests(), [(Column::Vlan, Test::Range { low: 0, high: 15 })]);
        let rule = Rule::new(0, 0).masked(Column::TcpFlags, 0xff, 0x12);
        assert_eq!(rule.tests(), [(Column::TcpFlags, Test::Masked { mask: 0x12, value: 0x12 })]);
        assert!(Rule::new(0, 0).word_prefix(Column::IpSrc3, 1, 0).tests().is_empty());
    }

    #[test]
    fn a_prefix_of_ipv6_is_a_test_of_each_word() {
        let rule = Rule::new(0, 0).ipv6_dst("2001:db8:1:2:3::".parse().expect("an address"), 72);
        let exact = |value| Test::Range { low: value, high: value };
        assert_eq!(
            rule.tests(),
            [
                (Column::EtherType, exact(0x86dd)),
                (Column::IpDst0, exact(0x2001_0db8)),
                (Column::IpDst1, exact(0x0001_0002)),
                (Column::IpDst2, Test::Range { low: 0, high: 0x00ff_ffff }),
            ]
        );
    }

    #[test]
    fn ranks_follow_priority_then_order() {
        let rules: Rules =
            [(1, 10), (5, 11), (1, 12), (5, 13)].map(|(p, result)| Rule::new(p, result)).into_iter().collect();
        let results: Vec<_> = rules.as_slice().iter().map(Rule::result).collect();
        assert_eq!(results, [11, 13, 10, 12]);
        assert!(rules.get(NONE).is_none());
    }
}
