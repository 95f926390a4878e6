//! The page `docs/evpn.md`, as printed: two hosts, then three, and a VM that moves. In place of systemd, the
//! test starts what the units of the package start. Taps are the VMs.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::{Host, comes_to, member, text, wait_ready};
use crate::lab::Lab;
use crate::net::Namespace;
use crate::proc;
use crate::say::say;

const PAGE: &str = include_str!("../../../../../docs/evpn.md");
const GOBGPD: &str = include_str!("../../../../../dist/systemd/straightline-gobgpd.service");
const EVPN: &str = include_str!("../../../../../dist/systemd/straightline-evpn.service");

/// Returns the only block of the page with these words behind its fence, without its indentation.
fn block(words: &str) -> Result<String> {
    let fence = format!("```{words}\n");
    let mut blocks = PAGE.split(&fence).skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.next().with_context(|| format!("the page has no block of {words}"))?;
    ensure!(blocks.next().is_none(), "the page has several blocks of {words}");
    Ok(block.lines().map(|line| format!("{}\n", line.strip_prefix("   ").unwrap_or(line))).collect())
}

/// Returns the words of a unit's line.
fn line(unit: &str, key: &str) -> Result<Vec<String>> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let line = lines.map(|line| line.trim_start_matches('+')).next().with_context(|| format!("no {key}"))?;
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

/// Replaces a part that must be there.
fn replace(text: &str, from: &str, to: &str) -> Result<String> {
    ensure!(text.contains(from), "{from:?} is not in {text}");
    Ok(text.replace(from, to))
}

impl Host<'_> {
    /// Replaces the paths of the page and of the units by those of this host.
    fn paths(&self, text: &str) -> String {
        let paths = [
            ("/run/straightline/api.sock", self.socket("api")),
            ("/run/straightline-gobgpd/api.sock", self.socket("gobgp")),
            ("/run/straightline-evpn/status.sock", self.socket("evpn")),
            ("/run/straightline-gobgpd/gobgpd.toml", self.file("gobgpd.toml")),
            ("/etc/straightline/evpn.toml", self.file("evpn.toml")),
            ("/usr/bin/straightline", self.lab.machine.switch.clone()),
        ];
        paths.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, &super::text(to)))
    }

    /// Writes the files of the page. Each host has its own number in addresses.
    fn write_files(&self, vm: u8, others: &[u8]) -> Result<()> {
        let number = self.number;
        let tap = "kind = \"tap\"\nname = \"vm0\"\npersist = false";
        let switch = replace(&block("toml")?, "kind = \"vhost-user\"\nsocket = \"/run/straightline/vm1.sock\"", tap)?;
        let switch = replace(&switch, "api-group = \"straightline\"\n", "")?;
        let switch = replace(&switch, "eth1", "u0")?;
        let switch = replace(&switch, "02:00:00:00:00:01", &format!("02:00:00:00:00:0{vm}"))?;
        let switch = replace(&switch, "10.0.0.1", &format!("10.0.0.{vm}"))?;
        let switch = replace(&switch, "192.0.2.1/", &format!("192.0.2.{number}/"))?;
        fs::write(self.file("switch.toml"), self.paths(&switch))?;
        let evpn = block("toml evpn")?;
        let (head, neighbor) = evpn.split_once("[[neighbor]]").context("a neighbour")?;
        let head = replace(head, "198.51.100.1\"", &format!("198.51.100.{number}\""))?;
        let mut evpn = replace(&head, "192.0.2.1\"", &format!("192.0.2.{number}\""))?;
        for other in others {
            evpn += "[[neighbor]]";
            evpn += &replace(neighbor, "198.51.100.2", &format!("198.51.100.{other}"))?;
        }
        // The page and the units have the usual sockets.
        let sockets = format!("api = {:?}\nsocket = {:?}\n\n[network.lan]", self.socket("api"), self.socket("evpn"));
        let evpn = replace(&evpn, "[network.lan]", &sockets)?;
        fs::write(self.file("evpn.toml"), self.paths(&evpn))?;
        Ok(())
    }

    /// Starts what a unit starts.
    fn start_unit(&mut self, unit: &str) -> Result<crate::proc::Proc> {
        let words: Vec<String> = line(unit, "ExecStart")?.iter().map(|word| self.paths(word)).collect();
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        self.start(&words[0], &args)
    }

    /// Starts gobgpd by its unit, with the file that the unit generates before.
    fn start_gobgpd_unit(&mut self) -> Result<()> {
        self.gobgpd = None;
        let words: Vec<String> = line(GOBGPD, "ExecStartPre")?.iter().map(|word| self.paths(word)).collect();
        self.straightline(&words[1..].iter().map(String::as_str).collect::<Vec<_>>())?;
        let _ = fs::remove_file(self.socket("gobgp"));
        self.gobgpd = Some(self.start_unit(GOBGPD)?);
        Ok(())
    }

    /// Starts all of a host, with a VM.
    fn start_all(&mut self, vm: u8) -> Result<()> {
        self.start_switch_with(vm)?;
        self.start_gobgpd_unit()?;
        let mut evpn = self.start_unit(EVPN)?;
        wait_ready(&mut evpn)?;
        self.evpn = Some(evpn);
        Ok(())
    }
}

/// Returns a host of the page, with its namespace.
fn host<'l>(lab: &'l Lab<'l>, number: u8, core: &Namespace) -> Result<Host<'l>> {
    Ok(Host::without_files(lab, number, member(core, number)?))
}

pub(super) fn as_printed(lab: &Lab) -> Result<()> {
    let core = Namespace::silent("core")?;
    core.sh("ip link add br0 type bridge; ip link set br0 mtu 1600 up")?;
    let mut one = host(lab, 1, &core)?;
    let mut two = host(lab, 2, &core)?;
    one.write_files(1, &[2])?;
    two.write_files(2, &[1])?;
    one.start_all(1)?;
    two.start_all(2)?;
    one.reaches("10.0.0.2")?;
    two.reaches("10.0.0.1")?;
    let printed = block("text")?;
    let wanted = one.paths(&printed);
    let status = ["evpn", "status", "--socket", &text(&one.socket("evpn"))];
    let mut last = String::new();
    let shown = proc::until("the status of the page", || {
        // Version 4 of GoBGP is as good.
        last = one.straightline(&status)?.replace("version 4", "version 3");
        Ok((last == wanted).then_some(()))
    });
    shown.with_context(|| format!("the page has\n{wanted}and the status is\n{last}"))?;
    say!("  two hosts are joined as the page says");

    // A third host, to which VM 1 may move.
    let mut three = host(lab, 3, &core)?;
    three.write_files(1, &[1, 2])?;
    for (host, vm, other) in [(&mut one, 1, 2), (&mut two, 2, 1)] {
        host.write_files(vm, &[other, 3])?;
        host.start_gobgpd_unit()?;
    }
    three.start_all(9)?;
    for host in [&one, &two, &three] {
        host.wait_others(2)?;
    }
    two.reaches("10.0.0.1")?;
    one.namespace.sh("ip link set vm0 down")?;
    comes_to(&three.namespace, "vm0", "02:00:00:00:00:01", "10.0.0.1")?;
    proc::until("host 2 has VM 1 behind host 3", || {
        let behind = ("02:00:00:00:00:01".to_owned(), "192.0.2.3".to_owned());
        Ok(two.placed()?.contains(&behind).then_some(()))
    })?;
    two.reaches("10.0.0.1")?;
    say!("  VM 1 has moved to a third host");
    Ok(())
}
