//! A guest without a VM: memory, queue pairs, and a driver that polls them.
//!
//! | file | holds |
//! |---|---|
//! | `options` | options of a guest, and its memory file |
//! | `pair`, `half`, `driver` | a queue pair; one ring with its eventfds and buffers; the driver half of either layout |
//! | `send`, `receive` | the driver's work: frames into the transmit ring, frames out of the receive ring |
//! | `raw` | direct writes of descriptors and indexes, for tests |

pub(crate) mod driver;
pub(crate) mod half;
pub(crate) mod options;
mod pair;
mod raw;
mod receive;
mod send;

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use straightline_virtio::features as f;
use straightline_virtio::memory::{GuestMemory, Region};
use straightline_virtio::net_header::LEN as HEADER;
use straightline_virtio::vhost_user::{
    FrontendClient, InflightSpec, RegionRef, RegionSpec, SUPPORTED_PROTOCOL_FEATURES,
};

pub use options::{GuestOptions, MemoryPlacement, memory_file};
pub use pair::{Pair, Ring};
pub use raw::PackedDescriptor;

/// The address of the guest's memory, both in the guest's and in the frontend's address space. For
/// simplicity, the number is the same.
pub(crate) const BASE: u64 = 0x1000_0000;

/// Length of the virtio-net header in guest memory.
pub const HEADER_LEN: u32 = 12;
const _: () = assert!(HEADER == 12);

/// Device status (virtio 1.2, 2.1): ACKNOWLEDGE, DRIVER and FEATURES_OK; and the same with
/// DRIVER_OK.
const AGREED: u8 = 1 | 2 | 8;
pub(crate) const GOING: u8 = AGREED | 4;

/// A connected guest.
///
/// A guest dereferences to its first queue pair. There is only this one unless
/// [`GuestOptions::queue_pairs`] sets more; [`Guest::pairs`] returns all.
#[derive(Debug)]
pub struct Guest {
    client: FrontendClient,
    memory: Arc<GuestMemory>,
    file: Arc<OwnedFd>,
    features: u64,
    protocol_features: u64,
    patience: Duration,
    pairs: Vec<Pair>,
    /// The table of buffers in flight, kept for the next backend.
    inflight: Option<(InflightSpec, OwnedFd)>,
}

impl Deref for Guest {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        &self.pairs[0]
    }
}

impl DerefMut for Guest {
    fn deref_mut(&mut self) -> &mut Pair {
        &mut self.pairs[0]
    }
}

pub(crate) fn connect(socket: &Path, patience: Duration) -> anyhow::Result<FrontendClient> {
    let stream = stream(socket, patience).with_context(|| format!("{}", socket.display()))?;
    let client = FrontendClient::from_stream(stream);
    client.set_timeout(Some(patience))?;
    Ok(client)
}

/// Connects with a time-out. If a stopped backend's queue of connections is full, std's `connect`
/// would wait forever. A time-out for sending applies to connecting too (socket(7), unix(7)).
fn stream(socket: &Path, patience: Duration) -> anyhow::Result<UnixStream> {
    let stream = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&stream, Timeout::Send, Some(patience))?;
    match net::connect(&stream, &SocketAddrUnix::new(socket)?) {
        Err(Errno::AGAIN) => bail!("the backend accepted no connection within {} s", patience.as_secs_f64()),
        connected => connected?,
    }
    Ok(stream.into())
}

fn accept(listener: &UnixListener, patience: Duration) -> anyhow::Result<FrontendClient> {
    let limit = Timespec::try_from(patience).context("unlimited patience")?;
    if poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&limit))? == 0 {
        bail!("no backend has connected within {} s", patience.as_secs());
    }
    let client = FrontendClient::from_stream(listener.accept()?.0);
    client.set_timeout(Some(patience))?;
    Ok(client)
}

impl Guest {
    /// Connects to the backend that listens at `socket`, negotiates features, gives the backend all
    /// receive buffers, and starts all rings.
    ///
    /// # Errors
    /// A resource is not available, or the backend refused something.
    pub fn connect(socket: &Path, options: &GuestOptions) -> anyhow::Result<Guest> {
        let mut guest = Guest::prepare(socket, options)?;
        guest.start()?;
        Ok(guest)
    }

