//! An underlay for tests, and packets for it.

use std::net::IpAddr;
use std::sync::Arc;

use straightline_graph::{Null, Port};
use straightline_packet::{Arena, Batch, Drops, HEAD, Offload, PacketId, PortIndex, Rcu, Settings, Turn};
use straightline_wire::MacAddr;

use crate::answer::Answered;
use crate::{Address, Agent, Underlay, UnderlayConfig};

/// The underlay's port.
pub(crate) const PORT: PortIndex = PortIndex(0);
/// The underlay's MAC address.
pub(crate) const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xaa]);

/// Returns the address in this text.
pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Returns the settings of an underlay with the addresses 192.0.2.1/24 and 2001:db8::1/64, and with
/// gateways.
pub(crate) fn config() -> UnderlayConfig {
    let addresses = [("192.0.2.1", 24), ("2001:db8::1", 64)].map(|(own, prefix)| Address { ip: ip(own), prefix });
    UnderlayConfig {
        gateways: vec![ip("192.0.2.254"), ip("2001:db8::fe")],
        mac: Some(MAC),
        ..UnderlayConfig::new("wan", addresses.to_vec())
    }
}

/// An underlay with its agent, as one worker serves it. It passes frames as plain bytes.
pub(crate) struct Station {
    pub(crate) underlay: Arc<Underlay>,
    pub(crate) drops: Arc<Drops>,
    agent: Arc<Agent>,
    arena: Arena,
}

impl Station {
    pub(crate) fn new(config: UnderlayConfig) -> Self {
        Self::on(config, Arc::new(Null::new("nic")))
    }

    /// Returns an underlay on this port.
    pub(crate) fn on(config: UnderlayConfig, port: Arc<dyn Port>) -> Self {
        let underlay = Underlay::new(config, PORT);
        let drops = Arc::<Drops>::default();
        let arena = Arena::new(Rcu::new().reader(), Settings::default(), vec![Arc::clone(&drops)]);
        Station { agent: underlay.agent(port), underlay, drops, arena }
    }

    /// Runs a turn at this time, in seconds. Returns the packets of the underlay's own.
    pub(crate) fn turn(&mut self, now: u32) -> Vec<Vec<u8>> {
        self.arena.set_now(now);
        self.arena.turn(|turn| {
            let mut batch = Batch::new();
            self.agent.receive(turn, &mut batch, 64);
            batch.ids().iter().map(|&id| turn.head(id).to_vec()).collect()
        })
    }

    /// Runs a turn at this time. Returns the ports of the packets of the underlay's own.
    pub(crate) fn turn_ports(&mut self, now: u32) -> Vec<PortIndex> {
        self.arena.set_now(now);
        self.arena.turn(|turn| {
            let mut batch = Batch::new();
            self.agent.receive(turn, &mut batch, 64);
            batch.ids().iter().map(|&id| turn.packets().port(id)).collect()
        })
    }

    /// Receives a frame. Returns its end, and the answer if it is one.
    pub(crate) fn receive(&mut self, frame: &[u8]) -> (Answered, Vec<u8>) {
        self.receive_with(frame, Offload::default())
    }

    /// Receives a frame whose sender has left this to be done.
    pub(crate) fn receive_with(&mut self, frame: &[u8], offload: Offload) -> (Answered, Vec<u8>) {
        self.arena.turn(|turn| {
            let id = accept(turn, frame);
            turn.set_offload(id, offload);
            let answered = self.underlay.answer(turn.packets(), id);
            assert_eq!(turn.body_len(id), 0);
            (answered, turn.head(id).to_vec())
        })
    }

    /// Receives a frame that must be answered. Returns the answer.
    pub(crate) fn answer_to(&mut self, frame: &[u8]) -> Vec<u8> {
        let (answered, answer) = self.receive(frame);
        assert_eq!(answered, Answered::Reply);
        answer
    }
}

/// Makes a packet of a frame that may be longer than a head.
fn accept(turn: &mut Turn<'_>, frame: &[u8]) -> PacketId {
    let (front, rest) = frame.split_at(frame.len().saturating_sub(HEAD));
    let id = turn.accept_owned(PORT, rest).expect("a free slot");
    turn.prepend(id, front).expect("enough headroom");
    id
}
