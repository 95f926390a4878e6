//! `kind = "af-xdp"`: its keys, their defaults and checks.

use straightline_api::Port;
use straightline_port::device::{AfXdpRequest, DeviceRequest, Steal, ZeroCopy};

use super::{KindSettings, PortKind, Reader, note};
use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::section::Section;
use crate::{Draft, Mac, UnderlayConfig};

/// The word for the kind.
const WORD: &str = "af-xdp";

/// The word for the kind, and its reader.
pub(super) const READERS: &[(&str, Reader)] = &[(WORD, Reader { keys: &[KEYS], refused: &[], read })];

/// The keys that only an AF_XDP port has.
const KEYS: &[Key] = &[
    Key::new(
        "interface",
        Value::Text("interface name, at most 15 bytes"),
        Absent::Required,
        "The interface. It must be Ethernet and up. The host cannot use it meanwhile.",
        "\"eth1\"",
    ),
    Key::new(
        "queues",
        Value::integer(1, AfXdpRequest::MOST_QUEUES as i64),
        Absent::Text("all of the interface"),
        "Number of receive queues to use. If the interface has more, packets of the others go to the kernel, and a warning says so.",
        "4",
    ),
    Key::new(
        "steal",
        Value::Choice(&["all", "address"]),
        Absent::Value("\"all\""),
        "Packets that are taken from the kernel. `\"address\"`: only IP packets, ARP and neighbour discovery for the addresses of the underlay on this port. The host goes on using the interface.",
        "\"address\"",
    ),
    Key::new(
        "zero-copy",
        Value::Choice(&["allow", "require", "off"]),
        Absent::Value("\"allow\""),
        "`\"allow\"`: without copies by the kernel if the driver can. `\"require\"`: the switch does not start without that. `\"off\"`: always with a copy.",
        "\"require\"",
    ),
    Key::new(
        "take-default-route",
        Value::Boolean,
        Absent::Value("false"),
        "`true`: the interface may have this machine's default route. The port takes all its packets, so the machine is cut off from its network at once.",
        "true",
    ),
];

/// The keys that only an AF_XDP port has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// The interface's name.
    pub interface: String,
    /// The number of the interface's queues to use. `None`: all of them.
    pub queues: Option<u16>,
    /// The packets that are taken from the kernel.
    pub steal: Steal,
    /// The use of zero-copy mode.
    pub zero_copy: ZeroCopy,
    /// True if the interface may have the machine's default route.
    pub take_default_route: bool,
}

impl KindSettings for AfXdpConfig {
    fn word(&self) -> &'static str {
        WORD
    }

    /// Returns the queues that workers are planned for: one where the file names no number.
    fn queues(&self) -> usize {
        usize::from(self.queues.unwrap_or(1))
    }

    /// Returns the most queues that can be opened: the interface decides where the file names no
    /// number.
    fn most_queues(&self) -> usize {
        usize::from(self.queues.unwrap_or(AfXdpRequest::MOST_QUEUES))
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }

    fn device(&self, mtu: u16, _mac: Option<Mac>) -> Option<DeviceRequest> {
        Some(DeviceRequest::AfXdp(AfXdpRequest {
            interface: self.interface.clone(),
            queues: self.queues,
            steal: self.steal.clone(),
            zero_copy: self.zero_copy,
            mtu,
        }))
    }

    fn describe(&self, answer: &mut Port) {
        answer.steal = Some(self.steal.as_str().to_owned());
        answer.take_default_route = self.take_default_route;
    }

    fn takes_from_host(&self) -> Option<&str> {
        (self.steal == Steal::All && !self.take_default_route).then_some(&*self.interface)
    }

    /// Takes the packets for this underlay only, if the file says so (`steal = "address"`).
    fn carry(&mut self, own: &UnderlayConfig) {
        if let Steal::Address { addresses, vlan, mac } = &mut self.steal {
            *addresses = own.addresses.iter().map(|address| address.ip).collect();
            *vlan = own.vlan;
            *mac = own.mac.map(|mac| mac.octets());
        }
    }

    fn differs(&self, new: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let number = |queues: Option<u16>| queues.map_or_else(|| "unset".to_owned(), |queues| queues.to_string());
        note(&mut differences, "interface", &self.interface, &new.interface);
        note(&mut differences, "queues", number(self.queues), number(new.queues));
        if self.steal != new.steal {
            differences.push("steal has changed".to_owned());
        }
        if self.zero_copy != new.zero_copy {
            differences.push("zero-copy has changed".to_owned());
        }
        differences
    }
}

/// Reads the keys of an AF_XDP port.
fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    let interface = super::read_own_interface(section, "interface", "eth1", report, draft);
    let queues = section.integer("queues", 1..=AfXdpRequest::MOST_QUEUES, report).map(toml::Spanned::into_inner);
    let steals = [("all", false), ("address", true)];
    let steal = section.choice("steal", &steals, report);
    let steal = match steal.filter(|steal| *steal.get_ref()) {
        Some(address) => {
            draft.steals.push((draft.ports.len(), address.span()));
            // The addresses are those of the underlay, whose section may come later in the file.
            Steal::Address { addresses: Vec::new(), vlan: None, mac: None }
        }
        None => Steal::All,
    };
    let modes = [("allow", ZeroCopy::Allow), ("require", ZeroCopy::Require), ("off", ZeroCopy::Off)];
    let zero_copy = section.choice("zero-copy", &modes, report).map_or(ZeroCopy::Allow, toml::Spanned::into_inner);
    let take_default_route = section.boolean("take-default-route", report).is_some_and(toml::Spanned::into_inner);
    if let Some(key) = section.get("interface").filter(|_| interface == "lo") {
        let message = format!("interface \"lo\" in {}: it is not Ethernet; name another interface", section.title());
        report.error(&key.span(), message);
    }
    PortKind::AfXdp(AfXdpConfig { interface, queues, steal, zero_copy, take_default_route })
}
