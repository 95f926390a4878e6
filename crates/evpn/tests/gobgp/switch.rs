//! A switch as the process sees it: the part of its API that the process uses, with a bridge of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use straightline_testing::wait_until;

/// The table of a bridge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// Stations of ports.
    pub(crate) learned: BTreeSet<String>,
    /// Stations of the process: host and sequence number.
    pub(crate) stations: BTreeMap<String, (String, u64)>,
    pub(crate) remotes: BTreeSet<String>,
    /// How often the process has deleted the last remote and station.
    pub(crate) emptied: usize,
}

#[derive(Default)]
struct State {
    table: Table,
    subscribers: Vec<UnixStream>,
    /// Clients are refused.
    is_away: bool,
    /// The most stations of the process, if there is a limit.
    limit: Option<usize>,
    /// Remotes and stations of the process that were deleted.
    deleted: usize,
    /// Changes that the process has made.
    changes: usize,
}

#[derive(Clone)]
pub(crate) struct FakeSwitch {
    shared: Arc<Mutex<State>>,
    pub(crate) path: PathBuf,
}

impl FakeSwitch {
    pub(crate) fn start(path: &Path) -> Self {
        let listener = UnixListener::bind(path).expect("a socket");
        let switch = Self { shared: Arc::default(), path: path.to_owned() };
        let serving = switch.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let switch = serving.clone();
                std::thread::spawn(move || switch.serve(stream));
            }
        });
        switch
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().expect("no panic")
    }

    /// A station sends a frame by a port.
    pub(crate) fn hear(&self, mac: &str) {
        let mut state = self.state();
        let kind = if state.table.stations.contains_key(mac) { "claimed" } else { "learned" };
        if kind == "learned" {
            state.table.learned.insert(mac.to_owned());
        }
        tell(&mut state, &json!({"kind": kind, "bridge": "lan", "vlan": 1, "mac": mac, "port": "vm1"}));
    }

    /// A station's address is bound.
    pub(crate) fn bind(&self, mac: &str, ip: &str) {
        let line = json!({"kind": "bound", "bridge": "lan", "vlan": 1, "mac": mac, "ip": ip, "port": "vm1", "source": "checked"});
        tell(&mut self.state(), &line);
    }

    /// The switch restarts: it has forgotten everything.
    pub(crate) fn restart(&self) {
        let mut state = self.state();
        state.table = Table::default();
        for stream in state.subscribers.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// The switch forgets a station.
    pub(crate) fn forget(&self, mac: &str) {
        let mut state = self.state();
        state.table.learned.remove(mac);
        tell(&mut state, &json!({"kind": "aged", "bridge": "lan", "vlan": 1, "mac": mac, "port": "vm1"}));
    }

    /// Takes at most this number of stations of the process.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.state().limit = Some(limit);
    }

    /// Returns how many remotes and stations of the process were deleted.
    pub(crate) fn deleted(&self) -> usize {
        self.state().deleted
    }

    /// Refuses clients, or takes them again.
    pub(crate) fn set_away(&self, is_away: bool) {
        let mut state = self.state();
        state.is_away = is_away;
        for stream in state.subscribers.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Waits until the table is as wanted, for as long as it changes. Many stations take minutes.
    pub(crate) fn wait(&self, what: &str, wanted: impl Fn(&Table) -> bool) -> Table {
        loop {
            let seen = self.state().changes;
            let found = wait_until(what, || {
                let state = self.state();
                if wanted(&state.table) {
                    Ok(Some(state.table.clone()))
                } else if state.changes != seen {
                    Ok(None)
                } else {
                    let Table { stations, remotes, .. } = &state.table;
                    Err(format!("{} stations, remotes {remotes:?}", stations.len()))
                }
            });
            if let Some(table) = found {
                return table;
            }
        }
    }

    fn serve(&self, stream: UnixStream) {
        let mut held: Vec<Value> = Vec::new();
        let mut out = stream.try_clone().expect("a descriptor");
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            assert!(line.len() < 4096, "a line of {} bytes", line.len());
            let request: Value = serde_json::from_str(&line).expect("JSON");
            let mut state = self.state();
            if state.is_away {
                return;
            }
            if request["cmd"] == "subscribe" {
                assert_eq!(request["owner"], "evpn");
                let _ = writeln!(out, "{}", json!({"ok": {"time": 0.0, "instance": "1", "unconfirmed": 0}}));
                let _ = writeln!(out, "{}", json!({"kind": "begin"}));
                for mac in &state.table.learned {
                    let line = json!({"kind": "learned", "bridge": "lan", "vlan": 1, "mac": mac, "port": "vm1"});
                    let _ = writeln!(out, "{line}");
                }
                let _ = writeln!(out, "{}", json!({"kind": "synced"}));
                state.subscribers.push(out.try_clone().expect("a descriptor"));
                continue;
            }
            let list = if request["cmd"] == "change-remotes" { "remotes" } else { "stations" };
            held.extend(request[list].as_array().expect("a list").iter().cloned());
            let mut answer = json!({"ok": {"time": 0.0, "added": 0, "changed": 0, "deleted": 0, "kept": 0}});
            if request["more"] != true {
                let state = &mut *state;
                let size = state.table.stations.len() + state.table.remotes.len();
                let command = request["command"].as_str().expect("a word");
                let beyond = state.limit.filter(|_| list == "stations" && command != "delete").and_then(|limit| {
                    let used = if command == "replace" { 0 } else { state.table.stations.len() };
                    let is_new = |entry: &Value| {
                        let mac = entry["mac"].as_str().expect("a text");
                        command == "replace" || !state.table.stations.contains_key(mac)
                    };
                    let mut new = held.iter().enumerate().filter(|(_, entry)| is_new(entry)).map(|(at, _)| at);
                    new.nth(limit.saturating_sub(used))
                });
                if let Some(index) = beyond {
                    answer = json!({"error": "the limit is reached", "code": "refused", "index": index});
                } else if let Err(index) = change(&mut state.table, list, command, &held) {
                    answer = json!({"error": "no such remote", "code": "refused", "index": index});
                }
                let left = state.table.stations.len() + state.table.remotes.len();
                state.deleted += size.saturating_sub(left);
                state.table.emptied += usize::from(size > 0 && left == 0);
                state.changes += 1;
                held.clear();
            }
            let _ = writeln!(out, "{answer}");
        }
    }
}

