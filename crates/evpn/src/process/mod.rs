//! The process: the machine between GoBGP and the switch. One thread runs all of it. Tasks and threads
//! send it news; it sends changes, at most one batch to each side at a time. What changes meanwhile
//! is merged.

mod answer;
mod gobgp;
mod report;
mod status;
mod switch;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::task::Poll;
use std::time::Duration;

use straightline_api::NetworkEvent;
use straightline_wire::MacAddr;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

pub use answer::{AskError, ask};
use gobgp::{GoBgpNews, MAX_SENT, SentPaths};
pub use status::{
    GoBgpStatus, HostStatus, NeighbourStatus, NetworkStatus, Problem, ProblemArea, RouteStatus, Routes, Status,
    SwitchStatus, problems, routes_text, status_text,
};
use switch::{RefusedEntry, SwitchChange, SwitchNews, ToldSequences};

use crate::config::Config;
use crate::gobgp::{GoBgp, Neighbour};
use crate::machine::{Change, Machine, Notice, Seen};
use crate::route::{Route, RouteKey};

/// News that wait for the process.
const WAITING: usize = 64;

/// The longest time in which nothing is looked at.
const IDLE: Duration = Duration::from_secs(10);

/// The time that neighbours which are up have to tell their tables, and the time without news after it.
const SETTLE: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_secs(1);

/// The least time between two listings of GoBGP's table for routes that a limit has refused.
const RELIST: Duration = Duration::from_secs(10);

/// The pause after paths were refused, and after a failed change of the switch.
const PAUSE: Duration = Duration::from_secs(1);

/// A question to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Asks for its [`Status`].
    Status,
    /// Asks for its [`Routes`].
    Routes,
}

impl Question {
    const ALL: [Self; 2] = [Self::Status, Self::Routes];

    fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Routes => "routes",
        }
    }
}

/// News for the process.
#[derive(Debug)]
enum News {
    GoBgp(GoBgpNews),
    Switch(SwitchNews),
    Asked(Question, oneshot::Sender<String>),
}

/// The process.
struct Process {
    config: Config,
    machine: Machine,
    began: Instant,
    news: Sender<News>,
    follower: Option<JoinHandle<()>>,
    /// GoBGP, once its table has been told.
    gobgp: Option<GoBgp>,
    gobgp_is_listed: bool,
    gobgp_error: Option<String>,
    /// The machine knows all routes, so what else the switch has may go.
    knows_routes: bool,
    /// The time of the last news of neighbours or paths.
    heard: Duration,
    /// The time of the last listing for routes that a limit had refused.
    relisted: Duration,
    /// The time since which GoBGP's table has been told, and all neighbours are up.
    settled: Option<Duration>,
    neighbours: Vec<Neighbour>,
    /// Paths that GoBGP is to be told.
    paths: BTreeSet<RouteKey>,
    /// Paths that are sent again, and the time from which.
    later: BTreeSet<RouteKey>,
    later_from: Duration,
    sends_paths: bool,
    switch_is_up: bool,
    switch_error: Option<String>,
    switch_refused: u64,
    /// The switch is to be told everything.
    all: bool,
    remotes: BTreeSet<(String, IpAddr)>,
    stations: BTreeSet<(usize, MacAddr)>,
    changes_switch: bool,
    told: ToldSequences,
}