    /// Makes a guest as [`Self::connect`] does, with exchanged roles: the guest listens and accepts
    /// the next backend that connects.
    ///
    /// # Errors
    /// A resource is not available, or the backend refused something.
    pub fn accept(listener: &UnixListener, options: &GuestOptions) -> anyhow::Result<Guest> {
        let mut guest = Guest::negotiate(accept(listener, options.patience)?, options)?;
        guest.start()?;
        Ok(guest)
    }

    /// Connects and negotiates features as [`Self::connect`] does, but does not tell the backend of
    /// memory and rings. [`Self::start`] does that.
    ///
    /// # Errors
    /// A resource is not available, or the backend refused something.
    pub fn prepare(socket: &Path, options: &GuestOptions) -> anyhow::Result<Guest> {
        Guest::negotiate(connect(socket, options.patience)?, options)
    }

    fn negotiate(mut client: FrontendClient, options: &GuestOptions) -> anyhow::Result<Guest> {
        options.check()?;
        let (features, protocol_features) = handshake(&mut client, options.wanted(), options.queue_pairs)?;
        let (file, offset) = match &options.place {
            Some(place) => (Arc::clone(&place.file), place.offset),
            None => (Arc::new(memory_file(options.memory_len())?), 0),
        };
        let len = u64::try_from(fstat(&file)?.st_size)?;
        let region = Region::map(file.as_fd(), 0, len, BASE, BASE)?;
        let memory = Arc::new(GuestMemory::new(vec![Arc::new(region)]).context("guest memory overlaps itself")?);
        let pair = |number: u16| {
            let place = BASE + offset + u64::from(number) * options.pair_len();
            Pair::new(&memory, number, place, options, features)
        };
        let pairs = (0..options.queue_pairs).map(pair).collect::<anyhow::Result<Vec<_>>>()?;
        let patience = options.patience;
        let inflight = None;
        let mut guest = Guest { client, memory, file, features, protocol_features, patience, pairs, inflight };
        if options.keep_inflight {
            let rings = 2 * options.queue_pairs;
            guest.inflight = Some(guest.client.get_inflight_fd(rings, options.ring_size)?.context("no table is made")?);
        }
        Ok(guest)
    }

