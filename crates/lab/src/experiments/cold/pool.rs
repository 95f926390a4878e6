//! Packets in memory, as a node by reference finds them: a line of words, some headroom, and the
//! head where its writer has stored it.

use std::ops::Range;

use anyhow::ensure;
use straightline_report::random::Random;

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u8; 64]);

/// Lines from a packet's words to its head where both are beside one another: the words and the
/// headroom of a slot of this switch. VPP's buffers have two lines of words, and the same headroom.
const HEAD_AT: u32 = 3;

/// The port that a packet goes to before the node has sent it.
const NOWHERE: [u8; 4] = [0xff; 4];

/// Place of a packet's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordsPlace {
    /// In front of its head, as in VPP's buffers and in our slots.
    Beside,
    /// In a list of their own, as where a slot refers to a frame of AF_XDP.
    Apart,
}

/// Bytes of a slot of this switch.
pub(super) const SLOT: usize = 704;

/// The order of a frame's first 16 bytes with swapped addresses.
const SWAPPED: [usize; 16] = [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15];

/// Packets at equal distances, and the order in which they come. Nobody can predict the order.
#[derive(Debug)]
pub(super) struct Pool {
    lines: Vec<Line>,
    /// The line of each packet's words, as an index.
    words: Vec<u32>,
    /// The line of each packet's head.
    heads: Vec<u32>,
}

/// Packets that a node gets at once. Their words, and the lines with their heads, are in the pool:
/// [`Pool::batch`] has checked it.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    lines: &'a mut [Line],
    words: &'a [u32],
    heads: &'a [u32],
}

impl<'a> Batch<'a> {
    /// Returns the lines of the pool, and the indexes of the lines of each packet: of its words, and of
    /// its head. The latter are as many. They are for prefetches: the words say where the head is, too.
    #[inline(always)]
    pub(super) fn into_parts(self) -> (&'a mut [Line], &'a [u32], &'a [u32]) {
        (self.lines, self.words, self.heads)
    }
}

impl Pool {
    /// Creates a pool. The head of a packet has this many bytes, a multiple of a line, with its
    /// headroom and, if they are beside it, its words.
    pub(super) fn new(packets: u32, bytes: usize, place: WordsPlace) -> Pool {
        let stride = u32::try_from(bytes / size_of::<Line>()).unwrap_or(0).max(HEAD_AT + 1);
        let mut order: Vec<u32> = (0..packets).collect();
        let mut random = Random::new(bytes as u64);
        random.shuffle(&mut order);
        let slots: Vec<u32> = order.iter().map(|nth| nth * stride).collect();
        let (list, words) = match place {
            WordsPlace::Beside => (0, slots.clone()),
            WordsPlace::Apart => (packets, (0..packets).collect()),
        };
        let heads = slots.iter().map(|slot| list + slot + HEAD_AT).collect();
        Pool { lines: vec![Line([0; 64]); (list + packets * stride) as usize], words, heads }
    }

    /// Returns the packets at these places of the order as a batch.
    ///
    /// # Panics
    /// If a packet was not entered, which is a bug.
    pub(super) fn batch(&mut self, range: Range<usize>) -> Batch<'_> {
        let words = &self.words[range.clone()];
        let heads = &self.heads[range];
        for (&at, &head) in words.iter().zip(heads) {
            let to_head = (head - at).to_le_bytes();
            let is_entered = self.lines[at as usize].0[..4] == to_head && (head as usize) < self.lines.len();
            assert!(is_entered, "the packet at line {at} was not entered");
        }
        Batch { lines: &mut self.lines, words, heads }
    }

    /// Writes the words of the packet at this place of the order, as the input of a worker does: the
    /// lines to its head, and the port that it came from.
    #[inline(always)]
    pub(super) fn enter(&mut self, at: usize) {
        let words = self.words[at];
        let to_head = self.heads[at] - words;
        let line = &mut self.lines[words as usize].0;
        line[..4].copy_from_slice(&to_head.to_le_bytes());
        line[4..8].copy_from_slice(&words.to_le_bytes());
        line[8..12].copy_from_slice(&NOWHERE);
    }

    /// Writes the head of a packet, as a NIC does. Its bytes are of this round.
    #[inline]
    pub(super) fn write_head(&mut self, at: usize, round: u8) {
        self.lines[self.heads[at] as usize].0 = head(self.words[at], round);
    }

    /// Returns the lines with heads.
    pub(super) fn heads(&self) -> impl Iterator<Item = &Line> {
        self.heads.iter().map(|&head| &self.lines[head as usize])
    }

    /// Checks that each packet went through the node in this round, once.
    ///
    /// # Errors
    /// A packet did not.
    pub(super) fn check(&self, round: u8) -> anyhow::Result<()> {
        for (&words, line) in self.words.iter().zip(self.heads()) {
            let port = &self.lines[words as usize].0[8..12];
            ensure!(*port == words.to_le_bytes(), "the node did not send the packet at line {words}");
            let mut expected = head(words, round);
            swap(&mut expected);
            ensure!(line.0 == expected, "the node did not swap the addresses of the packet at line {words}");
        }
        Ok(())
    }
}

/// Returns the first line of a packet's frame.
#[inline]
fn head(words: u32, round: u8) -> [u8; 64] {
    let mut head = [round; 64];
    head[..4].copy_from_slice(&words.to_le_bytes());
    head
}

/// Returns a frame's first bytes with swapped addresses. It is one shuffle where the instruction set
/// has it, as in `examples/macswap`.
#[inline(always)]
pub(in super::super) fn swapped(first: [u8; 16]) -> [u8; 16] {
    let mut swapped = first;
    for (to, from) in swapped.iter_mut().zip(SWAPPED) {
        *to = first[from];
    }
    swapped
}

/// Swaps the addresses in a line with a head. The simplest way to do it, to compare with.
fn swap(head: &mut [u8; 64]) {
    head[..12].rotate_left(6);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_do_not_overlap() {
        for bytes in [64, 256, SLOT, 2048] {
            for place in [WordsPlace::Beside, WordsPlace::Apart] {
                let mut pool = Pool::new(5, bytes, place);
                let mut lines = [pool.words.clone(), pool.heads.clone()].concat();
                lines.sort_unstable();
                lines.dedup();
                assert_eq!(lines.len(), 10);
                assert!(pool.check(1).is_err());
                for at in 0..5 {
                    pool.enter(at);
                    pool.write_head(at, 1);
                }
                let words = pool.words[3].to_le_bytes();
                assert_eq!(pool.heads().nth(3).expect("one of five").0[..6], [words.as_slice(), &[1, 1]].concat());
                assert!(pool.check(1).expect_err("no node").to_string().contains("did not send"));
            }
        }
    }

    #[test]
    fn a_shuffle_swaps() {
        let mut line: [u8; 64] = std::array::from_fn(|at| u8::try_from(at).expect("64"));
        let first = *line.first_chunk::<16>().expect("16 of 64");
        swap(&mut line);
        assert_eq!(swapped(first), line[..16]);
    }
}
