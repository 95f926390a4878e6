//! DPDK's testpmd. As a guest without a VM, it has two virtio-user ports that send and bounce
//! packets. As a switch, it has two vhost ports, and forwards all packets from one to the other.

use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::lab::Lab;
use crate::machine::two_cpus;
use crate::proc::{self, Proc};

/// testpmd on the ports `a` and `b`.
pub(crate) struct Testpmd {
    proc: Proc,
}

/// The counts of one port of testpmd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortStats {
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
}

/// Descriptors of each ring.
const RING: u64 = 1024;

const PROMPT: &str = "testpmd> ";

/// Options for a testpmd that forwards: it keeps the packets that are in the rings when it starts.
const KEEP_PACKETS: [&str; 2] = ["--no-flush-rx", "--total-num-mbufs=16384"];

impl Testpmd {
    /// Starts testpmd as a guest with `queues` queue pairs. `device` contains additional arguments
    /// of both virtio-user devices, `args` some of testpmd's own.
    pub(crate) fn guest(lab: &Lab, name: &str, device: &str, queues: u32, args: &[&str]) -> Result<Self> {
        let devices = ["a", "b"].map(|port| {
            let path = lab.socket(port);
            format!("net_virtio_user{{}},path={},queues={queues},queue_size={RING}{device}", path.display())
        });
        // Twice the buffers of all rings of both ports: buffers in full rings are not available for
        // empty ones.
        let buffers = 8 * RING * u64::from(queues.max(2));
        let mut all = [
            ("rxq", u64::from(queues)),
            ("txq", queues.into()),
            ("rxd", RING),
            ("txd", RING),
            ("total-num-mbufs", buffers),
        ]
        .map(|(name, value)| format!("--{name}={value}"))
        .to_vec();
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        Self::spawn(lab, name, &devices, &all, 0)
    }

    /// Starts testpmd as one of several guests that forward packets between two ports. It listens
    /// on their sockets.
    pub(crate) fn forwarder(lab: &Lab, number: u32, ports: [&str; 2], device: &str) -> Result<Self> {
        let devices = ports.map(|port| {
            let path = lab.socket(port);
            // A killed testpmd leaves its socket behind.
            let _ = std::fs::remove_file(&path);
            format!("net_virtio_user{{}},path={},server=1,queue_size={RING}{device}", path.display())
        });
        let rings = [format!("--rxd={RING}"), format!("--txd={RING}")];
        let args = [&rings[..], &KEEP_PACKETS.map(str::to_owned)].concat();
        let mut testpmd = Self::spawn(lab, &format!("testpmd-{number}"), &devices, &args, number)?;
        testpmd.command("start", "io packet forwarding")?;
        Ok(testpmd)
    }

    /// Starts testpmd as a switch between the ports `a` and `b`, with `queues` queue pairs. With
    /// `client` it connects.
    pub(crate) fn switch(lab: &Lab, name: &str, queues: u32, client: bool) -> Result<Self> {
        let devices = ["a", "b"].map(|port| {
            let path = lab.socket(port);
            format!("net_vhost{{}},iface={},queues={queues},client={}", path.display(), u8::from(client))
        });
        let queues = [format!("--rxq={queues}"), format!("--txq={queues}")];
        let args = [&queues[..], &KEEP_PACKETS.map(str::to_owned)].concat();
        Self::spawn(lab, name, &devices, &args, 0)
    }

    /// Starts testpmd on two devices, in whose text `{}` is replaced by their number. Processes
    /// of a test that run at the same time have different values of `number`. A process removes the huge
    /// pages that a killed one with its number left behind.
    pub(crate) fn spawn(lab: &Lab, name: &str, devices: &[String; 2], args: &[String], number: u32) -> Result<Self> {
        Self::spawn_by(Command::new("stdbuf"), lab, name, devices, args, number)
    }

    /// Starts testpmd as [`Self::spawn`] does, on any number of devices. `command` runs `stdbuf`,
    /// for example in a network namespace.
    pub(crate) fn spawn_by(
        mut command: Command,
        lab: &Lab,
        name: &str,
        devices: &[String],
        args: &[String],
        number: u32,
    ) -> Result<Self> {
        let (one, other) = two_cpus()?;
        let (one, other) = if number.is_multiple_of(2) { (one, other) } else { (other, one) };
        // Output must be line buffered, or answers arrive only at the end of the process.
        command
            .args(["-oL", "dpdk-testpmd", "--lcores", &format!("0@{one},1@{other}"), "--main-lcore", "0"])
            .args(["--no-pci", "--single-file-segments", "-m", if number == 0 { "512" } else { "256" }])
            .arg(format!("--file-prefix={}", lab.unique(&number.to_string())));
        for (at, device) in devices.iter().enumerate() {
            command.args(["--vdev", &device.replace("{}", &at.to_string())]);
        }
        command.args(["--", "-i", "--nb-cores=1", "--forward-mode=io"]).args(args);
        let mut proc = Proc::start("testpmd", command, &lab.log(name))?;
        proc.wait_text("its prompt", 0, |text| text.contains(PROMPT).then_some(()))?;
        Ok(Self { proc })
    }

    /// Returns the process.
    pub(crate) fn id(&self) -> u32 {
        self.proc.id()
    }

