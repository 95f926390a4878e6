//! The control queue: the guest's commands, executed in the port's own thread (virtio 1.2,
//! 5.1.6.5).
//!
//! Frontends that execute commands themselves (QEMU, DPDK's virtio-user) never start this ring.
//! User Mode Linux does. A command is copied once and read from the copy. The ring is used like
//! every ring, in a turn of this thread. The acknowledgement is written in that turn, and becomes
//! visible to the driver once the command has taken effect.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use straightline_packet::{Arena, AtTurnEnd, MemorySegment, Settings, Turn};
use straightline_virtio::net_control::{self, CommandOutcome, NetControl};
use straightline_virtio::ring::{Device, Direction, Fault, First, Ring, RingFault};
use tracing::Level;

use super::frontend::ConnectedFrontend;
use super::state_transfer::KeptState;
use crate::EpollWaiter;
use crate::kick_routing::KickRouting;
use crate::vhost_user::data::link::{Link, VANISHED};

/// Commands executed at a time, before the frontend's next message.
const BURST: usize = 16;

/// The interval at which a ring without a kick descriptor is polled.
const POLL: Duration = Duration::from_millis(10);

/// The control queue's state: what commands have set, and the means to execute more.
pub(crate) struct ControlQueue {
    pub(crate) state: NetControl,
    pub(crate) kept: KeptState,
    kicks: Arc<EpollWaiter>,
    pub(crate) routing: Arc<KickRouting>,
    /// Made when the first command comes: few frontends send any.
    arena: Option<Arena>,
}

impl ControlQueue {
    /// Returns the state with nothing negotiated. The control ring's kicks go to `kicks`.
    pub(crate) fn new(kicks: Arc<EpollWaiter>) -> Self {
        let routing = Arc::new(KickRouting::new(Arc::clone(&kicks).into(), false));
        ControlQueue { state: NetControl::new(0, 1), kept: KeptState::Nothing, kicks, routing, arena: None }
    }

    /// Returns a descriptor that is readable when there may be a command.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.kicks.as_fd()
    }
}

/// The outcome of a burst of commands.
#[derive(Default)]
struct BurstOutcome {
    changed: bool,
    announced: bool,
    /// There may be more commands.
    more: bool,
}

impl ConnectedFrontend {
    /// Sets the state of a device that was just reset: none, unless a state was loaded with which
    /// it continues.
    pub(crate) fn reset_commands(&mut self) {
        let (acked, pairs) = (self.session.acked_features(), self.session.queue_pairs());
        let fresh = || NetControl::new(acked, pairs);
        self.control_queue.state = match &self.control_queue.kept {
            KeptState::Loaded(saved) => match NetControl::restore(saved, acked, pairs) {
                Some(state) => {
                    self.session.set_announce(saved.announces());
                    state
                }
                None => {
                    let text = "the device state that was loaded is of a driver with other features: it is unused";
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

    /// Executes the commands that have come. Returns how long the next look may wait; `None` if a
    /// kick announces it.
    pub(crate) fn execute(&mut self) -> Option<Duration> {
        // A kick from here on causes another look. A failure to wait would have been reported
        // before.
        let _ = self.control_queue.kicks.wait(Duration::ZERO);
        let ring = self.rings.get(self.running_control()?)?.as_ref()?;
        let queue = Arc::clone(&ring.queue);
        if !queue.enabled() {
            return None;
        }
        let ControlQueue { state, arena, .. } = &mut self.control_queue;
        let arena = arena.get_or_insert_with(|| Arena::new(self.shared.rcu.reader(), Settings::default(), Vec::new()));
        let link = &self.shared.data.link;
        // The ring's memory is the link's. Without a usable link there is another look when that
        // changes.
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
        match more {
            true => Some(Duration::ZERO),
            false => queue.polled().then_some(POLL),
        }
    }
}

/// Takes and executes commands. Gives nothing back yet.
fn burst<'t>(
    ring: &mut impl Device,
    state: &mut NetControl,
    link: &'t Link,
    turn: &mut Turn<'t>,
) -> Result<BurstOutcome, RingFault> {
    let mut firsts = [First::default(); BURST];
    let found = ring.find(&mut firsts)?;
    let mut outcome = BurstOutcome { more: found == BURST, ..BurstOutcome::default() };
    for first in &firsts[..found] {
        ring.take(first);
        let mark = turn.mark();
        let readable = match ring.chain(&link.memory, turn, first, Direction::Command) {
            Ok(chain) => chain.readable,
            // The place of the acknowledgement is not known.
            Err(Fault::Chain(_)) => continue,
            Err(Fault::Ring(fault)) => {
                ring.untake(1);
                return Err(fault);
            }
        };
        let (command, answer) = split(turn, mark, readable);
        turn.unstage(mark);
        // A command without a place for the acknowledgement is invalid and is not executed.
        let Some(answer) = answer else { continue };
        let done = command.and_then(|command| state.execute(&command));
        let ack = if done.is_some() { net_control::OK } else { net_control::ERR };
        answer.write(turn.level(), &[ack]);
        ring.written(1);
        if let Some(log) = &link.log {
            match link.memory.guest_addr(answer) {
                Some(addr) => log.after_writes().mark(addr, 1),
                None => log.after_writes().missed(),
            }
        }
        outcome.changed |= done == Some(CommandOutcome::Changed);
        outcome.announced |= done == Some(CommandOutcome::Announced);
    }
    // If a mark is missing, this stops the port.
    let _ = link.is_logged();
    Ok(outcome)
}

/// Returns a command's bytes, unless there are too many, and the byte for its acknowledgement.
fn split<'t>(turn: &Turn<'t>, mark: usize, readable: u32) -> (Option<Vec<u8>>, Option<MemorySegment<'t>>) {
    let mut command = vec![0; usize::try_from(readable).unwrap_or(usize::MAX).min(net_control::LONGEST + 1)];
    let (mut got, mut left) = (0, readable);
    let mut answer = None;
    for segment in turn.staged(mark) {
        let (read, written) = segment.split_at(left);
        left -= read.len();
        got += read.read(turn.level(), &mut command[got..]);
        if left == 0 && !written.is_empty() {
            answer = Some(written.split_at(1).0);
            break;
        }
    }
    (Some(command).filter(|command| command.len() <= net_control::LONGEST), answer)
}
