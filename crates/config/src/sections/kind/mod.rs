//! The kinds of port: the keys that only one kind has, and what the switch must know of a kind.
//!
//! Each kind has a file here, and a row in the table below. The plan, the sandbox, reloads and the
//! API ask [`KindSettings`]; none of them looks at the keys of one kind.

mod af_packet;
mod af_xdp;
mod settings;
mod tap;
mod tunnel;
mod vhost_user;

use std::ops::{Deref, DerefMut};

use straightline_port::device::check_interface_name;

use crate::diagnostic::Findings;
use crate::key::Key;
use crate::sections::section::Section;
use crate::{Draft, DraftInterface};
pub use af_packet::AfPacketConfig;
pub use af_xdp::AfXdpConfig;
pub use settings::{Exclusive, KindSettings};
pub use tap::TapConfig;
pub(crate) use tunnel::TunnelSite;
pub use tunnel::{RemoteStatic, TunnelSettings};
pub use vhost_user::{Mode, Offloads, VhostUserConfig};

/// Makes [`PortKind`] and [`READERS`] of rows: a variant, the type of its settings, and its readers.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($settings:ty): $readers:expr,)*) => {
        /// The kinds of port, each with its own keys. A kind is asked as [`KindSettings`].
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum PortKind {
            $($(#[$doc])* $kind($settings),)*
        }

        /// The functions that read a kind's keys, by the words for the kind in a file.
        const READERS: &[&[(&str, Reader)]] = &[$($readers),*];

        impl Deref for PortKind {
            type Target = dyn KindSettings;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$kind(settings) => settings,)*
                }
            }
        }

        impl DerefMut for PortKind {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self {
                    $(Self::$kind(settings) => settings,)*
                }
            }
        }

        impl PortKind {
            /// Returns the differences for which a port must be closed and opened again, in words.
            /// Empty if there are none.
            pub fn differs(&self, new: &Self) -> Vec<String> {
                match (self, new) {
                    $((Self::$kind(old), Self::$kind(new)) => old.differs(new),)*
                    (old, new) => vec![format!("kind {} is now {}", old.word(), new.word())],
                }
            }
        }
    };
}

kinds! {
    /// `kind = "vhost-user"`: a VM. Its frontend connects to our socket, or we connect to its
    /// socket.
    VhostUser(VhostUserConfig): vhost_user::READERS,
    /// `kind = "tap"`: a network interface of this machine that the switch makes.
    Tap(TapConfig): tap::READERS,
    /// `kind = "af-packet"`: an existing interface, by packet sockets.
    AfPacket(AfPacketConfig): af_packet::READERS,
    /// `kind = "af-xdp"`: an existing interface, by AF_XDP sockets.
    AfXdp(AfXdpConfig): af_xdp::READERS,
    /// `kind = "l2tpv3"`, `"vxlan"` and so on: a tunnel over an underlay.
    Tunnel(TunnelSettings): tunnel::READERS,
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

/// The words for the kinds in a file: those that have readers.
pub(crate) const WORDS: &[&str] = &words();

const fn words() -> [&'static str; count()] {
    let mut words = [""; count()];
    let mut at = 0;
    let mut kind = 0;
    while kind < READERS.len() {
        let mut word = 0;
        while word < READERS[kind].len() {
            words[at] = READERS[kind][word].0;
            at += 1;
            word += 1;
        }
        kind += 1;
    }
    words
}

const fn count() -> usize {
    let mut count = 0;
    let mut kind = 0;
    while kind < READERS.len() {
        count += READERS[kind].len();
        kind += 1;
    }
    count
}

/// Returns the words for the kinds of tunnel.
#[cfg(test)]
pub(crate) fn tunnel_words() -> impl Iterator<Item = &'static str> {
    tunnel::READERS.iter().map(|(word, _)| *word)
}

/// Returns each kind with the keys that not all kinds have.
pub(crate) fn keys() -> impl Iterator<Item = (&'static str, Vec<Key>)> {
    READERS.iter().copied().flatten().map(|(word, reader)| (*word, reader.keys.concat()))
}

/// Reads `kind` and the keys that belong to it. `common` are the keys that ports of all kinds have.
pub(crate) fn read(section: &Section<'_>, common: &[Key], report: &mut Findings<'_>, draft: &mut Draft) -> PortKind {
    let has_kind = section.get("kind").is_some();
    let readers = READERS.concat();
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
    /// Returns the keys of a vhost-user port, or `None` for another kind.
    #[must_use]
    pub fn as_vhost_user(&self) -> Option<&VhostUserConfig> {
        if let Self::VhostUser(config) = self { Some(config) } else { None }
    }

    /// Returns the keys of a vhost-user port, to be changed, or `None` for another kind.
    #[must_use]
    pub fn as_vhost_user_mut(&mut self) -> Option<&mut VhostUserConfig> {
        if let Self::VhostUser(config) = self { Some(config) } else { None }
    }

    /// Returns the keys of a tunnel, or `None` for another kind.
    #[must_use]
    pub fn as_tunnel(&self) -> Option<&TunnelSettings> {
        if let Self::Tunnel(tunnel) = self { Some(tunnel) } else { None }
    }

    /// Returns the keys of a tunnel, to be changed, or `None` for another kind.
    pub(crate) fn as_tunnel_mut(&mut self) -> Option<&mut TunnelSettings> {
        if let Self::Tunnel(tunnel) = self { Some(tunnel) } else { None }
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
