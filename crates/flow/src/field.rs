//! Fields of packets, by the names of OpenFlow 1.3 and Open vSwitch.

use crate::prerequisite::Prerequisite;

/// The form of a field's values in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Decimal number.
    Decimal,
    /// Hexadecimal number.
    Hexadecimal,
    /// MAC address.
    Ethernet,
    /// IPv4 address.
    Ipv4,
    /// IPv6 address.
    Ipv6,
    /// Name or number of a port.
    Port,
    /// Flags of TCP, such as `+syn-ack`.
    TcpFlags,
    /// Fragments: `no`, `yes`, `first`, `later`, `not_later`.
    Fragment,
    /// States of a connection, such as `+trk-new`.
    ConnectionState,
}

macro_rules! fields {
    ($(
        $(#[$doc:meta])+
        $name:ident: $bits:literal bits, $format:ident, needs $needs:ident, $mask:ident, $access:ident,
        nxm $nxm:literal, names [$($other:literal),+];
    )+) => {
        /// A field of a packet, or of what the switch knows about it.
        ///
        /// Some fields are part of another one, or another name of it: [`Field::whole`]. A
        /// [`Match`](crate::Match) and the actions have whole fields only.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Field {
            $($(#[$doc])+ $name,)+
        }

        impl Field {
            /// All fields.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the width in bits.
            #[must_use]
            pub const fn bits(self) -> u8 {
                match self { $(Self::$name => $bits,)+ }
            }

            /// Returns the form of values in text.
            #[must_use]
            pub const fn format(self) -> Format {
                match self { $(Self::$name => Format::$format,)+ }
            }

            /// Returns the condition under which packets have the field.
            #[must_use]
            pub const fn prerequisite(self) -> Prerequisite {
                match self { $(Self::$name => Prerequisite::$needs,)+ }
            }

            /// Returns whether a match may test some of the bits.
            #[must_use]
            pub const fn is_maskable(self) -> bool {
                match self { $(Self::$name => fields!(@masked $mask),)+ }
            }

            /// Returns whether actions may change the field.
            #[must_use]
            pub const fn is_writable(self) -> bool {
                match self { $(Self::$name => fields!(@writable $access),)+ }
            }

            /// Returns the name in `move` and `load`, such as `NXM_OF_ETH_SRC`.
            #[must_use]
            pub const fn nxm(self) -> &'static str {
                match self { $(Self::$name => $nxm,)+ }
            }

            /// Returns the names in matches and in `set_field`. The first one is the usual one.
            #[must_use]
            pub const fn names(self) -> &'static [&'static str] {
                match self { $(Self::$name => &[$($other),+],)+ }
            }
        }
    };

    (@masked masked) => { true };
    (@masked exact) => { false };
    (@writable written) => { true };
    (@writable read) => { false };
}

