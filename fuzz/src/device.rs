//! A device half of either layout, over memory that its driver writes at random.

use arbitrary::{Result, Unstructured};
use straightline_packet::MAX_FRAME;
use straightline_virtio::ring::{
    BURST, Device, Direction, Fault, First, INDIRECT, NEXT, PackedDevice, Ring, RingOptions, SplitDevice, WRITE,
};

use crate::{AVAIL, DESC, END, FuzzGuest, TABLE, USED, USER, buffer, reached};

/// Flags of a packed descriptor (virtio 1.2, 2.8.1).
const FLAG_AVAIL: u16 = 1 << 7;
const FLAG_USED: u16 = 1 << 15;

/// The driver's side: partly valid, partly random.
struct Driver {
    packed: bool,
    size: u16,
    /// The split ring's index; in a packed ring the next position to fill, and the wrap counter.
    next: u16,
    wrap: bool,
}

/// Runs one input: writes of the driver and operations of the device, in any order.
pub(crate) fn run(guest: &mut FuzzGuest, packed: bool, u: &mut Unstructured<'_>) -> Result<()> {
    guest.clear();
    let size = if packed { u.int_in_range(1..=20)? } else { 1 << u.int_in_range(0..=5_u16)? };
    let options = RingOptions { event_idx: u.arbitrary()?, indirect: u.arbitrary()?, in_order: u.arbitrary()? };
    let direction = if u.arbitrary()? { Direction::ToGuest } else { Direction::FromGuest };
    let mut geometry = guest.geometry(size);
    // Parts of a ring may overlap, or lie outside memory.
    let tidy = u.ratio(7, 8)?;
    if !tidy {
        (geometry.desc, geometry.avail, geometry.used) = (wild(u)?, wild(u)?, wild(u)?);
    }
    let base: u32 = if u.ratio(3, 4)? { if packed { 0x8000_8000 } else { 0 } } else { u.arbitrary()? };
    let open = |base: u32, guest: &FuzzGuest| {
        if packed {
            PackedDevice::new(&guest.ours, geometry, base, options).map(Ring::Packed)
        } else {
            SplitDevice::new(&guest.ours, geometry, (base & 0xffff) as u16, options).map(Ring::Split)
        }
    };
    let Ok(mut ring) = open(base, guest) else {
        assert!(!tidy || packed, "a ring that lies in memory is refused");
        reached("a ring that is not in memory");
        return Ok(());
    };
    let mut driver = Driver { packed, size, next: if packed { 0 } else { (base & 0xffff) as u16 }, wrap: true };
    for _ in 0..256 {
        if u.is_empty() {
            break;
        }
        match u.int_in_range(0..=11_u8)? {
            0..=2 => driver.offer(guest, u, options.indirect, direction)?,
            3 => driver.table(guest, u, direction)?,
            4 => {
                let at = u.arbitrary::<u16>()?;
                let n = u.int_in_range(1..=24)?;
                guest.write(at.into(), u.bytes(n.min(u.len()))?);
            }
            5..=7 => {
                if let Err(fault) = take(guest, &mut ring, direction, size, u)? {
                    assert!(!fault.is_empty());
                    reached("a ring that broke");
                    // A port stops the ring here. Its frontend may set the ring up again at the
                    // same position.
                    let Ok(again) = open(ring.base(), guest) else { return Ok(()) };
                    ring = again;
                }
            }
            8 => {
                let n = u.int_in_range(0..=ring.outstanding())?;
                let before = ring.outstanding();
                ring.give_back(n);
                assert_eq!(ring.outstanding(), before - n);
                if let Ring::Split(split) = &ring
                    && (n > 0 && tidy)
                {
                    // The driver sees the index behind all chains that were given back.
                    assert_eq!(guest.read16(USED + 2), split.base().wrapping_sub(split.outstanding()));
                }
                if n > 1 {
                    reached("several chains given back at once");
                }
            }
            9 => {
                let n = u.int_in_range(0..=ring.outstanding())?;
                ring.untake(n);
            }
            10 => match u.int_in_range(0..=2_u8)? {
                0 => {
                    // A fault found by arming stops the ring too.
                    if ring.arm(0).is_err() {
                        let Ok(again) = open(ring.base(), guest) else { return Ok(()) };
                        ring = again;
                    }
                }
                1 => ring.disarm(),
                _ => {
                    let twice = (ring.must_notify(), ring.must_notify());
                    assert!(!twice.1, "nothing was given back since");
                    if twice.0 {
                        reached("a notification");
                    }
                }
            },
            _ => {
                if packed {
                    // The last device was killed, and its position is unknown.
                    let found = PackedDevice::recover(&guest.ours, geometry, 0, options, direction, None);
                    ring = Ring::Packed(found.expect("it lay in memory before"));
                    assert_eq!(ring.outstanding(), 0);
                    reached("a packed ring's place found in itself");
                }
            }
        }
        assert!(ring.outstanding() <= size, "{} of {size} are outstanding", ring.outstanding());
    }
    Ok(())
}

