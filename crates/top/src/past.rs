//! The recent loads that the switch itself has kept, so that the curves begin before the program.

use std::iter;
use std::time::Duration;

use straightline_api::{History, PortHistory};

/// Returns the loads of each port in bits per second, newest last, one for each interval of the
/// screen. None if the switch looks at its counters less often.
pub(crate) fn loads(kept: &History, interval: Duration) -> Vec<(String, Vec<f64>)> {
    // The switch looks about once a second.
    if interval < Duration::from_secs(1) {
        return Vec::new();
    }
    kept.ports.iter().map(|port| (port.name.clone(), of_port(&kept.times, port, interval.as_secs_f64()))).collect()
}

/// Returns the sums of curves that end at the same time.
pub(crate) fn sum<'a>(curves: impl Iterator<Item = &'a Vec<f64>>) -> Vec<f64> {
    let mut sum: Vec<f64> = Vec::new();
    for curve in curves {
        sum.splice(0..0, iter::repeat_n(0.0, curve.len().saturating_sub(sum.len())));
        let start = sum.len() - curve.len();
        sum[start..].iter_mut().zip(curve).for_each(|(sum, load)| *sum += load);
    }
    sum
}

fn of_port(times: &[f64], port: &PortHistory, interval_s: f64) -> Vec<f64> {
    // Newest first. A newer port has fewer values than there are times.
    let bytes = port.rx_bytes.iter().zip(&port.tx_bytes).map(|(rx, tx)| rx.saturating_add(*tx));
    let values: Vec<(f64, u64)> = times.iter().copied().rev().zip(bytes.rev()).collect();
    let Some(mut after) = values.first().copied() else { return Vec::new() };
    let mut loads = Vec::new();
    for &(time, bytes) in &values[1..] {
        // Half a second is the distance to the nearest look.
        let seconds = after.0 - time;
        if seconds < interval_s - 0.5 {
            continue;
        }
        // A port that was made anew counts from 0.
        #[expect(clippy::cast_precision_loss, reason = "a load, not a count")]
        loads.push(after.1.saturating_sub(bytes) as f64 * 8.0 / seconds);
        after = (time, bytes);
    }
    loads.reverse();
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> History {
        let port = |name: &str, bytes: Vec<u64>| PortHistory {
            name: name.to_owned(),
            tx_bytes: vec![0; bytes.len()],
            rx_bytes: bytes,
        };
        let times = vec![100.0, 101.0, 102.0, 103.0, 104.0];
        History { times, ports: vec![port("old", vec![0, 125, 250, 0, 500]), port("new", vec![0, 250])] }
    }

    #[test]
    fn loads_are_those_of_the_intervals() {
        let loads_each = |interval: f64| loads(&kept(), Duration::from_secs_f64(interval));
        let named = |old: &[f64], new: &[f64]| vec![("old".to_owned(), old.to_vec()), ("new".to_owned(), new.to_vec())];
        assert_eq!(loads_each(1.0), named(&[1000.0, 1000.0, 0.0, 4000.0], &[2000.0]));
        assert_eq!(loads_each(2.0), named(&[1000.0, 1000.0], &[]));
        assert_eq!(loads_each(0.1), []);
        assert_eq!(loads(&History::default(), Duration::from_secs(1)), []);
    }

    #[test]
    fn curves_of_different_lengths_end_together() {
        assert_eq!(sum([vec![1.0], vec![1.0, 2.0, 3.0], vec![4.0, 5.0]].iter()), [1.0, 6.0, 9.0]);
    }
}
