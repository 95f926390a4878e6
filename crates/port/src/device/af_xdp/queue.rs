//! One queue of an AF_XDP port: a socket with its UMEM and its rings.
//!
//! *Each frame is in exactly one place.* The frames of the two halves never mix:
//!
//! ```text
//! receive:   fill ring ─ kernel ─▶ rx ring ─ receive ─▶ turn (lent) ─ end of turn ─▶ fill ring
//! send:      free list ─ deliver ─▶ tx ring ─ kernel ─▶ completion ring ─ collect ─▶ free list
//! ```
//!
//! Each half notes which frames the kernel has. A kernel that returns a frame that it does not have
//! breaks the ring, so no frame can be in two places.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use straightline_packet::{AtTurnEnd, GsoSegment, IgnorePoison, MemorySegment, PortIndex, Served, SourceQueueId, Turn};
use straightline_virtio::memory::fault;

use super::frames::{ALL_FRAMES, FRAMES, Frame, FrameSet, Umem};
use super::rings::{Consumer, Desc, Producer, RingFault};

/// The reason why a queue does not work any more. The port closes the device and opens it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueueFault {
    #[error(transparent)]
    Ring(#[from] RingFault),
    #[error("the kernel returned address {0:#x}, which is in no frame that it has")]
    Address(u64),
    #[error("the kernel refused the socket: {0}")]
    Socket(Errno),
}

/// A queue of an AF_XDP port. Its halves have cache lines of their own, because different workers
/// may use them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Queue {
    rx: Half<RxHalf>,
    tx: Half<TxHalf>,
    pub(super) umem: Umem,
    pub(super) socket: Arc<OwnedFd>,
    /// The port that the queue belongs to. The watchdog reports it.
    port: PortIndex,
    /// The queue does not work any more.
    faulted: AtomicBool,
    /// Packets wait in the tx ring because the interface could not take more.
    unsent: AtomicBool,
}

/// One half of a queue, under a lock of its own.
#[repr(align(128))]
struct Half<T>(Mutex<T>);

impl<T> fmt::Debug for Half<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Half").finish_non_exhaustive()
    }
}

impl<T> Half<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().ignore_poison()
    }
}

/// The rings of a new socket. All of them are empty.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) rx: Consumer<2>,
    pub(crate) fill: Producer<1>,
    pub(crate) tx: Producer<2>,
    pub(crate) completion: Consumer<1>,
}

/// The half that receives.
pub(super) struct RxHalf {
    rx: Consumer<2>,
    fill: Producer<1>,
    /// The frames that the kernel has: in the fill ring, in the rx ring, or between them.
    with_kernel: FrameSet,
    /// The frames that the present turn has.
    lent: Vec<Frame>,
    /// The rest of a packet of too many frames is still to come, and is dropped.
    pub(super) skips: bool,
}

/// The half that sends.
pub(super) struct TxHalf {
    pub(super) frames: TxFrames,
    /// The fault epoch up to which no source of a packet has vanished.
    pub(super) clean_epoch: u64,
    /// Memory for the headers of GSO segments.
    pub(super) segment: GsoSegment,
}

/// The frames of the half that sends, and its rings.
pub(super) struct TxFrames {
    tx: Producer<2>,
    completion: Consumer<1>,
    /// The frames that the kernel has: in the tx ring, in the completion ring, or between them.
    with_kernel: FrameSet,
    free: Vec<Frame>,
    /// Frames taken from the free list for packets that are not submitted yet.
    taken: Vec<Frame>,
    /// The taken frames, from the first on, that have a descriptor in the tx ring.
    pushed: usize,
}

impl Queue {
    /// Returns a queue with these rings. All frames that receive go into the fill ring.
    ///
    /// # Errors
    /// The kernel's indexes are invalid already.
    pub(crate) fn new(socket: Arc<OwnedFd>, umem: Umem, rings: Rings, port: PortIndex) -> Result<Self, QueueFault> {
        let Rings { rx, fill, tx, completion } = rings;
        let lent = (0..FRAMES).map(Frame).collect();
        let mut rx = RxHalf { rx, fill, with_kernel: FrameSet::new(), lent, skips: false };
        rx.give_back(&umem)?;
        let frames = TxFrames {
            tx,
            completion,
            with_kernel: FrameSet::new(),
            // The last frame is taken first.
            free: (FRAMES..ALL_FRAMES).rev().map(Frame).collect(),
            taken: Vec::with_capacity(FRAMES as usize),
            pushed: 0,
        };
        let tx = TxHalf { frames, clean_epoch: fault::epoch(), segment: GsoSegment::default() };
        let queue = Queue {
            rx: Half(Mutex::new(rx)),
            tx: Half(Mutex::new(tx)),
            umem,
            socket,
            port,
            faulted: AtomicBool::new(false),
            unsent: AtomicBool::new(false),
        };
        queue.wake_for_fill(&queue.lock_rx());
        Ok(queue)
    }

