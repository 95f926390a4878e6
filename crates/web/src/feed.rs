//! Answers that many clients share. One thread asks, only when somebody wants to know, and never
//! twice at a time.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::clock::Clock;

/// A value that a thread fetches on demand.
#[derive(Debug)]
pub(crate) struct Feed<T> {
    demand: SyncSender<()>,
    latest: watch::Receiver<Option<Dated<T>>>,
    clock: Clock,
}

/// A value with the time at which fetching it began.
#[derive(Debug)]
struct Dated<T> {
    begun: Instant,
    value: Arc<T>,
}

impl<T: Send + Sync + 'static> Feed<T> {
    /// Starts the thread that fetches. It ends with this value.
    pub(crate) fn start(name: &str, clock: &Clock, fetch: impl FnMut() -> T + Send + 'static) -> io::Result<Self> {
        // One place: a demand that finds it taken is served by the same fetch.
        let (demand, demands) = sync_channel(1);
        let (publish, latest) = watch::channel(None);
        let clock = clock.clone();
        let threads_clock = clock.clone();
        let run = move || run(&demands, &publish, &threads_clock, fetch);
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { demand, latest, clock })
    }

    /// Returns a value that is not older than `age`. Waits for the thread if there is none. A caller
    /// that stops waiting leaves nothing behind. None if the thread has ended.
    pub(crate) async fn within(&self, age: Duration) -> Option<Arc<T>> {
        let asked = self.clock.now();
        let mut latest = self.latest.clone();
        loop {
            let known = latest.borrow_and_update().as_ref().map(|dated| (dated.begun, Arc::clone(&dated.value)));
            if let Some((begun, value)) = known
                && asked.saturating_duration_since(begun) <= age
            {
                return Some(value);
            }
            // A full channel means that a demand waits already.
            let _ = self.demand.try_send(());
            latest.changed().await.ok()?;
        }
    }

    /// Returns the newest value, however old. Asks for another one if it is older than `age` or was
    /// begun before `since`, and does not wait for it.
    pub(crate) fn newest(&self, age: Duration, since: Option<Instant>) -> Option<Arc<T>> {
        let now = self.clock.now();
        let latest = self.latest.borrow();
        let is_old = |dated: &Dated<T>| {
            now.saturating_duration_since(dated.begun) > age || since.is_some_and(|since| dated.begun < since)
        };
        if latest.as_ref().is_none_or(is_old) {
            let _ = self.demand.try_send(());
        }
        latest.as_ref().map(|dated| Arc::clone(&dated.value))
    }
}

fn run<T>(
    demands: &Receiver<()>,
    publish: &watch::Sender<Option<Dated<T>>>,
    clock: &Clock,
    mut fetch: impl FnMut() -> T,
) {
    while demands.recv().is_ok() {
        let begun = clock.now();
        let value = Arc::new(fetch());
        // This value serves those who asked meanwhile. Whoever finds it too old asks again.
        while demands.try_recv().is_ok() {}
        publish.send_replace(Some(Dated { begun, value }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use straightline_testing::wait_until;

    use super::*;
    use crate::clock::MovedTime;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn clients_of_the_same_moment_share_a_fetch() {
        let fetched = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&fetched);
        let (go, gate) = sync_channel::<()>(0);
        let feed = Arc::new(
            Feed::start("feed", &Clock::default(), move || {
                let _ = gate.recv();
                counter.fetch_add(1, Ordering::Relaxed)
            })
            .expect("a thread"),
        );
        block_on(async {
            let clients = (0..100).map(|_| {
                let feed = Arc::clone(&feed);
                tokio::spawn(async move { feed.within(HOUR).await })
            });
            let clients: Vec<_> = clients.collect();
            tokio::task::yield_now().await;
            go.send(()).expect("the thread waits");
            for client in clients {
                assert_eq!(client.await.expect("no panic").as_deref(), Some(&0));
            }
        });
        assert_eq!(fetched.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_value_from_before_an_event_is_fetched_again() {
        let mut next = 0;
        let (time, clock) = MovedTime::new();
        let feed = Feed::start("feed", &clock, move || {
            next += 1;
            next
        })
        .expect("a thread");
        let begun = time.now();
        assert_eq!(block_on(feed.within(HOUR)).as_deref(), Some(&1));
        // This value is as new as the event.
        assert_eq!(feed.newest(HOUR, Some(begun)).as_deref(), Some(&1));
        time.advance(SECOND);
        let event = time.now();
        let another =
            wait_until("the value is fetched again", || feed.newest(HOUR, Some(event)).filter(|value| **value != 1));
        // A question between the end of a fetch and its publication begins one more.
        assert!(matches!(*another, 2 | 3), "the value from before the event was asked for once: {another}");
    }

    #[test]
    fn an_old_value_is_fetched_again_and_a_dead_thread_is_noticed() {
        let mut next = 0;
        let (time, clock) = MovedTime::new();
        let feed = Feed::start("feed", &clock, move || {
            next += 1;
            assert!(next < 3, "the thread ends here");
            next
        })
        .expect("a thread");
        block_on(async {
            assert_eq!(feed.within(SECOND).await.as_deref(), Some(&1));
            time.advance(SECOND);
            assert_eq!(feed.within(SECOND).await.as_deref(), Some(&1), "it is not older than that");
            time.advance(Duration::from_nanos(1));
            assert_eq!(feed.within(SECOND).await.as_deref(), Some(&2));
            time.advance(2 * SECOND);
            assert_eq!(feed.within(SECOND).await, None);
        });
    }
}
