//! The switch's answers of one poll: as it sent them, and parsed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use hyper::body::Bytes;
use straightline_api::{
    Answer, Drops, Events, EventsRequest, Fdb, History, Link, Neighbours, Ports, Request, Runtime, Status, Tables,
    Worker, request, send,
};
use straightline_evpn::process::{Question, Status as EvpnStatus, ask as ask_evpn};

use crate::clock::Clock;

/// The number of events that a page shows. The switch keeps many more.
const EVENTS: usize = 20;

/// The answers of one poll.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) status: Status,
    pub(crate) ports: Ports,
    pub(crate) runtime: Runtime,
    pub(crate) drops: Drops,
    pub(crate) neighbours: Neighbours,
    pub(crate) tables: Tables,
    /// The answer of `straightline evpn`, if it is asked; an error says why it does not answer.
    pub(crate) evpn: Option<Result<EvpnStatus, String>>,
    /// When the newest poll began that saw another link than the poll before.
    pub(crate) links_changed: Option<Instant>,
    /// The answers as JSON, as the switch sent them. So fields of a newer switch are kept.
    json: BTreeMap<&'static str, Bytes>,
    /// All answers in one object.
    all: OnceLock<Bytes>,
    /// The metrics, once a client has asked for them.
    pub(crate) open_metrics: OnceLock<Bytes>,
}

/// The result of a poll: an error says why the switch does not answer.
pub(crate) type Polled = Result<Answers, String>;

impl Answers {
    /// Returns the answer to a command as JSON, if a poll asks for it.
    pub(crate) fn json(&self, command: &str) -> Option<Bytes> {
        self.json.get(command).cloned()
    }

    /// Returns all answers as one JSON object, with the commands as keys.
    pub(crate) fn all(&self) -> Bytes {
        let join = || {
            let fields = self.json.iter().map(|(command, json)| {
                // Each is a line that was parsed as JSON before.
                format!("\"{command}\":{}", String::from_utf8_lossy(json))
            });
            Bytes::from(format!("{{{}}}", fields.collect::<Vec<_>>().join(",")))
        };
        self.all.get_or_init(join).clone()
    }

    fn add<A: Answer>(&mut self, path: &Path) -> Result<A, String> {
        let (json, answer) = ask(path)?;
        self.json.insert(A::COMMAND.as_str(), json);
        Ok(answer)
    }

    fn fetch(path: &Path) -> Polled {
        let mut answers = Self::default();
        answers.status = answers.add(path)?;
        answers.ports = answers.add(path)?;
        answers.runtime = answers.add(path)?;
        answers.drops = answers.add(path)?;
        answers.neighbours = answers.add(path)?;
        // A switch of an older version has no tables.
        answers.tables = answers.add(path).unwrap_or_default();
        Ok(answers)
    }
}

/// A port's name, its link, and the reason why it is down.
type PortLink = (String, Link, Option<String>);

/// The poll of a switch.
#[derive(Debug)]
pub(crate) struct Poll {
    path: PathBuf,
    evpn: Option<PathBuf>,
    clock: Clock,
    /// The uptime and the workers' times of the last poll.
    last: Option<(f64, Vec<Worker>)>,
    /// The ports' links in the last poll, and when they changed.
    links: Vec<PortLink>,
    links_changed: Option<Instant>,
    /// The newest events. Each poll asks for those that came since the last one.
    events: Events,
}

impl Poll {
    pub(crate) fn new(path: PathBuf, evpn: Option<PathBuf>, clock: Clock) -> Self {
        Self { path, evpn, clock, last: None, links: Vec::new(), links_changed: None, events: Events::default() }
    }

    /// Asks the switch.
    pub(crate) fn fetch(&mut self) -> Polled {
        let begun = self.clock.now();
        let mut answers = Answers::fetch(&self.path)?;
        let status = |path: &PathBuf| ask_evpn(path, Question::Status).map(|(status, _)| status);
        answers.evpn = self.evpn.as_ref().map(|path| status(path).map_err(|error| error.to_string()));
        answers.links_changed = self.note_links(begun, &answers.ports);
        let uptime_s = answers.status.uptime_s;
        if self.last.as_ref().is_some_and(|(before, _)| *before > uptime_s) {
            self.events = Events::default();
        }
        self.keep_growing(uptime_s, &mut answers.runtime.workers);
        // A switch of an older version has no events.
        if self.add_events().is_some() {
            let json = serde_json::to_string(&self.events).map_err(|error| error.to_string())?;
            answers.json.insert("events", json.into());
        }
        Ok(answers)
    }

