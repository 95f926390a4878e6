//! Reasons for dropped packets, and their counters: one for each reason, for each port.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $remedy:literal;)+) => {
        /// The reason why a packet was dropped. Operators see its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[doc = $doc])+ $variant,)+ }

        impl Reason {
            /// All reasons, in the order of their indexes.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)+];

            /// Returns the name that operators see.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name,)+ }
            }

            /// Returns what the reason means, in one sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Reason::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }

            /// Returns what an operator can do about it, in one sentence.
            pub fn remedy(self) -> &'static str {
                match self { $(Reason::$variant => $remedy,)+ }
            }
        }
    };
}

reasons! {
    /// The destination had no free buffer: a guest not even at the second try.
    NoBuffer = "no-buffer",
        "Give the guest more CPU time, longer rings or more queues, or use `full = \"wait\"` in a patch.";
    /// The packet is longer than the port's MTU and its Ethernet header with tags, or than any port
    /// can carry.
    TooBig = "too-big", "Set the same MTU in the guests and, as `mtu`, on all ports between them.";
    /// The packet is shorter than an Ethernet header.
    Runt = "runt", "Look for a fault in the sending guest's driver or program.";
    /// The link of the destination port is down.
    LinkDown = "link-down", "Find out with `straightline ports` why that link is down.";
    /// An administrator has set the port's link down.
    SetDown = "set-down", "Set the link up again with `straightline link PORT up`.";
    /// The ring is set up, but the frontend has disabled it.
    RingDisabled = "ring-disabled", "Wait until the guest's driver runs, or enable the queue in the guest.";
    /// The port is in no patch and no bridge.
    NotConnected = "not-connected", "Add the port to a patch or bridge in the configuration, and reload.";
    /// The destination address is behind the port that the packet came from.
    SamePort = "same-port", "Nothing needs to be done, unless the guest bridges packets back by mistake.";
    /// The source address is all zeros, multicast or broadcast, which no station has.
    BadSource = "bad-source", "Give the sending guest's interface a unicast MAC address.";
    /// The packet claims an address that `source-check` of its port does not allow, hides its claims,
    /// or asks a DHCP server for another station.
    Spoofed = "spoofed",
        "If the guest may use the address, add it to `mac`, `allowed-macs` or `allowed-ips` of its port.";
    /// The destination address (01:80:c2:00:00:00 to 0f) is for the next bridge only, as in
    /// spanning tree.
    LinkLocal = "link-local", "Nothing needs to be done; use a patch if such packets must pass, or `qinq` for those of \
        a customer's bridges.";
    /// The port is not in the VLAN of the packet, or takes no packets with such a tag or without one.
    VlanNotAllowed = "vlan-not-allowed",
        "Compare `vlan`, `trunk` and `native-vlan` of the port, and `vnis` and `inner-tags` of a tunnel, with the tags \
         that its guest or switch sends.";
    /// The packet would leave without a tag of its VLAN, and begins with a tag from inside, which would
    /// lead it into another VLAN.
    NestedTag = "nested-tag", "If these are the tags of a customer, make the port `qinq`, or set `native = \"tagged\"` \
        of the trunk.";
    /// Both ports are `isolated`.
    Isolated = "isolated", "Nothing needs to be done, unless both ports shall reach each other: remove one `isolated`.";
    /// No other port of the bridge takes the packet: no other port is in its VLAN, for example.
    NoReceiver = "no-receiver", "Add another port to the VLAN, or look for a misspelled `vlan`.";
    /// The port has as many stations as `mac-limit` allows, and this is another one.
    MacLimit = "mac-limit", "Raise `mac-limit` of the port, or find out who uses further addresses behind it.";
    /// The port sends more packets to many stations than `storm` allows; a GSO packet counts as its segments.
    Storm = "storm", "Look for a loop behind the port or for a guest that scans, or raise `storm` of the port.";
    /// The port sends or gets more than its `rate-in` or `rate-out` lets pass, and it has no ring in which
    /// packets could wait.
    Rate = "rate", "Nothing needs to be done, unless the limit is too low: raise it, or its `burst`, for the port.";
    /// The source address has moved too often and stays at another port, or floods pause for such an address.
    Loop = "loop", "Look for a second way between both networks, or for a guest that claims the address of another.";
    /// No other port has joined the packet's multicast group, as far as the bridge's snooping knows.
    NotJoined = "not-joined",
        "Nothing needs to be done, unless a guest misses packets: look at `straightline table snooping:BRIDGE`.";
    /// No flow of the bridge's tables matches the packet.
    NoFlow = "no-flow", "Add a flow of low priority, such as `priority=0,actions=normal`, if such packets shall pass.";
    /// The actions of the packet's flows end without an output.
    FlowDrop = "flow-drop",
        "Find out with `straightline flow trace BRIDGE` which flows drop the packet, if it shall pass.";
    /// The packet's flows resubmit it more often, or deeper, than flow tables allow.
    FlowLimit = "flow-limit", "Look for flows that resubmit packets to their own table, or to an earlier one.";
    /// The time to live of a packet has run out at `dec_ttl`.
    FlowTtl = "flow-ttl", "Look for a loop between routers, or let the sender use a greater time to live.";
    /// A packet exceeds the rate of a meter.
    FlowMeter = "flow-meter", "Nothing needs to be done, unless the meter's rate is too low: raise it.";
    /// A flow table needs headers of the packet that lie behind its first 512 bytes, or cannot change
    /// them there.
    FlowHeaders = "flow-headers", "Look for a sender of packets with very long IPv6 extension headers.";
    /// No rule of the port's groups allows the packet, or a rule denies it.
    Denied = "denied", "Find the rule with `straightline firewall explain`, and add another to a group of the port.";
    /// The packet was sent to many stations, or looks for a router, and no rule of the port's groups allows it.
    Unsolicited = "unsolicited",
        "Nothing needs to be done, unless the guest waits for such packets: add a rule to a group of the port.";
    /// The packet would begin a connection, and the port's share of connections, or of new ones in a
    /// second, is full.
    ConnectionsFull = "connections-full",
        "Find out with `straightline connections` who holds so many, or raise `connections` of the port.";
    /// The packet belongs to no connection, or its state or sequence numbers do not fit.
    Invalid = "invalid", "Nothing needs to be done, unless connections break: look for a second way between both ends.";
    /// The packet is not whole, or hides its headers from the groups or the VLAN of the port, such as
    /// behind five priority tags.
    Hidden = "hidden", "Look for a fault in the sending guest, or for an attack by it.";
    /// A fragment came without its first one, or too late, or overlaps another.
    FragmentRefused = "fragment-refused",
        "Set the same MTU in the guests, so that packets are not sent in fragments.";
    /// The port sends more ARP in a second than its `message-limit` allows.
    ArpLimit = "arp-limit", "Look for a guest that scans its network, or raise `message-limit` of the port, for a router.";
    /// The port sends more neighbour discovery in a second than its `message-limit` allows, or more than 10
    /// messages to addresses that nobody has named.
    DiscoveryLimit = "discovery-limit",
        "Look for a guest that scans its network by IPv6, or raise `message-limit` of the port, for a router.";
    /// The port sends more messages of IGMP and MLD in a second than its `message-limit` allows.
    GroupLimit = "group-limit", "Look for a guest that joins groups again and again, or raise `message-limit` of the port.";
    /// ARP, neighbour discovery, IGMP or MLD that needs no rule is longer than hosts make it, or goes to an
    /// address that it should not.
    MessageForm = "message-form", "Look for a guest that hides data in such messages, or for a fault in its programs.";
    /// A node that the program brings, such as a filter, dropped the packet.
    Node = "node", "Check the settings of the nodes that ports name in `nodes` or `egress-nodes`.";
    /// A descriptor names memory that the guest does not have.
    BadAddress = "bad-address", "Look for a fault in the guest's driver, or for an attack by the guest.";
    /// A descriptor is writable where it must be readable, or the other way round.
    BadDirection = "bad-direction", "Check that the guest's driver follows the virtio specification.";
    /// An indirect table is empty, too long or nested, or its length is no multiple of a descriptor.
    BadIndirect = "bad-indirect", "Turn off indirect descriptors in the guest or its frontend, or update the driver.";
    /// A descriptor chain is shorter than the virtio-net header.
    ShortChain = "short-chain", "Update the guest's driver: it sends packets without their virtio-net header.";
    /// A descriptor chain holds more bytes than a packet can have.
    LongChain = "long-chain", "Update the guest's driver: it sends chains of more than 64 KiB.";
    /// The virtio-net header asks for an offload that does not exist or was not negotiated.
    BadHeader = "bad-header", "Update the guest's driver, or turn off checksum and segmentation offload in the guest.";
    /// The virtio-net header puts the start or the field of the checksum outside the packet, or the start
    /// into its Ethernet header or tags.
    ChecksumRange = "checksum-range", "Turn off transmit checksum offload in the guest, or update its driver.";
    /// The checksum field lies behind the first 256 bytes of the packet.
    ChecksumDepth = "checksum-depth", "Turn off transmit checksum offload for packets with such long headers.";
    /// The segment size is zero, too small for a segment, or above what the port can carry.
    SegmentSize = "segment-size", "Set the guest's MTU to at most the `mtu` of its port.";
    /// The headers of a packet to be segmented are incomplete or of an unknown protocol.
    SegmentHeaders = "segment-headers", "Turn off segmentation offload in the guest for the tunnel or protocol in use.";
    /// The receiving guest's buffer is too small, and its driver cannot merge buffers.
    BufferTooSmall = "buffer-too-small", "Turn on mergeable receive buffers (`mrg_rxbuf`) for the receiving guest.";
    /// The receiving guest's buffers are too small, or have too many descriptors, for one turn.
    ManyDescriptors = "many-descriptors", "Give the receiving guest larger buffers, or update its driver.";
    /// The packet is control of a link, such as PAUSE, and would reach an interface of this machine from
    /// another port.
    MacControl = "mac-control",
        "Turn off flow control of the guest's interface, or look for an attack by the guest.";
    /// The kernel refused the packet: it is not valid for the interface.
    DeviceRefused = "device-refused",
        "Look for a fault in the sending guest's driver, or turn off its checksum and segmentation offload.";
    /// The packet came to an underlay, and is neither for one of its addresses nor of a tunnel.
    NotOurs = "not-ours", "Nothing needs to be done, unless a tunnel is expected: compare its addresses at both ends.";
    /// The underlay or tunnel answers a limited number of packets, of each sender and of all, and this
    /// one came beyond.
    AnswerLimit = "answer-limit",
        "Find out who sends so many ARP, neighbour discovery, echo requests or ICMP errors to the port.";
    /// The next hop of a tunnel's remote has not answered yet.
    NoNeighbour = "no-neighbour", "Find out with `straightline neighbours` which next hop does not answer.";
    /// No tunnel has the addresses and the key of an encapsulated packet.
    TunnelUnknown = "tunnel-unknown", "Compare the addresses and the key of the tunnel at both ends.";
    /// The header of a tunnel is truncated, or its fields are not valid.
    TunnelHeader = "tunnel-header", "Look for a fault in the remote's tunnel, or set the same version at both ends.";
    /// The header of a tunnel has an option that the receiver must know, and does not.
    TunnelOption = "tunnel-option", "Turn off the option at the remote.";
    /// The packet is a message about a tunnel itself, not a packet of its inside.
    TunnelControl = "tunnel-control",
        "Turn off control messages and monitoring of the tunnel at the remote: tunnels here are static.";
    /// The packet has another cookie than the tunnel.
    TunnelCookie = "tunnel-cookie", "Set the same cookie at both ends, or look for an attacker.";
    /// The outer checksum is wrong, or absent where it must be there.
    TunnelChecksum = "tunnel-checksum", "Look for damaged packets on the way, or let the remote send checksums.";
    /// The outer header has a congestion mark that the inner packet cannot carry (RFC 6040, 4.2).
    TunnelEcn = "tunnel-ecn", "Turn off congestion marks (ECN) on the way, or let the inner senders use them.";
    /// The kernel or a guest has left several packets of a tunnel together as one large UDP packet.
    TunnelCoalesced = "tunnel-coalesced",
        "Run `ethtool -K INTERFACE rx-udp-gro-forwarding off` for the interface under the underlay.";
    /// The packet is neither IPv4 nor IPv6 without a VLAN tag, and the tunnel carries nothing else.
    NotIp = "not-ip", "Use a kind of tunnel that carries Ethernet, or turn off the other protocol in the guests.";
    /// The space in front of the packet is too small for the headers of a tunnel.
    NoHeadroom = "no-headroom", "Send fewer `options` by the tunnel, or put fewer bytes in front of packets in nodes.";
    /// An encapsulated packet came in fragments.
    Fragment = "fragment", "Set the MTU of the underlay and of the remote so that no packet is fragmented.";
    /// Guest memory vanished while the packet was copied.
    MemoryFault = "memory-fault", "Find out who truncates the file of the guest's memory: usually its frontend ended.";
}

