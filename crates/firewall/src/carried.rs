//! IPv6 addresses that carry an address of IPv4, by which translators and tunnels reach it.

use std::net::IpAddr;

use crate::pattern::Pattern;
use crate::prefix::Prefix;

/// The lengths of a translator's prefix (RFC 6052, 2.2).
pub const NAT64_LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// The identifiers of an interface of ISATAP (RFC 5214, 6.1), in front of the IPv4 address.
const ISATAP: [u128; 2] = [0x0000_5efe, 0x0200_5efe];

/// Returns the addresses that carry those of `v4` behind a prefix of IPv6: with one of the lengths of
/// RFC 6052, or of at most 32 bits.
///
/// Translators leave out bits 64 to 71 and those behind the address (RFC 6052, 2.3). So they may have
/// any value.
pub(crate) fn behind(prefix: Prefix, v4: Prefix) -> Option<Pattern> {
    let IpAddr::V6(first) = prefix.address() else { return None };
    let (bits, mask) = v4_bits(v4)?;
    let len = prefix.len();
    let place = |v4: u32| {
        let placed = u128::from(v4) << 96_u8.saturating_sub(len);
        let low = placed & u128::from(u64::MAX);
        if len == 96 { placed } else { placed ^ low | low >> 8 }
    };
    let own = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    Some(Pattern::new(first.to_bits() | place(bits), own | place(mask)))
}

/// Returns the addresses of ISATAP that carry those of `v4`. They have any prefix.
pub(crate) fn isatap(v4: Prefix) -> Option<[Pattern; 2]> {
    let (bits, mask) = v4_bits(v4)?;
    let carrying =
        |identifier: u128| Pattern::new(identifier << 32 | u128::from(bits), 0xffff_ffff << 32 | u128::from(mask));
    Some(ISATAP.map(carrying))
}

fn v4_bits(v4: Prefix) -> Option<(u32, u32)> {
    let IpAddr::V4(address) = v4.address() else { return None };
    Some((address.to_bits(), u32::MAX.checked_shl(32 - u32::from(v4.len())).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 6052, 2.4: 192.0.2.33 behind a prefix of each length.
    #[test]
    fn addresses_of_rfc_6052() {
        let rows = [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("2002::/16", "2002:c000:221::"),
        ];
        let read = |text: &str| text.parse::<Prefix>().expect(text);
        for (prefix, address) in rows {
            let address: std::net::Ipv6Addr = address.parse().expect(address);
            let carries = |v4: &str| behind(read(prefix), read(v4)).expect("IPv4").contains(address);
            assert!(carries("192.0.2.33") && carries("192.0.0.0/16") && carries("0.0.0.0/0"), "{prefix}");
            assert!(!carries("192.0.2.32") && !carries("192.0.2.34/31") && !carries("64.0.0.0/2"), "{prefix}");
        }
        assert_eq!(behind(read("192.0.2.0/24"), read("10.0.0.1")), None);
        assert_eq!(isatap(read("::1")), None);
    }
}