/// Changes a table. An error is the place of the wrong entry.
fn change(table: &mut Table, list: &str, command: &str, entries: &[Value]) -> Result<(), usize> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let is_unknown =
        |entry: &Value| list == "stations" && command != "delete" && !table.remotes.contains(&text(&entry["remote"]));
    if let Some(at) = entries.iter().position(is_unknown) {
        return Err(at);
    }
    if command == "replace" {
        if list == "remotes" { table.remotes.clear() } else { table.stations.clear() }
    }
    for entry in entries {
        match (list, command) {
            ("remotes", "delete") => drop(table.remotes.remove(&text(entry))),
            ("remotes", _) => drop(table.remotes.insert(text(entry))),
            (_, "delete") => drop(table.stations.remove(&text(&entry["mac"]))),
            _ => {
                let remote = text(&entry["remote"]);
                let mac = text(&entry["mac"]);
                table.learned.remove(&mac);
                table.stations.insert(mac, (remote, entry["sequence"].as_u64().expect("a number")));
            }
        }
    }
    // A station behind a remote goes with it.
    let Table { stations, remotes, .. } = table;
    stations.retain(|_, (remote, _)| remotes.contains(remote));
    Ok(())
}

fn tell(state: &mut State, line: &Value) {
    state.subscribers.retain_mut(|stream| writeln!(stream, "{line}").is_ok());
}
