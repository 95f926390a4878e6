//! Tables that change: equal to the linear list after each change, and whole for each reader.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use straightline_classify::workload::{self, Family, Locality, SetKind};
use straightline_classify::{
    Column, Dead, Key, Keys, Linear, MAX_KEYS, MOST_ADDED, NONE, Rule, RuleId, Rules, Structure, Table, lookup_level,
};
use straightline_packet::{Arena, Rcu, RcuCell, Settings};

use crate::oracle::{key, rule};

/// The rules of a table, in the order in which they were added.
#[derive(Default)]
struct Model(Vec<(RuleId, Rule)>);

impl Model {
    fn check(&self, table: &Table, keys: &[Key]) {
        let rules: Rules = self.0.iter().map(|(_, rule)| rule.clone()).collect();
        let mut ids = self.0.clone();
        ids.sort_by_key(|(_, rule)| std::cmp::Reverse(rule.priority()));
        let linear = Linear::new(&rules);
        let snapshot = table.snapshot();
        assert_eq!(snapshot.statistics().rules, self.0.len());
        for some in keys.chunks(MAX_KEYS) {
            let batch: Keys = some.iter().collect();
            let mut want = [NONE; MAX_KEYS];
            linear.lookup(&batch, &Dead::default(), &mut want);
            let mut got = [NONE; MAX_KEYS];
            snapshot.lookup(&batch, &mut got);
            for at in 0..some.len() {
                let want = ids.get(want[at] as usize).map(|(id, rule)| (*id, rule));
                assert_eq!(snapshot.rule(got[at]), want);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Change { removed: Vec<prop::sample::Index>, added: Vec<Rule> },
    Compile,
    Adopt,
}

fn step() -> impl Strategy<Value = Step> {
    let change = (vec(any::<prop::sample::Index>(), 0..3), vec(rule(), 0..4));
    prop_oneof![
        4 => change.prop_map(|(removed, added)| Step::Change { removed, added }),
        1 => Just(Step::Compile),
        1 => Just(Step::Adopt),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_changes(first in vec(rule(), 0..90), steps in vec(step(), 1..20), keys in vec(key(), 1..60)) {
        let mut table = Table::new(lookup_level());
        let mut model = Model::default();
        let mut pending = None;
        let ids = table.change(&[], first.clone());
        model.0.extend(ids.into_iter().zip(first));
        table.adopt(table.compile().run());
        for step in steps {
            match step {
                Step::Change { removed, added } => {
                    let count = model.0.len();
                    let removed: Vec<RuleId> =
                        removed.iter().filter(|_| count > 0).map(|index| model.0[index.index(count)].0).collect();
                    model.0.retain(|(id, _)| !removed.contains(id));
                    let ids = table.change(&removed, added.clone());
                    model.0.extend(ids.into_iter().zip(added));
                }
                Step::Compile => pending = Some(table.compile()),
                Step::Adopt => {
                    if let Some(work) = pending.take() {
                        table.adopt(work.run());
                    }
                }
            }
            model.check(&table, &keys);
        }
    }
}

#[test]
fn many_rules_at_once_and_one_more() {
    let rules = workload::rules(SetKind::Chain, Family::V4, 3 * MOST_ADDED, 5);
    let keys = workload::trace(&rules, Locality::None, 600, 1);
    let mut table = Table::new(lookup_level());
    let mut model = Model::default();
    for some in rules.as_slice().chunks(MOST_ADDED - 1) {
        let ids = table.change(&[], some.iter().cloned());
        model.0.extend(ids.into_iter().zip(some.iter().cloned()));
        model.check(&table, &keys);
    }
    // Work that was begun before a large change is too old for most rules.
    let old = Table::new(lookup_level()).compile();
    table.adopt(old.run());
    model.check(&table, &keys);
    let all: Vec<RuleId> = model.0.drain(..).map(|(id, _)| id).collect();
    table.change(&all, []);
    model.check(&table, &keys);
}

/// A change moves a rule to another value in one step. A reader always finds one of the two.
#[test]
fn no_reader_sees_half_a_change() {
    let rcu = Rcu::new();
    let published = RcuCell::new(&rcu);
    let mut table = Table::new(lookup_level());
    let web = |result| Rule::new(5, result).exact(Column::DstPort, 80);
    let rules = workload::rules(SetKind::Acl, Family::V4, 300, 2);
    table.change(&[], rules.as_slice().iter().map(|rule| rule.clone().exact(Column::Mark, 1)));
    let mut current = table.change(&[], [web(0)]);
    published.swap(Some(Box::new(table.snapshot())));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut arena = Arena::new(rcu.reader(), Settings::default(), Vec::new());
            let keys: Keys = [Key::default().with(Column::DstPort, 80)].iter().collect();
            let mut best = [NONE; MAX_KEYS];
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                arena.turn(|turn| {
                    let snapshot = published.load(turn).expect("a snapshot is published");
                    snapshot.lookup(&keys, &mut best);
                    let (_, rule) = snapshot.rule(best[0]).expect("there is always a rule");
                    assert!(rule.result() >= last, "an older rule came back");
                    last = rule.result();
                });
            }
            last
        });
        for number in 1..=400 {
            current = table.change(&current, [web(number)]);
            if number % 50 == 0 {
                table.adopt(table.compile().run());
            }
            published.swap(Some(Box::new(table.snapshot())));
        }
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().expect("the reader ends") <= 400);
    });
}
