//! `kind = "af-xdp"`: its keys, their defaults and checks.

use straightline_port::device::{AfXdpRequest, DeviceRequest, Steal, ZeroCopy};

use super::{PortKind, note};
use crate::config::Draft;
use crate::config::diagnostic::Findings;
use crate::config::section::Section;

/// The keys that only an AF_XDP port has.
pub(super) const KEYS: &[&str] = &["interface", "queues", "steal", "zero-copy"];

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
}

impl AfXdpConfig {
    /// Returns the queues that workers are planned for: one where the file names no number.
    pub(super) fn queues(&self) -> usize {
        usize::from(self.queues.unwrap_or(1))
    }

    /// Returns the most queues that can be opened: the interface decides where the file names no
    /// number.
    pub(super) fn most_queues(&self) -> usize {
        usize::from(self.queues.unwrap_or(AfXdpRequest::MOST_QUEUES))
    }

    pub(super) fn request(&self, mtu: u16) -> DeviceRequest {
        DeviceRequest::AfXdp(AfXdpRequest {
            interface: self.interface.clone(),
            queues: self.queues,
            steal: self.steal,
            zero_copy: self.zero_copy,
            mtu,
        })
    }

    pub(super) fn differs(&self, new: &Self) -> Vec<String> {
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
pub(super) fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    let interface = super::read_own_interface(section, "interface", "eth1", report, draft);
    let queues = section.integer("queues", 1..=AfXdpRequest::MOST_QUEUES, report).map(toml::Spanned::into_inner);
    let steals = [("all", Steal::All), ("address", Steal::Address)];
    let steal = section.choice("steal", &steals, report);
    if let Some(address) = steal.as_ref().filter(|steal| *steal.get_ref() == Steal::Address) {
        let message = format!("steal = \"address\" in {} needs an underlay on the port: use \"all\"", section.title());
        report.error(&address.span(), message);
    }
    let steal = steal.map_or(Steal::All, toml::Spanned::into_inner);
    let modes = [("allow", ZeroCopy::Allow), ("require", ZeroCopy::Require), ("off", ZeroCopy::Off)];
    let zero_copy = section.choice("zero-copy", &modes, report).map_or(ZeroCopy::Allow, toml::Spanned::into_inner);
    PortKind::AfXdp(AfXdpConfig { interface, queues, steal, zero_copy })
}
