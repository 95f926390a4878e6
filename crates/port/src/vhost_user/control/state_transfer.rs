//! Transfers of the device's state to or from a frontend that moves its guest (vhost-user,
//! "Migrating back-end state"). The state's format is in `virtio/src/net_control/saved.rs`.
//!
//! A thread of its own moves the state. A frontend can read or write its end of a pipe with memory
//! that it never provides. It then keeps the kernel's lock on the pipe, and no flag helps the next
//! user of the pipe. A thread that waits for that lock stays until the frontend lets it go. A port
//! has at most one such thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::Duration;

use straightline_packet::IgnorePoison;
use straightline_virtio::features::{list, names};
use straightline_virtio::net_control::SavedState;

use super::control_queue::KeptState;
use super::frontend::ConnectedFrontend;
use super::state_channel::{ChannelTransfer, LIMIT};
use super::transfer_thread::{Orders, Transfer, TransferThread};

/// The interval at which a transfer under way tries to move more bytes.
const PACE: Duration = Duration::from_millis(10);

/// The time that a transfer may still take after the frontend has done its part. A process that the
/// frontend has just forked keeps the pipe open until it runs its own program.
const GRACE: Duration = Duration::from_millis(500);

impl ConnectedFrontend {
    /// Begins to write the state. The frontend reads when it has our answer.
    pub(crate) fn save_state(&mut self, channel: OwnedFd) -> Result<(), String> {
        let announces = self.session.announces();
        let saved = match &self.control_queue.kept {
            KeptState::Nothing => self.control_queue.state.save(announces),
            KeptState::Stopped(state) => state.save(announces),
            KeptState::Loaded(saved) => (**saved).clone(),
        };
        self.transfer = Transfer::None;
        self.transfer = Transfer::Saving(self.start_moving(
            ChannelTransfer::begin(channel, saved.to_bytes(), self.shared.clock())?,
            ChannelTransfer::write,
        )?);
        Ok(())
    }

    /// Begins to read a state.
    pub(crate) fn load_state(&mut self, channel: OwnedFd) -> Result<(), String> {
        self.transfer = Transfer::None;
        self.transfer =
            Transfer::Loading(self.start_moving(
                ChannelTransfer::begin(channel, Vec::new(), self.shared.clock())?,
                ChannelTransfer::read,
            )?);
        Ok(())
    }

    /// Forgets a transferred state: the device has run since, or begins anew.
    pub(crate) fn forget_state(&mut self) {
        self.control_queue.kept = KeptState::Nothing;
        if matches!(self.transfer, Transfer::Loaded(_)) {
            self.transfer = Transfer::None;
        }
    }

    /// Checks that the last transfer was complete. The device continues with a state that was
    /// loaded.
    pub(crate) fn check_state(&mut self) -> Result<(), String> {
        let done = match std::mem::take(&mut self.transfer) {
            Transfer::Saving(mover) => mover.finish().map(|_| Transfer::Saved),
            Transfer::Loading(mover) => mover.finish().and_then(|bytes| match SavedState::read(&bytes) {
                Ok(saved) => Ok(Transfer::Loaded(Box::new(saved))),
                Err(error) => Err(error.to_string()),
            }),
            before => Ok(before),
        };
        self.transfer = done.unwrap_or_else(Transfer::Failed);
        let loaded = match &self.transfer {
            Transfer::Saved => return Ok(()),
            Transfer::Loaded(saved) => saved,
            // Cites vhost-user-check-device-state-1.
            Transfer::Failed(why) => return Err(format!("device state: {why}")),
            _ => return Err("device state: no transfer took place".to_owned()),
        };
        let extra = loaded.features() & !self.session.offered_features();
        if extra != 0 {
            let extra = list(names(extra));
            return Err(format!("device state: its driver negotiated features that the port does not offer: {extra}"));
        }
        let pairs = loaded.pairs();
        let most = self.shared.config.most_pairs();
        if pairs > most {
            return Err(format!("device state: its driver uses {pairs} queue pairs; the port has {most}"));
        }
        // Cites vhost-user-migrating-2.
        self.control_queue.kept = KeptState::Loaded(loaded.clone());
        if loaded.fits(self.session.acked_features()) {
            self.reset_commands();
        }
        Ok(())
    }
}

impl ConnectedFrontend {
    /// Starts a thread that moves the state step by step, once the transfer before has ended.
    fn start_moving(&self, mut moving: ChannelTransfer, step: Step) -> Result<TransferThread, String> {
        let clock = self.shared.clock().clone();
        let mut last = self.shared.transfer_thread.lock().ignore_poison();
        if last.as_ref().is_some_and(|thread| !clock.is_within(LIMIT, || thread.is_finished())) {
            return Err("device state: the channel of the last transfer still blocks its thread".to_owned());
        }
        let orders = Arc::new(Orders::default());
        let (sender, end) = channel();
        let theirs = Arc::clone(&orders);
        let their_clock = clock.clone();
        let run = move || {
            let mut end_at = None;
            let done = loop {
                let at_end = theirs.at_end.load(Ordering::Acquire);
                if at_end && end_at.is_none() {
                    end_at = Some(their_clock.now() + GRACE);
                }
                match step(&mut moving, at_end) {
                    Ok(false) if end_at.is_some_and(|end| their_clock.now() >= end) => {
                        break Err("it was not complete when the frontend checked it".to_owned());
                    }
                    Ok(false) if theirs.stop.load(Ordering::Acquire) => return,
                    Ok(false) => their_clock.park(their_clock.now() + PACE),
                    Ok(true) => break Ok(moving.take()),
                    Err(why) => break Err(why),
                }
            };
            // Cites vhost-user-migrating-1.
            drop(moving);
            // There is no receiver if the frontend has left.
            let _ = sender.send(done);
        };
        let name = format!("state {}", self.shared.config.name);
        let thread =
            Builder::new().name(name).spawn(run).map_err(|e| format!("device state: cannot start its thread: {e}"))?;
        let transfer = TransferThread { orders, end, thread: thread.thread().clone(), clock };
        *last = Some(thread);
        Ok(transfer)
    }
}

/// A step of a transfer. Returns true at its end. The second argument says that the frontend has
/// done its part.
type Step = fn(&mut ChannelTransfer, bool) -> Result<bool, String>;
