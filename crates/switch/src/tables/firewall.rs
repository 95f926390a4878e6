//! The settings of all ports with groups, from the configuration.

use std::time::Duration;

use az::SaturatingAs;
use straightline_conntrack::{self as conntrack, PortShare, Settings, Timeouts};
use straightline_nodes::{FirewallPort, FirewallSettings, GuardedNetwork, MessageSettings};
use straightline_packet::PortIndex;

use crate::config::{Config, FirewallConfig, Windows};
use crate::plan::{Plan, source_check};

/// Returns the settings of all ports with groups. `None`: no port has any.
pub(super) fn settings(config: &Config, plan: &Plan) -> Option<FirewallSettings> {
    let index = |at: usize| PortIndex(plan.ports[at].slot);
    let ports = config.ports.iter().enumerate().filter_map(|(at, port)| {
        let groups = port.port_groups()?;
        let share = PortShare::new(port.connections);
        let macs = source_check(port).map_or_else(Vec::new, |check| check.macs());
        let takes_bound = port.source_check.as_ref().is_some_and(|check| check.ips.is_none());
        Some(FirewallPort { name: port.name.clone(), index: index(at), groups, share, macs, takes_bound })
    });
    let ports: Vec<_> = ports.collect();
    if ports.is_empty() {
        return None;
    }
    let trusted = config.ports.iter().enumerate().filter(|(_, port)| port.trusted).map(|(at, _)| index(at));
    let judged = config.judged_ports().into_iter();
    let messages = judged.map(|at| MessageSettings { port: index(at), most: config.ports[at].message_limit });
    let networks = config.guarded_networks().into_iter().map(|(name, members)| {
        let ports = members.into_iter().map(|at| (index(at), config.ports[at].name.clone())).collect();
        GuardedNetwork { name, ports }
    });
    Some(FirewallSettings {
        definitions: config.definitions(),
        ports,
        trusted: trusted.collect(),
        connections: connection_settings(&config.firewall),
        pickup: config.firewall.pickup.unwrap_or(Duration::ZERO),
        messages: messages.collect(),
        networks: networks.collect(),
        // Rounded up: another port without groups does not change the settings.
        places: plan.ports.iter().map(|port| usize::from(port.slot) + 1).max().unwrap_or(0).next_multiple_of(256),
    })
}

pub(super) fn connection_settings(config: &FirewallConfig) -> Settings {
    let mut timeouts = Timeouts::default();
    for (name, time) in &config.timeouts {
        let milliseconds = time.as_millis().saturating_as::<u32>();
        let place = match *name {
            "tcp-syn-sent" => &mut timeouts.tcp_syn_sent,
            "tcp-syn-recv" => &mut timeouts.tcp_syn_recv,
            "tcp-established" => &mut timeouts.tcp_established,
            "tcp-fin-wait" => &mut timeouts.tcp_fin_wait,
            "tcp-close-wait" => &mut timeouts.tcp_close_wait,
            "tcp-last-ack" => &mut timeouts.tcp_last_ack,
            "tcp-time-wait" => &mut timeouts.tcp_time_wait,
            "tcp-close" => &mut timeouts.tcp_close,
            "tcp-max-retrans" => &mut timeouts.tcp_max_retrans,
            "tcp-unacknowledged" => &mut timeouts.tcp_unacknowledged,
            "udp" => &mut timeouts.udp,
            "udp-stream" => &mut timeouts.udp_stream,
            "icmp" => &mut timeouts.icmp,
            "icmpv6" => &mut timeouts.icmpv6,
            "generic" => &mut timeouts.generic,
            "fragments" => &mut timeouts.fragments,
            _ => continue,
        };
        *place = milliseconds;
    }
    let windows = match config.windows {
        Windows::Strict => conntrack::Windows::Strict,
        Windows::Liberal => conntrack::Windows::Liberal,
    };
    Settings { timeouts, windows }
}
