//! A connected frontend: its messages, and what follows from them.
//!
//! Workers see only the link of a frontend, which is replaced as a whole. So no turn uses unmapped
//! memory or a stopped ring.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, send};
use straightline_graph::{Down, DownCause, Peer, QueueAssignment, peer};
use straightline_virtio::fail;
use straightline_virtio::features::VIRTIO_F_RING_PACKED;
use straightline_virtio::memory::{DirtyLog, GuestMemory, Region};
use straightline_virtio::vhost_user::{Connection, Effect, Refused, RequestOutcome, Session};
use tracing::Level;

use super::control_queue::ControlQueue;
use super::inflight_tables::InflightTables;
use super::poll::wait_for_any;
use super::running_ring::RunningRing;
use super::shared::Shared;
use super::stop::Stop;
use super::transfer_thread::Transfer;
use crate::notify::call_helper::CallHelper;
use crate::vhost_user::data::queue::Queue;

/// A connected frontend.
pub(crate) struct ConnectedFrontend {
    pub(crate) shared: Arc<Shared>,
    connection: Connection,
    /// The process that sends the messages.
    pub(crate) peer: Option<Peer>,
    pub(crate) session: Session,
    pub(crate) memory: Arc<GuestMemory>,
    /// True once the frontend has sent memory.
    pub(crate) was_sent_memory: bool,
    /// The log of writes to guest memory, once the frontend has sent one.
    pub(crate) log: Option<Arc<DirtyLog>>,
    /// The rings that run, by index.
    pub(crate) rings: Vec<Option<RunningRing>>,
    /// The start at which a ring broke, by index. The ring stays stopped until the frontend starts
    /// it again.
    pub(crate) broken: Vec<Option<u32>>,
    pub(crate) acked: u64,
    /// Queue pairs up to the last that was started since features were negotiated.
    pub(crate) started_pairs: u16,
    pub(crate) control_queue: ControlQueue,
    pub(crate) transfer: Transfer,
    /// True if the link is set down, as far as the frontend knows.
    pub(crate) set_down: bool,
    /// The queue assignment, as far as workers know.
    pub(crate) assignment: Arc<QueueAssignment>,
    /// The number of links published.
    pub(crate) generation: u64,
    /// The tables of buffers in flight.
    pub(crate) inflight: InflightTables,
    /// The time when the rings are checked again for a lost call; `None` while no call is
    /// unanswered.
    pub(crate) next_check: Option<Instant>,
    /// Rings that were stopped and that workers may use until the next link is published.
    pub(crate) stopping: Vec<(u16, Arc<Queue>)>,
    /// The thread that notifies the guest where a notification may wait.
    pub(crate) calls: CallHelper,
    /// The helper notifies because the calls cost too much, as last logged.
    has_slow_calls: bool,
}

impl ConnectedFrontend {
    pub(crate) fn new(shared: Arc<Shared>, connection: Connection) -> Self {
        let session = Session::new(shared.config.offer());
        let rings = session.rings();
        let frontend = ConnectedFrontend {
            peer: peer(connection.stream().as_fd()).ok(),
            connection,
            memory: Arc::default(),
            was_sent_memory: false,
            log: None,
            rings: (0..rings).map(|_| None).collect(),
            broken: vec![None; rings.into()],
            session,
            acked: 0,
            started_pairs: 0,
            control_queue: ControlQueue::new(Arc::clone(&shared.control_kicks)),
            transfer: Transfer::None,
            set_down: false,
            assignment: shared.assignment(),
            generation: 0,
            inflight: InflightTables::default(),
            next_check: None,
            stopping: Vec::new(),
            calls: new_helper(&shared),
            has_slow_calls: false,
            shared,
        };
        frontend.show();
        frontend
    }

