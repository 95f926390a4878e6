//! Flows as text, in the form of `ovs-ofctl dump-flows`.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::action::{Action, Ct, CtZone, PortNumber, Spelling};
use crate::field::{Field, Subfield, VLAN_PRESENT};
use crate::flow::{DEFAULT_PRIORITY, Flow};
use crate::matching::Match;
use crate::numbers::{CT_STATES, FRAGMENTS, SHORT_FORMS, TCP_FLAGS};
use crate::ports::{PortNames, quote};

/// Counters and ages of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStatistics {
    /// Time since the flow was added.
    pub duration: Duration,
    /// Packets that the flow has matched.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time since the last packet, or since the flow was added.
    pub idle: Duration,
    /// Time since the actions were last changed.
    pub unchanged: Duration,
}

/// Writes flows in the form of `ovs-ofctl dump-flows`, with numbers or names of ports.
///
/// The form is that of OpenFlow 1.0 with Nicira's extensions, the default of `ovs-ofctl`. `push_vlan`,
/// `goto_table` and `meter` are as with `-O OpenFlow13`, because OpenFlow 1.0 lacks them. The text can
/// be parsed again.
///
/// ```
/// use straightline_flow::{FlowCommand, FlowWriter, NoPortNames, parse_flow};
///
/// let text = "priority=9,ip,nw_proto=6,nw_dst=10.1.2.3/8,actions=set_field:5->tcp_dst,2";
/// let flow = parse_flow(text, FlowCommand::Add, &NoPortNames).expect("a flow").into_flow();
/// assert_eq!(FlowWriter::new(&NoPortNames).flow(&flow), "priority=9,tcp,nw_dst=10.0.0.0/8 actions=mod_tp_dst:5,output:2");
/// ```
#[derive(Clone, Copy)]
pub struct FlowWriter<'a> {
    ports: &'a dyn PortNames,
}

impl fmt::Debug for FlowWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowWriter")
    }
}

impl<'a> FlowWriter<'a> {
    /// Creates a writer. Ports without a name are numbers: all of them with
    /// [`NoPortNames`](crate::NoPortNames).
    #[must_use]
    pub fn new(ports: &'a dyn PortNames) -> Self {
        Self { ports }
    }

    /// Returns a flow as `dump-flows --no-stats` has it, without the space before it.
    #[must_use]
    pub fn flow(&self, flow: &Flow) -> String {
        let cookie = if flow.cookie == 0 { String::new() } else { format!("cookie={:#x}, ", flow.cookie) };
        let table = if flow.key.table == 0 { String::new() } else { format!("table={}, ", flow.key.table) };
        format!("{cookie}{table}{}{}", timeouts(flow), self.condition_and_actions(flow))
    }

    /// Returns a flow as `dump-flows` has it, without the space before it.
    #[must_use]
    pub fn flow_with_statistics(&self, flow: &Flow, statistics: &FlowStatistics) -> String {
        let FlowStatistics { duration, packets, bytes, idle, unchanged } = statistics;
        let mut text = format!("cookie={:#x}, ", flow.cookie);
        let table = flow.key.table;
        let _ = write!(text, "duration={}.{:03}s, table={table}, ", duration.as_secs(), duration.subsec_millis());
        let _ = write!(text, "n_packets={packets}, n_bytes={bytes}, {}", timeouts(flow));
        let _ = write!(text, "idle_age={}, ", idle.as_secs());
        if unchanged.as_secs() != duration.as_secs() {
            let _ = write!(text, "hard_age={}, ", unchanged.as_secs());
        }
        text + &self.condition_and_actions(flow)
    }

    fn condition_and_actions(&self, flow: &Flow) -> String {
        let condition = self.condition(flow.key.priority, &flow.key.condition);
        let space = if condition.is_empty() { "" } else { " " };
        format!("{condition}{space}actions={}", self.actions(&flow.actions))
    }

    /// Returns a condition, with the priority if it is not the usual one.
    #[must_use]
    pub fn condition(&self, priority: u16, condition: &Match) -> String {
        let mut words = Vec::new();
        if priority != DEFAULT_PRIORITY {
            words.push(format!("priority={priority}"));
        }
        ConditionText { condition, words: &mut words, writer: self }.write();
        words.join(",")
    }

    /// Returns the actions, `drop` if there are none.
    #[must_use]
    pub fn actions(&self, actions: &[Action]) -> String {
        if actions.is_empty() {
            return "drop".to_owned();
        }
        let words: Vec<String> = actions.iter().map(|action| self.action(action)).collect();
        words.join(",")
    }

