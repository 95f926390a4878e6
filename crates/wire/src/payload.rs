//! Type and offset of a frame's payload, behind any number of VLAN tags and LLC headers with SNAP
//! (IEEE 802, 9.2).

use crate::field::{get, u16_at};
use crate::{EtherType, WireError, ethernet, vlan};

/// Smallest number that is a type. A smaller number is the length of an LLC frame (IEEE 802.3,
/// 3.2.6).
const LEAST_TYPE: u16 = 0x600;

/// LLC destination of SNAP, without the group bit.
const SNAP: u8 = 0xaa;

/// Length of the LLC header, and of LLC and SNAP headers together.
const LLC_LEN: usize = 3;
const SNAP_LEN: usize = 8;

/// Organisation codes whose protocol numbers are Ethernet types: RFC 1042, and IEEE 802.1H.
const ENCAPSULATIONS: [[u8; 3]; 2] = [[0, 0, 0], [0, 0, 0xf8]];

/// Returns the type of the payload of `frame`, and its offset.
///
/// All VLAN tags and SNAP headers before it are skipped, in any order, because receivers differ in
/// which of them they skip. A type below 0x600 is the length field of an LLC frame that carries no
/// Ethernet type.
///
/// # Errors
/// [`WireError::Truncated`] if `frame`, which may be a part of the whole frame, ends before the
/// type is known.
pub fn payload(frame: &[u8]) -> Result<(EtherType, usize), WireError> {
    let mut ether_type = ethernet::Header::new_checked(frame)?.ether_type();
    let mut at = ethernet::LEN;
    loop {
        let step = if ether_type.is_vlan() {
            vlan::LEN
        } else if ether_type.0 < LEAST_TYPE {
            match frame.get(at..) {
                // The source and the control field are not checked: not every receiver checks them.
                Some([destination, _, _, snap @ ..]) if destination & !1 == SNAP => {
                    if snap.len() < SNAP_LEN - LLC_LEN {
                        return Err(WireError::Truncated);
                    }
                    if !ENCAPSULATIONS.contains(&get(snap, 0)) {
                        return Ok((ether_type, at));
                    }
                    SNAP_LEN
                }
                Some([_, _, _, ..]) => return Ok((ether_type, at)),
                _ => return Err(WireError::Truncated),
            }
        } else {
            return Ok((ether_type, at));
        };
        at += step;
        if frame.len() < at {
            return Err(WireError::Truncated);
        }
        ether_type = EtherType(u16_at(frame, at - 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(rest: &[&[u8]]) -> Vec<u8> {
        [&[2; 12][..], &rest.concat()].concat()
    }

    const TAG: &[u8] = &[0x81, 0, 0, 0];
    const SERVICE_TAG: &[u8] = &[0x88, 0xa8, 0, 1];
    const SNAP_RFC1042: &[u8] = &[0, 36, 0xaa, 0xaa, 3, 0, 0, 0];
    const SNAP_8021H: &[u8] = &[0, 36, 0xab, 0, 0, 0, 0, 0xf8];
    const ARP: &[u8] = &[8, 6];

    #[test]
    fn everything_before_the_payload_is_stepped_over() {
        let prefixes: [&[&[u8]]; 8] = [
            &[],
            &[TAG],
            &[SERVICE_TAG, TAG],
            &[TAG, TAG, TAG, TAG, TAG],
            &[SNAP_RFC1042],
            &[SNAP_8021H],
            &[TAG, SNAP_RFC1042],
            &[SNAP_RFC1042, TAG, SNAP_8021H],
        ];
        for prefix in prefixes {
            let bytes = frame(&[prefix, &[ARP]].concat());
            assert_eq!(payload(&bytes), Ok((EtherType::ARP, bytes.len())), "{prefix:?}");
            for len in 0..bytes.len() {
                assert_eq!(payload(&bytes[..len]), Err(WireError::Truncated), "{prefix:?} {len}");
            }
        }
    }

    #[test]
    fn frames_of_no_type_end_at_their_length() {
        // Spanning tree; SNAP of another organisation.
        for llc in [&[0x42, 0x42, 3][..], &[0xaa, 0xaa, 3, 0, 0, 0xc, 0x20, 0]] {
            assert_eq!(payload(&frame(&[TAG, &[0, 36], llc])), Ok((EtherType(36), 18)));
        }
        assert_eq!(payload(&frame(&[&[5, 0xff, 0x42, 0x42, 3]])), Ok((EtherType(0x5ff), 14)));
        assert_eq!(payload(&frame(&[&[6, 0]])), Ok((EtherType(0x600), 14)));
    }
}
