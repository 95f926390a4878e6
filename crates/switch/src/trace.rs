//! Traces: for each client one observer in every worker, and the stream of packets with their ways.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use straightline_capture::Summary;
use straightline_capture::trace::{
    Change, Happened, MAX_TRACES, PacketHead, PassedStep, TraceEvent, TraceObserver, TraceReader, Wanted, change,
};
use straightline_graph::{EpollWaiter, Mailbox, Observation};
use straightline_nodes::{Decided, FirewallControl};
use straightline_packet::{ObserverId, StepKind};

use crate::Switch;
use crate::api::{
    ErrorCode, MAX_FILL, Readiness, Refusal, Stream, Trace, TraceAction, TraceLine, TraceRequest, TracedDrop,
    TracedPacket, TracedStep,
};
use crate::capture::{Moment, TICK, check_ports, interfaces, next_tick};
use crate::captures::Session;
use crate::running::Running;

/// The most packets of a trace.
const MAX_COUNT: u32 = 10_000;

impl Switch {
    /// Begins a trace. It ends when the stream is dropped, or after the packets that were asked for.
    ///
    /// # Errors
    /// The request is not valid, a port does not exist, or too many captures and traces run.
    pub fn trace(&self, request: &TraceRequest) -> Result<(Trace, Box<dyn Stream>), Refusal> {
        let TraceRequest { ports, count, filter } = request;
        let bad = |error: String| Refusal::new(ErrorCode::BadRequest, error);
        check_ports("trace", ports)?;
        if !(1..=MAX_COUNT).contains(count) {
            return Err(bad(format!("trace: a count of {count} is out of range: use 1 to {MAX_COUNT}")));
        }
        let filter = filter.as_deref().map(str::parse).transpose().map_err(|error| bad(format!("trace: {error}")))?;
        let interfaces = interfaces(&self.running.now(), ports)?;
        let session = Arc::new(Session::new(interfaces.into_iter().map(|interface| interface.name).collect()));
        let id = self.running.captures.add("trace", &session, || self.running.now().find_ports(&session))?;
        let wanted = Arc::new(Wanted::new(*count));
        let traces = usize::try_from(*count).unwrap_or(MAX_TRACES);
        let mut workers = Vec::new();
        let mut observers = Vec::new();
        for handle in &self.handles {
            let table = Arc::clone(&session.table);
            let wanted = Arc::clone(&wanted);
            let (observer, reader) = TraceObserver::new(filter.clone(), table, wanted, session.names.len(), traces);
            let mailbox = Arc::clone(&handle.mailbox);
            let waiter = Arc::clone(&handle.waiter);
            observers.push(observer);
            workers.push(TracedWorker { reader, mailbox, waiter });
        }
        let answer = Trace { ports: session.names.clone() };
        let told = vec![true; session.names.len()];
        // Dropping the stream ends what has begun.
        let running = Arc::clone(&self.running);
        let next = running.clock.now() + TICK;
        let stream = TraceStream { id, session, running, next, workers, told, left: *count };
        for (worker, observer) in stream.workers.iter().zip(observers) {
            worker.mailbox.observe(Observation::Begin(id, Box::new(observer)));
            worker.waiter.wake();
        }
        if !stream.workers.iter().all(|worker| worker.mailbox.wait_observed()) {
            let error = "trace: a worker has ended: this is a bug; restart the switch";
            return Err(Refusal::new(ErrorCode::Internal, error));
        }
        Ok((answer, Box::new(stream)))
    }
}

/// The traces of a worker, with the ways to reach the worker.
struct TracedWorker {
    reader: TraceReader,
    mailbox: Arc<Mailbox>,
    waiter: Arc<EpollWaiter>,
}

/// The stream of one trace. Dropping it ends the trace in all workers.
struct TraceStream {
    id: ObserverId,
    session: Arc<Session>,
    running: Arc<Running>,
    /// The time of the next look.
    next: Instant,
    workers: Vec<TracedWorker>,
    /// For each interface, whether the client knows that its port is there.
    told: Vec<bool>,
    /// The packets that are still to be sent.
    left: u32,
}

impl Stream for TraceStream {
    fn readiness(&self) -> Readiness<'_> {
        Readiness::From(self.next)
    }

    fn fill(&mut self, output: &mut Vec<u8>) -> bool {
        let moment = Moment::now(&self.running.clock);
        let rules = self.running.now().tables.get::<FirewallControl>("firewall", "ports");
        while self.left > 0 {
            if output.len() >= MAX_FILL {
                // The time of this look has come, so the rest follows at once.
                return true;
            }
            let times = self.workers.iter().enumerate();
            let times = times.filter_map(|(at, worker)| worker.reader.time().map(|time| (time, at)));
            let Some((_, at)) = times.min() else { break };
            let Some(worker) = self.workers.get_mut(at) else { break };
            let session = &self.session;
            let packet = worker.reader.next(|trace| packet(trace, session, rules.as_deref(), at, &moment));
            if let Some(packet) = packet {
                append(output, &TraceLine::Packet(Box::new(packet)));
                self.left -= 1;
            }
        }
        self.next = next_tick(self.next, &self.running.clock);
        for ((name, present), told) in self.session.names.iter().zip(&self.session.present).zip(&mut self.told) {
            let is_present = present.load(Ordering::Relaxed);
            if *told != is_present {
                *told = is_present;
                append(output, &TraceLine::Port { port: name.clone(), is_present });
            }
        }
        self.left > 0
    }
}

