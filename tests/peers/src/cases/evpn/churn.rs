//! Stations of a third host come and go while packets pass between two others.
//!
//! The third host has gobgpd alone. The test gives it the routes of stations, and takes them back, again
//! and again. It announces them in the name of other hosts, as a route reflector does. Success: no
//! packet between the two others is lost, and at the end both switches have just the stations that are
//! still announced.
//!
//! `STRAIGHTLINE_GOBGPD` names another gobgpd. The long run then keeps 100 000 stations of 200 hosts beside
//! those that change: before 3.28, GoBGP reads its whole table for each route.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use straightline_evpn::gobgp::{Address, GoBgp};
use straightline_evpn::{Distinguisher, INGRESS_REPLICATION, Mobility, Pmsi, Route, RouteKey, Target, VXLAN};
use straightline_wire::MacAddr;
use tokio::runtime::{Builder, Runtime};

use super::{Host, REFLECTOR, another_gobgpd, member};
use crate::lab::Lab;
use crate::proc;
use crate::say::say;

/// Stations that come in one step and go in the next one.
const BATCH: u32 = 10;

/// Packets each second. Their queue has places for those of twenty seconds, in which a switch does not run.
const PINGS: u32 = 50;

/// Limit of the wait for many stations, which gobgpd itself tells slowly.
const MANY: Duration = Duration::from_secs(600);

const VNI: u16 = 100;

/// The first of the hosts that are announced.
const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

pub(super) fn stations_come_and_go(lab: &Lab) -> Result<()> {
    let core = super::core()?;
    let three = Host::new(lab, REFLECTOR, &core)?;
    let one = Host::new(lab, 1, &core)?;
    let mut other = Host::without_files(lab, 2, member(&core, 2)?);
    fs::write(other.file("evpn.toml"), other.evpn_configuration()?)?;
    other.start_gobgpd()?;
    let (hosts, kept) = if lab.machine.long && another_gobgpd().is_some() { (200, 100_000) } else { (4, 1000) };
    let source = Source::connect(&other, hosts)?;
    for number in 0..hosts {
        source.change(&source.flood(number), true)?;
    }
    for host in [&one, &three] {
        host.wait_others(1 + usize::try_from(hosts)?)?;
        host.reaches(if host.number == 1 { "10.0.0.3" } else { "10.0.0.1" })?;
    }

    // The time is the subject: the test says how long it takes.
    let began = Instant::now();
    for number in 0..kept {
        source.change(&source.station(number), true)?;
    }
    let mut present: BTreeSet<u32> = (0..kept).collect();
    wait(&[&one, &three], &present)?;
    say!("  {kept} stations of {hosts} hosts were known after {:.1} s", began.elapsed().as_secs_f64());

    let count = (PINGS * if lab.machine.long { 60 } else { 4 }).to_string();
    let interval = (1.0 / f64::from(PINGS)).to_string();
    let args = ["-c", &count, "-i", &interval, "-W", "60", "-q", "10.0.0.3"];
    let mut ping = one.namespace.start(lab, "ping", "ping", &args)?;
    // The time is the subject: the test says how fast stations change.
    let began = Instant::now();
    let mut steps = 0;
    while ping.ended()?.is_none() {
        let first = kept + steps / 2 * BATCH;
        for number in first..first + BATCH {
            let comes = steps % 2 == 0;
            source.change(&source.station(number), comes)?;
            if comes {
                present.insert(number)
            } else {
                present.remove(&number)
            };
        }
        steps += 1;
    }
    let rate = f64::from(steps * BATCH) / began.elapsed().as_secs_f64();
    // The last ones stay.
    for number in 0..BATCH {
        let number = kept + steps / 2 * BATCH + BATCH + number;
        source.change(&source.station(number), true)?;
        present.insert(number);
    }
    let changed = Instant::now();
    wait(&[&one, &three], &present)?;
    let (out, _) = ping.texts();
    ensure!(out.contains(&format!("{count} packets transmitted, {count} received")), "pings were lost: {out}");
    say!(
        "  {} changes, {rate:.0} each second: 0 of {count} pings lost; both switches had the last one {:.2} s later",
        steps * BATCH,
        changed.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Waits until the hosts' switches have just these stations behind the announced hosts.
fn wait(hosts: &[&Host], present: &BTreeSet<u32>) -> Result<()> {
    let wanted: BTreeSet<String> = present.iter().map(|number| mac(*number).to_string()).collect();
    for host in hosts {
        proc::until_within(MANY, &format!("host {} has the announced stations", host.number), || {
            let placed = host.placed()?.into_iter();
            let announced: BTreeSet<_> =
                placed.filter(|(mac, _)| mac.starts_with("02:00:01:")).map(|(mac, _)| mac).collect();
            Ok((announced == wanted).then_some(()))
        })?;
    }
    Ok(())
}

fn mac(number: u32) -> MacAddr {
    MacAddr::from_u64(0x0200_0100_0000 | u64::from(number))
}

/// A gobgpd whose routes the test makes.
struct Source {
    runtime: Runtime,
    gobgp: GoBgp,
    /// Number of the hosts that it announces.
    hosts: u32,
}

impl Source {
    fn connect(host: &Host, hosts: u32) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let address = Address::Unix(host.socket("gobgp"));
        let gobgp = proc::until("gobgpd of host 2 listens", || {
            let connected = runtime.block_on(GoBgp::connect(&address)).ok();
            // Its AS is set once it has read its configuration.
            Ok(connected.filter(|gobgp| gobgp.asn() != 0))
        })?;
        Ok(Self { runtime, gobgp, hosts })
    }

    /// Adds a route, or takes it back.
    fn change(&self, route: &Route, comes: bool) -> Result<()> {
        let change = async { if comes { self.gobgp.add(route).await } else { self.gobgp.delete(&route.key).await } };
        self.runtime.block_on(change).with_context(|| format!("gobgpd refused {}", route.key))
    }

    /// Returns the route by which a host asks for floods.
    fn flood(&self, host: u32) -> Route {
        let router = Ipv4Addr::from_bits(FIRST.to_bits() + host % self.hosts);
        let rd = Distinguisher::of_router(router, VNI);
        let address = router.into();
        Route {
            key: RouteKey::Flood { rd, tag: 0, origin: address },
            next_hop: address,
            label: 0,
            has_segment: false,
            targets: vec![Target::of_vni(self.gobgp.asn(), VNI.into())],
            encapsulations: vec![VXLAN],
            mobility: Mobility::default(),
            pmsi: Some(Pmsi { kind: INGRESS_REPLICATION, label: VNI.into() }),
        }
    }

    /// Returns the route of a station.
    fn station(&self, number: u32) -> Route {
        let flood = self.flood(number);
        let key = RouteKey::Station { rd: flood.key.rd(), tag: 0, mac: mac(number), ip: None };
        Route { key, label: VNI.into(), pmsi: None, ..flood }
    }
}
