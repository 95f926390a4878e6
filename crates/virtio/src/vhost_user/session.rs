//! The backend half: what a frontend set up so far, one message at a time.
//!
//! For each message the caller does three things, in this order:
//! 1. [`Session::handle`] checks the message, changes the state and says which effect it has;
//! 2. the caller carries the effect out: maps memory, starts and stops rings between two turns of its workers;
//! 3. [`Session::reply`] tells the session how that went and gives the bytes to send, if any.
//!
//! A frontend may wait for step 3, and frees what it took back as soon as it has the answer: an effect must be over,
//! not begun, when the answer goes out. A message that `handle` refuses has changed nothing; [`Session::refuse`] then
//! says whether there is an answer or the connection must close.

use std::os::fd::OwnedFd;

use crate::features::{
    VHOST_F_LOG_ALL, VHOST_USER_F_PROTOCOL_FEATURES, VHOST_USER_PROTOCOL_F_BACKEND_REQ, VHOST_USER_PROTOCOL_F_CONFIG,
    VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS, VHOST_USER_PROTOCOL_F_DEVICE_STATE,
    VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD, VHOST_USER_PROTOCOL_F_LOG_SHMFD, VHOST_USER_PROTOCOL_F_MQ,
    VHOST_USER_PROTOCOL_F_NET_MTU, VHOST_USER_PROTOCOL_F_RARP, VHOST_USER_PROTOCOL_F_REPLY_ACK,
    VHOST_USER_PROTOCOL_F_RESET_DEVICE, VHOST_USER_PROTOCOL_F_STATUS, VIRTIO_F_ACCESS_PLATFORM, VIRTIO_F_RING_PACKED,
    VIRTIO_F_VERSION_1, VIRTIO_NET_F_CTRL_VQ, VIRTIO_NET_F_MAC, VIRTIO_NET_F_MQ,
};

use super::config::NetConfig;
use super::error::{ProtocolError, Refusal, RequiredFeature};
use super::message::{BACKEND_CONFIG_CHANGE, InflightSpec, Message, RegionSpec, STATE_NOFD, VERSION, VringState};
use super::regions;
use super::request::{Request, Requirement};
use super::ring::RingSetup;

mod effect;
mod requests;
#[cfg(test)]
mod tests;

pub use effect::{Effect, LogFd, Outcome, Refused, RegionFd};

/// Most queue pairs: a kick descriptor's message has eight bits for the ring ("SET_VRING_KICK").
pub const MAX_QUEUE_PAIRS: u16 = 127;

/// The protocol features that a session can keep; what else an offer names is left out.
///
/// Of the backend's channel User Mode Linux has its interrupts; no driver of it starts without.
pub const SUPPORTED_PROTOCOL_FEATURES: u64 = VHOST_USER_PROTOCOL_F_MQ
    | VHOST_USER_PROTOCOL_F_LOG_SHMFD
    | VHOST_USER_PROTOCOL_F_BACKEND_REQ
    | VHOST_USER_PROTOCOL_F_RARP
    | VHOST_USER_PROTOCOL_F_REPLY_ACK
    | VHOST_USER_PROTOCOL_F_NET_MTU
    | VHOST_USER_PROTOCOL_F_CONFIG
    | VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD
    | VHOST_USER_PROTOCOL_F_RESET_DEVICE
    | VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS
    | VHOST_USER_PROTOCOL_F_STATUS
    | VHOST_USER_PROTOCOL_F_DEVICE_STATE;

/// What a device offers to its frontend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// virtio features. Protocol features are added to them if there are any; the dirty log is left out where it
    /// cannot be a shared file, since nobody could read it.
    pub features: u64,
    /// vhost-user protocol features, of which [`SUPPORTED_PROTOCOL_FEATURES`] are offered.
    pub protocol_features: u64,
    /// Most queue pairs that a frontend may start, 1 to [`MAX_QUEUE_PAIRS`]. There are two rings for each, and one more
    /// if `VIRTIO_NET_F_CTRL_VQ` is offered. A frontend that follows the configuration space has the pairs named there.
    pub queue_pairs: u16,
    /// Most memory regions, 1 to 512. A frontend that does not ask for the number sends up to eight.
    pub max_mem_slots: u64,
    /// The configuration space.
    pub config: NetConfig,
}

