//! Compares the kernels of each level with third-party ones, by criterion. This is only a first
//! filter: the speed of the whole pipeline decides. On a machine that runs something else as well,
//! `ratios.rs` tells more.
//!
//! Run `cargo bench -p straightline-simd --bench kernels -- FILTER`, where FILTER is for example
//! `sum/warm/1500`. `-- --test` runs each benchmark once.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]
#![expect(unreachable_pub, reason = "a module of several bench binaries")]
#![allow(clippy::print_stdout, reason = "it is a command-line program")]

mod common;

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use common::dirty::Writer;
use common::{Comparison, LENGTHS, Workload};

fn kernels(c: &mut Criterion) {
    for comparison in [common::copies(), common::sums(), common::shared_sums(), common::fused()] {
        warm(c, &comparison, "warm", 4 << 10);
        warm(c, &comparison, "l2", 192 << 10);
        dirty(c, &comparison);
    }
}

/// Measures jobs at random offsets. One iteration is one job.
fn warm(c: &mut Criterion, comparison: &Comparison, name: &str, spread: usize) {
    let mut group = c.benchmark_group(format!("{}/{name}", comparison.name));
    for lengths in LENGTHS {
        let mut workload = Workload::spread(lengths, spread, 2);
        let jobs = workload.jobs.len();
        for kernel in &comparison.kernels {
            let mut at = 0;
            group.bench_function(BenchmarkId::new(kernel.name.as_str(), lengths), |b| {
                b.iter(|| {
                    at = (at + 1) % jobs;
                    workload.run(kernel, at, 1)
                });
            });
        }
    }
}

/// Measures cache lines that the other core has just written. One iteration is all jobs; the time
/// of writing is not included.
fn dirty(c: &mut Criterion, comparison: &Comparison) {
    let mut group = c.benchmark_group(format!("{}/dirty", comparison.name));
    for lengths in LENGTHS {
        let mut workload = Workload::in_a_row(lengths);
        let jobs = workload.jobs.len();
        // SAFETY: only the writer and the kernels access the source, and it outlives the writer in
        // this iteration.
        let Some(mut writer) = (unsafe { Writer::new(workload.src.as_ptr(), workload.src.size()) }) else {
            println!("skipped {}/dirty: one CPU, no other core can write", comparison.name);
            return;
        };
        let bytes = workload.jobs.iter().map(|job| job.len as u64).sum();
        group.throughput(Throughput::Bytes(bytes));
        for kernel in &comparison.kernels {
            group.bench_function(BenchmarkId::new(kernel.name.as_str(), lengths), |b| {
                b.iter_custom(|iterations| {
                    let mut time = Duration::ZERO;
                    for _ in 0..iterations {
                        writer.write();
                        let began = Instant::now();
                        std::hint::black_box(workload.run(kernel, 0, jobs));
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
