//! The cost of memory that another CPU has touched.
//!
//! Two threads on two CPUs take turns at one buffer. The other one reads or writes all its lines, in
//! their order, or leaves them alone. Then this one reads or writes them, and is timed. So a guest
//! and a switch take turns at the buffers of a ring, each in its order. One word of each line is
//! read or written, so that the line's way is measured and not the copy.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use straightline_report::results::TouchedBounds;

use super::turns::take_turns;

/// Bytes that packets of 1514 bytes take in rings of 64, 256 and 1024 entries.
pub(super) const SIZES: [usize; 3] = [64 * 1536, 256 * 1536, 1024 * 1536];

/// Lines that a round passes, at least.
const LINES: usize = 100_000;

/// Rounds of each figure.
const ROUNDS: usize = 5;

/// An access to all lines of a buffer.
#[derive(Clone, Copy, Debug)]
enum Access {
    None,
    Read,
    Write,
}

#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Access {
    fn apply(self, lines: &[Line]) {
        match self {
            Access::None => {}
            Access::Read => {
                let all = lines.iter().fold(0, |all, line| all ^ line.0.load(Ordering::Relaxed));
                black_box(all);
            }
            Access::Write => lines.iter().for_each(|line| line.0.store(1, Ordering::Relaxed)),
        }
    }
}

/// Measures a buffer of this size, by this CPU and another one.
///
/// # Errors
/// The process may not run on the other CPU.
pub(super) fn touched_bounds(other: usize, bytes: usize) -> anyhow::Result<Vec<TouchedBounds>> {
    let touches = [("nothing", Access::None), ("read", Access::Read), ("written", Access::Write)];
    let measured = touches.map(|(touch, theirs)| {
        let read_ns = line_ns(other, bytes, Access::Read, theirs)?;
        let write_ns = line_ns(other, bytes, Access::Write, theirs)?;
        Ok(TouchedBounds { bytes, touch: touch.to_owned(), read_ns, write_ns })
    });
    measured.into_iter().collect()
}

/// Returns the nanoseconds of our access to a line which the other CPU has accessed before.
fn line_ns(other: usize, bytes: usize, ours: Access, theirs: Access) -> anyhow::Result<f64> {
    let mut lines = Vec::new();
    lines.resize_with(bytes / size_of::<Line>(), Line::default);
    let turns = LINES.div_ceil(lines.len());
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let mut took = Duration::ZERO;
        let timed = || {
            let began = Instant::now();
            ours.apply(&lines);
            took += began.elapsed();
        };
        take_turns(other, turns as u64, timed, || theirs.apply(&lines))?;
        least = least.min(took.as_secs_f64() * 1e9 / (turns * lines.len()) as f64);
    }
    Ok(least)
}