/// One frontend's session, from its connection to its end.
#[derive(Debug)]
pub struct Session {
    offer: Offer,
    acked_features: Option<u64>,
    acked_protocol_features: u64,
    status: u8,
    mtu: Option<u16>,
    rings: Vec<RingSetup>,
    regions: Vec<RegionSpec>,
    /// Regions that were added again, once for each time: QEMU 7.2 adds each one for every queue pair, and removes it as
    /// often.
    repeated: Vec<RegionSpec>,
    pending: Option<Pending>,
    backend_channel: Option<OwnedFd>,
}

/// The message between `handle` and `reply`.
#[derive(Debug)]
struct Pending {
    code: u32,
    need_reply: bool,
    answer: Answer,
    rollback: Rollback,
}

#[derive(Debug)]
enum Answer {
    /// An acknowledgement, if one was asked for.
    Ack,
    /// This payload.
    Payload(Vec<u8>),
    /// The number 0, if it worked. A frontend that waits for it does not look at it (QEMU), so a failure has no answer.
    Success,
    /// These flags, and 1 if it failed.
    State { flags: u64 },
    /// The position of this ring.
    RingBase(usize),
    /// The table that was made, in a payload as long as the request's: with padding or without.
    Inflight(InflightSpec, usize),
}

/// How the state goes back when the effect failed.
#[derive(Debug)]
enum Rollback {
    None,
    Regions(Vec<RegionSpec>),
    /// With `enabled` and `was_enabled` of each ring.
    Features {
        acked: Option<u64>,
        enabled: Vec<(bool, bool)>,
    },
    Ring(usize),
    Mtu(Option<u16>),
}

/// What a handled message comes to.
type Handled = Result<(Effect, Answer, Rollback), ProtocolError>;

impl Session {
    /// A session in its first state: nothing negotiated, no memory, every ring stopped and disabled.
    pub fn new(mut offer: Offer) -> Self {
        offer.protocol_features &= SUPPORTED_PROTOCOL_FEATURES;
        if offer.protocol_features & VHOST_USER_PROTOCOL_F_LOG_SHMFD == 0 {
            offer.features &= !VHOST_F_LOG_ALL;
        }
        if offer.protocol_features != 0 {
            offer.features |= VHOST_USER_F_PROTOCOL_FEATURES;
        }
        offer.queue_pairs = offer.queue_pairs.clamp(1, MAX_QUEUE_PAIRS);
        offer.config.max_virtqueue_pairs = offer.config.max_virtqueue_pairs.clamp(1, offer.queue_pairs);
        offer.max_mem_slots = offer.max_mem_slots.clamp(1, regions::MAX_SLOTS as u64);
        let control = usize::from(offer.features & VIRTIO_NET_F_CTRL_VQ != 0);
        let rings = 2 * usize::from(offer.queue_pairs) + control;
        Self {
            offer,
            acked_features: None,
            acked_protocol_features: 0,
            backend_channel: None,
            status: 0,
            mtu: None,
            rings: (0..rings).map(|_| RingSetup::default()).collect(),
            regions: Vec::new(),
            repeated: Vec::new(),
            pending: None,
        }
    }

    /// Takes a message and the file descriptors that came with it. Descriptors that the message has no use for are
    /// closed, whatever the result.
    pub fn handle(&mut self, message: Message, fds: Vec<OwnedFd>) -> Result<Effect, ProtocolError> {
        self.pending = None;
        if message.version() != VERSION {
            return Err(ProtocolError::Version { version: message.version() });
        }
        if message.is_reply() {
            return Err(ProtocolError::ReplyFlag { code: message.request });
        }
        self.pending = Some(Pending {
            code: message.request,
            need_reply: message.needs_reply(),
            answer: Answer::Ack,
            rollback: Rollback::None,
        });
        let request =
            Request::from_code(message.request).ok_or(ProtocolError::UnknownRequest { code: message.request })?;
        self.check_requirement(request)?;
        let (effect, answer, rollback) = self.dispatch(request, &message.payload, fds)?;
        if let Some(pending) = &mut self.pending {
            (pending.answer, pending.rollback) = (answer, rollback);
        }
        Ok(effect)
    }

