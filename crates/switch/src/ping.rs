//! Pings: for each client one echo request of an underlay after the other, and the stream of their
//! ends.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use straightline_api::nearest_first;
use straightline_graph::{Clock, EpollWaiter};
use straightline_underlay::{Echo, EchoState, PingError, Underlay};

use crate::Switch;
use crate::api::{ErrorCode, Ping, PingLine, PingRequest, Readiness, Refusal, Stream};
use crate::capture::TICK;
use crate::running::{Running, Snapshot};

/// The most echo requests of a ping.
const MAX_COUNT: u32 = 10_000;

/// Limits of the two times, in milliseconds.
const MIN_MS: u32 = 10;
const MAX_MS: u32 = 3_600_000;

impl Switch {
    /// Begins a ping. It ends when the stream is dropped, or after the requests that were asked for.
    ///
    /// # Errors
    /// The request is not valid, or the underlay does not exist or cannot send to the address.
    pub fn ping(&self, request: &PingRequest) -> Result<(Ping, Box<dyn Stream>), Refusal> {
        let &PingRequest { ref underlay, address, count, interval_ms, timeout_ms } = request;
        for (name, value, limits) in [
            ("count", count, 1..=MAX_COUNT),
            ("interval_ms", interval_ms, MIN_MS..=MAX_MS),
            ("timeout_ms", timeout_ms, MIN_MS..=MAX_MS),
        ] {
            if !limits.contains(&value) {
                let least = limits.start();
                let most = limits.end();
                let error = format!("ping: \"{name}\" of {value} is out of range: use {least} to {most}");
                return Err(Refusal::new(ErrorCode::BadRequest, error));
            }
        }
        let sender = Sender {
            running: Arc::clone(&self.running),
            waiters: self.handles.iter().map(|handle| Arc::clone(&handle.waiter)).collect(),
            underlay: underlay.clone(),
            to: address,
            random: RandomState::new(),
        };
        let clock = self.running.clock.clone();
        let timeout = Duration::from_millis(timeout_ms.into());
        let waiting = sender.begin(1, timeout)?;
        let answer = Ping {
            underlay: underlay.clone(),
            source: waiting.echo.source().to_string(),
            address: address.to_string(),
            next_hop: waiting.echo.next_hop().to_string(),
        };
        let stream = PingStream {
            looks_at: clock.now() + TICK,
            clock,
            sender,
            count,
            interval: Duration::from_millis(interval_ms.into()),
            timeout,
            seq: 1,
            next: waiting.begun + Duration::from_millis(interval_ms.into()),
            waiting: Some(waiting),
        };
        Ok((answer, Box::new(stream)))
    }
}

/// Sends the echo requests of one ping.
struct Sender {
    running: Arc<Running>,
    /// The waiter of each worker.
    waiters: Vec<Arc<EpollWaiter>>,
    underlay: String,
    to: IpAddr,
    /// Makes numbers that nobody can guess.
    random: RandomState,
}

/// An echo request whose end the client does not know yet.
struct Waiting {
    echo: Echo,
    begun: Instant,
    is_sent: bool,
    deadline: Instant,
}

impl Sender {
    /// Begins an echo request. The underlay is looked up each time, since a reload may replace it.
    fn begin(&self, seq: u32, timeout: Duration) -> Result<Waiting, Refusal> {
        let now = self.running.now();
        let underlay = now.tables.get::<Underlay>("underlay", &self.underlay);
        let underlay = underlay.ok_or_else(|| unknown(&now, &self.underlay))?;
        let [a, b, ..] = self.random.hash_one((seq, 0)).to_ne_bytes();
        let [c, d, e, f, g, h, i, j] = self.random.hash_one((seq, 1)).to_ne_bytes();
        let sequence = u16::try_from(seq & 0xffff).unwrap_or_default();
        let echo = underlay
            .ping(self.to, sequence, [a, b, c, d, e, f, g, h, i, j])
            .map_err(|error| refusal(error, &underlay, self.to))?;
        self.wake(&now);
        let begun = self.running.clock.now();
        Ok(Waiting { echo, begun, is_sent: false, deadline: begun + timeout })
    }

