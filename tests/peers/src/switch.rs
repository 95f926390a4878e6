//! The switch under test. Tests configure, start, query and end it through its command line only.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::lab::Lab;
use crate::net::Namespace;
use crate::proc::{self, Proc};

/// A vhost-user port of the configuration.
#[derive(Clone, Copy)]
pub(crate) struct Port {
    pub(crate) name: &'static str,
    pub(crate) mtu: u32,
    /// The key is omitted for `None`.
    pub(crate) offloads: Option<&'static [&'static str]>,
    /// True if the guest's end listens.
    pub(crate) client: bool,
    /// The key is omitted for `None`.
    pub(crate) packed: Option<bool>,
    pub(crate) queues: u32,
}

impl Port {
    /// Returns a port with default settings.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, mtu: 1500, offloads: None, client: false, packed: None, queues: 1 }
    }
}

/// A port on an interface of the machine: its name, and the lines of its section.
pub(crate) type DevicePort<'t> = (&'t str, &'t str);

/// The connection between the ports.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// A patch for each two ports: the first with the second, the third with the fourth.
    Patch,
    /// Patches as above, with `full = "wait"`: nothing is dropped, even if a guest is slow.
    PatchThatWaits,
    /// `[bridge.lan]` with all ports.
    Bridge,
}

/// A port in `straightline ports --json`. A missing field is an error, because scripts rely on the
/// fields.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PortStatus {
    pub(crate) name: String,
    pub(crate) link: String,
    /// Reason why the link is down.
    pub(crate) reason: Option<String>,
    /// The last reasons why the link was down.
    pub(crate) reasons: Vec<DownReason>,
    pub(crate) features: Vec<String>,
    pub(crate) ring: Option<String>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) drops: std::collections::BTreeMap<String, u64>,
    /// The receive mode that the guest's driver has set, if the switch serves its control queue.
    #[serde(default)]
    pub(crate) rx_mode: Option<RxMode>,
    /// The limit of what comes in from the port.
    #[serde(default)]
    pub(crate) rate_in: Option<RateStatus>,
    /// The interface of a port that has one.
    #[serde(default)]
    pub(crate) device: Option<DeviceStatus>,
    /// The tunnel of a port that has one.
    #[serde(default)]
    pub(crate) tunnel: Option<TunnelStatus>,
}

/// The limit of a port.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct RateStatus {
    pub(crate) passed_bytes: u64,
    pub(crate) passed_packets: u64,
    pub(crate) wait_count: u64,
    pub(crate) dropped: u64,
}

/// The tunnel of a port.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TunnelStatus {
    /// The network identifier of each VLAN, if there are several networks.
    #[serde(default)]
    pub(crate) vnis: std::collections::BTreeMap<u16, u32>,
}

/// The open interface of a port.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DeviceStatus {
    pub(crate) interface: String,
    pub(crate) mode: String,
    pub(crate) zero_copy: bool,
    pub(crate) mtu: u32,
}

/// A reason why a link was down.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DownReason {
    pub(crate) reason: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct RxMode {
    pub(crate) promiscuous: bool,
    pub(crate) mac: Option<String>,
    pub(crate) multicast: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Queue {
    pub(crate) rx: Count,
    pub(crate) tx: Count,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Count {
    /// Returns the difference to an earlier count.
    pub(crate) fn since(self, then: Self) -> Self {
        Self { packets: self.packets - then.packets, bytes: self.bytes - then.bytes }
    }
}

impl PortStatus {
    /// Returns the count of packets received from the port.
    pub(crate) fn rx(&self) -> Count {
        self.sum(|queue| queue.rx)
    }

    /// Returns the count of packets delivered to the port.
    pub(crate) fn tx(&self) -> Count {
        self.sum(|queue| queue.tx)
    }

    /// Returns the packets received from each queue pair, and delivered to it.
    pub(crate) fn by_queue(&self) -> Vec<(u64, u64)> {
        self.queues.iter().map(|queue| (queue.rx.packets, queue.tx.packets)).collect()
    }

    /// Returns the sum of all drops at the port.
    pub(crate) fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }

    fn sum(&self, of: impl Fn(&Queue) -> Count) -> Count {
        self.queues.iter().map(of).fold(Count::default(), |sum, count| Count {
            packets: sum.packets + count.packets,
            bytes: sum.bytes + count.bytes,
        })
    }
}

/// A learned or configured address.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FdbEntry {
    pub(crate) bridge: String,
    pub(crate) vlan: u16,
    pub(crate) mac: String,
    pub(crate) port: String,
}

