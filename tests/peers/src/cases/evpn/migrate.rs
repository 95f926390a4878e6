//! A VM that migrates between two hosts of ours, while the third one pings it.
//!
//! ```text
//!   host 1             host 2             host 3
//!   QEMU ──── VM ────▶ QEMU               tap vm0: ping
//!   switch, evpn       switch, evpn       switch, evpn
//!   gobgpd             gobgpd             gobgpd (reflector)
//!     └──── b0, u0 ──────┴──── b0, u0 ──────┴─ b0, u0: a bridge in namespace "core"
//! ```
//!
//! Success: each move raises the number of the route, the old host withdraws its own, and no host
//! sends to the old place. From the first answer behind a move on, host 3 gets an answer to each ping.
//! The test prints the time from the VM's first packet at its new host to this answer, and the part of
//! it until the BGP message with the route arrives at host 3.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{Host, IP, MAC, REFLECTOR, member, text};
use crate::guest::{LinuxGuest, Qemu};
use crate::lab::Lab;
use crate::monitor::{self, Monitor};
use crate::net::{self, Namespace};
use crate::proc::{self, Proc};
use crate::say::say;

/// Upper bound of the time from the first packet to the first answer, in a long run. The machine runs
/// three switches and an emulated guest at the same time.
const GENEROUS: f64 = 5.0;

/// Answers of the VM behind a move.
const ANSWERED: usize = 20;

/// The pings during a move and their answers, as a filter of tshark: others have another length.
const PINGS: &str = "ip.len == 105 && icmp.type == 8";
const ANSWERS: &str = "ip.len == 105 && icmp.type == 0";

/// The guest's device. Its driver announces it after a migration.
const DEVICE: Qemu = Qemu { chardev: "", netdev: "", device: ",mac=02:00:00:00:00:77,guest_announce=on" };

pub(super) fn a_vm_migrates(lab: &Lab) -> Result<()> {
    let core = super::core()?;
    let three = Host::new(lab, REFLECTOR, &core)?;
    let hosts = [Host::with_vm_port(lab, 1, &core)?, Host::with_vm_port(lab, 2, &core)?];
    let [one, two] = &hosts;
    let mut vm = Vm::boot(one)?;
    for host in [one, two, &three] {
        host.wait_others(2)?;
    }
    three.wait_station(1, 0)?;
    three.reaches(IP)?;
    two.reaches(IP)?;

    // More than four moves within three minutes would be those of a duplicate (RFC 7432, section 15.1).
    let moves = if lab.machine.long { 4 } else { 2 };
    for number in 1..=moves {
        let (from, to) = if number % 2 == 1 { (one, two) } else { (two, one) };
        vm = migrate(vm, [from, to, &three], number)?;
    }
    Ok(())
}

/// Migrates the VM from a host to another, and looks at it from all three.
fn migrate<'l>(vm: Vm<'l>, hosts: [&'l Host<'l>; 3], number: u32) -> Result<Vm<'l>> {
    let [_, to, third] = hosts;
    let at_vm = Recording::of_port(to, "guest", number)?;
    let at_third = Recording::of_port(third, "vm", number)?;
    let bgp = Recording::of_bgp(third, number)?;
    // A queue of the VM has places for the pings of ten seconds, in which it does not run.
    let interval = if third.lab.machine.long { "0.01" } else { "0.05" };
    let ping = ["-i", interval, "-s", "77", IP];
    let mut ping = third.namespace.start(third.lab, &format!("ping-{number}"), "ping", &ping)?;
    let mut vm = vm.migrate(to, number)?;
    for host in hosts {
        let what = format!("host {} has the VM behind host {} alone, number {number}", host.number, to.number);
        proc::until(&what, || Ok((host.places()? == [(to.address(), number)]).then_some(())))?;
    }
    for host in hosts {
        host.reaches(IP)?;
    }
    for other in [1, 2, 3] {
        vm.guest.sh(&format!("ping -c 3 -W 60 -q 10.0.0.{other}"))?;
    }
    let mark = ping.mark();
    let answers = |text: &str| (text.matches(" bytes from ").count() >= ANSWERED).then_some(());
    ping.wait_text("answers behind the move", mark, answers)?;
    drop(ping);
    // Packets of host 3 arrive in order, so all before have been answered.
    third.reaches(IP)?;
    let captures = Captures { at_vm: at_vm.end()?, at_third: at_third.end()?, bgp: bgp.end()? };
    captures.check(to)?;
    for file in [captures.at_vm, captures.at_third, captures.bgp] {
        std::fs::remove_file(file)?;
    }
    Ok(vm)
}

