//! The control queue: the guest's commands, executed in the port's own thread (virtio 1.2,
//! 5.1.6.5).
//!
//! Frontends that execute commands themselves (QEMU, DPDK's virtio-user) never start this ring.
//! User Mode Linux does. A command is copied once and read from the copy. The ring is used like
//! every ring, in a turn of this thread. The acknowledgement is written in that turn, and becomes
//! visible to the driver once the command has taken effect.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use az::SaturatingAs;
use straightline_graph::EpollWaiter;
use straightline_packet::{Arena, MemorySegment, Turn};
use straightline_virtio::net_control::{self, CommandOutcome, NetControl, SavedState};
use straightline_virtio::ring::{Device, Direction, Fault, First, RingFault};

use crate::notify::kick_routing::KickRouting;
use crate::vhost_user::data::link::Link;

/// Commands executed at a time, before the frontend's next message.
const BURST: usize = 16;

/// The control queue's state: the settings made by commands, and the means to execute more
/// commands.
pub(crate) struct ControlQueue {
    pub(crate) state: NetControl,
    pub(crate) kept: KeptState,
    pub(crate) kicks: Arc<EpollWaiter>,
    pub(crate) routing: Arc<KickRouting>,
    /// Made when the first command comes: few frontends send any.
    pub(crate) arena: Option<Arena>,
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

/// A state kept beside the one in force, for a device whose rings are stopped.
#[derive(Debug, Default)]
pub(crate) enum KeptState {
    #[default]
    Nothing,
    /// The state before SET_STATUS with 0, by which QEMU stops a device that it is about to save.
    Stopped(NetControl),
    /// The state that a frontend has loaded, for a driver that negotiated the same features. The
    /// frontend may negotiate them only later.
    Loaded(Box<SavedState>),
}

/// The outcome of a burst of commands.
#[derive(Default)]
pub(crate) struct BurstOutcome {
    pub(crate) changed: bool,
    pub(crate) announced: bool,
    /// There may be more commands.
    pub(crate) more: bool,
}

/// Takes and executes commands. Gives nothing back yet.
pub(crate) fn burst<'t>(
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
    // If a mark is missing, the check stops the port.
    let _ = link.is_logged();
    Ok(outcome)
}

/// Returns a command's bytes, unless there are too many, and the byte for its acknowledgement.
fn split<'t>(turn: &Turn<'t>, mark: usize, readable: u32) -> (Option<Vec<u8>>, Option<MemorySegment<'t>>) {
    let mut command = vec![0; readable.saturating_as::<usize>().min(net_control::LONGEST + 1)];
    let mut got = 0;
    let mut left = readable;
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
