//! The CPUs that a configuration may name.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity};

/// The machine that a configuration is checked against: its CPUs, and those that this process may
/// use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    online: Vec<usize>,
    allowed: Vec<usize>,
}

impl Machine {
    /// Returns the machine that this process runs on, as the kernel describes it.
    #[must_use]
    pub fn this() -> Self {
        let mut allowed = Vec::new();
        if let Ok(set) = sched_getaffinity(None) {
            allowed.extend((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)));
        }
        let online = fs::read_to_string("/sys/devices/system/cpu/online").ok();
        let online = online.and_then(|list| parse_cpu_list(&list)).unwrap_or_else(|| allowed.clone());
        Self { online, allowed }
    }

    /// Creates a machine with these CPUs, where this process may use the `allowed` ones.
    #[must_use]
    pub fn with_cpus(online: Vec<usize>, allowed: Vec<usize>) -> Self {
        Self { online, allowed }
    }

    /// Returns why a worker cannot run on this CPU and where it could, or `None` if it can.
    pub(super) fn refuse_cpu(&self, cpu: usize) -> Option<String> {
        if self.allowed.contains(&cpu) {
            return None;
        }
        let usable = format_list(&self.allowed);
        Some(if self.online.contains(&cpu) {
            format!("this process may not run on it; it may use {usable} (see taskset and cgroup cpusets)")
        } else {
            format!("this machine has no such CPU online; usable are {usable}")
        })
    }
}

/// Parses a list of CPUs in the kernel's format, such as `0-3,8`. Returns `None` if the text is not
/// such a list, or if a CPU is beyond the kernel's maximum.
#[must_use]
pub fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CpuSet::MAX_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Formats a list in the same format. `cpus` ascend.
fn format_list(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b);
    let runs = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        for text in ["0", "0-1", "0-3,8", "1,3,5-6"] {
            assert_eq!(format_list(&parse_cpu_list(text).unwrap()), text);
        }
        assert_eq!(parse_cpu_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        for text in ["", "\n", "x", "0-\n", "0-99999999999", "1;2", "a-b"] {
            assert_eq!(parse_cpu_list(text), None, "{text}");
        }
    }

    #[test]
    fn this_machine_allows_the_cpu_that_we_are_on() {
        let machine = Machine::this();
        let cpu = rustix::thread::sched_getcpu();
        assert_eq!(machine.refuse_cpu(cpu), None);
        assert!(machine.refuse_cpu(100_000).unwrap().contains("no such CPU"));
    }

    #[test]
    fn online_but_not_ours() {
        let machine = Machine::with_cpus(vec![0, 1, 2, 3], vec![0, 1, 3]);
        assert!(machine.refuse_cpu(2).unwrap().contains("may not run on it; it may use 0-1,3"));
        assert!(machine.refuse_cpu(4).unwrap().contains("no such CPU"));
    }
}