/// The files of the captures during a move.
struct Captures {
    /// The VM's packets at its new host.
    at_vm: PathBuf,
    /// The packets of host 3's own station.
    at_third: PathBuf,
    /// The BGP messages that arrive at host 3.
    bgp: PathBuf,
}

impl Captures {
    /// Prints the times of the move to a host, and asserts that no ping was lost behind the first answer.
    fn check(&self, to: &Host) -> Result<()> {
        let all = packets(&self.at_vm, &format!("eth.src == {MAC}"))?;
        let first = all.first().context("no packet of the VM at its new host")?.time;
        // A ping that came to the old host just before the end there is answered here too.
        let here = packets(&self.at_vm, PINGS)?;
        let answers = packets(&self.at_third, ANSWERS)?;
        let came_here = |answer: &&Packet| here.iter().any(|ping| ping.number == answer.number);
        let answer = answers.iter().find(came_here).context("no answer at host 3")?;
        let message = format!("ip.src == 198.51.100.{} && frame contains {MAC}", to.number);
        let messages = packets(&self.bgp, &message)?;
        let message = messages.first().context("no BGP message with the station")?;
        let mut lost = packets(&self.at_third, PINGS)?;
        lost.retain(|ping| answers.iter().all(|answer| answer.number != ping.number));
        let answered = answer.time - first;
        say!(
            "  from the first packet to the first answer {:.1} ms; until the BGP message at host 3 {:.1} ms; \
             {} pings lost",
            answered * 1e3,
            (message.time - first) * 1e3,
            lost.len()
        );
        ensure!(!to.lab.machine.long || answered < GENEROUS, "the first answer took {answered:.3} s");
        lost.retain(|ping| ping.number > answer.number);
        ensure!(lost.is_empty(), "after the first answer to ping {:?}, these had none: {lost:?}", answer.number);
        Ok(())
    }
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
struct Packet {
    /// Seconds since the epoch.
    time: f64,
    /// The number of a ping, which its answer has too.
    number: Option<u32>,
}

/// Returns the packets of a capture that a filter of tshark selects.
fn packets(file: &Path, filter: &str) -> Result<Vec<Packet>> {
    let out = net::tshark(file, filter, &["frame.time_epoch", "icmp.seq"])?;
    out.lines().map(|line| packet(line).with_context(|| format!("tshark wrote {line:?}"))).collect()
}

fn packet(line: &str) -> Result<Packet> {
    let (time, number) = line.split_once('\t').context("two fields")?;
    Ok(Packet { time: time.parse()?, number: number.parse().ok() })
}

/// A capture that runs.
struct Recording {
    proc: Proc,
    file: PathBuf,
}

impl Recording {
    /// Starts the capture of a port of a host's switch.
    fn of_port(host: &Host, port: &str, number: u32) -> Result<Self> {
        let file = host.file(&format!("{port}-{number}.pcap"));
        let program = text(&host.lab.machine.switch);
        let args = ["capture", port, "--write", &text(&file), "--api", &text(&host.socket("api"))];
        let log = format!("host{}-capture-{port}-{number}", host.number);
        Self::begun(host.namespace.start(host.lab, &log, &program, &args)?, file, "end with Ctrl-C")
    }

