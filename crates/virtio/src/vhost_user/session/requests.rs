//! The effect of each request on a [`Session`].

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use az::SaturatingAs;

use crate::features::{
    VHOST_F_LOG_ALL, VHOST_USER_F_PROTOCOL_FEATURES, VHOST_USER_PROTOCOL_F_CONFIG,
    VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD, VIRTIO_F_ACCESS_PLATFORM,
};
use crate::memory::LOG_PAGE;

use super::super::config::NetConfig;
use super::super::error::{ProtocolError, RequiredFeature};
use super::super::message::{
    ConfigAccess, InflightSpec, LogSpec, MAX_FDS, RegionSpec, STATE_NOFD, TransferSpec, VRING_FLAG_LOG, VRING_NOFD,
    VringAddr, VringState, decode_u64,
};
use super::super::regions;
use super::super::request::Request;
use super::super::ring::RingSetup;
use super::{Answer, Effect, Handled, LogFd, RegionFd, Rollback, Session};

/// The smallest MTU that virtio allows (virtio 1.3, section 5.1.4.1).
const MIN_MTU: u64 = 68;

/// The most bytes of a dirty log: a bit for each page of the 52 bits of address that x86-64 and
/// arm64 have at most. The log is mapped, so like regions it uses up our address space.
pub(super) const MAX_LOG: u64 = (1 << 52) / LOG_PAGE / 8;

impl Session {
    /// Executes a request whose requirement is met.
    pub(super) fn dispatch(&mut self, request: Request, payload: &[u8], fds: Vec<OwnedFd>) -> Handled {
        // Cites vhost-user-communication-2.
        // Requests that may carry file descriptors count them themselves.
        match request {
            Request::SetMemTable => return self.set_mem_table(payload, fds),
            Request::AddMemReg => return self.add_mem_reg(payload, fds),
            Request::RemMemReg => return self.rem_mem_reg(payload, fds),
            Request::SetVringKick | Request::SetVringCall | Request::SetVringErr => {
                return self.set_vring_fd(request, payload, fds);
            }
            Request::SetBackendReqFd => return self.set_backend_channel(payload, fds),
            Request::SetLogBase => return set_log_base(payload, fds),
            Request::SetLogFd => return set_log_fd(payload, &fds),
            Request::SetInflightFd => return self.set_inflight_fd(payload, fds),
            Request::SetDeviceStateFd => return self.set_device_state_fd(payload, fds),
            _ => count_fds(request, &fds, 0)?,
        }
        match request {
            Request::GetFeatures => answer_u64(request, payload, self.offer.features),
            Request::GetProtocolFeatures => answer_u64(request, payload, self.offer.protocol_features),
            Request::GetQueueNum => answer_u64(request, payload, self.queue_num()),
            // Cites vhost-user-get-max-mem-slots-1.
            Request::GetMaxMemSlots => answer_u64(request, payload, self.offer.max_mem_slots),
            // Cites vhost-user-status-1.
            Request::GetStatus => answer_u64(request, payload, u64::from(self.status)),
            Request::SetFeatures => self.set_features(expect_u64(request, payload)?),
            Request::SetProtocolFeatures => self.set_protocol_features(expect_u64(request, payload)?),
            Request::SetOwner => {
                expect_empty(request, payload)?;
                done(Effect::None)
            }
            Request::ResetOwner => {
                // Deprecated: the specification lets it disable the rings or do nothing.
                expect_empty(request, payload)?;
                // Cites vhost-user-reset-owner-1.
                self.rings.iter_mut().for_each(|ring| ring.enabled = false);
                done(Effect::DisableRings)
            }
            Request::ResetDevice => {
                expect_empty(request, payload)?;
                self.reset();
                done(Effect::Reset)
            }
            Request::SetStatus => self.set_status(expect_u64(request, payload)?),
            Request::SetVringNum => self.set_vring_num(expect_state(request, payload)?),
            Request::SetVringBase => self.set_vring_base(expect_state(request, payload)?),
            Request::SetVringEnable => self.set_vring_enable(expect_state(request, payload)?),
            Request::SetVringAddr => self.set_vring_addr(payload),
            Request::GetVringBase => {
                let index = self.ring_index(request, u64::from(expect_state(request, payload)?.index))?;
                // Cites vhost-user-ring-states-7.
                self.rings[index].stop();
                Ok((Effect::StopRing(short(index)), Answer::RingBase(index), Rollback::None))
            }
            Request::GetConfig => self.get_config(payload),
            Request::GetInflightFd => {
                let spec = self.inflight(request, payload)?;
                Ok((Effect::MakeInflight(spec), Answer::Inflight(spec, payload.len()), Rollback::None))
            }
            Request::CheckDeviceState => {
                expect_empty(request, payload)?;
                self.check_suspended(request)?;
                Ok((Effect::CheckState, Answer::State { flags: 0 }, Rollback::None))
            }
            Request::SetConfig => {
                // Cites vhost-user-set-config-1.
                let offset = expect_config(request, payload)?.offset;
                Err(ProtocolError::ConfigReadOnly { offset })
            }
            Request::NetSetMtu => {
                let mtu = expect_u64(request, payload)?;
                // Cites vhost-user-net-set-mtu-1.
                let valid = u16::try_from(mtu).ok().filter(|_| mtu >= MIN_MTU);
                let valid = valid.ok_or(ProtocolError::Mtu { mtu })?;
                let rollback = Rollback::Mtu(self.mtu.replace(valid));
                Ok((Effect::Mtu(valid), Answer::Ack, rollback))
            }
            Request::SendRarp => {
                // Cites vhost-user-send-rarp-1.
                let [a, b, c, d, e, f, _, _] = expect_u64(request, payload)?.to_ne_bytes();
                done(Effect::Rarp([a, b, c, d, e, f]))
            }
            // The remaining requests need a feature that no session offers. The IOTLB is an
            // exception: the caller decides whether to offer its feature, and then `refusal`
            // reports why the device is not served.
            _ => {
                Err(ProtocolError::NotOffered { request, feature: RequiredFeature::Feature(VIRTIO_F_ACCESS_PLATFORM) })
            }
        }
    }

