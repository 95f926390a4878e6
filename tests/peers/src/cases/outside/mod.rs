//! Ports on interfaces: guests of the switch exchange traffic with Linux network namespaces.
//!
//! | file | what it tests |
//! |---|---|
//! | `bridged` | the harness itself: namespaces on a Linux bridge, without a switch |
//! | `tap` | a guest, and the host at a tap |
//! | `nic` | a guest, and the other end of a veth pair, over AF_XDP and AF_PACKET |
//! | `bridge` | a bridge with ports of all kinds: traffic, SIGKILL, sleep, QEMU |
//! | `links` | interfaces that change under traffic |
//! | `testpmd` | DPDK's drivers for the same interfaces |
//! | `document` | the commands of `docs/network.md` and `docs/tunnels.md` |

mod bridge;
mod bridged;
pub(super) mod document;
mod links;
mod nic;
mod tap;
mod testpmd;

use anyhow::{Context, Result, bail, ensure};

use crate::guest::LinuxGuest;
use crate::runner::Test;
use crate::say::say;
use crate::switch::PortStatus;
use crate::traffic;

/// Returns the tests.
pub(super) fn tests() -> Vec<Test> {
    let mut tests = bridged::tests();
    tests.extend(tap::tests());
    tests.extend(nic::tests());
    tests.extend(bridge::tests());
    tests.extend(links::tests());
    tests.extend(testpmd::tests());
    tests.extend(document::tests());
    tests
}

/// A kind of port on an interface that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceKind {
    AfXdp,
    AfPacket,
}

impl DeviceKind {
    /// Returns the value of `kind` in the configuration.
    fn name(self) -> &'static str {
        match self {
            Self::AfXdp => "af-xdp",
            Self::AfPacket => "af-packet",
        }
    }

    /// Returns the necessary lines of a port's section.
    pub(super) fn keys(self, interface: &str) -> String {
        format!("kind = \"{}\"\ninterface = \"{interface}\"", self.name())
    }
}

/// Asserts that a port is up, and shows its interface and the interface's MTU.
fn has_device(port: &PortStatus, interface: &str, mtu: u32) -> Result<()> {
    let Some(device) = &port.device else { bail!("`ports` shows no device of port {}: {port:?}", port.name) };
    ensure!(port.link == "up", "port {} is {}: {:?}", port.name, port.link, port.reason);
    ensure!(device.interface == interface && device.mtu == mtu, "not {interface} with MTU {mtu}: {device:?}");
    say!("  port {}: {interface}, mode {:?}, zero-copy {}", port.name, device.mode, device.zero_copy);
    Ok(())
}

/// How much two guests exchange.
#[derive(Clone, Copy)]
struct Amount {
    mtu: u32,
    /// Size of the file that each sends.
    mib: u32,
}

/// Lets two guests exchange echoes, TCP streams, datagrams and files, over IPv4 and IPv6.
fn exchange(one: &mut LinuxGuest, other: &mut LinuxGuest, Amount { mtu, mib }: Amount) -> Result<()> {
    // Bytes of the IP and ICMP headers.
    for (address, headers) in [(other.ip(), 28), (other.ip6(), 48)] {
        traffic::reach(one, &address)?;
        traffic::ping(one, &address, 10, 56)?;
        traffic::ping(one, &address, 10, mtu - headers)?;
    }
    // The files below go over IPv4.
    let address = other.ip6();
    for (reverse, arrow) in [("", "->"), (" -R", "<-")] {
        let report = iperf3(one, other, &format!("-n 48M -c {address}{reverse}"))?;
        let bits = report("/end/sum_received/bits_per_second").context("iperf3 printed no rate")?;
        say!("  iperf3 guest {} {arrow} {address}: {:.2} Gbit/s", one.number, bits / 1e9);
    }
    traffic::file(one, other, mib)?;
    traffic::file(other, one, mib)?;
    datagrams(one, other)?;
    traffic::no_errors(one)?;
    traffic::no_errors(other)
}

/// Sends small datagrams, and larger ones than the MTU allows, so in fragments, both ways. A burst
/// may overflow the receiver, so only some of them have to arrive.
fn datagrams(one: &mut LinuxGuest, other: &mut LinuxGuest) -> Result<()> {
    let rate = if one.is_slow() || other.is_slow() { "5M" } else { "100M" };
    for len in [200, 12_000] {
        for reverse in ["", " -R"] {
            let report = iperf3(one, other, &format!("-u -b {rate} -k 100 -l {len} -c {}{reverse}", other.ip()))?;
            let sent = report("/end/sum/packets");
            let lost = report("/end/sum/lost_packets");
            let (Some(sent), Some(lost)) = (sent, lost) else { bail!("iperf3 counted no datagrams") };
            say!("  datagrams of {len} bytes{reverse}: {} of {sent} arrived", sent - lost);
            ensure!(sent > lost, "{lost} of {sent} datagrams of {len} bytes{reverse} were lost");
        }
    }
    Ok(())
}

/// Runs an iperf3 client with these options, and a server at `other`. Returns the numbers of its
/// report by their paths.
pub(super) fn iperf3(
    one: &mut LinuxGuest,
    other: &mut LinuxGuest,
    options: &str,
) -> Result<impl Fn(&str) -> Option<f64> + use<>> {
    traffic::iperf3_server(other)?;
    let text = one.sh(&format!("iperf3 -J {options}"))?;
    // Until its end, the server occupies the port of the next one.
    traffic::until(other, "! grep -q ':1451 .* 0A ' /proc/net/tcp6")?;
    // A warning that datagrams are fragmented may precede the report.
    let report = text.get(text.find('{').unwrap_or(0)..).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(report).with_context(|| format!("iperf3 wrote {text}"))?;
    Ok(move |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64))
}