impl Reason {
    /// Returns whether the packet is counted at the port that it went to. Otherwise it is counted at the
    /// port that it came from.
    pub fn is_of_destination(self) -> bool {
        match self {
            Reason::NoBuffer
            | Reason::TooBig
            | Reason::LinkDown
            | Reason::SetDown
            | Reason::RingDisabled
            | Reason::BufferTooSmall
            | Reason::ManyDescriptors
            | Reason::DeviceRefused
            | Reason::NoNeighbour
            | Reason::NotIp
            | Reason::NoHeadroom
            | Reason::MemoryFault => true,
            Reason::Runt
            | Reason::NotConnected
            | Reason::SamePort
            | Reason::BadSource
            | Reason::Spoofed
            | Reason::LinkLocal
            | Reason::VlanNotAllowed
            | Reason::NestedTag
            | Reason::MacControl
            | Reason::Isolated
            | Reason::NoReceiver
            | Reason::MacLimit
            | Reason::Storm
            | Reason::Rate
            | Reason::Loop
            | Reason::NotJoined
            | Reason::NoFlow
            | Reason::FlowDrop
            | Reason::FlowLimit
            | Reason::FlowTtl
            | Reason::FlowMeter
            | Reason::FlowHeaders
            | Reason::Denied
            | Reason::Unsolicited
            | Reason::ConnectionsFull
            | Reason::Invalid
            | Reason::Hidden
            | Reason::FragmentRefused
            | Reason::ArpLimit
            | Reason::DiscoveryLimit
            | Reason::GroupLimit
            | Reason::MessageForm
            | Reason::Node
            | Reason::BadAddress
            | Reason::BadDirection
            | Reason::BadIndirect
            | Reason::ShortChain
            | Reason::LongChain
            | Reason::BadHeader
            | Reason::ChecksumRange
            | Reason::ChecksumDepth
            | Reason::SegmentSize
            | Reason::SegmentHeaders
            | Reason::NotOurs
            | Reason::AnswerLimit
            | Reason::TunnelUnknown
            | Reason::TunnelHeader
            | Reason::TunnelOption
            | Reason::TunnelControl
            | Reason::TunnelCookie
            | Reason::TunnelChecksum
            | Reason::TunnelEcn
            | Reason::TunnelCoalesced
            | Reason::Fragment => false,
        }
    }
}

