//! The NUMA nodes of a machine: of its CPUs, and of its interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use straightline_port::device::interface_node;

use super::{Config, parse_cpu_list};

/// The NUMA nodes of a machine's CPUs and interfaces, as the kernel described them once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNodes {
    cpus: BTreeMap<usize, usize>,
    interfaces: BTreeMap<String, usize>,
}

impl NumaNodes {
    /// Returns the nodes of this machine. The first call reads them, so it comes before the sandbox
    /// takes the right to open files away. Interfaces that come later have no known node.
    #[must_use]
    pub fn of_this_machine() -> &'static Self {
        static HERE: OnceLock<NumaNodes> = OnceLock::new();
        HERE.get_or_init(|| Self::below(Path::new("/")))
    }

    /// Returns the nodes that the files below this root describe.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        let mut cpus = BTreeMap::new();
        for (name, path) in entries(&root.join("sys/devices/system/node")) {
            let node = name.strip_prefix("node").and_then(|number| number.parse::<usize>().ok());
            let list = fs::read_to_string(path.join("cpulist")).ok().and_then(|list| parse_cpu_list(&list));
            if let Some((node, list)) = node.zip(list) {
                cpus.extend(list.into_iter().map(|cpu| (cpu, node)));
            }
        }
        let names = entries(&root.join("sys/class/net")).map(|(name, _)| name);
        let interfaces = names.filter_map(|name| interface_node(root, &name).map(|node| (name, node))).collect();
        NumaNodes { cpus, interfaces }
    }

    /// Returns the node of a CPU, if it is known.
    #[must_use]
    pub fn of_cpu(&self, cpu: usize) -> Option<usize> {
        self.cpus.get(&cpu).copied()
    }

    /// Returns the node of an interface, if it has one.
    #[must_use]
    pub fn of_interface(&self, name: &str) -> Option<usize> {
        self.interfaces.get(name).copied()
    }

    /// Returns whether CPUs are on several nodes.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.cpus.values().collect::<BTreeSet<_>>().len() > 1
    }

    /// Describes where the workers' CPUs and the interfaces of a configuration are, one sentence
    /// each. Returns nothing for a machine with one node.
    #[must_use]
    pub fn describe(&self, config: &Config) -> Vec<String> {
        if !self.are_several() {
            return Vec::new();
        }
        let node =
            |node: Option<usize>| node.map_or_else(|| "an unknown node".to_owned(), |node| format!("node {node}"));
        let workers = config.switch.workers.iter().enumerate();
        let workers = workers.map(|(at, &cpu)| format!("worker {at}: CPU {cpu} on {}", node(self.of_cpu(cpu))));
        let ports = config.ports.iter().filter_map(|port| Some((port, port.kind.interface()?)));
        let ports = ports.map(|(port, interface)| {
            format!("port {:?}: interface {interface} on {}", port.name, node(self.of_interface(interface)))
        });
        workers.chain(ports).collect()
    }
}

/// Returns the names and the paths of a folder's entries.
fn entries(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AfPacketConfig, PortConfig, PortKind};

    /// Makes the description of a machine with two nodes of two CPUs each, and of a third node
    /// without CPUs. Interface `eth1` is on node 1; `tun0` has no device, `veth0` no node.
    fn two_nodes() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("devices/system/node/node0/cpulist", "0,2"),
            ("devices/system/node/node1/cpulist", "1,3"),
            ("devices/system/node/node2/cpulist", ""),
            ("devices/system/node/online", "0-2"),
            ("class/net/eth1/device/numa_node", "1"),
            ("class/net/veth0/device/numa_node", "-1"),
            ("class/net/tun0/tun_flags", "1"),
        ] {
            let path = root.path().join("sys").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        root
    }

    #[test]
    fn nodes_are_those_of_the_kernels_files() {
        let root = two_nodes();
        let nodes = NumaNodes::below(root.path());
        assert_eq!([0, 1, 2, 3, 4].map(|cpu| nodes.of_cpu(cpu)), [Some(0), Some(1), Some(0), Some(1), None]);
        assert_eq!(["eth1", "veth0", "tun0", "lo"].map(|name| nodes.of_interface(name)), [Some(1), None, None, None]);
        assert!(nodes.are_several());
        let nothing = NumaNodes::below(&root.path().join("class"));
        assert_eq!((nothing.are_several(), &nothing), (false, &NumaNodes::default()));
    }

    #[test]
    fn places_are_described_where_there_are_several() {
        let mut config = Config::default();
        config.switch.workers = vec![0, 3, 4];
        let kind = PortKind::AfPacket(AfPacketConfig { interface: "eth1".to_owned(), queues: 1 });
        let ports = [PortConfig::vhost_user("vm", "/vm"), PortConfig { kind, ..PortConfig::vhost_user("up", "") }];
        config.ports = ports.into_iter().collect();
        let described = NumaNodes::below(two_nodes().path()).describe(&config);
        let expected = [
            "worker 0: CPU 0 on node 0",
            "worker 1: CPU 3 on node 1",
            "worker 2: CPU 4 on an unknown node",
            "port \"up\": interface eth1 on node 1",
        ];
        assert_eq!(described, expected);
        assert!(NumaNodes::default().describe(&config).is_empty());
    }

    #[test]
    fn this_machine_has_a_node_for_each_cpu_or_tells_none() {
        let nodes = NumaNodes::of_this_machine();
        let cpu = rustix::thread::sched_getcpu();
        assert!(nodes.cpus.is_empty() || nodes.of_cpu(cpu).is_some(), "{nodes:?}");
    }
}