    /// Keeps a socket for the backend's own requests.
    fn set_backend_channel(&mut self, payload: &[u8], mut fds: Vec<OwnedFd>) -> Handled {
        let request = Request::SetBackendReqFd;
        expect_empty(request, payload)?;
        count_fds(request, &fds, 1)?;
        // Cites vhost-user-back-end-1.
        self.backend_channel = fds.pop();
        done(Effect::None)
    }

    fn set_features(&mut self, features: u64) -> Handled {
        let extra = features & !self.offer.features;
        if extra != 0 {
            return Err(ProtocolError::FeaturesNotOffered { extra });
        }
        // QEMU sends the features once for each queue pair, while the first pair already runs. The
        // same features are no change. The log is turned on and off while rings run ("Migration").
        // Cites vhost-user-migration-1.
        let changed = self.acked_features.map_or(0, |acked| acked ^ features) & !VHOST_F_LOG_ALL;
        if changed != 0
            && let Some(index) = (0..self.rings()).find(|index| self.ready(*index))
        {
            return Err(ProtocolError::FeaturesWhileRunning { index: usize::from(index), changed });
        }
        let enabled = self.rings.iter().map(|ring| (ring.enabled, ring.was_enabled)).collect();
        let rollback = Rollback::Features { acked: self.acked_features.replace(features), enabled };
        // "Ring states": without PROTOCOL_FEATURES all rings are enabled at once. With that feature
        // the rings stay as they are, since QEMU enables the first pair before it sets features.
        // Cites vhost-user-ring-states-9.
        if features & VHOST_USER_F_PROTOCOL_FEATURES == 0 {
            self.rings.iter_mut().for_each(|ring| ring.set_enabled(true));
        }
        Ok((Effect::Features(features), Answer::Ack, rollback))
    }