    /// Ends a message that [`handle`](Self::handle) took. `None`: there is nothing to send. If the effect failed and
    /// there is nothing to send, the frontend does not know, and the connection should close.
    pub fn reply(&mut self, outcome: Outcome) -> Option<Vec<u8>> {
        let Pending { code, need_reply, answer, rollback } = self.pending.take()?;
        if outcome == Outcome::Failed {
            self.roll_back(rollback);
        }
        let payload = match answer {
            Answer::Payload(payload) => payload,
            Answer::Success if outcome == Outcome::Failed => return None,
            Answer::Success => 0_u64.to_ne_bytes().to_vec(),
            Answer::State { flags } => (flags | u64::from(outcome == Outcome::Failed)).to_ne_bytes().to_vec(),
            Answer::RingBase(index) => {
                let ring = &mut self.rings[index];
                if let Outcome::RingBase(base) = outcome {
                    ring.base = base;
                }
                VringState { index: u32::try_from(index).ok()?, num: ring.base }.encode()
            }
            Answer::Inflight(asked, len) => {
                let mmap_size = if let Outcome::Inflight(bytes) = outcome { bytes } else { 0 };
                let mut payload = InflightSpec { mmap_size, mmap_offset: 0, ..asked }.encode();
                payload.truncate(len);
                payload
            }
            // "REPLY_ACK": 0 says that it worked. Judged by what is acknowledged now, so that the
            // acknowledgement of REPLY_ACK itself can be acknowledged.
            Answer::Ack if need_reply && self.replies() => u64::from(outcome == Outcome::Failed).to_ne_bytes().to_vec(),
            Answer::Ack => return None,
        };
        Some(Message::reply(code, payload).to_bytes())
    }

    /// What to do about an error of [`handle`](Self::handle).
    pub fn refuse(&mut self, error: &ProtocolError) -> Refused {
        let Some(Pending { code, need_reply, .. }) = self.pending.take() else {
            return Refused::Close;
        };
        let request = Request::from_code(code);
        if error.fatal() {
            Refused::Close
        } else if matches!(error, ProtocolError::ConfigRange { .. }) {
            // "GET_CONFIG": a payload of no bytes is the error.
            Refused::Answer(Message::reply(code, Vec::new()).to_bytes())
        } else if matches!(error, ProtocolError::StateTransfer { .. } | ProtocolError::StateWhileRunning { .. }) {
            // Both answers have room for it, in the same place.
            let flags = if request == Some(Request::SetDeviceStateFd) { STATE_NOFD } else { 0 };
            Refused::Answer(Message::reply(code, (flags | 1).to_ne_bytes().to_vec()).to_bytes())
        } else if request.is_some_and(Request::has_own_reply) {
            Refused::Close
        } else if need_reply && self.replies() {
            Refused::Answer(Message::reply(code, 1_u64.to_ne_bytes().to_vec()).to_bytes())
        } else if matches!(request, Some(Request::SetConfig | Request::SendRarp | Request::NetSetMtu)) {
            Refused::Ignore
        } else {
            Refused::Close
        }
    }

    /// The features that are offered.
    pub fn offered_features(&self) -> u64 {
        self.offer.features
    }

    /// The features that were acknowledged; 0 before SET_FEATURES.
    pub fn acked_features(&self) -> u64 {
        self.acked_features.unwrap_or(0)
    }

    /// The protocol features that are offered.
    pub fn offered_protocol_features(&self) -> u64 {
        self.offer.protocol_features
    }

    /// The protocol features that were acknowledged.
    pub fn acked_protocol_features(&self) -> u64 {
        self.acked_protocol_features
    }

