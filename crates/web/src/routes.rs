//! The paths of the server.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::ACCEPT;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use crate::answers::{self, Answers, Poll, Polled};
use crate::clock::Clock;
use crate::feed::Feed;
use crate::hosts::Hosts;
use crate::metrics;
use crate::reply::{self, Reply};

/// The age up to which a scrape gets the answers of an earlier poll. It bounds the polls of a
/// switch, whatever the number of scrapes.
const SCRAPE_AGE: Duration = Duration::from_millis(100);

/// The same for pages, which ask each second. So all of them cost about one poll a second.
const PAGE_AGE: Duration = Duration::from_millis(700);

/// The same for long answers: addresses, events, the history.
const LARGE_AGE: Duration = Duration::from_secs(1);

/// The age at which the findings are made anew. They take long, and change rarely. After a change
/// of a link they are made anew at once.
const FINDINGS_AGE: Duration = Duration::from_secs(30);

/// Makes findings about the switch, as JSON: `{"checks":[...]}`.
pub(crate) type Findings = Box<dyn FnMut() -> Option<String> + Send>;

/// The files of the page.
const FILES: [(&str, &str, &str); 8] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../page/page.css")),
    ("/main.js", SCRIPT, include_str!("../page/main.js")),
    ("/history.js", SCRIPT, include_str!("../page/history.js")),
    ("/tables.js", SCRIPT, include_str!("../page/tables.js")),
    ("/topology.js", SCRIPT, include_str!("../page/topology.js")),
    ("/text.js", SCRIPT, include_str!("../page/text.js")),
    ("/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The content of the server.
#[derive(Debug)]
pub(crate) struct Routes {
    hosts: Hosts,
    answers: Feed<Polled>,
    fdb: Feed<Result<Bytes, String>>,
    events: Feed<Result<Bytes, String>>,
    history: Feed<Result<Bytes, String>>,
    findings: Option<Feed<Option<String>>>,
}

impl Routes {
    /// Starts the threads that ask the switch.
    pub(crate) fn start(
        hosts: Hosts,
        api: PathBuf,
        evpn: Option<PathBuf>,
        findings: Option<Findings>,
        clock: &Clock,
    ) -> io::Result<Self> {
        let mut poll = Poll::new(api.clone(), evpn, clock.clone());
        let of_events = api.clone();
        let of_history = api.clone();
        Ok(Self {
            hosts,
            answers: Feed::start("poll", clock, move || poll.fetch())?,
            fdb: Feed::start("poll-fdb", clock, move || answers::fdb(&api))?,
            events: Feed::start("poll-events", clock, move || answers::events(&of_events))?,
            history: Feed::start("poll-history", clock, move || answers::history(&of_history))?,
            findings: findings.map(|findings| Feed::start("findings", clock, findings)).transpose()?,
        })
    }

    /// Replies to a request.
    pub(crate) async fn reply(&self, request: &Parts) -> Reply {
        if !self.hosts.allow(request) {
            let message = "this server is not the host that the request names; allow the name with --allow-host NAME";
            return reply::error(StatusCode::MISDIRECTED_REQUEST, message);
        }
        if request.method != Method::GET && request.method != Method::HEAD {
            return reply::not_allowed();
        }
        let path = request.uri.path();
        if let Some((_, media_type, text)) = FILES.iter().find(|(file, ..)| *file == path) {
            return reply::content(media_type, *text);
        }
        match path.strip_prefix("/api/") {
            None if path == "/metrics" => self.metrics(request).await,
            Some("fdb") => large(&self.fdb).await,
            Some("events") => large(&self.events).await,
            Some("history") => large(&self.history).await,
            Some("doctor") => self.findings().await,
            Some(command) => self.answer(command).await,
            None => not_found(),
        }
    }

    async fn metrics(&self, request: &Parts) -> Reply {
        let Some(polled) = self.answers.within(SCRAPE_AGE).await else { return ended() };
        let accepted = request.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let accepted = accepted.collect::<Vec<_>>().join(",");
        let wants_classic = accepted.contains("text/plain") && !accepted.contains("openmetrics");
        let open_metrics = match open_metrics(&polled) {
            Ok(text) => text,
            Err(error) => return reply::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        };
        if wants_classic {
            reply::content(metrics::CLASSIC, metrics::classic(&String::from_utf8_lossy(&open_metrics)))
        } else {
            reply::content(metrics::OPEN_METRICS, open_metrics)
        }
    }

    async fn answer(&self, command: &str) -> Reply {
        let Some(polled) = self.answers.within(PAGE_AGE).await else { return ended() };
        match &*polled {
            Ok(answers) if command == "all" => reply::json(self.all(answers)),
            Ok(answers) => answers.json(command).map_or_else(not_found, reply::json),
            Err(error) => reply::error(StatusCode::SERVICE_UNAVAILABLE, error),
        }
    }

    /// Returns all answers, with the findings if there are any yet.
    fn all(&self, answers: &Answers) -> Bytes {
        let all = answers.all();
        let findings = self.findings.as_ref().and_then(|feed| feed.newest(FINDINGS_AGE, answers.links_changed));
        match findings.as_deref() {
            Some(Some(findings)) => {
                let rest = all.strip_prefix(b"{").unwrap_or_default();
                Bytes::from([b"{\"doctor\":", findings.as_bytes(), b",", rest].concat())
            }
            _ => all,
        }
    }

    async fn findings(&self) -> Reply {
        let Some(feed) = &self.findings else { return not_found() };
        match feed.within(FINDINGS_AGE).await.as_deref() {
            Some(Some(findings)) => reply::json(Bytes::from(findings.clone())),
            _ => reply::error(StatusCode::SERVICE_UNAVAILABLE, "there are no findings"),
        }
    }
}

/// Replies with an answer that may be large.
async fn large(feed: &Feed<Result<Bytes, String>>) -> Reply {
    match feed.within(LARGE_AGE).await.as_deref() {
        Some(Ok(json)) => reply::json(json.clone()),
        Some(Err(error)) => reply::error(StatusCode::SERVICE_UNAVAILABLE, error),
        None => ended(),
    }
}

/// Returns the metrics of a poll, which are rendered once.
fn open_metrics(polled: &Arc<Polled>) -> Result<Bytes, std::fmt::Error> {
    let known = polled.as_ref().as_ref().ok().and_then(|answers| answers.open_metrics.get());
    if let Some(text) = known {
        return Ok(text.clone());
    }
    let text = Bytes::from(metrics::render(polled)?);
    if let Ok(answers) = &**polled {
        let _ = answers.open_metrics.set(text.clone());
    }
    Ok(text)
}

fn not_found() -> Reply {
    let paths = "/, /metrics, /api/all, /api/status, /api/ports, /api/fdb, /api/neighbours, /api/runtime, /api/drops, \
                 /api/tables, /api/events, /api/history";
    reply::error(StatusCode::NOT_FOUND, &format!("there is no such path; paths are {paths}"))
}

fn ended() -> Reply {
    reply::error(StatusCode::INTERNAL_SERVER_ERROR, "the thread that asks the switch has ended; start the server again")
}
