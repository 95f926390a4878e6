//! Frame lengths and their weights.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, ensure};
use straightline_wire::imix::IMIX;

use straightline_report::random::Random;

/// Lengths of frames without the frame check sequence, and their weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Lengths, each with its weight.
    Mix(Vec<(u32, u32)>),
    /// All lengths from the first to the second, with the same weight.
    Uniform(u32, u32),
}

/// The least number of frames in the order of a mix before the order repeats.
const DEAL: usize = 256;

/// The most frames in the order of a range. From a larger range, this many lengths are chosen at
/// random.
const MOST: u32 = 2048;

impl Sizes {
    /// Frames of one length.
    #[must_use]
    pub fn one(len: u32) -> Self {
        Sizes(Kind::Mix(vec![(len, 1)]))
    }

    /// Frames of simple IMIX ([`IMIX`]).
    #[must_use]
    pub fn imix() -> Self {
        Sizes(Kind::Mix(IMIX.map(|(len, weight)| (len.into(), weight.into())).to_vec()))
    }

    /// Returns the shortest length.
    #[must_use]
    pub fn shortest(&self) -> u32 {
        match &self.0 {
            Kind::Mix(all) => all.iter().map(|s| s.0).min().unwrap_or(0),
            Kind::Uniform(from, _) => *from,
        }
    }

    /// Returns the longest length.
    #[must_use]
    pub fn longest(&self) -> u32 {
        match &self.0 {
            Kind::Mix(all) => all.iter().map(|s| s.0).max().unwrap_or(0),
            Kind::Uniform(_, to) => *to,
        }
    }

    /// Returns the lengths as a user would write them.
    pub(crate) fn name(&self) -> String {
        if *self == Sizes::imix() { "imix".to_owned() } else { self.to_string() }
    }

    /// Returns the mean frame length of the order that [`Self::deal`] returns for this seed.
    #[expect(clippy::cast_precision_loss, reason = "there are few of them")]
    pub(crate) fn mean(&self, seed: u64) -> f64 {
        let order = self.deal(seed);
        order.iter().map(|&len| f64::from(len)).sum::<f64>() / order.len().max(1) as f64
    }

    /// Returns `count` lengths chosen at random. The same `seed` gives the same lengths.
    pub(crate) fn draw(&self, count: usize, seed: u64) -> Vec<u32> {
        let mut random = Random::new(seed);
        let mut next_size = || match &self.0 {
            Kind::Mix(all) => {
                let mut ticket = random.next() % all.iter().map(|s| u64::from(s.1)).sum::<u64>().max(1);
                let hit = all.iter().find(|s| match ticket.checked_sub(s.1.into()) {
                    None => true,
                    Some(left) => {
                        ticket = left;
                        false
                    }
                });
                hit.map_or(0, |s| s.0)
            }
            Kind::Uniform(from, to) => from + u32::try_from(random.below(u64::from(to - from) + 1)).unwrap_or(0),
        };
        (0..count).map(|_| next_size()).collect()
    }

    /// Returns an order of lengths, to be repeated. Each length has exactly its weight in the
    /// order, so the mean of the order is the mean of the mix.
    pub(crate) fn deal(&self, seed: u64) -> Vec<u32> {
        let mut order: Vec<u32> = match &self.0 {
            Kind::Mix(all) if all.len() == 1 => all.iter().map(|s| s.0).collect(),
            Kind::Mix(all) => {
                let shared = all.iter().fold(0, |shared, s| divisor(shared, s.1)).max(1);
                let once = all.iter().flat_map(|s| std::iter::repeat_n(s.0, (s.1 / shared) as usize));
                let once: Vec<u32> = once.collect();
                let times = DEAL.div_ceil(once.len().max(1));
                once.repeat(times)
            }
            Kind::Uniform(from, to) if to - from < MOST => (*from..=*to).collect(),
            Kind::Uniform(..) => self.draw(MOST as usize, seed),
        };
        Random::new(seed).shuffle(&mut order);
        order
    }
}

/// Returns the greatest common divisor.
fn divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { divisor(b, a % b) }
}

impl FromStr for Sizes {
    type Err = anyhow::Error;

