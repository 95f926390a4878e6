//! The side of the switch: a thread that follows its stations, and threads that change its remotes
//! and stations. They use the switch's API as any client.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use straightline_api::{
    ChangeRemotes, ChangeStations, NetworkEvent, NewStation, Request, RequestError, SubscribeRequest, send_all, stream,
};
use straightline_wire::MacAddr;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::News;
use crate::machine::{Domain, Machine, Placed};

/// The name by which the process owns its remotes and stations in the switch.
const OWNER: &str = "evpn";

/// The time until the next attempt after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// The most bytes of the entries of a request: a line has at most 4096.
const ENTRIES: usize = 3500;

/// The most lines that are told to the process at once.
const BATCH: usize = 256;

/// News of the switch.
#[derive(Debug)]
pub(super) enum SwitchNews {
    /// Stations, addresses and links.
    Events(Vec<NetworkEvent>),
    /// It does not answer any more.
    Lost(String),
    /// A change has been made, except for these entries that it refused.
    Changed {
        /// The refused entries, and the last refusal.
        refused: Vec<RefusedEntry>,
        why: Option<String>,
        /// The switch could not be asked: the change is to be made again.
        failed: bool,
    },
}

impl SwitchNews {
    /// Returns the news that a change is to be made again.
    pub(super) fn failed(error: &impl ToString) -> Self {
        Self::Changed { refused: Vec::new(), why: Some(error.to_string()), failed: true }
    }
}

