//! The observer that copies a worker's packets into a ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use az::SaturatingAs;
use straightline_graph::clock::cycles;
use straightline_packet::{MAX_BATCH, Observer, PacketId, PortIndex, Reason, Turn};

use crate::Filter;
use crate::record::{Packet, Place};
use crate::ring::{Reader, Writer, ring};

/// The most ports that a switch has, so that the table of a capture never grows.
const MAX_PORTS: usize = 1 << 14;

/// The packets that a capture is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Packets that the ports receive.
    pub received: bool,
    /// Packets that the ports deliver.
    pub delivered: bool,
    /// Packets that were dropped, and that the ports count.
    pub dropped: Dropped,
    /// The packets among these; all without a filter.
    pub filter: Option<Filter>,
    /// The most bytes of a packet that are kept.
    pub snaplen: u32,
}

/// The dropped packets that a capture is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// None of them.
    No,
    /// All of them.
    Any,
    /// Those that were dropped for this reason.
    For(Reason),
}

/// The interface of each port in a capture. Control changes it while workers read it.
#[derive(Debug)]
pub struct PortTable(Box<[AtomicU16]>);

impl Default for PortTable {
    fn default() -> Self {
        PortTable((0..MAX_PORTS).map(|_| AtomicU16::new(0)).collect())
    }
}

impl PortTable {
    /// Sets the interfaces of these ports. All other ports are not captured.
    pub fn set(&self, ports: impl IntoIterator<Item = (PortIndex, u16)>) {
        let mut interfaces = vec![0; MAX_PORTS];
        for (port, interface) in ports {
            if let Some(entry) = interfaces.get_mut(port.index()) {
                *entry = interface.saturating_add(1);
            }
        }
        for (entry, interface) in self.0.iter().zip(interfaces) {
            entry.store(interface, Ordering::Relaxed);
        }
    }

    /// Returns the interface of a port, if the capture has it.
    #[inline]
    pub(crate) fn get(&self, port: PortIndex) -> Option<u16> {
        self.0.get(port.index())?.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Copies the packets of one worker into a ring.
pub struct CaptureObserver {
    selection: Arc<Selection>,
    ports: Arc<PortTable>,
    writer: Writer,
}

impl std::fmt::Debug for CaptureObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureObserver").field("selection", &self.selection).finish_non_exhaustive()
    }
}

impl CaptureObserver {
    /// Creates the observer of one worker for so many interfaces, and the reader of its ring.
    pub fn new(selection: Arc<Selection>, ports: Arc<PortTable>, interfaces: usize) -> (Self, Reader) {
        let (writer, reader) = ring(interfaces);
        (CaptureObserver { selection, ports, writer }, reader)
    }

    /// Copies those packets that the filter selects.
    fn take(&mut self, turn: &Turn<'_>, interface: u16, place: Place, ids: &[PacketId]) {
        let time = cycles();
        for &id in ids {
            let len = turn.len(id);
            if self.selection.filter.as_ref().is_some_and(|filter| !filter.selects(turn.head(id), len)) {
                continue;
            }
            let captured = len.min(self.selection.snaplen).saturating_as::<usize>();
            const { assert!(MAX_BATCH <= 256) };
            let index = id.index().saturating_as::<u8>();
            let packet = Packet { interface, place, time, len, bytes: &[] };
            self.writer.push(&packet, index, captured, |space| turn.copy_out(id, space));
        }
    }
}

impl Observer for CaptureObserver {
    fn received(&mut self, turn: &Turn<'_>, port: PortIndex, ids: &[PacketId]) {
        if self.selection.received
            && let Some(interface) = self.ports.get(port)
        {
            self.take(turn, interface, Place::Received, ids);
        }
    }

    fn delivered(&mut self, turn: &Turn<'_>, port: PortIndex, ids: &[PacketId]) {
        if self.selection.delivered
            && let Some(interface) = self.ports.get(port)
        {
            self.take(turn, interface, Place::Delivered, ids);
        }
    }

    fn dropped(&mut self, turn: &Turn<'_>, port: PortIndex, id: PacketId, reason: Reason) {
        let is_selected = match self.selection.dropped {
            Dropped::No => false,
            Dropped::Any => true,
            Dropped::For(wanted) => reason == wanted,
        };
        if is_selected && let Some(interface) = self.ports.get(port) {
            let place = Place::Dropped { reason: reason as u8, on_way_in: turn.port(id) == port };
            self.take(turn, interface, place, &[id]);
        }
    }

    fn turn_ended(&mut self, turn: &Turn<'_>) {
        self.writer.end_turn(|| turn.departs());
    }
}
