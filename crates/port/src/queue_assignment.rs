//! Which worker serves which of a port's queues, and which workers its kicks wake.

use std::sync::Arc;

use crate::EpollWaiter;

/// Which worker serves which of a port's rings. Workers are numbers of whoever says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueAssignment {
    /// By pair: who takes from the guest's transmit ring.
    pub takes: Vec<usize>,
    /// By pair: whose own the guest's receive ring is.
    pub gives: Vec<usize>,
    /// All who deliver, each once.
    pub givers: Vec<usize>,
}

impl QueueAssignment {
    /// One worker serves all of `pairs`.
    pub fn one(worker: usize, pairs: u16) -> Self {
        let all = vec![worker; pairs.max(1).into()];
        QueueAssignment { takes: all.clone(), gives: all, givers: vec![worker] }
    }
}

/// Who is woken by a port's kicks.
#[derive(Clone, Debug)]
pub struct Waiters {
    /// By pair: there is something in the transmit ring. For pairs beyond, and for what is no pair's, the first.
    pub takes: Vec<Arc<EpollWaiter>>,
    /// There is room in a receive ring.
    pub givers: Vec<Arc<EpollWaiter>>,
}

impl From<Arc<EpollWaiter>> for Waiters {
    /// One worker serves all.
    fn from(waiter: Arc<EpollWaiter>) -> Self {
        Waiters { takes: vec![Arc::clone(&waiter)], givers: vec![waiter] }
    }
}
