//! The choice of CPUs for a guest and a switch.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity};
use straightline_config::parse_cpu_list;

/// Returns the CPUs that this process may use.
pub(crate) fn usable_cpus() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot read the CPU affinity of this process")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Returns a CPU for a guest, and one for a switch. The guest's is the first CPU that this process
/// may use.
pub(crate) fn two_cpus() -> anyhow::Result<[usize; 2]> {
    two(&Topology::here(), &usable_cpus()?)
}

/// Returns a CPU for a thread that exchanges packets with the thread on this CPU.
pub(crate) fn cpu_beside(cpu: usize) -> anyhow::Result<usize> {
    let usable = usable_cpus()?;
    beside(&Topology::here(), &usable, cpu).with_context(|| too_few(&usable))
}

/// Returns whether two CPUs are threads of one core.
pub(crate) fn share_core(one: usize, other: usize) -> bool {
    Topology::here().share_core(one, other)
}

/// Returns whether two CPUs are on two NUMA nodes; false if unknown.
pub(crate) fn are_apart(one: usize, other: usize) -> bool {
    Topology::here().are_apart(one, other)
}

/// Returns a warning if a generator and a switch on these CPUs disturb each other.
pub(crate) fn warning(cpus: [usize; 2]) -> Option<String> {
    warned(&Topology::here(), cpus)
}

/// Returns the CPUs of a generator and a switch, in the form that results have.
pub(crate) fn used([generator, switch]: [usize; 2]) -> BTreeMap<String, String> {
    let core =
        if generator != switch && share_core(generator, switch) { ", a thread of the generator's core" } else { "" };
    [("generator", generator.to_string()), ("switch", format!("{switch}{core}"))]
        .map(|(who, cpu)| (who.to_owned(), cpu))
        .into()
}

fn two(topology: &Topology, usable: &[usize]) -> anyhow::Result<[usize; 2]> {
    let pair = usable.first().and_then(|&first| Some([first, beside(topology, usable, first)?]));
    pair.with_context(|| too_few(usable))
}

/// Chooses a CPU of another core, because two threads of one core slow each other down. If
/// possible, the CPU is on the same NUMA node.
fn beside(topology: &Topology, usable: &[usize], cpu: usize) -> Option<usize> {
    let others = usable.iter().copied().filter(|&other| other != cpu);
    others.min_by_key(|&other| (topology.share_core(cpu, other), !topology.share_node(cpu, other)))
}

fn too_few(usable: &[usize]) -> String {
    format!(
        "two CPUs are needed, one for the switch and one for its guest, but this process may run on {} only: give it \
         two (`taskset -c 0,1`, the CPUs of the container or virtual machine)",
        usable.first().map_or_else(|| "none".to_owned(), |cpu| format!("CPU {cpu}"))
    )
}

fn warned(topology: &Topology, [generator, switch]: [usize; 2]) -> Option<String> {
    (generator != switch && topology.share_core(generator, switch)).then(|| {
        format!(
            "CPUs {generator} and {switch} are two threads of one core and slow each other down: results differ from \
             those on separate cores. Use `taskset -c` to give this process CPUs of two cores, if the machine has \
             them"
        )
    })
}

/// Linux's description of CPUs. The field is the folder with the description, usually
/// `/sys/devices/system`.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    system: PathBuf,
}

impl Topology {
    /// Returns the topology of this machine.
    pub(crate) fn here() -> Topology {
        Topology { system: "/sys/devices/system".into() }
    }

    /// Returns the CPUs of each NUMA node that has CPUs; nothing if unknown.
    pub(crate) fn nodes(&self) -> Vec<Vec<usize>> {
        let entries = fs::read_dir(self.system.join("node")).into_iter().flatten().flatten();
        let lists = entries.filter_map(|entry| parse_cpu_list(&fs::read_to_string(entry.path().join("cpulist")).ok()?));
        lists.filter(|cpus| !cpus.is_empty()).collect()
    }

    /// Returns whether these CPUs are all on one node; false if unknown.
    pub(crate) fn share_node(&self, one: usize, other: usize) -> bool {
        self.nodes().iter().any(|cpus| cpus.contains(&one) && cpus.contains(&other))
    }

