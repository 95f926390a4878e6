use std::borrow::Cow;

use proptest::prelude::*;

use super::*;
use crate::flow::{FlowCommand, FlowKey};
use crate::numbers::MAX_METER;
use crate::parse::{REFUSED, parse_flow, parse_flows};
use crate::ports::NoPortNames;
use crate::prerequisite::Prerequisite;

/// Ports `vm1`, `vm2`, `vm-3` and `4vm`, in this order.
struct Named;

const NAMES: [&str; 4] = ["vm1", "vm2", "vm-3", "4vm"];

impl PortNames for Named {
    fn number(&self, name: &str) -> Option<PortNumber> {
        (1..).zip(NAMES).find(|(_, known)| *known == name).map(|(number, _)| PortNumber(number))
    }

    fn name(&self, number: PortNumber) -> Option<Cow<'_, str>> {
        NAMES.get(usize::from(number.0).checked_sub(1)?).map(|name| Cow::Borrowed(*name))
    }
}

/// Flows as they are given, and as `ovs-ofctl --no-stats dump-flows` of Open vSwitch 3.1.0 printed
/// them.
#[rustfmt::skip]
const DUMPED: &[(&str, &str)] = &[
    ("priority=100,in_port=1,tcp,nw_dst=10.0.0.0/8,tp_dst=80,actions=output:2", "priority=100,tcp,in_port=1,nw_dst=10.0.0.0/8,tp_dst=80 actions=output:2"),
    ("tcp6,ipv6_src=2001:db8::/32,tp_src=0x50/0xfff0,actions=mod_dl_src:00:11:22:33:44:55,mod_vlan_vid:5,mod_vlan_pcp:3,normal", "tcp6,ipv6_src=2001:db8::/32,tp_src=0x50/0xfff0 actions=mod_dl_src:00:11:22:33:44:55,mod_vlan_vid:5,mod_vlan_pcp:3,NORMAL"),
    ("dl_vlan=5,dl_vlan_pcp=3,actions=strip_vlan,flood", "dl_vlan=5,dl_vlan_pcp=3 actions=strip_vlan,FLOOD"),
    ("arp,arp_op=1,arp_tpa=10.0.0.1,arp_sha=00:00:00:00:00:01,actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],load:0x2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],load:0xc0a80001->NXM_OF_ARP_SPA[],in_port", "arp,arp_tpa=10.0.0.1,arp_op=1,arp_sha=00:00:00:00:00:01 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],load:0x2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],load:0xc0a80001->NXM_OF_ARP_SPA[],IN_PORT"),
    ("icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=00:00:00:00:00:09,actions=drop", "icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=00:00:00:00:00:09 actions=drop"),
    ("ip,nw_frag=later,actions=drop", "ip,nw_frag=later actions=drop"),
    ("ip,nw_frag=no,actions=drop", "ip,nw_frag=no actions=drop"),
    ("ip,nw_frag=yes,actions=drop", "ip,nw_frag=yes actions=drop"),
    ("ip,ip_frag=first,actions=drop", "ip,nw_frag=first actions=drop"),
    ("ip,ip_frag=not_later,nw_tos=0x20,nw_ecn=1,nw_ttl=64,actions=dec_ttl,resubmit(,3),resubmit:5,resubmit(1,2),output:reg0[0..15],output:NXM_NX_REG1[]", "ip,nw_tos=32,nw_ecn=1,nw_ttl=64,nw_frag=not_later actions=dec_ttl,resubmit(,3),resubmit:5,resubmit(1,2),output:NXM_NX_REG0[0..15],output:NXM_NX_REG1[]"),
    ("table=2,reg0=0x5/0xf,reg7=3,tcp,tcp_flags=+syn-ack,actions=mod_nw_tos:4,mod_nw_ecn:2,mod_nw_ttl:3,mod_tp_src:33,mod_tp_dst:44,mod_nw_src:1.2.3.4,mod_nw_dst:4.3.2.1", "table=2, tcp,reg0=0x5/0xf,reg7=0x3,tcp_flags=+syn-ack actions=mod_nw_tos:4,load:0x2->NXM_NX_IP_ECN[],load:0x3->NXM_NX_IP_TTL[],mod_tp_src:33,mod_tp_dst:44,mod_nw_src:1.2.3.4,mod_nw_dst:4.3.2.1"),
    ("conj_id=5,ip,actions=1", "conj_id=5,ip actions=output:1"),
    ("ip,nw_src=1.1.1.1,actions=conjunction(5,1/2)", "ip,nw_src=1.1.1.1 actions=conjunction(5,1/2)"),
    ("actions=conjunction(1,1/64),conjunction(2,1/3)", "actions=conjunction(1,1/64),conjunction(2,1/3)"),
    ("vlan_tci=0x1005/0x1fff,actions=all", "dl_vlan=5 actions=ALL"),
    ("vlan_tci=0/0x1fff,actions=all", "vlan_tci=0x0000/0x1fff actions=ALL"),
    ("vlan_tci=0x1000/0x1000,actions=all", "vlan_tci=0x1000/0x1000 actions=ALL"),
    ("vlan_tci=0,actions=drop", "vlan_tci=0x0000 actions=drop"),
    ("vlan_tci=0x1000,actions=drop", "dl_vlan=0,dl_vlan_pcp=0 actions=drop"),
    ("vlan_vid=5/0xf,actions=drop", "vlan_tci=0x0005/0x000f actions=drop"),
    ("vlan_vid=0x1005,vlan_pcp=3,actions=drop", "dl_vlan=5,dl_vlan_pcp=3 actions=drop"),
    ("dl_vlan=0xffff,actions=drop", "vlan_tci=0x0000 actions=drop"),
    ("dl_vlan_pcp=0,actions=drop", "dl_vlan_pcp=0 actions=drop"),
    ("dl_type=0x88cc,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=", "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,dl_type=0x88cc actions=drop"),
    ("dl_type=0x800,nw_proto=6,tp_dst=80,actions=drop", "tcp,tp_dst=80 actions=drop"),
    ("sctp,sctp_dst=9,actions=drop", "sctp,tp_dst=9 actions=drop"),
    ("sctp6,tp_src=5,actions=drop", "sctp6,tp_src=5 actions=drop"),
    ("ip,ip_dscp=8,actions=set_field:8->ip_dscp", "ip,nw_tos=32 actions=mod_nw_tos:32"),
    ("ip,actions=load:5->OXM_OF_IP_DSCP[]", "ip actions=load:0x5->OXM_OF_IP_DSCP[]"),
    ("ip,actions=load:0x28->NXM_OF_IP_TOS[]", "ip actions=load:0x28->NXM_OF_IP_TOS[]"),
    ("ip,actions=load:1->NXM_OF_IP_TOS[2..3]", "ip actions=load:0x1->NXM_OF_IP_TOS[2..3]"),
    ("ip,actions=move:NXM_OF_IP_TOS[]->NXM_NX_REG0[0..7]", "ip actions=move:NXM_OF_IP_TOS[]->NXM_NX_REG0[0..7]"),
    ("ipv6,ipv6_label=5,actions=load:5->NXM_NX_REG0[3..7],set_field:0x5/0xf->reg1", "ipv6,ipv6_label=0x00005 actions=load:0x5->NXM_NX_REG0[3..7],load:0x5->NXM_NX_REG1[0..3]"),
    ("ipv6,ipv6_label=0x5/0xf,actions=drop", "ipv6,ipv6_label=0x00005/0x0000f actions=drop"),
    ("ipv6,actions=set_field:2001:db8::1->ipv6_src", "ipv6 actions=load:0x1->NXM_NX_IPV6_SRC[0..63],load:0x20010db800000000->NXM_NX_IPV6_SRC[64..127]"),
    ("ipv6,actions=set_field:2001:db8::/32->ipv6_src", "ipv6 actions=load:0x20010db8->NXM_NX_IPV6_SRC[96..127]"),
    ("ipv6,actions=set_field:1:2:3:4:5:6:7:8/::ff:ffff:ffff:ffff:ffff:ff00->ipv6_src", "ipv6 actions=load:0x400050006000700->NXM_NX_IPV6_SRC[8..71],load:0x300->NXM_NX_IPV6_SRC[72..87]"),
    ("actions=set_field:0x5/0x5->reg1", "actions=load:0x1->NXM_NX_REG1[0],load:0x1->NXM_NX_REG1[2]"),
    ("actions=load:0x001122334455->NXM_OF_ETH_SRC[]", "actions=load:0x1122334455->NXM_OF_ETH_SRC[]"),
    ("actions=load:0x1005->NXM_OF_VLAN_TCI[]", "actions=load:0x1005->NXM_OF_VLAN_TCI[]"),
    ("actions=load:5->NXM_OF_VLAN_TCI[0..11]", "actions=load:0x5->NXM_OF_VLAN_TCI[0..11]"),
    ("dl_vlan=3,actions=set_field:5->vlan_vid", "dl_vlan=3 actions=mod_vlan_vid:5"),
    ("dl_vlan=3,actions=set_field:4101->vlan_vid", "dl_vlan=3 actions=mod_vlan_vid:5"),
    ("dl_vlan=3,actions=set_field:3->vlan_pcp", "dl_vlan=3 actions=mod_vlan_pcp:3"),
    ("dl_vlan=3,actions=load:3->OXM_OF_VLAN_PCP[]", "dl_vlan=3 actions=load:0x3->OXM_OF_VLAN_PCP[]"),
    ("dl_vlan=3,actions=set_field:4101->vlan_tci", "dl_vlan=3 actions=mod_vlan_vid:5,mod_vlan_pcp:0"),
    ("actions=set_field:0->vlan_tci", "actions=strip_vlan"),
    ("actions=move:reg0[0..15]->vlan_tci[]", "actions=move:NXM_NX_REG0[0..15]->NXM_OF_VLAN_TCI[]"),
    ("actions=2", "actions=output:2"),
    ("actions=resubmit(in_port,3)", "actions=resubmit(,3)"),
    ("actions=resubmit(9)", "actions=resubmit:9"),
    ("actions=output:in_port,output:normal,output:flood,output:all", "actions=IN_PORT,NORMAL,FLOOD,ALL"),
    ("in_port=99 actions=1 2", "in_port=99 actions=output:1,output:2"),
    ("tcp , tp_dst=80 actions=drop", "tcp,tp_dst=80 actions=drop"),
    ("tcp,tcp_flags=0x12/0x12,actions=drop", "tcp,tcp_flags=+syn+ack actions=drop"),
    ("tcp,tcp_flags=0x12,actions=drop", "tcp,tcp_flags=syn|ack actions=drop"),
    ("tcp,tcp_flags=syn|ack,actions=drop", "tcp,tcp_flags=syn|ack actions=drop"),
    ("tcp,tcp_flags=+syn+ack-fin,actions=drop", "tcp,tcp_flags=-fin+syn+ack actions=drop"),
    ("tcp,tcp_flags=0,actions=drop", "tcp,tcp_flags=0 actions=drop"),
    ("tcp,tcp_flags=+[800],actions=drop", "tcp,tcp_flags=+[800] actions=drop"),
    ("icmp,tp_src=8,actions=drop", "icmp,icmp_type=8 actions=drop"),
    ("icmp6,icmpv6_type=135,actions=drop", "icmp6,icmp_type=135 actions=drop"),
    ("icmp6,icmp_type=136,nd_target=fe80::1/ffff::,nd_tll=00:00:00:00:00:01/00:00:00:00:00:ff,actions=drop", "icmp6,icmp_type=136,nd_target=fe80::/16,nd_tll=00:00:00:00:00:01/00:00:00:00:00:ff actions=drop"),
    ("icmp6,actions=set_field:5->icmpv6_type", "icmp6 actions=load:0x5->NXM_NX_ICMPV6_TYPE[]"),
    ("icmp,actions=set_field:5->icmp_type,set_field:1->icmp_code", "icmp actions=load:0x5->NXM_OF_ICMP_TYPE[],load:0x1->NXM_OF_ICMP_CODE[]"),
    ("sctp,actions=set_field:5->sctp_src", "sctp actions=load:0x5->OXM_OF_SCTP_SRC[]"),
    ("udp,actions=load:5->NXM_OF_UDP_SRC[]", "udp actions=load:0x5->NXM_OF_UDP_SRC[]"),
    ("tcp,actions=load:5->tp_src[],set_field:7->tp_dst", "tcp actions=load:0x5->NXM_OF_TCP_SRC[],mod_tp_dst:7"),
    ("rarp,actions=drop", "rarp actions=drop"),
    ("arp,nw_src=1.1.1.1,actions=drop", "arp,arp_spa=1.1.1.1 actions=drop"),
    ("ip,nw_src=10.1.1.1/255.0.0.255,actions=drop", "ip,nw_src=10.0.0.1/255.0.0.255 actions=drop"),
    ("ip,nw_src=0.0.0.0/0,actions=drop", "ip actions=drop"),
    ("ipv6,nw_proto=0,actions=drop", "ipv6,nw_proto=0 actions=drop"),
    ("ip,nw_proto=2,actions=drop", "ip,nw_proto=2 actions=drop"),
    ("reg0=5/3,actions=drop", "reg0=0x1/0x3 actions=drop"),
    ("reg0=0/0xf,actions=load:0->NXM_OF_ETH_SRC[]", "reg0=0/0xf actions=load:0->NXM_OF_ETH_SRC[]"),
    ("tcp,tp_src=0/0xff,tp_dst=0,reg1=0,actions=drop", "tcp,reg1=0,tp_src=0x0/0xff,tp_dst=0 actions=drop"),
    ("ipv6,ipv6_label=0/0xf,actions=drop", "ipv6,ipv6_label=0x00000/0x0000f actions=drop"),
    ("pkt_mark=5,actions=set_field:6->pkt_mark", "pkt_mark=0x5 actions=load:0x6->NXM_NX_PKT_MARK[]"),
    ("actions=load:5->NXM_OF_IN_PORT[],output:2", "actions=load:0x5->NXM_OF_IN_PORT[],output:2"),
    ("cookie=-1,actions=drop", "cookie=0xffffffffffffffff, actions=drop"),
    ("idle_timeout=7,hard_timeout=60,cookie=0x5,table=3,actions=drop", "cookie=0x5, table=3, idle_timeout=7, hard_timeout=60, actions=drop"),
    ("priority=0,actions=drop", "priority=0 actions=drop"),
    ("actions=mod_nw_src:1.2.3.4,mod_nw_tos:4,mod_tp_dst:5,dec_ttl", "actions=mod_nw_src:1.2.3.4,mod_nw_tos:4,mod_tp_dst:5,dec_ttl"),
];

