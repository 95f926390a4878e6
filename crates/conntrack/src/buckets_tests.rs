//! Tests of `buckets.rs`. They are not in that file, because loom compiles it a second time.

use crate::buckets::{Buckets, Hash};
use proptest::prelude::*;

proptest! {
    /// A reference with a list: an entry has a place if the 16 of its bucket are not all taken.
    #[test]
    fn agrees_with_a_list(steps in prop::collection::vec((0..64_u32, 0..3_u64, any::<bool>()), 0..300)) {
        // Two buckets, and three marks that are neighbours.
        let buckets = Buckets::new(8);
        let hash = |entry: u32, mark: u64| Hash((mark + 1) << 56 | u64::from(entry % 4));
        let mut list: Vec<(u32, u64)> = Vec::new();
        for (entry, mark, adds) in steps {
            let hash_of = hash(entry, mark);
            let bucket = |other: &(u32, u64)| other.0 % 4 / 2 == entry % 4 / 2;
            if adds && !list.contains(&(entry, mark)) {
                let fits = list.iter().filter(|other| bucket(other)).count() < 16;
                prop_assert_eq!(buckets.insert(hash_of, entry), fits);
                if fits {
                    list.push((entry, mark));
                }
            } else if !adds {
                buckets.remove(hash_of, entry);
                list.retain(|other| *other != (entry, mark));
            }
            for (entry, mark) in &list {
                let mut candidates = buckets.candidates(hash(*entry, *mark));
                prop_assert!(candidates.any(|other| other == *entry));
                prop_assert!(buckets.guess(hash(*entry, *mark)).is_some());
            }
        }
    }
}
