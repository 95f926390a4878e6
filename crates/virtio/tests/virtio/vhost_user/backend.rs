//! A backend in a thread for the tests: a [`Session`] on a [`Connection`], which records effects
//! instead of carrying them out.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use straightline_virtio::features::{
    VIRTIO_F_RING_PACKED, VIRTIO_F_VERSION_1, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_MAC, VIRTIO_NET_F_MQ, VIRTIO_NET_F_MTU,
};
use straightline_virtio::ring::{InflightFile, InflightShape, InflightTable};
use straightline_virtio::vhost_user::{
    Connection, Effect, NetConfig, Offer, Refused, RegionFd, RequestOutcome, SUPPORTED_PROTOCOL_FEATURES, Session,
};

/// The features offered in these tests.
pub(crate) const FEATURES: u64 = VIRTIO_F_VERSION_1
    | VIRTIO_F_RING_PACKED
    | VIRTIO_NET_F_CSUM
    | VIRTIO_NET_F_MAC
    | VIRTIO_NET_F_MQ
    | VIRTIO_NET_F_MTU;

/// The features offered in these tests.
pub(crate) fn offer() -> Offer {
    Offer {
        features: FEATURES,
        protocol_features: SUPPORTED_PROTOCOL_FEATURES,
        queue_pairs: 2,
        max_mem_slots: 32,
        config: NetConfig { mac: [2, 0, 0, 0, 0, 1], status: 1, max_virtqueue_pairs: 2, mtu: 1500 },
    }
}

/// The record of a backend until its frontend closed.
pub(crate) struct Seen {
    pub(crate) session: Session,
    pub(crate) effects: Vec<String>,
    /// The end of the session: `Ok` if the frontend closed.
    pub(crate) end: io::Result<()>,
}

/// Starts a backend; the other end of the stream is for a frontend.
pub(crate) fn spawn(stream: UnixStream) -> JoinHandle<Seen> {
    thread::spawn(move || {
        let mut seen = Seen { session: Session::new(offer()), effects: Vec::new(), end: Ok(()) };
        seen.end = serve(&Connection::new(stream), &mut seen);
        seen
    })
}

fn serve(connection: &Connection, seen: &mut Seen) -> io::Result<()> {
    while let Some((message, fds)) = connection.recv()? {
        let mut beside = None;
        let answer = match seen.session.handle(message, fds) {
            Ok(effect) => {
                let outcome = match effect {
                    Effect::MakeInflight(spec) => {
                        let shape = InflightShape { packed: false, queues: spec.queues, size: spec.queue_size };
                        let file = InflightFile::create(spec.queues).unwrap();
                        seen.effects.push(format!("make inflight {} {}", spec.queues, spec.queue_size));
                        beside = Some(file);
                        RequestOutcome::Inflight(shape.bytes())
                    }
                    effect => carry_out(effect, seen),
                };
                seen.session.reply(outcome)
            }
            Err(error) => match seen.session.refuse(&error) {
                Refused::Answer(bytes) => Some(bytes),
                Refused::Ignore => None,
                Refused::Close => return Err(io::Error::other(error)),
            },
        };
        if let Some(bytes) = answer {
            let beside = beside.as_ref().map(InflightFile::as_fd);
            connection.send(&bytes, beside.as_slice())?;
        }
    }
    Ok(())
}

/// Fails for a region whose file is shorter than the region, as mapping it would.
fn carry_out(effect: Effect, seen: &mut Seen) -> RequestOutcome {
    let fits = |region: &RegionFd| {
        let length = rustix::fs::fstat(&region.fd).unwrap().st_size;
        region.mmap_offset + region.size <= u64::try_from(length).unwrap()
    };
    let (text, worked) = match &effect {
        Effect::None => return RequestOutcome::Done,
        Effect::Memory(regions) => (format!("memory {}", regions.len()), regions.iter().all(fits)),
        Effect::AddRegion(region) => (format!("add {:#x}", region.guest_addr), fits(region)),
        Effect::KeepInflight(spec, file) => {
            let shape = InflightShape { packed: false, queues: spec.queues, size: spec.queue_size };
            let table = InflightTable::map(shape, spec.mmap_offset, spec.mmap_size, file.as_fd());
            (format!("keep inflight {} {}", spec.queues, spec.queue_size), table.is_ok())
        }
        Effect::RemoveRegion(region) => (format!("remove {:#x}", region.guest_addr), true),
        Effect::Ring(index) => {
            let ready = if seen.session.ready(*index) { " ready" } else { "" };
            (format!("ring {index}{ready}"), true)
        }
        Effect::StopRing(index) => {
            seen.effects.push(format!("stop {index}"));
            return RequestOutcome::RingBase(100 + u32::from(*index));
        }
        other => (format!("{other:?}"), true),
    };
    seen.effects.push(text);
    if worked { RequestOutcome::Done } else { RequestOutcome::Failed }
}
