//! Bit vectors with aggregation: for each value of a field, the rules that accept it.
//!
//! T. V. Lakshman and D. Stiliadis describe the form (SIGCOMM 1998), F. Baboescu and G. Varghese the
//! aggregation (SIGCOMM 2001):
//!
//! ```text
//! for each field, for each key
//!     class = place of the value in the field's sorted bounds
//! summary = AND of the classes' summaries              (a bit for each chunk of 512 rules)
//! for each chunk in the summary
//!     rules = AND of the classes' chunks
//!     best = min(best, rank of the first rule)
//! ```
//!
//! 1. A class has only those of its chunks that are not empty. Bits of its summary tell which.
//! 2. Rules are sorted by the two fields with the most values before they are put into chunks. So
//!    the rules of one value lie in few chunks. Within a chunk they are in the order of ranks, so
//!    the first bit is the best rule of the chunk.
//! 3. A mask that is no prefix becomes up to four tests of bytes. A byte has 256 classes.
//!
//! Up to two chunks, each class has all of them, empty or not. Then a lookup needs no summary, and has
//! no branch that depends on a packet: a wrong guess would cost as much as several reads.
//!
//! A summary has 64 bits. So 32 768 rules are a part, and more rules are several parts, which a lookup
//! visits one after the other.
//!
//! Traffic decides only how many chunks a packet visits: at most all of the structure. At worst, memory
//! grows with the square of the rules. So a structure that would take too much is not made.

mod search;

use crate::column::Column;
use crate::dispatch::{self, Isa, Lookup, Portable};
use crate::keys::{Key, Keys, MAX_KEYS};
use crate::rule::{NONE, Rank, Rule, Rules};
use crate::structure::{Best, Dead, Statistics, Structure};
use search::Search;
use straightline_simd::Level;

/// Rules of a chunk.
const CHUNK: usize = 512;
const WORDS: usize = CHUNK / 64;

/// Most chunks of a part: the bits of a summary.
const MOST_CHUNKS: usize = 64;

/// Most rules of a part.
const MOST_RULES: usize = CHUNK * MOST_CHUNKS;

/// Most chunks of which each class has all.
const FEW_CHUNKS: usize = 2;

/// A bit for each rule of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
struct Chunk([u64; WORDS]);

/// Each rule has two bounds in a field.
const _: () = assert!(2 * CHUNK * MOST_CHUNKS <= search::MOST_BOUNDS);

const NOTHING: Chunk = Chunk([0; WORDS]);

/// The rules that accept the values of one class.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// A bit for each chunk that is there.
    summary: u64,
    /// Place of the first of them in [`Field::chunks`].
    first: usize,
}

/// How a value's class is found.
#[derive(Clone, Debug)]
enum Classes {
    Bounds(Search),
    /// One byte, `shift` bits from the end.
    Byte {
        shift: u32,
    },
}

#[derive(Clone, Debug)]
struct Field {
    column: Column,
    index: Classes,
    classes: Vec<Class>,
    chunks: Vec<Chunk>,
}

/// Rules as bit vectors.
#[derive(Clone, Debug)]
pub struct BitVectors {
    /// Each has other rules.
    parts: Vec<Part>,
    level: Level,
}

/// The vectors of at most 32 768 rules.
#[derive(Clone, Debug)]
struct Part {
    fields: Vec<Field>,
    /// For each chunk, the rank of each of its bits.
    ranks: Vec<[Rank; CHUNK]>,
    /// Chunks that have rules, a bit each.
    all: u64,
    rules: usize,
}

impl BitVectors {
    /// Most rules whose lookups need no summary.
    pub(crate) const FEW_RULES: usize = FEW_CHUNKS * CHUNK;

    /// Returns the number of parts for a number of rules.
    pub(crate) fn parts(rules: usize) -> usize {
        rules.div_ceil(MOST_RULES)
    }

    /// Compiles the rules. Returns `None` if the vectors would take more than `most_bytes`.
    #[must_use]
    pub fn new(rules: &Rules, level: Level, most_bytes: usize) -> Option<Self> {
        let columns = rules.columns();
        let usable = |rule: &Rule| columns.iter().all(|&column| rule.span(column).0 <= rule.span(column).1);
        let mut order: Vec<(Rank, &Rule)> = rules.ranked().filter(|(_, rule)| usable(rule)).collect();
        if order.len() > CHUNK {
            sort_by_fields(&columns, &mut order);
        }
        let mut left = most_bytes;
        let parts = order.chunks_mut(MOST_RULES).map(|order| Part::new(&columns, order, &mut left));
        let parts = parts.collect::<Option<Vec<_>>>()?;
        Some(Self { parts, level })
    }
}

