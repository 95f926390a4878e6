//! The control half of a bridge's bindings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use straightline_api::{Binding as Row, Row as TableRow};
use straightline_fdb::{Binding, BindingSource, Bindings, IpKey};
use straightline_graph::{NodeControl, Rows, TableView};
use straightline_packet::PortIndex;
use straightline_wire::VlanId;

use super::outbox::Outbox;
use crate::binding_settings::BindingSettings;

/// The bindings of a bridge. All workers share them.
#[derive(Debug)]
pub struct BindingTable {
    bridge: String,
    pub(super) settings: BindingSettings,
    pub(super) bindings: Bindings,
    pub(super) outbox: Outbox,
    pub(super) counters: BindingCounters,
    /// The latest second that has begun, plus 1.
    second: AtomicU32,
    /// The round of questions of this second goes on.
    pub(super) goes_on: AtomicBool,
}

/// Counts of the nodes.
#[derive(Debug, Default)]
pub(super) struct BindingCounters {
    /// Questions that were answered.
    pub(super) answered: AtomicU64,
    /// Questions that were not answered, because too many answers waited: they were flooded.
    pub(super) unanswered: AtomicU64,
    /// Messages of a checked or trusted port that cannot be read.
    pub(super) malformed: AtomicU64,
    /// Leases of stations whose port is not known.
    pub(super) unplaced: AtomicU64,
}

impl BindingTable {
    /// Creates the bindings of a bridge.
    #[must_use]
    pub fn new(bridge: &str, settings: BindingSettings) -> Self {
        let ports: Vec<_> = settings.ports.iter().map(|port| port.index).collect();
        let statics = settings.statics.iter().map(|&(vlan, ip, mac)| (IpKey { vlan, ip }, mac));
        let bindings = Bindings::new(settings.limit, settings.ageing, &ports, statics);
        let size = ports.iter().map(|port| port.index() + 1).max().unwrap_or(0);
        BindingTable {
            bridge: bridge.to_owned(),
            bindings,
            outbox: Outbox::new(size),
            counters: BindingCounters::default(),
            second: AtomicU32::new(0),
            goes_on: AtomicBool::new(false),
            settings,
        }
    }

    /// Returns the bindings.
    #[must_use]
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Returns the ports of the bridge.
    pub(crate) fn ports(&self) -> impl Iterator<Item = PortIndex> {
        self.settings.ports.iter().map(|port| port.index)
    }

    /// Returns whether a second begins with this call. It does for one worker only.
    pub(super) fn begins_second(&self, now: u32) -> bool {
        let next = now.saturating_add(1);
        let last = self.second.load(Ordering::Relaxed);
        last < next && self.second.compare_exchange(last, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns a binding as the API shows it. Who owns it is known elsewhere.
    #[must_use]
    pub fn row(&self, view: &TableView<'_>, binding: &Binding) -> Row {
        let Binding { key, mac, port, source, seen, asked } = *binding;
        let (source, heard) = match source {
            BindingSource::Static => ("static", false),
            BindingSource::Owner => ("owner", false),
            BindingSource::Checked => ("checked", true),
            BindingSource::Leased { .. } => ("dhcp", true),
        };
        Row {
            bridge: self.bridge.clone(),
            vlan: key.vlan.get(),
            ip: key.ip.to_string(),
            mac: mac.to_string(),
            port: port.map_or_else(String::new, |port| (view.port)(port)),
            source: source.to_owned(),
            owner: None,
            age_s: if heard { view.age(seen) } else { 0.0 },
            probed: asked > 0,
        }
    }
}

impl NodeControl for BindingTable {
    /// Takes over what was heard, as far as its port is still one of the bridge.
    fn commit(&self, before: &dyn NodeControl) {
        if let Some(before) = before.downcast::<Self>() {
            self.bindings.take_over(&before.bindings);
            let pairs = [
                (&self.counters.answered, &before.counters.answered),
                (&self.counters.unanswered, &before.counters.unanswered),
                (&self.counters.malformed, &before.counters.malformed),
                (&self.counters.unplaced, &before.counters.unplaced),
            ];
            pairs.iter().for_each(|(new, old)| new.store(old.load(Ordering::Relaxed), Ordering::Relaxed));
        }
    }

    fn rows(&self, view: &TableView<'_>, rows: &mut Rows) {
        for binding in self.bindings.entries() {
            let IpKey { vlan, ip } = binding.key;
            rows.add(|| place(vlan, ip), || TableRow::Binding(self.row(view, &binding)));
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counts = self.bindings.counts();
        let BindingCounters { answered, unanswered, malformed, unplaced } = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("answered", read(answered)),
            ("unanswered", read(unanswered)),
            ("bound-elsewhere", counts.elsewhere),
            ("overruled", counts.overruled),
            ("refused", counts.full),
            ("asked", counts.asked),
            ("withdrawn", counts.withdrawn),
            ("malformed", read(malformed)),
            ("unplaced", read(unplaced)),
        ]
    }
}

/// Returns the place of a binding in the order of all.
fn place(vlan: VlanId, ip: std::net::IpAddr) -> String {
    match ip {
        std::net::IpAddr::V4(ip) => format!("{:04} 4 {:08x}", vlan.get(), ip.to_bits()),
        std::net::IpAddr::V6(ip) => format!("{:04} 6 {:032x}", vlan.get(), ip.to_bits()),
    }
}

/// Adds one to a counter of several workers.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The bindings, shared by nodes.
pub(super) type Shared = Arc<BindingTable>;