fn wild(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(USER + u64::from(u.arbitrary::<u16>()? & !0xf) + if u.ratio(1, 8)? { END } else { 0 })
}

impl Driver {
    /// Makes a chain of a few descriptors available, valid or nearly so.
    fn offer(
        &mut self,
        guest: &FuzzGuest,
        u: &mut Unstructured<'_>,
        indirect: bool,
        direction: Direction,
    ) -> Result<()> {
        let count = u.int_in_range(1..=3_u16)?;
        let head = u.int_in_range(0..=self.size)?;
        for i in 0..count {
            let (addr, len) = buffer(u)?;
            let mut flags = flags(u, direction)? & !NEXT;
            flags |= if i + 1 < count { NEXT } else { 0 };
            if indirect && u.ratio(1, 4)? {
                flags = INDIRECT;
            }
            if self.packed {
                let bits = if self.wrap { FLAG_AVAIL } else { FLAG_USED };
                guest.descriptor(
                    DESC + 16 * u64::from(self.next),
                    addr,
                    len,
                    u.int_in_range(0..=self.size)?,
                    flags | bits,
                );
                self.next += 1;
                if self.next == self.size {
                    (self.next, self.wrap) = (0, !self.wrap);
                    reached("a packed ring's wrap");
                }
            } else {
                let at = (head + i) % self.size;
                let next = if u.ratio(7, 8)? { (at + 1) % self.size } else { u.arbitrary()? };
                guest.descriptor(DESC + 16 * u64::from(at), addr, len, flags, next);
            }
        }
        if !self.packed {
            guest.write16(AVAIL + 4 + 2 * u64::from(self.next % self.size), head % self.size);
            self.next = self.next.wrapping_add(if u.ratio(15, 16)? { 1 } else { u.arbitrary()? });
            guest.write16(AVAIL + 2, self.next);
        }
        Ok(())
    }

    /// Writes a descriptor into an indirect table.
    fn table(&self, guest: &FuzzGuest, u: &mut Unstructured<'_>, direction: Direction) -> Result<()> {
        let (addr, len) = buffer(u)?;
        let flags = flags(u, direction)?;
        let at = u.int_in_range(0..=8_u16)?;
        let (third, fourth) = if self.packed { (0, flags) } else { (flags, at + 1) };
        guest.descriptor(TABLE + 16 * u64::from(at), addr, len, third, fourth);
        Ok(())
    }
}

fn flags(u: &mut Unstructured<'_>, direction: Direction) -> Result<u16> {
    let right = if direction == Direction::ToGuest { WRITE } else { 0 };
    Ok(if u.ratio(7, 8)? { right | if u.arbitrary()? { NEXT } else { 0 } } else { u16::from(u.arbitrary::<u8>()? & 7) })
}

