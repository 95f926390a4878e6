//! Events of a switch.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Change, NeighbourState};
use crate::layout::{INDENT, count, printable};

/// The arguments of the request `events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventsRequest {
    /// Only events with higher numbers are of interest.
    #[serde(default)]
    pub since: u64,
    /// True for a stream: the kept events and each further one, until the client leaves.
    #[serde(default)]
    pub follow: bool,
}

/// The answer to `events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Events {
    /// The number of the newest event so far; 0 before the first one. A later request with it as
    /// `since` gets what comes from now on.
    pub last: u64,
    /// The kept events, oldest first. A stream has its events in lines of their own instead.
    #[serde(default)]
    pub events: Vec<Event>,
}

/// An event. Its kind is the field `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Event {
    /// The number of the event. Numbers begin with 1 when the switch starts, and grow by 1.
    pub seq: u64,
    /// The time in seconds since the epoch.
    pub time: f64,
    /// The event in words.
    pub message: String,
    /// The number of events before this one that came too often to be told: those of the same link,
    /// bridge, underlay, address, path or worker. This one is the last of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// The kind, with its fields.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EventKind {
    /// Events that this client cannot have any more: the switch has forgotten them. `seq` is the
    /// last one's number.
    Lost {
        /// The number of events.
        count: u64,
    },
    /// A port's link came up.
    LinkUp {
        /// The port.
        port: String,
    },
    /// A port's link went down.
    LinkDown {
        /// The port.
        port: String,
        /// The reason.
        reason: String,
    },
    /// A port's frontend or interface did something wrong, such as a loop in a ring, or the link
    /// could not be set up.
    Fault {
        /// The port.
        port: String,
        /// The fault.
        reason: String,
    },
    /// A client of the API added a port.
    PortAdded {
        /// The port.
        port: String,
    },
    /// A port that a client of the API had added was removed.
    PortRemoved {
        /// The port.
        port: String,
    },
    /// The configuration file was read again and applied.
    Reload {
        /// The changes; of very many the first.
        changes: Vec<Change>,
        /// The number of further changes.
        #[serde(default, skip_serializing_if = "is_zero")]
        more: u64,
    },
    /// The configuration file was read again, and has errors or cannot be applied. Nothing is
    /// changed.
    ReloadFailed {
        /// The error; it may have several lines.
        error: String,
    },
    /// A station appeared at another port of a bridge again and again, as in a loop. So it stays at its
    /// port for some seconds, and its frames from others drop. Floods of the other port pause, unless it
    /// leads to other networks, or its source check allows the station.
    Loop {
        /// The bridge.
        bridge: String,
        /// The station's address.
        mac: String,
        /// The port where the station stays.
        from: String,
        /// The other port.
        to: String,
    },
    /// A worker did not finish a turn in time.
    Stall {
        /// The worker, as an index into `workers` of `runtime`.
        worker: usize,
        /// The port or node that it served; empty if it served neither.
        port: String,
        /// The port whose packets cost the turn most, if some were sent by system calls or copied
        /// several times; else empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
    },
    /// A next hop of an underlay has another state or MAC address.
    Neighbour {
        /// The underlay.
        underlay: String,
        /// The address of the next hop.
        ip: String,
        /// Its MAC address, if it is known.
        mac: Option<String>,
        /// Its state.
        state: NeighbourState,
    },
    /// Another station has an address of an underlay too, or has it no longer.
    AddressConflict {
        /// The underlay.
        underlay: String,
        /// The switch's address.
        ip: String,
        /// The MAC address of the other station; none if it has the address no longer.
        mac: Option<String>,
    },
    /// The MTU of the path from a tunnel to a remote has changed, because of an ICMP error or because
    /// one was forgotten.
    PathMtu {
        /// The port of the tunnel.
        port: String,
        /// The address of the remote.
        remote: String,
        /// Bytes of the longest packet by the word of a router; none if that is forgotten.
        mtu: Option<u16>,
    },
    /// Packets of a port came to its rate: some waited in their ring, or were dropped. Told once a minute.
    RateReached {
        /// The port.
        port: String,
        /// The key of the limit: `rate-in` or `rate-out`.
        key: String,
        /// The number of times that packets waited so far.
        waits: u64,
        /// The number of packets that were dropped so far.
        dropped: u64,
    },
    /// A client of the API has set a rate. The file wins at the next reload.
    RateSet {
        /// The port.
        port: String,
        /// The key of the limit: `rate-in` or `rate-out`.
        key: String,
        /// The rate; empty for no limit.
        rate: String,
    },
    /// A client of the API has changed flows of a bridge.
    FlowsChanged {
        /// The bridge.
        bridge: String,
        /// The number of added flows.
        added: u64,
        /// The number of flows with new actions.
        modified: u64,
        /// The number of deleted flows.
        deleted: u64,
    },
    /// A packet was denied by the groups of a port, or a rule with `log` has decided about it. Only the
    /// first packets of a flow are told, and a limited number.
    FirewallPacket {
        /// The port with groups.
        port: String,
        /// `out`: sent by the port; `in`: sent to it.
        direction: String,
        /// Whether it has passed.
        allowed: bool,
        /// The packet in words.
        packet: String,
        /// The rule, as `connections` shows it.
        rule: String,
    },
    /// A client of the API has set the groups of a port.
    GroupsSet {
        /// The port.
        port: String,
        /// The groups.
        groups: Vec<String>,
    },
    /// A client of the API has added, changed or deleted a group.
    GroupSet {
        /// The group.
        group: String,
    },
    /// The share of connections of a port is full. It is told once a minute at most.
    ConnectionsFull {
        /// The port.
        port: String,
        /// The connections that did not begin so far.
        refused: u64,
    },
    /// A bridge learned that an address has moved to another port.
    Moved {
        /// The bridge.
        bridge: String,
        /// The address.
        mac: String,
        /// The port behind which it was; empty if that port is gone.
        from: String,
        /// The port behind which it is.
        to: String,
    },
    /// A tunnel learned that an address has moved to another remote.
    RemoteMoved {
        /// The tunnel's port.
        port: String,
        /// The address.
        mac: String,
        /// The remote behind which it was.
        from: String,
        /// The remote behind which it is.
        to: String,
    },
    /// Addresses behind a port or remote were not learned, because its share of the table is full.
    /// While this goes on, it is told once a minute.
    NotLearned {
        /// The port: a member of a bridge, or a tunnel.
        port: String,
        /// The remote, if a tunnel with several remotes did not learn the addresses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<String>,
        /// The number of refused addresses so far.
        refused: u64,
    },
    /// Multicast groups that a port's guests listen to were not noted, because its share of the table is
    /// full. It gets the packets of all groups. While this goes on, it is told once a minute.
    GroupsRefused {
        /// The port: a member of a bridge with snooping.
        port: String,
        /// The number of refused groups so far.
        refused: u64,
    },
    /// A node that a program has added tells something; the message says what.
    Node {
        /// The node.
        node: String,
    },
    /// The sandbox refused system calls of the switch: a fault of the switch, or an attack.
    RefusedCall {
        /// The number of refused calls since the start.
        count: u64,
    },
    /// The process that opens network interfaces has ended. Interfaces that are open stay open.
    OpenerEnded {
        /// Its process id.
        pid: u32,
    },
    /// The process that makes sockets for other users has ended. Its sockets stay open.
    SocketsEnded {
        /// Its process id.
        pid: u32,
    },
    /// Remotes and stations of an owner have gone, because it did not come back, or did not confirm them, in
    /// time.
    OwnerExpired {
        /// The owner.
        owner: String,
    },
    /// Another kind, from a switch of a newer version.
    #[serde(other)]
    Other,
}

