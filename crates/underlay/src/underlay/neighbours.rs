//! The MAC addresses of next hops.
//!
//! The table has the next hops of the underlay's tunnels, and those that the configuration fixes.
//! An entry lives as long as a tunnel holds its [`NextHop`]. All times are whole seconds of the
//! caller's clock.
//!
//! ```text
//!                  3 questions to all                another question every 3 s
//!   new ─▶ Asking ────────────────────▶ Unanswered ─────────────────────────────┐
//!            │ │        silence                                                 │
//!   silence ▲│ └───────────── answer ─────────────┐                      answer │
//!           ││                                    ▼                             ▼
//!           │└─────── Probing ◀──────────────── Reachable ◀─────────────────────┘
//!           └── 3 questions │   30 s, or another address       ▲
//!          to the known one │   was announced                  │
//!                           └──── answer of the known one ─────┘
//! ```
//!
//! - **Only answers to our questions count.** An announcement that nobody asked for is not
//!   believed: it leads to a question to the known address. So a station cannot take the place of
//!   another one that still answers.
//! - **Packets read the address without a lock**: it is one word. Everything else is under a lock,
//!   and happens once a second or for a message about a known next hop.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use straightline_packet::IgnorePoison;
use straightline_wire::MacAddr;

use crate::UnderlayConfig;

/// The most next hops of an underlay: twice the 256 that a configuration has at most. While a reload
/// replaces tunnels, the old ones hold theirs, and a new one that finds no place never gets one.
pub(crate) const MOST_HOPS: usize = 512;

/// The most questions of a second.
pub(crate) const MOST_QUESTIONS: usize = 64;

/// Bytes of the longest packet that is kept for a next hop.
pub(crate) const MOST_KEPT: usize = 256;

/// Questions to one address, one a second, before its silence counts.
const TRIES: u8 = 3;
/// Age of an answer after which the next hop is asked again.
const REFRESH_S: u32 = 30;
/// Time between two questions to a next hop that has not answered.
const RETRY_S: u32 = 3;
/// Time for which a packet is kept.
const KEPT_S: u32 = 3;

/// The bit of a known address in [`Hop::mac`].
const KNOWN: u64 = 1 << 48;

/// A next hop in the table. The table keeps the entry as long as somebody holds this.
#[derive(Clone, Debug)]
pub(crate) struct NextHop(Arc<Hop>);

/// The part of an entry that packets read.
#[derive(Debug)]
struct Hop {
    ip: IpAddr,
    /// The MAC address with [`KNOWN`], or 0.
    mac: AtomicU64,
    /// True if a packet is kept, to be read without the lock.
    has_kept: AtomicBool,
}

impl NextHop {
    /// Returns its IP address.
    pub(crate) fn ip(&self) -> IpAddr {
        self.0.ip
    }
}

impl Hop {
    #[inline]
    fn mac(&self) -> Option<MacAddr> {
        let word = self.mac.load(Ordering::Relaxed);
        let [_, _, bytes @ ..] = (word & !KNOWN).to_be_bytes();
        (word & KNOWN != 0).then_some(MacAddr(bytes))
    }

    fn set_mac(&self, mac: Option<MacAddr>) {
        self.mac.store(mac.map_or(0, |mac| mac.as_u64() | KNOWN), Ordering::Relaxed);
    }
}

/// The state of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// It was asked, and has not answered yet.
    Asked,
    /// It has answered.
    Reachable,
    /// It has not answered for so long that it counts as gone.
    Unanswered,
    /// The configuration fixes its address.
    Static,
}

/// A next hop as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourStatus {
    /// Its IP address.
    pub ip: IpAddr,
    /// Its MAC address, if it is known.
    pub mac: Option<MacAddr>,
    /// Its state.
    pub state: NeighbourState,
    /// Seconds since its last answer.
    pub age_s: Option<u32>,
}

/// A question that is to be sent: an ARP request or a neighbour solicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The next hop.
    pub(crate) ip: IpAddr,
    /// The known MAC address that is asked. `None`: all stations are.
    pub(crate) to: Option<MacAddr>,
}

/// A packet of at most [`MOST_KEPT`] bytes that waits for a MAC address.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    bytes: [u8; MOST_KEPT],
    len: usize,
    since: u32,
}

impl Kept {
    /// Returns the packet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The table of next hops.
#[derive(Debug)]
pub(crate) struct Neighbours(Mutex<Table>);

#[derive(Debug)]
struct Table {
    entries: BTreeMap<IpAddr, Entry>,
    /// The time of the last [`Neighbours::tick`].
    now: u32,
    /// The entry that is asked first at the next tick: the last tick had no space for its question.
    first: Option<IpAddr>,
}

#[derive(Debug)]
struct Entry {
    hop: Arc<Hop>,
    phase: Phase,
    asked_at: Option<u32>,
    answered_at: Option<u32>,
    /// The next question comes soon, although nobody has answered the last ones.
    hurries: bool,
    kept: Option<Kept>,
}

/// The phase of an entry; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The configuration fixes the address.
    Static,
    /// The next hop has answered.
    Reachable,
    /// The known address is asked. The number is that of the questions so far.
    Probing(u8),
    /// All stations are asked. The number is that of the questions so far.
    Asking(u8),
    /// Nobody has answered.
    Unanswered,
}

