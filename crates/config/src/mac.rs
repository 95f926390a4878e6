//! Ethernet addresses as a configuration file writes them.

use std::fmt;
use std::str::FromStr;

/// A unicast Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac([u8; 6]);

/// The reason why a text is not a unicast Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MacError {
    /// The text is not six bytes of two hexadecimal digits with colons between them.
    #[error("not an Ethernet address; write six bytes like 52:54:00:00:00:01")]
    Format,
    /// The group bit is set (IEEE 802-2014, 8.2): the address is of a group of stations, or of all.
    #[error("a multicast address; it must be unicast, so its first byte must be even, as in 52:54:00:00:00:01")]
    Multicast,
    /// The address is all zeros, which no station has.
    #[error("all zeros, which is the address of no station; write a unicast address, as 52:54:00:00:00:01")]
    Zero,
}

impl Mac {
    /// Creates an address from its bytes, in the order of the wire.
    ///
    /// # Errors
    /// The bytes are the address of a group, or all zeros.
    pub fn new(octets: [u8; 6]) -> Result<Self, MacError> {
        if octets[0] & 1 != 0 {
            return Err(MacError::Multicast);
        }
        if octets == [0; 6] {
            return Err(MacError::Zero);
        }
        Ok(Self(octets))
    }

    /// Returns the bytes, in the order of the wire.
    #[must_use]
    pub fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or(MacError::Format)?;
            // `from_str_radix` would also accept a sign.
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(MacError::Format);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| MacError::Format)?;
        }
        if parts.next().is_some() {
            return Err(MacError::Format);
        }
        Self::new(octets)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let mac: Mac = "52:54:00:Ab:cD:ef".parse().unwrap();
        assert_eq!(mac.octets(), [0x52, 0x54, 0x00, 0xab, 0xcd, 0xef]);
        assert_eq!(mac.to_string(), "52:54:00:ab:cd:ef");
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            "52:54:00:00:00",
            "52:54:00:00:00:01:02",
            "52-54-00-00-00-01",
            "+2:54:00:00:00:01",
            "52:54:0:0:0:1",
            "gg:54:00:00:00:01",
            "52:54:00:00:00:01 ",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(MacError::Format), "{text}");
        }
        assert_eq!("01:00:5e:00:00:01".parse::<Mac>(), Err(MacError::Multicast));
        assert_eq!("ff:ff:ff:ff:ff:ff".parse::<Mac>(), Err(MacError::Multicast));
        assert_eq!("00:00:00:00:00:00".parse::<Mac>(), Err(MacError::Zero));
    }
}