fields! {
    /// Identifier of a conjunction whose clauses all match.
    ConjId: 32 bits, Decimal, needs None, exact, read, nxm "NXM_NX_CONJ_ID", names ["conj_id"];
    /// Mark of the packet.
    PktMark: 32 bits, Hexadecimal, needs None, masked, written, nxm "NXM_NX_PKT_MARK", names ["pkt_mark"];
    /// State of the packet's connection, as the last [`Action::Ct`](crate::Action::Ct) found it: a bit for
    /// each of `new`, `est`, `rel`, `rpl`, `inv`, `trk`, `snat` and `dnat`, the lowest first. It is 0 before
    /// the first one.
    CtState: 32 bits, ConnectionState, needs None, masked, read, nxm "NXM_NX_CT_STATE", names ["ct_state"];
    /// Zone of the connection; 0 before the first search for it.
    CtZone: 16 bits, Decimal, needs None, exact, read, nxm "NXM_NX_CT_ZONE", names ["ct_zone"];
    /// First register. Registers are 0 when a packet enters the tables.
    Reg0: 32 bits, Hexadecimal, needs None, masked, written, nxm "NXM_NX_REG0", names ["reg0"];
    /// Second register.
    Reg1: 32 bits, Hexadecimal, needs None, masked, written, nxm "NXM_NX_REG1", names ["reg1"];
    /// Third register.
    Reg2: 32 bits, Hexadecimal, needs None, masked, written, nxm "NXM_NX_REG2", names ["reg2"];
    /// Fourth register.
    Reg3: 32 bits, Hexadecimal, needs None, masked, written, nxm "NXM_NX_REG3", names ["reg3"];
    /// Fifth register.
    Reg4: 32 bits, Hexadecimal, needs None, masked, written, nxm "NXM_NX_REG4", names ["reg4"];
    /// Sixth register.
    Reg5: 32 bits, Hexadecimal, needs None, masked, written, nxm "NXM_NX_REG5", names ["reg5"];
    /// Seventh register.
    Reg6: 32 bits, Hexadecimal, needs None, masked, written, nxm "NXM_NX_REG6", names ["reg6"];
    /// Eighth register.
    Reg7: 32 bits, Hexadecimal, needs None, masked, written, nxm "NXM_NX_REG7", names ["reg7"];
    /// Number of the port by which the packet came ([`PortNumber`](crate::PortNumber)).
    InPort: 16 bits, Port, needs None, exact, written, nxm "NXM_OF_IN_PORT", names ["in_port"];
    /// First VLAN tag without its type: 3 bits of priority, 1 bit that is 1 if there is a tag, 12
    /// bits of the identifier. It is 0 if there is no tag.
    VlanTci: 16 bits, Hexadecimal, needs None, masked, written, nxm "NXM_OF_VLAN_TCI", names ["vlan_tci"];
    /// Part of the tag: the identifier, and the bit above it that is 1 if there is a tag.
    VlanVid: 13 bits, Decimal, needs None, masked, written, nxm "OXM_OF_VLAN_VID", names ["vlan_vid"];
    /// Part of the tag: the priority.
    VlanPcp: 3 bits, Decimal, needs Vlan, exact, written, nxm "OXM_OF_VLAN_PCP", names ["vlan_pcp"];
    /// Source MAC address.
    EthSrc: 48 bits, Ethernet, needs None, masked, written, nxm "NXM_OF_ETH_SRC", names ["eth_src", "dl_src"];
    /// Destination MAC address.
    EthDst: 48 bits, Ethernet, needs None, masked, written, nxm "NXM_OF_ETH_DST", names ["eth_dst", "dl_dst"];
    /// Type of the Ethernet frame, behind its VLAN tags.
    EthType: 16 bits, Hexadecimal, needs None, exact, read, nxm "NXM_OF_ETH_TYPE", names ["eth_type", "dl_type"];
    /// IPv4 source address.
    IpSrc: 32 bits, Ipv4, needs Ipv4, masked, written, nxm "NXM_OF_IP_SRC", names ["nw_src", "ip_src"];
    /// IPv4 destination address.
    IpDst: 32 bits, Ipv4, needs Ipv4, masked, written, nxm "NXM_OF_IP_DST", names ["nw_dst", "ip_dst"];
    /// IPv6 source address.
    Ipv6Src: 128 bits, Ipv6, needs Ipv6, masked, written, nxm "NXM_NX_IPV6_SRC", names ["ipv6_src"];
    /// IPv6 destination address.
    Ipv6Dst: 128 bits, Ipv6, needs Ipv6, masked, written, nxm "NXM_NX_IPV6_DST", names ["ipv6_dst"];
    /// IPv6 flow label.
    Ipv6Label: 20 bits, Hexadecimal, needs Ipv6, masked, written, nxm "NXM_NX_IPV6_LABEL", names ["ipv6_label"];
    /// IP protocol: the next-header field of the last extension header in IPv6.
    IpProto: 8 bits, Decimal, needs Ip, exact, read, nxm "NXM_OF_IP_PROTO", names ["nw_proto", "ip_proto"];
    /// Traffic class of IPv6, or type of service of IPv4: 6 bits DSCP and 2 bits ECN. Text has the
    /// DSCP in its place, and no ECN.
    IpTos: 8 bits, Decimal, needs Ip, exact, written, nxm "NXM_OF_IP_TOS", names ["nw_tos"];
    /// Part of the traffic class: the DSCP.
    IpDscp: 6 bits, Decimal, needs Ip, exact, written, nxm "OXM_OF_IP_DSCP", names ["ip_dscp"];
    /// Part of the traffic class: the ECN bits.
    IpEcn: 2 bits, Decimal, needs Ip, exact, written, nxm "NXM_NX_IP_ECN", names ["nw_ecn", "ip_ecn"];
    /// Time to live, or hop limit.
    IpTtl: 8 bits, Decimal, needs Ip, exact, written, nxm "NXM_NX_IP_TTL", names ["nw_ttl"];
    /// Fragments: bit 0 is set for each fragment, bit 1 for each but the first one.
    IpFrag: 2 bits, Fragment, needs Ip, masked, read, nxm "NXM_NX_IP_FRAG", names ["nw_frag", "ip_frag"];
    /// Operation of ARP. Values above 255 are 0, as in OvS.
    ArpOp: 16 bits, Decimal, needs Arp, exact, written, nxm "NXM_OF_ARP_OP", names ["arp_op"];
    /// Sender's IPv4 address in ARP.
    ArpSpa: 32 bits, Ipv4, needs Arp, masked, written, nxm "NXM_OF_ARP_SPA", names ["arp_spa"];
    /// Target's IPv4 address in ARP.
    ArpTpa: 32 bits, Ipv4, needs Arp, masked, written, nxm "NXM_OF_ARP_TPA", names ["arp_tpa"];
    /// Sender's MAC address in ARP.
    ArpSha: 48 bits, Ethernet, needs Arp, masked, written, nxm "NXM_NX_ARP_SHA", names ["arp_sha"];
    /// Target's MAC address in ARP.
    ArpTha: 48 bits, Ethernet, needs Arp, masked, written, nxm "NXM_NX_ARP_THA", names ["arp_tha"];
    /// Source port of TCP, UDP or SCTP.
    TpSrc: 16 bits, Decimal, needs Ports, masked, written, nxm "NXM_OF_TCP_SRC", names ["tp_src"];
    /// Destination port of TCP, UDP or SCTP.
    TpDst: 16 bits, Decimal, needs Ports, masked, written, nxm "NXM_OF_TCP_DST", names ["tp_dst"];
    /// Source port of TCP.
    TcpSrc: 16 bits, Decimal, needs Tcp, masked, written, nxm "NXM_OF_TCP_SRC", names ["tcp_src"];
    /// Destination port of TCP.
    TcpDst: 16 bits, Decimal, needs Tcp, masked, written, nxm "NXM_OF_TCP_DST", names ["tcp_dst"];
    /// Source port of UDP.
    UdpSrc: 16 bits, Decimal, needs Udp, masked, written, nxm "NXM_OF_UDP_SRC", names ["udp_src"];
    /// Destination port of UDP.
    UdpDst: 16 bits, Decimal, needs Udp, masked, written, nxm "NXM_OF_UDP_DST", names ["udp_dst"];
    /// Source port of SCTP.
    SctpSrc: 16 bits, Decimal, needs Sctp, masked, written, nxm "OXM_OF_SCTP_SRC", names ["sctp_src"];
    /// Destination port of SCTP.
    SctpDst: 16 bits, Decimal, needs Sctp, masked, written, nxm "OXM_OF_SCTP_DST", names ["sctp_dst"];
    /// Flags of TCP: the last 12 bits of the word that has them.
    TcpFlags: 12 bits, TcpFlags, needs Tcp, masked, read, nxm "NXM_NX_TCP_FLAGS", names ["tcp_flags"];
    /// Type of ICMP or ICMPv6.
    IcmpType: 8 bits, Decimal, needs Icmp, exact, written, nxm "NXM_OF_ICMP_TYPE", names ["icmp_type"];
    /// Code of ICMP or ICMPv6.
    IcmpCode: 8 bits, Decimal, needs Icmp, exact, written, nxm "NXM_OF_ICMP_CODE", names ["icmp_code"];
    /// Type of ICMPv6.
    Icmpv6Type: 8 bits, Decimal, needs Icmpv6, exact, written, nxm "NXM_NX_ICMPV6_TYPE", names ["icmpv6_type"];
    /// Code of ICMPv6.
    Icmpv6Code: 8 bits, Decimal, needs Icmpv6, exact, written, nxm "NXM_NX_ICMPV6_CODE", names ["icmpv6_code"];
    /// Target of neighbour discovery.
    NdTarget: 128 bits, Ipv6, needs Nd, masked, written, nxm "NXM_NX_ND_TARGET", names ["nd_target"];
    /// Source link-layer address of a neighbour solicitation.
    NdSll: 48 bits, Ethernet, needs NdSolicit, masked, written, nxm "NXM_NX_ND_SLL", names ["nd_sll"];
    /// Target link-layer address of a neighbour advertisement.
    NdTll: 48 bits, Ethernet, needs NdAdvert, masked, written, nxm "NXM_NX_ND_TLL", names ["nd_tll"];
}

