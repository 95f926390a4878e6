//! The backend half: the state that a frontend has set up, changed by one message at a time.
//!
//! For each message the caller takes three steps, in this order:
//! 1. [`Session::handle`] checks the message, changes the state and returns the effect.
//! 2. The caller carries the effect out: it maps memory, or starts and stops rings between two
//!    turns of its workers.
//! 3. [`Session::reply`] gets the outcome, and returns the bytes to send, if any.
//!
//! A frontend may wait for step 3. It frees withdrawn memory as soon as it has the answer. So the
//! effect must be complete before the answer is sent. A message that `handle` refuses has changed
//! nothing. [`Session::refuse`] then decides whether it is answered or the connection must close.

use std::os::fd::OwnedFd;

use az::SaturatingAs;

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

pub use effect::{Effect, LogFd, Refused, RegionFd, RequestOutcome};

/// The most queue pairs: the message of a kick descriptor has eight bits for the ring
/// ("SET_VRING_KICK").
pub const MAX_QUEUE_PAIRS: u16 = 127;

/// The protocol features that a session supports. Others in an offer are left out.
///
/// User Mode Linux receives its interrupts over the backend's channel (BACKEND_REQ); none of its
/// drivers starts without it.
// Cites vhost-user-multiple-queue-5.
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

/// The features and limits that a device offers to its frontend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Virtio features. PROTOCOL_FEATURES is added if there are protocol features. The dirty log is
    /// left out if LOG_SHMFD is not offered: without a shared file we could not write the log.
    pub features: u64,
    /// vhost-user protocol features. Those in [`SUPPORTED_PROTOCOL_FEATURES`] are offered.
    pub protocol_features: u64,
    /// The most queue pairs that a frontend may start, 1 to [`MAX_QUEUE_PAIRS`]. There are two
    /// rings for each, and one more if `VIRTIO_NET_F_CTRL_VQ` is offered. A frontend that follows
    /// the configuration space has the pairs named there.
    pub queue_pairs: u16,
    /// The most memory regions, 1 to 512. A frontend that does not ask for the number sends up to
    /// eight.
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
    /// Regions that were added again, once for each repetition. QEMU 7.2 adds each region for every
    /// queue pair, and removes it as often.
    repeated: Vec<RegionSpec>,
    pending: Option<Pending>,
    backend_channel: Option<OwnedFd>,
    /// The configuration space has changed, and the frontend was not notified yet.
    has_untold_change: bool,
    /// The most descriptors that all rings may have.
    max_ring_fds: usize,
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
    /// An acknowledgement, if the frontend asked for one.
    Ack,
    /// A reply with this payload.
    Payload(Vec<u8>),
    /// The number 0 for a success. A frontend that waits for this number does not check its value
    /// (QEMU), so a failure has no answer.
    Success,
    /// A number with these flags; in its low bits, 0 for a success and 1 for a failure.
    State { flags: u64 },
    /// The position of this ring.
    RingBase(usize),
    /// The in-flight table that was made, in a payload as long as the request's: with padding or
    /// without.
    Inflight(InflightSpec, usize),
}

/// The change to roll back when the effect has failed.
#[derive(Debug)]
enum Rollback {
    None,
    Regions(Vec<RegionSpec>),
    /// The features, and `enabled` and `was_enabled` of each ring.
    Features {
        acked: Option<u64>,
        enabled: Vec<(bool, bool)>,
    },
    Ring(usize),
    Mtu(Option<u16>),
}

/// The result of handling a message.
type Handled = Result<(Effect, Answer, Rollback), ProtocolError>;

impl Session {
    /// Creates a session in its first state: nothing negotiated, no memory, every ring stopped and
    /// disabled.
    pub fn new(mut offer: Offer) -> Self {
        offer.protocol_features &= SUPPORTED_PROTOCOL_FEATURES;
        if offer.protocol_features & VHOST_USER_PROTOCOL_F_LOG_SHMFD == 0 {
            offer.features &= !VHOST_F_LOG_ALL;
        }
        if offer.protocol_features != 0 {
            // Cites vhost-user-get-features-1.
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
            has_untold_change: false,
            max_ring_fds: usize::MAX,
            status: 0,
            mtu: None,
            // Cites vhost-user-ring-states-5.
            rings: (0..rings).map(|_| RingSetup::default()).collect(),
            regions: Vec::new(),
            repeated: Vec::new(),
            pending: None,
        }
    }

