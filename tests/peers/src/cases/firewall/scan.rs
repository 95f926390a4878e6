//! A port scanner before a web server with groups, and a browser.
//!
//! ```text
//!   namespace "scanner" ── veth ── switch ── veth ── namespace "web" (groups)
//!       nmap, curl                               servers at TCP 80 and 22
//! ```
//!
//! Success: nmap finds what the groups allow and nothing else, by whatever kind of scan; curl gets the page.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::cases::outside::DeviceKind;
use crate::lab::Lab;
use crate::net::{self, Namespace};
use crate::proc::{self, Proc};
use crate::say::say;
use crate::switch::Switch;

/// TCP 80 has a server, and 443 none. TCP 22 has a server that nobody may reach. UDP 53 has none.
const GROUPS: &str = "\n[group.web]\nin = [\"tcp 80,443 from any\", \"udp 53 from any\", \"icmp echo-request\", \
                      \"icmp6 echo-request\"]\n";

const PAGE: &str = "the page";
/// Waits as long for answers as a busy machine needs, and for silence no longer.
const PACE: &str = "-n -Pn --max-retries 3 --initial-rtt-timeout 200ms --max-rtt-timeout 300ms -oG -";

/// A scan: its options, and the state that it finds of each port.
type Scan = (&'static str, &'static [(&'static str, &'static str)]);

const SCANS: [Scan; 8] = [
    ("-sS -p 22,80,443", &[("22/tcp", "filtered"), ("80/tcp", "open"), ("443/tcp", "closed")]),
    ("-sT -p 22,80,443", &[("22/tcp", "filtered"), ("80/tcp", "open"), ("443/tcp", "closed")]),
    ("-6 -sS -p 22,80,443", &[("22/tcp", "filtered"), ("80/tcp", "open"), ("443/tcp", "closed")]),
    // The error of a port without a server belongs to the question.
    ("-sU -p 53,123", &[("53/udp", "closed"), ("123/udp", "open|filtered")]),
    // From the ports of servers, which careless rules allow.
    ("-sS -g 80 -p 22", &[("22/tcp", "filtered")]),
    // Segments that belong to no connection get no answer, whatever the port is.
    ("-sA -p 22,80", &[("22/tcp", "filtered"), ("80/tcp", "filtered")]),
    ("-sX -p 22,80", &[("22/tcp", "open|filtered"), ("80/tcp", "open|filtered")]),
    // Fragments of eight bytes, which have no whole header.
    ("-f -sS -p 22,80", &[("22/tcp", "filtered"), ("80/tcp", "filtered")]),
];

