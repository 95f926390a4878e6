//! Open vSwitch with DPDK, between two vhost ports. Its processes and its database belong to one
//! test.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::lab::Lab;
use crate::machine::two_cpus;
use crate::proc::{self, Proc};

/// Debian's path of the daemon with DPDK.
pub(crate) const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

const LIMIT: Duration = Duration::from_secs(20);

/// A bridge with the ports `a` and `b`, which forwards all packets from one to the other.
pub(crate) struct Ovs<'lab> {
    lab: &'lab Lab<'lab>,
    switch: Proc,
    _database: Proc,
}

impl<'lab> Ovs<'lab> {
    /// Starts Open vSwitch. With `client` it connects to the sockets, otherwise it listens on them.
    pub(crate) fn start(lab: &'lab Lab<'_>, client: bool) -> Result<Self> {
        Self::start_with_mtu(lab, client, 1500)
    }

    /// Starts Open vSwitch with another MTU, which only applies if it listens.
    pub(crate) fn start_with_mtu(lab: &'lab Lab<'_>, client: bool, mtu: u32) -> Result<Self> {
        let database = folder(lab).join("conf.db");
        let mut create = Command::new("ovsdb-tool");
        must(create.arg("create").arg(&database).arg("/usr/share/openvswitch/vswitch.ovsschema"))?;
        let mut serve = here(lab, "ovsdb-server");
        serve.arg(&database).arg(format!("--remote=p{}", remote(lab)));
        let mut ovsdb = Proc::start("ovsdb-server", serve, &lab.log("ovsdb"))?;
        wait_file(&mut ovsdb, &lab.socket("db"))?;
        configure(lab, &["init"])?;
        let (one, other) = two_cpus()?;
        let extra = format!("other_config:dpdk-extra=--no-pci --file-prefix=peersovs{}", std::process::id());
        let mask = |cpu: u32| format!("{:#x}", 1_u64 << cpu);
        configure(
            lab,
            &[
                "set",
                "Open_vSwitch",
                ".",
                "other_config:dpdk-init=true",
                "other_config:dpdk-socket-mem=512",
                &format!("other_config:pmd-cpu-mask={}", mask(other)),
                &format!("other_config:dpdk-lcore-mask={}", mask(one)),
                &extra,
            ],
        )?;
        let switch = vswitchd(lab)?;
        configure(lab, &["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"])?;
        for (number, port) in (1..).zip(["a.sock", "b.sock"]) {
            // A listening port has the name of its socket, which is in OvS's folder.
            let path = lab.socket(port.trim_end_matches(".sock"));
            let path = format!("options:vhost-server-path={}", path.display());
            let mtu = format!("mtu_request={mtu}");
            let kind = if client { ["type=dpdkvhostuserclient", &path] } else { ["type=dpdkvhostuser", &mtu] };
            let number = format!("ofport_request={number}");
            configure(lab, &["add-port", "br0", port, "--", "set", "Interface", port, kind[0], kind[1], &number])?;
        }
        let mut ovs = Self { lab, switch, _database: ovsdb };
        ovs.wait_bridge()?;
        Ok(ovs)
    }

    /// Kills the switch and starts it again. The database stays.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.switch.signal(rustix::process::Signal::KILL)?;
        self.switch.wait_end(LIMIT)?;
        for left in ["br0.mgmt", "br0.snoop"] {
            // A socket of the killed process would look like one of the new process.
            let _ = std::fs::remove_file(folder(self.lab).join(left));
        }
        self.switch = vswitchd(self.lab)?;
        self.wait_bridge()
    }

    /// Waits until the switch has both ports, and installs the flows.
    fn wait_bridge(&mut self) -> Result<()> {
        let management = folder(self.lab).join("br0.mgmt");
        wait_file(&mut self.switch, &management)?;
        let lab = self.lab;
        proc::until("OvS has both ports", LIMIT, || {
            let ports = openflow(lab, &["--no-names", "dump-ports"], &[])?;
            Ok((ports.contains("port  1:") && ports.contains("port  2:")).then_some(()))
        })?;
        for flow in ["in_port=1,action=output:2", "in_port=2,action=output:1"] {
            openflow(lab, &["add-flow"], &[flow])?;
        }
        Ok(())
    }

    /// Returns the statistics of the polling thread.
    pub(crate) fn performance(&self) -> Result<String> {
        let mut command = here(self.lab, "ovs-appctl");
        command.arg("-t").arg(folder(self.lab).join("vs.ctl")).arg("dpif-netdev/pmd-perf-show");
        must(&mut command)
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
    let mut command = Command::new(program);
    let folder = folder(lab);
    command.env("OVS_RUNDIR", &folder).env("OVS_LOGDIR", &folder).env("OVS_DBDIR", &folder);
    command
}

fn vswitchd(lab: &Lab) -> Result<Proc> {
    let mut command = here(lab, PROGRAM);
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

fn must(command: &mut Command) -> Result<String> {
    let (code, out, err) = proc::run(command, LIMIT)?;
    if code != Some(0) {
        bail!("{command:?} ended with {code:?}: {out}{err}");
    }
    Ok(out)
}

fn wait_file(proc: &mut Proc, path: &std::path::Path) -> Result<()> {
    let what = format!("{} is there", path.display());
    proc::until(&what, LIMIT, || Ok(path.exists().then_some(()))).with_context(|| format!("{:?}", proc.texts()))
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
