//! GRE (RFC 2784, 2890). NVGRE is received here as well: [`Form::GreKeyed`].

use straightline_wire::{EtherType, IpProtocol, gre};

use super::{BAD_HEADER, Carries, Form, Parsed, Refusal, Sealed, Traits, Varying};

pub(super) fn traits(key: Option<u32>, checksum: bool, ip: bool) -> Traits {
    let protocol = if ip { EtherType(0) } else { EtherType::ETHERNET };
    let repr = gre::Repr { protocol, checksum: checksum.then_some(0), key, sequence: None };
    let form = if key.is_some() { Form::GreKeyed } else { Form::Gre };
    let traits = Traits::in_ip("gre", form, key.unwrap_or(0), IpProtocol::GRE, |to| repr.emit(to));
    Traits {
        carries_ip: ip,
        sealed: if checksum { Sealed::Gre } else { Sealed::Nothing },
        varying: ip.then_some((Varying::EtherType, 2)),
        ..traits.keyed(key.map_or_else(|| "gre without key".to_owned(), |key| format!("key {key}")))
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Refusal> {
    let header = gre::Header::new_checked(bytes).map_err(|_| BAD_HEADER)?;
    let carries = match header.protocol() {
        EtherType::ETHERNET => Carries::Ethernet,
        ip @ (EtherType::IPV4 | EtherType::IPV6) => Carries::Ip(ip),
        _ => return Err(BAD_HEADER),
    };
    let (form, key) = header.key().map_or((Form::Gre, 0), |key| (Form::GreKeyed, key));
    let has_checksum = header.checksum().is_some();
    Ok(Parsed { has_checksum, ..Parsed::new(form, key, header.header_len(), carries) })
}
