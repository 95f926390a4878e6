//! The control side of device ports of all kinds.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use straightline_packet::{Drops, PortIndex, Rcu, RcuCell};

use super::devices::Devices;
use super::link::{self, DeviceLink, DevicePortData};
use super::worker_port::WorkerPort;
use super::{DeviceFacts, DeviceRequest, OpenError};
use crate::control::PortControl;
use crate::kick_routing::{Kick, KickKind, KickRouting};
use crate::link_status::{DeviceStatus, LinkState};
use crate::{LinkHistory, LinkStatus, ListenError, Permissions, Port, QueueAssignment, QueueCounters, Waiters};

/// Bytes of a frame beyond its MTU: the Ethernet header and a VLAN tag.
const BEYOND_MTU: u32 = 18;

/// The settings of a device port.
#[derive(Clone, Debug)]
pub struct DevicePortConfig {
    /// The port's name.
    pub name: String,
    /// The interface.
    pub request: DeviceRequest,
    /// The MTU: longer packets are dropped.
    pub mtu: u16,
    /// The number of queues that workers are planned for, at least 1.
    pub queues: u16,
}

/// A port whose peer is a network interface of this machine.
///
/// The interface may come and go. The port closes it when it has gone, and opens it again when it
/// can.
#[derive(Debug)]
pub struct DevicePort {
    shared: Arc<Shared>,
}

/// The part of a device port that the thread of [`Devices`] serves.
#[derive(Debug)]
pub(super) struct Shared {
    data: Arc<DevicePortData>,
    config: DevicePortConfig,
    devices: Arc<Devices>,
    routing: KickRouting,
    assignment: Mutex<Arc<QueueAssignment>>,
    state: Mutex<LinkState>,
    device: Mutex<Device>,
}

/// The device of a port.
#[derive(Debug, Default)]
struct Device {
    open: Option<OpenDevice>,
    /// The port keeps its device closed, so that another port can have it.
    paused: bool,
    /// The port has ended.
    stopped: bool,
}

#[derive(Debug)]
struct OpenDevice {
    link: Arc<dyn DeviceLink>,
    facts: DeviceFacts,
    /// The kicks of the link's queues.
    kicks: Vec<Kick>,
}

impl DevicePort {
    /// Opens the port. Workers wait in `waiters`. Until [`PortControl::assign_queues`] is called,
    /// worker 0 serves the whole port.
    ///
    /// # Errors
    /// The reason why the interface cannot be opened, if it will not pass by itself. Otherwise the
    /// port opens, its link is down, and it tries again.
    pub fn open(
        config: DevicePortConfig,
        index: PortIndex,
        drops: Arc<Drops>,
        rcu: &Rcu,
        waiters: impl Into<Waiters>,
        devices: &Arc<Devices>,
    ) -> Result<Self, OpenError> {
        let queues = config.queues.max(1);
        let data = Arc::new(DevicePortData {
            name: config.name.clone(),
            index,
            drops,
            counters: (0..queues).map(|_| Arc::default()).collect(),
            link: RcuCell::new(rcu),
            max_len: AtomicU32::new(u32::from(config.mtu) + BEYOND_MTU),
            set_down: AtomicBool::new(false),
            faulted: AtomicBool::new(false),
            wake: Arc::clone(devices.wake_event()),
        });
        let shared = Arc::new(Shared {
            data,
            routing: KickRouting::new(waiters.into(), false),
            assignment: Mutex::new(Arc::new(QueueAssignment::one(0, queues))),
            state: Mutex::new(LinkState::new()),
            device: Mutex::default(),
            devices: Arc::clone(devices),
            config,
        });
        if let Err(error) = shared.open(&mut shared.device())
            && !error.may_pass()
        {
            return Err(error);
        }
        let failed = |error: io::Error| OpenError::new(super::OpenCause::Failed, error.to_string());
        devices.add(&shared).map_err(failed)?;
        Ok(DevicePort { shared })
    }
}

impl Shared {
    /// Brings the port up to date: closes a device that has gone, and opens one if none is open.
    /// Returns `false` if a later attempt is needed.
    pub(super) fn serve(&self) -> bool {
        let mut device = self.device();
        if device.stopped || device.paused {
            return true;
        }
        if self.data.take_fault() && device.open.is_some() {
            tracing::warn!(port = self.config.name, "interface {} has gone", self.config.request.interface());
            self.close(&mut device);
        }
        if device.open.is_none() {
            // If it fails, the port's status says why.
            return self.open(&mut device).is_ok();
        }
        true
    }

