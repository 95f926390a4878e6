//! Frontends that break every rule of the protocol. The victims on the same worker must not be
//! affected.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};

use hostile::scene::Scene;
use straightline_guest::{Ring, memory_file};
use straightline_testing::{self as testing, BASIC, noise};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{FrontendClient, Message, RegionRef, RegionSpec, Request, RingAddresses};

/// Connects a frontend that has negotiated features, and set up nothing else.
pub(crate) fn frontend(scene: &Scene) -> FrontendClient {
    let mut client = FrontendClient::connect(scene.rig.socket(0)).expect("connect");
    let wanted = BASIC | f::VHOST_USER_F_PROTOCOL_FEATURES;
    let agreed = client.handshake(wanted, u64::MAX).expect("handshake");
    client.set_features(agreed.features).expect("features");
    client.set_timeout(Some(testing::PATIENCE)).expect("timeout");
    client
}

pub(crate) fn region(size: u64, offset: u64) -> RegionSpec {
    RegionSpec { guest_addr: 0x1000, size, user_addr: 0x1000, mmap_offset: offset }
}

/// Returns a message with a ring and a number, like SET_VRING_NUM ("A vring state description").
pub(crate) fn state(request: Request, index: u32, num: u32) -> Message {
    Message::request(request, [index.to_ne_bytes(), num.to_ne_bytes()].concat())
}

/// Returns a message with a number of 64 bits.
pub(crate) fn number(request: Request, value: u64) -> Message {
    Message::request(request, value.to_ne_bytes().to_vec())
}

/// Returns SET_VRING_ADDR ("A vring address description").
pub(crate) fn addresses(index: u32, RingAddresses { desc, avail, used }: RingAddresses) -> Message {
    let mut payload = [index.to_ne_bytes(), 0_u32.to_ne_bytes()].concat();
    payload.extend([desc, used, avail, 0].iter().flat_map(|addr| addr.to_ne_bytes()));
    Message::request(Request::SetVringAddr, payload)
}

#[test]
fn regions_that_overlap() {
    let mut scene = Scene::new();
    let memory = memory_file(1 << 20).expect("memory");
    let at = |guest: u64, user: u64, size: u64| RegionSpec {
        guest_addr: 0x10_0000 + guest,
        user_addr: 0x7000_0000 + user,
        size,
        mmap_offset: 0,
    };
    let first = at(0, 0, 0x1_0000);
    for second in [
        first,
        at(0xffff, 0x10_0000, 0x1000),
        at(0x10_0000, 0xffff, 0x1000),
        at(0x1000, 0x10_0000, 1),
        at(0, 0x10_0000, 1),
        RegionSpec { guest_addr: 0, user_addr: 0, size: 0x10_0001, mmap_offset: 0x100 },
        RegionSpec { guest_addr: 0, user_addr: 1 << 40, size: 1 << 40, mmap_offset: 0 },
    ] {
        for order in [[first, second], [second, first]] {
            let mut client = frontend(&scene);
            let regions = order.map(|spec| RegionRef { spec, fd: memory.as_fd() });
            assert!(client.set_mem_table(&regions).is_err(), "{order:?}");
            scene.rig.wait_down(0, "memory regions overlap in");
        }
        let mut client = frontend(&scene);
        client.add_mem_region(&RegionRef { spec: first, fd: memory.as_fd() }).expect("the first");
        assert!(client.add_mem_region(&RegionRef { spec: second, fd: memory.as_fd() }).is_err(), "{second:?}");
        // The first region is unchanged.
        client.remove_mem_region(&first).expect("the first");
        scene.victims.go_on();
        drop(client);
        scene.recovers("regions that overlap");
    }
    scene.end();
}

