//! A third-party frontend with our backend: rust-vmm's `vhost` crate, which Cloud Hypervisor uses.
//! It runs with the features that Cloud Hypervisor acknowledges, and with all that we offer.
//! `tests/switch/frontends` of the crate `switch` plays complete handshakes of this frontend and of others.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use straightline_virtio::features::{VHOST_USER_F_PROTOCOL_FEATURES, VIRTIO_F_RING_PACKED, VIRTIO_NET_F_CSUM};
use straightline_virtio::vhost_user::SUPPORTED_PROTOCOL_FEATURES;

use super::backend::{self, FEATURES, Seen};

const USER: u64 = 0x7000_0000;

fn region(file: &File, n: u64) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: n << 20,
        memory_size: 1 << 20,
        userspace_addr: USER + (n << 20),
        mmap_offset: n << 20,
        mmap_handle: file.as_raw_fd(),
    }
}

fn ring_config(index: u64) -> VringConfigData {
    let base = USER + index * 0x1_0000;
    VringConfigData {
        queue_max_size: 1024,
        queue_size: 256,
        flags: 0,
        desc_table_addr: base,
        avail_ring_addr: base + 0x1000,
        used_ring_addr: base + 0x2000,
        log_addr: None,
    }
}

/// The protocol features that Cloud Hypervisor acknowledges: v40.0, v53.0, and main at
/// ae44c2971c83.
const CLOUD_HYPERVISOR: [u64; 3] = [0x0_900b, 0x8_900b, 0x8_920b];

/// Runs a complete session with these protocol features, with every request acknowledged or none.
fn live(wanted: u64, need_reply: bool) -> Seen {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let backend = backend::spawn(theirs);
    let mut frontend = Frontend::from_stream(ours, 2);

    frontend.set_owner().unwrap();
    let features = frontend.get_features().unwrap();
    assert_eq!(features, FEATURES | VHOST_USER_F_PROTOCOL_FEATURES);
    let protocol = frontend.get_protocol_features().unwrap();
    assert_eq!(protocol.bits(), SUPPORTED_PROTOCOL_FEATURES);
    let protocol = VhostUserProtocolFeatures::from_bits_truncate(wanted);
    frontend.set_protocol_features(protocol).unwrap();
    if need_reply {
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    // This frontend checks a ring's index against this number, which therefore has to count rings.
    assert_eq!(frontend.get_queue_num().unwrap(), 4);
    frontend.set_features(features & !VIRTIO_F_RING_PACKED).unwrap();

    let asked = VhostUserInflight { num_queues: 4, queue_size: 256, ..VhostUserInflight::default() };
    let (table, table_file) = frontend.get_inflight_fd(&asked).unwrap();
    assert!(table.mmap_size >= 4 * (16 + 256 * 16));
    frontend.set_inflight_fd(&table, table_file.as_raw_fd()).unwrap();

    if protocol.contains(VhostUserProtocolFeatures::CONFIG) {
        let (_, config) = frontend.get_config(0, 12, VhostUserConfigFlags::empty(), &[0; 12]).unwrap();
        assert_eq!(config, [2, 0, 0, 0, 0, 1, 1, 0, 2, 0, 0xdc, 5]);
    }

    let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, 4 << 20).unwrap();
    let file = File::from(fd);
    frontend.set_mem_table(&[region(&file, 0), region(&file, 1)]).unwrap();
    assert_eq!(frontend.get_max_mem_slots().unwrap(), 32);
    frontend.add_mem_region(&region(&file, 3)).unwrap();
    frontend.remove_mem_region(&region(&file, 1)).unwrap();

    let kick = EventFd::new(0).unwrap();
    let call = EventFd::new(0).unwrap();
    let err = EventFd::new(0).unwrap();
    for index in 0..4_u16 {
        let i = usize::from(index);
        frontend.set_vring_num(i, 256).unwrap();
        frontend.set_vring_addr(i, &ring_config(u64::from(index))).unwrap();
        frontend.set_vring_base(i, 3).unwrap();
        frontend.set_vring_call(i, &call).unwrap();
        frontend.set_vring_err(i, &err).unwrap();
        frontend.set_vring_kick(i, &kick).unwrap();
        frontend.set_vring_enable(i, true).unwrap();
    }
    assert_eq!(frontend.get_vring_base(3).unwrap(), 103);
    assert_eq!(frontend.get_vring_base(2).unwrap(), 102);
    if need_reply {
        if protocol.contains(VhostUserProtocolFeatures::CONFIG) {
            let write = frontend.set_config(0, VhostUserConfigFlags::WRITABLE, &[1; 6]);
            assert!(write.is_err(), "the configuration is read-only");
        }
        assert!(frontend.set_vring_num(0, 512).is_err(), "ring 0 runs");
        assert!(frontend.add_mem_region(&region(&file, 3)).is_ok(), "once for every queue pair");
        assert!(frontend.add_mem_region(&region(&file, 3)).is_err(), "it is there already");
        assert!(frontend.set_vring_num(2, 512).is_ok(), "and the session continues");
    }
    drop(frontend);
    backend.join().unwrap()
}

#[test]
fn a_stranger_s_frontend_sets_a_device_up() {
    let sets = CLOUD_HYPERVISOR.into_iter().chain([SUPPORTED_PROTOCOL_FEATURES]);
    for (wanted, need_reply) in sets.flat_map(|wanted| [(wanted, false), (wanted, true)]) {
        let Seen { session, effects, end } = live(wanted, need_reply);
        end.unwrap();
        assert_eq!(session.refusal(), None);
        assert_ne!(session.acked_features() & VIRTIO_NET_F_CSUM, 0);
        assert_eq!(session.acked_protocol_features(), wanted);
        assert_eq!(session.regions().len(), 2);
        let ready: Vec<_> = (0..4).map(|index| session.ready(index)).collect();
        assert_eq!(ready, [true, true, false, false]);
        let ring = session.ring(1).unwrap();
        assert_eq!((ring.size, ring.base, ring.enabled), (256, 3, true));
        assert_eq!((ring.desc, ring.avail, ring.used), (USER + 0x1_0000, USER + 0x1_1000, USER + 0x1_2000));
        assert!(ring.kick.is_some() && ring.call.is_some() && ring.err.is_some());
        assert_eq!(session.ring(3).unwrap().base, 103);
        for effect in [
            "make inflight 4 256",
            "keep inflight 4 256",
            "memory 2",
            "add 0x300000",
            "remove 0x100000",
            "ring 3 ready",
            "stop 3",
        ] {
            assert!(effects.iter().any(|seen| seen == effect), "{effect} in {effects:?}");
        }
    }
}

// Cites vhost-user-reset-device-1.
#[test]
fn a_stranger_that_resets_the_device_starts_over() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let backend = backend::spawn(theirs);
    let mut frontend = Frontend::from_stream(ours, 2);
    let features = frontend.get_features().unwrap();
    let wanted = VhostUserProtocolFeatures::RESET_DEVICE | VhostUserProtocolFeatures::REPLY_ACK;
    assert!(frontend.get_protocol_features().unwrap().contains(wanted));
    frontend.set_protocol_features(wanted).unwrap();
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    frontend.set_features(features).unwrap();
    frontend.set_vring_num(0, 100).unwrap();
    frontend.reset_device().unwrap();
    assert!(frontend.set_features(features | 1 << 50).is_err());
    drop(frontend);
    let Seen { session, end, .. } = backend.join().unwrap();
    end.unwrap();
    assert_eq!(session.ring(0).unwrap().size, 0);
    assert_eq!(session.acked_features(), 0);
}
