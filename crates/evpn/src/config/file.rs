//! The keys of the file.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::ConfigError;
use crate::gobgp::Address;
use crate::machine::{Limits, Rate};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) asn: u32,
    pub(super) router_id: Ipv4Addr,
    /// The own address of all tunnels; the router id if it is missing.
    pub(super) address: Option<IpAddr>,
    pub(super) gobgp: Address,
    #[serde(default = "api")]
    pub(super) api: PathBuf,
    #[serde(default = "socket")]
    pub(super) socket: PathBuf,
    /// The TCP port of a generated configuration.
    #[serde(default = "listen_port")]
    pub(super) listen_port: u16,
    #[serde(default)]
    pub(super) network: BTreeMap<String, Network>,
    #[serde(default)]
    pub(super) neighbor: Vec<Neighbor>,
    #[serde(default)]
    pub(super) limits: LimitKeys,
}

fn api() -> PathBuf {
    straightline_api::DEFAULT_PATH.into()
}

fn socket() -> PathBuf {
    crate::DEFAULT_SOCKET.into()
}

fn listen_port() -> u16 {
    179
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Network {
    pub(super) bridge: String,
    pub(super) tunnel: String,
    pub(super) vni: Option<u32>,
    pub(super) vlan: Option<u16>,
    pub(super) vlans: Option<BTreeMap<String, u32>>,
    pub(super) address: Option<IpAddr>,
    pub(super) rd: Option<String>,
    pub(super) route_targets: Option<Targets>,
    pub(super) import: Option<Targets>,
    pub(super) export: Option<Targets>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "use \"auto\", \"rfc8365\" or a list such as [\"65000:10010\"]")]
pub(super) enum Targets {
    Word(Word),
    List(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Word {
    /// AS:VNI, as FRR makes it.
    Auto,
    Rfc8365,
}

/// A neighbour of a generated configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Neighbor {
    pub(super) address: IpAddr,
    pub(super) asn: Option<u32>,
    pub(super) local_address: Option<IpAddr>,
    /// A file with the key of TCP-MD5 (RFC 2385).
    pub(super) password_file: Option<PathBuf>,
    /// Packets of the session must come from a neighbour of the same link (RFC 5082).
    #[serde(default)]
    pub(super) ttl_security: bool,
    #[serde(default)]
    pub(super) passive: bool,
    #[serde(default)]
    pub(super) route_reflector_client: bool,
    /// The neighbour keeps the routes of a gobgpd that restarts. GoBGP 3.10 ends with a fault when a
    /// neighbour restarts so (it reads the source of a path that has none); 3.11 has this mended.
    #[serde(default)]
    pub(super) graceful_restart: bool,
    #[serde(default, deserialize_with = "time")]
    pub(super) hold_time: Option<Duration>,
    /// The most routes that gobgpd takes from the neighbour before it ends the session; 0 for no limit.
    pub(super) max_routes: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LimitKeys {
    #[serde(default, deserialize_with = "time")]
    hold: Option<Duration>,
    port_routes: Option<u32>,
    port_moves: Option<u32>,
    port_stations: Option<usize>,
    routes: Option<usize>,
    host_routes: Option<usize>,
    duplicate_moves: Option<usize>,
    #[serde(default, deserialize_with = "time")]
    duplicate_window: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    duplicate_retry: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    stale: Option<Duration>,
}

impl LimitKeys {
    /// Returns the limits. Missing ones have their defaults.
    pub(super) fn limits(&self) -> Result<Limits, ConfigError> {
        let usual = Limits::default();
        // Twice the rate at once.
        let rate = |key: Option<u32>, usual: Rate| match key {
            Some(per_second) => Rate { per_second, burst: per_second.saturating_mul(2) },
            None => usual,
        };
        let limits = Limits {
            hold: self.hold.unwrap_or(usual.hold),
            port_routes: rate(self.port_routes, usual.port_routes),
            port_moves: rate(self.port_moves, usual.port_moves),
            port_stations: self.port_stations.unwrap_or(usual.port_stations),
            routes: self.routes.unwrap_or(usual.routes),
            host_routes: self.host_routes.unwrap_or(usual.host_routes),
            remotes: usual.remotes,
            duplicate_moves: self.duplicate_moves.unwrap_or(usual.duplicate_moves),
            duplicate_window: self.duplicate_window.unwrap_or(usual.duplicate_window),
            duplicate_retry: self.duplicate_retry.unwrap_or(usual.duplicate_retry),
            stale: self.stale.unwrap_or(usual.stale),
        };
        let day = Duration::from_secs(86_400);
        let times = [limits.hold, limits.duplicate_window, limits.duplicate_retry, limits.stale];
        let is_wrong = limits.stale < Duration::from_secs(1) || times.iter().any(|time| *time > day);
        if is_wrong || limits.port_routes.per_second == 0 || limits.port_moves.per_second == 0 {
            let text = "[limits]: a rate is at least 1, `stale` at least \"1s\", and a time at most a day";
            return Err(ConfigError::Value(text.to_owned()));
        }
        if limits.host_routes == 0 {
            return Err(ConfigError::Value("[limits]: `host-routes` is at least 1".to_owned()));
        }
        if limits.duplicate_moves < 2 {
            return Err(ConfigError::Value("[limits]: `duplicate-moves` is at least 2".to_owned()));
        }
        Ok(limits)
    }
}

/// Reads a time such as "20ms".
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
}
