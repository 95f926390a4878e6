//! The types of the answers, with the field names that scripts rely on.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// The MTU: the largest frame has this many bytes and 18 more.
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
    /// The numbers of addresses behind a port that is in a bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Addresses>,
    /// The name of the interface of a port that has one, open or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
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

/// The answer to `neighbours`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Neighbours {
    /// The next hops of all underlays.
    pub neighbours: Vec<Neighbour>,
    /// The switch's own addresses.
    #[serde(default)]
    pub addresses: Vec<OwnAddress>,
}

/// An address of an underlay: the switch's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OwnAddress {
    /// The underlay.
    pub underlay: String,
    /// The IP address.
    pub ip: String,
    /// The MAC address of another station that has the address too; of several the first one.
    pub conflict: Option<String>,
    /// Seconds since that station last said so. After 30 seconds of silence, the conflict ends.
    pub age_s: Option<u32>,
    /// The number of times that other stations said that they have the address.
    pub claims: u64,
}

/// A next hop of an underlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Neighbour {
    /// The underlay.
    pub underlay: String,
    /// The IP address.
    pub ip: String,
    /// The MAC address, if it is known.
    pub mac: Option<String>,
    /// The state.
    pub state: NeighbourState,
    /// Seconds since its last answer; none before the first one, and for a static entry.
    pub age_s: Option<u32>,
}

/// The states of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum NeighbourState {
    /// It was asked for its MAC address, and has not answered yet.
    Asked,
    /// It has answered.
    Reachable,
    /// It has not answered for so long that it counts as gone.
    Unanswered,
    /// The configuration fixes its MAC address.
    Static,
}

impl NeighbourState {
    /// Returns the word for the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Reachable => "reachable",
            Self::Unanswered => "unanswered",
            Self::Static => "static",
        }
    }
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

/// The answer to `runtime`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Runtime {
    /// The use of each worker's time.
    pub workers: Vec<Worker>,
    /// The nodes of all workers, in the order in which packets pass them.
    pub nodes: Vec<Node>,
}

/// The use of a worker's time. The four times add up to the time since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Worker {
    /// The CPU to which the worker is pinned; none if it is not pinned.
    pub cpu: Option<usize>,
    /// Seconds in turns that moved packets.
    pub busy_s: f64,
    /// Seconds in turns that found no packets.
    pub empty_poll_s: f64,
    /// Seconds asleep.
    pub idle_s: f64,
    /// Seconds that are in none of the other three times.
    pub unexplained_s: f64,
    /// The number of turns, empty ones included.
    pub turns: u64,
    /// Bytes of bodies that were copied; every copy counts.
    #[serde(default)]
    pub bodies_copied_bytes: u64,
    /// Bytes of bodies that were delivered. With one copy of each body, this equals the number of
    /// copied bytes.
    #[serde(default)]
    pub bodies_delivered_bytes: u64,
}

/// The counters of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Node {
    /// The name.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// The number of packets that the node was given.
    pub packets: u64,
    /// The mean number of packets in a call; 0 without a call.
    pub packets_per_call: f64,
    /// The mean number of cycles for a packet; 0 without a packet.
    pub cycles_per_packet: f64,
    /// The number of cycles in these calls.
    #[serde(default)]
    pub cycles: u64,
    /// The node's worker, as an index into `workers`: each worker of a patch or bridge has nodes of
    /// its own. None for nodes that are gone.
    #[serde(default)]
    pub worker: Option<usize>,
}

