use super::*;
use crate::device::test_namespace::{enter, ip};
use crate::device::{DeviceRequest, Direct, Opener};

fn request(name: &str) -> TapRequest {
    TapRequest {
        name: name.to_owned(),
        queues: 1,
        mtu: 1500,
        mac: None,
        offloads: TapOffloads { csum: true, tso: true, uso: true },
        persist: false,
        owner: None,
        group: None,
        bridge: None,
    }
}

fn error(request: &TapRequest) -> OpenError {
    open(request).expect_err("it cannot be opened")
}

#[track_caller]
fn assert_error(error: &OpenError, cause: OpenCause, words: &[&str]) {
    assert_eq!(error.cause, cause, "{error}");
    for word in words {
        assert!(error.message.contains(word), "{word:?} in {error}");
    }
}

/// Makes a persistent tap of these flags, as an administrator does.
fn persistent(name: &str, several: bool) -> Queue {
    let queue = Queue::open(Path::new(tun::DEVICE), name, several).expect("a tap");
    queue.persist().expect("persistent");
    queue
}

#[test]
fn a_new_tap_is_set_up_and_goes_with_its_descriptors() {
    let Some(_namespace) = enter("a_new_tap_is_set_up_and_goes_with_its_descriptors") else { return };
    let interfaces = Interfaces::new().expect("a socket");
    let wanted = TapRequest { queues: 4, mtu: 9000, mac: Some([2, 0, 0, 0, 0, 7]), ..request("sl0") };
    let opened = open(&wanted).expect("a tap");
    let facts = &opened.facts;
    assert_eq!((opened.fds.len(), facts.queues, facts.mtu, facts.mac), (4, 4, 9000, [2, 0, 0, 0, 0, 7]));
    assert_eq!((facts.interface.as_str(), facts.driver.as_str(), facts.warnings.len()), ("sl0", "tun", 0));
    assert_eq!(Some(facts.ifindex), interfaces.index("sl0").expect("an answer"));
    assert_eq!((interfaces.mtu("sl0"), interfaces.is_up("sl0")), (Ok(9000), Ok(true)));
    assert_eq!(interfaces.mac("sl0"), Ok(Some([2, 0, 0, 0, 0, 7])));
    let features = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4 | f::VIRTIO_NET_F_GUEST_TSO6;
    assert_eq!(facts.features & features, features);
    drop(opened);
    assert_eq!(interfaces.index("sl0"), Ok(None));
}

/// Another interface that gets the name of a tap is left alone.
#[test]
fn a_tap_that_was_renamed_is_set_up_itself() {
    let Some(_namespace) = enter("a_tap_that_was_renamed_is_set_up_itself") else { return };
    let interfaces = Interfaces::new().expect("a socket");
    let queue = Queue::open(Path::new(tun::DEVICE), "sl0", false).expect("a tap");
    assert_eq!(queue.name().as_deref(), Ok("sl0"));
    ip("link set sl0 name sl1");
    let _other = persistent("sl0", false);
    let before = interfaces.mac("sl0");
    let wanted = TapRequest { mtu: 9000, mac: Some([2, 0, 0, 0, 0, 7]), ..request("sl0") };
    let facts = set_up(&wanted, &queue, &interfaces, &mut Vec::new()).expect("set up");
    assert_eq!((facts.interface.as_str(), Some(facts.ifindex)), ("sl1", interfaces.index("sl1").expect("an answer")));
    assert_eq!((interfaces.mtu("sl1"), interfaces.is_up("sl1")), (Ok(9000), Ok(true)));
    assert_eq!((interfaces.mtu("sl0"), interfaces.is_up("sl0")), (Ok(1500), Ok(false)));
    assert_eq!(interfaces.mac("sl0"), before);
}

#[test]
fn offloads_that_are_off_are_not_offered() {
    let Some(_namespace) = enter("offloads_that_are_off_are_not_offered") else { return };
    let flags_of = |csum, tso, uso| {
        let offloads = TapOffloads { csum, tso, uso };
        open(&TapRequest { offloads, ..request("sl0") }).expect("a tap").facts.features
    };
    assert_eq!(flags_of(false, false, false), 0);
    assert_eq!(flags_of(true, false, false), f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_GUEST_CSUM);
    assert_eq!(flags_of(true, true, false) & f::VIRTIO_NET_F_HOST_USO, 0);
}

#[test]
fn a_persistent_tap_stays_and_is_used_again() {
    let Some(_namespace) = enter("a_persistent_tap_stays_and_is_used_again") else { return };
    let interfaces = Interfaces::new().expect("a socket");
    let first = open(&TapRequest { persist: true, ..request("sl0") }).expect("a tap").facts;
    assert_eq!(interfaces.index("sl0"), Ok(Some(first.ifindex)));
    let again = open(&TapRequest { persist: true, ..request("sl0") }).expect("the same tap").facts;
    assert_eq!(first, again);
    // A port that is not persistent leaves a tap that was there before it.
    drop(open(&request("sl0")).expect("the same tap"));
    assert_eq!(interfaces.index("sl0"), Ok(Some(first.ifindex)));
}

