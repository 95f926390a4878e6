//! Fuzz target: a vhost-user frontend that sends anything: messages with 0 to 9 descriptors to the
//! session, and bytes to the connection's parser.
//!
//! Invariants:
//! - A refused message changes nothing.
//! - An answer is a reply to its message and is sent once.
//! - A ring that is ready lies in the table's memory.
//! - Acknowledged features were offered.
//! - A parsed message does not exceed its limits.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::reached;
use arbitrary::{Result, Unstructured};
use rustix::event::{EventfdFlags, eventfd};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::message::{
    FLAG_NEED_REPLY, FLAG_REPLY, HEADER_LEN, Header, VERSION, VringAddr, VringState,
};
use straightline_virtio::vhost_user::{
    Connection, Effect, MAX_FDS, MAX_PAYLOAD, Message, NetConfig, Offer, Refused, RegionSpec, RequestOutcome, Session,
    TransferSpec,
};

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let _ = match u.ratio(1, 8) {
        Ok(true) => parse(&mut u),
        _ => session(&mut u),
    };
}

const RAM: u64 = 1 << 20;
const USER: u64 = 0x7000_0000;

fn session(u: &mut Unstructured<'_>) -> Result<()> {
    let features = f::VIRTIO_F_VERSION_1 | f::VIRTIO_NET_F_CSUM | f::VIRTIO_F_RING_PACKED | f::VIRTIO_NET_F_MTU;
    let config = NetConfig { mac: [2, 0, 0, 0, 0, 9], status: 1, max_virtqueue_pairs: 2, mtu: 9000 };
    let offer = Offer { features, protocol_features: u64::MAX, queue_pairs: 2, max_mem_slots: 16, config };
    let mut session = Session::new(offer);
    for _ in 0..64 {
        if u.is_empty() {
            break;
        }
        let message = message(u, &session)?;
        let fds = match u.int_in_range(0..=7_u8)? {
            0..=2 => 0,
            3..=5 => 1,
            6 => 2,
            _ => u.int_in_range(0..=9)?,
        };
        let request = message.request;
        let before = observe(&session);
        match session.handle(message, (0..fds).map(|_| fd()).collect()) {
            Ok(effect) => {
                match &effect {
                    Effect::Memory(regions) if !regions.is_empty() => reached("a memory table"),
                    Effect::AddRegion(region) if region.size > 0 => reached("a region added"),
                    Effect::RemoveRegion(_) => reached("a region removed"),
                    Effect::StopRing(_) => reached("a ring stopped"),
                    Effect::Ring(index) if session.ready(*index) => reached("a ring that is ready"),
                    Effect::Reset => reached("a reset"),
                    Effect::SaveState(_) | Effect::LoadState(_) => reached("a device's state on its way"),
                    Effect::CheckState => reached("a device's state checked"),
                    _ => {}
                }
                let outcome = match u.int_in_range(0..=7_u8)? {
                    0 => RequestOutcome::Failed,
                    _ if matches!(effect, Effect::StopRing(_)) => RequestOutcome::RingBase(u.arbitrary()?),
                    _ => RequestOutcome::Done,
                };
                if let Some(bytes) = session.reply(outcome) {
                    let header = Header::decode(bytes.first_chunk().expect("a header"));
                    assert_eq!((header.request, header.flags), (request, VERSION | FLAG_REPLY));
                    assert_eq!(header.size as usize, bytes.len() - HEADER_LEN);
                    assert!(session.reply(outcome).is_none(), "a message is answered once");
                }
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                assert_eq!(observe(&session), before, "{error}");
                if session.refuse(&error) == Refused::Close {
                    reached("a connection to be closed");
                } else {
                    assert!(!error.fatal());
                    reached("a refusal that goes on");
                }
            }
        }
        check_invariants(&session);
    }
    Ok(())
}

fn fd() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd")
}

/// Returns everything that can be observed of a session's state.
fn observe(session: &Session) -> String {
    let rings: Vec<_> = (0..session.rings()).map(|index| format!("{:?}", session.ring(index))).collect();
    let acked = session.acked_features();
    let protocol = session.acked_protocol_features();
    format!("{acked:?} {protocol} {:?} {:?} {rings:?} {:?}", session.status(), session.mtu(), session.regions())
}

