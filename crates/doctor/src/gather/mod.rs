//! Gathers facts from the API, `/proc`, `/sys` and sockets.

mod command_line;
mod host;
mod machine;
mod processes;
mod sockets;
mod taps;

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use straightline_api::{
    Events, Port, Ports, Privileges, Request, RequestError, Runtime, Status, Table, TableRequest, Tables, ask, send,
};
use straightline_evpn::process::{AskError, Question, ask as ask_evpn};

use crate::facts::{
    ApiFacts, ApiFailure, Configured, ConfiguredPort, EvpnFacts, Fact, Facts, PortFacts, SnoopedBridge, SocketFacts,
    SwitchFacts, Unknown,
};
use host::Host;
use processes::Processes;
use sockets::Listeners;

/// Time between two looks at counters.
const INTERVAL: Duration = Duration::from_millis(300);

/// Gathers all facts about the switch whose API listens at `api`, about the configuration file, and about
/// the `straightline evpn` that answers at `evpn`. Takes half a second.
#[must_use]
pub fn facts(api: &Path, evpn: &Path, configured: Option<Configured>) -> Facts {
    let host = Host::new("/");
    let ticks = host.cpu_times();
    let named = configured.as_ref().map(|file| file.path.as_path());
    let (switch, ports, failure) = match answers(api, named) {
        Ok((switch, ports)) => (Ok(switch), ports, None),
        Err(error) => {
            thread::sleep(INTERVAL);
            let in_file = configured.iter().flat_map(|file| &file.ports).map(|port| port.port.clone()).collect();
            // The check `api` says why, and what to do.
            let unknown = Unknown::new(format!("no switch answers on {}", api.display()));
            (Err(unknown), in_file, Some(failure(error)))
        }
    };
    let processes = Processes::scan(&host);
    let listeners = Listeners::scan(&host);
    let switches = processes.as_ref().map_err(Clone::clone).map(|processes| processes.switches(&host, api, named));
    let socket = sockets::facts(&listeners, api, &Err(Unknown::new("any user may ask")));
    let own = switch.as_ref().map_err(Clone::clone).and_then(|switch| own_process(switch, &socket));
    let machine = host.machine(&ticks, own.as_ref().ok().copied());
    let of_port = |port: Port| {
        let configured = configured.iter().flat_map(|file| &file.ports).find(|other| other.port.name == port.name);
        port_facts(&host, &processes, &listeners, &own, port, configured)
    };
    Facts {
        now: SystemTime::now(),
        api: ApiFacts { socket, failure },
        ports: ports.into_iter().map(of_port).collect(),
        program: host.program(own.as_ref().ok().copied()),
        switches,
        process: own.map(|pid| host.process(pid)),
        evpn: evpn_facts(evpn),
        machine,
        switch,
        configured,
    }
}

/// Returns the processes that listen at a path. Root sees all of them.
#[must_use]
pub fn listeners(path: &Path) -> Vec<u32> {
    let holders = Listeners::scan(&Host::new("/")).holders(path);
    holders.iter().flatten().map(|holder| holder.pid).collect()
}

/// Asks the switch.
fn answers(api: &Path, named: Option<&Path>) -> Result<(SwitchFacts, Vec<Port>), RequestError> {
    let moves_before = ask::<Status>(api)?.moves;
    let before = ask::<Runtime>(api)?;
    let ports_before = ask::<Ports>(api)?.ports;
    thread::sleep(INTERVAL);
    let ports = ask::<Ports>(api)?.ports;
    let tables = ask::<Tables>(api)?;
    let status = ask::<Status>(api)?;
    let running = status.configuration.as_ref().map(|file| Path::new(&file.path));
    let switch = SwitchFacts {
        runs_named_file: named.zip(running).map(|(named, running)| is_same_file(named, running)),
        status,
        moves_before,
        neighbours: ask(api)?,
        ports_before,
        drops: ask(api)?,
        groups: ask(api)?,
        sets: ask(api)?,
        snooping: snooped_bridges(api, &tables),
        tables,
        events: ask::<Events>(api)?.events,
        before,
        after: ask(api)?,
    };
    Ok((switch, ports))
}