    /// Serves the frontend until it leaves or errs, or the port stops. Returns why.
    pub(crate) fn serve(&mut self, stop: &Stop) -> Down {
        let mut limit = None;
        loop {
            let mut retry = None;
            if let Err(error) = self.calls.start_if_wanted() {
                self.shared.log(
                    Level::WARN,
                    format_args!("cannot start the thread that notifies its guest: {error}; tried again"),
                );
                // A notification waits for the helper thread, and no later one will ask for the
                // thread again.
                retry = Some(self.shared.clock().now() + Duration::from_secs(1));
            }
            self.note_call_cost();
            self.follow_administrator();
            self.tell_of_change();
            if !Arc::ptr_eq(&self.assignment, &self.shared.assignment()) {
                self.publish();
            }
            let fds = [self.connection.stream().as_fd(), self.shared.inbox.event(), self.control_queue.event()];
            let until = limit.into_iter().chain(self.shared.suppressed_due()).chain(retry).min();
            let ready = wait_for_any(self.shared.clock(), fds, until);
            if !ready {
                self.shared.report_suppressed();
            }
            // A report about a link that has been replaced says nothing about the present link.
            if let Some((_, fault)) = self.shared.inbox.take_fault().filter(|(about, _)| *about == self.generation) {
                self.break_off(fault);
            }
            if stop.leaves() {
                return Down::new(DownCause::Stopped, "the port was stopped");
            }
            if ready {
                match self.step() {
                    Ok(true) => self.show(),
                    Ok(false) => return Down::new(DownCause::FrontendLeft, "the frontend closed its connection"),
                    Err(down) => return down,
                }
            }
            limit = [self.execute(), self.repeat_lost_calls()].into_iter().flatten().min();
        }
    }

    /// Logs that the helper thread notifies from now on, or no longer.
    fn note_call_cost(&mut self) {
        let is_slow = self.shared.call_cost.is_slow();
        if is_slow == self.has_slow_calls {
            return;
        }
        self.has_slow_calls = is_slow;
        let what = if is_slow {
            "its guest's notifications take too long; a helper thread sends them"
        } else {
            "its guest's notifications are short again; workers send them"
        };
        self.shared.log(Level::WARN, format_args!("{what}"));
    }

    /// Records in the configuration space that an administrator has set the link down or up.
    fn follow_administrator(&mut self) {
        let down = self.shared.data.is_set_down();
        if down == self.set_down {
            return;
        }
        self.set_down = down;
        let link = if down { "down" } else { "up" };
        tracing::info!(port = self.shared.config.name, "the administrator has set the link {link}");
        self.session.set_link(!down);
    }

    /// Tells the frontend that the configuration space has changed, once it may be told.
    fn tell_of_change(&mut self) {
        let Some((channel, message)) = self.session.config_change() else { return };
        // A frontend that does not read must not hold us up. It sees the status when it reads the
        // configuration space.
        // Cites vhost-user-config-change-1.
        if let Err(error) = send(channel, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            tracing::warn!(port = self.shared.config.name, "cannot tell the frontend of its link: {error}");
        }
    }

    /// Handles one message. Returns `false` at the connection's end.
    fn step(&mut self) -> Result<bool, Down> {
        let failed = |error: io::Error| Down::new(DownCause::FrontendLeft, format!("the socket failed: {error}"));
        let Some((message, fds)) = self.connection.recv().map_err(failed)? else {
            return Ok(false);
        };
        tracing::trace!(port = self.shared.config.name, fds = fds.len(), "{message:?}");
        fail::hit("port-message");
        let mut shows_table = false;
        let ring_fds = self.shared.admit_ring_fds(self.session.ring_fds() + fds.len());
        self.session.limit_ring_fds(ring_fds);
        // Cites vhost-user-suspended-4.
        let answer = match self.session.handle(message, fds) {
            Ok(effect) => {
                let outcome = match effect {
                    Effect::MakeInflight(spec) => self.make_inflight(spec),
                    effect => self.carry_out(effect),
                };
                shows_table = matches!(outcome, RequestOutcome::Inflight(_));
                let failed = matches!(outcome, RequestOutcome::Failed);
                let answer = self.session.reply(outcome);
                if failed {
                    // The session has undone the change, and the rings follow. The error was
                    // reported already.
                    let _ = self.sync();
                    if answer.is_none() {
                        let why = self.shared.state().fault().map(|fault| fault.reason.clone()).unwrap_or_default();
                        let reason = format!("the request of the frontend failed: {why}");
                        return Err(Down::new(DownCause::RequestFailed, reason));
                    }
                }
                answer
            }
            Err(error) => match self.session.refuse(&error) {
                Refused::Answer(bytes) => {
                    self.shared.log(Level::WARN, format_args!("refused: {error}"));
                    self.shared.state().set_fault(Down::new(DownCause::Protocol, format!("refused: {error}")));
                    Some(bytes)
                }
                Refused::Ignore => {
                    self.shared.log(Level::DEBUG, format_args!("ignored: {error}"));
                    None
                }
                Refused::Close => return Err(Down::new(DownCause::Protocol, error.to_string())),
            },
        };
        self.shared.admit_ring_fds(self.session.ring_fds());
        if let Some(bytes) = answer {
            let beside = self.inflight.file().filter(|_| shows_table);
            self.connection.send(&bytes, beside.as_slice()).map_err(failed)?;
        }
        Ok(true)
    }

