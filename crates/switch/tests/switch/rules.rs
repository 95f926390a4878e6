//! The rules of a turn, as guests see them: order, overlap, memory and rings that go away, sleep.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use straightline_config::Config;
use straightline_guest::{Guest, GuestOptions, MemoryPlacement, Ring, Sequence, Stream, memory_file};
use straightline_switch::api::{EventKind, Link};
use straightline_testing::{
    BASIC, BROADCAST, PATIENCE, Victims, arrived, bridge, frame, mac, noise, nothing, patch, rig, send, take,
    wait_asleep, wait_event, wait_turns, wait_until,
};
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::Descriptor;
use straightline_virtio::vhost_user::{RegionRef, RegionSpec};

fn patched(config: &mut Config) {
    config.patches.push(patch(0, 1));
}

#[test]
fn a_source_sees_its_buffer_used_only_after_the_packet_is_visible() {
    let rig = rig(2, patched);
    let options = GuestOptions { withhold: true, ..GuestOptions::default() };
    let mut source = rig.guest(0, &options);
    let mut sink = rig.guest(1, &options);
    for round in 0..2000_u16 {
        sink.give(64);
        // Packets with a body and without. The chain of a packet without a body is given back at
        // once, which says nothing about its delivery.
        assert!(source.send(&NetHeader::default(), &frame(mac(2), mac(1), 1514, u64::from(round))));
        let before = sink.used_index(Ring::Receive);
        source.flush();
        wait_until("the source sees it used", || source.used_index(Ring::Transmit) == round.wrapping_add(1));
        assert_eq!(sink.used_index(Ring::Receive), before.wrapping_add(1), "visible before it is used");
        source.flush();
        assert_eq!(arrived(&mut sink).len(), 1);
    }
    rig.no_drops();
}

#[test]
fn buffers_of_a_source_and_its_destination_may_overlap() {
    let options = GuestOptions::default();
    let part = options.memory_len();
    let file = Arc::new(memory_file(2 * part).expect("memory"));
    let place = |offset| GuestOptions {
        features: BASIC,
        place: Some(MemoryPlacement { file: Arc::clone(&file), offset }),
        withhold: true,
        ..options.clone()
    };
    let rig = rig(2, patched);
    let source = rig.guest(0, &place(0));
    let sink = rig.guest(1, &place(part));
    // Both see the same bytes at the same addresses.
    let at = sink.buffer_address(Ring::Receive, 10);
    let len: u32 = 1514 + 12;
    let mut index = 0_u16;
    let guard = 4096;
    for shift in [0, 1, 7, 12, 13, 64, 255, 256, 257, 300, 511, 512, 1000, 1525, 1526, 1600] {
        for forward in [true, false] {
            let from = if forward { at + shift } else { at - shift };
            assert!(source.write_memory(at - guard, &noise(shift, 3 * 4096)));
            assert!(source.write_memory(from, &NetHeader::default().to_bytes()));
            let before = source.read_memory(at - guard, 3 * 4096).expect("memory");
            let descriptor = |flags| Descriptor { addr: at, len, flags, next: 0 };
            sink.publish_chain(Ring::Receive, index % 256, &[descriptor(2)]);
            source.publish_chain(Ring::Transmit, index % 256, &[Descriptor { addr: from, ..descriptor(0) }]);
            index += 1;
            wait_until("both are used", || {
                sink.used_index(Ring::Receive) == index && source.used_index(Ring::Transmit) == index
            });
            let after = source.read_memory(at - guard, 3 * 4096).expect("memory");
            let place = usize::try_from(guard).expect("short")..usize::try_from(guard + u64::from(len)).expect("short");
            assert!(before[..place.start] == after[..place.start], "before the buffer, {shift}");
            assert!(before[place.end..] == after[place.end..], "behind the buffer, {shift}");
            // The head was read before anything was stored.
            let head =
                usize::try_from(i64::try_from(from - (at - guard).min(from)).expect("short")).expect("short") + 12;
            assert!(before[head..head + 60] == after[place.start + 12..place.start + 72], "the head, {shift}");
        }
    }
    rig.no_drops();
}

/// Sends as fast as it can until it is told to stop.
fn flood(mut source: Guest, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut stream = Stream::prepare(&mut source, mac(1), mac(2), &[1514, 60]).expect("a stream");
        while !stop.load(Ordering::Relaxed) {
            while stream.send(&mut source) {}
            source.flush();
            std::thread::yield_now();
        }
        stream.sent()
    })
}