/// A next hop of an underlay.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Neighbour {
    pub(crate) underlay: String,
    pub(crate) ip: String,
    pub(crate) mac: Option<String>,
    pub(crate) state: String,
}

/// A row of a table about a port. It has the fields of its kind.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TableRow {
    pub(crate) port: String,
    /// The group of a port whose guests listen.
    #[serde(default)]
    pub(crate) group: Option<String>,
    /// The protocol by which a router asks.
    #[serde(default)]
    pub(crate) protocol: Option<String>,
}

/// The use of the workers' time.
#[derive(Clone, Debug, Deserialize)]
struct Runtime {
    workers: Vec<WorkerStatus>,
}

/// A worker of the switch.
#[derive(Clone, Debug, Deserialize)]
struct WorkerStatus {
    is_asleep: bool,
}

/// A running switch.
pub(crate) struct Switch<'lab> {
    lab: &'lab Lab<'lab>,
    proc: Proc,
    starts: u32,
    /// Ports whose sockets belong to the guests.
    clients: Vec<&'static str>,
    /// The command that runs it, if it does not run in the harness's own network namespace.
    prefix: Vec<String>,
}

impl Drop for Switch<'_> {
    /// Keeps the counters for the report of a failed test without guests.
    fn drop(&mut self) {
        self.lab.scene().keep();
    }
}

impl<'lab> Switch<'lab> {
    /// Writes a configuration, starts the switch and waits until it prints `ready`.
    pub(crate) fn start(lab: &'lab Lab<'_>, ports: &[Port], join: Join) -> Result<Self> {
        Self::start_on(lab, ports, join, &[])
    }

    /// Starts a switch with workers on these CPUs. Without CPUs, there is one worker, which may run
    /// on any CPU.
    pub(crate) fn start_on(lab: &'lab Lab<'_>, ports: &[Port], join: Join, cpus: &[u32]) -> Result<Self> {
        let mut switch = Self::spawn_on(lab, ports, join, cpus)?;
        switch.wait_ready()?;
        Ok(switch)
    }

    /// Starts a switch in a namespace, with a bridge of all these ports and workers on these CPUs.
    pub(crate) fn start_in(
        lab: &'lab Lab<'_>,
        namespace: &Namespace,
        ports: &[Port],
        devices: &[DevicePort],
        cpus: &[u32],
    ) -> Result<Self> {
        let text = Self::configuration(lab, ports, devices, cpus)?;
        let mut switch = Self::spawn_with(lab, &namespace.prefix(), &text)?;
        switch.wait_ready()?;
        Ok(switch)
    }

    /// Returns the configuration of a bridge with all these ports.
    pub(crate) fn configuration(lab: &Lab, ports: &[Port], devices: &[DevicePort], cpus: &[u32]) -> Result<String> {
        let mut text = configuration(lab, ports, None, cpus)?;
        for (name, keys) in devices {
            write!(text, "\n[port.{name}]\n{keys}\n")?;
        }
        let names: Vec<&str> =
            ports.iter().map(|port| port.name).chain(devices.iter().map(|(name, _)| *name)).collect();
        write!(text, "\n[bridge.lan]\nports = {names:?}\n")?;
        Ok(text)
    }

    /// Returns the beginning of a configuration: the switch, and these ports.
    pub(crate) fn port_sections(lab: &Lab, ports: &[Port]) -> Result<String> {
        configuration(lab, ports, None, &[])
    }

    /// Starts a switch by the command `prefix`, with the text of a configuration. Does not wait for
    /// anything.
    pub(crate) fn spawn_with(lab: &'lab Lab<'_>, prefix: &[String], text: &str) -> Result<Self> {
        fs::write(lab.log(CONFIGURATION), text)?;
        let proc = run(lab, "switch", prefix)?;
        Ok(Self { lab, proc, starts: 1, clients: Vec::new(), prefix: prefix.to_vec() })
    }