fn read(text: &str) -> Flow {
    parse_flow(text, FlowCommand::Add, &Named).unwrap_or_else(|error| panic!("{text}: {error}")).into_flow()
}

#[test]
fn flows_are_written_as_ovs_ofctl_writes_them() {
    for (given, dumped) in DUMPED {
        let flow = read(given);
        assert_eq!(FlowWriter::new(&NoPortNames).flow(&flow), *dumped, "{given}");
        assert_eq!(read(&FlowWriter::new(&Named).flow(&flow)), flow, "{given}");
    }
}

#[test]
fn ports_may_have_names() {
    let flow = read("in_port=vm-3,actions=vm1,output:\"4vm\",resubmit(vm2,3),vm-3,5");
    assert_eq!(
        FlowWriter::new(&Named).flow(&flow),
        "in_port=\"vm-3\" actions=output:vm1,output:\"4vm\",resubmit(vm2,3),output:\"vm-3\",output:5"
    );
    let numbers = "in_port=3 actions=output:1,output:4,resubmit(2,3),output:3,output:5";
    assert_eq!(FlowWriter::new(&NoPortNames).flow(&flow), numbers);
}

#[test]
fn statistics_are_those_of_dump_flows() {
    let flow = read("idle_timeout=5,priority=7,tcp,actions=output:2");
    let mut statistics = FlowStatistics {
        duration: Duration::from_millis(61_028),
        packets: 52,
        bytes: 3120,
        idle: Duration::from_secs(1),
        unchanged: Duration::from_millis(61_028),
    };
    let text = FlowWriter::new(&Named).flow_with_statistics(&flow, &statistics);
    assert_eq!(
        text,
        "cookie=0x0, duration=61.028s, table=0, n_packets=52, n_bytes=3120, idle_timeout=5, idle_age=1, \
         priority=7,tcp actions=output:vm2"
    );
    assert_eq!(read(&text), flow);
    statistics.unchanged = Duration::from_secs(9);
    assert!(FlowWriter::new(&Named).flow_with_statistics(&flow, &statistics).contains("idle_age=1, hard_age=9, "));
}

