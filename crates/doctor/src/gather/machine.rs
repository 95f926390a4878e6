//! The machine and the process of the switch, from `/proc` and `/sys`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, getxattr};
use straightline_port::device::routes;

use super::host::{self, Host, cpu_list};
use crate::facts::{Cpu, Fact, MachineFacts, ProcessFacts, ProgramFile, Quota, Unknown};

/// The most denials that are kept.
const MOST_DENIALS: usize = 100;

/// The time of a CPU since its boot, in ticks: stolen, and all.
type Times = BTreeMap<usize, (u64, u64)>;

impl Host {
    /// Returns the time of each CPU.
    pub(super) fn cpu_times(&self) -> Fact<Times> {
        Ok(times(&self.read("proc/stat")?))
    }

    /// Returns the facts of the machine. `before` are the times of its CPUs a while ago.
    /// `switch` is the process of the switch, if it is known.
    pub(super) fn machine(&self, before: &Fact<Times>, switch: Option<u32>) -> MachineFacts {
        MachineFacts { default_routes: self.default_routes(switch), cpus: self.cpus(before), denials: self.denials() }
    }

    /// Returns the interfaces with a default route, where the process is.
    fn default_routes(&self, pid: Option<u32>) -> Fact<BTreeSet<String>> {
        let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        let (_, mut interfaces) = routes::of_ipv4(&self.read(&format!("proc/{process}/net/route"))?);
        // A kernel without IPv6 has no such file.
        let routes6 = self.read(&format!("proc/{process}/net/ipv6_route")).unwrap_or_default();
        interfaces.extend(routes::default_ipv6(&routes6));
        Ok(interfaces)
    }

    fn cpus(&self, before: &Fact<Times>) -> Fact<BTreeMap<usize, Cpu>> {
        let online: Vec<usize> = cpu_list(&self.line("sys/devices/system/cpu/online")?)?;
        let after = self.cpu_times();
        let nodes = self.nodes();
        let cpus = online.into_iter().map(|cpu| {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            let node = nodes.as_ref().map_err(Clone::clone).and_then(|nodes| {
                nodes.get(&cpu).copied().ok_or_else(|| Unknown::new("the kernel does not tell its NUMA node"))
            });
            let governor = self.line(&format!("{folder}/cpufreq/scaling_governor"));
            let governor = governor.map_err(|_| Unknown::new("no frequency governor is visible, as in most VMs"));
            let siblings = self.line(&format!("{folder}/topology/thread_siblings_list"));
            (
                cpu,
                Cpu {
                    siblings: siblings.and_then(|text| cpu_list(&text)),
                    node,
                    governor,
                    steal: steal(cpu, before, &after),
                },
            )
        });
        Ok(cpus.collect())
    }

    /// Returns the NUMA node of each CPU. A kernel without NUMA has one node.
    fn nodes(&self) -> Fact<BTreeMap<usize, usize>> {
        let online = match self.line("sys/devices/system/node/online") {
            Ok(online) => cpu_list::<Vec<usize>>(&online)?,
            Err(_) if self.has("sys/devices/system/cpu") => {
                let cpus: Vec<usize> = cpu_list(&self.line("sys/devices/system/cpu/online")?)?;
                return Ok(cpus.into_iter().map(|cpu| (cpu, 0)).collect());
            }
            Err(unknown) => return Err(unknown),
        };
        let mut nodes = BTreeMap::new();
        for node in online {
            let cpus: Vec<usize> = cpu_list(&self.line(&format!("sys/devices/system/node/node{node}/cpulist"))?)?;
            nodes.extend(cpus.into_iter().map(|cpu| (cpu, node)));
        }
        Ok(nodes)
    }

    /// Returns the facts of a process.
    pub(super) fn process(&self, pid: u32) -> ProcessFacts {
        let limits = self.read(&format!("proc/{pid}/limits"));
        ProcessFacts { pid, descriptor_limit: limits.and_then(|text| descriptor_limit(&text)), quota: self.quota(pid) }
    }

