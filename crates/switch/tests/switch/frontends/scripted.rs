//! A program that acts by its row of the table.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use straightline_virtio::features as f;
use straightline_virtio::vhost_user::message::{ConfigAccess, InflightSpec, VringAddr, VringState};
use straightline_virtio::vhost_user::{NetConfig, RegionSpec, Request};

use super::device::{Memory, Ring, SIZE};
use super::table::{Pairs, QueueNumUse, RingBase, RingStep, Row, Step};
use super::wire::Wire;

/// The fewest memory slots with which any program works.
const MIN_SLOTS: u64 = 8;

/// A program whose guest's device runs.
pub(crate) struct Scripted {
    row: Row,
    wire: Wire,
    memory: Memory,
    /// The receive and the transmit ring of each pair; then the control ring, if it is ours.
    rings: Vec<Ring>,
    pairs: u16,
    features: u64,
    /// Packets that were sent before their ring was enabled.
    pub(crate) posted: Vec<Vec<u8>>,
    /// True if the rings are set up for the second time.
    is_back: bool,
    known: Known,
    inflight: Option<(InflightSpec, OwnedFd)>,
    /// Held open.
    channel: Option<UnixStream>,
}

/// The answers that the program received.
#[derive(Default)]
struct Known {
    offered: u64,
    protocol: u64,
    queue_num: Option<u64>,
    slots: u64,
    status: u8,
    config: Option<[u8; 12]>,
    regions_added: bool,
}

impl Scripted {
    /// Plays the row up to its guest's DRIVER_OK. `wanted` is the number of queue pairs that the
    /// program is told to use, or that its guest must find in the configuration space. `posted` is
    /// called after packets were sent through rings that are not enabled yet.
    ///
    /// # Errors
    /// The error with which the program itself would have ended.
    pub(crate) fn start(
        socket: &Path,
        row: Row,
        wanted: u16,
        frame: &dyn Fn(u16) -> Vec<u8>,
        posted: &dyn Fn(),
    ) -> Result<Self> {
        let rings = 2 * wanted + 1;
        let mut scripted = Scripted {
            wire: Wire::connect(socket, row.acks)?,
            memory: Memory::new(rings, row.same_addresses)?,
            rings: Vec::new(),
            pairs: wanted,
            features: 0,
            posted: Vec::new(),
            is_back: false,
            known: Known::default(),
            inflight: None,
            channel: None,
            row,
        };
        scripted.make_rings(2 * wanted)?;
        scripted.play(row.connect, None, frame, posted)?;
        scripted.choose(wanted)?;
        scripted.play(row.start, None, frame, posted)?;
        // The connection still works after all of it was read.
        scripted.wire.get(Request::GetFeatures)?;
        for pair in 0..scripted.pairs {
            scripted.rings[usize::from(2 * pair)].give()?;
        }
        Ok(scripted)
    }

    /// Loses the backend and finds it again, like a program that reconnects; its guest continues
    /// with its rings.
    ///
    /// # Errors
    /// The error with which the program itself would have ended.
    pub(crate) fn come_back(&mut self, socket: &Path, frame: &dyn Fn(u16) -> Vec<u8>, posted: &dyn Fn()) -> Result<()> {
        self.wire = Wire::connect(socket, self.row.acks)?;
        (self.is_back, self.known.regions_added, self.known.status) = (true, false, 0);
        self.play(self.row.again, None, frame, posted)?;
        // QEMU and virtio-user compare the features. Other programs set the same features again.
        ensure!(self.features & !self.known.offered == 0, "the backend lacks features of before");
        self.wire.get(Request::GetFeatures)?;
        Ok(())
    }

    /// Chooses features, and with them the rings to use, as the driver does.
    fn choose(&mut self, wanted: u16) -> Result<()> {
        let Row { features, multiqueue, pairs, .. } = self.row;
        let features = features | if wanted > 1 { multiqueue } else { 0 };
        self.features = self.known.offered & (features | f::VHOST_USER_F_PROTOCOL_FEATURES);
        let several = self.features & f::VIRTIO_NET_F_MQ != 0;
        ensure!(wanted == 1 || several, "the guest has one queue pair: it is not offered several");
        let mut rings = 2 * wanted;
        if pairs == Pairs::Ours && self.features & f::VIRTIO_NET_F_CTRL_VQ != 0 {
            rings += 1;
        }
        if self.row.counts == QueueNumUse::AllRings {
            // Without GET_QUEUE_NUM it makes three.
            let made = self.known.queue_num.unwrap_or(3);
            ensure!(u64::from(rings) <= made, "the guest's driver does not probe: {made} rings, not {rings}");
        }
        self.make_rings(rings)?;
        self.rings.iter_mut().try_for_each(|ring| ring.set_up(&self.memory, self.features))
    }