    fn carry_out(&mut self, effect: Effect) -> RequestOutcome {
        let done = match effect {
            Effect::KeepInflight(spec, file) => self.keep_inflight(spec, &file),
            Effect::None | Effect::MakeInflight(_) | Effect::Status(_) => Ok(()),
            Effect::Rarp(mac) => {
                self.shared.data.announcement.ask(mac);
                self.shared.routing.wake();
                Ok(())
            }
            Effect::Memory(regions) => self.set_memory(regions),
            Effect::AddRegion(region) => self.add_region(&region),
            Effect::RemoveRegion(spec) => {
                // Cites vhost-user-rem-mem-reg-2.
                let kept = |r: &&Arc<Region>| r.guest_addr() != spec.guest_addr;
                let regions = self.memory.regions().iter().filter(kept).cloned().collect();
                self.change_slots(regions)
            }
            Effect::Log(log) => self.set_log(&log),
            Effect::Features(_) | Effect::Ring(_) | Effect::DisableRings => self.sync(),
            Effect::SaveState(channel) => self.save_state(channel),
            Effect::LoadState(channel) => self.load_state(channel),
            Effect::CheckState => self.check_state(),
            Effect::StopRings => {
                self.suspend_commands();
                let done = self.sync();
                (0..self.session.rings()).for_each(|index| self.forget_inflight(index));
                done
            }
            Effect::Reset => {
                self.forget_state();
                self.reset_commands();
                // The session has forgotten the features already. These are the ones of the rings
                // that are about to stop.
                let packed = self.acked & VIRTIO_F_RING_PACKED != 0;
                let done = self.sync();
                // The rings of a reset device begin anew (virtio 1.2, 2.4); their old positions do
                // not matter. In a packed ring both wrap counters begin with 1 (2.8.1).
                // Cites packed-2.8.1-1, vhost-user-reset-device-1.
                let base = if packed { 0x8000_8000 } else { 0 };
                (0..self.session.rings()).for_each(|index| self.session.stopped_at(index, base));
                (0..self.session.rings()).for_each(|index| self.forget_inflight(index));
                done
            }
            Effect::StopRing(index) => {
                let base = self.rings.get(usize::from(index)).and_then(Option::as_ref).map(|r| Arc::clone(&r.queue));
                let done = self.sync();
                let base = match base {
                    Some(queue) => queue.base(),
                    None => self.session.ring(index).map_or(0, |r| r.base),
                };
                if done.is_ok() {
                    self.forget_inflight(index);
                    return RequestOutcome::RingBase(base);
                }
                done
            }
            // Cites vhost-user-net-set-mtu-1.
            Effect::Mtu(mtu) if mtu <= self.shared.config.mtu => Ok(()),
            Effect::Mtu(mtu) => {
                Err(format!("the frontend sets an MTU of {mtu}; the port's is {}", self.shared.config.mtu))
            }
        };
        match done {
            Ok(()) => RequestOutcome::Done,
            Err(why) => {
                self.shared.log(Level::WARN, format_args!("{why}"));
                self.shared.state().set_fault(Down::new(DownCause::RequestFailed, why));
                RequestOutcome::Failed
            }
        }
    }

    /// Drops everything that belongs to a frontend that has left.
    pub(crate) fn leave(&mut self) {
        fail::hit("port-left");
        self.rings.fill_with(|| None);
        self.publish();
        // No worker uses the old helper any more.
        self.calls = new_helper(&self.shared);
        self.transfer = Transfer::None;
        self.shared.admit_ring_fds(0);
        self.memory = Arc::default();
        self.was_sent_memory = false;
        self.log = None;
        self.shared.state().forget_fault();
    }
}

fn new_helper(shared: &Arc<Shared>) -> CallHelper {
    let inbox = Arc::clone(&shared.inbox);
    shared.call_cost.forgive();
    CallHelper::new(&shared.config.name, Arc::clone(&shared.call_cost), move || inbox.wake())
}
