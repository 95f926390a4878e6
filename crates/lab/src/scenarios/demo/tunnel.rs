//! Two embedded guests on two underlays, joined by a tunnel. A third one is the wire between the
//! underlays.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use straightline_graph::clock::seconds;
use straightline_guest::endpoints::{Endpoint, EventLoop, LoopEnd, PortOptions, VhostPort};
use straightline_guest::guest_mac;
use straightline_guest::{Guest, GuestOptions};
use straightline_packet::{Level, MemorySegment};
use straightline_switch::Switch;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use tempfile::TempDir;

use super::BURST;
use super::guests::{self, Guests};
use crate::guests::forward::Wire;
use crate::testbed::drops;
use crate::testbed::tunnel::{Encapsulation, Sockets, Testbed};

/// Time limit for packets to get through at the start, and the interval of attempts.
const PATIENCE: Duration = Duration::from_secs(10);
const ATTEMPT: Duration = Duration::from_millis(20);

/// Starts a switch with a tunnel between two guests, and the wire that carries the tunnel. The
/// switch's sockets are in the folder.
pub(super) fn start(encapsulation: Encapsulation) -> anyhow::Result<(TempDir, Switch, Guests, Wire)> {
    let folder = guests::folder()?;
    let sockets = Sockets::new(folder.path());
    let testbed = Testbed { encapsulation: Some(encapsulation), ipv4: false, many: None };
    let switch = Switch::start(&testbed.config(&sockets)?)?;
    let mut wire = Wire::new(VhostPort::connect_all(&sockets.wire, &PortOptions::default())?, None)?;
    let connect = |socket| Guest::connect(socket, &GuestOptions::default());
    let mut reach = Reach {
        guests: [connect(&sockets.guests[0])?, connect(&sockets.guests[1])?],
        reached: [None; 2],
        attempted: None,
        is_last_sent: false,
    };
    let events = EventLoop { deadline: Some(Instant::now() + PATIENCE), ..EventLoop::default() };
    let ended = events.run::<dyn Endpoint>(&mut [&mut reach, &mut wire]).1?;
    ensure!(
        ended == LoopEnd::Over,
        "no packet gets through the tunnel within {} s; dropped: {}",
        PATIENCE.as_secs(),
        drops(&*switch.source())
    );
    let [one, other] = [0, 1].map(|at| testbed.address(at));
    let title = format!("two guests, joined by a tunnel ({encapsulation} between {one} and {other})");
    Ok((folder, switch, Guests::new(reach.guests, title)?, wire))
}

/// Sends probes until they get through in both directions: the underlays ask one another for their
/// MAC addresses first. Then a last probe follows all others, so none is under way at the end.
struct Reach {
    guests: [Guest; 2],
    reached: [Option<Probe>; 2],
    /// The time-stamp counter at the last attempt.
    attempted: Option<u64>,
    is_last_sent: bool,
}

impl Reach {
    /// Returns the probe that is due.
    fn due(&self, now: u64) -> Option<Probe> {
        if self.is_last_sent {
            None
        } else if !self.reached.contains(&None) {
            Some(Probe::Last)
        } else {
            let is_due = |attempted: u64| seconds(now.saturating_sub(attempted)) >= ATTEMPT.as_secs_f64();
            self.attempted.is_none_or(is_due).then_some(Probe::Early)
        }
    }
}

impl Endpoint for Reach {
    fn turn(&mut self, now: u64) -> anyhow::Result<usize> {
        if let Some(probe) = self.due(now) {
            (self.attempted, self.is_last_sent) = (Some(now), probe == Probe::Last);
            for (from, guest) in (1..).zip(&mut self.guests) {
                ensure!(guest.send(&NetHeader::default(), &probe.frame(from)?), "a guest cannot send a probe");
            }
        }
        let mut packets = 0;
        for (guest, reached) in self.guests.iter_mut().zip(&mut self.reached) {
            guest.flush();
            let level = guest.level();
            packets += guest.receive(BURST, |_, parts| *reached = (*reached).max(Probe::of(level, parts)));
        }
        Ok(packets)
    }

    fn is_over(&self) -> bool {
        self.reached == [Some(Probe::Last); 2]
    }
}

/// A packet that shows whether packets get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Probe {
    /// Further probes may follow.
    Early,
    /// No further probe follows.
    Last,
}

/// The source ports of the two kinds of probe. Other packets have another source port.
const EARLY: u16 = 3001;
const LAST: u16 = 3002;

/// The offset of the source port in a frame.
const SRC_PORT: u32 = 14 + 20;

impl Probe {
    /// Returns a short frame from guest 1 or 2 to the other one.
    fn frame(self, from: u8) -> anyhow::Result<Vec<u8>> {
        let [src, dst]: [MacAddr; 2] = [from, 3 - from].map(|guest| guest_mac(guest, 0));
        let [from_ip, to_ip] = [from, 3 - from].map(|guest| [10, 0, 0, guest].into());
        let net = Net::v4(from_ip, to_ip);
        let src_port = if self == Probe::Last { LAST } else { EARLY };
        let transport = Transport::Udp { src_port, dst_port: 2000 };
        let frame = Frame { src, dst, tags: [None, None], net, transport, payload_len: 18 };
        let mut bytes = vec![0; 60];
        frame.emit(&mut bytes, Checksum::Zero).context("a probe of 60 bytes")?;
        Ok(bytes)
    }

    /// Returns the probe in a received packet.
    fn of(level: Level, parts: &[MemorySegment<'_>]) -> Option<Probe> {
        let mut port = [0; 2];
        let read = parts.first().map(|first| first.split_at(SRC_PORT).1.read(level, &mut port));
        match u16::from_be_bytes(port) {
            EARLY if read == Some(port.len()) => Some(Probe::Early),
            LAST if read == Some(port.len()) => Some(Probe::Last),
            _ => None,
        }
    }
}
