//! The machine that runs the tests. Its programs and its shared memory decide which tests can run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::{initrd, net, ovs, proc};

/// A requirement of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// User Mode Linux guests: this number at the same time.
    Uml(u32),
    /// QEMU guests.
    Qemu,
    /// QEMU's network backends, without a guest.
    QemuNet,
    /// DPDK's testpmd.
    Dpdk,
    /// DPDK's vhost library, and a compiler.
    RteVhost,
    /// Open vSwitch with DPDK.
    Ovs,
    /// Open vSwitch without DPDK, in a network namespace.
    PlainOvs,
    /// Wireshark's tshark.
    Tshark,
    /// Network namespaces with taps and veth pairs, and a shell in them with iperf3.
    Namespaces,
    /// tcpdump and tshark.
    Captures,
    /// The programs of `docs/network.md`: nft and dnsmasq.
    Nat,
    /// nftables with connection tracking, in network namespaces.
    Nftables,
    /// A port scanner, a browser and a web server, in network namespaces.
    Nmap,
    /// gobgpd, FRR, and a kernel with bridges and VXLAN devices.
    Evpn,
    /// The Debian package, and a system on which it can be tried.
    Package,
}

/// The folder of FRR's daemons.
pub(crate) const FRR: &str = "/usr/lib/frr";

/// Memory of a User Mode Linux guest in MiB. It is a file on a tmpfs, shared with the switch.
pub(crate) const UML_MIB: u32 = 512;

/// Huge pages of 2 MiB: testpmd gets 256 of them (`-m 512`); the rest is reserve.
const HUGE_PAGES: u64 = 300;

/// Upper bound of the tests that run at the same time.
const JOBS: usize = 5;

/// MiB of memory that one test may need: three guests, the switch and the harness.
const TEST_MIB: u64 = 3 * UML_MIB as u64 + 512;

/// Held while a file of [`own`] is made.
static MAKING: Mutex<()> = Mutex::new(());

/// The machine, and the files and folders that the tests use.
pub(crate) struct Machine {
    /// The switch's program.
    pub(crate) switch: PathBuf,
    /// A folder that may remain between runs: initial RAM disks, QEMU's kernel, logs.
    pub(crate) cache: PathBuf,
    /// Selects larger transfers.
    pub(crate) long: bool,
}

impl Machine {
    /// Returns the reason why this machine does not meet a requirement, or `None` if it does.
    pub(crate) fn missing(&self, need: Need) -> Option<String> {
        let lacks = |programs: &[&str]| {
            let absent: Vec<&str> = programs.iter().copied().filter(|p| find_program(p).is_none()).collect();
            (!absent.is_empty()).then(|| format!("not installed: {}", absent.join(", ")))
        };
        let guest_programs = ["iperf3", "ethtool", "busybox", "ip", "ldd"];
        match need {
            Need::Uml(guests) => {
                lacks(&guest_programs).or_else(|| lacks(&["linux.uml", "setarch", "cc"])).or_else(|| {
                    let have = free_mib("/dev/shm");
                    let want = u64::from(guests * UML_MIB);
                    (have < want).then(|| format!("/dev/shm has {have} MiB free, {guests} guests need {want}"))
                })
            }
            Need::Qemu => lacks(&guest_programs)
                .or_else(|| lacks(&["qemu-system-x86_64"]))
                .or_else(|| self.kernel().err().map(|error| format!("{error:#}"))),
            Need::QemuNet => lacks(&["qemu-system-x86_64"]),
            Need::Dpdk => lacks(&["dpdk-testpmd", "stdbuf"]).or_else(no_huge_pages),
            Need::RteVhost => lacks(&["cc", "pkg-config"]).or_else(no_huge_pages),
            Need::Ovs => lacks(&["ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-ofctl"])
                .or_else(|| {
                    let missing = !Path::new(ovs::PROGRAM).exists();
                    missing.then(|| format!("not installed: {}", ovs::PROGRAM))
                })
                .or_else(no_huge_pages),
            Need::PlainOvs => {
                let root = rustix::process::geteuid().is_root();
                lacks(&["ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-vswitchd", "unshare"])
                    .or_else(|| (!root).then(|| "a network namespace needs root".to_owned()))
            }
            Need::Tshark => lacks(&["tshark"]),
            Need::Namespaces => lacks(&["ip", "iperf3", "ethtool", "busybox"]).or_else(net::cannot),
            Need::Captures => lacks(&["tshark", "tcpdump"]),
            Need::Nat => lacks(&["nft", "dnsmasq"]),
            Need::Nftables => lacks(&["ip", "nft"]).or_else(net::cannot).or_else(net::cannot_track),
            Need::Nmap => lacks(&["ip", "ss", "nmap", "curl", "busybox"]).or_else(net::cannot),
            Need::Evpn => lacks(&["gobgpd", "ip", "bridge", "ping"])
                .or_else(|| {
                    let missing = !Path::new(FRR).join("bgpd").exists();
                    missing.then(|| format!("not installed: {FRR}/bgpd"))
                })
                .or_else(net::cannot_vxlan),
            Need::Package => lacks(&["dpkg", "dpkg-deb", "adduser", "setpriv", "nsenter", "unshare"])
                .or_else(net::cannot)
                .or_else(|| self.package().err().map(|error| format!("{error:#}"))),
        }
    }

    /// Returns the kernel that QEMU boots. It is from a package unpacked into the cache, never the
    /// host's own.
    pub(crate) fn kernel(&self) -> Result<PathBuf> {
        let boot = self.cache.join("kernel/boot");
        let files = fs::read_dir(&boot).with_context(|| {
            format!("no kernel for QEMU in {}: `cargo xtask test` unpacks one there on Debian", boot.display())
        })?;
        for file in files {
            let file = file?;
            if file.file_name().to_string_lossy().starts_with("vmlinuz-") {
                return Ok(file.path());
            }
        }
        bail!("no kernel for QEMU in {}: `cargo xtask test` unpacks one there on Debian", boot.display())
    }

