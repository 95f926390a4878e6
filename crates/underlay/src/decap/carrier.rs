//! The headers that carry a tunnel: Ethernet, a VLAN tag, IPv4 or IPv6.

use std::net::IpAddr;

use straightline_packet::Reason;
use straightline_wire::{EtherType, IpProtocol, ethernet, ipv4, ipv6, vlan};

use crate::Underlay;
use crate::kind::{BAD_HEADER, Refusal};
use crate::tunnel::lookup::Ends;

/// Type of an option that a receiver may skip if it does not know it: the two highest bits are 0
/// (RFC 8200, 4.2).
const MUST_KNOW: u8 = 0xc0;

/// The option that is one byte of padding.
const PAD1: u8 = 0;

/// The headers up to the first that a tunnel has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    /// The addresses.
    pub(crate) ends: Ends,
    /// The protocol behind the IP header and its extensions.
    pub(crate) protocol: IpProtocol,
    /// Type of service or traffic class.
    pub(crate) tos: u8,
    /// Offset of the header behind IP.
    pub(crate) l4: usize,
    /// Offset of the IP packet's end. Padding may follow.
    pub(crate) end: usize,
}

impl Carrier {
    /// Reads the headers of a packet of `len` bytes for our MAC address.
    #[inline]
    pub(crate) fn parse(head: &[u8], len: usize, underlay: &Underlay) -> Result<Self, Refusal> {
        let (ether_type, l3) = match underlay.config.vlan {
            None => (ether_type_at(head, ethernet::LEN), ethernet::LEN),
            Some(vid) => {
                let tag = head.get(vlan::OFFSET..).and_then(|rest| vlan::Tag::parse(rest).ok());
                tag.filter(|tag| tag.tpid == EtherType::VLAN && tag.vid == vid).ok_or(Refusal::Other)?;
                (ether_type_at(head, ethernet::LEN + vlan::LEN), ethernet::LEN + vlan::LEN)
            }
        };
        let packet = head.get(l3..).unwrap_or_default();
        let carrier = match ether_type {
            Some(EtherType::IPV4) => Self::parse_v4(packet, l3, underlay)?,
            Some(EtherType::IPV6) => Self::parse_v6(packet, l3, underlay)?,
            _ => return Err(Refusal::Other),
        };
        if carrier.end > len { Err(BAD_HEADER) } else { Ok(carrier) }
    }

    #[inline]
    fn parse_v4(packet: &[u8], l3: usize, underlay: &Underlay) -> Result<Self, Refusal> {
        let header = ipv4::Header::new_checked(packet).map_err(|_| BAD_HEADER)?;
        if !header.checksum_ok() {
            return Err(Refusal::Drop(Reason::TunnelChecksum));
        }
        if header.is_fragment() {
            return Err(fragment(underlay, header.dst().into()));
        }
        // Nobody sends 0. We are the last hop, so 1 suffices (RFC 1122, 3.2.1.7).
        if header.ttl() == 0 {
            return Err(BAD_HEADER);
        }
        let remote = header.src().to_bits().into();
        let local = header.dst().to_bits().into();
        Ok(Carrier {
            ends: Ends { remote, local, is_v4: true },
            protocol: header.protocol(),
            tos: header.tos(),
            l4: l3 + header.header_len(),
            end: l3 + usize::from(header.total_len()),
        })
    }

    #[inline]
    fn parse_v6(packet: &[u8], l3: usize, underlay: &Underlay) -> Result<Self, Refusal> {
        let header = ipv6::Header::new_checked(packet).map_err(|_| BAD_HEADER)?;
        if header.hop_limit() == 0 {
            return Err(BAD_HEADER);
        }
        let remote = header.src().to_bits();
        let local = header.dst().to_bits();
        let l4 = l3 + ipv6::LEN;
        let carrier = Carrier {
            ends: Ends { remote, local, is_v4: false },
            protocol: header.next_header(),
            tos: header.traffic_class(),
            l4,
            end: l4 + usize::from(header.payload_len()),
        };
        match carrier.protocol {
            IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::FRAGMENT | IpProtocol::DESTINATION_OPTIONS => {
                carrier.behind_extensions(&packet[ipv6::LEN..], underlay)
            }
            _ => Ok(carrier),
        }
    }

