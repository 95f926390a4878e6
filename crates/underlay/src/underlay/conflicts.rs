//! Detection of stations that have an address of ours, and announcement of our addresses (RFC 5227
//! for IPv4; RFC 4862, 5.4, and RFC 4861, 7.2.6, for IPv6).
//!
//! The addresses are configured. So they are used at once, and the probes go beside the packets; and
//! no address is ever given up (RFC 5227, 2.4 (c)).
//!
//! ```text
//!   link up ─▶ Probing ── 3 probes, nobody claims it ─▶ Announcing ── 2 announcements ─▶ Settled
//!                 └────── another station claims it ──────────────────────────────────────▲
//! ```
//!
//! - A **claim** is a message by which another station says that it has an address of ours. The
//!   conflict that follows lasts until that station was silent for 30 seconds, although it was asked
//!   every 10.
//! - A station that answers a probe had the address first. Announcements would take the packets of
//!   its neighbours away from it, so there are none.
//! - All other claims are answered by one announcement, at most every 10 seconds.
//!
//! Everything happens once a second or for a claim. All times are whole seconds of the caller's
//! clock.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use straightline_packet::IgnorePoison;
use straightline_wire::MacAddr;

use crate::Address;

/// Probes of an address (`PROBE_NUM` in RFC 5227).
const PROBES: u8 = 3;
/// Time between two probes (`PROBE_MIN`).
const PROBE_INTERVAL_S: u32 = 1;
/// Time in which a claim counts as the answer to a probe (`ANNOUNCE_WAIT`).
const ANSWER_S: u32 = 2;
/// Announcements of an address (`ANNOUNCE_NUM`).
const ANNOUNCEMENTS: u8 = 2;
/// Time between two announcements (`ANNOUNCE_INTERVAL`).
const ANNOUNCE_INTERVAL_S: u32 = 2;
/// Least time between two announcements that defend an address (`DEFEND_INTERVAL`).
const DEFEND_INTERVAL_S: u32 = 10;
/// Time between two probes while another station has the address.
const AGAIN_S: u32 = 10;
/// Time after the last claim of a station at which the conflict with it ends.
const SILENT_S: u32 = 30;

/// A message about an address of ours that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Asks whether another station has the address.
    Probe(IpAddr),
    /// Tells all stations that we have the address.
    Announcement(IpAddr),
}

/// An address of an underlay as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressStatus {
    /// The address.
    pub ip: IpAddr,
    /// The other station that has the address.
    pub conflict: Option<AddressConflict>,
    /// The number of claims of other stations so far.
    pub claims: u64,
}

/// Another station that has an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressConflict {
    /// Its MAC address. Of several stations, the first one.
    pub mac: MacAddr,
    /// Seconds since its last claim.
    pub age_s: u32,
}

/// Our addresses.
#[derive(Debug)]
pub(crate) struct Conflicts {
    /// The link has come up since the last [`Conflicts::tick`].
    begins: AtomicBool,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    /// The time of the last tick.
    now: u32,
    addresses: Vec<Own>,
}

/// An address of ours.
#[derive(Debug)]
struct Own {
    ip: IpAddr,
    phase: Phase,
    /// The time of the next message. `None`: there is none.
    due_at: Option<u32>,
    probed_at: Option<u32>,
    defended_at: Option<u32>,
    /// The station that has the address, and the time of its last claim.
    other: Option<(MacAddr, u32)>,
    /// The station that was told of last.
    told: Option<MacAddr>,
    claims: u64,
}

/// The phase of an address; see the module's drawing. Numbers are those of messages so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The link has not come up yet.
    Idle,
    Probing(u8),
    Announcing(u8),
    Settled,
}

