//! Open vSwitch with DPDK, between two vhost ports or as the far end of tunnels. Its processes and
//! its database belong to one test.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::lab::Lab;
use crate::machine::two_cpus;
use crate::measure::SwitchPort;
use crate::net::Namespace;
use crate::proc::{self, Proc};

/// Debian's path of the daemon with DPDK.
pub(crate) const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// A bridge that forwards all packets between the two ports of each pair, for example `a` and `b`.
pub(crate) struct Ovs<'lab> {
    lab: &'lab Lab<'lab>,
    switch: Proc,
    ports: usize,
    _database: Proc,
}

/// The threads of Open vSwitch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OvsThreads {
    /// The CPU of the polling thread.
    pub(crate) polling: u32,
    /// The CPU of the others.
    pub(crate) others: u32,
    /// The longest sleep of a polling thread without load, in microseconds (`pmd-maxsleep`). With 0,
    /// the default, it never sleeps.
    pub(crate) max_sleep_us: u32,
}

impl OvsThreads {
    /// Returns threads on two CPUs, where the polling thread never sleeps.
    fn usual() -> Result<Self> {
        let (others, polling) = two_cpus()?;
        Ok(Self { polling, others, max_sleep_us: 0 })
    }
}

/// A port: its name and the settings of its interface.
type Port = (String, Vec<String>);

impl<'lab> Ovs<'lab> {
    /// Starts Open vSwitch. With `client` it connects to the sockets, otherwise it listens on them.
    pub(crate) fn start(lab: &'lab Lab<'_>, client: bool) -> Result<Self> {
        Self::start_with_mtu(lab, client, 1500)
    }

    /// Starts Open vSwitch with another MTU, which only applies if it listens.
    pub(crate) fn start_with_mtu(lab: &'lab Lab<'_>, client: bool, mtu: u32) -> Result<Self> {
        let port = |name: &str| {
            // A listening port has the name of its socket, which is in OvS's folder.
            let path = format!("options:vhost-server-path={}", lab.socket(name).display());
            let mtu = format!("mtu_request={mtu}");
            let kind = if client { ["type=dpdkvhostuserclient", &path] } else { ["type=dpdkvhostuser", &mtu] };
            (format!("{name}.sock"), kind.map(str::to_owned).to_vec())
        };
        Self::start_with_ports(lab, program(), &[port("a"), port("b")])
    }

    /// Starts Open vSwitch with a polling thread that sleeps without load. The guest at `a` may send this
    /// number of kbit/s, with a burst of a tenth of a second.
    pub(crate) fn start_policed(lab: &'lab Lab<'_>, kbit: Option<u32>) -> Result<Self> {
        let port = |name: &str, kbit: Option<u32>| {
            let mut settings = vec!["type=dpdkvhostuser".to_owned()];
            settings.extend(kbit.map(|kbit| format!("ingress_policing_rate={kbit}")));
            settings.extend(kbit.map(|kbit| format!("ingress_policing_burst={}", kbit / 10)));
            (format!("{name}.sock"), settings)
        };
        let threads = OvsThreads { max_sleep_us: 100, ..OvsThreads::usual()? };
        Self::start_on(lab, threads, program(), &[port("a", kbit), port("b", None)])
    }

    /// Returns the CPU time of the switch, in ticks of 10 ms.
    pub(crate) fn cpu_ticks(&self) -> Result<u64> {
        self.switch.cpu_ticks()
    }

    /// Starts Open vSwitch between each two of these sockets, with libraries of this folder.
    pub(crate) fn start_with_library(lab: &'lab Lab<'_>, ports: &[&str], folder: &Path) -> Result<Self> {
        let kind = || vec!["type=dpdkvhostuser".to_owned()];
        let ports: Vec<Port> = ports.iter().map(|port| (format!("{port}.sock"), kind())).collect();
        let mut command = program();
        command.env("LD_LIBRARY_PATH", folder);
        Self::start_with_ports(lab, command, &ports)
    }

    /// Returns the process.
    pub(crate) fn id(&self) -> u32 {
        self.switch.id()
    }

    /// Starts Open vSwitch, with two flows for each pair of ports. `command` runs [`PROGRAM`], for
    /// example in a network namespace.
    pub(crate) fn start_between(lab: &'lab Lab<'_>, command: Command, pairs: &[[SwitchPort; 2]]) -> Result<Self> {
        let port = |port: &SwitchPort| match port {
            SwitchPort::Socket(name) => Ok((format!("{name}.sock"), vec!["type=dpdkvhostuser".to_owned()])),
            SwitchPort::AfXdp(name) => Ok(((*name).to_owned(), vec!["type=afxdp".to_owned()])),
            SwitchPort::Tap(name) => bail!("Open vSwitch has no fast port for the tap {name}: use AF_XDP"),
        };
        let ports: Vec<Port> = pairs.iter().flatten().map(port).collect::<Result<_>>()?;
        Self::start_with_ports(lab, command, &ports)
    }

