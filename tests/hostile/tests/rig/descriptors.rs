//! Receive buffers with many descriptors, while another guest decides how many buffers are needed.

use hostile::attacker::{Attacker, Layout};
use hostile::scene::Ring;
use straightline_guest::GuestOptions;
use straightline_testing::packets::{Kind, segmented};
use straightline_testing::{Rig, Victims, frame, mac, noise, patch, rig, send, vhost_user, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::ring::{Descriptor, WRITE};

/// Bytes of each segment into which the attacker's packets are split.
const SIZE: u16 = 64;

/// Number of segments.
const SEGMENTS: u16 = 1000;

/// Starts a switch. Ports 0 (the attacker's) and 1 are patched, and so are 2 and 3 (the victims').
fn patched(layout: Layout) -> Rig {
    rig(4, |config| {
        vhost_user(&mut config.ports[1]).packed = layout == Layout::Packed;
        config.patches.push(patch(0, 1));
        config.patches.push(patch(2, 3));
    })
}

/// Connects a guest at port 1. Like Linux' driver before 6.2 with `mrg_rxbuf=off` and
/// `rx_queue_size=1024`, it accepts some unsegmented packets, but not those of TCP over IPv6.
/// Each of its buffers is a table of `descriptors` descriptors of 100 bytes.
fn receiver(rig: &Rig, layout: Layout, descriptors: u16) -> Attacker {
    let features =
        f::VIRTIO_F_VERSION_1 | f::VIRTIO_F_INDIRECT_DESC | f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_TSO4;
    let options = GuestOptions { features, ring_size: 1024, withhold: true, ..GuestOptions::default() };
    let guest = Attacker::connect(rig.socket(1), layout, &options);
    // All buffers share one table and one piece of memory, because the test does not read their
    // contents.
    let at = guest.buffer_address(Ring::Receive, 0);
    let whole = vec![Descriptor { addr: at, len: 100, flags: WRITE, next: 0 }; descriptors.into()];
    let table = guest.table(guest.buffer_address(Ring::Transmit, 0), &whole);
    guest.publish_all(Ring::Receive, &vec![&[table][..]; usize::from(SEGMENTS) + 1]);
    guest
}

/// Connects a guest at port 0, which sends one packet that is split into all those segments.
fn attack(rig: &Rig) -> straightline_guest::Guest {
    let features = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO6;
    let options = GuestOptions { features, buffer_len: 65_600, ring_size: 16, ..GuestOptions::default() };
    let mut guest = rig.guest(0, &options);
    let payload = noise(7, usize::from(SIZE) * usize::from(SEGMENTS));
    let (header, frame) = segmented(Kind::Tcp6, mac(2), mac(1), &payload, SIZE);
    assert!(guest.send(&header, &frame));
    guest.flush();
    guest
}

fn delivered(rig: &Rig) -> u64 {
    rig.port(1).queues[0].tx.packets
}

/// A packet of another guest needs a thousand of the buffers.
#[test]
fn buffers_as_drivers_make_them_stop_nobody_however_many_are_needed() {
    for layout in Layout::BOTH {
        let rig = patched(layout);
        let victims = Victims::start(&rig, 2, 3);
        // 17 fragments, the linear part before them, and the header.
        let guest = receiver(&rig, layout, 19);
        let mut attacker = attack(&rig);
        wait_until("all segments are delivered", || delivered(&rig) == u64::from(SEGMENTS));
        victims.go_on();
        send(&mut attacker, &frame(mac(2), mac(1), 700, 1));
        guest.wait_used(Ring::Receive);
        assert_eq!(guest.last_written(Ring::Receive), 712);
        rig.no_drops();
        victims.finish();
    }
}

/// Buffers of hundreds of descriptors take no time from other ports. Packets that would have needed
/// them are counted, and the port stays up.
#[test]
fn buffers_of_too_many_descriptors_are_followed_only_so_far() {
    for layout in Layout::BOTH {
        let rig = patched(layout);
        let victims = Victims::start(&rig, 2, 3);
        let guest = receiver(&rig, layout, 120);
        let mut attacker = attack(&rig);
        let dropped = || rig.drops(1, "many-descriptors");
        wait_until("all segments are delivered or counted", || delivered(&rig) + dropped() == u64::from(SEGMENTS));
        assert!(
            dropped() > u64::from(SEGMENTS / 2),
            "{} packets were delivered: too many descriptors were followed",
            delivered(&rig)
        );
        victims.go_on();
        let before = delivered(&rig);
        send(&mut attacker, &frame(mac(2), mac(1), 700, 1));
        wait_until("the next one is delivered", || delivered(&rig) == before + 1);
        drop(guest);
        victims.finish();
        assert!(rig.port(2).drops.is_empty() && rig.port(3).drops.is_empty());
    }
}