    /// Tells the backend of memory and rings, enables all rings, and gives the backend the receive
    /// buffers.
    ///
    /// # Errors
    /// The backend refused something.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.go_on()?;
        for pair in &mut self.pairs {
            if !pair.inbox.withhold {
                pair.give(usize::MAX);
            }
        }
        Ok(())
    }

    /// Sends SET_MEM_TABLE with the guest's one region. If it is sent again, the backend maps the
    /// memory again.
    ///
    /// # Errors
    /// The backend refused it.
    pub fn share_memory(&mut self) -> anyhow::Result<()> {
        let size = self.memory.regions().first().map_or(0, |region| region.size());
        let spec = RegionSpec { guest_addr: BASE, size, user_addr: BASE, mmap_offset: 0 };
        self.client.set_mem_table(&[RegionRef { spec, fd: self.file.as_fd() }])?;
        Ok(())
    }

    /// Stops all rings. Returns their positions: for each pair, the position of the receive ring
    /// and then of the transmit ring.
    ///
    /// # Errors
    /// The backend refused it.
    pub fn stop(&mut self) -> anyhow::Result<Vec<[u32; 2]>> {
        let Guest { client, pairs, .. } = self;
        let stop =
            |pair: &Pair| Ok([client.get_vring_base(pair.receive.index)?, client.get_vring_base(pair.transmit.index)?]);
        pairs.iter().map(stop).collect()
    }

    /// Restarts all rings from the positions that [`Self::stop`] returned.
    ///
    /// # Errors
    /// The backend refused it.
    pub fn resume(&mut self, bases: &[[u32; 2]]) -> anyhow::Result<()> {
        ensure!(bases.len() == self.pairs.len(), "there are {} queue pairs, not {}", self.pairs.len(), bases.len());
        for (pair, &[receive, transmit]) in self.pairs.iter_mut().zip(bases) {
            pair.receive.start(&mut self.client, receive)?;
            pair.transmit.start(&mut self.client, transmit)?;
        }
        self.enable(usize::MAX)
    }

    /// Enables the first `count` queue pairs and disables the others. A frontend does this when its
    /// driver sets the number of pairs through the control queue.
    ///
    /// # Errors
    /// The backend refused it.
    pub fn enable(&mut self, count: usize) -> anyhow::Result<()> {
        for (number, pair) in self.pairs.iter().enumerate() {
            for half in [&pair.receive, &pair.transmit] {
                self.client.set_vring_enable(half.index, number < count)?;
            }
        }
        Ok(())
    }

    /// Connects again with memory and rings as they are, like a frontend whose backend went away.
    /// Buffers that the old backend had not used are still available.
    ///
    /// # Errors
    /// The backend refused something.
    pub fn reconnect(&mut self, socket: &Path) -> anyhow::Result<()> {
        self.join(connect(socket, self.patience)?)
    }

    /// Connects again as [`Self::reconnect`] does, for a guest that listens.
    ///
    /// # Errors
    /// The backend refused something.
    pub fn accept_again(&mut self, listener: &UnixListener) -> anyhow::Result<()> {
        self.join(accept(listener, self.patience)?)
    }

    fn join(&mut self, client: FrontendClient) -> anyhow::Result<()> {
        self.client = client;
        let pairs = u16::try_from(self.pairs.len())?;
        let (features, protocol_features) = handshake(&mut self.client, self.features, pairs)?;
        ensure!(features == self.features, "the backend offers other features than before");
        self.protocol_features = protocol_features;
        self.go_on()
    }

    /// Tells the backend of the memory, and starts all rings behind the used buffers.
    fn go_on(&mut self) -> anyhow::Result<()> {
        self.share_memory()?;
        if let Some((spec, file)) = &self.inflight {
            self.client.set_inflight_fd(*spec, file.as_fd())?;
        }
        let base = |pair: &Pair| [pair.receive.driver.base(), pair.transmit.driver.base()];
        let bases: Vec<_> = self.pairs.iter().map(base).collect();
        self.resume(&bases)?;
        if self.protocol_features & f::VHOST_USER_PROTOCOL_F_STATUS != 0 {
            // Some backends start only after this message.
            self.client.set_status(GOING)?;
        }
        Ok(())
    }

    /// Returns the guest's queue pairs.
    pub fn pairs(&mut self) -> &mut [Pair] {
        &mut self.pairs
    }

    /// Returns the negotiated features.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns the vhost-user client, for rare operations: disabling a ring, setting other
    /// addresses, queries.
    pub fn client(&mut self) -> &mut FrontendClient {
        &mut self.client
    }

    /// Returns the memory file, for tests that take it away.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }
}

/// Negotiates features. Returns the virtio features and the protocol features.
pub(crate) fn handshake(client: &mut FrontendClient, wanted: u64, pairs: u16) -> anyhow::Result<(u64, u64)> {
    let agreed = client.handshake(wanted | f::VHOST_USER_F_PROTOCOL_FEATURES, SUPPORTED_PROTOCOL_FEATURES)?;
    if pairs > 1 {
        ensure!(agreed.features & f::VIRTIO_NET_F_MQ != 0, "the backend offers only one queue pair");
        // Some backends report the number of rings instead of pairs. With too few pairs they still
        // pass this check; setting up the rings then fails.
        let most = client.get_queue_num()?;
        // Cites vhost-user-multiple-queue-3.
        ensure!(most >= u64::from(pairs), "the backend offers {most} queue pairs, not {pairs}");
    }
    client.set_features(agreed.features)?;
    if agreed.protocol_features & f::VHOST_USER_PROTOCOL_F_STATUS != 0 {
        client.set_status(AGREED)?;
    }
    Ok((agreed.features, agreed.protocol_features))
}

#[cfg(test)]
mod tests {
    use rustix::net::{bind, listen, socket};

    use super::*;

    #[test]
    fn a_backend_that_takes_no_connection_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
        bind(&listener, &SocketAddrUnix::new(&path).expect("an address")).expect("a name");
        // The listener's queue holds one connection, and this connection fills it.
        listen(&listener, 0).expect("it listens");
        let _waits = connect(&path, Duration::from_secs(10)).expect("it waits");
        let error = connect(&path, Duration::from_millis(20)).expect_err("nobody takes it");
        assert!(format!("{error:#}").contains("/a: the backend accepted no connection within"), "{error:#}");
    }
}
