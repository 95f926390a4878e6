//! Both halves of this crate against each other, over a pair of sockets.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

use straightline_testing::PATIENCE;
use straightline_virtio::features::{
    VHOST_USER_F_PROTOCOL_FEATURES, VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS, VHOST_USER_PROTOCOL_F_DEVICE_STATE,
    VHOST_USER_PROTOCOL_F_REPLY_ACK, VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1, VIRTIO_NET_F_CSUM,
};
use straightline_virtio::vhost_user::{
    ClientError, Connection, FrontendClient, FrontendError, InflightSpec, Message, RegionRef, RegionSpec, Request,
    RingAddresses, SUPPORTED_PROTOCOL_FEATURES,
};

use super::backend::{self, FEATURES, Seen};

fn connect() -> (FrontendClient, JoinHandle<Seen>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let client = FrontendClient::from_stream(ours);
    client.set_timeout(Some(PATIENCE)).unwrap();
    (client, backend::spawn(theirs))
}

fn memory(size: u64) -> File {
    let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, size).unwrap();
    File::from(fd)
}

fn region(n: u64) -> RegionSpec {
    RegionSpec { guest_addr: n << 20, size: 1 << 20, user_addr: 0x7f00_0000_0000 + (n << 20), mmap_offset: n << 20 }
}

fn set_up_ring(client: &mut FrontendClient, index: u16) -> Result<(), ClientError> {
    let base = region(0).user_addr + 0x1_0000 * u64::from(index);
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    client.set_vring_num(index, 256)?;
    client.set_vring_base(index, 5)?;
    client.set_vring_addr(index, RingAddresses { desc: base, avail: base + 0x1000, used: base + 0x2000 })?;
    client.set_vring_call(index, Some(event.as_fd()))?;
    client.set_vring_err(index, None)?;
    client.set_vring_kick(index, Some(event.as_fd()))?;
    client.set_vring_enable(index, true)
}

// Cites vhost-user-ring-states-7, vhost-user-get-inflight-fd-1, vhost-user-set-inflight-fd-1.
// Cites vhost-user-reset-device-1, vhost-user-status-1.
#[test]
fn a_whole_life() {
    let (mut client, backend) = connect();
    let agreed = client.handshake(!VIRTIO_F_RING_PACKED, u64::MAX).unwrap();
    assert_eq!(agreed.features, (FEATURES | VHOST_USER_F_PROTOCOL_FEATURES) & !VIRTIO_F_RING_PACKED);
    assert_eq!(agreed.protocol_features, SUPPORTED_PROTOCOL_FEATURES);
    assert_eq!(client.get_queue_num().unwrap(), 4, "rings, as CONFIG is acknowledged");
    assert_eq!(client.get_max_mem_slots().unwrap(), 32);
    assert_eq!(client.get_config(0, 12).unwrap(), [2, 0, 0, 0, 0, 1, 1, 0, 2, 0, 0xdc, 5]);
    client.set_features(agreed.features).unwrap();
    client.set_status(11).unwrap();
    let (table, table_file) = client.get_inflight_fd(4, 256).unwrap().expect("a table");
    assert_eq!((table.queues, table.queue_size, table.mmap_offset), (4, 256, 0));
    client.set_inflight_fd(table, table_file.as_fd()).unwrap();
    let larger = InflightSpec { queue_size: 512, ..table };
    assert!(matches!(client.set_inflight_fd(larger, table_file.as_fd()), Err(ClientError::Protocol(_))));

    let file = memory(4 << 20);
    let at = |n| RegionRef { spec: region(n), fd: file.as_fd() };
    client.set_mem_table(&[at(0), at(1)]).unwrap();
    client.add_mem_region(&at(2)).unwrap();
    client.remove_mem_region(&region(1)).unwrap();
    set_up_ring(&mut client, 0).unwrap();
    set_up_ring(&mut client, 1).unwrap();
    client.set_status(15).unwrap();
    assert_eq!(client.get_status().unwrap(), 15);
    client.set_mtu(9000).unwrap();
    client.send_rarp([2, 0, 0, 0, 0, 1]).unwrap();
    assert_eq!(client.get_vring_base(0).unwrap(), 100);
    assert_eq!(client.get_vring_base(1).unwrap(), 101);
    client.reset_device().unwrap();
    drop(client);

    let Seen { session, effects, end } = backend.join().unwrap();
    end.unwrap();
    let ring = |i| {
        let mut lines = vec![format!("ring {i}"); 5];
        lines.extend(vec![format!("ring {i} ready"); 2]);
        lines.join("; ")
    };
    let expected = [
        &format!("Features({})", agreed.features),
        "Status(11); make inflight 4 256; keep inflight 4 256; keep inflight 4 512; memory 2; add 0x200000; remove 0x100000",
        &ring(0),
        &ring(1),
        "Status(15); Mtu(9000); Rarp([2, 0, 0, 0, 0, 1]); stop 0; stop 1; Reset",
    ];
    assert_eq!(effects.join("; "), expected.join("; "));
    assert_eq!(session.acked_protocol_features(), SUPPORTED_PROTOCOL_FEATURES);
}

