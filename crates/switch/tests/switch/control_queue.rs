//! The control queue of frontends that leave commands to us: modes and tables, queue pairs,
//! offloads changed while packets pass, and drivers that send nonsense.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use straightline_guest::{Guest, GuestOptions, MemoryPlacement, memory_file};
use straightline_switch::api::RxMode;
use straightline_testing::packets::{self, Kind};
use straightline_testing::{self as testing, Rig, frame, mac, nothing, patch, rig, send, take, vhost_user, wait_until};
use straightline_virtio::features as f;
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::{Descriptor, Geometry, NEXT, RingOptions, SplitDriver, WRITE};
use straightline_virtio::vhost_user::RingAddresses;

const CONTROL: u64 = f::VIRTIO_NET_F_CTRL_VQ
    | f::VIRTIO_NET_F_CTRL_RX
    | f::VIRTIO_NET_F_CTRL_RX_EXTRA
    | f::VIRTIO_NET_F_CTRL_VLAN
    | f::VIRTIO_NET_F_CTRL_MAC_ADDR
    | f::VIRTIO_NET_F_CTRL_GUEST_OFFLOADS
    | f::VIRTIO_NET_F_GUEST_ANNOUNCE;

/// Bytes after a guest's own memory: for the control ring, a command and its answer.
const ROOM: u64 = 128 << 10;
const SIZE: u16 = 64;
/// Neither of the acknowledgements.
const UNTOUCHED: u8 = 0xee;

struct Control {
    driver: SplitDriver,
    kick: std::os::fd::OwnedFd,
    geometry: Geometry,
    command: u64,
}

/// A guest at port 0 with its control ring, as the ring of this index.
fn guest(rig: &Rig, features: u64, queue_pairs: u16, index: u16) -> (Guest, Control) {
    let mut guest = at_rest(rig, 0, features, queue_pairs);
    guest.start().expect("rings");
    let control = control(&mut guest, index);
    (guest, control)
}

/// A guest whose rings do not run yet.
fn at_rest(rig: &Rig, port: usize, features: u64, queue_pairs: u16) -> Guest {
    let features = GuestOptions::default().features | features | CONTROL;
    let options = GuestOptions { features, queue_pairs, ..GuestOptions::default() };
    let file = Arc::new(memory_file(options.memory_len() + ROOM).expect("memory"));
    let options = GuestOptions { place: Some(MemoryPlacement { file, offset: 0 }), ..options };
    Guest::prepare(rig.socket(port), &options).expect("a guest")
}

/// Starts its control ring, after its own memory.
fn control(guest: &mut Guest, index: u16) -> Control {
    let region = &guest.memory().regions()[0];
    let at = region.guest_addr() + region.size() - ROOM;
    let geometry = Geometry { size: SIZE, desc: at, avail: at + 4096, used: at + 8192 };
    let options = RingOptions { event_idx: true, indirect: true, in_order: false };
    let driver = SplitDriver::new(guest.memory(), geometry, options).expect("a ring");
    let kick = eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd");
    let Geometry { desc, avail, used, .. } = geometry;
    let client = guest.client();
    client.set_vring_num(index, SIZE).expect("size");
    client.set_vring_base(index, 0).expect("base");
    client.set_vring_addr(index, RingAddresses { desc, avail, used }).expect("addresses");
    client.set_vring_kick(index, Some(kick.as_fd())).expect("kick");
    client.set_vring_enable(index, true).expect("enabled");
    Control { driver, kick, geometry, command: at + (16 << 10) }
}

impl Control {
    /// Sends a command, in descriptors of `cut` bytes, and waits for its acknowledgement.
    fn send_in(&mut self, guest: &Guest, command: &[u8], cut: usize) -> u8 {
        let answer = self.command + ROOM / 2;
        assert!(guest.write_memory(self.command, command) && guest.write_memory(answer, &[UNTOUCHED]));
        let mut parts = Vec::new();
        let mut at = self.command;
        for part in command.chunks(cut) {
            parts.push((at, u32::try_from(part.len()).expect("short"), false));
            at += part.len() as u64;
        }
        parts.push((answer, 1, true));
        assert!(self.driver.add(&parts).is_some());
        self.driver.publish();
        if self.driver.must_kick() {
            rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).expect("kick");
        }
        let mut used = None;
        wait_until("the command is used", || {
            used = self.driver.used();
            used.is_some()
        });
        assert_eq!(used.and_then(Result::ok).map(|(_, written)| written), Some(1));
        guest.read_memory(answer, 1).expect("memory")[0]
    }

    fn send(&mut self, guest: &Guest, command: &[u8]) -> u8 {
        self.send_in(guest, command, usize::MAX)
    }
}

