//! Kernels of this crate, third-party kernels, and the jobs that the benchmarks run them on.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]
#![allow(dead_code, reason = "each bench uses a part")]

pub mod dirty;
pub mod peers;

use std::hint::black_box;

use straightline_simd::{Kernels, Level, Sum, WithKernels};
use straightline_wire::imix;

/// One call of a kernel: offsets of source and destination, and a length.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Job {
    /// Offset of the destination from the beginning of its area.
    pub dst: usize,
    /// Offset of the source from the beginning of its area.
    pub src: usize,
    /// Number of bytes.
    pub len: usize,
}

/// Jobs, with the addresses of the destination area and the source area.
pub struct Jobs<'a> {
    dst: *mut u8,
    src: *const u8,
    jobs: &'a [Job],
}

impl Jobs<'_> {
    /// Calls `one` for each job. The result keeps the compiler from removing the calls.
    #[inline(always)]
    fn each(&self, mut one: impl FnMut(*mut u8, *const u8, usize) -> u64) -> u64 {
        self.jobs
            .iter()
            .fold(0, |total, job| total ^ one(self.dst.wrapping_add(job.dst), self.src.wrapping_add(job.src), job.len))
    }
}

/// Loop that calls a kernel of this crate or a third-party one. The kernel is inlined into the loop
/// if users of the kernel would have it inlined.
pub struct Kernel {
    pub name: String,
    pub run: Box<dyn Fn(&Jobs<'_>) -> u64>,
}

fn kernel(name: impl Into<String>, run: impl Fn(&Jobs<'_>) -> u64 + 'static) -> Kernel {
    Kernel { name: name.into(), run: Box::new(run) }
}

/// Kernels to compare. The first `peers` of them are third-party ones.
pub struct Comparison {
    pub name: &'static str,
    pub kernels: Vec<Kernel>,
    pub peers: usize,
}

/// Work for each job by the kernels of a set.
trait One: Copy + 'static {
    fn one<K: Kernels>(kernels: K, dst: *mut u8, src: *const u8, len: usize) -> u64;
}

// SAFETY of all blocks below: `Workload::jobs` has only jobs within its areas, and the areas
// outlive the runs.

#[derive(Clone, Copy)]
struct Copying;

impl One for Copying {
    #[inline(always)]
    fn one<K: Kernels>(kernels: K, dst: *mut u8, src: *const u8, len: usize) -> u64 {
        // SAFETY: see above.
        unsafe { kernels.copy(dst, src, len) };
        0
    }
}

#[derive(Clone, Copy)]
struct Summing;

impl One for Summing {
    #[inline(always)]
    fn one<K: Kernels>(kernels: K, _: *mut u8, src: *const u8, len: usize) -> u64 {
        let mut total = Sum::new();
        // SAFETY: see above.
        kernels.sum(unsafe { std::slice::from_raw_parts(src, len) }, &mut total);
        u64::from(total.fold())
    }
}

#[derive(Clone, Copy)]
struct SummingShared;

impl One for SummingShared {
    #[inline(always)]
    fn one<K: Kernels>(kernels: K, _: *mut u8, src: *const u8, len: usize) -> u64 {
        let mut total = Sum::new();
        // SAFETY: see above.
        unsafe { kernels.sum_shared(src, len, &mut total) };
        u64::from(total.fold())
    }
}

#[derive(Clone, Copy)]
struct Both;

impl One for Both {
    #[inline(always)]
    fn one<K: Kernels>(kernels: K, dst: *mut u8, src: *const u8, len: usize) -> u64 {
        let mut total = Sum::new();
        // SAFETY: see above.
        unsafe { kernels.copy_sum(dst, src, len, &mut total) };
        u64::from(total.fold())
    }
}

/// Loop for one instruction set.
struct Loop<'a, O>(&'a Jobs<'a>, O);

impl<O: One> WithKernels for Loop<'_, O> {
    type Output = u64;