#[test]
fn failures_of_the_backend_are_errors_here_and_the_session_goes_on() {
    let (mut client, backend) = connect();
    let agreed = client.handshake(VIRTIO_F_VERSION_1, VHOST_USER_PROTOCOL_F_REPLY_ACK).unwrap();
    client.set_features(agreed.features).unwrap();
    let file = memory(1 << 20);
    let at = |n| RegionRef { spec: region(n), fd: file.as_fd() };
    let failed = |result: Result<(), ClientError>| {
        assert!(matches!(result, Err(ClientError::Protocol(FrontendError::Failed { .. }))), "{result:?}");
    };
    client.set_mem_table(&[at(0)]).unwrap();
    // The session refuses an overlap. The test's mapping refuses a region beyond the end of its
    // file.
    failed(client.set_mem_table(&[at(0), at(0)]));
    failed(client.set_mem_table(&[at(1)]));
    failed(client.set_vring_num(0, 100));
    failed(client.set_vring_num(4, 256));
    set_up_ring(&mut client, 0).unwrap();
    failed(client.set_vring_num(0, 512));
    // Requests that the frontend half refuses to send.
    let not_sent = |result: Result<(), ClientError>| {
        assert!(matches!(result, Err(ClientError::Protocol(_))), "{result:?}");
    };
    not_sent(client.set_features(1 << 50));
    not_sent(client.set_mtu(1500));
    not_sent(client.get_config(0, 6).map(drop));
    drop(client);
    let Seen { session, end, .. } = backend.join().unwrap();
    end.unwrap();
    assert!(session.ready(0), "nothing of this touched the ring");
    assert_eq!(session.regions(), [region(0)]);
}

// Cites vhost-user-communication-4.
#[test]
fn without_acknowledgements_a_failure_ends_the_connection_with_its_reason() {
    let (mut client, backend) = connect();
    client.handshake(VIRTIO_F_VERSION_1 | VIRTIO_NET_F_CSUM, 0).unwrap();
    client.set_vring_num(0, 100).unwrap();
    assert!(client.get_features().is_err());
    let reason = backend.join().unwrap().end.unwrap_err().to_string();
    assert_eq!(reason, "ring 0 has a size of 100; expected a power of two, 1 to 32768");
}

// Cites vhost-user-header-2, vhost-user-communication-4.
#[test]
fn nonsense_ends_only_its_own_connection() {
    for message in [
        Message { request: 5, flags: 1, payload: vec![0xff; 4096] },
        Message { request: u32::MAX, flags: u32::MAX, payload: Vec::new() },
        Message { request: 8, flags: 1, payload: vec![0; 7] },
        Message::reply(Request::GetFeatures.code(), vec![0; 8]),
    ] {
        let (client, backend) = connect();
        client.send_raw(&message, &[]).unwrap();
        assert!(client.recv_raw().unwrap().is_none());
        assert!(backend.join().unwrap().end.is_err());
    }
}

#[test]
fn a_client_connects_by_path_and_may_also_listen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let mut client = FrontendClient::connect(&path).unwrap();
    let backend = backend::spawn(listener.accept().unwrap().0);
    assert_eq!(client.get_features().unwrap(), FEATURES | VHOST_USER_F_PROTOCOL_FEATURES);
    drop(client);
    backend.join().unwrap().end.unwrap();
    assert!(FrontendClient::connect(folder.path().join("nobody")).is_err());

    // The backend connects, the frontend listens.
    let backend = backend::spawn(UnixStream::connect(&path).unwrap());
    let mut client = FrontendClient::from_stream(listener.accept().unwrap().0);
    client.handshake(0, 0).unwrap();
    drop(client);
    backend.join().unwrap().end.unwrap();
}

/// Answers as a backend that has channels of its own for its device's state. Returns the state that
/// was loaded, and the number of descriptors with each REM_MEM_REG.
fn serve_with_own_channels(connection: &Connection) -> (Vec<u8>, Vec<usize>) {
    let mut loaded = None;
    let mut state = Vec::new();
    let mut removals = Vec::new();
    while let Some((message, fds)) = connection.recv().unwrap() {
        let mut beside = None;
        let number = match Request::from_code(message.request) {
            Some(Request::GetFeatures) => VHOST_USER_F_PROTOCOL_FEATURES,
            Some(Request::GetProtocolFeatures) => {
                VHOST_USER_PROTOCOL_F_DEVICE_STATE | VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS
            }
            Some(Request::SetDeviceStateFd) => {
                let (reader, mut writer) = std::io::pipe().unwrap();
                // The first number is the direction.
                if message.payload[..4] == 0_u32.to_ne_bytes() {
                    writer.write_all(b"saved").unwrap();
                    beside = Some(OwnedFd::from(reader));
                } else {
                    loaded = Some(reader);
                    beside = Some(OwnedFd::from(writer));
                }
                0
            }
            Some(Request::CheckDeviceState) => {
                if let Some(mut loaded) = loaded.take() {
                    loaded.read_to_end(&mut state).unwrap();
                }
                0
            }
            Some(Request::RemMemReg) => {
                removals.push(fds.len());
                continue;
            }
            _ => continue,
        };
        let reply = Message::reply(message.request, number.to_ne_bytes().to_vec()).to_bytes();
        let beside = beside.as_ref().map(AsFd::as_fd);
        connection.send(&reply, beside.as_slice()).unwrap();
    }
    (state, removals)
}

// Cites vhost-user-device-state-fd-3, vhost-user-migrating-1, vhost-user-rem-mem-reg-3.
#[test]
fn a_channel_of_the_backend_is_used_and_a_removal_has_no_descriptor() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let backend = std::thread::spawn(move || serve_with_own_channels(&Connection::new(theirs)));
    let mut client = FrontendClient::from_stream(ours);
    client.set_timeout(Some(PATIENCE)).unwrap();
    client.handshake(u64::MAX, u64::MAX).unwrap();
    assert_eq!(client.save_state().unwrap(), b"saved");
    client.load_state(b"loaded").unwrap();
    client.remove_mem_region(&region(0)).unwrap();
    drop(client);
    assert_eq!(backend.join().unwrap(), (b"loaded".to_vec(), vec![0]));
}
