//! ICMP errors: the packet that an error quotes, and so the connection that it is about.

use straightline_wire::{IpProtocol, icmpv4, ipv4, ipv6};

use super::facts::{Facts, Flow, Packet, SCTP, mapped, query};

/// Quoted bytes of a transport header that every error has (RFC 792).
const QUOTED: usize = 8;

impl Packet<'_> {
    /// Reads the packet that an error quotes. Its sender must be the receiver of the error.
    pub(super) fn error(&self, error: Flow) -> Facts {
        match self.quoted(&error) {
            Some((about, seq)) if about.src == error.dst => Facts::Error { about, seq },
            _ => Facts::Damaged,
        }
    }

    fn quoted(&self, error: &Flow) -> Option<(Flow, Option<u32>)> {
        let quoted = self.head.get(usize::from(self.headers.l4) + icmpv4::LEN..self.head.len().min(self.end()?))?;
        let (mut about, rest) = if error.is_ipv6 {
            let header = quoted.first_chunk::<{ ipv6::LEN }>()?;
            let walked = ipv6::skip_extensions(&quoted[ipv6::LEN..], IpProtocol(header[6])).ok()?;
            if header[0] >> 4 != 6 || walked.fragment {
                return None;
            }
            let src = *header[8..].first_chunk()?;
            let dst = *header[24..].first_chunk()?;
            let flow = Flow { is_ipv6: true, protocol: walked.protocol.0, src, dst, ..Flow::default() };
            (flow, quoted.get(ipv6::LEN + walked.len..)?)
        } else {
            let header = quoted.first_chunk::<{ ipv4::MIN_LEN }>()?;
            let header_len = usize::from(header[0] & 0x0f) * 4;
            let is_later = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
            if header[0] >> 4 != 4 || header_len < ipv4::MIN_LEN || is_later {
                return None;
            }
            let flow =
                Flow { protocol: header[9], src: mapped(header, 12)?, dst: mapped(header, 16)?, ..Flow::default() };
            (flow, quoted.get(header_len..)?)
        };
        about.vlan = error.vlan;
        about.icmp = error.icmp;
        let front = rest.first_chunk::<QUOTED>()?;
        let half = |at: usize| u16::from_be_bytes([front[at], front[at + 1]]);
        let mut seq = None;
        if about.is_icmp() {
            // Errors are about queries and their answers, and never about errors (RFC 1122, 3.2.2).
            about.query = Some(query(about.is_ipv6, front[0], half(4))?);
            about.icmp = [front[0], front[1]];
        } else if [IpProtocol::TCP.0, IpProtocol::UDP.0, SCTP].contains(&about.protocol) {
            (about.src_port, about.dst_port) = (half(0), half(2));
            let number = u32::from_be_bytes([front[4], front[5], front[6], front[7]]);
            seq = (about.protocol == IpProtocol::TCP.0).then_some(number);
        }
        Some((about, seq))
    }
}
