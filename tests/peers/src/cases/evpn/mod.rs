//! Many hosts, one network: three switches with gobgpd, and FRR with a kernel VXLAN device.
//!
//! ```text
//!   host 1        host 2        host 3               host 4
//!   tap vm0       tap vm0       tap vm0              veth st0 ── namespace "station"
//!   switch        switch        switch               kernel bridge
//!   vx0           vx0           vx0                  vx100 (kernel)
//!   evpn          evpn          evpn                 zebra
//!   gobgpd ─────▶ gobgpd ─────▶ gobgpd (reflector) ◀─ bgpd
//!     └─ b0, u0 ────┴─ b0, u0 ────┴─ b0, u0 ───────────┴─ b0, u0: a bridge in namespace "core"
//! ```
//!
//! `b0` carries BGP (198.51.100.0/24), `u0` the tunnels (192.0.2.0/24). Stations are in 10.0.0.0/24.
//! Success: each station reaches each other one; a station that moves between all kinds of hosts is
//! found at its new place; packets go on while a part is dead, and after it has come back; a host
//! that was cut off has the same routes and stations as the others after its return.

mod churn;
mod document;
mod migrate;
mod rate;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::lab::Lab;
use crate::machine::{FRR, Need};
use crate::net::{self, Namespace};
use crate::proc::{self, Proc};
use crate::runner::{Test, beside_others};
use crate::say::say;

/// The station that moves: its addresses.
const MAC: &str = "02:00:00:00:00:77";
const IP: &str = "10.0.0.77";

/// The host whose gobgpd reflects the routes of the others.
const REFLECTOR: u8 = 3;

pub(super) fn tests() -> Vec<Test> {
    let needs = [Need::Namespaces, Need::Evpn];
    beside_others(vec![
        Test::new("evpn", &needs, three_hosts_and_frr),
        Test::new("evpn_document", &needs, document::as_printed),
        Test::new("evpn_churn", &needs, churn::stations_come_and_go),
        Test::new("evpn_rate", &needs, rate::as_fast_as_a_static_tunnel),
        Test::new("evpn_migrate", &[&needs[..], &[Need::Qemu, Need::Captures]].concat(), migrate::a_vm_migrates),
    ])
}

/// A host of ours.
struct Host<'l> {
    lab: &'l Lab<'l>,
    number: u8,
    namespace: Namespace,
    gobgpd: Option<Proc>,
    switch: Option<Proc>,
    evpn: Option<Proc>,
    /// Programs that were started: each has a log of its own.
    starts: u32,
}

/// Routes in `straightline evpn routes --json`.
#[derive(Debug, Deserialize)]
struct Routes {
    routes: Vec<Route>,
}

#[derive(Debug, Deserialize)]
struct Route {
    next_hop: String,
    sent: bool,
    mac: Option<String>,
    ip: Option<String>,
    sequence: u32,
}

/// A route of a station: its MAC and IP address, its host, its number.
type Known = (String, Option<String>, String, u32);

/// The parts of `straightline doctor --json` that the test looks at.
#[derive(Debug, Deserialize)]
struct Checks {
    checks: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    name: String,
    result: String,
    symptom: String,
}

/// The parts of `straightline station list --json` that the test looks at.
#[derive(Debug, Deserialize)]
struct Stations {
    stations: Vec<Station>,
}

#[derive(Debug, Deserialize)]
struct Station {
    mac: String,
    remote: Option<String>,
}

/// The parts of `straightline evpn status --json` that the test looks at.
#[derive(Debug, Deserialize)]
struct Status {
    gobgp: Side,
    switch: Side,
    networks: Vec<Network>,
}

#[derive(Debug, Deserialize)]
struct Side {
    up: bool,
}

#[derive(Debug, Deserialize)]
struct Network {
    remotes: Vec<String>,
}

impl<'l> Host<'l> {
    fn new(lab: &'l Lab<'l>, number: u8, core: &Namespace) -> Result<Self> {
        let namespace = member(core, number)?;
        let mut host = Self::without_files(lab, number, namespace);
        let switch = host.switch_configuration();
        host.start_with(&switch)?;
        Ok(host)
    }

