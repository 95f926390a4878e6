//! A link that an administrator sets down. No packet passes, both guests are told, and later the
//! link comes up again.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use straightline_graph::{EpollWaiter, Graph, Idle, PortControl, Worker, WorkerStats};
use straightline_guest::{Guest, GuestOptions};
use straightline_nodes::Patch;
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Reason, Settings};
use straightline_port::vhost_user::{VhostUser, VhostUserConfig};
use straightline_testing::{self as testing, PATIENCE, frame, mac, send, take, wait_until};

/// Two ports on a patch, and a worker.
struct Bench {
    ports: [VhostUser; 2],
    sockets: [PathBuf; 2],
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().expect("a folder");
        let rcu = Rcu::new();
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let drops: [Arc<Drops>; 2] = Default::default();
        let sockets = [0, 1].map(|n| dir.path().join(format!("p{n}")));
        let ports = [0, 1].map(|n| {
            let config = VhostUserConfig::new(format!("p{n}"), sockets[usize::from(n)].clone());
            let drops = Arc::clone(&drops[usize::from(n)]);
            VhostUser::open(config, PortIndex(n), drops, &rcu, Arc::clone(&waiter)).expect("a socket")
        });
        let mut graph = Graph::new();
        let edges = ports.each_ref().map(|port| graph.output(port.for_worker(0), false));
        let node = graph.node("patch", Box::new(Patch::new(PortIndex(0))), &edges);
        for port in &ports {
            graph.input(port.for_worker(0), node);
        }
        let arena = Arena::new(rcu.reader(), Settings::default(), drops.into());
        let mut worker = Worker::new(graph, arena, waiter, Arc::new(WorkerStats::default()), Idle::Spin);
        let stop = Arc::new(AtomicBool::new(false));
        let worker = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if worker.turn() == 0 {
                        testing::pause();
                    }
                }
            })
        };
        Bench { ports, sockets, stop, worker: Some(worker), _dir: dir }
    }

    fn guest(&self, port: usize) -> Guest {
        Guest::connect(&self.sockets[port], &GuestOptions::default()).expect("a guest")
    }

    fn wait_dropped(&self, n: u64) {
        wait_until("it is dropped", || self.ports[0].drops().count(Reason::SetDown) == n);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            worker.join().expect("the worker");
        }
    }
}

/// Returns the link's status as the guest's driver sees it.
fn status(guest: &mut Guest) -> u16 {
    let bytes = guest.client().get_config(6, 2).expect("the configuration space");
    u16::from_le_bytes(bytes.try_into().expect("two bytes"))
}

