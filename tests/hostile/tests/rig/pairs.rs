//! A port with several queue pairs. Its frontend enables, disables, stops and starts its rings in
//! any order, and its guest breaks one of them. Packets in flight arrive or are counted. A broken
//! ring stops all of its port, and no other port.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use hostile::attacker::Layout;
use hostile::scene::{Ring, Scene};
use rustix::event::{EventfdFlags, eventfd};
use straightline_guest::{Guest, PackedDescriptor, Pair};
use straightline_testing::{arrived, frame, mac, noise, send, take, wait_until};
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::{Descriptor, NEXT, WRITE};
use straightline_virtio::vhost_user::{Message, RegionRef, Request};

use crate::cve_2026_86567::own_region;

pub(crate) const PAIRS: u16 = 4;
pub(crate) const RINGS: u16 = 2 * PAIRS;

/// Number of flows to the guest: enough to use every pair, whichever of them run.
pub(crate) const FLOWS: u8 = 40;

/// Returns a packet of flow `n` to the attacker's guest.
pub(crate) fn flow(n: u8, len: usize) -> Vec<u8> {
    frame(mac(n), mac(2), len, n.into())
}

/// Returns the number of packets that have arrived by each pair.
pub(crate) fn arrived_by(guest: &mut Guest) -> Vec<usize> {
    guest.pairs().iter_mut().map(|pair| pair.receive(usize::MAX, |_, _| ())).collect()
}

/// Sends one packet by each pair of the guest with a free buffer. Returns the number of packets.
fn send_by_all(guest: &mut Guest) -> usize {
    let mut sent = 0;
    for (n, pair) in (0..).zip(guest.pairs()) {
        sent += usize::from(pair.send(&NetHeader::default(), &frame(mac(2), mac(1), 700, n)));
        pair.flush();
    }
    sent
}

/// The states of the frontend's rings, and the counts of the packets.
struct RingStates {
    enabled: [bool; RINGS as usize],
    runs: [bool; RINGS as usize],
    /// True if the ring discards packets while it is disabled, because it was enabled since its
    /// last stop. Otherwise, its packets wait.
    discards: [bool; RINGS as usize],
    sent: usize,
    arrived: usize,
}

impl RingStates {
    /// Enables, disables, stops or starts a ring in any state, and waits for the answer.
    fn change(&mut self, guest: &mut Guest, ring: u16, what: u8) {
        let at = usize::from(ring);
        match what {
            0 | 1 => {
                guest.client().set_vring_enable(ring, what == 0).expect("enabled or disabled");
                self.enabled[at] = what == 0;
                self.discards[at] = what == 0 || (self.discards[at] && self.runs[at]);
            }
            2 => {
                guest.client().get_vring_base(ring).expect("stopped");
                self.runs[at] = false;
                self.discards[at] = self.enabled[at];
            }
            _ => {
                // The ring has no kick descriptor now, and is polled.
                guest.client().set_vring_kick(ring, None).expect("started");
                self.runs[at] = true;
            }
        }
    }

    /// Returns the pairs whose ring has this state.
    fn pairs(&self, ring: Ring, runs: bool, enabled: bool) -> impl Iterator<Item = usize> {
        let at = move |pair: usize| 2 * pair + ring as usize;
        (0..usize::from(PAIRS)).filter(move |&pair| self.runs[at(pair)] == runs && self.enabled[at(pair)] == enabled)
    }

    /// Waits until every packet has arrived, is counted, or waits in a transmit ring that is
    /// stopped or was not enabled since its last stop.
    fn account(&mut self, scene: &mut Scene, guest: &mut Guest) {
        wait_until("every packet is accounted for", || {
            self.arrived += arrived(&mut scene.good).len() + arrived_by(guest).iter().sum::<usize>();
            let out = guest.pairs().iter_mut().map(|pair| {
                pair.flush();
                256 - pair.spare()
            });
            let out: Vec<_> = out.collect();
            let dropped = usize::try_from(scene.dropped().values().sum::<u64>()).expect("few");
            (0..out.len()).all(|pair| out[pair] == 0 || !self.runs[2 * pair + 1] || !self.discards[2 * pair + 1])
                && self.arrived + dropped + out.iter().sum::<usize>() == self.sent
        });
    }

