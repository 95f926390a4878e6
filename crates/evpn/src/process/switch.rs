//! The side of the switch: a thread that follows its stations, and threads that change its remotes
//! and stations. They use the switch's API as any client.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use straightline_api::{
    ChangeRemotes, ChangeStations, NetworkEvent, NewStation, Request, RequestError, SubscribeRequest, send_all, stream,
};
use straightline_wire::MacAddr;
use tokio::sync::mpsc::Sender;

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
        /// The number of refused entries, and the last refusal.
        refused: u64,
        why: Option<String>,
        /// The switch could not be asked: the change is to be made again.
        failed: bool,
    },
}

/// Follows the switch on a thread of its own, until the process ends.
pub(super) fn follow(
    api: PathBuf,
    stale: Duration,
    bridges: BTreeSet<String>,
    news: Sender<News>,
) -> std::io::Result<()> {
    let stale_s = u32::try_from(stale.as_secs()).unwrap_or(u32::MAX).min(SubscribeRequest::MOST_STALE);
    let bridges = bridges.into_iter().collect();
    let request = Request::Subscribe(SubscribeRequest { owner: Some(OWNER.to_owned()), stale_s, bridges });
    let follow = move || {
        loop {
            let why = match follow_once(&api, &request, &news) {
                Err(error) => error.to_string(),
                Ok(why) => why,
            };
            if news.blocking_send(News::Switch(SwitchNews::Lost(why))).is_err() {
                return;
            }
            thread::sleep(PAUSE);
        }
    };
    thread::Builder::new().name("switch".to_owned()).spawn(follow).map(drop)
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

/// A change of remotes and stations.
#[derive(Debug, Default)]
pub(super) struct SwitchChange {
    /// Steps in their order.
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Remotes { tunnel: String, command: &'static str, remotes: Vec<String> },
    Stations { bridge: String, command: &'static str, stations: Vec<NewStation> },
}

/// The sequence numbers that the switch was told.
pub(super) type ToldSequences = BTreeMap<(usize, MacAddr), u32>;

impl SwitchChange {
    /// Returns the whole state: everything else of this owner goes.
    pub(super) fn all(machine: &Machine, told: &mut ToldSequences) -> Self {
        told.clear();
        let mut stations: BTreeMap<&str, Vec<NewStation>> = BTreeMap::new();
        let mut tunnels = BTreeSet::new();
        for (at, domain) in machine.domains().enumerate() {
            tunnels.insert(domain.tunnel.as_str());
            let of_bridge = stations.entry(&domain.bridge).or_default();
            for (mac, placed) in machine.all_placed(at) {
                told.insert((at, mac), placed.sequence);
                of_bridge.push(new_station(domain, mac, Some(placed)));
            }
        }
        let remotes = tunnels.into_iter().map(|tunnel| Step::Remotes {
            tunnel: tunnel.to_owned(),
            command: "replace",
            remotes: machine.remotes(tunnel).iter().map(IpAddr::to_string).collect(),
        });
        let stations = stations.into_iter().map(|(bridge, stations)| Step::Stations {
            bridge: bridge.to_owned(),
            command: "replace",
            stations,
        });
        Self { steps: remotes.chain(stations).collect() }
    }

    /// Returns the present state of these remotes and stations.
    pub(super) fn of(
        machine: &Machine,
        remotes: &BTreeSet<(String, IpAddr)>,
        stations: &BTreeSet<(usize, MacAddr)>,
        told: &mut ToldSequences,
    ) -> Self {
        let mut added = BTreeMap::<&str, Vec<String>>::new();
        let mut removed = BTreeMap::<&str, Vec<String>>::new();
        for (tunnel, host) in remotes {
            let list = if machine.remotes(tunnel).contains(host) { &mut added } else { &mut removed };
            list.entry(tunnel).or_default().push(host.to_string());
        }
        let domains: Vec<&Domain> = machine.domains().collect();
        let mut placed = BTreeMap::<&str, Vec<NewStation>>::new();
        let mut gone = BTreeMap::<&str, Vec<NewStation>>::new();
        for (at, mac) in stations {
            let Some(domain) = domains.get(*at) else { continue };
            let place = machine.placed(*at, *mac);
            let before = match place {
                Some(place) => told.insert((*at, *mac), place.sequence),
                None => told.remove(&(*at, *mac)),
            };
            // The switch keeps an entry with a higher number, so that one is deleted first.
            if place.is_none_or(|place| before.is_some_and(|before| before > place.sequence)) {
                gone.entry(&domain.bridge).or_default().push(new_station(domain, *mac, None));
            }
            if place.is_some() {
                placed.entry(&domain.bridge).or_default().push(new_station(domain, *mac, place));
            }
        }
        let remotes = |command: &'static str, lists: BTreeMap<&str, Vec<String>>| {
            let step =
                move |(tunnel, remotes): (&str, _)| Step::Remotes { tunnel: tunnel.to_owned(), command, remotes };
            lists.into_iter().map(step).collect::<Vec<Step>>()
        };
        let stations = |command: &'static str, lists: BTreeMap<&str, Vec<NewStation>>| {
            let step =
                move |(bridge, stations): (&str, _)| Step::Stations { bridge: bridge.to_owned(), command, stations };
            lists.into_iter().map(step).collect::<Vec<Step>>()
        };
        // A station is behind a known remote, and a remote without stations goes.
        let steps =
            [remotes("add", added), stations("delete", gone), stations("add", placed), remotes("delete", removed)];
        Self { steps: steps.into_iter().flatten().collect() }
    }

    /// Makes the change. Entries that the switch refuses are left out.
    pub(super) fn make(self, api: &Path) -> SwitchNews {
        let mut refused = 0;
        let mut why = None;
        for mut step in self.steps {
            loop {
                match send_all(api, step.requests()) {
                    Ok(_) => break,
                    Err(RequestError::Refused { message, index, .. }) => {
                        // Without the wrong entry, the others are tried again.
                        let entry = index.and_then(|index| usize::try_from(index).ok());
                        refused += 1;
                        why = Some(message);
                        if !entry.is_some_and(|entry| step.remove(entry)) {
                            break;
                        }
                    }
                    Err(error) => return SwitchNews::Changed { refused, why: Some(error.to_string()), failed: true },
                }
            }
        }
        SwitchNews::Changed { refused, why, failed: false }
    }
}

impl Step {
    /// Removes an entry. Returns false if there is none.
    fn remove(&mut self, entry: usize) -> bool {
        match self {
            Self::Remotes { remotes, .. } => (entry < remotes.len()).then(|| drop(remotes.remove(entry))).is_some(),
            Self::Stations { stations, .. } => (entry < stations.len()).then(|| drop(stations.remove(entry))).is_some(),
        }
    }

    /// Returns the requests, of which the last one decides.
    fn requests(&self) -> Vec<Request> {
        match self {
            Self::Remotes { tunnel, command, remotes } => {
                let request = |(remotes, more)| {
                    Request::ChangeRemotes(ChangeRemotes {
                        tunnel: tunnel.clone(),
                        owner: OWNER.to_owned(),
                        command: (*command).to_owned(),
                        remotes,
                        more,
                    })
                };
                parts(remotes).into_iter().map(request).collect()
            }
            Self::Stations { bridge, command, stations } => {
                let request = |(stations, more)| {
                    Request::ChangeStations(ChangeStations {
                        bridge: bridge.clone(),
                        owner: OWNER.to_owned(),
                        command: (*command).to_owned(),
                        stations,
                        more,
                    })
                };
                parts(stations).into_iter().map(request).collect()
            }
        }
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
            let stations = vec![station.clone(); count];
            let step = Step::Stations { bridge: "lan".to_owned(), command: "replace", stations };
            let requests = step.requests();
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