    fn set_protocol_features(&mut self, features: u64) -> Handled {
        let extra = features & !self.offer.protocol_features;
        if extra != 0 {
            return Err(ProtocolError::ProtocolFeaturesNotOffered { extra });
        }
        // These features decide which ring is the control ring, and a ring that runs keeps its
        // role.
        let changed = (self.acked_protocol_features ^ features)
            & (VHOST_USER_PROTOCOL_F_CONFIG | VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD);
        if changed != 0
            && let Some(index) = (0..self.rings()).find(|index| self.ready(*index))
        {
            return Err(ProtocolError::ProtocolFeaturesWhileRunning { index: usize::from(index), changed });
        }
        self.acked_protocol_features = features;
        done(Effect::None)
    }

    fn set_status(&mut self, status: u64) -> Handled {
        let status = u8::try_from(status).map_err(|_| ProtocolError::Status { status })?;
        // Cites vhost-user-status-1.
        self.status = status;
        if status == 0 {
            // Rings keep their set-up except the kick. QEMU starts again from the positions that we
            // reported, or asks for them now. A frontend that resets for good sets the bases anew.
            self.rings.iter_mut().for_each(RingSetup::stop);
            return done(Effect::StopRings);
        }
        done(Effect::Status(status))
    }

    /// "RESET_DEVICE": returns to the first state, except for what belongs to the connection:
    /// memory, protocol features, MTU.
    fn reset(&mut self) {
        // Cites vhost-user-reset-device-1.
        self.rings.iter_mut().for_each(RingSetup::reset);
        self.acked_features = None;
        self.status = 0;
    }

    fn set_mem_table(&mut self, payload: &[u8], fds: Vec<OwnedFd>) -> Handled {
        let request = Request::SetMemTable;
        let table = RegionSpec::decode_table(payload)
            .ok_or_else(|| payload_size(request, payload, "8 bytes, and 32 for each region that it announces"))?;
        count_fds(request, &fds, table.len())?;
        regions::check_table(&table, self.max_regions().min(MAX_FDS))?;
        // Cites vhost-user-set-mem-table-1.
        let with_fds = table.iter().zip(fds).map(|(spec, fd)| RegionFd::new(*spec, fd)).collect();
        let rollback = Rollback::Regions(mem::replace(&mut self.regions, table));
        self.repeated.clear();
        Ok((Effect::Memory(with_fds), Answer::Ack, rollback))
    }

    fn add_mem_reg(&mut self, payload: &[u8], mut fds: Vec<OwnedFd>) -> Handled {
        let request = Request::AddMemReg;
        let spec = RegionSpec::decode_single(payload).ok_or_else(|| payload_size(request, payload, "40"))?;
        // Cites vhost-user-add-mem-reg-1.
        count_fds(request, &fds, 1)?;
        let Some(fd) = fds.pop() else {
            return Err(ProtocolError::FdCount { request, got: 0, want: 1 });
        };
        let times = self.repeated.iter().filter(|known| **known == spec).count() + 1;
        if self.regions.contains(&spec) && times < usize::from(self.offer.queue_pairs) {
            self.repeated.push(spec);
            return done(Effect::None);
        }
        let max = self.max_regions();
        if self.regions.len() >= max {
            return Err(ProtocolError::TooManyRegions { got: self.regions.len() + 1, max });
        }
        regions::check(&spec)?;
        regions::check_disjoint(&self.regions, &spec)?;
        let rollback = Rollback::Regions(self.regions.clone());
        self.regions.push(spec);
        if let Err(error) = regions::check_total(&self.regions) {
            self.regions.pop();
            return Err(error);
        }
        Ok((Effect::AddRegion(RegionFd::new(spec, fd)), Answer::Ack, rollback))
    }

    fn rem_mem_reg(&mut self, payload: &[u8], fds: Vec<OwnedFd>) -> Handled {
        let request = Request::RemMemReg;
        let spec = RegionSpec::decode_single(payload).ok_or_else(|| payload_size(request, payload, "40"))?;
        // "REM_MEM_REG": one descriptor is accepted from old frontends, and closed unused.
        // Cites vhost-user-rem-mem-reg-4.
        if fds.len() > 1 {
            count_fds(request, &fds, 0)?;
        }
        if let Some(again) = regions::find(&self.repeated, &spec) {
            self.repeated.swap_remove(again);
            return done(Effect::None);
        }
        let found = regions::find(&self.regions, &spec)
            .ok_or(ProtocolError::RegionUnknown { guest_addr: spec.guest_addr, size: spec.size })?;
        let rollback = Rollback::Regions(self.regions.clone());
        Ok((Effect::RemoveRegion(self.regions.remove(found)), Answer::Ack, rollback))
    }

