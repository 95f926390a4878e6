//! The control side of device ports of all kinds.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use az::SaturatingAs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use straightline_graph::{
    DeviceFacts, DeviceStatus, Down, DownCause, LinkHistory, LinkState, LinkStatus, ListenError, Permissions, Port,
    PortControl, QueueAssignment, QueueCounters, Waiters,
};
use straightline_packet::{Drops, IgnorePoison, PortIndex, Rcu, RcuCell};
use straightline_wire::FrameLimit;
use tracing::Level;

use super::devices::{Devices, Lookup};
use super::link::{self, DeviceLink, DevicePortData};
use super::netlink::Interface;
use super::worker_port::WorkerPort;
use super::{AfXdpRequest, DeviceRequest, OpenCause, OpenError, OpenedDevice};
use crate::descriptor_share::DescriptorShare;
use crate::log_limit::{PortLogLimit, log_limited};
use crate::notify::kick_routing::{Kick, KickKind, KickRouting};

/// Time between two attempts if the interface has changed since the last: a failed attempt may
/// itself change the interface.
const SHORT_RETRY: Duration = Duration::from_millis(100);

/// Time that a pause or the port's end waits for the opener.
const END_TIME: Duration = Duration::from_millis(100);

/// The module's name in the log.
const TARGET: &str = "straightline_port::device";

/// Failures that a port remembers, so that it logs each once.
const MOST_LOGGED: usize = 16;

/// The settings of a device port.
#[derive(Clone, Debug)]
pub struct DevicePortConfig {
    /// The port's name.
    pub name: String,
    /// The interface.
    pub request: DeviceRequest,
    /// The MTU: longer packets are dropped.
    pub mtu: u16,
    /// The most queues that the interface may have, at least 1.
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
    make: MakeLink,
    routing: KickRouting,
    assignment: Mutex<Arc<QueueAssignment>>,
    state: Mutex<LinkState>,
    /// Locked while the opener works, which may take long.
    device: Mutex<Device>,
    /// The open device as operators see it. Never locked while the opener works.
    shown: Mutex<Option<ShownDevice>>,
    /// The port keeps its device closed, so that another port can have it.
    is_paused: AtomicBool,
    /// A thread of its own opens the device ([`super::openings`]).
    is_opening: AtomicBool,
    /// The port ends: its device stays closed.
    stops: AtomicBool,
    has_ended: AtomicBool,
    /// The highest number of queues that the device has had.
    queues: AtomicUsize,
    /// The limit of log lines that the other end of the interface can cause.
    log_limit: PortLogLimit,
    /// The descriptors of the interface.
    _descriptors: DescriptorShare,
}

/// Makes the link of an open device. Tests bring links of their own.
pub(super) type MakeLink = fn(&DeviceRequest, OpenedDevice, PortIndex) -> Result<Arc<dyn DeviceLink>, OpenError>;

/// The next wish of a port.
#[derive(Debug)]
pub(super) enum Served {
    /// To be served at this time, whatever happens.
    Until(Option<Instant>),
    /// Its device is to be opened. The last attempt was at this time.
    Due(Option<Instant>),
}

/// The device of a port.
#[derive(Debug, Default)]
struct Device {
    open: Option<OpenDevice>,
    /// The interface as it was when the port last looked at it.
    interface: Option<Interface>,
    /// The time of the last attempt to open.
    tried: Option<Instant>,
    /// The failures that are in the log already.
    logged: Vec<String>,
}

#[derive(Debug)]
struct OpenDevice {
    ifindex: u32,
    /// The kicks of the link's queues.
    kicks: Vec<Kick>,
}

