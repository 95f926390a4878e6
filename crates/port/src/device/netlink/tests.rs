use proptest::prelude::*;
use straightline_testing::wait_until;

use super::super::test_namespace::{self, ip};
use super::*;

fn found(interfaces: &mut Interfaces, name: &str) -> Option<Interface> {
    assert!(interfaces.refresh());
    interfaces.find(name).cloned()
}

/// Waits until the interface is as `is_right` wants it: the kernel tells of a carrier a little
/// later.
fn wait_for(interfaces: &mut Interfaces, name: &str, is_right: fn(&Interface) -> bool) {
    wait_until("the interface is right", || {
        let interface = found(interfaces, name);
        if interface.as_ref().is_some_and(is_right) { Ok(()) } else { Err(interface) }
    });
}

#[test]
fn an_interface_is_followed_from_its_birth_to_its_end() {
    let Some(_namespace) = test_namespace::enter("an_interface_is_followed_from_its_birth_to_its_end") else { return };
    ip("link add b0 mtu 1400 type bridge");
    let mut interfaces = Interfaces::new(Clock::real()).expect("netlink");
    let b0 = found(&mut interfaces, "b0").expect("the dump has it");
    assert!(!b0.is_up && b0.mtu == 1400);
    assert_eq!(interfaces.get(b0.index), Some(&b0));

    ip("link add v0 address 02:00:00:00:00:07 type veth peer name v1");
    let v0 = found(&mut interfaces, "v0").expect("a message has it");
    assert_eq!((v0.is_up, v0.has_carrier, v0.mac), (false, false, [2, 0, 0, 0, 0, 7]));
    ip("link set v0 up");
    wait_for(&mut interfaces, "v0", |v0| v0.is_up && !v0.has_carrier);
    ip("link set v1 up");
    wait_for(&mut interfaces, "v0", |v0| v0.is_up && v0.has_carrier);
    ip("link set v1 down");
    wait_for(&mut interfaces, "v0", |v0| v0.is_up && !v0.has_carrier);
    ip("link set v0 mtu 9000");
    wait_for(&mut interfaces, "v0", |v0| v0.mtu == 9000);

    ip("link set v0 down");
    ip("link set v0 name other");
    assert_eq!(found(&mut interfaces, "v0"), None);
    assert_eq!(found(&mut interfaces, "other").map(|other| other.index), Some(v0.index));

    // A bridge says "deleted" about a port that leaves it. The interface stays.
    ip("link set other master b0");
    ip("link set other nomaster");
    assert!(found(&mut interfaces, "other").is_some());

    ip("link del other");
    assert_eq!((found(&mut interfaces, "other"), found(&mut interfaces, "v1")), (None, None));
    assert_eq!(interfaces.get(v0.index), None);
    assert_eq!(interfaces.drop_counts(v0.index).expect_err("it has gone").raw_os_error(), Some(libc::ENODEV));
    ip("link add v0 type veth peer name v1");
    assert_ne!(found(&mut interfaces, "v0").expect("it is back").index, v0.index);
}

#[test]
fn lost_messages_are_made_up_for() {
    let Some(_namespace) = test_namespace::enter("lost_messages_are_made_up_for") else { return };
    ip("link add gone type veth peer name stays");
    ip("link add b0 type bridge");
    let mut interfaces = Interfaces::new(Clock::real()).expect("netlink");
    net::sockopt::set_socket_recv_buffer_size(&interfaces.socket, 1).expect("SO_RCVBUF");
    for mtu in 1000..1020 {
        ip(&format!("link set b0 mtu {mtu}"));
    }
    ip("link del gone");
    ip("link add gone type veth peer name new");
    // The buffer has no space for that many messages.
    let error = (0..100).find_map(|_| interfaces.receive().err()).expect("the socket has kept all messages");
    assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS));
    while let Ok(Some(_)) = interfaces.receive() {}
    assert!(interfaces.find("stays").is_some());
    interfaces.is_stale = true;
    assert!(interfaces.refresh());
    assert_eq!(interfaces.find("b0").map(|b0| b0.mtu), Some(1019));
    assert!(interfaces.find("stays").is_none() && interfaces.find("new").is_some());
}

/// The socket is empty after any call that reads it, so each such call notes changes.
#[test]
fn a_change_is_noted_by_whichever_call_reads_it() {
    let Some(_namespace) = test_namespace::enter("a_change_is_noted_by_whichever_call_reads_it") else { return };
    ip("link add b0 type bridge");
    let mut interfaces = Interfaces::new(Clock::real()).expect("netlink");
    let index = found(&mut interfaces, "b0").expect("b0").index;
    assert!(interfaces.take_changed() && !interfaces.take_changed());
    assert!(interfaces.refresh() && !interfaces.take_changed());
    ip("link set b0 mtu 1300");
    assert!(interfaces.refresh() && interfaces.take_changed());
    // The answer itself is a message about the interface, but nothing has changed.
    interfaces.drop_counts(index).expect("counts");
    assert!(!interfaces.take_changed());
    ip("link set b0 mtu 1200");
    interfaces.drop_counts(index).expect("counts");
    assert!(interfaces.take_changed());
    ip("link del b0");
    assert!(interfaces.refresh() && interfaces.take_changed());
}

