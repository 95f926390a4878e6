//! Random numbers of a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

/// A sequence of numbers that the seed determines.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns 32 random bits.
    pub fn word(&mut self) -> u32 {
        u32::try_from(self.next() >> 32).expect("32 bits")
    }

    /// Returns a number from `low` to `high`.
    pub fn within(&mut self, low: u32, high: u32) -> u32 {
        let count = u64::from(high - low) + 1;
        low + u32::try_from((u64::from(self.word()) * count) >> 32).expect("below the count")
    }

    /// Returns a place in a list of `len` things, which must not be empty.
    pub fn place(&mut self, len: usize) -> usize {
        let last = u32::try_from(len - 1).expect("a list of fewer than 2^32 things");
        self.within(0, last) as usize
    }

    /// Returns true in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.within(0, 99) < percent
    }

    /// Returns a number from 0 to 1, which 1 is not.
    pub fn fraction(&mut self) -> f64 {
        f64::from(self.word()) / 4_294_967_296.0
    }

    /// Returns one of the things, by their weights.
    pub fn weighted<T: Copy>(&mut self, all: &[(T, u32)]) -> T {
        let total: u32 = all.iter().map(|(_, weight)| weight).sum();
        let mut left = self.within(1, total);
        for &(thing, weight) in all {
            if left <= weight {
                return thing;
            }
            left -= weight;
        }
        unreachable!("the weights add up to the total")
    }
}
