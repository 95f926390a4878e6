//! Attacks again and again: descriptors, threads, mappings and memory stay as they were. In a process of its own, where
//! nothing else comes and goes meanwhile.

#[path = "../rig/attacker.rs"]
#[allow(dead_code, reason = "shared with the rig, which uses all of it")]
mod attacker;
#[path = "../../../../crates/lab/tests/common/mod.rs"]
mod common;
#[path = "../rig/scene.rs"]
#[allow(dead_code, reason = "shared with the rig, which uses all of it")]
mod scene;

mod cve_2019_14818;
mod cve_2020_10726;
mod descriptors;
mod footprint;
mod rings;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: what is counted is the whole process's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
