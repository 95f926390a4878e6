//! The commands of the API. Each is declared once, in the table below.
//!
//! From a row follow the variants of [`Command`] and [`Request`], what [`ask`](crate::ask) can ask for,
//! the schema, the table in `docs/api.md`, the right that a client needs, the help and, where the row
//! says what `prints` the answer, the whole command `straightline WORD`. So a further command is a row,
//! and a module with its types and its text.

#[macro_use]
mod declare;

mod bindings;
mod capture;
mod done;
pub(crate) mod drops;
pub(crate) mod events;
pub(crate) mod fdb;
pub(crate) mod firewall;
mod flows;
mod history;
#[cfg(feature = "command-line")]
mod line;
mod link;
pub(crate) mod neighbours;
pub(crate) mod networks;
mod ping;
mod port;
pub(crate) mod ports;
mod rate;
pub(crate) mod reload;
mod right;
pub(crate) mod runtime;
pub(crate) mod status;
mod subscribe;
pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod trace;

use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use bindings::{Binding, Bindings, BindingsRequest};
pub use capture::{Capture, CaptureInterface, CaptureRequest};
pub use done::Done;
pub use drops::{DropCount, Drops};
pub use events::{Event, EventKind, Events, EventsRequest};
pub use fdb::{Fdb, FdbEntry, RemoteEntry};
pub use firewall::{
    AddressSet, Connection, ConnectionShare, ConnectionUse, Connections, ConnectionsRequest, Decision, ExplainRequest,
    Explanation, GroupRules, Groups, GroupsOfPort, SetGroupRequest, SetGroupsRequest, Sets, SetsRequest,
};
pub use flows::{
    ChangeFlows, ChangeMeter, Flow, FlowLines, FlowMeter, FlowTrace, Flows, FlowsChanged, FlowsRequest, Meters,
    MetersRequest, TraceFlow,
};
pub use history::{History, PortHistory};
pub use link::LinkRequest;
pub use neighbours::{Neighbour, NeighbourState, Neighbours, OwnAddress};
pub use networks::{
    ChangeRemotes, ChangeStations, EntriesChanged, NewStation, OwnedRemote, OwnedStation, Remotes, RemotesRequest,
    Stations, StationsRequest,
};
pub use ping::{Ping, PingLine, PingRequest};
pub use port::PortRequest;
pub use ports::{
    Addresses, Device, DownReason, Joined, JoinedKind, Link, Packets, PathMtu, Port, PortGroups, PortNodes, PortRate,
    PortVlans, Ports, Queue, QueuePairs, RingKind, RxMode, Tunnel, VlanRole,
};
pub use rate::{RateRequest, RateSet};
pub use reload::{Change, ChangeKind, Changed, Changes, ReloadRequest};
pub use right::Right;
pub use runtime::{Cleared, Node, Runtime, Worker};
pub use status::{BridgeMoves, ConfigurationFile, FlowSearch, Privileges, Stalls, Status};
pub use subscribe::{NetworkEvent, SubscribeRequest, Subscribed};
pub use table::{
    AllowedAddress, Cell, FirewallRule, GroupMember, MirroredTo, MulticastRouter, Row, Table, TableRequest,
};
pub use tables::{TableSummary, Tables};
pub use trace::{Trace, TraceAction, TraceLine, TraceRequest, TracedDrop, TracedPacket, TracedStep};

