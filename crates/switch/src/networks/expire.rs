//! Entries whose owner has not come back, or has not sent them again in time.

use straightline_fdb::OwnedTable;

use super::Members;
use super::change::tunnel;
use crate::entries::Networks;
use crate::running::Snapshot;

impl Networks {
    /// Removes the entries whose time is over. Returns a sentence for each owner.
    pub(crate) fn expire(&mut self, now: &Snapshot) -> Vec<(String, String)> {
        let time = self.time();
        let mut told = Vec::new();
        for (owner, latest) in self.owners.due(time) {
            let mut count = 0;
            for (bridge, stations) in &mut self.stations {
                // The places are needed to remove the stations.
                let is_stale = |row: &straightline_fdb::OwnedRow<_>| row.owner == owner && row.epoch <= latest;
                let stale: Vec<_> =
                    stations.iter().filter(|(_, row)| is_stale(row)).map(|(station, _)| *station).collect();
                let mut members = Members::of(now, bridge).ok();
                for station in stale {
                    let row = stations.remove(&station);
                    if let (Some(members), Some(row)) = (&mut members, row) {
                        members.unset(&self.ports, station, &row.value);
                    }
                    count += 1;
                }
            }
            let names: Vec<String> = self.remotes.keys().cloned().collect();
            for name in names {
                let gone = self.remotes.get_mut(&name).map_or_else(Vec::new, |table| table.remove_stale(owner, latest));
                count += gone.len();
                if let Ok(tunnel) = tunnel(now, &name)
                    && !gone.is_empty()
                {
                    // A removal cannot fail.
                    let _ = tunnel.change_remotes(&[], &gone);
                    self.forget_stations_behind(now, &name, &gone);
                }
            }
            if count > 0 {
                let name = self.owners.name(owner).to_owned();
                let message =
                    format!("owner {name:?}: {count} remotes and stations have gone, because it did not confirm them");
                told.push((name, message));
            }
        }
        self.remotes.retain(|_, table| !OwnedTable::is_empty(table));
        self.stations.retain(|_, table| !OwnedTable::is_empty(table));
        told
    }
}
