//! MPLS in UDP (RFC 7510). It carries IP.

use straightline_wire::mpls;

use super::{BAD_HEADER, Carries, Form, Parsed, Refusal, TTL, Traits};

pub(super) const PORT: u16 = mpls::PORT;

pub(super) fn traits(label: u32, peer_label: u32) -> Traits {
    let entry = mpls::Entry { label: peer_label, traffic_class: 0, is_bottom: true, ttl: TTL };
    let traits = Traits::in_udp("mpls-udp", Form::MplsUdp, label, PORT, |to| entry.emit(to));
    Traits { carries_ip: true, ..traits.keyed(format!("label {label}")) }
}

#[inline]
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Refusal> {
    let entry = mpls::Entry::parse(bytes).map_err(|_| BAD_HEADER)?;
    // A second label would name a tunnel in the tunnel.
    if !entry.is_bottom {
        return Err(BAD_HEADER);
    }
    Ok(Parsed::new(Form::MplsUdp, entry.label, mpls::LEN, Carries::AnyIp))
}