fn patched() -> Rig {
    rig(2, |config| {
        config.ports.iter_mut().for_each(|port| vhost_user(port).queues = Some(4));
        config.patches.push(patch(0, 1));
    })
}

#[test]
fn modes_addresses_and_vlans_are_kept_and_shown() {
    let rig = patched();
    assert_eq!(rig.port(0).rx_mode, None);
    // Without MQ the control ring comes after the first pair.
    let (mut guest, mut control) = guest(&rig, 0, 1, 2);
    let mut peer = rig.guest(1, &GuestOptions::default());
    let untouched = RxMode { promiscuous: true, ..RxMode::default() };
    // The answer to messages comes before operators see the result.
    wait_until("it is shown", || rig.port(0).rx_mode == Some(untouched.clone()));
    for command in [&[0, 0, 0][..], &[0, 1, 1], &[0, 5, 1], &[1, 1, 2, 0, 0, 0, 0, 9], &[2, 0, 42, 0], &[2, 0, 7, 0]] {
        assert_eq!(control.send(&guest, command), 0, "{command:?}");
    }
    assert_eq!(control.send_in(&guest, &[2, 1, 7, 0], 1), 0, "a byte in each descriptor");
    let table = [&[1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 3, 1, 0, 0, 0][..], &[0x33, 0x33, 0, 0, 0, 1]].concat();
    assert_eq!(control.send_in(&guest, &table, 2), 0);
    let expected = RxMode {
        all_multicast: true,
        no_broadcast: true,
        mac: Some(mac(9).to_string()),
        unicast: vec![mac(3).to_string()],
        multicast: vec!["33:33:00:00:00:01".to_owned()],
        vlans: vec![42],
        ..RxMode::default()
    };
    // It is shown after the driver has its acknowledgement.
    wait_until("it is shown", || rig.port(0).rx_mode == Some(expected.clone()));
    // Nothing is filtered.
    send(&mut peer, &frame(mac(77), mac(1), 100, 1));
    assert_eq!(take(&mut guest, 1)[0].1, frame(mac(77), mac(1), 100, 1));
    // MQ was not negotiated; there is no class 9; half a command; announced.
    for (command, ack) in [(&[4, 0, 1, 0][..], 1), (&[9, 0], 1), (&[0], 1), (&[3, 0], 0)] {
        assert_eq!(control.send(&guest, command), ack, "{command:?}");
    }
    // The dirty log comes and goes while the driver continues.
    for log in [f::VHOST_F_LOG_ALL, 0] {
        let features = guest.features() | log;
        guest.client().set_features(features).expect("the log alone may change");
        guest.client().get_features().expect("an answer, behind what is shown");
        assert_eq!(rig.port(0).rx_mode, Some(expected.clone()));
    }
    guest.client().reset_device().expect("reset");
    wait_until("it is gone", || rig.port(0).rx_mode.is_none());
}

#[test]
fn queue_pairs_are_used_as_the_driver_asks() {
    let rig = patched();
    let (mut sink, mut control) = guest(&rig, 0, 4, 8);
    let mut source = rig.guest(1, &GuestOptions::default());
    let mut used_pairs = |sink: &mut Guest| {
        for n in 0..64 {
            send(&mut source, &frame(mac(n), mac(100), 80, 1));
        }
        let mut got = [0; 4];
        wait_until("all have arrived", || {
            for (pair, got) in sink.pairs().iter_mut().zip(&mut got) {
                *got += pair.receive(usize::MAX, |_, _| ());
            }
            got.iter().sum::<usize>() == 64
        });
        got.map(|n| n > 0)
    };
    // virtio 1.2, 5.1.6.5.5: one, whatever the frontend has enabled, until the driver asks for
    // more.
    assert_eq!(used_pairs(&mut sink), [true, false, false, false]);
    for (pairs, ack) in [(4, 0), (0, 1), (5, 1)] {
        assert_eq!(control.send(&sink, &[4, 0, pairs, 0]), ack);
        assert_eq!(used_pairs(&mut sink), [true; 4]);
    }
    assert_eq!(control.send(&sink, &[4, 0, 2, 0]), 0);
    assert_eq!(used_pairs(&mut sink), [true, true, false, false]);
    rig.no_drops();
}

