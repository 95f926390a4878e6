use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown, socketpair,
};
use straightline_graph::{Clock, EpollWaiter};
use straightline_packet::{Arena, Batch, Reason, Settings, Turn};
use straightline_testing::wait_until;

use super::super::openings::MAX_OPENINGS;
use super::super::test_namespace::{self, ip};
use super::*;
use crate::device::{AfPacketRequest, Opener, TapOffloads, TapRequest};

/// Time between two attempts to open a device here, shorter than that of real ports.
const RETRY: Duration = Duration::from_millis(200);

/// A device whose queues are pairs of sockets.
#[derive(Debug)]
struct SocketLink(Vec<Arc<OwnedFd>>);

impl DeviceLink for SocketLink {
    fn receive<'t>(&'t self, port: &DevicePortData, queue: usize, turn: &mut Turn<'t>, into: &mut Batch, max: usize) {
        let mut bytes = [0; 100];
        for _ in 0..max {
            match recv(&self.0[queue], &mut bytes, RecvFlags::DONTWAIT) {
                Ok((length, _)) if length > 0 => {
                    into.push(turn.accept_owned(port.index, &bytes[..length]).expect("a free slot"));
                    port.counters[queue].rx.packets.add(1);
                }
                Err(Errno::AGAIN) => return,
                Ok(_) | Err(_) => return port.report_fault(),
            }
        }
    }

    fn deliver<'t>(&'t self, port: &DevicePortData, queue: usize, turn: &mut Turn<'t>, batch: &Batch) {
        for &id in batch.ids() {
            if turn.len(id) > port.max_len() {
                port.drops.add(Reason::TooBig, 1);
            } else if send(&self.0[queue], turn.head(id), SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
                port.report_fault();
            }
        }
    }

    fn arm(&self, _port: &DevicePortData, queue: usize) -> bool {
        recv(&self.0[queue], &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK).is_ok()
    }

    fn disarm(&self, _queue: usize) {}

    fn queues(&self) -> usize {
        self.0.len()
    }

    fn wake_fd(&self, queue: usize) -> &Arc<OwnedFd> {
        &self.0[queue]
    }

    fn kernel_drops(&self) -> Vec<(&'static str, u64)> {
        vec![("overruns", 7)]
    }
}

fn make(_: &DeviceRequest, opened: OpenedDevice, _: PortIndex) -> Result<Arc<dyn DeviceLink>, OpenError> {
    Ok(Arc::new(SocketLink(opened.fds.into_iter().map(Arc::new).collect())))
}

/// The interface that opens quickly in any case.
const QUICK: &str = "quick0";

/// An opener that does as its test says.
#[derive(Debug, Default)]
struct FakeOpener {
    /// Locked by a test: the opener hangs at all interfaces but [`QUICK`].
    hangs: Mutex<()>,
    /// The opener has a bug.
    panics: AtomicBool,
    answer: Mutex<FakeAnswer>,
    opened: AtomicUsize,
    closed: AtomicUsize,
    attempts: Mutex<Vec<Instant>>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct FakeAnswer {
    error: Option<OpenError>,
    queues: usize,
    ifindex: u32,
    /// The other ends of the queues.
    peers: Vec<OwnedFd>,
}

impl Opener for FakeOpener {
    fn open(&self, request: &DeviceRequest) -> Result<OpenedDevice, OpenError> {
        self.attempts.lock().unwrap().push(self.clock.now());
        if request.interface() != QUICK {
            drop(self.hangs.lock().unwrap());
        }
        assert!(!self.panics.load(Ordering::Acquire), "for the test");
        let answer = &mut *self.answer.lock().unwrap();
        if let Some(error) = &answer.error {
            return Err(error.clone());
        }
        let pair =
            |_| socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("pair");
        let (peers, fds): (Vec<_>, Vec<_>) = (0..answer.queues.max(1)).map(pair).unzip();
        answer.peers = peers;
        self.opened.fetch_add(1, Ordering::AcqRel);
        let queues = u16::try_from(fds.len()).expect("few");
        let interface = request.interface().to_owned();
        let facts = DeviceFacts { interface, ifindex: answer.ifindex, queues, mtu: 1500, ..DeviceFacts::default() };
        Ok(OpenedDevice { facts, fds })
    }

