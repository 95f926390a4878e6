//! The rules of trials with guests that check packets themselves.

use std::fmt::Display;
use std::time::Duration;

use straightline_report::results::{NotValid, Validity};

use crate::traffic::Sizes;

/// Bounds of the silence after which a backend that has sent before counts as silent. The silence
/// is a quarter of the measured time, within these bounds. A backend's thread that is descheduled
/// for a moment must not count as silent.
const SILENCE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// A backend that sends this many times less than the other one does not take part.
const BALANCE: u64 = 5;

/// The parts of a line's rate that must be used, so that the line is the limit. A line makes good
/// for time in which its thread was descheduled, but maybe not before the end.
const USED: std::ops::RangeInclusive<f64> = 0.95..=1.05;

/// Returns the time of silence that is tolerated in a measurement of this time.
pub(crate) fn silence(time: Duration) -> Duration {
    (time / 4).clamp(SILENCE[0], SILENCE[1])
}

/// A backend has sent nothing for this time. `silent_for` is the known time of silence.
pub(crate) fn silent(socket: impl Display, silent_for: Duration, limit: Duration) -> Validity {
    unless(silent_for <= limit, || format!("nothing has come from {socket} for {} ms", limit.as_millis()))
}

/// Nothing has ever come from these backends.
pub(crate) fn nothing_comes(sockets: &[String], patience: Duration, sizes: &Sizes) -> NotValid {
    NotValid(Validity::SpoiltByBackend(format!(
        "nothing has come from {} within {} s: check that the switch forwards between the two ports, and that it \
         accepts frames of {sizes} bytes",
        sockets.join(" and "),
        patience.as_secs(),
    )))
}

/// Packets come from both backends, in similar numbers. `received` is the number of packets from
/// each backend, `expected` whether any are to come from it.
pub(crate) fn balance(received: [u64; 2], expected: [bool; 2], sockets: [&dyn Display; 2]) -> Validity {
    let [a, b] = received;
    [(0, a, b), (1, b, a)].into_iter().fold(Validity::Valid, |validity, (at, mine, other)| {
        let takes_part = mine > 0 && mine.saturating_mul(BALANCE) >= other;
        let socket = sockets[at];
        validity.or_else(|| {
            unless(!expected[at] || takes_part, || {
                format!("{mine} packets came from {socket}, but {other} from the other backend")
            })
        })
    })
}

/// Received frames have lengths that were sent. `longest` is the longest received frame, `bytes`
/// the length of all.
pub(crate) fn lengths(longest: u32, bytes: u64, packets: u64, sizes: &Sizes) -> Validity {
    let is_right = longest <= sizes.longest() && bytes >= packets.saturating_mul(u64::from(sizes.shortest()));
    unless(is_right, || {
        let mean = crate::convert::float(bytes) / crate::convert::float(packets);
        format!("received packets have {mean:.1} bytes on average and at most {longest}, but {sizes} were sent")
    })
}

/// No packet of a loop is lost.
pub(crate) fn returned(lost: u64) -> Validity {
    unless(lost == 0, || format!("{lost} packets of the loop are lost"))
}

/// No packet came twice.
pub(crate) fn returned_once(twice: usize) -> Validity {
    unless(twice == 0, || format!("{twice} packets have returned twice"))
}

/// The switch has counted packets.
pub(crate) fn counted(received: f64) -> Validity {
    unless(received > 0.0, || "the switch has counted no packet".to_owned())
}

/// The packets of a trial with the generator have no fault, and some came. `metric` returns a
/// metric of its sample.
pub(crate) fn no_faults(metric: impl Fn(&str) -> f64) -> Validity {
    let fault = |wrong: &str| {
        let count = metric(wrong);
        unless(count < 0.5, || format!("{count} of the received packets were {wrong}"))
    };
    let some = || unless(metric("mpps") > 0.0, || "nothing has returned in the measured time".to_owned());
    fault("corrupt").or_else(|| fault("duplicates")).or_else(|| fault("foreign")).or_else(some)
}

/// Packets came to a guest that counts cache lines. `trial` is the validity of its trial.
pub(crate) fn traced(packets: f64, trial: &Validity) -> Validity {
    unless(packets > 0.0, || format!("nothing has come to the traced guest: {}", trial.reason().unwrap_or_default()))
}

/// A metric that the addresses of packets give is the computed one.
pub(crate) fn addresses(metric: &str, traced: f64, computed: f64) -> Validity {
    unless((traced - computed).abs() < 1e-6, || {
        format!("{metric} is {traced} by the addresses of packets, but should be {computed}")
    })
}

/// A received packet is the sent one. `fault` is the first difference.
pub(crate) fn same_packet(socket: impl Display, fault: Option<anyhow::Error>) -> Validity {
    fault.map_or(Validity::Valid, |fault| Validity::SpoiltByBackend(format!("{socket}: {fault:#}")))
}

/// All checks were done before the end.
pub(crate) fn checks_done(are_done: bool) -> Validity {
    if are_done { Validity::Valid } else { Validity::SpoiltByLoad("it ended before all checks were done".to_owned()) }
}

/// Packets get through in both directions before the time limit.
pub(crate) fn through(is_late: bool, patience: Duration, dropped: impl FnOnce() -> String) -> Validity {
    unless(!is_late, || {
        let secs = patience.as_secs();
        let dropped = dropped();
        format!("packets do not get through in both directions within {secs} s; dropped: {dropped}")
    })
}

/// All sent bytes arrive before the time limit. `sent` and `got` are those of both directions.
pub(crate) fn arrived(is_late: bool, sent: [u64; 2], got: [u64; 2], dropped: impl FnOnce() -> String) -> Validity {
    unless(!is_late, || format!("the guests sent {sent:?} bytes, but only {got:?} arrived; dropped: {}", dropped()))
}

/// Packets have passed the wire.
pub(crate) fn wire_packets(on_wire: f64, payload: f64) -> Validity {
    unless(on_wire > 0.0 && payload > 0.0, || "no packet has passed the wire".to_owned())
}

/// The line was the limit: it was used, and no more than it has. `used` is a part of its rate.
pub(crate) fn line_used(used: f64) -> Validity {
    if USED.contains(&used) {
        return Validity::Valid;
    }
    let [used, start, end] = [used, *USED.start(), *USED.end()].map(|part| 100.0 * part);
    Validity::SpoiltByLoad(format!(
        "{used:.1} % of the line was used; expected {start:.0} to {end:.0} %. Choose a slower line if it was less"
    ))
}

/// Blames the backend unless a rule is kept.
fn unless(is_kept: bool, why: impl FnOnce() -> String) -> Validity {
    if is_kept { Validity::Valid } else { Validity::SpoiltByBackend(why()) }
}
