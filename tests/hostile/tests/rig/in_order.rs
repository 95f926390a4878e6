//! Guests that negotiate IN_ORDER and then break its rule: they do not use descriptors in the order
//! of the table.
//!
//! With IN_ORDER a device may report only the last chain of a batch as used (virtio 1.2, 2.7.9).
//! The switch still takes chains in the order in which they are available, and gives back exactly
//! the chains that it took.

use std::collections::VecDeque;

use hostile::attacker::{Attacker, Layout};
use hostile::scene::{Down, Ring, Scene, valid};
use straightline_guest::PackedDescriptor;
use straightline_testing::{arrived, frame, mac, noise, send, take, wait_until};
use straightline_virtio::ring::{Descriptor, INDIRECT, NEXT, WRITE};

use crate::{packed, split};

const TX: Ring = Ring::Transmit;
const RX: Ring = Ring::Receive;
const SIZE: u16 = 16;

#[test]
fn in_order_split_rings_that_break_every_rule() {
    split::bad_chains(Scene::in_order(Layout::Split));
    split::bad_tables(Scene::in_order(Layout::Split));
    split::bad_buffers(Scene::in_order(Layout::Split));
}

#[test]
fn in_order_packed_rings_that_break_every_rule() {
    packed::bad_chains(Scene::in_order(Layout::Packed));
    packed::bad_tables(Scene::in_order(Layout::Packed));
    packed::bad_buffers(Scene::in_order(Layout::Packed));
}

#[test]
fn in_order_one_descriptor_is_available_many_times() {
    split::one_descriptor_for_all(Scene::in_order(Layout::Split));
    packed::ids_of_ones_own(Scene::in_order(Layout::Packed));
}

#[test]
fn in_order_rings_rewritten_all_the_time() {
    split::rewritten_all_the_time(Scene::in_order(Layout::Split));
    packed::rewritten_all_the_time(Scene::in_order(Layout::Packed));
}

/// Reads the used ring of a split ring as an in-order driver does: each element represents all
/// chains up to its own.
struct UsedReader {
    ring: Ring,
    seen: u16,
    out: VecDeque<u16>,
}

impl UsedReader {
    /// Waits until all available chains are used, and returns their heads in the order in which
    /// they were made available. Each has the number of bytes written, if it has an element of its
    /// own.
    fn all_used(&mut self, guest: &Attacker) -> Vec<(u16, Option<u32>)> {
        let mut used = Vec::new();
        let end = self.seen.wrapping_add(u16::try_from(self.out.len()).expect("a ring's worth"));
        wait_until("all chains are used", || guest.used_index(self.ring) == end);
        while self.seen != end {
            let (id, bytes) = guest.used_element(self.ring, self.seen % SIZE).expect("the ring is in memory");
            let batch = self.out.iter().position(|&head| u32::from(head) == id).expect("a chain that is out") + 1;
            used.extend(self.out.drain(..batch - 1).map(|head| (head, None)));
            used.extend(self.out.pop_front().map(|head| (head, Some(bytes))));
            self.seen = self.seen.wrapping_add(u16::try_from(batch).expect("a ring's worth"));
        }
        used
    }
}

/// Returns orders in which 16 descriptors are made available: backwards, in steps, with exchanged
/// pairs, and random.
fn orders() -> Vec<Vec<u16>> {
    let all = 0..SIZE;
    let mut orders: Vec<Vec<u16>> =
        vec![all.clone().rev().collect(), all.clone().map(|n| n * 5 % SIZE).collect(), all.map(|n| n ^ 1).collect()];
    for seed in 0..5 {
        let mut order: Vec<u16> = (0..SIZE).collect();
        for (at, byte) in noise(seed, SIZE.into()).into_iter().enumerate() {
            order.swap(at, usize::from(byte) % usize::from(SIZE));
        }
        orders.push(order);
    }
    orders
}