    /// Waits until both ports have a guest.
    pub(crate) fn wait_links(&mut self) -> Result<()> {
        for port in 0..2 {
            proc::until(&format!("testpmd's port {port} is up"), || {
                let text = self.command(&format!("show port info {port}"), "Device capabilities")?;
                Ok(text.contains("Link status: up").then_some(()))
            })?;
        }
        Ok(())
    }

    /// Sends a command, waits until the answer contains `end`, and returns the answer.
    pub(crate) fn command(&mut self, command: &str, end: &str) -> Result<String> {
        let mark = self.proc.mark();
        self.proc.send_line(command)?;
        let what = format!("an answer to `{command}`");
        self.proc.wait_text(&what, mark, |text| text.contains(end).then(|| text.to_owned()))
    }

    /// Sends `bursts` times 32 frames for each queue at each port, lets them bounce until each port has
    /// received more than `goal` packets in all, and then only receives until [`Self::stop_receiving`].
    /// `segments` lists the bytes of each buffer of a frame.
    pub(crate) fn bounce(&mut self, segments: &str, bursts: u32, goal: [u64; 2]) -> Result<()> {
        self.proc.send_line(&format!("set txpkts {segments}"))?;
        self.command("show config txpkts", "Split packet")?;
        self.command(&format!("start tx_first {bursts}"), "io packet forwarding")?;
        proc::until(&format!("testpmd's ports have received more than {goal:?} packets"), || {
            let stats = self.stats()?;
            Ok(stats.iter().zip(goal).all(|(port, goal)| port.rx_packets > goal).then_some(()))
        })?;
        self.command("stop", "Done.")?;
        self.proc.send_line("set fwd rxonly")?;
        self.command("start", "rxonly packet forwarding")?;
        Ok(())
    }

    /// Stops receiving.
    pub(crate) fn stop_receiving(&mut self) -> Result<()> {
        self.command("stop", "Done.")?;
        self.proc.send_line("set fwd io")
    }

    /// Sets the number of packets in a burst, from the next start on.
    pub(crate) fn set_burst(&mut self, packets: u32) -> Result<()> {
        self.command(&format!("set burst {packets}"), "Number of packets per burst set to")?;
        Ok(())
    }

    /// Stops both ports and starts them again.
    pub(crate) fn restart_ports(&mut self) -> Result<()> {
        self.command("port stop all", "Done")?;
        self.command("port start all", "Done")?;
        Ok(())
    }

    /// Returns the counts of ports 0 and 1.
    pub(crate) fn stats(&mut self) -> Result<[PortStats; 2]> {
        let mut both = [PortStats::default(); 2];
        for (at, stats) in both.iter_mut().enumerate() {
            let text = self.command(&format!("show port stats {at}"), "Tx-bps")?;
            *stats = parse(&text).with_context(|| format!("testpmd printed no statistics of port {at}: {text}"))?;
        }
        Ok(both)
    }

    /// Returns the packets and bits received per second by ports 0 and 1, since the previous call.
    pub(crate) fn rates(&mut self) -> Result<[(f64, f64); 2]> {
        let mut both = [(0.0, 0.0); 2];
        for (at, rates) in both.iter_mut().enumerate() {
            let text = self.command(&format!("show port stats {at}"), "Tx-bps")?;
            *rates =
                parse_rates(&text).with_context(|| format!("testpmd printed no statistics of port {at}: {text}"))?;
        }
        Ok(both)
    }

    /// Kills testpmd with SIGKILL.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.proc.signal(Signal::KILL)?;
        self.proc.wait_end()?;
        Ok(())
    }

    /// Ends testpmd with its command `quit`.
    pub(crate) fn quit(mut self) -> Result<()> {
        self.proc.send_line("quit")?;
        self.proc.wait_end()?;
        Ok(())
    }
}

fn parse_rates(text: &str) -> Option<(f64, f64)> {
    let field = |name: &str| text.split_once(name)?.1.split_whitespace().next()?.parse().ok();
    Some((field("Rx-pps:")?, field("Rx-bps:")?))
}

fn parse(text: &str) -> Option<PortStats> {
    let field = |name: &str| {
        let (_, rest) = text.split_once(name)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    Some(PortStats {
        rx_packets: field("RX-packets:")?,
        rx_bytes: field("RX-bytes:")?,
        tx_packets: field("TX-packets:")?,
        tx_bytes: field("TX-bytes:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_statistics() {
        let text = "  ######## NIC statistics for port 0  ########\n  \
                    RX-packets: 12         RX-missed: 0          RX-bytes:  768\n  RX-errors: 0\n  \
                    TX-packets: 13         TX-errors: 0          TX-bytes:  832\n";
        let want = PortStats { rx_packets: 12, rx_bytes: 768, tx_packets: 13, tx_bytes: 832 };
        assert_eq!(parse(text), Some(want));
        assert_eq!(parse("Invalid port 3"), None);
        let text = "  Throughput (since last show)\n  Rx-pps:      1234          Rx-bps:    631808\n  Tx-pps:  5  Tx-bps:  6\n";
        assert_eq!(parse_rates(text), Some((1234.0, 631_808.0)));
    }
}