    fn start_with_ports(lab: &'lab Lab<'_>, command: Command, ports: &[Port]) -> Result<Self> {
        Self::start_on(lab, OvsThreads::usual()?, command, ports)
    }

    fn start_on(lab: &'lab Lab<'_>, threads: OvsThreads, command: Command, ports: &[Port]) -> Result<Self> {
        let ovsdb = dpdk_database(lab, threads, "")?;
        let switch = vswitchd(lab, command)?;
        configure(lab, &["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"])?;
        for (number, (port, settings)) in (1..).zip(ports) {
            let number = format!("ofport_request={number}");
            let mut args = vec!["add-port", "br0", port, "--", "set", "Interface", port, &number];
            args.extend(settings.iter().map(String::as_str));
            configure(lab, &args)?;
        }
        let mut ovs = Self { lab, switch, ports: ports.len(), _database: ovsdb };
        ovs.wait_bridge()?;
        Ok(ovs)
    }

    /// Kills the switch and starts it again. The database stays.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.switch.signal(rustix::process::Signal::KILL)?;
        self.switch.wait_end()?;
        for left in ["br0.mgmt", "br0.snoop"] {
            // A socket of the killed process would look like one of the new process.
            let _ = std::fs::remove_file(folder(self.lab).join(left));
        }
        self.switch = vswitchd(self.lab, program())?;
        self.wait_bridge()
    }

    /// Waits until the switch has all ports, and installs the flows.
    fn wait_bridge(&mut self) -> Result<()> {
        let management = folder(self.lab).join("br0.mgmt");
        wait_file(&mut self.switch, &management)?;
        let lab = self.lab;
        let count = self.ports;
        proc::until("OvS has all ports", || {
            let ports = openflow(lab, &["--no-names", "dump-ports"], &[])?;
            Ok((1..=count).all(|port| ports.contains(&format!("port  {port}:"))).then_some(()))
        })?;
        for one in (1..=count).step_by(2) {
            let other = one + 1;
            for (from, to) in [(one, other), (other, one)] {
                openflow(lab, &["add-flow"], &[&format!("in_port={from},action=output:{to}")])?;
            }
        }
        Ok(())
    }

    /// Makes the flows of a file those of the bridge.
    pub(crate) fn replace_flows(&self, file: &str) -> Result<()> {
        openflow(self.lab, &["del-flows"], &[])?;
        openflow(self.lab, &["add-flows"], &[file]).map(drop)
    }

    /// Leaves out the cache of exact matches.
    pub(crate) fn leave_out_exact_matches(&self) -> Result<()> {
        configure(self.lab, &["set", "Open_vSwitch", ".", "other_config:emc-insert-inv-prob=0"])
    }

    /// Returns the statistics of the polling thread.
    pub(crate) fn performance(&self) -> Result<String> {
        control(self.lab, "dpif-netdev/pmd-perf-show")
    }

    /// Sets the statistics of the polling thread to zero.
    pub(crate) fn clear_performance(&self) -> Result<()> {
        control(self.lab, "dpif-netdev/pmd-stats-clear").map(drop)
    }

    /// Returns the packets that came from the guests at `a` and at `b`. (For listening vhost ports,
    /// OvS counts nothing else.)
    pub(crate) fn packets(&self) -> Result<[u64; 2]> {
        let text = openflow(self.lab, &["--no-names", "dump-flows"], &[])?;
        let [Some(a), Some(b)] = [parse(&text, 1), parse(&text, 2)] else {
            bail!("ovs-ofctl printed no packet count for port 1 or 2: {text}")
        };
        Ok([a, b])
    }
}

/// The far end of tunnels: Open vSwitch with one port for the underlay and a bridge for each tunnel.
pub(crate) struct TunnelOvs<'lab> {
    lab: &'lab Lab<'lab>,
    switch: Proc,
    _database: Proc,
}

/// The bridge of the underlay, whose interface has the underlay's addresses.
pub(crate) const OUTER_BRIDGE: &str = "outer";

impl<'lab> TunnelOvs<'lab> {
    /// Starts Open vSwitch in a namespace. The underlay is `port`, whose interface has these
    /// settings.
    pub(crate) fn start(
        lab: &'lab Lab<'_>,
        namespace: &Namespace,
        mtu: u32,
        port: &str,
        settings: &[&str],
    ) -> Result<Self> {
        Self::start_on(lab, namespace, OvsThreads::usual()?, mtu, port, settings)
    }

