//! The bytes of a packed ring: the form in which each side writes them, and the bytes that each side
//! leaves alone.

use straightline_packet::Level;
use straightline_virtio::ring::{Device, First, INDIRECT, NEXT, PackedDevice, PackedDriver, RingOptions, WRITE};

use straightline_testing::guest_ring::{AVAIL, BUFFERS, DESC, GuestRing, TABLES, USED, events};

const SIZE: u16 = 5;

/// Flags of a packed descriptor (virtio 1.2, 2.8.1).
const FLAG_AVAIL: u16 = 1 << 7;
const FLAG_USED: u16 = 1 << 15;

fn bytes(guest: &GuestRing, addr: u64, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).expect("small")];
    guest.ours.segment(addr, len, &mut 0).expect("in memory").read(Level::Scalar, &mut bytes);
    bytes
}

/// Returns a descriptor's address, length, id and flags.
fn descriptor(guest: &GuestRing, table: u64, index: u16) -> (u64, u32, u16, u16) {
    let bytes = bytes(guest, table + 16 * u64::from(index), 16);
    let number = |from: usize, len: usize| {
        let mut number = [0; 8];
        number[..len].copy_from_slice(&bytes[from..from + len]);
        u64::from_le_bytes(number)
    };
    let short = |from| u16::try_from(number(from, 2)).expect("16 bits");
    (number(0, 8), u32::try_from(number(8, 4)).expect("32 bits"), short(12), short(14))
}

fn driver(guest: &GuestRing, options: RingOptions) -> PackedDriver {
    let driver = PackedDriver::new(&guest.ours, guest.geometry(), options).expect("the ring is in memory");
    driver.with_tables(&guest.ours, guest.tables()).expect("in memory")
}

fn device(guest: &GuestRing, options: RingOptions) -> PackedDevice {
    PackedDevice::new(&guest.ours, guest.geometry(), 0x8000_8000, options).expect("the ring is in memory")
}

/// Returns the ring, the driver's event suppression and the device's.
fn picture(guest: &GuestRing) -> [Vec<u8>; 3] {
    [bytes(guest, DESC, 16 * u32::from(SIZE)), bytes(guest, AVAIL, 4), bytes(guest, USED, 4)]
}

/// Takes and gives back all that is available.
fn serve(device: &mut PackedDevice, written: u32) {
    let mut firsts = [First::default(); SIZE as usize];
    let found = device.find(&mut firsts).expect("a good driver");
    device.take_all(&firsts[..found], |_| written);
    device.give_back(device.outstanding());
}

// Cites packed-2.8.1-4, packed-2.8.3-1, packed-2.8.6-1, packed-2.8.6-2, packed-2.8.6-3.
// Cites packed-2.8.13-1.
#[test]
fn every_descriptor_of_a_chain_has_its_flags_in_every_round() {
    let guest = GuestRing::new(SIZE);
    let mut driver = driver(&guest, events(false));
    let mut device = device(&guest, events(false));
    let mut at = 0;
    let mut wrap = true;
    for _ in 0..20 {
        let id = driver.add(&[(BUFFERS, 7, false), (BUFFERS + 64, 9, true), (u64::MAX - 99, 0, true)]);
        let id = id.expect("free descriptors");
        driver.publish();
        for (i, (addr, len, write)) in
            [(BUFFERS, 7, 0), (BUFFERS + 64, 9, WRITE), (u64::MAX - 99, 0, WRITE)].iter().enumerate()
        {
            let (got_addr, got_len, got_id, flags) = descriptor(&guest, DESC, at);
            let next = if i < 2 { NEXT } else { 0 };
            assert_eq!((got_addr, got_len), (*addr, *len));
            assert_eq!(flags, write | next | if wrap { FLAG_AVAIL } else { FLAG_USED }, "descriptor {i} at {at}");
            assert!(i < 2 || got_id == id);
            (at, wrap) = if at + 1 == SIZE { (0, !wrap) } else { (at + 1, wrap) };
        }
        serve(&mut device, 0);
        assert_eq!(driver.used(), Some(Ok((id, 0))));
    }
}

