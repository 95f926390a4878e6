//! CVE-2020-10726: each GET_INFLIGHT_FD made a table, and the one before was kept.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use straightline_lab::GuestOptions;
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{Message, Request};

use crate::alone;
use crate::common::BASIC;
use crate::footprint::Footprint;
use crate::scene::Scene;

#[test]
fn cve_2020_10726_get_inflight_fd_in_a_loop() {
    let _alone = alone();
    let mut scene = Scene::new();
    scene.recovers("a first one");
    scene.settle();
    let before = Footprint::now();
    let mut stream = UnixStream::connect(scene.rig.socket(0)).expect("connect");
    let number = |request, value: u64| Message::request(request, value.to_ne_bytes().to_vec()).to_bytes();
    stream.write_all(&number(Request::SetFeatures, BASIC | f::VHOST_USER_F_PROTOCOL_FEATURES)).expect("sent");
    stream.write_all(&number(Request::SetProtocolFeatures, f::VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD)).expect("sent");
    let mut payload = vec![0; 16];
    payload.extend(2_u16.to_ne_bytes());
    payload.extend(1024_u16.to_ne_bytes());
    let ask = Message::request(Request::GetInflightFd, payload).to_bytes();
    let mut during = None;
    for _ in 0..hostile::repeats(1000, 10_000) {
        stream.write_all(&ask).expect("sent");
        // The answer is as long as the question; its descriptor is not taken, and so closed.
        let mut answer = vec![0; ask.len()];
        stream.read_exact(&mut answer).expect("a table");
        // Of all of them one is kept.
        during.get_or_insert_with(Footprint::now).is_as_before("a table");
    }
    drop(stream);
    scene.rig.wait_down(0, "waiting for a frontend");
    before.is_as_before("tables in a loop");
    scene.recovers("tables in a loop");
    scene.end();
}

/// A ring that started by a table kept it mapped when the next one came: with a table for each ring, a few frontends had
/// all the mappings that the process watches.
#[test]
fn cve_2020_10726_a_table_for_each_ring() {
    let _alone = alone();
    let mut scene = Scene::new();
    let options = GuestOptions { keep_inflight: true, ..GuestOptions::default() };
    let mut guest = scene.rig.guest(0, &options);
    scene.rig.wait_up(0);
    let kick = eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd");
    let before = Footprint::now();
    for ring in [0, 1, 0, 1] {
        let client = guest.client();
        drop(client.get_inflight_fd(2, options.ring_size).expect("a table"));
        let base = client.get_vring_base(ring).expect("it stops");
        client.set_vring_base(ring, base).expect("where it was");
        client.set_vring_kick(ring, Some(kick.as_fd())).expect("it starts");
        before.is_as_before("a table for each ring");
    }
    drop(guest);
    scene.recovers("a table for each ring");
    scene.end();
}
