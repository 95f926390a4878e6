//! Rates from the answers of two moments.
//!
//! Every rate is `None` where it is not known: the counter was not there before, it has gone
//! backwards, the switch has started again, or no time has passed between the answers. So a restart
//! gives no absurd rate.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::client::{RequestError, invalid_answer, request};
use super::layout::count;
use super::{Answer, Drops, Joined, Link, Node, Packets, Port, Ports, Runtime, Status, Worker};

/// Two answers of one switch agree on its start within this time, in seconds. A clock that is set
/// by more counts as a restart: rates across such a step would be wrong.
const SAME_START_S: f64 = 1.0;

/// An answer with its time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timed<A> {
    /// Seconds since the epoch at which the switch answered.
    pub time: f64,
    /// The answer.
    pub answer: A,
}

/// The answers of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The answer to `status`.
    pub status: Timed<Status>,
    /// The answer to `ports`.
    pub ports: Timed<Ports>,
    /// The answer to `runtime`.
    pub runtime: Timed<Runtime>,
    /// The answer to `drops`.
    pub drops: Timed<Drops>,
}

impl Sample {
    /// Asks the switch that listens at `path` for all answers.
    ///
    /// # Errors
    /// No switch listens at `path`, or an answer has the wrong type.
    pub fn ask(path: &Path) -> Result<Self, RequestError> {
        Ok(Self { status: timed(path)?, ports: timed(path)?, runtime: timed(path)?, drops: timed(path)? })
    }

    /// Returns whether both samples are of one run of the switch.
    fn same_run(&self, other: &Self) -> bool {
        let start = |sample: &Self| sample.status.time - sample.status.answer.uptime_s;
        (start(self) - start(other)).abs() <= SAME_START_S
    }
}

fn timed<A: Answer>(path: &Path) -> Result<Timed<A>, RequestError> {
    #[derive(Deserialize)]
    struct Time {
        time: f64,
    }
    let json = request(path, A::COMMAND)?;
    let invalid = |error| invalid_answer(path, &error);
    let Time { time } = serde_json::from_str(&json).map_err(invalid)?;
    let answer = serde_json::from_str(&json).map_err(invalid)?;
    Ok(Timed { time, answer })
}

/// The rates between two samples, and the present state beside them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Seconds since the epoch at which the interval ended.
    pub time: f64,
    /// Seconds between the samples; none if the switch has started again, or for a first sample.
    pub interval_s: Option<f64>,
    /// The version of the switch.
    pub version: String,
    /// Seconds since the switch started.
    pub uptime_s: f64,
    /// The sum of all ports.
    pub total: Total,
    /// The ports in the configuration's order.
    pub ports: Vec<PortRates>,
    /// The drops of each port and reason.
    pub drops: Vec<DropRate>,
    /// The workers.
    pub workers: Vec<WorkerShares>,
    /// The nodes of all workers.
    pub nodes: Vec<NodeRates>,
}

/// The sum of all ports but tunnels: the packets of a tunnel are those of its underlay, so each packet
/// counts once in each direction, with its outer headers. Ports without a known rate count as 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Total {
    /// The number of ports.
    pub ports: usize,
    /// The number of ports whose link is up.
    pub ports_up: usize,
    /// Packets that the switch received.
    pub rx: Flow,
    /// Packets that the switch delivered.
    pub tx: Flow,
    /// Dropped packets per second, of tunnels too: a dropped packet counts at one port.
    pub drops_per_s: f64,
}

/// The rates of a port. `rx` is what the switch receives from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortRates {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: String,
    /// The patch, bridge or underlay that has the port.
    pub joined: Option<Joined>,
    /// True for a tunnel. Its packets count at its underlay's port as well.
    pub is_tunnel: bool,
    /// The state of the link.
    pub link: Link,
    /// The reason why the link is down.
    pub reason: Option<String>,
    /// The remedy for that reason.
    pub remedy: Option<String>,
    /// Packets from the port.
    pub rx: Option<Flow>,
    /// Packets to the port.
    pub tx: Option<Flow>,
    /// Dropped packets per second.
    pub drops_per_s: Option<f64>,
}

/// A flow of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Flow {
    /// Packets per second.
    pub packets_per_s: f64,
    /// Bits per second.
    pub bits_per_s: f64,
}

/// Renders the sum of all ports in one line.
#[must_use]
pub fn text(total: &Total) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown as a whole number")]
    let rate = |packets: f64| count(packets.max(0.0) as u64);
    let Total { rx, tx, drops_per_s, .. } = total;
    format!(
        "packets a second: {} in, {} out, {} dropped\n\n",
        rate(rx.packets_per_s),
        rate(tx.packets_per_s),
        rate(*drops_per_s)
    )
}

