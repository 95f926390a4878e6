//! A vhost-user connection between a User Mode Linux guest and Open vSwitch, with two features less.
//!
//! - Open vSwitch offers a control queue, but DPDK's vhost library does not answer its commands, so
//!   the guest's driver waits for ever. (QEMU answers them in place of the library.)
//! - User Mode Linux negotiates packed rings, but says 0 for their position (`SET_VRING_BASE`). In
//!   the library's form the wrap counter is bit 15 of it, and a new ring's counter is 1. So the
//!   library never finds a packet.
//!
//! This module passes all messages and file descriptors on. Only from the offered features it
//! removes these two, and what depends on them.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::Connection;
use straightline_virtio::vhost_user::message::Message;

/// Packed rings, the control queue, and the features that need it (virtio 1.2, 5.1.3.1).
const MASKED: u64 = f::VIRTIO_F_RING_PACKED
    | f::VIRTIO_NET_F_CTRL_VQ
    | f::VIRTIO_NET_F_CTRL_GUEST_OFFLOADS
    | f::VIRTIO_NET_F_CTRL_RX
    | f::VIRTIO_NET_F_CTRL_VLAN
    | f::VIRTIO_NET_F_CTRL_RX_EXTRA
    | f::VIRTIO_NET_F_GUEST_ANNOUNCE
    | f::VIRTIO_NET_F_MQ
    | f::VIRTIO_NET_F_CTRL_MAC_ADDR;

/// Code of the message that asks for the features, and of its answer (`VHOST_USER_GET_FEATURES`).
const GET_FEATURES: u32 = 1;

/// Listens on a socket for one guest, and connects it to the switch's socket. The threads end with
/// the connection.
pub(crate) fn start(guest: &Path, switch: &Path) -> Result<()> {
    let listener = UnixListener::bind(guest).with_context(|| format!("cannot listen on {}", guest.display()))?;
    let backend = UnixStream::connect(switch).with_context(|| format!("cannot connect to {}", switch.display()))?;
    let answers = backend.try_clone()?;
    thread::spawn(move || -> io::Result<()> {
        let (frontend, _) = listener.accept()?;
        let requests = frontend.try_clone()?;
        thread::spawn(move || pass(requests, backend, |_| ()));
        pass(answers, frontend, mask);
        Ok(())
    });
    Ok(())
}

/// Passes messages on until one of the two ends closes. Then it closes the other one.
fn pass(from: UnixStream, to: UnixStream, change: impl Fn(&mut Message)) {
    let from = Connection::new(from);
    let to = Connection::new(to);
    while let Ok(Some((mut message, fds))) = from.recv() {
        change(&mut message);
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if to.send(&message.to_bytes(), &fds).is_err() {
            break;
        }
    }
    for end in [from, to] {
        // The only possible error is that this end is closed already.
        let _ = end.stream().shutdown(std::net::Shutdown::Both);
    }
}

/// Removes [`MASKED`] from the answer that has the features.
fn mask(answer: &mut Message) {
    if let (GET_FEATURES, Some(bytes)) = (answer.request, answer.payload.first_chunk_mut::<8>()) {
        *bytes = (u64::from_ne_bytes(*bytes) & !MASKED).to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_with_features_is_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let [guest, switch] = ["guest", "switch"].map(|name| folder.path().join(name));
        let backend = UnixListener::bind(&switch).expect("a socket");
        start(&guest, &switch).expect("threads");
        let frontend = Connection::new(UnixStream::connect(&guest).expect("a connection"));
        let backend = Connection::new(backend.accept().expect("a connection").0);
        let message = |request, features: u64| Message { request, flags: 5, payload: features.to_ne_bytes().into() };
        let request = message(GET_FEATURES, u64::MAX);
        frontend.send(&request.to_bytes(), &[frontend.as_fd()]).expect("sent");
        let (received, fds) = backend.recv().expect("a message").expect("a message");
        assert_eq!((received, fds.len()), (request, 1));
        for (request, features) in [(GET_FEATURES, !MASKED), (15, u64::MAX)] {
            backend.send(&message(request, u64::MAX).to_bytes(), &[]).expect("sent");
            let (received, _) = frontend.recv().expect("a message").expect("a message");
            assert_eq!(received, message(request, features));
        }
        drop(backend);
        assert!(frontend.recv().expect("the end").is_none());
    }
}
