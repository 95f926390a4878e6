//! Queue pairs whose rings overlap, or whose memory is removed and added while the memory of the
//! others stays.

use std::os::fd::AsFd;

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Ring, Scene};
use straightline_guest::{Guest, PackedDescriptor, Pair};
use straightline_testing::{arrived, frame, mac, noise, send, wait_until};
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::{Descriptor, Geometry, WRITE};
use straightline_virtio::vhost_user::{RegionRef, RegionSpec, RingAddresses};

use crate::cve_2026_86567::{mappings, own_region};
use crate::pairs::{FLOWS, PAIRS, RINGS, arrived_by, flow};

fn ring_of(index: u16) -> Ring {
    if index.is_multiple_of(2) { Ring::Receive } else { Ring::Transmit }
}

fn geometry(guest: &mut Guest, index: u16) -> Geometry {
    guest.pairs()[usize::from(index / 2)].geometry(ring_of(index))
}

/// Moves a ring to other addresses, and starts it there. A refused ring does not run.
fn put(guest: &mut Guest, index: u16, addresses: RingAddresses) {
    guest.client().get_vring_base(index).expect("stopped");
    let _ = guest.client().set_vring_addr(index, addresses);
    let _ = guest.client().set_vring_kick(index, None);
}

/// Makes all rings work, with any contents: packets by each pair, and packets to each. Publishes
/// from position `first` of each ring on.
fn traffic(scene: &mut Scene, guest: &mut Attacker, layout: Layout, first: u16) {
    for pair in guest.pairs() {
        for ring in [Ring::Transmit, Ring::Receive] {
            let addr = pair.buffer_address(ring, 0);
            pair.write_memory(addr, &[0; 12]);
            let (len, flags) = if ring == Ring::Transmit { (412, 0) } else { (2000, WRITE) };
            if layout == Layout::Split {
                (first..first + 4)
                    .for_each(|at| pair.publish_chain(ring, at, &[Descriptor { addr, len, flags, next: 0 }]));
            } else {
                pair.publish_packed(ring, first, true, &[PackedDescriptor { addr, len, id: 0, flags }; 4]);
            }
        }
    }
    (0..FLOWS).for_each(|n| send(&mut scene.good, &flow(n, 600)));
    scene.victims.go_on();
    arrived(&mut scene.good);
}

#[test]
fn rings_of_different_pairs_over_one_another() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_queues(layout, PAIRS);
        for from in 0..RINGS {
            for to in (0..RINGS).filter(|&to| to != from) {
                let mut guest = scene.attacker();
                let Geometry { desc, avail, used, .. } = geometry(&mut guest, to);
                put(&mut guest, from, RingAddresses { desc, avail, used });
                traffic(&mut scene, &mut guest, layout, 0);
                drop(guest);
                scene.settle();
                if to % 4 == 0 {
                    scene.recovers("a ring over another");
                }
            }
        }
        // Any part of a ring over any part of another, shifted by some entries: one ring reads what
        // another writes.
        for seed in 0..hostile::repeats(40, 2000) {
            let mut guest = scene.attacker();
            let parts: Vec<u64> = (0..RINGS)
                .flat_map(|index| {
                    let Geometry { desc, avail, used, .. } = geometry(&mut guest, index);
                    [desc, avail, used]
                })
                .collect();
            let mut dice = noise(seed as u64, 64).into_iter();
            for index in 0..RINGS {
                let mut part = || {
                    let which = dice.next().unwrap_or(0);
                    let off = dice.next().unwrap_or(0);
                    parts[usize::from(which) % parts.len()] + 16 * u64::from(off % 8)
                };
                put(&mut guest, index, RingAddresses { desc: part(), avail: part(), used: part() });
            }
            traffic(&mut scene, &mut guest, layout, 0);
            drop(guest);
            scene.settle();
            scene.recovers("rings over one another");
        }
        scene.end();
    }
}

