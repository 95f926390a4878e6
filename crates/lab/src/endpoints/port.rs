//! What a generator and a sink need of a port, whatever it is: a vhost-user socket's driver half, or a fake in a test.

use straightline_virtio::net_header::NetHeader;

/// A frame that has come. It may lie in memory that the backend still writes to: what is looked at is copied out first.
pub trait Received {
    /// Bytes of the frame, without its virtio-net header.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As the backend wrote it.
    fn header(&self) -> NetHeader;

    /// Copies bytes from `offset` on; returns how many there were.
    fn read(&self, offset: usize, bytes: &mut [u8]) -> usize;
}

/// One port of the tester, with one queue pair. Nothing of it waits.
pub trait TestPort: Send {
    /// Frames that can be sent now.
    fn free_buffers(&mut self) -> usize;

    /// Puts one frame into the next free buffer; the backend sees it with [`Self::flush`]. False where there is no room.
    /// The buffer may hold what was sent with the same `template` before: then only `patches`, each an offset into the
    /// frame and the bytes there, differ from what it holds. The caller's templates never change, their headers included,
    /// and are patched at the same places each time.
    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool;

    /// Shows the backend what was sent, and kicks it where it wants that.
    ///
    /// # Errors
    /// What the backend did wrong; that it is gone.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Whether the backend still has buffers of what was sent: that is not lost, as long as this may change.
    ///
    /// # Errors
    /// What the backend did wrong.
    fn is_sending(&mut self) -> anyhow::Result<bool> {
        Ok(false)
    }

    /// Hands out at most `most` frames that have come, in their order, and gives their buffers back; returns how many.
    ///
    /// # Errors
    /// What the backend did wrong; that it is gone.
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&dyn Received)) -> anyhow::Result<usize>;

    /// Kicks a backend that sleeps over something it was given: for whenever nothing has moved.
    fn wake(&mut self) {}

    /// Looks whether the backend is still there: for now and then, as it costs a system call.
    ///
    /// # Errors
    /// That it is gone.
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Somebody who works turn by turn: a guest that forwards, a generator with its sink. Several of them can share one thread,
/// as on a machine of two CPUs they must.
pub trait Endpoint: Send {
    /// One turn; returns how many packets it moved. `now` is the time-stamp counter.
    ///
    /// # Errors
    /// What a backend did wrong: the trial does not count.
    fn turn(&mut self, now: u64) -> anyhow::Result<usize>;

    /// Called where a turn has moved nothing, and every 20 ms or so: [`TestPort::wake`] of its ports.
    fn wake(&mut self) {}

    /// Whether backends have something of what it handed on: [`TestPort::is_sending`] of its ports.
    ///
    /// # Errors
    /// What a backend did wrong: the trial does not count.
    fn is_sending(&mut self) -> anyhow::Result<bool> {
        Ok(false)
    }

    /// Called every 20 ms or so: [`TestPort::check`] of its ports.
    ///
    /// # Errors
    /// That a backend is gone: the trial does not count.
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}