impl Part {
    /// Makes the vectors of these rules. Takes their bytes from those that are left.
    fn new(columns: &[Column], order: &mut [(Rank, &Rule)], left: &mut usize) -> Option<Self> {
        let mut ranks = Vec::new();
        for chunk in order.chunks_mut(CHUNK) {
            chunk.sort_by_key(|(rank, _)| *rank);
            let mut own = [NONE; CHUNK];
            for (own, (rank, _)) in own.iter_mut().zip(chunk) {
                *own = *rank;
            }
            ranks.push(own);
        }
        *left = left.checked_sub(size_of_val(&*ranks))?;
        let mut fields = Vec::new();
        for &column in columns {
            let has_ranges = order.iter().any(|(_, rule)| rule.span(column) != (0, column.greatest()));
            let bytes: Vec<u32> = (0..column.bits())
                .step_by(8)
                .filter(|shift| {
                    order.iter().any(|(_, rule)| rule.masks(column).any(|(mask, _)| mask >> shift & 0xff != 0))
                })
                .collect();
            if has_ranges {
                fields.push(Field::bounds(column, order, left)?);
            }
            for shift in bytes {
                fields.push(Field::byte(column, shift, order, left)?);
            }
        }
        let all = if ranks.is_empty() { 0 } else { u64::MAX >> (MOST_CHUNKS - ranks.len()) };
        Some(Self { fields, ranks, all, rules: order.len() })
    }

    /// Returns the steps to find the classes of a key.
    fn steps(&self) -> usize {
        self.fields.iter().map(|field| field.depth() + 1).sum()
    }
}

/// Sorts rules by the field with the most values. Rules that leave it open come last, sorted by the
/// field with the next most values.
fn sort_by_fields(columns: &[Column], order: &mut [(Rank, &Rule)]) {
    let mut by_values: Vec<(usize, Column)> = columns
        .iter()
        .map(|&column| {
            let mut spans: Vec<_> = order.iter().map(|(_, rule)| rule.span(column)).collect();
            spans.sort_unstable();
            spans.dedup();
            (spans.len(), column)
        })
        .collect();
    by_values.sort_by_key(|(values, _)| std::cmp::Reverse(*values));
    let fields: Vec<Column> = by_values.into_iter().map(|(_, column)| column).take(2).collect();
    order.sort_by_cached_key(|(rank, rule)| {
        let place = |column: &Column| {
            let (low, high) = rule.span(*column);
            (high - low > column.greatest() / 4, low, high)
        };
        (fields.iter().map(place).collect::<Vec<_>>(), *rank)
    });
}

impl Field {
    /// Makes the field for the ranges of a column, by a sweep over their bounds.
    fn bounds(column: Column, order: &[(Rank, &Rule)], left: &mut usize) -> Option<Self> {
        let mut current = vec![NOTHING; order.len().div_ceil(CHUNK)];
        let mut changes = Vec::new();
        for (at, (_, rule)) in order.iter().enumerate() {
            let (low, high) = rule.span(column);
            if low == 0 {
                flip(&mut current, at);
            } else {
                changes.push((low, at));
            }
            if high < column.greatest() {
                changes.push((high + 1, at));
            }
        }
        changes.sort_unstable();
        let mut bounds: Vec<u32> = changes.iter().map(|(bound, _)| *bound).collect();
        bounds.dedup();
        let index = Classes::Bounds(Search::new(&bounds));
        let mut field = Self { column, index, classes: Vec::new(), chunks: Vec::new() };
        field.push(&current, left)?;
        for same in changes.chunk_by(|one, other| one.0 == other.0) {
            for &(_, at) in same {
                flip(&mut current, at);
            }
            field.push(&current, left)?;
        }
        Some(field)
    }

