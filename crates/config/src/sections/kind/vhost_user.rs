//! `kind = "vhost-user"`: its keys, their defaults and checks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{getegid, geteuid};
use straightline_api::{Port, QueuePairs};
use straightline_graph::{OWN_MODE, Permissions};
use straightline_port::socket_path;
use straightline_port::vhost_user::{self, CALL_PAUSES, MAX_QUEUE_PAIRS};

use super::{Exclusive, KindSettings, PortKind, Reader, note};
use crate::diagnostic::Findings;
use crate::key::{Absent, Key, Value};
use crate::sections::permissions::{read_id, read_perms};
use crate::sections::section::{self, Section};
use crate::{Draft, DraftSocket, Needs, UnderlayConfig, check_socket, users};

/// The word for the kind.
const WORD: &str = "vhost-user";

/// The word for the kind, and its reader.
pub(super) const READERS: &[(&str, Reader)] = &[(WORD, Reader { keys: &[KEYS], refused: &[], read })];

/// The keys that only a vhost-user port has.
const KEYS: &[Key] = &[
    Key::new(
        "socket",
        Value::Text("path of a socket"),
        Absent::Required,
        "Where the switch listens, or where the VM's program listens (`mode`). The path has at most 107 bytes.",
        "\"/run/straightline/vm1.sock\"",
    ),
    Key::new(
        "owner",
        Value::Text("user name"),
        Absent::Text("the switch's user"),
        "User who owns the socket. Not with `mode = \"client\"`.",
        "\"libvirt-qemu\"",
    ),
    Key::new(
        "group",
        Value::Text("group name"),
        Absent::Text("the switch's group"),
        "Group of the socket. Not with `mode = \"client\"`.",
        "\"kvm\"",
    ),
    Key::new(
        "perms",
        Value::Text("3 or 4 octal digits in a string, at most `\"0777\"`"),
        Absent::Text("`\"0660\"` with `group`, else `\"0600\"`"),
        "Permissions of the socket. To connect, a user needs the right to write. Not with `mode = \"client\"`.",
        "\"0660\"",
    ),
    Key::new(
        "mode",
        Value::Choice(&["server", "client"]),
        Absent::Value("\"server\""),
        "`\"server\"`: the switch listens. `\"client\"`: the switch connects, and again whenever the connection breaks.",
        "\"client\"",
    ),
    Key::new(
        "queues",
        Value::integer(1, 127),
        Absent::Text("by the VM's program"),
        "Most queue pairs that the guest may use. Set it if several workers shall serve this port: without it, one worker serves the port.",
        "4",
    ),
    Key::new(
        "packed",
        Value::Boolean,
        Absent::Value("true"),
        "Offers the packed ring. `false`: only the split ring.",
        "false",
    ),
    Key::new(
        "offloads",
        Value::Choices(&["csum", "tso", "uso"]),
        Absent::Text("all three"),
        "Offloads that the guest is offered. `\"tso\"` and `\"uso\"` need `\"csum\"`. `[]`: none.",
        "[\"csum\", \"tso\"]",
    ),
];

/// The keys that only a vhost-user port has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUserConfig {
    /// The socket at which we listen, or the frontend.
    pub socket: PathBuf,
    /// The side that listens.
    pub mode: Mode,
    /// The user that the socket is given to. `None`: the socket stays ours.
    pub owner: Option<u32>,
    /// The group that the socket is given to. `None`: the socket stays ours.
    pub group: Option<u32>,
    /// The socket's permission bits. Connecting takes the right to write.
    pub perms: u32,
    /// The most queue pairs, 1 to 127. None: a frontend that reads the configuration space gets 1
    /// pair, and others may start up to 127.
    pub queues: Option<u16>,
    /// True if the guest is offered the packed ring.
    pub packed: bool,
    /// The offloads that the guest is offered.
    pub offloads: Offloads,
    /// The pauses before the repeats of a call that the guest does not answer. No file can set this
    /// field: it is for tests.
    pub call_pauses: [Duration; 3],
}

impl VhostUserConfig {
    /// Returns the permission bits of a port whose file names none: the owner may connect, and the
    /// group if one is named.
    #[must_use]
    pub fn default_perms(group: Option<u32>) -> u32 {
        if group.is_some() { 0o660 } else { 0o600 }
    }

    /// Returns a port that listens at `socket`, for our user only, with every offload.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            mode: Mode::Server,
            owner: None,
            group: None,
            perms: Self::default_perms(None),
            queues: None,
            packed: true,
            offloads: Offloads::default(),
            call_pauses: CALL_PAUSES,
        }
    }
}

