//! Guests whose packed rings break every rule. The victims on the same worker must not be affected.

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Down, Dropped, Ring, Scene, valid};
use straightline_guest::GuestOptions;
use straightline_testing::{BASIC, arrived, frame, mac, noise, send, take, wait_until};
use straightline_virtio::ring::{Descriptor, INDIRECT, NEXT, WRITE};

const TX: Ring = Ring::Transmit;
const RX: Ring = Ring::Receive;

#[test]
fn packed_chains_that_a_guest_must_not_send() {
    bad_chains(Scene::with_layout(Layout::Packed));
}

pub(crate) fn bad_chains(mut scene: Scene) {
    let nowhere = Descriptor { addr: 0x10, len: 100, flags: 0, next: 0 };
    for addr in [0, 0x10, 1 << 40, 1 << 63, u64::MAX] {
        scene.sends("an address outside memory", &Dropped("bad-address"), |guest| {
            guest.publish(TX, &[Descriptor { addr, ..nowhere }]);
        });
    }
    for beyond in [1, 99, 4096] {
        scene.sends("a buffer over the edge of memory", &Dropped("bad-address"), |guest| {
            guest.publish(TX, &[Descriptor { addr: guest.end() - 100 + beyond, ..nowhere }]);
        });
    }
    scene.sends("the header is there and the frame is not", &Dropped("bad-address"), |guest| {
        guest.publish(TX, &[Descriptor { len: 12, ..valid(guest, TX) }, nowhere]);
    });
    for len in [66_000, 1 << 31, u32::MAX] {
        scene.sends("longer than any frame", &Dropped("long-chain"), |guest| {
            guest.publish(TX, &[valid(guest, TX), Descriptor { len, ..valid(guest, TX) }]);
        });
    }
    scene.sends("lengths that overflow together", &Dropped("long-chain"), |guest| {
        let half = Descriptor { len: 1 << 31, ..valid(guest, TX) };
        guest.publish(TX, &[half, half, valid(guest, TX)]);
    });
    scene.sends("write-only", &Dropped("bad-direction"), |guest| {
        guest.publish(TX, &[Descriptor { flags: WRITE, ..valid(guest, TX) }]);
    });
    scene.sends("write-only behind the header", &Dropped("bad-direction"), |guest| {
        let valid = valid(guest, TX);
        guest.publish(TX, &[Descriptor { len: 12, ..valid }, Descriptor { flags: WRITE, ..valid }]);
    });
    scene.end();
}

#[test]
fn packed_tables_that_a_guest_must_not_send() {
    bad_tables(Scene::with_layout(Layout::Packed));
}

pub(crate) fn bad_tables(mut scene: Scene) {
    let table_of = |guest: &Attacker, chain: &[Descriptor]| guest.table(guest.buffer_address(TX, 1), chain);
    let refused = Dropped("bad-indirect");
    for len in [0, 1, 15, 17, 31, 16 * 17, u32::MAX, u32::MAX - 15] {
        scene.sends(&format!("a table of {len} bytes"), &refused, |guest| {
            guest.publish(TX, &[Descriptor { len, ..table_of(guest, &[valid(guest, TX)]) }]);
        });
    }
    scene.sends("a table that goes on in the ring", &refused, |guest| {
        guest.publish(TX, &[table_of(guest, &[valid(guest, TX)]), valid(guest, TX)]);
    });
    scene.sends("a table at a chain's end", &refused, |guest| {
        guest.publish(TX, &[valid(guest, TX), table_of(guest, &[valid(guest, TX)])]);
    });
    for (addr, what) in [(0, "outside memory"), (u64::MAX - 15, "at the end of all addresses")] {
        scene.sends(&format!("a table {what}"), &Dropped("bad-address"), |guest| {
            guest.publish(TX, &[Descriptor { addr, len: 32, flags: INDIRECT, next: 0 }]);
        });
    }
    scene.sends("a table over the edge of memory", &Dropped("bad-address"), |guest| {
        guest.publish(TX, &[Descriptor { addr: guest.end() - 16, len: 32, flags: INDIRECT, next: 0 }]);
    });
    scene.sends("an entry outside memory", &Dropped("bad-address"), |guest| {
        guest.publish(TX, &[table_of(guest, &[Descriptor { addr: 0, ..valid(guest, TX) }])]);
    });
    // WRITE is the only flag of an entry with a meaning (virtio 1.2, 2.8.7), so a table in a table
    // is a buffer.
    let guest = scene.attacker();
    let bytes = frame(mac(2), mac(1), 200, 3);
    let valid = valid(&guest, TX);
    guest.write_memory(valid.addr, &[0; 12]);
    guest.write_memory(valid.addr + 12, &bytes);
    let inner = Descriptor { len: 212, flags: INDIRECT, ..valid };
    guest.publish(TX, &[guest.table(guest.buffer_address(TX, 1), &[inner])]);
    assert!(take(&mut scene.good, 1)[0].1 == bytes);
    drop(guest);
    let options = GuestOptions { features: BASIC, ring_size: 16, withhold: true, ..GuestOptions::default() };
    let guest = Attacker::connect(scene.rig.socket(0), Layout::Packed, &options);
    guest.publish(TX, &[table_of(&guest, &[valid])]);
    scene.expect_and_recover("a table that was not agreed on", &Down("not negotiated"), Default::default(), guest);
    scene.end();
}