/// Waits for the message that the configuration has changed, and for no other.
fn told(channel: &mut UnixStream) {
    let mut message = [0; 12];
    channel.read_exact(&mut message).expect("a message");
    let words: Vec<u8> = [2_u32, 1, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(message[..], words);
}

// Cites vhost-user-back-end-1, vhost-user-backend-req-fd-1, vhost-user-config-change-1.
#[test]
fn nothing_passes_while_it_is_down_and_the_guest_is_told() {
    let bench = Bench::new();
    let mut one = bench.guest(0);
    let mut two = bench.guest(1);
    let (mut ours, theirs) = UnixStream::pair().expect("a channel");
    ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    one.client().set_backend_channel(theirs.as_fd()).expect("a channel");
    drop(theirs);
    assert_eq!(status(&mut one), 1);
    for round in 0..10 {
        send(&mut one, &frame(mac(2), mac(1), 1000, round));
        take(&mut two, 1);
        bench.ports[0].set_link(false);
        told(&mut ours);
        let now = bench.ports[0].status();
        assert_eq!((now.up, now.reason.as_str()), (false, "set down by the administrator"));
        assert_eq!(status(&mut one), 0);
        // Packets from the port, packets for the port, and packets in the name of its guest.
        send(&mut one, &frame(mac(2), mac(1), 1000, round));
        bench.wait_dropped(3 * round + 1);
        send(&mut two, &frame(mac(1), mac(2), 1000, round));
        bench.wait_dropped(3 * round + 2);
        one.client().send_rarp([2, 0, 0, 0, 0, 1]).expect("taken");
        bench.wait_dropped(3 * round + 3);
        assert!(bench.ports[1].status().up);
        bench.ports[0].set_link(true);
        told(&mut ours);
        assert_eq!(status(&mut one), 1);
        wait_until("it is up", || bench.ports[0].status().up);
        let back = frame(mac(1), mac(2), 700, round);
        send(&mut two, &back);
        assert!(take(&mut one, 1)[0].1 == back);
    }
    assert_eq!(bench.ports[0].drops().total(), 30);
    assert_eq!(bench.ports[1].drops().total(), 0);
}

// Cites vhost-user-suspended-3, vhost-user-suspended-4.
#[test]
fn a_guest_whose_rings_are_stopped_is_told_once_they_run() {
    let bench = Bench::new();
    let mut one = bench.guest(0);
    let (mut ours, theirs) = UnixStream::pair().expect("a channel");
    ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    one.client().set_backend_channel(theirs.as_fd()).expect("a channel");
    let bases = one.stop().expect("rings stop");
    for up in [false, true, false] {
        bench.ports[0].set_link(up);
        // The answer shows that the port has followed the change.
        wait_until("it is in the configuration space", || status(&mut one) == u16::from(up));
    }
    ours.set_nonblocking(true).expect("a channel");
    let silence = ours.read(&mut [0; 12]).expect_err("no message while all rings are stopped");
    assert_eq!(silence.kind(), ErrorKind::WouldBlock);
    ours.set_nonblocking(false).expect("a channel");
    one.resume(&bases).expect("rings start");
    told(&mut ours);
    // One message is enough for all changes.
    assert_eq!(status(&mut one), 0);
    ours.set_nonblocking(true).expect("a channel");
    assert_eq!(ours.read(&mut [0; 12]).expect_err("no second message").kind(), ErrorKind::WouldBlock);
}

#[test]
fn packets_that_are_sent_after_a_change_see_it() {
    let bench = Bench::new();
    let mut one = bench.guest(0);
    let mut two = bench.guest(1);
    for round in 0..200 {
        bench.ports[0].set_link(false);
        send(&mut two, &frame(mac(1), mac(2), 1000, round));
        bench.wait_dropped(2 * round + 1);
        send(&mut one, &frame(mac(2), mac(1), 1000, round));
        bench.wait_dropped(2 * round + 2);
        bench.ports[0].set_link(true);
        let [there, back] = [frame(mac(2), mac(1), 700, round), frame(mac(1), mac(2), 700, round)];
        send(&mut one, &there);
        send(&mut two, &back);
        assert!(take(&mut two, 1)[0].1 == there && take(&mut one, 1)[0].1 == back);
    }
    assert_eq!(bench.ports.each_ref().map(|port| port.drops().total()), [400, 0]);
}

#[test]
fn a_guest_that_comes_later_finds_it_down() {
    let bench = Bench::new();
    bench.ports[0].set_link(false);
    assert_eq!(bench.ports[0].status().reason, "set down by the administrator");
    let mut one = bench.guest(0);
    let mut two = bench.guest(1);
    assert_eq!(status(&mut one), 0);
    send(&mut two, &frame(mac(1), mac(2), 1000, 1));
    bench.wait_dropped(1);
    bench.ports[0].set_link(true);
    wait_until("the guest sees it", || status(&mut one) == 1);
    let there = frame(mac(1), mac(2), 1000, 2);
    send(&mut two, &there);
    assert!(take(&mut one, 1)[0].1 == there);
}

#[test]
fn a_frontend_that_does_not_read_holds_nobody_up() {
    let bench = Bench::new();
    let mut one = bench.guest(0);
    let mut two = bench.guest(1);
    let (_ours, theirs) = UnixStream::pair().expect("a channel");
    one.client().set_backend_channel(theirs.as_fd()).expect("a channel");
    for n in 0..3000_u16 {
        bench.ports[0].set_link(n % 2 == 1);
        wait_until("it has followed", || status(&mut one) == n % 2);
    }
    let there = frame(mac(1), mac(2), 1000, 2);
    send(&mut two, &there);
    assert!(take(&mut one, 1)[0].1 == there);
}