commands! {
    /// Asks for the status of the whole switch.
    Status {
        word: "status",
        right: Read,
        answer: Status,
        help: "Show the whole switch: version, uptime, instruction set",
        prints: status::text,
    }

    /// Asks for the ports.
    Ports {
        word: "ports",
        right: Read,
        answer: Ports,
        help: "Show the ports: link, features, rings, counters, drops",
    }

    /// Asks for the addresses that the bridges know.
    Fdb {
        word: "fdb",
        right: Read,
        answer: Fdb,
        help: "Show the addresses that bridges and tunnels have learned or were given",
        prints: fdb::text,
    }

    /// Asks for the next hops of the underlays.
    Neighbours {
        word: "neighbours",
        right: Read,
        answer: Neighbours,
        help: "Show the next hops of the underlays: MAC address, state, age",
        prints: neighbours::text,
    }

    /// Asks for the tables of bridges, underlays, tunnels and nodes.
    Tables {
        word: "tables",
        right: Read,
        answer: Tables,
        help: "Show the tables of bridges, underlays, tunnels and nodes: rows, counters",
        prints: tables::text,
    }

    /// Asks for rows of a table.
    Table(TableRequest) {
        word: "table",
        right: Read,
        arguments: "it needs \"table\" (a name); \"after\" (a place) and \"limit\" (a number of rows) are optional",
        answer: Table,
        help: "Show rows of a table, such as bridge:lan",
        prints: table::text,
    }

    /// Asks for the use of the workers' time.
    Runtime {
        word: "runtime",
        right: Read,
        answer: Runtime,
        help: "Show how the workers spent their time, by node",
    }

    /// Has `runtime` count from now on.
    ClearRuntime {
        word: "clear-runtime",
        right: Operate,
        answer: Done,
        help: "Have `runtime` count from now on",
    }

    /// Asks for the dropped packets by reason.
    Drops {
        word: "drops",
        right: Read,
        answer: Drops,
        help: "Show the dropped packets by reason",
        prints: drops::text,
    }

    /// Asks for the traffic of the last two minutes.
    History {
        word: "history",
        right: Read,
        answer: History,
        help: "Show the bytes of each port at each second of the last two minutes",
    }

    /// Asks for events.
    Events(EventsRequest) {
        word: "events",
        right: Read,
        arguments: "its arguments are \"since\" (a number) and \"follow\" (true or false), both optional",
        answer: Events,
        stream: lines Event,
        help: "Show the events: links, faults, reloads, moved addresses",
    }

    /// Captures packets. The answer is a stream of binary records.
    Capture(CaptureRequest) {
        word: "capture",
        right: Operate,
        arguments: "it needs \"ports\" (names) and \"snaplen\" (bytes), and one of \"in\", \"out\" (true) and \
            \"dropped\" (a reason, or an empty text); \"filter\" is optional",
        answer: Capture,
        stream: records,
        help: "Capture packets of ports of the running switch, as a pcapng file",
    }

    /// Follows packets on their way. The answer is a stream of lines, and ends after the last packet.
    Trace(TraceRequest) {
        word: "trace",
        right: Operate,
        arguments: "it needs \"ports\" (names) and \"count\" (a number of packets); \"filter\" is optional",
        answer: Trace,
        stream: lines TraceLine,
        help: "Follow packets of ports of the running switch: nodes, actions, destinations, cycles",
    }

    /// Pings an address from an underlay. The answer is a stream of lines, and ends after the last echo.
    Ping(PingRequest) {
        word: "ping",
        right: Operate,
        arguments: "it needs \"underlay\" (a name) and \"address\" (an IP address); \"count\", \"interval_ms\" and \
            \"timeout_ms\" (numbers) are optional",
        answer: Ping,
        stream: lines PingLine,
        help: "Ping an address from an underlay of the running switch",
    }

    /// Reads the configuration file again and applies it.
    Reload(ReloadRequest) {
        word: "reload",
        right: All,
        arguments: "its argument \"dry_run\" (true or false) is optional",
        answer: Changes,
        help: "Make the running switch read its configuration file again, as SIGHUP does, and show the changes",
        prints: reload::text,
    }

    /// Sets a port's link down, or allows it to be up again.
    Link(LinkRequest) {
        word: "link",
        right: Operate,
        arguments: "it needs \"port\" (a name) and \"up\" (true or false)",
        answer: Done,
        help: "Set a port's link down, or let it come up again",
        prints: link::text,
    }

    /// Sets a limit of a port, until the next reload.
    Rate(RateRequest) {
        word: "rate",
        right: Operate,
        arguments: "it needs \"port\" (a name), \"direction\" (\"in\" or \"out\") and \"rate\" (a list of texts); \
            \"burst\" (a list of texts) is optional",
        answer: RateSet,
        help: "Set a limit of a port's traffic, until the next reload",
        prints: rate::text,
    }

    /// Asks for flows of a bridge.
    Flows(FlowsRequest) {
        word: "flows",
        right: Read,
        arguments: "it needs \"bridge\" (a name); \"filter\" (a match), \"names\" (true or false), \"after\" (a place) \
            and \"limit\" (a number of flows) are optional",
        answer: Flows,
        help: "Show flows of a bridge",
    }

    /// Sends text for the next `change-flows` of this connection.
    FlowLines(FlowLines) {
        word: "flow-lines",
        right: Operate,
        arguments: "it needs \"text\" (a part of a file of flows)",
        answer: Done,
        help: "Send lines of flows for the next `change-flows`, which may have more than a request holds",
    }

    /// Changes flows of a bridge: all of the given lines, or none.
    ChangeFlows(ChangeFlows) {
        word: "change-flows",
        right: Operate,
        arguments: "it needs \"bridge\" (a name) and \"command\" (add, modify, modify-strict, delete, delete-strict or \
            replace); \"text\" (flows) is optional",
        answer: FlowsChanged,
        help: "Change flows of a bridge, in the words of `ovs-ofctl`: all of them or none",
    }

    /// Asks for the meters of a bridge.
    Meters(MetersRequest) {
        word: "meters",
        right: Read,
        arguments: "it needs \"bridge\" (a name)",
        answer: Meters,
        help: "Show the meters of a bridge's flows",
    }

    /// Adds, changes or deletes a meter.
    ChangeMeter(ChangeMeter) {
        word: "change-meter",
        right: Operate,
        arguments: "it needs \"bridge\" (a name), \"command\" (add, modify or delete) and \"meter\" (a text)",
        answer: Done,
        help: "Add, change or delete a meter of a bridge's flows",
    }

    /// Asks for the way of a packet through the flow tables.
    TraceFlow(TraceFlow) {
        word: "trace-flow",
        right: Read,
        arguments: "it needs \"bridge\" (a name) and \"packet\" (a match)",
        answer: FlowTrace,
        help: "Show the flows that a packet would match, and the actions on it",
    }

    /// Asks which rule decides about a packet.
    Explain(ExplainRequest) {
        word: "explain",
        right: Read,
        arguments: "it needs \"port\" (a name) and \"packet\" (a text, such as \"tcp to 192.0.2.1 port 443\")",
        answer: Explanation,
        help: "Show the rules of groups that decide about a packet",
    }

    /// Asks for the groups of the switch and of its ports.
    Groups {
        word: "groups",
        right: Read,
        answer: Groups,
        help: "Show the groups, their rules and owners, and the ports that have them",
    }

    /// Asks for the addresses of sets and of groups.
    Sets(SetsRequest) {
        word: "sets",
        right: Read,
        arguments: "its argument \"name\" (a set, or \"group:NAME\") is optional",
        answer: Sets,
        help: "Show the prefixes of sets, and the addresses of groups",
    }

    /// Asks for the connections of ports with groups, or of a bridge's flows.
    Connections(ConnectionsRequest) {
        word: "connections",
        right: Operate,
        arguments: "its arguments \"port\" and \"bridge\" (names) and \"limit\" (a number of connections) are optional",
        answer: Connections,
        help: "Show the connections of ports with groups or of a bridge's flows, and their shares",
        prints: firewall::connections_text,
    }

    /// Sets the groups of a port.
    SetGroups(SetGroupsRequest) {
        word: "set-groups",
        right: Operate,
        arguments: "it needs \"port\" (a name); \"groups\" (a list of names) is optional",
        answer: Done,
        help: "Set the groups of a port that has none in the file, until the switch ends",
    }

    /// Adds, changes or deletes a group.
    SetGroup(SetGroupRequest) {
        word: "set-group",
        right: Operate,
        arguments: "it needs \"name\"; \"in\" and \"out\" (lists of rules) and \"delete\" (true or false) are optional",
        answer: Done,
        help: "Add, change or delete a group that is not in the file, until the switch ends",
    }

    /// Asks for the remotes of a tunnel.
    Remotes(RemotesRequest) {
        word: "remotes",
        right: Read,
        arguments: "it needs \"tunnel\" (a port's name); \"owner\" (a name), \"after\" (a place) and \"limit\" (a \
            number of remotes) are optional",
        answer: Remotes,
        help: "Show the remotes of a tunnel, with their owners",
    }

    /// Adds, deletes or replaces remotes of an owner in a tunnel.
    ChangeRemotes(ChangeRemotes) {
        word: "change-remotes",
        right: Operate,
        arguments: "it needs \"tunnel\" (a port's name), \"owner\" (a name) and \"command\" (add, delete or replace); \
            \"remotes\" (a list of IP addresses) and \"more\" (true or false) are optional",
        answer: EntriesChanged,
        help: "Add, delete or replace remotes of an owner in a tunnel: all of them or none",
    }

    /// Asks for the stations of owners in a bridge.
    Stations(StationsRequest) {
        word: "stations",
        right: Read,
        arguments: "it needs \"bridge\" (a name); \"owner\" (a name), \"after\" (a place) and \"limit\" (a number of \
            stations) are optional",
        answer: Stations,
        help: "Show the stations that clients have added to a bridge, with their owners",
    }

    /// Adds, deletes or replaces stations of an owner in a bridge.
    ChangeStations(ChangeStations) {
        word: "change-stations",
        right: Operate,
        arguments: "it needs \"bridge\" (a name), \"owner\" (a name) and \"command\" (add, delete or replace); \
            \"stations\" (a list of objects with \"mac\", \"vlan\", \"port\", \"remote\", \"sequence\" and \"ips\") and \
            \"more\" (true or false) are optional",
        answer: EntriesChanged,
        help: "Add, delete or replace stations of an owner in a bridge: all of them or none",
    }

    /// Asks for bindings of IP and MAC addresses.
    Bindings(BindingsRequest) {
        word: "bindings",
        right: Read,
        arguments: "its arguments \"bridge\" (a name), \"after\" (a place) and \"limit\" (a number of bindings) are \
            optional",
        answer: Bindings,
        help: "Show which IP address belongs to which MAC address, and how the switch knows it",
        prints: bindings::text,
    }

    /// Follows stations, bindings and links. The answer is a stream of lines.
    Subscribe(SubscribeRequest) {
        word: "subscribe",
        right: Operate,
        arguments: "its arguments \"owner\" (a name), \"stale_s\" (seconds) and \"bridges\" (a list of names) are \
            optional",
        answer: Subscribed,
        stream: lines NetworkEvent,
        help: "Follow stations, bindings and links; keeps the entries of an owner",
    }

    /// Adds a port until the connection closes. Its socket comes with the request as a descriptor.
    Port(PortRequest) {
        word: "port",
        right: All,
        arguments: "it needs \"name\", \"join\" and \"socket\" (texts), and a socket as a descriptor",
        answer: Done,
        help: "Add a port to a bridge of the running switch until the connection closes (a QEMU backend program)",
    }
}

/// Renders an answer, given as JSON, as text for a terminal. Fails if the JSON is no such answer.
pub type AnswerText = fn(&str) -> serde_json::Result<String>;

/// The arguments of `events` are optional.
impl Answer for Events {
    const COMMAND: Command = Command::Events;
}

/// The argument of `reload` is optional.
impl Answer for Changes {
    const COMMAND: Command = Command::Reload;
}

/// The argument of `sets` is optional.
impl Answer for Sets {
    const COMMAND: Command = Command::Sets;
}

/// The type of an answer, with the command that asks for it without arguments.
pub trait Answer: DeserializeOwned {
    /// The command that asks for this type.
    const COMMAND: Command;
}

impl Request {
    /// Returns whether the answer begins a stream. The client then has it until it leaves.
    #[must_use]
    pub fn begins_stream(&self) -> bool {
        match self {
            Self::Events(request) => request.follow,
            request => request.command().has_stream(),
        }
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|command| command.as_str() == word);
        known.ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("unknown command {word:?}; commands are {words}")
        })
    }
}

#[cfg(test)]
mod text_tests;
