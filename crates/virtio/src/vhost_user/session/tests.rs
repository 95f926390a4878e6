use super::*;
use crate::features::*;
use crate::vhost_user::message::{
    ConfigAccess, FLAG_NEED_REPLY, FLAG_REPLY, HEADER_LEN, Header, LogSpec, TransferSpec, VRING_NOFD, VringAddr,
    decode_u64,
};

mod any;
mod log;
mod memory;
mod messages;
mod negotiation;
mod rings;

const FEATURES: u64 = VIRTIO_F_VERSION_1 | VIRTIO_NET_F_CSUM | VIRTIO_F_RING_PACKED | VIRTIO_NET_F_MTU;

fn offer() -> Offer {
    Offer {
        features: FEATURES,
        protocol_features: u64::MAX,
        queue_pairs: 2,
        max_mem_slots: 16,
        config: NetConfig { mac: [2, 0, 0, 0, 0, 9], status: 1, max_virtqueue_pairs: 2, mtu: 9000 },
    }
}

/// Returns a session whose frontend acknowledged everything but the packed ring.
fn negotiated() -> Session {
    let mut session = Session::new(offer());
    let features = session.offered_features() & !VIRTIO_F_RING_PACKED;
    ok(&mut session, Request::SetProtocolFeatures, u64_payload(SUPPORTED_PROTOCOL_FEATURES));
    ok(&mut session, Request::SetFeatures, u64_payload(features));
    session
}

/// Returns such a session with memory, in which ring `index` runs.
fn running(index: u32) -> Session {
    let mut session = negotiated();
    ok_fds(&mut session, Request::SetMemTable, table(&[region(0)]), 1);
    start(&mut session, index);
    assert!(session.ready(u16::try_from(index).unwrap()));
    session
}

fn start(session: &mut Session, index: u32) {
    ok(session, Request::SetVringNum, state(index, 256));
    ok(session, Request::SetVringBase, state(index, 7));
    ok(session, Request::SetVringAddr, addr(index));
    ok_fds(session, Request::SetVringKick, u64_payload(index.into()), 1);
}

fn fd() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
}

fn u64_payload(number: u64) -> Vec<u8> {
    number.to_ne_bytes().to_vec()
}

fn state(index: u32, num: u32) -> Vec<u8> {
    VringState { index, num }.encode()
}

fn addr(index: u32) -> Vec<u8> {
    VringAddr { index, flags: 0, desc: 0x7000_0000, avail: 0x7000_1000, used: 0x7000_2000, log: 0 }.encode()
}

/// Returns the `n`th region of 1 MiB.
fn region(n: u64) -> RegionSpec {
    let at = n << 20;
    RegionSpec { guest_addr: at, size: 1 << 20, user_addr: 0x7000_0000 + at, mmap_offset: at }
}

fn table(regions: &[RegionSpec]) -> Vec<u8> {
    RegionSpec::encode_table(regions)
}

fn handle(session: &mut Session, request: Request, payload: Vec<u8>, fds: usize) -> Result<Effect, ProtocolError> {
    let message = Message::request(request, payload).with_need_reply();
    session.handle(message, (0..fds).map(|_| fd()).collect())
}

#[track_caller]
fn ok(session: &mut Session, request: Request, payload: Vec<u8>) -> Effect {
    ok_fds(session, request, payload, 0)
}

#[track_caller]
fn ok_fds(session: &mut Session, request: Request, payload: Vec<u8>, fds: usize) -> Effect {
    let effect = handle(session, request, payload, fds).unwrap();
    session.reply(RequestOutcome::Done);
    effect
}

/// Returns the error of a message, after a check that it left the session unchanged.
#[track_caller]
fn error(session: &mut Session, request: Request, payload: Vec<u8>, fds: usize) -> ProtocolError {
    let before = picture(session);
    let error = handle(session, request, payload, fds).unwrap_err();
    assert_eq!(picture(session), before, "{error}");
    error
}

/// Returns everything that can be observed of a session's state.
fn picture(session: &Session) -> String {
    let Session { acked_features, acked_protocol_features, status, mtu, rings, regions, .. } = session;
    format!("{acked_features:?} {acked_protocol_features} {status} {mtu:?} {rings:?} {regions:?}")
}

/// Returns the payload of an answer.
#[track_caller]
fn answer(session: &mut Session, request: Request, outcome: RequestOutcome) -> Vec<u8> {
    let bytes = session.reply(outcome).unwrap();
    let header = Header::decode(bytes.first_chunk().unwrap());
    assert_eq!((header.request, header.flags), (request.code(), VERSION | FLAG_REPLY));
    assert_eq!(header.size as usize, bytes.len() - HEADER_LEN);
    assert_eq!(session.reply(outcome), None, "a message is answered once");
    bytes[HEADER_LEN..].to_vec()
}

#[track_caller]
fn get(session: &mut Session, request: Request) -> u64 {
    assert!(matches!(handle(session, request, Vec::new(), 0), Ok(Effect::None)));
    decode_u64(&answer(session, request, RequestOutcome::Done)).unwrap()
}
