//! A guest that is being moved: the switch's writes to its memory are in the dirty log, found by
//! comparing the memory before and after.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::ftruncate;
use rustix::io::{pread, pwrite};
use straightline_guest::{Guest, GuestOptions, memory_file};
use straightline_testing::packets::{Kind, finish, partial, tcp4};
use straightline_testing::{
    self as testing, ANY_LEN, BASIC, Rig, frame, mac, noise, patch, rig, send, take, vhost_user, wait_until,
};
use straightline_virtio::features as f;
use straightline_virtio::memory::{GuestMemory, LOG_PAGE, Region};
use straightline_virtio::net_header::NetHeader;
use straightline_virtio::ring::{Geometry, PackedDriver, RingOptions, SplitDriver};
use straightline_virtio::vhost_user::{
    FrontendClient, RegionRef, RegionSpec, RingAddresses, SUPPORTED_PROTOCOL_FEATURES,
};

/// The regions: with gaps around the first one; the last two adjoin. In the file and in user
/// addresses they have other orders.
const REGIONS: [RegionSpec; 3] = [
    RegionSpec { guest_addr: 0x30_0000, size: 0x4_0000, user_addr: 0x7f00_0020_0000, mmap_offset: 0x4_0000 },
    RegionSpec { guest_addr: 0x90_0000, size: 0x5_0000, user_addr: 0x7f00_0000_0000, mmap_offset: 0x8_0000 },
    RegionSpec { guest_addr: 0x95_0000, size: 0x4_0000, user_addr: 0x7f00_0010_0000, mmap_offset: 0 },
];
const MEMORY: usize = 0xd_0000;
const PAGE: usize = 4096;

/// Guest addresses of the rings' parts, each on pages of its own, 64 KiB for each ring, in the
/// first region. In a split ring the used index, the used entries and the available event after
/// them are on three pages.
const RINGS: u64 = 0x30_0000;
const PARTS: [u64; 3] = [0, 0x4000, 0x8ffc];
/// Buffers for sending and for receiving, at no particular alignment and across the edge between
/// two regions.
const SEND_BUFFERS: u64 = 0x32_0000;
const RECEIVE_BUFFERS: u64 = 0x90_0064;
const STRIDE: u64 = 2500;
const ENTRIES: u16 = 512;

/// The log starts neither at the start of its file nor at a multiple of anything.
const LOG_OFFSET: u64 = 4096 + 13;
/// One bit for each page up to the end of the last region.
const LOG_SIZE: u64 = 0x99_0000_u64.div_ceil(8 * LOG_PAGE);

enum Driver {
    Split(SplitDriver),
    Packed(PackedDriver),
}

impl Driver {
    fn add(&mut self, buffers: &[(u64, u32, bool)]) {
        let added = match self {
            Driver::Split(ring) => ring.add(buffers),
            Driver::Packed(ring) => ring.add(buffers),
        };
        added.expect("a free descriptor");
    }

    fn publish(&mut self) {
        match self {
            Driver::Split(ring) => ring.publish(),
            Driver::Packed(ring) => ring.publish(),
        }
    }
}

/// A guest with rings and memory laid out by hand.
struct Moved {
    client: FrontendClient,
    file: OwnedFd,
    log: OwnedFd,
    memory: GuestMemory,
    features: u64,
    base: u32,
    drivers: [Driver; 2],
    events: Vec<OwnedFd>,
}

fn geometry(ring: u16) -> Geometry {
    let [desc, avail, used] = PARTS.map(|part| REGIONS[0].user_addr + 0x1_0000 * u64::from(ring) + part);
    Geometry { size: ENTRIES, desc, avail, used }
}

fn addresses(ring: u16) -> RingAddresses {
    let Geometry { desc, avail, used, .. } = geometry(ring);
    RingAddresses { desc, avail, used }
}