impl Neighbours {
    pub(crate) fn new(config: &UnderlayConfig) -> Self {
        let fixed = |&(ip, mac): &(IpAddr, MacAddr)| {
            let entry = Entry::new(ip, Phase::Static);
            entry.hop.set_mac(Some(mac));
            (ip, entry)
        };
        let entries = config.neighbours.iter().take(MOST_HOPS).map(fixed).collect();
        Neighbours(Mutex::new(Table { entries, now: 0, first: None }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().ignore_poison()
    }

    /// Finds a next hop or adds it. `None` if the table is full.
    pub(crate) fn hop(&self, ip: IpAddr) -> Option<NextHop> {
        let mut table = self.table();
        if !table.entries.contains_key(&ip) && table.entries.len() >= MOST_HOPS {
            // The next tick would remove these.
            table.entries.retain(|_, entry| entry.is_held());
            if table.entries.len() >= MOST_HOPS {
                return None;
            }
        }
        let entry = table.entries.entry(ip).or_insert_with(|| Entry::new(ip, Phase::Asking(0)));
        Some(NextHop(Arc::clone(&entry.hop)))
    }

    /// Returns the MAC address of a next hop. `None` while it is not known.
    #[inline]
    pub(crate) fn mac(&self, hop: &NextHop) -> Option<MacAddr> {
        hop.0.mac()
    }

    /// Returns whether a packet is kept for a next hop: no other one will be.
    #[inline]
    pub(crate) fn has_kept(&self, hop: &NextHop) -> bool {
        hop.0.has_kept.load(Ordering::Relaxed)
    }

    /// Keeps a packet for a next hop whose MAC address is not known: one for each next hop, of at
    /// most 256 bytes, for 3 seconds. The first six bytes get the address later. Returns `false` if
    /// the packet is not kept.
    pub(crate) fn keep(&self, hop: &NextHop, packet: &[u8]) -> bool {
        let mut table = self.table();
        let now = table.now;
        let Some(entry) = table.entries.get_mut(&hop.ip()) else { return false };
        entry.hurries = true;
        if entry.kept.is_some() || packet.len() > MOST_KEPT || entry.hop.mac().is_some() {
            return false;
        }
        let mut bytes = [0; MOST_KEPT];
        bytes[..packet.len()].copy_from_slice(packet);
        entry.set_kept(Some(Kept { bytes, len: packet.len(), since: now }));
        true
    }

    /// Does the work of a second: sends the questions that are due by `ask`, which returns `false`
    /// if it can send no more now. Removes entries that nobody holds. Returns the number of kept
    /// packets that were given up.
    pub(crate) fn tick(&self, now: u32, mut ask: impl FnMut(Question) -> bool) -> usize {
        let mut table = self.table();
        let table = &mut *table;
        table.now = now;
        let mut given_up = 0;
        table.entries.retain(|_, entry| {
            let is_old = entry.kept.as_ref().is_some_and(|kept| now.saturating_sub(kept.since) >= KEPT_S);
            given_up += usize::from(entry.kept.is_some() && (is_old || !entry.is_held()));
            if is_old {
                entry.set_kept(None);
            }
            entry.is_held()
        });
        // No next hop waits for ever because others come first.
        let first = table.first.take().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
        let mut left = MOST_QUESTIONS;
        let ranges = [(Bound::Included(first), Bound::Unbounded), (Bound::Unbounded, Bound::Excluded(first))];
        for range in ranges {
            for (&ip, entry) in table.entries.range_mut(range) {
                let Some(question) = entry.due(now) else { continue };
                if left == 0 || !ask(question) {
                    table.first = Some(ip);
                    return given_up;
                }
                left -= 1;
                entry.note_question(now);
            }
        }
        given_up
    }

    /// Sends the question for a next hop whose MAC address is not known, by `ask`, without waiting for
    /// the next tick. There is one question a second at most.
    pub(crate) fn ask_soon(&self, hop: &NextHop, ask: impl FnOnce(Question) -> bool) {
        let mut table = self.table();
        let now = table.now;
        let Some(entry) = table.entries.get_mut(&hop.ip()).filter(|entry| entry.hop.mac().is_none()) else { return };
        entry.hurries = true;
        if entry.due(now).is_some_and(ask) {
            entry.note_question(now);
        }
    }

    /// Takes an answer that was sent to us. `mac` is `None` if the answer does not name an address:
    /// then it is that of the station that was asked, `from`. Returns the packet that was kept for
    /// the next hop, with its address in place.
    pub(crate) fn answered(&self, ip: IpAddr, mac: Option<MacAddr>, from: MacAddr) -> Option<Kept> {
        let mut table = self.table();
        let now = table.now;
        let entry = table.entries.get_mut(&ip)?;
        let known = entry.hop.mac();
        let mac = mac.or(known.filter(|&known| known == from))?;
        if !is_station(mac) {
            return None;
        }
        let counts = match entry.phase {
            Phase::Static | Phase::Reachable => false,
            Phase::Probing(tries) => tries > 0 && known == Some(mac),
            Phase::Asking(tries) => tries > 0,
            // It is asked all the time.
            Phase::Unanswered => true,
        };
        if !counts {
            entry.note_announcement(mac);
            return None;
        }
        entry.hop.set_mac(Some(mac));
        (entry.phase, entry.answered_at) = (Phase::Reachable, Some(now));
        let mut kept = entry.set_kept(None)?;
        kept.bytes[..6].copy_from_slice(&mac.0);
        Some(kept)
    }

    /// Notes that a station announces `mac` as the address of `ip`, in a message that we have not
    /// asked for. The address is not believed.
    pub(crate) fn announced(&self, ip: IpAddr, mac: MacAddr) {
        if is_station(mac)
            && let Some(entry) = self.table().entries.get_mut(&ip)
        {
            entry.note_announcement(mac);
        }
    }

    /// Returns the state of a next hop, if the table has it.
    pub(crate) fn state(&self, ip: IpAddr) -> Option<NeighbourState> {
        let table = self.table();
        table.entries.get(&ip).map(|entry| entry.status(table.now).state)
    }

    /// Returns the next hops with their states, in the order of their addresses.
    pub(crate) fn status(&self) -> Vec<NeighbourStatus> {
        let table = self.table();
        table.entries.values().map(|entry| entry.status(table.now)).collect()
    }
}

impl Entry {
    fn new(ip: IpAddr, phase: Phase) -> Self {
        let hop = Arc::new(Hop { ip, mac: AtomicU64::new(0), has_kept: AtomicBool::new(false) });
        Entry { hop, phase, asked_at: None, answered_at: None, hurries: false, kept: None }
    }

    /// Sets the packet that is kept. Returns the one before.
    fn set_kept(&mut self, kept: Option<Kept>) -> Option<Kept> {
        self.hop.has_kept.store(kept.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut self.kept, kept)
    }

    /// Returns whether the entry is to stay: the configuration or a tunnel has it.
    fn is_held(&self) -> bool {
        self.phase == Phase::Static || Arc::strong_count(&self.hop) > 1
    }

    /// Moves the entry to its phase at this time, and returns the question that is due.
    fn due(&mut self, now: u32) -> Option<Question> {
        let since = |at: Option<u32>| at.map_or(u32::MAX, |at| now.saturating_sub(at));
        let asked = since(self.asked_at);
        let answered = since(self.answered_at);
        self.phase = match self.phase {
            Phase::Reachable if answered >= REFRESH_S => Phase::Probing(0),
            Phase::Probing(TRIES..) if asked > 0 => Phase::Asking(0),
            Phase::Asking(TRIES..) if asked > 0 => Phase::Unanswered,
            phase => phase,
        };
        if self.phase == Phase::Unanswered {
            self.hop.set_mac(None);
        }
        let pause = match self.phase {
            Phase::Static | Phase::Reachable => return None,
            Phase::Probing(_) | Phase::Asking(_) => 1,
            Phase::Unanswered if self.hurries || self.kept.is_some() => 1,
            Phase::Unanswered => RETRY_S,
        };
        let to = self.hop.mac().filter(|_| matches!(self.phase, Phase::Probing(_)));
        (asked >= pause).then_some(Question { ip: self.hop.ip, to })
    }

    fn note_question(&mut self, now: u32) {
        self.asked_at = Some(now);
        self.hurries = false;
        if let Phase::Probing(tries) | Phase::Asking(tries) = &mut self.phase {
            *tries = tries.saturating_add(1);
        }
    }

    /// Notes that a station has announced `mac`. If another address is known, that one is asked
    /// whether it is still there.
    fn note_announcement(&mut self, mac: MacAddr) {
        if self.phase == Phase::Reachable && self.hop.mac() != Some(mac) {
            self.phase = Phase::Probing(0);
        }
        self.hurries = true;
    }

    fn status(&self, now: u32) -> NeighbourStatus {
        let mac = self.hop.mac();
        let state = match self.phase {
            Phase::Static => NeighbourState::Static,
            Phase::Unanswered => NeighbourState::Unanswered,
            Phase::Asking(_) if mac.is_none() => NeighbourState::Asked,
            _ => NeighbourState::Reachable,
        };
        let age_s = self.answered_at.map(|at| now.saturating_sub(at));
        NeighbourStatus { ip: self.hop.ip, mac, state, age_s }
    }
}

/// Returns whether a station may have this address.
pub(crate) fn is_station(mac: MacAddr) -> bool {
    mac.is_unicast() && mac.as_u64() != 0
}

#[cfg(test)]
mod tests;