    /// Returns whether these two CPUs are on two nodes; false if unknown.
    pub(crate) fn are_apart(&self, one: usize, other: usize) -> bool {
        let nodes = self.nodes();
        let [one, other] = [one, other].map(|cpu| nodes.iter().position(|cpus| cpus.contains(&cpu)));
        one.zip(other).is_some_and(|(one, other)| one != other)
    }

    /// Returns whether two CPUs are threads of one core; false if unknown.
    pub(crate) fn share_core(&self, one: usize, other: usize) -> bool {
        let path = self.system.join(format!("cpu/cpu{one}/topology/thread_siblings_list"));
        let threads = fs::read_to_string(path).ok().and_then(|text| parse_cpu_list(&text));
        one == other || threads.is_some_and(|cpus| cpus.contains(&other))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Makes the description of a machine with these nodes. A node is a list of cores, and a core
    /// is a list of its threads.
    pub(crate) fn machine(nodes: &[&[&[usize]]]) -> (tempfile::TempDir, Topology) {
        let system = tempfile::tempdir().expect("a folder");
        let write = |path: String, cpus: &[usize]| {
            let path = system.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            let cpus: Vec<_> = cpus.iter().map(usize::to_string).collect();
            fs::write(path, cpus.join(",") + "\n").expect("written");
        };
        for (number, cores) in nodes.iter().enumerate() {
            for core in *cores {
                core.iter().for_each(|cpu| write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), core));
            }
            write(format!("node/node{number}/cpulist"), &cores.concat());
        }
        // An additional file.
        write("node/online".to_owned(), &[0]);
        let topology = Topology { system: system.path().into() };
        (system, topology)
    }

    #[test]
    fn too_few_cpus_are_an_error_that_helps() {
        let unknown = Topology { system: "/nonexistent".into() };
        assert_eq!(two(&unknown, &[3, 5, 7]).expect("two"), [3, 5]);
        let one = two(&unknown, &[4]).expect_err("one").to_string();
        assert!(one.contains("CPU 4 only") && one.contains("taskset"), "{one}");
        assert!(two(&unknown, &[]).expect_err("none").to_string().contains("none only"));
    }

    #[test]
    fn two_threads_of_a_core_are_taken_only_where_nothing_else_is_left_and_then_said() {
        let (_folder, laptop) = machine(&[&[&[0, 1], &[2, 3]]]);
        for (usable, pair) in [(&[0, 1, 2, 3][..], [0, 2]), (&[1, 2, 3], [1, 2]), (&[0, 1, 3], [0, 3])] {
            assert_eq!(two(&laptop, usable).expect("two"), pair);
            assert_eq!(warned(&laptop, pair), None);
        }
        assert_eq!(two(&laptop, &[2, 3]).expect("two"), [2, 3]);
        let warning = warned(&laptop, [2, 3]).expect("a warning");
        assert!(warning.contains("CPUs 2 and 3 are two threads of one core"), "{warning}");
        // There is no warning if both are on one CPU: the user has asked for that.
        assert_eq!(warned(&laptop, [2, 2]), None);
    }

    #[test]
    fn both_are_on_one_node_where_that_can_be() {
        let (_folder, server) = machine(&[&[&[0, 4], &[2, 6]], &[&[1, 5], &[3, 7]]]);
        assert_eq!(server.nodes().len(), 2);
        for (usable, pair) in
            [(&[0, 1, 2, 3, 4, 5, 6, 7][..], [0, 2]), (&[0, 1, 4], [0, 1]), (&[0, 4, 5], [0, 5]), (&[0, 4], [0, 4])]
        {
            assert_eq!(two(&server, usable).expect("two"), pair);
        }
        assert_eq!(beside(&server, &[0, 1, 2, 3], 3), Some(1));
        assert!(server.are_apart(0, 1) && !server.are_apart(0, 2));
        // The machine has no description of one of these CPUs.
        assert!(!server.are_apart(0, 8) && !server.share_node(0, 8));
    }
}
