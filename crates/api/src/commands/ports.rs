//! The answer to `ports`.

use super::firewall::ConnectionUse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::NeighbourState;
use crate::layout::count;

mod text;

pub use text::{one_line_each, text};

/// The answer to `ports`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ports {
    /// The ports in the configuration's order.
    pub ports: Vec<Port>,
}

/// A port. `rx` counts the packets that the switch receives from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Port {
    /// The port's name in the configuration.
    pub name: String,
    /// The port's kind, as in the configuration.
    pub kind: String,
    /// The state of the link: up if packets can pass.
    pub link: Link,
    /// The reason why the link is down; none while it is up.
    pub reason: Option<String>,
    /// The cause of that reason, as a code that does not change, such as `no-frontend`.
    #[serde(default)]
    pub cause: Option<String>,
    /// The remedy for an operator, in one sentence.
    #[serde(default)]
    pub remedy: Option<String>,
    /// The process of the connected frontend, if it has a number in the switch's PID namespace.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The user of that process: its name in `/etc/passwd` when the switch started, or else its
    /// number.
    #[serde(default)]
    pub user: Option<String>,
    /// Seconds since the link last changed, or since the port was made.
    #[serde(default)]
    pub link_since_s: f64,
    /// The number of times that the link came up or went down since the port was made.
    #[serde(default)]
    pub link_changes: u64,
    /// The last 10 reasons why the link was down, newest last.
    #[serde(default)]
    pub reasons: Vec<DownReason>,
    /// The negotiated features, by name.
    pub features: Vec<String>,
    /// The layout of the rings; none before it is negotiated.
    pub ring: Option<RingKind>,
    /// The number of descriptors in a ring; 0 before the guest has set one up.
    pub ring_size: u32,
    /// The number of mapped regions of guest memory.
    pub regions: u32,
    /// The NUMA nodes of the port's workers, memory and interface; none on a machine with one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<PortNodes>,
    /// The counters of each queue pair.
    pub queues: Vec<Queue>,
    /// The number of packets from or to this port that were dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// True if the guest's notifications take so long that a helper thread sends them. The guest then
    /// learns of packets later. Usually too many descriptors watch an eventfd.
    #[serde(default)]
    pub slow_calls: bool,
    /// The packets that the guest's driver wants to receive, if the driver tells the switch. The
    /// switch does not filter by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_mode: Option<RxMode>,
    /// The MTU: the largest frame has this many bytes and 18 more, or 22 more with two VLAN tags.
    pub mtu: u16,
    /// The MAC address in the configuration. Without one, the address that the port reported to the
    /// guest, if it reads one from the switch.
    pub mac: Option<String>,
    /// The socket's path, if the port has one.
    pub socket: Option<String>,
    /// The side that made the socket: `server` if the switch listens, `client` if it connects,
    /// `given` if a client of the API handed the socket over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The queue pairs of a port that negotiates them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_pairs: Option<QueuePairs>,
    /// The source check: `off`, or `mac` if claims in the port's packets are compared with its
    /// addresses.
    #[serde(default)]
    pub source_check: String,
    /// The patch, bridge or underlay that has the port. None for a port that is in none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Joined>,
    /// The VLANs of a port in a bridge that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans: Option<PortVlans>,
    /// True if the port exchanges packets only with ports of its bridge that are not isolated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// The class of service (DSCP) that IP packets from the port get, as a name such as `af21` or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<String>,
    /// The classes of service whose packets pass before others at the port, as in `dscp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expedited: Vec<String>,
    /// The limit of what comes in from the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_in: Option<PortRate>,
    /// The limit of what goes out to the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_out: Option<PortRate>,
    /// The groups of the port, and its connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<PortGroups>,
    /// True if ports with groups take router advertisements and answers of DHCP from it.
    #[serde(default)]
    pub trusted: bool,
    /// The numbers of addresses behind a port that is in a bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Addresses>,
    /// The name of the interface of a port that has one, open or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// True if the switch makes that interface, and sets its MTU and its offloads.
    #[serde(default)]
    pub makes_interface: bool,
    /// The capabilities that opening that interface takes, such as `CAP_NET_RAW`. `CAP_IPC_LOCK` is
    /// not among them: a higher limit of lockable memory does as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities_needed: Vec<String>,
    /// The packets that an AF_XDP port takes from the host: `all`, or `address` for those of its
    /// underlay's addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<String>,
    /// True if the configuration allows the port to take an interface with a default route from the
    /// host.
    #[serde(default)]
    pub take_default_route: bool,
    /// The open interface of a port that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// The ends of a port that is a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
}

impl Port {
    /// Returns whether the port has a socket, by which a guest's frontend connects.
    #[must_use]
    pub fn has_frontend(&self) -> bool {
        self.socket.is_some()
    }
}

/// A thing of the configuration that connects ports.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The kind.
    pub kind: JoinedKind,
    /// The name.
    pub name: String,
}

/// The kinds of things that connect ports.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JoinedKind {
    /// A patch: two ports.
    Patch,
    /// A bridge.
    Bridge,
    /// An underlay: the port carries the packets of tunnels.
    Underlay,
}

