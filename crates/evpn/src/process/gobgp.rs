//! The side of GoBGP: a task that follows its table, and tasks that send paths.

use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use super::News;
use crate::gobgp::{Address, CallError, Event, GoBgp, Neighbour, Told};
use crate::route::{Route, RouteKey};

/// The time until the next attempt after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// The most paths that are told to the process at once.
const BATCH: usize = 256;

/// The most paths that one task sends.
pub(super) const MAX_SENT: usize = 256;

/// News of GoBGP.
#[derive(Debug)]
pub(super) enum GoBgpNews {
    /// It answers. Its whole table follows.
    Connected(GoBgp),
    /// Paths of its table.
    Told(Vec<Told>),
    /// Its whole table has been told.
    Listed,
    /// A session has changed.
    Neighbour(Neighbour),
    /// It does not answer any more.
    Lost(String),
    /// Paths have been sent.
    Sent(SentPaths),
}

/// The outcome of sending paths.
#[derive(Debug, Default)]
pub(super) struct SentPaths {
    /// Paths whose sequence number was too low, with that number.
    pub(super) too_low: Vec<(RouteKey, u32)>,
    /// Paths that were not taken, and the last reason.
    pub(super) failed: Vec<RouteKey>,
    pub(super) why: Option<String>,
}

/// Follows GoBGP, until the process ends.
pub(super) async fn follow(address: Address, news: Sender<News>) {
    loop {
        let Err(error) = follow_once(&address, &news).await else { return };
        if tell(&news, GoBgpNews::Lost(error.to_string())).await.is_none() {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Follows GoBGP for as long as the connection is there. Returns `Ok` if nobody wants news any more.
async fn follow_once(address: &Address, news: &Sender<News>) -> Result<(), CallError> {
    let gobgp = GoBgp::connect(address).await?;
    if gobgp.asn() == 0 {
        return Err(CallError::Invalid { method: "GetBgp", why: "BGP is not started yet".to_owned() });
    }
    let mut events = gobgp.watch().await?;
    if tell(news, GoBgpNews::Connected(gobgp.clone())).await.is_none() {
        return Ok(());
    }
    // The table is listed once changes are watched. So a change is either in the list, or told later.
    let mut has_begun = false;
    while !has_begun {
        let mut early = events.next().await?;
        has_begun = early.contains(&Event::Began);
        early.retain(|event| matches!(event, Event::Neighbour(_)));
        if tell_events(news, early).await.is_none() {
            return Ok(());
        }
    }
    let mut table = gobgp.list().await?;
    loop {
        let paths = table.next(BATCH).await?;
        if paths.is_empty() {
            break;
        }
        if tell(news, GoBgpNews::Told(paths)).await.is_none() {
            return Ok(());
        }
    }
    if tell(news, GoBgpNews::Listed).await.is_none() {
        return Ok(());
    }
    loop {
        if tell_events(news, events.next().await?).await.is_none() {
            return Ok(());
        }
    }
}

async fn tell_events(news: &Sender<News>, events: Vec<Event>) -> Option<()> {
    let mut paths = Vec::new();
    for event in events {
        match event {
            Event::Path(told) => paths.push(told),
            Event::Neighbour(neighbour) => tell(news, GoBgpNews::Neighbour(neighbour)).await?,
            Event::Began => {}
        }
    }
    if !paths.is_empty() {
        tell(news, GoBgpNews::Told(paths)).await?;
    }
    Some(())
}

async fn tell(news: &Sender<News>, told: GoBgpNews) -> Option<()> {
    news.send(News::GoBgp(told)).await.ok()
}

/// Sends paths: routes to add, and keys of paths to delete. One that is refused does not hold up those
/// behind it.
pub(super) async fn send(gobgp: GoBgp, paths: Vec<(RouteKey, Option<Route>)>, news: Sender<News>) {
    let mut sent = SentPaths::default();
    let mut is_lost = false;
    for (key, route) in paths {
        if is_lost {
            sent.failed.push(key);
            continue;
        }
        let answer = match &route {
            Some(route) => gobgp.add(route).await,
            None => gobgp.delete(&key).await,
        };
        match answer {
            Ok(()) => {}
            Err(CallError::Refused { message, .. }) if message.contains("mobility") => {
                let sequence = route.map(|route| route.mobility.sequence);
                sent.too_low.push((key, sequence.unwrap_or_default()));
            }
            Err(error) => {
                is_lost = !matches!(error, CallError::Refused { .. });
                sent.failed.push(key);
                sent.why = Some(error.to_string());
            }
        }
    }
    let _ = tell(&news, GoBgpNews::Sent(sent)).await;
}
