//! The same files of flows and the same changes: both dump the same lines.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Result, ensure};
use straightline_report::random::Random;

use super::pick;
use crate::lab::Lab;
use crate::ovs::PlainOvs;
use crate::say::say;
use crate::seed::seed;
use crate::switch::{Port, Switch};

/// Flows in a file. The same key comes several times.
const FLOWS: usize = 1000;

/// Changes after the file.
const CHANGES: usize = 20;

/// Flows that no generator would write.
const FIXED: &str = "\
# The tuning guide of OvS-DPDK.
in_port=1,action=output:2
in_port=2,action=output:1
table=1, priority=99, in_port=2, vlan_tci=0, actions=mod_vlan_vid:20, resubmit(,2)
dl_type=0x88cc,dl_dst=01:80:c2:00:00:00/ff:ff:ff:ff:ff:f0 actions=drop
arp,arp_op=1,arp_tpa=10.0.0.1,actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:02:00:00:00:00:01,load:0x2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],load:0x20000000001->NXM_NX_ARP_SHA[],load:0xa000001->NXM_OF_ARP_SPA[],in_port
icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=00:00:00:00:00:09,actions=drop
conj_id=5,ip,actions=1
";

pub(super) fn same_lines(lab: &Lab) -> Result<()> {
    let seed = seed(lab.machine.long)?;
    say!("flows of seed {seed}");
    let mut ovs = PlainOvs::start(lab)?;
    ovs.add_bridge("br0")?;
    ovs.wait_bridge()?;
    let ports = ["vm1", "vm2", "vm3"].map(Port::new);
    let text = Switch::configuration(lab, &ports, &[], &[])?;
    let mut switch = Switch::spawn_with(lab, &[], &text)?;
    switch.wait_ready()?;
    let mut random = Random::new(seed);
    let mut text = FIXED.to_owned();
    for _ in 0..FLOWS {
        writeln!(text, "{}", flow(&mut random))?;
    }
    let file = lab.log("flows");
    fs::write(&file, text)?;
    let path = file.display().to_string();
    // Its `replace-flows` cannot have registers in several tables.
    ovs.flows(&["del-flows"], &[])?;
    ovs.flows(&["add-flows"], &[&path])?;
    switch.flow(&["replace", "lan", &path])?;
    compare(&ovs, &switch, "the file")?;
    for _ in 0..CHANGES {
        let (word, ovs_word, argument) = match random.below(4) {
            0 => ("del", &["del-flows"][..], condition(&mut random).0),
            1 => ("del --strict", &["--strict", "del-flows"][..], condition_with_priority(&mut random)),
            2 => ("mod", &["mod-flows"][..], with_cookie(flow(&mut random))),
            _ => ("add", &["add-flow"][..], flow(&mut random)),
        };
        ovs.flows(ovs_word, &[&argument])?;
        let words = word.split(' ').chain(["lan", argument.as_str()]);
        switch.flow(&words.collect::<Vec<_>>())?;
        compare(&ovs, &switch, &format!("{word} {argument}"))?;
    }
    Ok(())
}

/// Checks that both dump the same lines, in any order.
fn compare(ovs: &PlainOvs<'_>, switch: &Switch<'_>, what: &str) -> Result<()> {
    let lines = |text: String| -> BTreeSet<String> {
        text.lines().filter(|line| line.starts_with(' ')).map(|line| line.trim_end().to_owned()).collect()
    };
    let theirs = lines(ovs.flows(&["--no-stats", "dump-flows"], &[])?);
    let ours = lines(switch.flow(&["dump", "lan", "--no-stats", "--no-names"])?);
    let only =
        |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).take(5).cloned().collect::<Vec<_>>();
    let missing = only(&theirs, &ours);
    let further = only(&ours, &theirs);
    ensure!(
        missing.is_empty() && further.is_empty(),
        "after {what}: only OvS has {missing:#?}, only we have {further:#?}"
    );
    ensure!(!theirs.is_empty(), "after {what}: no flows");
    Ok(())
}