    #[inline]
    pub(super) fn lock_rx(&self) -> MutexGuard<'_, RxHalf> {
        self.rx.lock()
    }

    #[inline]
    pub(super) fn lock_tx(&self) -> MutexGuard<'_, TxHalf> {
        self.tx.lock()
    }

    /// Returns whether the queue does not work any more.
    #[inline]
    pub(super) fn is_faulted(&self) -> bool {
        self.faulted.load(Ordering::Relaxed)
    }

    /// Notes that the queue does not work any more. The next use of it tells control.
    #[cold]
    pub(super) fn fail(&self, fault: QueueFault) {
        if !self.faulted.swap(true, Ordering::Relaxed) {
            tracing::warn!(port = self.port.0, "AF_XDP queue failed: {fault}");
        }
    }

    /// Tells the kernel about new entries in the fill ring, if it asks for that. Only drivers with
    /// zero-copy mode do.
    pub(super) fn wake_for_fill(&self, rx: &RxHalf) {
        if rx.fill.needs_wakeup() {
            // The only effect is that the driver looks at the ring. Errors show when packets are
            // sent.
            let _ = recv(&self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT);
        }
    }

    /// Has the kernel send what is in the tx ring. Returns `false` if a part of it must wait for a
    /// later call.
    ///
    /// In copy mode one system call sends a limited number of packets (`XDP_MAX_TX_SKB_BUDGET`). A
    /// call that has sent some is followed by another. A call that has sent none means that the
    /// interface cannot take more now.
    pub(super) fn flush(&self, tx: &mut TxFrames) -> Result<bool, QueueFault> {
        let mut pending = tx.tx.pending()?;
        while pending > 0 && tx.tx.needs_wakeup() {
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                // With zero-copy, the driver sends in its own time.
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(errno) => return Err(QueueFault::Socket(errno)),
            }
            let before = std::mem::replace(&mut pending, tx.tx.pending()?);
            if pending == before {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether the queue needs another turn soon: packets have come, or packets still wait
    /// to be sent.
    pub(super) fn is_busy(&self) -> bool {
        let received = match self.lock_rx().available() {
            Ok(available) => available > 0,
            Err(fault) => {
                self.fail(fault);
                false
            }
        };
        // The check for unsent packets has an effect: it sends them.
        self.send_pending() | received
    }

    /// Sends packets that wait in the tx ring. Returns whether some still wait. The worker that sends
    /// calls this before it sleeps. A worker that receives and never sleeps calls it at each look
    /// for packets.
    #[inline]
    pub(super) fn send_unsent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) && self.send_pending()
    }

    /// Sends what is in the tx ring. Returns whether packets still wait.
    fn send_pending(&self) -> bool {
        // A worker does not wait for the system calls of another worker. The worker that has the
        // lock sends after it, and so sends what was in the ring before.
        let Ok(mut tx) = self.tx.0.try_lock() else { return false };
        self.flush_all(&mut tx.frames)
    }

    /// Sends what is in the tx ring, and notes whether packets still wait. Returns whether some do.
    pub(super) fn flush_all(&self, tx: &mut TxFrames) -> bool {
        match self.flush(tx) {
            Ok(all) => {
                self.unsent.store(!all, Ordering::Relaxed);
                !all
            }
            Err(fault) => {
                self.fail(fault);
                false
            }
        }
    }
}

/// The places of all frames of a queue, for tests.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Census {
    pub(super) lent: u32,
    pub(super) rx_with_kernel: u32,
    pub(super) free: u32,
    pub(super) taken: u32,
    pub(super) tx_with_kernel: u32,
    /// Of the frames that the kernel has: entries of the rx ring.
    pub(super) received: u32,
    /// Of the frames that the kernel has: entries of the completion ring.
    pub(super) completed: u32,
}

#[cfg(test)]
impl Queue {
    /// Counts the frames of both halves.
    pub(super) fn census(&self) -> Census {
        let mut rx = self.lock_rx();
        let mut tx = self.lock_tx();
        let count = |frames: &[Frame]| u32::try_from(frames.len()).expect("few");
        Census {
            lent: count(&rx.lent),
            rx_with_kernel: rx.with_kernel.len(),
            free: count(&tx.frames.free),
            taken: count(&tx.frames.taken),
            tx_with_kernel: tx.frames.with_kernel.len(),
            received: rx.rx.available().unwrap_or(0),
            completed: tx.frames.completion.available().unwrap_or(0),
        }
    }

    /// Returns the addresses in the rx ring.
    pub(super) fn received(&self) -> Vec<u64> {
        let mut rx = self.lock_rx();
        (0..rx.available().expect("valid")).map(|nth| rx.peek(nth).addr).collect()
    }

    /// Returns the addresses in the completion ring.
    pub(super) fn completed(&self) -> Vec<u64> {
        let mut tx = self.lock_tx();
        let completed = tx.frames.completion.available().expect("valid");
        (0..completed).map(|nth| tx.frames.completion.peek(nth)[0]).collect()
    }
}