impl KindSettings for VhostUserConfig {
    fn word(&self) -> &'static str {
        WORD
    }

    /// Returns the queue pairs that workers are planned for: one where the file names no number.
    fn queues(&self) -> usize {
        usize::from(self.queues.unwrap_or(1).max(1))
    }

    fn most_queues(&self) -> usize {
        usize::from(self.queues.unwrap_or(MAX_QUEUE_PAIRS).max(1))
    }

    fn reserved_descriptors(&self) -> u64 {
        vhost_user::VhostUserConfig::descriptors(self.queues.unwrap_or(1).max(1))
    }

    fn most_descriptors(&self) -> u64 {
        vhost_user::VhostUserConfig::descriptors(self.queues.unwrap_or(MAX_QUEUE_PAIRS).max(1))
    }

    fn socket(&self) -> Option<&Path> {
        Some(&self.socket)
    }

    /// Returns the socket's path if this process makes the socket. Sockets that we connect to are
    /// the frontends'.
    fn made_socket(&self) -> Option<&Path> {
        (self.mode == Mode::Server).then_some(&*self.socket)
    }

    fn permissions(&self) -> Permissions {
        Permissions { owner: self.owner, group: self.group, mode: Some(self.perms) }
    }

    /// Returns the socket's path, which no other port can have. A socket that was handed over has
    /// none.
    fn exclusive(&self) -> Option<Exclusive<'_>> {
        (self.mode != Mode::Given).then_some(Exclusive::Path(&self.socket))
    }

    /// Returns the rights that the socket takes.
    fn needs(&self) -> Needs {
        match self.mode {
            Mode::Server => {
                let other_user = self.owner.is_some_and(|owner| owner != geteuid().as_raw());
                let other_group = self.group.is_some_and(|group| group != getegid().as_raw());
                Needs {
                    connects: false,
                    has_owner: self.owner.is_some() || self.group.is_some(),
                    sets_bits: self.perms != OWN_MODE,
                    gives_away: other_user || other_group,
                    has_device: false,
                }
            }
            Mode::Client => Needs { connects: true, ..Needs::default() },
            Mode::Given => Needs::default(),
        }
    }

    fn describe(&self, answer: &mut Port) {
        answer.mode = Some(self.mode.as_str().to_owned());
        answer.queue_pairs = Some(QueuePairs { offered: self.queues, enabled: 0 });
    }

    fn can_wait(&self) -> bool {
        true
    }

    fn has_mac_of_peer(&self) -> bool {
        true
    }

    /// Turns UDP segmentation off. The underlay drops outer UDP datagrams that come as one large
    /// packet. So its own must not leave that way either: the other end may be a switch.
    fn carry(&mut self, _underlay: &UnderlayConfig) {
        self.offloads.uso = false;
    }

    /// Returns the differences for which the guest must connect again. A change of permissions is
    /// no such difference, because permissions can be changed on the socket's file.
    fn differs(&self, new: &Self) -> Vec<String> {
        let Self { socket, mode, owner: _, group: _, perms: _, queues, packed, offloads, call_pauses: _ } = self;
        let mut differences = Vec::new();
        note(&mut differences, "socket", socket.display().to_string(), new.socket.display().to_string());
        note(&mut differences, "mode", mode.as_str(), new.mode.as_str());
        let number = |queues: Option<u16>| queues.map_or_else(|| "unset".to_owned(), |queues| queues.to_string());
        note(&mut differences, "queues", number(*queues), number(new.queues));
        note(&mut differences, "packed", *packed, new.packed);
        note(&mut differences, "offloads", offloads.to_string(), new.offloads.to_string());
        differences
    }
}

/// The side that listens at a port's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// We listen, and the frontend connects.
    #[default]
    Server,
    /// The frontend listens. We connect, and connect again whenever the connection ends.
    Client,
    /// The client that added the port (`straightline port`) handed a socket over. `socket` is the
    /// client's name for the socket. No configuration file has this mode.
    Given,
}

/// The work on a packet that a guest may leave to us, and that we may leave to the guest. `tso` and
/// `uso` are never set without `csum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// Partial checksums.
    pub csum: bool,
    /// TCP packets larger than the MTU.
    pub tso: bool,
    /// UDP packets larger than the MTU.
    pub uso: bool,
}

