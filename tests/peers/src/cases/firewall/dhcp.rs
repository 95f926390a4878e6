//! A member of a group by DHCP: a server, a client and a database, each in a namespace.
//!
//! ```text
//!   "server" (dnsmasq) ── veth ── switch ── veth ── "web" (udhcpc): group web, no allowed-ips
//!                                   └────── veth ── "db" (a server at TCP 5432): group db
//! ```
//!
//! Success: "web" reaches "db" with the address of its lease, and with no other one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Result, ensure};

use crate::cases::outside::DeviceKind;
use crate::lab::Lab;
use crate::net::{self, Namespace};
use crate::proc::{self, Proc};
use crate::say::say;
use crate::switch::Switch;

/// The script that udhcpc calls with its lease.
const SCRIPT: &str = "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\nip addr add $ip/24 dev $interface\n";

pub(super) fn lease(lab: &Lab) -> Result<()> {
    let [own, server, web, db] = ["switch", "server", "web", "db"].map(Namespace::new);
    let [own, server, web, db] = [own?, server?, web?, db?];
    for (far, number, name) in [(&server, 1, "sl-s"), (&db, 2, "sl-d"), (&web, 3, "sl-w")] {
        net::veth([(&own, name), (far, "eth0")], 1, 1500)?;
        far.sh(&format!("ip link set eth0 address 02:00:00:00:00:0{number}"))?;
    }
    server.sh("ip addr add 10.9.0.1/24 dev eth0")?;
    db.sh("ip addr add 10.9.0.2/24 dev eth0")?;
    let port = |name: &str, device: &str, keys: &str| {
        format!("\n[port.{name}]\n{}\n{keys}\n", DeviceKind::AfPacket.keys(device))
    };
    let checked = |mac: &str| format!("source-check = \"mac\"\nallowed-macs = [\"02:00:00:00:00:0{mac}\"]\n");
    let text = Switch::port_sections(lab, &[])?
        + &port("server", "sl-s", "trusted = true")
        + &port("web", "sl-w", &(checked("3") + "groups = [\"web\"]"))
        + &port("db", "sl-d", &(checked("2") + "allowed-ips = [\"10.9.0.2\"]\ngroups = [\"db\"]"))
        + "\n[bridge.lan]\nports = [\"server\", \"web\", \"db\"]\nneighbour-suppression = true\n\
           \n[group.web]\nout = [\"tcp 5432 to group:db\"]\n\
           \n[group.db]\nin = [\"tcp 5432 from group:web\"]\n";
    let mut switch = Switch::spawn_with(lab, &own.prefix(), &text)?;
    switch.wait_ready()?;
    for port in ["server", "web", "db"] {
        switch.wait_link(port, "up")?;
    }
    let page = lab.log("page");
    fs::create_dir_all(&page)?;
    fs::write(page.join("index.html"), "the page")?;
    let script = lab.log("udhcpc.sh");
    fs::write(&script, SCRIPT)?;
    fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    let leases = format!("--dhcp-leasefile={}", lab.log("leases").display());
    let dhcp =
        ["--keep-in-foreground", "--log-facility=-", "--pid-file=", "--port=0", "--no-ping", "--user=root", &leases];
    let dhcp = [&dhcp[..], &["--dhcp-range=10.9.0.50,10.9.0.99"]].concat();
    let home = page.display().to_string();
    let mut servers = [
        server.start(lab, "dhcp", "dnsmasq", &dhcp)?,
        db.start(lab, "httpd", "busybox", &["httpd", "-f", "-p", "5432", "-h", &home])?,
    ];
    let listens = "ss -Htln 'sport = :5432' | grep -q .";
    proc::until("the database listens", || Ok(db.sh(listens).ok()))?;

    // An address that the guest takes by itself.
    web.sh("ip addr add 10.9.0.40/24 dev eth0")?;
    ensure!(!gets_page(&web)?, "an address without a lease is a member");
    web.sh("ip addr flush dev eth0")?;
    web.sh(&format!("busybox udhcpc -i eth0 -n -q -t 20 -T 1 -s {}", script.display()))?;
    let address = web.sh("ip -o -4 addr show dev eth0 | awk '{ print $4 }'")?;
    ensure!(address.starts_with("10.9.0."), "the client has {address:?}");
    proc::until(&format!("{address}, which has a lease, is a member"), || Ok(gets_page(&web)?.then_some(())))?;
    web.sh("ip addr flush dev eth0; ip addr add 10.9.0.40/24 dev eth0")?;
    ensure!(!gets_page(&web)?, "another address is a member");
    say!("  {address} of a lease reaches the database, and no other address does");
    servers.iter_mut().for_each(Proc::kill);
    switch.stop()
}

/// Returns whether the database answers.
fn gets_page(from: &Namespace) -> Result<bool> {
    let answer = from.sh("curl -sS --noproxy '*' --max-time 2 http://10.9.0.2:5432/ || echo none")?;
    Ok(answer == "the page")
}
