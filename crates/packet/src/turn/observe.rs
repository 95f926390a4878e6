//! Observers of a worker's packets, for captures and traces.
//!
//! An observer sees packets where they come in, where they leave, and where they are dropped. It
//! also sees which steps of the graph they pass. It changes nothing. A worker without observers
//! pays one predictable branch for each batch, and one for each dropped or segmented packet.
//!
//! ```text
//! a port or node        notes packets                (Packets::note_...)
//! the graph, an output  passes the notes on          (Turn::observe_...)
//! the end of the turn   says which packets went back to their ring
//! ```
//!
//! Notes are passed on while the packets are as the port or node has left them. A node that only
//! has [`Packets`] cannot reach an observer, so it notes.

use std::fmt;

use super::{Disposition, Packets, Step, Turn};
use crate::{Batch, MAX_BATCH, PacketId, PortIndex, Reason};

/// Notes that fit between two calls of [`Turn::observe_notes`]. A batch of packets may be received
/// by a tunnel and dropped by it. An output may segment each packet, and drop it.
const MAX_NOTES: usize = 4 * MAX_BATCH;

/// An observer of a worker's packets. The worker calls it within turns, so it must not block,
/// allocate or make system calls.
pub trait Observer: Send {
    /// A port has received these packets. No node has seen them yet.
    ///
    /// Packets that stay in their source's ring (`full = "wait"`) come again in a later turn. See
    /// [`Self::turn_ended`].
    fn received(&mut self, turn: &Turn<'_>, port: PortIndex, ids: &[PacketId]);

    /// A port has delivered these packets to its peer.
    fn delivered(&mut self, turn: &Turn<'_>, port: PortIndex, ids: &[PacketId]);

    /// A packet was dropped, and `port` counts it.
    fn dropped(&mut self, turn: &Turn<'_>, port: PortIndex, id: PacketId, reason: Reason);

    /// A port has segmented a packet, and has delivered so many segments of it. It is told after
    /// the packet's delivery.
    fn segmented(&mut self, _turn: &Turn<'_>, _port: PortIndex, _id: PacketId, _segments: u32) {}

    /// A rule has decided about a packet: the rule of this index of a generation of the port's rules.
    fn decided(&mut self, _turn: &Turn<'_>, _port: PortIndex, _id: PacketId, _decision: Decision) {}

    /// A step of the graph has run for these packets. All calls about its other events came before.
    /// An input's packets are those that it received.
    fn passed(&mut self, _turn: &Turn<'_>, _step: &Step<'_>, _ids: &[PacketId]) {}

    /// The turn is over, or had no packets at all. Bodies are not to be read any more.
    /// [`Turn::departs`] tells which packets went back to their source's ring: for them, nothing
    /// has happened.
    fn turn_ended(&mut self, turn: &Turn<'_>);
}

/// The rule that has decided about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Generation of the rules.
    pub generation: u32,
    /// Index of the rule.
    pub rule: u32,
}

/// The identity of an observer, for its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserverId(pub u64);

/// The observers of one worker, and the notes that they do not know yet.
pub(super) struct Observers {
    list: Vec<(ObserverId, Box<dyn Observer>)>,
    notes: Vec<Note>,
}

/// An event of a packet that observers do not know yet.
#[derive(Clone, Copy)]
struct Note {
    port: PortIndex,
    id: PacketId,
    event: Event,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Received,
    Delivered,
    Dropped(Reason),
    Segmented(u32),
    Decided(Decision),
}

/// The number of notes at a moment, for [`Packets::forget_notes`].
#[derive(Clone, Copy, Debug)]
pub struct NoteMark(usize);

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers").field("list", &self.list.len()).finish_non_exhaustive()
    }
}

/// Adds an observer to the list, which exists only while there are observers.
pub(super) fn add(observers: &mut Option<Box<Observers>>, id: ObserverId, observer: Box<dyn Observer>) {
    let new = || Box::new(Observers { list: Vec::new(), notes: Vec::with_capacity(MAX_NOTES) });
    observers.get_or_insert_with(new).list.push((id, observer));
}

/// Removes an observer from the list, and the list with its last observer.
pub(super) fn remove(observers: &mut Option<Box<Observers>>, id: ObserverId) -> Option<Box<dyn Observer>> {
    let list = &mut observers.as_mut()?.list;
    let at = list.iter().position(|(known, _)| *known == id)?;
    let (_, observer) = list.swap_remove(at);
    if list.is_empty() {
        *observers = None;
    }
    Some(observer)
}

/// Notes of ports and nodes.
impl Packets<'_> {
    /// Returns whether the worker has observers.
    #[inline]
    pub fn is_observed(&self) -> bool {
        self.observers.is_some()
    }

    /// Notes packets that a node has received for a port, such as a tunnel.
    #[inline]
    pub fn note_received(&mut self, port: PortIndex, ids: &[PacketId]) {
        if self.is_observed() {
            ids.iter().for_each(|&id| self.note(Note { port, id, event: Event::Received }));
        }
    }

    /// Notes packets that a node has delivered for a port, such as a tunnel.
    #[inline]
    pub fn note_delivered(&mut self, port: PortIndex, ids: &[PacketId]) {
        if self.is_observed() {
            ids.iter().for_each(|&id| self.note(Note { port, id, event: Event::Delivered }));
        }
    }

    /// Notes packets that were dropped and are counted for this port.
    #[inline]
    pub(crate) fn note_dropped(&mut self, port: PortIndex, ids: &[PacketId], reason: Reason) {
        if self.is_observed() {
            ids.iter().for_each(|&id| self.note(Note { port, id, event: Event::Dropped(reason) }));
        }
    }

    /// Notes that a rule of a port has decided about a packet.
    #[inline]
    pub fn note_decision(&mut self, port: PortIndex, id: PacketId, decision: Decision) {
        if self.is_observed() {
            self.note(Note { port, id, event: Event::Decided(decision) });
        }
    }

    /// Notes that a port has delivered so many segments of a packet.
    #[inline]
    pub fn note_segmented(&mut self, port: PortIndex, id: PacketId, segments: u32) {
        if self.is_observed() && segments > 0 {
            self.note(Note { port, id, event: Event::Segmented(segments) });
        }
    }

    #[cold]
    fn note(&mut self, note: Note) {
        if let Some(observers) = &mut self.observers {
            debug_assert!(observers.notes.len() < MAX_NOTES, "a step of the graph has more notes than packets");
            if observers.notes.len() < MAX_NOTES {
                observers.notes.push(note);
            }
        }
    }

    /// Returns the present number of notes. A delivery that may have to be done again takes it
    /// before.
    #[inline]
    pub fn note_mark(&self) -> NoteMark {
        NoteMark(self.observers.as_ref().map_or(0, |observers| observers.notes.len()))
    }

    /// Forgets the notes since `mark`, because a delivery is done again.
    #[inline]
    pub fn forget_notes(&mut self, mark: NoteMark) {
        if let Some(observers) = &mut self.observers {
            observers.notes.truncate(mark.0);
        }
    }
}

/// Calls of observers.
impl Turn<'_> {
    /// Tells observers that a port has received packets, and what was noted meanwhile.
    #[cold]
    pub fn observe_received(&mut self, port: Option<PortIndex>, ids: &[PacketId]) {
        if let Some(port) = port.filter(|_| !ids.is_empty()) {
            self.tell(|observer, turn| observer.received(turn, port, ids));
        }
        self.observe_notes();
    }

    /// Tells observers that a port has dealt with packets, and what was noted meanwhile. A packet
    /// is delivered if no drop of it was noted, and it is not left in its source's ring.
    #[cold]
    pub fn observe_delivery(&mut self, port: Option<PortIndex>, ids: &[PacketId]) {
        if let Some(port) = port {
            let mut refused = [false; MAX_BATCH];
            let notes = self.observers.as_ref().map_or(&[][..], |observers| &observers.notes);
            for note in notes.iter().filter(|note| matches!(note.event, Event::Dropped(_))) {
                refused[note.id.index()] = true;
            }
            let is_left = |id: PacketId| self.slots[id.index()].disposition == Disposition::Left;
            let mut delivered = Batch::new();
            ids.iter().filter(|id| !refused[id.index()] && !is_left(**id)).for_each(|&id| delivered.push(id));
            if !delivered.is_empty() {
                self.tell(|observer, turn| observer.delivered(turn, port, delivered.ids()));
            }
        }
        self.observe_notes();
    }

    /// Tells observers what was noted.
    #[cold]
    pub fn observe_notes(&mut self) {
        let Some(observers) = &mut self.observers else { return };
        if observers.notes.is_empty() {
            return;
        }
        let notes = std::mem::take(&mut observers.notes);
        for run in notes.chunk_by(|a, b| a.port == b.port && a.event == b.event) {
            let Note { port, event, .. } = run[0];
            for run in run.chunks(MAX_BATCH) {
                let mut batch = Batch::new();
                run.iter().for_each(|note| batch.push(note.id));
                self.tell(|observer, turn| match event {
                    Event::Received => observer.received(turn, port, batch.ids()),
                    Event::Delivered => observer.delivered(turn, port, batch.ids()),
                    Event::Dropped(reason) => {
                        batch.ids().iter().for_each(|&id| observer.dropped(turn, port, id, reason));
                    }
                    Event::Segmented(segments) => {
                        batch.ids().iter().for_each(|&id| observer.segmented(turn, port, id, segments));
                    }
                    Event::Decided(decision) => {
                        batch.ids().iter().for_each(|&id| observer.decided(turn, port, id, decision));
                    }
                });
            }
        }
        if let Some(observers) = &mut self.observers {
            observers.notes = notes;
            observers.notes.clear();
        }
    }

    /// Tells observers that the turn is over.
    #[cold]
    pub(super) fn observe_end(&mut self) {
        self.observe_notes();
        self.tell(|observer, turn| observer.turn_ended(turn));
    }

    /// Calls each observer. It sees the turn, so it is no part of the turn meanwhile.
    pub(super) fn tell(&mut self, mut call: impl FnMut(&mut dyn Observer, &Turn<'_>)) {
        let Some(mut observers) = self.observers.take() else { return };
        observers.list.iter_mut().for_each(|(_, observer)| call(&mut **observer, self));
        self.observers = Some(observers);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{Arena, Rcu, Settings, StepKind};

    /// Records what it is told, with the first byte of each packet.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl Recorder {
        fn add(&self, event: &str, turn: &Turn<'_>, port: PortIndex, ids: &[PacketId]) {
            let firsts: Vec<_> = ids.iter().map(|&id| turn.head(id)[0]).collect();
            self.0.lock().unwrap().push(format!("{event} {} {firsts:?}", port.0));
        }

        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Observer for Recorder {
        fn received(&mut self, turn: &Turn<'_>, port: PortIndex, ids: &[PacketId]) {
            self.add("received", turn, port, ids);
        }

        fn delivered(&mut self, turn: &Turn<'_>, port: PortIndex, ids: &[PacketId]) {
            self.add("delivered", turn, port, ids);
        }

        fn dropped(&mut self, turn: &Turn<'_>, port: PortIndex, id: PacketId, reason: Reason) {
            self.add(reason.name(), turn, port, &[id]);
        }

        fn segmented(&mut self, turn: &Turn<'_>, port: PortIndex, id: PacketId, segments: u32) {
            self.add(&format!("segmented {segments}"), turn, port, &[id]);
        }

        fn passed(&mut self, turn: &Turn<'_>, step: &Step<'_>, ids: &[PacketId]) {
            let ways: Vec<_> = ids.iter().map(|&id| (turn.head(id)[0], (step.ways)(id))).collect();
            self.0.lock().unwrap().push(format!("{step:?} {ways:?}"));
        }

        fn turn_ended(&mut self, turn: &Turn<'_>) {
            let departs =
                turn.departs().map_or(MAX_BATCH, |departs| departs.iter().filter(|departs| **departs).count());
            self.0.lock().unwrap().push(format!("ended {}", MAX_BATCH - departs));
        }
    }

    const A: PortIndex = PortIndex(0);
    const B: PortIndex = PortIndex(1);

    fn packets(turn: &mut Turn<'_>, count: u8) -> Vec<PacketId> {
        (0..count).map(|n| turn.accept_owned(A, &[n; 60]).expect("a free slot")).collect()
    }

    #[test]
    fn observers_see_packets_and_notes_in_order() {
        let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
        let recorder = Recorder::default();
        arena.add_observer(ObserverId(7), Box::new(recorder.clone()));
        arena.turn(|turn| {
            let ids = packets(turn, 5);
            turn.observe_received(Some(A), &ids);
            turn.discard(ids[0], Reason::Runt);
            turn.note_received(B, &ids[1..2]);
            turn.observe_notes();
            // A delivery that is done again: only the second try counts.
            let mark = turn.note_mark();
            turn.note_dropped(B, &ids[1..2], Reason::NoBuffer);
            turn.forget_notes(mark);
            turn.note_dropped(B, &ids[2..3], Reason::TooBig);
            turn.leave(ids[4]);
            turn.note_segmented(B, ids[3], 7);
            turn.observe_delivery(Some(B), &ids[1..]);
            let ways = |id: PacketId| id.index() + 1;
            let step = Step { name: "b-tx", kind: StepKind::Output, cycles: 90, packets: 4, ways: &ways };
            turn.observe_step(&step, &ids[1..3]);
        });
        let expected = [
            "received 0 [0, 1, 2, 3, 4]",
            "runt 0 [0]",
            "received 1 [1]",
            "delivered 1 [1, 3]",
            "too-big 1 [2]",
            "segmented 7 1 [3]",
            "Output b-tx: 4 packets in 90 cycles [(1, 2), (2, 3)]",
            "ended 1",
        ];
        assert_eq!(recorder.take(), expected);
        arena.turn(|_| ());
        assert_eq!(recorder.take(), ["ended 0"]);
    }

    #[test]
    fn a_removed_observer_sees_nothing() {
        let mut arena = Arena::new(Rcu::new().reader(), Settings::default(), Vec::new());
        let recorders = [Recorder::default(), Recorder::default()];
        for (id, recorder) in (0..).zip(&recorders) {
            arena.add_observer(ObserverId(id), Box::new(recorder.clone()));
        }
        let turn = |arena: &mut Arena| {
            arena.turn(|turn| {
                let ids = packets(turn, 1);
                turn.note_delivered(B, &ids);
                turn.is_observed()
            })
        };
        assert!(turn(&mut arena) && arena.remove_observer(ObserverId(0)).is_some());
        assert!(turn(&mut arena) && arena.remove_observer(ObserverId(0)).is_none());
        assert!(arena.remove_observer(ObserverId(1)).is_some() && !turn(&mut arena));
        assert_eq!(recorders[0].take(), ["delivered 1 [0]", "ended 0"]);
        assert_eq!(recorders[1].take().len(), 4);
    }
}
