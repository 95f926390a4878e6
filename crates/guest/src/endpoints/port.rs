//! The interface of a port for generators and sinks. A port is the driver half of a vhost-user
//! socket, an interface of this machine, or a fake in a test.

use std::ops::Range;

use straightline_virtio::net_header::NetHeader;

/// A received frame. The frame may be in memory to which the backend still writes. So bytes are
/// copied out before they are examined.
pub trait Received {
    /// Returns the length of the frame in bytes, without its virtio-net header.
    fn len(&self) -> usize;

    /// True if the frame has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the virtio-net header as the backend wrote it.
    fn header(&self) -> NetHeader;

    /// Copies bytes of the frame from `offset` on into `bytes`, and returns the number of copied
    /// bytes.
    fn read(&self, offset: usize, bytes: &mut [u8]) -> usize;

    /// Returns the 24 bytes of the frame from `offset` on, as words in network byte order. `None` if
    /// the frame ends before.
    fn words(&self, offset: usize) -> Option<[u64; 3]> {
        let mut bytes = [0; 24];
        let is_complete = self.read(offset, &mut bytes) == bytes.len();
        let (words, _) = bytes.as_chunks::<8>();
        is_complete.then(|| std::array::from_fn(|at| u64::from_be_bytes(words[at])))
    }
}

/// Takes the frames that a port has received.
pub trait Receiver {
    /// Takes the next frame. Ports compile this for their type of frame, because a dynamic call for
    /// each frame costs more than some checks of the frame.
    fn frame(&mut self, frame: &impl Received);
}

impl<F: FnMut(&dyn Received)> Receiver for F {
    fn frame(&mut self, frame: &impl Received) {
        self(frame);
    }
}

/// One port with one queue pair. No method waits.
pub trait TestPort: Send {
    /// Returns the number of frames that can be sent now.
    fn free_buffers(&mut self) -> usize;

    /// Puts one frame into the next free buffer. The backend sees the frame after [`Self::flush`].
    /// Returns false if no buffer is free.
    ///
    /// The buffer may still hold an earlier frame with the same `template`. The new frame differs
    /// from that frame in `patches` only, so the port writes only these. Each patch is an offset
    /// into the frame, and the bytes at this offset. The caller never changes a template or its
    /// header, and patches a template at the same places each time.
    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool;

    /// Tells which bytes the caller will read of each frame that [`Self::receive`] passes. The port
    /// may prefetch them.
    fn will_read(&mut self, _bytes: Range<usize>) {}

    /// Publishes the frames that were sent, and kicks the backend if the backend wants a kick.
    ///
    /// # Errors
    /// The backend broke the protocol or is gone.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Returns whether the backend still has to take sent frames out of the ring. While this is
    /// true, these frames are not lost yet.
    ///
    /// # Errors
    /// The backend broke the protocol.
    fn is_sending(&mut self) -> anyhow::Result<bool> {
        Ok(false)
    }

    /// Passes at most `most` received frames to `each`, in their order, and gives their buffers
    /// back. Returns the number of frames.
    ///
    /// # Errors
    /// The backend broke the protocol or is gone.
    fn receive(&mut self, most: usize, each: &mut impl Receiver) -> anyhow::Result<usize>;

    /// Kicks a backend that sleeps although it has new buffers. The caller does this whenever a
    /// turn has moved nothing.
    fn wake(&mut self) {}

    /// Checks that the backend is still connected. The check costs a system call, so callers make
    /// it now and then only.
    ///
    /// # Errors
    /// The backend is gone.
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Returns the process of the backend, if it is known.
    fn backend(&self) -> Option<u32> {
        None
    }

    /// Returns the packets that this port and the kernel have dropped so far, by reason. A backend
    /// at a socket does not tell what it drops.
    fn drops(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// An endpoint works in turns: a guest that forwards, or a generator with its sink. Several
/// endpoints can share one thread, as they must on a machine with two CPUs.
pub trait Endpoint: Send {
    /// Takes one turn, and returns the number of packets moved. `now` is the time-stamp counter.
    ///
    /// # Errors
    /// A backend broke the protocol: the trial is not valid.
    fn turn(&mut self, now: u64) -> anyhow::Result<usize>;

    /// Notes the cycles of the last turn. [`EventLoop`](super::EventLoop) calls this method after a
    /// turn that moved packets and was not interrupted.
    #[inline]
    fn worked(&mut self, cycles: u64) {
        let _ = cycles;
    }

    /// Calls [`TestPort::wake`] of the endpoint's ports. [`EventLoop`](super::EventLoop) calls this
    /// method if a turn has moved nothing, and about every 20 ms.
    fn wake(&mut self) {}

    /// Calls [`TestPort::is_sending`] of the endpoint's ports. Returns whether backends still have
    /// packets that this endpoint has sent.
    ///
    /// # Errors
    /// A backend broke the protocol: the trial is not valid.
    fn is_sending(&mut self) -> anyhow::Result<bool> {
        Ok(false)
    }

    /// Calls [`TestPort::check`] of the endpoint's ports. [`EventLoop`](super::EventLoop) calls this
    /// method about every 20 ms.
    ///
    /// # Errors
    /// A backend is gone: the trial is not valid.
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Returns whether the endpoint has done its work. Then the loop ends, after the current round
    /// of turns.
    fn is_over(&self) -> bool {
        false
    }
}