#[test]
fn buffers_over_the_rings_of_other_pairs() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_queues(layout, PAIRS);
        for index in 0..RINGS {
            let mut guest = scene.attacker();
            let Geometry { desc, avail, used, .. } = geometry(&mut guest, index);
            for (part, first) in [(desc, 0), (avail, 5), (used, 10)] {
                // The good guest's packets are written over the ring, and bytes of the ring are
                // sent to it.
                for pair in guest.pairs() {
                    let addr = part;
                    let len = 2000;
                    for (ring, flags) in [(Ring::Receive, WRITE), (Ring::Transmit, 0)] {
                        if layout == Layout::Split {
                            pair.publish_chain(ring, first, &[Descriptor { addr, len, flags, next: 0 }]);
                        } else {
                            pair.publish_packed(ring, first, true, &[PackedDescriptor { addr, len, id: 0, flags }]);
                        }
                    }
                }
                traffic(&mut scene, &mut guest, layout, first + 1);
            }
            drop(guest);
            scene.settle();
            scene.recovers("buffers over rings");
        }
        scene.end();
    }
}

#[test]
fn memory_of_some_pairs_comes_and_goes_under_traffic() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_queues(layout, PAIRS);
        let mut guest = scene.compliant_guest();
        // The guest's region is split in two, between the second pair and the third.
        let whole = own_region(&guest);
        let half = whole.size / 2;
        let lower = RegionSpec { size: half, ..whole };
        let at = whole.guest_addr + half;
        let upper = RegionSpec { guest_addr: at, user_addr: at, mmap_offset: half, size: whole.size - half };
        let file = rustix::io::dup(guest.file()).expect("its file");
        let regions = [lower, upper].map(|spec| RegionRef { spec, fd: file.as_fd() });
        guest.client().set_mem_table(&regions).expect("two regions");
        assert_eq!(mappings(&file), 3, "the guest's own, and two");
        let mut sent = 0;
        let mut come = 0;
        for round in 0..hostile::repeats(50, 5000) {
            // These packets are in flight when the memory is removed. None is lost; packets of
            // pairs without memory arrive later.
            let mut give = |scene: &mut Scene, guest: &mut Guest| {
                for (n, pair) in (0..).zip(guest.pairs()) {
                    sent += usize::from(pair.send(&NetHeader::default(), &frame(mac(2), mac(1), 700, n)));
                    pair.flush();
                }
                (0..FLOWS).for_each(|n| send(&mut scene.good, &flow(n, 600)));
                sent += usize::from(FLOWS);
            };
            give(&mut scene, &mut guest);
            guest.client().remove_mem_region(&upper).expect("removed");
            assert_eq!(mappings(&file), 2, "answered, and still mapped");
            let counted = arrived_by(&mut guest);
            come += counted.iter().sum::<usize>();
            give(&mut scene, &mut guest);
            // Packets arrive by the remaining pairs, and by no other.
            let mut by = vec![0; PAIRS.into()];
            wait_until("all have arrived that can", || {
                by.iter_mut().zip(arrived_by(&mut guest)).for_each(|(count, more)| *count += more);
                come += arrived(&mut scene.good).len();
                guest.pairs().iter_mut().for_each(Pair::flush);
                let waiting: usize = guest.pairs()[2..].iter().map(|pair| 256 - pair.spare()).sum();
                come + by.iter().sum::<usize>() + waiting == sent
            });
            assert_eq!(by[2..], [0, 0], "round {round}: {by:?}");
            come += by.iter().sum::<usize>();
            scene.rig.wait_up(0);
            guest.client().add_mem_region(&RegionRef { spec: upper, fd: file.as_fd() }).expect("added");
            wait_until("what waited has arrived", || {
                come += arrived(&mut scene.good).len() + arrived_by(&mut guest).iter().sum::<usize>();
                come == sent
            });
        }
        assert!(scene.dropped().is_empty(), "{:?}", scene.dropped());
        drop(guest);
        scene.settle();
        scene.recovers("memory of some pairs");
        scene.end();
    }
}
