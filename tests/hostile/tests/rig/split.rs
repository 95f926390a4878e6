//! Guests whose split rings break every rule. The victims on the same worker must not be affected.

use std::os::fd::AsFd;

use hostile::attacker::Attacker;
use hostile::scene::{Down, Dropped, Scene, valid};
use rustix::event::{EventfdFlags, eventfd};
use straightline_guest::{Guest, GuestOptions, Ring};
use straightline_testing::{BASIC, arrived, frame, mac, noise, send, take, wait_until};
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::{Descriptor, INDIRECT, NEXT, WRITE};

#[test]
fn chains_that_a_guest_must_not_send() {
    bad_chains(Scene::new());
}

pub(crate) fn bad_chains(mut scene: Scene) {
    let ring = Ring::Transmit;
    let publish_one = |desc: Descriptor| move |guest: &Attacker| guest.publish_chain(Ring::Transmit, 0, &[desc]);
    let nowhere = Descriptor { addr: 0x10, len: 100, flags: 0, next: 0 };
    scene.sends("an address outside memory", &Dropped("bad-address"), publish_one(nowhere));
    scene.sends(
        "the end of the address space",
        &Dropped("bad-address"),
        publish_one(Descriptor { addr: u64::MAX, ..nowhere }),
    );
    for beyond in [1, 99, 4096] {
        scene.sends("a buffer over the edge of memory", &Dropped("bad-address"), |guest| {
            let end = guest.memory().regions()[0].guest_addr() + guest.memory().regions()[0].size();
            guest.publish_chain(ring, 0, &[Descriptor { addr: end - 100 + beyond, ..nowhere }]);
        });
    }
    scene.sends("the header is there and the frame is not", &Dropped("bad-address"), |guest| {
        let header = Descriptor { len: 12, flags: NEXT, next: 1, ..valid(guest, ring) };
        guest.publish_chain(ring, 0, &[header, nowhere]);
    });
    scene.sends("a length of 4 GiB", &Dropped("long-chain"), |guest| {
        guest.publish_chain(ring, 0, &[Descriptor { len: u32::MAX, ..valid(guest, ring) }]);
    });
    scene.sends("lengths that overflow together", &Dropped("long-chain"), |guest| {
        let valid = valid(guest, ring);
        let half = Descriptor { len: 0x8000_0000, flags: NEXT, ..valid };
        guest.publish_chain(ring, 0, &[Descriptor { next: 1, ..half }, Descriptor { next: 2, ..half }, valid]);
    });
    scene.sends("longer than any frame", &Dropped("long-chain"), |guest| {
        let part = Descriptor { len: 30_000, flags: NEXT, ..valid(guest, ring) };
        let chain: Vec<_> = (1..=4).map(|next| Descriptor { next, ..part }).chain([valid(guest, ring)]).collect();
        guest.publish_chain(ring, 0, &chain);
    });
    scene.sends("write-only", &Dropped("bad-direction"), |guest| {
        guest.publish_chain(ring, 0, &[Descriptor { flags: WRITE, ..valid(guest, ring) }]);
    });
    scene.sends("write-only behind the header", &Dropped("bad-direction"), |guest| {
        let valid = valid(guest, ring);
        let header = Descriptor { len: 12, flags: NEXT, next: 1, ..valid };
        guest.publish_chain(ring, 0, &[header, Descriptor { flags: WRITE, ..valid }]);
    });
    scene.sends("no bytes", &Dropped("short-chain"), |guest| {
        guest.publish_chain(ring, 0, &[Descriptor { len: 0, ..valid(guest, ring) }]);
    });
    for len in 1..12 {
        scene.sends("shorter than the header", &Dropped("short-chain"), |guest| {
            guest.publish_chain(ring, 0, &[Descriptor { len, ..valid(guest, ring) }]);
        });
    }
    scene.sends("many empty descriptors", &Dropped("short-chain"), |guest| {
        let empty = Descriptor { len: 0, flags: NEXT, ..valid(guest, ring) };
        let chain: Vec<_> = (1..=15).map(|next| Descriptor { next, ..empty }).collect();
        let last = Descriptor { len: 11, ..valid(guest, ring) };
        guest.publish_chain(ring, 0, &[&chain[..], &[last]].concat());
    });
    scene.sends("a header without a frame", &Dropped("runt"), |guest| {
        guest.publish_chain(ring, 0, &[Descriptor { len: 12, ..valid(guest, ring) }]);
    });
    scene.sends("next out of range", &Down("chains to 16"), |guest| {
        guest.publish_chain(ring, 0, &[Descriptor { flags: NEXT, next: 16, ..valid(guest, ring) }]);
    });
    scene.sends("a loop of one", &Down("it loops"), |guest| {
        guest.publish_chain(ring, 3, &[Descriptor { flags: NEXT, next: 3, ..valid(guest, ring) }]);
    });
    scene.sends("a loop of two, of nothing", &Down("it loops"), |guest| {
        let empty = Descriptor { len: 0, flags: NEXT, ..valid(guest, ring) };
        guest.publish_chain(ring, 0, &[Descriptor { next: 1, ..empty }, empty]);
    });
    scene.sends("an index that jumps", &Down("available index 17"), |guest| guest.publish_index(ring, 17));
    scene.sends("an index that goes back", &Down("available index 65535"), |guest| guest.publish_index(ring, 65_535));
    scene.sends("a head out of range", &Down("names descriptor 16"), |guest| {
        guest.write_available(ring, 0, 16);
        guest.publish_index(ring, 1);
    });
    scene.sends("a head out of range behind good ones", &Down("names descriptor 65535"), |guest| {
        guest.write_descriptor(ring, 0, Descriptor { len: 12, ..valid(guest, ring) });
        guest.write_available(ring, 2, 65_535);
        guest.publish_index(ring, 3);
    });
    scene.end();
}