    /// Starts Open vSwitch with its threads on these CPUs.
    pub(crate) fn start_on(
        lab: &'lab Lab<'_>,
        namespace: &Namespace,
        threads: OvsThreads,
        mtu: u32,
        port: &str,
        settings: &[&str],
    ) -> Result<Self> {
        let database = dpdk_database(lab, threads, " --single-file-segments")?;
        let switch = vswitchd(lab, namespace.command(PROGRAM))?;
        let ovs = Self { lab, switch, _database: database };
        ovs.add_bridge(namespace, OUTER_BRIDGE, mtu, port, settings)?;
        Ok(ovs)
    }

    /// Adds a bridge with this port, and waits until its interface exists, which has the bridge's
    /// name.
    pub(crate) fn add_bridge(
        &self,
        namespace: &Namespace,
        bridge: &str,
        mtu: u32,
        port: &str,
        settings: &[&str],
    ) -> Result<()> {
        let mtu = format!("mtu_request={mtu}");
        let set = ["--", "set", "bridge", bridge, "datapath_type=netdev", "--", "set", "Interface", bridge, &mtu];
        configure(self.lab, &[&["add-br", bridge], &set[..]].concat())?;
        self.add_port(bridge, port, settings)?;
        proc::until("OvS makes its bridge", || namespace.link(bridge))?;
        Ok(())
    }

    /// Adds a port whose interface has these settings.
    pub(crate) fn add_port(&self, bridge: &str, port: &str, settings: &[&str]) -> Result<()> {
        configure(self.lab, &[&["add-port", bridge, port, "--", "set", "Interface", port], settings].concat())
    }

    /// Waits until a port listens on this socket.
    pub(crate) fn wait_socket(&self, path: &Path) -> Result<()> {
        let what = format!("OvS listens on {}", path.display());
        let came = proc::until(&what, || Ok(path.exists().then_some(())));
        came.with_context(|| self.switch.texts().1.trim().to_owned())
    }

    /// Returns the CPU time of the switch, in ticks of 10 ms.
    pub(crate) fn cpu_ticks(&self) -> Result<u64> {
        self.switch.cpu_ticks()
    }

    /// Returns the state of ports and tunnels, for the log.
    pub(crate) fn state(&self) -> Result<String> {
        let mut command = here(self.lab, "ovs-vsctl");
        must(command.arg(format!("--db={}", remote(self.lab))).arg("show"))
    }
}

/// Open vSwitch's user-space datapath without DPDK. Its ports are sockets.
pub(crate) struct PlainOvs<'lab> {
    lab: &'lab Lab<'lab>,
    switch: Proc,
    _database: Proc,
}

impl<'lab> PlainOvs<'lab> {
    /// Starts Open vSwitch. Each packet passes the complete translation: cached flows would follow
    /// moved stations later.
    pub(crate) fn start(lab: &'lab Lab<'_>) -> Result<Self> {
        let database = database(lab)?;
        configure(lab, &["set", "Open_vSwitch", ".", "other_config:flow-limit=0"])?;
        let mut command = Command::new("unshare");
        command.args(["--net", "ovs-vswitchd", "--enable-dummy"]);
        Ok(Self { lab, switch: vswitchd(lab, command)?, _database: database })
    }

    /// Adds a bridge that learns.
    pub(crate) fn add_bridge(&self, bridge: &str) -> Result<()> {
        configure(self.lab, &["add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"])
    }

    /// Waits until the bridge `br0` takes commands of `ovs-ofctl`.
    pub(crate) fn wait_bridge(&mut self) -> Result<()> {
        wait_file(&mut self.switch, &folder(self.lab).join("br0.mgmt"))
    }

    /// Runs `ovs-ofctl` on the bridge `br0`: its options and command, then arguments behind the bridge.
    pub(crate) fn flows(&self, what: &[&str], args: &[&str]) -> Result<String> {
        openflow(self.lab, what, args)
    }

    /// Runs `ovs-appctl` with this command.
    pub(crate) fn control(&self, what: &str) -> Result<String> {
        control(self.lab, what)
    }

    /// Adds a port with these settings. Its device listens on a stream socket, where each frame
    /// follows its length.
    pub(crate) fn add_stream(&self, bridge: &str, port: &str, settings: &[String]) -> Result<()> {
        let socket = format!("options:pstream=punix:{}", self.lab.socket(port).display());
        let mut args = vec!["add-port", bridge, port];
        args.extend(settings.iter().map(String::as_str));
        args.extend(["--", "set", "Interface", port, "type=dummy", "mtu_request=1600", &socket]);
        configure(self.lab, &args)
    }

    /// Waits until a port listens, and returns the path of its socket.
    pub(crate) fn wait_stream(&mut self, port: &str) -> Result<PathBuf> {
        let path = self.lab.socket(port);
        wait_file(&mut self.switch, &path)?;
        Ok(path)
    }
}

/// Returns a command that runs [`PROGRAM`] in a network namespace of its own. It makes interfaces with
/// fixed names there.
pub(crate) fn program() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", PROGRAM]);
    command
}