    /// Asserts that packets of running and enabled rings arrive, and no others.
    fn check(&mut self, scene: &mut Scene, guest: &mut Guest) {
        let before = scene.dropped();
        self.sent += send_by_all(guest) + 8;
        (0..8).for_each(|n| send(&mut scene.good, &flow(n, 600)));
        self.arrived += take(&mut scene.good, self.pairs(Ring::Transmit, true, true).count()).len();
        let open: Vec<_> = self.pairs(Ring::Receive, true, true).collect();
        let any_runs = self.pairs(Ring::Receive, true, false).next().is_some();
        let (disabled, down) = if !open.is_empty() {
            (0, 0)
        } else if any_runs {
            (8, 0)
        } else {
            (0, 8)
        };
        let mut by = [0; PAIRS as usize];
        wait_until("all have arrived", || {
            by.iter_mut().zip(arrived_by(guest)).for_each(|(count, more)| *count += more);
            by.iter().sum::<usize>() == 8 - disabled - down
        });
        self.arrived += 8 - disabled - down;
        assert!((0..by.len()).all(|pair| by[pair] == 0 || open.contains(&pair)), "{by:?}, open are {open:?}");
        let discards = |pair: &usize| self.discards[2 * pair + 1];
        let disabled = disabled + self.pairs(Ring::Transmit, true, false).filter(discards).count();
        for (reason, n) in [("ring-disabled", disabled), ("link-down", down)] {
            let n = before.get(reason).copied().unwrap_or(0) + u64::try_from(n).expect("few");
            wait_until("the others are counted", || scene.rig.drops(0, reason) >= n);
            assert_eq!(scene.rig.drops(0, reason), n, "{reason}");
        }
    }
}

#[test]
fn pairs_that_come_and_go_in_any_order_under_traffic() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_queues(layout, PAIRS);
        let mut guest = scene.compliant_guest();
        let mut states = RingStates { enabled: [true; 8], runs: [true; 8], discards: [true; 8], sent: 0, arrived: 0 };
        for byte in noise(1, hostile::repeats(200, 10_000)) {
            // The frontend changes one ring while these packets are in flight.
            states.sent += send_by_all(&mut guest) + 8;
            (0..8).for_each(|n| send(&mut scene.good, &flow(n, 600)));
            states.change(&mut guest, u16::from(byte & 7), byte >> 3 & 3);
            states.account(&mut scene, &mut guest);
            states.check(&mut scene, &mut guest);
        }
        for ring in 0..RINGS {
            states.change(&mut guest, ring, 0);
            states.change(&mut guest, ring, 3);
        }
        states.account(&mut scene, &mut guest);
        scene.rig.wait_up(0);
        drop(guest);
        scene.settle();
        scene.recovers("pairs that come and go");
        scene.end();
    }
}

/// Makes an endless chain available in a ring of a pair that has published nothing yet.
fn break_ring(pair: &Pair, layout: Layout, ring: Ring) {
    let write = if ring == Ring::Receive { WRITE } else { 0 };
    let addr = pair.buffer_address(ring, 0);
    if layout == Layout::Split {
        pair.publish_chain(ring, 0, &[Descriptor { addr, len: 100, flags: NEXT | write, next: 0 }]);
    } else {
        let endless = PackedDescriptor { addr, len: 100, id: 0, flags: NEXT | write };
        pair.publish_packed(ring, 0, true, &[endless; 16]);
    }
}

/// Makes a valid packet available in a transmit ring that has published none yet.
fn publish_one(pair: &Pair, layout: Layout, bytes: &[u8]) {
    let desc = filled(pair, bytes);
    if layout == Layout::Split {
        pair.publish_chain(Ring::Transmit, 0, &[desc]);
    } else {
        let Descriptor { addr, len, .. } = desc;
        pair.publish_packed(Ring::Transmit, 0, true, &[PackedDescriptor { addr, len, id: 0, flags: 0 }]);
    }
}

/// Writes a packet into the first transmit buffer, and returns its descriptor.
fn filled(pair: &Pair, bytes: &[u8]) -> Descriptor {
    let addr = pair.buffer_address(Ring::Transmit, 0);
    pair.write_memory(addr, &[0; 12]);
    pair.write_memory(addr + 12, bytes);
    Descriptor { addr, len: u32::try_from(12 + bytes.len()).expect("short"), flags: 0, next: 0 }
}

