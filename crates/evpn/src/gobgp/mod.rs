//! GoBGP's API, in both of its versions.

mod decode;
mod grpc;
mod messages;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use prost::Message;
use serde::Deserialize;
use tokio::time::timeout;

pub use decode::Told;
pub use grpc::CallError;
use grpc::{Answers, Channel, UNIMPLEMENTED};
use messages::{
    AddPathRequest, DeletePathRequest, END_OF_INIT, ESTABLISHED, Empty, Family, GetBgpResponse, ListPathRequest,
    ListPathResponse, Path, PeerState, SentPath, WatchEventRequest, WatchEventResponse, WatchFilter, WatchTable,
};

use crate::encode::{self, AFI, SAFI};
use crate::route::{Route, RouteKey};

/// The time after which a silent GoBGP counts as stuck.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most paths of one event, where GoBGP asks.
const EVENT_PATHS: u32 = 1000;

/// The address of GoBGP's API.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Address {
    /// A UNIX socket.
    Unix(PathBuf),
    /// A TCP port of this machine.
    Tcp(SocketAddr),
}

/// Error of parsing an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no address of GoBGP: use \"unix:///PATH\", or a port of this machine such as \"127.0.0.1:50051\" \
     (the interface has no authentication)"
)]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix://").filter(|path| path.starts_with('/')) {
            return Ok(Self::Unix(path.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Tcp(address)),
            _ => Err(AddressError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// A version of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// GoBGP 3: the service `apipb.GobgpApi`.
    V3,
    /// GoBGP 4: the service `api.GoBgpService`.
    V4,
}

impl Version {
    fn service(self) -> &'static str {
        match self {
            Self::V3 => "apipb.GobgpApi",
            Self::V4 => "api.GoBgpService",
        }
    }

    /// Returns a number of an enumeration: version 4 has an unspecified one in front.
    fn number(self, of_v3: i32) -> i32 {
        of_v3 + i32::from(self == Self::V4)
    }
}

/// A BGP neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The address.
    pub address: String,
    /// The AS.
    pub asn: u32,
    /// The session is established.
    pub is_up: bool,
}

/// News of GoBGP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A path has changed.
    Path(Told),
    /// A neighbour has changed.
    Neighbour(Neighbour),
    /// All neighbours have been told. Later changes of paths are told.
    Began,
}

/// A connection to GoBGP.
#[derive(Clone, Debug)]
pub struct GoBgp {
    channel: Channel,
    version: Version,
    asn: u32,
    router_id: String,
}

