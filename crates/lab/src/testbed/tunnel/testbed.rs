//! The switch with its ports, its underlays and its tunnels.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use straightline_config::{Config, Idle, Machine, SwitchConfig};
use straightline_guest::guest_mac;

use super::Encapsulation;

/// The MTU between the switches. It holds packets of 1500 bytes in any encapsulation.
const UNDERLAY_MTU: u16 = 1650;

/// Addresses of the underlays.
const IPV4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const IPV6: [&str; 2] = ["2001:db8::1", "2001:db8::2"];

/// MAC addresses of the underlays.
const UNDERLAY_MACS: [&str; 2] = ["02:00:00:00:01:01", "02:00:00:00:01:02"];

/// Names of the two sides.
const SIDES: [&str; 2] = ["left", "right"];

/// Sockets of the ports.
#[derive(Clone, Debug)]
pub(crate) struct Sockets {
    /// The ports of the two guests: `a` and `b`.
    pub(crate) guests: [PathBuf; 2],
    /// The ports at the wire: `nic0` and `nic1`.
    pub(crate) wire: [PathBuf; 2],
}

impl Sockets {
    /// Returns paths in a folder.
    pub(crate) fn new(folder: &Path) -> Sockets {
        Sockets {
            guests: ["a", "b"].map(|name| folder.join(name)),
            wire: ["nic0", "nic1"].map(|name| folder.join(name)),
        }
    }
}

/// A switch with a tunnel between two guests, or with plain patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Testbed {
    /// The tunnel; none for plain patches.
    pub(crate) encapsulation: Option<Encapsulation>,
    /// True if the underlays use IPv4 instead of IPv6.
    pub(crate) ipv4: bool,
    /// Number of tunnels beside one another. If it is set, bridges join them with the guests: the
    /// packets of each lane pass another tunnel. Without it there is one tunnel between patches.
    pub(crate) many: Option<u16>,
}

impl Testbed {
    /// Returns the address of an end: 0 is the left one.
    pub(crate) fn address(&self, end: usize) -> &'static str {
        if self.ipv4 { IPV4[end] } else { IPV6[end] }
    }

    /// Returns the configuration, whose settings of the switch are the default.
    ///
    /// # Errors
    /// The switch does not accept it.
    pub(crate) fn config(&self, sockets: &Sockets) -> anyhow::Result<Config> {
        let text = self.text(sockets);
        let loaded = Config::parse("testbed", &text, &Machine::this());
        let loaded = loaded.map_err(|errors| anyhow!("{errors}")).context("the switch refuses the testbed")?;
        Ok(Config { switch: SwitchConfig::default(), ..loaded.config })
    }

    /// Returns the configuration with one worker on this CPU, which never sleeps.
    ///
    /// # Errors
    /// The switch does not accept it.
    pub(crate) fn polling(&self, sockets: &Sockets, cpu: usize) -> anyhow::Result<Config> {
        let switch = SwitchConfig { workers: vec![cpu], idle: Idle::Spin, ..SwitchConfig::default() };
        Ok(Config { switch, ..self.config(sockets)? })
    }

    /// Returns the configuration as a file has it.
    pub(crate) fn text(&self, sockets: &Sockets) -> String {
        let mut text = String::new();
        for (end, (guest, wire)) in sockets.guests.iter().zip(&sockets.wire).enumerate() {
            let guest_port = ["a", "b"][end];
            section(&mut text, &format!("port.{guest_port}"), &vhost_user(guest));
            let nic = format!("nic{end}");
            section(&mut text, &format!("port.{nic}"), &format!("{}mtu = {UNDERLAY_MTU}\n", vhost_user(wire)));
            let beyond = match self.encapsulation {
                None => vec![nic],
                Some(kind) => self.tunnels(&mut text, end, kind, &nic),
            };
            let side = SIDES[end];
            if self.many.is_none() {
                let ports = format!("ports = [\"{guest_port}\", \"{}\"]\n", beyond[0]);
                section(&mut text, &format!("patch.{side}"), &ports);
            } else {
                section(&mut text, &format!("bridge.{side}"), &self.bridge(end, guest_port, &beyond));
            }
        }
        text
    }

    /// Adds the underlay and the tunnels of an end. Returns the names of the tunnels.
    fn tunnels(&self, text: &mut String, end: usize, kind: Encapsulation, nic: &str) -> Vec<String> {
        let side = SIDES[end];
        let prefix = if self.ipv4 { 24 } else { 64 };
        let mut keys = format!("port = \"{nic}\"\naddress = [\"{}/{prefix}\"]\n", self.address(end));
        // Without fixed addresses, the first questions find no wire yet. The next ones come a second later.
        let _ = writeln!(keys, "mac = {:?}", UNDERLAY_MACS[end]);
        let _ = writeln!(keys, "neighbours = {{ {:?} = {:?} }}", self.address(1 - end), UNDERLAY_MACS[1 - end]);
        section(text, &format!("underlay.{side}"), &keys);
        let numbers = self.many.map_or(vec![None], |many| (0..many).map(Some).collect());
        let mut names = Vec::new();
        for nth in numbers {
            let name = nth.map_or_else(|| format!("t{}", end + 1), |nth| format!("t{}-{nth}", end + 1));
            let mut keys = kind.lines(end, nth, self.ipv4);
            let _ = write!(keys, "underlay = \"{side}\"\nremote = \"{}\"\n", self.address(1 - end));
            if kind.carries_ip() {
                // The tunnel takes the place of the other guest.
                let _ = writeln!(keys, "mac = \"{}\"", guest_mac([2, 1][end], 0));
            }
            section(text, &format!("port.{name}"), &keys);
            names.push(name);
        }
        names
    }

    /// Returns the keys of an end's bridge. It knows the addresses of all lanes, so it floods
    /// nothing, although tunnels beside one another are a loop.
    fn bridge(&self, end: usize, guest_port: &str, beyond: &[String]) -> String {
        let [own, other] = [[1, 2], [2, 1]][end];
        let ports: Vec<_> = [guest_port].into_iter().chain(beyond.iter().map(String::as_str)).collect();
        let mut statics = Vec::new();
        for lane in 0..self.many.unwrap_or(1) {
            let tunnel = &beyond[usize::from(lane) % beyond.len()];
            statics.push(format!("\"{}\" = \"{guest_port}\"", guest_mac(own, lane)));
            statics.push(format!("\"{}\" = \"{tunnel}\"", guest_mac(other, lane)));
        }
        format!("ports = {ports:?}\nstatic = {{ {} }}\n", statics.join(", "))
    }
}

fn section(text: &mut String, name: &str, keys: &str) {
    let _ = write!(text, "[{name}]\n{keys}\n");
}

fn vhost_user(socket: &Path) -> String {
    format!("kind = \"vhost-user\"\nsocket = {:?}\n", socket.display().to_string())
}