#[test]
fn indirect_tables_that_a_guest_must_not_send() {
    bad_tables(Scene::new());
}

pub(crate) fn bad_tables(mut scene: Scene) {
    let ring = Ring::Transmit;
    /// Writes a table of these entries into the attacker's second buffer, and returns the
    /// descriptor that refers to it.
    fn table(guest: &Guest, entries: &[Descriptor], len: u32) -> Descriptor {
        let addr = guest.buffer_address(Ring::Transmit, 1);
        for (n, &entry) in (0..).zip(entries) {
            guest.write_descriptor_at(addr + 16 * n, entry);
        }
        Descriptor { addr, len, flags: INDIRECT, next: 0 }
    }
    let refused = Dropped("bad-indirect");
    for len in [0, 1, 15, 17, 31, 16 * 17, u32::MAX, u32::MAX - 15] {
        scene.sends(&format!("a table of {len} bytes"), &refused, |guest| {
            guest.publish_chain(ring, 0, &[table(guest, &[valid(guest, ring)], len)]);
        });
    }
    scene.sends("a table in a table", &refused, |guest| {
        let inner = Descriptor { flags: INDIRECT, len: 16, ..valid(guest, ring) };
        guest.publish_chain(ring, 0, &[table(guest, &[inner], 16)]);
    });
    scene.sends("a table that goes on in the ring", &refused, |guest| {
        let table = table(guest, &[valid(guest, ring)], 16);
        guest.publish_chain(ring, 0, &[Descriptor { flags: INDIRECT | NEXT, next: 1, ..table }, valid(guest, ring)]);
    });
    scene.sends("a table that loops", &refused, |guest| {
        let entry = Descriptor { len: 1, flags: NEXT, next: 0, ..valid(guest, ring) };
        guest.publish_chain(ring, 0, &[table(guest, &[entry, entry], 32)]);
    });
    scene.sends("next beyond the table", &refused, |guest| {
        let entry = Descriptor { flags: NEXT, next: 2, ..valid(guest, ring) };
        guest.publish_chain(ring, 0, &[table(guest, &[entry, entry], 32)]);
    });
    scene.sends("a table outside memory", &Dropped("bad-address"), |guest| {
        guest.publish_chain(ring, 0, &[Descriptor { addr: 0, len: 32, flags: INDIRECT, next: 0 }]);
    });
    scene.sends("a table over the edge of memory", &Dropped("bad-address"), |guest| {
        let end = guest.memory().regions()[0].guest_addr() + guest.memory().regions()[0].size();
        guest.publish_chain(ring, 0, &[Descriptor { addr: end - 16, len: 32, flags: INDIRECT, next: 0 }]);
    });
    scene.sends("an entry outside memory", &Dropped("bad-address"), |guest| {
        guest.publish_chain(ring, 0, &[table(guest, &[Descriptor { addr: 0, ..valid(guest, ring) }], 16)]);
    });
    scene.sends("an entry for writing", &Dropped("bad-direction"), |guest| {
        guest.publish_chain(ring, 0, &[table(guest, &[Descriptor { flags: WRITE, ..valid(guest, ring) }], 16)]);
    });
    let guest = scene.rig.guest(0, &GuestOptions { features: BASIC, ring_size: 16, ..GuestOptions::default() });
    let entry = table(&guest, &[valid(&guest, ring)], 16);
    guest.publish_chain(ring, 0, &[entry]);
    scene.expect_and_recover("a table that was not agreed on", &Down("not negotiated"), Default::default(), guest);
    scene.end();
}

