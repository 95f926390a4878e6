//! What the benches run: our kernels, their peers, and the jobs in memory that they are run on.

#![allow(dead_code, reason = "each bench uses a part")]

pub mod dirty;
pub mod peers;

use std::hint::black_box;

use straightline_simd::{Kernels, Level, Sum, WithKernels};

/// One job to jobs on.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Job {
    /// From where the destination and the source begin.
    pub dst: usize,
    pub src: usize,
    pub len: usize,
}

/// Jobs at some jobs: where destination and source begin, and the jobs.
pub struct Jobs<'a> {
    dst: *mut u8,
    src: *const u8,
    jobs: &'a [Job],
}

impl Jobs<'_> {
    /// Does `one` at each job. What it returns keeps the jobs from being left out.
    #[inline(always)]
    fn each(&self, mut one: impl FnMut(*mut u8, *const u8, usize) -> u64) -> u64 {
        self.jobs
            .iter()
            .fold(0, |total, job| total ^ one(self.dst.wrapping_add(job.dst), self.src.wrapping_add(job.src), job.len))
    }
}

/// A kernel or a peer, in a loop of its own: it is inlined into it where its users would have it so.
pub struct Kernel {
    pub name: String,
    pub run: Box<dyn Fn(&Jobs<'_>) -> u64>,
}

fn kernel(name: impl Into<String>, run: impl Fn(&Jobs<'_>) -> u64 + 'static) -> Kernel {
    Kernel { name: name.into(), run: Box::new(run) }
}

/// Kernels and the number of peers among them, which stand first.
pub struct Comparison {
    pub name: &'static str,
    pub kernels: Vec<Kernel>,
    pub peers: usize,
}

/// What is done at each job with a set's kernels.
trait One: Copy + 'static {
    fn one<K: Kernels>(kernels: K, dst: *mut u8, src: *const u8, len: usize) -> u64;
}

// SAFETY of all blocks below: `Workload::jobs` has only jobs within its areas, and these outlive the runs.

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

/// The loop for one set.
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

/// Each set in a loop that was compiled for it, and the widest chosen by level for each job, as in a loop that is not.
fn ours(what: impl One) -> impl Iterator<Item = Kernel> {
    let inlined = move |level: Level| kernel(level.name(), move |jobs| level.run(Loop(jobs, what)));
    let widest = Level::detect();
    let called = kernel(format!("{widest} by level"), move |jobs| {
        // It is loaded each time, as a worker loads it.
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
    // The first alone: what the second does is known to be slow.
    Comparison { name: "copy_sum", kernels, peers: 1 }
}

/// Lengths.
#[derive(Clone, Copy)]
pub enum Lengths {
    /// One, at jobs of every alignment: each branch on it is foreseen.
    One(usize),
    /// At random from 8 up to a length, all as often as any.
    UpTo(usize),
    /// 64, 594 and 1518 bytes, seven to four to one.
    Imix,
}

/// The lengths of the tables.
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

/// Two areas of memory, and jobs in them for copies one after the other.
pub struct Workload {
    pub src: Vec<u8>,
    pub dst: Vec<u8>,
    pub jobs: Vec<Job>,
}

/// Places in a table: so many that their order is not learned.
const JOBS: usize = 1 << 14;

impl Workload {
    /// Places at random, at even addresses, within `spread` bytes on either side: 4 KiB stay in the first cache, 192 KiB
    /// in the second.
    pub fn spread(lengths: Lengths, spread: usize) -> Self {
        let mut random = random();
        let jobs: Vec<_> = (0..JOBS)
            .map(|_| {
                let (dst, src) = ((random() % spread) & !1, (random() % spread) & !1);
                Job { dst, src, len: length(lengths, &mut random) }
            })
            .collect();
        Self::of(jobs)
    }

    /// Places one behind the other, as many as fit the second cache, so that each line of the source is met once.
    pub fn in_a_row(lengths: Lengths) -> Self {
        let mut random = random();
        let (mut jobs, mut at) = (Vec::new(), 0);
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
        let src = (0..end).map(|_| random().to_le_bytes()[0]).collect();
        Self { src, dst: vec![0; end], jobs }
    }

    /// Runs a kernel over `n` jobs from one on.
    pub fn run(&mut self, kernel: &Kernel, from: usize, n: usize) -> u64 {
        let jobs = &self.jobs[from..from + n];
        (kernel.run)(&Jobs { dst: self.dst.as_mut_ptr(), src: self.src.as_ptr(), jobs })
    }
}

fn length(lengths: Lengths, random: &mut impl FnMut() -> usize) -> usize {
    match lengths {
        Lengths::One(len) => len,
        Lengths::UpTo(len) => 8 + random() % (len - 7),
        Lengths::Imix => match random() % 12 {
            0..=6 => 64,
            7..=10 => 594,
            _ => 1518,
        },
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
