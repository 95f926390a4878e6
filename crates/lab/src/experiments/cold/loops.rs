//! The node's loops in Rust, compiled for each instruction set: one packet at a time with a distance,
//! as our nodes do; two or four at once, as VPP's sample node does.

use std::marker::PhantomData;

use straightline_simd::{Kernels, Level, WithKernels};

use super::machine::{Hint, NoHint, Nta, T0, T1, T2, Write};
use super::pool::{Batch, Line, swapped};

/// A loop over a batch.
pub(super) type Loop = Box<dyn Fn(Batch<'_>)>;

/// The kind of a loop's prefetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HintKind {
    None,
    T0,
    T1,
    T2,
    Nta,
    Write,
}

/// Returns a loop that handles one packet after the other. It prefetches at this distance; 0:
/// nothing.
pub(super) fn one_by_one(kind: HintKind, distance: usize) -> Loop {
    let level = Level::detect();
    match kind {
        HintKind::None => one(level, NoHint, distance),
        HintKind::T0 => one(level, T0, distance),
        HintKind::T1 => one(level, T1, distance),
        HintKind::T2 => one(level, T2, distance),
        HintKind::Nta => one(level, Nta, distance),
        HintKind::Write => one(level, Write, distance),
    }
}

/// Returns a loop that prefetches the whole batch first, and the lines behind each head too: this
/// many lines of a head in all.
pub(super) fn whole_batch(lines_of_head: usize) -> Loop {
    let level = Level::detect();
    Box::new(move |batch| level.run(WholeBatch { batch, lines_of_head }))
}

/// Returns a loop that handles one packet after the other, and prefetches this many lines of a head
/// at the distance.
pub(super) fn many_lines(distance: usize, lines_of_head: usize) -> Loop {
    let level = Level::detect();
    Box::new(move |batch| level.run(ManyLines { batch, distance, lines_of_head }))
}

/// Returns a loop that handles `N` packets at once, and prefetches the next `N`, as versions 1 and 2
/// (two) and 3 (four) of VPP's sample node do: heads for writing; the words for reading in the
/// former, for writing in the latter.
pub(super) fn at_once<const N: usize>(prefetches: bool) -> Loop {
    let level = Level::detect();
    match (prefetches, N) {
        (false, _) => grouped::<N, NoHint, NoHint>(level),
        (true, 4..) => grouped::<N, Write, Write>(level),
        (true, _) => grouped::<N, T0, Write>(level),
    }
}

fn one<H: Hint>(level: Level, _: H, distance: usize) -> Loop {
    Box::new(move |batch| level.run(OneByOne::<H> { batch, distance, hint: PhantomData }))
}

fn grouped<const N: usize, Words: Hint, Head: Hint>(level: Level) -> Loop {
    Box::new(move |batch| level.run(Grouped::<N, Words, Head> { batch, hints: PhantomData }))
}

/// Prefetches the words of a packet, and the first line of its head. A loop knows both places, as a
/// node knows those of a packet without prepended headers.
#[inline(always)]
fn prefetch<Words: Hint, Head: Hint>(lines: &[Line], words: u32, head: u32) {
    Words::prefetch(lines.as_ptr().wrapping_add(words as usize));
    Head::prefetch(lines.as_ptr().wrapping_add(head as usize));
}

/// Prefetches the words of a packet, and the first lines of its head.
#[inline(always)]
fn prefetch_lines(lines: &[Line], words: u32, head: u32, lines_of_head: usize) {
    T0::prefetch(lines.as_ptr().wrapping_add(words as usize));
    for line in 0..lines_of_head {
        T0::prefetch(lines.as_ptr().wrapping_add(head as usize + line));
    }
}

/// Sends a packet back to the port that it came from. Returns the line with its head.
#[inline(always)]
fn send_back(lines: &mut [Line], words: u32) -> usize {
    let line = &mut lines[words as usize].0;
    line.copy_within(4..8, 8);
    let to_head = u32::from_le_bytes([line[0], line[1], line[2], line[3]]);
    words as usize + to_head as usize
}

/// Handles a packet.
#[inline(always)]
fn handle(lines: &mut [Line], words: u32) {
    let head = send_back(lines, words);
    if let Some(front) = lines[head].0.first_chunk_mut::<16>() {
        *front = swapped(*front);
    }
}

struct OneByOne<'a, H> {
    batch: Batch<'a>,
    distance: usize,
    hint: PhantomData<H>,
}

