//! The gain from prefetching heads that are in no cache of the worker: `docs/experiments/prefetch.md`.
//!
//! In the switch, a node's heads were copied by its core in the same turn. Here they are used where
//! they came, by reference, as VPP does. There is no switch, but two threads:
//!
//! - The *NIC*, on the guest's CPU, writes the heads of all packets of a pool, and hands the pool over.
//!   So does the kernel with packets of AF_XDP: it copies them on the CPU that sends them.
//! - The *worker*, on the switch's CPU, takes the packets in batches. It writes a packet's words, as an
//!   input does. Then the node swaps the addresses in each head, as VPP's sample node does. Only the
//!   node is timed, until its stores are in the cache.
//!
//! | file | holds |
//! |---|---|
//! | `pool` | the packets |
//! | `loops`, `in_c`, `loops.c` | the node's loops, in Rust and in C |
//! | `machine` | prefetches, the counter, the eviction of a line |

mod in_c;
mod loops;
mod machine;
mod pool;

use std::hint::{black_box, spin_loop};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use straightline_guest::endpoints::Pinned;
use straightline_report::statistics::median;

use super::settings::Settings;
use super::{Cell, Plan, Variant};
use crate::rounds::{Measured, Shown, Stop};
use crate::trial::validity;
use in_c::{Build, Shape, in_c};
use loops::{HintKind, Loop, at_once, many_lines, one_by_one, whole_batch};
use machine::{cycles_when_done, evict};
pub(super) use pool::swapped;
use pool::{Line, Pool, SLOT, WordsPlace};

/// Packets of a pool. All batches divide it.
const PACKETS: u32 = 1024;

/// Packets in a batch. The seed's node had 14.69 at once.
const BATCHES: [usize; 5] = [1, 4, 16, 64, 256];
const SEED_BATCH: usize = 16;
const LARGE_BATCH: usize = 256;

/// Bytes of a packet's memory: more lines than a slot of this switch, or fewer.
const SLOTS: [usize; 2] = [256, 2048];

/// Bytes of another table that the worker needs between two batches: half of a first-level cache.
const TABLE: usize = 16 << 10;

/// Longest time before a trial is measured. Nothing has to be negotiated.
const WARM_UP: Duration = Duration::from_millis(10);

/// Place of a head when its batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadPlace {
    /// The worker has just written it, as by a copy.
    OwnCore,
    /// Another core has written it, and has it.
    OtherCore,
    /// It is in memory and in no cache, as a NIC leaves it that does not write into caches.
    Memory,
}

impl HeadPlace {
    fn name(self) -> &'static str {
        match self {
            HeadPlace::OwnCore => "own-core",
            HeadPlace::OtherCore => "other-core",
            HeadPlace::Memory => "memory",
        }
    }
}

/// Language of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Rust,
    C(Build),
}

impl Code {
    const ALL: [Code; 3] = [Code::Rust, Code::C(Build::Optimised), Code::C(Build::Debug)];

    fn name(self) -> &'static str {
        match self {
            Code::Rust => "rust",
            Code::C(Build::Optimised) => "c",
            Code::C(Build::Debug) => "c-debug",
        }
    }
}

/// The conditions of a trial.
#[derive(Clone, Copy, Debug)]
struct Case {
    heads: HeadPlace,
    words: WordsPlace,
    batch: usize,
    /// Bytes of a packet's memory.
    slot: usize,
    /// Bytes of another table that is read before each batch.
    table: usize,
}

impl Case {
    fn new(heads: HeadPlace, batch: usize) -> Case {
        Case { heads, words: WordsPlace::Apart, batch, slot: SLOT, table: 0 }
    }

    /// Makes the cell of a loop that handles this many packets at once.
    fn cell(self, code: Code, at_once: usize, variants: Vec<Variant>) -> Cell {
        let heads = self.heads.name();
        let code = code.name();
        let words = if self.words == WordsPlace::Apart { "apart" } else { "beside" };
        let table_kib = self.table >> 10;
        Cell::new(
            [
                ("heads", &heads),
                ("words", &words),
                ("batch", &self.batch),
                ("code", &code),
                ("at_once", &at_once),
                ("slot", &self.slot),
                ("table_kib", &table_kib),
            ],
            variants,
        )
    }
}