impl Moved {
    /// Makes a guest with memory and drivers, and no ring started.
    fn new(rig: &Rig, packed: bool, event_idx: bool) -> Moved {
        let mut features = BASIC | f::VIRTIO_NET_F_MRG_RXBUF | f::VIRTIO_NET_F_GUEST_CSUM | f::VIRTIO_NET_F_GUEST_TSO6;
        features |= if packed { f::VIRTIO_F_RING_PACKED } else { 0 };
        features |= if event_idx { f::VIRTIO_F_EVENT_IDX } else { 0 };
        let mut client = FrontendClient::connect(rig.socket(0)).expect("connect");
        client.set_timeout(Some(testing::PATIENCE)).expect("a timeout");
        let agreed = client.handshake(features, SUPPORTED_PROTOCOL_FEATURES).expect("handshake");
        client.set_features(agreed.features).expect("features");
        let file = memory_file(MEMORY as u64).expect("memory");
        // No byte of a buffer has by chance the value that is written there.
        pwrite(&file, &noise(77, 0x4_0000), 0).expect("noise");
        pwrite(&file, &noise(78, 0x5_0000), REGIONS[1].mmap_offset).expect("noise");
        let regions = REGIONS.map(|spec| RegionRef { spec, fd: file.as_fd() });
        client.set_mem_table(&regions).expect("memory");
        let map = |r: &RegionSpec| {
            Arc::new(Region::map(file.as_fd(), r.mmap_offset, r.size, r.guest_addr, r.user_addr).expect("a region"))
        };
        let memory = GuestMemory::new(REGIONS.iter().map(map).collect()).expect("no overlap");
        let options = RingOptions { event_idx, ..RingOptions::default() };
        let drivers = [0, 1].map(|ring| {
            if packed {
                Driver::Packed(PackedDriver::new(&memory, geometry(ring), options).expect("a ring"))
            } else {
                Driver::Split(SplitDriver::new(&memory, geometry(ring), options).expect("a ring"))
            }
        });
        let log = memory_file(LOG_OFFSET + LOG_SIZE + 4096).expect("a log");
        let base = if packed { 0x8000_8000 } else { 0 };
        Moved { client, file, log, memory, features: agreed.features, base, drivers, events: Vec::new() }
    }

    fn start(&mut self, ring: u16) {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let kick = event();
        let call = event();
        let client = &mut self.client;
        client.set_vring_num(ring, ENTRIES).expect("size");
        client.set_vring_base(ring, self.base).expect("base");
        client.set_vring_addr(ring, addresses(ring)).expect("addresses");
        client.set_vring_call(ring, Some(call.as_fd())).expect("call");
        // This comes first, since packets in a disabled ring are dropped.
        client.set_vring_enable(ring, true).expect("enable");
        client.set_vring_kick(ring, Some(kick.as_fd())).expect("kick");
        self.events.extend([kick, call]);
    }

    /// As QEMU does it: the log, then the feature, then the flag of each ring.
    fn log_on(&mut self) {
        self.client.set_log_base(LOG_SIZE, LOG_OFFSET, self.log.as_fd()).expect("a log");
        self.client.set_features(self.features | f::VHOST_F_LOG_ALL).expect("log on");
        for ring in [0, 1] {
            let used = RINGS + 0x1_0000 * u64::from(ring) + PARTS[2];
            self.client.set_vring_addr_logged(ring, addresses(ring), used).expect("the flag");
        }
    }

    fn log_off(&mut self) {
        self.client.set_features(self.features).expect("log off");
        for ring in [0, 1] {
            self.client.set_vring_addr(ring, addresses(ring)).expect("without the flag");
        }
    }

    fn offer_buffers(&mut self) {
        for n in 0..220 {
            let len = if n % 3 == 0 { 700 } else { 2000 };
            self.drivers[0].add(&[(RECEIVE_BUFFERS + n * STRIDE, len, true)]);
        }
        self.drivers[0].publish();
    }