    fn set_vring_num(&mut self, state: VringState) -> Handled {
        let index = self.stopped_ring(Request::SetVringNum, state.index)?;
        // virtio 1.3, section 2.7: a power of two; section 2.8.10.1: packed rings may have any size
        // up to 2^15.
        let packed = self.packed();
        let want = if packed { "1 to 32768" } else { "a power of two, 1 to 32768" };
        let size = u16::try_from(state.num)
            .ok()
            .filter(|size| (1..=1 << 15).contains(size) && (packed || size.is_power_of_two()))
            .ok_or(ProtocolError::RingSize { index, size: state.num, want })?;
        self.rings[index].size = size;
        ring_changed(index)
    }

    fn set_vring_base(&mut self, state: VringState) -> Handled {
        let index = self.stopped_ring(Request::SetVringBase, state.index)?;
        let known_split = self.acked_features.is_some() && !self.packed();
        if known_split && state.num > u32::from(u16::MAX) {
            return Err(ProtocolError::RingBase { index, base: state.num });
        }
        self.rings[index].base = state.num;
        ring_changed(index)
    }

    fn set_vring_addr(&mut self, payload: &[u8]) -> Handled {
        let request = Request::SetVringAddr;
        let addr = VringAddr::decode(payload).ok_or_else(|| payload_size(request, payload, "40"))?;
        let index = self.ring_index(request, u64::from(addr.index))?;
        // The flag asks for marks of the used ring, and `log` is its address in the log. With
        // `VHOST_F_LOG_ALL` all our writes are marked, and the used ring is marked at its address
        // in our own map. So neither the flag nor `log` changes anything.
        let flags = if self.offer.features & VHOST_F_LOG_ALL == 0 { 0 } else { VRING_FLAG_LOG };
        if addr.flags & !flags != 0 {
            return Err(ProtocolError::RingFlags { index, flags: addr.flags });
        }
        // virtio 1.3, sections 2.7 and 2.8.10.1: descriptors at 16; available and used ring at 2
        // and 4; both event suppression areas of a packed ring at 4.
        let avail_align = if self.packed() { 4 } else { 2 };
        for (part, addr, align) in
            [("descriptors", addr.desc, 16), ("available ring", addr.avail, avail_align), ("used ring", addr.used, 4)]
        {
            if addr % align != 0 {
                return Err(ProtocolError::RingAlignment { index, part, addr, align });
            }
        }
        // "Ring states": some settings may change while the ring runs. The flag may; the addresses
        // may not.
        // Cites vhost-user-ring-states-10, vhost-user-migration-1.
        let running = self.ready(short(index));
        let ring = &mut self.rings[index];
        if running && (ring.desc, ring.avail, ring.used) != (addr.desc, addr.avail, addr.used) {
            return Err(ProtocolError::RingRunning { request, index });
        }
        (ring.desc, ring.avail, ring.used) = (addr.desc, addr.avail, addr.used);
        ring.has_addresses = true;
        ring_changed(index)
    }

    fn set_vring_enable(&mut self, state: VringState) -> Handled {
        let request = Request::SetVringEnable;
        let index = self.ring_index(request, u64::from(state.index))?;
        // QEMU enables rings before it sets features. So only features without PROTOCOL_FEATURES
        // are an error.
        if self.acked_features.is_some_and(|acked| acked & VHOST_USER_F_PROTOCOL_FEATURES == 0) {
            let feature = RequiredFeature::Feature(VHOST_USER_F_PROTOCOL_FEATURES);
            return Err(ProtocolError::NotNegotiated { request, feature });
        }
        // Cites vhost-user-ring-states-2, vhost-user-ring-states-8.
        self.rings[index].set_enabled(match state.num {
            0 => false,
            1 => true,
            num => return Err(ProtocolError::RingEnable { index, num }),
        });
        ring_changed(index)
    }