/// Takes the available chains as a port does. A fault of the ring is returned as its message.
fn take(
    guest: &mut FuzzGuest,
    ring: &mut Ring,
    direction: Direction,
    size: u16,
    u: &mut Unstructured<'_>,
) -> Result<std::result::Result<(), String>> {
    let ranges = guest.ranges();
    let capacity = u.int_in_range(1..=BURST)?;
    let keep = u.int_in_range(0..=BURST)?;
    // Packets for the guest have one length, and take as many buffers as they need.
    let mut packet = Packet { need: 60 + 1000 * u32::try_from(keep).unwrap_or(0), got: 0, chains: 0 };
    Ok(guest.turn(|turn, memory| {
        let packed = ring.is_packed();
        let device: &mut dyn Device = match ring {
            Ring::Split(ring) => ring,
            Ring::Packed(ring) => ring,
        };
        let mut firsts = [First::default(); BURST];
        let found = device.find(&mut firsts[..capacity]).map_err(|fault| fault.to_string())?;
        assert!(found <= capacity && found + usize::from(device.outstanding()) <= usize::from(size));
        for first in &firsts[..found.min(keep)] {
            device.take(first);
            if let Some(segment) = device.single(memory, first, direction) {
                FuzzGuest::assert_inside(&ranges, &segment);
                assert_eq!(segment.len(), first.desc.len);
                packet.put(device, segment.len(), direction, packed);
                continue;
            }
            let mark = turn.mark();
            match device.chain(memory, turn, first, direction) {
                Ok(chain) => {
                    let staged = turn.staged(mark);
                    staged.iter().for_each(|segment| FuzzGuest::assert_inside(&ranges, segment));
                    assert_eq!(staged.iter().map(|s| u64::from(s.len())).sum::<u64>(), u64::from(chain.len));
                    assert!(direction == Direction::ToGuest || chain.len <= MAX_FRAME + 12);
                    match (first.desc.flags & INDIRECT != 0, packed) {
                        (true, true) => reached("an indirect table of a packed ring"),
                        (true, false) => reached("an indirect table of a split ring"),
                        (false, true) => reached("a chain of a packed ring"),
                        (false, false) => reached("a chain of a split ring"),
                    }
                    packet.put(device, chain.len, direction, packed);
                    turn.unstage(mark);
                }
                Err(Fault::Chain(fault)) => {
                    assert!(turn.staged(mark).is_empty(), "a chain that is refused stages nothing");
                    assert!(!fault.reason().meaning().is_empty());
                    packet.put(device, 0, direction, packed);
                }
                Err(Fault::Ring(fault)) => {
                    assert!(turn.staged(mark).is_empty());
                    // The chain with the ring's fault stays available.
                    packet.untake(device, 1);
                    return Err(fault.to_string());
                }
            }
        }
        packet.untake(device, 0);
        Ok(())
    }))
}

/// A packet that is being written into a ring's buffers.
struct Packet {
    need: u32,
    got: u32,
    /// Buffers taken for an incomplete packet.
    chains: u16,
}

impl Packet {
    /// Adds a buffer of `capacity` bytes. A packet from the guest fills one buffer each.
    fn put(&mut self, device: &mut dyn Device, capacity: u32, direction: Direction, packed: bool) {
        if direction == Direction::FromGuest {
            device.written(capacity);
            return;
        }
        device.written(capacity.min(self.need - self.got));
        self.got = self.got.saturating_add(capacity);
        self.chains += 1;
        if self.got >= self.need {
            match (self.chains > 1, packed) {
                (true, true) => reached("a packet in several buffers of a packed ring"),
                (true, false) => reached("a packet in several buffers of a split ring"),
                (false, _) => {}
            }
            (self.got, self.chains) = (0, 0);
        }
    }

    /// Makes the buffers of an incomplete packet available again, and the last `more` that were
    /// taken.
    fn untake(&mut self, device: &mut dyn Device, more: u16) {
        let n = self.chains + more;
        let before = device.outstanding();
        device.untake(n);
        assert_eq!(device.outstanding(), before - n);
    }
}
