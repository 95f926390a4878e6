//! All pairs of offloads that two ports can offer: the negotiated features are right, and a file
//! arrives intact.

use anyhow::{Result, ensure};

use crate::guest::{GuestKind, LinuxGuest};
use crate::lab::Lab;
use crate::machine::Need;
use crate::runner::Test;
use crate::switch::{Join, Port, PortStatus, Switch};
use crate::traffic;

/// Values of a port's `offloads`, each with a name for the test.
const OFFERS: [(&str, &[&str]); 4] =
    [("none", &[]), ("csum", &["csum"]), ("tso", &["tso"]), ("csum+tso", &["csum", "tso"])];

/// Features in `ports --json` that `csum` enables.
const CSUM: [&str; 2] = ["csum", "guest-csum"];

/// Features that `tso` enables if `csum` is offered too. Virtio 1.2, 5.1.3.1:
/// VIRTIO_NET_F_HOST_TSO4 and 6 need VIRTIO_NET_F_CSUM; VIRTIO_NET_F_GUEST_TSO4 and 6 need
/// VIRTIO_NET_F_GUEST_CSUM.
const TSO: [&str; 4] = ["host-tso4", "host-tso6", "guest-tso4", "guest-tso6"];

pub(super) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (one, ours) in OFFERS {
        for (other, theirs) in OFFERS {
            let name = format!("uml_offloads_{one}_to_{other}");
            tests.push(Test::new(&name, &[Need::Uml(2)], |lab| pairing(lab, ours, theirs)));
        }
    }
    tests
}

fn pairing(lab: &Lab, ours: &'static [&str], theirs: &'static [&str]) -> Result<()> {
    let a = Port { offloads: Some(ours), ..Port::new("a") };
    let b = Port { offloads: Some(theirs), ..Port::new("b") };
    let switch = Switch::start(lab, &[a, b], Join::Patch)?;
    let [mut one, mut two] = LinuxGuest::boot_pair(lab, GuestKind::Uml, 1500)?;
    let second = two.ip();
    traffic::reach(&mut one, &second)?;
    negotiated(&switch.port("a")?, ours)?;
    negotiated(&switch.port("b")?, theirs)?;
    traffic::file(&mut one, &mut two, 16)?;
    traffic::no_errors(&mut one)?;
    traffic::no_errors(&mut two)?;
    switch.stop()
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