/// Bit of [`Field::VlanTci`] that is 1 if the packet has a VLAN tag.
pub const VLAN_PRESENT: u16 = 0x1000;

impl Field {
    /// The registers.
    pub const REGISTERS: [Self; 8] =
        [Self::Reg0, Self::Reg1, Self::Reg2, Self::Reg3, Self::Reg4, Self::Reg5, Self::Reg6, Self::Reg7];

    /// Returns the field that holds this one, and the place of this one's lowest bit there. A whole
    /// field holds itself.
    #[must_use]
    pub const fn whole(self) -> (Self, u8) {
        match self {
            Self::VlanVid => (Self::VlanTci, 0),
            Self::VlanPcp => (Self::VlanTci, 13),
            Self::IpDscp => (Self::IpTos, 2),
            Self::IpEcn => (Self::IpTos, 0),
            Self::TcpSrc | Self::UdpSrc | Self::SctpSrc => (Self::TpSrc, 0),
            Self::TcpDst | Self::UdpDst | Self::SctpDst => (Self::TpDst, 0),
            Self::Icmpv6Type => (Self::IcmpType, 0),
            Self::Icmpv6Code => (Self::IcmpCode, 0),
            whole => (whole, 0),
        }
    }

    /// Returns whether the field holds itself.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.whole() == (self, 0)
    }

    /// Returns the greatest value, which is also the mask of all bits.
    #[must_use]
    pub const fn greatest(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// Returns the usual name in matches.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.names()[0]
    }

    /// Returns the field of a name: a usual one, one of NXM or one of OXM. Case does not matter.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        let is_named = |field: &Self| {
            let short = field.names().iter().any(|known| known.eq_ignore_ascii_case(name));
            short || (field.is_first_of_nxm() && field.nxm().eq_ignore_ascii_case(name))
        };
        Self::ALL.iter().copied().find(is_named).or_else(|| oxm(name))
    }

    /// Returns whether [`Self::nxm`] means this field: ports of all protocols have the name of TCP's.
    fn is_first_of_nxm(self) -> bool {
        !matches!(self, Self::TpSrc | Self::TpDst)
    }
}