impl Default for Offloads {
    fn default() -> Self {
        Self { csum: true, tso: true, uso: true }
    }
}

impl Mode {
    /// Returns the word in the file and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Given => "given",
        }
    }
}

impl fmt::Display for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [("csum", self.csum), ("tso", self.tso), ("uso", self.uso)];
        let named: Vec<_> = named.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
        f.write_str(&if named.is_empty() { "none".to_owned() } else { named.join("+") })
    }
}

/// Reads the keys of a vhost-user port.
fn read(section: &Section<'_>, report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    let modes = [("server", Mode::Server), ("client", Mode::Client)];
    let mode = section.choice("mode", &modes, report).map_or(Mode::Server, toml::Spanned::into_inner);
    let socket = read_socket(section, mode, report, draft);
    let owner = read_id(section, "owner", users::user, report);
    let group = read_id(section, "group", users::group, report);
    if mode == Mode::Client {
        refuse_permissions(section, report);
    }
    let perms = read_perms(section, "perms", report).unwrap_or_else(|| VhostUserConfig::default_perms(group));
    let offloads = read_offloads(section, report);
    let packed = section.boolean("packed", report).is_none_or(toml::Spanned::into_inner);
    // vhost-user has eight bits for a ring's index in messages that carry a descriptor for it
    // ("SET_VRING_KICK").
    let queues = section.integer("queues", 1..=127, report).map(toml::Spanned::into_inner);
    let call_pauses = CALL_PAUSES;
    PortKind::VhostUser(VhostUserConfig { socket, mode, owner, group, perms, queues, packed, offloads, call_pauses })
}

/// Reports permissions of a port that makes no socket: its frontend decides who may connect.
fn refuse_permissions(section: &Section<'_>, report: &mut Findings<'_>) {
    for key in ["owner", "group", "perms"] {
        if let Some(value) = section.get(key) {
            let message = format!(
                "{key} in {}: a port of mode \"client\" makes no socket; leave it out, and let the VM's end say who may \
                 connect",
                section.title()
            );
            report.error(&value.span(), message);
        }
    }
}

fn read_socket(section: &Section<'_>, mode: Mode, report: &mut Findings<'_>, draft: &mut Draft) -> PathBuf {
    let example = "socket = \"/run/straightline/vm1.sock\"";
    if section.get("socket").is_none() {
        section.missing("socket", example, report);
    }
    let Some(socket) = section.text("socket", example, report) else {
        return PathBuf::new();
    };
    let path = PathBuf::from(socket.get_ref());
    let owner = section.title().to_owned();
    let ours = mode == Mode::Server;
    if ours {
        check_socket(draft, report, &path, &owner, &socket.span());
    } else if let Err(why) = socket_path::check_name(&path) {
        // A frontend that listens also makes the folder, perhaps later.
        report.error(&socket.span(), format!("socket {:?} of {owner}: {why}", socket.get_ref()));
    }
    draft.sockets.push(DraftSocket { owner, path: path.clone(), ours, span: socket.span() });
    path
}

pub(super) fn read_offloads(section: &Section<'_>, report: &mut Findings<'_>) -> Offloads {
    let Some(named) = section.texts("offloads", "offloads = [\"csum\", \"tso\"]", report) else {
        return Offloads::default();
    };
    let mut offloads = Offloads { csum: false, tso: false, uso: false };
    for name in named.get_ref() {
        let word = *name.get_ref();
        let flag = match word {
            "csum" => &mut offloads.csum,
            "tso" => &mut offloads.tso,
            "uso" => &mut offloads.uso,
            _ => {
                let hint = section::hint(word, &["csum", "tso", "uso"], "offloads");
                report.error(&name.span(), format!("offload {word:?} in {}: unknown; {hint}", section.title()));
                continue;
            }
        };
        if std::mem::replace(flag, true) {
            report.error(&name.span(), format!("offload {word:?} in {}: named twice; name it once", section.title()));
        }
    }
    // virtio 1.2, 5.1.3.1: the segmentation features require the checksum feature.
    if !offloads.csum && (offloads.tso || offloads.uso) {
        let needy: Vec<_> = named.get_ref().iter().map(|name| *name.get_ref()).filter(|name| *name != "csum").collect();
        let message = format!(
            "{} in {}: not offered, because segmentation needs \"csum\" too",
            needy.join(" and "),
            section.title()
        );
        report.warn(&named.span(), message);
        offloads = Offloads { csum: false, tso: false, uso: false };
    }
    offloads
}
