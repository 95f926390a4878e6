//! The configuration file of the process.

mod file;
mod generate;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::{fs, io};

use file::{File, Neighbor, Network, Targets, Word};

use crate::gobgp::Address;
use crate::machine::{Domain, Import, Limits};
use crate::route::{Distinguisher, MAX_VNI, ParseValueError, Target};

/// The most route targets of a network: they fit into an attribute.
const MAX_TARGETS: usize = 32;

/// A configuration that has been checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The socket of the switch's API.
    pub api: PathBuf,
    /// The socket on which the process answers questions, or `None`.
    pub socket: Option<PathBuf>,
    /// The address of GoBGP's API.
    pub gobgp: Address,
    /// The AS of this host.
    pub asn: u32,
    /// The router id of this host.
    pub router_id: Ipv4Addr,
    /// The broadcast domains.
    pub domains: Vec<Domain>,
    /// The limits.
    pub limits: Limits,
    neighbors: Vec<Neighbor>,
    listen_port: u16,
}

/// The reason why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The text is not TOML, or has an unknown key or a value of a wrong type.
    #[error("{}: {error}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The fault, with its line.
        error: Box<toml::de::Error>,
    },
    /// A value is wrong.
    #[error("{0}")]
    Value(String),
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, or is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        Self::parse(&text, path)
    }

    /// Checks a text. `path` is for messages.
    ///
    /// # Errors
    /// The text is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let syntax = |error| ConfigError::Syntax { path: path.to_owned(), error: Box::new(error) };
        let file: File = toml::from_str(text).map_err(syntax)?;
        if file.asn == 0 {
            return Err(ConfigError::Value("`asn = 0` is no AS: use 1 to 4294967295".to_owned()));
        }
        if file.network.is_empty() {
            return Err(ConfigError::Value(
                "there is no network: add [network.NAME] with `bridge`, `tunnel` and `vni`".to_owned(),
            ));
        }
        let mut domains = Vec::new();
        for (name, network) in &file.network {
            let wrong = |what: String| ConfigError::Value(format!("[network.{name}]: {what}"));
            domains.extend(domains_of(&file, name, network).map_err(wrong)?);
        }
        check_together(&domains)?;
        Ok(Self {
            limits: file.limits.limits()?,
            api: file.api,
            socket: Some(file.socket).filter(|path| !path.as_os_str().is_empty()),
            gobgp: file.gobgp,
            asn: file.asn,
            router_id: file.router_id,
            domains,
            neighbors: file.neighbor,
            listen_port: file.listen_port,
        })
    }
}

/// Returns the domains of a network: one, or one for each VLAN of a bundle.
fn domains_of(file: &File, name: &str, network: &Network) -> Result<Vec<Domain>, String> {
    // VLAN, Ethernet tag, VNI.
    let parts: Vec<(u16, u32, u32)> = match (network.vni, &network.vlans) {
        (Some(vni), None) => vec![(network.vlan.unwrap_or(1), 0, vni)],
        (None, Some(vlans)) if network.vlan.is_none() => vlans
            .iter()
            .map(|(vlan, vni)| {
                let vlan = vlan.parse().map_err(|_| format!("`vlans`: {vlan:?} is no VLAN: use 1 to 4094"))?;
                Ok((vlan, u32::from(vlan), *vni))
            })
            .collect::<Result<_, String>>()?,
        _ => return Err("use `vni` (with `vlan`, if the bridge has VLANs), or `vlans` for a bundle".to_owned()),
    };
    let lowest = parts.iter().map(|(.., vni)| *vni).min().ok_or("`vlans` is empty: name a VLAN and its VNI")?;
    for (vlan, _, vni) in &parts {
        if !(1..=4094).contains(vlan) {
            return Err(format!("VLAN {vlan} is out of range: use 1 to 4094"));
        }
        if !(1..=MAX_VNI).contains(vni) {
            return Err(format!("VNI {vni} is out of range: use 1 to {MAX_VNI}"));
        }
    }
    let [.., high, low] = lowest.to_be_bytes();
    let rd = match &network.rd {
        Some(rd) => rd.parse().map_err(|error: ParseValueError| format!("`rd`: {error}"))?,
        None => Distinguisher::of_router(file.router_id, u16::from_be_bytes([high, low])),
    };
    let export = targets(network.export.as_ref().or(network.route_targets.as_ref()), file.asn, lowest)?;
    let import = match network.import.as_ref().or(network.route_targets.as_ref()) {
        Some(Targets::List(list)) => import(list)?,
        _ => automatic_import(lowest),
    };
    let own = network.address.or(file.address).unwrap_or(file.router_id.into());
    if own.is_unspecified() || own.is_multicast() {
        return Err(format!("`address`: {own} is no host's address: use the tunnel's own address"));
    }
    let domain = |(vlan, tag, vni)| Domain {
        network: name.to_owned(),
        bridge: network.bridge.clone(),
        vlan,
        tunnel: network.tunnel.clone(),
        own,
        vni,
        tag,
        rd,
        export: export.clone(),
        import: import.clone(),
    };
    Ok(parts.into_iter().map(domain).collect())
}