    /// Starts the capture of the BGP messages that arrive at a host.
    fn of_bgp(host: &Host, number: u32) -> Result<Self> {
        let file = host.file(&format!("bgp-{number}.pcap"));
        let path = text(&file);
        // The kernel answers for an address at all its interfaces, so messages may arrive at u0 too.
        // tcpdump would write its file as another user, who may not write to our folder. The buffer of
        // 16 MiB has 8192 packets of this length.
        let options = ["-Z", "root", "-U", "--immediate-mode", "-s", "2048", "-B", "16384"];
        let args = [&["-i", "any", "-Q", "in", "-w", &path][..], &options, &["tcp port 179"]].concat();
        let log = format!("host{}-tcpdump-{number}", host.number);
        Self::begun(host.namespace.start(host.lab, &log, "tcpdump", &args)?, file, "listening on")
    }

    fn begun(proc: Proc, file: PathBuf, words: &str) -> Result<Self> {
        proc::until("the capture begins", || Ok(proc.texts().1.contains(words).then_some(())))?;
        Ok(Self { proc, file })
    }

    /// Ends the capture, and returns its file.
    fn end(mut self) -> Result<PathBuf> {
        self.proc.signal(rustix::process::Signal::INT)?;
        let status = self.proc.wait_end()?;
        ensure!(status.success(), "a capture ended with {status}");
        Ok(self.file)
    }
}

/// The VM, and the socket of its monitor.
struct Vm<'l> {
    lab: &'l Lab<'l>,
    guest: LinuxGuest,
    monitor: PathBuf,
}

impl<'l> Vm<'l> {
    /// Boots the VM at a host, and sets its address.
    fn boot(host: &Host<'l>) -> Result<Self> {
        let mut vm = Self::start(host, 0, &[])?;
        vm.guest.boot()?;
        vm.guest.sh(&format!("ip link set eth0 mtu 1450 up && ip addr add {IP}/24 broadcast 10.0.0.255 dev eth0"))?;
        // Its first packet tells where it is.
        vm.guest.run("ping -c 1 -W 1 10.0.0.250")?;
        Ok(vm)
    }

    fn start(host: &Host<'l>, number: u32, options: &[String]) -> Result<Self> {
        let monitor = host.lab.socket(&format!("monitor{number}-"));
        let options = [options, &monitor::listening(&monitor)].concat();
        let guest = LinuxGuest::start_qemu(host.lab, DEVICE, 7, &format!("guest{}", host.number), &options)?;
        Ok(Self { lab: host.lab, guest, monitor })
    }

    /// Migrates the VM to a host.
    fn migrate(self, host: &Host<'l>, number: u32) -> Result<Self> {
        let incoming = self.lab.socket(&format!("incoming{number}-"));
        let target = Self::start(host, number, &monitor::expecting(&incoming))?;
        Monitor::open(&self.monitor)?.migrate(&incoming)?;
        // From here on, the console of the other process is the guest's.
        Ok(target)
    }
}

impl<'l> Host<'l> {
    /// Starts a host with a port for the VM.
    fn with_vm_port(lab: &'l Lab<'l>, number: u8, core: &Namespace) -> Result<Self> {
        let mut host = Self::without_files(lab, number, member(core, number)?);
        let socket = host.socket("guest");
        let port = format!(
            "[port.guest]\nkind = \"vhost-user\"\nsocket = {socket:?}\nmtu = 1450\nsource-check = \"mac\"\n\
             allowed-macs = [\"{MAC}\"]\nallowed-ips = [\"{IP}\"]\n"
        );
        // The tap's station does not move here.
        let own = host.switch_configuration().replace(&format!(", \"{MAC}\""), "").replace(&format!(", \"{IP}\""), "");
        host.start_with(&(port + &own.replace("ports = [\"vm\"", "ports = [\"guest\", \"vm\"")))?;
        Ok(host)
    }

    /// Returns the address of the host's tunnel.
    fn address(&self) -> String {
        format!("192.0.2.{}", self.number)
    }

    /// Returns the hosts that announce the VM, each with the number of its route.
    fn places(&self) -> Result<Vec<(String, u32)>> {
        let mut places: Vec<_> =
            self.known()?.into_iter().filter(|known| known.0 == MAC).map(|known| (known.2, known.3)).collect();
        places.sort();
        places.dedup();
        Ok(places)
    }
}