/// Runs the process until SIGTERM or SIGINT. Calls `ready` once it answers questions.
///
/// # Errors
/// The system cannot provide a thread or a descriptor, or the socket cannot be listened on.
pub fn run(config: Config, ready: impl FnOnce()) -> io::Result<()> {
    start(config, async || {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        ready();
        poll_fn(|context| match (term.poll_recv(context), int.poll_recv(context)) {
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
        Ok(())
    })
}

/// Runs the process until `stop` is ready.
///
/// # Errors
/// As [`run`].
pub fn run_until(config: Config, stop: impl Future<Output = ()>) -> io::Result<()> {
    start(config, async || {
        stop.await;
        Ok(())
    })
}

/// Runs the process until `stop`, which it calls once it answers questions.
fn start(config: Config, stop: impl AsyncFnOnce() -> io::Result<()>) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let result = runtime.block_on(async {
        let (news, inbox) = channel(WAITING);
        let socket = config.socket.clone();
        if let Some(path) = &socket {
            tokio::spawn(answer::serve(answer::listen(path)?, news.clone()));
        }
        let bridges = config.domains.iter().map(|domain| domain.bridge.clone()).collect();
        tokio::spawn(switch::follow(config.api.clone(), config.limits.stale, bridges, news.clone()));
        let mut process = Process::new(config, news);
        process.follow_gobgp();
        tokio::spawn(async move { process.run(inbox).await });
        let stopped = stop().await;
        // The next process replaces a socket that is left behind.
        socket.map(std::fs::remove_file);
        stopped
    });
    // A change of the switch may still be on its way.
    runtime.shutdown_background();
    result
}

impl Process {
    fn new(config: Config, news: Sender<News>) -> Self {
        Self {
            machine: Machine::new(config.limits.clone(), config.domains.clone()),
            config,
            began: Instant::now(),
            news,
            follower: None,
            gobgp: None,
            gobgp_is_listed: false,
            gobgp_error: None,
            knows_routes: false,
            heard: Duration::ZERO,
            relisted: Duration::ZERO,
            settled: None,
            neighbours: Vec::new(),
            paths: BTreeSet::new(),
            later: BTreeSet::new(),
            later_from: Duration::ZERO,
            sends_paths: false,
            switch_is_up: false,
            switch_error: None,
            switch_refused: 0,
            all: false,
            remotes: BTreeSet::new(),
            stations: BTreeSet::new(),
            changes_switch: false,
            told: ToldSequences::new(),
        }
    }

    async fn run(&mut self, mut inbox: Receiver<News>) {
        loop {
            match timeout(self.wait(), inbox.recv()).await {
                Ok(None) => return,
                Ok(Some(news)) => self.take(news),
                Err(_) => {}
            }
            self.look();
        }
    }

    /// Returns the time until something is due without any news.
    fn wait(&self) -> Duration {
        let later = (!self.later.is_empty()).then_some(self.later_from);
        let due = [self.machine.next_due(), later, self.sweep_due()].into_iter().flatten().min();
        due.map_or(IDLE, |due| due.saturating_sub(self.now())).min(IDLE)
    }

    /// Does what is due, and begins what news have caused.
    fn look(&mut self) {
        let now = self.now();
        self.machine.tick(now);
        self.sweep(now);
        self.list_again(now);
        if self.later_from <= now {
            self.paths.append(&mut self.later);
        }
        self.sort_changes();
        self.send_paths();
        self.change_switch();
    }

    /// Returns the time at which routes end that GoBGP has not told again. Until then its neighbours
    /// have time to tell it all that they have.
    fn sweep_due(&self) -> Option<Duration> {
        let settled = self.settled.filter(|_| !self.machine.knows_routes())?;
        Some((settled + SETTLE).max(self.heard + QUIET))
    }

    fn sweep(&mut self, now: Duration) {
        let are_up = self.gobgp_is_listed && self.neighbours.iter().all(|neighbour| neighbour.is_up);
        self.settled = if are_up { self.settled.or(Some(now)) } else { None };
        if self.sweep_due().is_some_and(|due| due <= now) {
            self.machine.sweep_routes(now);
        }
        let knew = std::mem::replace(&mut self.knows_routes, self.machine.knows_routes());
        self.all |= self.knows_routes && !knew;
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn take(&mut self, news: News) {
        match news {
            News::GoBgp(news) => self.take_gobgp(news),
            News::Switch(news) => self.take_switch(news),
            News::Asked(question, answer) => {
                let text = match question {
                    Question::Status => serde_json::to_string(&self.status()),
                    Question::Routes => serde_json::to_string(&self.routes()),
                };
                // The client has left already.
                let _ = answer.send(text.unwrap_or_default());
            }
        }
    }

    fn follow_gobgp(&mut self) {
        if let Some(follower) = self.follower.take() {
            follower.abort();
        }
        self.follower = Some(tokio::spawn(gobgp::follow(self.config.gobgp.clone(), self.news.clone())));
    }

    fn take_gobgp(&mut self, news: GoBgpNews) {
        let now = self.now();
        match news {
            GoBgpNews::Connected(gobgp) => {
                tracing::info!("GoBGP answers at {}: {:?}", self.config.gobgp, gobgp.version());
                if gobgp.asn() != self.config.asn {
                    let theirs = gobgp.asn();
                    tracing::warn!("GoBGP has AS {theirs}, and the configuration AS {}", self.config.asn);
                }
                self.gobgp = Some(gobgp);
                self.gobgp_is_listed = false;
                self.neighbours.clear();
                self.machine.begin_routes();
            }
            GoBgpNews::Told(paths) => {
                self.heard = now;
                paths.into_iter().for_each(|told| self.machine.told(now, told));
            }
            GoBgpNews::Listed => {
                self.machine.end_routes(now);
                self.gobgp_is_listed = true;
                self.gobgp_error = None;
                self.heard = now;
            }
            GoBgpNews::Neighbour(neighbour) => {
                self.heard = now;
                // Its whole table follows.
                self.settled = None;
                let known = self.neighbours.iter_mut().find(|known| known.address == neighbour.address);
                match known {
                    Some(known) => {
                        if known.is_up != neighbour.is_up {
                            let state = if neighbour.is_up { "up" } else { "down" };
                            tracing::info!("neighbour {} is {state}", neighbour.address);
                        }
                        *known = neighbour;
                    }
                    None => self.neighbours.push(neighbour),
                }
            }
            GoBgpNews::Lost(error) => {
                if self.gobgp_error.as_ref() != Some(&error) {
                    tracing::warn!("GoBGP: {error}");
                }
                self.gobgp_error = Some(error);
                self.gobgp = None;
                self.gobgp_is_listed = false;
                self.neighbours.clear();
                self.machine.gobgp_lost(now);
            }
            GoBgpNews::Sent(SentPaths { too_low, failed, why }) => {
                self.sends_paths = false;
                let raised = too_low.iter().flat_map(|(key, sequence)| self.machine.refused(key, *sequence));
                self.later.extend(raised.chain(failed));
                self.later_from = now + PAUSE;
                if let Some(why) = &why
                    && self.gobgp_error.as_ref() != Some(why)
                {
                    tracing::warn!("a path is not sent: {why}");
                }
                self.gobgp_error = why;
            }
        }
    }

    /// Has GoBGP's table told again if there is space for routes that were refused before.
    fn list_again(&mut self, now: Duration) {
        if self.gobgp_is_listed && now >= self.relisted + RELIST && self.machine.wants_routes() {
            self.relisted = now;
            self.gobgp_is_listed = false;
            self.follow_gobgp();
        }
    }

    fn take_switch(&mut self, news: SwitchNews) {
        match news {
            SwitchNews::Events(events) => events.into_iter().for_each(|event| self.switch_event(event)),
            SwitchNews::Lost(error) => {
                if self.switch_error.as_ref() != Some(&error) {
                    tracing::warn!("the switch: {error}");
                }
                self.switch_error = Some(error);
                self.switch_is_up = false;
                self.machine.switch_lost(self.now());
            }
            SwitchNews::Changed { refused, why, failed } => {
                self.changes_switch = false;
                self.switch_refused += u64::try_from(refused.len()).unwrap_or(u64::MAX);
                for RefusedEntry { place, vlan, mac } in refused {
                    if let Some(mac) = mac {
                        self.machine.place_refused(&place, vlan, mac);
                    }
                }
                if let Some(why) = why {
                    if self.switch_error.as_ref() != Some(&why) {
                        tracing::warn!("the switch refuses a change: {why}");
                    }
                    self.switch_error = Some(why);
                }
                self.all |= failed;
            }
        }
    }

    fn switch_event(&mut self, event: NetworkEvent) {
        let now = self.now();
        let machine = &mut self.machine;
        // The switch sends right addresses. Others would be no stations.
        let station = |text: &str| text.parse::<MacAddr>().unwrap_or_default();
        match event {
            NetworkEvent::Begin => machine.begin_stations(),
            NetworkEvent::Synced => {
                machine.end_stations(now);
                if !self.switch_is_up {
                    tracing::info!("the switch answers at {}", self.config.api.display());
                }
                self.switch_is_up = true;
                self.switch_error = None;
                self.all = true;
            }
            NetworkEvent::Learned { bridge, vlan, mac, port, is_static, is_tunnel: false, is_checked } => {
                machine.port_is_checked(&port, is_checked);
                let seen = if is_static { Seen::Static } else { Seen::Learned };
                machine.station_seen(now, &bridge, vlan, station(&mac), &port, seen);
            }
            NetworkEvent::Moved { bridge, vlan, mac, port, is_tunnel: false, is_checked, .. } => {
                machine.port_is_checked(&port, is_checked);
                machine.station_seen(now, &bridge, vlan, station(&mac), &port, Seen::Learned);
            }
            NetworkEvent::Claimed { bridge, vlan, mac, port, is_checked } => {
                machine.port_is_checked(&port, is_checked);
                machine.station_seen(now, &bridge, vlan, station(&mac), &port, Seen::Claimed);
            }
            NetworkEvent::Moved { bridge, vlan, mac, .. } => {
                machine.station_left(now, &bridge, vlan, station(&mac));
            }
            NetworkEvent::Aged { bridge, vlan, mac, port } => {
                machine.station_gone(now, &bridge, vlan, station(&mac), &port);
            }
            NetworkEvent::Bound { bridge, vlan, ip, mac, .. } => {
                if let Ok(ip) = ip.parse() {
                    machine.bound(now, &bridge, vlan, station(&mac), ip);
                }
            }
            NetworkEvent::Unbound { bridge, vlan, ip, mac, .. } => {
                if let Ok(ip) = ip.parse() {
                    machine.unbound(now, &bridge, vlan, station(&mac), ip);
                }
            }
            NetworkEvent::Learned { .. } | NetworkEvent::Link { .. } | NetworkEvent::Other => {}
        }
    }

    fn sort_changes(&mut self) {
        for change in self.machine.take_changes() {
            match change {
                Change::Path(key) => drop(self.paths.insert(key)),
                Change::Remote { tunnel, host } => drop(self.remotes.insert((tunnel, host))),
                Change::Station { domain, mac } => drop(self.stations.insert((domain, mac))),
            }
        }
        for notice in self.machine.take_notices() {
            match notice {
                Notice::Duplicate { network, mac } => {
                    tracing::warn!("network {network}: station {mac} moves too often, and is left alone for a time");
                }
            }
        }
    }

    fn send_paths(&mut self) {
        let Some(gobgp) = self.gobgp.as_ref().filter(|_| self.gobgp_is_listed) else { return };
        if self.sends_paths || self.paths.is_empty() {
            return;
        }
        let path = |key: RouteKey| -> (RouteKey, Option<Route>) { (key, self.machine.path(&key)) };
        let keys: Vec<RouteKey> = self.paths.iter().take(MAX_SENT).copied().collect();
        let paths = keys.iter().copied().map(path).collect();
        for key in &keys {
            self.paths.remove(key);
        }
        self.sends_paths = true;
        tokio::spawn(gobgp::send(gobgp.clone(), paths, self.news.clone()));
    }

    fn change_switch(&mut self) {
        if self.changes_switch || !self.switch_is_up {
            return;
        }
        let change = if self.all {
            // Before all routes are known, the switch keeps those that it has.
            let command = if self.knows_routes { "replace" } else { "add" };
            SwitchChange::all(&self.machine, command, &mut self.told)
        } else if self.remotes.is_empty() && self.stations.is_empty() {
            return;
        } else {
            SwitchChange::of(&self.machine, &self.remotes, &self.stations, &mut self.told)
        };
        self.all = false;
        self.remotes.clear();
        self.stations.clear();
        self.changes_switch = true;
        let api: PathBuf = self.config.api.clone();
        let news = self.news.clone();
        tokio::spawn(async move {
            let changed = spawn_blocking(move || change.make(&api)).await;
            // The thread has panicked, or the process ends.
            let changed = changed.unwrap_or_else(|error| SwitchNews::failed(&error));
            if matches!(changed, SwitchNews::Changed { failed: true, .. }) {
                sleep(PAUSE).await;
            }
            let _ = news.send(News::Switch(changed)).await;
        });
    }
}
