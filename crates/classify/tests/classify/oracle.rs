//! Structures find what the linear list finds, for any rules and keys, by each instruction set.

use proptest::collection::vec;
use proptest::prelude::*;
use straightline_classify::workload::{self, Family, Locality, Random, SetKind};
use straightline_classify::{
    BitVectors, Column, Dead, Forest, Key, Keys, Level, Linear, MAX_KEYS, NONE, Rule, Rules, Scan, Statistics,
    Structure, compile,
};

/// Returns all structures for the rules, each by name.
fn structures(rules: &Rules) -> Vec<(String, Box<dyn Structure>)> {
    let mut all: Vec<(String, Box<dyn Structure>)> = Vec::new();
    for level in Level::supported() {
        all.push((format!("scan {level}"), Box::new(Scan::new(rules, level))));
        let bits = BitVectors::new(rules, level, usize::MAX).expect("few rules");
        all.push((format!("bits {level}"), Box::new(bits)));
        all.push((format!("forest {level}"), Box::new(Forest::new(rules, level))));
    }
    all
}

/// Compares all structures with the oracle. Returns the number of keys that matched.
fn compare(rules: &Rules, dead: &Dead, keys: &[Key]) -> usize {
    let linear = Linear::new(rules);
    let all = structures(rules);
    let mut matched = 0;
    for some in keys.chunks(MAX_KEYS) {
        let batch: Keys = some.iter().collect();
        let mut want = [NONE; MAX_KEYS];
        linear.lookup(&batch, dead, &mut want);
        matched += want[..some.len()].iter().filter(|&&rank| rank != NONE).count();
        for (name, structure) in &all {
            let mut got = [7; MAX_KEYS];
            structure.lookup(&batch, dead, &mut got);
            for (at, key) in some.iter().enumerate() {
                assert_eq!(got[at], want[at], "{name}: {key:?} of {rules:?}");
                let bound = structure.statistics().accesses;
                assert!(structure.accesses(key) <= bound, "{name}: more reads than the bound {bound} for {key:?}");
            }
        }
    }
    matched
}

/// Few values, so that rules and keys meet often.
fn value() -> impl Strategy<Value = u32> {
    prop_oneof![0..6_u32, Just(u32::MAX), (0..32_u32).prop_map(|bit| 1 << bit), any::<u32>()]
}

fn column() -> impl Strategy<Value = Column> {
    proptest::sample::select(Column::ALL)
}

pub(crate) fn rule() -> impl Strategy<Value = Rule> {
    let test = (column(), 0..4_u32, value(), value());
    (0..4_u32, vec(test, 0..5)).prop_map(|(priority, tests)| {
        tests.into_iter().fold(Rule::new(priority, 0), |rule, (column, kind, a, b)| {
            let a = a & column.greatest();
            let b = b & column.greatest();
            match kind {
                0 => rule.exact(column, a),
                1 => rule.range(column, a.min(b), a.max(b)),
                2 => rule.masked(column, a, b),
                _ => rule.word_prefix(column, a, b % 33),
            }
        })
    })
}

pub(crate) fn key() -> impl Strategy<Value = Key> {
    vec((column(), value()), 0..8)
        .prop_map(|values| values.into_iter().fold(Key::default(), |key, (column, value)| key.with(column, value)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_rules(rules in vec(rule(), 0..40), keys in vec(key(), 1..80), gone in vec(0..40_u32, 0..6)) {
        let rules: Rules = rules.into_iter().collect();
        let dead = gone.iter().fold(Dead::default(), |dead, &rank| dead.with(rank));
        compare(&rules, &Dead::default(), &keys);
        compare(&rules, &dead, &keys);
    }
}

#[test]
fn generated_sets() {
    for kind in SetKind::ALL {
        for family in [Family::V4, Family::V6] {
            for count in [1, 10, 64, 512, 700, 1025] {
                let rules = workload::rules(kind, family, count, 11);
                let mut keys = workload::trace(&rules, Locality::None, 500, 1);
                keys.extend(workload::misses(100, 2));
                let none = compare(&rules, &Dead::default(), &keys);
                assert!(none >= 500, "{kind:?} {family:?} {count}");
                let dead = (0..700).step_by(3).fold(Dead::default(), |dead, rank| dead.with(rank));
                compare(&rules, &dead, &keys);
            }
        }
    }
}

#[test]
fn the_explosion_trace() {
    let matched = compare(&workload::explosion(), &Dead::default(), &workload::explosion_trace());
    assert_eq!(matched, 8192);
}

/// Returns rules with masks that no cut separates.
fn random_masks(count: usize) -> Rules {
    const COLUMNS: [Column; 4] = [Column::IpSrc3, Column::IpDst3, Column::SrcPort, Column::DstPort];
    let mut random = Random::new(7);
    let mut masked = |rule: Rule, column: Column| rule.masked(column, random.word(), random.word() | 1);
    (0..count).map(|_| COLUMNS.into_iter().fold(Rule::new(1, 0), &mut masked)).collect()
}

/// Trees have no bound for random masks, so bit vectors have to take any number of them.
#[test]
fn many_random_masks_have_a_bound() {
    let rules = random_masks(65_000);
    let structure = compile(&rules, Level::detect());
    let Statistics { accesses, bytes, rules: count, .. } = structure.statistics();
    assert_eq!(count, 65_000);
    // No cut separates masks.
    let of_trees = Forest::new(&rules, Level::detect()).statistics().accesses;
    assert!(of_trees >= 65_000, "{of_trees} reads");
    assert!(accesses <= 3000 && bytes < 128 << 20, "{accesses} reads, {bytes} bytes");
    let mut keys = workload::trace(&rules, Locality::None, MAX_KEYS - 56, 3);
    keys.extend(workload::misses(56, 4));
    let batch: Keys = keys.iter().collect();
    let gone = (0..65_000).step_by(900).fold(Dead::default(), |dead, rank| dead.with(rank));
    for dead in [Dead::default(), gone] {
        let mut want = [NONE; MAX_KEYS];
        Linear::new(&rules).lookup(&batch, &dead, &mut want);
        let mut got = [7; MAX_KEYS];
        structure.lookup(&batch, &dead, &mut got);
        assert_eq!(got[..keys.len()], want[..keys.len()]);
    }
    assert!(keys.iter().all(|key| structure.accesses(key) <= accesses));
}

#[test]
fn a_rule_with_an_empty_range_never_matches() {
    let rules: Rules = [Rule::new(1, 0).range(Column::DstPort, 9, 3), Rule::new(0, 1)].into_iter().collect();
    assert_eq!(compare(&rules, &Dead::default(), &[Key::default(), Key::default().with(Column::DstPort, 9)]), 2);
}

#[test]
fn no_keys_and_no_rules() {
    compare(&Rules::default(), &Dead::default(), &[Key::default()]);
    let mut best = [7; MAX_KEYS];
    for (_, structure) in structures(&Rules::default()) {
        structure.lookup(&Keys::new(), &Dead::default(), &mut best);
    }
}