    fn close(&self, _request: &DeviceRequest) {
        self.closed.fetch_add(1, Ordering::AcqRel);
    }
}

impl FakeOpener {
    fn fail(&self, cause: OpenCause, message: &str) {
        self.answer.lock().unwrap().error = Some(OpenError::new(cause, message));
    }

    fn mend(&self) {
        self.answer.lock().unwrap().error = None;
    }

    /// Ends the device: its descriptors do not work any more.
    fn break_device(&self) {
        for peer in self.answer.lock().unwrap().peers.drain(..) {
            // A process that another test has just started may have a copy of the descriptor.
            shutdown(&peer, Shutdown::Both).expect("shutdown");
        }
    }

    /// Returns how often a device was opened, and closed.
    fn counts(&self) -> (usize, usize) {
        (self.opened.load(Ordering::Acquire), self.closed.load(Ordering::Acquire))
    }
}

/// A port with its opener and a worker.
struct Rig {
    opener: Arc<FakeOpener>,
    drops: Arc<Drops>,
    rcu: Rcu,
    waiter: Arc<EpollWaiter>,
    arena: Arena,
    devices: Arc<Devices>,
    clock: Clock,
}

impl Rig {
    fn new() -> Self {
        Self::by(Clock::real())
    }

    fn by(clock: Clock) -> Self {
        let opener = Arc::new(FakeOpener { clock: clock.clone(), ..FakeOpener::default() });
        let rcu = Rcu::new();
        let openers = Arc::clone(&opener) as Arc<dyn Opener>;
        let devices = Devices::with_retry(openers, clock.clone(), RETRY).expect("netlink");
        let drops = Arc::<Drops>::default();
        let arena = Arena::new(rcu.reader(), Settings::default(), vec![Arc::clone(&drops)]);
        Rig { opener, drops, rcu, waiter: Arc::new(EpollWaiter::new().expect("epoll")), arena, devices, clock }
    }