/// Replaces an available endless chain by a valid packet.
fn publish_over(pair: &Pair, layout: Layout, bytes: &[u8]) {
    let desc = filled(pair, bytes);
    if layout == Layout::Split {
        pair.write_descriptor(Ring::Transmit, 0, desc);
        return;
    }
    // The other descriptors are free now.
    for place in (0..16).rev() {
        let (addr, len) = if place == 0 { (desc.addr, desc.len) } else { (0, 0) };
        let free = PackedDescriptor { addr, len, id: 0, flags: 0 };
        pair.write_packed(Ring::Transmit, place, if place == 0 { free.available(true) } else { free });
    }
}

#[test]
fn a_broken_ring_of_any_pair_stops_all_rings_of_its_port() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_queues(layout, PAIRS);
        for broken in 0..RINGS {
            let mut guest = scene.attacker();
            let at = usize::from(broken / 2);
            let (ring, name) =
                if broken % 2 == 0 { (Ring::Receive, "receive ring") } else { (Ring::Transmit, "transmit ring") };
            let name = if at == 0 { name.to_owned() } else { format!("{name} {at}") };
            break_ring(&guest.pairs()[at], layout, ring);
            // At least one flow reaches each receive ring; the other rings have no buffers.
            (0..FLOWS).for_each(|n| send(&mut scene.good, &flow(n, 600)));
            scene.rig.wait_down(0, &format!("{name}: the chain"));
            scene.rig.wait_down(0, "it loops");
            scene.victims.go_on();
            // The other pairs publish packets. The switch takes none, and writes nothing.
            let bytes = frame(mac(2), mac(1), 900, broken.into());
            let others: Vec<_> = (0..usize::from(PAIRS)).filter(|&pair| pair != at).collect();
            for &pair in &others {
                publish_one(&guest.pairs()[pair], layout, &bytes);
            }
            (0..FLOWS).for_each(|n| send(&mut scene.good, &flow(n, 600)));
            let whole = own_region(&guest);
            let memory = |guest: &Pair| {
                let len = u32::try_from(whole.size).expect("a small guest");
                guest.read_memory(whole.guest_addr, len).expect("its own")
            };
            let before = memory(&guest);
            scene.victims.go_on();
            assert!(memory(&guest) == before, "{name} is broken, and the port goes on");
            assert!(arrived(&mut scene.good).is_empty());
            // The frontend sets the kicks of the other rings again. These rings continue, one after
            // the other; the broken one does not.
            for &pair in &others {
                guest.client().set_vring_kick(2 * u16::try_from(pair).expect("few") + 1, None).expect("a kick");
                assert!(take(&mut scene.good, 1)[0].1 == bytes, "pair {pair} goes on without {name}");
            }
            drop(guest);
            scene.settle();
            scene.recovers(&name);
        }
        scene.end();
    }
}

#[test]
fn a_broken_ring_goes_on_with_a_kick_and_with_no_other_message() {
    for layout in Layout::BOTH {
        for polled in [false, true] {
            let mut scene = Scene::with_queues(layout, PAIRS);
            let mut guest = scene.attacker();
            let event = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
            let kick = (!polled).then_some(event.as_fd());
            guest.client().set_vring_kick(3, kick).expect("a kick");
            break_ring(&guest.pairs()[1], layout, Ring::Transmit);
            rustix::io::write(&event, &1_u64.to_ne_bytes()).expect("a kick");
            scene.rig.wait_down(0, "transmit ring 1: the chain");
            // The guest repairs the ring. The switch does not look at it before the frontend starts
            // it.
            let bytes = frame(mac(2), mac(1), 900, 3);
            publish_over(&guest.pairs()[1], layout, &bytes);
            guest.client().set_vring_enable(3, false).expect("disabled");
            guest.client().set_vring_enable(3, true).expect("enabled");
            guest.client().set_vring_call(2, None).expect("no call");
            guest.client().set_vring_call(3, None).expect("no call");
            rustix::io::write(&event, &1_u64.to_ne_bytes()).expect("a kick");
            scene.victims.go_on();
            let what = format!("{layout:?}, polled: {polled}");
            assert!(
                arrived(&mut scene.good).is_empty() && scene.dropped().is_empty(),
                "{what}: another message starts it"
            );
            guest.client().set_vring_kick(3, kick).expect("a kick");
            assert!(take(&mut scene.good, 1)[0].1 == bytes, "{what}");
            drop(guest);
            scene.settle();
            scene.recovers("a broken ring that goes on");
            scene.end();
        }
    }
}

