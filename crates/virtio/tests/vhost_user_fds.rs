//! A frontend cannot make the backend hold file descriptors by repeating messages (CVE-2019-14818,
//! CVE-2020-10726). One test, so that nothing else in this process opens any.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit};

use straightline_virtio::features::{VIRTIO_F_ACCESS_PLATFORM, VIRTIO_F_VERSION_1, VIRTIO_NET_F_MTU};
use straightline_virtio::vhost_user::message::{ConfigAccess, RegionSpec, VringAddr, VringState};
use straightline_virtio::vhost_user::{
    Connection, MAX_FDS, Message, NetConfig, Offer, Request, RequestOutcome, SUPPORTED_PROTOCOL_FEATURES, Session,
};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn session() -> Session {
    let mut session = Session::new(Offer {
        features: VIRTIO_F_VERSION_1 | VIRTIO_NET_F_MTU | VIRTIO_F_ACCESS_PLATFORM,
        protocol_features: SUPPORTED_PROTOCOL_FEATURES,
        queue_pairs: 1,
        max_mem_slots: 8,
        config: NetConfig::default(),
    });
    let payload = SUPPORTED_PROTOCOL_FEATURES.to_ne_bytes().to_vec();
    session.handle(Message::request(Request::SetProtocolFeatures, payload), Vec::new()).unwrap();
    session
}

/// Returns a payload that the request accepts, for the number of descriptors that come with it.
fn payload(request: Request, fds: usize) -> Vec<u8> {
    let region = |n: u64| RegionSpec { guest_addr: n << 20, size: 1 << 20, user_addr: n << 20, mmap_offset: 0 };
    match request {
        Request::SetMemTable => RegionSpec::encode_table(&(0..fds as u64).map(region).collect::<Vec<_>>()),
        Request::AddMemReg | Request::RemMemReg => region(0).encode_single(),
        Request::SetVringAddr => VringAddr { index: 0, flags: 0, desc: 0, used: 4096, avail: 8192, log: 0 }.encode(),
        Request::GetConfig | Request::SetConfig => {
            ConfigAccess { offset: 0, size: 6, flags: 0, bytes: vec![0; 6] }.encode()
        }
        Request::SetVringNum | Request::SetVringBase | Request::GetVringBase | Request::SetVringEnable => {
            VringState { index: 0, num: 1 }.encode()
        }
        Request::SetFeatures => VIRTIO_F_VERSION_1.to_ne_bytes().to_vec(),
        Request::SetProtocolFeatures => SUPPORTED_PROTOCOL_FEATURES.to_ne_bytes().to_vec(),
        Request::NetSetMtu => 1500_u64.to_ne_bytes().to_vec(),
        Request::SetVringKick
        | Request::SetVringCall
        | Request::SetVringErr
        | Request::SendRarp
        | Request::SetStatus => 0_u64.to_ne_bytes().to_vec(),
        _ => Vec::new(),
    }
}

// Cites vhost-user-rem-mem-reg-4.
#[test]
fn descriptors_stay_flat_over_every_message_with_every_number_of_them() {
    let (file, _other): (OwnedFd, OwnedFd) = rustix::pipe::pipe().unwrap();

    // Directly into the session, with the descriptors that a socket could deliver, and with more.
    let before = open_descriptors();
    for request in Request::ALL {
        for count in 0..=9 {
            let mut session = session();
            for _ in 0..1000 {
                let fds: Vec<_> = (0..count).map(|_| file.try_clone().unwrap()).collect();
                let message = Message::request(*request, payload(*request, count)).with_need_reply();
                match session.handle(message, fds) {
                    Ok(_) => drop(session.reply(RequestOutcome::Done)),
                    Err(error) => drop(session.refuse(&error)),
                }
                // A set-up may hold a kick, a call and an error descriptor of one ring.
                assert!(session.rings() == 2);
            }
            let held = open_descriptors() - before;
            assert!(held <= 3, "{request} with {count}: {held} held");
            drop(session);
            assert_eq!(open_descriptors(), before, "{request} with {count}");
        }
    }

    // Through a socket: accepted, refused for their number, and lost with a connection that is
    // dropped unread.
    for round in 0..1000 {
        let (a, b) = UnixStream::pair().unwrap();
        let sender = Connection::new(a);
        let receiver = Connection::new(b);
        let count = round % (MAX_FDS + 1);
        let message = Message::request(Request::SetVringKick, 0_u64.to_ne_bytes().to_vec());
        let fds = vec![file.as_fd(); count];
        sender.send(&message.to_bytes(), &fds).unwrap();
        let mut session = session();
        let (message, received) = receiver.recv().unwrap().unwrap();
        assert_eq!(received.len(), count);
        assert_eq!(session.handle(message, received).is_ok(), count == 1);
        // Nine descriptors in two parts, then an incomplete message, then one that is never read.
        let bytes = Message::request(Request::SetOwner, Vec::new()).to_bytes();
        match round % 3 {
            0 => {
                sender.send(&bytes[..6], &[file.as_fd(); 5]).unwrap();
                sender.send(&bytes[6..], &[file.as_fd(); 4]).unwrap();
                assert!(receiver.recv().is_err());
            }
            1 => {
                sender.send(&bytes[..6], &[file.as_fd(); 5]).unwrap();
                drop(sender);
                assert!(receiver.recv().is_err());
            }
            _ => sender.send(&bytes, &[file.as_fd(); 5]).unwrap(),
        }
    }
    assert_eq!(open_descriptors(), before);

    // The process cannot receive all of them: the message is incomplete, and the descriptors that
    // did arrive are closed.
    let (a, b) = UnixStream::pair().unwrap();
    let sender = Connection::new(a);
    let receiver = Connection::new(b);
    let message = Message::request(Request::SetOwner, Vec::new());
    sender.send(&message.to_bytes(), &[file.as_fd(); 5]).unwrap();
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let highest = sender.as_fd().as_raw_fd().max(receiver.as_fd().as_raw_fd());
    let limit_for_two = u64::try_from(highest).unwrap() + 3;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(limit_for_two), ..limit }).unwrap();
    let received = receiver.recv();
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(received.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    drop((sender, receiver));
    assert_eq!(open_descriptors(), before);
}
