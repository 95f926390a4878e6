//! The kernels beside their peers, round by round, and the ratios of each round: what a busy machine still tells.
//!
//! `cargo bench -p straightline-simd --bench ratios [copy|sum|copy_sum|WORD...]`; without `--bench`, one round of each.
//! A cell is the smallest time of all rounds in nanoseconds, and how many times the speed of the better peer of the same
//! round that is, in the median. For `copy_sum` it is compared with the copy alone.
#![expect(unreachable_pub, reason = "a module of several bench binaries")]
#![allow(clippy::print_stdout, reason = "it is a command-line program")]

mod field;

use std::env;
use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use field::dirty::Writer;
use field::{Contest, LENGTHS, Lengths, Load};

/// Where the source's lines are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    First,
    Second,
    /// Modified, in the other core's cache.
    Dirty,
}

impl Lines {
    const ALL: [Self; 3] = [Self::First, Self::Second, Self::Dirty];

    fn name(self) -> &'static str {
        match self {
            Self::First => "warm",
            Self::Second => "l2",
            Self::Dirty => "dirty",
        }
    }
}

fn main() -> io::Result<()> {
    let asked: Vec<String> = env::args().skip(1).collect();
    let measure = asked.iter().any(|word| word == "--bench") && !asked.iter().any(|word| word == "--test");
    let words: Vec<_> = asked.iter().filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str, of: &[&str]| {
        !words.iter().any(|word| of.contains(&word.as_str())) || words.iter().any(|word| *word == name)
    };
    let contests = [field::copies(), field::sums(), field::fused()];
    let names = contests.each_ref().map(|contest| contest.name);
    for contest in contests.iter().filter(|contest| wanted(contest.name, &names)) {
        for lines in Lines::ALL.into_iter().filter(|lines| wanted(lines.name(), &Lines::ALL.map(Lines::name))) {
            table(contest, lines, if measure { 200 } else { 1 })?;
        }
    }
    Ok(())
}

fn table(contest: &Contest, lines: Lines, rounds: usize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{:>16}", format!("{} {}", contest.name, lines.name()))?;
    for kernel in &contest.kernels {
        write!(out, " |{:>15.15}", kernel.name)?;
    }
    writeln!(out)?;
    for lengths in LENGTHS {
        let Some(times) = times(contest, lines, lengths, rounds) else {
            writeln!(out, "skipped {} dirty: one CPU, no other core can write", contest.name)?;
            return Ok(());
        };
        write!(out, "{lengths:>16}")?;
        for kernel in 0..contest.kernels.len() {
            let least = times.iter().map(|row| row[kernel]).fold(f64::MAX, f64::min);
            let mut ratios: Vec<_> = times
                .iter()
                .map(|row| row[..contest.peers].iter().copied().fold(f64::MAX, f64::min) / row[kernel])
                .collect();
            ratios.sort_by(f64::total_cmp);
            write!(out, " |{least:>9.1} {:>5.2}", ratios[ratios.len() / 2])?;
        }
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

/// Nanoseconds for one run of each kernel, a row for each round.
fn times(contest: &Contest, lines: Lines, lengths: Lengths, rounds: usize) -> Option<Vec<Vec<f64>>> {
    let mut load = match lines {
        Lines::First => Load::spread(lengths, 4 << 10),
        Lines::Second => Load::spread(lengths, 192 << 10),
        Lines::Dirty => Load::in_a_row(lengths),
    };
    let mut writer = None;
    if lines == Lines::Dirty {
        // SAFETY: the source is not touched but by the writer and the kernels, and outlives it in this function.
        writer = Some(unsafe { Writer::new(load.src.as_ptr(), load.src.len()) }?);
    }
    let bytes = load.places.iter().map(|place| place.len).sum::<usize>() / load.places.len();
    let n = if writer.is_some() { load.places.len() } else { (40_000 / (bytes / 20 + 12)).clamp(8, 4096) };
    let kernels = &contest.kernels;
    let mut rows = Vec::new();
    for round in 0..rounds {
        let mut row = vec![0.0; kernels.len()];
        for turn in 0..kernels.len() {
            let which = (turn + round) % kernels.len();
            let from = if writer.is_some() { 0 } else { round * 977 % (load.places.len() - n) };
            if let Some(writer) = &mut writer {
                writer.write();
            } else if matches!(lengths, Lengths::One(_)) && lines == Lines::First {
                black_box(load.run(&kernels[which], from, n));
            }
            let began = Instant::now();
            black_box(load.run(&kernels[which], from, n));
            row[which] = began.elapsed().as_secs_f64() * 1e9 / n as f64;
        }
        rows.push(row);
    }
    drop(writer);
    Some(rows)
}
