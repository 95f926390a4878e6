//! Every byte of a command is read once. (CVE-2026-86562 was a command whose length was checked and then read again.)

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use straightline_lab::{GuestOptions, Place, memory_file};
use straightline_virtio::features as f;
use straightline_virtio::ring::{Geometry, Options, SplitDriver};
use straightline_virtio::vhost_user::RingAddresses;

use crate::common::wait_until;
use crate::once_packets::double;
use crate::scene::Scene;

const CONTROL: u64 =
    f::VIRTIO_NET_F_CTRL_VQ | f::VIRTIO_NET_F_CTRL_RX | f::VIRTIO_NET_F_CTRL_VLAN | f::VIRTIO_NET_F_CTRL_MAC_ADDR;

/// Bytes behind the guest's own memory, for the control ring, a command and its answer.
const ROOM: u64 = 64 << 10;

/// The control ring stands behind the first queue pair.
const RING: u16 = 2;

#[test]
fn cve_2026_86562_a_command_is_read_once() {
    let mut scene = Scene::new();
    let features = GuestOptions::default().features | CONTROL;
    let options = GuestOptions { features, ..GuestOptions::default() };
    let own = options.memory_len();
    let file = Arc::new(memory_file(own + ROOM).expect("memory"));
    let mut guest = scene.rig.guest(0, &GuestOptions { place: Some(Place { file, offset: 0 }), ..options });
    let at = guest.memory().regions()[0].guest_addr() + own;
    let geometry = Geometry { size: 64, desc: at, avail: at + 4096, used: at + 8192 };
    let options = Options { event_idx: true, ..Options::default() };
    let mut driver = SplitDriver::new(guest.memory(), geometry, options).expect("a ring");
    let kick = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let client = guest.client();
    client.set_vring_num(RING, 64).expect("a size");
    client.set_vring_base(RING, 0).expect("a base");
    let Geometry { desc, avail, used, .. } = geometry;
    client.set_vring_addr(RING, RingAddresses { desc, avail, used }).expect("addresses");
    client.set_vring_kick(RING, Some(kick.as_fd())).expect("a kick");
    client.set_vring_enable(RING, true).expect("enabled");

    let (command, answer) = (at + (16 << 10), at + (48 << 10));
    // Promiscuous mode, a MAC address, a table of addresses with its two counts, a VLAN.
    let table = [&[1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 3, 1, 0, 0, 0][..], &[0x33, 0x33, 0, 0, 0, 1]].concat();
    for bytes in [&[0, 0, 0][..], &[1, 1, 2, 0, 0, 0, 0, 9], &table, &[2, 0, 42, 0]] {
        for cut in [1, 2, 5, bytes.len()] {
            guest.write_memory(command, bytes);
            guest.write_memory(answer, &[0xee]);
            let double = double(&guest, command, u32::try_from(bytes.len()).expect("short"));
            let mut parts: Vec<_> = (0..bytes.len())
                .step_by(cut)
                .map(|from| (command + from as u64, u32::try_from(cut.min(bytes.len() - from)).expect("short"), false))
                .collect();
            parts.push((answer, 1, true));
            driver.add(&parts).expect("room");
            driver.publish();
            rustix::io::write(&kick, &1_u64.to_ne_bytes()).expect("a kick");
            wait_until("the command is used", || driver.used().is_some());
            assert_eq!(
                guest.read_memory(answer, 1),
                Some(vec![0]),
                "{bytes:?} in pieces of {cut}: executed as first read"
            );
            assert!(double.loads().iter().all(|&loads| loads == 1), "{bytes:?}: {:?}", double.loads());
        }
    }
    let shown = || scene.rig.port(0).rx_mode.unwrap_or_default();
    wait_until("what was asked for is shown", || {
        shown().mac.as_deref() == Some("02:00:00:00:00:09") && shown().vlans == [42]
    });
    assert_eq!(shown().unicast, ["02:00:00:00:00:03"]);
    drop(guest);
    scene.recovers("commands");
    scene.end();
}