pub(super) fn plan(_: &Settings, quick: bool) -> Plan {
    let compiler = in_c::compiler();
    let mut cells = Vec::new();
    let places: &[_] = if quick { &[HeadPlace::Memory] } else { &[HeadPlace::Memory, HeadPlace::OtherCore] };
    let batches = if quick { &[SEED_BATCH] } else { &BATCHES[..] };
    let cases = places.iter().flat_map(|&heads| batches.iter().map(move |&batch| Case::new(heads, batch)));
    let beside = |heads, batch| Case { words: WordsPlace::Beside, ..Case::new(heads, batch) };
    let others = [
        Case::new(HeadPlace::OwnCore, SEED_BATCH),
        Case::new(HeadPlace::OwnCore, LARGE_BATCH),
        beside(HeadPlace::Memory, SEED_BATCH),
        beside(HeadPlace::Memory, LARGE_BATCH),
        beside(HeadPlace::OtherCore, SEED_BATCH),
    ];
    for case in cases.chain(others.into_iter().filter(|_| !quick)) {
        for code in Code::ALL.into_iter().filter(|&code| code == Code::Rust || compiler.is_some()) {
            for at_once in AT_ONCE.into_iter().filter(|&at_once| at_once <= case.batch) {
                let variants = shape(case, code, at_once, quick, compiler.as_deref().unwrap_or_default());
                cells.push(case.cell(code, at_once, variants));
            }
        }
    }
    if !quick {
        for heads in [HeadPlace::Memory, HeadPlace::OwnCore] {
            for batch in [SEED_BATCH, 64, LARGE_BATCH] {
                let case = Case { table: TABLE, ..Case::new(heads, batch) };
                cells.push(case.cell(Code::Rust, 1, pollution(case)));
            }
        }
        for slot in SLOTS {
            for batch in [64, LARGE_BATCH] {
                let case = Case { slot, ..Case::new(HeadPlace::Memory, batch) };
                cells.push(case.cell(Code::Rust, 1, vec![none(case), ahead(case, 4), whole(case)]));
            }
        }
    }
    let mut left_out = vec!["VPP itself: no registry of programs has it, so its loop's shape stands here".to_owned()];
    if compiler.is_none() {
        left_out.push("the loops in C: there is no C compiler (Debian: gcc)".to_owned());
    }
    if !cfg!(target_arch = "x86_64") {
        left_out.push("prefetches, and heads in memory: only on x86-64".to_owned());
    }
    Plan {
        name: "cold",
        shown: vec![Shown::NODE_CYCLES, Shown { metric: READ, title: "Cycles of reading the table, per packet" }],
        cells,
        left_out,
    }
}

const NODE: &str = Shown::NODE_CYCLES.metric;
const READ: &str = "table_cycles_per_packet";

/// Packets that a loop handles at once.
const AT_ONCE: [usize; 3] = [1, 2, 4];

/// Makes a variant of a loop in Rust.
fn rust(case: Case, name: impl Into<String>, handle: Loop) -> Variant {
    Variant::new(name, move |settings: &Settings| trial(settings, case, &handle))
}

fn none(case: Case) -> Variant {
    rust(case, "none", one_by_one(HintKind::None, 0))
}

fn ahead(case: Case, distance: usize) -> Variant {
    rust(case, format!("{distance} ahead"), one_by_one(HintKind::T0, distance))
}

fn whole(case: Case) -> Variant {
    rust(case, "whole batch", whole_batch(1))
}

/// Makes the variants of a shape: without prefetches, and with those that it may have. Batches that
/// are too small for a distance do not have it.
fn shape(case: Case, code: Code, at_once: usize, quick: bool, compiler: &str) -> Vec<Variant> {
    let fits = |distance: usize| distance < case.batch;
    let next = format!("next {at_once}");
    match (code, at_once) {
        (Code::Rust, 1) => {
            let distances: &[usize] = if quick { &[4] } else { &[1, 2, 4, 8, 16] };
            let mut variants = vec![none(case)];
            variants.extend(distances.iter().filter(|&&distance| fits(distance)).map(|&at| ahead(case, at)));
            if !quick {
                variants.push(whole(case));
            }
            if fits(4) && !quick {
                let hints =
                    [("t1", HintKind::T1), ("t2", HintKind::T2), ("nta", HintKind::Nta), ("write", HintKind::Write)];
                let hint = |(name, kind)| rust(case, format!("4 ahead, {name}"), one_by_one(kind, 4));
                variants.extend(hints.map(hint));
            }
            variants
        }
        (Code::Rust, 2) => grouped::<2>(case, next),
        (Code::Rust, _) => grouped::<4>(case, next),
        (Code::C(build), _) => {
            let (shape, distance, name) = match at_once {
                1 => (Shape::OneByOne, 4, "4 ahead".to_owned()),
                2 => (Shape::TwoAtOnce, 2, next),
                _ => (Shape::FourAtOnce, 4, next),
            };
            let both = [("none".to_owned(), 0), (name, distance)];
            let both = both.into_iter().filter(|(_, distance)| *distance == 0 || fits(*distance));
            both.map(|(name, distance)| compiled(case, name, build, shape, distance, compiler)).collect()
        }
    }
}

