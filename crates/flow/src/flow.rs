//! Flows, and requests to change them.

use std::cmp::Ordering;
use std::time::Duration;

use crate::action::{Action, PortNumber};
use crate::matching::Match;

/// Number of tables: 0 to 253. OvS keeps table 254 for itself, and 255 means all tables.
pub const TABLES: u8 = 254;

/// Greatest number of actions of a flow.
pub const MAX_ACTIONS: usize = 1024;

/// Priority of a flow that names none.
pub const DEFAULT_PRIORITY: u16 = 0x8000;

/// Identity of a flow: no two flows of a bridge have the same.
///
/// Keys are in the order of tables, then of priorities, the greatest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Table.
    pub table: u8,
    /// Priority: of all flows in a table that match, the one with the greatest wins.
    pub priority: u16,
    /// Condition.
    pub condition: Match,
}

impl Ord for FlowKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let priority = || other.priority.cmp(&self.priority);
        self.table.cmp(&other.table).then_with(priority).then_with(|| self.condition.cmp(&other.condition))
    }
}

impl PartialOrd for FlowKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A flow: which packets it is for, and the work on them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Table, priority and condition.
    pub key: FlowKey,
    /// A number that the flow's maker chooses.
    pub cookie: u64,
    /// Time without a packet after which the flow ends; 0 for never. Whole seconds.
    pub idle_timeout: Duration,
    /// Time after which the flow ends; 0 for never. Whole seconds.
    pub hard_timeout: Duration,
    /// Actions in order.
    pub actions: Vec<Action>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowCommand {
    /// Adds a flow, or replaces the one with the same key.
    Add,
    /// Changes the actions of all flows that the condition covers.
    Modify,
    /// Changes the actions of the flow with the same key.
    ModifyStrict,
    /// Deletes all flows that the condition covers.
    Delete,
    /// Deletes the flow with the same key.
    DeleteStrict,
}

/// A request to change flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// The kind of change.
    pub command: FlowCommand,
    /// Table; `None` for all of them, or for table 0 if a flow is added.
    pub table: Option<u8>,
    /// Priority.
    pub priority: u16,
    /// Condition.
    pub condition: Match,
    /// Cookie of an added flow, and of changed flows. `None`: changed flows keep theirs.
    pub cookie: Option<u64>,
    /// Value and mask of the cookies of flows to change or delete.
    pub cookie_filter: (u64, u64),
    /// Only flows with an output to this port are deleted.
    pub out_port: Option<PortNumber>,
    /// Idle timeout; 0 for none.
    pub idle_timeout: Duration,
    /// Hard timeout; 0 for none.
    pub hard_timeout: Duration,
    /// Refuses the flow if another one of its priority may match the same packet.
    pub check_overlap: bool,
    /// Sets the counters of changed flows to 0.
    pub reset_counts: bool,
    /// Actions in order.
    pub actions: Vec<Action>,
}

impl FlowMod {
    /// Returns the flow that the request adds.
    #[must_use]
    pub fn into_flow(self) -> Flow {
        Flow {
            key: FlowKey { table: self.table.unwrap_or(0), priority: self.priority, condition: self.condition },
            cookie: self.cookie.unwrap_or(0),
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            actions: self.actions,
        }
    }
}