    fn port(&self, number: PortNumber) -> String {
        self.ports.name(number).map_or_else(|| number.0.to_string(), |name| quote(&name))
    }

    /// Returns an action.
    #[must_use]
    pub fn action(&self, action: &Action) -> String {
        match *action {
            Action::Output(port) => format!("output:{}", self.port(port)),
            Action::OutputField(from) => format!("output:{}", bits(from)),
            Action::InPort => "IN_PORT".to_owned(),
            Action::Normal => "NORMAL".to_owned(),
            Action::Flood => "FLOOD".to_owned(),
            Action::All => "ALL".to_owned(),
            Action::SetField { value, spelling: Spelling::Load(to), .. } => {
                format!("load:{}->{}", hexadecimal(to.whole().of(value)), bits(to))
            }
            Action::SetField { field, value, mask, spelling: Spelling::Mod } => modification(field, value, mask),
            Action::Move { from, to } => format!("move:{}->{}", bits(from), bits(to)),
            Action::DecTtl => "dec_ttl".to_owned(),
            Action::PushVlan(tag) => format!("push_vlan:{tag:#06x}"),
            Action::StripVlan => "strip_vlan".to_owned(),
            Action::GotoTable(table) => format!("goto_table:{table}"),
            Action::Resubmit { port: Some(port), table: None } => format!("resubmit:{}", self.port(port)),
            Action::Resubmit { port, table } => {
                let port = port.map(|port| self.port(port)).unwrap_or_default();
                let table = table.map(|table| table.to_string()).unwrap_or_default();
                format!("resubmit({port},{table})")
            }
            Action::Conjunction { id, clause, clauses } => format!("conjunction({id},{}/{clauses})", clause + 1),
            Action::Meter(number) => format!("meter:{number}"),
            Action::Ct(ct) => connection(ct),
            Action::CtClear => "ct_clear".to_owned(),
        }
    }
}

fn timeouts(flow: &Flow) -> String {
    let mut text = String::new();
    for (name, timeout) in [("idle", flow.idle_timeout), ("hard", flow.hard_timeout)] {
        if !timeout.is_zero() {
            let _ = write!(text, "{name}_timeout={}, ", timeout.as_secs());
        }
    }
    text
}

/// Returns `ct(commit,table=1,zone=2)`.
fn connection(Ct { commit, table, zone }: Ct) -> String {
    let commit = commit.then(|| "commit".to_owned());
    let table = table.map(|table| format!("table={table}"));
    let zone = match zone {
        CtZone::Number(0) => None,
        CtZone::Number(zone) => Some(format!("zone={zone}")),
        CtZone::Field(from) => Some(format!("zone={}", bits(from))),
    };
    let words: Vec<_> = [commit, table, zone].into_iter().flatten().collect();
    format!("ct({})", words.join(","))
}

/// Returns `NXM_NX_REG0[0..15]`.
fn bits(subfield: Subfield) -> String {
    let Subfield { field, offset, bits } = subfield;
    let name = field.nxm();
    if bits == field.bits() {
        format!("{name}[]")
    } else if bits == 1 {
        format!("{name}[{offset}]")
    } else {
        format!("{name}[{offset}..{}]", offset + bits - 1)
    }
}

/// Returns the `mod_…` action.
fn modification(field: Field, value: u128, mask: u128) -> String {
    let vid = u128::from(VLAN_PRESENT) | 0xfff;
    match field {
        Field::EthSrc => format!("mod_dl_src:{}", ethernet(value)),
        Field::EthDst => format!("mod_dl_dst:{}", ethernet(value)),
        Field::IpSrc => format!("mod_nw_src:{}", ipv4(value)),
        Field::IpDst => format!("mod_nw_dst:{}", ipv4(value)),
        Field::TpSrc => format!("mod_tp_src:{value}"),
        Field::TpDst => format!("mod_tp_dst:{value}"),
        Field::IpTos => format!("mod_nw_tos:{value}"),
        Field::VlanTci if mask == vid => format!("mod_vlan_vid:{}", value & 0xfff),
        Field::VlanTci => format!("mod_vlan_pcp:{}", value >> 13),
        // No other field has such an action; this form can be read as well.
        _ => format!("set_field:{value:#x}/{mask:#x}->{}", field.name()),
    }
}