impl<H: Hint> WithKernels for OneByOne<'_, H> {
    type Output = ();

    #[inline(always)]
    fn with<K: Kernels>(self, _: K) {
        let OneByOne { batch, distance, hint: _ } = self;
        let (lines, packets, heads) = batch.into_parts();
        // As `Batch::ahead` does.
        let from = if distance == 0 { packets.len() } else { distance.min(packets.len()) };
        let later = &packets[from..];
        let later_heads = &heads[from..];
        for (at, &words) in packets.iter().enumerate() {
            if let (Some(&later), Some(&head)) = (later.get(at), later_heads.get(at)) {
                prefetch::<T0, H>(lines, later, head);
            }
            handle(lines, words);
        }
    }
}

struct ManyLines<'a> {
    batch: Batch<'a>,
    distance: usize,
    lines_of_head: usize,
}

impl WithKernels for ManyLines<'_> {
    type Output = ();

    #[inline(always)]
    fn with<K: Kernels>(self, _: K) {
        let ManyLines { batch, distance, lines_of_head } = self;
        let (lines, packets, heads) = batch.into_parts();
        for (at, &words) in packets.iter().enumerate() {
            if let (Some(&later), Some(&head)) = (packets.get(at + distance), heads.get(at + distance)) {
                prefetch_lines(lines, later, head, lines_of_head);
            }
            handle(lines, words);
        }
    }
}

struct WholeBatch<'a> {
    batch: Batch<'a>,
    lines_of_head: usize,
}

impl WithKernels for WholeBatch<'_> {
    type Output = ();

    #[inline(always)]
    fn with<K: Kernels>(self, _: K) {
        let WholeBatch { batch, lines_of_head } = self;
        let (lines, packets, heads) = batch.into_parts();
        for (&words, &head) in packets.iter().zip(heads) {
            prefetch_lines(lines, words, head, lines_of_head);
        }
        packets.iter().for_each(|&words| handle(lines, words));
    }
}

struct Grouped<'a, const N: usize, Words, Head> {
    batch: Batch<'a>,
    hints: PhantomData<(Words, Head)>,
}

impl<const N: usize, Words: Hint, Head: Hint> WithKernels for Grouped<'_, N, Words, Head> {
    type Output = ();

    #[inline(always)]
    fn with<K: Kernels>(self, _: K) {
        let Grouped { batch, hints: _ } = self;
        let (lines, packets, heads) = batch.into_parts();
        let (groups, rest) = packets.as_chunks::<N>();
        let heads = heads.as_chunks::<N>().0;
        for (at, group) in groups.iter().enumerate() {
            if let (Some(next), Some(heads)) = (groups.get(at + 1), heads.get(at + 1)) {
                for (&later, &head) in next.iter().zip(heads) {
                    prefetch::<Words, Head>(lines, later, head);
                }
            }
            // All loads of a group come before its stores.
            let mut found = [0; N];
            let mut fronts = [[0; 16]; N];
            for (nth, &words) in group.iter().enumerate() {
                found[nth] = send_back(lines, words);
                fronts[nth] = lines[found[nth]].0.first_chunk().map_or([0; 16], |front| swapped(*front));
            }
            for (&head, front) in found.iter().zip(&fronts) {
                lines[head].0[..16].copy_from_slice(front);
            }
        }
        rest.iter().for_each(|&words| handle(lines, words));
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::{Pool, SLOT, WordsPlace};
    use super::*;

    #[test]
    fn each_loop_handles_each_packet_once() {
        let kinds = [HintKind::None, HintKind::T0, HintKind::T1, HintKind::T2, HintKind::Nta, HintKind::Write];
        let mut loops: Vec<(String, Loop)> = Vec::new();
        for distance in [0, 1, 4, 300] {
            loops.extend(kinds.map(|kind| (format!("{kind:?} {distance}"), one_by_one(kind, distance))));
            loops.push((format!("many lines {distance}"), many_lines(distance, 4)));
        }
        loops.push(("whole batch".to_owned(), whole_batch(4)));
        for prefetches in [false, true] {
            loops.push((format!("two {prefetches}"), at_once::<2>(prefetches)));
            loops.push((format!("four {prefetches}"), at_once::<4>(prefetches)));
        }
        for (name, handle) in loops {
            for packets in [0, 1, 2, 3, 4, 5, 9, 256] {
                for place in [WordsPlace::Beside, WordsPlace::Apart] {
                    let mut pool = Pool::new(packets, SLOT, place);
                    for at in 0..packets as usize {
                        pool.enter(at);
                        pool.write_head(at, 3);
                    }
                    handle(pool.batch(0..packets as usize));
                    pool.check(3).unwrap_or_else(|error| panic!("{name}: {error}"));
                }
            }
        }
    }
}