    /// Writes the files, and starts the programs, with this configuration of the switch.
    fn start_with(&mut self, switch: &str) -> Result<()> {
        fs::write(self.file("switch.toml"), switch)?;
        fs::write(self.file("evpn.toml"), self.evpn_configuration()?)?;
        self.start_gobgpd()?;
        self.start_switch()?;
        self.start_evpn()
    }

    fn without_files(lab: &'l Lab<'l>, number: u8, namespace: Namespace) -> Self {
        Self { lab, number, namespace, gobgpd: None, switch: None, evpn: None, starts: 0 }
    }

    /// Returns the path of a file of this host, beside the logs.
    fn file(&self, name: &str) -> PathBuf {
        self.lab.log(&format!("host{}-{name}", self.number))
    }

    /// Returns the path of a socket of this host.
    fn socket(&self, name: &str) -> PathBuf {
        self.lab.socket(&format!("{name}{}", self.number))
    }

    fn switch_configuration(&self) -> String {
        let api = self.socket("api");
        let number = self.number;
        format!(
            "[switch]\napi = {api:?}\n[port.nic]\nkind = \"af-packet\"\ninterface = \"u0\"\nmtu = 1550\n\
             [underlay.wan]\nport = \"nic\"\naddress = [\"192.0.2.{number}/24\"]\n\
             [port.vm]\nkind = \"tap\"\nname = \"vm0\"\npersist = false\nmtu = 1450\n\
             source-check = \"mac\"\nallowed-macs = [\"02:00:00:00:00:0{number}\", \"{MAC}\"]\n\
             allowed-ips = [\"10.0.0.{number}\", \"{IP}\"]\n\
             [port.vx0]\nkind = \"vxlan\"\nunderlay = \"wan\"\nvni = 100\nremotes = []\nmtu = 1450\nlearning = false\n\
             [bridge.lan]\nports = [\"vm\", \"vx0\"]\nneighbour-suppression = true\n\
             api-stations = 110000\n"
        )
    }

    fn evpn_configuration(&self) -> Result<String> {
        let number = self.number;
        let mut text = format!(
            "asn = 65000\nrouter-id = \"198.51.100.{number}\"\naddress = \"192.0.2.{number}\"\n\
             gobgp = \"unix://{}\"\napi = {:?}\nsocket = {:?}\n\
             [network.net]\nbridge = \"lan\"\ntunnel = \"vx0\"\nvni = 100\n",
            self.socket("gobgp").display(),
            self.socket("api"),
            self.socket("evpn"),
        );
        let peers: &[u8] = if number == REFLECTOR { &[1, 2, 4] } else { &[REFLECTOR] };
        for peer in peers {
            write!(text, "[[neighbor]]\naddress = \"198.51.100.{peer}\"\nhold-time = \"9s\"\n")?;
            if number == REFLECTOR {
                text += "route-reflector-client = true\n";
            }
            // For each route of a neighbour with a limit, GoBGP counts all routes that it has of it.
            if another_gobgpd().is_some() {
                text += "max-routes = 0\n";
            }
            // Hosts 1 and 3 have a key, and are on one link.
            if number + peer == 1 + REFLECTOR {
                let key = self.lab.log("bgp.key");
                fs::write(&key, "a key of both hosts\n")?;
                write!(text, "password-file = {key:?}\nttl-security = true\n")?;
            }
        }
        // One host may have all stations of `churn`.
        text += "[limits]\nhost-routes = 110000\n";
        Ok(text)
    }

    fn start(&mut self, program: &str, args: &[&str]) -> Result<Proc> {
        self.starts += 1;
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        let log = format!("host{}-{}-{name}-{}", self.number, self.starts, args[0].trim_matches('-'));
        self.namespace.start(self.lab, &log, program, args)
    }

    fn start_gobgpd(&mut self) -> Result<()> {
        let generated = text(&self.file("gobgpd.toml"));
        self.straightline(&["evpn", "generate", "--config", &text(&self.file("evpn.toml")), "-o", &generated])?;
        let api = format!("unix://{}", self.socket("gobgp").display());
        let args = ["-f", &generated, "--pprof-disable", "--log-plain", "--api-hosts", &api];
        let program = another_gobgpd().unwrap_or_else(|| "gobgpd".to_owned());
        self.gobgpd = Some(self.start(&program, &args)?);
        Ok(())
    }

