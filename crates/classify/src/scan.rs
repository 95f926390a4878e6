//! The list, scanned by vectors: one rule against 16 packets at a time, or 32 where a set has no masks.
//!
//! ```text
//! for each block of 16 keys
//!     for each rule, by rank
//!         hit = a bit for each key that has no rule yet
//!         for each test of the rule
//!             hit &= ((value & mask) - low <= span), for each key
//!         best = rank where hit
//!     stop when each key of the block has its rule
//! ```
//!
//! No branch depends on a single packet, and rules are read in order. The time grows with the number
//! of tests, so it suits short lists: a few dozen rules, or the rules that were added to a table
//! since its structure was made. The worst batch is one in which some packet of each block matches
//! no rule.

use straightline_simd::Level;

use crate::column::Column;
use crate::dispatch::{self, Isa, LANES, Lookup, Masks};
use crate::keys::{Key, Keys, MAX_KEYS};
use crate::rule::{NONE, Rank, Rules, Test};
use crate::structure::{Best, Dead, Statistics, Structure};

/// Keys of a block without masks.
const BLOCK: usize = 32;

/// Rules between two looks whether such a block is done.
const STRIDE: usize = 8;

/// A test in the form of the kernel: `(value & mask) - low <= span`, in 32 bits.
#[derive(Clone, Copy, Debug)]
struct FlatTest {
    column: Column,
    mask: u32,
    low: u32,
    span: u32,
}

impl FlatTest {
    fn new(column: Column, test: Test) -> Self {
        match test {
            Test::Range { low, high } => Self { column, mask: u32::MAX, low, span: high.wrapping_sub(low) },
            Test::Masked { mask, value } => Self { column, mask, low: value, span: 0 },
        }
    }
}

/// A rule: its rank, and the end of its tests. They begin at the end of the rule before.
#[derive(Clone, Copy, Debug)]
struct FlatRule {
    rank: Rank,
    end: u32,
}

/// Rules in a list that vectors scan.
#[derive(Clone, Debug)]
pub struct Scan {
    rules: Vec<FlatRule>,
    tests: Vec<FlatTest>,
    level: Level,
}

impl Scan {
    /// Compiles the rules.
    #[must_use]
    pub fn new(rules: &Rules, level: Level) -> Self {
        let mut scan = Self { rules: Vec::new(), tests: Vec::new(), level };
        for (rank, rule) in rules.ranked() {
            // A range that is empty has no form with a span: the rule never matches.
            if rule.tests().iter().any(|(_, test)| matches!(test, Test::Range { low, high } if low > high)) {
                continue;
            }
            scan.tests.extend(rule.tests().iter().map(|&(column, test)| FlatTest::new(column, test)));
            let end = u32::try_from(scan.tests.len()).expect("fewer than 2^32 tests");
            scan.rules.push(FlatRule { rank, end });
        }
        scan
    }
}

impl Structure for Scan {
    fn lookup(&self, keys: &Keys, dead: &Dead, best: &mut Best) {
        dispatch::run(self.level, ScanLookup { scan: self, keys, dead, best });
    }

    fn statistics(&self) -> Statistics {
        let bytes = size_of_val(&*self.rules) + size_of_val(&*self.tests);
        // Rules and tests are read in order, so a line is read once.
        let accesses = bytes.div_ceil(64) + 1;
        Statistics { rules: self.rules.len(), tables: 1, depth: 1, bytes, accesses }
    }

    fn accesses(&self, _key: &Key) -> usize {
        // The slowest packet of a block decides: all rules, for the worst.
        self.statistics().accesses
    }
}

struct ScanLookup<'a> {
    scan: &'a Scan,
    keys: &'a Keys,
    dead: &'a Dead,
    best: &'a mut Best,
}

impl Lookup for ScanLookup<'_> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Self { scan, keys, dead, best } = self;
        if let Some(masks) = isa.masks() {
            for base in (0..keys.len()).step_by(LANES) {
                best[base..base + LANES].copy_from_slice(&scan_masks(scan, keys, dead, base, masks));
            }
        } else {
            for base in (0..keys.len()).step_by(BLOCK) {
                best[base..base + BLOCK].copy_from_slice(&scan_lanes(scan, keys, dead, base));
            }
        }
    }
}

/// Scans the keys from `base` on. Keys behind the last one get a rank too, which nobody reads.
#[inline(always)]
fn scan_masks(scan: &Scan, keys: &Keys, dead: &Dead, base: usize, masks: impl Masks) -> [Rank; LANES] {
    const { assert!(MAX_KEYS.is_multiple_of(LANES)) };
    let mut best = [NONE; LANES];
    let mut undecided = u16::MAX;
    let mut begin = 0;
    for rule in &scan.rules {
        let end = rule.end as usize;
        let tests = &scan.tests[begin..end];
        begin = end;
        if !dead.is_empty() && dead.has(rule.rank) {
            continue;
        }
        let hit = tests.iter().fold(undecided, |hit, test| {
            let values = keys.column(test.column)[base..].first_chunk();
            values.map_or(0, |values| hit & masks.within(values, test.mask, test.low, test.span))
        });
        masks.put(&mut best, hit, rule.rank);
        undecided &= !hit;
        if undecided == 0 {
            break;
        }
    }
    best
}

/// Does the same by lanes of 32 bits, which are all ones where a rule matches.
#[inline(always)]
fn scan_lanes(scan: &Scan, keys: &Keys, dead: &Dead, base: usize) -> [Rank; BLOCK] {
    const { assert!(MAX_KEYS.is_multiple_of(BLOCK)) };
    let mut best = [NONE; BLOCK];
    let mut begin = 0;
    for chunk in scan.rules.chunks(STRIDE) {
        for rule in chunk {
            let end = rule.end as usize;
            let tests = &scan.tests[begin..end];
            begin = end;
            if !dead.is_empty() && dead.has(rule.rank) {
                continue;
            }
            let mut hit = [u32::MAX; BLOCK];
            for test in tests {
                let values = &keys.column(test.column)[base..base + BLOCK];
                for (hit, value) in hit.iter_mut().zip(values) {
                    let inside = (value & test.mask).wrapping_sub(test.low) <= test.span;
                    *hit &= if inside { u32::MAX } else { 0 };
                }
            }
            for (best, hit) in best.iter_mut().zip(hit) {
                *best = (*best).min(rule.rank | !hit);
            }
        }
        let undecided = best.iter().fold(0, |all, &rank| all.max(rank));
        if undecided != NONE {
            break;
        }
    }
    best
}
