//! The rules of a trial with the generator.

use straightline_report::results::Validity;

use super::corrupted;
use crate::convert::float;
use crate::traffic::Counted;
use crate::traffic::generator::{Load, Measured, Rate, StreamCounters};

/// The allowed difference between planned and actual values, as a fraction.
pub(in crate::trial) const TOLERANCE: f64 = 0.001;

/// A number of packets. If a stream would have received this many with the loss of all streams, but
/// received none, that is no coincidence. For independent losses, the probability is one in ten
/// million.
const EXPECTED: f64 = 16.0;

/// Returns whether a trial may begin: a load beyond the generator's limit is the load side's fault.
/// The limit is in million packets per second.
pub(crate) fn beyond(limit_mpps: Option<f64>, rate: Rate, mean_len: f64) -> Validity {
    let Some((asked, limit)) = rate.pps(mean_len).zip(limit_mpps) else { return Validity::Valid };
    // Compares packets per second, as searches do, so that a load equal to the limit is not beyond
    // it.
    if asked <= limit * 1e6 {
        return Validity::Valid;
    }
    Validity::SpoiltByLoad(format!(
        "{:.3} Mpps are more than the generator makes of these packets: use less than {limit:.3}",
        asked / 1e6
    ))
}

/// Returns the validity of a finished trial. A backend's fault comes before the load side's.
pub(crate) fn measured(measured: &Measured, load: Load, mean_len: f64) -> Validity {
    let slow =
        || by_backend(measured.still_coming.then(|| "packets still came 2 s after the last one was sent".to_owned()));
    by_backend(failed(measured, mean_len))
        .or_else(|| corrupted(float(measured.total().corrupt)))
        .or_else(|| untimely(measured, load, mean_len).map_or(Validity::Valid, Validity::SpoiltByLoad))
        .or_else(slow)
}

/// Returns the validity of a finished trial that packets have ended. None of its rules depends on time.
pub(crate) fn came(measured: &Measured, counted: Counted, mean_len: f64) -> Validity {
    let least = measured.streams.iter().map(|stream| stream.received).min().unwrap_or(0);
    let few = || {
        let Counted { packets, patience } = counted;
        let secs = patience.as_secs();
        (least < packets).then(|| format!("{least} of {packets} packets of a stream have returned within {secs} s"))
    };
    by_backend(failed(measured, mean_len))
        .or_else(|| corrupted(float(measured.total().corrupt)))
        .or_else(|| by_backend(few()))
}

fn by_backend(why: Option<String>) -> Validity {
    why.map_or(Validity::Valid, Validity::SpoiltByBackend)
}

/// Returns the reason if a backend makes the trial invalid.
fn failed(measured: &Measured, mean_len: f64) -> Option<String> {
    let total = measured.total();
    // This fault comes first, because it makes all others irrelevant.
    if total.sent == 0 {
        return Some(format!(
            "nothing could be sent: no port had a free buffer for packets of {mean_len:.0} bytes on average; check \
             that the backend is running, and that its buffers take such packets"
        ));
    }
    // A backend that still sends is slow, and not silent.
    if measured.not_taken && !measured.still_coming {
        return Some(
            "a backend went silent: 2 s after the last packet was sent it had still not taken all packets in its \
             rings"
                .to_owned(),
        );
    }
    if total.received == 0 {
        return Some(format!(
            "nothing has returned of {} packets; check that the switch forwards them to another port of the \
             generator, and that it accepts frames of these lengths",
            total.sent
        ));
    }
    one_way(&measured.streams)
}

/// Returns the reason if packets were not sent as planned.
fn untimely(measured: &Measured, load: Load, mean_len: f64) -> Option<String> {
    let [time, lasted] = measured.seconds;
    if (lasted - time).abs() > time * TOLERANCE {
        return Some(format!("the trial took {lasted:.4} s instead of {time:.4} s: this thread was descheduled"));
    }
    if let Some(meant) = measured.meant {
        // The number of due packets may differ by the bursts at the start and at the end.
        let asked = load.rate.pps(mean_len).unwrap_or(0.0) * time;
        let slack = asked * TOLERANCE + f64::from(load.burst) * 2.0;
        if (float(meant) - asked).abs() > slack {
            return Some(format!("{meant} packets were due instead of {asked:.0}"));
        }
        if float(measured.missed) > asked * TOLERANCE {
            return Some(format!(
                "{} of {meant} packets were not sent in time: the generator was descheduled, or {} is more than it \
                 can send here",
                measured.missed, load.rate
            ));
        }
    }
    None
}

/// Returns the reason if a stream is not forwarded at all. A loss ratio makes sense only for
/// streams that are forwarded.
fn one_way(streams: &[StreamCounters]) -> Option<String> {
    let total = streams.iter().fold(StreamCounters::default(), |all, one| all.and(*one));
    let came = float(total.received) / float(total.sent);
    let is_dead = |one: &StreamCounters| one.received == 0 && float(one.sent) * came >= EXPECTED;
    let (at, dead) = streams.iter().enumerate().find(|(_, one)| is_dead(one))?;
    Some(format!(
        "nothing has returned of {} packets of stream {} of {} (numbered port by port); check that the switch \
         forwards what each port sends",
        dead.sent,
        at + 1,
        streams.len()
    ))
}