    /// Offers frames to send, in one buffer or two; the backend sees them when the ring starts.
    fn offer_frames(&mut self, lens: &[usize]) {
        let mut at = SEND_BUFFERS;
        for (n, &len) in (0..).zip(lens) {
            let bytes = [&[0; 12][..], &frame(mac(1), mac(2), len, n)].concat();
            let level = straightline_packet::Level::detect();
            let total = u32::try_from(bytes.len()).expect("short");
            self.memory.segment(at, total, &mut 0).expect("room").write(level, &bytes);
            let cut = if n % 2 == 0 { total } else { 40 };
            let parts = [(at, cut, false), (at + u64::from(cut), total - cut, false)];
            self.drivers[1].add(if n % 2 == 0 { &parts[..1] } else { &parts });
            at += u64::from(total);
        }
        self.drivers[1].publish();
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![0; MEMORY];
        assert_eq!(pread(&self.file, &mut bytes, 0), Ok(MEMORY));
        bytes
    }

    /// Returns guest pages that differ between two snapshots.
    fn differing(before: &[u8], after: &[u8]) -> BTreeSet<u64> {
        let part = |bytes: &[u8], spec: &RegionSpec| {
            let at = usize::try_from(spec.mmap_offset).expect("short");
            let part = &bytes[at..at + usize::try_from(spec.size).expect("short")];
            part.chunks(PAGE).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let pages = REGIONS.iter().flat_map(|spec| {
            let pages = part(before, spec).into_iter().zip(part(after, spec));
            (spec.guest_addr / LOG_PAGE..).zip(pages).filter(|(_, (before, after))| before != after)
        });
        pages.map(|(page, _)| page).collect()
    }

    /// Returns the marked pages, and clears them; nothing around the log was touched.
    fn marked(&self) -> BTreeSet<u64> {
        let len = usize::try_from(LOG_OFFSET + LOG_SIZE + 4096).expect("short");
        let mut bytes = vec![0; len];
        assert_eq!(pread(&self.log, &mut bytes, 0), Ok(len));
        assert_eq!(pwrite(&self.log, &vec![0; len], 0), Ok(len));
        let start = len - 4096 - usize::try_from(LOG_SIZE).expect("short");
        let end = len - 4096;
        assert!(bytes[..start].iter().chain(&bytes[end..]).all(|&byte| byte == 0), "a mark outside of the log");
        let pages = (0..).zip(&bytes[start..end]);
        pages.flat_map(|(n, byte)| (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| 8 * n + bit)).collect()
    }
}

/// Returns whether a page is one of the rings'.
fn in_rings(page: u64) -> bool {
    (RINGS..RINGS + 0x2_0000).contains(&(page * LOG_PAGE))
}

fn setting() -> (Rig, Guest) {
    let rig = rig(2, |config| {
        config.patches.push(patch(0, 1));
        for port in &mut config.ports {
            port.mtu = ANY_LEN;
            vhost_user(port).packed = true;
        }
    });
    let tso = f::VIRTIO_NET_F_CSUM | f::VIRTIO_NET_F_HOST_TSO4;
    let features = GuestOptions::default().features | tso;
    let peer = rig.guest(1, &GuestOptions { features, buffer_len: 65_562, ring_size: 64, ..GuestOptions::default() });
    (rig, peer)
}

/// Checks that everything that a port writes into a guest's memory is marked, and little else.
fn everything_is_marked(packed: bool, event_idx: bool) {
    let (rig, mut peer) = setting();
    let mut moved = Moved::new(&rig, packed, event_idx);
    moved.offer_buffers();
    moved.offer_frames(&[60, 100, 570, 1514, 4000, 9000]);
    moved.start(0);
    moved.log_on();
    let before = moved.snapshot();
    let started = moved.marked();
    assert!(started.iter().all(|&page| in_rings(page)), "nothing has moved yet: {started:x?}");
    moved.start(1);
    take(&mut peer, 6);
    // The receive ring has 220 buffers: one for each small frame, several for each large one.
    let lens = [60, 64, 100, 570, 687, 688, 689, 1514, 1988, 1989, 4096, 9018, 30_000, 60];
    for (n, len) in (0..).zip(lens) {
        send(&mut peer, &frame(mac(2), mac(1), len, n));
    }
    // A packet that is segmented here: the guest accepts no large packets of IPv4.
    let (header, segments) = tcp4(mac(2), mac(1), 20_000, 1448);
    assert!(peer.send(&header, &segments));
    peer.flush();
    // Each group is alone, so that a turn has all of it.
    let mut packets = lens.len() as u64 + 20_000_u64.div_ceil(1448);
    let delivered = |packets| {
        wait_until("all are delivered", || rig.port(0).queues[0].tx.packets == packets);
    };
    delivered(packets);
    // Packets that are coalesced: it accepts large ones of IPv6. Then, with finished checksums, such
    // packets again, and others that are not coalesced because a checksum is wrong.
    for (finished, wrong) in [(false, false), (true, false), (true, true)] {
        for n in 0..10_u32 {
            let (mut header, mut segment) = partial(Kind::Tcp6, mac(2), mac(1), &noise(n.into(), 1400));
            segment[54 + 4..54 + 8].copy_from_slice(&(1400 * n).to_be_bytes());
            segment[54 + 13] = 0x10;
            if finished {
                header = finish(header, &mut segment);
            }
            segment[1000] ^= u8::from(wrong && n == 9);
            assert!(peer.send(&header, &segment));
        }
        peer.flush();
        packets += if wrong { 10 } else { 1 };
        delivered(packets);
    }
    for ring in [0, 1] {
        moved.client.get_vring_base(ring).expect("stopped");
    }
    let after = moved.snapshot();
    let differing = Moved::differing(&before, &after);
    let marked = moved.marked();
    let lost: Vec<_> = differing.difference(&marked).collect();
    assert!(lost.is_empty(), "written and not marked: {lost:x?}");
    assert!(differing.len() > 40, "{differing:x?}");
    assert!(differing.iter().any(|&page| in_rings(page)));
    // Marked pages of buffers were written.
    let spare: Vec<_> = marked.difference(&differing).filter(|&&page| !in_rings(page)).collect();
    assert!(spare.is_empty(), "marked and not written: {spare:x?}");
    rig.no_drops();
}

// Cites vhost-user-migration-2, vhost-user-migration-3.
#[test]
fn everything_written_is_marked_in_a_split_ring() {
    everything_is_marked(false, true);
}

#[test]
fn everything_written_is_marked_in_a_split_ring_with_flags() {
    everything_is_marked(false, false);
}

// Cites vhost-user-migration-2, vhost-user-migration-3.
#[test]
fn everything_written_is_marked_in_a_packed_ring() {
    everything_is_marked(true, true);
}

#[test]
fn everything_written_is_marked_in_a_packed_ring_with_flags() {
    everything_is_marked(true, false);
}

// Cites vhost-user-migration-1, vhost-user-ring-states-10.
#[test]
fn the_log_is_turned_on_off_and_replaced_under_running_rings() {
    let (rig, mut peer) = setting();
    let mut moved = Moved::new(&rig, false, true);
    moved.offer_buffers();
    moved.start(0);
    moved.start(1);
    let mut sent = 0;
    let mut deliver = || {
        send(&mut peer, &frame(mac(2), mac(1), 500, sent));
        sent += 1;
        wait_until("it is delivered", || rig.port(0).queues[0].tx.packets == sent);
    };
    deliver();
    assert_eq!(moved.marked().len(), 0, "off");
    for _ in 0..3 {
        moved.log_on();
        deliver();
        moved.log_off();
        let marked = moved.marked();
        assert!(marked.iter().any(|&page| in_rings(page)) && marked.iter().any(|&page| !in_rings(page)));
        deliver();
        assert_eq!(moved.marked().len(), 0, "off again");
    }
    // Another log: once it is accepted, the previous one is not written any more.
    moved.log_on();
    let old = std::mem::replace(&mut moved.log, memory_file(LOG_OFFSET + LOG_SIZE + 4096).expect("a log"));
    moved.client.set_log_base(LOG_SIZE, LOG_OFFSET, moved.log.as_fd()).expect("another log");
    let new = std::mem::replace(&mut moved.log, old);
    moved.marked();
    deliver();
    moved.client.get_vring_base(0).expect("stopped");
    assert_eq!(moved.marked().len(), 0, "the old one");
    moved.log = new;
    assert!(!moved.marked().is_empty(), "the new one");
}

// Cites vhost-user-migration-6.
#[test]
fn a_log_that_cannot_hold_the_guest_is_refused() {
    let (rig, mut peer) = setting();
    // Too few bits, none, more than the file has, and sums that overflow (CVE-2020-10722).
    for (size, offset, words) in [
        (LOG_SIZE - 1, 0, "too few bits"),
        (1, 0, "too few bits"),
        (0, 0, "SET_LOG_BASE"),
        (LOG_SIZE, 8300, "but the file has"),
        (1 << 36, 0, "but the file has"),
        (1 << 40, 0, "SET_LOG_BASE"),
        (LOG_SIZE, u64::MAX - LOG_SIZE, "dirty log"),
        (LOG_SIZE, u64::MAX - 8, "SET_LOG_BASE"),
        (u64::MAX, u64::MAX, "SET_LOG_BASE"),
        (u64::MAX - 4095, 4096, "SET_LOG_BASE"),
    ] {
        let mut moved = Moved::new(&rig, false, true);
        moved.offer_buffers();
        moved.start(0);
        assert!(moved.client.set_log_base(size, offset, moved.log.as_fd()).is_err());
        rig.wait_down(0, words);
    }
    // A file that can vanish unnoticed.
    let mut moved = Moved::new(&rig, false, true);
    let (read, _write) = rustix::pipe::pipe().expect("a pipe");
    assert!(moved.client.set_log_base(8, 0, read.as_fd()).is_err());
    rig.wait_down(0, "dirty log");

    // More memory than the log has bits for, while it is in use: refused, and everything continues.
    let mut moved = Moved::new(&rig, false, true);
    moved.offer_buffers();
    moved.start(0);
    moved.start(1);
    moved.log_on();
    let beyond = RegionSpec { guest_addr: 0x1000_0000, size: 4096, user_addr: 0x1000, mmap_offset: 0 };
    let file = moved.file.try_clone().expect("a descriptor");
    let region = RegionRef { spec: beyond, fd: file.as_fd() };
    assert!(moved.client.add_mem_region(&region).is_err());
    send(&mut peer, &frame(mac(2), mac(1), 500, 1));
    wait_until("it is delivered", || rig.port(0).queues[0].tx.packets == 1);
    // With the log off, the memory may come; then the log is too short to be turned on.
    moved.log_off();
    moved.client.add_mem_region(&region).expect("memory");
    assert!(moved.client.set_features(moved.features | f::VHOST_F_LOG_ALL).is_err());
    send(&mut peer, &frame(mac(2), mac(1), 500, 2));
    wait_until("it is delivered", || rig.port(0).queues[0].tx.packets == 2);
}

#[test]
fn a_log_that_vanishes_stops_its_port_and_no_other() {
    let (rig, mut peer) = setting();
    let mut moved = Moved::new(&rig, false, true);
    moved.offer_buffers();
    moved.start(0);
    moved.start(1);
    moved.log_on();
    ftruncate(&moved.log, 0).expect("ftruncate");
    send(&mut peer, &frame(mac(2), mac(1), 500, 1));
    rig.wait_down(0, "dirty log");
    assert_eq!(rig.port(1).link, straightline_switch::api::Link::Up);
    drop(moved);
    let mut newcomer = rig.guest(0, &GuestOptions::default());
    assert!(peer.send(&NetHeader::default(), &frame(mac(2), mac(1), 500, 2)));
    peer.flush();
    take(&mut newcomer, 1);
}
