//! Pseudo-random numbers, the same ones for the same seed.

/// Xorshift (Marsaglia 2003).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the numbers of a seed.
    pub fn new(seed: u64) -> Self {
        // The state may be any number except 0. The factor moves neighbouring seeds far apart.
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number, below 2^56.
    #[expect(clippy::should_implement_trait, reason = "the numbers never end, so there is no `Option`")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    /// Returns the next random number below `bound`, which is not 0. It is the high half of a
    /// product, instead of a remainder (Lemire 2019).
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(bound);
        // The result is below `bound`, as `next` is below 2^56.
        u64::try_from(product >> 56).unwrap_or(0)
    }

    /// Shuffles items (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(u64::try_from(last).unwrap_or(0) + 1);
            items.swap(last, usize::try_from(other).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut random = Random::new(3);
        for bound in [1, 2, 7, 1000, u64::MAX] {
            assert!((0..1000).all(|_| random.below(bound) < bound), "{bound}");
        }
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[usize::try_from(random.below(7)).expect("small")] += 1);
        assert!(seen.iter().all(|&n: &i32| (800..1200).contains(&n)), "{seen:?}");
    }

    #[test]
    fn a_shuffle_loses_nothing() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(5).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
