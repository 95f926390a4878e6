//! Receive buffers so small that a packet needs hundreds of them, or more than exist. The tests
//! count the descriptors that the switch reads.

use std::os::fd::AsFd;

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Ring, Scene, measure_gap};
use rustix::event::{EventfdFlags, eventfd};
use straightline_config::WhenFull;
use straightline_guest::GuestOptions;
use straightline_packet::double::Double;
use straightline_testing::packets::tcp4;
use straightline_testing::{frame, mac, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::{Geometry, NEXT, WRITE};
use straightline_virtio::vhost_user::RingAddresses;

use crate::once_packets::counted;

/// Flag of an available packed descriptor in the first round (virtio 1.2, 2.8.1).
const AVAILABLE: u16 = 1 << 7;

/// Number of packets of an attack, fewer than the good guest's ring has buffers.
const PACKETS: u16 = 192;

type Packet = (NetHeader, Vec<u8>);

/// Returns `given` buffers of one byte. Only the first one has 12 bytes, because it must hold the
/// header.
fn tiny(given: usize) -> Vec<(u32, u16)> {
    let mut buffers = vec![(1, WRITE); given];
    buffers[0].0 = 12;
    buffers
}

/// Connects a guest with mergeable buffers at the attacker's port. It publishes descriptors of
/// these lengths and flags, in a ring of `size` entries.
fn receiver(scene: &Scene, layout: Layout, features: u64, size: u16, descriptors: &[(u32, u16)]) -> Attacker {
    let features = GuestOptions::default().features | features;
    let options = GuestOptions { features, ring_size: 1024, withhold: true, ..GuestOptions::default() };
    let mut guest = Attacker::connect(scene.rig.socket(0), layout, &options);
    let geometry = place(&guest, size);
    let buffer = guest.buffer_address(Ring::Receive, 0);
    let mut table = Vec::new();
    let mut available = vec![0, 0];
    available.extend(u16::try_from(descriptors.len()).expect("they are in the ring").to_le_bytes());
    for (n, &(len, flags)) in (0_u16..).zip(descriptors) {
        table.extend(buffer.to_le_bytes());
        table.extend(len.to_le_bytes());
        // A split descriptor ends with flags and next, a packed one with id and flags.
        let words = if layout == Layout::Split { [flags, 0] } else { [n, flags | AVAILABLE] };
        table.extend(words.map(u16::to_le_bytes).as_flattened());
        available.extend(n.to_le_bytes());
    }
    assert!(guest.write_memory(geometry.desc, &table));
    if layout == Layout::Split {
        assert!(guest.write_memory(geometry.avail, &available));
    }
    let Geometry { desc, avail, used, .. } = geometry;
    let base = if layout == Layout::Split { 0 } else { 0x8000_8000 };
    let events = [(); 2].map(|()| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd"));
    let client = guest.client();
    client.get_vring_base(0).expect("it stops");
    client.set_vring_num(0, size).expect("a size");
    client.set_vring_base(0, base).expect("a base");
    client.set_vring_addr(0, RingAddresses { desc, avail, used }).expect("addresses");
    client.set_vring_call(0, Some(events[0].as_fd())).expect("a call");
    client.set_vring_kick(0, Some(events[1].as_fd())).expect("it starts");
    guest
}

/// Returns the address of the attacker's ring. The ring lies in the transmit buffers, which are not
/// used.
fn place(guest: &Attacker, size: u16) -> Geometry {
    let desc = guest.buffer_address(Ring::Transmit, 0).next_multiple_of(4096);
    Geometry { size, desc, avail: desc + (512 << 10), used: desc + (768 << 10) }
}

/// Returns the number of descriptors of the attacker's ring that the switch has read.
fn looked(table: &Double) -> u32 {
    table.loads().iter().sum::<u32>() / 16
}

/// Lets the good guest send all packets at once. They are dropped for `reason`, and counted `drops`
/// times. Returns the number of descriptors that the switch has read.
fn attack(
    scene: &mut Scene,
    what: &str,
    guest: Attacker,
    size: u16,
    packets: &[Packet],
    (reason, drops): (&str, u64),
) -> u32 {
    let table = counted(&guest, place(&guest, size).desc, 16 * u32::from(size));
    let before = scene.rig.drops(0, reason);
    let Scene { rig, good, victims, .. } = &mut *scene;
    measure_gap(victims, what, || {
        for (header, bytes) in packets {
            assert!(good.send(header, bytes));
        }
        good.flush();
        rig.wait_drops(0, reason, before + drops);
    });
    scene.rig.wait_up(0);
    let looked = looked(&table);
    drop(table);
    drop(guest);
    scene.recovers(what);
    looked
}

fn plain(len: usize) -> Vec<Packet> {
    (0..PACKETS).map(|n| (NetHeader::default(), frame(mac(1), mac(2), len, n.into()))).collect()
}

#[test]
fn buffers_of_one_byte_are_not_all_looked_at_for_each_packet() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let guest = receiver(&scene, layout, 0, 2048, &tiny(1500));
        let outcome = ("many-descriptors", PACKETS.into());
        let looked = attack(&mut scene, "1500 buffers of one byte", guest, 2048, &plain(1500), outcome);
        // A few hundred for each batch of 64.
        assert!(looked < 64 * u32::from(PACKETS), "{looked}");
        scene.end();
    }
}

