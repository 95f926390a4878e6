//! The kernels of each level beside their peers, by criterion. A first sieve only: what counts is the pipeline. Where
//! something else runs as well, `ratios.rs` says more.
//!
//! `cargo bench -p straightline-simd --bench kernels -- FILTER`, such as `sum/warm/1500`; `-- --test` runs each once.
#![expect(unreachable_pub, reason = "a module of several bench binaries")]
#![allow(clippy::print_stdout, reason = "it is a command-line program")]

mod field;

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use field::dirty::Writer;
use field::{Contest, LENGTHS, Load};

fn kernels(c: &mut Criterion) {
    for contest in [field::copies(), field::sums(), field::fused()] {
        warm(c, &contest, "warm", 4 << 10);
        warm(c, &contest, "l2", 192 << 10);
        dirty(c, &contest);
    }
}

/// Places at random; one iteration is one place.
fn warm(c: &mut Criterion, contest: &Contest, name: &str, spread: usize) {
    let mut group = c.benchmark_group(format!("{}/{name}", contest.name));
    for lengths in LENGTHS {
        let mut load = Load::spread(lengths, spread);
        let places = load.places.len();
        for kernel in &contest.kernels {
            let mut at = 0;
            group.bench_function(BenchmarkId::new(kernel.name.as_str(), lengths), |b| {
                b.iter(|| {
                    at = (at + 1) % places;
                    load.run(kernel, at, 1)
                });
            });
        }
    }
}

/// Lines that the other core has just written; one iteration is all places, and the writing is not counted.
fn dirty(c: &mut Criterion, contest: &Contest) {
    let mut group = c.benchmark_group(format!("{}/dirty", contest.name));
    for lengths in LENGTHS {
        let mut load = Load::in_a_row(lengths);
        let places = load.places.len();
        // SAFETY: the source is not touched but by the writer and the kernels, and outlives it in this round.
        let Some(mut writer) = (unsafe { Writer::new(load.src.as_ptr(), load.src.len()) }) else {
            println!("skipped {}/dirty: one CPU, no other core can write", contest.name);
            return;
        };
        let bytes = load.places.iter().map(|place| place.len as u64).sum();
        group.throughput(Throughput::Bytes(bytes));
        for kernel in &contest.kernels {
            group.bench_function(BenchmarkId::new(kernel.name.as_str(), lengths), |b| {
                b.iter_custom(|iterations| {
                    let mut time = Duration::ZERO;
                    for _ in 0..iterations {
                        writer.write();
                        let began = Instant::now();
                        std::hint::black_box(load.run(kernel, 0, places));
                        time += began.elapsed();
                    }
                    time
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500));
    targets = kernels
}
criterion_main!(benches);