    /// Compares the links with those of the last poll. Returns when they changed.
    fn note_links(&mut self, begun: Instant, ports: &Ports) -> Option<Instant> {
        let links: Vec<PortLink> =
            ports.ports.iter().map(|port| (port.name.clone(), port.link, port.reason.clone())).collect();
        if links != self.links {
            self.links = links;
            self.links_changed = Some(begun);
        }
        self.links_changed
    }

    /// Adds the events since the last poll, and keeps the newest ones.
    fn add_events(&mut self) -> Option<()> {
        let request = Request::Events(EventsRequest { since: self.events.last, follow: false });
        let new: Events = serde_json::from_str(&send(&self.path, &request).ok()?).ok()?;
        self.events.last = new.last;
        self.events.events.extend(new.events);
        let old = self.events.events.len().saturating_sub(EVENTS);
        self.events.events.drain(..old);
        Some(())
    }

    /// Makes the workers' times never fall while the switch runs. A worker that falls asleep or
    /// wakes during the answer may make one of them fall by a little. For a counter that would
    /// mean a restart.
    fn keep_growing(&mut self, uptime_s: f64, workers: &mut [Worker]) {
        if let Some((before, last)) = &self.last
            && *before <= uptime_s
            && last.len() == workers.len()
        {
            for (worker, last) in workers.iter_mut().zip(last) {
                worker.busy_s = worker.busy_s.max(last.busy_s);
                worker.empty_poll_s = worker.empty_poll_s.max(last.empty_poll_s);
                worker.idle_s = worker.idle_s.max(last.idle_s);
                worker.unexplained_s = worker.unexplained_s.max(last.unexplained_s);
            }
        }
        self.last = Some((uptime_s, workers.to_vec()));
    }
}

/// Asks for the addresses that the bridges know. They are asked for on demand only, because there
/// may be many.
pub(crate) fn fdb(path: &Path) -> Result<Bytes, String> {
    ask::<Fdb>(path).map(|(json, _)| json)
}

/// Asks for all events that the switch keeps, on demand only.
pub(crate) fn events(path: &Path) -> Result<Bytes, String> {
    ask::<Events>(path).map(|(json, _)| json)
}

/// Asks for the traffic of the last two minutes, which a page needs once.
pub(crate) fn history(path: &Path) -> Result<Bytes, String> {
    ask::<History>(path).map(|(json, _)| json)
}

/// Returns an answer as the switch sent it, and parsed.
fn ask<A: Answer>(path: &Path) -> Result<(Bytes, A), String> {
    let json = request(path, A::COMMAND).map_err(|error| error.to_string())?;
    let answer = serde_json::from_str(&json);
    let answer = answer.map_err(|error| format!("the answer to {} is not valid: {error}", A::COMMAND.as_str()))?;
    Ok((Bytes::from(json), answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_running_switch_never_fall() {
        let worker = |busy_s, idle_s| Worker { busy_s, idle_s, ..Worker::default() };
        let mut poll = Poll::new(PathBuf::new(), None, Clock::default());
        let mut poll = |uptime, busy, idle| {
            let mut workers = [worker(busy, idle)];
            poll.keep_growing(uptime, &mut workers);
            (workers[0].busy_s, workers[0].idle_s)
        };
        assert_eq!(poll(10.0, 4.0, 6.0), (4.0, 6.0));
        assert_eq!(poll(11.0, 5.0, 5.5), (5.0, 6.0));
        assert_eq!(poll(12.0, 5.0, 7.0), (5.0, 7.0));
        // A restarted switch begins again.
        assert_eq!(poll(0.5, 0.1, 0.4), (0.1, 0.4));
    }
}
