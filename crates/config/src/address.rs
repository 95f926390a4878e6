//! IP addresses of stations, as sections of underlays and tunnels name them.

use std::net::IpAddr;

use straightline_underlay::Address;

/// Reads the address of a station.
pub(super) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let ip = text.parse().map_err(|_| "not an IP address; write for example 192.0.2.2 or 2001:db8::2".to_owned())?;
    check_station(ip)?;
    Ok(ip)
}

/// Reads the address of a station with the length of its network's prefix.
pub(super) fn parse_address(text: &str) -> Result<Address, String> {
    let example = "write the address and its network's prefix, for example 192.0.2.1/24 or 2001:db8::1/64";
    let Some((address, prefix)) = text.split_once('/') else { return Err(format!("no prefix; {example}")) };
    let ip: IpAddr = address.parse().map_err(|_| format!("not an IP address; {example}"))?;
    check_station(ip)?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let is_number = !prefix.is_empty() && prefix.bytes().all(|digit| digit.is_ascii_digit());
    let prefix = prefix.parse::<u8>().ok().filter(|prefix| is_number && (1..=most).contains(prefix));
    let prefix = prefix.ok_or_else(|| format!("not a valid prefix length; it must be 1 to {most}"))?;
    if let IpAddr::V4(ip) = ip
        && prefix < 31
    {
        let stations = u32::MAX >> prefix;
        if ip.to_bits() & stations == 0 {
            return Err("the address of a whole network; write the address of the switch in it".to_owned());
        }
        if ip.to_bits() & stations == stations {
            return Err("the broadcast address of its network; write the address of the switch in it".to_owned());
        }
    }
    Ok(Address { ip, prefix })
}

/// Checks that an address can belong to one station of a network.
fn check_station(ip: IpAddr) -> Result<(), String> {
    let why = match ip {
        _ if ip.is_unspecified() => "the unspecified address",
        _ if ip.is_multicast() => "a multicast address",
        _ if ip.is_loopback() => "a loopback address",
        IpAddr::V4(ip) if ip.is_broadcast() => "the broadcast address",
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => "an IPv4 address inside an IPv6 address",
        _ => return Ok(()),
    };
    Err(format!("{why}, which no station of a network has; write for example 192.0.2.2 or 2001:db8::2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_stations() {
        for good in ["192.0.2.1/24", "192.0.2.0/31", "192.0.2.1/32", "10.255.255.255/7", "2001:db8::1/64", "fe80::1/64"]
        {
            let address = parse_address(good).unwrap_or_else(|why| panic!("{good}: {why}"));
            assert_eq!(format!("{}/{}", address.ip, address.prefix), good);
        }
        for (bad, why) in [
            ("192.0.2.1", "no prefix"),
            ("192.0.2/24", "not an IP address"),
            ("192.0.2.1/33", "1 to 32"),
            ("192.0.2.1/0", "1 to 32"),
            ("192.0.2.1/+24", "1 to 32"),
            ("2001:db8::1/129", "1 to 128"),
            ("192.0.2.0/24", "a whole network"),
            ("192.0.2.255/24", "broadcast"),
            ("::/64", "unspecified"),
            ("127.0.0.1/8", "loopback"),
            ("ff02::1/64", "multicast"),
            ("::ffff:192.0.2.1/120", "inside"),
        ] {
            let found = parse_address(bad).expect_err(bad);
            assert!(found.contains(why), "{bad}: {found}");
        }
        assert!(parse_ip("255.255.255.255").unwrap_err().starts_with("the broadcast address"));
        assert!(parse_ip("host").unwrap_err().starts_with("not an IP address"));
        assert_eq!(parse_ip("192.0.2.7").map(|ip| ip.to_string()), Ok("192.0.2.7".to_owned()));
    }
}