impl Node {
    /// Computes the means. They are 0 where the divisor is 0, since JSON has no NaN.
    #[must_use]
    pub fn new(name: impl Into<String>, calls: u64, packets: u64, cycles: u64) -> Self {
        Self {
            name: name.into(),
            calls,
            packets,
            packets_per_call: ratio(packets, calls),
            cycles_per_packet: ratio(cycles, packets),
            cycles,
            worker: None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean that people read needs no more than 53 bits")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The answer to `history`: the traffic of the last two minutes, as counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct History {
    /// The times at which the switch looked at its counters, about one each second, in seconds since
    /// the epoch, oldest first.
    pub times: Vec<f64>,
    /// The ports, by name.
    pub ports: Vec<PortHistory>,
}

/// The counters of a port at the last of the history's times. A port that is newer than the first of
/// them has fewer values. The counters of a port that was made anew begin again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortHistory {
    /// The port.
    pub name: String,
    /// Bytes that the switch had received from the port.
    pub rx_bytes: Vec<u64>,
    /// Bytes that the switch had delivered to the port.
    pub tx_bytes: Vec<u64>,
}

/// The answer to `drops`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Drops {
    /// The count of each port and reason that is not 0.
    pub drops: Vec<DropCount>,
}

/// The packets dropped at a port for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DropCount {
    /// The port.
    pub port: String,
    /// The reason.
    pub reason: String,
    /// The number.
    pub count: u64,
    /// The meaning of the reason, in one sentence.
    #[serde(default)]
    pub meaning: String,
    /// The remedy for an operator, in one sentence.
    #[serde(default)]
    pub remedy: String,
}

/// The answer to `fdb`: the forwarding databases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fdb {
    /// The addresses that the bridges know.
    pub entries: Vec<FdbEntry>,
    /// The addresses that tunnels with several remotes know.
    #[serde(default)]
    pub remotes: Vec<RemoteEntry>,
}

/// An address that a tunnel with several remotes knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemoteEntry {
    /// The tunnel's port.
    pub port: String,
    /// The address.
    pub mac: String,
    /// The remote behind which the address is.
    pub remote: String,
    /// Seconds since the address was last seen as a source; 0 for a static entry.
    pub age_s: f64,
    /// True if the configuration names the address.
    #[serde(rename = "static")]
    pub is_static: bool,
}

/// An address that a bridge knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FdbEntry {
    /// The bridge.
    pub bridge: String,
    /// The address.
    pub mac: String,
    /// The port behind which the address is.
    pub port: String,
    /// Seconds since the address was last seen as a source; 0 for a static entry.
    pub age_s: f64,
    /// True if the configuration names the address.
    #[serde(rename = "static")]
    pub is_static: bool,
}

/// The answer to `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Status {
    /// The version of the switch.
    pub version: String,
    /// The version of the API: [`crate::API_VERSION`] of the switch. 0 for a switch that is older than
    /// this field.
    #[serde(default)]
    pub api_version: u32,
    /// Seconds since the switch started.
    pub uptime_s: f64,
    /// The instruction set of copies and checksums, or `libc` or `movsb` if one of those copies.
    pub simd: String,
    /// The number of workers.
    pub workers: usize,
    /// The number of ports whose link is up.
    pub ports_up: usize,
    /// The number of ports.
    pub ports: usize,
    /// The mechanisms that confine the process: `capabilities`, `landlock`, `seccomp`.
    #[serde(default)]
    pub sandbox: Vec<String>,
    /// The privileges of this process, of the opener process and of the process that makes sockets,
    /// as far as there are such.
    #[serde(default)]
    pub privileges: Vec<Privileges>,
    /// The number of system calls that the sandbox has refused: a fault of the switch, or an
    /// attack.
    #[serde(default)]
    pub refused_calls: u64,
    /// The number of clients that the API has refused, because their user or all users together had
    /// as many connections as possible.
    #[serde(default)]
    pub api_refused_clients: u64,
    /// The number of threads of the API that a client holds now, by a descriptor that does not
    /// close.
    #[serde(default)]
    pub api_held_threads: usize,
    /// The way in which guests are notified: [`Self::AIO`] or [`Self::HELPER_THREAD`].
    #[serde(default)]
    pub notifications: String,
    /// The number of turns that took longer than 100 ms, by worker and by the port that it served.
    /// Empty if there were none.
    #[serde(default)]
    pub stalls: Vec<Stalls>,
    /// The number of workers that are in a turn of more than 100 ms now.
    #[serde(default)]
    pub workers_stalled: usize,
    /// The number of descriptors that the process can still open; none where there is no `/proc`.
    #[serde(default)]
    pub fds_free: Option<u64>,
    /// The configuration file; none for a switch that was not started from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationFile>,
    /// The number of moves of each bridge, in the configuration's order.
    #[serde(default)]
    pub moves: Vec<BridgeMoves>,
}

