//! DHCP for IPv4 (RFC 2131, RFC 2132), as far as a switch reads it: the address that a server gives, and
//! the station that asks for one.
//!
//! ```text
//! | op 1 | htype 1 | hlen 1 | hops 1 | xid 4 | secs 2 | flags 2 | ciaddr 4 | yiaddr 4 | siaddr 4 | giaddr 4 |
//! | chaddr 16 | sname 64 | file 128 | cookie 4 | options |
//! ```

use std::net::Ipv4Addr;

use crate::field::get;
use crate::{MacAddr, WireError};

/// The port of servers.
pub const SERVER_PORT: u16 = 67;
/// The port of clients.
pub const CLIENT_PORT: u16 = 68;

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const ETHERNET: u8 = 1;
const YIADDR: usize = 16;
const GIADDR: usize = 24;
const CHADDR: usize = 28;
const COOKIE: usize = 236;
const OPTIONS: usize = 240;
/// The first bytes of the options (RFC 2132, 2).
const MAGIC: [u8; 4] = [99, 130, 83, 99];

const PAD: u8 = 0;
const LEASE_TIME: u8 = 51;
const MESSAGE_TYPE: u8 = 53;
const END: u8 = 255;
const ACK: u8 = 5;

/// A server's word that a station has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The station.
    pub mac: MacAddr,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Seconds for which it has the address; `u32::MAX` for ever. `None`: the message does not say it, as
    /// one that answers DHCPINFORM does not.
    pub lease: Option<u32>,
}

impl Ack {
    /// Reads a message of a server. `None`: it is none that gives an address. `message` may end before
    /// the message does: what is behind is not read.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the fixed part, or an option before those that count, is not whole.
    pub fn parse(message: &[u8]) -> Result<Option<Self>, WireError> {
        if message.len() < OPTIONS {
            return Err(WireError::Truncated);
        }
        let [op, hardware, len, ..] = get::<4>(message, 0);
        if op != REPLY || hardware != ETHERNET || usize::from(len) != 6 || get::<4>(message, COOKIE) != MAGIC {
            return Ok(None);
        }
        let mut rest = &message[OPTIONS..];
        let mut message_type = None;
        let mut lease = None;
        while let [code, behind @ ..] = rest {
            match *code {
                PAD => rest = behind,
                END => break,
                code => {
                    let [len, behind @ ..] = behind else { return Err(WireError::Truncated) };
                    let value = behind.get(..usize::from(*len)).ok_or(WireError::Truncated)?;
                    rest = &behind[value.len()..];
                    match code {
                        MESSAGE_TYPE => message_type = value.first().copied(),
                        LEASE_TIME => lease = value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)),
                        _ => {}
                    }
                }
            }
            if message_type.is_some() && lease.is_some() {
                break;
            }
        }
        let ip: Ipv4Addr = get::<4>(message, YIADDR).into();
        let mac = MacAddr(get(message, CHADDR));
        let is_station = mac.is_unicast() && mac.as_u64() != 0;
        let is_address = !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast() && !ip.is_loopback();
        let gives = message_type == Some(ACK) && is_station && is_address;
        Ok(gives.then_some(Ack { mac, ip, lease }))
    }
}

/// Returns the station that asks a server. `None`: the message is none of a client on Ethernet, or a relay
/// has passed it on, which gets the answer.
///
/// # Errors
/// [`WireError::Truncated`] if the fixed part is not whole.
pub fn client(message: &[u8]) -> Result<Option<MacAddr>, WireError> {
    if message.len() < OPTIONS {
        return Err(WireError::Truncated);
    }
    let [op, hardware, len, ..] = get::<4>(message, 0);
    let is_of_client = op == REQUEST && hardware == ETHERNET && len == 6 && get::<4>(message, GIADDR) == [0; 4];
    Ok(is_of_client.then(|| MacAddr(get(message, CHADDR))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 5]);

    fn message(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; OPTIONS];
        bytes[..3].copy_from_slice(&[REPLY, ETHERNET, 6]);
        bytes[YIADDR..YIADDR + 4].copy_from_slice(&[10, 0, 0, 5]);
        bytes[CHADDR..CHADDR + 6].copy_from_slice(&MAC.0);
        bytes[COOKIE..].copy_from_slice(&MAGIC);
        bytes.extend_from_slice(options);
        bytes
    }

    #[test]
    fn an_acknowledgement_gives_an_address() {
        let ack = |lease| Some(Ack { mac: MAC, ip: [10, 0, 0, 5].into(), lease });
        for (options, expected) in [
            (&[53, 1, 5, 51, 4, 0, 0, 14, 16, 255][..], ack(Some(3600))),
            (&[0, 0, 51, 4, 255, 255, 255, 255, 53, 1, 5], ack(Some(u32::MAX))),
            (&[54, 4, 10, 0, 0, 1, 53, 1, 5, 255, 51], ack(None)),
            // The lease is not whole.
            (&[51, 2, 0, 1, 53, 1, 5], ack(None)),
            // An offer, a refusal, none at all.
            (&[53, 1, 2], None),
            (&[53, 1, 6], None),
            (&[53, 0, 255], None),
            (&[255, 53, 1, 5], None),
            (&[], None),
        ] {
            assert_eq!(Ack::parse(&message(options)), Ok(expected), "{options:?}");
        }
        for options in [&[53][..], &[53, 9, 5], &[12, 200, 1, 2, 3]] {
            assert_eq!(Ack::parse(&message(options)), Err(WireError::Truncated), "{options:?}");
        }
    }

    #[test]
    fn what_no_station_can_have_is_not_given() {
        let good = message(&[53, 1, 5]);
        for (at, byte) in [(0, 1), (1, 6), (2, 16), (2, 5), (CHADDR, 1), (COOKIE, 0), (YIADDR, 224), (YIADDR, 127)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(Ack::parse(&bad), Ok(None), "byte {at}");
        }
        for len in 0..OPTIONS {
            assert_eq!(Ack::parse(&good[..len]), Err(WireError::Truncated));
        }
    }

    #[test]
    fn a_question_names_its_client() {
        let mut question = message(&[53, 1, 3, 255]);
        question[0] = REQUEST;
        assert_eq!(client(&question), Ok(Some(MAC)));
        for (at, byte) in [(0, REPLY), (1, 6), (2, 16), (GIADDR, 10)] {
            let mut other = question.clone();
            other[at] = byte;
            assert_eq!(client(&other), Ok(None), "byte {at}");
        }
        assert_eq!(client(&question[..OPTIONS - 1]), Err(WireError::Truncated));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(options in prop::collection::vec(any::<u8>(), 0..80), cut in 0..400_usize) {
            let whole = message(&options);
            let _ = Ack::parse(&whole[..cut.min(whole.len())]);
            let _ = client(&whole[..cut.min(whole.len())]);
        }
    }
}