    fn set_vring_fd(&mut self, request: Request, payload: &[u8], mut fds: Vec<OwnedFd>) -> Handled {
        let value = expect_u64(request, payload)?;
        // Cites vhost-user-set-vring-kick-1.
        let no_fd = value & VRING_NOFD != 0;
        count_fds(request, &fds, usize::from(!no_fd))?;
        // All other bits are the index. All of them are checked, although there are fewer than 256
        // rings.
        let index = self.ring_index(request, value & !VRING_NOFD)?;
        let fd = fds.pop().map(Arc::new);
        let has = self.ring_fds();
        let ring = &mut self.rings[index];
        let slot = match request {
            Request::SetVringKick => &ring.kick,
            Request::SetVringCall => &ring.call,
            _ => &ring.err,
        };
        if fd.is_some() && slot.is_none() && has >= self.max_ring_fds {
            return Err(ProtocolError::TooManyRingFds { request, index, max: self.max_ring_fds });
        }
        match request {
            Request::SetVringKick => {
                // Cites vhost-user-set-vring-kick-2.
                (ring.kick, ring.polled) = (fd, no_fd);
                ring.starts = ring.starts.wrapping_add(1);
            }
            Request::SetVringCall => ring.call = fd,
            _ => ring.err = fd,
        }
        ring_changed(index)
    }

    fn get_config(&self, payload: &[u8]) -> Handled {
        let mut access = expect_config(Request::GetConfig, payload)?;
        let ConfigAccess { offset, size, .. } = access;
        let space = self.offer.config.to_bytes();
        let bytes = usize::try_from(offset)
            .ok()
            .zip(usize::try_from(size).ok())
            .and_then(|(offset, size)| space.get(offset..)?.get(..size))
            .filter(|bytes| !bytes.is_empty())
            .ok_or(ProtocolError::ConfigRange { offset, size, len: NetConfig::LEN })?;
        // Cites vhost-user-get-config-1.
        access.bytes = bytes.to_vec();
        Ok((Effect::None, Answer::Payload(access.encode()), Rollback::None))
    }

    fn set_inflight_fd(&mut self, payload: &[u8], mut fds: Vec<OwnedFd>) -> Handled {
        let request = Request::SetInflightFd;
        let spec = self.inflight(request, payload)?;
        count_fds(request, &fds, 1)?;
        match fds.pop() {
            Some(fd) => done(Effect::KeepInflight(spec, fd)),
            None => Err(ProtocolError::FdCount { request, got: 0, want: 1 }),
        }
    }

    fn set_device_state_fd(&self, payload: &[u8], mut fds: Vec<OwnedFd>) -> Handled {
        let request = Request::SetDeviceStateFd;
        let TransferSpec { direction, phase } =
            TransferSpec::decode(payload).ok_or_else(|| payload_size(request, payload, "8"))?;
        count_fds(request, &fds, 1)?;
        self.check_suspended(request)?;
        let effect = match (direction, phase, fds.pop()) {
            (0, 0, Some(fd)) => Effect::SaveState(fd),
            (1, 0, Some(fd)) => Effect::LoadState(fd),
            _ => return Err(ProtocolError::StateTransfer { direction, phase }),
        };
        // Cites vhost-user-device-state-fd-2.
        Ok((effect, Answer::State { flags: STATE_NOFD }, Rollback::None))
    }

    /// Checks that the device is suspended ("While all vrings are stopped, the device is
    /// suspended"): its state can be moved only then.
    fn check_suspended(&self, request: Request) -> Result<(), ProtocolError> {
        // Cites vhost-user-migrating-3.
        match self.rings.iter().position(RingSetup::is_started) {
            Some(index) => Err(ProtocolError::StateWhileRunning { request, index }),
            None => Ok(()),
        }
    }

    /// Reads the description of an in-flight table, and checks the rings that it is for: both
    /// numbers over their full range.
    fn inflight(&self, request: Request, payload: &[u8]) -> Result<InflightSpec, ProtocolError> {
        let spec =
            InflightSpec::decode(payload).ok_or_else(|| payload_size(request, payload, "20, or 24 with padding"))?;
        let InflightSpec { queues, queue_size: size, .. } = spec;
        let rings = self.rings.len();
        if queues == 0 || usize::from(queues) > rings || !(1..=1 << 15).contains(&size) {
            return Err(ProtocolError::Inflight { request, queues, size, rings });
        }
        Ok(spec)
    }

