//! The guests' file system: a cpio archive with busybox, iperf3, ethtool, iproute2, and the modules
//! for virtio, IPv6, tunnels and bridges.
//! Its init runs the lines that it reads from its console.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::proc;

/// Prefix of the lines on a guest's console that are answers to us.
pub(crate) const MARK: &str = "@@";

/// Begin of the init script.
const INIT: &str = r#"#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mount -t tmpfs -o size=90% tmp /tmp
for m in $(cat /mod/order); do insmod /mod/$m.ko; done
ip link set lo up
stty -echo
echo; echo "@@up"
"#;

/// The rest of the init script. It reads commands as `ID COMMAND`, and writes `@@ID STATUS` after a
/// command's output. Each command runs in a subshell, so that `exit` and `cd` have no effect on
/// later ones.
pub(crate) const CONSOLE: &str = r#"while IFS= read -r line; do
  id=${line%% *}
  ( eval "${line#* }" ) </dev/null 2>&1
  status=$?
  printf '\n@@%s %s\n' "$id" "$status"
done
"#;

/// The modules for IPv6, in the order in which to load them. QEMU's kernel needs none.
pub(crate) const IPV6: [&str; 2] = ["crc-ccitt", "ipv6"];

/// The modules for tunnels and VLANs, in the order in which to load them, after those for IPv6.
/// Only User Mode Linux has them.
pub(crate) const TUNNELS: [&str; 16] = [
    "udp_tunnel",
    "ip6_udp_tunnel",
    "vxlan",
    "geneve",
    "gre",
    "ip_tunnel",
    "ip_gre",
    "tunnel6",
    "ip6_tunnel",
    "ip6_gre",
    "gtp",
    "llc",
    "stp",
    "mrp",
    "garp",
    "8021q",
];

/// The module for bridges, after those for IPv6 and tunnels. Only User Mode Linux has it.
pub(crate) const BRIDGE: &str = "bridge";

const APPLETS: &str = "sh mount insmod ip ping arping sleep echo cat dmesg poweroff ls nc dd sha256sum awk grep sed \
                       head stty sysctl time wc rm tail kill printf seq udhcpc wget";

/// The script that udhcpc calls with its lease.
const DHCP: &str = r#"#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr flush dev $interface
ip addr add $ip/$mask dev $interface
for router in $router; do ip route add default via $router dev $interface; done
for server in $dns; do echo nameserver $server; done >/etc/resolv.conf
"#;

