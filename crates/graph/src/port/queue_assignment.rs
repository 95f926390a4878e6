//! Queue assignment: which worker serves which of a port's queues, and which workers its kicks
//! wake.

use std::sync::Arc;

use crate::EpollWaiter;

/// The workers that serve a port's rings. Workers are numbers that the caller chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueAssignment {
    /// By pair: the worker that receives from the guest's transmit ring.
    pub rx_workers: Vec<usize>,
    /// By pair: the worker that owns the guest's receive ring.
    pub tx_workers: Vec<usize>,
    /// All workers that deliver to the port, each once.
    pub delivering: Vec<usize>,
}

impl QueueAssignment {
    /// Returns the assignment in which one worker serves all of `pairs`.
    pub fn one(worker: usize, pairs: u16) -> Self {
        let all = vec![worker; pairs.max(1).into()];
        QueueAssignment { rx_workers: all.clone(), tx_workers: all, delivering: vec![worker] }
    }
}

/// The waiters that a port's kicks wake.
#[derive(Clone, Debug)]
pub struct Waiters {
    /// By pair: woken when there are packets in the transmit ring. The first is also woken for
    /// pairs beyond these, and for rings of no pair.
    pub rx: Vec<Arc<EpollWaiter>>,
    /// Woken when a receive ring has free buffers again.
    pub tx: Vec<Arc<EpollWaiter>>,
}

impl From<Arc<EpollWaiter>> for Waiters {
    /// One worker serves all.
    fn from(waiter: Arc<EpollWaiter>) -> Self {
        Waiters { rx: vec![Arc::clone(&waiter)], tx: vec![waiter] }
    }
}