/// Mistakes: the flow, the word in the message, and a part of the remedy.
#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str)] = &[
    ("tcp,tp_dst=80", "", "actions=drop"),
    ("tp_dst=80,actions=drop", "tp_dst=80", "needs `tcp`, `udp`"),
    ("nw_src=10.0.0.1,actions=drop", "nw_src=10.0.0.1", "needs `ip`"),
    ("tcp,udp,actions=drop", "udp", "contradicts"),
    ("tcp,tp_dst=99999,actions=drop", "tp_dst=99999", "0 to 65535"),
    ("tcp,tp_dst=080,actions=drop", "tp_dst=080", "no number"),
    ("tcp,tp_dst=80-90,actions=drop", "tp_dst=80-90", "no number"),
    ("ip,nw_src=10.1,actions=drop", "nw_src=10.1", "`10.0.0.1`"),
    ("ip,nw_src=10.1.1.1/33,actions=drop", "nw_src=10.1.1.1/33", "0 to 32"),
    ("dl_src=2:0:0:0:0,actions=drop", "dl_src=2:0:0:0:0", "MAC"),
    ("vlan_vid=5,actions=drop", "vlan_vid=5", "`dl_vlan=5`"),
    ("dl_vlan=4096,actions=drop", "dl_vlan=4096", "0 to 4095"),
    ("dl_vlan=0xffff,dl_vlan_pcp=3,actions=drop", "dl_vlan_pcp=3", "contradicts"),
    ("ip,nw_tos=0x21,actions=drop", "nw_tos=0x21", "multiple of 4"),
    ("ip,nw_proto=6/7,actions=drop", "nw_proto=6/7", "mask"),
    ("tcp,tcp_flags=+sin,actions=drop", "tcp_flags=+sin", "fin, syn"),
    ("tcp,tcp_flags=+syn-syn,actions=drop", "tcp_flags=+syn-syn", "once"),
    ("tcp,tcp_flags=++,actions=drop", "tcp_flags=++", "fin, syn"),
    ("ip,nw_frag=maybe,actions=drop", "nw_frag=maybe", "not_later"),
    ("icmp6,nd_target=fe80::1,actions=drop", "nd_target=fe80::1", "icmp_type=135"),
    ("in_port=nosuch,actions=drop", "in_port=nosuch", "names no port"),
    ("in_port=LOCAL,actions=drop", "in_port=LOCAL", "does not have"),
    ("in_port=0,actions=drop", "in_port=0", "1 to 65279"),
    ("colour=red,actions=drop", "colour=red", "no field"),
    ("ct_state=+odd,actions=drop", "ct_state=+odd", "rpl"),
    ("ct_state=0x100,actions=drop", "ct_state=0x100", "0xff"),
    ("ct_mark=1,actions=drop", "ct_mark=1", "`ct_zone`"),
    ("ct_zone=1/1,actions=drop", "ct_zone=1/1", "one value"),
    ("reg8=1,actions=drop", "reg8=1", "`reg7`"),
    ("send_flow_rem,actions=drop", "send_flow_rem", "leave it out"),
    ("tcp=6,actions=drop", "tcp=6", "`tcp` alone"),
    ("priority,actions=drop", "priority", "priority=…"),
    ("priority=65536,actions=drop", "priority=65536", "65535"),
    ("table=254,actions=drop", "table=254", "0 to 253"),
    ("cookie=1/1,actions=drop", "cookie=1/1", "one value"),
    ("out_port=1,actions=drop", "out_port=1", "leave it out"),
    ("actions=drop,1", "drop", "alone"),
    ("actions=nosuch", "nosuch", "neither an action nor a port"),
    ("actions=learn(table=1,idle_timeout=5),1", "learn(table=1,idle_timeout=5)", "`normal`"),
    ("actions=CONTROLLER:65535", "CONTROLLER:65535", "controller"),
    ("actions=group:1", "group:1", "group tables"),
    ("actions=bundle(eth_src,0,hrw,ofport,members:1,2)", "bundle(eth_src,0,hrw,ofport,members:1,2)", "hash"),
    ("actions=multipath(eth_src,50,hrw,12,0,NXM_NX_REG0[0..3])", "multipath(eth_src,50,hrw,12,0,NXM_NX_REG0[0..3])", "hash"),
    ("actions=sample(probability=1)", "sample(probability=1)", "capture"),
    ("actions=local", "local", "bridge's own"),
    ("actions=ct(commit)", "ct(commit)", "needs `ip` or `ipv6`"),
    ("tcp,actions=ct(nat)", "ct(nat)", "addresses"),
    ("tcp,actions=ct(commit,exec(load:1->NXM_NX_CT_MARK[]))", "ct(commit,exec(load:1->NXM_NX_CT_MARK[]))", "registers"),
    ("tcp,actions=ct(commit,alg=ftp)", "ct(commit,alg=ftp)", "FTP"),
    ("tcp,actions=ct(commit,force)", "ct(commit,force)", "leave it out"),
    ("tcp,actions=ct(odd)", "ct(odd)", "`zone=N`"),
    ("tcp,actions=ct(table=255)", "ct(table=255)", "253"),
    ("tcp,actions=ct(zone=65536)", "ct(zone=65536)", "65535"),
    ("tcp,actions=ct(zone=NXM_NX_REG0[])", "ct(zone=NXM_NX_REG0[])", "take 16"),
    ("tcp,actions=ct(table=1),2", "2", "last"),
    ("tcp,ct_state=+trk+inv,actions=ct(commit)", "ct(commit)", "`+inv`"),
    ("actions=load:1->NXM_NX_CT_ZONE[]", "load:1->NXM_NX_CT_ZONE[]", "only be matched"),
    ("actions=ct_clear(1)", "ct_clear(1)", "alone"),
    ("actions=set_tunnel:5", "set_tunnel:5", "key"),
    ("actions=note:00.11", "note:00.11", "comment"),
    ("actions=output:reg9", "output:reg9", "names no port"),
    ("actions=load:1->NXM_NX_REG9[]", "load:1->NXM_NX_REG9[]", "`reg0` to `reg7`"),
    ("actions=load:0xff->NXM_NX_REG0[0..3]", "load:0xff->NXM_NX_REG0[0..3]", "4 bits"),
    ("actions=load:1->NXM_NX_REG0[4..2]", "load:1->NXM_NX_REG0[4..2]", "[2..4]"),
    ("actions=load:1->NXM_NX_REG0[40]", "load:1->NXM_NX_REG0[40]", "0 to 31"),
    ("actions=load:1->NXM_NX_REG0[", "load:1->NXM_NX_REG0[", "`]`"),
    ("actions=load:1", "load:1", "`->`"),
    ("actions=load:1->NXM_OF_ETH_TYPE[]", "load:1->NXM_OF_ETH_TYPE[]", "only be matched"),
    ("actions=load:5->NXM_OF_IP_TOS[]", "load:5->NXM_OF_IP_TOS[]", "needs `ip`"),
    ("udp,actions=set_field:5->tcp_src", "set_field:5->tcp_src", "needs `tcp`"),
    ("actions=set_field:5->vlan_vid", "set_field:5->vlan_vid", "push_vlan"),
    ("actions=push_vlan:0x8100,set_field:5->vlan_vid,strip_vlan,set_field:5->vlan_pcp", "set_field:5->vlan_pcp", "push_vlan"),
    ("actions=push_vlan:0x9100", "push_vlan:0x9100", "0x88a8"),
    ("actions=move:NXM_NX_REG0[]->NXM_NX_REG1[0..15]", "move:NXM_NX_REG0[]->NXM_NX_REG1[0..15]", "as many"),
    ("ip,actions=mod_nw_tos:41", "mod_nw_tos:41", "multiple of 4"),
    ("ip,actions=mod_nw_ttl:300", "mod_nw_ttl:300", "255"),
    ("ip,actions=dec_ttl(1,2)", "dec_ttl(1,2)", "alone"),
    ("actions=goto_table:0", "goto_table:0", "later one"),
    ("table=5,actions=goto_table:5", "goto_table:5", "resubmit(,5)"),
    ("actions=goto_table:5,1", "1", "last"),
    ("actions=resubmit", "resubmit", "has no value"),
    ("actions=resubmit(,)", "resubmit(,)", "resubmit(,2)"),
    ("actions=resubmit(,255)", "resubmit(,255)", "253"),
    ("actions=conjunction(1,2/2),output:1", "output:1", "no other actions"),
    ("actions=1,conjunction(1,2/2)", "conjunction(1,2/2)", "no other actions"),
    ("actions=conjunction(1,3/2)", "conjunction(1,3/2)", "2 to 64"),
    ("actions=conjunction(1,0/2)", "conjunction(1,0/2)", "2 to 64"),
    ("actions=conjunction(1,1/1)", "conjunction(1,1/1)", "2 to 64"),
    ("actions=1,meter:3", "meter:3", "first"),
    ("actions=meter:0", "meter:0", "1 to"),
    ("actions=output:1;output:2", "output:1;output:2", "names no port"),
    ("actions=output(port=1,max_len=5)", "output(port=1,max_len=5)", "names no port"),
    ("actions=1)", "1)", "opened"),
    ("in_port=\"vm1,actions=1", "in_port=\"vm1,actions=1", "does not end"),
];

