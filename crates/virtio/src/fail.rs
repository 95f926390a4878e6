//! Fail points: named places in the code where a test can crash the process, to check what its
//! successor finds.
//!
//! Without the feature `fail-points`, [`hit`] does nothing. With it, a hit has one of these
//! effects:
//! - The thread's own handler runs, if it has one (see `with`).
//! - Otherwise the process kills itself at the `count`-th hit of `name`, if the environment has
//!   `STRAIGHTLINE_KILL=name:count`.
//! - With `STRAIGHTLINE_PANIC=name:count` the thread that makes the `count`-th hit panics.

/// Hits the fail point `name`.
#[cfg(not(feature = "fail-points"))]
#[inline(always)]
pub fn hit(_name: &'static str) {}

#[cfg(feature = "fail-points")]
pub use enabled::{hit, with};

#[cfg(feature = "fail-points")]
mod enabled {
    use std::cell::RefCell;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    type Handler = Box<dyn FnMut(&'static str)>;

    thread_local! {
        static HANDLER: RefCell<Option<Handler>> = const { RefCell::new(None) };
    }

    /// The name of a fail point, and the number of hits left.
    type Trigger = OnceLock<Option<(String, AtomicU64)>>;

    /// The fail points at which the process kills itself and at which a thread panics.
    static KILL: Trigger = Trigger::new();
    static PANIC: Trigger = Trigger::new();

    /// Hits the fail point `name`.
    #[inline]
    pub fn hit(name: &'static str) {
        let handled = HANDLER.with_borrow_mut(|handler| handler.as_mut().map(|handler| handler(name)).is_some());
        if handled {
            return;
        }
        if is_due(&KILL, "STRAIGHTLINE_KILL", name) {
            let _ = kill_process(getpid(), Signal::KILL);
        }
        assert!(!is_due(&PANIC, "STRAIGHTLINE_PANIC", name), "the fail point {name}");
    }

    fn is_due(trigger: &Trigger, variable: &str, name: &str) -> bool {
        let Some((place, left)) = trigger.get_or_init(|| read(variable)) else { return false };
        place == name && left.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Runs `f` with a handler for this thread's hits. The handler may panic: unwinding then
    /// simulates a crash that leaves memory as it is. The handler must not hit a fail point itself.
    pub fn with<R>(handler: impl FnMut(&'static str) + 'static, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<Handler>);
        impl Drop for Restore {
            fn drop(&mut self) {
                HANDLER.set(self.0.take());
            }
        }
        let _restore = Restore(HANDLER.replace(Some(Box::new(handler))));
        f()
    }

    fn read(variable: &str) -> Option<(String, AtomicU64)> {
        let trigger = std::env::var(variable).ok()?;
        let (name, count) = trigger.split_once(':')?;
        Some((name.to_owned(), AtomicU64::new(count.parse().ok()?)))
    }
}