impl Drop for TraceStream {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.mailbox.observe(Observation::End(self.id));
            worker.waiter.wake();
        }
        // The traces are freed here and not by the workers.
        for worker in &self.workers {
            worker.mailbox.wait_observed();
        }
    }
}

fn append(output: &mut Vec<u8>, line: &TraceLine) {
    if serde_json::to_writer(&mut *output, line).is_ok() {
        output.push(b'\n');
    }
}

/// Returns a packet with its way, as the client gets it.
fn packet(
    trace: &straightline_capture::trace::Trace,
    session: &Session,
    rules: Option<&FirewallControl>,
    worker: usize,
    moment: &Moment,
) -> TracedPacket {
    let first = trace.heads.first();
    let port_name = |event: &&TraceEvent| session.name_of(event.port);
    let mut delivered: Vec<String> = Vec::new();
    let mut dropped: Vec<TracedDrop> = Vec::new();
    for event in &trace.events {
        let port = port_name(&event);
        match event.what {
            Happened::Delivered if !delivered.contains(&port) => delivered.push(port),
            Happened::Dropped(reason) => {
                // A tunnel has given the packet to its underlay, but could not send it.
                delivered.retain(|name| *name != port);
                dropped.push(TracedDrop { port, reason: reason.name().to_owned() });
            }
            _ => {}
        }
    }
    TracedPacket {
        time: Duration::from_nanos(moment.time_of(trace.time)).as_secs_f64(),
        port: session.names.get(usize::from(trace.interface)).cloned().unwrap_or_default(),
        worker,
        packet: first.map(summary).unwrap_or_default(),
        length: first.map_or(0, |head| head.len),
        gso_size: trace.gso_size,
        skipped: trace.skipped,
        steps: (0..trace.steps.len()).map(|at| step(trace, session, rules, at)).collect(),
        more_steps: trace.more_steps.into(),
        delivered,
        dropped,
        waits: trace.waits,
    }
}

fn summary(head: &PacketHead) -> String {
    Summary::new(head.bytes(), head.len).to_string()
}

/// Returns a step, with what happened to the packet in it.
fn step(
    trace: &straightline_capture::trace::Trace,
    session: &Session,
    rules: Option<&FirewallControl>,
    at: usize,
) -> TracedStep {
    let passed: &PassedStep = &trace.steps[at];
    let before = trace.head_after(at.checked_sub(1));
    let mut actions = Vec::new();
    let is_output = passed.kind == StepKind::Output;
    let mut now = before;
    for event in trace.events.iter().filter(|event| usize::from(event.step) == at) {
        let head = trace.heads.get(usize::from(event.head));
        if head != now {
            // An underlay puts headers on for each tunnel, and takes them off again.
            let from = if is_output { before } else { now };
            actions.extend(from.zip(head).and_then(|(from, to)| changed(from, to)));
            now = head;
        }
        let port = session.name_of(event.port);
        actions.push(match event.what {
            Happened::Received => TraceAction::Received { port },
            Happened::Delivered => TraceAction::Delivered { port },
            Happened::Dropped(reason) => TraceAction::Dropped { port, reason: reason.name().to_owned() },
            Happened::Segmented(segments) => TraceAction::Segmented { port, segments },
            Happened::Decided(decision) => match rules.and_then(|rules| rules.decision(event.port, decision)) {
                Some(Decided { allowed, rule }) => TraceAction::Decided { port, allowed, rule },
                // The port has other rules by now.
                None => continue,
            },
        });
    }
    let after = trace.head_after(Some(at));
    if !is_output && after != now {
        actions.extend(now.zip(after).and_then(|(from, to)| changed(from, to)));
    }
    match (passed.kind, passed.ways) {
        (StepKind::Output, _) if actions.is_empty() && trace.waits => actions.push(TraceAction::Waits),
        (StepKind::Output, _) if actions.is_empty() => actions.push(TraceAction::Kept),
        (StepKind::Node, 0) if !actions.iter().any(|action| matches!(action, TraceAction::Dropped { .. })) => {
            actions.push(TraceAction::Taken);
        }
        (StepKind::Node, copies @ 2..) => actions.push(TraceAction::Copied { copies }),
        _ => {}
    }
    TracedStep { node: passed.name().to_owned(), cycles: passed.cycles, packets: passed.packets, actions }
}

fn changed(before: &PacketHead, after: &PacketHead) -> Option<TraceAction> {
    let packet = || summary(after);
    Some(match change(before, after)? {
        Change::TagPushed(vlan) => TraceAction::TagPushed { vlan },
        Change::TagPopped(vlan) => TraceAction::TagPopped { vlan },
        Change::HeadersAdded(bytes) => TraceAction::HeadersAdded { bytes, packet: packet() },
        Change::HeadersRemoved(bytes) => TraceAction::HeadersRemoved { bytes, packet: packet() },
        Change::AddressesChanged => TraceAction::AddressesChanged { packet: packet() },
        Change::HeadersChanged => TraceAction::HeadersChanged { packet: packet() },
    })
}
