//! Questions to the kernel about network interfaces, and changes of them (`NETLINK_ROUTE`).

use anyhow::{Context, ensure};
use netlink_packet_core::{Emitable, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Bytes of the longest answer. The kernel sends a few KiB about an interface.
const MOST_BYTES: usize = 32 << 10;

/// Sends a request, and returns the kernel's answer without its header. The answer to a change is
/// empty: such a request has the flag `NLM_F_ACK`.
///
/// # Errors
/// The kernel's error.
pub fn ask(message_type: u16, flags: u16, body: &impl Emitable) -> anyhow::Result<Vec<u8>> {
    // No protocol is protocol 0, NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut header = NetlinkHeader::default();
    let length = header.buffer_len() + body.buffer_len();
    header.length = u32::try_from(length)?;
    (header.message_type, header.flags) = (message_type, NLM_F_REQUEST | flags);
    let mut request = vec![0; length];
    let (front, rest) = request.split_at_mut(header.buffer_len());
    header.emit(front);
    body.emit(rest);
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = vec![0; MOST_BYTES];
    let (read, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    parse(&answer[..read])
}

fn parse(answer: &[u8]) -> anyhow::Result<Vec<u8>> {
    let message = NetlinkBuffer::new_checked(answer).context("the kernel's answer is too short")?;
    if i32::from(message.message_type()) != libc::NLMSG_ERROR {
        return Ok(message.payload().to_vec());
    }
    let code = message.payload().first_chunk().context("the kernel's answer is too short")?;
    let code = i32::from_ne_bytes(*code);
    // The code 0 is an acknowledgement.
    ensure!(code == 0, Errno::from_raw_os_error(code.saturating_neg()));
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::LinkHeader;

    use super::*;

    #[test]
    fn the_kernel_answers_or_says_why_not() {
        let about = |index| ask(libc::RTM_GETLINK, 0, &LinkHeader { index, ..LinkHeader::default() });
        assert!(about(1).expect("an answer").len() > 100, "the first interface is lo");
        let error = about(u32::MAX).expect_err("no such interface");
        assert!(error.downcast_ref() == Some(&Errno::NODEV) || error.downcast_ref() == Some(&Errno::INVAL), "{error}");
        for short in [&[][..], &[0; 15], &[17, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]] {
            assert!(parse(short).is_err(), "{short:?}");
        }
    }
}