/// Returns the bridges with `snooping`, each with the first rows of its table.
fn snooped_bridges(api: &Path, tables: &Tables) -> Vec<SnoopedBridge> {
    let snooped = tables.tables.iter().filter_map(|table| table.table.strip_prefix("snooping:"));
    // A table that a reload has just removed has no answer.
    let of_bridge = |bridge: &str| {
        let limit = TableRequest::MOST;
        let request = TableRequest { limit, ..TableRequest::new(format!("snooping:{bridge}")) };
        let table: Table = serde_json::from_str(&send(api, &Request::Table(request)).ok()?).ok()?;
        Some(SnoopedBridge { bridge: bridge.to_owned(), rows: table.rows })
    };
    snooped.filter_map(of_bridge).collect()
}

/// Asks the process of EVPN.
fn evpn_facts(socket: &Path) -> Fact<EvpnFacts> {
    match ask_evpn(socket, Question::Status) {
        Ok((status, _)) => Ok(EvpnFacts::Runs(Box::new(status))),
        Err(AskError::Io { error, .. }) => match error.kind() {
            io::ErrorKind::NotFound => Ok(EvpnFacts::Absent),
            io::ErrorKind::ConnectionRefused => Ok(EvpnFacts::Ended(socket.to_owned())),
            io::ErrorKind::PermissionDenied => {
                Err(Unknown::for_root(format!("this user may not connect to {}", socket.display())))
            }
            _ => Err(Unknown::new(format!("{}: {error}", socket.display()))),
        },
        Err(error @ AskError::Invalid { .. }) => Err(Unknown::new(error.to_string())),
    }
}

/// Returns whether two paths lead to one file. A path that this user cannot follow counts as the
/// same: nothing says otherwise.
fn is_same_file(named: &Path, running: &Path) -> bool {
    match (named.canonicalize(), running.canonicalize()) {
        (Ok(named), Ok(running)) => named == running,
        _ => true,
    }
}

fn failure(error: RequestError) -> ApiFailure {
    match error {
        RequestError::NotListening(_) => ApiFailure::NotListening,
        RequestError::Timeout { .. } => ApiFailure::Timeout,
        RequestError::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => ApiFailure::Denied,
        error => ApiFailure::Other(error.to_string()),
    }
}

/// Returns the process of the switch. Its own number counts in its PID namespace only, so the
/// process that listens on the API's socket comes first.
fn own_process(switch: &SwitchFacts, api: &SocketFacts) -> Fact<u32> {
    if let Ok([one]) = api.holders.as_deref() {
        return Ok(one.pid);
    }
    let own = switch.status.privileges.iter().find(|process| process.process == Privileges::SWITCH);
    own.map(|process| process.pid)
        .ok_or_else(|| Unknown::new("the switch does not tell its process: it has another version"))
}

fn port_facts(
    host: &Host,
    processes: &Fact<Processes>,
    listeners: &Listeners,
    own: &Fact<u32>,
    port: Port,
    configured: Option<&ConfiguredPort>,
) -> PortFacts {
    let peers = processes::peers(host, processes, &port);
    let socket = port.socket.as_deref().map(|path| {
        let owner = configured.and_then(|port| port.owner);
        let user = match port.mode.as_deref() {
            Some("client") => processes::user_of_switch(host, own),
            _ => processes::user_of(host, peers.as_deref().unwrap_or_default(), owner),
        };
        sockets::facts(listeners, Path::new(path), &user)
    });
    let interface_node = machine::interface_node(host, port.device.as_ref().map(|device| device.interface.as_str()));
    let is_taken = port.makes_interface && port.cause.as_deref() == Some("interface-busy");
    let interface_holders = match port.interface.as_deref().filter(|_| is_taken) {
        Some(tap) => host.tap_holders(tap),
        None => Vec::new(),
    };
    PortFacts { port, configured: configured.cloned(), socket, peers, interface_holders, interface_node }
}