    /// Handles a message and the file descriptors that came with it. Descriptors that the message
    /// does not use are closed, also on an error.
    pub fn handle(&mut self, message: Message, fds: Vec<OwnedFd>) -> Result<Effect, ProtocolError> {
        self.pending = None;
        // Cites vhost-user-header-2.
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
        // Cites vhost-user-communication-5.
        self.check_requirement(request)?;
        let (effect, answer, rollback) = self.dispatch(request, &message.payload, fds)?;
        if let Some(pending) = &mut self.pending {
            (pending.answer, pending.rollback) = (answer, rollback);
        }
        Ok(effect)
    }

    /// Ends a message that [`handle`](Self::handle) accepted, and returns the bytes to send. `None`
    /// means that there is nothing to send. If the effect failed and there is nothing to send, the
    /// frontend does not know of the failure, and the connection should close.
    pub fn reply(&mut self, outcome: RequestOutcome) -> Option<Vec<u8>> {
        let Pending { code, need_reply, answer, rollback } = self.pending.take()?;
        if outcome == RequestOutcome::Failed {
            self.roll_back(rollback);
        }
        let payload = match answer {
            Answer::Payload(payload) => payload,
            Answer::Success if outcome == RequestOutcome::Failed => return None,
            Answer::Success => 0_u64.to_ne_bytes().to_vec(),
            // Cites vhost-user-device-state-fd-1, vhost-user-check-device-state-1.
            Answer::State { flags } => (flags | u64::from(outcome == RequestOutcome::Failed)).to_ne_bytes().to_vec(),
            // Cites vhost-user-get-vring-base-1, vhost-user-get-vring-base-2.
            Answer::RingBase(index) => {
                let ring = &mut self.rings[index];
                if let RequestOutcome::RingBase(base) = outcome {
                    ring.base = base;
                }
                VringState { index: u32::try_from(index).ok()?, num: ring.base }.encode()
            }
            Answer::Inflight(asked, len) => {
                // Cites vhost-user-get-inflight-fd-1.
                let mmap_size = if let RequestOutcome::Inflight(bytes) = outcome { bytes } else { 0 };
                let mut payload = InflightSpec { mmap_size, mmap_offset: 0, ..asked }.encode();
                payload.truncate(len);
                payload
            }
            // "REPLY_ACK": 0 reports success. The features acknowledged now decide, so that the
            // acknowledgement of REPLY_ACK itself can be acknowledged.
            // Cites vhost-user-reply-ack-1, vhost-user-reply-ack-2, vhost-user-net-set-mtu-1.
            // Cites vhost-user-backend-req-fd-1.
            Answer::Ack if need_reply && self.replies() => {
                u64::from(outcome == RequestOutcome::Failed).to_ne_bytes().to_vec()
            }
            Answer::Ack => return None,
        };
        Some(Message::reply(code, payload).to_bytes())
    }

    /// Decides how to treat an error of [`handle`](Self::handle).
    pub fn refuse(&mut self, error: &ProtocolError) -> Refused {
        let Some(Pending { code, need_reply, .. }) = self.pending.take() else {
            return Refused::Close;
        };
        let request = Request::from_code(code);
        if error.fatal() {
            Refused::Close
        } else if matches!(error, ProtocolError::ConfigRange { .. }) {
            // "GET_CONFIG": a payload of no bytes reports the failure.
            // Cites vhost-user-get-config-2.
            Refused::Answer(Message::reply(code, Vec::new()).to_bytes())
        } else if matches!(error, ProtocolError::StateTransfer { .. } | ProtocolError::StateWhileRunning { .. }) {
            // Both answers report a failure in the same bits.
            let flags = if request == Some(Request::SetDeviceStateFd) { STATE_NOFD } else { 0 };
            Refused::Answer(Message::reply(code, (flags | 1).to_ne_bytes().to_vec()).to_bytes())
        } else if request.is_some_and(Request::has_own_reply) {
            // Cites vhost-user-communication-4, vhost-user-reply-ack-3.
            Refused::Close
        } else if need_reply && self.replies() {
            // Cites vhost-user-reply-ack-1, vhost-user-reply-ack-2, vhost-user-net-set-mtu-1.
            Refused::Answer(Message::reply(code, 1_u64.to_ne_bytes().to_vec()).to_bytes())
        } else if matches!(request, Some(Request::SetConfig | Request::SendRarp | Request::NetSetMtu)) {
            Refused::Ignore
        } else {
            Refused::Close
        }
    }