impl JoinedKind {
    /// Returns the word for the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Patch => "patch",
            Self::Bridge => "bridge",
            Self::Underlay => "underlay",
        }
    }
}

/// The VLANs of a port.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortVlans {
    /// The port's part in them.
    pub role: VlanRole,
    /// The VLANs and ranges of VLANs, such as `10,20,100-199`.
    pub vlans: String,
    /// The VLAN of packets without a tag.
    pub untagged: Option<u16>,
    /// True if packets of that VLAN leave with a tag nevertheless.
    #[serde(default)]
    pub native_tagged: bool,
    /// The kind of a trunk's tags: `802.1Q` or `802.1ad`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The priority of packets that come in without a tag.
    #[serde(default)]
    pub priority: u8,
}

/// A port's part in its VLANs.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VlanRole {
    /// Packets without tags, in one VLAN.
    Access,
    /// Packets with tags.
    Trunk,
    /// Packets of a customer, in one VLAN of the provider.
    Customer,
    /// Packets of a tunnel, each in the VLAN of its network identifier.
    Networks,
}

/// The groups of a port, and the use of its share of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortGroups {
    /// The names of the groups, in the order in which their rules are tried.
    pub names: Vec<String>,
    /// The use of its share of connections.
    #[serde(flatten)]
    pub used: ConnectionUse,
}

/// The limit of a port in one direction, and its use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortRate {
    /// The limit as the file has it, such as `1 Gbit/s, 100k packet/s`.
    pub limit: String,
    /// Bits a second; none if they are not limited.
    #[serde(default)]
    pub bits: Option<u64>,
    /// Packets a second.
    #[serde(default)]
    pub packets: Option<u64>,
    /// Bytes that pass at once.
    #[serde(default)]
    pub burst_bytes: Option<u64>,
    /// Packets that pass at once.
    #[serde(default)]
    pub burst_packets: Option<u64>,
    /// The section `[rate.NAME]` that the port shares with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// The owner of the limit: `file`, or `api` if a command has set it until the next reload.
    pub owner: String,
    /// True if packets beyond the limit wait in the ring of the guest; else they are dropped.
    pub waits: bool,
    /// Bytes that have passed, as the limit counts them: a GSO packet counts as its segments.
    pub passed_bytes: u64,
    /// Packets that have passed, counted in the same way.
    pub passed_packets: u64,
    /// Times that packets waited.
    pub wait_count: u64,
    /// Milliseconds of these waits together.
    pub waited_ms: u64,
    /// Packets that were dropped.
    pub dropped: u64,
}

impl PortRate {
    /// Describes the limit and its use: `1 Gbit/s, 12,000 bytes passed, waited 12 times for 340 ms`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut facts = vec![self.limit.clone()];
        facts.extend(self.shared.as_ref().map(|shared| format!("shared as {shared}")));
        if self.owner == "api" {
            facts.push("until the next reload".to_owned());
        }
        facts.push(format!("{} bytes passed", count(self.passed_bytes)));
        if self.wait_count > 0 {
            facts.push(format!("waited {} times for {} ms", count(self.wait_count), count(self.waited_ms)));
        }
        if self.dropped > 0 {
            facts.push(format!("{} packets dropped", count(self.dropped)));
        }
        facts.join(", ")
    }
}

/// The NUMA nodes of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortNodes {
    /// The nodes of the CPUs of its workers, each once.
    pub workers: Vec<usize>,
    /// The nodes of the guest's rings when they started, each once. The guest's buffers are there too
    /// if the VM is bound to a node.
    #[serde(default)]
    pub memory: Vec<usize>,
    /// The node of its interface.
    #[serde(default)]
    pub interface: Option<usize>,
}

impl PortNodes {
    /// Returns the nodes of the memory and of the interface that no worker of the port is on.
    pub fn apart(&self) -> impl Iterator<Item = usize> {
        let all = self.memory.iter().chain(&self.interface).copied();
        all.filter(|node| !self.workers.is_empty() && !self.workers.contains(node))
    }
}

/// The numbers of queue pairs of a port.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairs {
    /// The number in the configuration; none if it leaves the number to the frontend.
    pub offered: Option<u16>,
    /// The number that the guest has enabled.
    pub enabled: u16,
}

/// The ends of a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Tunnel {
    /// The underlay that carries its packets.
    pub underlay: String,
    /// The switch's address.
    pub local: String,
    /// The addresses of the other ends.
    pub remote: Vec<String>,
    /// The network identifier of each VLAN, if the tunnel has several networks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vnis: BTreeMap<u16, u32>,
    /// The address of the next hop to the first remote.
    pub next_hop: Option<String>,
    /// The state of that next hop.
    pub state: Option<NeighbourState>,
    /// The MAC address of another station that has the switch's address too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
    /// Bytes of the headers around a packet inside, outer Ethernet header included.
    pub overhead: u16,
    /// Bytes of the longest IP packet inside that fits the path to each remote.
    pub mtu_inside: u16,
    /// The numbers of addresses behind each of several remotes, in the order of `remote`. Empty if
    /// there is one remote.
    #[serde(default)]
    pub addresses: Vec<Addresses>,
    /// The paths whose MTU a router has told by an ICMP error, each for ten minutes.
    #[serde(default)]
    pub path_mtus: Vec<PathMtu>,
    /// ICMP errors about packets that are too long which their senders did not get, because of the
    /// limit for each second.
    #[serde(default)]
    pub errors_refused: u64,
}

