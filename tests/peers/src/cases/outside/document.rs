//! The commands of `docs/network.md` and `docs/tunnels.md`, as users paste them. The first line of
//! each block says where it runs: `# on the host`, `# on host a`, `# in vm1`, or the name of a file
//! with the block's text. After a host, `, in a terminal of its own` may follow.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::net::{self, Namespace};
use crate::proc::{self, Proc};
use crate::runner::Test;
use crate::say::say;

const NETWORK: &str = include_str!("../../../../../docs/network.md");
const TUNNELS: &str = include_str!("../../../../../docs/tunnels.md");

/// Commands that the test replaces: it has all privileges, and the packages are only looked up.
const SHIMS: [(&str, &str); 2] = [
    ("sudo", "#!/bin/sh\nexec \"$@\"\n"),
    ("apt-get", "#!/bin/sh\n[ \"$1 $2\" = \"install -y\" ] && shift 2 && exec dpkg-query --show \"$@\"\n"),
];

/// Section of `docs/tunnels.md` that joins two hosts. The sections of `docs/network.md` have one host.
const TWO_HOSTS: &str = "Connect two hosts";

pub(super) fn tests() -> Vec<Test> {
    documented()
        .map(|section| {
            let name = section.title.to_lowercase().replace(' ', "_");
            let needs: &[Need] = match section.title.as_str() {
                TWO_HOSTS => &[Need::Namespaces],
                _ => &[Need::Namespaces, Need::Nat, Need::Uml(3)],
            };
            Test::new(&format!("document_{name}"), needs, move |lab| run(lab, &section)).beside_others()
        })
        .collect()
}

/// Returns the sections whose commands are tested.
fn documented() -> impl Iterator<Item = Section> {
    let network = sections(NETWORK).into_iter().filter(|section| !section.blocks.is_empty());
    network.chain(sections(TUNNELS).into_iter().filter(|section| section.title == TWO_HOSTS))
}

/// A section of a document, with its blocks in order.
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) blocks: Vec<(Place, String)>,
}

/// The place where a block belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Host(HostName),
    /// A host, in a terminal of its own: the last command stays in the foreground.
    Terminal(HostName),
    Vm(u8),
    /// A file with this name.
    File(String),
    /// None that is known.
    Nowhere,
}

/// The name of a host in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostName {
    /// The only host.
    Only,
    A,
    B,
}

impl Place {
    /// Returns the place that the first line of a block names.
    fn named(first: &str) -> Self {
        let (host, has_terminal) = match first.strip_suffix(", in a terminal of its own") {
            Some(host) => (host, true),
            None => (first, false),
        };
        let host = match host {
            "on the host" => HostName::Only,
            "on host a" => HostName::A,
            "on host b" => HostName::B,
            file if file.ends_with(".toml") => return Self::File(file.to_owned()),
            other => {
                let number = other.strip_prefix("in vm").and_then(|number| number.parse().ok());
                return number.map_or(Self::Nowhere, Self::Vm);
            }
        };
        if has_terminal { Self::Terminal(host) } else { Self::Host(host) }
    }
}

/// Returns the sections whose heading has two number signs.
pub(crate) fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        match (&mut block, line) {
            (None, line) if line.starts_with("## ") => {
                sections.push(Section { title: line[3..].to_owned(), blocks: Vec::new() });
            }
            (None, "```sh" | "```toml") => block = Some(String::new()),
            (Some(text), "```") => {
                let first = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
                let place = Place::named(first);
                if let Some(section) = sections.last_mut() {
                    section.blocks.push((place, std::mem::take(text)));
                }
                block = None;
            }
            (Some(text), line) => *text += &format!("{line}\n"),
            (None, _) => (),
        }
    }
    sections
}

/// The places of a section: the hosts, the network behind their interfaces, and the VMs.
struct Site<'lab> {
    lab: &'lab Lab<'lab>,
    guests: BTreeMap<u8, LinuxGuest>,
    terminals: Vec<Proc>,
    _servers: Vec<Proc>,
    hosts: BTreeMap<HostName, Namespace>,
    _others: Vec<Namespace>,
}

fn run(lab: &Lab, section: &Section) -> Result<()> {
    let mut site = if section.title == TWO_HOSTS { Site::two_hosts(lab) } else { Site::one_host(lab) }?;
    for (place, text) in &section.blocks {
        let first = text.lines().nth(1).unwrap_or_default();
        say!("  {place:?}: {first} ...");
        site.run(place, text).with_context(|| format!("this block failed:\n{text}"))?;
    }
    for terminal in &mut site.terminals {
        let ended = terminal.ended()?;
        ensure!(ended.is_none(), "a program that should stay in the foreground ended: {ended:?}");
    }
    Ok(())
}

