//! Random flows for the frames of [`FrameDraft`](straightline_testing::frames::FrameDraft): few values
//! of each field, so that packets match.

use std::fmt::Write as _;

use straightline_report::random::Random;

use super::pick;

/// Flows of a file.
const FLOWS: u64 = 40;

/// Conjunctions of a file.
const CONJUNCTIONS: u64 = 4;

/// Tables of a file.
const TABLES: u64 = 4;

/// Conditions on protocols, each with the changes that packets with it may have. `%` is a number from
/// 0 to 3.
const PROTOCOLS: &[(&str, &[&str])] = &[
    ("", ETHERNET),
    ("dl_type=0x88b5", ETHERNET),
    ("dl_type=0x05ff", ETHERNET),
    ("ip", IPV4),
    ("ip,nw_src=10.0.0.1", IPV4),
    ("ip,nw_dst=10.0.0.1/255.0.0.1", IPV4),
    ("ip,nw_ttl=%", IPV4),
    ("ip,nw_tos=0x48", IPV4),
    ("ip,nw_proto=47", IPV4),
    ("ip,nw_frag=yes", IPV4),
    ("ip,nw_frag=first", IPV4),
    ("ip,nw_frag=not_later", IPV4),
    ("tcp", TCP),
    ("tcp,nw_dst=192.168.0.0/16", TCP),
    ("tcp,tp_dst=%", TCP),
    ("tcp,tcp_flags=+syn", TCP),
    ("tcp,tcp_flags=0x112/0x1ff", TCP),
    ("udp", UDP),
    ("udp,tp_src=%", UDP),
    ("udp,tp_dst=0x%/0x1", UDP),
    ("sctp", SCTP),
    ("sctp,tp_dst=%", SCTP),
    ("icmp", ICMP),
    ("icmp,icmp_type=4", ICMP),
    ("ipv6", IPV6),
    ("ipv6,ipv6_src=fd07::%", IPV6),
    ("ipv6,ipv6_dst=fd07::/64", IPV6),
    ("ipv6,ipv6_label=0x30007", IPV6),
    ("ipv6,nw_ecn=3", IPV6),
    ("ipv6,nw_frag=later", IPV6),
    ("ipv6,nw_proto=44", IPV6),
    ("tcp6", TCP6),
    ("tcp6,tp_src=%", TCP6),
    ("udp6", UDP6),
    ("udp6,tp_dst=%", UDP6),
    ("sctp6", SCTP6),
    ("icmp6", ICMP6),
    ("icmp6,icmp_type=8", ICMP6),
    ("icmp6,icmp_type=135,icmp_code=0", SOLICITATION),
    ("icmp6,icmp_type=135,icmp_code=0,nd_target=fd07::%", SOLICITATION),
    ("icmp6,icmp_type=135,icmp_code=0,nd_sll=02:00:00:00:00:0%", SOLICITATION),
    ("icmp6,icmp_type=136,icmp_code=0", ADVERTISEMENT),
    ("icmp6,icmp_type=136,icmp_code=0,nd_tll=02:00:00:00:00:05", ADVERTISEMENT),
    ("arp", ARP),
    ("arp,arp_op=%", ARP),
    ("arp,arp_tpa=10.0.255.254", ARP),
    ("arp,arp_sha=02:00:00:00:00:0%", ARP),
];

/// Further conditions.
const COMMON: &[&str] = &[
    "in_port=%",
    "dl_src=02:00:00:00:00:0%",
    "dl_dst=02:00:00:00:00:0%",
    "dl_dst=00:00:00:00:00:01/00:00:00:00:00:01",
    "dl_vlan=5",
    "dl_vlan=6,dl_vlan_pcp=5",
    "vlan_tci=0",
    "vlan_tci=0x1000/0x1000",
    "reg1=%",
    "reg1=0x%/0x1",
    "reg7=0x12345678",
];

const ETHERNET: &[&str] = &["mod_dl_src:02:00:00:00:00:0%", "load:0xff->NXM_OF_ETH_DST[40..47]"];

const IPV4: &[&str] = &[
    "mod_nw_src:192.168.1.%",
    "mod_nw_dst:10.0.255.254",
    "load:0x1->NXM_OF_IP_DST[16..23]",
    "mod_nw_tos:72",
    "mod_nw_ecn:1",
    "mod_nw_ttl:%",
    "dec_ttl",
    "move:NXM_OF_IP_SRC[0..15]->NXM_NX_REG1[0..15]",
    "move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]",
];