fn goes_on(sink: &mut Guest) {
    let level = sink.level();
    let mut seen = Sequence::default();
    wait_until("packets arrive again", || {
        sink.receive(64, |_, parts| seen.note(level, parts));
        seen.packets > 300
    });
}

// Cites vhost-user-ring-states-1, vhost-user-ring-states-7, vhost-user-get-vring-base-1.
#[test]
fn memory_and_rings_go_away_under_a_flood() {
    let rig = rig(2, patched);
    let stop = Arc::new(AtomicBool::new(false));
    let flood = flood(rig.guest(0, &GuestOptions::default()), &stop);
    for _ in 0..10 {
        let mut sink = rig.guest(1, &GuestOptions::default());
        goes_on(&mut sink);
        for _ in 0..10 {
            sink.share_memory().expect("the same memory anew");
        }
        goes_on(&mut sink);
        for _ in 0..10 {
            let bases = sink.stop().expect("rings stop");
            let [receive, transmit] = bases[0];
            assert_eq!(receive, u32::from(sink.used_index(Ring::Receive)), "nothing is taken and not given back");
            assert_eq!(transmit, 0);
            let at = sink.used_index(Ring::Receive);
            wait_turns(&rig.switch);
            assert_eq!(sink.used_index(Ring::Receive), at, "a ring that is stopped stands still");
            sink.resume(&bases).expect("rings start");
        }
        goes_on(&mut sink);
        sink.reconnect(rig.socket(1)).expect("the same rings on a new connection");
        goes_on(&mut sink);
        // The frontend leaves in the middle of it.
    }
    stop.store(true, Ordering::Relaxed);
    let sent = flood.join().expect("the flood");
    let from = rig.port(0);
    let to = rig.port(1);
    wait_until("all are accounted for", || {
        let to = rig.port(1);
        let tx = to.queues[0].tx.packets;
        let drops = to.drops.values().sum::<u64>();
        tx + drops == rig.port(0).queues[0].rx.packets
    });
    assert!(from.drops.is_empty() && to.queues[0].tx.packets > 1000 && sent > 1000);
    assert!(to.drops.keys().all(|reason| ["no-buffer", "link-down", "ring-disabled"].contains(&reason.as_str())));
}

#[test]
fn rings_whose_memory_is_removed_and_added_again_go_on_where_they_were() {
    let rig = rig(2, patched);
    let options = GuestOptions::default();
    let file = Arc::new(memory_file(options.memory_len()).expect("memory"));
    let place = Some(MemoryPlacement { file: Arc::clone(&file), offset: 0 });
    let mut source = rig.guest(0, &GuestOptions { place, ..options.clone() });
    let mut sink = rig.guest(1, &options);
    let region = &source.memory().regions()[0];
    let guest_addr = region.guest_addr();
    let size = region.size();
    let spec = RegionSpec { guest_addr, size, user_addr: guest_addr, mmap_offset: 0 };
    for round in 0..5 {
        for n in 0..100 {
            send(&mut source, &frame(mac(2), mac(1), 600, n));
            send(&mut sink, &frame(mac(1), mac(2), 600, n));
        }
        take(&mut sink, 100);
        take(&mut source, 100);
        source.client().remove_mem_region(&spec).expect("removed");
        rig.wait_down(0, "memory");
        // Made available while the port does not poll.
        assert!(source.send(&NetHeader::default(), &frame(mac(2), mac(1), 800, round)));
        source.flush();
        nothing(&rig.switch, &mut sink);
        source.client().add_mem_region(&RegionRef { spec, fd: file.as_fd() }).expect("added");
        assert_eq!(take(&mut sink, 1)[0].1, frame(mac(2), mac(1), 800, round), "round {round}");
        rig.wait_up(0);
    }
    rig.no_drops();
}