/// Returns the targets of sent routes.
fn targets(targets: Option<&Targets>, asn: u32, vni: u32) -> Result<Vec<Target>, String> {
    match targets {
        None | Some(Targets::Word(Word::Auto)) => Ok(vec![Target::of_vni(asn, vni)]),
        Some(Targets::Word(Word::Rfc8365)) => Ok(vec![Target::of_rfc8365(asn, vni)]),
        Some(Targets::List(list)) if (1..=MAX_TARGETS).contains(&list.len()) => {
            list.iter().map(|text| text.parse().map_err(|error: ParseValueError| error.to_string())).collect()
        }
        Some(Targets::List(list)) => Err(format!("{} route targets are too few or too many: use 1 to 32", list.len())),
    }
}

/// Returns a set of targets. `*:NUMBER` stands for any AS.
fn import(list: &[String]) -> Result<Import, String> {
    let mut import = Import::default();
    for text in list {
        if let Some(number) = text.strip_prefix("*:") {
            let number = number.parse().map_err(|_| format!("{text:?} is no route target: use \"*:NUMBER\""))?;
            import.of_any_as.extend(of_any_as(number));
        } else {
            import.exact.insert(text.parse().map_err(|error: ParseValueError| error.to_string())?);
        }
    }
    Ok(import)
}

/// Returns the targets that other hosts derive from a VNI: as FRR does, and as RFC 8365 says.
fn automatic_import(vni: u32) -> Import {
    let mut of_any_as: BTreeSet<Target> = of_any_as(vni).collect();
    of_any_as.insert(Target::of_rfc8365(0, vni));
    Import { of_any_as, ..Import::default() }
}

/// Returns the targets of any AS of two bytes, and of four if the number fits.
fn of_any_as(number: u32) -> impl Iterator<Item = Target> {
    let four_bytes = u16::try_from(number).ok().map(|number| {
        let [high, low] = number.to_be_bytes();
        Target([2, 2, 0, 0, 0, 0, high, low])
    });
    std::iter::once(Target::of_vni(0, number)).chain(four_bytes)
}

/// Checks what must differ between domains.
fn check_together(domains: &[Domain]) -> Result<(), ConfigError> {
    let mut distinguishers: BTreeMap<Distinguisher, &str> = BTreeMap::new();
    let mut vlans = BTreeMap::new();
    let mut vnis = BTreeMap::new();
    let mut addresses: BTreeMap<&str, IpAddr> = BTreeMap::new();
    for domain in domains {
        let name = domain.network.as_str();
        let refuse = |other: &str, what: String| {
            Err(ConfigError::Value(format!("[network.{other}] and [network.{name}] have the same {what}")))
        };
        if let Some(other) = distinguishers.insert(domain.rd, name).filter(|other| *other != name) {
            return refuse(other, format!("route distinguisher {}: set `rd` in one of them", domain.rd));
        }
        if let Some(other) = vlans.insert((&domain.bridge, domain.vlan), name) {
            return refuse(other, format!("bridge {} and VLAN {}: use another `vlan`", domain.bridge, domain.vlan));
        }
        if let Some(other) = vnis.insert((&domain.tunnel, domain.vni), name) {
            return refuse(other, format!("tunnel {} and VNI {}", domain.tunnel, domain.vni));
        }
        if addresses.insert(&domain.tunnel, domain.own).is_some_and(|other| other != domain.own) {
            return Err(ConfigError::Value(format!("tunnel {} has two addresses: use one", domain.tunnel)));
        }
    }
    Ok(())
}
