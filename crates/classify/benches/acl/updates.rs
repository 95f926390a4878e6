//! Times of changes of a table.

use std::time::{Duration, Instant};

use straightline_classify::workload::{self, Family, SetKind};
use straightline_classify::{MOST_ADDED, Rule, Table, lookup_level};

/// Measures changes of tables with so many rules, and prints them.
pub(crate) fn run(count: usize) {
    println!("| rules | count | compile all | one rule: median | longest | with {MOST_ADDED} added |");
    println!("|---|---|---|---|---|---|");
    for kind in SetKind::ALL {
        let rules = workload::rules(kind, Family::V4, count, 1);
        let further = workload::rules(kind, Family::V4, MOST_ADDED, 9);
        let mut table = Table::new(lookup_level());
        let begin = Instant::now();
        let ids = table.change(&[], rules.as_slice().iter().cloned());
        let all = begin.elapsed();
        table.adopt(table.compile().run());
        let mut times: Vec<Duration> = Vec::new();
        let mut published = table.snapshot();
        for (old, rule) in ids.iter().zip(further.as_slice()) {
            let begin = Instant::now();
            table.change(&[*old], [Rule::clone(rule)]);
            published = table.snapshot();
            times.push(begin.elapsed());
        }
        let last = times.last().copied().unwrap_or_default();
        times.sort_unstable();
        let median = times[times.len() / 2];
        let longest = times[times.len() - 1];
        assert_eq!(published.statistics().rules, rules.as_slice().len());
        println!("| {} | {count} | {all:.1?} | {median:.1?} | {longest:.1?} | {last:.1?} |", kind.name());
    }
}