fn grouped<const N: usize>(case: Case, next: String) -> Vec<Variant> {
    let mut variants = vec![rust(case, "none", at_once::<N>(false))];
    if case.batch >= 2 * N {
        variants.push(rust(case, next, at_once::<N>(true)));
    }
    variants
}

/// Makes a variant of a loop in C.
fn compiled(case: Case, name: String, build: Build, shape: Shape, distance: usize, compiler: &str) -> Variant {
    let version = compiler.to_owned();
    Variant::new(name, move |settings: &Settings| {
        let measured = trial(settings, case, &in_c(build, shape, distance)?)?;
        Ok(Measured { peer: Some(("cc", version.clone())), ..measured })
    })
}

/// Makes the variants whose prefetches displace other data: prefetches that are too early, and
/// prefetches of lines that are never read.
fn pollution(case: Case) -> Vec<Variant> {
    vec![
        none(case),
        ahead(case, 4),
        rust(case, "4 ahead, nta", one_by_one(HintKind::Nta, 4)),
        rust(case, "4 ahead, 4 lines", many_lines(4, 4)),
        whole(case),
        rust(case, "whole batch, 4 lines", whole_batch(4)),
    ]
}

/// Makes a trial of a loop. The cycles are medians of the passes over the pool, so that a pass in
/// which the thread was descheduled does not count.
fn trial(settings: &Settings, case: Case, handle: &Loop) -> anyhow::Result<Measured> {
    let [nic_cpu, worker_cpu] = settings.cpus;
    std::thread::scope(|threads| {
        let (to_nic, from_worker) = channel();
        let (to_worker, from_nic) = channel();
        let nic = threads.spawn(move || nic(nic_cpu, case.heads, &from_worker, &to_worker));
        let link = NicLink { to_nic, from_nic };
        let measured = worker(settings, worker_cpu, case, handle, &link);
        drop(link);
        // If the NIC has failed, the worker has failed for want of it.
        nic.join().map_err(|_| anyhow::anyhow!("the thread that writes heads panicked"))??;
        measured
    })
}

/// A pool on its way to the NIC and back, with the number of its round.
type Handed = (Pool, u8);

/// The worker's side of the way to the NIC.
struct NicLink {
    to_nic: Sender<Handed>,
    from_nic: Receiver<Handed>,
}