const TCP: &[&str] = &[
    "mod_nw_src:192.168.1.%",
    "mod_nw_dst:10.0.255.254",
    "mod_tp_src:80",
    "mod_tp_dst:%",
    "load:0xff->NXM_OF_TCP_DST[8..15]",
    "move:NXM_OF_TCP_SRC[]->NXM_OF_TCP_DST[]",
    "move:NXM_OF_TCP_DST[]->NXM_NX_REG1[0..15]",
    "dec_ttl",
];

const UDP: &[&str] = &[
    "mod_nw_src:192.168.1.%",
    "mod_nw_dst:10.0.255.254",
    "mod_tp_src:80",
    "mod_tp_dst:%",
    "load:0xff->NXM_OF_UDP_DST[8..15]",
    "move:NXM_OF_UDP_SRC[]->NXM_OF_UDP_DST[]",
    "move:NXM_OF_UDP_DST[]->NXM_NX_REG1[0..15]",
    "dec_ttl",
];

const SCTP: &[&str] = &["mod_nw_src:192.168.1.%", "mod_tp_src:80", "mod_tp_dst:%", "mod_nw_ttl:%"];

const ICMP: &[&str] =
    &["mod_nw_src:192.168.1.%", "load:0x%->NXM_OF_ICMP_TYPE[]", "load:0x1->NXM_OF_ICMP_CODE[]", "dec_ttl"];

const IPV6: &[&str] = &[
    "set_field:fd07::%->ipv6_src",
    "load:0xfffffffffffffffe->NXM_NX_IPV6_DST[0..63]",
    "set_field:0x77777->ipv6_label",
    "set_field:72->nw_tos",
    "mod_nw_ecn:1",
    "mod_nw_ttl:%",
    "dec_ttl",
    "move:NXM_NX_IPV6_DST[32..47]->NXM_NX_REG1[0..15]",
    "move:NXM_NX_IPV6_LABEL[2..17]->NXM_NX_REG1[0..15]",
];

const TCP6: &[&str] = &["set_field:fd07::%->ipv6_src", "set_field:80->tcp_src", "set_field:%->tcp_dst", "dec_ttl"];

const UDP6: &[&str] = &["set_field:fd07::%->ipv6_dst", "set_field:80->udp_src", "set_field:%->udp_dst", "dec_ttl"];

const SCTP6: &[&str] = &["set_field:fd07::%->ipv6_dst", "set_field:80->sctp_src", "set_field:%->sctp_dst"];

const ICMP6: &[&str] =
    &["set_field:fd07::%->ipv6_src", "set_field:%->icmpv6_type", "set_field:%->icmpv6_code", "dec_ttl"];

const SOLICITATION: &[&str] = &[
    "set_field:fd07::%->ipv6_src",
    "load:0xff->NXM_NX_ND_TARGET[64..71]",
    "set_field:02:00:00:00:00:0%->nd_sll",
    "move:NXM_NX_ND_TARGET[100..115]->NXM_NX_REG1[0..15]",
];

const ADVERTISEMENT: &[&str] =
    &["set_field:fd07::%->ipv6_src", "set_field:fd07::%->nd_target", "set_field:02:00:00:00:00:0%->nd_tll"];

const ARP: &[&str] = &[
    "load:0x2->NXM_OF_ARP_OP[]",
    "set_field:10.0.0.9->arp_spa",
    "set_field:10.0.0.8->arp_tpa",
    "set_field:02:00:00:00:00:0%->arp_sha",
    "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]",
    "move:NXM_OF_ARP_SPA[16..31]->NXM_NX_REG1[0..15]",
];

/// Actions on all packets.
const ANY: &[&str] = &[
    "output:%",
    "output:%",
    "output:%",
    "output:%",
    "output:9",
    "output:NXM_NX_REG1[0..15]",
    "in_port",
    "flood",
    "all",
    "mod_dl_src:02:00:00:00:00:0%",
    "load:0x%->NXM_OF_ETH_DST[0..7]",
    "move:NXM_OF_ETH_SRC[0..15]->NXM_OF_ETH_DST[8..23]",
    "move:NXM_OF_ETH_SRC[0..15]->NXM_NX_REG1[0..15]",
    "strip_vlan",
    "mod_vlan_vid:5",
    "mod_vlan_pcp:3",
    "load:0xf006->NXM_OF_VLAN_TCI[]",
    "load:0x%->NXM_NX_REG1[]",
    "load:0x1->NXM_NX_REG1[0..0]",
    "load:0x12345678->NXM_NX_REG7[]",
    "set_field:%->in_port",
];

