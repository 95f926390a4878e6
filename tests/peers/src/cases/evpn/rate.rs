//! TCP through a tunnel that EVPN made, beside one that has its remote from the file.
//!
//! Both tunnels join the same two switches, each with a bridge and a tap of its own. iperf3 sends over one,
//! then over the other. Success: both carry it. The ratio of the rates is printed, and no criterion.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use straightline_report::statistics::{Pairing, median, ratio};

use super::{Host, REFLECTOR, member};
use crate::lab::Lab;
use crate::net::Namespace;
use crate::proc::{self, PATIENCE};
use crate::say::say;
use crate::traffic::Iperf;

/// Rounds, and seconds of each measurement, in a short run and a long one.
const SHORT: (u32, u32) = (1, 1);
const LONG: (u32, u32) = (12, 3);

pub(super) fn as_fast_as_a_static_tunnel(lab: &Lab) -> Result<()> {
    let core = super::core()?;
    let three = Host::with_static_tunnel(lab, REFLECTOR, 1, &core)?;
    let one = Host::with_static_tunnel(lab, 1, REFLECTOR, &core)?;
    for host in [&one, &three] {
        host.wait_others(1)?;
    }
    let ways = ["10.0.0.3", "10.0.1.3"];
    ways.iter().try_for_each(|ip| one.reaches(ip))?;
    let (rounds, secs) = if lab.machine.long { LONG } else { SHORT };
    let [mut of_evpn, mut of_file] = [const { Vec::new() }; 2];
    for round in 0..rounds {
        // Each way is the first of every other round.
        let mut order = [(ways[0], &mut of_evpn), (ways[1], &mut of_file)];
        if round % 2 == 1 {
            order.reverse();
        }
        for (ip, rates) in order {
            rates.push((round, iperf3(lab, &one.namespace, &three.namespace, ip, secs)?));
        }
    }
    let middle = |rates: &[(u32, f64)]| median(&rates.iter().map(|(_, rate)| *rate).collect::<Vec<_>>());
    let rates = [&of_evpn, &of_file].map(|rates| middle(rates).unwrap_or_default());
    let ratio = ratio(&of_evpn, &of_file, Pairing::ByRound).context("rounds")?;
    let interval = ratio.interval.map_or_else(String::new, |all| format!(" [{:.3}, {:.3}]", all.low, all.high));
    say!(
        "  iperf3: {:.2} Gbit/s over EVPN, {:.2} over a tunnel of the file: {:.3}{interval}",
        rates[0],
        rates[1],
        ratio.value
    );
    Ok(())
}

/// Returns the rate at which a namespace sends to an address of another, in Gbit/s.
pub(super) fn iperf3(lab: &Lab, from: &Namespace, to: &Namespace, ip: &str, secs: u32) -> Result<f64> {
    let log = format!("iperf3-{}", to.name());
    let server = to.start(lab, &log, "iperf3", &["-s", "-1", "-B", ip, "--forceflush"])?;
    proc::until("iperf3 listens", || Ok(server.texts().0.contains("Server listening").then_some(())))?;
    let mut client = from.command("iperf3");
    client.args(["-J", "-c", ip, "-t", &secs.to_string()]);
    let (code, out, err) = proc::run_within(PATIENCE + Duration::from_secs(secs.into()), &mut client)?;
    ensure!(code == Some(0), "iperf3 ended with {code:?}: {out}{err}");
    Ok(Iperf::parse(&out)?.gbit_per_s)
}

impl<'l> Host<'l> {
    /// Starts a host with a second bridge, whose tunnel has the other host from the file.
    fn with_static_tunnel(lab: &'l Lab<'l>, number: u8, other: u8, core: &Namespace) -> Result<Self> {
        let mut host = Self::without_files(lab, number, member(core, number)?);
        let more = format!(
            "[port.vm1]\nkind = \"tap\"\nname = \"vm1\"\npersist = false\nmtu = 1450\nsource-check = \"mac\"\n\
             allowed-macs = [\"02:00:00:00:01:0{number}\"]\nallowed-ips = [\"10.0.1.{number}\"]\n\
             [port.vx1]\nkind = \"vxlan\"\nunderlay = \"wan\"\nvni = 200\nremotes = [\"192.0.2.{other}\"]\nmtu = 1450\n\
             learning = false\n[bridge.lan1]\nports = [\"vm1\", \"vx1\"]\nneighbour-suppression = true\n"
        );
        let switch = host.switch_configuration() + &more;
        host.start_with(&switch)?;
        host.namespace.sh(&format!(
            "ip link set vm1 address 02:00:00:00:01:0{number} mtu 1450 up; ip addr add 10.0.1.{number}/24 dev vm1"
        ))?;
        Ok(host)
    }
}
