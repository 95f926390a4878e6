//! Two Linux guests with groups: a client and a web server.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::say::say;
use crate::switch::Switch;
use crate::traffic;

/// Rules of both groups. Port 9000 is that of files, and 5201 that of iperf3.
const GROUPS: &str = r#"
[group.client]
out = ["tcp 9000,5201 to group:web", "icmp echo-request to any"]

[group.web]
in = ["tcp 9000,5201 from group:client", "icmp echo-request"]
"#;

/// Ports of the guests, and their groups.
const PORTS: [(&str, &str); 2] = [("a", "client"), ("b", "web")];

/// Seconds of each measurement, and their number in a long run.
const SECONDS: u32 = 2;
const LONG: usize = 5;

pub(super) fn exchange(lab: &Lab) -> Result<()> {
    let with_groups = configuration(lab, true)?;
    let mut switch = Switch::spawn_with(lab, &[], &with_groups)?;
    switch.wait_ready()?;
    let [mut client, mut web] = LinuxGuest::boot_pair(lab, GuestKind::Uml, 1500)?;
    traffic::reach(&mut client, &web.ip())?;
    // One frame, and fragments.
    for bytes in [56, 1472, 8000] {
        traffic::ping(&mut client, &web.ip(), 10, bytes)?;
    }
    traffic::file(&mut client, &mut web, 16)?;
    let drops = denied(&switch, "a")? + denied(&switch, "b")?;
    ensure!(drops == 0, "{drops} packets of allowed connections were denied");
    refused(&switch, &mut client, &mut web, "a", 9001)?;
    refused(&switch, &mut web, &mut client, "b", 9000)?;
    let before = denied(&switch, "b")?;
    let (status, text) = web.run(&format!("ping -c 2 -W 1 {}", client.ip()))?;
    ensure!(status != 0, "the client answers, although no rule allows it: {text}");
    ensure!(denied(&switch, "b")? > before, "port b denied no echo");
    // What was allowed goes on.
    traffic::ping(&mut client, &web.ip(), 10, 56)?;
    let without_groups = configuration(lab, false)?;
    for _ in 0..if lab.machine.long { LONG } else { 1 } {
        let with = rate(&mut client, &mut web)?;
        switch.reload(&without_groups)?;
        let without = rate(&mut client, &mut web)?;
        switch.reload(&with_groups)?;
        say!("  iperf3: {with:.2} Gbit/s with groups, {without:.2} without: {:.3}", with / without);
    }
    for guest in [&mut client, &mut web] {
        traffic::no_errors(guest)?;
    }
    switch.stop()
}

fn configuration(lab: &Lab, has_groups: bool) -> Result<String> {
    let mut text = Switch::port_sections(lab, &[])?;
    for (number, (name, group)) in (1..).zip(PORTS) {
        let socket = lab.socket(name);
        write!(
            text,
            "\n[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{}\"\nmac = \"02:77:00:00:00:0{number}\"\n\
             source-check = \"mac\"\nallowed-ips = [\"10.77.0.{number}\"]\n",
            socket.display()
        )?;
        if has_groups {
            writeln!(text, "groups = [{group:?}]")?;
        }
    }
    let names = PORTS.map(|(name, _)| name);
    write!(text, "\n[bridge.lan]\nports = {names:?}\n{}", if has_groups { GROUPS } else { "" })?;
    Ok(text)
}

/// Asserts that no connection to a TCP port begins, because groups deny the packets of `port`.
fn refused(switch: &Switch, from: &mut LinuxGuest, to: &mut LinuxGuest, port: &str, tcp_port: u16) -> Result<()> {
    let before = denied(switch, port)?;
    to.sh(&format!("nc -l -p {tcp_port} -e sh -c 'cat > /tmp/taken-{tcp_port}' </dev/null >/tmp/nc.log 2>&1 &"))?;
    traffic::listening(to, tcp_port)?;
    let (status, _) = from.run(&format!("nc -w 2 {} {tcp_port} -e echo hello", to.ip()))?;
    ensure!(status != 0, "guest {} has reached port {tcp_port}, although no rule allows it", from.number);
    let (status, _) = to.run(&format!("[ -e /tmp/taken-{tcp_port} ]"))?;
    ensure!(status != 0, "something has arrived at port {tcp_port}");
    let after = denied(switch, port)?;
    ensure!(after > before, "port {port} denied nothing");
    say!("  guest {} does not reach port {tcp_port}: {} packets denied", from.number, after - before);
    Ok(())
}

/// Returns the packets that the groups of a port have denied.
fn denied(switch: &Switch, port: &str) -> Result<u64> {
    Ok(switch.port(port)?.drops.get("denied").copied().unwrap_or(0))
}

/// Returns the rate of a TCP stream in Gbit/s.
fn rate(client: &mut LinuxGuest, web: &mut LinuxGuest) -> Result<f64> {
    traffic::iperf3_server(web)?;
    Ok(traffic::iperf3_client(client, &web.ip(), SECONDS, false)?.gbit_per_s)
}
