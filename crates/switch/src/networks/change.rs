//! Changes of entries by clients: checked as a whole, then set.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use straightline_api::nearest_first;
use straightline_fdb::{Newer, OwnedCommand, OwnedConflict, OwnedPlan, OwnedTable, OwnerId, Station};
use straightline_packet::IgnorePoison;
use straightline_underlay::{RemoteError, Tunnel};
use straightline_wire::{MacAddr, VlanId};

use super::{Member, Members, other_tunnel};
use crate::Switch;
use crate::api::{ChangeRemotes, ChangeStations, EntriesChanged, ErrorCode, NewStation, Refusal};
use crate::config::{Mac, is_name};
use crate::entries::{Ips, Networks, Place};
use crate::running::Snapshot;

/// The most remotes of a tunnel that owners may have; the tunnel itself has a limit with those of the
/// file.
const MOST_REMOTES: usize = 1024;

/// The most IP addresses of a station.
const MOST_IPS: usize = 16;

impl Switch {
    /// Changes remotes of an owner in a tunnel: all of `remotes`, or none.
    ///
    /// # Errors
    /// The first remote that is wrong or not possible. Nothing is changed then.
    pub fn change_remotes(&self, request: &ChangeRemotes, remotes: &[String]) -> Result<EntriesChanged, Refusal> {
        let mut networks = self.running.networks.lock().ignore_poison();
        networks.change_remotes(&self.running.now(), request, remotes)
    }

    /// Changes stations of an owner in a bridge: all of `stations`, or none.
    ///
    /// # Errors
    /// The first station that is wrong or not possible. Nothing is changed then.
    pub fn change_stations(
        &self,
        request: &ChangeStations,
        stations: &[NewStation],
    ) -> Result<EntriesChanged, Refusal> {
        let mut networks = self.running.networks.lock().ignore_poison();
        networks.change_stations(&self.running.now(), request, stations)
    }
}

impl Networks {
    /// Returns the owner of this name.
    ///
    /// # Errors
    /// It is no name, or there are too many owners.
    pub(super) fn owner(&mut self, name: &str) -> Result<OwnerId, Refusal> {
        if !is_name(name) || name == "file" {
            let error = format!("owner {name:?}: not a valid name; use 1 to 32 of A-Z a-z 0-9 _ . -, and not \"file\"");
            return Err(Refusal::new(ErrorCode::BadRequest, error));
        }
        if let Some(owner) = self.owners.named(name) {
            return Ok(owner);
        }
        // Names of clients that have come and gone make place.
        let remotes = self.remotes.values().flat_map(OwnedTable::iter).map(|(_, row)| row.owner);
        let stations = self.stations.values().flat_map(OwnedTable::iter).map(|(_, row)| row.owner);
        let used: BTreeSet<OwnerId> = remotes.chain(stations).collect();
        self.owners.forget_unused(|owner| used.contains(&owner));
        let too_many = || Refusal::new(ErrorCode::Busy, format!("owner {name:?}: too many owners; use a known one"));
        self.owners.named(name).ok_or_else(too_many)
    }

