//! Text that a client sends in several requests, because one request is too short for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use straightline_packet::IgnorePoison;

use super::{ErrorCode, Refusal};

/// Most bytes of one connection. A full table of long flows has less.
const MOST_OF_CLIENT: usize = 32 << 20;

/// Most bytes of all connections together.
const MOST: usize = 64 << 20;

/// The bytes of all connections.
static ALL: AtomicUsize = AtomicUsize::new(0);

/// The text of one connection. It goes with the connection.
#[derive(Debug, Default)]
pub(super) struct HeldLines(Mutex<Held>);

/// The text, and the number of its entries.
#[derive(Debug, Default)]
struct Held {
    text: String,
    entries: u64,
}

impl HeldLines {
    /// Appends text that has so many entries. Returns the number of all entries.
    ///
    /// # Errors
    /// This connection, or all of them, have too much.
    pub(super) fn push(&self, text: &str, entries: u64) -> Result<u64, Refusal> {
        let mut held = self.0.lock().ignore_poison();
        let fits = held.text.len() + text.len() <= MOST_OF_CLIENT;
        let all = ALL.fetch_add(text.len(), Ordering::Relaxed) + text.len();
        if !fits || all > MOST {
            ALL.fetch_sub(text.len(), Ordering::Relaxed);
            let error = format!("too much text; a connection may send {} MiB", MOST_OF_CLIENT >> 20);
            return Err(Refusal::new(ErrorCode::Refused, error));
        }
        held.text.push_str(text);
        held.entries += entries;
        Ok(held.entries)
    }

    /// Returns the text, and begins anew.
    pub(super) fn take(&self) -> String {
        let Held { text, .. } = std::mem::take(&mut *self.0.lock().ignore_poison());
        ALL.fetch_sub(text.len(), Ordering::Relaxed);
        text
    }
}

impl Drop for HeldLines {
    fn drop(&mut self) {
        self.take();
    }
}

/// Returns entries as JSON, each in a line, and their number.
pub(super) fn one_per_line(entries: &[impl Serialize]) -> Result<(String, u64), Refusal> {
    let mut text = String::new();
    for entry in entries {
        text += &serde_json::to_string(entry).map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
        text.push('\n');
    }
    Ok((text, entries.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_limited_and_given_back() {
        let mebibyte = "x".repeat(1 << 20);
        let fill = |lines: &HeldLines| (0..).take_while(|_| lines.push(&mebibyte, 1).is_ok()).count();
        let first = HeldLines::default();
        assert_eq!(fill(&first), 32);
        let second = HeldLines::default();
        assert_eq!(fill(&second), 32);
        assert!(HeldLines::default().push("x", 1).is_err());
        assert_eq!(first.take().len(), MOST_OF_CLIENT);
        assert!(first.push("x", 1).is_ok());
        drop((first, second));
        assert_eq!(ALL.load(Ordering::Relaxed), 0);
    }
}
