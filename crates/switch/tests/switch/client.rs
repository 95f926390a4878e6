//! Ports that connect: the frontend listens, and either side comes and goes.

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use straightline_config::Mode;
use straightline_graph::Clock;
use straightline_guest::memory_file;
use straightline_testing::{BASIC, PATIENCE, Rig, patch, rig_by, vhost_user, wait_moving};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::{FrontendClient, RegionRef, RegionSpec, RingAddresses};

/// Port 0 connects, port 1 listens.
fn connecting() -> Rig {
    rig_by(2, &Clock::moved(), |config| {
        vhost_user(&mut config.ports[0]).mode = Mode::Client;
        config.patches.push(patch(0, 1));
    })
}

/// The longest pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Lets the time pass until the port connects.
fn accept(rig: &Rig, listener: &UnixListener) -> UnixStream {
    listener.set_nonblocking(true).expect("a flag");
    wait_moving(&rig.clock, PAUSE, "the port connects", || listener.accept()).0
}

/// Lets the time pass until the port is down for a reason with these words in it.
fn wait_down(rig: &Rig, words: &str) {
    wait_moving(&rig.clock, PAUSE, "the port is down", || {
        let reason = rig.port(0).reason;
        if reason.as_ref().is_some_and(|reason| reason.contains(words)) { Ok(()) } else { Err(reason) }
    });
    rig.wait_down(0, words);
}

/// Accepts the port's connection and starts its rings.
fn serve(rig: &Rig, listener: &UnixListener) -> FrontendClient {
    let mut client = FrontendClient::from_stream(accept(rig, listener));
    client.set_timeout(Some(PATIENCE)).expect("timeout");
    let agreed = client.handshake(BASIC | f::VHOST_USER_F_PROTOCOL_FEATURES, u64::MAX).expect("handshake");
    client.set_features(agreed.features).expect("features");
    let memory = memory_file(1 << 20).expect("memory");
    let spec = RegionSpec { guest_addr: 0, size: 1 << 20, user_addr: 0, mmap_offset: 0 };
    client.set_mem_table(&[RegionRef { spec, fd: memory.as_fd() }]).expect("memory table");
    for ring in 0..2 {
        let at = u64::from(ring) << 16;
        client.set_vring_num(ring, 256).expect("size");
        client.set_vring_base(ring, 0).expect("base");
        let addresses = RingAddresses { desc: at, avail: at + 0x2000, used: at + 0x3000 };
        client.set_vring_addr(ring, addresses).expect("addresses");
        client.set_vring_kick(ring, None).expect("kick");
        client.set_vring_enable(ring, true).expect("enable");
    }
    client
}

#[test]
fn a_port_connects_and_again_whenever_it_breaks() {
    let rig = connecting();
    let words = format!("connecting to {}: No such file or directory", rig.socket(0).display());
    rig.wait_down(0, &words);
    wait_down(&rig, " times");

    let listener = UnixListener::bind(rig.socket(0)).expect("listen");
    let client = serve(&rig, &listener);
    rig.wait_up(0);
    // After the frontend's end comes another one, which its listener already waits for.
    drop(client);
    let client = serve(&rig, &listener);
    rig.wait_up(0);

    drop(listener);
    drop(client);
    wait_down(&rig, "Connection refused");
    let reason = rig.port(0).reason.expect("a reason");
    // The kernel resets a connection whose end has not read all.
    let whys = ["the frontend closed its connection; connecting to ", "the socket failed: Connection reset by peer"];
    assert!(whys.iter().any(|why| reason.starts_with(why)), "{reason}");

    std::fs::remove_file(rig.socket(0)).expect("the socket is the frontend's, and still there");
    let listener = UnixListener::bind(rig.socket(0)).expect("listen");
    let _client = serve(&rig, &listener);
    rig.wait_up(0);
}

#[test]
fn a_listener_that_closes_at_once_is_tried_again() {
    let rig = connecting();
    let listener = UnixListener::bind(rig.socket(0)).expect("listen");
    for _ in 0..4 {
        drop(accept(&rig, &listener));
    }
    rig.wait_down(0, "the frontend closed its connection");
    let _client = serve(&rig, &listener);
    rig.wait_up(0);
}

#[test]
fn stopping_waits_for_nobody() {
    // While it pauses, while it is connected to a silent frontend, and while its frontend is set
    // up.
    connecting().switch.stop();
    let rig = connecting();
    let listener = UnixListener::bind(rig.socket(0)).expect("listen");
    let silent = accept(&rig, &listener);
    rig.switch.stop();
    drop(silent);
    drop(listener);
    let rig = connecting();
    std::fs::remove_file(rig.socket(0)).expect_err("the port makes no socket");
    let listener = UnixListener::bind(rig.socket(0)).expect("listen");
    let mut client = serve(&rig, &listener);
    rig.wait_up(0);
    let Rig { switch, .. } = rig;
    switch.stop();
    client.get_features().expect_err("the port is gone");
}
