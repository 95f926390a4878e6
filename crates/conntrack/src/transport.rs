//! The facts of a packet's transport header that change the state of its connection.

use straightline_wire::tcp::Flags;

/// The facts of a packet, by its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A TCP segment.
    Tcp(Segment),
    /// A packet of any other protocol. An ICMP packet is a query or its answer; errors are looked up
    /// by the packet that they quote.
    Other,
}

/// The facts of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Flags of the header.
    pub flags: u8,
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Window, as it stands in the header.
    pub window: u16,
    /// Number of bytes behind the header, up to the end of the IP packet.
    pub len: u32,
    /// Window scale (RFC 7323). Only that of a segment with SYN is looked at.
    pub scale: Option<u8>,
}

/// The kind of a segment: the flag that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Syn,
    SynAck,
    Fin,
    Ack,
    Rst,
}

impl Segment {
    #[inline]
    pub(crate) fn has(&self, flags: Flags) -> bool {
        Flags(self.flags).contains(flags)
    }

    /// Returns the sequence number behind the segment. SYN and FIN have one each.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        let marks = u32::from(self.has(Flags::SYN)) + u32::from(self.has(Flags::FIN));
        self.seq.wrapping_add(self.len).wrapping_add(marks)
    }

    /// Returns the kind of a segment; none for a combination of flags that no station sends.
    #[inline]
    pub(crate) fn kind(&self) -> Option<Kind> {
        const FIN: u8 = Flags::FIN.0;
        const SYN: u8 = Flags::SYN.0;
        const RST: u8 = Flags::RST.0;
        const ACK: u8 = Flags::ACK.0;
        const URG: u8 = Flags::URG.0;
        const SYN_ACK: u8 = SYN | ACK;
        const SYN_URG: u8 = SYN | URG;
        const ACK_URG: u8 = ACK | URG;
        const FIN_ACK: u8 = FIN | ACK;
        const FIN_ACK_URG: u8 = FIN | ACK | URG;
        const RST_ACK: u8 = RST | ACK;
        // PSH, ECE and CWR may stand with all others.
        match self.flags & (FIN | SYN | RST | ACK | URG) {
            ACK | ACK_URG => Some(Kind::Ack),
            SYN | SYN_URG => Some(Kind::Syn),
            SYN_ACK => Some(Kind::SynAck),
            FIN_ACK | FIN_ACK_URG => Some(Kind::Fin),
            RST | RST_ACK => Some(Kind::Rst),
            _ => None,
        }
    }
}