    /// Returns the times between the attempts of the opener.
    fn pauses(&self) -> Vec<Duration> {
        let attempts = self.opener.attempts.lock().unwrap();
        attempts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    fn open(&self, queues: u16) -> Result<DevicePort, OpenError> {
        self.open_interface("eth1", queues)
    }

    fn open_interface(&self, interface: &str, queues: u16) -> Result<DevicePort, OpenError> {
        let interface = interface.to_owned();
        self.open_request(DeviceRequest::AfPacket(AfPacketRequest { interface, queues }), queues)
    }

    fn open_request(&self, request: DeviceRequest, queues: u16) -> Result<DevicePort, OpenError> {
        let config = DevicePortConfig { name: "nic".to_owned(), request, mtu: 1500, queues };
        let waiters = Arc::clone(&self.waiter).into();
        DevicePort::open_by(make, config, PortIndex(0), Arc::clone(&self.drops), &self.rcu, waiters, &self.devices)
    }

    /// Runs a turn of the port's worker. Returns the bytes that it received, after it has sent
    /// them back if `echo` is true.
    fn turn(&mut self, port: &DevicePort, echo: bool) -> Vec<Vec<u8>> {
        let port = port.for_worker(0);
        self.arena.turn(|turn| {
            let mut batch = Batch::new();
            port.receive(turn, &mut batch, 32);
            if echo {
                port.deliver(turn, &batch, false);
            }
            batch.ids().iter().map(|&id| turn.head(id).to_vec()).collect()
        })
    }

    /// Returns the MAC address by which the switch may send.
    fn mac(&mut self, port: &DevicePort) -> Option<[u8; 6]> {
        let port = port.for_worker(0);
        self.arena.turn(|turn| port.mac(turn))
    }

    /// Returns the MTU that the port tells its worker.
    fn mtu(&mut self, port: &DevicePort) -> Option<u16> {
        let port = port.for_worker(0);
        self.arena.turn(|turn| port.mtu(turn))
    }

    fn send(&self, queue: usize, bytes: &[u8]) {
        send(&self.opener.answer.lock().unwrap().peers[queue], bytes, SendFlags::empty()).expect("send");
    }

    fn received(&self, queue: usize) -> Vec<u8> {
        let mut bytes = [0; 100];
        let answer = self.opener.answer.lock().unwrap();
        let (length, _) = recv(&answer.peers[queue], &mut bytes, RecvFlags::DONTWAIT).expect("a packet");
        bytes[..length].to_vec()
    }
}

/// Lets the time pass until the port tries again, and waits until `is_done` and the attempt has ended.
fn retry(clock: &Clock, port: &DevicePort, what: &str, is_done: impl FnMut() -> bool) {
    clock.advance(RETRY);
    wait_until(what, is_done);
    drop(port.shared.device());
}

fn reasons(port: &DevicePort) -> Vec<String> {
    port.history().reasons.into_iter().map(|(_, reason)| reason).collect()
}

#[test]
fn packets_pass_both_ways_and_wake_the_worker() {
    let mut rig = Rig::new();
    rig.opener.answer.lock().unwrap().queues = 2;
    let port = rig.open(2).expect("open");
    let status = port.status();
    assert!(status.up && status.reason.is_empty());
    let device = status.device.expect("a device");
    assert_eq!((device.facts.queues, device.kernel_drops), (2, vec![("overruns", 7)]));
    assert_eq!(port.counters().len(), 2);
    rig.waiter.woken_by();
    for (queue, byte) in [(0, 7), (1, 9)] {
        rig.send(queue, &[byte; 60]);
        assert_eq!(rig.waiter.woken_by().0, 1, "queue {queue}");
        assert_eq!(rig.turn(&port, true), [[byte; 60]]);
        // The worker delivers by its first queue.
        assert_eq!(rig.received(0), [byte; 60]);
        assert_eq!(port.counters()[queue].rx.packets.get(), 1);
    }
    let waits = port.for_worker(0);
    rig.arena.turn(|turn| assert!(!waits.arm(turn, false)));
    rig.send(1, b"packet");
    rig.arena.turn(|turn| assert!(waits.arm(turn, false) && !waits.arm(turn, true)));
}

/// A PAUSE from a guest would stop the switch behind the interface.
#[test]
fn control_of_a_link_does_not_reach_the_interface() {
    let mut rig = Rig::new();
    let port = rig.open(1).expect("open");
    let frame = |rest: &[u8]| [&[2; 12][..], rest, &[0; 46]].concat();
    let tags = [&[][..], &[0x81, 0, 0, 10], &[0x88, 0xa8, 0, 10, 0x81, 0, 0, 0], &[0x91, 0, 0, 10]];
    for (n, tags) in (1..).zip(tags) {
        let pause = frame(&[tags, &[0x88, 0x08, 0, 1, 0xff, 0xff]].concat());
        let other = frame(&[tags, &[0x88, 0x09, n]].concat());
        rig.send(0, &pause);
        rig.send(0, &other);
        rig.send(0, &pause);
        assert_eq!(rig.turn(&port, true).len(), 3);
        assert_eq!(rig.received(0), other, "{tags:x?}");
        assert_eq!(port.drops().count(Reason::MacControl), 2 * u64::from(n));
    }
    // Tags up to the end of the frame.
    rig.send(0, &[[2; 12].to_vec(), [0x81, 0].repeat(20)].concat());
    assert_eq!(rig.turn(&port, true).len(), 1);
    rig.received(0);
}

#[test]
fn a_link_that_is_set_down_drops_both_ways() {
    let mut rig = Rig::new();
    let port = rig.open(1).expect("open");
    port.set_link(false);
    port.set_link(false);
    rig.send(0, b"packet");
    assert!(rig.turn(&port, true).is_empty());
    assert_eq!(port.drops().count(Reason::SetDown), 1);
    assert_eq!((port.status().up, port.status().reason.as_str()), (false, "set down by the administrator"));
    port.set_link(true);
    rig.send(0, b"packet");
    assert_eq!(rig.turn(&port, true).len(), 1);
    assert_eq!((port.history().changes, reasons(&port).len()), (3, 1));
}

#[test]
fn an_interface_that_is_missing_is_tried_again() {
    let clock = Clock::moved();
    let mut rig = Rig::by(clock.clone());
    rig.opener.fail(OpenCause::Missing, "no interface is called eth1");
    let port = rig.open(1).expect("the port opens without its interface");
    assert_eq!((port.status().up, port.status().reason.as_str()), (false, "no interface is called eth1"));
    assert_eq!(port.status().cause, Some(DownCause::InterfaceMissing));
    assert!(port.status().device.is_none() && rig.turn(&port, true).is_empty());
    retry(&clock, &port, "a second attempt", || rig.pauses() == [RETRY]);
    rig.opener.fail(OpenCause::Busy, "eth1 is taken");
    retry(&clock, &port, "another reason", || port.status().reason == "eth1 is taken");
    assert_eq!(port.status().cause, Some(DownCause::InterfaceBusy));
    assert!(port.shared.device().logged.iter().eq(&["no interface is called eth1", "eth1 is taken"]));
    rig.opener.mend();
    retry(&clock, &port, "the interface opens", || port.status().up);
    rig.send(0, b"packet");
    assert_eq!(rig.turn(&port, true).len(), 1);
    assert_eq!(rig.pauses(), [RETRY; 3]);
    assert_eq!(reasons(&port), ["no interface is called eth1", "eth1 is taken"]);
    assert!(port.shared.device().logged.is_empty());
}

#[test]
fn a_failure_that_will_not_pass_is_an_error_at_the_start_only() {
    let rig = Rig::new();
    rig.opener.fail(OpenCause::Denied, "opening eth1 takes CAP_NET_RAW");
    assert_eq!(rig.open(1).expect_err("denied").message, "opening eth1 takes CAP_NET_RAW");
    rig.opener.mend();
    let port = rig.open(1).expect("open");
    rig.opener.fail(OpenCause::Denied, "the opener has ended");
    rig.opener.break_device();
    port.shared.data.report_fault();
    wait_until("a reason", || port.status().reason == "the opener has ended");
    rig.opener.mend();
    wait_until("the interface opens", || port.status().up);
}

#[test]
fn a_device_that_breaks_is_closed_and_opened_again() {
    let clock = Clock::moved();
    let mut rig = Rig::by(clock.clone());
    let port = rig.open(1).expect("open");
    let old = Arc::downgrade(&port.shared.shown().as_ref().expect("open").link);
    rig.opener.break_device();
    assert_eq!(rig.waiter.woken_by().0, 1, "the end of a device wakes its worker");
    assert!(rig.turn(&port, true).is_empty());
    retry(&clock, &port, "the device is opened again", || rig.opener.counts() == (2, 1) && port.status().up);
    assert_eq!(old.strong_count(), 0, "nothing keeps the old device");
    rig.send(0, b"packet");
    assert_eq!(rig.turn(&port, true), [b"packet"]);
    // A device that breaks again and again is opened once in that time.
    for round in 3..5 {
        rig.opener.break_device();
        rig.turn(&port, true);
        let is_open = || rig.opener.counts() == (round, round - 1) && port.status().up;
        retry(&clock, &port, "the device is opened again", is_open);
    }
    assert_eq!(rig.pauses(), [RETRY; 3]);
    let reason = "interface eth1 has gone: the port opens it again as soon as it can";
    assert_eq!(reasons(&port), [reason; 3]);
}

#[test]
fn a_port_without_a_device_drops() {
    let mut rig = Rig::new();
    rig.opener.answer.lock().unwrap().queues = 1;
    let source = rig.open(1).expect("open");
    rig.opener.fail(OpenCause::Missing, "no");
    let port = rig.open(1).expect("open");
    rig.send(0, b"packet");
    let from = source.for_worker(0);
    let to = port.for_worker(0);
    rig.arena.turn(|turn| {
        let mut batch = Batch::new();
        from.receive(turn, &mut batch, 32);
        to.deliver(turn, &batch, false);
    });
    assert_eq!(port.drops().count(Reason::LinkDown), 1);
}

#[test]
fn a_paused_port_lets_another_have_the_interface() {
    let rig = Rig::new();
    let port = rig.open(1).expect("open");
    port.pause();
    assert_eq!((rig.opener.counts(), port.status().up), ((1, 1), false));
    assert_eq!(port.status().reason, "another port has the interface");
    assert_eq!(port.status().cause, Some(DownCause::Stopped));
    let other = rig.open(1).expect("open");
    other.begin_stop();
    assert!(other.has_ended() && other.join());
    assert_eq!(rig.opener.counts(), (2, 2));
    port.resume().expect("resume");
    wait_until("the first port has it again", || port.status().up);
    drop(port);
    assert_eq!(rig.opener.counts(), (3, 3));
}

#[test]
fn an_opener_that_hangs_holds_nobody_up() {
    let rig = Rig::by(Clock::moved());
    let port = rig.open(1).expect("open");
    let hangs = rig.opener.hangs.lock().unwrap();
    port.shared.data.report_fault();
    rig.clock.advance(RETRY);
    wait_until("the opener is at work", || rig.opener.attempts.lock().unwrap().len() == 2);
    assert!(!port.status().up && !port.history().reasons.is_empty() && port.counters().len() == 1);
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| port.begin_stop());
        wait_until("the stop does not wait for the opener for long", || {
            rig.clock.advance(END_TIME);
            stop.is_finished()
        });
    });
    assert!(!port.has_ended() && !port.join());
    drop(hangs);
    wait_until("the port ends", || port.has_ended());
    assert_eq!(rig.opener.counts(), (2, 2), "the device that was opened meanwhile is closed");
}