/// Connects an attacker whose split rings are just before the wrap of their indexes. Returns it
/// with the index.
fn near_the_end(scene: &Scene) -> (Attacker, u16) {
    let mut guest = scene.attacker();
    guest.stop().expect("stopped");
    let index = 0_u16.wrapping_sub(40);
    for ring in [TX, RX] {
        guest.publish_index(ring, index);
        guest.memory().area(guest.geometry(ring).used, 4, 4).expect("the ring is in memory").release_u16(2, index);
    }
    guest.resume(&[[index.into(); 2]]).expect("started");
    (guest, index)
}

#[test]
fn in_order_heads_in_every_other_order() {
    let mut scene = Scene::in_order(Layout::Split);
    let (guest, index) = near_the_end(&scene);
    let mut sent = UsedReader { ring: TX, seen: index, out: VecDeque::new() };
    let mut received = UsedReader { ring: RX, seen: index, out: VecDeque::new() };
    for (round, order) in orders().into_iter().cycle().take(40).enumerate() {
        // Batches of every length, across the end of the ring and across the wrap of the index.
        let count = 1 + round * 7 % usize::from(SIZE);
        let mut frames = Vec::new();
        let mut back = Vec::new();
        for (n, &head) in order[..count].iter().enumerate() {
            let addr = guest.buffer_address(TX, head);
            frames.push(frame(mac(2), mac(1), [60, 500, 1500][(round + n) % 3], (round * 16 + n) as u64));
            guest.write_memory(addr, &[0; 12]);
            guest.write_memory(addr + 12, &frames[n]);
            let len = u32::try_from(12 + frames[n].len()).expect("short");
            guest.write_descriptor(TX, head, Descriptor { addr, len, flags: 0, next: 0 });
            guest.write_available(TX, sent.seen.wrapping_add(u16::try_from(n).expect("small")) % SIZE, head);
            sent.out.push_back(head);
        }
        guest.publish_index(TX, sent.seen.wrapping_add(u16::try_from(count).expect("small")));
        let came: Vec<_> = take(&mut scene.good, count).into_iter().map(|(_, bytes)| bytes).collect();
        assert!(came == frames, "round {round}: in the order in which they were made available");
        let used = sent.all_used(&guest);
        assert!(used.iter().map(|&(head, _)| head).eq(order[..count].iter().copied()), "round {round}: {used:?}");
        assert!(used.iter().all(|&(_, bytes)| bytes.is_none_or(|bytes| bytes == 0)), "round {round}: {used:?}");

        for (n, &head) in order[..count].iter().enumerate() {
            let desc = Descriptor { addr: guest.buffer_address(RX, head), len: 2000, flags: WRITE, next: 0 };
            guest.write_descriptor(RX, head, desc);
            guest.write_available(RX, received.seen.wrapping_add(u16::try_from(n).expect("small")) % SIZE, head);
            received.out.push_back(head);
        }
        guest.publish_index(RX, received.seen.wrapping_add(u16::try_from(count).expect("small")));
        for n in 0..count {
            back.push(frame(mac(1), mac(2), 100 + 80 * n, (round * 16 + n) as u64));
            send(&mut scene.good, &back[n]);
        }
        // The lengths differ, so each chain has an element of its own.
        let used = received.all_used(&guest);
        let expected: Vec<_> =
            order.iter().zip(&back).map(|(&head, bytes)| (head, u32::try_from(12 + bytes.len()).ok())).collect();
        assert_eq!(used, expected, "round {round}");
        for (&head, bytes) in order.iter().zip(&back) {
            let len = u32::try_from(bytes.len()).expect("short");
            assert!(guest.read_memory(guest.buffer_address(RX, head) + 12, len).as_ref() == Some(bytes));
        }
    }
    assert!(scene.dropped().is_empty(), "{:?}", scene.dropped());
    drop(guest);
    scene.recovers("heads in another order");
    scene.end();
}