    /// Makes the field for the masks of a column, in one of its bytes.
    fn byte(column: Column, shift: u32, order: &[(Rank, &Rule)], left: &mut usize) -> Option<Self> {
        let mut field = Self { column, index: Classes::Byte { shift }, classes: Vec::new(), chunks: Vec::new() };
        for value in 0..=0xff {
            let mut current = vec![NOTHING; order.len().div_ceil(CHUNK)];
            for (at, (_, rule)) in order.iter().enumerate() {
                if rule.masks(column).all(|(mask, wanted)| (value ^ wanted >> shift) & mask >> shift & 0xff == 0) {
                    flip(&mut current, at);
                }
            }
            field.push(&current, left)?;
        }
        Some(field)
    }

    /// Appends a class, without its empty chunks if there are many.
    fn push(&mut self, chunks: &[Chunk], left: &mut usize) -> Option<()> {
        let first = self.chunks.len();
        let is_kept = |chunk: &Chunk| chunks.len() <= FEW_CHUNKS || *chunk != NOTHING;
        self.chunks.extend(chunks.iter().filter(|chunk| is_kept(chunk)));
        let summary =
            (0..).zip(chunks).map(|(at, chunk)| u64::from(is_kept(chunk)) << at).fold(0, |all, bit| all | bit);
        self.classes.push(Class { summary, first });
        *left = left.checked_sub(size_of::<Class>() + (self.chunks.len() - first) * size_of::<Chunk>())?;
        Some(())
    }

    /// Finds the classes of a batch.
    #[inline(always)]
    fn classes(&self, keys: &Keys, places: &mut [u32; MAX_KEYS], isa: impl Isa) {
        let values = &keys.column(self.column)[..keys.len()];
        match &self.index {
            Classes::Bounds(search) => search.find(values, places, isa),
            Classes::Byte { shift } => {
                for (place, value) in places.iter_mut().zip(values) {
                    *place = value >> shift & 0xff;
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        let index = match &self.index {
            Classes::Bounds(search) => search.bytes(),
            Classes::Byte { .. } => 0,
        };
        index + size_of_val(&*self.classes) + size_of_val(&*self.chunks)
    }

    fn depth(&self) -> usize {
        match &self.index {
            Classes::Bounds(search) => search.depth(),
            Classes::Byte { .. } => 0,
        }
    }
}

fn flip(chunks: &mut [Chunk], at: usize) {
    chunks[at / CHUNK].0[at % CHUNK / 64] ^= 1 << (at % 64);
}

impl Structure for BitVectors {
    fn lookup(&self, keys: &Keys, dead: &Dead, best: &mut Best) {
        let Some((first, others)) = self.parts.split_first() else {
            best[..keys.len()].fill(NONE);
            return;
        };
        dispatch::run(self.level, BitLookup { bits: first, keys, dead, best });
        for bits in others {
            let mut found = [NONE; MAX_KEYS];
            dispatch::run(self.level, BitLookup { bits, keys, dead, best: &mut found });
            for (best, found) in best.iter_mut().zip(found).take(keys.len()) {
                *best = found.min(*best);
            }
        }
    }

    fn statistics(&self) -> Statistics {
        let fields = || self.parts.iter().flat_map(|part| &part.fields);
        let ranks: usize = self.parts.iter().map(|part| size_of_val(&*part.ranks)).sum();
        let depth = fields().map(Field::depth).max().unwrap_or(0);
        // Each chunk: a vector for each field, and a rank.
        let accesses = |part: &Part| part.steps() + part.ranks.len() * (part.fields.len() + 1);
        Statistics {
            rules: self.parts.iter().map(|part| part.rules).sum(),
            tables: fields().count(),
            depth: depth + 2,
            bytes: fields().map(Field::bytes).sum::<usize>() + ranks,
            accesses: self.parts.iter().map(accesses).sum(),
        }
    }

    fn accesses(&self, key: &Key) -> usize {
        let keys: Keys = [key].into_iter().collect();
        let reads = self.parts.iter().map(|part| {
            let mut summary = part.all;
            for field in &part.fields {
                let mut places = [0; MAX_KEYS];
                field.classes(&keys, &mut places, Portable);
                summary &= field.classes[places[0] as usize].summary;
            }
            part.steps() + summary.count_ones() as usize * (part.fields.len() + 1)
        });
        reads.sum()
    }
}

struct BitLookup<'a> {
    bits: &'a Part,
    keys: &'a Keys,
    dead: &'a Dead,
    best: &'a mut Best,
}

impl Lookup for BitLookup<'_> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        // Most sets test few fields, and a large array of places costs time to clear.
        if self.bits.fields.len() <= FEW_FIELDS {
            self.run_with::<FEW_FIELDS>(isa);
        } else {
            self.run_with::<MOST_FIELDS>(isa);
        }
    }
}

