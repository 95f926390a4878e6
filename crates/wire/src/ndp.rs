//! Neighbour discovery for IPv6, RFC 4861: the ICMPv6 messages that announce the link-layer address
//! of a node.
//!
//! ```text
//! | type 1 | code 1 | checksum 2 | fields, 4 to 36 bytes by type | options: type 1, length 1 (in 8 bytes), data | ...
//! ```

use std::net::Ipv6Addr;

use crate::field::{cleared, get, put};
use crate::{MacAddr, WireError};

const TYPE: usize = 0;

/// Offset of the flags of a neighbour advertisement.
const FLAGS: usize = 4;

/// Offset of the target address, in messages that have one.
const TARGET: usize = 8;

/// Unit of an option's length field, and the length of an option with a MAC address (RFC 4861,
/// 4.6.1).
const UNIT: usize = 8;

/// Type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OptionType(pub u8);

impl OptionType {
    /// The link-layer address of the sender.
    pub const SOURCE_LINK_ADDRESS: Self = Self(1);
    /// The link-layer address of the target.
    pub const TARGET_LINK_ADDRESS: Self = Self(2);
}

/// Flags of a neighbour advertisement (RFC 4861, 4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The sender is a router.
    pub const ROUTER: Self = Self(0x80);
    /// The advertisement answers a solicitation.
    pub const SOLICITED: Self = Self(0x40);
    /// The address replaces the one that the receiver knows.
    pub const OVERRIDE: Self = Self(0x20);

    /// Returns these flags and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Messages of neighbour discovery. The number of each is its ICMPv6 type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A host asks for routers.
    RouterSolicitation = 133,
    /// A router announces itself.
    RouterAdvertisement = 134,
    /// A node asks for a neighbour's link-layer address.
    NeighborSolicitation = 135,
    /// A node announces its link-layer address.
    NeighborAdvertisement = 136,
    /// A router names a better first hop.
    Redirect = 137,
}

impl Kind {
    /// Returns the message of an ICMPv6 type; `None` if the type is not one of neighbour discovery.
    #[must_use]
    pub fn of(icmp_type: u8) -> Option<Self> {
        Some(match icmp_type {
            133 => Self::RouterSolicitation,
            134 => Self::RouterAdvertisement,
            135 => Self::NeighborSolicitation,
            136 => Self::NeighborAdvertisement,
            137 => Self::Redirect,
            _ => return None,
        })
    }

    /// Returns the length of the message without options (RFC 4861, 4.1 to 4.5).
    #[must_use]
    pub fn fixed_len(self) -> usize {
        match self {
            Self::RouterSolicitation => 8,
            Self::RouterAdvertisement => 16,
            Self::NeighborSolicitation | Self::NeighborAdvertisement => 24,
            Self::Redirect => 40,
        }
    }

    fn has_target(self) -> bool {
        matches!(self, Self::NeighborSolicitation | Self::NeighborAdvertisement | Self::Redirect)
    }
}

/// View of a message. The bytes may be shorter than the message. The options beyond their end are
/// then not visible.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
    kind: Kind,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the message at the beginning of `bytes`. It begins with the ICMPv6 type.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if `bytes` ends before the options begin; [`WireError::BadValue`]
    /// if the ICMPv6 type is not one of neighbour discovery.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        let visible = bytes.as_ref();
        let kind = Kind::of(*visible.get(TYPE).ok_or(WireError::Truncated)?).ok_or(WireError::BadValue)?;
        if visible.len() < kind.fixed_len() { Err(WireError::Truncated) } else { Ok(Self { bytes, kind }) }
    }

    /// Returns the kind of the message.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the flags of a neighbour advertisement; none for other messages.
    #[must_use]
    pub fn flags(&self) -> Flags {
        let has_flags = self.kind == Kind::NeighborAdvertisement;
        if has_flags { Flags(self.bytes.as_ref()[FLAGS]) } else { Flags::NONE }
    }

    /// Returns the target address. Neighbour solicitations, neighbour advertisements and redirects
    /// have one.
    #[must_use]
    pub fn target(&self) -> Option<Ipv6Addr> {
        self.kind.has_target().then(|| Ipv6Addr::from_octets(get(self.bytes.as_ref(), TARGET)))
    }

    /// Returns the options of a message that is `len` bytes long, in their order.
    pub fn options(&self, len: usize) -> NdpOptions<'_> {
        let fixed = self.kind.fixed_len();
        let visible = &self.bytes.as_ref()[fixed..];
        let len = len.saturating_sub(fixed);
        NdpOptions { visible: &visible[..visible.len().min(len)], len }
    }
}

