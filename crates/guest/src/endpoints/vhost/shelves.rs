//! Free transmit buffers, sorted by the part of a template that they hold.
//!
//! A frame goes into a buffer that held the same template before, so that only its patch has to be
//! written. Without this order, a frame mostly meets a buffer with another template. Buffers return
//! in the order of the ring, and the last one is taken first: its lines are most likely in a cache.

use az::SaturatingAs;

/// Number of shelves: a power of two. Each has the buffers of one part of a template, or of few.
const SHELVES: usize = 256;

/// Marks a buffer that holds no part of a template.
const NOTHING: u64 = u64::MAX;

/// Marks the end of a shelf.
const NO_BUFFER: u32 = u32::MAX;

/// Free buffers by their numbers. Each shelf is a linked list, and its last buffer comes first.
#[derive(Debug)]
pub(super) struct Shelves {
    tops: Box<[u32; SHELVES]>,
    /// For each buffer, the next one on its shelf.
    below: Box<[u32]>,
    /// A bit for each shelf: set if it has a buffer.
    stocked: [u64; SHELVES / 64],
    count: usize,
    /// For each buffer, the part of a template that it holds; [`NOTHING`] if unknown.
    holds: Box<[u64]>,
}

impl Shelves {
    /// Makes empty shelves for buffers with numbers below `buffers`.
    pub(super) fn new(buffers: usize) -> Shelves {
        Shelves {
            tops: Box::new([NO_BUFFER; SHELVES]),
            below: vec![NO_BUFFER; buffers].into(),
            stocked: [0; SHELVES / 64],
            count: 0,
            holds: vec![NOTHING; buffers].into(),
        }
    }

    /// Returns the number of buffers on all shelves.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Puts a free buffer on the shelf of the part that it holds. Ignores a number beyond those of
    /// all buffers.
    #[inline]
    pub(super) fn put(&mut self, buffer: u64) {
        let Ok(number) = u32::try_from(buffer) else { return };
        let Some((below, holds)) = self.below.get_mut(number as usize).zip(self.holds.get(number as usize)) else {
            return;
        };
        let shelf = shelf_of(*holds);
        *below = std::mem::replace(&mut self.tops[shelf], number);
        self.stocked[shelf / 64] |= 1 << (shelf % 64);
        self.count += 1;
    }

    /// Takes a free buffer for this part of a template, if there is one. Returns its number, and
    /// whether it holds this part already. It is noted as holding this part from now on.
    #[inline]
    pub(super) fn take(&mut self, part: u64) -> Option<(u64, bool)> {
        let shelf = shelf_of(part);
        let shelf = if self.tops[shelf] == NO_BUFFER { self.any()? } else { shelf };
        let number = self.tops[shelf];
        let below = *self.below.get(number as usize)?;
        self.tops[shelf] = below;
        if below == NO_BUFFER {
            self.stocked[shelf / 64] &= !(1 << (shelf % 64));
        }
        self.count -= 1;
        let held = std::mem::replace(self.holds.get_mut(number as usize)?, part);
        Some((number.into(), held == part))
    }

    /// Takes any buffer, whose contents are unknown from now on.
    #[inline]
    pub(super) fn take_any(&mut self) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        self.take(NOTHING).map(|(buffer, _)| buffer)
    }

    /// Forgets the contents of all buffers: somebody else may have written to them.
    pub(super) fn forget(&mut self) {
        self.holds.fill(NOTHING);
    }

    /// Returns a shelf that is not empty.
    #[cold]
    fn any(&self) -> Option<usize> {
        let word = self.stocked.iter().position(|word| *word != 0)?;
        Some(64 * word + self.stocked[word].trailing_zeros() as usize)
    }
}

/// Returns the number of a part of a template.
#[inline]
pub(super) fn part_of(template: usize, part: usize) -> u64 {
    template.saturating_as::<u64>() << 16 | u64::try_from(part).unwrap_or(0)
}

/// Returns the shelf for a part of a template. Templates of low numbers in one buffer have shelves
/// of their own.
#[inline]
fn shelf_of(part: u64) -> usize {
    usize::try_from((part >> 16).wrapping_add(31 * (part & 0xffff))).unwrap_or(0) % SHELVES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_gets_a_buffer_with_its_template() {
        let mut shelves = Shelves::new(100);
        assert_eq!(shelves.take(part_of(3, 0)), None);
        (0..64).for_each(|buffer| shelves.put(buffer));
        // A ring returns its buffers in any order. The first round fills them.
        for round in 0..100 {
            let mut taken = Vec::new();
            for frame in 0..48 {
                let (buffer, is_held) = shelves.take(part_of(frame % 8, 0)).expect("64 are free");
                assert!(buffer < 64 && !taken.contains(&buffer));
                assert_eq!(is_held, round > 0, "frame {frame} of round {round}");
                taken.push(buffer);
            }
            assert_eq!(shelves.len(), 16);
            taken.rotate_left(round * 7 % 48);
            if round % 3 == 0 {
                taken.reverse();
            }
            taken.into_iter().for_each(|buffer| shelves.put(buffer));
        }
        // No buffer is left out: if those of a template are taken, any other one is.
        let mut all: Vec<u64> = (0..64).filter_map(|_| Some(shelves.take(part_of(5, 0))?.0)).collect();
        assert_eq!((shelves.take(part_of(5, 0)), shelves.take_any(), shelves.len()), (None, None, 0));
        all.sort_unstable();
        assert_eq!(all, (0..64).collect::<Vec<u64>>());
    }

    #[test]
    fn parts_on_one_shelf_are_told_apart() {
        let parts = [part_of(7, 0), part_of(7 + SHELVES, 0), part_of(0, 1), u64::MAX - 1];
        assert_eq!(shelf_of(parts[0]), shelf_of(parts[1]));
        for part in parts {
            for other in parts {
                let mut shelves = Shelves::new(1);
                shelves.put(0);
                assert_eq!(shelves.take(part), Some((0, false)));
                shelves.put(0);
                assert_eq!(shelves.take(other), Some((0, part == other)), "{part:x} {other:x}");
                shelves.put(0);
                shelves.forget();
                assert_eq!(shelves.take(other), Some((0, false)));
            }
        }
        let mut shelves = Shelves::new(1);
        [1, 1 << 40, u64::MAX].into_iter().for_each(|beyond| shelves.put(beyond));
        assert_eq!((shelves.len(), shelves.take(0)), (0, None));
    }
}