impl AtTurnEnd for Queue {
    fn give_back(&self, _turn: &mut Turn<'_>, _source: SourceQueueId) {
        let mut rx = self.lock_rx();
        if rx.lent.is_empty() {
            return;
        }
        match rx.give_back(&self.umem) {
            Ok(()) => self.wake_for_fill(&rx),
            Err(fault) => self.fail(fault),
        }
    }

    fn notify(&self) {}

    fn poisoned(&self) -> bool {
        // The file of the UMEM is sealed, so no part of it can vanish.
        false
    }

    fn served(&self) -> Served {
        Served::Port(self.port)
    }
}

impl RxHalf {
    /// Returns the number of descriptors in the rx ring.
    #[inline]
    pub(super) fn available(&mut self) -> Result<u32, QueueFault> {
        Ok(self.rx.available()?)
    }

    /// Returns the descriptor that comes after `nth` others.
    #[inline]
    pub(super) fn peek(&self, nth: u32) -> Desc {
        Desc::of_words(self.rx.peek(nth))
    }

    /// Returns whether the kernel has the frame at this address.
    #[inline]
    pub(super) fn is_with_kernel(&self, umem: &Umem, addr: u64) -> bool {
        umem.frame_at(addr).is_some_and(|(frame, _)| self.with_kernel.contains(frame))
    }

    /// Takes the first `n` descriptors: their frames are lent to the turn from now on.
    pub(super) fn take(&mut self, umem: &Umem, n: u32) -> Result<(), QueueFault> {
        for nth in 0..n {
            let addr = self.peek(nth).addr;
            let (frame, _) = umem.frame_at(addr).ok_or(QueueFault::Address(addr))?;
            if !self.with_kernel.remove(frame) {
                return Err(QueueFault::Address(addr));
            }
            self.lent.push(frame);
        }
        self.rx.release(n);
        Ok(())
    }

    /// Gives all lent frames back to the kernel.
    pub(super) fn give_back(&mut self, umem: &Umem) -> Result<(), QueueFault> {
        // The ring has more entries than there are frames, so all of them fit.
        while let Some(frame) = self.lent.pop() {
            self.with_kernel.insert(frame);
            self.fill.push([umem.addr(frame)])?;
        }
        self.fill.submit();
        Ok(())
    }
}

impl TxFrames {
    /// Takes the frames back that the kernel has sent.
    #[inline]
    pub(super) fn collect(&mut self, umem: &Umem) -> Result<(), QueueFault> {
        let done = self.completion.available()?;
        for nth in 0..done {
            let [addr] = self.completion.peek(nth);
            let (frame, _) = umem.frame_at(addr).ok_or(QueueFault::Address(addr))?;
            if !self.with_kernel.remove(frame) {
                return Err(QueueFault::Address(addr));
            }
            self.free.push(frame);
        }
        if done > 0 {
            self.completion.release(done);
        }
        Ok(())
    }

    /// Returns the number of free frames.
    #[inline]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free frame. It is the end of the next packet until [`Self::push`] or
    /// [`Self::put_back`].
    #[inline]
    pub(super) fn take<'u>(&mut self, umem: &'u Umem) -> Option<MemorySegment<'u>> {
        let frame = self.free.pop()?;
        self.taken.push(frame);
        umem.segment(umem.addr(frame), umem.frame_size())
    }

    /// Writes the descriptors of a packet of `len` bytes in the next `frames` taken frames. The
    /// kernel does not see them yet.
    #[inline]
    pub(super) fn push(&mut self, umem: &Umem, frames: usize, len: u32) -> Result<(), QueueFault> {
        let mut left = len;
        for nth in 0..frames {
            let Some(&frame) = self.taken.get(self.pushed) else { break };
            let part = left.min(umem.frame_size());
            left -= part;
            let desc = Desc { addr: umem.addr(frame), len: part, continued: nth + 1 < frames };
            self.tx.push(desc.to_words())?;
            self.pushed += 1;
        }
        Ok(())
    }

    /// Returns the number of frames with descriptors that the kernel does not see yet.
    #[inline]
    pub(super) fn pushed(&self) -> usize {
        self.pushed
    }

    /// Puts taken frames back whose descriptors were not written.
    pub(super) fn put_back(&mut self) {
        while self.taken.len() > self.pushed {
            self.free.extend(self.taken.pop());
        }
    }

    /// Puts all taken frames back, and forgets their descriptors.
    pub(super) fn put_all_back(&mut self) {
        self.tx.rewind();
        self.pushed = 0;
        self.put_back();
    }

    /// Shows the kernel all descriptors that were written.
    #[inline]
    pub(super) fn submit(&mut self) {
        self.put_back();
        for frame in self.taken.drain(..) {
            self.with_kernel.insert(frame);
        }
        self.pushed = 0;
        self.tx.submit();
    }
}
