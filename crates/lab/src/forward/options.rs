//! What can be asked for.

use std::fmt;
use std::str::FromStr;

use anyhow::ensure;

use crate::endpoints::PortOptions;

/// What the guest does with packets: testpmd's forward modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They go on as they are.
    #[default]
    Io,
    /// They get the addresses of the port that they go by, and of whoever is behind it.
    Mac,
    /// Both Ethernet addresses change places.
    MacSwap,
    /// So do those of IP, and the ports of TCP and UDP.
    FiveTupleSwap,
    /// Frames of UDP are sent without pause, and nothing is received.
    TxOnly,
    /// What comes is counted and dropped.
    RxOnly,
    /// Frames of UDP are sent to one destination after the other, and what comes is dropped.
    FlowGen,
    /// ARP and ICMP echo are answered, and all else is dropped.
    IcmpEcho,
    /// The checksums of IPv4, TCP and UDP are checked and written anew.
    Csum,
    /// They go on as they are, and for each of them lines of a large memory are read and written.
    Noisy,
}

/// What of each packet the guest reads and writes besides, as an application would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touch {
    /// What the mode needs.
    #[default]
    None,
    /// The virtio-net header and the Ethernet header are read.
    Header,
    /// All bytes are read.
    Read,
    /// All bytes are read, and written.
    Edit,
}

/// How a guest works.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it does with packets.
    pub mode: Mode,
    /// What of them it touches besides; who edits inverts all behind the Ethernet header. (The guest that only polls writes
    /// what it has read: [`crate::poller::Options::touch`].)
    pub touch: Touch,
    /// Bytes of the frames that it sends of its own accord, without their Ethernet checksum.
    pub size: u16,
    /// To how many destinations `flowgen` sends.
    pub flows: u16,
    /// What `noisy` does.
    pub noise: Noise,
    /// How its ports are made.
    pub ports: PortOptions,
}

/// How noisy a neighbour is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Bytes of the memory.
    pub footprint: u64,
    /// How many of its cache lines, drawn at random, are read and written for each packet.
    pub touches: u32,
}

impl Default for Noise {
    /// 16 lines of 1 MiB.
    fn default() -> Self {
        Noise { footprint: 1 << 20, touches: 16 }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            mode: Mode::default(),
            touch: Touch::default(),
            size: 64,
            flows: 1024,
            noise: Noise::default(),
            ports: PortOptions::default(),
        }
    }
}

impl Mode {
    /// Whether the guest hands on all that comes, in its order.
    #[must_use]
    pub fn forwards(self) -> bool {
        matches!(self, Mode::Io | Mode::Mac | Mode::MacSwap | Mode::FiveTupleSwap | Mode::Csum | Mode::Noisy)
    }
}

impl Options {
    /// # Errors
    /// What cannot be, and what would.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.touch == Touch::None || !matches!(self.mode, Mode::TxOnly | Mode::FlowGen),
            "a guest in mode {} looks at no packet: touch {} is for those that hand on packets, and for rxonly",
            self.mode,
            self.touch
        );
        self.ports.check()
    }
}

/// Names, as they are on the command line and in reports.
macro_rules! names {
    ($type:ident: $($value:ident $name:literal),*) => {
        impl $type {
            /// All of them.
            pub const ALL: &[$type] = &[$($type::$value),*];

            /// Its name on the command line and in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$value => $name),*
                }
            }
        }

        impl FromStr for $type {
            type Err = anyhow::Error;

            fn from_str(name: &str) -> anyhow::Result<Self> {
                let names: Vec<_> = $type::ALL.iter().map(|one| one.name()).collect();
                let found = $type::ALL.iter().copied().find(|one| one.name() == name);
                found.ok_or_else(|| anyhow::anyhow!("one of {}", names.join(", ")))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.pad(self.name())
            }
        }
    };
}

names!(Mode: Io "io", Mac "mac", MacSwap "macswap", FiveTupleSwap "5tswap", TxOnly "txonly", RxOnly "rxonly",
    FlowGen "flowgen", IcmpEcho "icmpecho", Csum "csum", Noisy "noisy");
names!(Touch: None "none", Header "header", Read "read", Edit "edit");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse::<Mode>().expect("a mode"), *mode);
        }
        for touch in Touch::ALL {
            assert_eq!(touch.to_string().parse::<Touch>().expect("a policy"), *touch);
        }
        let error = "ether".parse::<Mode>().expect_err("no mode");
        assert!(error.to_string().contains("5tswap"), "{error}");
    }

    #[test]
    fn who_only_sends_touches_nothing() {
        for &mode in Mode::ALL {
            for &touch in Touch::ALL {
                let sends = matches!(mode, Mode::TxOnly | Mode::FlowGen);
                let checked = Options { mode, touch, ..Options::default() }.check();
                assert_eq!(checked.is_ok(), !sends || touch == Touch::None, "{mode}, {touch}: {checked:?}");
            }
        }
        let ports = PortOptions { queue_size: 100, ..PortOptions::default() };
        assert!(Options { ports, ..Options::default() }.check().is_err());
    }
}
