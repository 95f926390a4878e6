//! Network namespaces with interfaces, that tests make and that end with the test. All interfaces,
//! addresses and routes of a test are in them: the machine's own network stays as it is.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Deserialize;

use crate::lab::Lab;
use crate::proc::{self, Proc};
use crate::say::say;

/// A network namespace. Dropping it removes it, as soon as no process is in it.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace whose name contains `role` and the id of this process.
    pub(crate) fn new(role: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sl{}-{number}-{role}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        // Addresses are valid at once, and an idle interface is silent.
        namespace.sh(
            "ip link set lo up; cd /proc/sys/net/ipv6/conf/default; echo 0 > accept_dad; echo 0 > router_solicitations",
        )?;
        Ok(namespace)
    }

    /// Makes a namespace without IPv6, whose interfaces send nothing by themselves.
    pub(crate) fn silent(role: &str) -> Result<Self> {
        let namespace = Self::new(role)?;
        namespace.sh("cd /proc/sys/net/ipv6/conf; echo 1 > all/disable_ipv6; echo 1 > default/disable_ipv6")?;
        Ok(namespace)
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that runs `program` in the namespace. The program replaces `ip`, so its
    /// process id is that of the child.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        proc::command(&self.prefix(), program)
    }

    /// Returns the command that runs another command in the namespace.
    pub(crate) fn prefix(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).into()
    }

    /// Starts a program in the namespace, with its output in the log `name`.
    pub(crate) fn start(&self, lab: &Lab, name: &str, program: &str, args: &[&str]) -> Result<Proc> {
        let mut command = self.command(program);
        command.args(args);
        Proc::start(name, command, &lab.log(name))
    }

    /// Runs a shell script that must succeed, and returns its output.
    pub(crate) fn sh(&self, script: &str) -> Result<String> {
        let mut command = self.command("sh");
        let (code, out, err) = proc::run(command.args(["-ec", script]))?;
        ensure!(code == Some(0), "namespace {}: `{script}` ended with {code:?}: {out}{err}", self.name);
        Ok(out.trim().to_owned())
    }

    /// Calls `f` on a thread in the namespace. Threads and sockets that it makes stay there.
    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        let namespace = File::open(format!("/run/netns/{}", self.name))?;
        let enter = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(f())
        };
        std::thread::scope(|scope| scope.spawn(enter).join().map_err(|_| anyhow!("a thread panicked"))?)
    }

    /// Returns the state of an interface, or `None` if there is none with this name.
    pub(crate) fn link(&self, interface: &str) -> Result<Option<LinkState>> {
        Ok(self.links()?.into_iter().find(|link| link.ifname == interface))
    }

    fn links(&self) -> Result<Vec<LinkState>> {
        let text = self.sh("ip -d -j addr show")?;
        serde_json::from_str(&text).with_context(|| format!("`ip -j` wrote {text}"))
    }

    /// Returns all addresses and routes as text for comparison, without the state of interfaces.
    pub(crate) fn routes(&self) -> Result<String> {
        self.sh("(ip -o -4 addr; ip -o -6 addr; ip route show table all; ip -6 route show table all; ip rule) | sed 's/^[0-9]*: *//; s/ linkdown//'")
    }

    /// Asserts that no XDP program is attached to any interface.
    pub(crate) fn has_no_program(&self) -> Result<()> {
        let attached: Vec<LinkState> = self.links()?.into_iter().filter(|link| link.xdp.is_some()).collect();
        ensure!(attached.is_empty(), "an XDP program is still attached: {attached:?}");
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // If the removal fails, an empty namespace with the name of this process remains.
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// An interface, as `ip -d -j addr` describes it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct LinkState {
    pub(crate) ifindex: u32,
    pub(crate) ifname: String,
    pub(crate) mtu: u32,
    /// MAC address.
    #[serde(default)]
    pub(crate) address: String,
    #[serde(default)]
    pub(crate) addr_info: Vec<Address>,
    /// Name of its bridge.
    pub(crate) master: Option<String>,
    pub(crate) linkinfo: Option<LinkInfo>,
    /// The attached XDP program.
    pub(crate) xdp: Option<serde_json::Value>,
}

/// An IP address of an interface.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Address {
    local: String,
    prefixlen: u32,
}