/// Names of OXM, which differ from those of NXM for these fields.
const OXM: &[(&str, Field)] = &[
    ("OXM_OF_ETH_SRC", Field::EthSrc),
    ("OXM_OF_ETH_DST", Field::EthDst),
    ("OXM_OF_ETH_TYPE", Field::EthType),
    ("OXM_OF_IPV4_SRC", Field::IpSrc),
    ("OXM_OF_IPV4_DST", Field::IpDst),
    ("OXM_OF_IPV6_SRC", Field::Ipv6Src),
    ("OXM_OF_IPV6_DST", Field::Ipv6Dst),
    ("OXM_OF_IPV6_FLABEL", Field::Ipv6Label),
    ("OXM_OF_IP_PROTO", Field::IpProto),
    ("OXM_OF_IP_ECN", Field::IpEcn),
    ("OXM_OF_ARP_OP", Field::ArpOp),
    ("OXM_OF_ARP_SPA", Field::ArpSpa),
    ("OXM_OF_ARP_TPA", Field::ArpTpa),
    ("OXM_OF_ARP_SHA", Field::ArpSha),
    ("OXM_OF_ARP_THA", Field::ArpTha),
    ("OXM_OF_TCP_SRC", Field::TcpSrc),
    ("OXM_OF_TCP_DST", Field::TcpDst),
    ("OXM_OF_TCP_FLAGS", Field::TcpFlags),
    ("ONFOXM_ET_TCP_FLAGS", Field::TcpFlags),
    ("OXM_OF_UDP_SRC", Field::UdpSrc),
    ("OXM_OF_UDP_DST", Field::UdpDst),
    ("OXM_OF_ICMPV4_TYPE", Field::IcmpType),
    ("OXM_OF_ICMPV4_CODE", Field::IcmpCode),
    ("OXM_OF_ICMPV6_TYPE", Field::Icmpv6Type),
    ("OXM_OF_ICMPV6_CODE", Field::Icmpv6Code),
    ("OXM_OF_IPV6_ND_TARGET", Field::NdTarget),
    ("OXM_OF_IPV6_ND_SLL", Field::NdSll),
    ("OXM_OF_IPV6_ND_TLL", Field::NdTll),
];

