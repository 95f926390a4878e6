//! The XDP program that an interface has already, by one rtnetlink request.

use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_PROG_ID: u16 = 4;
/// The bits of an attribute's type that say how its value is encoded.
const ENCODING: u16 = 0xc000;
/// Bytes of `struct nlmsghdr` with `struct ifinfomsg`.
const HEADERS: usize = 32;

/// Returns the id of the program, or `None` if the interface has none.
pub(super) fn program_of(ifindex: u32) -> io::Result<Option<u32>> {
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut request = [0; HEADERS];
    request[..4].copy_from_slice(&32_u32.to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request[20..24].copy_from_slice(&ifindex.to_ne_bytes());
    // Without an address it goes to the kernel. The opener may send to no address.
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = vec![0; 1 << 16];
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    Ok(program_in(&answer[..len]))
}

/// Returns the program's id in an answer of the kernel.
fn program_in(answer: &[u8]) -> Option<u32> {
    let (headers, attributes) = answer.split_at_checked(HEADERS)?;
    let [low, high] = [headers[4], headers[5]];
    if u16::from_ne_bytes([low, high]) != RTM_NEWLINK {
        return None;
    }
    let id = attribute(attribute(attributes, IFLA_XDP)?, IFLA_XDP_PROG_ID)?;
    Some(u32::from_ne_bytes(id.try_into().ok()?))
}

/// Returns the value of the first attribute of this type.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let [a, b, c, d, ..] = *attributes {
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]);
        let value = attributes.get(4..len)?;
        if kind & !ENCODING == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(4 + value.len()).expect("short");
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn the_id_is_found_and_truncated_answers_have_none() {
        let mut headers = vec![0; HEADERS];
        headers[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
        let nested = [with(2, &[1]), with(IFLA_XDP_PROG_ID, &77_u32.to_ne_bytes())].concat();
        let answer = [headers, with(3, b"nic0\0"), with(IFLA_XDP | 0x8000, &nested)].concat();
        assert_eq!(program_in(&answer), Some(77));
        for len in 0..answer.len() {
            assert_eq!(program_in(&answer[..len]), None, "{len} bytes");
        }
        // Lengths that lead nowhere.
        for len in 0..4_u8 {
            let mut answer = answer.clone();
            answer[HEADERS..HEADERS + 2].copy_from_slice(&u16::from(len).to_ne_bytes());
            assert_eq!(program_in(&answer), None);
        }
    }
}
