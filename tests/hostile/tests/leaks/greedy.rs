//! Frontends that start as many queue pairs as the protocol can name, while the process may open
//! few descriptors.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use straightline_guest::{Guest, GuestOptions};
use straightline_port::{descriptors_free, descriptors_taken, set_descriptor_limit};
use straightline_testing::{BASIC, Victims, bridge, frame, mac, patch, rig, send, take, vhost_user};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::FrontendClient;

use crate::alone;

/// Rings of 127 queue pairs, and the control ring.
const RINGS: u16 = 255;

/// Descriptors that the process may open besides the reserves of ports.
const MORE: u64 = 120;

/// Descriptors of the rings of one queue pair and of the control ring.
const RESERVE: u64 = 9;

/// The limit of this process. Dropping it removes the limit.
struct Limit;

impl Limit {
    fn new(limit: u64) -> Limit {
        set_descriptor_limit(limit);
        Limit
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        set_descriptor_limit(u64::MAX);
    }
}

/// Starts rings until the switch refuses a descriptor. Returns their number, and the frontend.
fn take_all(path: &std::path::Path) -> (u64, FrontendClient) {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let mut client = FrontendClient::connect(path).expect("connect");
    let features = BASIC | f::VHOST_USER_F_PROTOCOL_FEATURES | f::VIRTIO_NET_F_MQ | f::VIRTIO_NET_F_CTRL_VQ;
    let protocol = f::VHOST_USER_PROTOCOL_F_MQ | f::VHOST_USER_PROTOCOL_F_REPLY_ACK;
    client.handshake(features, protocol).expect("a session");
    let mut kept = 0;
    for ring in 0..RINGS {
        let fd = Some(event.as_fd());
        for sent in [client.set_vring_kick(ring, fd), client.set_vring_call(ring, fd), client.set_vring_err(ring, fd)] {
            kept += u64::from(sent.is_ok());
        }
    }
    // A descriptor that replaces another one is no further one.
    client.set_vring_call(0, Some(event.as_fd())).expect("another call descriptor");
    (kept, client)
}

#[test]
fn a_greedy_frontend_leaves_others_their_descriptors() {
    let _alone = alone();
    let before = descriptors_taken();
    let rig = rig(5, |config| {
        (0..4).for_each(|port| vhost_user(&mut config.ports[port]).queues = None);
        vhost_user(&mut config.ports[4]).queues = Some(4);
        config.patches.push(patch(2, 3));
        config.bridges.push(bridge(2));
    });
    let _limit = Limit::new(descriptors_taken() + MORE);
    let victims = Victims::start(&rig, 2, 3);
    let (first, greedy) = take_all(rig.socket(0));
    assert_eq!(first, RESERVE + MORE / 2, "a frontend leaves as many free as it takes beyond its reserve");
    rig.wait_down(0, "keeps 69 descriptors of this frontend's rings");
    // The next one gets half of the rest, and those without `queues` one pair at least.
    let (second, other) = take_all(rig.socket(1));
    assert_eq!(second, RESERVE + MORE / 4);
    assert_eq!(descriptors_free(), MORE / 4);
    drop(other);
    victims.go_on();
    // A port with `queues` has descriptors for all of them.
    let pairs = GuestOptions { queue_pairs: 4, ..GuestOptions::default() };
    drop(rig.guest(4, &pairs));
    // A port that is added has a reserve too, and its frontend and the other one of the bridge work.
    let path = rig.socket(0).with_file_name("added");
    let listener = UnixListener::bind(&path).expect("a socket");
    let late_path = rig.socket(1).clone();
    let switch = Arc::new(rig.switch);
    let port = switch.add_dynamic_port("added", "lan", OwnedFd::from(listener), &path).expect("a dynamic port");
    let mut late = Guest::connect(&late_path, &GuestOptions::default()).expect("a guest");
    let mut added = Guest::connect(&path, &GuestOptions::default()).expect("a guest");
    let bytes = frame(mac(2), mac(1), 700, 1);
    send(&mut late, &bytes);
    assert!(take(&mut added, 1)[0].1 == bytes);
    // Ports are added until reserves are used up. The reason names the limit.
    let mut ports = vec![port];
    let refused = loop {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        match switch.add_dynamic_port(&format!("d{}", ports.len()), "lan", OwnedFd::from(socket), "d") {
            Ok(port) => ports.push(port),
            Err(error) => break format!("{error:#}"),
        }
        assert!(ports.len() < 10, "no port is refused");
    };
    assert!(refused.contains("LimitNOFILE"), "{refused}");
    victims.finish();
    drop((greedy, late, added, ports));
    drop(Arc::into_inner(switch).expect("no other owner"));
    assert_eq!(descriptors_taken(), before, "all are given back");
}