/// The words of a condition, in the order of OvS.
struct ConditionText<'a, 'w> {
    condition: &'a Match,
    words: &'w mut Vec<String>,
    writer: &'a FlowWriter<'a>,
}

impl ConditionText<'_, '_> {
    fn write(mut self) {
        self.hexadecimal(Field::PktMark);
        self.decimal(Field::ConjId, "conj_id");
        self.flags(Field::CtState, &CT_STATES);
        self.decimal(Field::CtZone, "ct_zone");
        let short = self.short_form();
        for register in Field::REGISTERS {
            self.hexadecimal(register);
        }
        if let Some(port) = self.exact(Field::InPort).and_then(|port| u16::try_from(port).ok()) {
            self.words.push(format!("in_port={}", self.writer.port(PortNumber(port))));
        }
        self.vlan();
        self.ethernet(Field::EthSrc, "dl_src");
        self.ethernet(Field::EthDst, "dl_dst");
        if let (None, Some(number)) = (short, self.exact(Field::EthType)) {
            self.words.push(format!("dl_type={number:#06x}"));
        }
        self.ipv6(Field::Ipv6Src);
        self.ipv6(Field::Ipv6Dst);
        self.label();
        self.ipv4(Field::IpSrc, "nw_src");
        self.ipv4(Field::IpDst, "nw_dst");
        self.ipv4(Field::ArpSpa, "arp_spa");
        self.ipv4(Field::ArpTpa, "arp_tpa");
        self.decimal(Field::ArpOp, "arp_op");
        if short.is_none_or(|(_, _, protocol)| protocol.is_none()) {
            self.decimal(Field::IpProto, "nw_proto");
        }
        self.ethernet(Field::ArpSha, "arp_sha");
        self.ethernet(Field::ArpTha, "arp_tha");
        if let Some(dscp) = self.exact(Field::IpDscp) {
            self.words.push(format!("nw_tos={}", dscp << 2));
        }
        self.decimal(Field::IpEcn, "nw_ecn");
        self.decimal(Field::IpTtl, "nw_ttl");
        self.fragment();
        self.decimal(Field::IcmpType, "icmp_type");
        self.decimal(Field::IcmpCode, "icmp_code");
        self.ipv6(Field::NdTarget);
        self.ethernet(Field::NdSll, "nd_sll");
        self.ethernet(Field::NdTll, "nd_tll");
        self.decimal(Field::TpSrc, "tp_src");
        self.decimal(Field::TpDst, "tp_dst");
        self.flags(Field::TcpFlags, &TCP_FLAGS);
    }

    /// Returns the value of a field, if the condition tests all of its bits.
    fn exact(&self, field: Field) -> Option<u128> {
        let (value, mask) = self.condition.get(field);
        (mask == field.greatest()).then_some(value)
    }

    /// Returns value and mask of a field that is tested.
    fn tested(&self, field: Field) -> Option<(u128, u128)> {
        Some(self.condition.get(field)).filter(|(_, mask)| *mask != 0)
    }

    /// Writes `tcp`, `arp` and the like.
    fn short_form(&mut self) -> Option<(&'static str, u16, Option<u8>)> {
        let ether_type = self.exact(Field::EthType)?;
        let protocol = self.exact(Field::IpProto);
        let same_type = || SHORT_FORMS.iter().filter(|(_, known, _)| ether_type == (*known).into());
        let precise = same_type().find(|(_, _, known)| known.is_some_and(|known| protocol == Some(known.into())));
        let form = precise.or_else(|| same_type().find(|(_, _, known)| known.is_none()))?;
        self.words.push(form.0.to_owned());
        Some(*form)
    }

    fn decimal(&mut self, field: Field, name: &str) {
        if let Some((value, mask)) = self.tested(field) {
            let is_exact = mask == field.greatest();
            self.words.push(if is_exact { format!("{name}={value}") } else { format!("{name}={value:#x}/{mask:#x}") });
        }
    }

    fn hexadecimal(&mut self, field: Field) {
        if let Some((value, mask)) = self.tested(field) {
            let name = field.name();
            let value = hexadecimal(value);
            let is_exact = mask == field.greatest();
            self.words.push(if is_exact { format!("{name}={value}") } else { format!("{name}={value}/{mask:#x}") });
        }
    }

