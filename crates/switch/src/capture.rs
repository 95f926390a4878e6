//! Captures: for each client one observer in every worker, and the stream of their records. Traces
//! share the parts that they need as well.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use az::SaturatingAs;
use straightline_capture::record::Record;
use straightline_capture::{CaptureObserver, Dropped, Reader, SNAPLEN, Selection};
use straightline_graph::clock::{cycles, hertz};
use straightline_graph::{Clock, EpollWaiter, Mailbox, Observation};
use straightline_packet::{ObserverId, Reason};

use crate::Switch;
use crate::api::{Capture, CaptureInterface, CaptureRequest, ErrorCode, MAX_FILL, Readiness, Refusal, Stream};
use crate::captures::Session;
use crate::running::Snapshot;

/// The most ports of a capture.
const MAX_PORTS: usize = 256;

/// The time between two looks at the rings. The workers make no system call for a capture.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// Ticks that a client gets after the last packet. It puts packets of several workers in order by
/// them.
const LAST_TICKS: u32 = 4;

impl Switch {
    /// Begins a capture, which ends when the stream is dropped.
    ///
    /// # Errors
    /// The request is not valid, a port does not exist, or too many captures run.
    pub fn capture(&self, request: &CaptureRequest) -> Result<(Capture, Box<dyn Stream>), Refusal> {
        let selection = Arc::new(selection(request)?);
        let interfaces = interfaces(&self.running.now(), &request.ports)?;
        let session = Arc::new(Session::new(interfaces.iter().map(|interface| interface.name.clone()).collect()));
        let id = self.running.captures.add("capture", &session, || self.running.now().find_ports(&session))?;
        let mut rings = Vec::new();
        let mut observers = Vec::new();
        for handle in &self.handles {
            let (observer, reader) =
                CaptureObserver::new(Arc::clone(&selection), Arc::clone(&session.table), session.names.len());
            let mailbox = Arc::clone(&handle.mailbox);
            let waiter = Arc::clone(&handle.waiter);
            observers.push(observer);
            rings.push(WorkerRing { reader, mailbox, waiter });
        }
        // Dropping the stream ends what has begun.
        let told = session.names.iter().map(|_| Told { selected: 0, missed: 0, is_present: true }).collect();
        let clock = self.running.clock.clone();
        let next = clock.now() + TICK;
        let stream = CaptureStream { id, session, clock, next, rings, told, first: 0, quiet: 0 };
        for (ring, observer) in stream.rings.iter().zip(observers) {
            ring.mailbox.observe(Observation::Begin(id, Box::new(observer)));
            ring.waiter.wake();
        }
        if !stream.rings.iter().all(|ring| ring.mailbox.wait_observed()) {
            let error = "capture: a worker has ended: this is a bug; restart the switch";
            return Err(Refusal::new(ErrorCode::Internal, error));
        }
        let reasons = Reason::ALL.iter().map(|reason| reason.name().to_owned()).collect();
        Ok((Capture { interfaces, reasons, workers: self.handles.len() }, Box::new(stream)))
    }
}

/// Checks the number of ports of a request.
pub(crate) fn check_ports(command: &str, ports: &[String]) -> Result<(), Refusal> {
    if (1..=MAX_PORTS).contains(&ports.len()) {
        return Ok(());
    }
    let error = format!("{command}: {} ports; name 1 to {MAX_PORTS}", ports.len());
    Err(Refusal::new(ErrorCode::BadRequest, error))
}

/// Returns the named ports, each once.
pub(crate) fn interfaces(now: &Snapshot, names: &[String]) -> Result<Vec<CaptureInterface>, Refusal> {
    let mut interfaces: Vec<CaptureInterface> = Vec::new();
    for name in names {
        let at = now.place_of(name)?;
        if !interfaces.iter().any(|interface| interface.name == *name) {
            let kind = now.config.ports[at].kind.word().to_owned();
            interfaces.push(CaptureInterface { name: name.clone(), kind });
        }
    }
    Ok(interfaces)
}

/// Checks a request.
fn selection(request: &CaptureRequest) -> Result<Selection, Refusal> {
    let bad = |error: String| Refusal::new(ErrorCode::BadRequest, error);
    let &CaptureRequest { ref ports, received, delivered, ref dropped, ref filter, snaplen } = request;
    check_ports("capture", ports)?;
    if !(1..=SNAPLEN).contains(&snaplen) {
        return Err(bad(format!("capture: a snaplen of {snaplen} is out of range: use 1 to {SNAPLEN}")));
    }
    let dropped = match dropped.as_deref() {
        None => Dropped::No,
        Some("") => Dropped::Any,
        Some(name) => {
            let found = Reason::ALL.iter().find(|reason| reason.name() == name);
            let names = || Reason::ALL.iter().map(|reason| reason.name()).collect::<Vec<_>>().join(", ");
            let unknown = || bad(format!("capture: no such drop reason {name:?}; reasons are {}", names())).about(name);
            Dropped::For(*found.ok_or_else(unknown)?)
        }
    };
    if !received && !delivered && dropped == Dropped::No {
        return Err(bad("capture: nothing is to be captured; set \"in\", \"out\" or \"dropped\"".to_owned()));
    }
    let filter = filter.as_deref().map(str::parse).transpose().map_err(|error| bad(format!("capture: {error}")))?;
    Ok(Selection { received, delivered, dropped, filter, snaplen })
}

