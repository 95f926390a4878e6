//! Remotes of tunnels and stations of bridges that clients of the API have added.
//!
//! The lists here say who owns which entry. What packets need is in the tables of bridges and tunnels,
//! and follows from these lists: a change sets it, and so does each reload. An entry that cannot be set,
//! because its port is gone for example, stays in its list and is set when it can be.
//!
//! Whoever changes the lists or the tables holds the lock of [`Networks`]: requests, reloads, and the
//! events' thread, which removes entries whose time is over.

mod change;
mod expire;
mod list;
mod subscribe;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use az::SaturatingAs;
use straightline_api::nearest_first;
use straightline_fdb::{IpKey, OwnOutcome, OwnedTable, Station};
use straightline_nodes::{BindingTable, BridgeTable};
use straightline_packet::PortIndex;
use straightline_underlay::Tunnel;
use straightline_wire::VlanId;

use crate::api::{ErrorCode, Refusal};
use crate::entries::{Networks, Place, PortNames};
use crate::running::Snapshot;

/// A bridge while its stations are set.
struct Members<'a> {
    now: &'a Snapshot,
    table: Arc<BridgeTable>,
    /// The bindings, if the bridge has some.
    bindings: Option<Arc<BindingTable>>,
    /// The ports by their number in [`PortNames`], as far as they were asked for. `None`: no port of the bridge.
    known: BTreeMap<u16, Option<Member>>,
}

/// A port of a bridge.
#[derive(Clone)]
struct Member {
    index: PortIndex,
    /// The tunnel, if the port is one that takes remotes.
    tunnel: Option<Arc<Tunnel>>,
}

impl Member {
    /// Returns the station as the tunnel's table has it.
    fn inner(tunnel: &Tunnel, station: Station) -> Station {
        if tunnel.config().networks.is_empty() { Station::new(VlanId::DEFAULT, station.mac()) } else { station }
    }
}

impl<'a> Members<'a> {
    /// Returns the ports of a bridge.
    ///
    /// # Errors
    /// There is no such bridge.
    fn of(now: &'a Snapshot, bridge: &str) -> Result<Self, Refusal> {
        match now.tables.get::<BridgeTable>("bridge", bridge) {
            Some(table) => {
                let bindings = now.tables.get::<BindingTable>("bindings", bridge);
                Ok(Members { now, table, bindings, known: BTreeMap::new() })
            }
            None => {
                let known = nearest_first(bridge, now.config.bridges.iter().map(|bridge| bridge.name.as_str()));
                let error = match known.as_str() {
                    "" => format!("no such bridge {bridge:?}; the switch has none"),
                    known => format!("no such bridge {bridge:?}; bridges are {known}"),
                };
                Err(Refusal::new(ErrorCode::Refused, error).about(bridge))
            }
        }
    }

    /// Returns a port of the bridge.
    fn get(&mut self, names: &PortNames, port: u16) -> Option<Member> {
        let Members { now, table, known, .. } = self;
        let found = known.entry(port).or_insert_with(|| {
            let name = names.name(port);
            let at = now.config.port_index(name)?;
            let index = PortIndex(now.plan.ports[at].slot);
            table.may_have(index, VlanId::DEFAULT)?;
            let tunnel = now.tables.get::<Tunnel>("tunnel", name).filter(|tunnel| tunnel.takes_remotes());
            Some(Member { index, tunnel })
        });
        found.clone()
    }

    /// Sets a station as its owner says. Returns `false` if that is not possible now.
    fn set(&mut self, names: &PortNames, station: Station, place: &Place) -> bool {
        let Some(member) = self.get(names, place.port) else { return false };
        if self.table.may_have(member.index, station.vlan()) != Some(true) {
            return false;
        }
        if let Some(tunnel) = &member.tunnel {
            let done = place.remote.and_then(|remote| tunnel.set_owned(Member::inner(tunnel, station), remote));
            if done != Some(OwnOutcome::Owned) {
                return false;
            }
        }
        match self.table.set_owned(station, member.index) {
            OwnOutcome::Owned => {
                if let Some(bindings) = &self.bindings {
                    let vlan = station.vlan();
                    let bind = |ip| bindings.bindings().set_owned(IpKey { vlan, ip }, station.mac(), member.index);
                    place.ips.iter().for_each(|ip| _ = bind(ip));
                }
                true
            }
            OwnOutcome::Fixed | OwnOutcome::Full | OwnOutcome::NoPort => {
                if let Some(tunnel) = &member.tunnel {
                    tunnel.remove_owned(Member::inner(tunnel, station));
                }
                false
            }
        }
    }