#[test]
fn offloads_change_while_the_guest_runs() {
    let rig = patched();
    let (mut sink, mut control) = guest(&rig, f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_TSO4, 1, 2);
    let features = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM;
    let mut source = rig.guest(1, &GuestOptions { features, ..GuestOptions::default() });
    let (header, bytes) = packets::partial(Kind::Tcp4, mac(2), mac(1), &testing::noise(1, 1000));
    let mut is_partial = |sink: &mut Guest| {
        assert!(source.send(&header, &bytes));
        source.flush();
        let (got, frame) = take(sink, 1).swap_remove(0);
        packets::check(&frame, got.flags & packets::NEEDS_CSUM != 0);
        got.flags & packets::NEEDS_CSUM != 0
    };
    assert!(is_partial(&mut sink));
    let offloads = |bits: u64| [&[5, 0][..], &bits.to_le_bytes()].concat();
    assert_eq!(control.send(&sink, &offloads(0)), 0);
    assert!(!is_partial(&mut sink));
    assert_eq!(control.send(&sink, &offloads(f::VIRTIO_NET_F_GUEST_TSO6)), 1, "it was not negotiated");
    assert!(!is_partial(&mut sink));
    assert_eq!(control.send(&sink, &offloads(f::VIRTIO_NET_F_GUEST_CSUM)), 0);
    assert!(is_partial(&mut sink));
}

// Cites vhost-user-suspended-4, vhost-user-migrating-1, vhost-user-migrating-2.
// Cites vhost-user-migrating-3, vhost-user-check-device-state-1.
#[test]
fn what_was_set_goes_on_at_another_port() {
    let rig = rig(3, |config| {
        config.ports.iter_mut().for_each(|port| vhost_user(port).queues = Some(4));
        config.patches.push(patch(1, 2));
    });
    let features = f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_TSO4;
    let (mut here, mut commands) = guest(&rig, features, 4, 8);
    let table = [&[1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 3, 1, 0, 0, 0][..], &[0x33, 0x33, 0, 0, 0, 1]].concat();
    let offloads = [&[5, 0][..], &0_u64.to_le_bytes()].concat();
    for command in [
        &[0, 0, 0][..],
        &[0, 1, 1],
        &[0, 5, 1],
        &table,
        &[1, 1, 2, 0, 0, 0, 0, 9],
        &[2, 0, 42, 0],
        &[4, 0, 2, 0],
        &offloads,
    ] {
        assert_eq!(commands.send(&here, command), 0, "{command:?}");
    }
    wait_until("all is shown", || rig.port(0).rx_mode.is_some_and(|mode| mode.vlans == [42]));
    let set = rig.port(0).rx_mode.expect("it runs");
    // "Suspended device state": every ring is stopped.
    assert!(here.client().save_state().is_err(), "it runs");
    here.stop().expect("stopped");
    assert!(here.client().save_state().is_err(), "its control ring runs");
    here.client().get_vring_base(8).expect("stopped");
    let state = here.client().save_state().expect("a state");
    assert_eq!(here.client().save_state().expect("once more"), state);
    // As QEMU stops a device.
    here.client().set_status(0).expect("status");
    assert_eq!(here.client().save_state().expect("still"), state);
    here.client().reset_device().expect("reset");
    assert_ne!(here.client().save_state().expect("another"), state);

    let mut there = at_rest(&rig, 1, features, 4);
    there.client().load_state(&state).expect("loaded");
    assert_eq!(there.client().save_state().expect("a state"), state, "it can be moved on at once");
    // Features may come only now, or again.
    let acked = there.features();
    for features in [acked & !f::VIRTIO_NET_F_GUEST_CSUM, acked] {
        there.client().set_features(features).expect("features");
    }
    there.start().expect("rings");
    let mut commands = control(&mut there, 8);
    wait_until("it is shown", || rig.port(1).rx_mode == Some(set.clone()));
    // Two pairs are in use, and a checksum is completed for a driver that has turned the offload
    // off.
    let features = GuestOptions::default().features | f::VIRTIO_NET_F_CSUM;
    let mut source = rig.guest(2, &GuestOptions { features, ..GuestOptions::default() });
    let mut got = [0; 4];
    let mut partial = 0;
    for n in 0..64 {
        let (header, mut bytes) = packets::partial(Kind::Tcp4, mac(n), mac(100), &testing::noise(n.into(), 100));
        // The source port makes the flow. The pseudo-header's sum does not cover it.
        bytes[34..36].copy_from_slice(&(1000 + u16::from(n)).to_be_bytes());
        assert!(source.send(&header, &bytes));
        source.flush();
    }
    wait_until("all have arrived", || {
        for (pair, got) in there.pairs().iter_mut().zip(&mut got) {
            *got += pair.receive(usize::MAX, |header, _| partial += header.flags & packets::NEEDS_CSUM);
        }
        got.iter().sum::<usize>() == 64
    });
    assert_eq!((got.map(|n| n > 0), partial), ([true, true, false, false], 0));
    assert_eq!(commands.send(&there, &[0, 1, 0]), 0, "commands go on");
    // A driver that is reset starts from the beginning.
    there.stop().expect("stopped");
    there.client().get_vring_base(8).expect("stopped");
    there.client().reset_device().expect("reset");
    assert_ne!(there.client().save_state().expect("a state"), state);
}