/// The configuration file of a running switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigurationFile {
    /// The absolute path.
    pub path: String,
    /// True if the file has another text than the one that was applied last, at the start or by a
    /// reload. None if the switch cannot read it.
    pub changed: Option<bool>,
}

/// The moves of addresses in a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BridgeMoves {
    /// The bridge.
    pub bridge: String,
    /// The number of times that an address moved from one port to another, since the bridge was
    /// made.
    pub count: u64,
}

/// The privileges of a process of the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Privileges {
    /// The process: [`Self::SWITCH`], [`Self::OPENER`] or [`Self::SOCKETS`].
    pub process: String,
    /// Its process id.
    pub pid: u32,
    /// False if the process has ended. Interfaces that are open stay open without the opener
    /// process, and so do sockets without the process that made them.
    pub running: bool,
    /// The names of its capabilities.
    pub capabilities: Vec<String>,
    /// True if a filter of system calls confines it.
    pub seccomp: bool,
    /// True if Landlock confines its access to files.
    pub landlock: bool,
}

impl Privileges {
    /// The switch itself, which has the workers and the API.
    pub const SWITCH: &str = "switch";
    /// The process that opens network interfaces.
    pub const OPENER: &str = "opener";
    /// The process that makes sockets for other users.
    pub const SOCKETS: &str = "sockets";
}

/// The number of stalls of a worker at a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stalls {
    /// The worker, as an index into `workers` of `runtime`.
    pub worker: usize,
    /// The port, or the node by its name in `runtime`. Empty if the worker served neither.
    pub port: String,
    /// The number of turns.
    pub count: u64,
}

impl Status {
    /// Workers notify guests themselves, by asynchronous requests to the kernel, which never block.
    pub const AIO: &str = "aio";
    /// A helper thread for each port notifies the guest, which costs more: the kernel had no
    /// context for asynchronous requests (`fs.aio-max-nr`) when the switch started.
    pub const HELPER_THREAD: &str = "helper-thread";
}

/// The answer to a command that has nothing to tell: it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Done {}

/// The answer to `reload`: the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Changes {
    /// The changes: ports first, then underlays, patches, bridges and nodes. Empty if the configuration is the
    /// same as before.
    pub changes: Vec<Change>,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    /// The kind of thing that changed.
    pub kind: ChangeKind,
    /// The name.
    pub name: String,
    /// The kind of change.
    pub change: Changed,
    /// Details in words; may be empty.
    pub detail: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ChangeKind::Port => "port",
            ChangeKind::Underlay => "underlay",
            ChangeKind::Patch => "patch",
            ChangeKind::Bridge => "bridge",
            ChangeKind::Node => "node",
        };
        let change = match self.change {
            Changed::Added => "added",
            Changed::Removed => "removed",
            Changed::Remade => "made anew",
            Changed::Moved => "moved",
            Changed::Changed => "changed",
        };
        let colon = if self.detail.is_empty() { "" } else { ": " };
        write!(f, "{kind} {:?} {change}{colon}{}", self.name, self.detail)
    }
}

/// The kinds of things that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// A port.
    Port,
    /// An underlay.
    Underlay,
    /// A patch.
    Patch,
    /// A bridge.
    Bridge,
    /// A node (`[node.NAME]`).
    Node,
}

/// The kinds of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Changed {
    /// The thing is new.
    Added,
    /// The thing is gone.
    Removed,
    /// The port was taken down and made anew: its guest must connect again.
    Remade,
    /// The port joined something else, and its guest stayed connected.
    Moved,
    /// The thing has other rules or members.
    Changed,
}
