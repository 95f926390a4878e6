//! Columns: the fields that rules test, each in words of at most 32 bits.

/// Number of columns.
pub const COLUMNS: usize = Column::ALL.len();

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident: $bits:literal,)*) => {
        /// A field of a packet's key, or a word of 32 bits of a longer field.
        ///
        /// Values are numbers in host order. A field that a packet does not have is 0: a rule that
        /// tests it also tests the field that says so, such as the EtherType.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Column {
            $($(#[$doc])* $name,)*
        }

        impl Column {
            /// All columns, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the number of bits of a value.
            #[must_use]
            pub const fn bits(self) -> u32 {
                match self {
                    $(Self::$name => $bits,)*
                }
            }
        }
    };
}

columns! {
    /// Port of the switch by which the packet came.
    InPort: 32,
    /// VLAN tag: its identifier, with whatever bits of the tag the caller adds.
    Vlan: 16,
    /// First 16 bits of the destination MAC address.
    EthDstHigh: 16,
    /// Last 32 bits of the destination MAC address.
    EthDstLow: 32,
    /// First 16 bits of the source MAC address.
    EthSrcHigh: 16,
    /// Last 32 bits of the source MAC address.
    EthSrcLow: 32,
    /// EtherType.
    EtherType: 16,
    /// First word of an IPv6 source address.
    IpSrc0: 32,
    /// Second word.
    IpSrc1: 32,
    /// Third word.
    IpSrc2: 32,
    /// Last word of an IPv6 source address, or an IPv4 source address, or the sender's in ARP.
    IpSrc3: 32,
    /// First word of an IPv6 destination address.
    IpDst0: 32,
    /// Second word.
    IpDst1: 32,
    /// Third word.
    IpDst2: 32,
    /// Last word of an IPv6 destination address, or an IPv4 destination address, or the target's in
    /// ARP.
    IpDst3: 32,
    /// IP protocol, or operation of ARP.
    Protocol: 8,
    /// Source port of TCP, UDP or SCTP.
    SrcPort: 16,
    /// Destination port of TCP, UDP or SCTP.
    DstPort: 16,
    /// Flags of TCP.
    TcpFlags: 16,
    /// Type of ICMP or ICMPv6.
    IcmpType: 8,
    /// Code of ICMP or ICMPv6.
    IcmpCode: 8,
    /// State of the packet's connection.
    ConnectionState: 8,
    /// Zone of the packet's connection.
    ConnectionZone: 16,
    /// Mark of the packet.
    Mark: 32,
    /// Conjunction that the packet completes: a number that a first search has found.
    Conjunction: 32,
    /// Type of service of IPv4, or traffic class of IPv6.
    Tos: 8,
    /// Time to live, or hop limit.
    Ttl: 8,
    /// Fragments: bit 0 is set for each fragment, bit 1 for each but the first one.
    Fragment: 2,
    /// IPv6 flow label.
    FlowLabel: 20,
    /// First 16 bits of the sender's MAC address in ARP, or of the source link-layer address in
    /// neighbour discovery.
    ShaHigh: 16,
    /// Last 32 bits of it.
    ShaLow: 32,
    /// First 16 bits of the target's MAC address in ARP, or of the target link-layer address in
    /// neighbour discovery.
    ThaHigh: 16,
    /// Last 32 bits of it.
    ThaLow: 32,
    /// First word of the target of neighbour discovery.
    NdTarget0: 32,
    /// Second word.
    NdTarget1: 32,
    /// Third word.
    NdTarget2: 32,
    /// Last word.
    NdTarget3: 32,
    /// First register: a word that earlier tables have written.
    Reg0: 32,
    /// Second register.
    Reg1: 32,
    /// Third register.
    Reg2: 32,
    /// Fourth register.
    Reg3: 32,
    /// Fifth register.
    Reg4: 32,
    /// Sixth register.
    Reg5: 32,
    /// Seventh register.
    Reg6: 32,
    /// Eighth register.
    Reg7: 32,
}

impl Column {
    /// The words of an IPv6 source address, first word first.
    pub const IP_SRC: [Self; 4] = [Self::IpSrc0, Self::IpSrc1, Self::IpSrc2, Self::IpSrc3];

    /// The words of an IPv6 destination address, first word first.
    pub const IP_DST: [Self; 4] = [Self::IpDst0, Self::IpDst1, Self::IpDst2, Self::IpDst3];

    /// The words of the target of neighbour discovery, first word first.
    pub const ND_TARGET: [Self; 4] = [Self::NdTarget0, Self::NdTarget1, Self::NdTarget2, Self::NdTarget3];

    /// The registers.
    pub const REGISTERS: [Self; 8] =
        [Self::Reg0, Self::Reg1, Self::Reg2, Self::Reg3, Self::Reg4, Self::Reg5, Self::Reg6, Self::Reg7];

    /// Returns the greatest value.
    #[must_use]
    pub const fn greatest(self) -> u32 {
        u32::MAX >> (32 - self.bits())
    }
}