#[test]
fn commands_that_are_none() {
    let rig = patched();
    let (mut guest, mut control) = guest(&rig, 0, 1, 2);
    let mut peer = rig.guest(1, &GuestOptions::default());
    // Numbers of addresses that are wrong; a command that is too long to be one.
    for count in [1, 2, u32::MAX, 0x8000_0000, 715_827_883] {
        let command = [&[1, 0][..], &count.to_le_bytes(), &[2, 0, 0, 0, 0, 1]].concat();
        assert_eq!(control.send(&guest, &command), 1, "{count}");
    }
    let mut long = vec![0; 40 << 10];
    (long[0], long[2]) = (1, 1);
    assert_eq!(control.send(&guest, &long), 1);
    assert_eq!(control.send_in(&guest, &long, 1000), 1);
    // Chains without a place for the acknowledgement, with one before the command, and outside
    // memory.
    let geometry = control.geometry;
    let write = |guest: &Guest, at: u16, desc: Descriptor| {
        assert!(guest.write_descriptor_at(geometry.desc + 16 * u64::from(at), desc));
    };
    let mut published = 7;
    let mut publish = |guest: &Guest| {
        let place = geometry.avail + 4 + 2 * u64::from(published % SIZE);
        assert!(guest.write_memory(place, &0_u16.to_le_bytes()));
        published += 1;
        let memory = Arc::clone(guest.memory());
        memory.area(geometry.avail, 4, 2).expect("the ring").release_u16(2, published);
        rustix::io::write(&control.kick, &1_u64.to_ne_bytes()).expect("kick");
        let used = memory.area(geometry.used, 4, 2).expect("the ring");
        wait_until("it is used", || used.acquire_u16(2) == published);
    };
    let command = Descriptor { addr: control.command, len: 3, flags: 0, next: 1 };
    write(&guest, 0, command);
    publish(&guest);
    write(&guest, 0, Descriptor { flags: WRITE, ..command });
    publish(&guest);
    write(&guest, 0, Descriptor { flags: WRITE | NEXT, ..command });
    write(&guest, 1, command);
    publish(&guest);
    write(&guest, 0, Descriptor { addr: 1 << 60, ..command });
    publish(&guest);
    assert_eq!(rig.port(0).rx_mode, Some(RxMode { promiscuous: true, ..RxMode::default() }));
    send(&mut peer, &frame(mac(1), mac(2), 100, 5));
    take(&mut guest, 1);
    // A chain that loops stops the port, and the next guest is served.
    write(&guest, 0, Descriptor { flags: NEXT, next: 0, ..command });
    let place = geometry.avail + 4 + 2 * u64::from(published % SIZE);
    assert!(guest.write_memory(place, &0_u16.to_le_bytes()));
    guest.memory().area(geometry.avail, 4, 2).expect("the ring").release_u16(2, published + 1);
    rustix::io::write(&control.kick, &1_u64.to_ne_bytes()).expect("kick");
    rig.wait_down(0, "control ring: the chain from descriptor 0 is longer");
    nothing(&rig.switch, &mut guest);
    drop(guest);
    let mut newcomer = rig.guest(0, &GuestOptions::default());
    send(&mut peer, &frame(mac(1), mac(2), 100, 6));
    assert!(take(&mut newcomer, 1)[0].1 == frame(mac(1), mac(2), 100, 6));
    assert!(newcomer.send(&NetHeader::default(), &frame(mac(2), mac(1), 100, 7)));
}