    #[inline(always)]
    fn with<K: Kernels>(self, kernels: K) -> u64 {
        self.0.each(
            #[inline(always)]
            |dst, src, len| O::one(kernels, dst, src, len),
        )
    }
}

/// Returns each set in a loop compiled for it. The last kernel is the widest set, chosen by level
/// in each call, as in a loop that is not compiled for a set.
fn ours(what: impl One) -> impl Iterator<Item = Kernel> {
    let inlined = move |level: Level| kernel(level.name(), move |jobs| level.run(Loop(jobs, what)));
    let widest = Level::detect();
    let called = kernel(format!("{widest} by level"), move |jobs| {
        // The level is loaded for each job, as a worker loads it.
        jobs.each(|dst, src, len| one(what, black_box(widest), dst, src, len))
    });
    Level::supported().map(inlined).chain([called])
}

fn one<O: One>(_: O, level: Level, dst: *mut u8, src: *const u8, len: usize) -> u64 {
    O::one(level, dst, src, len)
}

pub fn copies() -> Comparison {
    let mut kernels = vec![kernel("memcpy", |jobs| {
        jobs.each(|dst, src, len| {
            // SAFETY: see above; the areas are apart.
            unsafe { peers::memcpy(dst, src, len) };
            0
        })
    })];
    if let Some(rte_memcpy) = peers::rte_memcpy() {
        kernels.push(kernel("rte_memcpy", move |jobs| {
            // SAFETY: see above; the areas are apart.
            unsafe { rte_memcpy(jobs.dst, jobs.src, jobs.jobs.as_ptr(), jobs.jobs.len()) };
            0
        }));
    }
    let peers = kernels.len();
    kernels.extend(ours(Copying));
    let others = Level::for_comparison().filter(|level| level.name() != "libc");
    kernels.extend(others.map(|level| kernel(level.name(), move |jobs| level.run(Loop(jobs, Copying)))));
    Comparison { name: "copy", kernels, peers }
}

pub fn sums() -> Comparison {
    let mut kernels = vec![kernel("adc chain", |jobs| {
        // SAFETY: see above.
        jobs.each(|_, src, len| u64::from(peers::fold(unsafe { peers::adc_chain(src, len) })))
    })];
    kernels.extend(ours(Summing));
    Comparison { name: "sum", kernels, peers: 1 }
}

pub fn shared_sums() -> Comparison {
    let widest = Level::detect();
    let mut kernels = vec![kernel("copy_sum", move |jobs| widest.run(Loop(jobs, Both)))];
    kernels.extend(ours(SummingShared));
    // Nobody else sums memory that others write. It should cost less than the copy that sums.
    Comparison { name: "sum_shared", kernels, peers: 1 }
}

pub fn fused() -> Comparison {
    let widest = Level::detect();
    let mut kernels = vec![
        kernel("copy alone", move |jobs| widest.run(Loop(jobs, Copying))),
        kernel("memcpy, then adc chain", |jobs| {
            jobs.each(|dst, src, len| {
                // SAFETY: see above; the areas are apart.
                unsafe {
                    peers::memcpy(dst, src, len);
                    u64::from(peers::fold(peers::adc_chain(dst, len)))
                }
            })
        }),
    ];
    kernels.extend(ours(Both));
    // Only the first kernel counts as third-party: the second is known to be slow.
    Comparison { name: "copy_sum", kernels, peers: 1 }
}

/// Lengths.
#[derive(Clone, Copy)]
pub enum Lengths {
    /// One length, at every alignment. The CPU predicts each branch on it.
    One(usize),
    /// Random lengths from 8 up to this one, uniformly distributed.
    UpTo(usize),
    /// The Internet mix, at random.
    Imix,
}