/// Follows the switch, until the process ends.
pub(super) async fn follow(api: PathBuf, stale: Duration, bridges: BTreeSet<String>, news: Sender<News>) {
    let stale_s = u32::try_from(stale.as_secs()).unwrap_or(u32::MAX).min(SubscribeRequest::MOST_STALE);
    let bridges = bridges.into_iter().collect();
    let request = Request::Subscribe(SubscribeRequest { owner: Some(OWNER.to_owned()), stale_s, bridges });
    let target = Arc::new((api, request));
    loop {
        let why = follow_on_thread(Arc::clone(&target), news.clone()).await;
        if news.send(News::Switch(SwitchNews::Lost(why))).await.is_err() {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Follows the switch once, on a thread of its own. Returns the reason for its end.
async fn follow_on_thread(target: Arc<(PathBuf, Request)>, news: Sender<News>) -> String {
    let (end, ended) = oneshot::channel();
    let follow = move || {
        let (api, request) = &*target;
        let why = follow_once(api, request, &news).unwrap_or_else(|error| error.to_string());
        // The process may have ended.
        let _ = end.send(why);
    };
    match thread::Builder::new().name("switch".to_owned()).spawn(follow) {
        Ok(_) => ended.await.unwrap_or_else(|_| "the thread that follows it has panicked".to_owned()),
        Err(error) => format!("no thread can follow it: {error}"),
    }
}

/// Follows the switch for as long as the connection is there. Returns the reason for its end.
fn follow_once(api: &Path, request: &Request, news: &Sender<News>) -> Result<String, RequestError> {
    let mut reader = stream(api, request)?;
    let mut line = String::new();
    let mut events = Vec::new();
    loop {
        line.clear();
        match reader.read_line(&mut line) {
            Ok(0) => return Ok("the switch has ended the stream".to_owned()),
            Ok(_) => {}
            Err(error) => return Ok(error.to_string()),
        }
        match serde_json::from_str(&line) {
            Ok(event) => events.push(event),
            Err(error) => return Ok(format!("a line cannot be read: {error}")),
        }
        // What is here already is told at once.
        if events.len() >= BATCH || !reader.buffered().contains(&b'\n') {
            let events = std::mem::take(&mut events);
            if news.blocking_send(News::Switch(SwitchNews::Events(events))).is_err() {
                return Ok(String::new());
            }
        }
    }
}

/// An entry that the switch has refused: a station of a bridge, or a remote of a tunnel.
#[derive(Clone, Debug)]
pub(super) struct RefusedEntry {
    /// The bridge or the tunnel.
    pub(super) place: String,
    pub(super) vlan: u16,
    pub(super) mac: Option<MacAddr>,
}

/// A change of remotes and stations.
#[derive(Debug, Default)]
pub(super) struct SwitchChange {
    /// Steps in their order.
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    /// The bridge or the tunnel.
    place: String,
    command: &'static str,
    entries: Vec<Entry>,
    are_stations: bool,
}

/// A remote or a station.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Entry {
    Remote(String),
    Station(NewStation),
}

/// The sequence numbers that the switch was told.
pub(super) type ToldSequences = BTreeMap<(usize, MacAddr), u32>;

impl SwitchChange {
    /// Returns the whole state. With `replace`, everything else of this owner goes.
    pub(super) fn all(machine: &Machine, command: &'static str, told: &mut ToldSequences) -> Self {
        told.clear();
        let mut stations: BTreeMap<&str, Vec<Entry>> = BTreeMap::new();
        let mut remotes: BTreeMap<&str, Vec<Entry>> = BTreeMap::new();
        for (at, domain) in machine.domains().enumerate() {
            let hosts = || machine.remotes(&domain.tunnel).iter().map(|host| Entry::Remote(host.to_string())).collect();
            remotes.entry(&domain.tunnel).or_insert_with(hosts);
            let of_bridge = stations.entry(&domain.bridge).or_default();
            for (mac, placed) in machine.all_placed(at) {
                told.insert((at, mac), placed.sequence);
                of_bridge.push(Entry::Station(new_station(domain, mac, Some(placed))));
            }
        }
        Self { steps: [steps(remotes, command, false), steps(stations, command, true)].into_iter().flatten().collect() }
    }

    /// Returns the present state of these remotes and stations.
    pub(super) fn of(
        machine: &Machine,
        remotes: &BTreeSet<(String, IpAddr)>,
        stations: &BTreeSet<(usize, MacAddr)>,
        told: &mut ToldSequences,
    ) -> Self {
        let mut added = BTreeMap::<&str, Vec<Entry>>::new();
        let mut removed = BTreeMap::<&str, Vec<Entry>>::new();
        for (tunnel, host) in remotes {
            let list = if machine.remotes(tunnel).contains(host) { &mut added } else { &mut removed };
            list.entry(tunnel).or_default().push(Entry::Remote(host.to_string()));
        }
        let domains: Vec<&Domain> = machine.domains().collect();
        let mut placed = BTreeMap::<&str, Vec<Entry>>::new();
        let mut gone = BTreeMap::<&str, Vec<Entry>>::new();
        for (at, mac) in stations {
            let Some(domain) = domains.get(*at) else { continue };
            let place = machine.placed(*at, *mac);
            let before = match place {
                Some(place) => told.insert((*at, *mac), place.sequence),
                None => told.remove(&(*at, *mac)),
            };
            // The switch keeps an entry with a higher number, so that one is deleted first.
            if place.is_none_or(|place| before.is_some_and(|before| before > place.sequence)) {
                gone.entry(&domain.bridge).or_default().push(Entry::Station(new_station(domain, *mac, None)));
            }
            if place.is_some() {
                placed.entry(&domain.bridge).or_default().push(Entry::Station(new_station(domain, *mac, place)));
            }
        }
        // A station is behind a known remote, and a remote without stations goes.
        let all = [
            steps(added, "add", false),
            steps(gone, "delete", true),
            steps(placed, "add", true),
            steps(removed, "delete", false),
        ];
        Self { steps: all.into_iter().flatten().collect() }
    }

    /// Makes the change. Entries that the switch refuses are left out.
    pub(super) fn make(self, api: &Path) -> SwitchNews {
        let mut refusals = Refusals::default();
        for step in self.steps {
            if let Err(error) = step.make(api, &mut refusals) {
                let why = Some(error.to_string());
                return SwitchNews::Changed { refused: refusals.entries, why, failed: true };
            }
        }
        SwitchNews::Changed { refused: refusals.entries, why: refusals.why, failed: false }
    }
}

/// The entries that were refused, and the last reason.
#[derive(Default)]
struct Refusals {
    entries: Vec<RefusedEntry>,
    why: Option<String>,
}

fn steps(lists: BTreeMap<&str, Vec<Entry>>, command: &'static str, are_stations: bool) -> Vec<Step> {
    let step = |(place, entries): (&str, Vec<Entry>)| Step { place: place.to_owned(), command, entries, are_stations };
    lists.into_iter().map(step).collect()
}

impl Step {
    fn make(mut self, api: &Path, refusals: &mut Refusals) -> Result<(), RequestError> {
        if self.command != "replace" {
            return self.make_in_parts(api, refusals).map(drop);
        }
        match send_all(api, self.requests("replace", &parts(&self.entries))) {
            // All or nothing: the right entries are found by adding them, part by part.
            Err(RequestError::Refused { .. }) => {
                self.command = "add";
                self.entries = self.make_in_parts(api, refusals)?;
                send_all(api, self.requests("replace", &parts(&self.entries))).map(drop)
            }
            sent => sent.map(drop),
        }
    }

    /// Sends each part as a change of its own. Returns the entries that were taken.
    fn make_in_parts(&self, api: &Path, refusals: &mut Refusals) -> Result<Vec<Entry>, RequestError> {
        let mut taken = Vec::new();
        let mut is_full = false;
        for (mut part, _) in parts(&self.entries) {
            // Beyond a limit, nothing else is tried.
            if is_full {
                part.drain(..).for_each(|entry| self.refuse(&entry, refusals));
            }
            while !part.is_empty() {
                match send_all(api, self.requests(self.command, &[(part.clone(), false)])) {
                    Ok(_) => taken.append(&mut part),
                    Err(RequestError::Refused { message, index, .. }) => {
                        let is_limit = message.contains("limit is reached");
                        is_full |= is_limit;
                        refusals.why = Some(message);
                        let wrong = index.and_then(|index| usize::try_from(index).ok()).filter(|at| *at < part.len());
                        let gone = match wrong {
                            Some(at) if is_limit => part.split_off(at),
                            Some(at) => vec![part.remove(at)],
                            None => std::mem::take(&mut part),
                        };
                        gone.iter().for_each(|entry| self.refuse(entry, refusals));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(taken)
    }

    fn refuse(&self, entry: &Entry, refusals: &mut Refusals) {
        let station = match entry {
            Entry::Remote(_) => None,
            Entry::Station(station) => Some(station),
        };
        refusals.entries.push(RefusedEntry {
            place: self.place.clone(),
            vlan: station.map_or(0, |station| station.vlan),
            mac: station.and_then(|station| station.mac.parse().ok()),
        });
    }

    /// Returns the requests with these parts, of which the last one decides.
    fn requests(&self, command: &str, parts: &[(Vec<Entry>, bool)]) -> Vec<Request> {
        let request = |(entries, more): &(Vec<Entry>, bool)| {
            let mut remotes = Vec::new();
            let mut stations = Vec::new();
            for entry in entries {
                match entry {
                    Entry::Remote(remote) => remotes.push(remote.clone()),
                    Entry::Station(station) => stations.push(station.clone()),
                }
            }
            let owner = OWNER.to_owned();
            let command = command.to_owned();
            let place = self.place.clone();
            if self.are_stations {
                Request::ChangeStations(ChangeStations { bridge: place, owner, command, stations, more: *more })
            } else {
                Request::ChangeRemotes(ChangeRemotes { tunnel: place, owner, command, remotes, more: *more })
            }
        };
        parts.iter().map(request).collect()
    }
}

/// Splits a list into parts that fit into a request, with whether more follows. An empty list has
/// one part.
fn parts<T: Clone + Serialize>(list: &[T]) -> Vec<(Vec<T>, bool)> {
    let mut parts = vec![(Vec::new(), false)];
    let mut bytes = 0;
    for entry in list {
        // An entry that cannot be written cannot be sent either: the request fails.
        let length = serde_json::to_vec(entry).map_or(ENTRIES, |text| text.len() + 1);
        bytes += length;
        if bytes > ENTRIES {
            bytes = length;
            parts.push((Vec::new(), false));
        }
        if let Some((part, _)) = parts.last_mut() {
            part.push(entry.clone());
        }
    }
    let before_last = parts.len() - 1;
    parts.iter_mut().take(before_last).for_each(|(_, more)| *more = true);
    parts
}

fn new_station(domain: &Domain, mac: MacAddr, placed: Option<&Placed>) -> NewStation {
    let mut station = NewStation { mac: mac.to_string(), vlan: domain.vlan, ..NewStation::default() };
    if let Some(placed) = placed {
        station.port.clone_from(&domain.tunnel);
        station.remote = Some(placed.remote.to_string());
        station.sequence = placed.sequence;
        station.ips = placed.ips.iter().map(IpAddr::to_string).collect();
    }
    station
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fit_into_a_line() {
        let ips = (0..16).map(|number| format!("2001:db8:1111:2222:3333:4444:5555:{number:04x}")).collect();
        let station = NewStation {
            mac: "02:00:00:00:00:01".to_owned(),
            port: "tunnel0".to_owned(),
            ips,
            ..NewStation::default()
        };
        for count in [0, 1, 3, 4, 50] {
            let entries = vec![Entry::Station(station.clone()); count];
            let step = Step { place: "lan".to_owned(), command: "replace", entries, are_stations: true };
            let requests = step.requests(step.command, &parts(&step.entries));
            let mut sent = 0;
            for (at, request) in requests.iter().enumerate() {
                assert!(serde_json::to_vec(request).expect("JSON").len() < 4096);
                let Request::ChangeStations(change) = request else { panic!("{request:?}") };
                assert_eq!(change.more, at + 1 < requests.len());
                assert!(count == 0 || !change.stations.is_empty());
                sent += change.stations.len();
            }
            assert_eq!(sent, count);
        }
    }
}
