//! The interface of a port for generators and sinks. A port is the driver half of a vhost-user
//! socket, or a fake in a test.

use straightline_virtio::net_header::NetHeader;

/// A received frame. It may lie in memory that the backend still writes to, so bytes are copied out
/// before they are examined.
pub trait Received {
    /// Returns the length of the frame in bytes, without its virtio-net header.
    fn len(&self) -> usize;

    /// True if the frame has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the virtio-net header as the backend wrote it.
    fn header(&self) -> NetHeader;

    /// Copies bytes from `offset` on, and returns their number.
    fn read(&self, offset: usize, bytes: &mut [u8]) -> usize;
}

/// One port with one queue pair. No method waits.
pub trait TestPort: Send {
    /// Returns the number of frames that can be sent now.
    fn free_buffers(&mut self) -> usize;

    /// Puts one frame into the next free buffer. The backend sees it after [`Self::flush`]. Returns
    /// false if no buffer is free.
    ///
    /// The buffer may hold the frame that was sent with the same `template` before. Then the new
    /// frame differs from it in `patches` only; each patch is an offset into the frame and the
    /// bytes there. The caller's templates and their headers never change, and are patched at the
    /// same places each time.
    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool;

    /// Shows the backend the frames that were sent, and kicks it if it wants a kick.
    ///
    /// # Errors
    /// The backend broke the protocol or is gone.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Returns whether the backend still has buffers with frames that were sent. These frames are
    /// not lost as long as this may change.
    ///
    /// # Errors
    /// The backend broke the protocol.
    fn is_sending(&mut self) -> anyhow::Result<bool> {
        Ok(false)
    }

    /// Hands out at most `most` received frames in their order, gives their buffers back, and
    /// returns their number.
    ///
    /// # Errors
    /// The backend broke the protocol or is gone.
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&dyn Received)) -> anyhow::Result<usize>;

    /// Kicks a backend that sleeps although it was given buffers. To be called whenever nothing has
    /// moved.
    fn wake(&mut self) {}

    /// Checks that the backend is still connected. To be called now and then, as it costs a system
    /// call.
    ///
    /// # Errors
    /// The backend is gone.
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// An endpoint works in turns: a guest that forwards, or a generator with its sink. Several
/// endpoints can share one thread, as they must on a machine with two CPUs.
pub trait Endpoint: Send {
    /// Takes one turn, and returns the number of packets that it moved. `now` is the time-stamp
    /// counter.
    ///
    /// # Errors
    /// A backend broke the protocol: the trial is not valid.
    fn turn(&mut self, now: u64) -> anyhow::Result<usize>;

    /// Calls [`TestPort::wake`] of its ports. Called if a turn has moved nothing, and about every
    /// 20 ms.
    fn wake(&mut self) {}

    /// Calls [`TestPort::is_sending`] of its ports: returns whether backends still have packets
    /// that it forwarded.
    ///
    /// # Errors
    /// A backend broke the protocol: the trial is not valid.
    fn is_sending(&mut self) -> anyhow::Result<bool> {
        Ok(false)
    }

    /// Calls [`TestPort::check`] of its ports. Called about every 20 ms.
    ///
    /// # Errors
    /// A backend is gone: the trial is not valid.
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}
