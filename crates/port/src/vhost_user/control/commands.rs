//! Commands of the control queue, executed between the frontend's messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use straightline_packet::{Arena, AtTurnEnd, Settings};
use straightline_virtio::net_control::NetControl;
use straightline_virtio::ring::Ring;
use tracing::Level;

use super::control_queue::{BurstOutcome, ControlQueue, KeptState, burst};
use super::frontend::ConnectedFrontend;
use crate::vhost_user::data::link::VANISHED;

/// The interval at which a ring without a kick descriptor is polled.
const POLL: Duration = Duration::from_millis(10);

impl ConnectedFrontend {
    /// Sets the state of a device that was just reset. The state is empty, unless a state was
    /// loaded for the device to continue with.
    pub(crate) fn reset_commands(&mut self) {
        let acked = self.session.acked_features();
        let pairs = self.session.queue_pairs();
        let fresh = || NetControl::new(acked, pairs);
        self.control_queue.state = match &self.control_queue.kept {
            KeptState::Loaded(saved) => match NetControl::restore(saved, acked, pairs) {
                Some(state) => {
                    self.session.set_announce(saved.announces());
                    state
                }
                None => {
                    let text = "the loaded device state is not used: its driver negotiated other features";
                    self.shared.log(Level::WARN, format_args!("{text}"));
                    fresh()
                }
            },
            _ => fresh(),
        };
    }

    /// Resets the device and keeps its state, which the frontend may still want to save.
    pub(crate) fn suspend_commands(&mut self) {
        let kept = std::mem::take(&mut self.control_queue.kept);
        let before = self.control_queue.state.clone();
        self.reset_commands();
        self.control_queue.kept = match kept {
            KeptState::Nothing => KeptState::Stopped(before),
            kept => kept,
        };
    }

    /// Returns the index of the control ring, if it runs.
    pub(crate) fn running_control(&self) -> Option<usize> {
        let at = usize::from(self.session.control_ring()?);
        self.rings.get(at)?.is_some().then_some(at)
    }

    /// Executes the commands that have come. Returns the time of the next look, or `None` if a
    /// kick announces the next command.
    pub(crate) fn execute(&mut self) -> Option<Instant> {
        // A kick from here on causes another look. If waiting had failed, the failure would have
        // been reported earlier.
        let _ = self.control_queue.kicks.wait(Duration::ZERO);
        let ring = self.rings.get(self.running_control()?)?.as_ref()?;
        let queue = Arc::clone(&ring.queue);
        if !queue.enabled() {
            return None;
        }
        let ControlQueue { state, arena, .. } = &mut self.control_queue;
        let arena = arena.get_or_insert_with(|| Arena::new(self.shared.rcu.reader(), Settings::default(), Vec::new()));
        let link = &self.shared.data.link;
        // The ring's memory belongs to the link. If there is no usable link, the ring is checked
        // again when there is one.
        let result = arena.turn(|turn| {
            let link = link.load(turn).filter(|link| link.is_usable())?;
            Some(match &mut queue.lock().ring {
                Ring::Split(ring) => burst(ring, state, link, turn),
                Ring::Packed(ring) => burst(ring, state, link, turn),
            })
        })?;
        let BurstOutcome { changed, announced, more } = match result {
            Ok(_) if self.memory.poisoned() => {
                self.break_off(VANISHED.to_owned());
                return None;
            }
            Ok(outcome) => outcome,
            Err(fault) => {
                self.break_off(format!("{}: {fault}", queue.name()));
                return None;
            }
        };
        if announced {
            self.session.set_announce(false);
        }
        if changed {
            self.publish();
        }
        let mut inner = queue.lock();
        let taken = inner.ring.outstanding();
        inner.ring.give_back(taken);
        drop(inner);
        if taken > 0 {
            queue.notify();
            self.show();
        }
        let more = more
            || match queue.arm(0) {
                Ok(more) => more && !queue.polled(),
                Err(fault) => {
                    self.break_off(format!("{}: {fault}", queue.name()));
                    return None;
                }
            };
        let pause = if more { Some(Duration::ZERO) } else { queue.polled().then_some(POLL) };
        pause.map(|pause| self.shared.clock().now() + pause)
    }
}
