//! Frontends that block their port's thread for ever, by a descriptor whose close waits, while
//! ports are stopped, reloaded and removed.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hostile::scene::Scene;
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use straightline_config::Config;
use straightline_testing::{Rig, Victims, bridge, patch, rig, vhost_user, wait_until};
use straightline_virtio::vhost_user::{Message, Request};

/// A frontend that blocks its port's thread until it is released or dropped.
struct Hold {
    stream: UnixStream,
    /// The other end of the socket that the thread closes. It has unread data, so its end resets
    /// that socket.
    peer: TcpStream,
}

impl Hold {
    /// Sends a TCP socket with a request that takes no descriptor, so the port closes the socket.
    /// The socket lingers, and its data is never read. The last close of such a socket waits until
    /// its data has arrived (`SO_LINGER`, socket(7)).
    fn new(socket: &Path) -> Hold {
        let (sent, peer) = lingering();
        let address = sent.local_addr().expect("its address");
        let mut stream = UnixStream::connect(socket).expect("connect");
        let bytes = Message::request(Request::GetFeatures, Vec::new()).to_bytes();
        assert_eq!(send_beside(&stream, &bytes[..1], sent.as_fd()).expect("a byte"), 1);
        // Close our copy before the message is complete, so that the port makes the last close.
        drop(sent);
        stream.write_all(&bytes[1..]).expect("the rest");
        wait_until("the port's thread closes it", || is_closing(address.port()));
        Hold { stream, peer }
    }
}

/// Returns a socket whose last close waits for an hour, and its other end, which does not read.
pub(crate) fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    // Small buffers, which are full at once. The peer's has some data, so that its end is a reset.
    set_socket_recv_buffer_size(&listener, 32 << 10).expect("a buffer");
    let mut sent = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
    set_socket_send_buffer_size(&sent, 16 << 10).expect("a buffer");
    let (peer, _) = listener.accept().expect("a connection");
    set_socket_linger(&sent, Some(Duration::from_secs(3600))).expect("to linger");
    sent.set_nonblocking(true).expect("not to block");
    while sent.write(&[0; 1 << 16]).is_ok() {}
    (sent, peer)
}

/// Sends bytes with a descriptor beside the first of them.
pub(crate) fn send_beside(stream: &UnixStream, bytes: &[u8], fd: BorrowedFd<'_>) -> rustix::io::Result<usize> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(stream, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)
}

/// Returns true if the socket at this local TCP port waits in its close: its FIN is not
/// acknowledged (FIN_WAIT1).
pub(crate) fn is_closing(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("proc");
    let local = format!("0100007F:{port:04X}");
    sockets.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some(&local) && words.nth(1) == Some("04")
    })
}

pub(crate) fn reload(rig: &Rig, change: impl FnOnce(&mut Config)) -> anyhow::Result<()> {
    let mut config = rig.switch.config();
    change(&mut config);
    rig.switch.reload(&config).map(drop)
}

#[test]
fn a_port_that_is_held_is_made_anew() {
    let mut scene = Scene::new();
    let hold = Hold::new(scene.rig.socket(0));
    scene.measure_gap("a reload of a port whose thread is held", |scene| {
        reload(&scene.rig, |config| config.ports[0].mtu = 9000).expect("a reload");
    });
    scene.recovers("the port was made anew");
    drop(hold);
    scene.end();
}

/// The port that cannot listen again is the first of two that are replaced.
#[test]
fn a_folder_that_is_taken_away_takes_no_other_port_along() {
    let scene = Scene::new();
    let folder = scene.rig.socket(0).with_file_name("theirs");
    let away = folder.with_extension("away");
    std::fs::create_dir(&folder).expect("a folder");
    let socket = folder.join("s");
    reload(&scene.rig, |config| vhost_user(&mut config.ports[0]).socket.clone_from(&socket)).expect("a reload");
    std::fs::rename(&folder, &away).expect("their folder");
    let error = scene.measure_gap("a reload that fails by a folder that is gone", |scene| {
        reload(&scene.rig, |config| (config.ports[0].mtu, config.ports[1].mtu) = (9000, 9000)).expect_err("no folder")
    });
    let error = format!("{error:#}");
    assert!(error.contains("port \"p0\" is down until it can listen again"), "{error}");
    UnixStream::connect(scene.rig.socket(1)).expect("the other port is back");
    scene.rig.wait_down(0, "cannot listen again");
    std::fs::rename(&away, &folder).expect("their folder");
    wait_until("the port is back", || UnixStream::connect(&socket).is_ok());
    scene.victims.go_on();
    scene.end();
}

/// Two blocked ports are released only after both have begun to stop. If a stop waits for one port
/// before it begins to stop the other, it leaves a port behind.
#[test]
fn a_stop_reaches_all_ports_before_it_waits_for_any() {
    let rig = rig(4, |config| {
        config.patches.push(patch(0, 1));
        config.patches.push(patch(2, 3));
    });
    let victims = Victims::start(&rig, 2, 3);
    let [a, b] = [0, 1].map(|port| Hold::new(rig.socket(port)));
    victims.finish();
    std::thread::spawn(move || {
        // A port that stops closes its connection, even if its thread is blocked.
        for mut stream in [a.stream, b.stream] {
            while stream.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        }
        drop((a.peer, b.peer));
    });
    assert_eq!(rig.switch.stop(), [] as [String; 0], "no thread is left behind");
}

/// An API client that ends removes its dynamic ports, perhaps many at once. The switch waits for
/// none of them.
#[test]
fn a_leased_port_that_is_held_ends_without_waiting() {
    let rig = rig(4, |config| {
        config.patches.push(patch(2, 3));
        config.bridges.push(bridge(2));
    });
    let victims = Victims::start(&rig, 2, 3);
    let path = rig.socket(0).with_file_name("leased");
    let listener = UnixListener::bind(&path).expect("a socket");
    let switch = Arc::new(rig.switch);
    let port =
        switch.add_dynamic_port("leased", "lan", std::os::fd::OwnedFd::from(listener), &path).expect("a dynamic port");
    let hold = Hold::new(&path);
    drop(port);
    victims.finish();
    // The thread is still listed, so no call has waited for it and given up.
    let switch = Arc::into_inner(switch).expect("no other owner");
    assert_eq!(switch.stop(), ["leased"]);
    drop(hold);
}