    /// Sets the link's status in the configuration space. Where the frontend is to be told that it changed: its channel,
    /// and the message ("VHOST_USER_BACKEND_CONFIG_CHANGE_MSG").
    pub fn set_link(&mut self, up: bool) -> Option<(&OwnedFd, Vec<u8>)> {
        let status = &mut self.offer.config.status;
        *status = if up { *status | NetConfig::STATUS_LINK_UP } else { *status & !NetConfig::STATUS_LINK_UP };
        let channel = self.backend_channel.as_ref().filter(|_| self.reads_config())?;
        let message = Message { request: BACKEND_CONFIG_CHANGE, flags: VERSION, payload: Vec::new() };
        Some((channel, message.to_bytes()))
    }

    /// Whether writes to guest memory are to be logged, once there is a log.
    pub fn logs(&self) -> bool {
        self.acked_features() & VHOST_F_LOG_ALL != 0
    }

    /// Why the device is not to be served, if so; rings must not be touched then, ready or not.
    pub fn refusal(&self) -> Option<Refusal> {
        match self.acked_features {
            None => Some(Refusal::NoFeatures),
            Some(acked) if acked & VIRTIO_F_VERSION_1 == 0 => Some(Refusal::LegacyDriver),
            Some(acked) if acked & VIRTIO_F_ACCESS_PLATFORM != 0 => Some(Refusal::Iommu),
            Some(_) => None,
        }
    }

    /// Queue pairs that the driver can have: one, unless several were negotiated (virtio 1.2, 5.1.2). It has those that our
    /// configuration space names where its frontend follows that; otherwise the frontend decides.
    pub fn queue_pairs(&self) -> u16 {
        if self.acked_features() & VIRTIO_NET_F_MQ == 0 {
            1
        } else if self.follows_config() {
            self.offer.config.max_virtqueue_pairs
        } else {
            self.offer.queue_pairs
        }
    }

    /// Whether the frontend shows its driver our configuration space, as far as it has said so.
    pub fn reads_config(&self) -> bool {
        self.acked_protocol_features & VHOST_USER_PROTOCOL_F_CONFIG != 0
    }

    /// The MAC address that the driver is told, if it is told one.
    pub fn told_mac(&self) -> Option<[u8; 6]> {
        let told = self.reads_config() && self.acked_features() & VIRTIO_NET_F_MAC != 0;
        told.then_some(self.offer.config.mac)
    }

    /// The ring by which the driver sends commands, if it has one: the one behind all pairs (virtio 1.2, 5.1.2).
    pub fn control_ring(&self) -> Option<u16> {
        (self.acked_features() & VIRTIO_NET_F_CTRL_VQ != 0).then_some(2 * self.queue_pairs())
    }

    /// Whether the configuration space tells the driver to announce itself.
    pub fn set_announce(&mut self, wanted: bool) {
        let status = &mut self.offer.config.status;
        *status = if wanted { *status | NetConfig::STATUS_ANNOUNCE } else { *status & !NetConfig::STATUS_ANNOUNCE };
    }

    /// Whether it does.
    pub fn announces(&self) -> bool {
        self.offer.config.status & NetConfig::STATUS_ANNOUNCE != 0
    }

    /// How many rings there are.
    pub fn rings(&self) -> u16 {
        u16::try_from(self.rings.len()).unwrap_or(u16::MAX)
    }

    /// The set-up of a ring; `None` if there is no such ring.
    pub fn ring(&self, index: u16) -> Option<&RingSetup> {
        self.rings.get(usize::from(index))
    }

    /// Whether a ring has all that it needs to run: memory, size, addresses and kick.
    pub fn ready(&self, index: u16) -> bool {
        self.missing(index).is_none()
    }

