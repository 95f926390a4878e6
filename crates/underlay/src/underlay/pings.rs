//! The echo requests of an underlay that wait for their replies.
//!
//! A reply counts for the request with its identifier, sequence number, addresses and payload. The
//! identifier and the first bytes of the payload are random numbers of the caller, so no stranger
//! who does not see the request can forge its reply.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use straightline_graph::clock::{cycles, nanoseconds};
use straightline_packet::IgnorePoison;

/// The most requests of an underlay that wait for their replies.
const MOST_WAITING: usize = 16;

/// Bytes of a request's payload: a random number.
pub(crate) const PAYLOAD: usize = 8;

/// The values of an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EchoKey {
    pub(crate) own: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) ident: u16,
    pub(crate) sequence: u16,
    pub(crate) cookie: [u8; PAYLOAD],
}

/// The requests that wait for their replies.
#[derive(Debug, Default)]
pub(crate) struct Pings(Mutex<Vec<Weak<Request>>>);

/// A request, with the reading of the time-stamp counter when it was sent, and the time that its reply
/// took. A worker takes the reply, so its time is the workers'.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) key: EchoKey,
    pub(crate) sent: Mutex<Option<u64>>,
    pub(crate) reply: Mutex<Option<Duration>>,
}

/// The reason why an echo request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingError {
    /// The underlay has no address of this IP version.
    NoAddress,
    /// The address is the underlay's own.
    OwnAddress,
    /// No single station has this address.
    NoStation,
    /// The underlay has no next hop to the address.
    NoRoute,
    /// As many requests as possible wait for their replies.
    Busy,
}

impl Pings {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Request>>> {
        self.0.lock().ignore_poison()
    }

    pub(crate) fn add(&self, request: &Arc<Request>) -> Result<(), PingError> {
        let mut waiting = self.lock();
        waiting.retain(|request| request.strong_count() > 0);
        if waiting.len() >= MOST_WAITING {
            return Err(PingError::Busy);
        }
        waiting.push(Arc::downgrade(request));
        Ok(())
    }

    /// Takes a reply. Returns `false` if no request waits for it.
    pub(crate) fn replied(&self, key: &EchoKey) -> bool {
        let waiting = self.lock();
        let mut requests = waiting.iter().filter_map(Weak::upgrade);
        requests.find(|request| request.key == *key).is_some_and(|request| request.replied())
    }
}

impl Request {
    /// Notes the reply. Returns `false` if there is one already, or if the request is not sent.
    fn replied(&self) -> bool {
        let Some(sent) = *self.sent.lock().ignore_poison() else { return false };
        let mut reply = self.reply.lock().ignore_poison();
        let is_first = reply.is_none();
        reply.get_or_insert_with(|| Duration::from_nanos(nanoseconds(cycles()).saturating_sub(nanoseconds(sent))));
        is_first
    }
}