    /// Returns the features that are offered.
    pub fn offered_features(&self) -> u64 {
        self.offer.features
    }

    /// Returns the features that were acknowledged; 0 before SET_FEATURES.
    pub fn acked_features(&self) -> u64 {
        self.acked_features.unwrap_or(0)
    }

    /// Returns the protocol features that are offered.
    pub fn offered_protocol_features(&self) -> u64 {
        self.offer.protocol_features
    }

    /// Returns the protocol features that were acknowledged.
    pub fn acked_protocol_features(&self) -> u64 {
        self.acked_protocol_features
    }

    /// Sets the link's status in the configuration space. If the frontend must be notified of the
    /// change, [`config_change`](Self::config_change) returns the message.
    pub fn set_link(&mut self, up: bool) {
        let status = &mut self.offer.config.status;
        *status = if up { *status | NetConfig::STATUS_LINK_UP } else { *status & !NetConfig::STATUS_LINK_UP };
        self.has_untold_change |= self.reads_config();
    }

    /// Returns the channel and the message, if the frontend must be notified now that the
    /// configuration space has changed ("VHOST_USER_BACKEND_CONFIG_CHANGE_MSG"). The message
    /// waits while all rings are stopped; one message is enough for all changes until then. Call
    /// it after each change and after each answer.
    pub fn config_change(&mut self) -> Option<(&OwnedFd, Vec<u8>)> {
        // Cites vhost-user-suspended-3.
        if !self.has_untold_change || (0..self.rings()).all(|index| !self.ready(index)) {
            return None;
        }
        // Cites vhost-user-config-change-1.
        let channel = self.backend_channel.as_ref().filter(|_| self.reads_config())?;
        self.has_untold_change = false;
        let message = Message { request: BACKEND_CONFIG_CHANGE, flags: VERSION, payload: Vec::new() };
        Some((channel, message.to_bytes()))
    }

    /// Returns whether writes to guest memory must be logged, once there is a log.
    pub fn logs(&self) -> bool {
        self.acked_features() & VHOST_F_LOG_ALL != 0
    }

    /// Returns the reason why the device is not served, if there is one. Then rings must not be
    /// touched, ready or not.
    pub fn refusal(&self) -> Option<Refusal> {
        match self.acked_features {
            None => Some(Refusal::NoFeatures),
            Some(acked) if acked & VIRTIO_F_VERSION_1 == 0 => Some(Refusal::LegacyDriver),
            Some(acked) if acked & VIRTIO_F_ACCESS_PLATFORM != 0 => Some(Refusal::Iommu),
            Some(_) => None,
        }
    }

    /// Returns the number of queue pairs that the driver can have: one, unless several were
    /// negotiated (virtio 1.2, 5.1.2). A frontend that follows our configuration space uses the
    /// number there; any other frontend decides itself.
    pub fn queue_pairs(&self) -> u16 {
        if self.acked_features() & VIRTIO_NET_F_MQ == 0 {
            1
        } else if self.follows_config() {
            self.offer.config.max_virtqueue_pairs
        } else {
            self.offer.queue_pairs
        }
    }

    /// Returns whether the frontend shows our configuration space to its driver, as far as we know.
    pub fn reads_config(&self) -> bool {
        self.acked_protocol_features & VHOST_USER_PROTOCOL_F_CONFIG != 0
    }

    /// Returns the MAC address that the device reports to the driver, if any.
    pub fn told_mac(&self) -> Option<[u8; 6]> {
        let is_advertised = self.reads_config() && self.acked_features() & VIRTIO_NET_F_MAC != 0;
        is_advertised.then_some(self.offer.config.mac)
    }