    /// Steps over extension headers, which `bytes` begin with. Linux, for example, sends the option
    /// "tunnel encapsulation limit" (RFC 2473, 4.1.1) in GRE over IPv6. A translator from IPv4 may
    /// send a fragment header in a packet that is whole (RFC 6946).
    #[cold]
    fn behind_extensions(self, bytes: &[u8], underlay: &Underlay) -> Result<Self, Refusal> {
        let bytes = &bytes[..bytes.len().min(self.end - self.l4)];
        let walked = ipv6::skip_extensions(bytes, self.protocol).map_err(|_| BAD_HEADER)?;
        let mut len = walked.len;
        if walked.fragment {
            len -= ipv6::FRAGMENT_LEN;
            if !ipv6::is_atomic_fragment(&bytes[len..]).map_err(|_| BAD_HEADER)? {
                return Err(fragment(underlay, self.ends.local()));
            }
        }
        check_extensions(&bytes[..len], self.protocol)?;
        let mut protocol = walked.protocol;
        let mut l4 = self.l4 + walked.len;
        if walked.fragment {
            // Both were right in front of the fragment header only.
            let rest = &bytes[walked.len..];
            if matches!(protocol, IpProtocol::HOP_BY_HOP | IpProtocol::FRAGMENT) {
                return Err(BAD_HEADER);
            }
            let behind = ipv6::skip_extensions(rest, protocol).map_err(|_| BAD_HEADER)?;
            if behind.fragment {
                return Err(BAD_HEADER);
            }
            check_extensions(&rest[..behind.len], protocol)?;
            (protocol, l4) = (behind.protocol, l4 + behind.len);
        }
        Ok(Carrier { protocol, l4, ..self })
    }

    /// Returns the sum of the pseudo-header without its length, not folded.
    #[inline]
    pub(crate) fn pseudo_words(&self) -> u64 {
        let Ends { remote, local, .. } = self.ends;
        words(remote) + words(local) + u64::from(self.protocol.0)
    }
}

#[inline]
fn ether_type_at(head: &[u8], end: usize) -> Option<EtherType> {
    Some(EtherType(u16::from_be_bytes(*head.get(..end)?.last_chunk()?)))
}

/// Refuses a fragment: of a packet for us as such.
fn fragment(underlay: &Underlay, local: IpAddr) -> Refusal {
    if underlay.is_own(local) { Refusal::Drop(Reason::Fragment) } else { Refusal::Other }
}

/// Checks the extension headers in `rest`, of which none is a fragment header. `protocol` is the
/// type of the first.
fn check_extensions(mut rest: &[u8], mut protocol: IpProtocol) -> Result<(), Refusal> {
    while let [next, units, ..] = *rest {
        let (extension, behind) = rest.split_at_checked((usize::from(units) + 1) * 8).ok_or(BAD_HEADER)?;
        match protocol {
            // Somebody else is the final destination (RFC 8200, 4.4).
            IpProtocol::ROUTING if extension[3] != 0 => return Err(Refusal::Drop(Reason::NotOurs)),
            IpProtocol::ROUTING => {}
            _ => check_options(&extension[2..])?,
        }
        (rest, protocol) = (behind, IpProtocol(next));
    }
    Ok(())
}

/// Checks that no option must be known (RFC 8200, 4.2). We know none but padding, which may be
/// skipped.
fn check_options(mut options: &[u8]) -> Result<(), Refusal> {
    while let Some((&option, rest)) = options.split_first() {
        if option == PAD1 {
            options = rest;
            continue;
        }
        if option & MUST_KNOW != 0 {
            return Err(Refusal::Drop(Reason::TunnelOption));
        }
        let (&len, data) = rest.split_first().ok_or(BAD_HEADER)?;
        options = data.get(usize::from(len)..).ok_or(BAD_HEADER)?;
    }
    Ok(())
}

/// Returns the sum of an address's 32-bit words. Folded, it is the sum of its 16-bit words.
#[inline]
fn words(address: u128) -> u64 {
    let bytes = address.to_be_bytes();
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|&word| u64::from(u32::from_be_bytes(word))).sum()
}
