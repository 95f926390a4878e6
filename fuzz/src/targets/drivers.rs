//! Fuzz target: the driver halves of both rings, with a device that writes anything.
//!
//! Invariants:
//! - An id is returned once, and only if it is outstanding.
//! - Nothing comes after a fault.
//! - The free descriptors are the descriptors that no chain has.
//! - A chain is refused only if too few descriptors are free.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::{DESC, FuzzGuest, USED, buffer, reached};
use arbitrary::{Result, Unstructured};
use straightline_virtio::ring::{DeviceFault, PackedDriver, RingOptions, SplitDriver};

thread_local!(static GUEST: RefCell<FuzzGuest> = RefCell::default());

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    let _ = GUEST.with_borrow_mut(|guest| run(guest, &mut Unstructured::new(data)));
}

enum Driver {
    Split(SplitDriver),
    Packed(PackedDriver),
}

macro_rules! both {
    ($driver:expr, $d:ident => $body:expr) => {
        match $driver {
            Driver::Split($d) => $body,
            Driver::Packed($d) => $body,
        }
    };
}

fn run(guest: &mut FuzzGuest, u: &mut Unstructured<'_>) -> Result<()> {
    guest.clear();
    let packed = u.arbitrary()?;
    let options = RingOptions { event_idx: u.arbitrary()?, indirect: false, in_order: u.arbitrary()? };
    let size = if packed { u.int_in_range(1..=20)? } else { 1 << u.int_in_range(0..=5_u16)? };
    let geometry = guest.geometry(size);
    let mut driver = if packed {
        Driver::Packed(PackedDriver::new(&guest.ours, geometry, options).expect("in memory"))
    } else {
        Driver::Split(SplitDriver::new(&guest.ours, geometry, options).expect("in memory"))
    };
    // Descriptors of the outstanding chains, by id.
    let mut out: BTreeMap<u16, u16> = BTreeMap::new();
    // The next position at which the device writes.
    let mut used = 0_u16;
    let mut wrap = true;
    for _ in 0..256 {
        if u.is_empty() {
            break;
        }
        match u.int_in_range(0..=9_u8)? {
            0..=2 => {
                let mut buffers = Vec::new();
                for _ in 0..u.int_in_range(0..=4_u8)? {
                    let (addr, len) = buffer(u)?;
                    buffers.push((addr, len, u.arbitrary()?));
                }
                let free = both!(&driver, d => d.free());
                let count = buffers.len() as u16;
                let added = both!(&mut driver, d => d.add(&buffers));
                assert_eq!(added.is_some(), count > 0 && count <= free);
                if let Some(id) = added {
                    assert!(out.insert(id, count).is_none(), "id {id} is outstanding already");
                }
            }
            3 => both!(&mut driver, d => d.publish()),
            4 => {
                both!(&mut driver, d => d.must_kick());
            }
            // The device uses a chain, in most cases an outstanding one.
            5..=6 => {
                let id = if u.ratio(7, 8)? && !out.is_empty() {
                    *u.choose(&out.keys().copied().collect::<Vec<_>>())?
                } else {
                    u.arbitrary()?
                };
                let len: u32 = u.arbitrary()?;
                if packed {
                    let flags = if wrap { 0x8080 } else { 0 } | (u16::from(u.arbitrary::<bool>()?) * 2);
                    guest.descriptor(DESC + 16 * u64::from(used), 0, len, id, flags);
                    used += out.get(&id).copied().unwrap_or(1);
                    if used >= size {
                        (used, wrap) = (used - size, !wrap);
                        reached("a packed driver's wrap");
                    }
                    used %= size;
                } else {
                    let at = USED + 4 + 8 * u64::from(used % size);
                    guest.write(at, &u32::from(id).to_le_bytes());
                    guest.write(at + 4, &len.to_le_bytes());
                    used = used.wrapping_add(1);
                    guest.write16(USED + 2, used);
                }
            }
            7 => {
                let at: u16 = u.arbitrary()?;
                let n = u.int_in_range(1..=24)?;
                guest.write(u64::from(at) % 0x4000, u.bytes(n.min(u.len()))?);
            }
            8 => {
                both!(&mut driver, d => d.want_interrupt(u.arbitrary()?));
                both!(&driver, d => { d.base(); });
            }
            _ => match both!(&mut driver, d => d.used()) {
                None => {}
                Some(Ok((id, _))) => {
                    assert!(out.remove(&id).is_some(), "id {id} was not outstanding");
                    if packed {
                        reached("a packed chain that came back");
                    } else {
                        reached("a split chain that came back");
                    }
                }
                Some(Err(fault)) => {
                    match fault {
                        DeviceFault::Id(id) => {
                            let known = u16::try_from(id).is_ok_and(|id| out.contains_key(&id));
                            assert!(!known || options.in_order, "id {id} is outstanding");
                            reached("an id that is not out");
                        }
                        _ => reached("another fault of the device"),
                    }
                    // The driver half is broken.
                    assert!(both!(&mut driver, d => d.used()).is_none());
                    assert!(both!(&mut driver, d => d.add(&[(0, 1, false)])).is_none());
                    return Ok(());
                }
            },
        }
        let taken: u16 = out.values().sum();
        assert_eq!(both!(&driver, d => d.free()), size - taken);
    }
    Ok(())
}
