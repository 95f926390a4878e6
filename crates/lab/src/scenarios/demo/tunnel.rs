//! Two embedded guests on two underlays, joined by a tunnel. A third one is the wire between the
//! underlays.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use straightline_graph::clock::cycles;
use straightline_guest::endpoints::{Endpoint, PortOptions, VhostPort};
use straightline_guest::guest_mac;
use straightline_guest::{Guest, GuestOptions, Sequence};
use straightline_packet::{Level, MemorySegment};
use straightline_switch::Switch;
use straightline_switch::api::Source;
use straightline_virtio::net_header::NetHeader;
use straightline_wire::MacAddr;
use straightline_wire::frame::{Checksum, Frame, Net, Transport};
use tempfile::TempDir;

use super::guests::{self, Guests};
use super::{BURST, Ends};
use crate::guests::forward::Wire;
use crate::testbed::drops;
use crate::testbed::tunnel::{Encapsulation, Sockets, Testbed};

/// Time limit for packets to get through at the start, and the interval of attempts.
const PATIENCE: Duration = Duration::from_secs(10);
const ATTEMPT: Duration = Duration::from_millis(20);

/// Two guests, with the wire that carries their tunnel.
pub(super) struct Tunnelled {
    guests: Guests,
    wire: Wire,
    title: String,
}

/// Starts a switch with a tunnel between two guests. Its sockets are in the folder.
pub(super) fn start(encapsulation: Encapsulation) -> anyhow::Result<(TempDir, Switch, Tunnelled)> {
    let folder = guests::folder()?;
    let sockets = Sockets::new(folder.path());
    let testbed = Testbed { encapsulation: Some(encapsulation), ipv4: false, many: None };
    let switch = Switch::start(&testbed.config(&sockets)?)?;
    let mut wire = Wire::new(VhostPort::connect_all(&sockets.wire, &PortOptions::default())?, None)?;
    let connect = |socket| Guest::connect(socket, &GuestOptions::default());
    let mut guests = [connect(&sockets.guests[0])?, connect(&sockets.guests[1])?];
    reach(&mut guests, &mut wire, &*switch.source())?;
    let title = format!(
        "two guests, joined by a tunnel ({encapsulation} between {} and {})",
        testbed.address(0),
        testbed.address(1)
    );
    Ok((folder, switch, Tunnelled { guests: Guests::new(guests)?, wire, title }))
}

/// Waits until packets get through in both directions: the underlays ask one another for their MAC
/// addresses first. Then a last probe follows all others, so none is under way at the end.
fn reach(guests: &mut [Guest; 2], wire: &mut Wire, source: &dyn Source) -> anyhow::Result<()> {
    let (start, mut reached) = (Instant::now(), [None::<Probe>; 2]);
    let (mut attempted, mut is_last_sent) = (None::<Instant>, false);
    while reached != [Some(Probe::Last); 2] {
        ensure!(start.elapsed() < PATIENCE, "no packet gets through the tunnel; dropped: {}", drops(source));
        let next = if is_last_sent {
            None
        } else if !reached.contains(&None) {
            Some(Probe::Last)
        } else {
            attempted.is_none_or(|attempted| attempted.elapsed() >= ATTEMPT).then_some(Probe::Early)
        };
        if let Some(probe) = next {
            (attempted, is_last_sent) = (Some(Instant::now()), probe == Probe::Last);
            for (from, guest) in (1..).zip(&mut *guests) {
                ensure!(guest.send(&NetHeader::default(), &probe.frame(from)?), "a guest cannot send a probe");
            }
        }
        if wire.turn(cycles())? == 0 {
            wire.wake();
        }
        for (guest, reached) in guests.iter_mut().zip(&mut reached) {
            guest.flush();
            let level = guest.level();
            guest.receive(BURST, |_, parts| *reached = (*reached).max(Probe::of(level, parts)));
        }
    }
    Ok(())
}

/// A packet that shows whether packets get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Probe {
    /// Further probes may follow.
    Early,
    /// No further probe follows.
    Last,
}

/// The source ports of the two kinds of probe. Packets of the traffic have another one.
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

impl Ends for Tunnelled {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn window(&self) -> u64 {
        self.guests.window()
    }

    fn send(&mut self, direction: usize, most: usize) -> anyhow::Result<usize> {
        self.guests.send(direction, most)
    }

    fn receive(&mut self, direction: usize, arrived: &mut Sequence) -> anyhow::Result<()> {
        if self.wire.turn(cycles())? == 0 {
            self.wire.wake();
        }
        self.guests.receive(direction, arrived)
    }
}