/// Ports whose interfaces open slowly leave the others followed, and opened while there are places.
#[test]
fn interfaces_that_open_slowly_leave_the_others_served() {
    let rig = Rig::new();
    let quick = rig.open_interface(QUICK, 1).expect("open");
    let slow: Vec<_> = (0..2 * MAX_OPENINGS).map(|_| rig.open(1).expect("open")).collect();
    let ports = 1 + slow.len();
    let hangs = rig.opener.hangs.lock().unwrap();
    let attempts = || rig.opener.attempts.lock().unwrap().len() - ports;
    let all_but_one = &slow[..MAX_OPENINGS - 1];
    all_but_one.iter().for_each(|port| port.shared.data.report_fault());
    wait_until("the opener is at work", || attempts() == MAX_OPENINGS - 1);
    quick.shared.data.report_fault();
    wait_until("the other port is opened again", || attempts() == MAX_OPENINGS && quick.status().up);

    slow.iter().for_each(|port| port.shared.data.report_fault());
    wait_until("the opener is at work at all places", || attempts() == MAX_OPENINGS + 1);
    quick.shared.data.report_fault();
    wait_until("the other port is followed", || !quick.status().up);
    assert_eq!(attempts(), MAX_OPENINGS + 1, "no more than these at a time");
    drop(hangs);
    wait_until("all are up", || quick.status().up && slow.iter().all(|port| port.status().up));
}

