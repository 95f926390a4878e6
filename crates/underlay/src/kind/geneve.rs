//! Geneve (RFC 8926).

use straightline_packet::Reason;
use straightline_wire::{EtherType, geneve};

use super::{BAD_HEADER, CONTROL, Carries, Form, Parsed, Refusal, Traits};

pub(super) const PORT: u16 = geneve::PORT;

pub(super) fn traits(vni: u32, options: &[u8]) -> Traits {
    let repr = geneve::Repr { protocol: EtherType::ETHERNET, vni, options };
    Traits::in_udp("geneve", Form::Geneve, vni, PORT, |to| repr.emit(to)).keyed(format!("vni {vni}"))
}

/// Reads a header of a packet for the tunnel's inside. No option must be known: we know none. The
/// options themselves tell, so the header's flag of critical ones adds nothing (RFC 8926, 3.4).
#[inline]
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Refusal> {
    let header = geneve::Header::new_checked(bytes).map_err(|_| BAD_HEADER)?;
    if header.is_control() {
        return Err(CONTROL);
    }
    if header.protocol() != EtherType::ETHERNET {
        return Err(BAD_HEADER);
    }
    for option in header.options() {
        if option.map_err(|_| BAD_HEADER)?.is_critical() {
            return Err(Refusal::Drop(Reason::TunnelOption));
        }
    }
    Ok(Parsed::new(Form::Geneve, header.vni(), header.header_len(), Carries::Ethernet))
}