#[derive(Debug)]
struct ShownDevice {
    link: Arc<dyn DeviceLink>,
    facts: DeviceFacts,
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
        Self::open_by(link::make, config, index, drops, rcu, waiters.into(), devices)
    }

    fn open_by(
        make: MakeLink,
        config: DevicePortConfig,
        index: PortIndex,
        drops: Arc<Drops>,
        rcu: &Rcu,
        waiters: Waiters,
        devices: &Arc<Devices>,
    ) -> Result<Self, OpenError> {
        let queues = config.queues.max(1);
        // The interface decides, if the file does not: the first queue is there in any case.
        let first =
            if let DeviceRequest::AfXdp(AfXdpRequest { queues: None, .. }) = config.request { 1 } else { queues };
        let data = Arc::new(DevicePortData {
            name: config.name.clone(),
            index,
            drops,
            counters: (0..queues).map(|_| Arc::default()).collect(),
            link: RcuCell::new(rcu),
            max_len: AtomicU32::new(FrameLimit::new(config.mtu).bytes()),
            mac: AtomicU64::new(0),
            set_down: AtomicBool::new(false),
            faulted: AtomicBool::new(false),
            wake: Arc::clone(devices.wake_event()),
        });
        let shared = Arc::new(Shared {
            data,
            make,
            routing: KickRouting::new(waiters, false),
            assignment: Mutex::new(Arc::new(QueueAssignment::one(0, queues))),
            state: Mutex::new(LinkState::new(devices.clock().clone())),
            device: Mutex::default(),
            shown: Mutex::default(),
            is_paused: AtomicBool::new(false),
            is_opening: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            queues: AtomicUsize::new(first.into()),
            log_limit: PortLogLimit::new(devices.clock().clone()),
            _descriptors: DescriptorShare::new(super::descriptors(queues.into())),
            devices: Arc::clone(devices),
            config,
        });
        let mut device = shared.device();
        match shared.open(&mut device) {
            Err(error) if !error.may_pass() => return Err(error),
            Err(error) => shared.log_failure(&mut device, &error),
            Ok(()) => {}
        }
        drop(device);
        let failed = |error: io::Error| OpenError::new(OpenCause::Failed, error.to_string());
        devices.add(&shared).map_err(failed)?;
        Ok(DevicePort { shared })
    }
}

impl Shared {
    /// Brings the port up to date with its interface, and reports suppressed log lines.
    pub(super) fn serve(&self) -> Served {
        let served = if self.is_opening.load(Ordering::Acquire) { Served::Until(None) } else { self.serve_device() };
        if let Some(suppressed_before) = self.log_limit.report() {
            let port = &self.config.name;
            tracing::warn!(target: TARGET, port, suppressed_before, "the interface caused too many log lines");
        }
        match served {
            Served::Until(next) => Served::Until(next.into_iter().chain(self.log_limit.due()).min()),
            due @ Served::Due(_) => due,
        }
    }

    /// Closes a device that has gone, and finds out whether one is to be opened.
    fn serve_device(&self) -> Served {
        let mut device = self.device();
        if self.end(&mut device) {
            return Served::Until(None);
        }
        if device.open.is_some() {
            self.follow(&mut device);
        }
        if device.open.is_some() {
            return Served::Until(None);
        }
        let has_changed = device.interface != self.devices.find(self.interface());
        let pause = if has_changed { SHORT_RETRY } else { self.devices.retry() };
        let due = device.tried.map(|tried| tried + pause);
        match due.filter(|due| *due > self.devices.clock().now()) {
            Some(due) => Served::Until(Some(due)),
            None => Served::Due(device.tried),
        }
    }

    /// Opens the device of a port that is due. The opener may take long.
    pub(super) fn open_due(&self) {
        let mut device = self.device();
        if self.end(&mut device) || device.open.is_some() {
            return;
        }
        if let Err(error) = self.open(&mut device) {
            // The pause begins at the end of an attempt.
            device.tried = Some(self.devices.clock().now());
            self.log_failure(&mut device, &error);
        }
    }

    /// Notes whether a thread of its own opens the device. Meanwhile nobody else serves the port.
    pub(super) fn set_opening(&self, opening: bool) {
        self.is_opening.store(opening, Ordering::Release);
    }

    /// Closes the device after a panic of a thread that serves the port. It is opened anew after a
    /// pause.
    pub(super) fn close_after_panic(&self) {
        let down =
            Down::new(DownCause::InterfaceReopened, "a bug in the switch, which is in its log; it is tried again");
        self.log(Level::ERROR, format_args!("{}", down.reason));
        let mut device = self.device();
        device.tried = Some(self.devices.clock().now());
        self.close(&mut device, down.clone());
        self.state().show_failure(&down);
    }