#[test]
fn more_queues_than_the_port_has_are_refused() {
    let rig = Rig::new();
    rig.opener.answer.lock().unwrap().queues = 3;
    let port = rig.open(2).expect("open");
    assert_eq!(port.status().reason, "interface eth1 has 3 queues, and the port is made for 2");
    assert_eq!(rig.opener.counts(), (1, 1));
}

#[test]
fn the_interface_decides_on_the_number_of_queues() {
    let rig = Rig::new();
    let request = AfXdpRequest {
        interface: "eth1".to_owned(),
        queues: None,
        steal: crate::device::Steal::All,
        zero_copy: crate::device::ZeroCopy::Off,
        mtu: 1500,
    };
    rig.opener.fail(OpenCause::Missing, "no");
    let port = rig.open_request(DeviceRequest::AfXdp(request), 127).expect("open");
    assert_eq!(port.counters().len(), 1);
    rig.opener.answer.lock().unwrap().queues = 4;
    rig.opener.mend();
    wait_until("the interface opens", || port.status().up);
    assert_eq!(port.counters().len(), 4);
}

/// Returns the index of an interface.
fn index(name: &str) -> u32 {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).expect("socket");
    rustix::net::netdevice::name_to_index(&socket, name).expect("index")
}

#[test]
fn a_port_follows_its_interface() {
    let Some(_namespace) = test_namespace::enter("a_port_follows_its_interface") else { return };
    let mut rig = Rig::new();
    ip("link add eth1 type veth peer name peer");
    rig.opener.answer.lock().unwrap().ifindex = index("eth1");
    let port = rig.open(1).expect("open");
    let down = "interface eth1 is down; set it up with `ip link set eth1 up`";
    assert_eq!((port.status().up, port.status().reason.as_str()), (false, down));
    assert_eq!(port.status().cause, Some(DownCause::InterfaceDown));

    ip("link set eth1 up");
    wait_until("no carrier", || port.status().reason.starts_with("interface eth1 has no carrier; "));
    assert_eq!(port.status().cause, Some(DownCause::NoCarrier));
    ip("link set peer up");
    wait_until("up", || port.status().up);

    ip("link set eth1 mtu 1400");
    wait_until("the MTU follows", || port.shared.data.max_len() == 1418);
    assert_eq!(rig.mtu(&port), Some(1400));
    ip("link set eth1 mtu 9000");
    wait_until("not beyond the port's MTU", || port.shared.data.max_len() == 1518);
    assert_eq!(rig.mtu(&port), Some(1500));
    assert_eq!(port.status().device.expect("open").facts.mtu, 9000);

    ip("link set eth1 address 02:00:00:00:00:07");
    wait_until("the address follows", || rig.mac(&port) == Some([2, 0, 0, 0, 0, 7]));

    ip("link set eth1 down");
    wait_until("down", || port.status().reason == down);
    ip("link set eth1 up");
    wait_until("up again", || port.status().up);
    assert_eq!(rig.opener.counts(), (1, 0), "the device stays open");

    // A device that failed while its interface was down is opened anew afterwards, once.
    let changes = port.history().changes;
    ip("link set eth1 down");
    wait_until("down", || port.status().reason == down);
    port.shared.data.report_fault();
    ip("link set eth1 mtu 1300");
    wait_until("a later change is seen", || port.shared.data.max_len() == 1318);
    assert_eq!((port.status().reason.as_str(), rig.opener.counts()), (down, (1, 0)));
    ip("link set eth1 up");
    wait_until("up again", || port.status().up);
    assert_eq!((rig.opener.counts(), port.history().changes), ((2, 1), changes + 2));

    ip("link set eth1 down");
    ip("link set eth1 name eth2");
    wait_until("the new name", || port.status().device.is_some_and(|device| device.facts.interface == "eth2"));
    ip("link set eth2 name eth1");
    ip("link set eth1 up");
    wait_until("up with its old name", || port.status().up);

    rig.opener.fail(OpenCause::Missing, "no interface is called eth1");
    ip("link del eth1");
    wait_until("gone", || port.status().reason == "no interface is called eth1");
    assert_eq!(rig.mac(&port), None);
    assert_eq!(rig.opener.counts(), (2, 2));
    assert!(reasons(&port).iter().any(|reason| reason.starts_with("interface eth1 has gone: ")));

    ip("link add eth1 type veth peer name peer");
    ip("link set eth1 up");
    ip("link set peer up");
    rig.opener.answer.lock().unwrap().ifindex = index("eth1");
    rig.opener.mend();
    wait_until("back", || port.status().up);
    rig.send(0, b"packet");
    assert_eq!(rig.turn(&port, true), [b"packet"]);
}

