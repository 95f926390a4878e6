//! The columns of the table of ports, and the orders by which it can be sorted.

use std::cmp::Ordering;
use std::str::FromStr;

use straightline_api::Link;
use straightline_api::rates::{Flow, PortRates};

use crate::text;

/// A column of the table of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The port's name.
    Port,
    /// The port's kind.
    Kind,
    /// The patch, bridge or underlay that has the port.
    Joined,
    /// The state of the link.
    Link,
    /// Packets per second from the port.
    RxPackets,
    /// Bits per second from the port.
    RxBits,
    /// Packets per second to the port.
    TxPackets,
    /// Bits per second to the port.
    TxBits,
    /// Dropped packets per second.
    Drops,
    /// The recent load as a curve.
    History,
}

impl Column {
    /// All columns, in their default order.
    pub const ALL: [Self; 10] = [
        Self::Port,
        Self::Kind,
        Self::Joined,
        Self::Link,
        Self::RxPackets,
        Self::RxBits,
        Self::TxPackets,
        Self::TxBits,
        Self::Drops,
        Self::History,
    ];

    /// Returns the column's name for the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Kind => "kind",
            Self::Joined => "joined",
            Self::Link => "link",
            Self::RxPackets => "rx-pps",
            Self::RxBits => "rx-bps",
            Self::TxPackets => "tx-pps",
            Self::TxBits => "tx-bps",
            Self::Drops => "drops",
            Self::History => "history",
        }
    }

    /// Returns the column's heading.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::RxPackets => "rx pkt/s",
            Self::RxBits => "rx bit/s",
            Self::TxPackets => "tx pkt/s",
            Self::TxBits => "tx bit/s",
            Self::Drops => "drops/s",
            other => other.name(),
        }
    }

    /// Returns whether the cells are numbers, which are aligned to the right.
    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::RxPackets | Self::RxBits | Self::TxPackets | Self::TxBits | Self::Drops)
    }

    /// Returns the rank by which a column gives way where the terminal is narrow: the highest goes
    /// first.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Port => 0,
            Self::Link => 1,
            Self::Drops => 2,
            Self::RxBits | Self::TxBits => 3,
            Self::RxPackets | Self::TxPackets => 4,
            Self::History => 5,
            Self::Joined => 6,
            Self::Kind => 7,
        }
    }

    /// Returns the text of a port's cell. The history is drawn elsewhere.
    pub(crate) fn cell(self, port: &PortRates) -> String {
        match self {
            Self::Port => text::printable(&port.name),
            Self::Kind => text::printable(&port.kind),
            Self::Joined => port.joined.as_ref().map_or_else(String::new, |joined| text::printable(&joined.name)),
            Self::Link => if port.link == Link::Up { "up" } else { "down" }.to_owned(),
            Self::History => String::new(),
            _ => text::rate(self.number(port)),
        }
    }

    /// Returns the number of a port's cell, if it is one and is known.
    fn number(self, port: &PortRates) -> Option<f64> {
        let packets = |flow: Option<Flow>| flow.map(|flow| flow.packets_per_s);
        let bits = |flow: Option<Flow>| flow.map(|flow| flow.bits_per_s);
        match self {
            Self::RxPackets => packets(port.rx),
            Self::RxBits => bits(port.rx),
            Self::TxPackets => packets(port.tx),
            Self::TxBits => bits(port.tx),
            Self::Drops => port.drops_per_s,
            Self::History => Some(load(port)),
            Self::Port | Self::Kind | Self::Joined | Self::Link => None,
        }
    }
}

impl FromStr for Column {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|column| column.name() == name);
        known.ok_or_else(|| format!("unknown column {name:?}; columns are {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// An order of the ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Drops first, then links that are down, then load.
    #[default]
    Worst,
    /// By a column: the largest number first, or by name.
    By(Column),
}

impl Sort {
    /// All orders.
    pub const ALL: [Self; 11] = {
        let mut all = [Self::Worst; 11];
        let mut at = 0;
        while at < Column::ALL.len() {
            all[at + 1] = Self::By(Column::ALL[at]);
            at += 1;
        }
        all
    };

    /// Returns the order's name for the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Worst => "worst",
            Self::By(column) => column.name(),
        }
    }

    /// Returns the next order.
    pub(crate) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// Sorts ports. Ports that are equal keep the configuration's order.
    pub(crate) fn apply(self, ports: &mut [PortRates]) {
        match self {
            Self::Worst => ports.sort_by(|a, b| {
                let drops = falling(a.drops_per_s, b.drops_per_s);
                drops.then(is_up(a).cmp(&is_up(b))).then(load(b).total_cmp(&load(a)))
            }),
            Self::By(Column::Link) => ports.sort_by_key(is_up),
            Self::By(column @ (Column::Port | Column::Kind | Column::Joined)) => {
                ports.sort_by_cached_key(|port| column.cell(port));
            }
            Self::By(column) => ports.sort_by(|a, b| falling(column.number(a), column.number(b))),
        }
    }
}

impl FromStr for Sort {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|sort| sort.name() == name);
        known.ok_or_else(|| format!("unknown order {name:?}; orders are {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Compares so that the largest number comes first. A number that is not known counts as 0.
fn falling(a: Option<f64>, b: Option<f64>) -> Ordering {
    b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0))
}

fn is_up(port: &PortRates) -> bool {
    port.link == Link::Up
}

/// Returns the bits per second of both directions.
pub(crate) fn load(port: &PortRates) -> f64 {
    port.rx.into_iter().chain(port.tx).map(|flow| flow.bits_per_s).fold(0.0, |sum, next| sum + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, link: Link, bits: Option<f64>, drops: Option<f64>) -> PortRates {
        let rx = bits.map(|bits_per_s| Flow { packets_per_s: 1.0, bits_per_s });
        PortRates { name: name.to_owned(), link, rx, drops_per_s: drops, ..PortRates::default() }
    }

    #[test]
    fn the_worst_is_first() {
        let mut ports = [
            port("idle", Link::Up, Some(0.0), Some(0.0)),
            port("new", Link::Up, None, None),
            port("loaded", Link::Up, Some(9e9), Some(0.0)),
            port("down", Link::Down, Some(0.0), Some(0.0)),
            port("drops", Link::Up, Some(1.0), Some(5.0)),
        ];
        let order = |ports: &[PortRates]| ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
        Sort::Worst.apply(&mut ports);
        assert_eq!(order(&ports), ["drops", "down", "loaded", "idle", "new"]);
        Sort::By(Column::RxBits).apply(&mut ports);
        assert_eq!(order(&ports)[..2], ["loaded", "drops"]);
        Sort::By(Column::Port).apply(&mut ports);
        assert_eq!(order(&ports), ["down", "drops", "idle", "loaded", "new"]);
        Sort::By(Column::Link).apply(&mut ports);
        assert_eq!(order(&ports)[0], "down");
    }

    #[test]
    fn names_lead_back() {
        for column in Column::ALL {
            assert_eq!(column.name().parse(), Ok(column));
        }
        let mut sort = Sort::Worst;
        for expected in Sort::ALL {
            assert_eq!((sort, sort.name().parse()), (expected, Ok(expected)));
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Worst);
        assert!("pps".parse::<Column>().unwrap_err().contains("rx-pps"));
    }
}