    /// Returns the Debian package that contains the switch's program.
    pub(crate) fn package(&self) -> Result<PathBuf> {
        let target =
            self.switch.parent().and_then(Path::parent).context("the switch's program has no target folder")?;
        let folder = target.join("debian");
        let none = || format!("no package in {}: `cargo xtask deb` builds it", folder.display());
        let files = fs::read_dir(&folder).with_context(none)?;
        let mut packages: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        packages.retain(|path| path.extension().is_some_and(|extension| extension == "deb"));
        ensure!(packages.len() <= 1, "{} has several packages: keep one", folder.display());
        packages.pop().with_context(none)
    }

    /// Returns the initial RAM disk for User Mode Linux. The first call of a run creates it.
    pub(crate) fn uml_initrd(&self) -> Result<PathBuf> {
        let order = ["failover", "net_failover", "virtio_net"];
        let gtp = self.compile("gtp_tunnel", "src/gtp_tunnel.c", &[])?;
        self.initrd("uml", Path::new("/usr/lib/uml/modules"), &order, &[(&gtp, "gtp_tunnel")])
    }

    /// Returns the library that mends faults of User Mode Linux. The first call of a run compiles
    /// it.
    pub(crate) fn uml_preload(&self) -> Result<PathBuf> {
        self.compile("uml_preload", "src/uml_preload.c", &["-shared", "-fPIC"])
    }

    /// Compiles a C file of this package, and returns the result. Later calls of a run return the
    /// same file.
    fn compile(&self, name: &str, source: &str, options: &[&str]) -> Result<PathBuf> {
        fs::create_dir_all(&self.cache)?;
        let output = self.cache.join(own(name));
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if !output.exists() {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
            let mut compile = Command::new("cc");
            compile.args(["-O2", "-Wall", "-Wextra", "-Werror"]).args(options).arg("-o").arg(&output).arg(source);
            let (code, _, err) = proc::run(&mut compile)?;
            ensure!(code == Some(0), "cc ended with {code:?}: {}", err.trim());
        }
        Ok(output)
    }

    /// Returns the initial RAM disk for QEMU.
    pub(crate) fn qemu_initrd(&self) -> Result<PathBuf> {
        let order = [
            "virtio_ring",
            "virtio",
            "virtio_pci_legacy_dev",
            "virtio_pci_modern_dev",
            "virtio_pci",
            "failover",
            "net_failover",
            "virtio_net",
        ];
        self.initrd("qemu", &self.cache.join("kernel/lib/modules"), &order, &[])
    }

    fn initrd(&self, kind: &str, modules: &Path, order: &[&str], programs: &[(&Path, &str)]) -> Result<PathBuf> {
        fs::create_dir_all(&self.cache)?;
        let path = self.cache.join(own(kind));
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if !path.exists() {
            initrd::write(&path, modules, order, programs)?;
        }
        Ok(path)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for name in ["uml", "qemu", "uml_preload", "gtp_tunnel"] {
            // The file exists only if such guests ran.
            let _ = fs::remove_file(self.cache.join(own(name)));
        }
    }
}

/// Returns the name of a file that a run makes. It contains the process id, so no file of another
/// version of this program is used.
fn own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Returns a CPU for each of two workers, or a single CPU if there is only one.
pub(crate) fn two_workers() -> Result<Vec<u32>> {
    let (one, other) = two_cpus()?;
    let mut cpus = vec![one, other];
    cpus.dedup();
    Ok(cpus)
}

/// Returns the first two CPUs on which this process may run, or twice the same one if there is no
/// more.
pub(crate) fn two_cpus() -> Result<(u32, u32)> {
    let set = sched_getaffinity(None).context("cannot read the CPUs of this process")?;
    let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    let mut cpus = cpus.filter_map(|cpu| u32::try_from(cpu).ok());
    let first = cpus.next().context("no CPU")?;
    Ok((first, cpus.next().unwrap_or(first)))
}

/// Returns the number of tests that may run at the same time, as far as memory suffices.
pub(crate) fn jobs() -> usize {
    let available = memory("MemAvailable:").unwrap_or(0) / 1024;
    let fit = available.min(free_mib("/dev/shm")) / TEST_MIB;
    usize::try_from(fit).unwrap_or(JOBS).clamp(1, JOBS)
}

/// Returns a number of `/proc/meminfo`.
fn memory(name: &str) -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn find_program(name: &str) -> Option<PathBuf> {
    // A user's PATH often lacks the sbin folders, which contain ethtool.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

fn free_mib(path: &str) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |fs| (fs.f_bavail * fs.f_frsize) >> 20)
}

fn no_huge_pages() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("DPDK needs root".to_owned());
    }
    if memory("Hugepagesize:") != Some(2048) {
        return Some("no huge pages of 2 MiB".to_owned());
    }
    let free = memory("HugePages_Free:").unwrap_or(0);
    if free < HUGE_PAGES {
        return Some(format!("{free} free huge pages of 2 MiB, DPDK needs {HUGE_PAGES}"));
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mounted = mounts.lines().any(|line| line.split(' ').nth(2) == Some("hugetlbfs"));
    (!mounted).then(|| "no hugetlbfs is mounted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_cpus() {
        let (one, other) = two_cpus().expect("this process runs somewhere");
        assert!(one <= other);
    }

    #[test]
    fn programs_are_found_by_path() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program").is_none());
    }
}
