//! Attacks repeated many times: descriptors, threads, mappings and memory do not increase. The
//! tests have a process of their own, so that nothing else changes these counts.

mod cve_2019_14818;
mod cve_2020_10726;
mod descriptors;
mod footprint;
mod greedy;
mod rings;

use std::sync::{Mutex, MutexGuard};

use straightline_packet::IgnorePoison;

/// Lets one test run at a time, because the counts cover the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().ignore_poison()
}
