//! Fuzz target: packets that the kernel gives a tap port, each with its virtio-net header. The port
//! passes them to two other taps: one takes all offloads, the other takes none.
//!
//! A socket pair stands for the kernel: like a tap, it keeps the borders of packets.
//!
//! Invariants:
//! - Each packet is accepted or dropped with a reason.
//! - A tap that takes no offload gets no header that asks for work, and no packet longer than its
//!   MTU allows.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use crate::reached;
use arbitrary::{Result, Unstructured};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use straightline_graph::{DeviceFacts, EpollWaiter, PortControl};
use straightline_packet::{Arena, Batch, Drops, PortIndex, Rcu, Settings};
use straightline_port::device::{
    DevicePort, DevicePortConfig, DeviceRequest, Devices, OpenError, OpenedDevice, Opener, TapOffloads, TapRequest,
};

/// Bytes of the longest packet of a port with an MTU of 1500.
const LONGEST: usize = 1518;
/// Bytes of the virtio-net header.
const HEADER: usize = 12;
/// Packets of one input.
const MOST: usize = 16;
/// Turns after which a port that found nothing has looked again.
const TURNS: usize = 40;

#[derive(Debug)]
struct SocketOpener {
    socket: Mutex<Option<OwnedFd>>,
    features: u64,
}

impl Opener for SocketOpener {
    fn open(&self, _: &DeviceRequest) -> std::result::Result<OpenedDevice, OpenError> {
        let fds = self.socket.lock().expect("no panic").take().into_iter().collect();
        // The loopback interface always exists.
        let facts = DeviceFacts { ifindex: 1, queues: 1, features: self.features, ..DeviceFacts::default() };
        Ok(OpenedDevice { facts, fds })
    }

    fn close(&self, _: &DeviceRequest) {}
}

/// A tap port, and the other end of its socket.
struct Tap {
    port: DevicePort,
    kernel: OwnedFd,
    drops: Arc<Drops>,
}

impl Tap {
    fn new(index: u16, features: u64, rcu: &Rcu) -> Self {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, kernel) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
        let request = DeviceRequest::Tap(TapRequest {
            name: "sl0".to_owned(),
            queues: 1,
            mtu: 1500,
            mac: None,
            offloads: TapOffloads { csum: true, tso: true, uso: true },
            persist: false,
            owner: None,
            group: None,
            bridge: None,
        });
        let opener = SocketOpener { socket: Mutex::new(Some(ours)), features };
        let devices = Devices::new(Arc::new(opener)).expect("devices");
        let drops = Arc::<Drops>::default();
        let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
        let config = DevicePortConfig { name: "p".to_owned(), request, mtu: 1500, queues: 1 };
        let port = DevicePort::open(config, PortIndex(index), Arc::clone(&drops), rcu, waiter, &devices);
        Tap { port: port.expect("a port"), kernel, drops }
    }

    /// Passes each packet that waits at the kernel's end to `check`.
    fn sent(&self, mut check: impl FnMut(&[u8])) {
        let mut buffer = vec![0; 1 << 17];
        while let Ok((n, _)) = recv(&self.kernel, &mut buffer[..], RecvFlags::empty()) {
            check(&buffer[..n]);
        }
    }
}

struct Rig {
    arena: Arena,
    input: Tap,
    outputs: [Tap; 2],
}

impl Rig {
    fn new() -> Self {
        let rcu = Rcu::new();
        let input = Tap::new(0, u64::MAX, &rcu);
        let outputs = [Tap::new(1, u64::MAX, &rcu), Tap::new(2, 0, &rcu)];
        let drops = [&input, &outputs[0], &outputs[1]].map(|tap| Arc::clone(&tap.drops));
        Rig { arena: Arena::new(rcu.reader(), Settings::default(), drops.to_vec()), input, outputs }
    }
}

thread_local!(static RIG: RefCell<Rig> = RefCell::new(Rig::new()));

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    let _ = RIG.with_borrow_mut(|rig| run(rig, &mut Unstructured::new(data)));
}

fn run(rig: &mut Rig, u: &mut Unstructured<'_>) -> Result<()> {
    let mut packets = Vec::new();
    while !u.is_empty() && packets.len() < MOST {
        let len = u.int_in_range(0..=400_usize)?;
        let stretch = u.int_in_range(1..=160_usize)?;
        let bytes = u.bytes(len.min(u.len()))?;
        // The body is long and made of few bytes: the headers matter.
        let body = bytes.iter().rev().copied().cycle().take(bytes.len() * (stretch - 1));
        packets.push(bytes.iter().copied().chain(body).collect::<Vec<u8>>());
    }
    let Rig { arena, input, outputs } = rig;
    let from = input.port.for_worker(0);
    let to = outputs.each_ref().map(|tap| tap.port.for_worker(0));
    let before = input.drops.total();
    let mut accepted = 0;
    for packet in packets.iter().filter(|packet| !packet.is_empty()) {
        send(&input.kernel, packet, SendFlags::empty()).expect("space in the socket");
        let is_done = |accepted| accepted + input.drops.total() - before;
        let expected = is_done(accepted) + 1;
        for _ in 0..TURNS {
            arena.turn(|turn| {
                let mut batch = Batch::new();
                from.receive(turn, &mut batch, 64);
                for &id in batch.ids() {
                    accepted += 1;
                    assert!(packet[HEADER..].starts_with(turn.head(id)), "the head is what came");
                    if turn.offload(id).gso.is_some() {
                        reached("a large packet");
                    } else {
                        reached("a packet");
                    }
                }
                to.iter().for_each(|output| output.deliver(turn, &batch, false));
            });
            if is_done(accepted) == expected {
                break;
            }
        }
        assert_eq!(is_done(accepted), expected, "each packet is accepted or dropped");
        outputs[0].sent(|sent| assert_eq!(sent.len(), packet.len(), "the packet goes on as it came"));
        outputs[1].sent(|sent| {
            assert!(sent[..HEADER].iter().all(|&byte| byte == 0), "nothing is left to do: {:?}", &sent[..HEADER]);
            assert!(sent.len() - HEADER <= LONGEST);
            if sent.len() != packet.len() {
                reached("a segment");
            }
        });
    }
    if input.drops.total() > before {
        reached("a packet that is refused");
    }
    Ok(())
}