    fn start_switch(&mut self) -> Result<()> {
        self.start_switch_with(self.number)
    }

    /// Starts the switch, and the station with this number at its tap.
    fn start_switch_with(&mut self, vm: u8) -> Result<()> {
        let program = text(&self.lab.machine.switch);
        let config = text(&self.file("switch.toml"));
        let mut switch = self.start(&program, &["run", &config])?;
        wait_ready(&mut switch)?;
        self.switch = Some(switch);
        self.namespace.sh(&format!(
            "ip link set vm0 address 02:00:00:00:00:0{vm} mtu 1450 up; ip addr add 10.0.0.{vm}/24 dev vm0"
        ))?;
        Ok(())
    }

    fn start_evpn(&mut self) -> Result<()> {
        let program = text(&self.lab.machine.switch);
        let config = text(&self.file("evpn.toml"));
        let mut evpn = self.start(&program, &["evpn", "--config", &config])?;
        wait_ready(&mut evpn)?;
        self.evpn = Some(evpn);
        Ok(())
    }

    fn straightline(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.lab.machine.switch);
        let (code, out, err) = proc::run(command.args(args))?;
        ensure!(code == Some(0), "`straightline {}` ended with {code:?}: {err}", args.join(" "));
        Ok(out)
    }

    fn ask<A: DeserializeOwned>(&self, question: &str) -> Result<A> {
        let socket = text(&self.socket("evpn"));
        let answer = self.straightline(&["evpn", question, "--json", "--socket", &socket])?;
        serde_json::from_str(&answer).with_context(|| format!("`evpn {question}` wrote {answer}"))
    }

    /// Returns the number of other hosts that the host knows.
    fn remotes(&self) -> Result<usize> {
        let status: Status = self.ask("status")?;
        Ok(status.networks.iter().map(|network| network.remotes.len()).sum())
    }

    /// Waits until the host knows the three others.
    fn wait_hosts(&self) -> Result<()> {
        self.wait_others(3)
    }

    /// Waits until the host knows as many others.
    fn wait_others(&self, count: usize) -> Result<()> {
        proc::until(&format!("host {} knows {count} others", self.number), || {
            let status: Status = self.ask("status")?;
            let knows = |network: &Network| network.remotes.len() == count;
            Ok((status.gobgp.up && status.switch.up && status.networks.iter().all(knows)).then_some(()))
        })
    }

    /// Waits until the host has received the moving station's route from `host` with this number.
    fn wait_station(&self, host: u8, sequence: u32) -> Result<()> {
        let wanted = format!("192.0.2.{host}");
        proc::until(&format!("host {} has {MAC} behind host {host}, number {sequence}", self.number), || {
            let Routes { routes } = self.ask("routes")?;
            let is_wanted = |route: &Route| {
                let of_station = !route.sent && route.mac.as_deref() == Some(MAC);
                of_station && route.next_hop == wanted && route.sequence == sequence
            };
            Ok(routes.iter().any(is_wanted).then_some(()))
        })
    }

    /// Waits until the host has received a route with this address.
    fn wait_address(&self, ip: &str) -> Result<()> {
        proc::until(&format!("host {} has a route for {ip}", self.number), || {
            let Routes { routes } = self.ask("routes")?;
            let has = |route: &Route| !route.sent && route.ip.as_deref() == Some(ip);
            Ok(routes.iter().any(has).then_some(()))
        })
    }

    /// Waits until `straightline doctor` says this of a check: the result, and a part of the symptom.
    fn wait_doctor(&self, check: &str, result: &str, symptom: &str) -> Result<()> {
        let api = text(&self.socket("api"));
        let evpn = text(&self.socket("evpn"));
        proc::until(&format!("doctor says of {check}: {result}, {symptom}"), || {
            let mut command = Command::new(&self.lab.machine.switch);
            // It ends with 1 if a check fails.
            let args = ["doctor", "--json", "--api", &api, "--evpn", &evpn];
            let (_, out, err) = proc::run(command.args(args))?;
            let Checks { checks } = serde_json::from_str(&out).with_context(|| format!("doctor wrote {out}{err}"))?;
            let is_wanted = |one: &Finding| one.name == check && one.result == result && one.symptom.contains(symptom);
            Ok(checks.iter().any(is_wanted).then_some(()))
        })
    }

    /// Returns all routes of stations, whoever sends them.
    fn known(&self) -> Result<BTreeSet<Known>> {
        let Routes { routes } = self.ask("routes")?;
        let known = |route: Route| Some((route.mac?, route.ip, route.next_hop, route.sequence));
        Ok(routes.into_iter().filter_map(known).collect())
    }

    /// Returns the stations of other hosts, as the switch has them, with the host of each.
    fn placed(&self) -> Result<BTreeSet<(String, String)>> {
        let api = text(&self.socket("api"));
        let answer = self.straightline(&["station", "list", "lan", "--json", "--api", &api])?;
        let Stations { stations } = serde_json::from_str(&answer)?;
        Ok(stations.into_iter().map(|station| (station.mac, station.remote.unwrap_or_default())).collect())
    }

    /// Shows what the host knows, for the log of a test that fails.
    fn say_state(&self) {
        let [api, evpn] = ["api", "evpn"].map(|name| text(&self.socket(name)));
        for args in [
            ["evpn", "routes", "--socket", &evpn].as_slice(),
            &["evpn", "status", "--socket", &evpn],
            &["fdb", "--api", &api],
            &["station", "list", "lan", "--api", &api],
            &["events", "--api", &api],
            &["drops", "--api", &api],
        ] {
            let answer = self.straightline(args).unwrap_or_else(|error| format!("{error:#}"));
            say!("  host {}, `straightline {}`:\n{answer}", self.number, args.join(" "));
        }
    }

    /// The moving station comes to this host.
    fn station_comes(&self) -> Result<()> {
        comes(&self.namespace, "vm0")
    }

    fn station_leaves(&self) -> Result<()> {
        leaves(&self.namespace, "vm0", self.number)
    }

    /// Waits until an address answers this host's station.
    fn reaches(&self, ip: &str) -> Result<()> {
        reaches(&self.namespace, ip)
    }
}

