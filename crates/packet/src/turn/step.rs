//! Steps of a worker's graph, as observers see them.

use std::fmt;

use super::Turn;
use crate::PacketId;

/// A step of a worker's graph that has just run.
pub struct Step<'a> {
    /// The name of the input, node or output.
    pub name: &'a str,
    /// The kind of the step.
    pub kind: StepKind,
    /// Cycles that the step took for all its packets, without the time of observers. Only an output
    /// that shows its deliveries itself includes observers.
    pub cycles: u64,
    /// The number of packets that the step had: those that it received, or those that came to it.
    pub packets: usize,
    /// Returns the number of further steps to which this one has sent a packet.
    pub ways: &'a dyn Fn(PacketId) -> usize,
}

/// The kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A port received packets.
    Input,
    /// A node forwarded packets, or dropped some.
    Node,
    /// A port delivered packets.
    Output,
}

impl fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { name, kind, cycles, packets, ways: _ } = self;
        write!(f, "{kind:?} {name}: {packets} packets in {cycles} cycles")
    }
}

impl Turn<'_> {
    /// Tells observers that a step has run for these packets. They are as the step has left them.
    #[cold]
    pub fn observe_step(&mut self, step: &Step<'_>, ids: &[PacketId]) {
        self.tell(|observer, turn| observer.passed(turn, step, ids));
    }
}
