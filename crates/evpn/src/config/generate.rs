//! The file that gobgpd reads, made from the configuration of the process.

use std::net::IpAddr;

use serde::Serialize;

use super::{Config, ConfigError};

/// The default hold time of a session, in seconds.
const HOLD: u64 = 90;

/// The longest restart time: it has 12 bits (RFC 4724 section 3).
const MAX_RESTART: u64 = 4095;

#[derive(Serialize)]
struct Wrapped<T> {
    config: T,
}

#[derive(Serialize)]
struct GoBgpd<'c> {
    global: Wrapped<Global<'c>>,
    neighbors: Vec<Neighbor>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Global<'c> {
    r#as: u32,
    router_id: String,
    port: u16,
    local_address_list: &'c [IpAddr],
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Neighbor {
    config: Peer,
    transport: Wrapped<Transport>,
    timers: Wrapped<Timers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_security: Option<Wrapped<TtlSecurity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ebgp_multihop: Option<Wrapped<Multihop>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route_reflector: Option<Wrapped<Reflector>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    graceful_restart: Option<Wrapped<GracefulRestart>>,
    afi_safis: [AfiSafi; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Peer {
    neighbor_address: IpAddr,
    peer_as: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_password: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Transport {
    local_address: IpAddr,
    passive_mode: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Timers {
    hold_time: u64,
    keepalive_interval: u64,
    connect_retry: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct TtlSecurity {
    enabled: bool,
    ttl_min: u8,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Multihop {
    enabled: bool,
    multihop_ttl: u8,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Reflector {
    route_reflector_client: bool,
    route_reflector_cluster_id: String,
}

/// Neighbours keep the routes of a gobgpd that restarts (RFC 4724).
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct GracefulRestart {
    enabled: bool,
    restart_time: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct AfiSafi {
    config: Family,
    #[serde(skip_serializing_if = "Option::is_none")]
    mp_graceful_restart: Option<Wrapped<Enabled>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_limit: Option<Wrapped<PrefixLimit>>,
}

/// GoBGP ends the session when the neighbour sends more, and keeps it down until somebody enables it again.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct PrefixLimit {
    max_prefixes: u32,
    /// Percentage from which GoBGP warns.
    shutdown_threshold_pct: u8,
}

#[derive(Serialize)]
struct Enabled {
    enabled: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Family {
    afi_safi_name: &'static str,
}

impl Config {
    /// Returns a configuration for gobgpd, with the keys of the sessions. Its interface and its port for
    /// profiles are no matter of the file but of the command line: `--api-hosts` and
    /// `--pprof-disable`.
    ///
    /// # Errors
    /// There is no neighbour, or a file with a key cannot be read.
    pub fn gobgpd(&self) -> Result<String, ConfigError> {
        if self.neighbors.is_empty() {
            let text = "there is no neighbour: add [[neighbor]] with `address`, for each other host or route reflector";
            return Err(ConfigError::Value(text.to_owned()));
        }
        // The address of the tunnels is the switch's: this host's kernel does not have it.
        let own = IpAddr::from(self.router_id);
        let mut listen: Vec<IpAddr> = Vec::new();
        let mut neighbors = Vec::new();
        for neighbor in &self.neighbors {
            let local_address = neighbor.local_address.unwrap_or(own);
            if local_address.is_ipv4() != neighbor.address.is_ipv4() {
                let text = format!(
                    "neighbour {} has another version of IP than {local_address}: set its `local-address`",
                    neighbor.address
                );
                return Err(ConfigError::Value(text));
            }
            if !listen.contains(&local_address) {
                listen.push(local_address);
            }
            neighbors.push(self.neighbor(neighbor, local_address)?);
        }
        let global = Global {
            r#as: self.asn,
            router_id: self.router_id.to_string(),
            port: self.listen_port,
            local_address_list: &listen,
        };
        let file = GoBgpd { global: Wrapped { config: global }, neighbors };
        let text = toml::to_string(&file).map_err(|error| ConfigError::Value(error.to_string()))?;
        Ok(format!("# Written by `straightline evpn generate`: change its configuration instead.\n{text}"))
    }

    fn neighbor(&self, neighbor: &super::Neighbor, local_address: IpAddr) -> Result<Neighbor, ConfigError> {
        let auth_password = match &neighbor.password_file {
            None => None,
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).map_err(|error| ConfigError::Read { path: path.clone(), error })?;
                let key = text.trim_end_matches(['\r', '\n']);
                // The kernel's limit (TCP_MD5SIG_MAXKEYLEN).
                if !(1..=80).contains(&key.len()) {
                    let text = format!("{} has a key of {} bytes: use 1 to 80", path.display(), key.len());
                    return Err(ConfigError::Value(text));
                }
                Some(key.to_owned())
            }
        };
        let asn = neighbor.asn.unwrap_or(self.asn);
        let hold_time = neighbor.hold_time.map_or(HOLD, |time| time.as_secs());
        if hold_time < 3 {
            let text = format!("neighbour {}: `hold-time` is at least \"3s\"", neighbor.address);
            return Err(ConfigError::Value(text));
        }
        // More than the process would keep, so this ends no session that is of use.
        let usual = u32::try_from(self.limits.routes).unwrap_or(u32::MAX).saturating_mul(2);
        let max_prefixes = neighbor.max_routes.unwrap_or(usual);
        let is_external = asn != self.asn;
        let ttl_security =
            neighbor.ttl_security.then_some(Wrapped { config: TtlSecurity { enabled: true, ttl_min: 255 } });
        Ok(Neighbor {
            config: Peer { neighbor_address: neighbor.address, peer_as: asn, auth_password },
            transport: Wrapped { config: Transport { local_address, passive_mode: neighbor.passive } },
            timers: Wrapped { config: Timers { hold_time, keepalive_interval: hold_time / 3, connect_retry: 5 } },
            // Other hosts are often some hops away. GoBGP takes one of both.
            ebgp_multihop: (is_external && ttl_security.is_none())
                .then_some(Wrapped { config: Multihop { enabled: true, multihop_ttl: 64 } }),
            ttl_security,
            route_reflector: neighbor.route_reflector_client.then(|| Wrapped {
                config: Reflector {
                    route_reflector_client: true,
                    route_reflector_cluster_id: self.router_id.to_string(),
                },
            }),
            graceful_restart: neighbor.graceful_restart.then_some(Wrapped {
                config: GracefulRestart { enabled: true, restart_time: self.limits.stale.as_secs().min(MAX_RESTART) },
            }),
            afi_safis: [AfiSafi {
                config: Family { afi_safi_name: "l2vpn-evpn" },
                mp_graceful_restart: neighbor.graceful_restart.then_some(Wrapped { config: Enabled { enabled: true } }),
                prefix_limit: (max_prefixes > 0)
                    .then_some(Wrapped { config: PrefixLimit { max_prefixes, shutdown_threshold_pct: 75 } }),
            }],
        })
    }
}
