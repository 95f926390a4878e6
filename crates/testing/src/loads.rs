//! The bound that memory sets to lookups in a table: loads from random places, each behind the one before.

use std::hint::black_box;
use std::time::{Duration, Instant};

use straightline_report::random::Random;

/// As large as a slot of the stations' table.
#[repr(align(16))]
struct Place {
    next: usize,
}

/// Places of 16 bytes in a random order. Each names the next one.
pub struct Loads(Vec<Place>);

impl Loads {
    /// Returns this number of places.
    #[must_use]
    pub fn new(places: usize) -> Self {
        let mut random = Random::new(32);
        let mut order: Vec<_> = (0..places).collect();
        random.shuffle(&mut order);
        let mut all: Vec<_> = (0..places).map(|_| Place { next: 0 }).collect();
        for (&at, &next) in order.iter().zip(order.iter().cycle().skip(1)) {
            all[at].next = next;
        }
        Loads(all)
    }

    /// Returns the time of `count` loads. Each begins when the one before has ended.
    #[inline(never)]
    #[must_use]
    pub fn time(&self, count: usize) -> Duration {
        let began = Instant::now();
        let mut at = 0;
        for _ in 0..count {
            at = self.0[at].next;
        }
        black_box(at);
        began.elapsed()
    }
}