/// An option, as far as it is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdpOption<'a> {
    /// Type of the option.
    pub option_type: OptionType,
    /// Length in bytes, type and length field included. It is a multiple of 8 and never 0.
    pub len: usize,
    visible: &'a [u8],
}

impl NdpOption<'_> {
    /// Returns the MAC address of an option that holds a link-layer address; `None` for other
    /// options.
    ///
    /// # Errors
    /// [`WireError::BadLength`] if the option is not 8 bytes long; [`WireError::Truncated`] if a
    /// part of it is not visible.
    pub fn link_address(&self) -> Result<Option<MacAddr>, WireError> {
        match self.option_type {
            OptionType::SOURCE_LINK_ADDRESS | OptionType::TARGET_LINK_ADDRESS if self.len != UNIT => {
                Err(WireError::BadLength)
            }
            OptionType::SOURCE_LINK_ADDRESS | OptionType::TARGET_LINK_ADDRESS if self.visible.len() < UNIT => {
                Err(WireError::Truncated)
            }
            OptionType::SOURCE_LINK_ADDRESS | OptionType::TARGET_LINK_ADDRESS => {
                Ok(Some(MacAddr(get(self.visible, 2))))
            }
            _ => Ok(None),
        }
    }
}

/// Iterator over the options of a message. It returns an option even if its end is not visible.
///
/// It ends after the first error:
/// - [`WireError::BadLength`] for a length of 0 (RFC 4861, 4.6) or beyond the end of the message.
/// - [`WireError::Truncated`] if the next option is not visible.
#[derive(Clone, Debug)]
pub struct NdpOptions<'a> {
    visible: &'a [u8],
    /// Bytes of options left in the message, visible or not.
    len: usize,
}

impl<'a> Iterator for NdpOptions<'a> {
    type Item = Result<NdpOption<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.len == 0 {
            return None;
        }
        let option = self.read();
        match option {
            Ok(NdpOption { len, .. }) => {
                self.len -= len;
                self.visible = self.visible.get(len..).unwrap_or_default();
            }
            Err(_) => self.len = 0,
        }
        Some(option)
    }
}

impl<'a> NdpOptions<'a> {
    fn read(&self) -> Result<NdpOption<'a>, WireError> {
        let Some(&[option_type, units]) = self.visible.first_chunk() else { return Err(WireError::Truncated) };
        let len = usize::from(units) * UNIT;
        if len == 0 || len > self.len {
            return Err(WireError::BadLength);
        }
        let visible = &self.visible[..self.visible.len().min(len)];
        Ok(NdpOption { option_type: OptionType(option_type), len, visible })
    }
}

/// Values of a message: its flags and its target, if its kind has them, and one link-layer address.
/// All other fields are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Kind of the message.
    pub kind: Kind,
    /// Flags. Only a neighbour advertisement has them; other kinds ignore them.
    pub flags: Flags,
    /// Target address. Kinds without a target ignore it.
    pub target: Ipv6Addr,
    /// Option with a link-layer address.
    pub link_address: Option<(OptionType, MacAddr)>,
}