    /// Returns the control ring, if the driver has one: it is the one behind all pairs (virtio 1.2,
    /// 5.1.2).
    pub fn control_ring(&self) -> Option<u16> {
        (self.acked_features() & VIRTIO_NET_F_CTRL_VQ != 0).then_some(2 * self.queue_pairs())
    }

    /// Sets whether the configuration space asks the driver to announce itself.
    pub fn set_announce(&mut self, enabled: bool) {
        let status = &mut self.offer.config.status;
        *status = if enabled { *status | NetConfig::STATUS_ANNOUNCE } else { *status & !NetConfig::STATUS_ANNOUNCE };
    }

    /// Returns whether the configuration space asks the driver to announce itself.
    pub fn announces(&self) -> bool {
        self.offer.config.status & NetConfig::STATUS_ANNOUNCE != 0
    }

    /// Returns the number of rings.
    pub fn rings(&self) -> u16 {
        self.rings.len().saturating_as::<u16>()
    }

    /// Returns the set-up of a ring, or `None` if there is no such ring.
    pub fn ring(&self, index: u16) -> Option<&RingSetup> {
        self.rings.get(usize::from(index))
    }

    /// Returns the number of descriptors that all rings have: kick, call and error descriptors.
    pub fn ring_fds(&self) -> usize {
        self.rings.iter().map(RingSetup::fds).sum()
    }

    /// Limits the descriptors that all rings may have. Those that they have already stay.
    pub fn limit_ring_fds(&mut self, max: usize) {
        self.max_ring_fds = max;
    }

    /// Returns whether a ring has all that it needs to run: memory, size, addresses and kick.
    pub fn ready(&self, index: u16) -> bool {
        self.missing(index).is_none()
    }

    /// Returns what a ring still lacks.
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

    /// Records the position of a ring that the caller stopped for another reason than
    /// [`Effect::StopRing`], such as removed memory. From then on [`RingSetup::base`] is the
    /// position at which to continue.
    pub fn stopped_at(&mut self, index: u16, base: u32) {
        if let Some(ring) = self.rings.get_mut(usize::from(index)) {
            ring.base = base;
        }
    }

    /// Returns the memory table.
    pub fn regions(&self) -> &[RegionSpec] {
        &self.regions
    }

    /// Returns the device status, if the frontend sends it.
    pub fn status(&self) -> Option<u8> {
        (self.acked_protocol_features & VHOST_USER_PROTOCOL_F_STATUS != 0).then_some(self.status)
    }

    /// Returns the MTU that the frontend has set, if it has set one.
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

    /// Returns the answer to GET_QUEUE_NUM. Frontends expect different counts, and only the
    /// protocol features that they acknowledge show which. `tests/switch/frontends` of `switch` lists the
    /// frontends with their sources.
    // Cites vhost-user-multiple-queue-2.
    fn queue_num(&self) -> u64 {
        let pairs = u64::from(self.offer.queue_pairs);
        if self.follows_config() {
            // crosvm makes exactly this number of queues. Its driver looks for the control queue
            // behind the pairs.
            let control = u64::from(self.offer.features & VIRTIO_NET_F_CTRL_VQ != 0);
            2 * u64::from(self.offer.config.max_virtqueue_pairs) + control
        } else if self.acked_protocol_features & VHOST_USER_PROTOCOL_F_RARP != 0 && !self.reads_config() {
            // QEMU refuses to start with more pairs than this number. It acknowledges all protocol
            // features that it knows except CONFIG; no other frontend knows RARP.
            pairs
        } else {
            // Cloud Hypervisor and other users of rust-vmm's crate count rings.
            2 * pairs
        }
    }

    /// Returns whether the driver has the queues that our configuration space names, and sends its
    /// commands to us. This holds for crosvm and User Mode Linux. Later versions of Cloud
    /// Hypervisor read the space too, but give their own number of pairs to the driver and execute
    /// its commands themselves. These versions track buffers in flight; crosvm and User Mode Linux
    /// do not.
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
