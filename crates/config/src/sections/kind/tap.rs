//! `kind = "tap"`: its keys, their defaults and checks.

use straightline_api::Port;
use straightline_port::device::{DeviceRequest, TapOffloads, TapRequest};

use super::{KindSettings, Offloads, PortKind, Reader, note, vhost_user};
use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::permissions::read_id;
use crate::sections::section::Section;
use crate::{Draft, Mac, UnderlayConfig, users};

/// The word for the kind.
const WORD: &str = "tap";

/// The word for the kind, and its reader.
pub(super) const READERS: &[(&str, Reader)] = &[(WORD, Reader { keys: &[KEYS], refused: &[], read })];

/// The keys that only a tap port has.
const KEYS: &[Key] = &[
    Key::new("name", Value::Text("interface name, at most 15 bytes"), Absent::Required, "The tap.", "\"sl0\""),
    Key::new(
        "queues",
        Value::integer(1, 127),
        Absent::Value("1"),
        "Number of queues of the tap. The kernel spreads flows over them.",
        "4",
    ),
    Key::new(
        "offloads",
        Value::Choices(&["csum", "tso", "uso"]),
        Absent::Text("all three"),
        "Work that the switch and the kernel may leave to each other. `\"uso\"`: large UDP packets stay unsegmented if the kernel takes them (Linux 6.2); otherwise the switch segments them.",
        "[\"csum\", \"tso\"]",
    ),
    Key::new(
        "persist",
        Value::Boolean,
        Absent::Value("false"),
        "`true`: the tap stays when the switch ends, with its addresses. It goes by `ip link del NAME`.",
        "true",
    ),
    Key::new(
        "owner",
        Value::Text("user name"),
        Absent::Text("unchanged"),
        "User who may use the tap without privileges.",
        "\"straightline\"",
    ),
    Key::new(
        "group",
        Value::Text("group name"),
        Absent::Text("unchanged"),
        "Group that may use the tap without privileges.",
        "\"straightline\"",
    ),
    Key::new(
        "bridge",
        Value::Text("interface name, at most 15 bytes"),
        Absent::Text("none"),
        "Linux bridge to which the switch adds the tap, each time that it makes the tap.",
        "\"br0\"",
    ),
];

/// The keys that only a tap port has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// The interface's name.
    pub name: String,
    /// The number of queues.
    pub queues: u16,
    /// The work that the kernel and the switch may leave to each other.
    pub offloads: Offloads,
    /// True if the interface stays when the switch ends.
    pub persist: bool,
    /// The user that may open the interface without privileges.
    pub owner: Option<u32>,
    /// The group that may open the interface without privileges.
    pub group: Option<u32>,
    /// The Linux bridge that the interface joins.
    pub bridge: Option<String>,
}

impl KindSettings for TapConfig {
    fn word(&self) -> &'static str {
        WORD
    }

    fn queues(&self) -> usize {
        usize::from(self.queues)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn device(&self, mtu: u16, mac: Option<Mac>) -> Option<DeviceRequest> {
        let Offloads { csum, tso, uso } = self.offloads;
        Some(DeviceRequest::Tap(TapRequest {
            name: self.name.clone(),
            queues: self.queues,
            mtu,
            mac: mac.map(|mac| mac.octets()),
            offloads: TapOffloads { csum, tso, uso },
            persist: self.persist,
            owner: self.owner,
            group: self.group,
            bridge: self.bridge.clone(),
        }))
    }

    fn describe(&self, answer: &mut Port) {
        answer.makes_interface = true;
    }

    fn has_mac_of_peer(&self) -> bool {
        true
    }

    /// Turns UDP segmentation off. The underlay drops outer UDP datagrams that come as one large
    /// packet. So its own must not leave that way either: the other end may be a switch.
    fn carry(&mut self, _underlay: &UnderlayConfig) {
        self.offloads.uso = false;
    }

    fn differs(&self, new: &Self) -> Vec<String> {
        let Self { name, queues, offloads, persist, owner, group, bridge } = self;
        let mut differences = Vec::new();
        let number = |id: Option<u32>| id.map_or_else(|| "unset".to_owned(), |id| id.to_string());
        let text = |name: &Option<String>| name.clone().unwrap_or_else(|| "unset".to_owned());
        note(&mut differences, "name", name, &new.name);
        note(&mut differences, "queues", *queues, new.queues);
        note(&mut differences, "offloads", offloads.to_string(), new.offloads.to_string());
        note(&mut differences, "persist", *persist, new.persist);
        note(&mut differences, "owner", number(*owner), number(new.owner));
        note(&mut differences, "group", number(*group), number(new.group));
        note(&mut differences, "bridge", text(bridge), text(&new.bridge));
        differences
    }
}

/// Reads the keys of a tap port.
fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    let name = super::read_own_interface(section, "name", "sl0", report, draft);
    let queues = section.integer("queues", 1..=127, report).map_or(1, toml::Spanned::into_inner);
    let persist = section.boolean("persist", report).map(toml::Spanned::into_inner);
    let bridge = section.get("bridge").map(|_| super::read_interface(section, "bridge", "br0", report));
    if let (None, None, Some(key)) = (persist, &bridge, section.get("name")) {
        let message = format!(
            "tap {name:?} in {}: it is made at each start, and loses its addresses each time; set persist = true to keep \
             them, or persist = false if it needs none",
            section.title()
        );
        report.warn(&key.span(), message);
    }
    PortKind::Tap(TapConfig {
        name,
        queues,
        offloads: vhost_user::read_offloads(section, report),
        persist: persist.unwrap_or(false),
        owner: read_id(section, "owner", users::user, report),
        group: read_id(section, "group", users::group, report),
        bridge,
    })
}
