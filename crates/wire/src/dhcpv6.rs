//! DHCP for IPv6 (RFC 8415), as far as a switch reads it: the addresses that a server gives.
//!
//! ```text
//! | type 1 | transaction 3 | options |        option: | code 2 | length 2 | value |
//!
//! IA_NA:   | IAID 4 | T1 4 | T2 4 | options |         IA_TA: | IAID 4 | options |
//! IAADDR:  | address 16 | preferred 4 | valid 4 | options |
//! ```

use std::net::Ipv6Addr;

use crate::WireError;
use crate::field::{get, u16_at};

/// The port of servers.
pub const SERVER_PORT: u16 = 547;
/// The port of clients.
pub const CLIENT_PORT: u16 = 546;

const REPLY: u8 = 7;
const OPTIONS: usize = 4;
const IA_NA: u16 = 3;
const IA_TA: u16 = 4;
const IAADDR: u16 = 5;

/// An address that a server gives, or takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub ip: Ipv6Addr,
    /// Seconds for which it is valid; 0 if it no longer is, `u32::MAX` for ever.
    pub valid: u32,
}

/// Calls `each` with the addresses of a server's reply. Other messages have none. `message` may end
/// before the message does: then what is whole counts.
///
/// # Errors
/// [`WireError::Truncated`] if an option is not whole. Addresses before it were told.
pub fn leases(message: &[u8], mut each: impl FnMut(Lease)) -> Result<(), WireError> {
    if message.len() < OPTIONS {
        return Err(WireError::Truncated);
    }
    if message[0] != REPLY {
        return Ok(());
    }
    options(&message[OPTIONS..], |code, value| {
        let inner = match code {
            IA_NA => value.get(12..),
            IA_TA => value.get(4..),
            _ => return Ok(()),
        };
        options(inner.ok_or(WireError::Truncated)?, |code, value| {
            if code != IAADDR {
                return Ok(());
            }
            if value.len() < 24 {
                return Err(WireError::Truncated);
            }
            let ip: Ipv6Addr = get::<16>(value, 0).into();
            let valid = u32::from_be_bytes(get(value, 20));
            if !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback() {
                each(Lease { ip, valid });
            }
            Ok(())
        })
    })
}

/// Calls `each` with the code and the value of each option.
fn options(mut bytes: &[u8], mut each: impl FnMut(u16, &[u8]) -> Result<(), WireError>) -> Result<(), WireError> {
    while !bytes.is_empty() {
        if bytes.len() < 4 {
            return Err(WireError::Truncated);
        }
        let code = u16_at(bytes, 0);
        let end = 4 + usize::from(u16_at(bytes, 2));
        let value = bytes.get(4..end).ok_or(WireError::Truncated)?;
        each(code, value)?;
        bytes = &bytes[end..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn option(code: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(value.len()).unwrap();
        [&code.to_be_bytes()[..], &len.to_be_bytes(), value].concat()
    }

    fn address(last: u8, valid: u32) -> Vec<u8> {
        let mut value = vec![0; 24];
        value[0] = 0xfd;
        value[15] = last;
        value[20..].copy_from_slice(&valid.to_be_bytes());
        option(IAADDR, &value)
    }

    fn read(message: &[u8]) -> (Vec<Lease>, Result<(), WireError>) {
        let mut found = Vec::new();
        let done = leases(message, |lease| found.push(lease));
        (found, done)
    }

    fn lease(last: u8, valid: u32) -> Lease {
        Lease { ip: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()), valid }
    }

    #[test]
    fn a_reply_gives_addresses() {
        let named = option(IA_NA, &[&[0; 12][..], &address(1, 60), &option(13, &[0, 0]), &address(2, 0)].concat());
        let temporary = option(IA_TA, &[&[0; 4][..], &address(3, u32::MAX)].concat());
        let message = [&[REPLY, 1, 2, 3][..], &option(1, &[0; 10]), &named, &temporary].concat();
        assert_eq!(read(&message), (vec![lease(1, 60), lease(2, 0), lease(3, u32::MAX)], Ok(())));
        let mut offer = message.clone();
        offer[0] = 2;
        assert_eq!(read(&offer), (vec![], Ok(())));
        // Lengths that lie.
        let mut long = message.clone();
        let at = message.len() - temporary.len() + 3;
        long[at] = 200;
        assert_eq!(read(&long), (vec![lease(1, 60), lease(2, 0)], Err(WireError::Truncated)));
        assert_eq!(read(&[&[REPLY, 0, 0, 0][..], &option(IA_NA, &[0; 3])].concat()).1, Err(WireError::Truncated));
        let short = option(IA_TA, &[&[0; 4][..], &option(IAADDR, &[0xfd; 23])].concat());
        assert_eq!(read(&[&[REPLY, 0, 0, 0][..], &short].concat()), (vec![], Err(WireError::Truncated)));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = read(&[&[REPLY][..], &bytes].concat());
            let _ = read(&bytes);
        }
    }
}