#[test]
fn only_the_descriptor_tells_that_a_tap_has_gone() {
    let Some(_namespace) = test_namespace::enter("only_the_descriptor_tells_that_a_tap_has_gone") else { return };
    let mut rig = Rig::new();
    ip("link add sl0 type veth peer name peer");
    ip("link set sl0 up");
    ip("link set peer up");
    rig.opener.answer.lock().unwrap().ifindex = index("sl0");
    let request = TapRequest {
        name: "sl0".to_owned(),
        queues: 1,
        mtu: 1500,
        mac: None,
        offloads: TapOffloads { csum: false, tso: false, uso: false },
        persist: false,
        owner: None,
        group: None,
        bridge: None,
    };
    let port = rig.open_request(DeviceRequest::Tap(request), 1).expect("open");
    wait_until("up", || port.status().up);
    assert_eq!(rig.mac(&port), None, "the address of a tap belongs to the host");
    let drops = port.status().device.expect("open").kernel_drops;
    assert_eq!(drops.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["overruns", "rx_dropped", "tx_dropped"]);
    // To the kernel's messages a tap that moves is one that is deleted.
    ip("link del sl0");
    wait_until("the kernel has told", || rig.devices.find("sl0").is_none());
    wait_until("the port has seen it", || port.shared.device().interface.is_none());
    assert!(port.status().up, "the kernel has told that it is down");
    rig.send(0, b"packet");
    assert_eq!(rig.turn(&port, true), [b"packet"]);
    rig.opener.break_device();
    rig.devices.wake_event().wake();
    wait_until("the tap is made again", || rig.opener.counts() == (2, 1) && port.status().up);
}