    /// Makes the rings of the device as the program does: notifications without drivers.
    fn make_rings(&mut self, rings: u16) -> Result<()> {
        for index in u16::try_from(self.rings.len())?..rings {
            self.rings.push(Ring::new(index, self.row.call_by_socket)?);
        }
        Ok(())
    }

    fn play(
        &mut self,
        steps: &'static [Step],
        pair: Option<u16>,
        frame: &dyn Fn(u16) -> Vec<u8>,
        posted: &dyn Fn(),
    ) -> Result<()> {
        for &step in steps {
            match step {
                Step::Pairs(steps) => {
                    for pair in 0..self.pairs {
                        self.play(steps, Some(pair), frame, posted)?;
                    }
                }
                Step::First(steps) if pair == Some(0) => self.play(steps, pair, frame, posted)?,
                Step::Last(steps) if pair == Some(self.pairs - 1) => self.play(steps, pair, frame, posted)?,
                Step::First(_) | Step::Last(_) => {}
                Step::Rings(steps) => {
                    let all = 0..u16::try_from(self.rings.len())?;
                    for index in pair.map_or(all, |pair| 2 * pair..2 * pair + 2) {
                        for &step in steps {
                            self.set_ring(step, index).with_context(|| format!("ring {index}"))?;
                        }
                    }
                }
                Step::Post => {
                    for pair in 0..self.pairs {
                        let frame = frame(pair);
                        self.send(pair, &frame)?;
                        self.posted.push(frame);
                    }
                    posted();
                }
                step => self.tell(step)?,
            }
        }
        Ok(())
    }

    fn negotiated(&self, protocol: u64) -> bool {
        self.known.protocol & protocol != 0
    }

