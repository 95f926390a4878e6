//! Every byte of a control command is read once. (In CVE-2026-86562, a command's length was checked
//! and then read again.)

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use hostile::scene::Scene;
use rustix::event::{EventfdFlags, eventfd};
use straightline_guest::{Guest, GuestOptions, MemoryPlacement, memory_file};
use straightline_testing::wait_until;
use straightline_virtio::features as f;
use straightline_virtio::ring::{Geometry, RingOptions, SplitDriver};
use straightline_virtio::vhost_user::RingAddresses;

use crate::once_packets::double;

const CONTROL: u64 =
    f::VIRTIO_NET_F_CTRL_VQ | f::VIRTIO_NET_F_CTRL_RX | f::VIRTIO_NET_F_CTRL_VLAN | f::VIRTIO_NET_F_CTRL_MAC_ADDR;

/// Bytes behind the guest's own memory for the control ring, a command and its answer.
const EXTRA: u64 = 64 << 10;

/// A guest's control ring.
pub(crate) struct Commander {
    driver: SplitDriver,
    kick: OwnedFd,
    geometry: Geometry,
    index: u16,
    pub(crate) command: u64,
}

impl Commander {
    /// Connects a guest at the attacker's port with `queue_pairs` queue pairs, and starts its
    /// control ring. The ring's index is behind the indices of all offered pairs.
    pub(crate) fn new(scene: &Scene, queue_pairs: u16) -> (Guest, Commander) {
        let features = GuestOptions::default().features | CONTROL;
        let options = GuestOptions { features, queue_pairs, ..GuestOptions::default() };
        let own = options.memory_len();
        let file = Arc::new(memory_file(own + EXTRA).expect("memory"));
        let mut guest =
            scene.rig.guest(0, &GuestOptions { place: Some(MemoryPlacement { file, offset: 0 }), ..options });
        let at = guest.memory().regions()[0].guest_addr() + own;
        let geometry = Geometry { size: 64, desc: at, avail: at + 4096, used: at + 8192 };
        let driver = driver(&guest, geometry);
        let kick = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let mut commander = Commander { driver, kick, geometry, index: 2 * queue_pairs, command: at + (16 << 10) };
        commander.start(&mut guest);
        (guest, commander)
    }

    /// Starts the ring from its beginning.
    pub(crate) fn start(&mut self, guest: &mut Guest) {
        let Geometry { size, desc, avail, used } = self.geometry;
        guest.write_memory(desc, &[0; 16 << 10]);
        self.driver = driver(guest, self.geometry);
        let client = guest.client();
        client.set_vring_num(self.index, size).expect("a size");
        client.set_vring_base(self.index, 0).expect("a base");
        client.set_vring_addr(self.index, RingAddresses { desc, avail, used }).expect("addresses");
        client.set_vring_kick(self.index, Some(self.kick.as_fd())).expect("a kick");
        client.set_vring_enable(self.index, true).expect("enabled");
    }

    /// Sends the first `len` bytes of the command in memory, in parts of `part` bytes, and returns
    /// the answer.
    pub(crate) fn send_split(&mut self, guest: &Guest, len: usize, part: usize) -> u8 {
        let answer = self.command + (32 << 10);
        guest.write_memory(answer, &[0xee]);
        let mut parts: Vec<_> = (0..len)
            .step_by(part)
            .map(|from| (self.command + from as u64, u32::try_from(part.min(len - from)).expect("short"), false))
            .collect();
        parts.push((answer, 1, true));
        self.driver.add(&parts).expect("free descriptors");
        self.driver.publish();
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).expect("a kick");
        wait_until("the command is used", || self.driver.used().is_some());
        guest.read_memory(answer, 1).expect("its own")[0]
    }

    /// Sends a command, and returns the answer.
    pub(crate) fn send(&mut self, guest: &Guest, command: &[u8]) -> u8 {
        guest.write_memory(self.command, command);
        self.send_split(guest, command.len(), command.len())
    }
}

fn driver(guest: &Guest, geometry: Geometry) -> SplitDriver {
    let options = RingOptions { event_idx: true, ..RingOptions::default() };
    SplitDriver::new(guest.memory(), geometry, options).expect("a ring")
}

#[test]
fn cve_2026_86562_a_command_is_read_once() {
    let mut scene = Scene::new();
    let (guest, mut commander) = Commander::new(&scene, 1);
    // Promiscuous mode, a MAC address, a table of addresses with its two counts, a VLAN.
    let table = [&[1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 3, 1, 0, 0, 0][..], &[0x33, 0x33, 0, 0, 0, 1]].concat();
    for bytes in [&[0, 0, 0][..], &[1, 1, 2, 0, 0, 0, 0, 9], &table, &[2, 0, 42, 0]] {
        for part in [1, 2, 5, bytes.len()] {
            guest.write_memory(commander.command, bytes);
            let double = double(&guest, commander.command, u32::try_from(bytes.len()).expect("short"));
            let answer = commander.send_split(&guest, bytes.len(), part);
            assert_eq!(answer, 0, "{bytes:?} in parts of {part}: it must be executed as first read");
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
