//! Two threads on two CPUs that take turns.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Runs `ours` on this thread and `theirs` on another CPU, one after the other, this many times each.
///
/// # Errors
/// The process may not run on the other CPU.
pub(super) fn take_turns(
    other: usize,
    turns: u64,
    mut ours: impl FnMut(),
    mut theirs: impl FnMut() + Send,
) -> anyhow::Result<()> {
    const NOBODY: u64 = u64::MAX;
    // The number of the next turn. The even ones are ours.
    let next = AtomicU64::new(NOBODY);
    let run = |first: u64, each: &mut dyn FnMut()| {
        for turn in 0..turns {
            let mine = 2 * turn + first;
            while next.load(Ordering::Acquire) != mine {
                spin_loop();
            }
            each();
            next.store(mine + 1, Ordering::Release);
        }
    };
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            pin(other)?;
            next.store(0, Ordering::Release);
            run(1, &mut theirs);
            anyhow::Ok(())
        });
        // If the other thread cannot run there, nobody would answer.
        while next.load(Ordering::Acquire) == NOBODY && !thread.is_finished() {
            spin_loop();
        }
        if next.load(Ordering::Acquire) != NOBODY {
            run(0, &mut ours);
        }
        thread.join().unwrap_or_else(|_| anyhow::bail!("a thread on CPU {other} ended"))
    })
}

/// Lets this thread run on this CPU only.
///
/// # Errors
/// There is no such CPU, or this process may not run on it.
pub(super) fn pin(cpu: usize) -> anyhow::Result<()> {
    ensure!(cpu < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("this process cannot run on CPU {cpu}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::usable_cpus;
    use super::*;

    #[test]
    fn both_take_turns_and_ours_is_the_first() {
        let cpu = *usable_cpus().expect("an affinity").last().expect("a CPU");
        let seen = Mutex::new(String::new());
        let add = |name| seen.lock().expect("no panic").push(name);
        take_turns(cpu, 3, || add('a'), || add('b')).expect("a CPU of ours");
        assert_eq!(seen.into_inner().expect("no panic"), "ababab");
        let nowhere = take_turns(CpuSet::MAX_CPU - 1, 3, || (), || ()).expect_err("no such CPU").to_string();
        assert!(nowhere.contains("cannot run on CPU"), "{nowhere}");
    }
}
