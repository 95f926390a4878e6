//! Fail points: named places in the code where a test lets the process die, to see what the next one makes of it.
//!
//! Without the feature `fail-points`, [`hit`] is nothing. With it, a thread's own handler is called if it has one (see
//! `with`); else the process kills itself at the `count`-th hit of `name` where the environment says
//! `STRAIGHTLINE_KILL=name:count`, and with `STRAIGHTLINE_PANIC=name:count` the thread panics that comes there.

/// The code has come to this place.
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

    /// A place, and how many hits of it are left.
    type Trigger = OnceLock<Option<(String, AtomicU64)>>;

    /// Where to die, and where to panic.
    static KILL: Trigger = Trigger::new();
    static PANIC: Trigger = Trigger::new();

    /// The code has come to this place.
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

    /// Runs `f` with a handler for this thread's hits. It may panic: what is unwound is a crash that leaves memory as it
    /// is. It must not come to a fail point itself.
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