fn check_invariants(session: &Session) {
    assert_eq!(session.acked_features() & !session.offered_features(), 0);
    assert!(session.regions().len() <= 16);
    for (i, a) in session.regions().iter().enumerate() {
        assert!(
            a.size > 0 && a.guest_addr.checked_add(a.size).is_some() && a.mmap_offset.checked_add(a.size).is_some()
        );
        for b in &session.regions()[..i] {
            assert!(a.guest_addr >= b.guest_addr + b.size || b.guest_addr >= a.guest_addr + a.size, "regions overlap");
        }
    }
    for index in (0..session.rings()).filter(|&index| session.ready(index)) {
        let ring = session.ring(index).expect("it is ready");
        assert!(ring.size > 0 && ring.size <= 32768 && ring.is_started());
        for addr in [ring.desc, ring.avail, ring.used] {
            let inside = |r: &RegionSpec| r.user_addr <= addr && addr - r.user_addr < r.size;
            assert!(session.regions().iter().any(inside), "{addr:#x} is in no region");
        }
    }
}

/// Returns a message. In half of the calls it is a message that a frontend would send.
fn message(u: &mut Unstructured<'_>, session: &Session) -> Result<Message> {
    let region = |u: &mut Unstructured<'_>| -> Result<RegionSpec> {
        let at = u64::from(u.int_in_range(0..=5_u8)?) * RAM;
        Ok(if u.ratio(7, 8)? {
            RegionSpec { guest_addr: at, size: RAM, user_addr: USER + at, mmap_offset: at }
        } else {
            RegionSpec {
                guest_addr: u.arbitrary()?,
                size: u.arbitrary()?,
                user_addr: u.arbitrary()?,
                mmap_offset: u.arbitrary()?,
            }
        })
    };
    let index = u32::from(u.int_in_range(0..=4_u8)?);
    let ring = u64::from(index);
    // The numbers are listed under "Front-end message types".
    let (request, payload) = match u.int_in_range(0..=15_u8)? {
        0 => (2, session.offered_features().to_ne_bytes().to_vec()),
        // All offered features but one.
        1 => (16, (session.offered_protocol_features() & !(1 << u.int_in_range(0..=63)?)).to_ne_bytes().to_vec()),
        2 => (8, VringState { index, num: 1 << u.int_in_range(0..=16_u8)? }.encode()),
        3 => (10, VringState { index, num: u.arbitrary()? }.encode()),
        4 => {
            let at = USER + u64::from(u.arbitrary::<u16>()?) * 64;
            let addr = VringAddr { index, flags: 0, desc: at, avail: at + 0x1000, used: at + 0x2000, log: 0 };
            (9, addr.encode())
        }
        5 => (12, ring.to_ne_bytes().to_vec()),
        6 => (13, ring.to_ne_bytes().to_vec()),
        7 => (18, VringState { index, num: u.int_in_range(0..=2)? }.encode()),
        8 => (11, VringState { index, num: 0 }.encode()),
        9 => {
            let count = u.int_in_range(0..=3_u8)?;
            let regions = (0..count).map(|_| region(u)).collect::<Result<Vec<_>>>()?;
            (5, RegionSpec::encode_table(&regions))
        }
        10 => (37, region(u)?.encode_single()),
        11 => (38, region(u)?.encode_single()),
        13 if index == 0 => (43, Vec::new()),
        13 => (42, TransferSpec { direction: index - 1, phase: u32::from(u.ratio(1, 8)?) }.encode()),
        12 => (39, u64::from(u.arbitrary::<u8>()?).to_ne_bytes().to_vec()),
        _ => {
            let len = u.int_in_range(0..=64)?;
            (u.int_in_range(0..=60)?, u.bytes(len.min(u.len()))?.to_vec())
        }
    };
    let flags = match u.int_in_range(0..=9_u8)? {
        0 => u.arbitrary()?,
        1..=2 => VERSION,
        _ => VERSION | FLAG_NEED_REPLY,
    };
    Ok(Message { request, flags, payload })
}

/// Parses bytes that arrive in chunks of any size.
fn parse(u: &mut Unstructured<'_>) -> Result<()> {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let connection = Connection::new(ours);
    let mut chunks = Vec::new();
    while !u.is_empty() {
        let n = u.int_in_range(1..=64)?;
        chunks.push(u.bytes(n.min(u.len()))?);
    }
    // The writer is a thread of its own: some hundred chunks of one byte fill a socket's buffer.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A parser that refuses the message may close the connection before the message's end.
            let _ = chunks.into_iter().try_for_each(|chunk| theirs.write_all(chunk));
        });
        let connection = connection;
        while let Ok(Some((message, fds))) = connection.recv() {
            reached("a message that was parsed");
            assert!(message.payload.len() <= MAX_PAYLOAD && fds.len() <= MAX_FDS);
        }
    });
    Ok(())
}
