//! The frontend half on a socket, for embedded guests and for tests.
//!
//! Each method sends one request and waits for its answer, if there is one. With REPLY_ACK
//! negotiated, a failure of the backend is an error of the method. Without it, the next method may
//! find the connection closed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::features::VHOST_USER_F_PROTOCOL_FEATURES;

use super::frontend::{Call, Frontend, FrontendError, choose};
use super::message::{InflightSpec, LogSpec, Message, RegionSpec, TransferSpec, VRING_FLAG_LOG, VringAddr};
use super::request::Request;
use super::socket::{Connection, Stopper};

/// A blocking vhost-user frontend.
#[derive(Debug)]
pub struct FrontendClient {
    connection: Connection,
    frontend: Frontend,
}

/// The features that a handshake negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// The features that the backend offers and the caller asked for. They are not set yet: the
    /// driver has to choose first.
    pub features: u64,
    /// The protocol features that the handshake has set.
    pub protocol_features: u64,
}

/// A memory region and the file that it lies in.
#[derive(Debug, Clone, Copy)]
pub struct RegionRef<'a> {
    /// Addresses and size.
    pub spec: RegionSpec,
    /// The file.
    pub fd: BorrowedFd<'a>,
}

/// The addresses of the parts of a ring, in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingAddresses {
    /// Descriptor table; descriptor ring, if packed.
    pub desc: u64,
    /// Available ring; driver event suppression area, if packed.
    pub avail: u64,
    /// Used ring; device event suppression area, if packed.
    pub used: u64,
}

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket reported an error.
    #[error("vhost-user socket: {0}")]
    Io(#[from] io::Error),
    /// The backend closed the connection instead of answering.
    #[error("the backend closed the connection during {0}")]
    Closed(&'static str),
    /// The backend's answer is an error or malformed, or the request must not be made.
    #[error(transparent)]
    Protocol(#[from] FrontendError),
}

type Result<T> = std::result::Result<T, ClientError>;

impl FrontendClient {
    /// Connects to a listening backend.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self::from_stream(UnixStream::connect(path)?))
    }

    /// Creates a client on a connected stream, such as one from a listener to which the backend
    /// connects.
    pub fn from_stream(stream: UnixStream) -> Self {
        Self { connection: Connection::new(stream), frontend: Frontend::default() }
    }

    /// Sets how long a backend may take to answer; `None` waits for ever.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.connection.stream().set_read_timeout(timeout)?;
        self.connection.stream().set_write_timeout(timeout)
    }

    /// Returns a handle that ends the connection from another thread.
    pub fn stopper(&self) -> io::Result<Stopper> {
        self.connection.stopper()
    }

    /// Returns what is known about the backend.
    pub fn frontend(&self) -> &Frontend {
        &self.frontend
    }

    /// Begins a session: reads the features, sets the protocol features, and takes ownership. The
    /// caller sets the returned features later, without those that the driver does not know.
    pub fn handshake(&mut self, features: u64, protocol_features: u64) -> Result<Negotiated> {
        let offered = self.get_features()?;
        let mut agreed = Negotiated { features: choose(offered, features), protocol_features: 0 };
        if offered & VHOST_USER_F_PROTOCOL_FEATURES != 0 {
            agreed.protocol_features = self.get_protocol_features()? & protocol_features;
            self.set_protocol_features(agreed.protocol_features)?;
        }
        self.set_owner()?;
        Ok(agreed)
    }

    /// GET_FEATURES.
    pub fn get_features(&mut self) -> Result<u64> {
        let offered = self.get(Request::GetFeatures)?;
        self.frontend.learn_features(offered);
        Ok(offered)
    }

    /// SET_FEATURES.
    pub fn set_features(&mut self, features: u64) -> Result<()> {
        let call = self.frontend.set_features(features)?;
        self.run(&call, &[])
    }

    /// GET_PROTOCOL_FEATURES.
    pub fn get_protocol_features(&mut self) -> Result<u64> {
        let offered = self.get(Request::GetProtocolFeatures)?;
        self.frontend.learn_protocol_features(offered);
        Ok(offered)
    }

    /// SET_PROTOCOL_FEATURES.
    pub fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let call = self.frontend.set_protocol_features(features)?;
        self.run(&call, &[])
    }

    /// SET_OWNER.
    pub fn set_owner(&mut self) -> Result<()> {
        self.set(Request::SetOwner, Vec::new(), &[])
    }

    /// GET_QUEUE_NUM. Backends of network devices count pairs, others rings. Our backend counts
    /// rings once CONFIG is acknowledged.
    pub fn get_queue_num(&mut self) -> Result<u64> {
        self.get(Request::GetQueueNum)
    }

    /// GET_MAX_MEM_SLOTS.
    pub fn get_max_mem_slots(&mut self) -> Result<u64> {
        self.get(Request::GetMaxMemSlots)
    }

    /// GET_CONFIG: `size` bytes from `offset`.
    pub fn get_config(&mut self, offset: u32, size: u16) -> Result<Vec<u8>> {
        let call = self.frontend.get_config(offset, size)?;
        self.run(&call, &[])
    }

    /// SET_MEM_TABLE: the complete table, at most eight regions.
    pub fn set_mem_table(&mut self, regions: &[RegionRef<'_>]) -> Result<()> {
        let specs: Vec<_> = regions.iter().map(|region| region.spec).collect();
        let fds: Vec<_> = regions.iter().map(|region| region.fd).collect();
        let call = self.frontend.set_mem_table(&specs)?;
        self.run(&call, &fds)
    }

    /// ADD_MEM_REG.
    pub fn add_mem_region(&mut self, region: &RegionRef<'_>) -> Result<()> {
        self.set(Request::AddMemReg, region.spec.encode_single(), &[region.fd])
    }

    /// REM_MEM_REG.
    pub fn remove_mem_region(&mut self, region: &RegionSpec) -> Result<()> {
        // Cites vhost-user-rem-mem-reg-3.
        self.set(Request::RemMemReg, region.encode_single(), &[])
    }

    /// SET_VRING_NUM.
    pub fn set_vring_num(&mut self, index: u16, size: u16) -> Result<()> {
        self.set_ring(Request::SetVringNum, index, u32::from(size))
    }

    /// SET_VRING_ADDR.
    pub fn set_vring_addr(&mut self, index: u16, addresses: RingAddresses) -> Result<()> {
        self.set_addresses(index, addresses, None)
    }

    /// SET_VRING_ADDR with the log's flag: `log` is the guest address of the used ring.
    pub fn set_vring_addr_logged(&mut self, index: u16, addresses: RingAddresses, log: u64) -> Result<()> {
        self.set_addresses(index, addresses, Some(log))
    }

    fn set_addresses(&mut self, index: u16, addresses: RingAddresses, log: Option<u64>) -> Result<()> {
        let RingAddresses { desc, avail, used } = addresses;
        let flags = if log.is_some() { VRING_FLAG_LOG } else { 0 };
        let addr = VringAddr { index: u32::from(index), flags, desc, used, avail, log: log.unwrap_or(0) };
        let call = self.frontend.set_vring_addr(addr)?;
        self.run(&call, &[])
    }

    /// SET_LOG_BASE: `size` bytes at `offset` of a shared file, one bit for each 4096 bytes of
    /// guest memory.
    pub fn set_log_base(&mut self, size: u64, offset: u64, file: BorrowedFd<'_>) -> Result<()> {
        let call = self.frontend.set_log_base(LogSpec { size, offset })?;
        self.run(&call, &[file])
    }

    /// SET_LOG_FD.
    pub fn set_log_fd(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        self.set(Request::SetLogFd, Vec::new(), &[fd])
    }

    /// SET_VRING_BASE, in the form of [`RingSetup::base`](super::RingSetup::base).
    pub fn set_vring_base(&mut self, index: u16, base: u32) -> Result<()> {
        self.set_ring(Request::SetVringBase, index, base)
    }

    /// GET_VRING_BASE: stops the ring and returns its position.
    pub fn get_vring_base(&mut self, index: u16) -> Result<u32> {
        let call = self.frontend.get_vring_base(u32::from(index))?;
        self.run(&call, &[])
    }

    /// SET_VRING_ENABLE.
    pub fn set_vring_enable(&mut self, index: u16, enabled: bool) -> Result<()> {
        self.set_ring(Request::SetVringEnable, index, u32::from(enabled))
    }

    /// SET_VRING_KICK; with `None` the backend has to poll.
    pub fn set_vring_kick(&mut self, index: u16, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        self.set_ring_fd(Request::SetVringKick, index, fd)
    }

    /// SET_VRING_CALL; `None` means that this side polls.
    pub fn set_vring_call(&mut self, index: u16, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        self.set_ring_fd(Request::SetVringCall, index, fd)
    }

    /// SET_VRING_ERR; `None` means that this side ignores errors.
    pub fn set_vring_err(&mut self, index: u16, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        self.set_ring_fd(Request::SetVringErr, index, fd)
    }

    /// GET_INFLIGHT_FD: returns an in-flight table for `queues` rings, to keep while the backend is
    /// away, or `None` if the backend makes none.
    pub fn get_inflight_fd(&mut self, queues: u16, queue_size: u16) -> Result<Option<(InflightSpec, OwnedFd)>> {
        let call = self.frontend.get_inflight_fd(queues, queue_size)?;
        self.connection.send(&call.message.to_bytes(), &[])?;
        let (reply, mut fds) = self.connection.recv()?.ok_or(ClientError::Closed(call.name()))?;
        let spec = call.answer(&reply, fds.len())?;
        Ok(fds.pop().filter(|_| spec.mmap_size > 0).map(|fd| (spec, fd)))
    }

    /// SET_INFLIGHT_FD: lets the backend continue from this table.
    pub fn set_inflight_fd(&mut self, spec: InflightSpec, fd: BorrowedFd<'_>) -> Result<()> {
        let call = self.frontend.set_inflight_fd(spec)?;
        self.run(&call, &[fd])
    }

    /// SET_DEVICE_STATE_FD: the backend saves its device's state to this channel, or loads it from
    /// there (`load`). A returned channel is the backend's own, and must be used instead.
    pub fn set_device_state_fd(&mut self, load: bool, channel: BorrowedFd<'_>) -> Result<Option<OwnedFd>> {
        let call = self.frontend.set_device_state_fd(TransferSpec { direction: u32::from(load), phase: 0 })?;
        self.connection.send(&call.message.to_bytes(), &[channel])?;
        let (reply, mut fds) = self.connection.recv()?.ok_or(ClientError::Closed(call.name()))?;
        let own = call.answer(&reply, fds.len())?;
        Ok(fds.pop().filter(|_| own))
    }

    /// CHECK_DEVICE_STATE: succeeds if the complete state was written, or was read and accepted.
    pub fn check_device_state(&mut self) -> Result<()> {
        let call = self.frontend.check_device_state()?;
        self.run(&call, &[])
    }

    /// Returns the state of the backend's device, whose rings must be stopped, read through a pipe.
    pub fn save_state(&mut self) -> Result<Vec<u8>> {
        let (mut reader, writer) = io::pipe()?;
        let own = self.set_device_state_fd(false, writer.as_fd())?;
        drop(writer);
        let mut state = Vec::new();
        // Cites vhost-user-device-state-fd-3, vhost-user-migrating-1.
        match own {
            Some(own) => File::from(own).read_to_end(&mut state)?,
            None => reader.read_to_end(&mut state)?,
        };
        self.check_device_state()?;
        Ok(state)
    }

    /// Loads this state, through a pipe, into the backend's device, whose rings must be stopped.
    /// The call blocks while the backend does not read.
    pub fn load_state(&mut self, state: &[u8]) -> Result<()> {
        let (reader, mut writer) = io::pipe()?;
        let own = self.set_device_state_fd(true, reader.as_fd())?;
        drop(reader);
        // Cites vhost-user-device-state-fd-3.
        match own {
            Some(own) => File::from(own).write_all(state)?,
            None => writer.write_all(state)?,
        }
        // Cites vhost-user-migrating-1.
        drop(writer);
        self.check_device_state()
    }

    /// SET_BACKEND_REQ_FD: a socket for the backend's own requests.
    pub fn set_backend_channel(&mut self, socket: BorrowedFd<'_>) -> Result<()> {
        self.set(Request::SetBackendReqFd, Vec::new(), &[socket])
    }

    /// GET_STATUS.
    pub fn get_status(&mut self) -> Result<u64> {
        self.get(Request::GetStatus)
    }

    /// SET_STATUS.
    pub fn set_status(&mut self, status: u8) -> Result<()> {
        self.set(Request::SetStatus, u64::from(status).to_ne_bytes().to_vec(), &[])
    }

    /// NET_SET_MTU.
    pub fn set_mtu(&mut self, mtu: u16) -> Result<()> {
        self.set(Request::NetSetMtu, u64::from(mtu).to_ne_bytes().to_vec(), &[])
    }

    /// SEND_RARP.
    pub fn send_rarp(&mut self, mac: [u8; 6]) -> Result<()> {
        self.set(Request::SendRarp, [&mac[..], &[0, 0]].concat(), &[])
    }

    /// RESET_DEVICE.
    pub fn reset_device(&mut self) -> Result<()> {
        self.set(Request::ResetDevice, Vec::new(), &[])
    }

    /// Sends any message unchanged and waits for nothing. Tests send invalid messages with it.
    pub fn send_raw(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.connection.send(&message.to_bytes(), fds)
    }

    /// Receives any message unchanged; `None` if the backend has closed.
    pub fn recv_raw(&self) -> io::Result<Option<Message>> {
        Ok(self.connection.recv()?.map(|(message, _fds)| message))
    }

    fn get(&mut self, request: Request) -> Result<u64> {
        let call = self.frontend.ask(request)?;
        self.run(&call, &[])
    }

    fn set(&mut self, request: Request, payload: Vec<u8>, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let call = self.frontend.call(request, payload)?;
        self.run(&call, fds)
    }

    fn set_ring(&mut self, request: Request, index: u16, num: u32) -> Result<()> {
        let call = self.frontend.set_ring(request, u32::from(index), num)?;
        self.run(&call, &[])
    }

    fn set_ring_fd(&mut self, request: Request, index: u16, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        let call = self.frontend.set_ring_fd(request, u32::from(index), fd.is_some())?;
        self.run(&call, fd.as_slice())
    }

    /// Sends a request and waits for its answer, if it has one.
    fn run<T: Default>(&mut self, call: &Call<T>, fds: &[BorrowedFd<'_>]) -> Result<T> {
        self.connection.send(&call.message.to_bytes(), fds)?;
        if !call.is_answered() {
            return Ok(T::default());
        }
        let (reply, fds) = self.connection.recv()?.ok_or(ClientError::Closed(call.name()))?;
        Ok(call.answer(&reply, fds.len())?)
    }
}

impl AsFd for FrontendClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
