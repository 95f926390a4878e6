//! The kinds of port: the keys that only one kind has, and what the switch must know of a kind.
//!
//! Each kind has a file here. The plan, the sandbox, reloads and the API ask [`PortKind`]; none of
//! them looks at the keys of one kind.

mod af_packet;
mod af_xdp;
mod tap;
mod tunnel;
mod vhost_user;

use std::path::Path;

use straightline_graph::Permissions;
use straightline_port::device::{self, DeviceRequest, check_interface_name};

use crate::diagnostic::Findings;
use crate::key::Key;
use crate::sections::section::Section;
use crate::{Draft, DraftInterface, Mac, Needs};
pub use af_packet::AfPacketConfig;
pub use af_xdp::AfXdpConfig;
pub use tap::TapConfig;
pub use tunnel::TunnelSettings;
pub(crate) use tunnel::TunnelSite;
pub use vhost_user::{Mode, Offloads, VhostUserConfig};

/// The kinds of port, each with its own keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// `kind = "vhost-user"`: a VM. Its frontend connects to our socket, or we connect to its
    /// socket.
    VhostUser(VhostUserConfig),
    /// `kind = "tap"`: a network interface of this machine that the switch makes.
    Tap(TapConfig),
    /// `kind = "af-packet"`: an existing interface, by packet sockets.
    AfPacket(AfPacketConfig),
    /// `kind = "af-xdp"`: an existing interface, by AF_XDP sockets.
    AfXdp(AfXdpConfig),
    /// `kind = "l2tpv3"`, `"vxlan"` and so on: a tunnel over an underlay.
    Tunnel(TunnelSettings),
}

/// A resource that only one port can have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exclusive<'a> {
    /// The path of a socket.
    Path(&'a Path),
    /// A network interface.
    Interface(&'a str),
}

/// Reads the keys of one kind.
#[derive(Clone, Copy)]
struct Reader {
    /// Lists of the keys that not all kinds have.
    keys: &'static [&'static [Key]],
    /// Keys of other kinds that the function refuses with a reason.
    refused: &'static [&'static str],
    read: fn(&Section<'_>, &mut Findings<'_>, &mut Draft) -> PortKind,
}

/// The functions that read a kind's keys, by the word for the kind in a file; those of tunnels are
/// in `tunnel`.
const READERS: &[(&str, Reader)] = &[
    ("vhost-user", Reader { keys: &[vhost_user::KEYS], refused: &[], read: vhost_user::read }),
    ("tap", Reader { keys: &[tap::KEYS], refused: &[], read: tap::read }),
    ("af-packet", Reader { keys: &[af_packet::KEYS], refused: &[], read: af_packet::read }),
    ("af-xdp", Reader { keys: &[af_xdp::KEYS], refused: &[], read: af_xdp::read }),
];

/// The words for the kinds in a file: those that have readers.
pub(crate) const WORDS: &[&str] = &words();

const fn words() -> [&'static str; READERS.len() + tunnel::READERS.len()] {
    let mut words = [""; READERS.len() + tunnel::READERS.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = if at < READERS.len() { READERS[at].0 } else { tunnel::READERS[at - READERS.len()].0 };
        at += 1;
    }
    words
}

/// Returns the words for the kinds of tunnel.
#[cfg(test)]
pub(crate) fn tunnel_words() -> impl Iterator<Item = &'static str> {
    tunnel::READERS.iter().map(|(word, _)| *word)
}

/// Returns each kind with the keys that not all kinds have.
pub(crate) fn keys() -> impl Iterator<Item = (&'static str, Vec<Key>)> {
    READERS.iter().chain(tunnel::READERS).map(|(word, reader)| (*word, reader.keys.concat()))
}

/// Reads `kind` and the keys that belong to it. `common` are the keys that ports of all kinds have.
pub(crate) fn read(section: &Section<'_>, common: &[Key], report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    let has_kind = section.get("kind").is_some();
    let readers = [READERS, tunnel::READERS].concat();
    let Some(reader) = section.choice("kind", &readers, report).map(toml::Spanned::into_inner) else {
        // The kinds differ in their keys, so the keys of an unknown kind cannot be checked.
        if !has_kind {
            let mut names: Vec<_> = common.iter().map(|key| key.name).collect();
            names.extend(keys().flat_map(|(_, keys)| keys).map(|key| key.name));
            names.sort_unstable();
            names.dedup();
            section.only_names(&names, report);
            section.missing("kind", &format!("kind = {:?}", WORDS[0]), report);
        }
        return PortKind::VhostUser(VhostUserConfig::new(""));
    };
    let (first, rest) = common.split_at(1);
    let keys = [first, &reader.keys.concat(), rest].concat();
    let names = keys.iter().map(|key| key.name).chain(reader.refused.iter().copied());
    section.only_names(&names.collect::<Vec<_>>(), report);
    (reader.read)(section, report, draft)
}

