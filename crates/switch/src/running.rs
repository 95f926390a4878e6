//! The state of a running switch, as answers, changes and events see it.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use straightline_graph::{Clock, NodeStats, PortControl, TableView, WorkerStats};
use straightline_packet::{Drops, IgnorePoison, PortIndex};
use straightline_port::device::Devices;

use crate::api::{Cleared, ErrorCode, Refusal, nearest_first};
use crate::captures::{Captures, Session};
use crate::config::Config;
use crate::config_file::AppliedFile;
use crate::dynamic_port::ClientGroups;
use crate::entries::Networks;
use crate::events::EventLog;
use crate::plan::{DomainSpec, Plan};
use crate::tables::Tables;
use crate::traffic::TrafficHistory;
use crate::watchdog::Stalls;
/// The name under which counters of removed ports and nodes are reported. No port can have it.
pub(crate) const REMOVED: &str = "(removed)";

/// A running switch, as it is now.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) clock: Clock,
    pub(crate) since: Instant,
    /// See [`Status::notifications`].
    pub(crate) notifications: &'static str,
    /// The device ports, with the client of the opener process.
    pub(crate) devices: Option<Arc<Devices>>,
    pub(crate) stalls: Arc<Stalls>,
    pub(crate) captures: Captures,
    pub(crate) events: EventLog,
    pub(crate) traffic: Mutex<TrafficHistory>,
    /// Held while tables change that clients can change, too.
    pub(crate) networks: Mutex<Networks>,
    now: Mutex<Arc<Snapshot>>,
    removed_drops: Arc<Drops>,
    removed_nodes: NodeStats,
    /// The counters at the last `clear-runtime`, and its time.
    pub(crate) cleared: Mutex<Option<(Instant, Cleared)>>,
    /// The file of the applied configuration, if there is one.
    pub(crate) file: Mutex<Option<AppliedFile>>,
}

/// The parts of the switch that answers report on. Replaced as a whole.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) clock: Clock,
    pub(crate) config: Config,
    /// The groups in the configuration that clients have set.
    pub(crate) client_groups: ClientGroups,
    pub(crate) plan: Plan,
    /// The domains that each worker's graph was built from.
    pub(crate) domains: Vec<Vec<Arc<DomainSpec>>>,
    /// In the configuration's order.
    pub(crate) ports: Vec<Arc<dyn PortControl>>,
    /// The drop counters of each port.
    pub(crate) drops: Vec<Arc<Drops>>,
    pub(crate) tables: Tables,
    /// The counters of each worker, with those of its nodes.
    pub(crate) workers: Vec<(Arc<WorkerStats>, Vec<Arc<NodeStats>>)>,
}

impl Snapshot {
    /// Returns the place of a port in the configuration.
    pub(crate) fn place_of(&self, port: &str) -> Result<usize, Refusal> {
        self.config.port_index(port).ok_or_else(|| {
            let known = nearest_first(port, self.config.ports.iter().map(|port| port.name.as_str()));
            let error = format!("no such port {port:?}; ports are {known}");
            Refusal::new(ErrorCode::UnknownPort, error).about(port)
        })
    }
}

impl Running {
    pub(crate) fn new(now: Snapshot, notifications: &'static str, devices: Option<Arc<Devices>>) -> Self {
        let clock = now.clock.clone();
        Running {
            since: clock.now(),
            notifications,
            devices,
            stalls: Arc::default(),
            captures: Captures::default(),
            events: EventLog::new(clock.clone()),
            traffic: Mutex::default(),
            networks: Mutex::new(Networks::new(clock.clone())),
            clock,
            now: Mutex::new(Arc::new(now)),
            removed_drops: Arc::default(),
            removed_nodes: NodeStats { name: REMOVED.to_owned(), ..NodeStats::default() },
            cleared: Mutex::default(),
            file: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Arc<Snapshot> {
        Arc::clone(&self.now.lock().ignore_poison())
    }

    pub(crate) fn show(&self, now: Snapshot) {
        let now = Arc::new(now);
        *self.now.lock().ignore_poison() = Arc::clone(&now);
        self.captures.ports_changed(&now.config, &now.plan);
    }

    /// Returns the drop counters of ports that were removed, and of packets that belong to none.
    pub(crate) fn removed_drops(&self) -> &Arc<Drops> {
        &self.removed_drops
    }

    /// Returns the process id of the opener process, and whether it runs. `None` if there is none.
    pub(crate) fn opener(&self) -> Option<(u32, bool)> {
        let helper = self.devices.as_ref()?.opener().helper()?;
        Some((helper.process().pid, helper.is_running()))
    }

    /// Notes that the configuration of this file is in force.
    pub(crate) fn file_applied(&self, file: AppliedFile) {
        *self.file.lock().ignore_poison() = Some(file);
    }

    /// Returns the counters of nodes that were removed.
    pub(crate) fn removed_nodes(&self) -> &NodeStats {
        &self.removed_nodes
    }
}

impl Snapshot {
    /// Has a capture or trace look up its ports.
    pub(crate) fn find_ports(&self, session: &Session) {
        session.find_ports(&self.config, &self.plan);
    }

    /// Returns the drop counters of a port of this name, or new ones.
    pub(crate) fn drops_of(&self, port: &str) -> Arc<Drops> {
        self.config.port_index(port).map_or_else(Arc::default, |at| Arc::clone(&self.drops[at]))
    }

    /// Returns the name of a port; empty if it is gone.
    pub(crate) fn name(&self, port: PortIndex) -> String {
        let at = self.plan.ports.iter().position(|place| place.slot == port.0);
        at.map_or_else(String::new, |at| self.config.ports[at].name.clone())
    }

    /// Calls `look` with what control halves do not know by themselves.
    pub(crate) fn view<R>(&self, look: impl FnOnce(&TableView<'_>) -> R) -> R {
        let now = self.clock.workers_time().as_secs_f64();
        look(&TableView { now, port: &|port| self.name(port) })
    }
}
