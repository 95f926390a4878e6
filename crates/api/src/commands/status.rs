//! The answer to `status`.

use serde::{Deserialize, Serialize};

use crate::layout::{Grid, count, duration};

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
    /// The instruction set of copies and checksums, or the copy that `copy` names.
    pub simd: String,
    /// The number of workers.
    pub workers: usize,
    /// The NUMA node of each worker's CPU; null for a worker whose node is not known. Empty on a
    /// machine with one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_nodes: Vec<Option<usize>>,
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
    /// The bound of a search in the flow tables of each bridge with flows, in the configuration's order.
    #[serde(default)]
    pub flow_tables: Vec<FlowSearch>,
}

impl Status {
    /// Workers notify guests themselves, by asynchronous requests to the kernel, which never block.
    pub const AIO: &str = "aio";
    /// A helper thread for each port notifies the guest, which costs more: the kernel had no
    /// context for asynchronous requests (`fs.aio-max-nr`) when the switch started.
    pub const HELPER_THREAD: &str = "helper-thread";
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

/// The bound of a search in the flow tables of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowSearch {
    /// The bridge.
    pub bridge: String,
    /// Most reads of memory, of a cache line each, that the search in one table takes for any packet.
    pub accesses: u64,
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

/// Renders the answer to `status`: a line for each fact.
#[must_use]
pub fn text(status: &Status) -> String {
    let mut grid = Grid::new(&["<", "<"]);
    let mut fact = |name: &str, value: String| grid.row([name.to_owned(), value]);
    fact("version", status.version.clone());
    fact("uptime", duration(status.uptime_s));
    if let Some(file) = &status.configuration {
        let edited = if file.changed == Some(true) { ", edited since it was read" } else { "" };
        fact("configuration", format!("{}{edited}", file.path));
    }
    fact("simd", status.simd.clone());
    fact("workers", workers(status));
    fact("ports", format!("{} of {} up", status.ports_up, status.ports));
    fact("sandbox", if status.sandbox.is_empty() { "off".to_owned() } else { status.sandbox.join(", ") });
    for process in &status.privileges {
        fact(&process.process, privileges(process));
    }
    if !status.notifications.is_empty() {
        fact("notifications", status.notifications.clone());
    }
    if let Some(free) = status.fds_free {
        fact("descriptors", format!("{} free", count(free)));
    }
    if status.refused_calls > 0 {
        fact("refused", format!("{} system calls", count(status.refused_calls)));
    }
    if status.api_refused_clients > 0 {
        fact("API refused", format!("{} clients: too many of their user", count(status.api_refused_clients)));
    }
    if status.api_held_threads > 0 {
        let held = status.api_held_threads as u64;
        fact("API held", format!("{} threads: descriptors of clients do not close", count(held)));
    }
    for Stalls { worker, port, count: times } in &status.stalls {
        let place = if port.is_empty() { String::new() } else { format!(" at {port}") };
        fact("stalls", format!("worker {worker}{place}: {}", count(*times)));
    }
    for FlowSearch { bridge, accesses } in &status.flow_tables {
        fact("flow search", format!("bridge {bridge}: at most {} reads of memory in a table", count(*accesses)));
    }
    grid.render("")
}

/// Renders the number of workers, with their NUMA nodes: `2, on NUMA nodes 0 1`.
fn workers(status: &Status) -> String {
    let count = status.workers;
    let node = |node: &Option<usize>| node.map_or_else(|| "?".to_owned(), |node| node.to_string());
    let nodes: Vec<_> = status.worker_nodes.iter().map(node).collect();
    match &nodes[..] {
        [] => count.to_string(),
        [one] => format!("{count}, on NUMA node {one}"),
        several => format!("{count}, on NUMA nodes {}", several.join(" ")),
    }
}

/// Renders what a process may do: `pid 12, CAP_NET_RAW; seccomp, landlock`.
fn privileges(process: &Privileges) -> String {
    if !process.running {
        let (what, verb) = match process.process.as_str() {
            Privileges::SOCKETS => ("sockets", "make"),
            _ => ("interfaces", "open"),
        };
        return format!("pid {} has ended; its {what} stay open, restart the switch to {verb} others", process.pid);
    }
    let capabilities = match process.capabilities.len() {
        0 => "no capabilities".to_owned(),
        // Root without a sandbox has all, and no reader wants them one by one.
        count @ 9.. => format!("{count} capabilities"),
        _ => process.capabilities.join(" "),
    };
    let confined = [("seccomp", process.seccomp), ("landlock", process.landlock)];
    let confined: Vec<_> = confined.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let by = if confined.is_empty() { "not confined".to_owned() } else { confined.join(", ") };
    format!("pid {}, {capabilities}; {by}", process.pid)
}
