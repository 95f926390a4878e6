//! Start and end of the switch, and sockets that already exist. These tests need no guest.

use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::{Context, Result, ensure};

use crate::lab::Lab;
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::switch::{Join, Port, Switch};

const PORTS: [Port; 2] = [Port::new("a"), Port::new("b")];

pub(super) fn tests() -> Vec<Test> {
    beside_others(vec![
        Test::new("sigterm_removes_sockets", &[], sigterm),
        Test::new("stale_socket_is_replaced", &[], stale),
        Test::new("live_socket_is_refused", &[], live),
    ])
}

/// After `ready`, every socket accepts a connection. After SIGTERM, the exit code is 0 and no
/// socket is left.
fn sigterm(lab: &Lab) -> Result<()> {
    let switch = Switch::start(lab, &PORTS, Join::Patch)?;
    let mut open = Vec::new();
    for name in ["a", "b", "api"] {
        let stream = UnixStream::connect(lab.socket(name));
        open.push(stream.with_context(|| format!("the switch is ready, but socket {name} accepts no connection"))?);
    }
    drop(open);
    let ports = switch.ports()?;
    let down = ports.iter().filter(|port| port.link == "down").count();
    ensure!(ports.len() == 2 && down == 2, "two ports without a guest should be down: {ports:?}");
    for port in &ports {
        let reason = port.reason.as_deref().unwrap_or_default();
        ensure!(!reason.is_empty(), "port {} is down without a reason", port.name);
        say!("  link of port {} down: {reason}", port.name);
    }
    switch.stop()
}

/// The switch replaces a socket whose owner has died.
fn stale(lab: &Lab) -> Result<()> {
    for name in ["a", "api"] {
        drop(UnixListener::bind(lab.socket(name))?);
        ensure!(lab.socket(name).exists(), "a dropped listener leaves its file");
    }
    let switch = Switch::start(lab, &PORTS, Join::Patch)?;
    UnixStream::connect(lab.socket("a")).context("the stale socket was not replaced")?;
    switch.stop()
}

/// The switch refuses a socket on which another process listens: exit code 1, and a message with
/// the socket's path.
fn live(lab: &Lab) -> Result<()> {
    let path = lab.socket("b");
    let _theirs = UnixListener::bind(&path)?;
    let mut switch = Switch::spawn(lab, &PORTS, Join::Patch)?;
    let status = switch.proc().wait_end()?;
    let (out, err) = switch.proc().texts();
    ensure!(status.code() == Some(1), "the switch ended with {status}, not with exit code 1");
    ensure!(err.contains(&path.display().to_string()), "the message does not contain the path of the socket: {err}");
    ensure!(!out.lines().any(|line| line == "ready"), "the switch printed `ready` although it refused the socket");
    UnixStream::connect(&path).context("the other process lost its socket")?;
    Ok(())
}