    /// Wakes the workers that serve the underlay, so that they send what it has.
    fn wake(&self, now: &Snapshot) {
        let underlay = now.config.underlay_index(&self.underlay).map(|at| &now.config.underlays[at]);
        let Some(port) = underlay.and_then(|underlay| now.config.port_index(&underlay.port)) else { return };
        let workers = &now.plan.ports[port].assignment.rx_workers;
        workers.iter().filter_map(|&worker| self.waiters.get(worker)).for_each(|waiter| waiter.wake());
    }
}

fn unknown(now: &Snapshot, underlay: &str) -> Refusal {
    let known = nearest_first(underlay, now.config.underlays.iter().map(|underlay| underlay.name.as_str()));
    let error = match known.as_str() {
        "" => format!("no such underlay {underlay:?}; the switch has none"),
        known => format!("no such underlay {underlay:?}; underlays are {known}"),
    };
    Refusal::new(ErrorCode::UnknownUnderlay, error).about(underlay)
}

/// Returns why an underlay cannot ping an address.
fn refusal(error: PingError, underlay: &Underlay, to: IpAddr) -> Refusal {
    let name = &underlay.config().name;
    let version = if to.is_ipv4() { "IPv4" } else { "IPv6" };
    let (code, error) = match error {
        PingError::NoAddress => (ErrorCode::Refused, format!("underlay {name:?} has no {version} address")),
        PingError::OwnAddress => (ErrorCode::BadRequest, format!("{to} is an address of underlay {name:?} itself")),
        PingError::NoStation => (ErrorCode::BadRequest, format!("{to} is not the address of a single station")),
        PingError::NoRoute if underlay.via(to).is_some() => {
            (ErrorCode::Busy, format!("underlay {name:?} has as many next hops as possible; try again later"))
        }
        PingError::NoRoute => {
            let error =
                format!("underlay {name:?} has no next hop to {to}: no network of it, and no {version} gateway");
            (ErrorCode::Refused, error)
        }
        PingError::Busy => {
            let error = format!("underlay {name:?} waits for as many replies as possible; try again later");
            (ErrorCode::Busy, error)
        }
    };
    Refusal::new(code, format!("ping: {error}"))
}

/// The stream of one ping. Dropping it ends the ping.
struct PingStream {
    clock: Clock,
    /// The time of the next look.
    looks_at: Instant,
    sender: Sender,
    count: u32,
    interval: Duration,
    timeout: Duration,
    /// The number of the last request.
    seq: u32,
    /// The time from which the next request may begin.
    next: Instant,
    waiting: Option<Waiting>,
}

impl Stream for PingStream {
    fn readiness(&self) -> Readiness<'_> {
        Readiness::From(self.looks_at)
    }

    fn fill(&mut self, output: &mut Vec<u8>) -> bool {
        self.looks_at = self.clock.now() + TICK;
        if let Some(line) = self.look() {
            append(output, &line);
            if self.seq >= self.count {
                return false;
            }
        }
        if self.waiting.is_none() && self.clock.now() >= self.next {
            self.seq += 1;
            match self.sender.begin(self.seq, self.timeout) {
                Ok(waiting) => {
                    self.next = waiting.begun + self.interval;
                    self.waiting = Some(waiting);
                    self.look();
                }
                Err(Refusal { error, .. }) => {
                    append(output, &PingLine::Failed { error });
                    return false;
                }
            }
        }
        true
    }
}

impl PingStream {
    /// Sends the request that waits if that is possible now. Returns its end.
    fn look(&mut self) -> Option<PingLine> {
        let waiting = self.waiting.as_mut()?;
        let seq = self.seq;
        let line = match waiting.echo.look() {
            EchoState::Replied(after) => PingLine::Reply { seq, time_ms: after.as_secs_f64() * 1000.0 },
            EchoState::Sent => {
                if !waiting.is_sent {
                    waiting.is_sent = true;
                    waiting.deadline = self.clock.now() + self.timeout;
                    self.sender.wake(&self.sender.running.now());
                    return None;
                }
                PingLine::NoReply { seq }
            }
            EchoState::NextHopUnknown => {
                PingLine::NextHopUnknown { seq, next_hop: waiting.echo.next_hop().to_string() }
            }
        };
        if !matches!(line, PingLine::Reply { .. }) && self.clock.now() < waiting.deadline {
            return None;
        }
        self.waiting = None;
        Some(line)
    }
}

fn append(output: &mut Vec<u8>, line: &PingLine) {
    if serde_json::to_writer(&mut *output, line).is_ok() {
        output.push(b'\n');
    }
}
