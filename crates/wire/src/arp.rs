//! ARP for IPv4 over Ethernet, RFC 826. RARP (RFC 903) has the same format.
//!
//! ```text
//! | hardware type 2 | protocol type 2 | 6 | 4 | operation 2 | sender MAC 6, IP 4 | target MAC 6, IP 4 |
//! ```

use std::net::Ipv4Addr;

use crate::field::{cleared, get, put, u16_at};
use crate::{EtherType, MacAddr, WireError};

/// Length of a message, in bytes.
pub const LEN: usize = 28;

/// Hardware type of Ethernet.
pub const ETHERNET: u16 = 1;

const HARDWARE_TYPE: usize = 0;
const PROTOCOL_TYPE: usize = 2;
const ADDRESS_LENGTHS: usize = 4;
const OPERATION: usize = 6;
const SENDER_MAC: usize = 8;
const SENDER_IP: usize = 14;
const TARGET_MAC: usize = 18;
const TARGET_IP: usize = 24;

/// Lengths of a MAC address and of an IPv4 address.
const LENGTHS: [u8; 2] = [6, 4];

/// Operation of a message. RARP (3, 4) and inverse ARP (8, 9, RFC 2390) use the same field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation(pub u16);

impl Operation {
    /// Asks for the MAC address of the target's IP address.
    pub const REQUEST: Self = Self(1);
    /// Says that the sender has the sender's IP address.
    pub const REPLY: Self = Self(2);
}

/// View of a message. Bytes behind the message are ignored.
#[derive(Clone, Copy, Debug)]
pub struct Header<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Header<T> {
    /// Creates a view of the message at the beginning of `bytes`. The lengths of the addresses are
    /// checked, because they determine the offsets of the fields. The types are not checked:
    /// receivers differ in which types they accept.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer than 28 bytes; [`WireError::BadLength`] if the
    /// length of a hardware address is not 6, or of a protocol address not 4.
    pub fn new_checked(bytes: T) -> Result<Self, WireError> {
        if bytes.as_ref().len() < LEN {
            return Err(WireError::Truncated);
        }
        let lengths: [u8; 2] = get(bytes.as_ref(), ADDRESS_LENGTHS);
        if lengths == LENGTHS { Ok(Self { bytes }) } else { Err(WireError::BadLength) }
    }

    /// Returns the hardware type. 1 is Ethernet.
    #[must_use]
    pub fn hardware_type(&self) -> u16 {
        u16_at(self.bytes.as_ref(), HARDWARE_TYPE)
    }

    /// Returns the protocol type. [`EtherType::IPV4`] is the right one.
    #[must_use]
    pub fn protocol_type(&self) -> EtherType {
        EtherType(u16_at(self.bytes.as_ref(), PROTOCOL_TYPE))
    }

    /// The operation.
    #[must_use]
    pub fn operation(&self) -> Operation {
        Operation(u16_at(self.bytes.as_ref(), OPERATION))
    }

    /// Returns the MAC address that the sender claims.
    #[must_use]
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(get(self.bytes.as_ref(), SENDER_MAC))
    }

    /// Returns the IP address that the sender claims; 0.0.0.0 in a probe (RFC 5227).
    #[must_use]
    pub fn sender_ip(&self) -> Ipv4Addr {
        get::<4>(self.bytes.as_ref(), SENDER_IP).into()
    }

    /// The target's MAC address.
    #[must_use]
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(get(self.bytes.as_ref(), TARGET_MAC))
    }

    /// The target's IP address.
    #[must_use]
    pub fn target_ip(&self) -> Ipv4Addr {
        get::<4>(self.bytes.as_ref(), TARGET_IP).into()
    }
}

/// Values of a message about IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The operation.
    pub operation: Operation,
    /// The sender's MAC address.
    pub sender_mac: MacAddr,
    /// The sender's IP address.
    pub sender_ip: Ipv4Addr,
    /// The target's MAC address.
    pub target_mac: MacAddr,
    /// The target's IP address.
    pub target_ip: Ipv4Addr,
}

impl Repr {
    /// Reads the values from a view. The two types are left out.
    #[must_use]
    pub fn parse<T: AsRef<[u8]>>(header: &Header<T>) -> Self {
        Self {
            operation: header.operation(),
            sender_mac: header.sender_mac(),
            sender_ip: header.sender_ip(),
            target_mac: header.target_mac(),
            target_ip: header.target_ip(),
        }
    }

    /// Writes the message to the beginning of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] if `buffer` is shorter than 28 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let bytes = cleared(buffer, LEN)?;
        put(bytes, HARDWARE_TYPE, &ETHERNET.to_be_bytes());
        put(bytes, PROTOCOL_TYPE, &EtherType::IPV4.0.to_be_bytes());
        put(bytes, ADDRESS_LENGTHS, &LENGTHS);
        put(bytes, OPERATION, &self.operation.0.to_be_bytes());
        put(bytes, SENDER_MAC, &self.sender_mac.0);
        put(bytes, SENDER_IP, &self.sender_ip.octets());
        put(bytes, TARGET_MAC, &self.target_mac.0);
        put(bytes, TARGET_IP, &self.target_ip.octets());
        Ok(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPR: Repr = Repr {
        operation: Operation::REPLY,
        sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        sender_ip: Ipv4Addr::new(10, 0, 0, 1),
        target_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        target_ip: Ipv4Addr::new(10, 0, 0, 2),
    };

    #[test]
    fn fields_stand_where_they_should() {
        let mut bytes = [0xee; 29];
        assert_eq!(REPR.emit(&mut bytes), Ok(28));
        assert_eq!(bytes[..8], [0, 1, 8, 0, 6, 4, 0, 2]);
        assert_eq!(bytes[8..18], [2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
        assert_eq!(bytes[18..], [2, 0, 0, 0, 0, 2, 10, 0, 0, 2, 0xee]);
        let header = Header::new_checked(&bytes).unwrap();
        assert_eq!((header.hardware_type(), header.protocol_type()), (ETHERNET, EtherType::IPV4));
        assert_eq!(Repr::parse(&header), REPR);
    }

    #[test]
    fn lies_are_refused() {
        let mut bytes = [0; 28];
        assert_eq!(REPR.emit(&mut bytes[..27]), Err(WireError::BufferTooSmall));
        REPR.emit(&mut bytes).unwrap();
        assert_eq!(Header::new_checked(&bytes[..27]).err(), Some(WireError::Truncated));
        for (at, len) in [(4, 0), (4, 5), (4, 8), (5, 0), (5, 16)] {
            let mut wrong = bytes;
            wrong[at] = len;
            assert_eq!(Header::new_checked(&wrong).err(), Some(WireError::BadLength), "{at} {len}");
        }
    }
}