/// Writes heads until the worker has ended.
fn nic(cpu: usize, heads: HeadPlace, from: &Receiver<Handed>, to: &Sender<Handed>) -> anyhow::Result<()> {
    let _pinned = Pinned::to(cpu)?;
    while let Some((mut pool, round)) = next(from) {
        if heads != HeadPlace::OwnCore {
            (0..PACKETS as usize).for_each(|at| pool.write_head(at, round));
        }
        if heads == HeadPlace::Memory {
            pool.heads().for_each(evict);
        }
        if to.send((pool, round)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Returns the next pool. It polls: a thread that sleeps would find its caches cold.
fn next(from: &Receiver<Handed>) -> Option<Handed> {
    let mut tries = 0_u32;
    loop {
        match from.try_recv() {
            Ok(handed) => return Some(handed),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        tries = tries.wrapping_add(1);
        // Both threads may have one CPU.
        if tries.is_multiple_of(1024) { std::thread::yield_now() } else { spin_loop() }
    }
}

fn worker(settings: &Settings, cpu: usize, case: Case, handle: &Loop, nic: &NicLink) -> anyhow::Result<Measured> {
    let _pinned = Pinned::to(cpu)?;
    let mut pool = Pool::new(PACKETS, case.slot, case.words);
    let table = vec![Line([1; 64]); case.table / size_of::<Line>()];
    let warm_up = settings.warm_up.min(WARM_UP);
    let began = Instant::now();
    let mut passes = Vec::new();
    let mut reads = Vec::new();
    let mut round = 0;
    let lasted = loop {
        round = if round == u8::MAX { 1 } else { round + 1 };
        nic.to_nic.send((pool, round)).ok().context("nobody writes heads")?;
        pool = next(&nic.from_nic).context("nobody writes heads")?.0;
        let [node, read] = pass(&mut pool, case, round, &table, handle);
        pool.check(round)?;
        let lasted = began.elapsed();
        if lasted >= warm_up {
            passes.push(node);
            reads.push(read);
        }
        if lasted >= warm_up + settings.time || (settings.is_stopped() && !passes.is_empty()) {
            break lasted - warm_up;
        }
    };
    let mut measured = Measured::default();
    measured.note([(NODE, median(&passes).context("no pass")?)]);
    if case.table > 0 {
        measured.note([(READ, median(&reads).context("no pass")?)]);
    }
    let validity = validity::whole(lasted.as_secs_f64(), settings.time.as_secs_f64());
    Ok(Measured { validity, ..measured })
}

/// Handles all packets of a pool once, in batches. Returns the cycles of the node for a packet, and
/// those of reading the table.
fn pass(pool: &mut Pool, case: Case, round: u8, table: &[Line], handle: &Loop) -> [f64; 2] {
    let mut node = 0;
    let mut read = 0;
    let mut nothing = 0;
    for from in (0..PACKETS as usize).step_by(case.batch) {
        let range = from..from + case.batch;
        for at in range.clone() {
            pool.enter(at);
            if case.heads == HeadPlace::OwnCore {
                pool.write_head(at, round);
            }
        }
        let batch = pool.batch(range);
        let nothing_from = cycles_when_done();
        let read_from = cycles_when_done();
        black_box(table.iter().fold(0_u64, |sum, line| sum.wrapping_add(line.0[0].into())));
        let node_from = cycles_when_done();
        handle(batch);
        let end = cycles_when_done();
        nothing += read_from.saturating_sub(nothing_from);
        read += node_from.saturating_sub(read_from);
        node += end.saturating_sub(node_from);
    }
    [node, read].map(|cycles| cycles.saturating_sub(nothing) as f64 / f64::from(PACKETS))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{labels, names, settings};
    use super::*;

    #[test]
    fn cells_and_variants() {
        let settings = settings();
        let quick = plan(&settings, true);
        let first = "at_once=1 batch=16 code=rust heads=memory slot=704 table_kib=0 words=apart";
        assert_eq!(labels(&quick)[0], first);
        assert_eq!(names(&quick)[..3], [vec!["none", "4 ahead"], vec!["none", "next 2"], vec!["none", "next 4"]]);
        let languages = if in_c::compiler().is_some() { 3 } else { 1 };
        assert_eq!(quick.cells.len(), languages * 3);
        let whole = plan(&settings, false);
        // Batches of 1, of 4 and of the others have this many shapes. There are two places of heads,
        // and five more cases.
        assert_eq!(whole.cells.len(), languages * (2 * (1 + 3 + 3 * 3) + 5 * 3) + 6 + 4);
        assert!(names(&whole).iter().all(|names| names[0] == "none"));
    }

    /// The NIC and the worker may share a CPU.
    fn one_cpu() -> Settings {
        let cpu = crate::machine::usable_cpus().expect("an affinity")[0];
        Settings { cpus: [cpu; 2], ..settings() }
    }

    #[test]
    fn a_trial_has_cycles_wherever_heads_are() {
        for heads in [HeadPlace::OwnCore, HeadPlace::OtherCore, HeadPlace::Memory] {
            for case in [Case::new(heads, 1), Case { table: TABLE, ..Case::new(heads, 256) }] {
                // Each packet of each pass was checked. The clock's own cost is subtracted from the cycles,
                // so none may be left if another thread took the CPU meanwhile.
                let measured = trial(&one_cpu(), case, &whole_batch(1)).expect("a trial");
                assert!(measured.metrics[NODE] >= 0.0 && measured.metrics[NODE].is_finite(), "{measured:?}");
                assert_eq!(measured.metrics.contains_key(READ), case.table > 0);
            }
        }
    }

    #[test]
    fn a_loop_that_forgets_a_packet_is_noticed() {
        let forgetful: Loop = Box::new(|_| {});
        let error = trial(&one_cpu(), Case::new(HeadPlace::OtherCore, 4), &forgetful).expect_err("no packet came");
        assert!(error.to_string().contains("did not send"), "{error}");
        let nowhere = Settings { cpus: [usize::MAX; 2], ..settings() };
        let error = trial(&nowhere, Case::new(HeadPlace::OtherCore, 4), &forgetful).expect_err("no such CPU");
        assert!(error.to_string().contains("no CPU"), "{error}");
    }
}
