//! The kernels of each level beside libc's `memcpy`, in cache. A first sieve only: what counts is the pipeline.
//!
//! `cargo bench -p straightline-simd -- --test` runs each once.

use std::hint::black_box;
use std::ptr;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use straightline_simd::{Level, Sum, copy, copy_sum, sum};

const SIZES: [usize; 9] = [64, 128, 256, 512, 1024, 1500, 4096, 16_384, 65_536];

/// Neither range is aligned: bodies of packets rarely are.
const SRC_AT: usize = 12;
const DST_AT: usize = 10;

fn buffers(size: usize) -> (Vec<u8>, Vec<u8>) {
    let src = (0..size + 64).map(|i| (i * i / 7).to_le_bytes()[0]).collect();
    (src, vec![0; size + 64])
}

fn bench_copy(c: &mut Criterion) {
    let mut group = c.benchmark_group("copy");
    for size in SIZES {
        let (src, mut dst) = buffers(size);
        group.throughput(Throughput::Bytes(size as u64));
        for level in Level::supported() {
            group.bench_function(BenchmarkId::new(level.name(), size), |b| {
                b.iter(|| {
                    let (dst, src) = (dst[DST_AT..].as_mut_ptr(), src[SRC_AT..].as_ptr());
                    // SAFETY: both buffers hold 64 bytes more than `size`.
                    unsafe { copy(black_box(level), black_box(dst), black_box(src), black_box(size)) };
                });
            });
        }
        group.bench_function(BenchmarkId::new("memcpy", size), |b| {
            b.iter(|| {
                let (dst, src) = (dst[DST_AT..].as_mut_ptr(), src[SRC_AT..].as_ptr());
                // SAFETY: both buffers hold 64 bytes more than `size`, and they are apart.
                unsafe { ptr::copy_nonoverlapping(black_box(src), black_box(dst), black_box(size)) };
            });
        });
    }
}

fn bench_sum(c: &mut Criterion) {
    let mut group = c.benchmark_group("sum");
    for size in SIZES {
        let (src, _) = buffers(size);
        let bytes = &src[SRC_AT..SRC_AT + size];
        group.throughput(Throughput::Bytes(size as u64));
        for level in Level::supported() {
            group.bench_function(BenchmarkId::new(level.name(), size), |b| {
                b.iter(|| {
                    let mut total = Sum::new();
                    sum(black_box(level), black_box(bytes), &mut total);
                    total.fold()
                });
            });
        }
        group.bench_function(BenchmarkId::new("add_bytes", size), |b| {
            b.iter(|| {
                let mut total = Sum::new();
                total.add_bytes(black_box(bytes));
                total.fold()
            });
        });
    }
}

fn bench_copy_sum(c: &mut Criterion) {
    let mut group = c.benchmark_group("copy_sum");
    for size in SIZES {
        let (src, mut dst) = buffers(size);
        group.throughput(Throughput::Bytes(size as u64));
        for level in Level::supported() {
            group.bench_function(BenchmarkId::new(level.name(), size), |b| {
                b.iter(|| {
                    let (dst, src) = (dst[DST_AT..].as_mut_ptr(), src[SRC_AT..].as_ptr());
                    let mut total = Sum::new();
                    // SAFETY: both buffers hold 64 bytes more than `size`.
                    unsafe { copy_sum(black_box(level), black_box(dst), black_box(src), black_box(size), &mut total) };
                    total.fold()
                });
            });
        }
        group.bench_function(BenchmarkId::new("memcpy_then_add_bytes", size), |b| {
            b.iter(|| {
                let (to, from) = (dst[DST_AT..].as_mut_ptr(), src[SRC_AT..].as_ptr());
                // SAFETY: both buffers hold 64 bytes more than `size`, and they are apart.
                unsafe { ptr::copy_nonoverlapping(black_box(from), black_box(to), black_box(size)) };
                let mut total = Sum::new();
                total.add_bytes(black_box(&dst[DST_AT..DST_AT + size]));
                total.fold()
            });
        });
    }
}

criterion_group!(benches, bench_copy, bench_sum, bench_copy_sum);
criterion_main!(benches);
