//! GTP-U (3GPP TS 29.281). It carries IP.

use straightline_packet::Reason;
use straightline_wire::gtpu;

use super::{BAD_HEADER, CONTROL, Carries, Form, Parsed, Refusal, Traits, Varying};

pub(super) const PORT: u16 = gtpu::PORT;

pub(super) fn traits(teid: u32, peer_teid: u32) -> Traits {
    let message_type = gtpu::Type::PACKET;
    let repr = gtpu::Repr { message_type, teid: peer_teid, sequence: None, payload_len: 0 };
    let traits = Traits::in_udp("gtpu", Form::Gtpu, teid, PORT, |to| repr.emit(to));
    Traits { carries_ip: true, varying: Some((Varying::Length, 2)), ..traits.keyed(format!("teid {teid}")) }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Refusal> {
    let header = gtpu::Header::new_checked(bytes).map_err(|_| BAD_HEADER)?;
    match header.message_type() {
        gtpu::Type::PACKET => {}
        gtpu::Type::ECHO_REQUEST => return Err(Refusal::GtpuEcho),
        _ => return Err(CONTROL),
    }
    // 5G sends the flow's quality of service with each packet. We have one quality only.
    let is_known = |kind| kind == gtpu::ExtensionType::PDU_SESSION;
    if header.extensions().any(|(kind, _)| kind.is_required() && !is_known(kind)) {
        return Err(Refusal::Drop(Reason::TunnelOption));
    }
    let len = header.header_len();
    let message = gtpu::MIN_LEN + usize::from(header.length());
    if message < len {
        return Err(BAD_HEADER);
    }
    Ok(Parsed { message: Some(message), ..Parsed::new(Form::Gtpu, header.teid(), len, Carries::AnyIp) })
}