/// TCP packets that the receiver accepts unsegmented, and packets that are segmented for it.
#[test]
fn buffers_of_one_byte_in_the_largest_ring_are_not_all_looked_at_for_a_large_packet() {
    const LARGE: u64 = 12;
    let features = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4;
    let good = GuestOptions { features, buffer_len: 65_600, ring_size: 32, ..GuestOptions::default() };
    for layout in Layout::BOTH {
        let mut scene = Scene::with_good_guest(layout, 1, &good, |_| ());
        let takes = f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_TSO4;
        for (features, each) in [(takes, 1), (0, 42)] {
            let guest = receiver(&scene, layout, features, 32_768, &tiny(32_768));
            let packets = vec![tcp4(mac(1), mac(2), 60_000, 1460); 12];
            let outcome = ("many-descriptors", LARGE * each);
            let looked = attack(&mut scene, "32768 buffers of one byte", guest, 32_768, &packets, outcome);
            assert!(looked < 12 * 1024, "{looked}");
        }
        scene.end();
    }
}

/// The capacity of the buffers is known once the switch has seen the end of the ring.
#[test]
fn too_few_buffers_are_looked_at_once_for_a_frame() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let guest = receiver(&scene, layout, 0, 128, &tiny(100));
        let outcome = ("no-buffer", PACKETS.into());
        let looked = attack(&mut scene, "100 buffers of one byte", guest, 128, &plain(1500), outcome);
        assert!(looked < 16 * u32::from(PACKETS), "{looked}");
        scene.end();
    }
}

/// With `full = "wait"`, a packet waits only if the ring can ever have enough buffers for it.
/// Finding that out does not read the ring.
#[test]
fn a_full_ring_that_is_too_small_is_looked_at_once_for_a_frame() {
    for layout in Layout::BOTH {
        let good = GuestOptions::default();
        let mut scene = Scene::with_good_guest(layout, 1, &good, |config| config.patches[0].full = WhenFull::Wait);
        let guest = receiver(&scene, layout, 0, 128, &tiny(128));
        let outcome = ("no-buffer", PACKETS.into());
        let looked = attack(&mut scene, "a ring of 128 bytes", guest, 128, &plain(1500), outcome);
        assert!(looked < 16 * u32::from(PACKETS), "{looked}");
        scene.end();
    }
}

/// Descriptors that are read together with the next buffers count as work too, although no packet
/// uses them. Of every two packets, the first would need too many buffers, and the second needs
/// one. A chain of 700 descriptors follows the buffers.
#[test]
fn descriptors_behind_tiny_buffers_count_as_well() {
    let good = GuestOptions { buffer_len: 9100, ..GuestOptions::default() };
    let mut scene = Scene::with_good_guest(Layout::Packed, 1, &good, |config| {
        config.ports.iter_mut().for_each(|port| port.mtu = 9000);
        // The good guest's packets pass in one turn, whose work is limited.
        config.ports[1].share = 10;
    });
    let mut buffers = vec![(26, WRITE); 300];
    buffers.extend([(1, WRITE | NEXT); 699]);
    buffers.push((1, WRITE));
    let guest = receiver(&scene, Layout::Packed, 0, 1024, &buffers);
    for n in 0..64 {
        let len = if n % 2 == 0 { 9000 } else { 14 };
        assert!(scene.good.send(&NetHeader::default(), &frame(mac(1), mac(2), len, n)));
    }
    scene.good.flush();
    let delivered = || scene.rig.port(0).queues[0].tx.packets;
    let dropped = || scene.rig.drops(0, "many-descriptors");
    wait_until("all are delivered or counted", || delivered() + dropped() == 64);
    assert!((8..24).contains(&delivered()), "{}", delivered());
    drop(guest);
    scene.recovers("a chain behind tiny buffers");
    scene.end();
}