    fn change_remotes(
        &mut self,
        now: &Snapshot,
        request: &ChangeRemotes,
        remotes: &[String],
    ) -> Result<EntriesChanged, Refusal> {
        let ChangeRemotes { tunnel: name, owner, command, .. } = request;
        let command = parse_command(command)?;
        let tunnel = tunnel(now, name)?;
        let refused = |at: usize, what: &str, why: &str| {
            let error = format!("tunnel {name:?}: remote {at}: {what} is {why}");
            Refusal::new(ErrorCode::Refused, error).about(what).at(at)
        };
        let mut entries = Vec::new();
        for (at, text) in remotes.iter().enumerate() {
            let ip: IpAddr = text.parse().map_err(|_| refused(at, text, "no IP address"))?;
            entries.push((ip, ()));
        }
        let owner = self.owner(owner)?;
        if !tunnel.takes_remotes() {
            let error = format!("tunnel {name:?}: {}", RemoteError::OneRemote);
            return Err(Refusal::new(ErrorCode::Refused, error).about(name));
        }
        let table = self.remotes.entry(name.clone()).or_default();
        let is_fixed = |remote: &IpAddr| tunnel.is_fixed_remote(*remote);
        let plan = table.plan(owner, command, &entries, MOST_REMOTES, is_fixed, |(), ()| Newer::Equal);
        let title = format!("tunnel {name:?}: remote");
        let plan = plan.map_err(|conflict| self.conflict(&title, conflict, |at| remotes[at].clone()))?;
        for &at in &plan.add {
            let (remote, ()) = entries[at];
            tunnel.check_remote(remote).map_err(|error| refused(at, &remotes[at], &error.to_string()))?;
            if let Some(other) = other_tunnel(now, &tunnel, remote) {
                let why = format!("a remote of port {other:?} with the same key already");
                return Err(refused(at, &remotes[at], &why));
            }
        }
        let add: Vec<_> = plan.add.iter().map(|&at| entries[at].0).collect();
        let done = tunnel.change_remotes(&add, &plan.delete);
        done.map_err(|(place, error)| {
            let at = plan.add.get(place).copied().unwrap_or(0);
            refused(at, &remotes[at], &error.to_string())
        })?;
        // One that the file has by now stays.
        let gone: Vec<_> = plan.delete.iter().copied().filter(|remote| !tunnel.has_remote(*remote)).collect();
        self.forget_stations_behind(now, name, &gone);
        let answer = answer(&plan);
        let epoch = self.owners.epoch(owner);
        self.remotes.entry(name.clone()).or_default().apply(owner, epoch, &plan, entries);
        log(&title, self.owners.name(owner), &answer);
        Ok(answer)
    }

    /// Forgets the stations of all owners behind remotes that are gone.
    pub(super) fn forget_stations_behind(&mut self, now: &Snapshot, tunnel: &str, remotes: &[IpAddr]) {
        if remotes.is_empty() {
            return;
        }
        let Some(bridge) = now.config.bridges.iter().find(|bridge| bridge.ports.iter().any(|port| port == tunnel))
        else {
            return;
        };
        let (Some(port), Some(stations)) = (self.ports.number(tunnel), self.stations.get_mut(&bridge.name)) else {
            return;
        };
        let is_behind =
            |place: &Place| place.port == port && place.remote.is_some_and(|remote| remotes.contains(&remote));
        let gone: Vec<_> =
            stations.iter().filter(|(_, row)| is_behind(&row.value)).map(|(station, _)| *station).collect();
        let Ok(mut members) = Members::of(now, &bridge.name) else { return };
        for station in gone {
            if let Some(row) = stations.remove(&station) {
                members.unset(&self.ports, station, &row.value);
            }
        }
    }

    fn change_stations(
        &mut self,
        now: &Snapshot,
        request: &ChangeStations,
        stations: &[NewStation],
    ) -> Result<EntriesChanged, Refusal> {
        let ChangeStations { bridge, owner, command, .. } = request;
        let command = parse_command(command)?;
        let mut members = Members::of(now, bridge)?;
        let owner = self.owner(owner)?;
        let mut entries = Vec::with_capacity(stations.len());
        for (at, station) in stations.iter().enumerate() {
            let entry = self.entry(&mut members, command, station);
            entries.push(entry.map_err(|why| {
                let error = format!("bridge {bridge:?}: station {at} ({}): {why}", station.mac);
                Refusal::new(ErrorCode::Refused, error).about(&station.mac).at(at)
            })?);
        }
        let most = now.config.bridges.iter().find(|known| known.name == *bridge).map_or(0, |known| known.api_stations);
        let fdb = Arc::clone(members.table.fdb());
        // A tunnel's section has stations, too.
        let tunnels: Vec<_> = members.known.values().flatten().filter_map(|member| member.tunnel.clone()).collect();
        let is_fixed = |station: &Station| {
            let is_in = |tunnel: &Arc<Tunnel>| tunnel.is_fixed_station(Member::inner(tunnel, *station));
            fdb.is_fixed(*station) || tunnels.iter().any(is_in)
        };
        let table = self.stations.entry(bridge.clone()).or_default();
        let plan = table.plan(owner, command, &entries, most as usize, is_fixed, newer);
        let title = format!("bridge {bridge:?}: station");
        let plan = plan.map_err(|conflict| self.conflict(&title, conflict, |at| stations[at].mac.clone()))?;
        if let Err(at) = self.set(&mut members, bridge, &plan, &entries) {
            let error = format!("{title} {at} ({}): no place in the table", stations[at].mac);
            return Err(Refusal::new(ErrorCode::Refused, error).about(&stations[at].mac).at(at));
        }
        let answer = answer(&plan);
        let epoch = self.owners.epoch(owner);
        self.stations.entry(bridge.clone()).or_default().apply(owner, epoch, &plan, entries);
        log(&title, self.owners.name(owner), &answer);
        Ok(answer)
    }