#[test]
fn the_source_leaves_in_the_middle_of_its_flood() {
    let rig = rig(2, patched);
    let mut sink = rig.guest(1, &GuestOptions::default());
    for _ in 0..10 {
        let mut source = rig.guest(0, &GuestOptions::default());
        let mut stream = Stream::prepare(&mut source, mac(1), mac(2), &[1514]).expect("a stream");
        for _ in 0..50 {
            while stream.send(&mut source) {}
            source.flush();
            arrived(&mut sink);
        }
    }
    let mut source = rig.guest(0, &GuestOptions::default());
    arrived(&mut sink);
    send(&mut source, &frame(mac(2), mac(1), 1000, 5));
    wait_until("the last one arrives", || arrived(&mut sink).iter().any(|(_, b)| *b == frame(mac(2), mac(1), 1000, 5)));
}

fn truncated(victim_ports: (usize, usize), who: usize) {
    let rig = rig(4, |config| {
        patched(config);
        config.patches.push(patch(2, 3));
    });
    let victims = Victims::start(&rig, victim_ports.0, victim_ports.1);
    let options = GuestOptions { buffer_len: 4096, ..GuestOptions::default() };
    let file = Arc::new(memory_file(options.memory_len()).expect("memory"));
    let placed =
        GuestOptions { place: Some(MemoryPlacement { file: Arc::clone(&file), offset: 0 }), ..options.clone() };
    // The other end keeps traffic in motion while the memory vanishes.
    let mut pair = [0, 1].map(|port| rig.guest(port, if port == who { &placed } else { &options }));
    let mut stream = Stream::prepare(&mut pair[0], mac(1), mac(2), &[1514]).expect("a stream");
    let mut drive = |pair: &mut [Guest; 2], sink_is_there: bool| {
        while stream.send(&mut pair[0]) {}
        pair[0].flush();
        let got = arrived(&mut pair[1]);
        for (_, bytes) in got.iter().filter(|_| sink_is_there) {
            assert!(bytes[12..14] == [8, 0], "no packet of zeros is delivered: {:?}", &bytes[..14]);
        }
        got.len()
    };
    let mut total = 0;
    wait_until("it flows", || {
        total += drive(&mut pair, true);
        total > 500
    });
    let left = 2 * (64 << 10) + 200 * 4096;
    rustix::fs::ftruncate(&*file, if who == 0 { left + 256 * 4096 } else { left }).expect("truncate");
    // The vanished memory may not be in use at this moment: traffic continues until the switch
    // accesses it.
    wait_until("it is noticed", || {
        // A guest that reads its own vanished memory reads zeros too, so such bytes prove nothing.
        drive(&mut pair, who == 0);
        rig.port(who).link == Link::Down
    });
    rig.wait_down(who, "truncated");
    wait_event(&rig.switch, "the fault is an event", |kind| match kind {
        EventKind::Fault { port, reason } => *port == format!("p{who}") && reason.contains("truncated"),
        _ => false,
    });
    victims.go_on();
    // Only that port is affected: the other one is up, and serves the next guest.
    rig.wait_up(1 - who);
    let [source, sink] = pair;
    let mut pair = if who == 0 {
        drop(source);
        [rig.guest(0, &options), sink]
    } else {
        drop(sink);
        [source, rig.guest(1, &options)]
    };
    rig.wait_up(who);
    let last = frame(mac(2), mac(1), 1200, 9);
    wait_until("the next guest is served", || {
        pair[0].flush();
        pair[0].send(&NetHeader::default(), &last);
        pair[0].flush();
        arrived(&mut pair[1]).iter().any(|(_, bytes)| *bytes == last)
    });
    victims.finish();
}

#[test]
fn a_source_whose_memory_is_truncated() {
    truncated((2, 3), 0);
}

#[test]
fn a_destination_whose_memory_is_truncated() {
    truncated((3, 2), 1);
}

#[test]
fn a_packet_from_memory_that_has_vanished_is_not_delivered() {
    let rig = rig(2, patched);
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions::default());
    // The rings stay: only the region with the packet's bytes goes.
    let bytes = memory_file(1 << 20).expect("memory");
    let spec = RegionSpec { guest_addr: 1 << 40, size: 1 << 20, user_addr: 1 << 40, mmap_offset: 0 };
    source.client().add_mem_region(&RegionRef { spec, fd: bytes.as_fd() }).expect("a second region");
    let packet = Descriptor { addr: (1 << 40) + 4096, len: 1000, flags: 0, next: 0 };
    source.publish_chain(Ring::Transmit, 0, &[packet]);
    assert_eq!(take(&mut sink, 1)[0].1, [0; 988]);
    rustix::fs::ftruncate(&bytes, 4096).expect("truncate");
    source.publish_chain(Ring::Transmit, 0, &[packet]);
    rig.wait_down(0, "truncated");
    nothing(&rig.switch, &mut sink);
    rig.wait_drops(1, "memory-fault", 1);
    rig.wait_up(1);
}

