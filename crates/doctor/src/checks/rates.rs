//! Limits of ports: those that hold all the time, and those that cannot be reached.

use straightline_api::{Port, PortRate, Worker};

use super::{Check, CheckOutcome};
use crate::facts::Facts;

/// The share of the limit from which on it holds all the time.
const FULL: f64 = 0.9;

/// The part of a second in which the rate must not bring more than the burst: timers are not finer.
const LEAST_BURST: u64 = 1000;

pub(super) const RATES: Check = Check {
    name: "rates",
    passes: "no limit of a port holds all the time, and each can be reached",
    absent: "no port has a limit",
    run: rates,
};

fn rates(facts: &Facts, outcome: &mut CheckOutcome) {
    let ports = facts.running_ports(outcome);
    let Ok(switch) = &facts.switch else { return };
    let time = |worker: &Worker| worker.busy_s + worker.empty_poll_s + worker.idle_s + worker.unexplained_s;
    let workers = switch.before.workers.iter().zip(&switch.after.workers);
    let seconds = workers.map(|(before, after)| time(after) - time(before)).fold(0.0, f64::max);
    for port in ports {
        let port = &port.port;
        let before = switch.ports_before.iter().find(|before| before.name == port.name);
        let of_before = |of: fn(&Port) -> &Option<PortRate>| before.and_then(|before| of(before).as_ref());
        let directions = [
            ("rate-in", port.rate_in.as_ref(), of_before(|port| &port.rate_in)),
            ("rate-out", port.rate_out.as_ref(), of_before(|port| &port.rate_out)),
        ];
        for (key, rate, before) in directions {
            let Some(rate) = rate else { continue };
            if let Some((burst, least)) = small_burst(rate) {
                outcome.warn(
                    format!("port {}: the burst of {key} is too small to reach {}", port.name, rate.limit),
                    format!("{burst} pass at once, and the rate brings {least} in a millisecond"),
                    format!("raise `burst` to {least} or more, or remove it"),
                );
            } else if before.is_some_and(|before| is_full(rate, before, seconds)) {
                let what = if rate.waits {
                    format!("waited {} times for {} ms so far", rate.wait_count, rate.waited_ms)
                } else {
                    format!("{} packets dropped so far", rate.dropped)
                };
                outcome.warn(
                    format!("port {}: {key} of {} holds all the time", port.name, rate.limit),
                    what,
                    "nothing needs to be done, unless the limit is too low: raise it",
                );
            } else {
                outcome.pass();
            }
        }
    }
}

/// Returns the burst, and the least that lets the rate be reached, if the burst is smaller.
fn small_burst(rate: &PortRate) -> Option<(String, String)> {
    let bytes = rate.bits.zip(rate.burst_bytes).map(|(bits, burst)| (burst, bits / 8 / LEAST_BURST, "bytes"));
    let packets =
        rate.packets.zip(rate.burst_packets).map(|(packets, burst)| (burst, packets / LEAST_BURST, "packets"));
    let small = bytes.into_iter().chain(packets).find(|(burst, least, _)| burst < least);
    small.map(|(burst, least, unit)| (format!("{burst} {unit}"), format!("{least} {unit}")))
}

/// Returns whether packets used up the limit in the look of so many seconds.
#[expect(clippy::cast_precision_loss, reason = "a share is compared with a threshold")]
fn is_full(rate: &PortRate, before: &PortRate, seconds: f64) -> bool {
    let holds = rate.wait_count > before.wait_count || rate.dropped > before.dropped;
    let uses =
        |limit: Option<u64>, passed: u64| limit.is_some_and(|limit| passed as f64 >= FULL * limit as f64 * seconds);
    let bytes = rate.passed_bytes.saturating_sub(before.passed_bytes);
    let packets = rate.passed_packets.saturating_sub(before.passed_packets);
    holds && seconds > 0.0 && (uses(rate.bits, 8 * bytes) || uses(rate.packets, packets))
}
