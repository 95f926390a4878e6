//! The machine that the end-to-end tests need: Debian packages, a kernel for QEMU, huge pages for
//! DPDK.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// Debian packages with programs that the tests run.
///
/// - dpdk-dev contains dpdk-testpmd; dpdk contains its drivers.
/// - gcc compiles the test of the C library. With pkg-config and libdpdk-dev (a dependency of
///   dpdk-dev) it also compiles DPDK's copy routine for the benches.
/// - gobgpd is the other side of `straightline evpn`; frr is a foreign host in the same network.
/// - chromium loads the page of `straightline web`, and prometheus scrapes its metrics.
/// - ldd, stdbuf and setarch are used too. They are in libc-bin, coreutils and util-linux, which
///   every Debian has.
const PACKAGES: &[&str] = &[
    "dpdk",
    "dpdk-dev",
    "openvswitch-switch-dpdk",
    "qemu-system-x86",
    "user-mode-linux",
    "iperf3",
    "busybox-static",
    "chromium",
    "curl",
    "dnsmasq-base",
    "ethtool",
    "frr",
    "gcc",
    "gobgpd",
    "iproute2",
    "iputils-ping",
    "nftables",
    "nmap",
    "pkg-config",
    "prometheus",
    "tcpdump",
    "tshark",
];

/// The package that depends on Debian's newest kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-amd64";

/// Number of huge pages of 2 MiB: more than testpmd needs.
const HUGE_PAGES: u64 = 1024;

/// Installs missing packages and reserves huge pages, as far as the machine allows. Prints each
/// result.
pub(crate) fn install(cache: &Path) -> Result<()> {
    if !Path::new("/etc/debian_version").exists() {
        println!("this is not Debian: nothing is installed; tests whose programs are missing are skipped");
        return Ok(());
    }
    let root = rustix::process::geteuid().is_root();
    let missing: Vec<&str> = PACKAGES.iter().copied().filter(|package| !installed(package)).collect();
    let has_kernel = cache.join("kernel/boot").exists();
    if missing.is_empty() && has_kernel {
        println!("all packages for the end-to-end tests are installed");
    } else if root {
        run::must(apt().args(["update", "-qq"]))?;
    }
    if !missing.is_empty() && root {
        println!("installing {}", missing.join(" "));
        run::must(apt().args(["install", "-y", "-qq", "--no-install-recommends"]).args(&missing))?;
    } else if !missing.is_empty() {
        println!("not root: cannot install {}; their tests are skipped", missing.join(", "));
    }
    if !has_kernel {
        // The kernel is unpacked, not installed: the machine still boots its own.
        match kernel(cache) {
            Ok(package) => println!("unpacked {package} for the QEMU guests"),
            Err(error) => {
                println!("no kernel for the QEMU guests, their tests are skipped: {error:#}")
            }
        }
    }
    if root {
        huge_pages()?;
    } else {
        println!("not root: cannot reserve huge pages; the DPDK tests are skipped");
    }
    Ok(())
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    // apt's own user, _apt, may not write to our folders.
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "APT::Sandbox::User=root"]);
    command
}

fn installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status}", package]);
    run::output(&mut query).is_ok_and(|status| status == "installed")
}

fn kernel(cache: &Path) -> Result<String> {
    let depends = run::output(Command::new("apt-cache").args(["depends", KERNEL]))?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.with_context(|| format!("{KERNEL} depends on no kernel"))?;
    let partial = cache.join("kernel.partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    run::must(apt().args(["download", "-qq", package]).current_dir(&partial))?;
    let mut files = fs::read_dir(&partial)?.filter_map(Result::ok).map(|entry| entry.path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "deb"));
    let file = file.context("apt-get download succeeded, but left no package")?;
    run::must(Command::new("dpkg").arg("-x").arg(&file).arg(&partial))?;
    fs::remove_file(&file)?;
    // The folder gets its final name only when it is complete.
    fs::rename(&partial, cache.join("kernel"))?;
    Ok(package.to_owned())
}

fn huge_pages() -> Result<()> {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    let have = || -> Result<u64> { Ok(fs::read_to_string(path)?.trim().parse()?) };
    match have() {
        Err(_) => println!("this kernel has no huge pages of 2 MiB: the DPDK tests are skipped"),
        Ok(now) if now >= HUGE_PAGES => println!("{now} huge pages of 2 MiB are reserved"),
        Ok(now) => {
            let written = fs::write(path, HUGE_PAGES.to_string());
            println!("huge pages of 2 MiB: {now} were reserved, now {}", have()?);
            if let Err(error) = written {
                println!("cannot reserve {HUGE_PAGES}: {error}");
            }
        }
    }
    let mounted = || -> Result<bool> {
        let mounts = fs::read_to_string("/proc/mounts")?;
        Ok(mounts.lines().any(|line| line.split(' ').nth(2) == Some("hugetlbfs")))
    };
    if !mounted()? {
        fs::create_dir_all("/dev/hugepages")?;
        let mut mount = Command::new("mount");
        // A container may forbid this. The DPDK tests then report that hugetlbfs is not mounted.
        if !run::passes(mount.args(["-t", "hugetlbfs", "nodev", "/dev/hugepages"]))? {
            println!("cannot mount hugetlbfs: the DPDK tests are skipped");
        } else if !mounted()? {
            bail!("mount succeeded, but hugetlbfs is not mounted");
        }
    }
    Ok(())
}
