//! The captures and traces that run, and the ports that each is about.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use straightline_capture::PortTable;
use straightline_packet::{IgnorePoison, ObserverId, PortIndex};

use crate::api::{ErrorCode, Refusal};
use crate::config::Config;
use crate::plan::Plan;

/// The most captures and traces at a time. Each has memory for each worker.
const MAX_CAPTURES: usize = 4;

/// The captures and traces that run.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    running: Mutex<Vec<Weak<Session>>>,
    next: AtomicU64,
}

/// A capture or trace, as control sees it.
#[derive(Debug)]
pub(crate) struct Session {
    /// The names of the ports, by their interface.
    pub(crate) names: Vec<String>,
    pub(crate) table: Arc<PortTable>,
    /// Whether the switch has the port of each interface.
    pub(crate) present: Vec<AtomicBool>,
    /// The names of all ports of the switch. A port that has gone keeps its name until another port
    /// has its index, because workers may have seen it shortly before.
    all: Mutex<BTreeMap<PortIndex, String>>,
}

impl Captures {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.running.lock().ignore_poison()
    }

    /// Tells all captures which ports there are now.
    pub(crate) fn ports_changed(&self, config: &Config, plan: &Plan) {
        self.lock().iter().filter_map(Weak::upgrade).for_each(|session| session.find_ports(config, plan));
    }

    /// Adds a capture or trace, if there are not too many. `find_ports` has it look up its ports as
    /// they are then. `command` is the name of the request.
    pub(crate) fn add(
        &self,
        command: &str,
        session: &Arc<Session>,
        find_ports: impl FnOnce(),
    ) -> Result<ObserverId, Refusal> {
        let mut running = self.lock();
        running.retain(|session| session.strong_count() > 0);
        if running.len() >= MAX_CAPTURES {
            let error =
                format!("{command}: {MAX_CAPTURES} captures and traces run already; end one of them, and try again");
            return Err(Refusal::new(ErrorCode::Busy, error));
        }
        // A change of ports waits for the lock, so it comes before or after, but is not missed.
        find_ports();
        running.push(Arc::downgrade(session));
        Ok(ObserverId(self.next.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Session {
    pub(crate) fn new(names: Vec<String>) -> Self {
        let present = names.iter().map(|_| AtomicBool::new(false)).collect();
        Session { names, table: Arc::default(), present, all: Mutex::default() }
    }

    /// Returns the name of a port of the switch.
    pub(crate) fn name_of(&self, port: PortIndex) -> String {
        let all = self.all.lock().ignore_poison();
        all.get(&port).map_or_else(|| "(removed)".to_owned(), Clone::clone)
    }

    /// Looks up the ports of all interfaces.
    pub(crate) fn find_ports(&self, config: &Config, plan: &Plan) {
        let find = |name: &String| Some(PortIndex(plan.ports.get(config.port_index(name)?)?.slot));
        let ports: Vec<_> = self.names.iter().map(find).collect();
        for (present, port) in self.present.iter().zip(&ports) {
            present.store(port.is_some(), Ordering::Relaxed);
        }
        let all = config.ports.iter().zip(&plan.ports);
        let all = all.map(|(port, plan)| (PortIndex(plan.slot), port.name.clone()));
        self.all.lock().ignore_poison().extend(all);
        self.table.set((0..).zip(ports).filter_map(|(interface, port)| Some((port?, interface))));
    }
}