/// The drop counters of one port: one for each [`Reason`]. Workers write them and any thread reads
/// them, without a lock. They have cache lines of their own, because other workers write the
/// counters of other ports.
#[derive(Debug)]
#[repr(align(128))]
pub struct Drops([AtomicU64; Reason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Drops([const { AtomicU64::new(0) }; Reason::ALL.len()])
    }
}

impl Drops {
    /// Counts `n` dropped packets.
    #[inline]
    pub fn add(&self, reason: Reason, n: u64) {
        self.0[reason as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Rolls back the count of one packet, which a later turn receives again.
    pub(crate) fn roll_back(&self, reason: Reason) {
        self.0[reason as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of packets dropped for `reason`.
    pub fn count(&self, reason: Reason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    /// Returns the reasons with at least one dropped packet, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.iter().map(|&r| (r, self.count(r))).filter(|&(_, n)| n > 0)
    }

    /// Adds the counts of `other`.
    pub fn absorb(&self, other: &Drops) {
        other.nonzero().for_each(|(reason, n)| self.add(reason, n));
    }

    /// Returns the number of packets dropped for any reason.
    pub fn total(&self) -> u64 {
        Reason::ALL.iter().map(|&r| self.count(r)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_follow_the_order_of_all() {
        for (i, &r) in Reason::ALL.iter().enumerate() {
            assert_eq!(r as usize, i);
        }
    }

    #[test]
    fn names_meanings_and_remedies_are_unique() {
        for text in [Reason::name, Reason::meaning, Reason::remedy] {
            let mut texts: Vec<_> = Reason::ALL.iter().map(|&r| text(r)).collect();
            texts.sort_unstable();
            texts.dedup();
            assert_eq!(texts.len(), Reason::ALL.len());
        }
    }

    #[test]
    fn meanings_and_remedies_are_sentences() {
        for &reason in Reason::ALL {
            for text in [reason.meaning(), reason.remedy()] {
                assert!(text.starts_with(|c: char| c.is_ascii_uppercase()), "{text}");
                assert!(text.ends_with('.') && !text.contains(". ") && !text.contains("  "), "one sentence: {text}");
                assert!(text.split(' ').count() <= 25, "{text}");
            }
        }
    }
}