/// The drops of a port for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DropRate {
    /// The port.
    pub port: String,
    /// The reason.
    pub reason: String,
    /// The number since the start.
    pub count: u64,
    /// Dropped packets per second.
    pub per_s: Option<f64>,
    /// The meaning of the reason.
    pub meaning: String,
    /// The remedy for an operator.
    pub remedy: String,
}

/// The use of a worker's time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkerShares {
    /// The CPU to which the worker is pinned.
    pub cpu: Option<usize>,
    /// The shares of the interval.
    pub shares: Option<Shares>,
}

/// Shares of a worker's time. Each is 0 to 1, and they add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Turns that moved packets.
    pub busy: f64,
    /// Turns that found no packets.
    pub empty_poll: f64,
    /// Sleep.
    pub idle: f64,
    /// Time in none of the other three.
    pub unexplained: f64,
}

impl Shares {
    /// Returns the four shares in the order of the fields.
    #[must_use]
    pub fn as_array(&self) -> [f64; 4] {
        [self.busy, self.empty_poll, self.idle, self.unexplained]
    }
}

/// The rates of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeRates {
    /// The name.
    pub name: String,
    /// The node's worker, as an index into `workers`.
    pub worker: Option<usize>,
    /// Packets per second.
    pub packets_per_s: Option<f64>,
    /// Cycles per second.
    pub cycles_per_s: Option<f64>,
    /// The mean number of packets in a call; none without a call.
    pub packets_per_call: Option<f64>,
    /// The mean number of cycles for a packet; none without a packet.
    pub cycles_per_packet: Option<f64>,
}

impl Rates {
    /// Computes the rates between two samples.
    #[must_use]
    pub fn between(before: &Sample, now: &Sample) -> Self {
        if !before.same_run(now) {
            return Self::first(now);
        }
        let mut rates = Self {
            interval_s: seconds(before.status.time, now.status.time),
            ports: ports(&before.ports, &now.ports),
            drops: drops(before, now),
            workers: workers(&before.runtime.answer, &now.runtime.answer),
            nodes: nodes(&before.runtime, &now.runtime),
            ..Self::first(now)
        };
        rates.total = total(&rates.ports);
        rates
    }

    /// Returns the state of a first sample: no rate is known.
    #[must_use]
    pub fn first(now: &Sample) -> Self {
        let Sample { status, .. } = now;
        // Nothing is the same in an empty sample.
        let empty = Sample::default();
        let ports = ports(&empty.ports, &now.ports);
        let mut drops = drops(&empty, now);
        drops.iter_mut().for_each(|row| row.per_s = None);
        Self {
            time: status.time,
            interval_s: None,
            version: status.answer.version.clone(),
            uptime_s: status.answer.uptime_s,
            total: total(&ports),
            ports,
            drops,
            workers: workers(&empty.runtime.answer, &now.runtime.answer),
            nodes: nodes(&empty.runtime, &now.runtime),
        }
    }
}

/// Returns the seconds from one time to another, if time has passed.
fn seconds(before: f64, now: f64) -> Option<f64> {
    Some(now - before).filter(|seconds| seconds.is_finite() && *seconds > 0.0)
}

/// Returns the increase of a counter, if it has not gone backwards.
fn increase(before: u64, now: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a rate that people read needs no more than 53 bits")]
    now.checked_sub(before).map(|increase| increase as f64)
}

/// Returns the entry of `before` that is the same thing, which mostly has the same index.
fn same<T>(before: &[T], index: usize, is_same: impl Fn(&T) -> bool) -> Option<&T> {
    before.get(index).filter(|entry| is_same(entry)).or_else(|| before.iter().find(|entry| is_same(entry)))
}

fn ports(before: &Timed<Ports>, now: &Timed<Ports>) -> Vec<PortRates> {
    let passed = seconds(before.time, now.time);
    let rates = |(index, port): (usize, &Port)| {
        let old = same(&before.answer.ports, index, |old| old.name == port.name && old.kind == port.kind);
        let pair = old.zip(passed);
        PortRates {
            name: port.name.clone(),
            kind: port.kind.clone(),
            joined: port.joined.clone(),
            is_tunnel: port.tunnel.is_some(),
            link: port.link,
            reason: port.reason.clone(),
            remedy: port.remedy.clone(),
            rx: pair.and_then(|(old, passed)| flow(sum(old, |queue| queue.rx), sum(port, |queue| queue.rx), passed)),
            tx: pair.and_then(|(old, passed)| flow(sum(old, |queue| queue.tx), sum(port, |queue| queue.tx), passed)),
            drops_per_s: pair.and_then(|(old, passed)| Some(port_drops(old, port)? / passed)),
        }
    };
    now.answer.ports.iter().enumerate().map(rates).collect()
}

/// Returns the sum over all queues.
fn sum(port: &Port, direction: fn(&super::Queue) -> Packets) -> Packets {
    port.queues.iter().map(direction).fold(Packets::default(), |sum, next| Packets {
        packets: sum.packets.saturating_add(next.packets),
        bytes: sum.bytes.saturating_add(next.bytes),
    })
}