impl GoBgp {
    /// Connects, and asks which version GoBGP has. Needs a tokio runtime.
    ///
    /// # Errors
    /// Nobody listens, or not GoBGP.
    pub async fn connect(address: &Address) -> Result<Self, CallError> {
        let in_time = timeout(PATIENCE, Channel::connect(address)).await;
        let channel = in_time.map_err(|_| CallError::Timeout("Connect"))??;
        let mut gobgp = Self { channel, version: Version::V4, asn: 0, router_id: String::new() };
        let answer: GetBgpResponse = match gobgp.ask("GetBgp", &Empty {}).await {
            Err(CallError::Refused { code: UNIMPLEMENTED, .. }) => {
                gobgp.version = Version::V3;
                gobgp.ask("GetBgp", &Empty {}).await?
            }
            answer => answer?,
        };
        let global = answer.global.unwrap_or_default();
        Ok(Self { asn: global.asn, router_id: global.router_id, ..gobgp })
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns GoBGP's AS, or 0 while BGP is not started.
    #[must_use]
    pub fn asn(&self) -> u32 {
        self.asn
    }

    /// Returns GoBGP's router id.
    #[must_use]
    pub fn router_id(&self) -> &str {
        &self.router_id
    }

    /// Adds or replaces a path of this host.
    ///
    /// # Errors
    /// GoBGP refuses the path or does not answer.
    pub async fn add(&self, route: &Route) -> Result<(), CallError> {
        let path = SentPath { attributes: encode::attributes(route), ..sent(&route.key, route.label) };
        let request = AddPathRequest { table: self.version.number(0), path: Some(path) };
        self.ask::<Empty>("AddPath", &request).await.map(drop)
    }

    /// Deletes a path of this host. It is no error if there is none.
    ///
    /// # Errors
    /// GoBGP does not answer.
    pub async fn delete(&self, key: &RouteKey) -> Result<(), CallError> {
        let path = SentPath { is_withdraw: true, ..sent(key, 0) };
        let request = DeletePathRequest { table: self.version.number(0), family: path.family, path: Some(path) };
        self.ask::<Empty>("DeletePath", &request).await.map(drop)
    }

    /// Begins to list the best paths of GoBGP's table.
    ///
    /// # Errors
    /// GoBGP does not answer.
    pub async fn list(&self) -> Result<Table, CallError> {
        let request = ListPathRequest { table: self.version.number(0), family: Some(FAMILY) };
        let call = self.channel.call(self.version.service(), "ListPath", &request);
        let answers = timeout(PATIENCE, call).await.map_err(|_| CallError::Timeout("ListPath"))??;
        Ok(Table { version: self.version, answers })
    }

    /// Begins to watch neighbours and best paths.
    ///
    /// # Errors
    /// GoBGP does not answer.
    pub async fn watch(&self) -> Result<Events, CallError> {
        // Best paths are 0 in version 3 and 1 in version 4.
        let filters = vec![WatchFilter { kind: self.version.number(0) }];
        let request =
            WatchEventRequest { peer: Some(Empty {}), table: Some(WatchTable { filters }), batch_size: EVENT_PATHS };
        let call = self.channel.call(self.version.service(), "WatchEvent", &request);
        let answers = timeout(PATIENCE, call).await.map_err(|_| CallError::Timeout("WatchEvent"))??;
        Ok(Events { version: self.version, answers })
    }

    async fn ask<A: Message + Default>(&self, method: &'static str, request: &impl Message) -> Result<A, CallError> {
        let ask = async {
            let mut answers = self.channel.call::<A>(self.version.service(), method, request).await?;
            let answer = answers.next().await?;
            // The status of the call stands behind its answer.
            while answers.next().await?.is_some() {}
            answer.ok_or_else(|| CallError::Invalid { method, why: "it is empty".to_owned() })
        };
        timeout(PATIENCE, ask).await.map_err(|_| CallError::Timeout(method))?
    }
}

/// The paths of GoBGP's table.
#[derive(Debug)]
pub struct Table {
    version: Version,
    answers: Answers<ListPathResponse>,
}

impl Table {
    /// Returns the next paths, at least `count` if there are as many, or none at the end.
    ///
    /// # Errors
    /// GoBGP does not answer.
    pub async fn next(&mut self, count: usize) -> Result<Vec<Told>, CallError> {
        let mut paths = Vec::new();
        while paths.len() < count {
            let answer = timeout(PATIENCE, self.answers.next()).await.map_err(|_| CallError::Timeout("ListPath"))??;
            let Some(answer) = answer else { break };
            let best = answer.destination.unwrap_or_default().paths.into_iter().filter(|path| path.best);
            paths.extend(best.map(|path| self.version.told(&path)));
        }
        Ok(paths)
    }
}

/// The events of a watch.
#[derive(Debug)]
pub struct Events {
    version: Version,
    answers: Answers<WatchEventResponse>,
}

impl Events {
    /// Returns the next events. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn next(&mut self) -> Result<Vec<Event>, CallError> {
        let ended = || CallError::Invalid { method: "WatchEvent", why: "it has ended".to_owned() };
        let answer = self.answers.next().await?.ok_or_else(ended)?;
        let paths = answer.table.into_iter().flat_map(|table| table.paths);
        let mut events: Vec<Event> = paths.map(|path: Path| Event::Path(self.version.told(&path))).collect();
        if let Some(event) = answer.peer {
            let state = event.peer.and_then(|peer| peer.state);
            // The end of the present state comes with a neighbour without an address.
            if let Some(PeerState { address, asn, session }) = state.filter(|state| is_address(&state.address)) {
                events.push(Event::Neighbour(Neighbour { address, asn, is_up: session == ESTABLISHED }));
            }
            if event.kind == END_OF_INIT {
                events.push(Event::Began);
            }
        }
        Ok(events)
    }
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

const FAMILY: Family = Family { afi: AFI as i32, safi: SAFI as i32 };

fn sent(key: &RouteKey, label: u32) -> SentPath {
    SentPath { family: Some(FAMILY), nlri: encode::nlri(key, label), ..SentPath::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for text in ["unix:///run/gobgpd.sock", "127.0.0.1:50051", "[::1]:50051"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        for text in ["", ":50051", "0.0.0.0:50051", "192.0.2.1:50051", "unix:relative", "unix://relative"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
