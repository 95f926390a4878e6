//! Compares the kernels with third-party ones in interleaved rounds. The ratios of each round are
//! meaningful even on a busy machine.
//!
//! Run `cargo bench -p straightline-simd --bench ratios [copy|sum|sum_shared|copy_sum|WORD...]`. Without
//! `--bench` it runs one round of each.
//!
//! A cell shows two numbers. The first is the smallest time of all rounds, in nanoseconds. The
//! second is the median, over the rounds, of the speed relative to the fastest third-party kernel
//! of the same round. `copy_sum` is compared with the copy alone, `sum_shared` with `copy_sum`.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]
#![expect(unreachable_pub, reason = "a module of several bench binaries")]
#![allow(clippy::print_stdout, reason = "it is a command-line program")]

mod common;

use std::env;
use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use common::dirty::Writer;
use common::{Comparison, LENGTHS, Lengths, Workload};

/// Cache in which the lines of the source are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    First,
    /// As `First`, where each job begins at a cache line.
    Aligned,
    Second,
    /// Modified, in the cache of the other core.
    Dirty,
}

impl Lines {
    const ALL: [Self; 4] = [Self::First, Self::Aligned, Self::Second, Self::Dirty];

    fn name(self) -> &'static str {
        match self {
            Self::First => "warm",
            Self::Aligned => "aligned",
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
    let comparisons = [common::copies(), common::sums(), common::shared_sums(), common::fused()];
    let names = comparisons.each_ref().map(|comparison| comparison.name);
    for comparison in comparisons.iter().filter(|comparison| wanted(comparison.name, &names)) {
        for lines in Lines::ALL.into_iter().filter(|lines| wanted(lines.name(), &Lines::ALL.map(Lines::name))) {
            table(comparison, lines, if measure { 200 } else { 1 })?;
        }
    }
    Ok(())
}

fn table(comparison: &Comparison, lines: Lines, rounds: usize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{:>16}", format!("{} {}", comparison.name, lines.name()))?;
    for kernel in &comparison.kernels {
        write!(out, " |{:>15.15}", kernel.name)?;
    }
    writeln!(out)?;
    for lengths in LENGTHS {
        let Some(times) = times(comparison, lines, lengths, rounds) else {
            writeln!(out, "skipped {} dirty: one CPU, no other core can write", comparison.name)?;
            return Ok(());
        };
        write!(out, "{lengths:>16}")?;
        for kernel in 0..comparison.kernels.len() {
            let least = times.iter().map(|row| row[kernel]).fold(f64::MAX, f64::min);
            let mut ratios: Vec<_> = times
                .iter()
                .map(|row| row[..comparison.peers].iter().copied().fold(f64::MAX, f64::min) / row[kernel])
                .collect();
            ratios.sort_by(f64::total_cmp);
            write!(out, " |{least:>9.1} {:>5.2}", ratios[ratios.len() / 2])?;
        }
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

/// Returns the nanoseconds of one job for each kernel, one row per round.
fn times(comparison: &Comparison, lines: Lines, lengths: Lengths, rounds: usize) -> Option<Vec<Vec<f64>>> {
    let mut workload = match lines {
        Lines::First => Workload::spread(lengths, 4 << 10, 2),
        Lines::Aligned => Workload::spread(lengths, 4 << 10, 64),
        Lines::Second => Workload::spread(lengths, 192 << 10, 2),
        Lines::Dirty => Workload::in_a_row(lengths),
    };
    let mut writer = None;
    if lines == Lines::Dirty {
        // SAFETY: only the writer and the kernels access the source, and it outlives the writer in
        // this function.
        writer = Some(unsafe { Writer::new(workload.src.as_ptr(), workload.src.size()) }?);
    }
    let bytes = workload.jobs.iter().map(|job| job.len).sum::<usize>() / workload.jobs.len();
    let n = if writer.is_some() { workload.jobs.len() } else { (40_000 / (bytes / 20 + 12)).clamp(8, 4096) };
    let kernels = &comparison.kernels;
    let mut rows = Vec::new();
    for round in 0..rounds {
        let mut row = vec![0.0; kernels.len()];
        for turn in 0..kernels.len() {
            let which = (turn + round) % kernels.len();
            let from = if writer.is_some() { 0 } else { round * 977 % (workload.jobs.len() - n) };
            if let Some(writer) = &mut writer {
                writer.write();
            } else if matches!(lengths, Lengths::One(_)) && [Lines::First, Lines::Aligned].contains(&lines) {
                black_box(workload.run(&kernels[which], from, n));
            }
            let began = Instant::now();
            black_box(workload.run(&kernels[which], from, n));
            row[which] = began.elapsed().as_secs_f64() * 1e9 / n as f64;
        }
        rows.push(row);
    }
    drop(writer);
    Some(rows)
}
