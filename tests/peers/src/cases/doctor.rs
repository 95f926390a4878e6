//! `straightline doctor` with real QEMUs that are set up wrongly. They run no guest.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::lab::Lab;
use crate::machine::Need;
use crate::proc::{self, Proc};
use crate::runner::Test;
use crate::switch::{Join, Port, Switch};

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("doctor_qemu", &[Need::Qemu], qemu).beside_others()]
}

#[derive(Deserialize)]
struct Report {
    checks: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    name: String,
    result: String,
    symptom: String,
    detail: String,
    fix: String,
}

/// One QEMU has private memory and does not connect again. Another has shared memory. The third
/// listens at the switch's own socket.
fn qemu(lab: &Lab) -> Result<()> {
    let ports = ["a", "b", "c"].map(Port::new);
    let switch = Switch::start(lab, &ports, Join::Bridge)?;
    let memory = ["-m", "64M", "-object", "memory-backend-memfd,id=m,size=64M,share=on"];
    let private = start(lab, "private", &["-machine", "none"], "a", "")?;
    let shared =
        start(lab, "shared", &[&["-machine", "none,memory-backend=m"], &memory[..]].concat(), "b", ",reconnect=1")?;
    for name in ["a", "b"] {
        proc::until(&format!("a frontend at port {name}"), || {
            let reason = switch.port(name)?.reason.unwrap_or_default();
            Ok(reason.contains("a frontend is connected").then_some(()))
        })?;
    }
    let listens = start(lab, "listens", &["-machine", "none"], "c", ",server=on,wait=off")?;
    proc::until("QEMU listens at the switch's socket", || {
        Ok(find(&examine(lab)?, "sockets", "fail", "port c").then_some(()))
    })?;
    let found = examine(lab)?;
    for (name, result, text) in [
        ("guest-memory", "fail", "port a: the memory of QEMU is not shared"),
        ("guest-memory", "fail", "share=on"),
        ("reconnect", "warn", "port a: QEMU"),
        ("socket-sides", "fail", "both listen"),
        ("links", "warn", "port c is down"),
    ] {
        ensure!(find(&found, name, result, text), "no {result} of {name} with {text:?}: {found:#?}");
    }
    for name in ["guest-memory", "reconnect"] {
        ensure!(!find(&found, name, "fail", "port b") && !find(&found, name, "warn", "port b"), "{found:#?}");
    }
    drop((private, shared, listens));
    drop(switch);
    Ok(())
}

/// Returns whether a check has such a finding, with this text anywhere.
fn find(found: &[Finding], name: &str, result: &str, text: &str) -> bool {
    found.iter().any(|one| {
        let texts = [&one.symptom, &one.detail, &one.fix];
        one.name == name && one.result == result && texts.iter().any(|own| own.contains(text))
    })
}

fn examine(lab: &Lab) -> Result<Vec<Finding>> {
    let mut command = Command::new(&lab.machine.switch);
    command.args([Path::new("doctor"), Path::new("--json"), Path::new("--api"), &lab.socket("api")]);
    let (code, out, err) = proc::run(&mut command)?;
    ensure!(code == Some(1), "doctor ended with {code:?}: {out}{err}");
    let report: Report = serde_json::from_str(&out).context("the answer of doctor")?;
    Ok(report.checks)
}

/// Starts a QEMU without a guest, whose network backend is the socket of `port`.
fn start(lab: &Lab, name: &str, machine: &[&str], port: &str, chardev: &str) -> Result<Proc> {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(machine).args(["-nographic", "-nodefaults", "-monitor", "none", "-serial", "none"]);
    command.args(["-chardev", &format!("socket,id=c,path={}{chardev}", lab.socket(port).display())]);
    command.args(["-netdev", "vhost-user,id=n,chardev=c"]);
    Proc::start(name, command, &lab.log(name))
}
