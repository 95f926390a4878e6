//! The thread that finds events which have no place in control code: it compares what links, bridges
//! and next hops say now with what they said before.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use straightline_graph::{LinkEvent, PortControl, TableEvent, newest_link_note};
use straightline_nodes::{BindingTable, FirewallControl};
use straightline_packet::IgnorePoison;
use straightline_port::socket_file;
use straightline_underlay::Underlay;

use crate::api::{EventKind, since_epoch};
use crate::running::{Running, Snapshot};
use crate::sandbox;

/// The time between two looks.
const PERIOD: Duration = Duration::from_millis(100);

/// Every so many looks, one adds to the history of the traffic: once a second.
const LOOKS_PER_SAMPLE: u64 = 10;

/// The watcher's thread. Dropping this value ends the thread.
#[derive(Debug)]
pub(crate) struct WatcherThread {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WatcherThread {
    /// Starts a thread that adds to the events of this switch.
    pub(crate) fn start(running: Arc<Running>) -> anyhow::Result<Self> {
        let (end, ended) = channel();
        let clock = running.clock.clone();
        let mut watcher = Watcher::new(running);
        let watch = move || {
            while clock.receive(&ended, clock.now() + PERIOD) == Err(RecvTimeoutError::Timeout) {
                watcher.look();
            }
        };
        let thread = std::thread::Builder::new().name("events".to_owned()).spawn(watch);
        Ok(WatcherThread { end: Some(end), thread: Some(thread.context("cannot start the events' thread")?) })
    }
}

impl Drop for WatcherThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the events' thread had panicked");
        }
    }
}

/// The state at the last look.
struct Watcher {
    running: Arc<Running>,
    looks: u64,
    /// The number of the last link note.
    note: u64,
    /// The underlays whose ports' links are up, each with the number of changes of that link.
    underlay_links: Vec<(Weak<Underlay>, u64)>,
    /// The tables from which members of groups were taken last.
    followed: Followed,
    refused_calls: u64,
    opener_runs: bool,
    maker_runs: bool,
}

/// Tables whose bindings make members of groups, as they were at a look.
#[derive(Default)]
struct Followed {
    firewall: Weak<FirewallControl>,
    /// The bindings of each bridge, with the number of their changes.
    bindings: Vec<(Weak<BindingTable>, u64)>,
}

impl Followed {
    fn is_of(&self, firewall: &Arc<FirewallControl>, bindings: &[Arc<BindingTable>]) -> bool {
        self.firewall.as_ptr() == Arc::as_ptr(firewall)
            && self.bindings.len() == bindings.len()
            && self.bindings.iter().zip(bindings).all(|((known, changes), table)| {
                known.as_ptr() == Arc::as_ptr(table) && *changes == table.bindings().lease_changes()
            })
    }
}

impl Watcher {
    fn new(running: Arc<Running>) -> Self {
        Watcher {
            running,
            looks: 0,
            note: newest_link_note(),
            underlay_links: Vec::new(),
            followed: Followed::default(),
            refused_calls: 0,
            opener_runs: true,
            maker_runs: true,
        }
    }

    fn look(&mut self) {
        let now = self.running.now();
        self.look_at_links(&now);
        self.look_at_tables(&now);
        self.look_at_underlay_links(&now);
        self.look_at_bindings(&now);
        if self.looks.is_multiple_of(LOOKS_PER_SAMPLE) {
            self.sample_traffic(&now);
        }
        self.look_at_process();
        self.look_at_owners();
        self.running.events.add_due();
        self.looks += 1;
    }

    /// Removes entries of owners whose time is over.
    fn look_at_owners(&self) {
        let mut networks = self.running.networks.lock().ignore_poison();
        // A reload may have come since the last look.
        let expired = networks.expire(&self.running.now());
        drop(networks);
        for (owner, message) in expired {
            tracing::warn!("{message}");
            self.running.events.add(EventKind::OwnerExpired { owner }, message);
        }
    }

    fn sample_traffic(&self, now: &Snapshot) {
        let bytes = |port: &Arc<dyn PortControl>| {
            port.counters().iter().fold([0_u64; 2], |[rx, tx], queue| {
                [rx.saturating_add(queue.rx.bytes.get()), tx.saturating_add(queue.tx.bytes.get())]
            })
        };
        let ports = now.config.ports.iter().zip(&now.ports);
        let ports = ports.map(|(config, port)| (config.name.as_str(), bytes(port)));
        let mut traffic = self.running.traffic.lock().ignore_poison();
        traffic.add(since_epoch(self.running.clock.time_of_day()), ports);
    }