/// The actions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actions {
    /// Changes of all headers. Some files have no `strip_vlan`.
    Changes,
    /// Changes of Ethernet only.
    Ethernet,
    /// `normal` too, but no change of a tag or of `in_port`.
    Normal,
}

/// Returns a file of flows. No two of a table have the same priority.
pub(super) fn file(random: &mut Random, kind: Actions) -> String {
    let mut text = String::new();
    for table in 0..TABLES {
        // Each table has a flow for all packets, so that many of them change and go on.
        let actions = actions(random, table, ETHERNET, kind);
        let _ = writeln!(text, "table={table},priority=0,actions={actions},output:{}", 1 + random.below(4));
    }
    for number in 1..=FLOWS {
        let table = random.below(TABLES);
        let (condition, changes) = condition(random);
        let changes = if kind == Actions::Ethernet { ETHERNET } else { changes };
        let actions = actions(random, table, changes, kind);
        let _ = writeln!(text, "table={table},priority={},{condition}actions={actions}", 2 * number);
    }
    // Other flows have even priorities, and do not test `reg6`: a clause hides flows of its match from OvS's
    // search with `conj_id`.
    let mut priorities: Vec<u64> = (0..=FLOWS).map(|number| 2 * number + 1).collect();
    random.shuffle(&mut priorities);
    for (id, priorities) in (1..=CONJUNCTIONS).zip(priorities.chunks(2)) {
        let table = random.below(TABLES);
        let clauses = 2 + random.below(2);
        for clause in (1..=clauses).flat_map(|clause| [clause; 3]) {
            let condition = condition(random).0;
            let priority = priorities[0];
            let _ = writeln!(
                text,
                "table={table},priority={priority},reg6=0,{condition}actions=conjunction({id},{clause}/{clauses})"
            );
        }
        let actions = actions(random, table, ETHERNET, kind);
        let _ = writeln!(text, "table={table},priority={},conj_id={id},actions={actions}", priorities[1]);
    }
    if random.below(2) == 0 { text.replace("strip_vlan", "mod_vlan_vid:9") } else { text }
}

/// Returns a condition, with a comma at its end, and the changes that packets with it may have.
fn condition(random: &mut Random) -> (String, &'static [&'static str]) {
    let (protocol, changes) = PROTOCOLS[usize::try_from(random.below(PROTOCOLS.len() as u64)).unwrap_or(0)];
    let mut words = Vec::new();
    words.extend((!protocol.is_empty()).then(|| filled(random, protocol)));
    let mut fields = Vec::new();
    for _ in 0..random.below(3) {
        let word = pick(random, COMMON);
        // A field comes once. A test of a tag is one of the whole tag.
        let field = word.split('=').next().map(|field| field.replace("dl_vlan", "vlan_tci"));
        if !fields.contains(&field) {
            words.push(filled(random, word));
            fields.push(field);
        }
    }
    let comma = if words.is_empty() { "" } else { "," };
    (words.join(",") + comma, changes)
}

/// Returns a word whose placeholders have numbers from 0 to 3, or from 1 to 4 for a port.
fn filled(random: &mut Random, word: &str) -> String {
    let is_port = word.contains("in_port") || word.starts_with("output");
    let number = random.below(4) + u64::from(is_port);
    word.replace('%', &number.to_string())
}

/// Returns actions for packets with these changes.
fn actions(random: &mut Random, table: u64, changes: &[&str], kind: Actions) -> String {
    let mut words = Vec::new();
    for _ in 0..1 + random.below(6) {
        let list = if random.below(2) == 0 { changes } else { ANY };
        let word = pick(random, list);
        let word_lower = word.to_ascii_lowercase();
        if kind != Actions::Normal || !word_lower.contains("vlan") && !word_lower.contains("->in_port") {
            words.push(filled(random, word));
        }
    }
    if words.is_empty() {
        words.push("output:1".to_owned());
    }
    if kind == Actions::Normal && random.below(3) == 0 {
        words.push("normal".to_owned());
    }
    // A packet visits few tables, so there are few rounds.
    if table + 1 < TABLES && random.below(2) == 0 {
        let next = table + 1;
        let at = usize::try_from(random.below(words.len() as u64 + 1)).unwrap_or(0);
        let port = 1 + random.below(4);
        words.insert(
            at,
            if random.below(3) == 0 { format!("resubmit({port},{next})") } else { format!("resubmit(,{next})") },
        );
    }
    words.join(",")
}
