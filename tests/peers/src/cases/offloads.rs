//! All pairs of offloads that two ports can offer: the negotiated features are right, and a file
//! arrives intact.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use crate::guest::LinuxGuest;
use crate::lab::Lab;
use crate::machine::Need;
use crate::runner::Test;
use crate::say::say;
use crate::switch::{Port, PortStatus, Switch};
use crate::traffic::{self, Transfer};

/// Values of a port's `offloads`, each with a name for the log.
const OFFERS: [(&str, &[&str]); 4] =
    [("none", &[]), ("csum", &["csum"]), ("tso", &["tso"]), ("csum+tso", &["csum", "tso"])];

/// The ports of both guests: one for each value.
const PORTS: [[&str; 4]; 2] = [["a0", "a1", "a2", "a3"], ["b0", "b1", "b2", "b3"]];

/// Features in `ports --json` that `csum` enables.
const CSUM: [&str; 2] = ["csum", "guest-csum"];

/// Features that `tso` enables if `csum` is offered too. Virtio 1.2, 5.1.3.1:
/// VIRTIO_NET_F_HOST_TSO4 and 6 need VIRTIO_NET_F_CSUM; VIRTIO_NET_F_GUEST_TSO4 and 6 need
/// VIRTIO_NET_F_GUEST_CSUM.
const TSO: [&str; 4] = ["host-tso4", "host-tso6", "guest-tso4", "guest-tso6"];

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("uml_offloads", &[Need::Uml(2)], all_pairings).beside_others()]
}

/// Two guests have a device for each value. Each round joins each device of the first with another
/// one of the second, by a reload, until all have been joined.
fn all_pairings(lab: &Lab) -> Result<()> {
    let mut switch = Switch::spawn_with(lab, &[], &configuration(lab, 0)?)?;
    switch.wait_ready()?;
    let mut one = LinuxGuest::start_uml(lab, 1, &PORTS[0])?;
    let mut two = LinuxGuest::start_uml(lab, 2, &PORTS[1])?;
    for guest in [&mut one, &mut two] {
        guest.boot()?;
        // An interface answers for its own addresses only.
        guest.sh("sysctl -qw net.ipv4.conf.all.arp_ignore=1")?;
    }
    for round in 0..OFFERS.len() {
        if round > 0 {
            switch.reload(&configuration(lab, round)?)?;
        }
        for ours in 0..OFFERS.len() {
            let pairing = Pairing { ours, theirs: partner(ours, round) };
            let [own, other] = [pairing.ours, pairing.theirs].map(|at| OFFERS[at].0);
            say!("  {own} to {other}");
            pairing.exchange(&switch, &mut one, &mut two).with_context(|| format!("{own} to {other}"))?;
        }
    }
    switch.stop()
}

/// Returns the number of the second guest's device that a device of the first is joined with.
fn partner(ours: usize, round: usize) -> usize {
    (ours + round) % OFFERS.len()
}

/// Returns the configuration of a round.
fn configuration(lab: &Lab, round: usize) -> Result<String> {
    let ports: Vec<Port> = PORTS
        .iter()
        .flat_map(|names| names.iter().zip(OFFERS))
        .map(|(name, (_, offloads))| Port { offloads: Some(offloads), ..Port::new(name) })
        .collect();
    let mut text = Switch::port_sections(lab, &ports)?;
    for (ours, name) in PORTS[0].iter().enumerate() {
        let pair = [name, PORTS[1][partner(ours, round)]];
        write!(text, "\n[patch.p{ours}]\nports = {pair:?}\n")?;
    }
    Ok(text)
}

/// A device of the first guest, and one of the second, by their numbers.
#[derive(Clone, Copy)]
struct Pairing {
    ours: usize,
    theirs: usize,
}

impl Pairing {
    /// Returns a guest's address. Each pairing has a network of its own.
    fn address(self, guest: u8) -> String {
        format!("10.78.{}.{guest}", self.ours * OFFERS.len() + self.theirs)
    }

    /// The negotiated features are right, and a file arrives intact.
    fn exchange(self, switch: &Switch, one: &mut LinuxGuest, two: &mut LinuxGuest) -> Result<()> {
        for (guest, device) in [(&mut *one, self.ours), (&mut *two, self.theirs)] {
            let address = self.address(guest.number);
            guest.sh(&format!("ip addr add {address}/24 dev eth{device} && ip link set eth{device} up"))?;
        }
        let second = self.address(2);
        traffic::reach(one, &second)?;
        for (ports, at) in PORTS.iter().zip([self.ours, self.theirs]) {
            negotiated(&switch.port(ports[at])?, OFFERS[at].1)?;
        }
        let mut file = Transfer::prepare(one, two, &second, 9000, 16)?;
        file.send(one)?;
        file.finish(one, two)?;
        traffic::no_errors(one)?;
        traffic::no_errors(two)
    }
}

fn negotiated(port: &PortStatus, offered: &[&str]) -> Result<()> {
    let csum = offered.contains(&"csum");
    let tso = csum && offered.contains(&"tso");
    let mut wanted: Vec<(&str, bool)> = CSUM.map(|name| (name, csum)).to_vec();
    wanted.extend(TSO.map(|name| (name, tso)));
    // No value of `offloads` above contains these, so they are never offered.
    wanted.extend(["host-uso", "guest-uso4", "guest-uso6", "host-ufo", "guest-ufo"].map(|name| (name, false)));
    for (feature, expected) in wanted {
        let negotiated = port.features.iter().any(|name| name == feature);
        ensure!(
            negotiated == expected,
            "port {} offers {offered:?}: {feature} {} negotiated: {:?}",
            port.name,
            if negotiated { "was" } else { "was not" },
            port.features
        );
    }
    Ok(())
}
