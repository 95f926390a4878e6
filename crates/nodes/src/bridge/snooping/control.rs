//! The control half of snooping: the table of groups.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use straightline_api::{EventKind, GroupMember, MulticastRouter, Row};
use straightline_graph::{NodeControl, RefusalNotes, Rows, TableEvent, TableView, Told};
use straightline_packet::PortIndex;

use super::groups::{Groups, Membership};
use super::{Counts, Shared, Snooper};

/// The table of groups of a bridge. The bridges of all workers share it.
#[derive(Debug)]
pub struct SnoopingTable {
    pub(super) shared: Arc<Shared>,
    told: Told<RefusalNotes>,
}

impl SnoopingTable {
    /// Creates the table of a bridge of these ports, in the order of its edges.
    #[must_use]
    pub fn new(ports: Vec<PortIndex>) -> Self {
        let shared = Shared { groups: Groups::new(ports), counts: Counts::default() };
        SnoopingTable { shared: Arc::new(shared), told: Told::default() }
    }

    /// Returns the snooping of one of the workers that share the table.
    pub(crate) fn snooper(&self) -> Snooper {
        Snooper::new(Arc::clone(&self.shared))
    }
}

impl Counts {
    fn all(&self) -> [(&'static str, &std::sync::atomic::AtomicU64); 4] {
        [("reports", &self.reports), ("queries", &self.queries), ("invalid", &self.invalid), ("long", &self.long)]
    }
}

impl NodeControl for SnoopingTable {
    fn commit(&self, before: &dyn NodeControl) {
        let Some(before) = before.downcast::<Self>() else { return };
        self.shared.groups.take_over(&before.shared.groups);
        for ((_, count), (_, before)) in self.shared.counts.all().iter().zip(before.shared.counts.all()) {
            count.store(before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.told.take_over(&before.told);
    }

    fn rows(&self, view: &TableView<'_>, rows: &mut Rows) {
        let groups = &self.shared.groups;
        let now = view.second();
        let port = |edge: usize| groups.ports().get(edge).map_or_else(String::new, |port| (view.port)(*port));
        for Membership { key, edge, until } in groups.memberships(now) {
            let vlan = key.vlan.get();
            let left_s = until - now;
            let place = || format!("{vlan:04} {} {edge:05}", in_order(key.group));
            if key.is_queriers() {
                let protocol = if key.group.is_ipv4() { "IGMP" } else { "MLD" }.to_owned();
                let row = || Row::MulticastRouter(MulticastRouter { vlan, protocol, port: port(edge), left_s });
                rows.add(place, row);
            } else {
                let group = key.group.to_string();
                rows.add(place, || Row::GroupMember(GroupMember { vlan: Some(vlan), group, port: port(edge), left_s }));
            }
        }
        for (edge, until) in groups.all_groups(now) {
            let group = "all".to_owned();
            let row = || GroupMember { vlan: None, group, port: port(edge), left_s: until - now };
            rows.add(|| format!("all {edge:05}"), || Row::GroupMember(row()));
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counts = self.shared.counts.all().map(|(name, count)| (name, count.load(Ordering::Relaxed)));
        counts.into_iter().chain([("refused", self.shared.groups.total().refused)]).collect()
    }

    fn events(&self, view: &TableView<'_>) -> Vec<TableEvent> {
        let groups = &self.shared.groups;
        self.told.news(|told| {
            if groups.total().refused == 0 {
                return Vec::new();
            }
            let shares = groups.ports().iter().map(|&port| ((view.port)(port), None, groups.share(port).refused));
            told.news_as(view, shares, |port, _, refused| TableEvent {
                source: format!("groups {port}"),
                message: format!(
                    "port {port:?}: {refused} multicast groups were not noted so far, because its share is full: it \
                     gets the packets of all groups"
                ),
                kind: EventKind::GroupsRefused { port, refused },
            })
        })
    }
}

/// Returns a text that sorts addresses by their numbers, IPv4 first.
fn in_order(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => format!("4 {:08x}", ip.to_bits()),
        IpAddr::V6(ip) => format!("6 {:032x}", ip.to_bits()),
    }
}
