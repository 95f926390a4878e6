use super::*;
use crate::device::test_namespace::{enter, ip};

fn request(interface: &str, queues: u16) -> AfPacketRequest {
    AfPacketRequest { interface: interface.to_owned(), queues }
}

#[track_caller]
fn assert_error(interface: &str, cause: OpenCause, words: &str) {
    let error = open(&request(interface, 1)).expect_err("it cannot be opened");
    assert_eq!(error.cause, cause, "{error}");
    assert!(error.message.contains(words), "{words:?} in {error}");
}

#[test]
fn an_interface_is_opened_by_as_many_sockets_as_wanted() {
    let Some(_namespace) = enter("an_interface_is_opened_by_as_many_sockets_as_wanted") else { return };
    ip("link add va0 mtu 9000 type veth peer name va1");
    ip("link set va0 address 02:00:00:00:00:07 up");
    // Two ports may have several sockets each: their groups differ.
    for queues in [1, 3, 4] {
        let opened = open(&request("va0", queues)).expect("sockets");
        let facts = &opened.facts;
        assert_eq!((opened.fds.len(), facts.queues), (usize::from(queues), queues));
        assert_eq!((facts.mtu, facts.mac, facts.driver.as_str()), (9000, [2, 0, 0, 0, 0, 7], "veth"));
        assert_ne!(facts.features & f::VIRTIO_NET_F_HOST_TSO6, 0);
    }
    let both = [2, 2].map(|queues| open(&request("va0", queues)).expect("a group of its own"));
    drop(both);
}

#[test]
fn interfaces_that_cannot_be_used_are_named_with_the_remedy() {
    let Some(_namespace) = enter("interfaces_that_cannot_be_used_are_named_with_the_remedy") else { return };
    ip("link add va0 type veth peer name va1");
    ip("link set lo up");
    assert_error("va9", OpenCause::Missing, "interface va9 does not exist; `ip link` shows");
    assert_error("lo", OpenCause::Unsupported, "interface lo is not Ethernet");
    assert_error("va0", OpenCause::Down, "interface va0 is down; set it up with `ip link set va0 up`");
    ip("link set va0 up");
    let denied = std::thread::spawn(|| {
        let none = rustix::thread::CapabilitySet::empty();
        let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).expect("no capabilities");
        open(&request("va0", 1)).expect_err("no privileges")
    });
    let denied = denied.join().expect("no panic");
    assert_eq!(denied.cause, OpenCause::Denied);
    assert!(denied.message.contains("a packet socket takes CAP_NET_RAW"), "{denied}");
}