#[test]
fn buffers_that_a_guest_must_not_offer() {
    bad_buffers(Scene::new());
}

pub(crate) fn bad_buffers(mut scene: Scene) {
    let ring = Ring::Receive;
    let publish_one = |change: fn(&mut Descriptor)| {
        move |guest: &Attacker| {
            let mut desc = Descriptor { len: 2000, ..valid(guest, Ring::Receive) };
            change(&mut desc);
            guest.publish_chain(Ring::Receive, 0, &[desc]);
        }
    };
    scene.receives("read-only", &Down("receive ring"), publish_one(|desc| desc.flags = 0));
    scene.receives("an address outside memory", &Down("receive ring"), publish_one(|desc| desc.addr = 0x10));
    scene.receives("a length of 4 GiB", &Down("receive ring"), publish_one(|desc| desc.len = u32::MAX));
    scene.receives(
        "next out of range",
        &Down("chains to"),
        publish_one(|desc| (desc.flags, desc.next) = (WRITE | NEXT, 99)),
    );
    scene.receives("a loop", &Down("it loops"), publish_one(|desc| desc.flags = WRITE | NEXT));
    scene.receives("a head out of range", &Down("names descriptor 99"), |guest| {
        guest.write_available(ring, 0, 99);
        guest.publish_index(ring, 1);
    });
    scene.receives("an index that jumps", &Down("available index"), |guest| guest.publish_index(ring, 100));
    for len in 0..12 {
        scene.receives("a buffer smaller than the header", &Down("is too small for the 12-byte header"), |guest| {
            guest.publish_chain(ring, 0, &[Descriptor { len, ..valid(guest, ring) }]);
        });
    }
    for len in 0..12 {
        // The short buffer follows a valid buffer that is too short for the packet.
        let end = if len == 0 { Down("an empty buffer") } else { Dropped("no-buffer") };
        scene.receives("a runt in the middle of a packet", &end, |guest| {
            let valid = valid(guest, ring);
            guest.write_descriptor(ring, 0, valid);
            guest.write_descriptor(ring, 1, Descriptor { len, addr: valid.addr + 200, ..valid });
            guest.write_available(ring, 0, 0);
            guest.write_available(ring, 1, 1);
            guest.publish_index(ring, 2);
        });
    }
    scene.receives("read-only in the middle of a packet", &Down("receive ring"), |guest| {
        let valid = valid(guest, ring);
        guest.write_descriptor(ring, 0, valid);
        guest.write_descriptor(ring, 1, Descriptor { flags: 0, ..valid });
        guest.write_available(ring, 0, 0);
        guest.write_available(ring, 1, 1);
        guest.publish_index(ring, 2);
    });
    // Every packet of a burst for a broken ring is counted.
    let guest = scene.attacker();
    let before: u64 = scene.dropped().values().sum();
    guest.publish_chain(ring, 0, &[Descriptor { flags: 0, ..valid(&guest, ring) }]);
    for n in 0..10 {
        assert!(scene.good.send(&NetHeader::default(), &frame(mac(1), mac(2), 700, n)));
    }
    scene.good.flush();
    wait_until("all are counted", || scene.dropped().values().sum::<u64>() == before + 10);
    drop(guest);
    scene.recovers("a burst into a broken ring");
    scene.end();
}