    /// Plays a step for the entire device.
    fn tell(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Owner => self.wire.set(Request::SetOwner, Vec::new(), &[]),
            Step::Features => {
                self.known.offered = self.wire.get(Request::GetFeatures)?;
                Ok(())
            }
            Step::Protocol => {
                ensure!(self.known.offered & f::VHOST_USER_F_PROTOCOL_FEATURES != 0, "protocol features");
                self.known.protocol = self.wire.get(Request::GetProtocolFeatures)? & self.row.protocol;
                self.set_protocol_features()
            }
            Step::ProtocolAgain => self.set_protocol_features(),
            Step::QueueNum if self.negotiated(f::VHOST_USER_PROTOCOL_F_MQ) => self.compare_queue_num(),
            Step::MemSlots if self.negotiated(f::VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS) => {
                let slots = self.wire.get(Request::GetMaxMemSlots)?;
                ensure!(slots >= self.known.slots.max(MIN_SLOTS), "{slots} memory slots, after {}", self.known.slots);
                self.known.slots = slots;
                Ok(())
            }
            Step::BackendChannel if self.negotiated(f::VHOST_USER_PROTOCOL_F_BACKEND_REQ) => {
                let (ours, theirs) = UnixStream::pair()?;
                self.channel = Some(ours);
                self.wire.set(Request::SetBackendReqFd, Vec::new(), &[theirs.as_fd()])
            }
            Step::Config(flags, places) if self.negotiated(f::VHOST_USER_PROTOCOL_F_CONFIG) => {
                places.iter().try_for_each(|&(offset, size)| self.read_config(flags, offset, size))
            }
            Step::SetFeatures => self.wire.set_number(Request::SetFeatures, self.features),
            Step::Mtu => {
                let known = self.negotiated(f::VHOST_USER_PROTOCOL_F_NET_MTU);
                if known && self.features & f::VIRTIO_NET_F_MTU != 0 {
                    self.wire.set_number(Request::NetSetMtu, 1500)?;
                }
                Ok(())
            }
            Step::MemTable => {
                let fds = self.memory.specs.map(|_| self.memory.file.as_fd());
                self.wire.set(Request::SetMemTable, RegionSpec::encode_table(&self.memory.specs), &fds)
            }
            Step::AddRegions if self.known.regions_added => Ok(()),
            Step::AddRegions | Step::AddRegionsAgain => {
                ensure!(self.negotiated(f::VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS), "memory slots");
                self.known.regions_added = true;
                let file = self.memory.file.as_fd();
                let add = |spec: &RegionSpec| self.wire.set(Request::AddMemReg, spec.encode_single(), &[file]);
                self.memory.specs.iter().try_for_each(add)
            }
            Step::Inflight if self.negotiated(f::VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD) => self.share_inflight(),
            step if self.negotiated(f::VHOST_USER_PROTOCOL_F_STATUS) => self.tell_status(step),
            _ => Ok(()),
        }
    }

    fn set_protocol_features(&mut self) -> Result<()> {
        self.wire.reply_ack = self.negotiated(f::VHOST_USER_PROTOCOL_F_REPLY_ACK);
        self.wire.set_number(Request::SetProtocolFeatures, self.known.protocol)
    }

    fn tell_status(&mut self, step: Step) -> Result<()> {
        match step {
            Step::SetStatus(status) => self.wire.set_number(Request::SetStatus, status.into()),
            Step::StatusHas(bits) => {
                let status = self.status()?;
                ensure!(status & bits == bits, "the device's status is {status:#x}");
                Ok(())
            }
            Step::AddStatus(bits) => {
                let status = self.status()?;
                if status & bits == bits {
                    return Ok(());
                }
                self.known.status = status | bits;
                self.wire.set_number(Request::SetStatus, self.known.status.into())
            }
            _ => Ok(()),
        }
    }

    /// In the answer to GET_STATUS, no bit that was set may be missing.
    fn status(&self) -> Result<u8> {
        let status = u8::try_from(self.wire.get(Request::GetStatus)?).context("a status of 8 bits")?;
        ensure!(status & self.known.status == self.known.status, "the device's status is {status:#x}");
        Ok(status)
    }

    fn compare_queue_num(&mut self) -> Result<()> {
        let most = self.wire.get(Request::GetQueueNum)?;
        self.known.queue_num = Some(most);
        let wanted = u64::from(self.pairs);
        match self.row.counts {
            QueueNumUse::Never => unreachable!("it does not ask"),
            QueueNumUse::Pairs => ensure!(wanted <= most, "you are asking more queues than supported: {most}"),
            QueueNumUse::Rings => {
                let wanted = 2 * wanted;
                // The crate's VHOST_USER_MAX_VRINGS.
                ensure!(most <= 0x8000, "invalid message");
                ensure!(wanted <= most, "requested too many queues ({wanted}) since the backend only supports {most}");
            }
            QueueNumUse::AllRings => {}
        }
        Ok(())
    }

    fn read_config(&mut self, flags: u32, offset: u32, size: u32) -> Result<()> {
        let request = Request::GetConfig;
        let bytes = vec![0; size as usize];
        let asked = ConfigAccess { offset, size, flags, bytes };
        let (answer, _) = self.wire.ask(request, asked.encode(), 0)?;
        let answer = ConfigAccess::decode(&answer).context("a part of the configuration space")?;
        ensure!(
            (answer.offset, answer.size, answer.bytes.len()) == (offset, size, size as usize),
            "{size} bytes at {offset}, not {} at {}",
            answer.size,
            answer.offset
        );
        let config = self.known.config.get_or_insert_default();
        for (at, byte) in (offset as usize..).zip(answer.bytes) {
            if let Some(known) = config.get_mut(at) {
                *known = byte;
            }
        }
        Ok(())
    }

    /// The table of buffers in flight is made on the first connection, and kept.
    fn share_inflight(&mut self) -> Result<()> {
        if self.inflight.is_none() {
            let queues = u16::try_from(self.rings.len())?;
            let asked = InflightSpec { queues, queue_size: SIZE, ..Default::default() };
            let (answer, mut fds) = self.wire.ask(Request::GetInflightFd, asked.encode(), 1)?;
            let table = InflightSpec::decode(&answer).context("a table")?;
            ensure!((table.queues, table.queue_size) == (queues, SIZE) && table.mmap_size > 0, "{table:?}");
            self.inflight = fds.pop().map(|fd| (table, fd));
        }
        let (table, fd) = self.inflight.as_ref().context("a table")?;
        self.wire.set(Request::SetInflightFd, table.encode(), &[fd.as_fd()])
    }

    /// Returns the position of a ring that the program sends.
    fn base(&self, ring: &Ring) -> u16 {
        match (ring.places(), self.row.again_at) {
            (Some((used, _)), RingBase::Used) if self.is_back => used,
            (Some((_, available)), RingBase::Available) if self.is_back => available,
            _ => 0,
        }
    }

    fn set_ring(&self, step: RingStep, index: u16) -> Result<()> {
        let Scripted { row, wire, memory, .. } = self;
        let ring = &self.rings[usize::from(index)];
        if row.counts == QueueNumUse::Rings {
            let most = self.known.queue_num.unwrap_or(2);
            ensure!(u64::from(index) < most, "there are {most} rings");
        }
        let state = |num: u32| VringState { index: index.into(), num }.encode();
        let number = u64::from(index).to_ne_bytes().to_vec();
        match step {
            RingStep::Num => wire.set(Request::SetVringNum, state(SIZE.into()), &[]),
            RingStep::Base => wire.set(Request::SetVringBase, state(self.base(ring).into()), &[]),
            RingStep::Addr => {
                let packed = self.features & f::VIRTIO_F_RING_PACKED != 0;
                let place = memory.geometry(index, packed);
                let addr = VringAddr {
                    index: index.into(),
                    flags: 0,
                    desc: place.desc,
                    used: place.used,
                    avail: place.avail,
                    log: 0,
                };
                wire.set(Request::SetVringAddr, addr.encode(), &[])
            }
            RingStep::Call => wire.set(Request::SetVringCall, number, &[ring.call.as_fd()]),
            RingStep::Err => wire.set(Request::SetVringErr, number, &[ring.err.as_fd()]),
            RingStep::Kick => wire.set(Request::SetVringKick, number, &[ring.kick.as_fd()]),
            RingStep::Enable => wire.set(Request::SetVringEnable, state(1), &[]),
            RingStep::EnableFirstOnly => wire.set(Request::SetVringEnable, state(u32::from(index < 2)), &[]),
            RingStep::EnableFirst if index < 2 => wire.set(Request::SetVringEnable, state(1), &[]),
            RingStep::EnableFirst => Ok(()),
        }
    }

    /// Uses all queue pairs, as the driver does. Returns the acknowledgements of the commands that
    /// it sent to us.
    pub(crate) fn use_all_pairs(&mut self) -> Result<Vec<u8>> {
        let mut acks = Vec::new();
        let pairs = self.pairs;
        if self.row.pairs == Pairs::Ours {
            let control = self.rings.get_mut(usize::from(2 * pairs)).context("a control ring")?;
            // A receive mode: not promiscuous.
            acks.push(control.command(&self.memory, &[0, 0, 0])?);
            if pairs > 1 {
                let [low, high] = pairs.to_le_bytes();
                acks.push(control.command(&self.memory, &[4, 0, low, high])?);
            }
        } else if pairs > 1 {
            self.play(self.row.all_pairs, None, &|_| Vec::new(), &|| ())?;
            self.wire.get(Request::GetFeatures)?;
        }
        Ok(acks)
    }

    /// Sends a frame through a pair.
    pub(crate) fn send(&mut self, pair: u16, frame: &[u8]) -> Result<()> {
        self.rings[usize::from(2 * pair + 1)].send(&self.memory, frame)
    }

    /// Returns packets that have arrived at a pair.
    pub(crate) fn receive(&mut self, pair: u16) -> Result<Vec<Vec<u8>>> {
        self.rings[usize::from(2 * pair)].receive(&self.memory)
    }

    /// Returns the configuration space, if the program reads it.
    pub(crate) fn config(&self) -> Option<NetConfig> {
        let [a, b, c, d, e, f, status @ .., p, q, m, n] = self.known.config?;
        Some(NetConfig {
            mac: [a, b, c, d, e, f],
            status: u16::from_le_bytes(status),
            max_virtqueue_pairs: u16::from_le_bytes([p, q]),
            mtu: u16::from_le_bytes([m, n]),
        })
    }
}
