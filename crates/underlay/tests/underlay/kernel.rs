//! An underlay and the kernel in one network: they find each other, and the kernel pings the
//! underlay.
//!
//! The underlay has one end of a veth pair, by a packet socket, and the kernel has the other end.

use std::io::Write as _;
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;

use rustix::thread::UnshareFlags;
use straightline_graph::{EpollWaiter, Graph, Idle, Mailbox, PortControl, Worker};
use straightline_packet::{Arena, Drops, PortIndex, Rcu, Settings};
use straightline_port::device::{AfPacketRequest, DevicePort, DevicePortConfig, DeviceRequest, Devices, Direct};
use straightline_testing::wait_until;
use straightline_underlay::{
    Address, Cookie, Decap, Gather, L2tpOver, NeighbourState, OwnPackets, Tunnel, TunnelConfig, TunnelKind, Tunnels,
    Underlay, UnderlayConfig, UnderlayOutput,
};

const PORT: PortIndex = PortIndex(0);
const PEER: &str = "02:00:00:00:00:22";
const TEST: &str = "the_kernel_and_an_underlay_find_each_other";

/// Moves this thread into a network namespace of its own, which ends with it. Returns `false` and
/// reports a skip if the thread may not do that.
fn enter_namespace() -> bool {
    #[expect(deprecated, reason = "a thread may have a network namespace of its own")]
    let entered = rustix::thread::unshare(UnshareFlags::NEWNET);
    if let Err(error) = entered {
        let _ = writeln!(std::io::stdout(), "\nskipped {TEST}: it needs a network namespace of its own: {error}");
        return false;
    }
    true
}

/// Runs a command that must succeed. Returns its output.
#[track_caller]
fn run(command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().expect("a program")).args(words).output().expect("a program");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command}: {text}");
    text
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Has the kernel ask one of our addresses until it gets an answer. While this process is away, the kernel
/// does not find it.
fn ping(own: &str) {
    wait_until("an echo request is answered", || {
        let output = Command::new("ping").args(["-n", "-c", "1", "-s", "1400", own]).output().expect("ping");
        if output.status.success() { Ok(()) } else { Err(output) }
    });
}

/// Returns a tunnel to a remote, which makes it a next hop.
fn tunnel(underlay: &Arc<Underlay>, local: &str, remote: &str) -> Arc<Tunnel> {
    let kind = TunnelKind::L2tpv3 {
        over: L2tpOver::Ip,
        session: 1,
        peer_session: 1,
        cookie: Cookie::default(),
        previous_cookie: None,
        peer_cookie: Cookie::default(),
        l2spec: false,
    };
    let config = TunnelConfig { mtu: 1400, ..TunnelConfig::new("t1", kind, ip(local), vec![ip(remote)]) };
    Tunnel::new(config, Arc::clone(underlay), PortIndex(1), Arc::default())
}

#[test]
fn the_kernel_and_an_underlay_find_each_other() {
    if !enter_namespace() {
        return;
    }
    run(&format!("ip link add eth1 type veth peer name peer address {PEER}"));
    run("ip link set eth1 up");
    run("ip link set peer up");
    run("ip addr add 192.0.2.2/24 dev peer");
    run("ip addr add 2001:db8::2/64 dev peer nodad");

    let rcu = Rcu::new();
    let drops = Arc::<Drops>::default();
    let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
    let devices = Devices::new(Arc::new(Direct::default())).expect("netlink");
    let request = DeviceRequest::AfPacket(AfPacketRequest { interface: "eth1".to_owned(), queues: 1 });
    let config = DevicePortConfig { name: "nic0".to_owned(), request, mtu: 1500, queues: 1 };
    let port = DevicePort::open(config, PORT, Arc::clone(&drops), &rcu, Arc::clone(&waiter), &devices).expect("a port");

    let addresses = [("192.0.2.1", 24), ("2001:db8::1", 64)].map(|(own, prefix)| Address { ip: ip(own), prefix });
    let config = UnderlayConfig::new("wan", addresses.to_vec());
    let underlay = Underlay::new(config, PORT);
    let tunnels = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];
    let _tunnels = tunnels.map(|(local, remote)| tunnel(&underlay, local, remote));

    let mut graph = Graph::new();
    let nic = port.for_worker(0);
    let output = UnderlayOutput::new(Arc::clone(&underlay), Arc::clone(&nic), Arc::new(Gather::default()));
    let out = graph.output(Arc::new(output), false);
    let decap = Decap::new(Arc::clone(&underlay), Tunnels::new(Vec::new()));
    let decap = graph.node("decap", Box::new(decap), &[out]);
    let own = graph.node("own", Box::new(OwnPackets::new(PORT, Vec::new())), &[out]);
    graph.input(Arc::clone(&nic), decap);
    graph.input(underlay.agent(nic), own);
    let arena = Arena::new(rcu.reader(), Settings::default(), vec![drops]);
    let mut worker = Worker::new(graph, arena, Arc::clone(&waiter), Arc::default(), Idle::Sleep);
    let mailbox = Mailbox::default();
    std::thread::scope(|scope| {
        scope.spawn(|| worker.run(&mailbox));
        let _stop = Stop(&mailbox, &waiter);

        // The kernel asks us.
        for own in ["192.0.2.1", "2001:db8::1"] {
            (0..3).for_each(|_| ping(own));
        }

        // We ask the kernel.
        let state = |state| underlay.neighbours().iter().all(|neighbour| neighbour.state == state);
        wait_until("the kernel answers", || state(NeighbourState::Reachable));
        let macs = underlay.neighbours().into_iter().filter_map(|neighbour| neighbour.mac);
        assert_eq!(macs.map(|mac| mac.to_string()).collect::<Vec<_>>(), [PEER; 2]);

        // The kernel asks the station that it knows whether it is still there.
        for own in ["192.0.2.1", "2001:db8::1"] {
            let probe = || run(&format!("ip neigh change {own} dev peer nud probe"));
            probe();
            wait_until("the kernel's probe is answered", || {
                let known = run(&format!("ip neigh show {own} dev peer"));
                if known.trim_end().ends_with("REACHABLE") {
                    return Ok(());
                }
                // It gives up after three seconds.
                if known.is_empty() || known.contains("FAILED") {
                    ping(own);
                    probe();
                }
                Err(known)
            });
        }

        // Nobody else may have our address.
        let add = || run("ip addr add 2001:db8::1/64 dev peer");
        add();
        wait_until("the kernel finds the duplicate", || {
            let shown = run("ip addr show dev peer to 2001:db8::1");
            if shown.contains("dadfailed") {
                return Ok(());
            }
            // It asks for a second only.
            if !shown.contains("tentative") {
                run("ip addr del 2001:db8::1/64 dev peer");
                add();
            }
            Err(shown)
        });
    });
    port.begin_stop();
    wait_until("the port ends", || port.has_ended());
}

/// Stops a worker, also where an assertion has failed.
struct Stop<'a>(&'a Mailbox, &'a EpollWaiter);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
        self.1.wake();
    }
}
