//! VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe).

use straightline_wire::{EtherType, vxlan_gpe};

use super::{BAD_HEADER, CONTROL, Carries, Form, Parsed, Refusal, Traits, Varying};

pub(super) const PORT: u16 = vxlan_gpe::PORT;

pub(super) fn traits(vni: u32, ip: bool) -> Traits {
    let next_protocol = if ip { vxlan_gpe::NextProtocol(0) } else { vxlan_gpe::NextProtocol::ETHERNET };
    let repr = vxlan_gpe::Repr { next_protocol, vni };
    let traits = Traits::in_udp("vxlan-gpe", Form::VxlanGpe, vni, PORT, |to| repr.emit(to));
    let varying = ip.then_some((Varying::NextProtocol, 2));
    Traits { carries_ip: ip, varying, ..traits.keyed(format!("vni {vni}")) }
}

#[inline]
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Refusal> {
    let header = vxlan_gpe::Header::new_checked(bytes).map_err(|_| BAD_HEADER)?;
    let carries = match header.next_protocol() {
        _ if header.is_control() => return Err(CONTROL),
        vxlan_gpe::NextProtocol::ETHERNET => Carries::Ethernet,
        vxlan_gpe::NextProtocol::IPV4 => Carries::Ip(EtherType::IPV4),
        vxlan_gpe::NextProtocol::IPV6 => Carries::Ip(EtherType::IPV6),
        _ => return Err(BAD_HEADER),
    };
    Ok(Parsed::new(Form::VxlanGpe, header.vni(), vxlan_gpe::LEN, carries))
}