/// Returns a condition, and the protocol of its packets.
fn condition(random: &mut Random) -> (String, &'static str) {
    let protocols = ["", "ip", "tcp", "udp", "sctp", "icmp", "ipv6", "tcp6", "udp6", "sctp6", "icmp6", "arp", "rarp"];
    let protocol = pick(random, &protocols);
    let mut words = vec![format!("table={}", random.below(3))];
    if !protocol.is_empty() {
        words.push(protocol.to_owned());
    }
    let of_protocol: &[&str] = match protocol {
        "" => &[],
        "ip" | "tcp" | "udp" | "sctp" | "icmp" => &["nw_src=10.%.0.1", "nw_dst=10.0.0.%/255.0.0.255", "nw_ttl=%"],
        "arp" | "rarp" => &["arp_op=%", "arp_spa=10.0.0.%", "arp_tpa=10.%.0.0/16", "arp_sha=02:00:00:00:00:0%"],
        _ => &["ipv6_src=2001:db8::%", "ipv6_dst=2001:db8:%::/48", "ipv6_label=0x%/0xf"],
    };
    let of_transport: &[&str] = match protocol {
        "tcp" | "tcp6" => &["tcp_flags=+syn-ack", "tcp_flags=0x%/0x1f", "tp_src=%", "tp_dst=0x%0/0xff0"],
        "udp" | "udp6" | "sctp" | "sctp6" => &["tp_src=%", "tp_dst=0x%0/0xff0"],
        "icmp" | "icmp6" => &["icmp_type=%", "icmp_code=%"],
        "ip" | "ipv6" => &["nw_proto=8%", "nw_frag=yes", "nw_frag=later", "nw_ecn=1", "ip_dscp=%"],
        _ => &[],
    };
    let common: &[&str] = &[
        "in_port=%",
        "reg0=0x%/0xf",
        "reg7=%",
        "pkt_mark=0x%",
        "dl_src=02:00:00:00:00:0%",
        "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
        "dl_vlan=%",
        "vlan_tci=0x100%/0x100f",
        "vlan_tci=0",
    ];
    // A field comes once: lists are passed in order.
    let mut last = "";
    for list in [common, of_protocol, of_transport] {
        for word in list {
            let name = word.split('=').next().unwrap_or_default();
            let is_tag = name == "vlan_tci" && last == "dl_vlan" || name == last;
            if random.below(4) == 0 && !is_tag {
                words.push(word.replace('%', &(1 + random.below(3)).to_string()));
                last = name;
            }
        }
    }
    (words.join(","), protocol)
}

fn condition_with_priority(random: &mut Random) -> String {
    format!("priority={},{}", 1 + random.below(3), condition(random).0)
}

/// Returns a flow with a cookie. `mod-flows` without one sets 0: OpenFlow 1.0 has no such request.
fn with_cookie(flow: String) -> String {
    if flow.contains("cookie=") { flow } else { format!("cookie=7,{flow}") }
}

fn flow(random: &mut Random) -> String {
    let (condition, protocol) = condition(random);
    let mut words = vec![format!("priority={}", 1 + random.below(3)), condition];
    if random.below(4) == 0 {
        words.push(format!("cookie={:#x}", random.below(1 << 40)));
    }
    if random.below(8) == 0 {
        words.push("idle_timeout=600,hard_timeout=1200".to_owned());
    }
    let of_protocol: &[&str] = match protocol {
        "tcp" | "udp" => &["mod_nw_src:10.0.0.%", "mod_tp_dst:8%", "mod_nw_tos:32", "dec_ttl"],
        "ipv6" => &["set_field:2001:db8::%->ipv6_src", "set_field:0x%/0x7->ipv6_label", "set_field:%->nw_ttl"],
        "icmp6" => &["set_field:%->icmpv6_code", "load:0x%->NXM_NX_ICMPV6_TYPE[]"],
        "arp" => &["load:0x%->NXM_OF_ARP_OP[]", "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]"],
        "sctp" => &["set_field:%->sctp_src", "mod_tp_src:%"],
        _ => &["mod_dl_src:02:00:00:00:00:0%"],
    };
    let common: &[&str] = &[
        "output:%",
        "normal",
        "flood",
        "all",
        "in_port",
        "load:0x%->NXM_NX_REG0[4..7]",
        "set_field:0x%/0x5->reg1",
        "move:NXM_NX_REG0[0..15]->NXM_OF_VLAN_TCI[]",
        "output:NXM_NX_REG0[0..15]",
        "resubmit(,%)",
        "resubmit:%",
        "resubmit(%,2)",
        "strip_vlan",
        "mod_vlan_vid:%",
        "mod_vlan_pcp:%",
        "set_field:02:00:00:00:00:0%->eth_dst",
        "set_field:%->in_port",
    ];
    let count = random.below(5);
    let mut actions = Vec::new();
    for _ in 0..count {
        let list = if random.below(2) == 0 { of_protocol } else { common };
        actions.push(pick(random, list).replace('%', &(1 + random.below(3)).to_string()));
    }
    if actions.is_empty() {
        actions.push("drop".to_owned());
    }
    format!("{},actions={}", words.join(","), actions.join(","))
}