impl<'lab> Site<'lab> {
    /// Makes a host with `eth0` to the internet and `eth1` to a network with a DHCP server. The
    /// internet is one server.
    fn one_host(lab: &'lab Lab<'lab>) -> Result<Self> {
        let [host, internet, lan] = [Namespace::new("host")?, Namespace::new("internet")?, Namespace::new("lan")?];
        net::veth([(&host, "eth0"), (&internet, "eth0")], 1, 1500)?;
        net::veth([(&host, "eth1"), (&lan, "eth0")], 1, 1500)?;
        host.sh("ip addr add 203.0.113.2/24 dev eth0; ip route add default via 203.0.113.1")?;
        // The address of example.org is one for documentation (RFC 5737).
        internet.sh(
            "ip addr add 203.0.113.1/24 dev eth0; ip addr add 9.9.9.9/32 dev lo; ip addr add 198.51.100.80/32 dev lo",
        )?;
        lan.sh("ip addr add 10.20.0.1/24 dev eth0")?;
        fs::create_dir_all(lab.log("www.d"))?;
        fs::write(lab.log("www.d").join("index.html"), "hello\n")?;
        let pages = lab.log("www.d");
        let leases = lab.log("lan.leases");
        let leases = format!("--dhcp-leasefile={}", leases.display());
        let common = ["--keep-in-foreground", "--log-facility=-", "--no-resolv", "--no-hosts", "--pid-file="];
        let dns = [&common[..], &["--listen-address=9.9.9.9", "--address=/example.org/198.51.100.80"]].concat();
        let dhcp = [&common[..], &["--port=0", "--user=root", "--dhcp-range=10.20.0.50,10.20.0.99", &leases]].concat();
        let web = ["httpd", "-f", "-p", "198.51.100.80:80", "-h", &pages.to_string_lossy()];
        let servers = vec![
            internet.start(lab, "dns", "dnsmasq", &dns)?,
            internet.start(lab, "web", "busybox", &web)?,
            lan.start(lab, "dhcp", "dnsmasq", &dhcp)?,
        ];
        Self::new(lab, BTreeMap::from([(HostName::Only, host)]), vec![internet, lan], servers)
    }

    /// Makes two hosts whose `eth1` are the ends of one cable.
    fn two_hosts(lab: &'lab Lab<'lab>) -> Result<Self> {
        let [a, b] = [Namespace::new("a")?, Namespace::new("b")?];
        net::veth([(&a, "eth1"), (&b, "eth1")], 1, 1500)?;
        Self::new(lab, BTreeMap::from([(HostName::A, a), (HostName::B, b)]), Vec::new(), Vec::new())
    }

    fn new(
        lab: &'lab Lab<'lab>,
        hosts: BTreeMap<HostName, Namespace>,
        others: Vec<Namespace>,
        servers: Vec<Proc>,
    ) -> Result<Self> {
        let bin = lab.log("bin.d");
        fs::create_dir_all(&bin)?;
        symlink(&lab.machine.switch, bin.join("straightline"))?;
        for (name, text) in SHIMS {
            fs::write(bin.join(name), text)?;
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755))?;
        }
        let guests = BTreeMap::new();
        let terminals = Vec::new();
        Ok(Self { lab, guests, terminals, _servers: servers, hosts, _others: others })
    }

    fn run(&mut self, place: &Place, text: &str) -> Result<()> {
        match place {
            Place::Nowhere => bail!("the first line does not say where the block belongs"),
            Place::File(name) => fs::write(self.lab.log(name), text)?,
            Place::Host(host) => {
                let (code, out, err) = proc::run(&mut self.shell(*host, text)?)?;
                ensure!(code == Some(0), "it ended with {code:?}: {out}{err}");
            }
            Place::Terminal(host) => {
                let name = format!("terminal{}", self.terminals.len() + 1);
                let mut terminal = Proc::start(&name, self.shell(*host, text)?, &self.lab.log(&name))?;
                if text.contains("straightline run") {
                    let ready = |text: &str| text.lines().any(|line| line == "ready").then_some(());
                    terminal.wait_text("`ready`", 0, ready)?;
                } else {
                    // The time is the subject: a program that fails at its start ends within it.
                    proc::pause(Duration::from_secs(1))?;
                    ensure!(terminal.ended()?.is_none(), "it ended: {:?}", terminal.texts());
                }
                self.terminals.push(terminal);
            }
            Place::Vm(number) => {
                if !self.guests.contains_key(number) {
                    let mut guest = LinuxGuest::start(self.lab, GuestKind::Uml, *number, &format!("vm{number}"))?;
                    guest.boot()?;
                    guest.load_ip6()?;
                    self.guests.insert(*number, guest);
                }
                let guest = self.guests.get_mut(number).context("a guest")?;
                for line in text.lines().skip(1) {
                    guest.sh(line)?;
                }
            }
        }
        Ok(())
    }

    /// Returns a shell on a host, in the folder with the files of the document. Its
    /// `/run/straightline` is the folder for sockets of the test.
    fn shell(&self, host: HostName, text: &str) -> Result<Command> {
        let host = self.hosts.get(&host).with_context(|| format!("this section has no host {host:?}"))?;
        let sockets = self.lab.socket("x");
        let sockets = sockets.parent().unwrap_or(Path::new("/nonexistent"));
        let folder = self.lab.log("bin.d");
        let mut command = host.command("sh");
        // `ip netns exec` has made a mount namespace.
        command.arg("-ec").arg(format!(
            "mount -t tmpfs run /run; mkdir /run/straightline; mount --bind {sockets} /run/straightline\n\
             cd {folder}/..; PATH={folder}:$PATH\n{text}",
            sockets = sockets.display(),
            folder = folder.display()
        ));
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_of_the_document_has_a_place() {
        assert_eq!(documented().count(), 6);
        for (place, text) in documented().flat_map(|section| section.blocks) {
            assert_ne!(place, Place::Nowhere, "the first line says where the block belongs: {text}");
        }
    }

    #[test]
    fn blocks_are_found_by_their_first_line() {
        let text = "# t\n## One\n```toml\n# a.toml\nx = 1\n```\n```sh\n# in vm2\nls\n```\n## Two\n```sh\nls\n```\n";
        let found = sections(text);
        assert_eq!((found[0].title.as_str(), found.len()), ("One", 2));
        assert_eq!(found[0].blocks[0], (Place::File("a.toml".to_owned()), "# a.toml\nx = 1\n".to_owned()));
        assert_eq!(found[0].blocks[1].0, Place::Vm(2));
        assert_eq!(Place::named("on host b, in a terminal of its own"), Place::Terminal(HostName::B));
        assert_eq!(Place::named("on the host"), Place::Host(HostName::Only));
        assert_eq!(found[1].blocks[0].0, Place::Nowhere);
    }
}
