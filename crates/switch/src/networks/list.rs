//! Answers about entries of owners.

use std::net::IpAddr;

use az::SaturatingAs;
use straightline_fdb::{BindingSource, IpKey, OwnedTable, Station};
use straightline_nodes::BindingTable;
use straightline_wire::{MacAddr, VlanId};

use super::Members;
use super::change::tunnel;
use crate::api::{
    Binding, Bindings, BindingsRequest, ErrorCode, OwnedRemote, OwnedStation, Refusal, Remotes, RemotesRequest,
    Stations, StationsRequest,
};
use crate::config::Mac;
use crate::entries::{Networks, Place};
use crate::running::Snapshot;

impl Networks {
    /// Returns remotes of a tunnel: those of the file, and those of owners.
    pub(crate) fn list_remotes(&self, now: &Snapshot, request: &RemotesRequest) -> Result<Remotes, Refusal> {
        let RemotesRequest { tunnel: name, owner, after, limit } = request;
        let tunnel = tunnel(now, name)?;
        let after = after.as_ref().map(|after| after.parse::<IpAddr>()).transpose();
        let after = after.map_err(|_| bad_place("remotes"))?;
        let file = tunnel.remotes().into_iter().filter(|remote| tunnel.is_fixed_remote(*remote));
        let file = file.map(|remote| (remote, None));
        let owned = self.remotes.get(name);
        let owned =
            owned.into_iter().flat_map(OwnedTable::iter).filter(|(remote, _)| !tunnel.is_fixed_remote(**remote));
        let mut all: Vec<_> = file.chain(owned.map(|(remote, row)| (*remote, Some(row)))).collect();
        let name_of = |row: Option<&straightline_fdb::OwnedRow<()>>| {
            row.map_or("file", |row| self.owners.name(row.owner)).to_owned()
        };
        all.retain(|(_, row)| owner.as_ref().is_none_or(|owner| *owner == name_of(*row)));
        all.sort_by_key(|(remote, _)| *remote);
        let total = all.len() as u64;
        all.retain(|(remote, _)| after.is_none_or(|after| *remote > after));
        let limit = (*limit).clamp(1, RemotesRequest::MOST).saturating_as::<usize>();
        let next = all.get(limit).map(|_| all[limit - 1].0.to_string());
        let remotes = all.into_iter().take(limit).map(|(remote, row)| OwnedRemote {
            remote: remote.to_string(),
            owner: name_of(row),
            confirmed: row.is_none_or(|row| row.epoch == self.owners.epoch(row.owner)),
            active: tunnel.has_remote(remote),
        });
        Ok(Remotes { tunnel: name.clone(), remotes: remotes.collect(), total, next })
    }

    /// Returns stations of owners in a bridge.
    pub(crate) fn list_stations(&self, now: &Snapshot, request: &StationsRequest) -> Result<Stations, Refusal> {
        let StationsRequest { bridge, owner, after, limit } = request;
        let members = Members::of(now, bridge)?;
        let after =
            after.as_deref().map(|after| parse_place(after).ok_or_else(|| bad_place("stations"))).transpose()?;
        let owner = match owner {
            Some(owner) => match self.owners.find(owner) {
                Some(owner) => Some(owner),
                None => return Ok(Stations { bridge: bridge.clone(), ..Stations::default() }),
            },
            None => None,
        };
        let table = self.stations.get(bridge);
        let meant = || {
            table.into_iter().flat_map(OwnedTable::iter).filter(|(_, row)| owner.is_none_or(|owner| row.owner == owner))
        };
        let total = meant().count() as u64;
        let limit = (*limit).clamp(1, StationsRequest::MOST).saturating_as::<usize>();
        let mut rows = meant().skip_while(|(station, _)| after.is_some_and(|after| **station <= after));
        let stations: Vec<_> = rows.by_ref().take(limit).collect();
        let next = rows.next().and(stations.last()).map(|(station, _)| place(**station));
        let shown = |(station, row): (&Station, &straightline_fdb::OwnedRow<Place>)| OwnedStation {
            mac: station.mac().to_string(),
            vlan: station.vlan().get(),
            port: self.ports.name(row.value.port).to_owned(),
            remote: row.value.remote.map(|remote| remote.to_string()),
            sequence: row.value.sequence,
            ips: row.value.ips.iter().map(|ip| ip.to_string()).collect(),
            owner: self.owners.name(row.owner).to_owned(),
            confirmed: row.epoch == self.owners.epoch(row.owner),
            active: members.table.fdb().is_owned(*station),
        };
        Ok(Stations { bridge: bridge.clone(), stations: stations.into_iter().map(shown).collect(), total, next })
    }
}

