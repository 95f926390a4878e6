//! News of shares that are full.

use std::collections::BTreeMap;

use straightline_api::EventKind;

use super::{TableEvent, TableView};

/// The shortest time between two notes about one share, in seconds.
const PERIOD: f64 = 60.0;

/// Tells which shares of a table are full. A full share may refuse thousands of entries a second, so it
/// is told once a minute.
#[derive(Debug, Default)]
pub struct RefusalNotes(BTreeMap<(String, Option<String>), Note>);

/// The refused entries of a port or remote, as far as they were told.
#[derive(Debug)]
struct Note {
    refused: u64,
    /// Seconds of the clock that all workers share.
    at: f64,
}

impl RefusalNotes {
    /// Returns the news of a table of stations. `shares` has the refused addresses of each port, and of each
    /// remote of a tunnel; what is 0 may be left out.
    pub fn news(
        &mut self,
        view: &TableView<'_>,
        shares: impl IntoIterator<Item = (String, Option<String>, u64)>,
    ) -> Vec<TableEvent> {
        self.news_as(view, shares, not_learned)
    }

    /// Returns the news of a table. `event` makes the event of a port, or of a remote of a tunnel, and the
    /// number of refused entries so far.
    pub fn news_as(
        &mut self,
        view: &TableView<'_>,
        shares: impl IntoIterator<Item = (String, Option<String>, u64)>,
        event: impl Fn(String, Option<String>, u64) -> TableEvent,
    ) -> Vec<TableEvent> {
        let mut before = std::mem::take(&mut self.0);
        let mut news = Vec::new();
        for (port, remote, refused) in shares {
            let key = (port, remote);
            let last = before.remove(&key);
            if refused == 0 {
                continue;
            }
            // A table that is new under an old name counts from 0 again.
            let told = last.as_ref().map_or(0, |last| last.refused).min(refused);
            let is_due = last.as_ref().is_none_or(|last| view.now - last.at >= PERIOD);
            if refused == told || !is_due {
                // The time of the last note still counts.
                self.0.extend(last.map(|last| (key, Note { refused: told, ..last })));
                continue;
            }
            let (port, remote) = key.clone();
            news.push(event(port, remote, refused));
            self.0.insert(key, Note { refused, at: view.now });
        }
        news
    }
}

fn not_learned(port: String, remote: Option<String>, refused: u64) -> TableEvent {
    let behind = remote.as_ref().map_or_else(String::new, |remote| format!(" behind remote {remote}"));
    let message = format!(
        "port {port:?}: {refused} addresses{behind} were not learned so far, because its share is full: \
         packets to them are flooded"
    );
    let source = format!("addresses {port}");
    TableEvent { source, kind: EventKind::NotLearned { port, remote, refused }, message }
}
