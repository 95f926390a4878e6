//! The system calls of the opener process, by purpose.

use libc::c_long;
use seccompiler::{BackendError, SeccompRule};
use straightline_port::device::DeviceRequest;

use super::calls::{Allowed, is, is_null, masked, number, only};
use super::helper;

/// Allowed with any arguments, beside the calls of each helper process.
const INTERFACES: &[c_long] = &[
    // Sockets of the kinds of port: made below, set up, and used to question the kernel.
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    // Frames of AF_XDP.
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    // The NUMA node of their memory.
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    // The kernel's version: options of packet sockets depend on it.
    libc::SYS_uname,
    // An interface that is busy is tried again.
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
];

/// Requests of the classes TUN (0x54c0 to 0x54ff; terminals have lower numbers) and of sockets
/// (0x8900 to 0x89ff), as masks and values.
const IOCTLS: [(u64, u64); 2] = [(0xffc0, 0x54c0), (0xffff_ff00, 0x8900)];

/// Returns all calls that opening these interfaces takes.
pub(super) fn list(requests: &[DeviceRequest]) -> Result<Vec<Allowed>, BackendError> {
    let any_is = |kind: fn(&DeviceRequest) -> bool| requests.iter().any(kind);
    let has_packet = any_is(|request| matches!(request, DeviceRequest::AfPacket(_)));
    let has_xdp = any_is(|request| matches!(request, DeviceRequest::AfXdp(_)));
    let creates = number(libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | libc::O_TMPFILE);
    let mut list = helper::calls(INTERFACES)?;

    // Interfaces are looked up and changed by requests to sockets of any family. This one reaches no
    // network.
    let mut families = vec![libc::AF_UNIX];
    let mut levels = vec![libc::SOL_SOCKET];
    // A packet socket also keeps an interface in promiscuous mode for AF_XDP.
    if has_packet || has_xdp {
        families.push(libc::AF_PACKET);
        levels.push(libc::SOL_PACKET);
    }
    if has_xdp {
        // The program that an interface has already is looked up by netlink.
        families.extend([libc::AF_XDP, libc::AF_NETLINK]);
        levels.push(libc::SOL_XDP);
        list.push((libc::SYS_bpf, Vec::new()));
    }
    let rules = |argument, values: Vec<libc::c_int>| -> Result<Vec<SeccompRule>, BackendError> {
        values.into_iter().map(|value| SeccompRule::new(vec![is(argument, number(value))?])).collect()
    };
    let ioctls = IOCTLS.map(|(mask, value)| SeccompRule::new(vec![masked(1, mask, value)?]));
    list.extend([
        (libc::SYS_socket, rules(0, families)?),
        // Questions to the kernel have no address. Datagrams to sockets of others would.
        only(libc::SYS_sendto, &[is_null(4)?])?,
        (libc::SYS_setsockopt, rules(1, levels)?),
        (libc::SYS_ioctl, ioctls.into_iter().collect::<Result<_, _>>()?),
        (
            libc::SYS_fcntl,
            rules(
                1,
                vec![
                    libc::F_GETFL,
                    libc::F_SETFL,
                    libc::F_GETFD,
                    libc::F_SETFD,
                    libc::F_DUPFD_CLOEXEC,
                    libc::F_ADD_SEALS,
                ],
            )?,
        ),
        // The device of taps is opened. No file is made.
        #[cfg(target_arch = "x86_64")]
        only(libc::SYS_open, &[masked(1, creates, 0)?])?,
    ]);
    Ok(list)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use straightline_port::device::{AfPacketRequest, AfXdpRequest, Steal, ZeroCopy};

    use super::*;

    fn packet() -> DeviceRequest {
        DeviceRequest::AfPacket(AfPacketRequest { interface: "a".to_owned(), queues: 1 })
    }

    fn xdp() -> DeviceRequest {
        let steal = Steal::default();
        let zero_copy = ZeroCopy::default();
        DeviceRequest::AfXdp(AfXdpRequest { interface: "a".to_owned(), queues: None, steal, zero_copy, mtu: 1500 })
    }

    #[test]
    fn each_stands_once() {
        let list = list(&[packet(), xdp()]).unwrap();
        let numbers: BTreeSet<_> = list.iter().map(|(call, _)| *call).collect();
        assert_eq!(numbers.len(), list.len());
    }

    #[test]
    fn a_kind_that_is_not_configured_gets_no_calls() {
        let families = |requests: &[DeviceRequest]| {
            let list = list(requests).unwrap();
            let bpf = list.iter().any(|(call, _)| *call == libc::SYS_bpf);
            (list.into_iter().find(|(call, _)| *call == libc::SYS_socket).unwrap().1.len(), bpf)
        };
        assert_eq!(families(&[]), (1, false));
        assert_eq!(families(&[packet()]), (2, false));
        assert_eq!(families(&[xdp()]), (4, true));
    }
}
