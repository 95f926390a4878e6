//! The interfaces of this network namespace, as the kernel reports them over netlink.
//!
//! A socket of `NETLINK_ROUTE` receives a message for each change of an interface. If messages are
//! lost because the socket's buffer was full, all interfaces are read anew.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use az::SaturatingAs;
use netlink_packet_core::{
    Emitable, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NlasIterator,
};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{LinkFlags, LinkHeader, Stats64};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, SocketType};
use straightline_graph::Clock;

/// Bytes of the longest message that is read. The kernel sends a few KiB for an interface, and at
/// most 32 KiB for a part of a dump.
const MOST_BYTES: usize = 64 << 10;

/// Time that an answer of the kernel may take. The kernel answers within the call that asks, unless
/// another program holds the lock of its network configuration.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Messages that are read in one go.
const MOST_MESSAGES: usize = 4096;

/// Dumps that are asked for in one go, because interfaces changed meanwhile.
const MOST_DUMPS: usize = 3;

/// The multicast group of changes of interfaces (RTNLGRP_LINK), as a bit.
const LINK_GROUP: u32 = 1 << (libc::RTNLGRP_LINK - 1);

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) name: String,
    /// An administrator has set it up.
    pub(super) is_up: bool,
    pub(super) has_carrier: bool,
    pub(super) mtu: u32,
    pub(super) mac: [u8; 6],
}

/// Packets that the kernel has dropped at an interface. For a tap, `tx` counts packets of the host
/// that the tap's user did not read in time, and `rx` counts packets that its user wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DropCounts {
    pub(super) rx: u64,
    pub(super) tx: u64,
}

/// The interfaces of the namespace in which this was made.
#[derive(Debug)]
pub(super) struct Interfaces {
    socket: Arc<OwnedFd>,
    known: BTreeMap<u32, Interface>,
    /// An interface has changed since the last [`Self::take_changed`].
    has_changed: bool,
    /// The interfaces that a dump under way has named.
    dumped: BTreeSet<u32>,
    /// Messages were lost, so `known` may be wrong.
    is_stale: bool,
    /// The number of the last request.
    sequence: u32,
    buffer: Box<[u8]>,
    clock: Clock,
}

impl Interfaces {
    /// Opens the socket and reads all interfaces.
    pub(super) fn new(clock: Clock) -> io::Result<Self> {
        let mut interfaces = Self::open(LINK_GROUP, clock)?;
        interfaces.dump()?;
        Ok(interfaces)
    }

    /// Opens a socket that is told no changes, for [`Self::drop_counts`] alone.
    pub(super) fn for_questions(clock: Clock) -> io::Result<Self> {
        Self::open(0, clock)
    }

