//! The control side of ports.

use std::time::{Duration, Instant};

use crate::vhost_user::VhostUser;

/// How long a port's thread may take to end, which it does at once, or when a transfer of device state has failed. To close
/// a descriptor can take for ever: that of a pipe whose lock its frontend keeps, or of a file that the frontend serves.
const END_TIME: Duration = Duration::from_secs(6);

/// Stops ports: all of them begin to stop before any is waited for, and all together have the time of one. Returns the
/// names of those whose thread is left behind, because a frontend holds it.
pub fn stop_all<'a>(ports: impl IntoIterator<Item = &'a VhostUser>) -> Vec<String> {
    let ports: Vec<_> = ports.into_iter().collect();
    ports.iter().for_each(|port| port.begin_stop());
    wait_for_ends(&ports, END_TIME);
    let mut left = Vec::new();
    for port in ports {
        if port.join() {
            continue;
        }
        // Its link is in no graph any more, or soon will not be.
        let name = port.name();
        tracing::error!(port = name, "a descriptor that its frontend sent keeps its thread; the thread is left behind");
        left.push(name.to_owned());
    }
    left
}

/// Waits until the threads of ports that have begun to stop have ended, for all of them together at most for `limit`. A
/// thread that waits for a connection on a socket that was handed over is freed, which takes 100 ms at most.
pub fn wait_for_ends(ports: &[&VhostUser], limit: Duration) {
    let began = Instant::now();
    for port in ports.iter().filter(|port| !port.has_ended()) {
        port.end_accept(began);
        is_within(limit.saturating_sub(began.elapsed()), || port.has_ended());
    }
}

/// Waits until it is so, at most for that long; whether it is.
pub(crate) fn is_within(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_that_is_held_is_waited_for_in_vain() {
        let (release, held) = channel::<()>();
        let thread = std::thread::spawn(move || held.recv());
        assert!(!is_within(Duration::from_millis(20), || thread.is_finished()));
        drop(release);
        assert!(is_within(Duration::from_secs(60), || thread.is_finished()));
    }
}
