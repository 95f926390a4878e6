//! `noisy`: forwards packets unchanged. For each packet, the guest reads and writes lines of a
//! large memory, as a program with large tables does. Each line counts its touches, and the
//! counters are read at the end.

use anyhow::ensure;
use az::SaturatingAs;
use straightline_guest::endpoints::Packet;
use straightline_report::random::Random;

use super::engine::Mode;
use super::options::Noise;

/// A cache line. The line holds the number of its touches plus 1, so it is never 0. Unwritten pages
/// of zeros would all be the same physical page.
#[derive(Clone)]
#[repr(align(64))]
struct Line(u64);

pub(super) struct Noisy {
    lines: Box<[Line]>,
    per_packet: u32,
    random: Random,
    packets: u64,
}

impl Noisy {
    pub(super) fn new(noise: Noise) -> anyhow::Result<Self> {
        let lines = noise.footprint / 64;
        ensure!(
            (1..=1 << 26).contains(&lines),
            "a footprint of {} bytes is not possible: use 64 bytes to 4 GiB",
            noise.footprint
        );
        let lines = vec![Line(1); usize::try_from(lines)?].into_boxed_slice();
        Ok(Noisy { lines, per_packet: noise.touches, random: Random::new(1), packets: 0 })
    }
}

impl Mode for Noisy {
    const WRITES: bool = false;

    #[inline]
    fn packet(&mut self, _packet: &Packet<'_>, _to: usize) -> bool {
        self.packets += 1;
        let count = self.lines.len().saturating_as::<u64>();
        for _ in 0..self.per_packet {
            let at = usize::try_from(self.random.below(count)).unwrap_or(0);
            self.lines[at].0 += 1;
        }
        true
    }

    fn notes(&self) -> Vec<(&'static str, u64)> {
        let distinct = self.lines.iter().filter(|line| line.0 > 1).count();
        let wide = |n: usize| n.saturating_as::<u64>();
        vec![
            ("cache lines of the footprint", wide(self.lines.len())),
            ("of them touched", wide(distinct)),
            ("touches of lines", self.lines.iter().map(|line| line.0 - 1).sum()),
            ("packets that had their touches", self.packets),
        ]
    }
}
