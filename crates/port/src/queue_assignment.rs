//! Which worker serves which of a port's queues, and which workers its kicks wake.

use std::sync::Arc;

use crate::EpollWaiter;

/// Which worker serves which of a port's rings. Workers are numbers of whoever says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueAssignment {
    /// By pair: the worker that receives from the guest's transmit ring.
    pub rx_workers: Vec<usize>,
    /// By pair: the worker that owns the guest's receive ring.
    pub tx_workers: Vec<usize>,
    /// All workers that deliver, each once.
    pub delivering: Vec<usize>,
}

impl QueueAssignment {
    /// One worker serves all of `pairs`.
    pub fn one(worker: usize, pairs: u16) -> Self {
        let all = vec![worker; pairs.max(1).into()];
        QueueAssignment { rx_workers: all.clone(), tx_workers: all, delivering: vec![worker] }
    }
}

/// Who is woken by a port's kicks.
#[derive(Clone, Debug)]
pub struct Waiters {
    /// By pair: there is something in the transmit ring. For pairs beyond, and for what is no pair's, the first.
    pub rx: Vec<Arc<EpollWaiter>>,
    /// There is room in a receive ring.
    pub tx: Vec<Arc<EpollWaiter>>,
}

impl From<Arc<EpollWaiter>> for Waiters {
    /// One worker serves all.
    fn from(waiter: Arc<EpollWaiter>) -> Self {
        Waiters { rx: vec![Arc::clone(&waiter)], tx: vec![waiter] }
    }
}