#[test]
fn in_order_packed_ids_of_chains_of_every_length() {
    let mut scene = Scene::in_order(Layout::Packed);
    let guest = scene.attacker();
    let mut at = 0;
    let mut wrap = true;
    let mut dice = noise(11, 4000).into_iter();
    for round in 0..60_u64 {
        // Chains of 1 to 5 descriptors, published one by one, with unusual ids.
        let mut frames = Vec::new();
        let mut expected = Vec::new();
        let mut left = SIZE;
        while left >= 5 {
            let span = 1 + u16::from(dice.next().unwrap_or(0) % 5);
            let bytes = frame(mac(2), mac(1), 64 + 20 * usize::from(left), round);
            let addr = guest.buffer_address(TX, at);
            guest.write_memory(addr, &[0; 12]);
            guest.write_memory(addr + 12, &bytes);
            let whole = u32::try_from(12 + bytes.len()).expect("short");
            let mut chain = Vec::new();
            for n in 0..span {
                let start = 7 * u32::from(n);
                let len = if n + 1 < span { 7 } else { whole - start };
                let flags = if n + 1 < span { NEXT } else { 0 };
                // Only the last id of a chain counts: repeated ids, ids beyond the ring, ids in
                // use.
                let id = [3, 0xffff, at, SIZE, 3][usize::from(dice.next().unwrap_or(0) % 5)];
                chain.push(PackedDescriptor { addr: addr + u64::from(start), len, id, flags });
            }
            expected.push((at, wrap, chain[usize::from(span) - 1].id));
            guest.publish_packed(TX, at, wrap, &chain);
            frames.push(bytes);
            left -= span;
            at += span;
            if at >= SIZE {
                (at, wrap) = (at - SIZE, !wrap);
            }
        }
        let came: Vec<_> = take(&mut scene.good, frames.len()).into_iter().map(|(_, bytes)| bytes).collect();
        assert!(came == frames, "round {round}");
        for (place, wrap, id) in expected {
            let used = || guest.packed_descriptor(TX, place).expect("the ring is in memory");
            wait_until("it is used", || used().is_used(wrap));
            assert_eq!((used().id, used().flags & WRITE), (id, 0), "round {round}, place {place}");
        }
    }
    assert!(scene.dropped().is_empty(), "{:?}", scene.dropped());
    drop(guest);
    scene.recovers("ids and lengths");
    scene.end();
}

#[test]
fn in_order_faults_in_the_midst_of_a_batch() {
    for layout in Layout::BOTH {
        let mut scene = Scene::in_order(layout);
        let guest = scene.attacker();
        let mut reader = UsedReader { ring: TX, seen: 0, out: VecDeque::new() };
        let mut first = 0;
        for round in 0..20 {
            let frames = [60, 400, 1400].map(|len| frame(mac(2), mac(1), len, round));
            let good = [0, 1, 2].map(|n| {
                let addr = guest.buffer_address(TX, n);
                let bytes = &frames[usize::from(n)];
                guest.write_memory(addr, &[0; 12]);
                guest.write_memory(addr + 12, bytes);
                Descriptor { addr, len: u32::try_from(12 + bytes.len()).expect("short"), flags: 0, next: 0 }
            });
            // The second packet has three descriptors, the third one an indirect table.
            let part =
                |from: u32, to: u32| Descriptor { addr: good[1].addr + u64::from(from), len: to - from, ..good[1] };
            let parts = [part(0, 9), part(9, 100), part(100, good[1].len)];
            let table = guest.table(
                guest.buffer_address(TX, 3),
                &[
                    Descriptor { len: 30, ..good[2] },
                    Descriptor { addr: good[2].addr + 30, len: good[2].len - 30, ..good[2] },
                ],
            );
            let bad: [(&str, &[Descriptor]); 6] = [
                ("bad-address", &[Descriptor { addr: 8, ..good[0] }]),
                ("bad-indirect", &[Descriptor { len: 17, flags: INDIRECT, ..good[0] }]),
                ("bad-direction", &[Descriptor { flags: WRITE, ..good[0] }]),
                ("short-chain", &[Descriptor { len: 5, ..good[0] }, Descriptor { len: 6, ..good[0] }]),
                ("long-chain", &[good[0], Descriptor { len: 70_000, ..good[0] }]),
                ("runt", &[Descriptor { len: 12, ..good[0] }]),
            ];
            let before = scene.dropped();
            let chains = [bad[0].1, &good[..1], bad[1].1, bad[2].1, &parts, bad[3].1, bad[4].1, &[table], bad[5].1];
            guest.publish_all(TX, &chains);
            let came: Vec<_> = take(&mut scene.good, 3).into_iter().map(|(_, bytes)| bytes).collect();
            assert!(came == frames, "{layout:?}, round {round}");
            guest.wait_used(TX);
            for (reason, _) in bad {
                let was = before.get(reason).copied().unwrap_or(0);
                wait_until("it is dropped", || scene.rig.drops(0, reason) == was + 1);
            }
            if layout == Layout::Split {
                for chain in chains {
                    reader.out.push_back(first % SIZE);
                    first += u16::try_from(chain.len()).expect("short");
                }
                let heads: Vec<_> = reader.out.iter().copied().collect();
                let used = reader.all_used(&guest);
                assert!(used.iter().map(|&(head, _)| head).eq(heads), "round {round}: {used:?}");
            }
        }
        drop(guest);
        scene.recovers("faults in a batch");
        scene.end();
    }
}