    /// A link that changes more often than its notes are kept has only its last changes told.
    fn look_at_links(&mut self, now: &Snapshot) {
        let newest = newest_link_note();
        if newest == self.note {
            return;
        }
        let ports = now.config.ports.iter().zip(&now.ports);
        let mut notes: Vec<_> = ports
            .flat_map(|(config, port)| port.history().notes.into_iter().map(|note| (note, config.name.clone())))
            .filter(|(note, _)| self.note < note.number && note.number <= newest)
            .collect();
        notes.sort_by_key(|(note, _)| note.number);
        self.note = newest;
        for (note, port) in notes {
            let source = format!("link {port}");
            let (message, kind) = match note.event {
                LinkEvent::Up => (format!("port {port:?}: link up"), EventKind::LinkUp { port }),
                LinkEvent::Down(reason) => {
                    (format!("port {port:?}: link down: {reason}"), EventKind::LinkDown { port, reason })
                }
                LinkEvent::Fault(reason) => {
                    (format!("port {port:?}: fault: {reason}"), EventKind::Fault { port, reason })
                }
            };
            self.running.events.add_limited_at(&source, note.time, kind, message);
        }
    }

    fn look_at_tables(&self, now: &Snapshot) {
        now.view(|view| {
            for TableEvent { source, kind, message } in now.tables.controls().flat_map(|control| control.events(view)) {
                self.running.events.add_limited(&source, kind, message);
            }
        });
    }

    /// Has the groups of ports take the addresses that bindings tell, if these have changed.
    fn look_at_bindings(&mut self, now: &Snapshot) {
        let Some(firewall) = now.tables.get::<FirewallControl>("firewall", "ports") else { return };
        let bridges = now.config.bridges.iter();
        let bindings: Vec<_> = bridges.filter_map(|bridge| now.tables.get("bindings", &bridge.name)).collect();
        if self.followed.is_of(&firewall, &bindings) {
            return;
        }
        // Before the bindings are read: a change meanwhile is seen at the next look.
        let followed =
            bindings.iter().map(|table: &Arc<BindingTable>| (Arc::downgrade(table), table.bindings().lease_changes()));
        self.followed = Followed { firewall: Arc::downgrade(&firewall), bindings: followed.collect() };
        if let Err(error) = firewall.follow_bindings(bindings.iter().map(|table| &**table)) {
            tracing::warn!("addresses of bindings are no members of groups: {error}");
        }
    }

    /// Tells underlays that the links of their ports have come up, so that they probe and announce
    /// their addresses.
    fn look_at_underlay_links(&mut self, now: &Snapshot) {
        let mut links = Vec::new();
        for config in &now.config.underlays {
            let Some(underlay) = now.tables.get::<Underlay>("underlay", &config.name) else { continue };
            let Some(port) = now.config.port_index(&config.port).and_then(|at| now.ports.get(at)) else { continue };
            if !port.status().up {
                continue;
            }
            let changes = port.history().changes;
            let is_same =
                |(other, seen): &(Weak<Underlay>, u64)| other.as_ptr() == Arc::as_ptr(&underlay) && *seen == changes;
            if !self.underlay_links.iter().any(is_same) {
                underlay.note_link_up();
            }
            links.push((Arc::downgrade(&underlay), changes));
        }
        self.underlay_links = links;
    }

    fn look_at_process(&mut self) {
        let count = sandbox::refused_calls();
        if count != self.refused_calls {
            self.refused_calls = count;
            let message = format!("the sandbox has refused {count} system calls since the start; the log names them");
            let kind = EventKind::RefusedCall { count };
            self.running.events.add_limited("sandbox", kind, message);
        }
        if self.opener_runs
            && let Some((pid, false)) = self.running.opener()
        {
            self.opener_runs = false;
            let message = format!(
                "the opener process {pid} has ended: interfaces that are gone cannot be opened until a restart"
            );
            self.running.events.add(EventKind::OpenerEnded { pid }, message);
        }
        if self.maker_runs
            && let Some((process, false)) = socket_file::maker_process()
        {
            self.maker_runs = false;
            let pid = process.pid;
            let message = format!(
                "the process {pid} that makes sockets has ended: no port can be added or made anew until a restart"
            );
            self.running.events.add(EventKind::SocketsEnded { pid }, message);
        }
    }
}