/// Counts the lines of this thread's log.
#[derive(Clone, Default)]
struct LineCounter(Arc<AtomicUsize>);

impl tracing::Subscriber for LineCounter {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The other end of a veth pair may belong to a container, whose user sets it up and down.
#[test]
fn a_carrier_that_comes_and_goes_does_not_fill_the_log() {
    let rig = Rig::by(Clock::moved());
    let port = rig.open(1).expect("open");
    let lines = LineCounter::default();
    let flap = || {
        let mut device = port.shared.device();
        for round in 0..5000 {
            let has_carrier = round % 2 == 0;
            let name = "eth1".to_owned();
            let interface = Interface { index: 7, name, is_up: true, has_carrier, mtu: 1500, mac: [0; 6] };
            port.shared.show(&mut device, interface);
        }
        lines.0.load(Ordering::Acquire)
    };
    tracing::subscriber::with_default(lines.clone(), || {
        assert_eq!(flap(), 20, "a burst");
        rig.clock.advance(Duration::from_secs(1));
        assert_eq!(flap(), 21, "one line each second");
    });
    assert!(port.shared.log_limit.due().is_some(), "the suppressed lines are reported");
    assert!(port.history().changes >= 9_999, "each change is counted");
}

/// A bug in one port's handling of its interface leaves the others alone.
#[test]
fn a_panic_of_one_port_leaves_the_others_served() {
    let rig = Rig::new();
    let port = rig.open(1).expect("open");
    rig.opener.panics.store(true, Ordering::Release);
    rig.opener.break_device();
    port.shared.data.report_fault();
    wait_until("the bug is shown", || port.status().reason.contains("a bug in the switch"));
    assert!(!port.status().up);
    rig.opener.panics.store(false, Ordering::Release);
    let other = rig.open(1).expect("open");
    wait_until("both ports are up", || port.status().up && other.status().up);
}

/// Operators' questions and the thread that follows interfaces do not wait for each other.
#[test]
fn drop_counts_take_no_lock_of_the_links() {
    let rig = Rig::new();
    rig.devices.with_interfaces_locked(|| {
        let devices = Arc::clone(&rig.devices);
        let asked = std::thread::spawn(move || devices.drop_counts(1).is_some());
        wait_until("the answer", || asked.is_finished());
        assert!(asked.join().expect("no panic"), "the loopback interface has counts");
    });
}