    /// Returns the file of the program that a process runs. Without a process whose program this user
    /// may see, that is this program.
    pub(super) fn program(&self, pid: Option<u32>) -> Fact<ProgramFile> {
        let of_switch = pid.and_then(|pid| fs::read_link(self.path(&format!("proc/{pid}/exe"))).ok());
        let path = of_switch.filter(|path| path.exists()).or_else(|| std::env::current_exe().ok());
        let path = path.ok_or_else(|| Unknown::new("the path of this program is not known"))?;
        let mode = fs::metadata(&path).map_err(|error| host::unknown(&path, &error))?.mode() & 0o7777;
        // The kernel tells the attribute to everybody who may look at the file.
        let has_capabilities = getxattr(&path, "security.capability", &mut [0; 64]).is_ok();
        Ok(ProgramFile { path, mode, has_capabilities })
    }

    /// Returns the smallest quota of the control groups of a process.
    fn quota(&self, pid: u32) -> Fact<Option<Quota>> {
        let groups = self.read(&format!("proc/{pid}/cgroup"))?;
        // The controller `cpu` is in a control group of version 1, if there is one, or of version 2.
        let groups = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let (v1, v2): (Vec<_>, Vec<_>) = groups.partition(|(controllers, _)| !controllers.is_empty());
        let v1 = v1.into_iter().find(|(controllers, _)| controllers.split(',').any(|one| one == "cpu"));
        let (path, roots) = match (v1, v2.first()) {
            (Some((_, path)), _) => (path, ["sys/fs/cgroup/cpu/tasks", "sys/fs/cgroup/cpu,cpuacct/tasks"]),
            (None, Some((_, path))) => {
                (*path, ["sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/unified/cgroup.controllers"])
            }
            (None, None) => return Err(Unknown::new("the process has no control group")),
        };
        // Each hierarchy has such a file in its root, where it is mounted.
        let root = roots.iter().find(|file| self.has(file)).and_then(|file| file.rsplit_once('/'));
        let (root, _) = root.ok_or_else(|| Unknown::new("the control groups are not visible here"))?;
        let path = Path::new(path.trim_start_matches('/'));
        let quotas = path.ancestors().filter_map(|group| self.quota_of(Path::new(root).join(group).to_str()?));
        Ok(quotas.min_by(|a, b| a.cpus.total_cmp(&b.cpus)))
    }

    /// Returns the quota of one control group, of either version.
    fn quota_of(&self, group: &str) -> Option<Quota> {
        let (quota, period) = match self.line(&format!("{group}/cpu.max")) {
            Ok(line) => {
                let (quota, period) = line.split_once(' ')?;
                (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
            }
            Err(_) => {
                let read = |name| self.line(&format!("{group}/{name}")).ok()?.parse::<f64>().ok();
                (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?)
            }
        };
        let statistics = self.read(&format!("{group}/cpu.stat")).unwrap_or_default();
        let throttled = statistics.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse().ok());
        // Version 1 writes -1 for no quota.
        (quota > 0.0 && period > 0.0).then(|| Quota { cpus: quota / period, throttled: throttled.unwrap_or(0) })
    }

    /// Returns the lines in which AppArmor or SELinux denied something to a VM or the switch.
    fn denials(&self) -> Fact<Option<Vec<String>>> {
        let apparmor = self.line("sys/module/apparmor/parameters/enabled").is_ok_and(|text| text == "Y");
        let selinux = self.has("sys/fs/selinux/enforce");
        if !apparmor && !selinux {
            return Ok(None);
        }
        // The audit daemon takes the lines from the kernel's log.
        let audit = self.has("var/log/audit/audit.log").then(|| self.read("var/log/audit/audit.log")).transpose();
        let kernel = self.kernel_log();
        let text = match (kernel, audit) {
            (Ok(kernel), Ok(audit)) => kernel + &audit.unwrap_or_default(),
            (Err(unknown), _) | (_, Err(unknown)) => return Err(unknown),
        };
        Ok(Some(denials(&text)))
    }