/// Host 4: FRR, a kernel bridge and a kernel VXLAN device.
struct Frr {
    namespace: Namespace,
    station: Namespace,
    _daemons: [Proc; 2],
}

impl Frr {
    fn new(lab: &Lab, core: &Namespace) -> Result<Self> {
        let namespace = member(core, 4)?;
        namespace.sh("ip addr add 192.0.2.4/24 dev u0; ip link add br100 type bridge; ip link set br100 up
             ip link add vx100 type vxlan id 100 local 192.0.2.4 dstport 4789 nolearning
             ip link set vx100 mtu 1450 master br100 up; bridge link set dev vx100 neigh_suppress on learning off")?;
        // A veth device takes packets that are still to be segmented inside the tunnel, as no wire does.
        namespace.sh("ethtool -K u0 tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off")?;
        let station = Namespace::silent("station")?;
        net::veth([(&namespace, "st0"), (&station, "eth0")], 1, 1450)?;
        namespace.sh("ip link set st0 master br100")?;
        station.sh("ip link set eth0 address 02:00:00:00:00:04; ip addr add 10.0.0.4/24 dev eth0")?;
        // FRR gives up its rights, and makes its sockets as its own user.
        lab.give_to("frr")?;
        let zebra_file = lab.socket("zebra-conf");
        let bgpd_file = lab.socket("bgpd-conf");
        fs::write(&zebra_file, "")?;
        fs::write(
            &bgpd_file,
            format!(
                "router bgp 65000\n bgp router-id 198.51.100.4\n no bgp default ipv4-unicast\n timers bgp 3 9\n \
                 neighbor 198.51.100.{REFLECTOR} remote-as 65000\n \
                 neighbor 198.51.100.{REFLECTOR} timers connect 1\n address-family l2vpn evpn\n  \
                 neighbor 198.51.100.{REFLECTOR} activate\n  advertise-all-vni\n exit-address-family\n"
            ),
        )?;
        let folder = text(zebra_file.parent().context("a folder")?);
        let zserv = text(&lab.socket("zserv"));
        let start = |name: &str, file: &Path| {
            let pid = text(&lab.socket(&format!("{name}-pid")));
            let args = ["-f", &text(file), "-i", &pid, "-z", &zserv, "--vty_socket", &folder, "-P", "0"];
            namespace.start(lab, name, &format!("{FRR}/{name}"), &[&args[..], &["--log", "stdout"]].concat())
        };
        let zebra = start("zebra", &zebra_file)?;
        proc::until("zebra listens", || Ok(Path::new(&zserv).exists().then_some(())))?;
        let bgpd = start("bgpd", &bgpd_file)?;
        Ok(Self { namespace, station, _daemons: [bgpd, zebra] })
    }

    /// Waits until the kernel's device has the station behind this host.
    fn wait_station(&self, host: u8) -> Result<()> {
        let wanted = format!("{MAC} dst 192.0.2.{host} ");
        proc::until(&format!("FRR has {MAC} behind host {host}"), || {
            Ok(self.namespace.sh("bridge fdb show dev vx100")?.contains(&wanted).then_some(()))
        })
    }
}

/// Returns the gobgpd that `STRAIGHTLINE_GOBGPD` names.
fn another_gobgpd() -> Option<String> {
    std::env::var("STRAIGHTLINE_GOBGPD").ok()
}

/// Makes the namespace with the bridge between the hosts.
fn core() -> Result<Namespace> {
    let core = Namespace::silent("core")?;
    core.sh("ip link add br0 type bridge; ip link set br0 mtu 1600 up")?;
    Ok(core)
}

/// Makes the namespace of a host, with its two interfaces in the core's bridge.
fn member(core: &Namespace, number: u8) -> Result<Namespace> {
    let namespace = Namespace::silent(&format!("host{number}"))?;
    for (own, other) in [("b0", format!("b{number}")), ("u0", format!("u{number}"))] {
        net::veth([(&namespace, own), (core, &other)], 1, 1600)?;
        core.sh(&format!("ip link set {other} master br0"))?;
    }
    namespace.sh(&format!("ip addr add 198.51.100.{number}/24 dev b0"))?;
    Ok(namespace)
}

fn comes(namespace: &Namespace, interface: &str) -> Result<()> {
    comes_to(namespace, interface, MAC, IP)
}

/// A station with these addresses comes to an interface.
fn comes_to(namespace: &Namespace, interface: &str, mac: &str, ip: &str) -> Result<()> {
    namespace.sh(&format!("ip link set {interface} address {mac}; ip addr add {ip}/24 dev {interface}"))?;
    // Its first frame tells where it is.
    namespace.sh(&format!("ping -c 1 -W 1 -I {ip} 10.0.0.250 >/dev/null || true"))?;
    Ok(())
}

fn leaves(namespace: &Namespace, interface: &str, number: u8) -> Result<()> {
    namespace.sh(&format!(
        "ip addr del {IP}/24 dev {interface}; ip link set {interface} address 02:00:00:00:00:0{number}"
    ))?;
    Ok(())
}

fn reaches(namespace: &Namespace, ip: &str) -> Result<()> {
    proc::until(&format!("{ip} answers {}", namespace.name()), || {
        Ok((namespace.sh(&format!("ping -c 1 -W 1 {ip} >/dev/null && echo yes || true"))? == "yes").then_some(()))
    })
}

fn wait_ready(proc: &mut Proc) -> Result<()> {
    let ready = |text: &str| text.lines().any(|line| line == "ready").then_some(());
    proc.wait_text("its `ready`", 0, ready)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn three_hosts_and_frr(lab: &Lab) -> Result<()> {
    let core = core()?;
    let frr = Frr::new(lab, &core)?;
    let mut three = Host::new(lab, 3, &core)?;
    let mut one = Host::new(lab, 1, &core)?;
    let mut two = Host::new(lab, 2, &core)?;
    let result = stations_move(lab, &core, &frr, [&mut one, &mut two, &mut three]);
    if result.is_err() {
        [&one, &two, &three].into_iter().for_each(Host::say_state);
    }
    result
}

/// Moves a station, and ends parts of the hosts.
fn stations_move(lab: &Lab, core: &Namespace, frr: &Frr, [one, two, three]: [&mut Host; 3]) -> Result<()> {
    for host in [&*one, &*two, &*three] {
        host.wait_hosts()?;
    }
    say!("  all hosts know each other");
    for ip in ["10.0.0.2", "10.0.0.3", "10.0.0.4"] {
        one.reaches(ip)?;
    }
    reaches(&frr.station, "10.0.0.2")?;
    for (from, to, ip) in [(&one.namespace, &frr.station, "10.0.0.4"), (&frr.station, &one.namespace, "10.0.0.1")] {
        let rate = rate::iperf3(lab, from, to, ip, 1)?;
        say!("  iperf3 from {} to {}: {rate:.2} Gbit/s", from.name(), to.name());
    }
    // A stream passes slowly, by what is sent again, even if each large packet is dropped.
    let ports = one.straightline(&["ports", "--json", "--api", &text(&one.socket("api"))])?;
    ensure!(!ports.contains("segment-headers"), "packets to be segmented were dropped: {ports}");
    // Addresses that the switch has checked go with their stations.
    three.wait_address("10.0.0.1")?;

    // It moves between all kinds of hosts; each time the third one finds it.
    one.station_comes()?;
    three.wait_station(1, 0)?;
    three.reaches(IP)?;
    frr.wait_station(1)?;
    one.station_leaves()?;
    comes(&frr.station, "eth0")?;
    three.wait_station(4, 1)?;
    three.reaches(IP)?;
    leaves(&frr.station, "eth0", 4)?;
    two.station_comes()?;
    three.wait_station(2, 2)?;
    frr.wait_station(2)?;
    three.reaches(IP)?;
    reaches(&frr.station, IP)?;
    two.station_leaves()?;
    one.station_comes()?;
    two.wait_station(1, 3)?;
    two.reaches(IP)?;
    say!("  a station moved from ours to FRR, from FRR to ours, and between ours");

    // Packets go on without the process. A new one takes over what GoBGP and the switch have.
    one.evpn = None;
    two.reaches(IP)?;
    one.start_evpn()?;
    one.wait_hosts()?;
    two.wait_station(1, 3)?;
    // The end of its gobgpd ends its session, and so its routes elsewhere. A new gobgpd brings them back.
    one.gobgpd = None;
    proc::until("the routes of host 1 end", || Ok((two.remotes()? == 2).then_some(())))?;
    fs::remove_file(one.socket("gobgp"))?;
    one.start_gobgpd()?;
    one.wait_hosts()?;
    two.wait_hosts()?;
    two.reaches(IP)?;
    one.reaches("10.0.0.4")?;
    say!("  the process and gobgpd of host 1 came back");

    // A switch that has forgotten everything is told everything.
    three.switch = None;
    fs::remove_file(three.socket("api"))?;
    three.start_switch()?;
    three.wait_hosts()?;
    three.reaches("10.0.0.2")?;
    three.reaches(IP)?;
    reaches(&frr.station, "10.0.0.3")?;
    say!("  the switch of host 3 came back");

    partition(core, one, two, three)?;
    say!("  host 2 was cut off, and came back");
    Ok(())
}

/// Cuts host 2 off. Meanwhile the station moves from host 1 to host 3. After the return, all hosts have the
/// same.
fn partition(core: &Namespace, one: &Host, two: &Host, three: &Host) -> Result<()> {
    core.sh("ip link set b2 down; ip link set u2 down")?;
    two.wait_others(0)?;
    three.wait_others(2)?;
    two.wait_doctor("evpn-sessions", "fail", "no session with 198.51.100.3")?;
    one.station_leaves()?;
    three.station_comes()?;
    one.wait_station(3, 4)?;
    one.reaches(IP)?;
    core.sh("ip link set b2 up; ip link set u2 up")?;
    for host in [two, one, three] {
        host.wait_hosts()?;
    }
    two.wait_station(3, 4)?;
    two.reaches(IP)?;
    for check in ["evpn", "evpn-sessions", "evpn-routes", "evpn-mtu", "evpn-next-hops", "bindings"] {
        two.wait_doctor(check, "pass", "")?;
    }
    two.reaches("10.0.0.1")?;
    one.reaches("10.0.0.2")?;
    proc::until("all hosts have the same routes and stations", || {
        let known = one.known()?;
        for host in [one, two, three] {
            let own = format!("192.0.2.{}", host.number);
            let elsewhere = known.iter().filter(|(.., next_hop, _)| *next_hop != own);
            let elsewhere = elsewhere.map(|(mac, _, next_hop, _)| (mac.clone(), next_hop.clone())).collect();
            if host.known()? != known || host.placed()? != elsewhere {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
}
