//! The tests, one file for each subject.

mod bridge;
mod capture;
mod doctor;
mod embedded_guest;
pub(crate) mod ends;
mod evpn;
pub(crate) mod firewall;
mod flows;
mod idle;
mod lifecycle;
mod migrate;
mod offloads;
mod outside;
mod package;
mod patch;
mod pvp;
mod qemu;
mod queues;
mod rates;
mod scenario;
mod snooping;
mod testpmd;
mod tunnel;
mod vlan;

use crate::runner::Test;

/// Returns all tests, the quick ones first.
pub(crate) fn all() -> Vec<Test> {
    let mut tests = lifecycle::tests();
    tests.extend(capture::tests());
    tests.extend(package::tests());
    tests.extend(doctor::tests());
    tests.extend(patch::tests());
    tests.extend(idle::tests());
    tests.extend(rates::tests());
    tests.extend(bridge::tests());
    tests.extend(snooping::tests());
    tests.extend(offloads::tests());
    tests.extend(outside::tests());
    tests.extend(tunnel::tests());
    tests.extend(evpn::tests());
    tests.extend(vlan::tests());
    tests.extend(flows::tests());
    tests.extend(firewall::tests());
    tests.extend(testpmd::tests());
    tests.extend(pvp::tests());
    tests.extend(embedded_guest::tests());
    tests.extend(scenario::tests());
    tests.extend(queues::tests());
    tests.extend(qemu::tests());
    tests.extend(migrate::tests());
    tests
}