// Cites vhost-user-ring-states-3, vhost-user-ring-states-4, vhost-user-ring-states-8.
#[test]
fn a_ring_that_is_disabled() {
    let rig = rig(2, patched);
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions::default());
    source.client().set_vring_enable(1, false).expect("disable");
    for n in 0..10 {
        send(&mut source, &frame(mac(2), mac(1), 700, n));
    }
    rig.wait_drops(0, "ring-disabled", 10);
    wait_until("they are taken all the same", || {
        source.flush();
        source.spare() == 256
    });
    nothing(&rig.switch, &mut sink);
    rig.wait_down(0, "disabled the transmit ring");
    source.client().set_vring_enable(1, true).expect("enable");
    sink.client().set_vring_enable(0, false).expect("disable");
    for n in 0..10 {
        send(&mut source, &frame(mac(2), mac(1), 700, n));
    }
    rig.wait_drops(1, "ring-disabled", 10);
    nothing(&rig.switch, &mut sink);
    sink.client().set_vring_enable(0, true).expect("enable");
    send(&mut source, &frame(mac(2), mac(1), 700, 77));
    assert_eq!(take(&mut sink, 1)[0].1, frame(mac(2), mac(1), 700, 77));
    rig.wait_up(0);
    rig.wait_up(1);
}

#[test]
fn a_guest_that_comes_back_is_served_and_counted_on() {
    let rig = rig(3, |config| config.bridges.push(bridge(3)));
    let mut a = rig.guest(0, &GuestOptions::default());
    for round in 1..=20 {
        let mut b = rig.guest(1, &GuestOptions::default());
        send(&mut b, &frame(BROADCAST, mac(2), 800, round));
        take(&mut a, 1);
        send(&mut a, &frame(mac(2), mac(1), 900, round));
        assert_eq!(take(&mut b, 1)[0].1, frame(mac(2), mac(1), 900, round));
        let port = rig.port(1);
        assert_eq!((port.queues[0].rx.packets, port.queues[0].tx.packets), (round, round));
        drop(b);
        rig.wait_down(1, "waiting for a frontend");
        assert_eq!(rig.port(1).regions, 0);
        // The guest's port is still known: packets for it are dropped there.
        send(&mut a, &frame(mac(2), mac(1), 900, round));
        rig.wait_drops(1, "link-down", round);
        let mut known: Vec<_> = rig.switch.source().fdb().entries.into_iter().map(|e| (e.mac, e.port)).collect();
        known.sort();
        assert_eq!(known, [(mac(1).to_string(), "p0".to_owned()), (mac(2).to_string(), "p1".to_owned())]);
    }
}

#[test]
fn a_worker_that_sleeps_is_woken_by_a_kick() {
    for features in [GuestOptions::default().features, BASIC] {
        let rig = rig(2, patched);
        let options = GuestOptions { features, ..GuestOptions::default() };
        let mut source = rig.guest(0, &options);
        let mut sink = rig.guest(1, &options);
        for n in 0..10 {
            wait_asleep(&rig.switch);
            let frame = frame(mac(2), mac(1), 500, n);
            send(&mut source, &frame);
            assert_eq!(take(&mut sink, 1)[0].1, frame);
        }
    }
}

#[test]
fn a_switch_stops_whatever_its_frontends_do() {
    let rig = rig(2, patched);
    let _silent = std::os::unix::net::UnixStream::connect(rig.socket(0)).expect("connect");
    let mut half = std::os::unix::net::UnixStream::connect(rig.socket(1)).expect("connect");
    std::io::Write::write_all(&mut half, &[1, 0, 0, 0, 1]).expect("half a message");
    rig.wait_down(1, "a frontend is connected");
    // The time is the subject: no event shows that the port's thread waits for the rest of the message.
    std::thread::sleep(Duration::from_millis(50));
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        rig.switch.stop();
        let _ = done.send(());
    });
    wait.recv_timeout(PATIENCE).expect("it stops though a frontend is in the middle of a message");
}
