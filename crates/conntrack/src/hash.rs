//! The hash of a key. Senders choose keys, so it has a secret.

use crate::buckets::Hash;
use crate::key::KEY_WORDS;

/// Bits of the golden ratio: any number with no pattern.
const FRACTION: u64 = 0x9e37_79b9_7f4a_7c15;

/// A secret that nobody outside of the process knows. The caller draws it at random.
#[derive(Clone, Copy)]
pub struct Secret(pub [u64; 4]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Returns the hash of a key: products of words of 64 bits with secret ones, folded (as foldhash
    /// and wyhash do). Two of them do not wait for each other.
    #[inline]
    pub(crate) fn hash(&self, words: &[u64; KEY_WORDS]) -> Hash {
        let [a, b, c, d] = self.0;
        let local = folded(words[1] ^ a, words[2] ^ b);
        let remote = folded(words[3] ^ c, words[4] ^ d);
        let all = folded(local ^ words[0], remote ^ a.rotate_left(32));
        // Keys that differ in one word only would be a row of multiples without this step.
        Hash(folded(all ^ c.rotate_left(32), d ^ FRACTION))
    }
}

/// Returns both halves of a product, added without carries.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that differ in a few bits, as senders choose them, are spread over all buckets.
    #[test]
    fn keys_that_senders_choose_are_scattered() {
        for seed in 1..40_u64 {
            let secret = Secret([seed, seed << 20, !seed, seed.rotate_right(7)].map(|n| n.wrapping_mul(FRACTION)));
            for word in 0..KEY_WORDS {
                for shift in 0..50 {
                    let mut counts = [0_u32; 256];
                    for n in 0..1024_u64 {
                        let mut words = [0x0001_0000_0000_0011, 0, 0xffff_0a00_0001, 0, 0xffff_c000_0201];
                        words[word] ^= n << shift;
                        counts[usize::try_from(secret.hash(&words).0 & 0xff).unwrap()] += 1;
                    }
                    let most = counts.iter().max().unwrap();
                    assert!(*most <= 22, "{most} of 1024 keys in one of 256, seed {seed}, word {word}, shift {shift}");
                }
            }
        }
    }
}
