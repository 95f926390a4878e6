//! Frontends that wait in the queue of a port's socket, with a descriptor whose close waits. The last
//! close of the socket closes what they have sent.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use crate::held::{is_closing, lingering, reload, send_beside};
use hostile::scene::Scene;
use straightline_testing::{Victims, bridge, patch, rig, wait_until};

/// A frontend in the queue of a port's socket. Its descriptor closes with the socket.
struct Queued {
    _stream: UnixStream,
    peer: TcpStream,
    port: u16,
}

impl Queued {
    fn new(socket: &Path) -> Queued {
        let (sent, peer) = lingering();
        let port = sent.local_addr().expect("its address").port();
        let stream = UnixStream::connect(socket).expect("a place in the queue");
        assert_eq!(send_beside(&stream, b"x", sent.as_fd()).expect("a byte"), 1);
        Queued { _stream: stream, peer, port }
    }

    /// Waits until the last close of the socket waits for this frontend's descriptor, and ends it by
    /// a reset.
    fn release(self) {
        wait_until("its descriptor is closed", || is_closing(self.port));
        drop(self.peer);
    }
}

/// Does this on a thread of its own, which must end although a close waits for an hour.
fn ends<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(work);
    wait_until(&format!("the end of {what}, which waits for no descriptor of a frontend"), || thread.is_finished());
    thread.join().expect("no panic")
}

/// The port's thread serves another frontend, so it does not have the socket.
#[test]
fn a_queued_frontend_holds_no_reload() {
    let mut scene = Scene::new();
    let served = UnixStream::connect(scene.rig.socket(0)).expect("a frontend");
    wait_until("the frontend is served", || scene.rig.port(0).pid.is_some());
    let queued = Queued::new(scene.rig.socket(0));
    scene = ends("a reload", move || {
        scene.measure_gap("a reload while a frontend waits in the queue", |scene| {
            reload(&scene.rig, |config| config.ports[0].mtu = 9000).expect("a reload");
        });
        scene
    });
    queued.release();
    drop(served);
    scene.recovers("the port was made anew");
    scene.end();
}

/// The client and the port's thread have closed the socket before the switch forgets it.
#[test]
fn a_queued_frontend_holds_neither_the_end_of_a_dynamic_port_nor_the_stop() {
    let rig = rig(4, |config| {
        config.patches.push(patch(2, 3));
        config.bridges.push(bridge(2));
    });
    let victims = Victims::start(&rig, 2, 3);
    let path = rig.socket(0).with_file_name("queue");
    let listener = UnixListener::bind(&path).expect("a socket");
    let switch = Arc::new(rig.switch);
    let port = switch.add_dynamic_port("queue", "lan", OwnedFd::from(listener), &path).expect("a dynamic port");
    let served = UnixStream::connect(&path).expect("a frontend");
    let source = switch.source();
    wait_until("the frontend is served", || {
        source.ports().ports.iter().any(|port| port.name == "queue" && port.pid.is_some())
    });
    let queued = Queued::new(&path);
    drop(port);
    drop(served);
    let again = Arc::clone(&switch);
    let closing = queued.port;
    ends("a change", move || {
        let reload = || again.reload(&again.config()).map(drop).expect("a reload");
        wait_until("the socket is closed", || {
            reload();
            is_closing(closing)
        });
        reload();
    });
    queued.release();
    victims.finish();
    let switch = Arc::into_inner(switch).expect("no other owner");
    assert_eq!(ends("a stop", move || switch.stop()), [] as [String; 0], "no thread is left behind");
}