fn oxm(name: &str) -> Option<Field> {
    OXM.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, field)| *field)
}

/// Some consecutive bits of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subfield {
    /// The field, as text names it. It may be part of another one.
    pub field: Field,
    /// Place of the lowest bit.
    pub offset: u8,
    /// Number of bits, at least 1.
    pub bits: u8,
}

impl Subfield {
    /// Creates the subfield of all bits.
    #[must_use]
    pub const fn all(field: Field) -> Self {
        Self { field, offset: 0, bits: field.bits() }
    }

    /// Returns the same bits as bits of the whole field.
    #[must_use]
    pub const fn whole(self) -> Self {
        let (field, shift) = self.field.whole();
        Self { field, offset: self.offset + shift, bits: self.bits }
    }

    /// Returns the bits of a value of the field.
    #[must_use]
    pub const fn of(self, value: u128) -> u128 {
        (value >> self.offset) & (u128::MAX >> (128 - self.bits))
    }

    /// Returns the mask of the bits in the field.
    #[must_use]
    pub const fn mask(self) -> u128 {
        (u128::MAX >> (128 - self.bits)) << self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_field() {
        for &field in Field::ALL {
            for name in field.names() {
                assert_eq!(Field::find(name), Some(field), "{name}");
            }
            if field.is_first_of_nxm() {
                assert_eq!(Field::find(field.nxm()), Some(field), "{}", field.nxm());
            }
        }
        assert_eq!(Field::find("nxm_of_tcp_src"), Some(Field::TcpSrc));
        assert_eq!(Field::find("OXM_OF_IPV6_FLABEL"), Some(Field::Ipv6Label));
        assert_eq!(Field::find("reg8"), None);
    }

    #[test]
    fn parts_lie_in_whole_fields() {
        for &field in Field::ALL {
            let (whole, shift) = field.whole();
            assert!(whole.is_whole(), "{field:?}");
            assert!(shift + field.bits() <= whole.bits(), "{field:?}");
            assert_eq!(Subfield::all(field).whole().mask() >> shift, field.greatest());
        }
        let priority = Subfield { field: Field::VlanPcp, offset: 1, bits: 2 }.whole();
        assert_eq!(priority, Subfield { field: Field::VlanTci, offset: 14, bits: 2 });
        assert_eq!(priority.of(0xa005), 2);
    }
}