/// Returns the tick after `last`, or now if that has passed: a long look does not put the next one off.
pub(crate) fn next_tick(last: Instant, clock: &Clock) -> Instant {
    let now = clock.now();
    (last + TICK).clamp(now, now + TICK)
}

/// The ring of a worker, with the ways to reach the worker.
struct WorkerRing {
    reader: Reader,
    mailbox: Arc<Mailbox>,
    waiter: Arc<EpollWaiter>,
}

/// The facts about an interface that the client knows.
struct Told {
    selected: u64,
    missed: u64,
    is_present: bool,
}

/// The stream of one capture. Dropping it ends the capture in all workers.
struct CaptureStream {
    id: ObserverId,
    session: Arc<Session>,
    clock: Clock,
    /// The time of the next look.
    next: Instant,
    rings: Vec<WorkerRing>,
    told: Vec<Told>,
    /// The ring that comes first in the next call, so that none is always the last.
    first: usize,
    /// Ticks since the last packet.
    quiet: u32,
}

impl Stream for CaptureStream {
    fn readiness(&self) -> Readiness<'_> {
        Readiness::From(self.next)
    }

    fn fill(&mut self, output: &mut Vec<u8>) -> bool {
        let moment = Moment::now(&self.clock);
        let count = self.rings.len();
        for step in 0..count {
            let at = (self.first + step) % count;
            if !self.rings[at].reader.drain(output, MAX_FILL, |cycles| moment.time_of(cycles)) {
                // The time of this look has come, so the rest follows at once.
                self.first = at;
                self.quiet = 0;
                return true;
            }
        }
        self.first = (self.first + 1) % count.max(1);
        self.next = next_tick(self.next, &self.clock);
        let had_packets = !output.is_empty();
        self.tell(output);
        self.quiet = if had_packets { 0 } else { self.quiet.saturating_add(1) };
        if self.quiet <= LAST_TICKS {
            Record::Tick { time: moment.time }.append(output);
        }
        // A worker that sleeps hands its last records over.
        self.rings.iter().filter(|ring| ring.reader.is_pending()).for_each(|ring| ring.waiter.wake());
        true
    }
}

impl CaptureStream {
    /// Appends what has changed in the counts and the ports.
    fn tell(&mut self, output: &mut Vec<u8>) {
        for (at, (told, present)) in self.told.iter_mut().zip(&self.session.present).enumerate() {
            let interface = at.saturating_as::<u16>();
            let of_ring = |ring: &WorkerRing| ring.reader.counts(at);
            let (selected, missed) = self
                .rings
                .iter()
                .map(of_ring)
                .fold((0_u64, 0_u64), |sum, counts| (sum.0.wrapping_add(counts.0), sum.1.wrapping_add(counts.1)));
            if (told.selected, told.missed) != (selected, missed) {
                (told.selected, told.missed) = (selected, missed);
                Record::Counts { interface, selected, missed }.append(output);
            }
            let is_present = present.load(Ordering::Relaxed);
            if told.is_present != is_present {
                told.is_present = is_present;
                Record::Port { interface, is_present }.append(output);
            }
        }
    }
}

impl Drop for CaptureStream {
    fn drop(&mut self) {
        for ring in &self.rings {
            ring.mailbox.observe(Observation::End(self.id));
            ring.waiter.wake();
        }
        // The rings are freed here and not by the workers.
        for ring in &self.rings {
            ring.mailbox.wait_observed();
        }
    }
}

/// A moment on both clocks: the workers' counter, and the time of day.
pub(crate) struct Moment {
    cycles: u64,
    /// Nanoseconds since 1970.
    time: u64,
    hertz: f64,
}

impl Moment {
    pub(crate) fn now(clock: &Clock) -> Self {
        let once = || {
            let before = cycles();
            let time = clock.time_of_day();
            (cycles().saturating_sub(before), before, time)
        };
        // The thread may be away between two readings, so the try counts whose readings were closest together.
        let (_, cycles, time) = [once(), once(), once()].into_iter().min().unwrap_or_else(once);
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Moment { cycles, time: since.as_nanos().saturating_as::<u64>(), hertz: hertz() }
    }

    /// Returns the time of an earlier reading of the counter.
    pub(crate) fn time_of(&self, cycles: u64) -> u64 {
        let ago = Duration::try_from_secs_f64(seconds(self.cycles.saturating_sub(cycles), self.hertz));
        self.time.saturating_sub(ago.map_or(0, |ago| ago.as_nanos().saturating_as::<u64>()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "the time since a packet was copied, in cycles")]
fn seconds(cycles: u64, hertz: f64) -> f64 {
    cycles as f64 / hertz
}