    /// Sets in the tables what a checked change says.
    ///
    /// # Errors
    /// The place of the entry that cannot be set. The tables are as before then.
    fn set(
        &self,
        members: &mut Members<'_>,
        bridge: &str,
        plan: &OwnedPlan<Station>,
        entries: &[(Station, Place)],
    ) -> Result<(), usize> {
        let Some(before) = self.stations.get(bridge) else { return Ok(()) };
        let changed = plan.change.iter().map(|&at| entries[at].0);
        for station in plan.delete.iter().copied().chain(changed) {
            if let Some(row) = before.get(&station) {
                members.unset(&self.ports, station, &row.value);
            }
        }
        let set: Vec<usize> = plan.add.iter().chain(&plan.change).copied().collect();
        for (done, &at) in set.iter().enumerate() {
            let (station, place) = &entries[at];
            if members.set(&self.ports, *station, place) {
                continue;
            }
            for &at in &set[..done] {
                members.unset(&self.ports, entries[at].0, &entries[at].1);
            }
            for (station, row) in before.iter() {
                members.set(&self.ports, *station, &row.value);
            }
            return Err(at);
        }
        Ok(())
    }

    /// Returns a station with its place.
    ///
    /// # Errors
    /// The reason why it is wrong.
    fn entry(
        &mut self,
        members: &mut Members<'_>,
        command: OwnedCommand,
        station: &NewStation,
    ) -> Result<(Station, Place), String> {
        let NewStation { mac, vlan, port, remote, sequence, ips } = station;
        let mac: Mac = mac.parse().map_err(|error: crate::config::MacError| error.to_string())?;
        let id = VlanId::new(*vlan).ok_or_else(|| format!("VLAN {vlan} is out of range: use 1 to {}", VlanId::MAX))?;
        let key = Station::new(id, MacAddr(mac.octets()));
        if command == OwnedCommand::Delete {
            return Ok((key, Place { port: 0, remote: None, sequence: 0, ips: Ips::None }));
        }
        let is_member = |name: &&String| *name == port;
        let bridge = members.table.bridge().to_owned();
        let ports = members.now.config.bridges.iter().find(|known| known.name == bridge).map(|known| &known.ports);
        if ports.is_none_or(|ports| ports.iter().find(is_member).is_none()) {
            let known = nearest_first(port, ports.into_iter().flatten().map(String::as_str));
            return Err(format!("no such port {port:?} in the bridge; its ports are {known}"));
        }
        let number = self.ports.number(port).ok_or("too many names of ports")?;
        let member = members.get(&self.ports, number).ok_or_else(|| format!("port {port:?} is in no bridge"))?;
        if members.table.may_have(member.index, id) != Some(true) {
            return Err(format!("port {port:?} is not in VLAN {id}"));
        }
        let remote = match (remote, &member.tunnel) {
            (None, None) => None,
            (Some(remote), None) => {
                return Err(format!("port {port:?} has no table of remotes; remove {remote}"));
            }
            (None, Some(tunnel)) => {
                let known: Vec<_> = tunnel.remotes().iter().map(ToString::to_string).collect();
                return Err(format!("port {port:?} has several remotes; name one of {}", known.join(", ")));
            }
            (Some(remote), Some(tunnel)) => {
                let ip: IpAddr = remote.parse().map_err(|_| format!("remote {remote:?} is no IP address"))?;
                if !tunnel.has_remote(ip) {
                    return Err(format!("{ip} is no remote of port {port:?}; add it first"));
                }
                Some(ip)
            }
        };
        if ips.len() > MOST_IPS {
            return Err(format!("{} IP addresses; at most {MOST_IPS}", ips.len()));
        }
        let parse = |text: &String| -> Result<IpAddr, String> {
            let ip: IpAddr = text.parse().map_err(|_| format!("{text:?} is no IP address"))?;
            let is_broadcast = ip == IpAddr::from([255; 4]);
            if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || is_broadcast {
                return Err(format!("{ip} is not the address of a station"));
            }
            Ok(ip)
        };
        let ips = ips.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        Ok((key, Place { port: number, remote, sequence: *sequence, ips: Ips::new(ips) }))
    }

