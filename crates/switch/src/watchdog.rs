//! The thread that looks for stalled workers, and its counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use straightline_graph::{Clock, Progress, Stall, Watchdog};
use straightline_packet::IgnorePoison;

use crate::api::{self, EventKind};
use crate::events::EventLog;

/// The minimum time between two lines in the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The maximum number of pairs of worker and port with a counter of their own: ports come and go,
/// and a switch runs for long.
const MAX_COUNTERS: usize = 1024;

/// Pairs beyond [`MAX_COUNTERS`] are counted under this name, which no port can have.
const OTHERS: &str = "(others)";

/// The stalls of the workers.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// The number so far, by worker and port.
    counts: Mutex<BTreeMap<(usize, String), u64>>,
    /// The number of workers that are stalled now.
    now: AtomicUsize,
}

impl Stalls {
    fn add(&self, stall: &Stall) {
        let mut counts = self.counts.lock().ignore_poison();
        let key = (stall.worker, stall.port.clone());
        let is_known = counts.len() < MAX_COUNTERS || counts.contains_key(&key);
        let key = if is_known { key } else { (stall.worker, OTHERS.to_owned()) };
        *counts.entry(key).or_default() += 1;
    }

    /// Returns the number of workers that are stalled now.
    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn list(&self) -> Vec<api::Stalls> {
        let counts = self.counts.lock().ignore_poison();
        let stalls =
            counts.iter().map(|((worker, port), &count)| api::Stalls { worker: *worker, port: port.clone(), count });
        stalls.collect()
    }
}

/// The watchdog's thread. Dropping this value ends the thread.
#[derive(Debug)]
pub(crate) struct WatchdogThread {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WatchdogThread {
    /// Starts a thread that watches `workers`, counts in `stalls`, and adds to `events`.
    pub(crate) fn start(
        workers: Vec<Arc<Progress>>,
        stalls: Arc<Stalls>,
        events: EventLog,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let (end, ended) = channel();
        let watch = move || {
            let mut watchdog = Watchdog::new(workers);
            let mut log = Log::default();
            while clock.receive(&ended, clock.now() + Watchdog::PERIOD) == Err(RecvTimeoutError::Timeout) {
                let now = clock.now();
                for stall in watchdog.look(now) {
                    stalls.add(&stall);
                    log.report(&stall, now);
                    add_event(&events, stall);
                }
                stalls.now.store(watchdog.stalled(), Ordering::Relaxed);
            }
        };
        let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch);
        Ok(WatchdogThread { end: Some(end), thread: Some(thread.context("cannot start the watchdog's thread")?) })
    }
}

impl Drop for WatchdogThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the watchdog's thread had panicked");
        }
    }
}

fn add_event(events: &EventLog, Stall { worker, port, source }: Stall) {
    let at = if port.is_empty() { String::new() } else { format!(" at {port:?}") };
    let of = if source.is_empty() { String::new() } else { format!(", with packets of {source:?}") };
    let message = format!("worker {worker} has not finished a turn for {} ms{at}{of}", Watchdog::LIMIT.as_millis());
    let kind = EventKind::Stall { worker, port, source };
    events.add_limited(&format!("worker {worker}"), kind, message);
}

/// Logs stalls, with at most one line each [`LOG_INTERVAL`].
#[derive(Default)]
struct Log {
    last: Option<Instant>,
    /// Stalls since the last line, which have no line of their own.
    unlogged: u64,
}

impl Log {
    fn report(&mut self, stall: &Stall, now: Instant) {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < LOG_INTERVAL) {
            self.unlogged += 1;
            return;
        }
        let Stall { worker, port, source } = stall;
        let limit = Watchdog::LIMIT.as_millis();
        let unlogged = std::mem::take(&mut self.unlogged);
        tracing::warn!(
            worker,
            port,
            source,
            unlogged,
            "the worker has not finished a turn for {limit} ms: the kernel keeps it waiting for this port, or does not \
             run it"
        );
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_counted_by_worker_and_port_and_their_number_is_bounded() {
        let stalls = Stalls::default();
        let stall = |worker, port: &str| Stall { worker, port: port.to_owned(), source: String::new() };
        [stall(1, "a"), stall(0, "b"), stall(1, "a")].iter().for_each(|stall| stalls.add(stall));
        let row = |worker, port: &str, count| api::Stalls { worker, port: port.to_owned(), count };
        assert_eq!(stalls.list(), [row(0, "b", 1), row(1, "a", 2)]);
        (0..2 * MAX_COUNTERS).for_each(|n| stalls.add(&stall(0, &format!("p{n}"))));
        let list = stalls.list();
        assert!(list.len() <= MAX_COUNTERS + 1, "{}", list.len());
        assert_eq!(list.iter().map(|row| row.count).sum::<u64>(), 3 + 2 * MAX_COUNTERS as u64);
    }

    #[test]
    fn the_log_is_limited_and_says_what_it_left_out() {
        let mut log = Log::default();
        let start = Clock::moved().now();
        let stall = Stall { worker: 0, port: "a".to_owned(), source: String::new() };
        log.report(&stall, start);
        for _ in 0..5 {
            log.report(&stall, start + LOG_INTERVAL / 2);
        }
        assert_eq!((log.last, log.unlogged), (Some(start), 5));
        log.report(&stall, start + LOG_INTERVAL);
        assert_eq!((log.last, log.unlogged), (Some(start + LOG_INTERVAL), 0));
    }
}
