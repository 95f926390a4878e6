//! The control half of things that have state and are no ports: tables of bridges, underlays, nodes.

mod refusals;
mod rows;
mod told;

use std::any::Any;
use std::fmt;

use straightline_api::EventKind;
use straightline_packet::PortIndex;

pub use refusals::RefusalNotes;
pub use rows::Rows;
pub use told::Told;

/// The control half of a thing with state: the table of a bridge, an underlay, a node that keeps
/// something. Any thread may call it.
///
/// Such a thing has two halves, as a port has. Workers have [`Node`](crate::Node)s, which share its
/// state. All other code sees this trait: a reload, and the API's `tables`, `table` and `events`.
///
/// A reload makes a new control half where the settings have changed, and keeps the others. It then
/// calls [`Self::prepare`] and later [`Self::commit`] with the one of the same name that serves packets
/// until then. All methods have defaults that do nothing.
///
/// ```
/// use std::any::Any;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use straightline_graph::{NodeControl, Rows, TableView, Unprepared};
///
/// /// Counts packets, to at most a limit.
/// #[derive(Debug)]
/// struct Quota { limit: u64, used: AtomicU64 }
///
/// impl NodeControl for Quota {
///     fn prepare(&self, before: Option<&dyn NodeControl>) -> Result<(), Unprepared> {
///         let used = before.and_then(<dyn NodeControl>::downcast::<Self>).map_or(0, |quota| quota.used.load(Ordering::Relaxed));
///         if used > self.limit {
///             let why = format!("{used} packets are used already; it must be at least {used}");
///             return Err(Unprepared::of_key("limit", why));
///         }
///         Ok(())
///     }
///
///     fn commit(&self, before: &dyn NodeControl) {
///         if let Some(before) = before.downcast::<Self>() {
///             self.used.store(before.used.load(Ordering::Relaxed), Ordering::Relaxed);
///         }
///     }
///
///     fn counters(&self) -> Vec<(&'static str, u64)> {
///         vec![("used", self.used.load(Ordering::Relaxed))]
///     }
/// }
///
/// let before = Quota { limit: 9, used: AtomicU64::new(7) };
/// assert!(Quota { limit: 5, used: AtomicU64::new(0) }.prepare(Some(&before)).is_err());
/// let after = Quota { limit: 8, used: AtomicU64::new(0) };
/// after.prepare(Some(&before)).unwrap();
/// after.commit(&before);
/// assert_eq!(after.counters(), [("used", 7)]);
/// ```
pub trait NodeControl: Any + Send + Sync + fmt::Debug {
    /// Looks whether it can continue `before`, which still serves packets; `None` if there was nothing
    /// of this name. Nothing that others see may change, because the reload may fail elsewhere.
    ///
    /// # Errors
    /// The reason why it cannot. The reload is refused then, and nothing has changed.
    fn prepare(&self, before: Option<&dyn NodeControl>) -> Result<(), Unprepared> {
        let _ = before;
        Ok(())
    }

    /// Takes over the state of `before`. No worker uses either of them during the call. `before` may
    /// have settings of its own, and be of another type.
    fn commit(&self, before: &dyn NodeControl) {
        let _ = before;
    }

    /// Returns whether the API shows it as a table.
    fn is_table(&self) -> bool {
        true
    }

    /// Adds the rows of the table. A place says where a row stands in the order of all rows: no two rows
    /// have the same one, and a row keeps it.
    fn rows(&self, view: &TableView<'_>, rows: &mut Rows) {
        let _ = (view, rows);
    }

    /// Returns the counters of the table, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Returns what has happened since the last call. Only one thread calls it, several times a second.
    fn events(&self, view: &TableView<'_>) -> Vec<TableEvent> {
        let _ = view;
        Vec::new()
    }
}

impl dyn NodeControl {
    /// Returns the thing, if it is of this type.
    pub fn downcast<T: NodeControl>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// Names and the time, which a control half does not know by itself.
pub struct TableView<'a> {
    /// Seconds of the clock that all workers share.
    pub now: f64,
    /// Returns the name of a port; empty if it is gone.
    pub port: &'a dyn Fn(PortIndex) -> String,
}

impl TableView<'_> {
    /// Returns the whole seconds of the workers' clock, as [`Packets::now`](straightline_packet::Packets::now)
    /// has them.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a clock of the switch: positive, and far below 2^32 seconds"
    )]
    pub fn second(&self) -> u32 {
        self.now as u32
    }

    /// Returns the seconds since an entry was seen in this second of the workers' clocks.
    #[must_use]
    pub fn age(&self, seen: u32) -> f64 {
        (self.now - f64::from(seen)).max(0.0)
    }
}

impl fmt::Debug for TableView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableView").field("now", &self.now).finish_non_exhaustive()
    }
}

/// An event that a control half tells.
#[derive(Clone, Debug, PartialEq)]
pub struct TableEvent {
    /// The source of the event. Events of one source are limited together, so something that a stranger
    /// can provoke has a source of its own.
    pub source: String,
    /// The kind, with its fields.
    pub kind: EventKind,
    /// The event in words.
    pub message: String,
}

/// The reason why a control half cannot continue the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unprepared {
    /// The key of the section that is to be changed, if it is one. The error names its line.
    pub key: Option<String>,
    /// The text: what is wrong, and what would be right.
    pub why: String,
}

impl Unprepared {
    /// Returns the reason for a key: what is wrong with its value, and what would be right.
    pub fn of_key(key: impl Into<String>, why: impl Into<String>) -> Self {
        Unprepared { key: Some(key.into()), why: why.into() }
    }
}