#[test]
fn a_tap_of_several_queues_serves_one() {
    let Some(_namespace) = enter("a_tap_of_several_queues_serves_one") else { return };
    drop(persistent("sl0", true));
    assert_eq!(open(&request("sl0")).expect("the tap").fds.len(), 1);
    assert_eq!(open(&TapRequest { queues: 3, ..request("sl0") }).expect("the tap").fds.len(), 3);
}

#[test]
fn a_bridge_gets_the_tap_each_time_it_is_made() {
    let Some(_namespace) = enter("a_bridge_gets_the_tap_each_time_it_is_made") else { return };
    let interfaces = Interfaces::new().expect("a socket");
    let wanted = TapRequest { bridge: Some("br0".to_owned()), ..request("sl0") };
    assert_error(&error(&wanted), OpenCause::Missing, &["bridge br0 does not exist", "ip link add br0 type bridge"]);
    assert_eq!(interfaces.index("sl0"), Ok(None), "a tap that was not set up does not stay");
    ip("link add br0 type bridge");
    ip("link add br1 type bridge");
    for _ in 0..2 {
        let opened = open(&wanted).expect("a tap");
        assert_eq!(interfaces.is_bridge_port("br0", opened.facts.ifindex), Ok(true));
    }
    drop(open(&TapRequest { persist: true, ..wanted.clone() }).expect("a tap"));
    drop(open(&wanted).expect("it is a port already"));
    let other = TapRequest { bridge: Some("br1".to_owned()), ..wanted.clone() };
    assert_error(&error(&other), OpenCause::Busy, &["another bridge than br1", "ip link set dev sl0 nomaster"]);
    let no_bridge = TapRequest { bridge: Some("lo".to_owned()), ..wanted };
    assert_error(&error(&no_bridge), OpenCause::Unsupported, &["lo is not a Linux bridge"]);
}

#[test]
fn taps_that_cannot_be_used_are_named_with_the_remedy() {
    let Some(_namespace) = enter("taps_that_cannot_be_used_are_named_with_the_remedy") else { return };
    let two = TapRequest { queues: 2, ..request("sl0") };
    let held = persistent("sl0", false);
    assert_error(&error(&request("sl0")), OpenCause::Busy, &["another program uses it"]);
    assert_error(&error(&two), OpenCause::Unsupported, &["one queue, not 2", "multi_queue", "ip link del sl0"]);
    drop(held);
    assert_error(&error(&two), OpenCause::Unsupported, &["one queue, not 2", "multi_queue"]);
    assert_error(&error(&request("lo")), OpenCause::Unsupported, &["lo is an interface already, but not a tap"]);
    let many = TapRequest { queues: 300, ..request("sl1") };
    assert_error(&error(&many), OpenCause::Unsupported, &["it takes 256 queues, not 300"]);
    let long = TapRequest { name: "a-name-of-16-byt".to_owned(), ..request("") };
    let refused = Direct::default().open(&DeviceRequest::Tap(long)).expect_err("too long");
    assert_error(&refused, OpenCause::Unsupported, &["16 bytes"]);
    let mtu = TapRequest { mtu: 40, ..request("sl2") };
    assert_error(&error(&mtu), OpenCause::Failed, &["cannot set its MTU"]);
}

/// Runs `f` in a thread without privileges and as another user. The kernel keeps both for each
/// thread.
fn without_privileges<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let none = rustix::thread::CapabilitySet::empty();
                let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
                rustix::thread::set_capabilities(None, sets).expect("no capabilities");
                f()
            })
            .join()
            .expect("no panic")
    })
}

#[test]
fn missing_privileges_are_named() {
    let Some(_namespace) = enter("missing_privileges_are_named") else { return };
    let denied = without_privileges(|| error(&request("sl0")));
    assert_error(&denied, OpenCause::Denied, &["CAP_NET_ADMIN", "ip tuntap add dev sl0 mode tap user"]);
    let theirs = persistent("sl1", false);
    theirs.set_owner(12_345).expect("an owner");
    drop(theirs);
    let denied = without_privileges(|| error(&request("sl1")));
    assert_error(&denied, OpenCause::Denied, &["belongs to another user", "ip tuntap add dev sl1"]);
    // A tap of ours is opened as it is. The settings that need privileges are named.
    let ours = persistent("sl2", false);
    ours.set_owner(rustix::process::geteuid().as_raw()).expect("an owner");
    drop(ours);
    let wanted = TapRequest { mtu: 1400, mac: Some([2, 0, 0, 0, 0, 7]), ..request("sl2") };
    let opened = without_privileges(|| open(&wanted)).expect("a tap of our user");
    let warnings = &opened.facts.warnings;
    assert_eq!((opened.facts.mtu, warnings.len()), (1500, 3), "{warnings:?}");
    for (warning, command) in
        warnings.iter().zip(["address 02:00:00:00:00:07", "ip link set dev sl2 mtu 1400", "ip link set dev sl2 up"])
    {
        assert!(warning.contains(command), "{warning}");
    }
    drop(opened);
    let bridged = TapRequest { bridge: Some("lo".to_owned()), ..request("sl2") };
    assert_error(&without_privileges(|| error(&bridged)), OpenCause::Unsupported, &["not a Linux bridge"]);
}