    /// Removes a station of an owner.
    fn unset(&mut self, names: &PortNames, station: Station, place: &Place) {
        if let Some(Member { tunnel: Some(tunnel), .. }) = self.get(names, place.port) {
            tunnel.remove_owned(Member::inner(&tunnel, station));
        }
        self.table.fdb().remove_owned(station);
        if let Some(bindings) = &self.bindings {
            let vlan = station.vlan();
            place.ips.iter().for_each(|ip| bindings.bindings().remove_owned(IpKey { vlan, ip }, station.mac()));
        }
    }
}

impl Networks {
    /// Returns the milliseconds since the switch began.
    fn time(&self) -> u64 {
        self.clock.since(self.began).as_millis().saturating_as::<u64>()
    }

    /// Begins a connection that keeps an owner's entries. Returns the number of those from before.
    ///
    /// # Errors
    /// There are too many owners.
    pub(crate) fn attach(&mut self, name: &str, stale: Duration) -> Result<u64, Refusal> {
        let owner = self.owner(name)?;
        let now = self.time();
        self.owners.attach(owner, stale.as_millis().saturating_as::<u64>(), now);
        let remotes = self.remotes.values().flat_map(OwnedTable::iter).filter(|(_, row)| row.owner == owner).count();
        let stations = self.stations.values().flat_map(OwnedTable::iter).filter(|(_, row)| row.owner == owner).count();
        Ok((remotes + stations) as u64)
    }

    /// Ends a connection that has kept an owner's entries.
    pub(crate) fn detach(&mut self, name: &str) {
        let now = self.time();
        if let Some(owner) = self.owners.find(name) {
            self.owners.detach(owner, now);
        }
    }

    /// Sets all entries in the tables of this snapshot, after a change of the configuration.
    pub(crate) fn reapply(&self, now: &Snapshot) {
        for tunnel in now.config.ports.iter() {
            if let Some(table) = now.tables.get::<Tunnel>("tunnel", &tunnel.name).filter(|table| table.takes_remotes())
            {
                self.reapply_remotes(now, &tunnel.name, &table);
            }
        }
        for (bridge, stations) in &self.stations {
            let Ok(mut members) = Members::of(now, bridge) else { continue };
            for (station, row) in stations.iter() {
                if !members.set(&self.ports, *station, &row.value) {
                    members.unset(&self.ports, *station, &row.value);
                }
            }
        }
    }

    fn reapply_remotes(&self, now: &Snapshot, name: &str, tunnel: &Arc<Tunnel>) {
        let owned = self.remotes.get(name);
        let is_owned = |remote: &IpAddr| owned.is_some_and(|owned| owned.get(remote).is_some());
        let gone: Vec<_> = tunnel
            .remotes()
            .into_iter()
            .filter(|remote| !tunnel.is_fixed_remote(*remote) && !is_owned(remote))
            .collect();
        let add = owned.into_iter().flat_map(OwnedTable::iter).map(|(remote, _)| *remote);
        let add: Vec<_> = add
            .filter(|remote| tunnel.check_remote(*remote).is_ok() && other_tunnel(now, tunnel, *remote).is_none())
            .collect();
        if let Err((at, error)) = tunnel.change_remotes(&add, &gone) {
            // Each was checked, so there are too many. The others are in their list.
            tracing::warn!(port = name, "remote {:?} cannot be used: {error}", add.get(at));
        }
    }
}

/// Returns the name of another tunnel that would get packets from this remote.
fn other_tunnel(now: &Snapshot, tunnel: &Arc<Tunnel>, remote: IpAddr) -> Option<String> {
    let mut others = now.tables.all::<Tunnel>().filter(|other| other.port() != tunnel.port());
    let other = others.find(|other| tunnel.has_key_of(other) && other.remotes().contains(&remote))?;
    Some(other.config().name.clone())
}