    /// Opens the device and publishes it to workers.
    fn open(&self, device: &mut Device) -> Result<(), OpenError> {
        let opened = self.devices.opener().open(&self.config.request).and_then(|opened| {
            let facts = opened.facts.clone();
            Ok((link::make(&self.config.request, opened)?, facts))
        });
        let (link, facts) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.note_failure(&error.message);
                return Err(error);
            }
        };
        for warning in &facts.warnings {
            tracing::warn!(port = self.config.name, "{warning}");
        }
        let mut kicks = Vec::new();
        for queue in 0..link.queues() {
            let kind = KickKind::Packets(u16::try_from(queue).unwrap_or(u16::MAX));
            match self.routing.add_own(Arc::clone(link.wake_fd(queue)), kind) {
                Ok(kick) => kicks.push(kick),
                Err(error) => {
                    kicks.into_iter().for_each(|kick| self.routing.remove(kick));
                    let message = format!("cannot wait for packets of {}: {error}", facts.interface);
                    self.note_failure(&message);
                    return Err(OpenError::new(super::OpenCause::Failed, message));
                }
            }
        }
        let mtu = u32::from(self.config.mtu).min(if facts.mtu == 0 { u32::MAX } else { facts.mtu });
        self.data.set_max_len(mtu + BEYOND_MTU);
        // A fault that the last device reported late is not about this one.
        self.data.take_fault();
        drop(self.data.link.swap(Some(Box::new(Arc::clone(&link)))));
        device.open = Some(OpenDevice { link, facts, kicks });
        self.state().forget_fault();
        self.state().show(LinkStatus { up: true, ..LinkStatus::default() });
        // There may be packets that came before any worker looked.
        self.routing.wake();
        Ok(())
    }

    /// Closes the device. No worker uses it when this returns.
    fn close(&self, device: &mut Device) {
        let Some(open) = device.open.take() else { return };
        drop(self.data.link.swap(None));
        open.kicks.into_iter().for_each(|kick| self.routing.remove(kick));
        drop(open.link);
        self.devices.opener().close(&self.config.request);
        let reason = format!("interface {} has gone", self.config.request.interface());
        self.state().show(LinkStatus { reason, ..LinkStatus::default() });
    }

    fn note_failure(&self, reason: &str) {
        self.state().show(LinkStatus { reason: reason.to_owned(), ..LinkStatus::default() });
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn assignment(&self) -> Arc<QueueAssignment> {
        Arc::clone(&self.assignment.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PortControl for DevicePort {
    fn name(&self) -> &str {
        &self.shared.config.name
    }

    fn for_worker(&self, worker: usize) -> Arc<dyn Port> {
        Arc::new(WorkerPort::new(Arc::clone(&self.shared.data), &self.shared.assignment(), worker))
    }

    fn assign_queues(&self, assignment: QueueAssignment) {
        assert!(!assignment.delivering.is_empty(), "somebody delivers to each port");
        *self.shared.assignment.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(assignment);
    }

    fn route_kicks(&self, waiters: Waiters, waits: bool) -> io::Result<()> {
        self.shared.routing.change(waiters, waits)
    }

    /// Does nothing: packets never wait in a device's queues (`full = "wait"` is refused).
    fn set_waits(&self, _waits: bool) {}

    fn set_link(&self, up: bool) {
        self.shared.data.set_down(!up);
        self.shared.state().set_down(!up);
    }

    fn is_set_down(&self) -> bool {
        self.shared.data.is_set_down()
    }

    fn set_permissions(&self, _permissions: &Permissions) -> Result<(), ListenError> {
        Ok(())
    }

    fn status(&self) -> LinkStatus {
        let device = self.shared.device();
        let device = device
            .open
            .as_ref()
            .map(|open| DeviceStatus { facts: open.facts.clone(), kernel_drops: open.link.kernel_drops() });
        LinkStatus { device, ..self.shared.state().status() }
    }

    fn history(&self) -> LinkHistory {
        self.shared.state().history()
    }

    fn counters(&self) -> &[Arc<QueueCounters>] {
        &self.shared.data.counters
    }

    fn drops(&self) -> &Arc<Drops> {
        &self.shared.data.drops
    }

    fn pause(&self) {
        let mut device = self.shared.device();
        device.paused = true;
        self.shared.close(&mut device);
    }

    fn resume(&self) -> Result<(), ListenError> {
        self.shared.device().paused = false;
        self.shared.devices.wake_event().wake();
        Ok(())
    }

    fn listen_failure(&self) -> Option<String> {
        None
    }

    fn begin_stop(&self) {
        let mut device = self.shared.device();
        device.stopped = true;
        self.shared.close(&mut device);
    }

    fn has_ended(&self) -> bool {
        self.shared.device().stopped
    }

    fn end_wait(&self, _began: Instant) {}

    fn join(&self) -> bool {
        self.has_ended()
    }
}

impl Drop for DevicePort {
    fn drop(&mut self) {
        self.begin_stop();
    }
}