    fn vlan(&mut self) {
        let Some((value, mask)) = self.tested(Field::VlanTci) else {
            return;
        };
        let present = u128::from(VLAN_PRESENT);
        let is_whole = |part: u128| mask & part == 0 || mask & part == part;
        if value & present != 0 && is_whole(0xfff) && is_whole(0xe000) && mask != present {
            if mask & 0xfff != 0 {
                self.words.push(format!("dl_vlan={}", value & 0xfff));
            }
            if mask & 0xe000 != 0 {
                self.words.push(format!("dl_vlan_pcp={}", value >> 13));
            }
        } else if mask == 0xffff {
            self.words.push(format!("vlan_tci={value:#06x}"));
        } else {
            self.words.push(format!("vlan_tci={value:#06x}/{mask:#06x}"));
        }
    }

    fn ethernet(&mut self, field: Field, name: &str) {
        if let Some((value, mask)) = self.tested(field) {
            let mask = if mask == field.greatest() { String::new() } else { format!("/{}", ethernet(mask)) };
            self.words.push(format!("{name}={}{mask}", ethernet(value)));
        }
    }

    fn ipv4(&mut self, field: Field, name: &str) {
        if let Some((value, mask)) = self.tested(field) {
            let mask = mask_text(field, mask, |mask| ipv4(mask).to_string());
            self.words.push(format!("{name}={}{mask}", ipv4(value)));
        }
    }

    fn ipv6(&mut self, field: Field) {
        if let Some((value, mask)) = self.tested(field) {
            let mask = mask_text(field, mask, ipv6);
            self.words.push(format!("{}={}{mask}", field.name(), ipv6(value)));
        }
    }

    fn label(&mut self) {
        if let Some((value, mask)) = self.tested(Field::Ipv6Label) {
            let mask = if mask == Field::Ipv6Label.greatest() { String::new() } else { format!("/{mask:#07x}") };
            self.words.push(format!("ipv6_label={value:#07x}{mask}"));
        }
    }

    fn fragment(&mut self) {
        if let Some(tested) = self.tested(Field::IpFrag) {
            // All bits set are a later fragment as well.
            let tested = if tested == (3, 3) { (2, 2) } else { tested };
            let found = FRAGMENTS.iter().find(|(_, value, mask)| tested == ((*value).into(), (*mask).into()));
            let name = found.map_or("no", |(name, ..)| *name);
            self.words.push(format!("nw_frag={name}"));
        }
    }

    fn flags(&mut self, field: Field, all: &[&str]) {
        let Some((value, mask)) = self.tested(field) else {
            return;
        };
        let flags = || (0..).zip(all.iter().copied());
        let text = if mask != field.greatest() {
            let sign = |at: u32| if value >> at & 1 == 1 { '+' } else { '-' };
            let tested = flags().filter(|(at, _)| mask >> at & 1 == 1);
            tested.map(|(at, name)| format!("{}{name}", sign(at))).collect()
        } else if value == 0 {
            "0".to_owned()
        } else {
            let set: Vec<&str> = flags().filter(|(at, _)| value >> at & 1 == 1).map(|(_, name)| name).collect();
            set.join("|")
        };
        self.words.push(format!("{}={text}", field.name()));
    }
}

/// Returns a number as C's `%#x` has it: 0 is `0`.
fn hexadecimal(value: u128) -> String {
    if value == 0 { "0".to_owned() } else { format!("{value:#x}") }
}

/// Returns the mask of an address: none, the bits of a prefix, or an address.
fn mask_text(field: Field, mask: u128, address: impl Fn(u128) -> String) -> String {
    if mask == field.greatest() {
        return String::new();
    }
    let zeros = mask.trailing_zeros();
    let is_prefix = (mask >> zeros) == field.greatest() >> zeros;
    if is_prefix { format!("/{}", u32::from(field.bits()) - zeros) } else { format!("/{}", address(mask)) }
}

fn ethernet(value: u128) -> String {
    let octet = |at: u32| (value >> (40 - 8 * at)) & 0xff;
    let octets: Vec<String> = (0..6).map(|at| format!("{:02x}", octet(at))).collect();
    octets.join(":")
}

fn ipv4(value: u128) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::try_from(value).unwrap_or(u32::MAX))
}

/// Returns an IPv6 address in the form of the C library, which writes `::10.0.0.1` as such.
fn ipv6(value: u128) -> String {
    match u32::try_from(value) {
        Ok(low) if low > 0xffff => format!("::{}", Ipv4Addr::from_bits(low)),
        _ => Ipv6Addr::from_bits(value).to_string(),
    }
}

#[cfg(test)]
mod tests;