    /// Checks a ring's index over its full width.
    fn ring_index(&self, request: Request, index: u64) -> Result<usize, ProtocolError> {
        // Cites vhost-user-multiple-queue-4.
        let rings = self.rings.len();
        usize::try_from(index).ok().filter(|index| *index < rings).ok_or(ProtocolError::RingIndex {
            request,
            index,
            rings,
        })
    }

    /// Checks the index of a ring that must not run.
    fn stopped_ring(&self, request: Request, index: u32) -> Result<usize, ProtocolError> {
        let index = self.ring_index(request, u64::from(index))?;
        if self.ready(short(index)) { Err(ProtocolError::RingRunning { request, index }) } else { Ok(index) }
    }
}

/// "SET_LOG_BASE", in the form of LOG_SHMFD.
fn set_log_base(payload: &[u8], mut fds: Vec<OwnedFd>) -> Handled {
    let request = Request::SetLogBase;
    // Cites vhost-user-migration-5.
    let LogSpec { size, offset } = LogSpec::decode(payload).ok_or_else(|| payload_size(request, payload, "16"))?;
    count_fds(request, &fds, 1)?;
    let Some(fd) = fds.pop() else {
        return Err(ProtocolError::FdCount { request, got: 0, want: 1 });
    };
    if !(1..=MAX_LOG).contains(&size) || offset.checked_add(size).is_none() {
        return Err(ProtocolError::LogRange { size, offset, max: MAX_LOG });
    }
    Ok((Effect::Log(LogFd { size, offset, fd }), Answer::Success, Rollback::None))
}

/// "SET_LOG_FD": a descriptor for notifying the frontend of new marks. It is closed: a frontend
/// reads the log whenever it likes, and no known frontend sends the request.
fn set_log_fd(payload: &[u8], fds: &[OwnedFd]) -> Handled {
    let request = Request::SetLogFd;
    expect_empty(request, payload)?;
    count_fds(request, fds, 1)?;
    done(Effect::None)
}

fn done(effect: Effect) -> Handled {
    Ok((effect, Answer::Ack, Rollback::None))
}

fn ring_changed(index: usize) -> Handled {
    Ok((Effect::Ring(short(index)), Answer::Ack, Rollback::Ring(index)))
}

/// Returns a checked index as it is passed around; there are at most 255 rings.
fn short(index: usize) -> u16 {
    index.saturating_as::<u16>()
}

fn answer_u64(request: Request, payload: &[u8], number: u64) -> Handled {
    expect_empty(request, payload)?;
    Ok((Effect::None, Answer::Payload(number.to_ne_bytes().to_vec()), Rollback::None))
}

fn count_fds(request: Request, fds: &[OwnedFd], want: usize) -> Result<(), ProtocolError> {
    if fds.len() == want { Ok(()) } else { Err(ProtocolError::FdCount { request, got: fds.len(), want }) }
}

fn payload_size(request: Request, payload: &[u8], want: &'static str) -> ProtocolError {
    ProtocolError::PayloadSize { request, got: payload.len(), want }
}

fn expect_empty(request: Request, payload: &[u8]) -> Result<(), ProtocolError> {
    if payload.is_empty() { Ok(()) } else { Err(payload_size(request, payload, "0")) }
}

fn expect_u64(request: Request, payload: &[u8]) -> Result<u64, ProtocolError> {
    decode_u64(payload).ok_or_else(|| payload_size(request, payload, "8"))
}

fn expect_state(request: Request, payload: &[u8]) -> Result<VringState, ProtocolError> {
    VringState::decode(payload).ok_or_else(|| payload_size(request, payload, "8"))
}

fn expect_config(request: Request, payload: &[u8]) -> Result<ConfigAccess, ProtocolError> {
    ConfigAccess::decode(payload).ok_or_else(|| payload_size(request, payload, "12, with or without the size it names"))
}