impl Networks {
    /// Returns bindings of one bridge or of all.
    pub(crate) fn list_bindings(&self, now: &Snapshot, request: &BindingsRequest) -> Result<Bindings, Refusal> {
        let BindingsRequest { bridge, after, limit } = request;
        if let Some(bridge) = bridge {
            Members::of(now, bridge)?;
        }
        let limit = (*limit).clamp(1, BindingsRequest::MOST).saturating_as::<usize>();
        let names = now.config.bridges.iter().map(|known| &known.name);
        let mut names: Vec<_> = names.filter(|name| bridge.as_ref().is_none_or(|bridge| bridge == *name)).collect();
        names.sort_unstable();
        let mut answer = Bindings::default();
        // A place is the bridge, the VLAN and the address, in this order.
        let place = |name: &str, key: IpKey| format!("{name} {} {}", key.vlan, key.ip);
        let after =
            after.as_deref().map(|after| binding_place(after).ok_or_else(|| bad_place("bindings"))).transpose()?;
        for name in names {
            let Some(table) = now.tables.get::<BindingTable>("bindings", name) else { continue };
            let mut all = table.bindings().entries();
            answer.total += all.len() as u64;
            all.retain(|binding| {
                after.as_ref().is_none_or(|(bridge, key)| (name.as_str(), binding.key) > (bridge.as_str(), *key))
            });
            all.sort_unstable_by_key(|binding| binding.key);
            let space = limit - answer.bindings.len();
            if all.len() > space && answer.next.is_none() {
                let last = all.get(space.wrapping_sub(1)).map(|binding| place(name, binding.key));
                answer.next = last.or_else(|| {
                    answer.bindings.last().map(|last| format!("{} {} {}", last.bridge, last.vlan, last.ip))
                });
            }
            now.view(|view| {
                answer.bindings.extend(all.iter().take(space).map(|binding| {
                    let owner = self
                        .stations
                        .get(name.as_str())
                        .and_then(|stations| stations.get(&Station::new(binding.key.vlan, binding.mac)));
                    let is_owned = binding.source == BindingSource::Owner;
                    let owner = owner.filter(|_| is_owned).map(|row| self.owners.name(row.owner).to_owned());
                    Binding { owner, ..table.row(view, binding) }
                }));
            });
        }
        Ok(answer)
    }
}

fn binding_place(place: &str) -> Option<(String, IpKey)> {
    let mut parts = place.split(' ');
    let bridge = parts.next()?.to_owned();
    let vlan = VlanId::new(parts.next()?.parse().ok()?)?;
    Some((bridge, IpKey { vlan, ip: parts.next()?.parse().ok()? }))
}

/// Returns the place of a station in the order of all.
fn place(station: Station) -> String {
    format!("{:04} {}", station.vlan().get(), station.mac())
}

fn parse_place(place: &str) -> Option<Station> {
    let (vlan, mac) = place.split_once(' ')?;
    let mac: Mac = mac.parse().ok()?;
    Some(Station::new(VlanId::new(vlan.parse().ok()?)?, MacAddr(mac.octets())))
}

fn bad_place(command: &str) -> Refusal {
    Refusal::new(ErrorCode::BadRequest, format!("{command}: \"after\" is no place; send the \"next\" of an answer"))
}