    /// Parses `imix`; `uniform:FROM-TO`; or lengths separated by commas or plus signs, each with an
    /// optional `:` and weight.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        if text == "imix" {
            return Ok(Sizes::imix());
        }
        let number = |text: &str| text.trim().parse::<u32>().with_context(|| format!("`{text}` is not a number"));
        let uniform = |range: &str| {
            let (from, to) = range.split_once('-').with_context(|| format!("`{range}` is not a range"))?;
            let from = number(from)?;
            let to = number(to)?;
            ensure!(from <= to, "`{range}` is not a range: write the lower length first");
            Ok(Kind::Uniform(from, to))
        };
        let weighted = |part: &str| {
            let (len, weight) = part.split_once(':').unwrap_or((part, "1"));
            let size = (number(len)?, number(weight)?);
            ensure!((1..=1000).contains(&size.1), "`{part}`: the weight must be 1 to 1000");
            Ok(size)
        };
        let kind = match text.strip_prefix("uniform:") {
            Some(range) => uniform(range),
            None => text.split([',', '+']).map(weighted).collect::<anyhow::Result<_>>().map(Kind::Mix),
        };
        kind.map(Sizes).context("use 64, 64,1518, 60:7,566:4, uniform:64-1518 or imix")
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = match &self.0 {
            Kind::Uniform(from, until) => return write!(to, "uniform:{from}-{until}"),
            Kind::Mix(all) => all,
        };
        for (at, (len, weight)) in all.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(to, "{comma}{len}")?;
            if all.len() > 1 {
                write!(to, ":{weight}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_drawn() {
        let texts = [
            ("64", "64"),
            ("imix", "60:7,566:4,1514:1"),
            ("64, 1518:3", "64:1,1518:3"),
            ("64+1518:3", "64:1,1518:3"),
            ("uniform:64-1518", "uniform:64-1518"),
        ];
        for (text, shown) in texts {
            assert_eq!(text.parse::<Sizes>().expect(text).to_string(), shown);
        }
        for bad in ["", "x", "64,", "64:0", "64:1001", "64:1:1", "-1", "uniform:", "uniform:64", "uniform:2-1"] {
            let error = bad.parse::<Sizes>().expect_err(bad);
            assert!(format!("{error:#}").contains("imix"), "{error:#}");
        }
        let mix: Sizes = "imix".parse().expect("the mix");
        let drawn = mix.draw(12_000, 7);
        let count = |len| drawn.iter().filter(|&&l| l == len).count();
        for (len, part) in [(60, 7000), (566, 4000), (1514, 1000)] {
            assert!(count(len).abs_diff(part) < 300, "{len}: {}", count(len));
        }
        assert_eq!(mix.draw(100, 7), mix.draw(100, 7));
        assert_ne!(mix.draw(100, 7), mix.draw(100, 8));
    }

    #[test]
    fn a_range_is_drawn_to_both_ends() {
        let range: Sizes = "uniform:64-67".parse().expect("a range");
        assert_eq!((range.shortest(), range.longest()), (64, 67));
        let mut drawn = range.draw(1000, 1);
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, [64, 65, 66, 67]);
    }

    #[test]
    fn what_is_dealt_is_exactly_the_mix() {
        let mix: Sizes = "imix".parse().expect("the mix");
        let order = mix.deal(1);
        let count = |len| order.iter().filter(|&&l| l == len).count();
        assert!(order.len() >= DEAL);
        assert_eq!((count(60) * 4, count(566)), (count(566) * 7, count(1514) * 4));
        assert_eq!(mix.deal(1), order);
        assert!((mix.mean(1) * 12.0 - f64::from(60 * 7 + 566 * 4 + 1514)).abs() < 1e-6, "{}", mix.mean(1));
        assert_eq!((mix.name().as_str(), Sizes::one(64).name().as_str()), ("imix", "64"));
        assert_ne!(mix.deal(2), order);
        assert_eq!(Sizes::one(64).deal(9), [64]);
        assert_eq!("64:1000,128:1000".parse::<Sizes>().expect("a mix").deal(1).len(), DEAL);
        let mut all = "uniform:64-1518".parse::<Sizes>().expect("a range").deal(3);
        all.sort_unstable();
        assert_eq!(all, (64..=1518).collect::<Vec<_>>());
    }
}
