//! Explicit congestion notification (RFC 3168) through tunnels (RFC 6040).
//!
//! The mark is in the two low bits of the type of service (IPv4) or of the traffic class (IPv6).
//! On the way into a tunnel the outer header gets the inner packet's mark. On the way out both
//! marks become one, so that a mark of a router inside the tunnel is not lost.

/// The bits of the mark.
const MASK: u8 = 0b11;

/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not understand marks: routers drop the packet instead.
    NotEct = 0,
    /// The sender understands marks: ECT(1).
    Ect1 = 1,
    /// The sender understands marks: ECT(0).
    Ect0 = 2,
    /// A router on the way is congested: CE.
    Ce = 3,
}

impl Ecn {
    /// Returns the mark of a type of service or of a traffic class.
    #[inline]
    #[must_use]
    pub fn of(tos: u8) -> Self {
        match tos & MASK {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Returns `tos`, a type of service or a traffic class, with this mark.
    #[inline]
    #[must_use]
    pub fn put(self, tos: u8) -> u8 {
        tos & !MASK | self as u8
    }
}

/// Returns the mark of the outer header for the mark of the inner packet: the same ("normal mode",
/// RFC 6040 section 4.1).
#[inline]
#[must_use]
pub fn encapsulate(inner: Ecn) -> Ecn {
    inner
}

/// Returns the mark of the packet that leaves the tunnel (RFC 6040 section 4.2, figure 4). `None`
/// means that the packet must be dropped: a router marked it, and its sender does not understand
/// marks.
#[inline]
#[must_use]
pub fn decapsulate(inner: Ecn, outer: Ecn) -> Option<Ecn> {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => None,
        (Ecn::NotEct | Ecn::Ce, _) => Some(inner),
        (_, Ecn::Ce) => Some(Ecn::Ce),
        (_, Ecn::Ect1) => Some(Ecn::Ect1),
        (_, Ecn::NotEct | Ecn::Ect0) => Some(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::Ecn::{Ce, Ect0, Ect1, NotEct};
    use super::*;

    #[test]
    fn decapsulation_follows_figure_4_of_rfc_6040() {
        let outer = [NotEct, Ect0, Ect1, Ce];
        let table = [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
        ];
        for (inner, results) in table {
            assert_eq!(outer.map(|outer| decapsulate(inner, outer)), results, "{inner:?}");
            // A tunnel without congestion changes nothing.
            assert_eq!(decapsulate(inner, encapsulate(inner)), Some(inner));
        }
    }

    #[test]
    fn a_mark_is_two_bits_of_a_byte() {
        for (bits, mark) in [(0, NotEct), (1, Ect1), (2, Ect0), (3, Ce)] {
            for dscp in [0, 0xb8, 0xfc] {
                assert_eq!(Ecn::of(dscp | bits), mark);
                assert_eq!(mark.put(dscp | 3), dscp | bits);
                assert_eq!(mark.put(dscp), dscp | bits);
            }
        }
    }
}