impl PortKind {
    /// Returns the word for the kind in the file and in the API.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::VhostUser(_) => "vhost-user",
            Self::Tap(_) => "tap",
            Self::AfPacket(_) => "af-packet",
            Self::AfXdp(_) => "af-xdp",
            Self::Tunnel(tunnel) => tunnel.kind.as_str(),
        }
    }

    /// Returns the keys of a vhost-user port, or `None` for another kind.
    #[must_use]
    pub fn as_vhost_user(&self) -> Option<&VhostUserConfig> {
        match self {
            Self::VhostUser(config) => Some(config),
            Self::Tap(_) | Self::AfPacket(_) | Self::AfXdp(_) | Self::Tunnel(_) => None,
        }
    }

    /// Returns the keys of an AF_XDP port, or `None` for another kind.
    #[must_use]
    pub fn as_af_xdp(&self) -> Option<&AfXdpConfig> {
        match self {
            Self::AfXdp(config) => Some(config),
            Self::VhostUser(_) | Self::Tap(_) | Self::AfPacket(_) | Self::Tunnel(_) => None,
        }
    }

    /// Returns the keys of a tunnel, or `None` for another kind.
    #[must_use]
    pub fn as_tunnel(&self) -> Option<&TunnelSettings> {
        match self {
            Self::Tunnel(tunnel) => Some(tunnel),
            Self::VhostUser(_) | Self::Tap(_) | Self::AfPacket(_) | Self::AfXdp(_) => None,
        }
    }

    /// Returns the keys of a tunnel, to be changed, or `None` for another kind.
    pub(crate) fn as_tunnel_mut(&mut self) -> Option<&mut TunnelSettings> {
        match self {
            Self::Tunnel(tunnel) => Some(tunnel),
            Self::VhostUser(_) | Self::Tap(_) | Self::AfPacket(_) | Self::AfXdp(_) => None,
        }
    }

    /// Returns the keys of a vhost-user port, to be changed, or `None` for another kind.
    #[must_use]
    pub fn as_vhost_user_mut(&mut self) -> Option<&mut VhostUserConfig> {
        match self {
            Self::VhostUser(config) => Some(config),
            Self::Tap(_) | Self::AfPacket(_) | Self::AfXdp(_) | Self::Tunnel(_) => None,
        }
    }

    /// Returns the number of queue pairs that the port is planned for: at least 1, or none for a
    /// tunnel, whose packets use the queues of its underlay.
    pub fn queues(&self) -> usize {
        match self {
            Self::VhostUser(config) => config.planned_queues(),
            Self::Tap(config) => config.queues(),
            Self::AfPacket(config) => config.queues(),
            Self::AfXdp(config) => config.queues(),
            Self::Tunnel(_) => 0,
        }
    }

    /// Returns the most queue pairs that can ever be started. Each has its worker, even if the port
    /// is planned for fewer.
    pub fn most_queues(&self) -> usize {
        match self {
            Self::VhostUser(config) => config.most_queues(),
            Self::Tap(config) => config.queues(),
            Self::AfPacket(config) => config.queues(),
            Self::AfXdp(config) => config.most_queues(),
            Self::Tunnel(_) => 0,
        }
    }

    /// Returns the most descriptors that the peer of the port can have the switch keep.
    pub fn most_descriptors(&self) -> u64 {
        match self {
            Self::VhostUser(config) => config.most_descriptors(),
            _ => self.reserved_descriptors(),
        }
    }

    /// Returns the descriptors that are reserved for the port.
    pub fn reserved_descriptors(&self) -> u64 {
        match self {
            Self::VhostUser(config) => config.reserved_descriptors(),
            Self::Tap(_) | Self::AfPacket(_) | Self::AfXdp(_) => device::descriptors(self.most_queues()),
            Self::Tunnel(_) => 0,
        }
    }

    /// Returns the path of the port's socket as operators see it, or `None` if the port has no
    /// socket.
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Self::VhostUser(config) => Some(&config.socket),
            Self::Tap(_) | Self::AfPacket(_) | Self::AfXdp(_) | Self::Tunnel(_) => None,
        }
    }

    /// Returns the name of the port's interface, or `None` if the port has none.
    pub fn interface(&self) -> Option<&str> {
        match self.exclusive() {
            Some(Exclusive::Interface(name)) => Some(name),
            Some(Exclusive::Path(_)) | None => None,
        }
    }

    /// Returns the resource that only one port can have at a time.
    pub fn exclusive(&self) -> Option<Exclusive<'_>> {
        match self {
            Self::VhostUser(config) => config.exclusive_path().map(Exclusive::Path),
            Self::Tap(config) => Some(Exclusive::Interface(&config.name)),
            Self::AfPacket(config) => Some(Exclusive::Interface(&config.interface)),
            Self::AfXdp(config) => Some(Exclusive::Interface(&config.interface)),
            Self::Tunnel(_) => None,
        }
    }

    /// Returns the interface to open, for a port of this MTU and address, or `None` if the port has
    /// no interface of this machine.
    pub fn device(&self, mtu: u16, mac: Option<Mac>) -> Option<DeviceRequest> {
        match self {
            Self::VhostUser(_) | Self::Tunnel(_) => None,
            Self::Tap(config) => Some(config.request(mtu, mac)),
            Self::AfPacket(config) => Some(config.request()),
            Self::AfXdp(config) => Some(config.request(mtu)),
        }
    }

    /// Returns the path of the socket that this process makes, or `None` if it makes none.
    pub fn made_socket(&self) -> Option<&Path> {
        match self {
            Self::VhostUser(config) => config.made_socket(),
            Self::Tap(_) | Self::AfPacket(_) | Self::AfXdp(_) | Self::Tunnel(_) => None,
        }
    }

    /// Returns who may connect. A reload can change that while the port stays open.
    pub fn permissions(&self) -> Permissions {
        match self {
            Self::VhostUser(config) => config.permissions(),
            Self::Tap(_) | Self::AfPacket(_) | Self::AfXdp(_) | Self::Tunnel(_) => Permissions::default(),
        }
    }

    /// Returns the rights that the port takes beyond those that every port has.
    pub fn needs(&self) -> Needs {
        match self {
            Self::VhostUser(config) => config.needs(),
            Self::Tap(_) | Self::AfPacket(_) | Self::AfXdp(_) => Needs { has_device: true, ..Needs::default() },
            // Its underlay's port does everything.
            Self::Tunnel(_) => Needs::default(),
        }
    }

    /// Returns the differences for which a port must be closed and opened again, in words. Empty if
    /// there are none.
    pub fn differs(&self, new: &Self) -> Vec<String> {
        match (self, new) {
            (Self::VhostUser(old), Self::VhostUser(new)) => old.differs(new),
            (Self::Tap(old), Self::Tap(new)) => old.differs(new),
            (Self::AfPacket(old), Self::AfPacket(new)) => old.differs(new),
            (Self::AfXdp(old), Self::AfXdp(new)) => old.differs(new),
            (Self::Tunnel(old), Self::Tunnel(new)) => old.differs(new),
            (old, new) => vec![format!("kind {} is now {}", old.as_str(), new.as_str())],
        }
    }
}

