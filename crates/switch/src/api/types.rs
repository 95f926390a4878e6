//! The answers, with the field names that scripts rely on.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Answer to `ports`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ports {
    /// In the configuration's order.
    pub ports: Vec<Port>,
}

/// One port. `rx` is what the switch receives from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name in the configuration.
    pub name: String,
    /// Its kind, as in the configuration.
    pub kind: String,
    /// Whether packets can pass.
    pub link: Link,
    /// Why the link is down; none while it is up.
    pub reason: Option<String>,
    /// Process of the frontend that is connected, if it has a number in the switch's PID namespace.
    #[serde(default)]
    pub pid: Option<u32>,
    /// User of that process: the name in `/etc/passwd` when the switch started, or else the number.
    #[serde(default)]
    pub user: Option<String>,
    /// Seconds since the link last changed, or since the port was made.
    #[serde(default)]
    pub link_since_s: f64,
    /// How often the link came up or went down since the port was made.
    #[serde(default)]
    pub link_changes: u64,
    /// The last 10 reasons why the link was down, newest last.
    #[serde(default)]
    pub reasons: Vec<DownReason>,
    /// The features that both sides agreed on, by name.
    pub features: Vec<String>,
    /// The ring's layout; none before it was agreed on.
    pub ring: Option<RingKind>,
    /// Descriptors in a ring; 0 before the guest set one up.
    pub ring_size: u32,
    /// Regions of guest memory that are mapped.
    pub regions: u32,
    /// One for each queue pair.
    pub queues: Vec<Queue>,
    /// Packets that came from or went to this port and were dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// What the guest's driver wants to receive, if it says so to us; nothing is filtered by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_mode: Option<RxMode>,
    /// The largest frame is this and 18 bytes more.
    pub mtu: u16,
    /// The address that the configuration names. Without one, the address that the guest was told, if it reads one from us.
    pub mac: Option<String>,
    /// The socket, of a port that has one.
    pub socket: Option<String>,
    /// Which claims of its packets are compared with its addresses: `off` or `mac`.
    #[serde(default)]
    pub source_check: String,
    /// Addresses behind it, of a port in a bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Addresses>,
}

/// Why a link was down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DownReason {
    /// When that was last so, in seconds since the epoch.
    pub time: f64,
    /// Why, in one sentence.
    pub reason: String,
}

/// What a bridge has learned at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// Addresses that it knows.
    pub learned: u32,
    /// Times that it could not learn one, since the port has filled what it may of the bridge's table.
    pub refused: u64,
}

/// What a driver wants to receive (virtio 1.2, 5.1.6.5.1 to 3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RxMode {
    /// Everything.
    pub promiscuous: bool,
    /// Every multicast frame.
    pub all_multicast: bool,
    /// Every unicast frame.
    pub all_unicast: bool,
    /// No multicast frame.
    pub no_multicast: bool,
    /// No unicast frame.
    pub no_unicast: bool,
    /// No broadcast frame.
    pub no_broadcast: bool,
    /// Its own address, where it has set one.
    pub mac: Option<String>,
    /// Further unicast addresses.
    pub unicast: Vec<String>,
    /// Multicast addresses.
    pub multicast: Vec<String>,
    /// VLANs.
    pub vlans: Vec<u16>,
}

/// Whether packets can pass a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// They can.
    Up,
    /// They cannot.
    #[default]
    Down,
}

/// The layouts of a ring (virtio 1.2, 2.7 and 2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RingKind {
    /// Descriptors, available and used ring apart.
    Split,
    /// All in one.
    Packed,
}

/// The counters of a queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// From 0.
    pub index: u16,
    /// From the guest.
    pub rx: Packets,
    /// To the guest.
    pub tx: Packets,
    /// Notifications that we sent to the guest, for both rings.
    pub kicks_sent: u64,
    /// Notifications sent once more because the guest's driver did not answer them, for both rings. They are not counted
    /// in `kicks_sent`.
    #[serde(default)]
    pub calls_repeated: u64,
    /// Those that the guest did not want, or that one for several packets made needless.
    pub kicks_suppressed: u64,
    /// The worker that takes from the guest's transmit ring, as its place in the answer to `runtime`.
    #[serde(default)]
    pub rx_worker: Option<usize>,
    /// The worker whose own the guest's receive ring is. Others deliver there while they have none that is enabled.
    #[serde(default)]
    pub tx_worker: Option<usize>,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// How many.
    pub packets: u64,
    /// Their length together, from the Ethernet header on.
    pub bytes: u64,
}

/// Answer to `runtime`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Runtime {
    /// One for each worker.
    pub workers: Vec<Worker>,
    /// The nodes of all workers together, in the order in which packets pass them.
    pub nodes: Vec<Node>,
}