    /// Kills the switch with SIGKILL, so that it cannot clean up.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.proc.signal(Signal::KILL)?;
        self.proc.wait_end()?;
        Ok(())
    }

    /// Ends the switch with SIGTERM.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.proc.signal(Signal::TERM)?;
        let status = self.proc.wait_end()?;
        if status.code() != Some(0) {
            bail!("after SIGTERM the switch ended with {status}, not with exit code 0");
        }
        Ok(())
    }

    /// Starts the switch again with the same configuration.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.starts += 1;
        self.proc = run(self.lab, &format!("switch-{}", self.starts), &self.prefix)?;
        self.wait_ready()
    }

    /// Lets the running switch take over another configuration.
    pub(crate) fn reload(&self, text: &str) -> Result<()> {
        fs::write(self.lab.log(CONFIGURATION), text)?;
        let mut command = Command::new(&self.lab.machine.switch);
        command.args(["reload", "--api"]).arg(self.lab.socket("api"));
        let (code, out, err) = proc::run(&mut command)?;
        ensure!(code == Some(0), "`straightline reload` ended with {code:?}: {out}{err}");
        Ok(())
    }

    /// Waits until the switch prints `ready`.
    pub(crate) fn wait_ready(&mut self) -> Result<()> {
        let ready = |text: &str| text.lines().any(|line| line == "ready").then_some(());
        self.proc.wait_text("its `ready`", 0, ready)
    }

    /// Starts the switch without waiting for anything.
    pub(crate) fn spawn(lab: &'lab Lab<'_>, ports: &[Port], join: Join) -> Result<Self> {
        Self::spawn_on(lab, ports, join, &[])
    }

    fn spawn_on(lab: &'lab Lab<'_>, ports: &[Port], join: Join, cpus: &[u32]) -> Result<Self> {
        let mut switch = Self::spawn_with(lab, &[], &configuration(lab, ports, Some(join), cpus)?)?;
        switch.clients = ports.iter().filter(|port| port.client).map(|port| port.name).collect();
        Ok(switch)
    }

    /// Returns the process, to send signals and to wait for its end.
    pub(crate) fn proc(&mut self) -> &mut Proc {
        &mut self.proc
    }

    /// Runs `straightline flow`, and returns what it prints.
    pub(crate) fn flow(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.lab.machine.switch);
        command.arg("flow").args(args).arg("--api").arg(self.lab.socket("api"));
        let (code, out, err) = proc::run(&mut command)?;
        ensure!(code == Some(0), "`straightline flow {}` ended with {code:?}: {out}{err}", args.join(" "));
        Ok(out)
    }

    /// Returns all ports, from `straightline ports`.
    pub(crate) fn ports(&self) -> Result<Vec<PortStatus>> {
        #[derive(Deserialize)]
        struct Answer {
            ports: Vec<PortStatus>,
        }
        Ok(self.ask::<Answer>("ports")?.ports)
    }

    /// Returns one port.
    pub(crate) fn port(&self, name: &str) -> Result<PortStatus> {
        let ports = self.ports()?;
        ports.into_iter().find(|port| port.name == name).with_context(|| format!("`ports` does not list port {name}"))
    }

    /// Returns the bridge's addresses, from `straightline fdb`.
    pub(crate) fn fdb(&self) -> Result<Vec<FdbEntry>> {
        #[derive(Deserialize)]
        struct Answer {
            entries: Vec<FdbEntry>,
        }
        Ok(self.ask::<Answer>("fdb")?.entries)
    }

    /// Returns the next hops, from `straightline neighbours`.
    pub(crate) fn neighbours(&self) -> Result<Vec<Neighbour>> {
        #[derive(Deserialize)]
        struct Answer {
            neighbours: Vec<Neighbour>,
        }
        Ok(self.ask::<Answer>("neighbours")?.neighbours)
    }

    /// Returns the rows of a table, from `straightline table`.
    pub(crate) fn table(&self, name: &str) -> Result<Vec<TableRow>> {
        #[derive(Deserialize)]
        struct Answer {
            rows: Vec<TableRow>,
        }
        Ok(self.ask::<Answer>(&format!("table {name}"))?.rows)
    }

    /// Returns a counter of a table, from `straightline tables`.
    pub(crate) fn table_counter(&self, name: &str, counter: &str) -> Result<u64> {
        #[derive(Deserialize)]
        struct Answer {
            tables: Vec<Table>,
        }
        #[derive(Deserialize)]
        struct Table {
            table: String,
            counters: std::collections::BTreeMap<String, u64>,
        }
        let tables = self.ask::<Answer>("tables")?.tables;
        let table = tables.into_iter().find(|table| table.table == name);
        let count = table.and_then(|table| table.counters.get(counter).copied());
        count.with_context(|| format!("`tables` has no counter {counter} of {name}"))
    }

    /// Waits until a port's link is `link`.
    pub(crate) fn wait_link(&self, name: &str, link: &str) -> Result<PortStatus> {
        let up = proc::until(&format!("link of port {name} {link}"), || {
            Ok(Some(self.port(name)?).filter(|port| port.link == link))
        });
        up.with_context(|| format!("the port is {:?}", self.port(name)))
    }

    /// Waits until all workers sleep.
    pub(crate) fn wait_asleep(&self) -> Result<()> {
        proc::until("all workers of the switch sleep", || {
            let runtime = self.ask::<Runtime>("runtime")?;
            Ok(runtime.workers.iter().all(|worker| worker.is_asleep).then_some(()))
        })
    }

    /// Returns the CPU time of the switch, in ticks of 10 ms.
    pub(crate) fn cpu_ticks(&self) -> Result<u64> {
        self.proc.cpu_ticks()
    }

    /// Ends the switch with SIGTERM. Asserts that its exit code is 0 and that it left no socket.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()?;
        self.clean()
    }

    /// Asserts that the switch, which has ended, left no socket.
    pub(crate) fn clean(&self) -> Result<()> {
        let mut left = self.lab.sockets_left()?;
        left.retain(|name| !self.clients.iter().any(|client| *name == format!("{client}.sock")));
        if !left.is_empty() {
            bail!("the switch left sockets behind: {}", left.join(", "));
        }
        Ok(())
    }

    fn ask<T: DeserializeOwned>(&self, what: &str) -> Result<T> {
        let mut command = Command::new(&self.lab.machine.switch);
        command.args(what.split(' ')).args(["--json", "--api"]).arg(self.lab.socket("api"));
        let (code, out, err) = proc::run(&mut command)?;
        if code != Some(0) {
            bail!("`straightline {what}` ended with {code:?}: {err}");
        }
        serde_json::from_str(&out).with_context(|| format!("`straightline {what} --json` wrote {out}"))
    }
}