/// The kind of an interface, and its settings as the kind has them.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct LinkInfo {
    pub(crate) info_kind: Option<String>,
    pub(crate) info_data: Option<serde_json::Value>,
}

/// One end of a veth pair: its namespace and its name.
pub(crate) type End<'n> = (&'n Namespace, &'n str);

/// Makes a veth pair, whose ends are up.
pub(crate) fn veth(ends: [End; 2], queues: u32, mtu: u32) -> Result<()> {
    let [(one, name), (other, peer)] = ends;
    let each = format!("mtu {mtu} numrxqueues {queues} numtxqueues {queues}");
    one.sh(&format!("ip link add {name} {each} type veth peer name {peer} {each} netns {}", other.name))?;
    for (namespace, name) in ends {
        namespace.sh(&format!("ip link set {name} up"))?;
    }
    Ok(())
}

/// A capture of the packets that an interface receives, by tcpdump.
pub(crate) struct Capture {
    tcpdump: Proc,
    file: PathBuf,
}

impl Capture {
    /// Starts tcpdump on an interface, for packets that come in.
    pub(crate) fn start(lab: &Lab, namespace: &Namespace, interface: &str) -> Result<Self> {
        let file = lab.log("capture.pcap");
        // tcpdump would write its file as another user, who may not write to our folder. Without the
        // immediate mode, the kernel fills blocks, and tcpdump misses some of the first packets. With
        // it, each packet takes a place of the longest length in the buffer, whose unit is KiB.
        let file_text = file.to_string_lossy();
        let buffer = ["--immediate-mode", "-s", "16384", "-B", "131072"];
        let args = [&["-i", interface, "-Q", "in", "-w", &file_text, "-U", "-Z", "root"][..], &buffer].concat();
        let tcpdump = namespace.start(lab, "tcpdump", "tcpdump", &args)?;
        let listens = || Ok(tcpdump.texts().1.contains("listening on").then_some(()));
        proc::until("tcpdump listens", listens)?;
        Ok(Self { tcpdump, file })
    }

    /// Ends the capture, and asserts that tshark and tcpdump find no wrong checksum in it. `least`
    /// is the smallest number of right TCP or UDP checksums.
    pub(crate) fn checksums_are_right(self, least: usize) -> Result<()> {
        self.checksums_are_right_by(least, &[])
    }

    /// Does the same as [`Self::checksums_are_right`], with additional options of tshark.
    pub(crate) fn checksums_are_right_by(mut self, least: usize, options: &[&str]) -> Result<()> {
        // At this signal, tcpdump tells how many packets it has written, and goes on. When two answers are
        // equal, it has found no further one between them.
        let mut last = (0, None);
        proc::until("tcpdump has written all packets", || {
            self.tcpdump.signal(Signal::USR1)?;
            let says = self.tcpdump.texts().1;
            let answers: Vec<_> = says.lines().filter_map(|line| line.split_once(" captured, ")).collect();
            let now = (answers.len(), answers.last().map(|(written, _)| (*written).to_owned()));
            let is_over = now.0 > last.0 && now.1 == last.1;
            last = now;
            Ok(is_over.then_some(()))
        })?;
        self.tcpdump.signal(Signal::INT)?;
        self.tcpdump.wait_end()?;
        // Its last lines may be read a moment after its end.
        let ended = || Ok(Some(self.tcpdump.texts().1).filter(|says| says.ends_with("dropped by kernel\n")));
        let says = proc::until("tcpdump tells what it has lost", ended)?;
        ensure!(says.contains("\n0 packets dropped by kernel"), "tcpdump lost packets: {says}");
        const STATUS: [&str; 6] = ["ip", "tcp", "udp", "icmp", "icmpv6", "gre"];
        let mut tshark = Command::new("tshark");
        tshark.args(["-n", "-r"]).arg(&self.file).args(options);
        for protocol in ["ip", "tcp", "udp"] {
            tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
        }
        tshark.args(["-T", "fields"]);
        for protocol in STATUS {
            tshark.args(["-e", &format!("{protocol}.checksum.status")]);
        }
        tshark.args(["-e", "tcp.checksum"]);
        let (code, out, err) = proc::run(&mut tshark)?;
        ensure!(code == Some(0), "tshark ended with {code:?}: {err}");
        let mut right = 0;
        for (number, line) in (1..).zip(out.lines()) {
            // Linux finishes a checksum of 0 as 0xffff, the same number in one's complement. Only for
            // UDP does tshark know that.
            let is_zero = line.ends_with("0xffff");
            for (protocol, status) in STATUS.iter().zip(line.split('\t')) {
                // 0 is wrong, 1 is right (Wireshark's proto.h). A packet in a packet makes a list.
                let is_wrong = status.contains('0') && !(*protocol == "tcp" && is_zero);
                ensure!(!is_wrong, "tshark: the {protocol} checksum of frame {number} is wrong");
                let seen = status.split(',').filter(|status| *status == "1").count();
                right += if matches!(*protocol, "tcp" | "udp") { seen } else { 0 };
            }
        }
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.args(["-nvv", "-r"]).arg(&self.file);
        let (code, out, err) = proc::run(&mut tcpdump)?;
        ensure!(code == Some(0), "tcpdump ended with {code:?}: {err}");
        let is_wrong = |line: &&str| {
            // tcpdump writes "cksum 0xffff (incorrect -> 0x0000)" for the same number.
            (line.contains("incorrect") && !line.contains("0xffff (incorrect")) || line.contains("bad cksum")
        };
        if let Some(line) = out.lines().find(is_wrong) {
            bail!("tcpdump: {}", line.trim());
        }
        ensure!(right >= least, "only {right} TCP and UDP checksums were seen, and not {least}");
        say!("  tshark and tcpdump: {right} TCP and UDP checksums are right, none is wrong");
        std::fs::remove_file(&self.file)?;
        Ok(())
    }
}

