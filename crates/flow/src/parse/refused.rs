//! Words of `ovs-ofctl` that this switch refuses, each with the reason.

use super::error::FlowError;
use super::words::Word;

/// Actions that the switch does not have. The documentation lists them too.
const ACTIONS: &[(&str, &str)] = &[
    ("learn", "makes flows from packets: traffic must not make rules here; the bridge learns by `normal`"),
    ("controller", "sends packets to a controller: this switch has none"),
    ("userspace", "sends packets to a program: this switch has no place for them"),
    ("group", "needs group tables: use several outputs, or `resubmit` by a register"),
    ("bundle", "chooses a port by a hash: this switch does not have it"),
    ("bundle_load", "chooses a port by a hash: this switch does not have it"),
    ("multipath", "chooses a value by a hash: this switch does not have it"),
    ("sample", "needs IPFIX: use `straightline capture`"),
    ("local", "means the bridge's own interface: a bridge has none; use the name of a port"),
    ("nat", "changes addresses of connections: flows cannot"),
    ("set_tunnel", "needs a tunnel whose key comes from the flow: a tunnel's port has its key"),
    ("set_tunnel64", "needs a tunnel whose key comes from the flow: a tunnel's port has its key"),
    ("note", "has no effect: write a comment after `#`, or use `cookie`"),
    ("enqueue", "needs queues of ports: use `rate-out` of the port, or `meter`"),
    ("set_queue", "needs queues of ports: use `rate-out` of the port, or `meter`"),
    ("pop_queue", "needs queues of ports: use `rate-out` of the port, or `meter`"),
    ("fin_timeout", "changes timeouts by traffic: use `idle_timeout`"),
    ("exit", "ends a `resubmit` early: leave out the actions behind it"),
    ("push", "needs a stack: use registers"),
    ("pop", "needs a stack: use registers"),
    ("clone", "undoes changes of a packet: use `move` to a register and back"),
    ("write_actions", "needs the action set: write the actions themselves"),
    ("clear_actions", "needs the action set: write the actions themselves"),
    ("apply_actions", "is for OpenFlow messages: write the actions themselves"),
    ("write_metadata", "needs `metadata`: use registers"),
    ("push_mpls", "needs MPLS, which flows cannot change"),
    ("pop_mpls", "needs MPLS, which flows cannot change"),
    ("set_mpls_label", "needs MPLS, which flows cannot change"),
    ("set_mpls_tc", "needs MPLS, which flows cannot change"),
    ("set_mpls_ttl", "needs MPLS, which flows cannot change"),
    ("dec_mpls_ttl", "needs MPLS, which flows cannot change"),
    ("encap", "needs packet types: use a port of a tunnel"),
    ("decap", "needs packet types: use a port of a tunnel"),
    ("dec_nsh_ttl", "needs NSH, which flows cannot change"),
    ("check_pkt_larger", "tests the length of packets: this switch does not have it"),
    ("delete_field", "needs options of tunnels, which flows cannot change"),
    ("debug_recirc", "is for tests of Open vSwitch only"),
];

/// Fields that the switch does not have. A name that ends in `*` stands for all that begin so.
const FIELDS: &[(&str, &str)] = &[
    ("ct_*", "is not kept of a connection: match `ct_state` and `ct_zone`"),
    ("tun_*", "is a fact of a tunnel: match the tunnel's port by `in_port`"),
    ("tunnel_id", "is a fact of a tunnel: match the tunnel's port by `in_port`"),
    ("metadata", "does not exist here: use registers `reg0` to `reg7`"),
    ("reg*", "does not exist here: use registers `reg0` to `reg7`"),
    ("xreg*", "does not exist here: use registers `reg0` to `reg7`"),
    ("xxreg*", "does not exist here: use registers `reg0` to `reg7`"),
    ("mpls*", "needs MPLS, which flows cannot look into"),
    ("nsh_*", "needs NSH, which flows cannot look into"),
    ("nd_reserved", "is not parsed: use `nd_target`, `nd_sll` or `nd_tll`"),
    ("nd_options_type", "is not parsed: use `nd_target`, `nd_sll` or `nd_tll`"),
    ("igmp*", "is not parsed: use `ip,nw_proto=2`"),
    ("skb_priority", "is a fact of Linux's kernel: use `pkt_mark`"),
    ("in_port_oxm", "is another name: use `in_port`"),
    ("actset_output", "needs the action set, which this switch does not have"),
    ("packet_type", "does not exist here: all packets are Ethernet frames"),
    ("dp_hash", "is a fact of Open vSwitch's datapath"),
    ("recirc_id", "is a fact of Open vSwitch's datapath"),
    ("icmpv6", "is no short form: use `icmp6`"),
];

