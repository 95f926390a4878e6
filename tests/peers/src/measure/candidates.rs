//! Switches by their names on the command line, and the configuration and start of our own
//! binaries.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::output_of;
use crate::lab::Lab;
use crate::machine::two_cpus;
use crate::memcpy::DpdkCopy;
use crate::proc::{self, Proc};

/// A switch that is compared.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) kind: SwitchKind,
    /// The version that the program or its package reports.
    pub(crate) version: String,
    /// True for a build that moves packets without copying their bytes.
    pub(crate) copies_nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SwitchKind {
    Testpmd,
    Ovs,
    /// Open vSwitch with polling threads that sleep without load.
    OvsSleeping,
    /// The smallest possible switch with DPDK's vhost library.
    RteVhost,
    /// No switch: the kernel's side of a device port alone, which is the bound.
    Kernel,
    /// Linux's bridge, with the queueing discipline tbf at a tap.
    Tbf,
    /// No switch: the guest opens the device itself.
    OwnDevice,
    /// A switch of DPDK's, whose vhost library has this copy.
    Copy(DpdkCopy),
    Ours(OurSwitch),
}

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchPort {
    /// The socket with this name, on which the switch listens.
    Socket(&'static str),
    /// The tap with this name, which the switch makes.
    Tap(&'static str),
    /// AF_XDP at the interface with this name.
    AfXdp(&'static str),
}

impl SwitchPort {
    /// Returns the name of the socket or interface.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Socket(name) | Self::Tap(name) | Self::AfXdp(name) => name,
        }
    }
}

/// A Straightline binary, with additional lines of its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OurSwitch {
    pub(crate) program: PathBuf,
    /// Lines `KEY=VALUE`, each with one of [`SECTIONS`].
    lines: Vec<(&'static str, String)>,
}

/// The parts of a configuration that a key can be for: the switch, both vhost-user ports, one of
/// them, the device ports, the tunnels, the patches.
const SECTIONS: [&str; 7] = ["switch", "port", "a", "b", "device", "tunnel", "patch"];

/// Keys of a section, with their values as text of a configuration.
pub(crate) type Keys = Vec<(&'static str, String)>;

/// A vhost-user port of our switch that is joined with a device port, or with a tunnel over it.
pub(crate) struct JoinedPort {
    pub(crate) name: &'static str,
    /// Keys of the vhost-user port besides those that all have.
    pub(crate) keys: Keys,
    pub(crate) device: Keys,
    /// Keys of the underlay and of the tunnel.
    pub(crate) tunnel: Option<[Keys; 2]>,
}

/// Name of the configuration file, beside the logs.
const CONFIGURATION: &str = "switch.toml";

impl Candidate {
    /// Parses the text on the command line: one of `peers`, or `NAME=PROGRAM [KEY=VALUE...]`.
    pub(crate) fn read(text: &str, peers: &[(&str, SwitchKind)]) -> Result<Self> {
        let names: Vec<&str> = peers.iter().map(|(name, _)| *name).collect();
        let (name, kind) = match peers.iter().find(|(name, _)| *name == text) {
            Some((name, kind)) => (*name, kind.clone()),
            None => {
                let (name, ours) = text
                    .split_once('=')
                    .with_context(|| format!("unknown switch: use {} or NAME=PROGRAM", names.join(", ")))?;
                let name = name.trim();
                ensure!(
                    !name.is_empty() && !names.contains(&name),
                    "the name is empty or reserved: use NAME=PROGRAM with another NAME"
                );
                (name, SwitchKind::Ours(OurSwitch::read(ours)?))
            }
        };
        Ok(Self { name: name.to_owned(), kind, version: text.to_owned(), copies_nothing: false })
    }

    /// Returns the positions of switches whose ratio is of interest: each binary of ours, with each
    /// switch before it.
    pub(crate) fn pairs(switches: &[Self]) -> Vec<(usize, usize)> {
        (0..switches.len())
            .filter(|&one| matches!(switches[one].kind, SwitchKind::Ours(_)))
            .flat_map(|one| (0..one).map(move |other| (one, other)))
            .collect()
    }

    /// Finds the program, and asks it for its version.
    pub(crate) fn identify(&mut self) -> Result<()> {
        let mut ask = match &mut self.kind {
            SwitchKind::Ours(OurSwitch { program, .. }) => {
                let found = program.canonicalize();
                *program = found.with_context(|| format!("--switch {}: {}", self.name, program.display()))?;
                Command::new(&*program)
            }
            SwitchKind::Testpmd | SwitchKind::Ovs | SwitchKind::OvsSleeping | SwitchKind::Copy(_) => {
                Command::new("dpkg-query")
            }
            SwitchKind::RteVhost => Command::new("pkg-config"),
            SwitchKind::Kernel | SwitchKind::Tbf => Command::new("uname"),
            SwitchKind::OwnDevice => Command::new("linux.uml"),
        };
        match self.kind {
            SwitchKind::Ours(_) | SwitchKind::OwnDevice => ask.arg("--version"),
            SwitchKind::Testpmd => ask.args(["-W", "dpdk"]),
            SwitchKind::Ovs | SwitchKind::OvsSleeping => ask.args(["-W", "openvswitch-switch-dpdk"]),
            SwitchKind::Copy(_) => ask.args(["-W", "librte-vhost23", "openvswitch-switch-dpdk", "libc6"]),
            SwitchKind::RteVhost => ask.args(["--modversion", "libdpdk"]),
            SwitchKind::Kernel | SwitchKind::Tbf => ask.arg("-r"),
        };
        // A switch that is not installed as a package has no version that we can ask for.
        let (_, version, _) = proc::run(&mut ask).unwrap_or_default();
        version.trim().clone_into(&mut self.version);
        self.copies_nothing = version.contains("bench-no-copies");
        Ok(())
    }
}

impl OurSwitch {
    fn read(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let program = words.next().context("PROGRAM is missing after NAME=")?.into();
        let mut lines = Vec::new();
        for word in words {
            let (key, _) = word.split_once('=').with_context(|| format!("{word} is not a key: use KEY=VALUE"))?;
            let (section, line) =
                if key.contains('.') { word.split_once('.').unwrap_or(("", word)) } else { ("switch", word) };
            let known = SECTIONS.iter().find(|known| **known == section);
            let section = *known
                .with_context(|| format!("{word}: unknown section {section:?}: use one of {}", SECTIONS.join(", ")))?;
            lines.push((section, line.to_owned()));
        }
        Ok(Self { program, lines })
    }

    /// Returns whether the command line sets a key of `[switch]`.
    pub(crate) fn sets(&self, key: &str) -> bool {
        self.lines.iter().any(|(section, line)| *section == "switch" && line.split('=').next() == Some(key))
    }

    /// Returns the same switch with a further line of one of [`SECTIONS`].
    pub(crate) fn with(&self, section: &'static str, line: &str) -> Self {
        let mut with = self.clone();
        with.lines.push((section, line.to_owned()));
        with
    }

    /// Starts the switch between the sockets `a` and `b`, on a CPU of its own. `idle` is the
    /// default of that key.
    pub(crate) fn start(&self, lab: &Lab, idle: &str) -> Result<Proc> {
        self.run(lab, Command::new(&self.program), &self.configuration(lab, idle)?)
    }

    /// Starts the switch with a bridge of the sockets `a` and `b`, which has the flows of a file.
    pub(crate) fn start_with_flows(&self, lab: &Lab, idle: &str, flows: &std::path::Path) -> Result<Proc> {
        let mut text = String::new();
        self.head(&mut text, lab, idle, two_cpus()?.1)?;
        for name in ["a", "b"] {
            self.vhost_user(&mut text, lab, name, "1500", &[])?;
        }
        let file = ("flows-file", format!("{:?}", flows.display().to_string()));
        self.section(&mut text, "[bridge.lan]", &[], &[("ports", "[\"a\", \"b\"]".to_owned()), file])?;
        self.run(lab, Command::new(&self.program), &text)
    }

    /// Starts the switch with a patch for each pair of ports. `command` runs [`Self::program`], for
    /// example in a network namespace.
    pub(crate) fn start_between(
        &self,
        lab: &Lab,
        command: Command,
        idle: &str,
        pairs: &[[SwitchPort; 2]],
    ) -> Result<Proc> {
        let mut text = String::new();
        self.head(&mut text, lab, idle, two_cpus()?.1)?;
        for pair in pairs {
            for port in pair {
                let (kind, key) = match port {
                    SwitchPort::Socket(name) => {
                        self.vhost_user(&mut text, lab, name, "1500", &[])?;
                        continue;
                    }
                    SwitchPort::Tap(_) => ("tap", "name"),
                    SwitchPort::AfXdp(_) => ("af-xdp", "interface"),
                };
                let name = port.name();
                let keys = [("kind", format!("{kind:?}")), (key, format!("{name:?}"))];
                self.section(&mut text, &format!("[port.{name}]"), &["device"], &keys)?;
            }
            let names = pair.map(SwitchPort::name);
            let ports = ("ports", format!("{names:?}"));
            self.section(&mut text, &format!("[patch.{}]", names[0]), &["patch"], &[ports])?;
        }
        self.run(lab, command, &text)
    }

    /// Returns the configuration of a switch on a CPU with these ports.
    pub(crate) fn joined(&self, lab: &Lab, idle: &str, cpu: u32, ports: &[JoinedPort]) -> Result<String> {
        let mut text = String::new();
        self.head(&mut text, lab, idle, cpu)?;
        for JoinedPort { name, keys, device, tunnel } in ports {
            self.vhost_user(&mut text, lab, name, "1500", keys)?;
            self.section(&mut text, &format!("[port.{name}-nic]"), &["device"], device)?;
            let mut far = format!("{name}-nic");
            if let Some([underlay, tunnel]) = tunnel {
                let port = [("port", format!("{far:?}"))];
                let wan = format!("{name}-wan");
                self.section(&mut text, &format!("[underlay.{wan}]"), &[], &[&port[..], underlay].concat())?;
                let keys = [&[("underlay", format!("{wan:?}"))], &tunnel[..]].concat();
                far = format!("{name}-tunnel");
                self.section(&mut text, &format!("[port.{far}]"), &["tunnel"], &keys)?;
            }
            let ports = ("ports", format!("[{name:?}, {far:?}]"));
            self.section(&mut text, &format!("[patch.{name}]"), &["patch"], &[ports])?;
        }
        Ok(text)
    }

    /// Lets the switch that [runs](Self::run) here take over another configuration.
    pub(crate) fn reload(&self, lab: &Lab, text: &str) -> Result<()> {
        fs::write(lab.log(CONFIGURATION), text)?;
        output_of(Command::new(&self.program).args(["reload", "--api"]).arg(lab.socket("api"))).map(drop)
    }

    /// Starts the switch with a configuration. `command` runs [`Self::program`], for example in a
    /// network namespace.
    pub(crate) fn run(&self, lab: &Lab, mut command: Command, text: &str) -> Result<Proc> {
        let configuration = lab.log(CONFIGURATION);
        fs::write(&configuration, text)?;
        command.arg("run").arg(&configuration);
        let mut proc = Proc::start("switch", command, &lab.log("switch"))?;
        wait_ready(&mut proc)?;
        Ok(proc)
    }

    fn configuration(&self, lab: &Lab, idle: &str) -> Result<String> {
        let mut text = String::new();
        self.head(&mut text, lab, idle, two_cpus()?.1)?;
        for name in ["a", "b"] {
            self.vhost_user(&mut text, lab, name, "9000", &[])?;
        }
        self.section(&mut text, "[patch.p]", &["patch"], &[("ports", "[\"a\", \"b\"]".to_owned())])?;
        Ok(text)
    }

    /// Writes the section of the switch itself, which has a worker on this CPU.
    fn head(&self, text: &mut String, lab: &Lab, idle: &str, cpu: u32) -> Result<()> {
        let defaults = [("api", socket(lab, "api")), ("workers", format!("[{cpu}]")), ("idle", format!("{idle:?}"))];
        self.section(text, "[switch]", &["switch"], &defaults)
    }

    /// Writes the section of a vhost-user port, with `keys` in addition.
    fn vhost_user(
        &self,
        text: &mut String,
        lab: &Lab,
        name: &str,
        mtu: &str,
        keys: &[(&'static str, String)],
    ) -> Result<()> {
        let kind = "\"vhost-user\"".to_owned();
        let defaults = [("kind", kind), ("socket", socket(lab, name)), ("mtu", mtu.to_owned())];
        self.section(text, &format!("[port.{name}]"), &["port", name], &[&defaults, keys].concat())
    }

    /// Writes a section: the lines for `names`, and the defaults of keys that are not among them.
    fn section(&self, text: &mut String, head: &str, names: &[&str], defaults: &[(&str, String)]) -> Result<()> {
        let lines: Vec<&str> =
            self.lines.iter().filter(|(section, _)| names.contains(section)).map(|(_, line)| &**line).collect();
        writeln!(text, "{head}")?;
        for (key, value) in defaults {
            if !lines.iter().any(|line| line.split('=').next() == Some(*key)) {
                writeln!(text, "{key} = {value}")?;
            }
        }
        lines.iter().try_for_each(|line| writeln!(text, "{line}"))?;
        Ok(())
    }
}

/// Returns the path of a socket, as a value of a configuration.
fn socket(lab: &Lab, name: &str) -> String {
    format!("{:?}", lab.socket(name).display().to_string())
}

/// Waits until a switch has printed `ready`.
pub(crate) fn wait_ready(proc: &mut Proc) -> Result<()> {
    let ready = |text: &str| text.lines().any(|line| line == "ready").then_some(());
    let came = proc.wait_text("its `ready`", 0, ready);
    came.with_context(|| proc.texts().1.trim().to_owned())
}

/// Ends a switch with SIGTERM.
pub(crate) fn end(mut proc: Proc) -> Result<()> {
    proc.signal(Signal::TERM)?;
    let status = proc.wait_end()?;
    if !status.success() {
        bail!("the switch ended with {status}: {}", proc.texts().1.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    const PEERS: [(&str, SwitchKind); 2] = [("testpmd", SwitchKind::Testpmd), ("rte", SwitchKind::RteVhost)];

    #[test]
    fn peers_and_binaries_of_ours() {
        let read = |text| Candidate::read(text, &PEERS);
        assert_eq!(read("rte").expect("a peer").kind, SwitchKind::RteVhost);
        let two = read("two=bin/s copies=2 port.packed=false a.offloads=[\"csum\"]").expect("ours");
        let SwitchKind::Ours(ours) = &two.kind else { panic!("a binary of ours") };
        assert_eq!((two.name.as_str(), ours.program.to_str()), ("two", Some("bin/s")));
        let bad = ["x", "x=", "=x", "rte=x", "ovs", "x=y z", "x=y .z=1", "x=y prt.z=1", "x=y a.z"];
        for bad in bad {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_come_where_they_belong_and_in_place_of_defaults() {
        let cache = tempfile::tempdir().expect("a folder");
        let machine = Machine { switch: "/nonexistent".into(), cache: cache.path().to_owned(), long: false };
        let lab = Lab::new(&machine, "keys").expect("folders");
        let ours = OurSwitch::read(
            "s idle=\"sleep\" workers=[7] port.packed=false b.offloads=[] b.mtu=1500 patch.full=\"wait\"",
        );
        let text = ours.expect("good").configuration(&lab, "spin").expect("a configuration");
        let socket = |name| lab.socket(name).display().to_string();
        let expected = format!(
            "[switch]\napi = \"{}\"\nidle=\"sleep\"\nworkers=[7]\n\
             [port.a]\nkind = \"vhost-user\"\nsocket = \"{}\"\nmtu = 9000\npacked=false\n\
             [port.b]\nkind = \"vhost-user\"\nsocket = \"{}\"\npacked=false\noffloads=[]\nmtu=1500\n\
             [patch.p]\nports = [\"a\", \"b\"]\nfull=\"wait\"\n",
            socket("api"),
            socket("a"),
            socket("b")
        );
        assert_eq!(text, expected);
    }
}