/// Lengths in the tables.
pub const LENGTHS: [Lengths; 22] = [
    Lengths::One(20),
    Lengths::One(40),
    Lengths::One(64),
    Lengths::One(100),
    Lengths::One(128),
    Lengths::One(200),
    Lengths::One(256),
    Lengths::One(300),
    Lengths::One(400),
    Lengths::One(512),
    Lengths::One(700),
    Lengths::One(1024),
    Lengths::One(1262),
    Lengths::One(1500),
    Lengths::One(2048),
    Lengths::One(4096),
    Lengths::One(16_384),
    Lengths::One(65_536),
    Lengths::UpTo(64),
    Lengths::UpTo(256),
    Lengths::UpTo(1518),
    Lengths::Imix,
];

impl std::fmt::Display for Lengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::One(len) => f.pad(&len.to_string()),
            Self::UpTo(len) => f.pad(&format!("8..{len}")),
            Self::Imix => f.pad("imix"),
        }
    }
}

/// Source area, destination area, and a sequence of jobs.
pub struct Workload {
    pub src: Area,
    pub dst: Area,
    pub jobs: Vec<Job>,
}

/// Bytes that begin at a cache line.
pub struct Area {
    bytes: Vec<u8>,
    begin: usize,
    len: usize,
}

impl Area {
    fn of(bytes: &[u8]) -> Self {
        let mut padded = vec![0; bytes.len() + 64];
        let begin = padded.as_ptr().align_offset(64);
        padded[begin..begin + bytes.len()].copy_from_slice(bytes);
        Self { bytes: padded, begin, len: bytes.len() }
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.bytes[self.begin..].as_ptr()
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes[self.begin..].as_mut_ptr()
    }

    pub fn size(&self) -> usize {
        self.len
    }
}

/// Number of jobs. It is so large that the CPU does not learn their order.
const JOBS: usize = 1 << 14;

impl Workload {
    /// Returns jobs at random multiples of `align` within `spread` bytes of each area. 4 KiB stay in
    /// the first-level cache, 192 KiB in the second-level cache.
    pub fn spread(lengths: Lengths, spread: usize, align: usize) -> Self {
        let mut random = random();
        let jobs: Vec<_> = (0..JOBS)
            .map(|_| {
                let dst = random() % spread / align * align;
                let src = random() % spread / align * align;
                Job { dst, src, len: length(lengths, &mut random) }
            })
            .collect();
        Self::of(jobs)
    }

    /// Returns consecutive jobs, as many as fit into the second-level cache. Each line of the
    /// source is accessed once.
    pub fn in_a_row(lengths: Lengths) -> Self {
        let mut random = random();
        let mut jobs = Vec::new();
        let mut at = 0;
        while jobs.is_empty() || (at < 96 << 10 && jobs.len() < 512) {
            let len = length(lengths, &mut random);
            jobs.push(Job { dst: at + 10, src: at + 12, len });
            at += (len + 12).next_multiple_of(64);
        }
        Self::of(jobs)
    }

    fn of(jobs: Vec<Job>) -> Self {
        let end = jobs.iter().map(|job| job.dst.max(job.src) + job.len).max().unwrap_or(0);
        let mut random = random();
        let bytes: Vec<u8> = (0..end).map(|_| random().to_le_bytes()[0]).collect();
        Self { src: Area::of(&bytes), dst: Area::of(&vec![0; end]), jobs }
    }

    /// Runs a kernel over `n` jobs, beginning with job `from`.
    pub fn run(&mut self, kernel: &Kernel, from: usize, n: usize) -> u64 {
        let jobs = &self.jobs[from..from + n];
        (kernel.run)(&Jobs { dst: self.dst.as_mut_ptr(), src: self.src.as_ptr(), jobs })
    }
}

fn length(lengths: Lengths, random: &mut impl FnMut() -> usize) -> usize {
    match lengths {
        Lengths::One(len) => len,
        Lengths::UpTo(len) => 8 + random() % (len - 7),
        Lengths::Imix => imix::order()[random() % imix::FRAMES].into(),
    }
}

/// xorshift64*, Vigna 2016.
fn random() -> impl FnMut() -> usize {
    let mut seed = 0x1234_5678_9abc_def1u64;
    move || {
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        usize::try_from(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap_or(0)
    }
}
