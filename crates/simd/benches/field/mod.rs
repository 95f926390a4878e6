//! What the benches run: our kernels, their peers, and the places in memory that they are run on.

#![allow(dead_code, reason = "each bench uses a part")]

pub mod dirty;
pub mod peers;

use straightline_simd::{Level, Sum, copy, copy_sum, sum};

/// A kernel or a peer: destination, source, length; what it returns keeps its work from being left out.
pub struct Kernel {
    pub name: String,
    pub run: Box<dyn Fn(*mut u8, *const u8, usize) -> u64>,
}

fn kernel(name: impl Into<String>, run: impl Fn(*mut u8, *const u8, usize) -> u64 + 'static) -> Kernel {
    Kernel { name: name.into(), run: Box::new(run) }
}

/// Kernels and the number of peers among them, which stand first.
pub struct Contest {
    pub name: &'static str,
    pub kernels: Vec<Kernel>,
    pub peers: usize,
}

// The level of each is loaded from the closure, as a worker loads it from its turn.
//
// SAFETY of all blocks below: `Load::places` has only places within its areas, and these outlive the runs.

pub fn copies() -> Contest {
    let mut kernels = vec![kernel("memcpy", |dst, src, len| {
        // SAFETY: see above; the areas are apart.
        unsafe { peers::memcpy(dst, src, len) };
        0
    })];
    if let Some(rte_memcpy) = peers::rte_memcpy() {
        kernels.push(kernel("rte_memcpy", move |dst, src, len| {
            // SAFETY: see above; the areas are apart.
            unsafe { rte_memcpy(dst.cast(), src.cast(), len) };
            0
        }));
    }
    let peers = kernels.len();
    kernels.extend(Level::supported().map(|level| {
        kernel(level.name(), move |dst, src, len| {
            // SAFETY: see above.
            unsafe { copy(level, dst, src, len) };
            0
        })
    }));
    Contest { name: "copy", kernels, peers }
}

pub fn sums() -> Contest {
    let mut kernels = vec![kernel("adc chain", |_, src, len| {
        // SAFETY: see above.
        u64::from(peers::fold(unsafe { peers::adc_chain(src, len) }))
    })];
    kernels.extend(Level::supported().map(|level| {
        kernel(level.name(), move |_, src, len| {
            let mut total = Sum::new();
            // SAFETY: see above.
            sum(level, unsafe { std::slice::from_raw_parts(src, len) }, &mut total);
            u64::from(total.fold())
        })
    }));
    Contest { name: "sum", kernels, peers: 1 }
}

pub fn fused() -> Contest {
    let widest = Level::detect();
    let mut kernels = vec![
        kernel("copy alone", move |dst, src, len| {
            // SAFETY: see above.
            unsafe { copy(widest, dst, src, len) };
            0
        }),
        kernel("memcpy, then adc chain", |dst, src, len| {
            // SAFETY: see above; the areas are apart.
            unsafe {
                peers::memcpy(dst, src, len);
                u64::from(peers::fold(peers::adc_chain(dst, len)))
            }
        }),
    ];
    kernels.extend(Level::supported().map(|level| {
        kernel(level.name(), move |dst, src, len| {
            let mut total = Sum::new();
            // SAFETY: see above.
            unsafe { copy_sum(level, dst, src, len, &mut total) };
            u64::from(total.fold())
        })
    }));
    // The first alone: what the second does is known to be slow.
    Contest { name: "copy_sum", kernels, peers: 1 }
}

/// Lengths.
#[derive(Clone, Copy)]
pub enum Lengths {
    /// One, at places of every alignment: each branch on it is foreseen.
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

/// Two areas of memory, and places in them for copies one after the other.
pub struct Load {
    pub src: Vec<u8>,
    pub dst: Vec<u8>,
    /// Destination, source, length.
    pub places: Vec<(usize, usize, usize)>,
}

/// Places in a table: so many that their order is not learned.
const PLACES: usize = 1 << 14;

impl Load {
    /// Places at random, at even addresses, within `spread` bytes on either side: 4 KiB stay in the first cache, 192 KiB
    /// in the second.
    pub fn spread(lengths: Lengths, spread: usize) -> Self {
        let mut random = random();
        let places: Vec<_> = (0..PLACES)
            .map(|_| {
                let at = ((random() % spread) & !1, (random() % spread) & !1);
                (at.0, at.1, length(lengths, &mut random))
            })
            .collect();
        Self::of(places)
    }

    /// Places one behind the other, as many as fit the second cache, so that each line of the source is met once.
    pub fn in_a_row(lengths: Lengths) -> Self {
        let mut random = random();
        let (mut places, mut at) = (Vec::new(), 0);
        while places.is_empty() || (at < 96 << 10 && places.len() < 512) {
            let len = length(lengths, &mut random);
            places.push((at + 10, at + 12, len));
            at += (len + 12).next_multiple_of(64);
        }
        Self::of(places)
    }

    fn of(places: Vec<(usize, usize, usize)>) -> Self {
        let end = places.iter().map(|&(dst, src, len)| dst.max(src) + len).max().unwrap_or(0);
        let mut random = random();
        let src = (0..end).map(|_| random().to_le_bytes()[0]).collect();
        Self { src, dst: vec![0; end], places }
    }

    /// Runs a kernel over `n` places from one on.
    pub fn run(&mut self, kernel: &Kernel, from: usize, n: usize) -> u64 {
        let (dst, src) = (self.dst.as_mut_ptr(), self.src.as_ptr());
        let mut total = 0;
        for &(to, at, len) in &self.places[from..from + n] {
            total ^= (kernel.run)(dst.wrapping_add(to), src.wrapping_add(at), len);
        }
        total
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
