//! A frontend that makes the switch keep as many descriptors as possible.

use std::os::fd::AsFd;

use hostile::attacker::Layout;
use hostile::scene::Scene;
use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};
use straightline_guest::memory_file;
use straightline_testing::BASIC;
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{FrontendClient, RegionRef, RegionSpec};

use crate::alone;
use crate::footprint::Footprint;

/// Queue pairs of the attacked port. Each has two rings; the port also has a control ring.
const PAIRS: u16 = 2;
const RINGS: u16 = 2 * PAIRS + 1;

/// Descriptors that the switch keeps for a ring: kick, call, error.
const PER_RING: usize = 3;

/// Descriptors that the switch keeps for a connection: the connection twice, the channel for its
/// own requests, the file of the in-flight table.
const BESIDES: usize = 4;

/// Maximum number of descriptors during a transfer of device state: the channel, and a pipe of the
/// switch's own.
const TRANSFER: usize = 3;

#[test]
fn descriptors_of_a_frontend_are_bounded_by_its_rings() {
    let _alone = alone();
    let mut scene = Scene::with_queues(Layout::Split, PAIRS);
    scene.recovers("a first one");
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let file = memory_file(1 << 20).expect("memory");
    let (_ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let (reader, _writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    scene.rig.wait_down(0, "waiting for a frontend");
    let before = Footprint::now();
    let mut client = FrontendClient::connect(scene.rig.socket(0)).expect("connect");
    let protocol = f::VHOST_USER_PROTOCOL_F_MQ
        | f::VHOST_USER_PROTOCOL_F_REPLY_ACK
        | f::VHOST_USER_PROTOCOL_F_BACKEND_REQ
        | f::VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD
        | f::VHOST_USER_PROTOCOL_F_LOG_SHMFD
        | f::VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS
        | f::VHOST_USER_PROTOCOL_F_DEVICE_STATE;
    let features = BASIC | f::VHOST_USER_F_PROTOCOL_FEATURES | f::VIRTIO_NET_F_MQ | f::VIRTIO_NET_F_CTRL_VQ;
    client.handshake(features | f::VHOST_F_LOG_ALL, protocol).expect("a session");
    // This transfer never ends. The switch keeps its descriptors for a few seconds at most.
    client.set_device_state_fd(true, reader.as_fd()).expect("a transfer");
    let region = |n: u64| {
        let at = 0x1000 + (n << 16);
        RegionSpec { guest_addr: at, user_addr: at, size: 1 << 16, mmap_offset: 0 }
    };
    for _ in 0..20 {
        let regions = [0, 1].map(|n| RegionRef { spec: region(n), fd: file.as_fd() });
        client.set_mem_table(&regions).expect("a table");
        client.add_mem_region(&RegionRef { spec: region(2), fd: file.as_fd() }).expect("a region");
        client.set_log_base(4096, 0, file.as_fd()).expect("a log");
        let _ = client.get_inflight_fd(RINGS, 256).expect("a table");
        client.set_backend_channel(theirs.as_fd()).expect("a channel");
        for ring in 0..RINGS {
            client.set_vring_kick(ring, Some(event.as_fd())).expect("a kick");
            client.set_vring_call(ring, Some(event.as_fd())).expect("a call");
            client.set_vring_err(ring, Some(event.as_fd())).expect("an error descriptor");
        }
        // This process also has our end of the connection.
        let kept = Footprint::now().descriptors() - before.descriptors() - 1;
        let rings = PER_RING * usize::from(RINGS) + BESIDES;
        assert!(
            (rings..=rings + TRANSFER).contains(&kept),
            "the switch keeps {kept} descriptors, not {rings} to {}",
            rings + TRANSFER
        );
    }
    scene.victims.go_on();
    drop(client);
    before.is_as_before("a frontend that sent many");
    scene.recovers("a frontend that sent many");
    scene.end();
}