pub(super) fn scan(lab: &Lab) -> Result<()> {
    let [own, scanner, web] = ["switch", "scanner", "web"].map(Namespace::new);
    let [own, scanner, web] = [own?, scanner?, web?];
    for (far, number, name) in [(&scanner, 1, "s"), (&web, 2, "w")] {
        net::veth([(&own, name), (far, "eth0")], 1, 1500)?;
        far.sh(&format!(
            "ip link set eth0 address 02:00:00:00:00:0{number}\n\
             ip addr add 10.9.0.{number}/24 dev eth0\nip addr add fd09::{number}/64 dev eth0"
        ))?;
    }
    let text = Switch::port_sections(lab, &[])?
        + &format!("\n[port.scanner]\n{}\n", DeviceKind::AfPacket.keys("s"))
        + &format!(
            "\n[port.web]\n{}\nsource-check = \"mac\"\nallowed-macs = [\"02:00:00:00:00:02\"]\n\
             allowed-ips = [\"10.9.0.2\", \"fd09::2\"]\ngroups = [\"web\"]\n",
            DeviceKind::AfPacket.keys("w")
        )
        + "\n[bridge.lan]\nports = [\"scanner\", \"web\"]\n"
        + GROUPS;
    let mut switch = Switch::spawn_with(lab, &own.prefix(), &text)?;
    switch.wait_ready()?;
    for port in ["scanner", "web"] {
        switch.wait_link(port, "up")?;
    }
    let folder = lab.log("page");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("index.html"), PAGE)?;
    let home = folder.display().to_string();
    let mut servers = Vec::new();
    for (at, place) in [(&web, "80"), (&web, "22"), (&scanner, "80")] {
        servers.push(at.start(lab, "httpd", "busybox", &["httpd", "-f", "-p", place, "-h", &home])?);
        let listens = format!("ss -Htln 'sport = :{place}' | grep -q .");
        proc::until(&format!("a server listens on port {place}"), || Ok(at.sh(&listens).ok()))?;
    }
    // Most of the time of a scan is silence.
    std::thread::scope(|scope| {
        let of_web = |options: &str| if options.contains("-6") { "fd09::2" } else { "10.9.0.2" };
        let scans = SCANS.map(|(options, expected)| (&scanner, of_web(options), options, expected));
        // The server begins no connection.
        let back: (_, _, _, &[_]) = (&web, "10.9.0.1", "-sS -p 80", &[("80/tcp", "filtered")]);
        let all = scans.into_iter().chain([back]);
        let begun = all.map(|(from, to, options, expected)| scope.spawn(move || found(from, to, options, expected)));
        let begun: Vec<_> = begun.collect();
        begun.into_iter().try_for_each(|scan| scan.join().unwrap_or_else(|_| bail!("a scan has panicked")))
    })?;
    for address in ["10.9.0.2", "[fd09::2]"] {
        let page = scanner.sh(&format!("curl -sS --max-time 120 http://{address}/"))?;
        ensure!(page == PAGE, "curl has got {page:?} from {address}");
    }
    let refused = scanner.sh("curl -sS --connect-timeout 1 http://10.9.0.2:22/ || echo refused")?;
    ensure!(refused == "refused", "curl has got {refused:?} from a port that nobody may reach");
    say!("  {} scans found what the groups allow, and curl has got the page", SCANS.len() + 1);
    servers.iter_mut().for_each(Proc::kill);
    switch.stop()
}

/// Waits until a scan finds these states. Ports that answer on a busy machine may be silent for a scan, and
/// the next scan counts. Ports that do not answer must be silent in each.
fn found(from: &Namespace, address: &str, options: &str, expected: &[(&str, &str)]) -> Result<()> {
    let expected: BTreeMap<String, &str> = expected.iter().map(|(port, state)| ((*port).to_owned(), *state)).collect();
    let mut states = BTreeMap::new();
    let all = proc::until(&format!("nmap {options} {address} finds {expected:?}"), || {
        states = scan_once(from, address, options)?;
        let silent = expected.iter().filter(|(_, state)| state.contains("filtered"));
        let is_silent = silent.into_iter().all(|(port, state)| states.get(port).is_some_and(|found| found == state));
        ensure!(is_silent, "nmap {options} {address} finds {states:?}, not {expected:?}");
        Ok(states
            .iter()
            .map(|(port, state)| (port, &**state))
            .eq(expected.iter().map(|(port, state)| (port, *state)))
            .then_some(()))
    });
    all.with_context(|| format!("it finds {states:?}"))
}

/// Returns the states of ports that a scan finds.
fn scan_once(from: &Namespace, address: &str, options: &str) -> Result<BTreeMap<String, String>> {
    let mut command = from.command("nmap");
    command.args(PACE.split(' ')).args(options.split(' ')).arg(address);
    let (code, out, err) = proc::run(&mut command)?;
    ensure!(code == Some(0), "nmap {options} ended with {code:?}: {out}{err}");
    let ports =
        out.lines().find_map(|line| line.split_once("Ports: ")).with_context(|| format!("no ports in {out}"))?.1;
    let states = ports
        .split('\t')
        .next()
        .unwrap_or_default()
        .split(", ")
        .filter_map(|port| {
            let mut parts = port.split('/');
            let number = parts.next()?;
            let state = parts.next()?.to_owned();
            Some((format!("{number}/{}", parts.next()?), state))
        })
        .collect();
    Ok(states)
}