#[test]
fn drops_are_counted_at_the_interface() {
    let Some(_namespace) = test_namespace::enter("drops_are_counted_at_the_interface") else { return };
    let mut interfaces = Interfaces::new(Clock::real()).expect("netlink");
    ip("link add v0 type veth peer name v1 mtu 1000");
    ip("address add 10.9.0.1/24 dev v0");
    ip("link set v0 up");
    ip("link set v1 up");
    ip("neighbour add 10.9.0.2 lladdr 02:00:00:00:00:07 dev v0");
    let index = found(&mut interfaces, "v0").expect("v0").index;
    let before = interfaces.drop_counts(index).expect("counts");
    let socket = std::net::UdpSocket::bind("10.9.0.1:0").expect("bind");
    for _ in 0..3 {
        // The peer takes no packet of this length.
        socket.send_to(&[0; 1300], "10.9.0.2:9").expect("send");
    }
    let after = interfaces.drop_counts(index).expect("counts");
    assert_eq!((after.tx - before.tx, after.rx), (3, before.rx));
    assert!(interfaces.drop_counts(u32::MAX >> 1).is_err());
}

/// Returns a message about an interface, with these attributes.
fn message(kind: u16, family: u8, index: u32, flags: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = [&[0; 4][..], &kind.to_ne_bytes(), &[0; 10], &[family, 0, 1, 0], &index.to_ne_bytes()].concat();
    bytes.extend([flags.to_ne_bytes(), [0; 4]].concat());
    for (kind, value) in attributes {
        let length = u16::try_from(4 + value.len()).expect("short");
        bytes.extend([&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(bytes.len()).expect("short");
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// Returns interfaces without any.
fn empty() -> Interfaces {
    let mut interfaces = Interfaces::new(Clock::real()).expect("netlink");
    interfaces.known.clear();
    interfaces
}

#[test]
fn attributes_that_are_missing_or_of_another_form_change_nothing() {
    let mut interfaces = empty();
    let name = (libc::IFLA_IFNAME, &b"eth1\0"[..]);
    let mtu = 1500_u32.to_ne_bytes();
    let up = 1 | 1 << 16;
    let first = message(libc::RTM_NEWLINK, 0, 7, up, &[name, (libc::IFLA_MTU, &mtu)]);
    let bridge = message(libc::RTM_DELLINK, 7, 7, up, &[name]);
    let bare = message(libc::RTM_NEWLINK, 0, 7, 1, &[(libc::IFLA_MTU, &[1]), (9999, &[0; 40])]);
    interfaces.take_in(&[first.clone(), bridge, bare].concat());
    let expected = Interface { index: 7, name: "eth1".to_owned(), is_up: true, mtu: 1500, ..Interface::default() };
    assert_eq!(interfaces.get(7), Some(&expected));
    // A message that is not whole counts for nothing, and the messages before it do count.
    let gone = message(libc::RTM_DELLINK, 0, 7, 0, &[]);
    interfaces.take_in(&[&first[..], &gone[..gone.len() - 1]].concat());
    assert_eq!(interfaces.get(7), Some(&Interface { has_carrier: true, ..expected }));
    interfaces.take_in(&gone);
    assert_eq!(interfaces.get(7), None);
}

#[test]
fn an_error_number_beyond_the_kernels_range_is_an_error() {
    for code in [i32::MIN, -4096, 0, 1, i32::MAX] {
        let mut bytes = [0; 36];
        bytes[..4].copy_from_slice(&36_u32.to_ne_bytes());
        bytes[4..6].copy_from_slice(&2_u16.to_ne_bytes());
        bytes[16..20].copy_from_slice(&code.to_ne_bytes());
        let answers = empty().take_in(&bytes);
        assert!(matches!(answers[..], [Answer::Failed(_, Errno::PROTO)]), "{code}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut interfaces = empty();
        interfaces.take_in(&bytes);
        let stats = [7; 200];
        let attributes = [(libc::IFLA_IFNAME, &b"eth1\0"[..]), (libc::IFLA_STATS64, &stats), (libc::IFLA_MTU, &[0; 4])];
        let mut valid = [message(libc::RTM_NEWLINK, 0, 7, 1, &attributes), message(libc::RTM_DELLINK, 0, 7, 1, &[])];
        for (at, byte) in changes {
            let message = &mut valid[usize::from(byte & 1)];
            let at = at.index(message.len());
            message[at] = byte;
        }
        interfaces.take_in(&valid.concat());
    }
}

#[test]
fn a_kernel_that_does_not_answer_is_waited_for_in_vain() {
    let clock = Clock::moved();
    let mut interfaces = Interfaces::for_questions(clock.clone()).expect("netlink");
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, _silent) =
        net::socketpair(net::AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    interfaces.socket = Arc::new(ours);
    let asks = std::thread::spawn(move || interfaces.drop_counts(1));
    wait_until("the time of the kernel is over", || {
        clock.advance(ANSWER_TIME);
        asks.is_finished()
    });
    let error = asks.join().expect("the thread").expect_err("no answer");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
}