/// Where the time of a worker went. The four times add up to that since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// The CPU that it is pinned to; none if it is not.
    pub cpu: Option<usize>,
    /// Seconds in turns that moved packets.
    pub busy_s: f64,
    /// Seconds in turns that found none.
    pub empty_poll_s: f64,
    /// Seconds asleep.
    pub idle_s: f64,
    /// Seconds that nothing accounts for.
    pub unexplained_s: f64,
    /// Turns, empty ones included.
    pub turns: u64,
    /// Bytes of bodies that were copied, every copy counted.
    #[serde(default)]
    pub bodies_copied_bytes: u64,
    /// Bytes of bodies that were delivered: with one copy each, the same number.
    #[serde(default)]
    pub bodies_delivered_bytes: u64,
}

/// The work of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// How often it was called.
    pub calls: u64,
    /// Packets that it was given.
    pub packets: u64,
    /// The mean vector; 0 without a call.
    pub packets_per_call: f64,
    /// The mean cost; 0 without a packet.
    pub cycles_per_packet: f64,
    /// Whose it is, as a place in `workers`: each worker of a patch or bridge has its own nodes. None for what is gone.
    #[serde(default)]
    pub worker: Option<usize>,
}

impl Node {
    /// With the means computed; they are 0 where there is nothing to divide by, since JSON has no NaN.
    #[must_use]
    pub fn new(name: impl Into<String>, calls: u64, packets: u64, cycles: u64) -> Self {
        Self {
            name: name.into(),
            calls,
            packets,
            packets_per_call: ratio(packets, calls),
            cycles_per_packet: ratio(cycles, packets),
            worker: None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean that people read needs no more than 53 bits")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Answer to `drops`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// One for each port and reason whose count is not 0.
    pub drops: Vec<DropCount>,
}

/// Packets that were dropped at a port for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCount {
    /// The port.
    pub port: String,
    /// The reason.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// What the reason means, in one sentence.
    #[serde(default)]
    pub meaning: String,
    /// What an operator can do about it, in one sentence.
    #[serde(default)]
    pub remedy: String,
}

/// Answer to `fdb`: the forwarding database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fdb {
    /// One for each address that a bridge knows.
    pub entries: Vec<FdbEntry>,
}

/// An address that a bridge knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FdbEntry {
    /// The bridge.
    pub bridge: String,
    /// The address.
    pub mac: String,
    /// The port that it is behind.
    pub port: String,
    /// Seconds since it was last seen as a source; 0 for a static one.
    pub age_s: f64,
    /// Whether the configuration names it.
    #[serde(rename = "static")]
    pub is_static: bool,
}

/// Answer to `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Of the switch that answers.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// The instruction set that copies and checksums use; `libc` or `movsb` if those copy.
    pub simd: String,
    /// How many workers.
    pub workers: usize,
    /// How many ports have their link up.
    pub ports_up: usize,
    /// How many ports.
    pub ports: usize,
    /// What confines the process: `capabilities`, `landlock`, `seccomp`.
    #[serde(default)]
    pub sandbox: Vec<String>,
    /// System calls that the sandbox has refused: a fault of ours, or an attack.
    #[serde(default)]
    pub refused_calls: u64,
    /// How guests are notified: [`Self::AIO`] or [`Self::HELPER_THREAD`].
    #[serde(default)]
    pub notifications: String,
    /// Turns of workers that took longer than 100 ms, by worker and by the port that it served; none where there were none.
    #[serde(default)]
    pub stalls: Vec<Stalls>,
    /// How many more descriptors the process can open; none where there is no `/proc`.
    #[serde(default)]
    pub fds_free: Option<u64>,
}

/// How often a worker has stalled at a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// The worker, as a place in `workers` of `runtime`.
    pub worker: usize,
    /// The port, or the node by its name in `runtime`. Empty if it served none.
    pub port: String,
    /// Turns.
    pub count: u64,
}

impl Status {
    /// Workers notify guests themselves, by asynchronous requests to the kernel, which never wait.
    pub const AIO: &str = "aio";
    /// A helper thread for each port notifies its guest, which costs more: the kernel had no context for asynchronous
    /// requests (`fs.aio-max-nr`) when the switch started.
    pub const HELPER_THREAD: &str = "helper-thread";
}

/// Request `port`: its socket comes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRequest {
    /// The port's name.
    pub name: String,
    /// The bridge that it joins.
    pub join: String,
    /// What answers call its socket.
    pub socket: String,
}

/// Answer to `reload`: what is other than before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Ports first, then patches and bridges; none where the configuration says what it said before.
    pub changes: Vec<Change>,
}

/// One thing that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What it is.
    pub kind: ChangeKind,
    /// Its name.
    pub name: String,
    /// What became of it.
    pub change: Changed,
    /// In words, where there is more to say.
    pub detail: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ChangeKind::Port => "port",
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

/// What can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// A port.
    Port,
    /// A patch.
    Patch,
    /// A bridge.
    Bridge,
    /// A node of the program that embeds the switch.
    Node,
}

/// What can become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Changed {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// A port that was taken down and made anew: its guest must connect again.
    Remade,
    /// A port that joined something else, with its guest connected.
    Moved,
    /// It has other rules or members.
    Changed,
}