impl Repr {
    /// Writes the message, with a checksum of 0, to the beginning of `buffer` and returns its
    /// length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is too short for the message.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let fixed = self.kind.fixed_len();
        let len = fixed + if self.link_address.is_some() { UNIT } else { 0 };
        let bytes = cleared(buffer, len)?;
        bytes[TYPE] = self.kind as u8;
        if self.kind == Kind::NeighborAdvertisement {
            bytes[FLAGS] = self.flags.0;
        }
        if self.kind.has_target() {
            put(bytes, TARGET, &self.target.octets());
        }
        if let Some((option_type, address)) = self.link_address {
            put(bytes, fixed, &[option_type.0, 1]);
            put(bytes, fixed + 2, &address.0);
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const TARGET_IP: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

    fn advertisement() -> Vec<u8> {
        let link_address = Some((OptionType::TARGET_LINK_ADDRESS, MAC));
        let mut bytes = vec![0xee; 33];
        let flags = Flags::SOLICITED.with(Flags::OVERRIDE);
        let repr = Repr { kind: Kind::NeighborAdvertisement, flags, target: TARGET_IP, link_address };
        assert_eq!(repr.emit(&mut bytes), Ok(32));
        assert_eq!(repr.emit(&mut bytes[..31]), Err(WireError::BufferTooSmall));
        bytes.truncate(32);
        bytes
    }

    fn addresses(bytes: &[u8], len: usize) -> Result<Vec<MacAddr>, WireError> {
        let header = Header::new_checked(bytes)?;
        let found = header.options(len).map(|option| option?.link_address()).collect::<Result<Vec<_>, _>>()?;
        Ok(found.into_iter().flatten().collect())
    }

    #[test]
    fn fields_stand_where_they_should() {
        let bytes = advertisement();
        assert_eq!((bytes[0], &bytes[8..10], &bytes[23..26]), (136, &[0xfe, 0x80][..], &[1, 2, 1][..]));
        assert_eq!(bytes[4], 0x60);
        let header = Header::new_checked(&bytes).unwrap();
        assert!(header.flags().contains(Flags::SOLICITED) && !header.flags().contains(Flags::ROUTER));
        assert_eq!((header.kind(), header.target()), (Kind::NeighborAdvertisement, Some(TARGET_IP)));
        assert_eq!(addresses(&bytes, 32), Ok(vec![MAC]));
        for (kind, len) in [(133, 8), (134, 16), (135, 24), (136, 24), (137, 40)] {
            let bytes = [&[kind][..], &[0; 39]].concat();
            assert_eq!(Header::new_checked(&bytes[..len - 1]).err(), Some(WireError::Truncated), "{kind}");
            let header = Header::new_checked(&bytes[..len]).unwrap();
            assert_eq!((header.kind().fixed_len(), header.target().is_some()), (len, kind >= 135), "{kind}");
        }
        assert_eq!(Header::new_checked(&[128; 40]).err(), Some(WireError::BadValue));
    }

    #[test]
    fn every_option_is_found() {
        let mut bytes = advertisement();
        bytes.extend([14, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([1, 1, 2, 0, 0, 0, 0, 2]);
        assert_eq!(addresses(&bytes, bytes.len()), Ok(vec![MAC, MacAddr([2, 0, 0, 0, 0, 2])]));
        // Bytes behind the message are not options of it.
        assert_eq!(addresses(&bytes, 32), Ok(vec![MAC]));
    }

    #[test]
    fn options_that_lie_are_refused() {
        let whole = advertisement();
        let with = |units: u8, len: usize| {
            let mut bytes = whole.clone();
            bytes[25] = units;
            bytes.resize(len, 0);
            addresses(&bytes, len)
        };
        assert_eq!(with(0, 32), Err(WireError::BadLength));
        assert_eq!(with(2, 32), Err(WireError::BadLength), "longer than the message");
        assert_eq!(with(2, 40), Err(WireError::BadLength), "no length of a MAC address");
        assert_eq!(with(1, 36), Err(WireError::BadLength), "half an option");
    }

    #[test]
    fn what_is_not_visible_is_never_passed_over() {
        let mut bytes = advertisement();
        for visible in 24..32 {
            assert_eq!(addresses(&bytes[..visible], 32), Err(WireError::Truncated), "{visible}");
        }
        // An option without an address need not be visible, unless another option follows.
        bytes.extend([4, 2, 0]);
        assert_eq!(addresses(&bytes, 48), Ok(vec![MAC]));
        assert_eq!(addresses(&bytes, 56), Err(WireError::Truncated));
    }
}
