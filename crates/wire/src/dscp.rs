//! Differentiated services code points (RFC 2474): the class of service of IP packets.

use std::fmt;
use std::str::FromStr;

/// A differentiated services code point, 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// The largest code point.
    pub const MAX: u8 = 63;

    /// The names in the registry of IANA: RFC 2474, 2597, 3246, 5865 and 8622.
    pub const NAMES: [(&str, u8); 23] = [
        ("cs0", 0),
        ("le", 1),
        ("cs1", 8),
        ("af11", 10),
        ("af12", 12),
        ("af13", 14),
        ("cs2", 16),
        ("af21", 18),
        ("af22", 20),
        ("af23", 22),
        ("cs3", 24),
        ("af31", 26),
        ("af32", 28),
        ("af33", 30),
        ("cs4", 32),
        ("af41", 34),
        ("af42", 36),
        ("af43", 38),
        ("cs5", 40),
        ("voice-admit", 44),
        ("ef", 46),
        ("cs6", 48),
        ("cs7", 56),
    ];

    /// Returns a code point. `None` above [`Self::MAX`].
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        (number <= Self::MAX).then_some(Dscp(number))
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }

    /// Returns a type of service, or a traffic class, with this code point. Its ECN bits stay.
    #[inline]
    #[must_use]
    pub fn put(self, class: u8) -> u8 {
        self.0 << 2 | class & 3
    }
}

impl FromStr for Dscp {
    type Err = ();

    /// Reads a name.
    fn from_str(name: &str) -> Result<Self, ()> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| Dscp(*number)).ok_or(())
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => to.write_str(name),
            None => write!(to, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_registry() {
        for (name, number) in Dscp::NAMES {
            assert_eq!(name.parse(), Ok(Dscp(number)));
            assert_eq!(Dscp(number).to_string(), name);
        }
        // Assured forwarding: class times 8 and drop precedence times 2 (RFC 2597, 6).
        for (class, precedence) in (1..=4).flat_map(|class| (1..=3).map(move |precedence| (class, precedence))) {
            assert_eq!(format!("af{class}{precedence}").parse(), Ok(Dscp(8 * class + 2 * precedence)));
        }
        assert_eq!(Dscp(3).to_string(), "3");
        assert!("af44".parse::<Dscp>().is_err() && Dscp::new(64).is_none());
    }
}