#[test]
fn rings_outside_memory() {
    let mut scene = Scene::new();
    let memory = memory_file(1 << 20).expect("memory");
    let end = 0x1000 + (1 << 20);
    let good = RingAddresses { desc: 0x1000, avail: 0x2000, used: 0x3000 };
    let cases = [
        RingAddresses { desc: 0, ..good },
        RingAddresses { desc: !15, ..good },
        RingAddresses { desc: end - 16, ..good },
        RingAddresses { avail: end - 4, ..good },
        RingAddresses { used: end - 8, ..good },
        RingAddresses { used: end, ..good },
    ];
    for (n, addresses) in cases.into_iter().enumerate() {
        let mut client = frontend(&scene);
        client.set_mem_table(&[RegionRef { spec: region(1 << 20, 0), fd: memory.as_fd() }]).expect("memory");
        for ring in [0, 1] {
            // One of the steps is refused, or the ring never becomes ready. In each case the ring
            // does not run.
            let _ = client.set_vring_num(ring, 256);
            let _ = client.set_vring_addr(ring, addresses);
            let _ = client.set_vring_kick(ring, None);
            let _ = client.set_vring_enable(ring, true);
        }
        scene.rig.wait_down(0, if (2..5).contains(&n) { "not in guest memory" } else { "memory" });
        scene.victims.go_on();
        drop(client);
        scene.recovers("a ring outside memory");
    }
    scene.end();
}

#[test]
fn frontends_that_talk_nonsense() {
    let mut scene = Scene::new();
    let connect = |scene: &Scene| UnixStream::connect(scene.rig.socket(0)).expect("connect");
    let whole = Message::request(Request::GetFeatures, Vec::new()).to_bytes();
    let state = Message::request(Request::SetVringNum, vec![0; 8]).to_bytes();
    let mut attacks: Vec<Vec<u8>> = (1..whole.len()).map(|n| whole[..n].to_vec()).collect();
    attacks.extend((13..state.len()).map(|n| state[..n].to_vec()));
    attacks.extend((0..40).map(|seed| noise(seed, 12 + 40 * usize::try_from(seed).expect("short"))));
    // A size of 4 GiB, a version of 0, a reply, two unknown requests.
    attacks.extend(
        [[1, 1, u32::MAX], [1, 0, 0], [1, 5, 0], [77, 1, 0], [0, 1, 0]]
            .map(|words| words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()),
    );
    for (n, bytes) in attacks.iter().enumerate() {
        let mut stream = connect(&scene);
        let _ = stream.write_all(bytes);
        if n % 8 == 0 {
            scene.victims.go_on();
            drop(stream);
            scene.recovers("nonsense");
        }
    }
    // A silent frontend occupies the port until it leaves. Then the next one is served.
    let silent = connect(&scene);
    scene.rig.wait_down(0, "a frontend is connected");
    scene.victims.go_on();
    drop(silent);
    scene.recovers("silence");
    scene.end();
}

#[test]
fn every_request_at_the_wrong_time() {
    let mut scene = Scene::new();
    for &request in Request::ALL {
        for payload in [0, 4, 8, 20, 40, 72] {
            for set_up in [false, true] {
                let client = if set_up {
                    frontend(&scene)
                } else {
                    FrontendClient::connect(scene.rig.socket(0)).expect("connect")
                };
                let payload = noise(payload as u64, payload);
                let _ = client.send_raw(&Message::request(request, payload), &[]);
            }
        }
        scene.victims.go_on();
    }
    // SEND_RARP is one of the requests: wait until its packets have arrived.
    scene.settle();
    scene.recovers("every request");
    scene.end();
}

#[test]
fn kicks_without_end_and_descriptors_that_are_no_eventfds() {
    let mut scene = Scene::new();
    let guest = scene.attacker();
    for _ in 0..20_000 {
        guest.publish_index(Ring::Transmit, 0);
    }
    scene.victims.go_on();
    drop(guest);
    scene.recovers("kicks");
    // With memory that is missing, the owner of a pipe can hold the kernel's lock on it for ever.
    // The next read or write then waits, regardless of its flags.
    let (read, write) = std::io::pipe().expect("a pipe");
    let (socket, _theirs) = UnixStream::pair().expect("sockets");
    let datagram = UnixDatagram::unbound().expect("a socket");
    let file = std::fs::File::open("/dev/null").expect("/dev/null");
    let bad = [read.as_fd(), write.as_fd(), datagram.as_fd(), file.as_fd()];
    let kicks = bad.into_iter().chain([socket.as_fd()]).map(|fd| (fd, true));
    for (fd, is_kick) in kicks.chain(bad.into_iter().map(|fd| (fd, false))) {
        let mut guest = scene.attacker();
        let client = guest.client();
        let answer = if is_kick { client.set_vring_kick(1, Some(fd)) } else { client.set_vring_call(1, Some(fd)) };
        answer.expect_err("it is no eventfd");
        scene.victims.go_on();
        drop(guest);
        scene.recovers("no eventfd");
    }
    scene.end();
}