impl BitLookup<'_> {
    #[inline(always)]
    fn run_with<const FIELDS: usize>(self, isa: impl Isa) {
        let Self { bits, keys, dead, best } = self;
        let mut places = [[0; MAX_KEYS]; FIELDS];
        for (field, places) in bits.fields.iter().zip(&mut places) {
            field.classes(keys, places, isa);
        }
        match bits.ranks.len() {
            1 if dead.is_empty() => {
                (0..keys.len()).for_each(|at| best[at] = best_of_all::<1>(bits, &places, at, isa));
                return;
            }
            2 if dead.is_empty() => {
                (0..keys.len()).for_each(|at| best[at] = best_of_all::<2>(bits, &places, at, isa));
                return;
            }
            _ => {}
        }
        let mut summaries = [bits.all; MAX_KEYS];
        for (field, places) in bits.fields.iter().zip(&places) {
            for (summary, &place) in summaries.iter_mut().zip(places).take(keys.len()) {
                *summary &= field.classes[place as usize].summary;
            }
        }
        for at in 0..keys.len() {
            best[at] = best_of(bits, dead, &places, at, summaries[at], isa);
        }
    }
}

const FEW_FIELDS: usize = 8;

/// Most fields: ranges and four bytes for each column.
const MOST_FIELDS: usize = 5 * crate::column::COLUMNS;

/// Returns the best rule of the key at a place, if each class has all chunks and no rule is dead.
#[inline(always)]
fn best_of_all<const CHUNKS: usize>(bits: &Part, places: &[[u32; MAX_KEYS]], at: usize, isa: impl Isa) -> Rank {
    let mut rules = [[u64::MAX; WORDS]; CHUNKS];
    for (field, places) in bits.fields.iter().zip(places) {
        let first = places[at] as usize * CHUNKS;
        for (rules, chunk) in rules.iter_mut().zip(&field.chunks[first..first + CHUNKS]) {
            for (rules, word) in rules.iter_mut().zip(chunk.0) {
                *rules &= word;
            }
        }
    }
    let mut best = NONE;
    for (rules, ranks) in rules.iter().zip(&bits.ranks) {
        let words = isa.filled(rules);
        let word = words.trailing_zeros() as usize % WORDS;
        let rank = ranks[(word * 64 + rules[word].trailing_zeros() as usize) % CHUNK];
        best = best.min(if words == 0 { NONE } else { rank });
    }
    best
}

/// Returns the best rule of the key at a place, in the chunks of its summary.
#[inline(always)]
fn best_of(bits: &Part, dead: &Dead, places: &[[u32; MAX_KEYS]], at: usize, mut summary: u64, isa: impl Isa) -> Rank {
    let mut best = NONE;
    while summary != 0 {
        let number = summary.trailing_zeros();
        summary &= summary - 1;
        let below = (1_u64 << number) - 1;
        let mut rules = [u64::MAX; WORDS];
        for (field, places) in bits.fields.iter().zip(places) {
            let class = field.classes[places[at] as usize];
            let chunk = &field.chunks[class.first + (class.summary & below).count_ones() as usize];
            for (rules, word) in rules.iter_mut().zip(chunk.0) {
                *rules &= word;
            }
        }
        let ranks = &bits.ranks[number as usize];
        best = best.min(first_of(&rules, ranks, dead, isa));
    }
    best
}

/// Returns the rank of the first rule that is not dead.
#[inline(always)]
fn first_of(rules: &[u64; WORDS], ranks: &[Rank; CHUNK], dead: &Dead, isa: impl Isa) -> Rank {
    let mut words = isa.filled(rules);
    while words != 0 {
        let word = words.trailing_zeros() as usize;
        words &= words - 1;
        let mut left = rules[word % WORDS];
        while left != 0 {
            let rank = ranks[(word * 64 + left.trailing_zeros() as usize) % CHUNK];
            if dead.is_empty() || !dead.has(rank) {
                return rank;
            }
            left &= left - 1;
        }
    }
    NONE
}
