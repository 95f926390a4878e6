//! The answers of the process.

use super::Process;
use super::status::{
    GoBgpStatus, HostStatus, NeighbourStatus, NetworkStatus, RouteStatus, Routes, Status, SwitchStatus,
};
use crate::gobgp::Version;
use crate::machine::{Domain, Refusal};
use crate::route::{Mobility, RouteKey};

/// The most hosts of an answer.
const MOST_HOSTS: usize = 1024;

impl Process {
    /// Returns the state of the process.
    pub(super) fn status(&self) -> Status {
        let neighbours = self.neighbours.iter().map(|neighbour| NeighbourStatus {
            address: neighbour.address.clone(),
            asn: neighbour.asn,
            up: neighbour.is_up,
        });
        let version = self.gobgp.as_ref().map(|gobgp| match gobgp.version() {
            Version::V3 => 3,
            Version::V4 => 4,
        });
        let counted = Refusal::ALL.iter().map(|refusal| (refusal.word(), self.machine.counters().get(*refusal)));
        Status {
            asn: self.config.asn,
            router_id: self.config.router_id.to_string(),
            gobgp: GoBgpStatus {
                address: self.config.gobgp.to_string(),
                up: self.gobgp_is_listed,
                version,
                error: self.gobgp_error.clone(),
                neighbours: neighbours.collect(),
                waiting: self.paths.len() + self.later.len(),
            },
            switch: SwitchStatus {
                api: self.config.api.display().to_string(),
                up: self.switch_is_up,
                error: self.switch_error.clone(),
                refused: self.switch_refused,
            },
            networks: self.machine.domains().enumerate().map(|(at, domain)| self.network(at, domain)).collect(),
            received: self.machine.received(),
            stale: self.machine.stale(),
            announced: self.machine.paths().count(),
            hosts: self.hosts(),
            refused: counted.filter(|(_, count)| *count > 0).map(|(word, count)| (word.to_owned(), count)).collect(),
        }
    }

    /// Returns the hosts with the most routes.
    fn hosts(&self) -> Vec<HostStatus> {
        let mut hosts: Vec<HostStatus> = self
            .machine
            .hosts()
            .map(|(host, routes)| HostStatus { host: host.to_string(), routes: routes.kept, refused: routes.refused })
            .collect();
        hosts.sort_by_key(|host| std::cmp::Reverse((host.refused, host.routes)));
        hosts.truncate(MOST_HOSTS);
        hosts
    }

    fn network(&self, at: usize, domain: &Domain) -> NetworkStatus {
        let sizes = self.machine.sizes(at);
        NetworkStatus {
            network: domain.network.clone(),
            bridge: domain.bridge.clone(),
            vlan: domain.vlan,
            tunnel: domain.tunnel.clone(),
            vni: domain.vni,
            tag: domain.tag,
            rd: domain.rd.to_string(),
            targets: domain.export.iter().map(ToString::to_string).collect(),
            here: sizes.here,
            elsewhere: sizes.elsewhere,
            duplicate: sizes.duplicate,
            moves_here: sizes.moves_here,
            moves_away: sizes.moves_away,
            remotes: self.machine.remotes(&domain.tunnel).iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the routes that are sent and received.
    pub(super) fn routes(&self) -> Routes {
        let domains: Vec<&Domain> = self.machine.domains().collect();
        let mut routes = Vec::new();
        for route in self.machine.paths().filter_map(|key| self.machine.path(&key)) {
            let is_of = |domain: &&&Domain| (domain.rd, domain.tag) == (route.key.rd(), route.key.tag());
            if let Some(domain) = domains.iter().find(is_of) {
                routes.push(row(domain, &route.key, route.next_hop, route.mobility, true));
            }
        }
        self.machine.each_received(|at, key, host, mobility| {
            if let Some(domain) = domains.get(at) {
                routes.push(row(domain, key, host, mobility, false));
            }
        });
        Routes { routes }
    }
}

fn row(domain: &Domain, key: &RouteKey, host: std::net::IpAddr, mobility: Mobility, sent: bool) -> RouteStatus {
    let (kind, mac, ip) = match key {
        RouteKey::Station { mac, ip, .. } => (2, Some(mac.to_string()), ip.map(|ip| ip.to_string())),
        RouteKey::Flood { .. } => (3, None, None),
    };
    RouteStatus {
        network: domain.network.clone(),
        vni: domain.vni,
        r#type: kind,
        next_hop: host.to_string(),
        sent,
        mac,
        ip,
        sequence: mobility.sequence,
        sticky: mobility.sticky,
        rd: key.rd().to_string(),
    }
}