fn flow(before: Packets, now: Packets, passed: f64) -> Option<Flow> {
    let packets = increase(before.packets, now.packets)?;
    let bytes = increase(before.bytes, now.bytes)?;
    Some(Flow { packets_per_s: packets / passed, bits_per_s: 8.0 * bytes / passed })
}

/// Returns the number of packets that were dropped at a port between two answers.
fn port_drops(before: &Port, now: &Port) -> Option<f64> {
    // `sum` of no floats is -0.
    now.drops.iter().try_fold(0.0, |sum, (reason, count)| {
        Some(sum + increase(before.drops.get(reason).copied().unwrap_or(0), *count)?)
    })
}

fn total(ports: &[PortRates]) -> Total {
    let flow = |direction: fn(&PortRates) -> Option<Flow>| {
        ports.iter().filter(|port| !port.is_tunnel).filter_map(direction).fold(Flow::default(), |sum, next| Flow {
            packets_per_s: sum.packets_per_s + next.packets_per_s,
            bits_per_s: sum.bits_per_s + next.bits_per_s,
        })
    };
    Total {
        ports: ports.len(),
        ports_up: ports.iter().filter(|port| port.link == Link::Up).count(),
        rx: flow(|port| port.rx),
        tx: flow(|port| port.tx),
        drops_per_s: ports.iter().filter_map(|port| port.drops_per_s).fold(0.0, |sum, next| sum + next),
    }
}

fn drops(before: &Sample, now: &Sample) -> Vec<DropRate> {
    let passed = seconds(before.drops.time, now.drops.time);
    let old: BTreeMap<_, _> =
        before.drops.answer.drops.iter().map(|row| ((row.port.as_str(), row.reason.as_str()), row.count)).collect();
    let rate = |row: &super::DropCount| {
        // A row appears with its first drop, so one that was not there before began at 0.
        let before = old.get(&(row.port.as_str(), row.reason.as_str())).copied().unwrap_or(0);
        DropRate {
            port: row.port.clone(),
            reason: row.reason.clone(),
            count: row.count,
            per_s: passed.and_then(|passed| Some(increase(before, row.count)? / passed)),
            meaning: row.meaning.clone(),
            remedy: row.remedy.clone(),
        }
    };
    now.drops.answer.drops.iter().map(rate).collect()
}

fn workers(before: &Runtime, now: &Runtime) -> Vec<WorkerShares> {
    let shares = |(index, worker): (usize, &Worker)| WorkerShares {
        cpu: worker.cpu,
        shares: before.workers.get(index).filter(|old| old.cpu == worker.cpu).and_then(|old| shares(old, worker)),
    };
    now.workers.iter().enumerate().map(shares).collect()
}

fn shares(before: &Worker, now: &Worker) -> Option<Shares> {
    let times = |worker: &Worker| [worker.busy_s, worker.empty_poll_s, worker.idle_s, worker.unexplained_s];
    let before = times(before);
    let now = times(now);
    // The unexplained time is a difference of clocks: it may go back a little.
    let [busy, empty_poll, idle, unexplained]: [f64; 4] = std::array::from_fn(|at| (now[at] - before[at]).max(0.0));
    let sum = busy + empty_poll + idle + unexplained;
    // A worker that was made anew has less time than before.
    let restarted = now.iter().sum::<f64>() < before.iter().sum();
    (sum.is_finite() && sum > 0.0 && !restarted).then(|| Shares {
        busy: busy / sum,
        empty_poll: empty_poll / sum,
        idle: idle / sum,
        unexplained: unexplained / sum,
    })
}

fn nodes(before: &Timed<Runtime>, now: &Timed<Runtime>) -> Vec<NodeRates> {
    let passed = seconds(before.time, now.time);
    let rates = |(index, node): (usize, &Node)| {
        let old = same(&before.answer.nodes, index, |old| old.name == node.name && old.worker == node.worker);
        let increases = old.and_then(|old| {
            let calls = increase(old.calls, node.calls)?;
            Some((calls, increase(old.packets, node.packets)?, increase(old.cycles, node.cycles)?))
        });
        let ratio = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        NodeRates {
            name: node.name.clone(),
            worker: node.worker,
            packets_per_s: increases.zip(passed).map(|((_, packets, _), passed)| packets / passed),
            cycles_per_s: increases.zip(passed).map(|((_, _, cycles), passed)| cycles / passed),
            packets_per_call: increases.and_then(|(calls, packets, _)| ratio(packets, calls)),
            cycles_per_packet: increases.and_then(|(_, packets, cycles)| ratio(cycles, packets)),
        }
    };
    now.answer.nodes.iter().enumerate().map(rates).collect()
}

#[cfg(test)]
mod tests;