/// Makes `good` valid chains available, together with an endless one.
fn endless_behind(guest: &Attacker, layout: Layout, ring: Ring, desc: Descriptor, good: u16) {
    let endless = Descriptor { flags: desc.flags | NEXT, next: good, ..desc };
    if layout == Layout::Packed {
        // The endless chain has all remaining descriptors.
        let rest = vec![endless; usize::from(SIZE - good)];
        let mut chains = vec![std::slice::from_ref(&desc); good.into()];
        chains.push(&rest);
        return guest.publish_all(ring, &chains);
    }
    for at in 0..=good {
        guest.write_descriptor(ring, at, if at == good { endless } else { desc });
        guest.write_available(ring, at, at);
    }
    guest.publish_index(ring, good + 1);
}

#[test]
fn in_order_a_ring_that_breaks_behind_good_chains() {
    for layout in Layout::BOTH {
        let mut scene = Scene::in_order(layout);
        for ring in [TX, RX] {
            for more in 0..4 {
                let guest = scene.attacker();
                let counts = scene.dropped();
                let desc = Descriptor { len: if ring == TX { 112 } else { 2000 }, ..valid(&guest, ring) };
                guest.write_memory(desc.addr, &[0; 12]);
                endless_behind(&guest, layout, ring, desc, more);
                for n in 0..8 * u64::from(ring == RX) {
                    send(&mut scene.good, &frame(mac(1), mac(2), 700, n));
                }
                scene.expect_outcome("an endless chain behind good ones", &Down("it loops"), counts);
                // Either no chain is used, or exactly the valid chains are.
                let used = match layout {
                    Layout::Split => guest.used_index(ring),
                    Layout::Packed => {
                        let is_used = |at| guest.packed_descriptor(ring, at).is_some_and(|desc| desc.is_used(true));
                        (0..SIZE).find(|&at| !is_used(at)).unwrap_or(SIZE)
                    }
                };
                assert!(used == 0 || used == more, "{layout:?}, {ring:?}: {used} of {more}");
                if layout == Layout::Split && used > 0 {
                    let mut reader = UsedReader { ring, seen: 0, out: (0..used).collect() };
                    assert_eq!(reader.all_used(&guest).len(), usize::from(used));
                }
                if ring == TX {
                    scene.victims.go_on();
                    assert_eq!(
                        arrived(&mut scene.good).len(),
                        usize::from(used),
                        "{layout:?}: what is used has arrived"
                    );
                }
                drop(guest);
                scene.settle();
                scene.recovers("a ring that breaks behind good chains");
            }
        }
        scene.end();
    }
}