/// Reads the name of the port's own interface, which must be there.
fn read_own_interface(
    section: &Section<'_>,
    key: &str,
    example: &str,
    report: &mut Findings<'_>,
    draft: &mut Draft,
) -> String {
    let name = read_interface(section, key, example, report);
    if let Some(value) = section.get(key).filter(|_| !name.is_empty()) {
        draft.interfaces.push(DraftInterface {
            owner: section.title().to_owned(),
            name: name.clone(),
            span: value.span(),
        });
    }
    name
}

/// Reads the name of a network interface, which must be there.
fn read_interface(section: &Section<'_>, key: &str, example: &str, report: &mut Findings<'_>) -> String {
    let example = format!("{key} = {example:?}");
    if section.get(key).is_none() {
        section.missing(key, &example, report);
    }
    let Some(name) = section.text(key, &example, report) else { return String::new() };
    if let Err(why) = check_interface_name(name.get_ref()) {
        report.error(&name.span(), format!("{key} {:?} in {}: {why}", name.get_ref(), section.title()));
    }
    (*name.get_ref()).to_owned()
}

/// Adds "`key` is now another" to `differences` if a key has changed.
pub fn note<T: PartialEq + std::fmt::Display>(differences: &mut Vec<String>, key: &str, old: T, new: T) {
    if old != new {
        differences.push(format!("{key} {old} is now {new}"));
    }
}