#[test]
fn a_flooded_pair_starves_neither_its_port_nor_another() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_queues(layout, PAIRS);
        let mut guest = scene.compliant_guest();
        // All packets become visible at once: memory is removed, rings are filled, memory is added
        // again.
        let spec = own_region(&guest);
        for last in 1..usize::from(PAIRS) {
            wait_until("all buffers are back", || {
                guest.pairs().iter_mut().for_each(Pair::flush);
                guest.pairs().iter().all(|pair| pair.spare() == 256)
            });
            guest.client().remove_mem_region(&spec).expect("removed");
            let flood = frame(mac(2), mac(1), 60, 0);
            for _ in 0..200 {
                assert!(guest.pairs()[0].send(&NetHeader::default(), &flood));
            }
            let one = frame(mac(2), mac(1), 61, 0);
            assert!(guest.pairs()[last].send(&NetHeader::default(), &one));
            guest.pairs().iter_mut().for_each(Pair::flush);
            let file = rustix::io::dup(guest.file()).expect("its file");
            guest.client().add_mem_region(&RegionRef { spec, fd: file.as_fd() }).expect("added");
            let came = take(&mut scene.good, 201);
            let place = came.iter().position(|(_, bytes)| *bytes == one).expect("it is among them");
            assert!(place <= 128, "{layout:?}: the one packet of pair {last} came behind {place} of the flood");
        }
        // All pairs send as fast as possible, until the victims have exchanged their packets.
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let flood = frame(mac(2), mac(1), 60, 0);
                while !stop.load(Ordering::Relaxed) {
                    for pair in guest.pairs() {
                        while pair.send(&NetHeader::default(), &flood) {}
                        pair.flush();
                    }
                }
            });
            for _ in 0..hostile::repeats(20, 1000) {
                scene.victims.go_on();
                arrived(&mut scene.good);
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop(guest);
        scene.settle();
        scene.recovers("a flood by every pair");
        scene.end();
    }
}

/// The message by which a frontend resets everything.
#[derive(Clone, Copy, Debug)]
enum ResetKind {
    Device,
    Owner,
    Status,
}

// Cites vhost-user-reset-device-1.
#[test]
fn all_pairs_are_reset_under_traffic() {
    for layout in Layout::BOTH {
        for reset in [ResetKind::Device, ResetKind::Owner, ResetKind::Status] {
            let mut scene = Scene::with_queues(layout, PAIRS);
            let mut guest = scene.compliant_guest();
            let mut states =
                RingStates { enabled: [true; 8], runs: [true; 8], discards: [true; 8], sent: 0, arrived: 0 };
            for _ in 0..hostile::repeats(20, 1000) {
                states.sent += send_by_all(&mut guest) + 8;
                (0..8).for_each(|n| send(&mut scene.good, &flow(n, 600)));
                let runs = match reset {
                    ResetKind::Device => guest.client().reset_device().map(|()| false),
                    ResetKind::Status => guest.client().set_status(0).map(|()| false),
                    ResetKind::Owner => {
                        let message = Message::request(Request::ResetOwner, Vec::new());
                        guest.client().send_raw(&message, &[]).expect("sent");
                        guest.client().get_features().map(|_| true)
                    }
                };
                (states.runs, states.enabled) = ([runs.expect("reset"); 8], [false; 8]);
                states.account(&mut scene, &mut guest);
                states.check(&mut scene, &mut guest);
                scene.rig.wait_down(0, "");
                scene.victims.go_on();
                match reset {
                    ResetKind::Device => {
                        let features = guest.features();
                        guest.client().set_features(features).expect("features");
                        guest.start().expect("started");
                    }
                    ResetKind::Status => {
                        let bases = guest.stop().expect("stopped already");
                        guest.resume(&bases).expect("started");
                    }
                    ResetKind::Owner => guest.enable(PAIRS.into()).expect("enabled"),
                }
                (states.runs, states.enabled) = ([true; 8], [true; 8]);
                states.account(&mut scene, &mut guest);
                states.check(&mut scene, &mut guest);
            }
            drop(guest);
            scene.settle();
            scene.recovers("all pairs reset");
            scene.end();
        }
    }
}