    /// Reads the kernel's log as it is now.
    fn kernel_log(&self) -> Fact<String> {
        let path = self.path("dev/kmsg");
        let unknown = |error: &std::io::Error| host::unknown(&path, error);
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let mut file = file.map_err(|error| unknown(&error))?;
        let mut text = String::new();
        let mut record = [0; 8192];
        // Each read returns one record. The last one would block; a lost one is passed over.
        while text.len() < 1 << 22 {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(length) => text.push_str(&String::from_utf8_lossy(&record[..length])),
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(unknown(&error)),
            }
        }
        Ok(text)
    }
}

/// Returns the NUMA node of an interface; `None` if it has none.
pub(super) fn interface_node(host: &Host, interface: Option<&str>) -> Fact<Option<usize>> {
    let Some(name) = interface else { return Ok(None) };
    if !host.has(&format!("sys/class/net/{name}/device/numa_node")) {
        return Ok(None);
    }
    // -1 stands for no node.
    Ok(host.line(&format!("sys/class/net/{name}/device/numa_node"))?.parse().ok())
}

/// Parses `/proc/stat` (proc(5)): user nice system idle iowait irq softirq steal, then guests' times
/// that are in the first two already.
fn times(text: &str) -> Times {
    let cpus = text.lines().filter_map(|line| {
        let mut fields = line.strip_prefix("cpu")?.split_whitespace();
        let cpu = fields.next()?.parse().ok()?;
        let times: Vec<u64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
        Some((cpu, (*times.get(7)?, times.iter().sum())))
    });
    cpus.collect()
}

fn steal(cpu: usize, before: &Fact<Times>, after: &Fact<Times>) -> Fact<f64> {
    let before = before.as_ref().map_err(Clone::clone)?;
    let after = after.as_ref().map_err(Clone::clone)?;
    let unknown = || Unknown::new("/proc/stat does not tell its time");
    let before = before.get(&cpu).ok_or_else(unknown)?;
    let after = after.get(&cpu).ok_or_else(unknown)?;
    let stolen = after.0.saturating_sub(before.0);
    let all = after.1.saturating_sub(before.1);
    #[expect(clippy::cast_precision_loss, reason = "a few ticks")]
    (all > 0).then(|| stolen as f64 / all as f64).ok_or_else(|| Unknown::new("its clock stands still"))
}

/// Parses the soft limit of open files in `/proc/PID/limits`.
fn descriptor_limit(text: &str) -> Fact<Option<u64>> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    match soft {
        Some("unlimited") => Ok(None),
        Some(soft) => soft.parse().map(Some).map_err(|_| Unknown::new("the limit is not a number")),
        None => Err(Unknown::new("/proc does not tell the limit")),
    }
}

