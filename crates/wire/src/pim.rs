//! PIM, RFC 7761 section 4.9: the hello, by which a multicast router announces itself on a link.
//!
//! ```text
//! | version 4 bits (2), type 4 bits (0: hello) | reserved 1 | checksum 2 | options |
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::field::{cleared, put};
use crate::{WireError, checksum};

/// Length of a message without options, in bytes.
pub const LEN: usize = 4;

/// Address of all PIM routers in IPv4.
pub const ALL_ROUTERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 13);

/// Address of all PIM routers in IPv6.
pub const ALL_ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 13);

const VERSION_TYPE: usize = 0;
const CHECKSUM: usize = 2;

/// Version 2, type 0.
const HELLO: u8 = 0x20;

/// Returns whether `message`, a whole message, is a hello with the right checksum. `pseudo` is the sum of
/// the pseudo-header over IPv6; 0 over IPv4, which has none.
#[must_use]
pub fn is_hello(message: &[u8], pseudo: u16) -> bool {
    message.len() >= LEN && message[VERSION_TYPE] == HELLO && checksum::add(pseudo, checksum::sum(message)) == 0xffff
}

/// Writes a hello without options to the beginning of `buffer` and returns its length. `pseudo` is as in
/// [`is_hello`].
///
/// # Errors
/// [`WireError::BufferTooSmall`] if `buffer` is shorter than 4 bytes.
pub fn emit_hello(buffer: &mut [u8], pseudo: u16) -> Result<usize, WireError> {
    let bytes = cleared(buffer, LEN)?;
    bytes[VERSION_TYPE] = HELLO;
    let checksum = !checksum::add(pseudo, checksum::sum(bytes));
    put(bytes, CHECKSUM, &checksum.to_be_bytes());
    Ok(LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_known_by_its_type_and_checksum() {
        for pseudo in [0, 0x1234, 0xffff] {
            let mut bytes = [0xee; 5];
            assert_eq!(emit_hello(&mut bytes, pseudo), Ok(4));
            assert_eq!((bytes[0], bytes[4]), (0x20, 0xee));
            assert!(is_hello(&bytes[..4], pseudo) && !is_hello(&bytes[..3], pseudo) && !is_hello(&bytes, pseudo));
            bytes[0] = 0x23;
            assert!(!is_hello(&bytes[..4], pseudo), "a join");
        }
        assert_eq!(emit_hello(&mut [0; 3], 0), Err(WireError::BufferTooSmall));
    }
}
