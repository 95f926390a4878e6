//! The place of a station, as small as possible: a bridge may have 100 000 of them.

use std::net::{IpAddr, Ipv4Addr};

/// The place of a station, as its owner says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The port, by its number in [`PortNames`].
    pub(crate) port: u16,
    /// The remote behind which it is.
    pub(crate) remote: Option<IpAddr>,
    /// The owner's number of the entry.
    pub(crate) sequence: u32,
    pub(crate) ips: Ips,
}

/// The IP addresses of a station. Most have none or one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ips {
    None,
    V4(Ipv4Addr),
    #[expect(clippy::box_collection, reason = "a thin pointer keeps the enum at 16 bytes")]
    More(Box<Vec<IpAddr>>),
}

impl Ips {
    pub(crate) fn new(ips: Vec<IpAddr>) -> Self {
        match ips[..] {
            [] => Ips::None,
            [IpAddr::V4(ip)] => Ips::V4(ip),
            _ => Ips::More(Box::new(ips)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = IpAddr> {
        let (one, more): (Option<IpAddr>, &[IpAddr]) = match self {
            Ips::None => (None, &[]),
            Ips::V4(ip) => (Some((*ip).into()), &[]),
            Ips::More(ips) => (None, ips),
        };
        one.into_iter().chain(more.iter().copied())
    }
}

/// The names of the ports that places have, each once.
#[derive(Debug, Default)]
pub(crate) struct PortNames(Vec<String>);

impl PortNames {
    /// Returns the number of a name; `None` if there are too many names.
    pub(crate) fn number(&mut self, name: &str) -> Option<u16> {
        let at = self.0.iter().position(|known| known == name).unwrap_or(self.0.len());
        let number = u16::try_from(at).ok()?;
        if at == self.0.len() {
            self.0.push(name.to_owned());
        }
        Some(number)
    }

    /// Returns the name of a number.
    pub(crate) fn name(&self, number: u16) -> &str {
        self.0.get(usize::from(number)).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use straightline_fdb::{OwnedRow, Station};

    /// A tree of entries is at least half full.
    #[test]
    fn a_station_takes_few_bytes() {
        assert!(size_of::<Ips>() <= 16);
        let entry = size_of::<Station>() + size_of::<OwnedRow<Place>>();
        assert!(entry <= 56, "{entry} bytes");
    }

    #[test]
    fn addresses_come_back() {
        for count in 0..4_u8 {
            let ips: Vec<IpAddr> = (0..count).map(|n| IpAddr::from([10, 0, 0, n])).collect();
            assert!(Ips::new(ips.clone()).iter().eq(ips));
        }
        let v6: IpAddr = "fd00::1".parse().unwrap();
        assert!(Ips::new(vec![v6]).iter().eq([v6]));
    }

    #[test]
    fn a_name_has_one_number() {
        let mut names = PortNames::default();
        assert_eq!((names.number("a"), names.number("b"), names.number("a")), (Some(0), Some(1), Some(0)));
        assert_eq!((names.name(1), names.name(9)), ("b", ""));
    }
}
