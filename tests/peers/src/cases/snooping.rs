//! Snooping with real IGMP and MLD: three User Mode Linux guests on a bridge. Guest a is the querier: a
//! Linux bridge of its own on its interface. Guest b joins and leaves groups, and guest c sends to them.

use anyhow::{Result, ensure};

use crate::guest::{GuestKind, LinuxGuest};
use crate::initrd::BRIDGE;
use crate::lab::Lab;
use crate::machine::Need;
use crate::proc;
use crate::runner::{Test, beside_others};
use crate::say::say;
use crate::switch::{Port, Switch, TableRow};

const PORTS: [&str; 3] = ["a", "b", "c"];

/// The groups that guest b joins, and others of the same scopes.
const GROUPS: [&str; 2] = ["239.1.2.3", "ff0e::77"];
const OTHERS: [&str; 2] = ["239.9.9.9", "ff0e::99"];

/// Echo requests in a look. Other packets to guest b are fewer than half of them.
const PINGS: u64 = 60;

pub(super) fn tests() -> Vec<Test> {
    beside_others(vec![Test::new("uml_bridge_snooping", &[Need::Uml(3)], join_and_leave)])
}

fn join_and_leave(lab: &Lab) -> Result<()> {
    let ports = PORTS.map(Port::new);
    let text = format!("{}snooping = true\n", Switch::configuration(lab, &ports, &[], &[])?);
    let mut switch = Switch::spawn_with(lab, &[], &text)?;
    switch.wait_ready()?;
    let mut guests = LinuxGuest::boot_all(lab, GuestKind::Uml, 1500, &PORTS)?;
    for guest in &mut guests {
        guest.add_ip6()?;
        guest.sh("sysctl -qw net.ipv4.icmp_echo_ignore_broadcasts=0 && ip route add 224.0.0.0/4 dev eth0")?;
    }
    let [querier, member, sender] = guests.as_mut_slice() else { unreachable!("three ports, three guests") };
    for group in OTHERS {
        ensure!(reaches(&switch, sender, group)?, "without a querier, packets to {group} must go to all ports");
    }
    query(querier)?;
    for protocol in ["IGMP", "MLD"] {
        wait_row(&switch, &format!("a querier of {protocol}"), |row| {
            row.protocol.as_deref() == Some(protocol) && row.port == "a"
        })?;
    }
    for group in GROUPS {
        member.sh(&format!("iproute2 addr add {group} dev eth0 autojoin nodad"))?;
        wait_row(&switch, &format!("b in {group}"), |row| row.group.as_deref() == Some(group) && row.port == "b")?;
    }
    for (group, other) in GROUPS.into_iter().zip(OTHERS) {
        proc::until(&format!("packets to {other} are pruned"), || {
            Ok((!reaches(&switch, sender, other)?).then_some(()))
        })?;
        ensure!(reaches(&switch, sender, group)?, "packets to {group} do not reach guest b, which has joined it");
        let before = echo_requests(member)?;
        sender.run(&format!("ping -q -c 5 -w 60 -I eth0 {group}"))?;
        let count = echo_requests(member)? - before;
        say!("  guest b has taken {count} of 5 echo requests to {group}");
        ensure!(count == 5, "guest b has taken {count} of 5 echo requests to {group}");
    }
    for group in GROUPS {
        member.sh(&format!("iproute2 addr del {group} dev eth0"))?;
        proc::until(&format!("b has left {group}"), || {
            let is_in = switch.table("snooping:lan")?.iter().any(|row| row.group.as_deref() == Some(group));
            Ok((!is_in).then_some(()))
        })?;
        ensure!(!reaches(&switch, sender, group)?, "packets to {group} reach guest b, which has left it");
    }
    for name in ["invalid", "long", "refused"] {
        let count = switch.table_counter("snooping:lan", name)?;
        ensure!(count == 0, "{count} messages of Linux guests are {name}");
    }
    switch.stop()
}

/// Makes the guest a querier of IGMP and MLD, by a bridge on its interface. It asks every three seconds,
/// and hosts answer within one.
fn query(guest: &mut LinuxGuest) -> Result<()> {
    let modules = ["llc", "stp", BRIDGE].join(" ");
    guest.sh(&format!("for module in {modules}; do insmod /mod/$module.ko || exit 1; done"))?;
    let intervals = "mcast_query_interval 300 mcast_query_response_interval 100 \
                     mcast_startup_query_interval 300 mcast_startup_query_count 2";
    let querier = "mcast_snooping 1 mcast_querier 1 mcast_query_use_ifaddr 1";
    let ip = guest.ip();
    guest.sh(&format!("iproute2 link add br0 type bridge {querier} {intervals}"))?;
    guest.sh(&format!("ip addr flush dev eth0; ip link set br0 up && ip addr add {ip}/24 dev br0"))?;
    guest.sh("iproute2 link set eth0 master br0")?;
    Ok(())
}

/// Returns whether packets to a group reach guest b.
fn reaches(switch: &Switch, sender: &mut LinuxGuest, group: &str) -> Result<bool> {
    let before = switch.port("b")?.tx();
    // The status is that of answers, which nobody needs to send.
    sender.run(&format!("ping -q -c {PINGS} -i 0.02 -W 1 -I eth0 {group}"))?;
    let packets = switch.port("b")?.tx().since(before).packets;
    Ok(packets >= PINGS)
}

/// Returns the number of echo requests that the guest's kernel has taken, of both protocols. It takes those
/// to groups that it has joined. Its answers are not counted: Linux answers by IPv6 from the group's own
/// address (`autojoin` makes it one of the interface's), which no other host accepts.
fn echo_requests(guest: &mut LinuxGuest) -> Result<u64> {
    let v4 = "awk '/^Icmp: [0-9]/ { print $10 }' /proc/net/snmp";
    let v6 = "awk '/^Icmp6InEchos/ { print $2 }' /proc/net/snmp6";
    let (_, counts) = guest.run(&format!("{v4}; {v6}"))?;
    counts.split_whitespace().map(|count| Ok(count.parse::<u64>()?)).sum()
}

fn wait_row(switch: &Switch, what: &str, is_it: impl Fn(&TableRow) -> bool) -> Result<()> {
    proc::until(what, || Ok(switch.table("snooping:lan")?.iter().any(&is_it).then_some(())))
}