#[test]
fn mistakes_name_word_and_remedy() {
    for (text, word, remedy) in MISTAKES {
        let error = parse_flow(text, FlowCommand::Add, &Named).expect_err(text);
        assert_eq!(error.word, *word, "{text}: {error}");
        assert!(error.to_string().contains(remedy), "{text}: {error}");
    }
}

#[test]
fn deletions_and_changes_have_settings_of_their_own() {
    let delete = |text| parse_flow(text, FlowCommand::Delete, &Named);
    let found = delete("table=3,tcp,cookie=0x15/0xf0,out_port=vm2").expect("a deletion");
    assert_eq!((found.table, found.cookie_filter, found.out_port), (Some(3), (0x10, 0xf0), Some(PortNumber(2))));
    assert_eq!(delete("").expect("all flows").table, None);
    for (text, remedy) in [
        ("actions=1", "leave them out"),
        ("priority=5", "--strict"),
        ("cookie=3", "cookie=3/-1"),
        ("idle_timeout=3", "leave it out"),
    ] {
        let error = delete(text).expect_err(text).to_string();
        assert!(error.contains(remedy), "{error}");
    }
    let change =
        parse_flow("cookie=7,cookie=1/-1,tcp,actions=goto_table:2", FlowCommand::Modify, &Named).expect("a change");
    assert_eq!((change.cookie, change.cookie_filter), (Some(7), (1, u64::MAX)));
}