/// Name of the configuration file, beside the logs.
const CONFIGURATION: &str = "switch.toml";

fn run(lab: &Lab, log: &str, prefix: &[String]) -> Result<Proc> {
    let mut command = proc::command(prefix, &lab.machine.switch);
    command.arg("run").arg(lab.log(CONFIGURATION));
    // For an idle ring, the log then contains its event word, its positions and its calls.
    command.env("RUST_LOG", "warn,straightline=info,straightline_port::vhost_user::control::lost_calls=debug");
    Proc::start("switch", command, &lab.log(log))
}

fn configuration(lab: &Lab, ports: &[Port], join: Option<Join>, cpus: &[u32]) -> Result<String> {
    let mut text = format!("[switch]\napi = \"{}\"\n", lab.socket("api").display());
    if !cpus.is_empty() {
        writeln!(text, "workers = {cpus:?}")?;
    }
    for Port { name, mtu, offloads, client, packed, queues } in ports {
        let socket = lab.socket(name);
        let socket = socket.display();
        write!(text, "\n[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{socket}\"\nmtu = {mtu}\n")?;
        writeln!(text, "queues = {queues}")?;
        if *client {
            writeln!(text, "mode = \"client\"")?;
        }
        if let Some(packed) = packed {
            writeln!(text, "packed = {packed}")?;
        }
        if let Some(offloads) = offloads {
            writeln!(text, "offloads = {offloads:?}")?;
        }
    }
    let names: Vec<&str> = ports.iter().map(|port| port.name).collect();
    match join {
        None => (),
        Some(Join::Patch | Join::PatchThatWaits) => {
            let full = if join == Some(Join::PatchThatWaits) { "wait" } else { "drop" };
            for (number, pair) in names.chunks(2).enumerate() {
                write!(text, "\n[patch.p{number}]\nports = {pair:?}\nfull = {full:?}\n")?;
            }
        }
        Some(Join::Bridge) => write!(text, "\n[bridge.lan]\nports = {names:?}\n")?,
    }
    Ok(text)
}