/// Writes the archive to `path`, with the modules of `order` that exist below `modules`, in this
/// order, and with additional programs by these names.
pub(crate) fn write(path: &Path, modules: &Path, order: &[&str], programs: &[(&Path, &str)]) -> Result<()> {
    let mut archive = Newc::default();
    for dir in ["bin", "mod", "proc", "sys", "dev", "tmp", "etc", "etc/udhcpc"] {
        archive.dir(dir);
    }
    // The kernel opens the console for init's standard streams, before init can mount anything.
    archive.char_device("dev/console", 5, 1);
    archive.file("bin/busybox", 0o755, &read(Path::new("/bin/busybox"))?);
    for applet in APPLETS.split_whitespace() {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    let mut libraries = BTreeMap::new();
    // Busybox's `ip` makes no tunnels.
    let usual = [
        ("/usr/bin/iperf3", "iperf3"),
        ("/usr/sbin/ethtool", "ethtool"),
        ("/bin/ip", "iproute2"),
        ("/sbin/bridge", "bridge"),
    ];
    for (program, name) in usual.map(|(path, name)| (Path::new(path), name)).iter().chain(programs) {
        archive.file(&format!("bin/{name}"), 0o755, &read(program)?);
        libraries.extend(libraries_of(program)?);
    }
    for (name, content) in &libraries {
        archive.file(name.trim_start_matches('/'), 0o755, content);
    }
    let mut loaded = Vec::new();
    for module in order.iter().chain(&IPV6).chain(&TUNNELS).chain(&[BRIDGE]) {
        // A module without a file is built into the kernel.
        if let Some(file) = find(modules, &format!("{module}.ko"))? {
            archive.file(&format!("mod/{module}.ko"), 0o644, &read(&file)?);
            loaded.push(*module);
        }
    }
    // Guests load IPv6 when they get an IPv6 address: until then they send no IPv6 packets.
    loaded.retain(|module| !IPV6.contains(module) && !TUNNELS.contains(module) && *module != BRIDGE);
    if !loaded.contains(&"virtio_net") {
        bail!("no virtio_net.ko below {}: install the kernel's modules", modules.display());
    }
    archive.file("mod/order", 0o644, loaded.join(" ").as_bytes());
    archive.file("etc/udhcpc/default.script", 0o755, DHCP.as_bytes());
    archive.file("init", 0o755, format!("{INIT}{CONSOLE}poweroff -f\n").as_bytes());
    fs::write(path, archive.finish()).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the dynamic libraries of a program, by the paths at which the loader looks for them.
fn libraries_of(program: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let (code, out, err) = proc::run(Command::new("ldd").arg(program))?;
    if code != Some(0) {
        bail!("ldd {} failed: {err}", program.display());
    }
    out.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(|path| Ok((path.to_owned(), read(Path::new(path))?)))
        .collect()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn find(dir: &Path, name: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            if let Some(hit) = find(&entry.path(), name)? {
                return Ok(Some(hit));
            }
        } else if entry.file_name() == name {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// An archive in the format that Linux unpacks at boot: "newc" of cpio(5). Each entry has a
/// 110-byte header in hexadecimal before its name. Names and contents are padded to four bytes.
#[derive(Default)]
struct Newc {
    bytes: Vec<u8>,
    dirs: Vec<String>,
    entries: u32,
}

impl Newc {
    fn dir(&mut self, name: &str) {
        if !self.dirs.iter().any(|dir| dir == name) {
            self.dirs.push(name.to_owned());
            self.entry(name, 0o040_755, &[], (0, 0));
        }
    }

    fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.parents(name);
        self.entry(name, 0o100_000 | mode, content, (0, 0));
    }

    fn link(&mut self, name: &str, target: &str) {
        self.parents(name);
        self.entry(name, 0o120_777, target.as_bytes(), (0, 0));
    }

    fn char_device(&mut self, name: &str, major: u32, minor: u32) {
        self.parents(name);
        self.entry(name, 0o020_600, &[], (major, minor));
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn parents(&mut self, name: &str) {
        for (at, _) in name.match_indices('/') {
            if let Some(parent) = name.get(..at) {
                self.dir(parent);
            }
        }
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8], (major, minor): (u32, u32)) {
        self.entries += 1;
        let inode = self.entries;
        let links = 1;
        let size = content.len();
        let name_size = name.len() + 1;
        // magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor,
        // rdevminor, namesize, check
        let header = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{links:08x}{0:08x}{size:08x}{0:08x}{0:08x}\
             {major:08x}{minor:08x}{name_size:08x}{0:08x}",
            0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_aligned_entries_parents_and_a_trailer() {
        let mut archive = Newc::default();
        archive.file("lib/x/a.so", 0o755, b"12345");
        archive.link("lib/b", "x/a.so");
        archive.char_device("dev/console", 5, 1);
        let bytes = archive.finish();
        let entries = parse(&bytes);
        let names: Vec<&str> = entries.iter().map(|entry| entry.0.as_str()).collect();
        assert_eq!(names, ["lib", "lib/x", "lib/x/a.so", "lib/b", "dev", "dev/console", "TRAILER!!!"]);
        assert_eq!(entries[2], ("lib/x/a.so".to_owned(), 0o100_755, b"12345".to_vec(), (0, 0)));
        assert_eq!(entries[3].2, b"x/a.so");
        assert_eq!((entries[5].1, entries[5].3), (0o020_600, (5, 1)));
    }

    #[test]
    fn the_loader_of_a_dynamic_program_is_among_its_libraries() {
        let got = libraries_of(Path::new("/bin/sh")).expect("ldd runs");
        assert!(got.iter().any(|(name, bytes)| name.contains("ld-linux") && bytes.starts_with(b"\x7fELF")));
    }

    /// Name, mode, content, device.
    type Entry = (String, usize, Vec<u8>, (usize, usize));

    /// Reads an archive back.
    fn parse(bytes: &[u8]) -> Vec<Entry> {
        let mut at = 0;
        let mut entries = Vec::new();
        while at < bytes.len() {
            let header = std::str::from_utf8(&bytes[at..at + 110]).expect("a header");
            assert_eq!(&header[..6], "070701");
            let field = |n: usize| usize::from_str_radix(&header[6 + 8 * n..14 + 8 * n], 16).expect("a number");
            let name_end = at + 110 + field(11);
            assert_eq!(bytes[name_end - 1], 0);
            let name = String::from_utf8(bytes[at + 110..name_end - 1].to_vec()).expect("a name");
            let start = name_end.next_multiple_of(4);
            let content = bytes[start..start + field(6)].to_vec();
            entries.push((name, field(1), content, (field(9), field(10))));
            at = (start + field(6)).next_multiple_of(4);
        }
        entries
    }
}