#[test]
fn files_have_commands_comments_and_lines() {
    let text = "# all\n\nadd priority=1,actions=normal # the bridge\ndelete_strict priority=1\r\n  in_port=\"vm-3\",actions=1\n\
                modify tcp,actions=2\nmodify_strict tcp,actions=3\ndelete\n";
    let flows = parse_flows(text, FlowCommand::Add, &Named).expect("flows");
    let commands: Vec<_> = flows.iter().map(|(line, flow)| (*line, flow.command)).collect();
    use FlowCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
    assert_eq!(commands, [(3, Add), (4, DeleteStrict), (5, Add), (6, Modify), (7, ModifyStrict), (8, Delete)]);
    let error = parse_flows("actions=1\n\nactions=nosuch\n", FlowCommand::Add, &Named).expect_err("a mistake");
    assert!(error.to_string().starts_with("line 3: `nosuch` "), "{error}");
}

/// The page for users names each field, and each word that is refused.
#[test]
fn the_document_has_each_field_and_each_refused_word() {
    const DOCUMENT: &str = include_str!("../../../../docs/flows.md");
    let refused = REFUSED.iter().flat_map(|table| *table).map(|(word, _)| *word);
    let registers = |name: &&str| !name.starts_with("reg") || ["reg0", "reg7", "reg*"].contains(name);
    let names = Field::ALL.iter().flat_map(|field| field.names()).copied();
    for word in refused.chain(names).filter(registers) {
        assert!(DOCUMENT.contains(&format!("`{word}`")), "docs/flows.md lacks `{word}`");
    }
    for (word, reason) in REFUSED.iter().flat_map(|table| *table) {
        let row = DOCUMENT.lines().find(|line| line.contains(&format!("`{word}`")) && line.contains(reason));
        assert!(row.is_some(), "docs/flows.md has another reason for `{word}`");
    }
}

