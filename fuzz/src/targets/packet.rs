//! Fuzz target: a packet from a guest. Its virtio-net header is checked; its bytes are segmented if
//! requested, and stored into another guest's buffers.
//!
//! Invariants:
//! - Without segmentation, the packet arrives as it was sent. Its checksum may have been completed,
//!   and is then right.
//! - GSO segments carry the payload once and in order. None is longer than requested; each has
//!   right lengths and checksums.

use std::cell::RefCell;

use crate::packets::{LONGEST, accept, stored};
use crate::{FuzzGuest, reached};
use arbitrary::{Result, Unstructured};
use straightline_packet::{BodyCursor, Checksum, GsoSegment, Offload, PacketId, Segmenter, Turn};
use straightline_simd::reference;
use straightline_virtio::memory::GuestMemory;
use straightline_virtio::net_header::{LEN, NetHeader};

thread_local!(static GUEST: RefCell<FuzzGuest> = RefCell::default());

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    let _ = GUEST.with_borrow_mut(|guest| run(guest, &mut Unstructured::new(data)));
}

fn run(guest: &mut FuzzGuest, u: &mut Unstructured<'_>) -> Result<()> {
    let acked = if u.ratio(3, 4)? { u64::MAX } else { u.arbitrary()? };
    let header = NetHeader::parse(&u.arbitrary()?);
    let finish = u.arbitrary()?;
    let splits: [u16; 3] = u.arbitrary()?;
    let stretch = u.int_in_range(1..=64_usize)?;
    let bytes = u.bytes(u.len())?;
    // The body is long and made of few bytes: the headers matter.
    let body: Vec<u8> = bytes.iter().rev().copied().cycle().take(bytes.len() * (stretch - 1)).collect();
    let mut frame = [bytes, &body].concat();
    frame.truncate(LONGEST);
    if frame.len() < 14 {
        return Ok(());
    }
    guest.clear();
    guest.write(0, &frame);
    guest.turn(|turn, memory| {
        let Some(id) = accept(turn, memory, 0, frame.len(), splits) else { return };
        match header.check(acked, turn, id) {
            Err(reason) => {
                assert!(!reason.meaning().is_empty());
                reached("a header that is refused");
            }
            Ok(offload) => {
                turn.set_offload(id, offload);
                deliver(turn, memory, id, &frame, offload, finish);
            }
        }
    });
    Ok(())
}

fn deliver<'t>(
    turn: &mut Turn<'t>,
    memory: &'t GuestMemory,
    id: PacketId,
    frame: &[u8],
    offload: Offload,
    finish: bool,
) {
    let Some(gso) = offload.gso else {
        *turn.front_mut::<LEN>(id) = NetHeader::for_receiver(offload, 1).to_bytes();
        let got = stored(turn, memory, LEN + frame.len(), |turn, to| {
            turn.store::<LEN>(id, to, finish);
        });
        let mut expected = frame.to_vec();
        if let (Checksum::Partial { start, offset }, true) = (offload.checksum, finish) {
            let (start, field) = (usize::from(start), usize::from(start + offset));
            expected[field..field + 2].copy_from_slice(&got[LEN + field..][..2]);
            // The checksum includes its field as sent, which holds the pseudo header's sum.
            let want = match !reference::sum(&[&frame[start..]]) {
                0 => 0xffff,
                sum => sum,
            };
            assert!(u16::from_be_bytes([expected[field], expected[field + 1]]) == want, "the checksum");
            reached("a checksum that was finished");
        }
        assert!(got[LEN..] == expected, "what arrives is what was sent");
        return;
    };
    let Some(mut plan) = Segmenter::new(gso, frame.len() as u32) else {
        reached("a packet that cannot be cut");
        return;
    };
    let headers = usize::from(gso.header_len);
    let count = plan.count();
    let mut made = 0;
    let mut payload = Vec::new();
    let mut segment = GsoSegment::default();
    let mut from = BodyCursor::default();
    while plan.next(turn.head(id), &mut segment) {
        made += 1;
        assert!(segment.len() <= u32::from(gso.header_len) + u32::from(gso.size));
        let got = stored(turn, memory, LEN + segment.len() as usize, |turn, to| {
            turn.store_gso_segment::<LEN>(id, &segment, &mut from, to, finish);
        });
        let got = &got[LEN..];
        let l3 = usize::from(gso.l3);
        let l4 = usize::from(gso.l4);
        if got[l3] >> 4 == 4 {
            assert_eq!(reference::sum(&[&got[l3..l4]]), 0xffff, "the IPv4 header's checksum");
            assert_eq!(u16::from_be_bytes([got[l3 + 2], got[l3 + 3]]) as usize, got.len() - l3);
        } else {
            assert_eq!(u16::from_be_bytes([got[l3 + 4], got[l3 + 5]]) as usize, got.len() - l3 - 40);
        }
        payload.extend_from_slice(&got[headers..]);
    }
    assert_eq!(made, count);
    assert!(payload == frame[headers..], "the payload, once and in order");
    if made > 1 {
        reached("a packet that was cut");
    }
}
