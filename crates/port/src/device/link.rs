//! An open device, as workers use it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use straightline_graph::QueueCounters;
use straightline_packet::{Batch, Drops, PacketId, PortIndex, RcuCell, Turn};
use straightline_wire::FrameLimit;

use super::devices::WakeEvent;
use super::{DeviceRequest, OpenError, OpenedDevice};
use crate::device::af_packet::AfPacketLink;
use crate::device::af_xdp::AfXdpLink;
use crate::device::tap::TapLink;

/// An open device. Control makes it, workers use it within turns, and nobody changes it: if the
/// interface changes, control makes another.
///
/// One worker at a time receives from a queue. Several workers may deliver to a queue at the same
/// time, so a kind whose transmit side has state locks it.
pub(crate) trait DeviceLink: Send + Sync + fmt::Debug {
    /// Takes at most `max` packets of a queue into the turn and adds them to `into`.
    fn receive<'t>(&'t self, port: &DevicePortData, queue: usize, turn: &mut Turn<'t>, into: &mut Batch, max: usize);

    /// Delivers the batch's packets by a queue, or drops each with a reason.
    fn deliver<'t>(&'t self, port: &DevicePortData, queue: usize, turn: &mut Turn<'t>, batch: &Batch);

    /// Returns the number of sends that a GSO packet takes by a queue: its segments, if the device
    /// does not take it as it is.
    fn sends(&self, turn: &Turn<'_>, id: PacketId, _queue: usize) -> u32 {
        turn.segments(id)
    }

    /// Prepares a queue for its worker's sleep: the next packet wakes the worker by
    /// [`Self::wake_fd`]. Returns true if there are packets already, or if the queue needs another
    /// turn soon.
    fn arm(&self, port: &DevicePortData, queue: usize) -> bool;

    /// Sends packets that wait in a queue because the interface could not take more. Returns whether
    /// some still wait.
    fn send_waiting(&self, _queue: usize) -> bool {
        false
    }

    /// Returns whether received packets may have unfinished checksums that nothing marks.
    fn leaves_unfinished(&self) -> bool {
        false
    }

    /// Tells a queue that its worker polls again.
    fn disarm(&self, queue: usize);

    /// Returns the number of queues.
    fn queues(&self) -> usize;

    /// Returns the descriptor that wakes the worker of a queue. It is watched for edges of
    /// readiness to read.
    fn wake_fd(&self, queue: usize) -> &Arc<OwnedFd>;

    /// Returns the packets that the kernel has dropped for this device so far, by the kernel's
    /// names.
    fn kernel_drops(&self) -> Vec<(&'static str, u64)>;
}

/// Makes the link of an open device.
pub(super) fn make(
    request: &DeviceRequest,
    opened: OpenedDevice,
    port: PortIndex,
) -> Result<Arc<dyn DeviceLink>, OpenError> {
    match request {
        DeviceRequest::AfXdp(_) => Ok(Arc::new(AfXdpLink::new(opened, port)?)),
        DeviceRequest::Tap(_) => Ok(Arc::new(TapLink::new(opened)?)),
        DeviceRequest::AfPacket(_) => Ok(Arc::new(AfPacketLink::new(opened)?)),
    }
}

/// The state of a device port that its workers read.
#[derive(Debug)]
pub(crate) struct DevicePortData {
    /// The port's name.
    pub(crate) name: String,
    pub(crate) index: PortIndex,
    pub(crate) drops: Arc<Drops>,
    /// The counters of each queue.
    pub(crate) counters: Box<[Arc<QueueCounters>]>,
    /// The open device; none while the link is down.
    pub(crate) link: RcuCell<Arc<dyn DeviceLink>>,
    /// Bytes of the longest packet.
    pub(super) max_len: AtomicU32,
    /// The interface's MAC address, if the switch sends by it; else 0.
    pub(super) mac: AtomicU64,
    /// An administrator has set the link down.
    pub(super) set_down: AtomicBool,
    /// The data side has found that the device is gone. Control closes it and opens it again.
    pub(super) faulted: AtomicBool,
    pub(super) wake: Arc<WakeEvent>,
}

impl DevicePortData {
    /// Returns the state of a port of one queue, which is the first of its workers' ports.
    #[cfg(test)]
    pub(crate) fn for_test(rcu: &straightline_packet::Rcu, max_len: u32) -> Self {
        DevicePortData {
            name: "test".to_owned(),
            index: PortIndex(0),
            drops: Arc::default(),
            counters: [Arc::default()].into(),
            link: RcuCell::new(rcu),
            max_len: AtomicU32::new(max_len),
            mac: AtomicU64::new(0),
            set_down: AtomicBool::new(false),
            faulted: AtomicBool::new(false),
            wake: Arc::new(WakeEvent::new().expect("an eventfd")),
        }
    }

    /// Returns the bytes of the longest packet that the device carries.
    #[inline]
    pub(crate) fn max_len(&self) -> u32 {
        self.max_len.load(Ordering::Relaxed)
    }

    /// Returns the MTU of the device, or the port's own if that is less.
    pub(super) fn mtu(&self) -> u16 {
        FrameLimit::of_bytes(self.max_len()).mtu()
    }

    pub(super) fn set_max_len(&self, max_len: u32) {
        self.max_len.store(max_len, Ordering::Relaxed);
    }

    /// Returns the interface's MAC address, if the switch is to send by it.
    pub(super) fn mac(&self) -> Option<[u8; 6]> {
        let word = self.mac.load(Ordering::Relaxed);
        let [_, _, mac @ ..] = word.to_be_bytes();
        (word != 0).then_some(mac)
    }

    pub(super) fn set_mac(&self, [a, b, c, d, e, f]: [u8; 6]) {
        self.mac.store(u64::from_be_bytes([0, 0, a, b, c, d, e, f]), Ordering::Relaxed);
    }

    pub(crate) fn is_set_down(&self) -> bool {
        self.set_down.load(Ordering::Acquire)
    }

    pub(super) fn set_down(&self, down: bool) {
        self.set_down.store(down, Ordering::Release);
    }

    /// Tells control that the device does not work any more: a system call has said so. Control
    /// closes the device and opens it again when it can.
    #[cold]
    pub(crate) fn report_fault(&self) {
        if !self.faulted.swap(true, Ordering::AcqRel) {
            self.wake.wake();
        }
    }

    /// Returns whether the data side has reported a fault since the last call.
    pub(super) fn take_fault(&self) -> bool {
        self.faulted.swap(false, Ordering::AcqRel)
    }
}