#[test]
fn long_text_is_refused() {
    let long = format!("actions={}", "1,".repeat(40_000));
    assert!(parse_flow(&long, FlowCommand::Add, &Named).expect_err("too long").to_string().len() < 200);
    let many = format!("actions={}", "1,".repeat(1025));
    assert!(parse_flow(&many, FlowCommand::Add, &Named).expect_err("too many").problem.contains("1024"));
}

/// Returns conditions of all kinds of packets, with random tests of the fields that these have.
fn conditions() -> impl Strategy<Value = Match> {
    let forms = SHORT_FORMS.iter().map(|(_, ether_type, protocol)| Some((*ether_type, *protocol)));
    let forms: Vec<_> = forms.chain([None]).collect();
    let tests = proptest::collection::vec((0..Field::ALL.len(), any::<u128>(), any::<u128>(), 0..5_u32), 0..8);
    let neighbour = prop_oneof![Just(None), Just(Some(135_u128)), Just(Some(136))];
    (proptest::sample::select(forms), tests, neighbour).prop_map(|(form, tests, neighbour)| {
        let mut condition = Match::new();
        if let Some((ether_type, protocol)) = form {
            condition.set(Field::EthType, ether_type.into(), u128::MAX);
            if let Some(protocol) = protocol {
                condition.set(Field::IpProto, protocol.into(), u128::MAX);
            }
        }
        if let Some(kind) = neighbour.filter(|_| condition.meets(Prerequisite::Icmpv6)) {
            condition.set(Field::IcmpType, kind, u128::MAX);
        }
        for (at, value, mask, kind) in tests {
            let field = Field::ALL[at];
            let is_shared = matches!(field, Field::VlanVid | Field::VlanPcp | Field::EthType | Field::IpProto);
            let is_set = condition.get(field).1 != 0;
            if is_shared || is_set || !condition.meets(field.prerequisite()) {
                continue;
            }
            match field {
                Field::IpTos => condition.set(Field::IpDscp, value, u128::MAX),
                Field::IpFrag => {
                    let kinds = [(0, 3), (1, 1), (1, 3), (2, 2), (0, 2)];
                    let (value, mask) = kinds[kind as usize];
                    condition.set(field, value, mask);
                }
                Field::InPort => condition.set(field, 1 + value % 9, u128::MAX),
                Field::ArpOp => condition.set(field, value & 0xff, u128::MAX),
                Field::CtState => condition.set(field, value & 0xff, if kind == 0 { u128::MAX } else { mask & 0xff }),
                _ => {
                    let part = [u128::MAX, mask, u128::MAX << (mask % 128), 1 << (mask % 128), 0][kind as usize];
                    condition.set(field, value, if field.is_maskable() { part } else { u128::MAX });
                }
            }
        }
        condition
    })
}