    /// What a ring still waits for.
    pub fn missing(&self, index: u16) -> Option<&'static str> {
        let Some(ring) = self.ring(index) else {
            return Some("no such ring");
        };
        let in_memory = |addr| regions::has_user_addr(&self.regions, addr);
        if self.regions.is_empty() {
            Some("no memory table")
        } else if ring.size == 0 {
            Some("no ring size")
        } else if !ring.has_addresses {
            Some("no ring addresses")
        } else if !(in_memory(ring.desc) && in_memory(ring.avail) && in_memory(ring.used)) {
            Some("ring outside of the memory table")
        } else if !ring.is_started() {
            Some("no kick descriptor")
        } else {
            None
        }
    }

    /// Notes where a ring stands that the caller stopped for another reason than [`Effect::StopRing`], such as memory
    /// that went away: [`RingSetup::base`] says from then on where to go on.
    pub fn stopped_at(&mut self, index: u16, base: u32) {
        if let Some(ring) = self.rings.get_mut(usize::from(index)) {
            ring.base = base;
        }
    }

    /// The memory table.
    pub fn regions(&self) -> &[RegionSpec] {
        &self.regions
    }

    /// The device status, if the frontend tells it.
    pub fn status(&self) -> Option<u8> {
        (self.acked_protocol_features & VHOST_USER_PROTOCOL_F_STATUS != 0).then_some(self.status)
    }

    /// The MTU that the frontend told, if it did.
    pub fn mtu(&self) -> Option<u16> {
        self.mtu
    }

    fn replies(&self) -> bool {
        self.acked_protocol_features & VHOST_USER_PROTOCOL_F_REPLY_ACK != 0
    }

    fn packed(&self) -> bool {
        self.acked_features() & VIRTIO_F_RING_PACKED != 0
    }

    fn max_regions(&self) -> usize {
        usize::try_from(self.offer.max_mem_slots).unwrap_or(regions::MAX_SLOTS)
    }

    /// The answer to GET_QUEUE_NUM. Frontends count different things, and tell who they are only by the protocol features
    /// that they acknowledge. `tests/frontends` of `lab` has the table of them with their sources.
    fn queue_num(&self) -> u64 {
        let pairs = u64::from(self.offer.queue_pairs);
        if self.follows_config() {
            // crosvm makes just as many queues as it hears. Its driver looks for the control queue behind the pairs.
            let control = u64::from(self.offer.features & VIRTIO_NET_F_CTRL_VQ != 0);
            2 * u64::from(self.offer.config.max_virtqueue_pairs) + control
        } else if self.acked_protocol_features & VHOST_USER_PROTOCOL_F_RARP != 0 && !self.reads_config() {
            // QEMU refuses to start with more pairs than it hears. It acknowledges all that it knows but CONFIG; no other
            // frontend knows RARP.
            pairs
        } else {
            // Cloud Hypervisor and other users of rust-vmm's crate count rings.
            2 * pairs
        }
    }

    /// Whether the driver has the queues that our configuration space names, and sends its commands to us: crosvm, User
    /// Mode Linux. Later versions of Cloud Hypervisor read the space too, but name their own number of pairs to the
    /// driver and execute its commands. They track buffers in flight, the others do not.
    fn follows_config(&self) -> bool {
        self.reads_config() && self.acked_protocol_features & VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD == 0
    }

    fn roll_back(&mut self, rollback: Rollback) {
        match rollback {
            Rollback::None => {}
            Rollback::Regions(regions) => self.regions = regions,
            Rollback::Features { acked, enabled } => {
                self.acked_features = acked;
                for (ring, enabled) in self.rings.iter_mut().zip(enabled) {
                    (ring.enabled, ring.was_enabled) = enabled;
                }
            }
            Rollback::Ring(index) => self.rings[index].abandon(),
            Rollback::Mtu(mtu) => self.mtu = mtu,
        }
    }

    fn check_requirement(&self, request: Request) -> Result<(), ProtocolError> {
        let (feature, offered, is_met) = match request.requirement() {
            Requirement::Nothing => return Ok(()),
            Requirement::OtherDevice(device) => {
                return Err(ProtocolError::OtherDevice { request, device });
            }
            Requirement::Feature(bit) => (RequiredFeature::Feature(bit), self.offer.features & bit != 0, true),
            Requirement::ProtocolOffered(bit) => {
                (RequiredFeature::Protocol(bit), self.offer.protocol_features & bit != 0, true)
            }
            Requirement::Protocol(bit) => (
                RequiredFeature::Protocol(bit),
                self.offer.protocol_features & bit != 0,
                self.acked_protocol_features & bit != 0,
            ),
        };
        if !offered {
            Err(ProtocolError::NotOffered { request, feature })
        } else if !is_met {
            Err(ProtocolError::NotNegotiated { request, feature })
        } else {
            Ok(())
        }
    }
}
