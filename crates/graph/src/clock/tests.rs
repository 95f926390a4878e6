use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use rustix::event::PollFlags;
use rustix::pipe::pipe;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Starts a thread that waits by each means, each time for an hour, and returns the order of the ends.
fn waiter(clock: &Clock) -> (mpsc::Receiver<&'static str>, thread::JoinHandle<()>) {
    let clock = clock.clone();
    let (sender, ends) = mpsc::channel();
    let thread = thread::spawn(move || {
        let (idle, _writer) = pipe().expect("a pipe");
        let ready = clock.poll(&mut [PollFd::new(&idle, PollFlags::IN)], Some(clock.now() + HOUR));
        assert_eq!(ready.expect("a poll"), 0);
        sender.send("poll").expect("a receiver");
        clock.sleep(HOUR);
        sender.send("sleep").expect("a receiver");
        let (_open, silent) = mpsc::channel::<()>();
        assert_eq!(clock.receive(&silent, clock.now() + HOUR), Err(RecvTimeoutError::Timeout));
        sender.send("receive").expect("a receiver");
        let lock = Mutex::new(());
        let guard = lock.lock().expect("a lock");
        drop(clock.wait_while(&Condvar::new(), guard, clock.now() + HOUR, |()| true));
        sender.send("wait_while").expect("a receiver");
        let until = clock.now() + HOUR;
        while clock.now() < until {
            clock.park(until);
        }
        sender.send("park").expect("a receiver");
    });
    (ends, thread)
}

#[test]
fn moving_the_clock_wakes_each_kind_of_wait() {
    let clock = Clock::moved();
    let (ends, thread) = waiter(&clock);
    for means in ["poll", "sleep", "receive", "wait_while", "park"] {
        wait_for_waiters(&clock, 1);
        clock.advance(HOUR - Duration::from_nanos(1));
        assert_eq!(ends.try_recv(), Err(mpsc::TryRecvError::Empty), "{means} ends too early");
        clock.advance(Duration::from_nanos(1));
        // The thread waits by the next means, or has ended: this one has ended before.
        assert_eq!(ends.try_recv(), Ok(means));
    }
    thread.join().expect("the waiter");
}

/// Waits until this many threads wait by the clock.
fn wait_for_waiters(clock: &Clock, number: usize) {
    let moved = clock.0.as_ref().expect("a moved clock");
    moved.wait_for_waiters(number);
}

#[test]
fn an_event_ends_a_wait_by_a_clock_that_stands_still() {
    let clock = Clock::moved();
    let (reader, writer) = pipe().expect("a pipe");
    let (sender, receiver) = mpsc::channel();
    let until = clock.now() + HOUR;
    let events = thread::spawn(move || {
        rustix::io::write(&writer, b"x").expect("a write");
        sender.send(5).expect("a receiver");
        writer
    });
    let mut fds = [PollFd::new(&reader, PollFlags::IN)];
    assert_eq!(clock.poll(&mut fds, Some(until)).expect("a poll"), 1);
    assert_eq!(fds[0].revents(), PollFlags::IN);
    assert_eq!(clock.receive(&receiver, until), Ok(5));
    drop(events.join());
}

#[test]
fn a_thread_that_is_held_is_waited_for_in_vain() {
    for clock in [Clock::real(), Clock::moved()] {
        let (release, held) = mpsc::channel::<()>();
        let thread = thread::spawn(move || held.recv());
        let waiter = thread::spawn({
            let clock = clock.clone();
            move || {
                let is_within = clock.is_within(Duration::from_millis(20), || thread.is_finished());
                (is_within, thread)
            }
        });
        if clock.0.is_some() {
            wait_for_waiters(&clock, 1);
            clock.advance(Duration::from_millis(20));
        }
        let (is_within, thread) = waiter.join().expect("the waiter");
        assert!(!is_within);
        drop(release);
        assert!(clock.is_within(HOUR, || thread.is_finished()));
    }
}

#[test]
fn workers_time_moves_with_the_clock() {
    let clock = Clock::moved();
    let before = clock.seconds();
    assert_eq!(clock.seconds_at(u64::MAX), before, "a reading of the counter says nothing");
    clock.advance(HOUR);
    assert_eq!(clock.seconds(), before + 3600);
    clock.advance(Duration::from_millis(1500));
    assert_eq!(clock.workers_time(), Duration::from_millis(1000 * (u64::from(before) + 3600) + 1500));
}

#[test]
fn moving_the_clock_wakes_workers() {
    let clock = Clock::moved();
    let waiter = Arc::new(EpollWaiter::new().expect("epoll"));
    clock.wake_worker(&waiter);
    let ready = || poll(&mut [PollFd::new(&*waiter, PollFlags::IN)], Some(&Timespec::default()));
    assert_eq!(ready(), Ok(0));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(ready(), Ok(1));
}

#[test]
fn a_real_clock_moves_by_itself() {
    let clock = Clock::real();
    let before = clock.now();
    clock.sleep(Duration::from_millis(1));
    assert!(clock.since(before) >= Duration::from_millis(1));
    assert_eq!(clock.since(clock.now() + HOUR), Duration::ZERO);
}
