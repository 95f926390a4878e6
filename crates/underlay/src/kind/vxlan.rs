//! VXLAN (RFC 7348).

use straightline_wire::vxlan;

use super::{BAD_HEADER, Carries, Form, Parsed, Refusal, Traits};

pub(super) const PORT: u16 = vxlan::PORT;

pub(super) fn traits(vni: u32) -> Traits {
    Traits::in_udp("vxlan", Form::Vxlan, vni, PORT, |to| vxlan::Repr { vni }.emit(to)).keyed(format!("vni {vni}"))
}

#[inline]
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Refusal> {
    let header = vxlan::Header::new_checked(bytes).map_err(|_| BAD_HEADER)?;
    Ok(Parsed::new(Form::Vxlan, header.vni(), vxlan::LEN, Carries::Ethernet))
}
