//! The harness itself: two namespaces on a Linux bridge, without a switch. If this fails, the
//! harness or the machine is at fault.

use anyhow::{Context, Result, ensure};

use super::{Amount, exchange};
use crate::guest::LinuxGuest;
use crate::lab::Lab;
use crate::machine::Need;
use crate::net::{self, Capture, Namespace};
use crate::runner::Test;
use crate::traffic;

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("harness_without_switch", &[Need::Namespaces, Need::Captures], without_switch).beside_others()]
}

fn without_switch(lab: &Lab) -> Result<()> {
    let [middle, one, other] = [Namespace::new("middle")?, Namespace::new("one")?, Namespace::new("other")?];
    let (name, routes);
    {
        middle.sh("ip link add br0 mtu 9000 type bridge; ip link set br0 up")?;
        net::veth([(&middle, "p1"), (&one, "eth0")], 1, 9000)?;
        net::veth([(&middle, "p2"), (&other, "eth0")], 4, 9000)?;
        middle.sh("ip link set p1 master br0; ip link set p2 master br0")?;
        (name, routes) = (middle.name().to_owned(), middle.routes()?);
        let mut guests =
            [LinuxGuest::in_namespace(lab, &one, 1, "eth0")?, LinuxGuest::in_namespace(lab, &other, 2, "eth0")?];
        for guest in &mut guests {
            guest.configure(9000)?;
            guest.add_ip6()?;
        }
        let [one_guest, other_guest] = &mut guests;
        exchange(one_guest, other_guest, Amount { mtu: 9000, mib: 16 })?;

        // With its checksums unfinished, a sender's packets must fail the check of captures.
        let wrong = Capture::start(lab, &other, "eth0")?;
        traffic::file(one_guest, other_guest, 1)?;
        ensure!(wrong.checksums_are_right(1).is_err(), "unfinished checksums were not noticed");
        traffic::turn_off(one_guest, &["tx"])?;
        let right = Capture::start(lab, &other, "eth0")?;
        traffic::file(one_guest, other_guest, 1)?;
        right.checksums_are_right(100)?;
    }
    ensure!(middle.routes()? == routes, "the routes changed");
    let link = middle.link("p2")?.context("no p2")?;
    ensure!(link.master.as_deref() == Some("br0") && link.mtu == 9000, "{link:?}");
    middle.has_no_program()?;
    drop((middle, one, other));
    let left = std::process::Command::new("ip").args(["netns", "list"]).output()?.stdout;
    ensure!(!String::from_utf8_lossy(&left).contains(&name), "namespace {name} is left");
    Ok(())
}
