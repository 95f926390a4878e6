//! Fuzz target: frames with tags, whole and cut, through a bridge with ports of each kind.
//!
//! Invariants:
//! - Each port gets the frames that the model says: the same bytes, in the same order.
//! - A checksum that is left to others stays with the bytes that it covers.
//! - A frame that goes nowhere is dropped once.

use std::collections::HashMap;

use crate::bridge::{BridgeRig, Got, LONGEST_FRAME, MOST_FRAMES, Sent};
use crate::reached;
use arbitrary::{Result, Unstructured};
use model::Inside;
use straightline_nodes::{BridgePort, NativeVlan, PortRules, PortVlans, VlanRole};

#[allow(dead_code)]
#[path = "../../../crates/nodes/src/bridge/tests/model.rs"]
mod model;

/// The most batches of an input.
const MOST_BATCHES: usize = 8;

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    let _ = run(&mut Unstructured::new(data));
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let ports = model::ports();
    let mut rig = BridgeRig::new(&ports, false);
    let mut stations = HashMap::new();
    let mut dropped = 0;
    for _ in 0..MOST_BATCHES {
        if u.is_empty() {
            break;
        }
        let mut frames: Vec<Sent> = Vec::new();
        for _ in 0..u.int_in_range(1..=MOST_FRAMES)? {
            match frames.last() {
                // Most frames come in rows.
                Some(last) if u.ratio(1, 3)? => frames.push(last.clone()),
                _ => frames.push(frame(u, ports.len())?),
            }
        }
        let mut expected = vec![Vec::new(); ports.len()];
        for sent in &frames {
            let inside = model::enter(&ports[sent.port], &sent.bytes);
            let to = inside.as_ref().map(|inside| model::model(&ports, &mut stations, sent.port, inside));
            let to = to.unwrap_or_default();
            dropped += u64::from(to.is_empty());
            if to.len() > 1 {
                reached("a frame for several ports");
            }
            for (to, inside) in to.into_iter().zip(inside.iter().cycle()) {
                expected[to].push(leave(&ports[to], sent, inside));
            }
        }
        assert_eq!(rig.forward(frames), expected);
        assert_eq!(rig.dropped(), dropped);
    }
    Ok(())
}

/// Returns the frame as it leaves by a port.
fn leave(port: &BridgePort, sent: &Sent, inside: &Inside) -> Got {
    let bytes = model::leave(port, inside);
    if bytes.len() > sent.bytes.len() {
        reached("a tag that was pushed");
    } else if bytes.len() < sent.bytes.len() {
        reached("a tag that was popped");
    } else if bytes != sent.bytes {
        reached("a tag that was written");
    }
    let checksum = sent.checksum.map(|(start, offset)| {
        if bytes.len() != sent.bytes.len() {
            reached("a checksum that moved");
        }
        let behind = sent.bytes.len() - usize::from(start);
        ((bytes.len() - behind) as u16, offset)
    });
    Got { bytes, checksum }
}

/// Makes a frame that one of the ports receives.
fn frame(u: &mut Unstructured<'_>, ports: usize) -> Result<Sent> {
    let port = u.choose_index(ports)?;
    let station = |last: u8| [2, 0, 0, 0, 0, last];
    let to = match u.int_in_range(0..=9_u8)? {
        0 => [0xff; 6],
        1 => [1, 0, 0x5e, 1, 2, 3],
        2 => [1, 0x80, 0xc2, 0, 0, u.int_in_range(0..=0x10_u8)?],
        3 => u.arbitrary()?,
        last => station(last & 3),
    };
    let from = match u.int_in_range(0..=15_u8)? {
        0 => [0; 6],
        1 => u.arbitrary()?,
        last => station(last & 3),
    };
    let mut bytes = [to, from].concat();
    let tags = u.int_in_range(0..=4_u8)?;
    for _ in 0..tags {
        let tpid = [0x8100, 0x8100, 0x8100, 0x88a8, 0x88a8, 0x9100_u16][u.choose_index(6)?];
        let vid = match u.int_in_range(0..=15_u16)? {
            0 => 0,
            1 => 4095,
            2 => u.arbitrary::<u16>()? & 0xfff,
            other => 10 + 10 * (other % 3),
        };
        let upper: u16 = u.arbitrary::<u16>()? & 0xf000;
        bytes.extend(tpid.to_be_bytes());
        bytes.extend((upper | vid).to_be_bytes());
    }
    if tags > 2 {
        reached("three tags");
    }
    let payload = if u.ratio(1, 8)? { 600 } else { u.int_in_range(0..=46_u16)? };
    let kind = match u.int_in_range(0..=7_u8)? {
        0..4 => {
            reached("a frame with a length");
            payload
        }
        4 => 0x0800,
        5 => u.arbitrary()?,
        _ => 0x88b5,
    };
    bytes.extend(kind.to_be_bytes());
    bytes.extend((0..payload).map(|at| at as u8));
    assert!(bytes.len() <= LONGEST_FRAME);
    if u.ratio(1, 8)? {
        bytes.truncate(u.int_in_range(1..=bytes.len().min(20))?);
        if model::enter(&model::ports()[3], &bytes).is_none() && bytes.len() > 13 {
            reached("a frame that is cut");
        }
    }
    let splits = if u.ratio(1, 4)? { u.arbitrary()? } else { [u16::MAX; 3] };
    // Ports take no checksum that begins in the Ethernet header. No driver lets one begin in a tag.
    let least = 18;
    let checksum = if bytes.len() > least + 8 && u.ratio(1, 4)? {
        let start = u.int_in_range(least..=bytes.len() - 2)? as u16;
        Some((start, u.int_in_range(0..=(bytes.len() - 2) as u16 - start)?))
    } else {
        None
    };
    Ok(Sent { port, bytes, splits, checksum })
}