// Cites packed-2.8.5-1, packed-2.8.7-1, packed-2.8.19-2, packed-2.8.19-4.
#[test]
fn a_table_of_the_driver_has_no_flag_but_write() {
    let guest = GuestRing::new(SIZE);
    let mut driver = driver(&guest, RingOptions { indirect: true, ..RingOptions::default() });
    let id = driver.add(&[(BUFFERS, 7, false), (BUFFERS + 64, 9, true)]).expect("free descriptors");
    driver.publish();
    let (table, len, outer_id, flags) = descriptor(&guest, DESC, 0);
    assert!((TABLES..TABLES + 0x8_0000).contains(&table));
    assert_eq!((len, outer_id, flags), (32, id, INDIRECT | FLAG_AVAIL));
    let entry = |index| {
        let (addr, len, _, flags) = descriptor(&guest, table, index);
        (addr, len, flags)
    };
    assert_eq!([entry(0), entry(1)], [(BUFFERS, 7, 0), (BUFFERS + 64, 9, WRITE)]);
}

// Cites packed-2.8-5, packed-2.8.15-4.
#[test]
fn the_device_leaves_used_descriptors_and_the_driver_s_requests_alone() {
    for event_idx in [false, true] {
        let guest = GuestRing::new(SIZE);
        let mut driver = driver(&guest, events(event_idx));
        let mut device = device(&guest, events(event_idx));
        for round in 0..12 {
            driver.want_interrupt(round % 2 == 0);
            for n in [1, 2] {
                driver.add(&vec![(BUFFERS, 64, true); n]).expect("free descriptors");
            }
            driver.publish();
            let [_, asked, _] = picture(&guest);
            serve(&mut device, round % 3);
            let [ring, ..] = picture(&guest);
            // All that a device does with nothing new in its ring.
            device.must_notify();
            device.arm(0).expect("a good driver");
            serve(&mut device, 9);
            device.disarm();
            device.standing();
            let [ring_after, asked_after, _] = picture(&guest);
            assert_eq!((ring_after, asked_after), (ring, asked), "round {round}");
            while let Some(used) = driver.used() {
                used.expect("a good device");
            }
        }
    }
}

// Cites packed-2.8-4, packed-2.8-5, packed-2.8.16-1, packed-2.8.16-2, packed-2.8.17-4.
#[test]
fn the_driver_leaves_published_descriptors_and_the_device_s_requests_alone() {
    for event_idx in [false, true] {
        let guest = GuestRing::new(SIZE);
        let mut driver = driver(&guest, events(event_idx));
        let mut device = device(&guest, events(event_idx));
        for round in 0..12 {
            device.arm(0).expect("a good driver");
            for n in [1, 3] {
                driver.add(&vec![(BUFFERS, 64, true); n]).expect("free descriptors");
            }
            driver.publish();
            let before = picture(&guest);
            // One descriptor is free: a chain of two does not fit.
            assert_eq!(driver.add(&[(BUFFERS, 64, true); 2]), None);
            driver.publish();
            driver.must_kick();
            driver.want_interrupt(round % 2 == 0);
            assert_eq!(driver.used(), None);
            let after = picture(&guest);
            assert_eq!((&after[0], &after[2]), (&before[0], &before[2]), "round {round}");
            serve(&mut device, 9);
            // Used descriptors become the driver's only once it has seen them.
            assert_eq!(driver.add(&[(BUFFERS, 64, true); 2]), None);
            while let Some(used) = driver.used() {
                used.expect("a good device");
            }
        }
    }
}

// Cites packed-2.8.6-6.
#[test]
fn flags_without_a_meaning_in_a_used_descriptor_are_ignored() {
    let guest = GuestRing::new(SIZE);
    let mut driver = driver(&guest, events(false));
    for (position, flags) in [(0, NEXT), (1, INDIRECT), (2, 0x7f78 & !FLAG_AVAIL), (3, NEXT | INDIRECT)] {
        let id = driver.add(&[(BUFFERS, 64, true)]).expect("free descriptors");
        driver.publish();
        // The order of a packed ring: address, length, id, flags.
        guest.descriptor(DESC, position, 0, 5, id, flags | WRITE | FLAG_AVAIL | FLAG_USED);
        assert_eq!(driver.used(), Some(Ok((id, 5))), "{flags:#x}");
    }
}