impl Event {
    /// Returns whether the event is bad news: a warning in the log.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        use EventKind::{
            AddressConflict, ConnectionsFull, Fault, FirewallPacket, FlowsChanged, GroupSet, GroupsRefused, GroupsSet,
            LinkDown, LinkUp, Loop, Lost, Moved, Neighbour, Node, NotLearned, OpenerEnded, Other, OwnerExpired,
            PathMtu, PortAdded, PortRemoved, RateReached, RateSet, RefusedCall, Reload, ReloadFailed, RemoteMoved,
            SocketsEnded, Stall,
        };
        match &self.kind {
            Lost { .. }
            | LinkDown { .. }
            | Fault { .. }
            | ReloadFailed { .. }
            | Stall { .. }
            | ConnectionsFull { .. }
            | NotLearned { .. }
            | Loop { .. }
            | GroupsRefused { .. }
            | RefusedCall { .. }
            | OwnerExpired { .. }
            | OpenerEnded { .. }
            | SocketsEnded { .. } => true,
            AddressConflict { mac, .. } => mac.is_some(),
            PathMtu { mtu, .. } => mtu.is_some(),
            Neighbour { state, .. } => *state == NeighbourState::Unanswered,
            LinkUp { .. }
            | PortAdded { .. }
            | PortRemoved { .. }
            | Reload { .. }
            | Moved { .. }
            | Node { .. }
            | RemoteMoved { .. }
            | RateReached { .. }
            | RateSet { .. }
            | FlowsChanged { .. }
            | FirewallPacket { .. }
            | GroupsSet { .. }
            | GroupSet { .. }
            | Other => false,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Renders the answer to `events`.
#[must_use]
pub fn text(events: &Events) -> String {
    if events.events.is_empty() {
        return "no events\n".to_owned();
    }
    events.events.iter().map(event).collect()
}

/// Renders an event as a line in the style of the log, and further lines if it has details.
#[must_use]
pub fn event(event: &Event) -> String {
    let time = Duration::try_from_secs_f64(event.time).ok().and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time));
    // The formatter takes times until the year 9999 only.
    let time = time.filter(|_| event.time < 2.5e11).unwrap_or(SystemTime::UNIX_EPOCH);
    let time = humantime::format_rfc3339_millis(time);
    let severity = if event.is_warning() { "WARN" } else { "INFO" };
    let skipped = if event.skipped == 0 {
        String::new()
    } else {
        format!(" ({} before this one came too often to be told)", count(event.skipped))
    };
    let mut text = format!("{time} {severity} {} {}{skipped}\n", event.seq, printable(&event.message));
    let details: Vec<String> = match &event.kind {
        EventKind::Reload { changes, more } if changes.len() > 1 => {
            let more = (*more > 0).then(|| format!("and {} more", count(*more)));
            changes.iter().map(ToString::to_string).chain(more).collect()
        }
        EventKind::ReloadFailed { error } => error.lines().skip(1).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    details.iter().for_each(|detail| text += &format!("{INDENT}{}\n", printable(detail)));
    text
}