    /// Closes the device of a port that is paused or ends. Returns whether it is or does.
    fn end(&self, device: &mut Device) -> bool {
        let stops = self.stops.load(Ordering::Acquire);
        if !stops && !self.is_paused.load(Ordering::Acquire) {
            return false;
        }
        let reason = if stops { "the port has ended" } else { "another port has the interface" };
        self.close(device, Down::new(DownCause::Stopped, reason));
        // After a pause the port does not wait.
        device.tried = None;
        self.has_ended.fetch_or(stops, Ordering::AcqRel);
        true
    }

    /// Takes in what has happened to the open device and its interface.
    fn follow(&self, device: &mut Device) {
        let Some(open) = &device.open else { return };
        match self.devices.get(open.ifindex) {
            Lookup::Found(interface) if interface.is_up && self.data.take_fault() => {
                let name = &interface.name;
                if device.interface.as_ref().is_some_and(|before| before.is_up) {
                    let reason = format!("interface {name} does not work any more: it is opened anew");
                    return self.lose(device, Down::new(DownCause::InterfaceReopened, reason));
                }
                // System calls have failed while the interface was down.
                let reason = format!("interface {name} was down: it is opened anew");
                self.close(device, Down::new(DownCause::InterfaceReopened, reason));
                device.tried = None;
            }
            Lookup::Found(interface) => self.show(device, interface),
            // A tap that has moved to another network namespace works: only its descriptor tells
            // that a tap has gone.
            Lookup::Missing if self.is_tap() && !self.has_hung_up() => self.show_moved(device),
            Lookup::Missing => self.lose(device, self.gone()),
            Lookup::Unknown if self.data.take_fault() => self.lose(device, self.gone()),
            Lookup::Unknown => {}
        }
    }

    /// Opens the device and publishes it to workers.
    fn open(&self, device: &mut Device) -> Result<(), OpenError> {
        device.tried = Some(self.devices.clock().now());
        device.interface = self.devices.find(self.interface());
        match self.make_ready() {
            Ok((shown, kicks)) => {
                self.publish(device, shown, kicks);
                Ok(())
            }
            Err(error) => {
                self.state().show_failure(&error.down());
                Err(error)
            }
        }
    }

    /// Logs a failure to open, unless it is in the log already: it may repeat every second.
    fn log_failure(&self, device: &mut Device, error: &OpenError) {
        if device.logged.contains(&error.message) {
            return;
        }
        self.log(Level::WARN, format_args!("{error}"));
        if device.logged.len() == MOST_LOGGED {
            device.logged.clear();
        }
        device.logged.push(error.message.clone());
    }

    /// Logs a line that the other end of the interface can cause, unless the port has logged too
    /// many.
    fn log(&self, level: Level, text: fmt::Arguments<'_>) {
        log_limited!(self.log_limit, target: TARGET, port = self.config.name, level, text);
    }

    /// Opens the device and routes its kicks.
    fn make_ready(&self) -> Result<(ShownDevice, Vec<Kick>), OpenError> {
        let opened = self.devices.opener().open(&self.config.request)?;
        let facts = opened.facts.clone();
        let ready = (self.make)(&self.config.request, opened, self.data.index).and_then(|link| {
            let kicks = self.route(&*link)?;
            Ok((ShownDevice { link, facts }, kicks))
        });
        if ready.is_err() {
            self.devices.opener().close(&self.config.request);
        }
        ready
    }

    fn route(&self, link: &dyn DeviceLink) -> Result<Vec<Kick>, OpenError> {
        let name = self.interface();
        let queues = link.queues();
        let most = self.data.counters.len();
        if queues > most {
            let message = format!("interface {name} has {queues} queues, and the port is made for {most}");
            return Err(OpenError::new(OpenCause::Failed, message));
        }
        let mut kicks = Vec::new();
        for queue in 0..queues {
            let kind = KickKind::Packets(queue.saturating_as::<u16>());
            match self.routing.add_own(Arc::clone(link.wake_fd(queue)), kind) {
                Ok(kick) => kicks.push(kick),
                Err(error) => {
                    kicks.into_iter().for_each(|kick| self.routing.remove(kick));
                    let message = format!("cannot wait for packets of interface {name}: {error}");
                    return Err(OpenError::new(OpenCause::Failed, message));
                }
            }
        }
        Ok(kicks)
    }

