//! Sockets whose last close may take for ever.
//!
//! The last close of a listening socket closes all connections in its queue, and all descriptors that
//! these connections carry. If one of these is a socket that lingers (`SO_LINGER`, socket(7)), the
//! close waits for it. So everybody who may connect can hold the thread that closes. A thread of its
//! own closes such a listening socket: nobody waits for this thread, and it ends with the process.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::thread;

/// Bytes of the stack of a thread that closes.
const STACK: usize = 64 << 10;

/// A socket that a thread of its own closes when it is dropped.
#[derive(Debug)]
pub struct ClosedApart<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> ClosedApart<T> {
    /// Returns the socket, to be closed apart.
    pub fn new(socket: T) -> Self {
        Self(Some(socket))
    }

    /// Closes the socket on this thread. The caller knows that nobody can hold it.
    pub(crate) fn close_here(&mut self) {
        self.0 = None;
    }
}

impl<T: Send + 'static> Deref for ClosedApart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap_or_else(|| unreachable!("a socket is closed only where its owner ends"))
    }
}

impl<T: Send + 'static> Drop for ClosedApart<T> {
    fn drop(&mut self) {
        let Some(socket) = self.0.take() else { return };
        // Without a thread the socket stays open: a close here could hold the switch.
        let socket = ManuallyDrop::new(socket);
        let close = move || drop(ManuallyDrop::into_inner(socket));
        if let Err(error) = thread::Builder::new().name("close".to_owned()).stack_size(STACK).spawn(close) {
            tracing::warn!("a socket stays open, because no thread can close it: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{ThreadId, current};

    use super::*;

    struct Told(Sender<ThreadId>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(current().id());
        }
    }

    #[test]
    fn another_thread_closes_unless_nobody_can_hold_it() {
        let (told, closed) = channel();
        drop(ClosedApart::new(Told(told.clone())));
        assert_ne!(closed.recv().unwrap(), current().id());
        ClosedApart::new(Told(told)).close_here();
        assert_eq!(closed.recv().unwrap(), current().id());
    }
}
