//! `straightline remote` and `straightline station`: entries of clients in a running switch.

use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, bail};
use straightline_api::{
    self as api, ChangeRemotes, ChangeStations, NewStation, Remotes, RemotesRequest, Request, Stations,
    StationsRequest, table,
};

use super::query::{pages, print};
use crate::cli::{Asking, Remote, Station, StationEntry};
use crate::output;

/// Most bytes of entries in one request, as JSON. A request has at most 4096 bytes.
const MOST_IN_REQUEST: usize = 3600;

/// Rows in an answer. It fits into the buffer of a socket, so the switch need not wait for us.
const PAGE: u32 = 500;

/// Most bytes of a file of stations.
const MOST_BYTES: u64 = 32 << 20;

pub(crate) fn remote(remote: &Remote) -> anyhow::Result<()> {
    match remote {
        Remote::Add { tunnel, remotes, owner, asking } => change_remotes(asking, tunnel, &owner.owner, "add", remotes),
        Remote::Del { tunnel, remotes, owner, asking } => {
            change_remotes(asking, tunnel, &owner.owner, "delete", remotes)
        }
        Remote::Replace { tunnel, remotes, owner, asking } => {
            change_remotes(asking, tunnel, &owner.owner, "replace", remotes)
        }
        Remote::List { tunnel, asking } => list_remotes(asking, tunnel),
    }
}

pub(crate) fn station(station: &Station) -> anyhow::Result<()> {
    match station {
        Station::Add { bridge, station: StationEntry { mac, vlan }, port, remote, ips, sequence, owner, asking } => {
            let station = NewStation {
                mac: mac.clone(),
                vlan: *vlan,
                port: port.clone(),
                remote: remote.map(|remote| remote.to_string()),
                sequence: *sequence,
                ips: ips.iter().map(ToString::to_string).collect(),
            };
            change_stations(asking, bridge, &owner.owner, "add", vec![station])
        }
        Station::Del { bridge, station: StationEntry { mac, vlan }, owner, asking } => {
            let station = NewStation { mac: mac.clone(), vlan: *vlan, ..NewStation::default() };
            change_stations(asking, bridge, &owner.owner, "delete", vec![station])
        }
        Station::Replace { bridge, file, owner, asking } => {
            change_stations(asking, bridge, &owner.owner, "replace", read(file)?)
        }
        Station::List { bridge, asking } => list_stations(asking, bridge),
    }
}

fn change_remotes(asking: &Asking, tunnel: &str, owner: &str, command: &str, remotes: &[IpAddr]) -> anyhow::Result<()> {
    let remotes: Vec<String> = remotes.iter().map(ToString::to_string).collect();
    let request = |remotes: Vec<String>, more| {
        Request::ChangeRemotes(ChangeRemotes {
            tunnel: tunnel.to_owned(),
            owner: owner.to_owned(),
            command: command.to_owned(),
            remotes,
            more,
        })
    };
    change(asking, remotes, request)
}

fn change_stations(
    asking: &Asking,
    bridge: &str,
    owner: &str,
    command: &str,
    stations: Vec<NewStation>,
) -> anyhow::Result<()> {
    let request = |stations: Vec<NewStation>, more| {
        Request::ChangeStations(ChangeStations {
            bridge: bridge.to_owned(),
            owner: owner.to_owned(),
            command: command.to_owned(),
            stations,
            more,
        })
    };
    change(asking, stations, request)
}

/// Sends entries to the switch, in as many requests as they need, and prints what they have changed.
fn change<T: serde::Serialize>(
    asking: &Asking,
    entries: Vec<T>,
    request: impl Fn(Vec<T>, bool) -> Request,
) -> anyhow::Result<()> {
    let mut requests = Vec::new();
    let mut some = Vec::new();
    let mut size = 0;
    for entry in entries {
        let len = serde_json::to_string(&entry)?.len() + 1;
        if size + len > MOST_IN_REQUEST {
            requests.push(request(std::mem::take(&mut some), true));
            size = 0;
        }
        size += len;
        some.push(entry);
    }
    requests.push(request(some, false));
    let json = api::send_all(&asking.api, requests)?;
    print(asking, &json, |json| Ok(table::entries_changed(&serde_json::from_str(json)?)))
}

fn list_remotes(asking: &Asking, tunnel: &str) -> anyhow::Result<()> {
    let mut all = Remotes { tunnel: tunnel.to_owned(), ..Remotes::default() };
    let request = |after| Request::Remotes(RemotesRequest { after, limit: PAGE, ..RemotesRequest::new(tunnel) });
    pages(asking, request, |page: Remotes| {
        all.total = page.total;
        all.remotes.extend(page.remotes);
        Ok(page.next)
    })?;
    show(asking, &all, table::remotes)
}

fn list_stations(asking: &Asking, bridge: &str) -> anyhow::Result<()> {
    let mut all = Stations { bridge: bridge.to_owned(), ..Stations::default() };
    let request = |after| Request::Stations(StationsRequest { after, limit: PAGE, ..StationsRequest::new(bridge) });
    pages(asking, request, |page: Stations| {
        all.total = page.total;
        all.stations.extend(page.stations);
        Ok(page.next)
    })?;
    show(asking, &all, table::stations)
}

/// Prints all pages of an answer as one.
fn show<T: serde::Serialize>(asking: &Asking, all: &T, text: impl Fn(&T) -> String) -> anyhow::Result<()> {
    let text = if asking.json { serde_json::to_string(all)? + "\n" } else { text(all) };
    output::answer(&text)
}

/// Reads the stations of a file, or of standard input for `-`.
fn read(file: &Path) -> anyhow::Result<Vec<NewStation>> {
    let mut text = String::new();
    let read = |reader: &mut dyn Read, text: &mut String| reader.take(MOST_BYTES + 1).read_to_string(text);
    if file == Path::new("-") {
        read(&mut std::io::stdin().lock(), &mut text).context("cannot read standard input")?;
    } else {
        let opened = std::fs::File::open(file).and_then(|mut opened| read(&mut opened, &mut text));
        opened.with_context(|| format!("cannot read {}", file.display()))?;
    }
    if text.len() as u64 > MOST_BYTES {
        bail!("{} has more than {} MiB, so it is no file of stations", file.display(), MOST_BYTES >> 20);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(at, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}: line {}: not a station", file.display(), at + 1))
    };
    lines.map(parse).collect()
}
