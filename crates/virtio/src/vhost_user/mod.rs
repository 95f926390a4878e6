//! The vhost-user protocol, by which a frontend (a VMM) hands a guest's rings and memory to a
//! backend (this process).
//!
//! The specification is QEMU's `docs/interop/vhost-user.rst`; sections are cited by their titles.
//! The protocol itself does no I/O: a message goes in, the state changes, and an effect comes out.
//!
//! | file | holds |
//! |---|---|
//! | `request` | the codes and names of all requests, and what must be negotiated for each |
//! | `message` | header and payloads: bytes to values and back |
//! | `session` | the backend half: [`Session`], the state that the frontend has set up; `session/requests` has the effect of each request |
//! | `regions` | the memory table's rules (no mapping) |
//! | `ring` | the set-up of one ring (no memory of the guest) |
//! | `config` | the configuration space of a virtio-net device |
//! | `error` | all errors that a frontend can cause |
//! | `frontend` | the frontend half: requests, and the form of their answers |
//! | `socket` | [`Connection`]: messages and file descriptors over a Unix socket |
//! | `client` | [`FrontendClient`]: the frontend half on a socket, for embedded guests and tests |
//!
//! The protocol does not know how memory is mapped or how rings are read, and it knows neither
//! threads nor reconnection.
//!
//! This is a backend's loop (see [`Session`] for the rules of each step):
//!
//! ```
//! use straightline_virtio::features::{VIRTIO_F_VERSION_1, VIRTIO_NET_F_CSUM};
//! use straightline_virtio::vhost_user::{
//!     Connection, Effect, FrontendClient, NetConfig, Offer, RequestOutcome, Refused, SUPPORTED_PROTOCOL_FEATURES, Session,
//! };
//!
//! fn serve(connection: &Connection, session: &mut Session) -> std::io::Result<()> {
//!     while let Some((message, fds)) = connection.recv()? {
//!         let answer = match session.handle(message, fds) {
//!             // A real backend carries the effect out here: it maps memory, starts and stops rings.
//!             Ok(Effect::StopRing(_)) => session.reply(RequestOutcome::RingBase(0)),
//!             Ok(_) => session.reply(RequestOutcome::Done),
//!             Err(error) => match session.refuse(&error) {
//!                 Refused::Answer(bytes) => Some(bytes),
//!                 Refused::Ignore => None,
//!                 Refused::Close => return Err(std::io::Error::other(error)),
//!             },
//!         };
//!         if let Some(bytes) = answer {
//!             connection.send(&bytes, &[])?;
//!         }
//!     }
//!     Ok(())
//! }
//!
//! let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
//! let backend = std::thread::spawn(move || {
//!     let mut session = Session::new(Offer {
//!         features: VIRTIO_F_VERSION_1 | VIRTIO_NET_F_CSUM,
//!         protocol_features: SUPPORTED_PROTOCOL_FEATURES,
//!         queue_pairs: 1,
//!         max_mem_slots: 32,
//!         config: NetConfig { mtu: 1500, ..NetConfig::default() },
//!     });
//!     serve(&Connection::new(ours), &mut session)
//! });
//! let mut frontend = FrontendClient::from_stream(theirs);
//! let negotiated = frontend.handshake(u64::MAX, u64::MAX)?;
//! assert_ne!(negotiated.features & VIRTIO_NET_F_CSUM, 0);
//! assert_eq!(frontend.get_config(10, 2)?, 1500_u16.to_le_bytes());
//! drop(frontend);
//! backend.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod client;
mod config;
mod error;
pub mod frontend;
pub mod message;
mod regions;
mod request;
mod ring;
mod session;
mod socket;

pub use client::{ClientError, FrontendClient, Negotiated, RegionRef, RingAddresses};
pub use config::NetConfig;
pub use error::{ProtocolError, Refusal, RequiredFeature};
pub use frontend::{Frontend, FrontendError};
pub use message::{InflightSpec, LogSpec, MAX_FDS, MAX_PAYLOAD, Message, RegionSpec, TransferSpec};
pub use request::{Request, Requirement};
pub use ring::RingSetup;
pub use session::{
    Effect, LogFd, MAX_QUEUE_PAIRS, Offer, Refused, RegionFd, RequestOutcome, SUPPORTED_PROTOCOL_FEATURES, Session,
};
pub use socket::{Connection, Stopper};
