//! Options of a guest.

use anyhow::ensure;

use straightline_guest::endpoints::PortOptions;

use crate::guests::touch::Touch;
use crate::names::names;

/// Treatment of packets: testpmd's forward modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Forwards packets unchanged.
    #[default]
    Io,
    /// Writes new Ethernet addresses: of the port through which the packet leaves, and of the peer
    /// at this port.
    Mac,
    /// Swaps both Ethernet addresses.
    MacSwap,
    /// Swaps Ethernet and IP addresses, and the ports of TCP and UDP.
    FiveTupleSwap,
    /// Sends UDP frames without pause, and receives nothing.
    TxOnly,
    /// Counts received packets and drops them.
    RxOnly,
    /// Sends UDP frames to many destinations in turn, and drops received packets.
    FlowGen,
    /// Answers ARP and ICMP echo, and drops everything else.
    IcmpEcho,
    /// Checks the checksums of IPv4, TCP and UDP, and writes correct ones.
    Csum,
    /// Forwards packets unchanged. For each packet, it reads and writes lines of a large memory.
    Noisy,
}

/// The way in which flows differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// By their destination addresses, from 10.253.0.0 on.
    #[default]
    Destinations,
    /// Each flow of the first port by one bit of the source address, one of the destination address and one
    /// of the destination port. For rules with these three values, each flow needs another mask in a table of
    /// tuples. The second port sends one flow.
    Prefixes,
}

/// Options of a guest.
#[derive(Clone, Debug)]
pub struct ForwardOptions {
    /// The forward mode.
    pub mode: Mode,
    /// The touch policy. `Edit` inverts all bytes after the Ethernet header.
    pub touch: Touch,
    /// Length of the frames that the guest generates, without the Ethernet checksum.
    pub size: u16,
    /// Number of flows of `flowgen`.
    pub flows: u16,
    /// The difference of these flows.
    pub spread: Spread,
    /// Options of `noisy`.
    pub noise: Noise,
    /// Options of its ports.
    pub ports: PortOptions,
}

/// Options of a noisy guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Bytes of the memory.
    pub footprint: u64,
    /// Number of cache lines that are read and written for each packet, at random places.
    pub touches: u32,
}

impl Default for Noise {
    /// 16 lines of 1 MiB.
    fn default() -> Self {
        Noise { footprint: 1 << 20, touches: 16 }
    }
}

impl Default for ForwardOptions {
    fn default() -> Self {
        ForwardOptions {
            mode: Mode::default(),
            touch: Touch::default(),
            size: 64,
            flows: 1024,
            spread: Spread::default(),
            noise: Noise::default(),
            ports: PortOptions::default(),
        }
    }
}

impl Mode {
    /// Returns whether the guest forwards all received packets, in order.
    #[must_use]
    pub fn forwards(self) -> bool {
        matches!(self, Mode::Io | Mode::Mac | Mode::MacSwap | Mode::FiveTupleSwap | Mode::Csum | Mode::Noisy)
    }
}

impl ForwardOptions {
    /// Checks that the options are possible together.
    ///
    /// # Errors
    /// An option is not possible; the error says what would be right.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.touch == Touch::None || !matches!(self.mode, Mode::TxOnly | Mode::FlowGen),
            "mode {} does not examine packets: use touch {} with modes that forward, or with rxonly",
            self.mode,
            self.touch
        );
        self.ports.check()
    }
}

names!(Spread: Destinations "destinations", Prefixes "prefixes");
names!(Mode: Io "io", Mac "mac", MacSwap "macswap", FiveTupleSwap "5tswap", TxOnly "txonly", RxOnly "rxonly",
    FlowGen "flowgen", IcmpEcho "icmpecho", Csum "csum", Noisy "noisy");

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
                let checked = ForwardOptions { mode, touch, ..ForwardOptions::default() }.check();
                assert_eq!(checked.is_ok(), !sends || touch == Touch::None, "{mode}, {touch}: {checked:?}");
            }
        }
        let ports = PortOptions { queue_size: 100, ..PortOptions::default() };
        assert!(ForwardOptions { ports, ..ForwardOptions::default() }.check().is_err());
    }
}