    fn publish(&self, device: &mut Device, shown: ShownDevice, kicks: Vec<Kick>) {
        for warning in &shown.facts.warnings {
            self.log(Level::WARN, format_args!("{warning}"));
        }
        let ifindex = shown.facts.ifindex;
        self.data.set_max_len(self.max_len(shown.facts.mtu));
        self.set_mac(shown.facts.mac);
        // A fault that the last device reported late is not about this one.
        self.data.take_fault();
        self.queues.fetch_max(shown.link.queues(), Ordering::AcqRel);
        drop(self.data.link.swap(Some(Box::new(Arc::clone(&shown.link)))));
        *self.shown() = Some(shown);
        device.open = Some(OpenDevice { ifindex, kicks });
        device.logged.clear();
        match self.devices.get(ifindex) {
            Lookup::Found(interface) => {
                device.interface = None;
                self.show(device, interface);
            }
            Lookup::Missing | Lookup::Unknown => {
                self.state().show(LinkStatus { up: true, ..LinkStatus::default() });
            }
        }
        // There may be packets that came before any worker looked.
        self.routing.wake();
    }

    /// Shows the interface of the open device as it is now.
    fn show(&self, device: &mut Device, interface: Interface) {
        let before = device.interface.replace(interface.clone());
        if before.as_ref() == Some(&interface) {
            return;
        }
        self.data.set_max_len(self.max_len(interface.mtu));
        self.set_mac(interface.mac);
        if let Some(ShownDevice { facts, .. }) = &mut *self.shown() {
            if facts.interface != interface.name {
                let old = &facts.interface;
                let new = &interface.name;
                let text = format_args!("interface {old} is called {new} now: the port keeps it until it is closed");
                self.log(Level::WARN, text);
            }
            facts.interface.clone_from(&interface.name);
            (facts.mtu, facts.mac) = (interface.mtu, interface.mac);
        }
        let is_up = |interface: &Interface| interface.is_up && interface.has_carrier;
        let down = interface.down();
        let was_up = before.as_ref().is_some_and(is_up);
        match &down {
            None if !was_up => self.log(Level::INFO, format_args!("interface {} is up", interface.name)),
            Some(down) if was_up || before.is_none() => self.log(Level::WARN, format_args!("{}", down.reason)),
            _ => {}
        }
        let up = LinkStatus { up: true, ..LinkStatus::default() };
        self.state().show(down.map_or(up, LinkStatus::down));
    }

    /// Shows a tap that has moved to another network namespace. Nothing is known about it there.
    fn show_moved(&self, device: &mut Device) {
        if let Some(Interface { name, .. }) = device.interface.take() {
            self.log(Level::INFO, format_args!("interface {name} has moved to another network namespace"));
            self.state().show(LinkStatus { up: true, ..LinkStatus::default() });
        }
    }