    fn conflict(&self, title: &str, conflict: OwnedConflict, name: impl Fn(usize) -> String) -> Refusal {
        let (at, why) = match conflict {
            OwnedConflict::Taken(at, owner) => (at, format!("owner {:?} has it", self.owners.name(owner))),
            OwnedConflict::Twice(at) => (at, "named twice; name it once".to_owned()),
            OwnedConflict::Full(at) => (at, "the limit is reached (`api-stations` of a bridge)".to_owned()),
        };
        let name = name(at);
        Refusal::new(ErrorCode::Refused, format!("{title} {at} ({name}): {why}")).about(name).at(at)
    }
}

/// Returns the relation of a station's new place to the owner's old one.
fn newer(new: &Place, old: &Place) -> Newer {
    if new.sequence < old.sequence {
        Newer::Older
    } else if new == old {
        Newer::Equal
    } else {
        Newer::Newer
    }
}

fn parse_command(word: &str) -> Result<OwnedCommand, Refusal> {
    match word {
        "add" => Ok(OwnedCommand::Add),
        "delete" => Ok(OwnedCommand::Delete),
        "replace" => Ok(OwnedCommand::Replace),
        other => {
            let error = format!("command {other:?}: it must be add, delete or replace");
            Err(Refusal::new(ErrorCode::BadRequest, error))
        }
    }
}

/// Returns a tunnel by the name of its port.
pub(super) fn tunnel(now: &Snapshot, name: &str) -> Result<Arc<Tunnel>, Refusal> {
    now.tables.get::<Tunnel>("tunnel", name).ok_or_else(|| {
        let tunnels = now.config.ports.iter().filter(|port| port.kind.as_tunnel().is_some());
        let known = nearest_first(name, tunnels.map(|port| port.name.as_str()));
        let error = match known.as_str() {
            "" => format!("no such tunnel {name:?}; the switch has none"),
            known => format!("no such tunnel {name:?}; tunnels are {known}"),
        };
        Refusal::new(ErrorCode::UnknownPort, error).about(name)
    })
}

fn answer<K>(plan: &OwnedPlan<K>) -> EntriesChanged {
    EntriesChanged {
        added: plan.add.len() as u64,
        changed: plan.change.len() as u64,
        deleted: plan.delete.len() as u64,
        kept: plan.kept as u64,
        held: 0,
    }
}

fn log(title: &str, owner: &str, done: &EntriesChanged) {
    let EntriesChanged { added, changed, deleted, .. } = done;
    if added + changed + deleted > 0 {
        tracing::debug!("{title}s of owner {owner}: {added} added, {changed} changed, {deleted} deleted");
    }
}
