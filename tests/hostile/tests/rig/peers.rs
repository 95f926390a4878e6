//! Peers that do not cooperate: they do not read, do not take packets, do not return buffers, or
//! never stop kicking.

use std::os::fd::AsFd;
use std::time::Duration;

use hostile::attacker::Layout;
use hostile::scene::{Ring, Scene, valid};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use straightline_guest::GuestOptions;
use straightline_testing::{arrived, frame, mac, send, take, wait_until};
use straightline_virtio::ring::Descriptor;
use straightline_virtio::vhost_user::{FrontendClient, Message, Request};

/// Time after which a socket that takes nothing counts as full.
const FULL: Duration = Duration::from_millis(200);

#[test]
fn a_peer_that_stops_reading_its_socket() {
    let mut scene = Scene::new();
    let client = FrontendClient::connect(scene.rig.socket(0)).expect("connect");
    // Send requests until both sockets are full: the port's thread then waits until we read its
    // answers. The time is the subject: only silence shows that the sockets are full.
    client.set_timeout(Some(FULL)).expect("a time limit");
    let question = Message::request(Request::GetFeatures, Vec::new());
    while client.send_raw(&question, &[]).is_ok() {}
    scene.victims.go_on();
    scene.rig.wait_down(0, "a frontend is connected");
    drop(client);
    scene.recovers("a peer that does not read");
    // The switch can still stop.
    let client = FrontendClient::connect(scene.rig.socket(0)).expect("connect");
    client.set_timeout(Some(FULL)).expect("a time limit");
    while client.send_raw(&question, &[]).is_ok() {}
    scene.end();
}

#[test]
fn a_guest_that_never_returns_buffers() {
    let mut scene = Scene::new();
    let mut guest = scene.rig.guest(0, &GuestOptions { withhold: true, ring_size: 64, ..GuestOptions::default() });
    // The guest takes 64 packets and returns no buffer. The other packets are dropped with a
    // reason, and nothing waits for the guest.
    guest.give(64);
    for n in 0..1000 {
        send(&mut scene.good, &frame(mac(1), mac(2), 1200, n));
    }
    scene.rig.wait_drops(0, "no-buffer", 1000 - 64);
    wait_until("its sender has all buffers back", || {
        scene.good.flush();
        scene.good.spare() == 256
    });
    assert_eq!(take(&mut guest, 64).len(), 64);
    scene.victims.go_on();
    drop(guest);
    scene.recovers("a guest that keeps its buffers");
    scene.end();
}

// Cites packed-2.8.16-4.
#[test]
fn a_guest_that_floods_kicks() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let guest = scene.attacker();
        scene.measure_gap("a flood of kicks", |_| {
            for n in 0..hostile::repeats(20_000, 1_000_000) {
                guest.kick(if n % 2 == 0 { Ring::Transmit } else { Ring::Receive });
            }
        });
        scene.victims.go_on();
        drop(guest);
        scene.recovers("kicks");
        scene.end();
    }
}

#[test]
fn a_call_that_is_full_and_blocks_holds_nobody_up() {
    for layout in Layout::BOTH {
        fill_calls_that_block(Scene::with_layout(layout));
    }
}

/// Makes the call descriptors of a frontend block, and fills them. The victims must not be
/// affected.
pub(crate) fn fill_calls_that_block(mut scene: Scene) {
    let mut guest = scene.attacker();
    for ring in [Ring::Receive, Ring::Transmit] {
        let call = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        guest.client().set_vring_call(ring as u16, Some(call.as_fd())).expect("a call");
        // The port made the descriptor non-blocking. The frontend reverts that, and fills the
        // counter.
        fcntl_setfl(&call, fcntl_getfl(&call).expect("flags") & !OFlags::NONBLOCK).expect("flags");
        let mut counted = [0; 8];
        rustix::io::read(&call, &mut counted).expect("one call");
        rustix::io::write(&call, &(u64::MAX - 1).to_ne_bytes()).expect("to the brim");
    }
    let bytes = frame(mac(2), mac(1), 400, 2);
    guest.write_memory(guest.buffer_address(Ring::Transmit, 0), &[0; 12]);
    guest.write_memory(guest.buffer_address(Ring::Transmit, 0) + 12, &bytes);
    for n in 0..100 {
        // Both rings have used entries, and both drivers want a call, because neither has requested
        // a later event.
        let buffer = Descriptor { len: 2000, ..valid(&guest, Ring::Receive) };
        guest.publish(Ring::Receive, &[buffer]);
        guest.publish(Ring::Transmit, &[Descriptor { len: 412, ..valid(&guest, Ring::Transmit) }]);
        send(&mut scene.good, &frame(mac(1), mac(2), 700, n));
        guest.wait_used(Ring::Transmit);
        guest.wait_used(Ring::Receive);
    }
    scene.victims.go_on();
    let calls = scene.rig.port(0).queues[0].calls_sent;
    assert!(calls > 0, "the guest was not called");
    drop(guest);
    scene.settle();
    scene.recovers("a call that blocks");
    scene.end();
}

#[test]
fn a_guest_that_moves_its_used_index() {
    let mut scene = Scene::new();
    let guest = scene.attacker();
    let at = guest.geometry(Ring::Transmit);
    let bytes = frame(mac(2), mac(1), 800, 4);
    guest.write_memory(guest.buffer_address(Ring::Transmit, 0), &[0; 12]);
    guest.write_memory(guest.buffer_address(Ring::Transmit, 0) + 12, &bytes);
    for (n, moved) in (1..).zip([0, 1, 15, 16, 17, 0x7fff, 0xffff_u16].repeat(20)) {
        // The device owns the used index and elements, and keeps its own count. It never reads what
        // the guest writes there.
        guest.memory().area(at.used, 4, 4).expect("the ring is in memory").release_u16(2, moved);
        guest.write_memory(at.used + 4, &[0xff; 8 * 16]);
        guest.publish(Ring::Transmit, &[Descriptor { len: 812, ..valid(&guest, Ring::Transmit) }]);
        assert!(take(&mut scene.good, 1)[0].1 == bytes);
        wait_until("the device's own index is in the ring", || guest.used_index(Ring::Transmit) == n);
    }
    drop(guest);
    scene.recovers("a used index that moves");
    scene.end();
}

#[test]
fn a_flood_of_the_smallest_packets() {
    let mut scene = Scene::new();
    let guest = scene.attacker();
    let at = Ring::Transmit;
    guest.write_memory(guest.buffer_address(at, 0), &[0; 12]);
    for descriptor in 0..16 {
        guest.write_descriptor(at, descriptor, Descriptor { len: 26, ..valid(&guest, at) });
        guest.write_available(at, descriptor, descriptor);
    }
    let mut index = 0_u16;
    for _ in 0..hostile::repeats(200, 10_000) {
        index = index.wrapping_add(16);
        guest.publish_index(at, index);
        wait_until("the packets are used", || {
            arrived(&mut scene.good);
            guest.used_index(at) == index
        });
    }
    scene.victims.go_on();
    drop(guest);
    scene.settle();
    scene.recovers("a flood");
    scene.end();
}