impl Conflicts {
    /// Returns these addresses. Nothing is sent before the link comes up.
    pub(crate) fn new(addresses: &[Address]) -> Self {
        let addresses = addresses.iter().map(|address| Own::new(address.ip)).collect();
        Conflicts { begins: AtomicBool::new(false), table: Mutex::new(Table { now: 0, addresses }) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().ignore_poison()
    }

    /// Notes that the link has come up. From the next second on, all addresses are probed and
    /// announced.
    pub(crate) fn begin(&self) {
        self.begins.store(true, Ordering::Relaxed);
    }

    /// Does the work of a second: sends what is due by `send`, which returns `false` if it can send no
    /// more now. Calls `changed` for each address that another station has now, or has no longer.
    pub(crate) fn tick(
        &self,
        now: u32,
        mut send: impl FnMut(Notice) -> bool,
        mut changed: impl FnMut(IpAddr, Option<MacAddr>),
    ) {
        let begins = self.begins.swap(false, Ordering::Relaxed);
        let mut table = self.table();
        table.now = now;
        for own in &mut table.addresses {
            if begins {
                (own.phase, own.due_at) = (Phase::Probing(0), Some(now));
            }
            own.other = own.other.filter(|&(_, at)| now.saturating_sub(at) < SILENT_S);
            if let Some(notice) = own.due(now)
                && send(notice)
            {
                own.note_sent(notice, now);
            }
            let other = own.other.map(|(mac, _)| mac);
            if other != own.told {
                own.told = other;
                changed(own.ip, other);
            }
        }
    }

    /// Notes that the station `mac` has said that it has the address `ip`. Returns whether the address
    /// is to be defended by an announcement now.
    pub(crate) fn claimed(&self, ip: IpAddr, mac: MacAddr, now: u32) -> bool {
        let mut table = self.table();
        let own = table.addresses.iter_mut().find(|own| own.ip == ip);
        own.is_some_and(|own| own.note_claim(mac, now))
    }

    /// Returns the station that has one of our addresses too.
    pub(crate) fn other(&self, ip: IpAddr) -> Option<MacAddr> {
        let table = self.table();
        table.addresses.iter().find(|own| own.ip == ip)?.other.map(|(mac, _)| mac)
    }

    /// Returns the addresses, in the order of the configuration.
    pub(crate) fn status(&self) -> Vec<AddressStatus> {
        let table = self.table();
        table.addresses.iter().map(|own| own.status(table.now)).collect()
    }
}

impl Own {
    fn new(ip: IpAddr) -> Self {
        Own {
            ip,
            phase: Phase::Idle,
            due_at: None,
            probed_at: None,
            defended_at: None,
            other: None,
            told: None,
            claims: 0,
        }
    }

    /// Moves the address to its phase at this time, and returns the message that is due.
    fn due(&mut self, now: u32) -> Option<Notice> {
        if self.due_at.is_none_or(|at| now < at) {
            return None;
        }
        if let Phase::Probing(PROBES..) = self.phase {
            self.phase = if self.other.is_some() { Phase::Settled } else { Phase::Announcing(0) };
        }
        match self.phase {
            Phase::Probing(_) => Some(Notice::Probe(self.ip)),
            Phase::Announcing(_) => Some(Notice::Announcement(self.ip)),
            Phase::Settled | Phase::Idle => self.other.map(|_| Notice::Probe(self.ip)),
        }
    }

    fn note_sent(&mut self, notice: Notice, now: u32) {
        if let Notice::Probe(_) = notice {
            self.probed_at = Some(now);
        }
        let (phase, pause) = match self.phase {
            Phase::Probing(sent) if sent + 1 < PROBES => (Phase::Probing(sent + 1), PROBE_INTERVAL_S),
            Phase::Probing(sent) => (Phase::Probing(sent + 1), ANSWER_S),
            Phase::Announcing(sent) if sent + 1 < ANNOUNCEMENTS => (Phase::Announcing(sent + 1), ANNOUNCE_INTERVAL_S),
            Phase::Announcing(_) | Phase::Settled | Phase::Idle => (Phase::Settled, AGAIN_S),
        };
        self.phase = phase;
        self.due_at = Some(now.saturating_add(pause));
    }

    fn note_claim(&mut self, mac: MacAddr, now: u32) -> bool {
        self.claims = self.claims.saturating_add(1);
        match &mut self.other {
            Some((first, at)) if *first == mac => *at = now,
            Some(_) => {}
            None => {
                self.other = Some((mac, now));
                if self.phase == Phase::Settled {
                    self.due_at = Some(now.saturating_add(AGAIN_S));
                }
            }
        }
        let is_within = |at: Option<u32>, time| at.is_some_and(|at| now.saturating_sub(at) < time);
        let is_answer = matches!(self.phase, Phase::Idle | Phase::Probing(_)) || is_within(self.probed_at, ANSWER_S);
        if is_answer || is_within(self.defended_at, DEFEND_INTERVAL_S) {
            return false;
        }
        self.defended_at = Some(now);
        true
    }

    fn status(&self, now: u32) -> AddressStatus {
        let conflict = self.other.map(|(mac, at)| AddressConflict { mac, age_s: now.saturating_sub(at) });
        AddressStatus { ip: self.ip, conflict, claims: self.claims }
    }
}

#[cfg(test)]
mod tests;