fn subfields() -> impl Strategy<Value = Subfield> {
    (0..Field::ALL.len(), any::<u8>(), any::<u8>()).prop_map(|(at, offset, bits)| {
        // Text names ports by their protocols.
        let field = match Field::ALL[at] {
            Field::TpSrc => Field::TcpSrc,
            Field::TpDst => Field::TcpDst,
            field => field,
        };
        let offset = offset % field.bits();
        Subfield { field, offset, bits: 1 + bits % (field.bits() - offset) }
    })
}

/// Returns lists of actions; the test leaves out those that the condition does not allow.
fn actions() -> impl Strategy<Value = Vec<String>> {
    let bits = |subfield| super::bits(subfield);
    let number = 1..9_u16;
    let action = prop_oneof![
        proptest::sample::select(vec![
            "in_port",
            "normal",
            "FLOOD",
            "all",
            "dec_ttl",
            "strip_vlan",
            "push_vlan:0x8100",
            "push_vlan:0x88a8",
            "mod_dl_dst:01:02:03:04:05:06",
            "mod_nw_src:10.0.0.1",
            "mod_nw_tos:12",
            "mod_tp_dst:80",
            "mod_vlan_vid:5",
            "mod_vlan_pcp:7",
            "conjunction(7,2/3)",
            "goto_table:9",
            "meter:3",
            "ct(commit)",
            "ct(table=5)",
            "ct(zone=9,table=0,commit)",
            "ct(zone=NXM_NX_REG0[0..15])",
            "ct_clear",
        ])
        .prop_map(str::to_owned),
        number.clone().prop_map(|port| format!("output:{port}")),
        (number.clone(), any::<u8>()).prop_map(|(port, table)| format!("resubmit({port},{table})")),
        number.prop_map(|port| format!("resubmit:{port}")),
        (1..=MAX_METER).prop_map(|meter| format!("meter:{meter}")),
        subfields().prop_map(move |from| format!("output:{}", bits(from))),
        (subfields(), any::<u128>()).prop_map(move |(to, value)| format!("load:{:#x}->{}", to.of(value), bits(to))),
        (subfields(), subfields()).prop_map(move |(from, to)| {
            let narrow = from.bits.min(to.bits);
            format!("move:{}->{}", bits(Subfield { bits: narrow, ..from }), bits(Subfield { bits: narrow, ..to }))
        }),
        (subfields(), any::<u64>(), any::<u64>()).prop_map(|(to, value, mask)| {
            let greatest = to.field.greatest();
            let name = to.field.name();
            format!("set_field:{:#x}/{:#x}->{name}", u128::from(value) & greatest, u128::from(mask) & greatest)
        }),
    ];
    proptest::collection::vec(action, 0..6)
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal(
        condition in conditions(),
        actions in actions(),
        priority: u16,
        table in 0..9_u8,
        cookie in prop_oneof![Just(0_u64), any::<u64>()],
        timeouts: (u16, u16),
    ) {
        let mut flow = Flow {
            key: FlowKey { table, priority, condition },
            cookie,
            idle_timeout: Duration::from_secs(timeouts.0.into()),
            hard_timeout: Duration::from_secs(timeouts.1.into()),
            actions: Vec::new(),
        };
        for ports in [&NoPortNames as &dyn PortNames, &Named] {
            let writer = FlowWriter::new(ports);
            let mut text = writer.flow(&flow);
            prop_assert_eq!(&parse_flow(&text, FlowCommand::Add, ports).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?.into_flow(), &flow);
            // The actions that this condition allows.
            let begin = text.trim_end_matches("drop").to_owned();
            for action in &actions {
                let more = if text.ends_with("=drop") { format!("{begin}{action}") } else { format!("{text},{action}") };
                if parse_flow(&more, FlowCommand::Add, ports).is_ok() {
                    text = more;
                }
            }
            let read = parse_flow(&text, FlowCommand::Add, ports).expect("a flow").into_flow();
            let written = writer.flow(&read);
            prop_assert_eq!(&parse_flow(&written, FlowCommand::Add, ports).map_err(|error| TestCaseError::fail(format!("{written}: {error}")))?.into_flow(), &read);
            let statistics = FlowStatistics { packets: 5, ..FlowStatistics::default() };
            let counted = writer.flow_with_statistics(&read, &statistics);
            prop_assert_eq!(parse_flow(&counted, FlowCommand::Add, ports).expect("a flow").into_flow(), read);
            flow.actions.clear();
        }
    }

    #[test]
    fn no_text_panics(text: String, words in "([a-z_]{1,12}[=:(/,\\[ ]?[0-9x>\\.\\-\"]{0,3}){0,9}") {
        for command in [FlowCommand::Add, FlowCommand::Delete] {
            let _ = parse_flows(&text, command, &Named);
            let _ = parse_flows(&words, command, &Named);
            let _ = parse_flow(&format!("actions={words}"), command, &Named);
        }
    }
}
