//! Flows that others have published: lines of each kind, with what loads and the word that is refused.

use straightline_flow::{FlowCommand, PortTable, parse_flow};

/// A source, with lines that load and lines that do not, each with the refused word.
struct Published {
    name: &'static str,
    loads: &'static [&'static str],
    refused: &'static [(&'static str, &'static str)],
}

const ALL: &[Published] = &[
    Published {
        name: "Intel's tuning guide for OvS-DPDK, appendix",
        loads: &["in_port=1,action=output:2", "in_port=2,action=output:1"],
        refused: &[],
    },
    Published {
        name: "Open vSwitch's advanced tutorial",
        loads: &[
            "table=0, dl_src=01:00:00:00:00:00/01:00:00:00:00:00, actions=drop",
            "table=0, dl_dst=01:80:c2:00:00:00/ff:ff:ff:ff:ff:f0, actions=drop",
            "table=0, priority=0, actions=resubmit(,1)",
            "table=1, priority=0, actions=drop",
            "table=1, priority=99, in_port=1, actions=resubmit(,2)",
            "table=1, priority=99, in_port=2, vlan_tci=0, actions=mod_vlan_vid:20, resubmit(,2)",
            "table=1, priority=99, in_port=2, vlan_tci=0/0xfff, actions=mod_vlan_vid:20, resubmit(,2)",
            "table=10, vlan_tci=0x0014/0x0fff,dl_dst=50:00:00:00:00:01 actions=load:0x1->NXM_NX_REG0[0..15]",
            "table=3 priority=50 actions=resubmit(,10), resubmit(,4)",
            "table=3 priority=99 dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 actions=resubmit(,4)",
            "table=4 reg0=1 actions=1",
            "table=4 reg0=2 actions=strip_vlan,2",
            "table=4 reg0=0 priority=99 dl_vlan=30 actions=1,strip_vlan,3,4",
            "table=4 reg0=0 priority=50 actions=1",
        ],
        refused: &[(
            "table=2 actions=learn(table=10, NXM_OF_VLAN_TCI[0..11], NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[], \
             load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]), resubmit(,3)",
            "learn",
        )],
    },
    Published {
        name: "Open vSwitch's Faucet tutorial",
        loads: &[
            "priority=9099,in_port=p1 actions=goto_table:1",
            "table=1, priority=9099,dl_type=0x88cc actions=drop",
            "table=1, priority=9000,in_port=p1,vlan_tci=0x0000/0x1fff \
             actions=push_vlan:0x8100,set_field:4196->vlan_vid,goto_table:3",
            "table=3, priority=9099,dl_src=ff:ff:ff:ff:ff:ff actions=drop",
            "table=3 priority=9098,in_port=1,dl_vlan=100,dl_src=00:11:11:00:00:00 hard_timeout=3601 actions=goto_table:7",
            "table=7 priority=9099,dl_vlan=100,dl_dst=00:11:11:00:00:00 idle_timeout=3601 actions=pop_vlan,output:1",
            "table=8, priority=9008,in_port=p1,dl_vlan=100,dl_dst=ff:ff:ff:ff:ff:ff actions=pop_vlan,output:p2,output:p3",
            "table=8, priority=9006,in_port=p4,dl_vlan=200,dl_dst=33:33:00:00:00:00/ff:ff:00:00:00:00 \
             actions=pop_vlan,output:p5",
        ],
        refused: &[("table=3, priority=9000 actions=CONTROLLER:96,goto_table:7", "CONTROLLER")],
    },
    Published {
        name: "Neutron's firewall with Open vSwitch",
        loads: &[
            "table=60,  priority=100,in_port=1 actions=load:0x1->NXM_NX_REG5[],load:0x284->NXM_NX_REG6[],resubmit(,71)",
            "table=60,  priority=90,dl_vlan=0x284,dl_dst=fa:16:3e:a4:22:10 \
             actions=load:0x1->NXM_NX_REG5[],load:0x284->NXM_NX_REG6[],resubmit(,81)",
            "table=60,  priority=0 actions=NORMAL",
            "table=71, priority=95,icmp6,reg5=0x1,in_port=1,dl_src=fa:16:3e:a4:22:11,ipv6_src=fe80::11,icmp_type=135 \
             actions=resubmit(,94)",
            "table=71, priority=95,arp,reg5=0x2,in_port=2,dl_src=fa:16:3e:8c:84:14,arp_spa=10.1.0.0/24 \
             actions=resubmit(,94)",
            "table=71, priority=80,udp6,reg5=0x1,in_port=1,tp_src=546,tp_dst=547 actions=resubmit(,73)",
            "table=73, priority=100,reg6=0x284,dl_dst=fa:16:3e:a4:22:10 actions=load:0x1->NXM_NX_REG5[],resubmit(,81)",
            "table=81, priority=100,arp,reg5=0x1 actions=strip_vlan,output:1",
            "table=94, priority=12,reg6=0x284,dl_dst=fa:16:3e:24:57:c7 actions=output:2",
            "table=94, priority=10,reg6=0x284,dl_src=fa:16:3e:a4:22:10,dl_dst=00:00:00:00:00:00/01:00:00:00:00:00 \
             actions=push_vlan:0x8100,set_field:0x1->vlan_vid,output:3",
            "table=94, priority=1 actions=NORMAL",
            "table=71, priority=110,ct_state=+trk actions=ct_clear,resubmit(,71)",
            "table=71, priority=65,ip,reg5=0x1,in_port=1,dl_src=fa:16:3e:8c:84:13,nw_src=10.0.0.1 \
             actions=ct(table=72,zone=NXM_NX_REG6[0..15])",
            "table=82, priority=71,ct_state=+new-est,icmp,reg5=0x2 actions=conjunction(19,2/2)",
            "table=82, priority=50,ct_state=+inv+trk actions=resubmit(,93)",
        ],
        refused: &[
            ("table=72, priority=50,ct_mark=0x1,reg5=0x1 actions=resubmit(,93)", "ct_mark"),
            (
                "table=72, priority=40,ct_state=+est,ip,reg5=0x1 \
                 actions=ct(commit,zone=NXM_NX_REG6[0..15],exec(load:0x1->NXM_NX_CT_MARK[]))",
                "ct",
            ),
        ],
    },
];

#[test]
fn lines_load_or_are_refused_by_their_word() {
    let mut ports = PortTable::default();
    ports.update(["p1", "p2", "p3", "p4", "p5"]);
    for Published { name, loads, refused } in ALL {
        for line in *loads {
            let read = parse_flow(line, FlowCommand::Add, &ports);
            assert!(read.is_ok(), "{name}: {line}: {read:?}");
        }
        for (line, word) in *refused {
            let error = parse_flow(line, FlowCommand::Add, &ports).expect_err(line);
            let key = error.word.split(['(', '=', ':']).next().unwrap_or_default();
            assert_eq!(key, *word, "{name}: {line}: {error}");
        }
    }
}

#[test]
fn the_document_says_what_loads() {
    let document = include_str!("../../../../docs/flows.md");
    for Published { name, loads, refused } in ALL {
        let mut words: Vec<String> = refused.iter().map(|(_, word)| format!("`{}`", word.to_lowercase())).collect();
        words.sort();
        words.dedup();
        let words = if words.is_empty() { "none".to_owned() } else { words.join(", ") };
        let row = format!("| {name} | {} | {words} |", loads.len());
        assert!(document.contains(&row), "docs/flows.md should have the row: {row}");
    }
}
