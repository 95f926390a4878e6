//! The workers' use of their time.

use super::Check;

/// The share of empty polls above which a worker spins.
const SPINS: f64 = 0.9;

pub(super) const SPINNING: Check = Check {
    name: "spinning",
    passes: "workers without packets sleep",
    absent: "the switch has no worker",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the workers", &facts.switch) else { return };
        for (at, (before, after)) in switch.before.workers.iter().zip(&switch.after.workers).enumerate() {
            let empty = after.empty_poll_s - before.empty_poll_s;
            let busy = after.busy_s - before.busy_s;
            let total = empty + busy + (after.idle_s - before.idle_s) + (after.unexplained_s - before.unexplained_s);
            if total <= 0.0 {
                outcome.unknown(format!("worker {at}"), &crate::facts::Unknown::new("its clock stands still"));
                continue;
            }
            if empty / total > SPINS && busy / total < 1.0 - SPINS {
                outcome.warn(
                    format!("worker {at} spins without traffic"),
                    format!("{:.0} % of its time are empty polls", 100.0 * empty / total),
                    "set `idle = \"sleep\"` in [switch]",
                )
            } else {
                outcome.pass()
            }
        }
    },
};
