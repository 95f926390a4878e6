//! An interface on the command line: its kind of port and its name.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, anyhow, bail};
use straightline_port::device::check_interface_name;

/// A kind of port that opens an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterfaceKind {
    /// A tap interface. It is made if it does not exist.
    Tap,
    /// An existing interface, by a packet socket.
    AfPacket,
    /// An existing interface, by AF_XDP sockets.
    AfXdp,
}

impl InterfaceKind {
    /// All kinds.
    pub const ALL: [InterfaceKind; 3] = [InterfaceKind::Tap, InterfaceKind::AfPacket, InterfaceKind::AfXdp];

    /// Returns the kind's name, as in a configuration file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            InterfaceKind::Tap => "tap",
            InterfaceKind::AfPacket => "af-packet",
            InterfaceKind::AfXdp => "af-xdp",
        }
    }
}

/// An interface of this machine, and the kind of port that opens it. Its text is `KIND:NAME`, such
/// as `af-xdp:eth1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kind of port.
    pub kind: InterfaceKind,
    /// The interface's name.
    pub name: String,
}

impl fmt::Display for Interface {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.kind.name(), self.name)
    }
}

impl FromStr for Interface {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Interface> {
        let kinds = || InterfaceKind::ALL.map(InterfaceKind::name).join(", ");
        let Some((kind, name)) = text.split_once(':') else {
            bail!("`{text}` has no kind: use KIND:NAME, such as `af-xdp:eth1`; the kinds are {}", kinds());
        };
        let known = InterfaceKind::ALL.into_iter().find(|known| known.name() == kind);
        let kind = known.with_context(|| format!("there is no kind `{kind}`; the kinds are {}", kinds()))?;
        check_interface_name(name).map_err(|why| anyhow!("`{text}`: {why}"))?;
        Ok(Interface { kind, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_an_interface_or_says_what_would_be() {
        for (text, kind) in InterfaceKind::ALL.map(|kind| (format!("{}:eth1", kind.name()), kind)) {
            let interface: Interface = text.parse().expect("an interface");
            assert_eq!((interface.kind, interface.name.as_str()), (kind, "eth1"));
            assert_eq!(interface.to_string(), text);
        }
        let refused = |text: &str| text.parse::<Interface>().expect_err("no interface").to_string();
        assert!(refused("eth1").contains("use KIND:NAME, such as `af-xdp:eth1`"));
        assert!(refused("xdp:eth1").contains("there is no kind `xdp`; the kinds are tap, af-packet, af-xdp"));
        for name in ["", "a-name-of-16-byt", "a/b", "a:b", "a b", ".", ".."] {
            let text = format!("tap:{name}");
            assert!(refused(&text).starts_with(&format!("`{text}`: ")), "{}", refused(&text));
        }
        assert!("tap:a-name-of-15-by".parse::<Interface>().is_ok());
    }
}
