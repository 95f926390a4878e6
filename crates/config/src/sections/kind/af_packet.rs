//! `kind = "af-packet"`: its keys, their defaults and checks.

use straightline_port::device::{AfPacketRequest, DeviceRequest};

use super::{KindSettings, PortKind, Reader, note};
use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::section::Section;
use crate::{Draft, Mac};

/// The word for the kind.
const WORD: &str = "af-packet";

/// The word for the kind, and its reader.
pub(super) const READERS: &[(&str, Reader)] = &[(WORD, Reader { keys: &[KEYS], refused: &[], read })];

/// The keys that only an AF_PACKET port has.
const KEYS: &[Key] = &[
    Key::new(
        "interface",
        Value::Text("interface name, at most 15 bytes"),
        Absent::Required,
        "The interface. It must be up. The host sees the same packets, so give the interface no address.",
        "\"eth1\"",
    ),
    Key::new(
        "queues",
        Value::integer(1, 127),
        Absent::Value("1"),
        "Number of sockets. The kernel spreads flows over them.",
        "4",
    ),
];

/// The keys that only an AF_PACKET port has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfPacketConfig {
    /// The interface's name.
    pub interface: String,
    /// The number of sockets.
    pub queues: u16,
}

impl KindSettings for AfPacketConfig {
    fn word(&self) -> &'static str {
        WORD
    }

    fn queues(&self) -> usize {
        usize::from(self.queues)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }

    fn device(&self, _mtu: u16, _mac: Option<Mac>) -> Option<DeviceRequest> {
        Some(DeviceRequest::AfPacket(AfPacketRequest { interface: self.interface.clone(), queues: self.queues }))
    }

    fn differs(&self, new: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        note(&mut differences, "interface", &self.interface, &new.interface);
        note(&mut differences, "queues", self.queues, new.queues);
        differences
    }
}

/// Reads the keys of an AF_PACKET port.
fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    let interface = super::read_own_interface(section, "interface", "eth1", report, draft);
    let queues = section.integer("queues", 1..=127, report).map_or(1, toml::Spanned::into_inner);
    PortKind::AfPacket(AfPacketConfig { interface, queues })
}
