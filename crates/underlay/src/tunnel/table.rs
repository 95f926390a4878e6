//! The control half of a tunnel: the remote of each station, and the MTUs that routers have told.

use std::collections::BTreeMap;
use std::net::IpAddr;

use straightline_api::{EventKind, RemoteEntry, Row};
use straightline_graph::{NodeControl, RefusalNotes, Rows, TableEvent, TableView};

use super::Tunnel;

/// The news of a tunnel that events have told.
#[derive(Debug, Default)]
pub(super) struct AlreadyTold {
    /// The number of moves.
    moves: u64,
    refusals: RefusalNotes,
    /// The MTUs that routers have told.
    path_mtus: BTreeMap<IpAddr, u16>,
}

impl NodeControl for Tunnel {
    /// Takes over the MTUs that were told, and what clients have added. Other stations are learned anew.
    fn commit(&self, before: &dyn NodeControl) {
        if let Some(before) = before.downcast::<Self>() {
            self.told.take_over(&before.told);
            self.take_over_added(before);
        }
    }

    /// A tunnel to one remote has no table of stations.
    fn is_table(&self) -> bool {
        self.remotes.is_some()
    }

    fn rows(&self, view: &TableView<'_>, rows: &mut Rows) {
        for station in self.stations(view.second()) {
            let row = || {
                Row::TunnelStation(RemoteEntry {
                    port: self.config.name.clone(),
                    vlan: self.networks.as_ref().map(|_| station.vlan.get()),
                    mac: station.mac.to_string(),
                    remote: station.remote.to_string(),
                    age_s: if station.is_static || station.is_owned { 0.0 } else { view.age(station.seen) },
                    is_static: station.is_static,
                    is_owned: station.is_owned,
                })
            };
            rows.add(|| station.mac.to_string(), row);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (_, moved) = self.moves(u64::MAX);
        vec![("moved", moved), ("refused", self.shares().iter().map(|share| share.refused).sum())]
    }

    fn events(&self, view: &TableView<'_>) -> Vec<TableEvent> {
        self.told.news(|told| {
            let mut news = self.news_of_moves(&mut told.moves);
            let paths = self.paths.now();
            let remotes = paths.iter().map(|path| path.remote).zip(self.shares());
            let refused =
                remotes.map(|(remote, share)| (self.config.name.clone(), Some(remote.to_string()), share.refused));
            news.extend(told.refusals.news(view, refused));
            news.extend(self.news_of_paths(&mut told.path_mtus));
            news
        })
    }
}

impl Tunnel {
    fn news_of_moves(&self, told: &mut u64) -> Vec<TableEvent> {
        // A table that is new under an old name counts from 0 again.
        let (_, count) = self.moves(u64::MAX);
        let (moves, count) = self.moves(if *told > count { 0 } else { *told });
        *told = count;
        let event = |moved: crate::RemoteMove| {
            let port = self.config.name.clone();
            let mac = moved.mac.to_string();
            let from = moved.from.to_string();
            let to = moved.to.to_string();
            let within = self.networks.as_ref().map_or_else(String::new, |_| format!(" in VLAN {}", moved.vlan));
            let message = format!("tunnel {port:?}: {mac}{within} moved from remote {from} to remote {to}");
            let source = format!("tunnel {port}");
            TableEvent { source, kind: EventKind::RemoteMoved { port, mac, from, to }, message }
        };
        moves.into_iter().map(event).collect()
    }

    /// A stranger can forge what routers tell, so the events of each tunnel are limited by themselves.
    fn news_of_paths(&self, told: &mut BTreeMap<IpAddr, u16>) -> Vec<TableEvent> {
        let path_mtus: BTreeMap<_, _> = self.path_mtus().into_iter().collect();
        let before = std::mem::replace(told, path_mtus);
        let forgotten = before.keys().filter(|remote| !told.contains_key(*remote)).map(|&remote| (remote, None));
        let changed = told.iter().filter(|(remote, mtu)| before.get(*remote) != Some(*mtu));
        let changed = changed.map(|(&remote, &mtu)| (remote, Some(mtu)));
        let event = |(remote, mtu): (IpAddr, Option<u16>)| {
            let says = match mtu {
                Some(mtu) => format!("a router says that the path to {remote} carries packets of {mtu} bytes"),
                None => format!("what a router said about the path to {remote} is forgotten"),
            };
            let port = self.config.name.clone();
            let message = format!("port {port:?}: {says}");
            let source = format!("path {port}");
            TableEvent { source, kind: EventKind::PathMtu { port, remote: remote.to_string(), mtu }, message }
        };
        forgotten.chain(changed).map(event).collect()
    }
}
