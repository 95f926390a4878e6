//! Traces: the keys of packets for a set of rules.

use super::random::Random;
use crate::column::Column;
use crate::keys::Key;
use crate::rule::{Rule, Rules, Test};

/// The columns of a 5-tuple of IPv4.
const TUPLE: [Column; 5] = [Column::IpSrc3, Column::IpDst3, Column::Protocol, Column::SrcPort, Column::DstPort];

/// How often keys come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Locality {
    /// Each key is drawn by itself.
    None,
    /// Keys come in trains. Their lengths have a Pareto distribution with the parameters 1 and 1, as
    /// the traces of ClassBench have, and at most 100 keys.
    Trains,
}

/// Returns `count` keys. Each lies within a rule that is drawn evenly, so most keys match. A rule of
/// a greater priority may match first.
#[must_use]
pub fn trace(rules: &Rules, locality: Locality, count: usize, seed: u64) -> Vec<Key> {
    let mut random = Random::new(seed);
    let rules = rules.as_slice();
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        let key = if rules.is_empty() {
            any_key(&mut random)
        } else {
            within(&rules[random.place(rules.len())], &mut random)
        };
        let train = match locality {
            Locality::None => 1.0,
            Locality::Trains => 1.0 / (1.0 - random.fraction()),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 100")]
        let train = train.min(100.0) as usize;
        keys.extend(std::iter::repeat_n(key, train.min(count - keys.len())));
    }
    keys
}

/// Returns `count` random keys. Most of them match no rule that tests addresses.
#[must_use]
pub fn misses(count: usize, seed: u64) -> Vec<Key> {
    let mut random = Random::new(seed);
    (0..count).map(|_| any_key(&mut random)).collect()
}

fn any_key(random: &mut Random) -> Key {
    TUPLE.into_iter().fold(Key::default(), |key, column| key.with(column, random.word()))
}

/// Returns a random key that a rule matches, unless the tests of a column exclude each other.
pub(crate) fn within(rule: &Rule, random: &mut Random) -> Key {
    let is_v6 = rule.tests().contains(&(Column::EtherType, Test::Range { low: 0x86dd, high: 0x86dd }));
    let mut key = any_key(random);
    if is_v6 {
        key = Column::IP_SRC.into_iter().chain(Column::IP_DST).fold(key, |key, column| key.with(column, random.word()));
    }
    for &(column, test) in rule.tests() {
        let value = match test {
            Test::Range { .. } => {
                let (low, high) = rule.span(column);
                random.within(low, high.max(low))
            }
            Test::Masked { mask, value } => key.get(column) & !mask | value,
        };
        key.set(column, value);
    }
    key
}

/// Returns the trace against tuple space search, for the rules of [`explosion`](super::explosion).
/// Each key differs from the allowed values first at another bit of each field, which makes a mask
/// for each pair of places there.
#[must_use]
pub fn explosion_trace() -> Vec<Key> {
    let mut keys = Vec::new();
    let base = Key::default().with(Column::Protocol, 6).with(Column::IpDst3, 0x0a00_0002);
    for source in 0..32 {
        for source_port in 0..16 {
            for destination_port in 0..16 {
                keys.push(
                    base.with(Column::IpSrc3, 0x0a00_0001 ^ 1 << source)
                        .with(Column::SrcPort, 12345 ^ 1 << source_port)
                        .with(Column::DstPort, 80 ^ 1 << destination_port),
                );
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::super::{Family, SetKind, rules};
    use super::*;
    use crate::linear::Linear;
    use crate::rule::NONE;
    use crate::structure::Dead;

    #[test]
    fn a_seed_gives_the_same_rules_and_keys() {
        for kind in SetKind::ALL {
            for family in [Family::V4, Family::V6] {
                let set = rules(kind, family, 1000, 7);
                assert_eq!(set.as_slice().len(), 1000, "{kind:?} {family:?}");
                assert_eq!(set, rules(kind, family, 1000, 7));
                assert_ne!(set, rules(kind, family, 1000, 8));
                let keys = trace(&set, Locality::None, 300, 1);
                assert_eq!(keys, trace(&set, Locality::None, 300, 1));
                let linear = Linear::new(&set);
                assert!(keys.iter().all(|key| linear.find(key, &Dead::default()) != NONE), "{kind:?} {family:?}");
            }
        }
    }

    #[test]
    fn trains_repeat_keys() {
        let set = rules(SetKind::Acl, Family::V4, 100, 1);
        let repeats = |locality| {
            let keys = trace(&set, locality, 2000, 3);
            assert_eq!(keys.len(), 2000);
            keys.windows(2).filter(|pair| pair[0] == pair[1]).count()
        };
        assert_eq!(repeats(Locality::None), 0);
        assert!(repeats(Locality::Trains) > 1000);
    }

    #[test]
    fn the_explosion_denies_each_key() {
        let linear = Linear::new(&super::super::explosion());
        let keys = explosion_trace();
        assert_eq!(keys.len(), 32 * 16 * 16);
        assert!(keys.iter().all(|key| linear.find(key, &Dead::default()) == 3));
    }
}