/// The MTU of the path to a remote, as a router has told it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PathMtu {
    /// The address of the remote.
    pub remote: String,
    /// Bytes of the longest packet, headers of the tunnel included.
    pub mtu: u16,
}

/// The open interface of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Device {
    /// The interface's name.
    pub interface: String,
    /// The name of its driver; empty if the kernel does not tell.
    pub driver: String,
    /// The mode: `native` or `generic` for AF_XDP.
    pub mode: String,
    /// True if the kernel copies no packets.
    pub zero_copy: bool,
    /// The number of open queues.
    pub queues: u16,
    /// The interface's MTU.
    pub mtu: u32,
    /// The interface's MAC address.
    pub mac: String,
    /// The packets that the kernel has dropped for this port, by the kernel's names. The names of a
    /// tap's counters are the host's: `tx_dropped` counts packets that the host sent and the switch
    /// did not read in time.
    pub kernel_drops: BTreeMap<String, u64>,
    /// Findings that do not stop the port, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The offloads of both directions, by the names of virtio's features.
    #[serde(default)]
    pub offloads: Vec<String>,
}

impl Device {
    /// Returns whether the packets pass the driver's hook for XDP, or the kernel's generic one.
    #[must_use]
    pub fn uses_xdp(&self) -> bool {
        self.mode == "native" || self.is_generic()
    }

    /// Returns whether the packets pass the kernel's generic hook for XDP.
    #[must_use]
    pub fn is_generic(&self) -> bool {
        self.mode == "generic"
    }
}

/// A reason why a link was down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DownReason {
    /// The last time at which the reason held, in seconds since the epoch.
    pub time: f64,
    /// The reason, in one sentence.
    pub reason: String,
}

/// The numbers of addresses that a bridge has learned at a port, or a tunnel behind a remote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Addresses {
    /// The number of addresses that the bridge knows.
    pub learned: u32,
    /// The number of times that the bridge could not learn an address, because the port has filled
    /// its share of the table.
    pub refused: u64,
}

/// The packets that a driver wants to receive (virtio 1.2, 5.1.6.5.1 to 3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RxMode {
    /// All frames.
    pub promiscuous: bool,
    /// All multicast frames.
    pub all_multicast: bool,
    /// All unicast frames.
    pub all_unicast: bool,
    /// No multicast frames.
    pub no_multicast: bool,
    /// No unicast frames.
    pub no_unicast: bool,
    /// No broadcast frames.
    pub no_broadcast: bool,
    /// The guest's own address, if the driver has set one.
    pub mac: Option<String>,
    /// Further unicast addresses.
    pub unicast: Vec<String>,
    /// Multicast addresses.
    pub multicast: Vec<String>,
    /// VLANs.
    pub vlans: Vec<u16>,
}

/// The state of a port's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// Packets can pass.
    Up,
    /// Packets cannot pass.
    #[default]
    Down,
}

/// The layouts of a ring (virtio 1.2, 2.7 and 2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RingKind {
    /// Separate areas: descriptors, available ring, used ring.
    Split,
    /// A single ring.
    Packed,
}

/// The counters of a queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Queue {
    /// The index of the pair, from 0.
    pub index: u16,
    /// Packets from the guest.
    pub rx: Packets,
    /// Packets to the guest.
    pub tx: Packets,
    /// Notifications sent to the guest, for both rings.
    #[serde(default)]
    pub calls_sent: u64,
    /// Notifications repeated because the guest's driver did not react, for both rings. They are
    /// not counted in `calls_sent`.
    #[serde(default)]
    pub calls_repeated: u64,
    /// Notifications that were not sent: the guest did not want one, or one notification covered
    /// several packets.
    #[serde(default)]
    pub calls_suppressed: u64,
    /// The old name of `calls_sent`.
    #[cfg_attr(test, schemars(extend("deprecated" = true)))]
    pub kicks_sent: u64,
    /// The old name of `calls_suppressed`.
    #[cfg_attr(test, schemars(extend("deprecated" = true)))]
    pub kicks_suppressed: u64,
    /// The worker that receives from the guest's transmit ring, as an index into the answer to
    /// `runtime`.
    #[serde(default)]
    pub rx_worker: Option<usize>,
    /// The worker that owns the guest's receive ring. Other workers deliver there while no ring of
    /// their own is enabled.
    #[serde(default)]
    pub tx_worker: Option<usize>,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Packets {
    /// The number.
    pub packets: u64,
    /// The sum of the packets' lengths, from the Ethernet header on.
    pub bytes: u64,
}
