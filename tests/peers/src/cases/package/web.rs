//! The web page of the package, as its unit runs it: as a user that has only the group of the socket
//! that answers questions.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::{Root, Unit};
use crate::lab::Lab;
use crate::proc::{self, Proc};
use crate::say::say;

/// The user that stands for the dynamic one of systemd: no file belongs to it.
const USER: &str = "63999";

/// The file with the system calls of the server.
const TRACE: &str = "/tmp/web.trace";

/// Starts the server, asks it for everything, and tries to change the switch as its user.
pub(super) fn serves_without_rights(lab: &Lab, root: &Root) -> Result<()> {
    let unit = Unit::parse(&root.sh("cat /lib/systemd/system/straightline-web.service")?);
    ensure!(unit.get("DynamicUser")? == "yes", "the unit has a fixed user");
    let group = unit.get("SupplementaryGroups")?;
    let gid = root.sh(&format!("getent group {group} | cut -d : -f 3"))?;
    let as_web = as_user(&format!("--groups={}", gid.trim()));

    let program = unit.get("ExecStart")?;
    let api = program.split(' ').skip_while(|word| *word != "--api").nth(1).context("the unit names no socket")?;
    let owner = root.sh(&format!("stat -c '%U %G %a' {api}"))?;
    ensure!(owner.trim() == format!("straightline {group} 660"), "the socket has {owner}");

    let trace =
        if root.sh("strace -o /dev/null true").is_ok() { format!("strace -D -f -o {TRACE} ") } else { String::new() };
    let line = format!("exec {as_web} {trace}{program} --listen 127.0.0.1:0");
    let mut server = Proc::start("web", root.command(&["sh", "-c", &line]), &lab.log("web"))?;
    let address = server.wait_text("the server listens", 0, |text| {
        let (_, rest) = text.split_once("listening on http://")?;
        rest.split_once("/\n").map(|(address, _)| address.to_owned())
    })?;
    for path in ["", "main.js", "metrics"] {
        get(&address, &format!("/{path}"))?;
    }
    for answer in ["status", "ports", "fdb", "neighbours", "runtime", "drops", "events", "all", "doctor"] {
        let reply = get(&address, &format!("/api/{answer}"))?;
        ensure!(!reply.contains("only answers questions"), "/api/{answer} asks for too much: {reply}");
    }
    ensure!(get(&address, "/metrics")?.contains("straightline_up 1"), "the metrics have no switch");

    for (command, refusal) in [
        (format!("reload --api {api}"), "only answers questions"),
        (format!("link vm1 down --api {api}"), "only answers questions"),
        (format!("capture vm1 --api {api}"), "only answers questions"),
        ("reload".to_owned(), "ermission denied"),
    ] {
        let said = root.sh(&format!("! {as_web} straightline {command} 2>&1"))?;
        ensure!(said.contains(refusal), "`{command}` says {said:?}");
    }
    let stranger = as_user("--clear-groups");
    let said = root.sh(&format!("! {stranger} straightline status --api {api} 2>&1"))?;
    ensure!(said.contains("ermission denied"), "a stranger is told {said:?}");

    server.signal(Signal::TERM)?;
    let end = server.wait_end()?;
    ensure!(end.success(), "the server ended with {end}");
    if !trace.is_empty() && root.sh("command -v systemd-analyze").is_ok() {
        the_filter_allows_its_calls(root, &unit)?;
    }
    say!("  the page is served by a user that can change nothing");
    Ok(())
}

/// Returns a command that runs the rest of its line as the user of the server. It does what systemd
/// does for `DynamicUser=`, `CapabilityBoundingSet=` and `NoNewPrivileges=`.
fn as_user(groups: &str) -> String {
    format!("setpriv --reuid={USER} --regid={USER} {groups} --no-new-privs --inh-caps=-all --bounding-set=-all")
}

fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(proc::PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    ensure!(reply.starts_with("HTTP/1.1 200 "), "{path}: {reply}");
    Ok(reply)
}

/// Checks that the unit's filter of system calls forbids none that the server has made.
fn the_filter_allows_its_calls(root: &Root, unit: &Unit) -> Result<()> {
    let mut allowed = calls(root, "@default")?;
    for line in unit.all("SystemCallFilter") {
        let (is_denied, names) = line.strip_prefix('~').map_or((false, line), |names| (true, names));
        for name in names.split(' ') {
            for call in calls(root, name)? {
                if is_denied {
                    allowed.remove(&call);
                } else {
                    allowed.insert(call);
                }
            }
        }
    }
    let trace = proc::until("the trace is complete", || {
        let trace = root.sh(&format!("cat {TRACE}"))?;
        Ok(trace.trim_end().ends_with("+++ exited with 0 +++").then_some(trace))
    })?;
    // A line is the thread's number, the call and its arguments.
    let name = |line: &'_ str| line.split_whitespace().nth(1)?.split_once('(').map(|(name, _)| name.to_owned());
    let made: BTreeSet<String> = trace.lines().filter_map(name).collect();
    ensure!(made.contains("landlock_restrict_self") && made.contains("accept4"), "the trace has only {made:?}");
    let forbidden: Vec<&String> = made.difference(&allowed).collect();
    ensure!(forbidden.is_empty(), "the unit forbids system calls of the program: {forbidden:?}");
    Ok(())
}

/// Returns the system calls of a name in a filter: a set of systemd's with those in it, or a call.
fn calls(root: &Root, name: &str) -> Result<BTreeSet<String>> {
    if !name.starts_with('@') {
        return Ok(BTreeSet::from([name.to_owned()]));
    }
    let mut calls = BTreeSet::new();
    let set = root.sh(&format!("systemd-analyze syscall-filter {name}"))?;
    for member in set.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        calls.extend(self::calls(root, member)?);
    }
    Ok(calls)
}