/// Makes a database, and starts its server.
fn database(lab: &Lab) -> Result<Proc> {
    let database = folder(lab).join("conf.db");
    let mut create = Command::new("ovsdb-tool");
    must(create.arg("create").arg(&database).arg("/usr/share/openvswitch/vswitch.ovsschema"))?;
    let mut serve = here(lab, "ovsdb-server");
    serve.arg(&database).arg(format!("--remote=p{}", remote(lab)));
    let mut ovsdb = Proc::start("ovsdb-server", serve, &lab.log("ovsdb"))?;
    wait_file(&mut ovsdb, &lab.socket("db"))?;
    configure(lab, &["init"])?;
    Ok(ovsdb)
}

/// Makes a database with the settings for DPDK, and starts its server.
fn dpdk_database(lab: &Lab, threads: OvsThreads, extra: &str) -> Result<Proc> {
    let ovsdb = database(lab)?;
    let extra = format!("other_config:dpdk-extra=--no-pci --file-prefix={}{extra}", lab.unique("ovs"));
    let mask = |cpu: u32| format!("{:#x}", 1_u64 << cpu);
    configure(
        lab,
        &[
            "set",
            "Open_vSwitch",
            ".",
            "other_config:dpdk-init=true",
            "other_config:dpdk-socket-mem=512",
            &format!("other_config:pmd-cpu-mask={}", mask(threads.polling)),
            &format!("other_config:dpdk-lcore-mask={}", mask(threads.others)),
            &extra,
            &format!("other_config:pmd-maxsleep={}", threads.max_sleep_us),
        ],
    )?;
    Ok(ovsdb)
}

/// Parses a line that contains `n_packets=3, ` and `in_port=1 `.
fn parse(text: &str, port: u32) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(&format!("in_port={port} ")))?;
    let (_, rest) = line.split_once("n_packets=")?;
    rest.split(',').next()?.parse().ok()
}

fn folder(lab: &Lab) -> PathBuf {
    lab.socket("db").parent().map(PathBuf::from).unwrap_or_default()
}

fn remote(lab: &Lab) -> String {
    format!("unix:{}", lab.socket("db").display())
}

/// Returns a command for a program of OvS that keeps its files in the test's folder.
fn here(lab: &Lab, program: &str) -> Command {
    at_home(lab, Command::new(program))
}

fn at_home(lab: &Lab, mut command: Command) -> Command {
    let folder = folder(lab);
    command.env("OVS_RUNDIR", &folder).env("OVS_LOGDIR", &folder).env("OVS_DBDIR", &folder);
    command
}

fn vswitchd(lab: &Lab, command: Command) -> Result<Proc> {
    let mut command = at_home(lab, command);
    let folder = folder(lab);
    command.arg(remote(lab));
    command.arg(format!("--pidfile={}", folder.join("vs.pid").display()));
    command.arg(format!("--unixctl={}", folder.join("vs.ctl").display()));
    Proc::start("ovs-vswitchd", command, &lab.log("vswitchd"))
}

fn configure(lab: &Lab, args: &[&str]) -> Result<()> {
    let mut command = here(lab, "ovs-vsctl");
    must(command.arg(format!("--db={}", remote(lab))).arg("--no-wait").args(args))?;
    Ok(())
}

fn openflow(lab: &Lab, what: &[&str], args: &[&str]) -> Result<String> {
    let mut command = here(lab, "ovs-ofctl");
    let bridge = format!("unix:{}", folder(lab).join("br0.mgmt").display());
    must(command.args(what).arg(bridge).args(args))
}

fn control(lab: &Lab, what: &str) -> Result<String> {
    let mut command = here(lab, "ovs-appctl");
    must(command.arg("-t").arg(folder(lab).join("vs.ctl")).arg(what))
}

fn must(command: &mut Command) -> Result<String> {
    let (code, out, err) = proc::run(command)?;
    if code != Some(0) {
        bail!("{command:?} ended with {code:?}: {out}{err}");
    }
    Ok(out)
}

fn wait_file(proc: &mut Proc, path: &Path) -> Result<()> {
    let what = format!("{} is there", path.display());
    proc::until(&what, || Ok(path.exists().then_some(()))).with_context(|| format!("{:?}", proc.texts()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_statistics() {
        let text = "NXST_FLOW reply (xid=0x4):\n \
                    cookie=0x0, duration=2.9s, table=0, n_packets=52, n_bytes=3, idle_age=0, in_port=1 actions=output:2\n \
                    cookie=0x0, duration=2.9s, table=0, n_packets=7, n_bytes=9, idle_age=0, in_port=2 actions=output:1\n";
        assert_eq!(parse(text, 1), Some(52));
        assert_eq!(parse(text, 2), Some(7));
        assert_eq!(parse(text, 3), None);
    }
}
