//! Tests of the machine.

mod model;
mod rules;
mod simulation;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use straightline_wire::MacAddr;

use super::{Domain, Import, Limits, Machine, Seen};
use crate::gobgp::Told;
use crate::route::{Distinguisher, INGRESS_REPLICATION, MAX_VNI, Mobility, Pmsi, Route, RouteKey, Target, VXLAN};

const VNI: u32 = NUMBER as u32;
const NUMBER: u16 = 100;
const ASN: u32 = 65000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn host(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number).into()
}

fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

fn ip(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

fn rd(number: u8) -> Distinguisher {
    Distinguisher::of_router(Ipv4Addr::new(192, 0, 2, number), NUMBER)
}

/// Returns the only domain of a host.
fn domain(number: u8) -> Domain {
    let of_any_as = [Target::of_vni(0, VNI)].into();
    Domain {
        network: "net".to_owned(),
        bridge: "lan".to_owned(),
        vlan: 1,
        tunnel: "vx0".to_owned(),
        own: host(number),
        vni: VNI,
        tag: 0,
        rd: rd(number),
        export: vec![Target::of_vni(ASN, VNI)],
        import: Import { of_any_as, ..Import::default() },
    }
}

/// Returns the machine of host `number`, whose switch has no stations yet.
fn machine(number: u8, limits: Limits) -> Machine {
    let mut machine = Machine::new(limits, vec![domain(number)]);
    machine.begin_stations();
    machine.end_stations(Duration::ZERO);
    machine.begin_routes();
    machine.end_routes(Duration::ZERO);
    machine.sweep_routes(Duration::ZERO);
    machine
}

/// Returns host `number`'s route for a station.
fn station(number: u8, mac: MacAddr, ip: Option<IpAddr>, mobility: Mobility) -> Route {
    Route {
        key: RouteKey::Station { rd: rd(number), tag: 0, mac, ip },
        next_hop: host(number),
        label: VNI,
        has_segment: false,
        targets: vec![Target::of_vni(ASN, VNI)],
        encapsulations: vec![VXLAN],
        mobility,
        pmsi: None,
    }
}

fn flood(number: u8) -> Route {
    Route {
        key: RouteKey::Flood { rd: rd(number), tag: 0, origin: host(number) },
        label: 0,
        pmsi: Some(Pmsi { kind: INGRESS_REPLICATION, label: VNI }),
        ..station(number, mac(0), None, Mobility::default())
    }
}

fn moved(sequence: u32) -> Mobility {
    Mobility { sticky: false, sequence }
}

fn learn(machine: &mut Machine, now: Duration, station: MacAddr) {
    machine.station_seen(now, "lan", 1, station, "vm1", Seen::Learned);
}

fn tell(machine: &mut Machine, now: Duration, route: Route) {
    machine.told(now, Told::Route(route));
}

/// Returns the sequence number by which the machine announces a station.
fn announced(machine: &Machine, of: u8, mac: MacAddr) -> Option<Mobility> {
    let key = RouteKey::Station { rd: rd(of), tag: 0, mac, ip: None };
    machine.path(&key).map(|route| route.mobility)
}
