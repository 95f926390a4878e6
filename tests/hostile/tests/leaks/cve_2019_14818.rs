//! CVE-2019-14818: a repeated message leaked the descriptors of the previous one.

use std::io::{ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use hostile::scene::Scene;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use straightline_guest::memory_file;
use straightline_testing::{BASIC, pause};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{Message, RegionSpec, Request};

use crate::alone;
use crate::footprint::Footprint;

/// Maximum number of descriptors with a message in this test: one more than any message uses.
const MAX_DESCRIPTORS: usize = 9;

const REGION: RegionSpec = RegionSpec { guest_addr: 0x1000, size: 1 << 16, user_addr: 0x1000, mmap_offset: 0 };

/// Returns a payload that is valid for the request at some point of a session.
fn payload(request: Request, fds: usize) -> Vec<u8> {
    let number = |value: u64| value.to_ne_bytes().to_vec();
    let protocol = f::VHOST_USER_PROTOCOL_F_REPLY_ACK
        | f::VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS
        | f::VHOST_USER_PROTOCOL_F_BACKEND_REQ
        | f::VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD
        | f::VHOST_USER_PROTOCOL_F_LOG_SHMFD
        | f::VHOST_USER_PROTOCOL_F_DEVICE_STATE;
    match request {
        Request::SetFeatures => number(BASIC | f::VHOST_USER_F_PROTOCOL_FEATURES),
        Request::SetProtocolFeatures => number(protocol & offered_protocol()),
        Request::SetMemTable => {
            let apart = |n: usize| {
                let at = REGION.guest_addr + REGION.size * n as u64;
                RegionSpec { guest_addr: at, user_addr: at, ..REGION }
            };
            RegionSpec::encode_table(&(0..fds.min(8)).map(apart).collect::<Vec<_>>())
        }
        Request::AddMemReg | Request::RemMemReg => REGION.encode_single(),
        Request::SetVringKick | Request::SetVringCall | Request::SetVringErr if fds == 0 => number(1 | 1 << 8),
        Request::SetVringKick | Request::SetVringCall | Request::SetVringErr => number(1),
        Request::SetVringNum => number(1 | 256 << 32),
        Request::SetVringBase | Request::GetVringBase => number(1),
        Request::SetVringEnable => number(1 | 1 << 32),
        Request::SetVringAddr => {
            let words = [1_u64, 0x1000, 0x4000, 0x3000, 0];
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        }
        Request::SetLogBase => [number(4096), number(0)].concat(),
        // Size, offset, queues, entries ("Inflight description").
        Request::GetInflightFd => [number(0), number(0), number(2 | 256 << 16)].concat(),
        Request::SetInflightFd => [number(1 << 16), number(0), number(2 | 256 << 16)].concat(),
        Request::SetStatus | Request::NetSetMtu => number(1500 % 256),
        Request::SendRarp => number(2),
        // Direction 1: load.
        Request::SetDeviceStateFd => number(1),
        _ => Vec::new(),
    }
}

fn offered_protocol() -> u64 {
    straightline_virtio::vhost_user::SUPPORTED_PROTOCOL_FEATURES
}

/// A connection that sends any number of descriptors, and ignores answers.
struct RawConnection(UnixStream);

impl RawConnection {
    /// Connects, and sets features, so that most messages are legal.
    fn connect(scene: &Scene) -> RawConnection {
        let stream = UnixStream::connect(scene.rig.socket(0)).expect("connect");
        stream.set_nonblocking(true).expect("not to block");
        let mut connection = RawConnection(stream);
        for request in [Request::SetFeatures, Request::SetProtocolFeatures] {
            assert!(connection.send(request, &[]));
        }
        connection
    }

    /// Sends a message. Returns `false` if the port has closed the connection.
    fn send(&mut self, request: Request, fds: &[BorrowedFd<'_>]) -> bool {
        let bytes = Message::request(request, payload(request, fds.len())).to_bytes();
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
            }
            let sent = sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
            match sent {
                Ok(n) => assert_eq!(n, bytes.len(), "messages are short"),
                Err(rustix::io::Errno::AGAIN) => {
                    pause();
                    if !self.read() {
                        return false;
                    }
                    continue;
                }
                Err(_) => return false,
            }
            return self.read();
        }
    }

    /// Reads and drops all answers. Returns `false` at the end of the connection.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Waits until the port has read everything, and has closed the connection.
    fn finish(mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
        while self.read() {
            pause();
        }
    }
}

#[test]
fn cve_2019_14818_every_message_again_and_again_with_descriptors() {
    let _alone = alone();
    let mut scene = Scene::new();
    let files: Vec<OwnedFd> = (0..MAX_DESCRIPTORS).map(|_| memory_file(1 << 20).expect("memory")).collect();
    let all: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let again = hostile::repeats(30, 1000);
    let round = |scene: &Scene, request: Request, times: usize| {
        for fds in 0..=MAX_DESCRIPTORS {
            let mut connection = RawConnection::connect(scene);
            for _ in 0..times {
                if !connection.send(request, &all[..fds]) {
                    connection.finish();
                    connection = RawConnection::connect(scene);
                }
            }
            connection.finish();
        }
    };
    scene.recovers("a first one");
    round(&scene, Request::GetFeatures, 3);
    scene.settle();
    let before = Footprint::now();
    for &request in Request::ALL {
        round(&scene, request, again);
        scene.rig.wait_down(0, "waiting for a frontend");
        before.is_as_before(request.name());
        scene.victims.go_on();
    }
    // SEND_RARP is one of the requests: wait until its packets have arrived.
    scene.settle();
    scene.recovers("messages again and again");
    scene.end();
}