/// Arguments of `ct` that the switch does not have.
const CT: &[(&str, &str)] = &[
    ("nat", "changes addresses of connections: flows cannot"),
    ("exec", "writes marks of connections, which the switch does not keep: use registers"),
    ("alg", "reads what FTP and TFTP agree about: allow their second connection by a flow"),
    ("force", "lets a reply open the connection anew: leave it out"),
];

/// Settings of flows that the switch does not have.
const SETTINGS: &[(&str, &str)] = &[
    ("send_flow_rem", "tells a controller: this switch has none; leave it out"),
    ("importance", "lets a full table drop flows: this switch refuses new ones; leave it out"),
    ("no_packet_counts", "is for controllers: flows always count; leave it out"),
    ("no_byte_counts", "is for controllers: flows always count; leave it out"),
    ("allow_hidden_fields", "is for tests of Open vSwitch only"),
    ("out_group", "needs group tables, which this switch does not have"),
];

/// All tables of refused words.
#[cfg(test)]
pub(crate) const REFUSED: [&[(&str, &str)]; 4] = [ACTIONS, FIELDS, SETTINGS, CT];

fn reason(table: &[(&str, &'static str)], key: &str) -> Option<&'static str> {
    let is_meant = |name: &str| match name.strip_suffix('*') {
        Some(begin) => key.starts_with(begin),
        None => key == name,
    };
    table.iter().find(|(name, _)| is_meant(name)).map(|(_, reason)| *reason)
}

/// Returns the mistake in a word of a match that no field has.
pub(super) fn field(word: Word<'_>) -> FlowError {
    let key = word.key.to_ascii_lowercase();
    match reason(FIELDS, &key).or_else(|| reason(SETTINGS, &key)) {
        Some(reason) => word.wrong(reason),
        None => word.wrong("is no field or setting: see the list in docs/flows.md"),
    }
}

/// Returns the reason against an action, if it is known.
pub(super) fn action(word: Word<'_>) -> Option<FlowError> {
    reason(ACTIONS, &word.key.to_ascii_lowercase()).map(|reason| word.wrong(reason))
}

/// Returns the mistake in an argument of `ct`.
pub(super) fn ct(word: Word<'_>, argument: Word<'_>) -> FlowError {
    match reason(CT, &argument.key.to_ascii_lowercase()) {
        Some(reason) => word.wrong(format!("has `{}`, which {reason}", argument.key)),
        None => {
            let argument = argument.text.escape_debug();
            word.wrong(format!("has the unknown argument `{argument}`: use `commit`, `table=N` and `zone=N`"))
        }
    }
}

/// Returns the mistake in a word of an action that names no field.
pub(super) fn subfield(word: Word<'_>, name: &str) -> FlowError {
    let plain = name.to_ascii_lowercase();
    // The names of NXM and OXM end like the usual ones.
    let end = ["nxm_nx_", "nxm_of_", "oxm_of_"].iter().find_map(|begin| plain.strip_prefix(begin)).unwrap_or(&plain);
    match reason(FIELDS, end) {
        Some(reason) => word.wrong(format!("names `{}`, which {reason}", name.escape_debug())),
        None => word.wrong(format!("names no field: `{}` is not in the list in docs/flows.md", name.escape_debug())),
    }
}
