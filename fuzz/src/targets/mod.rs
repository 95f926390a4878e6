//! All targets, and the inputs that tests give them.

mod api;
mod bridge_groups;
mod bridge_tags;
mod classify;
mod coalescing;
mod config;
mod decap;
mod device_packets;
mod drivers;
mod firewall_rules;
mod flow_actions;
mod flows;
mod multicast_messages;
mod neighbours;
mod packed_device;
mod packet;
mod split_device;
mod tunnel_headers;
mod vhost_user;

/// Code that takes input from outside, and checks what comes of it.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name, also that of the folder of its seeds.
    pub name: &'static str,
    /// Runs one input. Panics if an invariant does not hold.
    pub run: fn(&[u8]),
    /// Places that the seeds must reach. A seed that no longer reaches its place tests something else.
    pub must_reach: &'static [&'static str],
}

/// A target of the module with this name.
macro_rules! target {
    ($name:ident, [$($place:literal),* $(,)?]) => {
        Target { name: stringify!($name), run: $name::fuzz, must_reach: &[$($place),*] }
    };
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target!(api, ["an answer", "an error", "a stream"]),
    target!(
        bridge_groups,
        [
            "a query",
            "a report",
            "a report that is pulled up",
            "a report that is too long",
            "a leave",
            "a damaged message",
            "a packet that goes to all",
            "a packet that is pruned"
        ]
    ),
    target!(
        bridge_tags,
        [
            "a tag that was pushed",
            "a tag that was popped",
            "a tag that was written",
            "three tags",
            "a frame for several ports",
            "a frame that is cut",
            "a frame with a length",
            "a checksum that moved"
        ]
    ),
    target!(classify, ["a rule", "a rule behind a dead one", "a rule that was added", "a key without a rule"]),
    target!(
        coalescing,
        [
            "three packets that are one",
            "packets that are one, with bodies",
            "packets that are one, and another",
            "packets that are left alone",
            "UDP with a checksum where TCP has it",
            "packets with finished checksums that are one",
            "packets with one identification that are one",
            "datagrams that are one",
            "a wrong checksum"
        ]
    ),
    target!(config, ["a port", "a bridge", "an error"]),
    target!(
        decap,
        [
            "l2tpv3",
            "vxlan",
            "geneve",
            "gre",
            "nvgre",
            "vxlan-gpe",
            "gtpu",
            "mpls-udp",
            "an answer",
            "a packet that is used",
            "a packet that is dropped"
        ]
    ),
    target!(device_packets, ["a packet", "a large packet", "a segment", "a packet that is refused"]),
    target!(drivers, ["a packed driver's wrap", "a packed chain that came back", "a split chain that came back"]),
    target!(
        firewall_rules,
        [
            "a rule",
            "a flow",
            "a rule of the network",
            "a rule that decides",
            "a flow without a rule",
            "an answer without a connection",
            "an unknown name"
        ]
    ),
    target!(
        flow_actions,
        [
            "a packet that was sent",
            "a packet that was changed",
            "a packet that was dropped",
            "a checksum that is left to others"
        ]
    ),
    target!(flows, ["a flow", "a meter", "a transaction", "a transaction that fails"]),
    target!(
        multicast_messages,
        [
            "a query of IGMP",
            "a query of IGMPv3",
            "a query of IGMP with too many sources",
            "a report of IGMP",
            "a report of IGMPv3",
            "a record that is too long",
            "a leave of IGMP",
            "a query of MLD",
            "a query of MLDv2",
            "a report of MLD",
            "a report of MLDv2",
            "a leave of MLD",
            "a router alert",
            "a hello of PIM"
        ]
    ),
    target!(
        neighbours,
        [
            "a question",
            "an answer",
            "another address",
            "a next hop that is gone",
            "an answer of ARP",
            "an advertisement",
            "an echo over IPv4",
            "an echo over IPv6"
        ]
    ),
    target!(
        packed_device,
        [
            "a packed ring's wrap",
            "a chain of a packed ring",
            "an indirect table of a packed ring",
            "a packet in several buffers of a packed ring"
        ]
    ),
    target!(packet, ["a packet that was cut", "a checksum that was finished", "a header that is refused"]),
    target!(
        split_device,
        [
            "a chain of a split ring",
            "an indirect table of a split ring",
            "a packet in several buffers of a split ring",
            "a notification"
        ]
    ),
    target!(
        tunnel_headers,
        [
            "L2TPv3 over IP",
            "L2TPv3 over UDP",
            "VXLAN",
            "VXLAN-GPE with IP",
            "Geneve",
            "a critical option of Geneve",
            "an option of Geneve that is too long",
            "GRE with all fields",
            "GTP-U",
            "GTP-U with an extension",
            "the bottom of a stack of labels",
            "fragmentation needed",
            "packet too big"
        ]
    ),
    target!(
        vhost_user,
        [
            "a memory table",
            "a region removed",
            "a ring that is ready",
            "a ring stopped",
            "a reset",
            "a message that was parsed"
        ]
    ),
];