#[test]
fn packed_buffers_that_a_guest_must_not_offer() {
    bad_buffers(Scene::with_layout(Layout::Packed));
}

pub(crate) fn bad_buffers(mut scene: Scene) {
    for (what, change) in [
        ("read-only", (|desc| desc.flags = 0) as fn(&mut Descriptor)),
        ("an address outside memory", |desc| desc.addr = 0x10),
        ("a length of 4 GiB", |desc| desc.len = u32::MAX),
    ] {
        for second in [false, true] {
            scene.receives(what, &Down("receive ring: the buffer at descriptor"), |guest| {
                let good = valid(guest, RX);
                let mut bad = Descriptor { len: 2000, ..good };
                change(&mut bad);
                // The bad buffer is alone, or in the middle of a packet, behind a buffer that is
                // too short for it.
                if second { guest.publish_all(RX, &[&[good], &[bad]]) } else { guest.publish(RX, &[bad]) }
            });
        }
    }
    scene.receives("a table that is none", &Down("receive ring"), |guest| {
        guest.publish(RX, &[Descriptor { len: 15, flags: INDIRECT | WRITE, ..valid(guest, RX) }]);
    });
    scene.receives("every descriptor goes on", &Down("it loops"), |guest| {
        guest.publish(RX, &[Descriptor { flags: WRITE | NEXT, ..valid(guest, RX) }; 16]);
    });
    scene.end();
}

#[test]
fn packed_ids_are_the_guests_own() {
    ids_of_ones_own(Scene::with_layout(Layout::Packed));
}

/// Chains with the same id, and chains with an id beyond the ring. The ids come back unchanged and
/// in order.
pub(crate) fn ids_of_ones_own(mut scene: Scene) {
    let guest = scene.attacker();
    let geometry = guest.geometry(TX);
    let bytes = frame(mac(2), mac(1), 700, 9);
    guest.write_memory(guest.buffer_address(TX, 0), &[0; 12]);
    guest.write_memory(guest.buffer_address(TX, 0) + 12, &bytes);
    for (place, id) in [(0, 0xffff), (1, 3), (2, 3), (3, 16)] {
        let at = geometry.desc + 16 * place;
        guest.write_descriptor_at(at, Descriptor { len: 712, flags: id, next: 0, ..valid(&guest, TX) });
        let desc = guest.memory().area(at, 16, 16).expect("the ring is in memory");
        desc.release_u16(14, 1 << 7);
        guest.kick(TX);
        assert!(take(&mut scene.good, 1)[0].1 == bytes);
        wait_until("it is used", || desc.acquire_u16(14) == 1 << 7 | 1 << 15);
        assert_eq!(desc.read_u16(12), id);
    }
    drop(guest);
    scene.recovers("ids");
    scene.end();
}

#[test]
fn packed_descriptors_rewritten_all_the_time() {
    rewritten_all_the_time(Scene::with_layout(Layout::Packed));
}

pub(crate) fn rewritten_all_the_time(mut scene: Scene) {
    for seed in 0..20 {
        let guest = scene.attacker();
        for (n, bytes) in noise(seed, 8192).chunks_exact(16).enumerate() {
            for ring in [TX, RX] {
                let write = if ring == RX { WRITE } else { 0 };
                let at = guest.geometry(ring).desc + 16 * (n as u64 % 16);
                // Mostly valid, so that the switch reads further; available or used at random.
                let flags = write
                    | u16::from(bytes[4] & bytes[9] & 1)
                    | u16::from(bytes[10] & 1) << 7
                    | u16::from(bytes[11] & 1) << 15;
                let desc = Descriptor {
                    addr: guest.buffer_address(ring, 0) + u64::from(bytes[0]) * u64::from(bytes[1]),
                    len: u32::from(bytes[2]) * u32::from(bytes[3] % 32),
                    flags: u16::from(bytes[5]),
                    next: flags,
                };
                guest.write_descriptor_at(at, desc);
                guest.write_memory(guest.buffer_address(ring, 0) + 64 * u64::from(bytes[6]), bytes);
                guest.kick(ring);
            }
            if n % 8 == 0 {
                send(&mut scene.good, &frame(mac(1), mac(2), 1400, seed));
                arrived(&mut scene.good);
            }
        }
        scene.victims.go_on();
        drop(guest);
        scene.settle();
        scene.recovers("random descriptors");
    }
    scene.end();
}