    /// Returns whether the descriptor of the open device says that its other side has gone.
    fn has_hung_up(&self) -> bool {
        let shown = self.shown();
        let Some(ShownDevice { link, .. }) = shown.as_ref() else { return true };
        let mut fds = [PollFd::new(link.wake_fd(0), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    /// Closes a device that does not work any more.
    fn lose(&self, device: &mut Device, down: Down) {
        self.log(Level::WARN, format_args!("{}", down.reason));
        self.close(device, down.clone());
        // The interface may have been down before.
        self.state().show_failure(&down);
    }

    /// Closes the device. No worker uses it when this returns.
    fn close(&self, device: &mut Device, down: Down) {
        let Some(open) = device.open.take() else { return };
        self.state().show(LinkStatus::down(down));
        drop(self.data.link.swap(None));
        open.kicks.into_iter().for_each(|kick| self.routing.remove(kick));
        drop(self.shown().take());
        self.devices.opener().close(&self.config.request);
        device.interface = self.devices.find(self.interface());
    }

    /// Returns the bytes of the longest packet, for an interface of this MTU.
    fn max_len(&self, mtu: u32) -> u32 {
        // Unknown is 0.
        let known = u16::try_from(mtu).ok().filter(|mtu| *mtu > 0).unwrap_or(u16::MAX);
        FrameLimit::new(self.config.mtu.min(known)).bytes()
    }

    /// Returns the open device as operators see it.
    fn device_status(&self) -> Option<DeviceStatus> {
        let (facts, mut kernel_drops) = {
            let shown = self.shown();
            let ShownDevice { link, facts } = shown.as_ref()?;
            (facts.clone(), link.kernel_drops())
        };
        if self.is_tap()
            && let Some(counts) = self.devices.drop_counts(facts.ifindex)
        {
            kernel_drops.extend([("rx_dropped", counts.rx), ("tx_dropped", counts.tx)]);
        }
        Some(DeviceStatus { facts, kernel_drops })
    }

    /// Lets the switch send by this MAC address. That of a tap belongs to the host.
    fn set_mac(&self, mac: [u8; 6]) {
        if !self.is_tap() {
            self.data.set_mac(mac);
        }
    }

    fn is_tap(&self) -> bool {
        matches!(self.config.request, DeviceRequest::Tap(_))
    }

    /// Returns the state of a link whose interface has gone.
    fn gone(&self) -> Down {
        let name = self.interface();
        let next = if self.is_tap() { "makes" } else { "opens" };
        let reason = format!("interface {name} has gone: the port {next} it again as soon as it can");
        Down::new(DownCause::InterfaceGone, reason)
    }

    fn interface(&self) -> &str {
        self.config.request.interface()
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().ignore_poison()
    }

    /// Closes the device of a port that is paused or ends. If the opener is at work, the thread of
    /// [`Devices`] closes the device when the opener has done.
    fn end_soon(&self) {
        let mut device = None;
        self.devices.clock().is_within(END_TIME, || {
            device = match self.device.try_lock() {
                Ok(device) => Some(device),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            device.is_some()
        });
        match device {
            Some(mut device) => drop(self.end(&mut device)),
            None => self.devices.wake_event().wake(),
        }
    }

    fn shown(&self) -> MutexGuard<'_, Option<ShownDevice>> {
        self.shown.lock().ignore_poison()
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().ignore_poison()
    }

    fn assignment(&self) -> Arc<QueueAssignment> {
        Arc::clone(&self.assignment.lock().ignore_poison())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut device = std::mem::take(&mut *self.device());
        self.close(&mut device, Down::new(DownCause::Stopped, "the port has ended"));
    }
}

impl Interface {
    /// Returns why no packet passes the interface, and the remedy, or `None` if packets pass.
    fn down(&self) -> Option<Down> {
        let name = &self.name;
        match self {
            Interface { is_up: false, .. } => Some(OpenError::set_down(name).down()),
            Interface { has_carrier: false, .. } => {
                let reason =
                    format!("interface {name} has no carrier; look at its cable, or set the other end of a pair up");
                Some(Down::new(DownCause::NoCarrier, reason))
            }
            _ => None,
        }
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
        *self.shared.assignment.lock().ignore_poison() = Arc::new(assignment);
    }

    fn route_kicks(&self, waiters: Waiters, waits: bool) -> io::Result<()> {
        self.shared.routing.change(waiters, waits)
    }

    /// Does nothing: packets never wait in a device's queues (`full = "wait"` is refused).
    fn set_waits(&self, _waits: bool) {}

    fn set_link(&self, up: bool) {
        if self.is_set_down() != up {
            return;
        }
        let link = if up { "up" } else { "down" };
        tracing::info!(port = self.shared.config.name, "the administrator has set the link {link}");
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
        let device = self.shared.device_status();
        LinkStatus { device, ..self.shared.state().status() }
    }

    fn history(&self) -> LinkHistory {
        self.shared.state().history()
    }

    fn counters(&self) -> Vec<Arc<QueueCounters>> {
        let counters = &self.shared.data.counters;
        counters.get(..self.shared.queues.load(Ordering::Acquire)).unwrap_or(counters).to_vec()
    }

    fn drops(&self) -> &Arc<Drops> {
        &self.shared.data.drops
    }

    fn pause(&self) {
        self.shared.is_paused.store(true, Ordering::Release);
        self.shared.end_soon();
    }

    fn resume(&self) -> Result<(), ListenError> {
        self.shared.is_paused.store(false, Ordering::Release);
        self.shared.devices.wake_event().wake();
        Ok(())
    }

    fn listen_failure(&self) -> Option<String> {
        None
    }

    fn begin_stop(&self) {
        self.shared.stops.store(true, Ordering::Release);
        self.shared.end_soon();
    }

    fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Acquire)
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

#[cfg(test)]
mod tests;