    fn open(groups: u32, clock: Clock) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // No protocol is protocol 0, NETLINK_ROUTE.
        let socket = net::socket_with(net::AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Interfaces {
            socket: Arc::new(socket),
            known: BTreeMap::new(),
            has_changed: false,
            dumped: BTreeSet::new(),
            is_stale: true,
            sequence: 0,
            buffer: vec![0; MOST_BYTES].into(),
            clock,
        })
    }

    /// Returns the socket, which is readable when something has changed.
    pub(super) fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Takes in all changes so far. Returns `false` if the interfaces are not known at the moment.
    pub(super) fn refresh(&mut self) -> bool {
        for _ in 0..MOST_MESSAGES {
            match self.receive() {
                Ok(Some(answers)) => drop(answers),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!("messages about interfaces were lost: {error}");
                    self.is_stale = true;
                }
            }
        }
        if self.is_stale
            && let Err(error) = self.dump()
        {
            tracing::debug!("cannot read the list of interfaces: {error}");
        }
        !self.is_stale
    }

    /// Returns whether an interface has changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Returns the interface of this index.
    pub(super) fn get(&self, index: u32) -> Option<&Interface> {
        self.known.get(&index)
    }

    /// Returns the interface of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Interface> {
        self.known.values().find(|interface| interface.name == name)
    }

    /// Asks the kernel for the drop counts of an interface.
    pub(super) fn drop_counts(&mut self, index: u32) -> io::Result<DropCounts> {
        let sequence = self.ask(index, NLM_F_REQUEST)?;
        let until = self.clock.now() + ANSWER_TIME;
        loop {
            for answer in self.wait(until)? {
                match answer {
                    Answer::Counts(of, counts) if of == sequence => return Ok(counts),
                    Answer::Failed(of, errno) if of == sequence => return Err(errno.into()),
                    _ => {}
                }
            }
        }
    }

    /// Reads all interfaces anew.
    fn dump(&mut self) -> io::Result<()> {
        for _ in 0..MOST_DUMPS {
            match self.dump_once() {
                Ok(true) => {
                    self.is_stale = false;
                    return Ok(());
                }
                Ok(false) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("the interfaces change faster than they can be read"))
    }

    /// Reads all interfaces. Returns `false` if some have changed meanwhile, so that the kernel may
    /// have left one out.
    fn dump_once(&mut self) -> io::Result<bool> {
        self.dumped.clear();
        let sequence = self.ask(0, NLM_F_REQUEST | NLM_F_DUMP)?;
        let until = self.clock.now() + ANSWER_TIME;
        let mut is_whole = true;
        loop {
            for answer in self.wait(until)? {
                match answer {
                    Answer::Interrupted(of) if of == sequence => is_whole = false,
                    Answer::Failed(of, errno) if of == sequence => return Err(errno.into()),
                    Answer::Done(of) if of == sequence => {
                        if is_whole {
                            let before = self.known.len();
                            self.known.retain(|index, _| self.dumped.contains(index));
                            self.has_changed |= self.known.len() != before;
                        }
                        return Ok(is_whole);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Sends a request for one interface, or for all. Returns its number.
    fn ask(&mut self, index: u32, flags: u16) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let request = request(index, flags, self.sequence);
        net::send(&self.socket, &request, SendFlags::empty())?;
        Ok(self.sequence)
    }

    /// Waits for messages, and takes them in.
    fn wait(&mut self, until: Instant) -> io::Result<Vec<Answer>> {
        loop {
            if let Some(answers) = self.receive()? {
                return Ok(answers);
            }
            if until <= self.clock.now() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not answer"));
            }
            // A signal ends the wait too.
            let _ = self.clock.poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(until));
        }
    }

    /// Takes in the messages of one datagram. Returns `None` if there is none.
    fn receive(&mut self) -> io::Result<Option<Vec<Answer>>> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = net::recv(&self.socket, &mut *buffer, RecvFlags::TRUNC);
        let answers = match received {
            Ok((read, whole)) if whole <= read => Ok(Some(self.take_in(&buffer[..read]))),
            Ok((_, whole)) => Err(io::Error::other(format!("a message of {whole} bytes"))),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => Ok(Some(Vec::new())),
            Err(error) => Err(error.into()),
        };
        self.buffer = buffer;
        answers
    }

    /// Takes in messages. Returns those that answer a request.
    fn take_in(&mut self, datagram: &[u8]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for message in Messages(datagram) {
            if message.flags() & NLM_F_DUMP_INTR != 0 {
                answers.push(Answer::Interrupted(message.sequence_number()));
            }
            match libc::c_int::from(message.message_type()) {
                libc::NLMSG_DONE => answers.push(Answer::Done(message.sequence_number())),
                libc::NLMSG_ERROR => {
                    let code = message.payload().first_chunk().map_or(0, |&code| i32::from_ne_bytes(code));
                    // `Errno` has the kernel's range of error numbers only.
                    let errno = match code.saturating_neg() {
                        number @ 1..=4095 => Errno::from_raw_os_error(number),
                        _ => Errno::PROTO,
                    };
                    answers.push(Answer::Failed(message.sequence_number(), errno));
                }
                _ => answers.extend(self.take_in_link(&message)),
            }
        }
        answers
    }

    fn take_in_link(&mut self, message: &NetlinkBuffer<&[u8]>) -> Option<Answer> {
        let payload = message.payload();
        let header = LinkHeader::parse(payload).ok()?;
        // Messages of other families are about a role of the interface, such as "it leaves a
        // bridge".
        if header.interface_family != AddressFamily::Unspec {
            return None;
        }
        match message.message_type() {
            libc::RTM_NEWLINK => {
                let before = self.known.get(&header.index).cloned();
                let interface = self.known.entry(header.index).or_default();
                interface.index = header.index;
                interface.is_up = header.flags.contains(LinkFlags::Up);
                interface.has_carrier = header.flags.contains(LinkFlags::LowerUp);
                let counts = read_attributes(interface, &payload[header.buffer_len()..]);
                self.has_changed |= before.as_ref() != Some(&*interface);
                self.dumped.insert(header.index);
                counts.map(|counts| Answer::Counts(message.sequence_number(), counts))
            }
            libc::RTM_DELLINK => {
                self.has_changed |= self.known.remove(&header.index).is_some();
                self.dumped.remove(&header.index);
                None
            }
            _ => None,
        }
    }
}

/// An answer to a request, with the request's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Counts(u32, DropCounts),
    Interrupted(u32),
    Done(u32),
    Failed(u32, Errno),
}

/// The messages of a datagram, up to the first that is not whole.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = NetlinkBuffer<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let message = NetlinkBuffer::new_checked(self.0).ok()?;
        let length = usize::try_from(message.length()).ok()?;
        let (own, _) = self.0.split_at_checked(length)?;
        // The next message begins at a multiple of 4.
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(NetlinkBuffer::new(own))
    }
}

/// Reads the attributes of an interface. An attribute that is missing leaves the fact as it was.
/// Only these few are read, so that a kernel may send others of any form.
fn read_attributes(interface: &mut Interface, attributes: &[u8]) -> Option<DropCounts> {
    let mut counts = None;
    for attribute in NlasIterator::new(attributes).map_while(Result::ok) {
        let value = attribute.value();
        match attribute.kind() {
            libc::IFLA_IFNAME => {
                let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
                interface.name = String::from_utf8_lossy(name).into_owned();
            }
            libc::IFLA_MTU => {
                interface.mtu = value.first_chunk().map_or(interface.mtu, |&mtu| u32::from_ne_bytes(mtu));
            }
            libc::IFLA_ADDRESS => interface.mac = value.try_into().unwrap_or_default(),
            libc::IFLA_STATS64 => {
                counts =
                    Stats64::parse(value).ok().map(|stats| DropCounts { rx: stats.rx_dropped, tx: stats.tx_dropped });
            }
            _ => {}
        }
    }
    counts
}

/// Returns a request (RTM_GETLINK) for an interface, or for all.
fn request(index: u32, flags: u16, sequence: u32) -> Vec<u8> {
    let link = LinkHeader { index, ..LinkHeader::default() };
    let mut header = NetlinkHeader::default();
    let length = header.buffer_len() + link.buffer_len();
    header.length = length.saturating_as::<u32>();
    (header.message_type, header.flags, header.sequence_number) = (libc::RTM_GETLINK, flags, sequence);
    let mut bytes = vec![0; length];
    let (front, back) = bytes.split_at_mut(header.buffer_len());
    header.emit(front);
    link.emit(back);
    bytes
}

#[cfg(test)]
mod tests;
