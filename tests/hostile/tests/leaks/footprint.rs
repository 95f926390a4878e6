//! The resources of a process: descriptors, threads, mappings of guests' files, memory.

use std::fs;
use straightline_testing::wait_until;

/// Tolerated increase of resident memory, in KiB: allocators keep some memory. A leak in every
/// round adds more.
const SLACK_KIB: u64 = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footprint {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    resident_kib: u64,
}

impl Footprint {
    pub(crate) fn now() -> Footprint {
        let entries = |dir| fs::read_dir(dir).expect("of our own").count();
        let maps = fs::read_to_string("/proc/self/maps").expect("our mappings");
        let status = fs::read_to_string("/proc/self/status").expect("our status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
        Footprint {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            mappings: maps.lines().filter(|line| line.contains("/memfd:")).count(),
            resident_kib: resident.trim().trim_end_matches(" kB").parse().expect("a number"),
        }
    }

    pub(crate) fn descriptors(self) -> usize {
        self.descriptors
    }

    /// Waits until the process has no more resources than before. The resources of a frontend are
    /// freed when its port notices that it left.
    pub(crate) fn is_as_before(self, what: &str) {
        wait_until(&format!("after {what} there is no more than {self:?}"), || {
            let now = Footprint::now();
            now.descriptors <= self.descriptors && now.threads <= self.threads && now.mappings <= self.mappings
        });
        let now = Footprint::now();
        assert!(now.resident_kib <= self.resident_kib + SLACK_KIB, "after {what}: {self:?}, then {now:?}");
    }
}