#[test]
fn one_descriptor_for_every_buffer_is_the_guests_own_loss() {
    one_descriptor_for_all(Scene::new());
}

pub(crate) fn one_descriptor_for_all(mut scene: Scene) {
    let guest = scene.attacker();
    let at = Ring::Receive;
    guest.write_descriptor(at, 0, Descriptor { len: 2000, ..valid(&guest, at) });
    assert!((0..16).all(|place| guest.write_available(at, place, 0)));
    guest.publish_index(at, 16);
    for n in 0..20 {
        send(&mut scene.good, &frame(mac(1), mac(2), 1500, n));
    }
    wait_until("the ring is full", || guest.used_index(at) == 16);
    // The transmit ring: the same buffer is sent many times.
    let at = Ring::Transmit;
    guest.write_memory(guest.buffer_address(at, 0), &[0; 12]);
    guest.write_descriptor(at, 0, Descriptor { len: 1512, ..valid(&guest, at) });
    assert!((0..16).all(|place| guest.write_available(at, place, 0)));
    for round in 1..100_u16 {
        guest.publish_index(at, round * 16);
        wait_until("all are used", || guest.used_index(at) == round * 16);
        take(&mut scene.good, 16);
    }
    drop(guest);
    scene.recovers("one descriptor for all");
    scene.end();
}

#[test]
fn a_guest_that_rewrites_everything_all_the_time() {
    rewritten_all_the_time(Scene::new());
}

pub(crate) fn rewritten_all_the_time(mut scene: Scene) {
    for seed in 0..20 {
        let guest = scene.attacker();
        let random = noise(seed, 4096);
        for (n, bytes) in random.chunks_exact(16).enumerate() {
            let place = u16::try_from(n % 16).expect("short");
            for ring in [Ring::Transmit, Ring::Receive] {
                let base = guest.buffer_address(ring, 0);
                // Mostly valid, so that the switch reads further.
                guest.write_descriptor(
                    ring,
                    place,
                    Descriptor {
                        addr: base + u64::from(bytes[0]) * u64::from(bytes[1]),
                        len: u32::from(bytes[2]) * u32::from(bytes[3] % 32),
                        flags: if ring == Ring::Receive { WRITE } else { u16::from(bytes[4] & NEXT.to_le_bytes()[0]) },
                        next: u16::from(bytes[5] % 16),
                    },
                );
                guest.write_memory(base + 64 * u64::from(bytes[6]), bytes);
                guest.write_available(ring, place, u16::from(bytes[7] % 16));
                guest.publish_index(ring, guest.available_index(ring).wrapping_add(u16::from(bytes[8] % 4)));
            }
            if n % 8 == 0 {
                scene.good.flush();
                scene.good.send(&NetHeader::default(), &frame(mac(1), mac(2), 1400, seed));
                scene.good.flush();
                arrived(&mut scene.good);
            }
        }
        scene.victims.go_on();
        drop(guest);
        scene.settle();
        scene.recovers("random rings");
    }
    scene.end();
}

/// Without a kick descriptor, nothing showed that a ring was started, so every message started it
/// again.
#[test]
fn a_polled_ring_that_broke_stays_stopped_until_it_is_started_again() {
    let mut scene = Scene::new();
    let mut guest = scene.attacker();
    let event = || eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd");
    for ring in [0, 1] {
        guest.client().set_vring_kick(ring, None).expect("to be polled");
    }
    scene.rig.wait_up(0);
    guest.publish(Ring::Receive, &[Descriptor { flags: 0, ..valid(&guest, Ring::Receive) }]);
    send(&mut scene.good, &frame(mac(1), mac(2), 700, 1));
    scene.rig.wait_down(0, "the buffer at descriptor");
    for ring in [0, 1] {
        guest.client().set_vring_call(ring, Some(event().as_fd())).expect("a call descriptor");
    }
    let port = scene.rig.port(0);
    assert!(port.reason.as_ref().is_some_and(|why| why.contains("the buffer at descriptor")), "{port:?}");
    for ring in [0, 1] {
        guest.client().set_vring_kick(ring, None).expect("started again");
    }
    scene.rig.wait_up(0);
    scene.victims.go_on();
    drop(guest);
    scene.recovers("a polled ring");
    scene.end();
}
