//! How the switch starts, ends and treats sockets that are already there. No guest is needed.

use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::lab::Lab;
use crate::runner::Test;
use crate::switch::{Join, Port, Switch};

const PORTS: [Port; 2] = [Port::new("a"), Port::new("b")];

pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("sigterm_removes_sockets", &[], sigterm),
        Test::new("stale_socket_is_replaced", &[], stale),
        Test::new("live_socket_is_refused", &[], live),
    ]
}

/// `ready` means that every socket takes a connection; SIGTERM means exit code 0 and no socket left.
fn sigterm(lab: &Lab) -> Result<()> {
    let switch = Switch::start(lab, &PORTS, Join::Patch)?;
    let mut open = Vec::new();
    for name in ["a", "b", "api"] {
        let stream = UnixStream::connect(lab.socket(name));
        open.push(stream.with_context(|| format!("ready, but socket {name} takes no connection"))?);
    }
    drop(open);
    let ports = switch.ports()?;
    let down = ports.iter().filter(|port| port.link == "down").count();
    ensure!(ports.len() == 2 && down == 2, "two ports without a guest should be down: {ports:?}");
    for port in &ports {
        let reason = port.reason.as_deref().unwrap_or_default();
        ensure!(!reason.is_empty(), "port {} is down without a reason", port.name);
        println!("  link of port {} down: {reason}", port.name);
    }
    switch.stop()
}

/// A socket whose owner died is no obstacle.
fn stale(lab: &Lab) -> Result<()> {
    for name in ["a", "api"] {
        drop(UnixListener::bind(lab.socket(name))?);
        ensure!(lab.socket(name).exists(), "a dropped listener leaves its file");
    }
    let switch = Switch::start(lab, &PORTS, Join::Patch)?;
    UnixStream::connect(lab.socket("a")).context("the stale socket was not replaced")?;
    switch.stop()
}

/// A socket on which somebody listens is not taken away: exit code 1, a message that names it.
fn live(lab: &Lab) -> Result<()> {
    let path = lab.socket("b");
    let _theirs = UnixListener::bind(&path)?;
    let mut switch = Switch::spawn(lab, &PORTS, Join::Patch)?;
    let status = switch.proc().wait_end(Duration::from_secs(10))?;
    let (out, err) = switch.proc().texts();
    ensure!(status.code() == Some(1), "it should end with exit code 1, and ended with {status}");
    ensure!(err.contains(&path.display().to_string()), "the message does not name the socket: {err}");
    ensure!(!out.lines().any(|line| line == "ready"), "it said `ready` all the same");
    UnixStream::connect(&path).context("the other process lost its socket")?;
    Ok(())
}