/// Returns the lines that tell a denial to a VM's program or to the switch.
fn denials(text: &str) -> Vec<String> {
    let is_denial = |line: &&str| line.contains("apparmor=\"DENIED\"") || line.contains("avc:  denied");
    let words = ["straightline", "qemu", "libvirt-", "cloud-hypervis", "crosvm"];
    let is_ours = |line: &&str| words.iter().any(|word| line.contains(word));
    let lines: BTreeSet<_> = text.lines().filter(is_denial).filter(is_ours).collect();
    let mut lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
    lines.truncate(MOST_DENIALS);
    lines
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn cpus_with_their_core_node_governor_and_steal() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        write(root.path(), "sys/devices/system/cpu/online", "0-1\n");
        write(root.path(), "sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n");
        write(root.path(), "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        write(root.path(), "sys/devices/system/node/online", "0\n");
        write(root.path(), "sys/devices/system/node/node0/cpulist", "0\n");
        write(root.path(), "proc/stat", "cpu 9 9\ncpu0 50 0 0 100 0 0 0 50 9 9\ncpu1 1 0 0 1 0 0 0 0 0 0\nintr 5\n");
        let before = Ok([(0, (0, 100)), (1, (0, 2))].into());
        let cpus = host.machine(&before, None).cpus.unwrap();
        let cpu = &cpus[&0];
        assert_eq!((&cpu.siblings, &cpu.node), (&Ok([0, 1].into()), &Ok(0)));
        assert_eq!((&cpu.governor, &cpu.steal), (&Ok("powersave".to_owned()), &Ok(0.5)));
        let other = &cpus[&1];
        assert!(other.siblings.is_err() && other.node.is_err() && other.governor.is_err() && other.steal.is_err());
        fs::remove_dir_all(root.path().join("sys/devices/system/node")).unwrap();
        assert_eq!(host.machine(&before, None).cpus.unwrap()[&1].node, Ok(0), "a kernel without NUMA");
        assert!(Host::new("/nowhere").machine(&before, None).cpus.is_err());
    }

    #[test]
    fn quotas_of_both_versions_and_of_parents() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert!(host.process(7).quota.is_err());
        write(root.path(), "proc/7/cgroup", "0::/system.slice/straightline.service\n");
        assert!(host.process(7).quota.is_err(), "the groups are not visible");
        write(root.path(), "sys/fs/cgroup/cgroup.controllers", "cpu\n");
        let group = "sys/fs/cgroup/system.slice/straightline.service";
        write(root.path(), &format!("{group}/cpu.max"), "max 100000\n");
        assert_eq!(host.process(7).quota, Ok(None));
        write(root.path(), "sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n");
        write(root.path(), "sys/fs/cgroup/system.slice/cpu.stat", "usage_usec 5\nnr_throttled 4\n");
        assert_eq!(host.process(7).quota, Ok(Some(Quota { cpus: 1.5, throttled: 4 })));
        write(root.path(), "proc/8/cgroup", "3:cpu,cpuacct:/a\n2:memory:/b\n0::/\n");
        assert!(host.process(8).quota.is_err(), "the hierarchy of the controller is not visible");
        write(root.path(), "sys/fs/cgroup/cpu/tasks", "8\n");
        write(root.path(), "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n");
        write(root.path(), "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
        assert_eq!(host.process(8).quota, Ok(Some(Quota { cpus: 0.5, throttled: 0 })));
        write(root.path(), "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
        assert_eq!(host.process(8).quota, Ok(None));
    }

    #[test]
    fn limits_of_descriptors() {
        let line = "Limit   Soft Limit  Hard Limit Units\nMax open files            1024    524288     files\n";
        assert_eq!(descriptor_limit(line), Ok(Some(1024)));
        assert_eq!(descriptor_limit(&line.replace("1024", "unlimited")), Ok(None));
        assert!(descriptor_limit("").is_err());
    }

    #[test]
    fn denials_to_vms_only() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert_eq!(host.machine(&Ok(Times::new()), None).denials, Ok(None), "neither is active");
        write(root.path(), "sys/module/apparmor/parameters/enabled", "Y\n");
        assert!(host.machine(&Ok(Times::new()), None).denials.is_err(), "the log is not visible");
        let log = "4,1,2,-;audit: apparmor=\"DENIED\" operation=\"connect\" profile=\"libvirt-1\" name=\"/run/a.sock\"\n\
                   4,1,3,-;audit: apparmor=\"DENIED\" profile=\"firefox\"\n4,1,4,-;usb 1-1: new device of qemu\n";
        write(root.path(), "dev/kmsg", log);
        let found = host.machine(&Ok(Times::new()), None).denials.unwrap().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        write(root.path(), "var/log/audit/audit.log", "type=AVC avc:  denied  { connectto } comm=\"qemu-kvm\"\n");
        assert_eq!(host.machine(&Ok(Times::new()), None).denials.unwrap().unwrap().len(), 2);
    }

    #[test]
    fn the_node_of_an_interface() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert_eq!(interface_node(&host, None), Ok(None));
        assert_eq!(interface_node(&host, Some("tap0")), Ok(None));
        write(root.path(), "sys/class/net/eth0/device/numa_node", "1\n");
        assert_eq!(interface_node(&host, Some("eth0")), Ok(Some(1)));
        write(root.path(), "sys/class/net/eth0/device/numa_node", "-1\n");
        assert_eq!(interface_node(&host, Some("eth0")), Ok(None));
    }
}