/// Returns what tshark reads in each packet of a file that a filter selects: a line with these fields,
/// separated by tabs. Of several values of a field it has the first one.
pub(crate) fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Result<String> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r"]).arg(file).args(["-Y", filter, "-T", "fields", "-E", "occurrence=f"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let (code, out, err) = proc::run(&mut tshark)?;
    ensure!(code == Some(0), "tshark ended with {code:?}: {err}");
    Ok(out)
}

/// Returns the reason why this process cannot make namespaces, or `None` if it can.
pub(crate) fn cannot() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("namespaces and interfaces need root".to_owned());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("this machine has no /dev/net/tun".to_owned());
    }
    Namespace::new("probe").err().map(|error| format!("{error:#}"))
}

/// Returns the reason why the kernel follows no connections in a namespace, or `None` if it does.
pub(crate) fn cannot_track() -> Option<String> {
    let rules = "table inet t { chain c { type filter hook forward priority 0; ct state invalid drop\n}\n}\n";
    let probe = || Namespace::new("probe")?.sh(&format!("nft '{rules}'; test -d /proc/sys/net/netfilter"));
    probe().err().map(|error| format!("no connection tracking: {error:#}"))
}

/// Returns the reason why the kernel has no bridges with VXLAN devices, or `None` if it has.
pub(crate) fn cannot_vxlan() -> Option<String> {
    let devices =
        "ip link add br0 type bridge; ip link add vx0 type vxlan id 1 dstport 4789; ip link set vx0 master br0";
    let probe = || Namespace::new("probe")?.sh(devices);
    probe().err().map(|error| format!("no bridge with a VXLAN device: {error:#}"))
}

fn ip(args: &[&str]) -> Result<()> {
    let (code, _, err) = proc::run(Command::new("ip").args(args))?;
    ensure!(code == Some(0), "`ip {}` ended with {code:?}: {}", args.join(" "), err.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read() {
        let text = r#"[{"ifindex":2,"ifname":"v1","flags":["UP"],"mtu":1500,"xdp":{"mode":1,"prog":{"id":7}},
            "address":"02:00:00:00:00:01","linkinfo":{"info_kind":"veth"},
            "addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24}]}, {"ifindex":1,"ifname":"lo","mtu":65536}]"#;
        let links: Vec<LinkState> = serde_json::from_str(text).expect("ip's JSON");
        assert_eq!((links[0].mtu, links[0].addr_info.len(), links[0].xdp.is_some()), (1500, 1, true));
        assert_eq!((links[1].ifname.as_str(), links[1].xdp.is_some()), ("lo", false));
    }
}
