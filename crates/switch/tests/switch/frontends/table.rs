//! The behaviour of each program, from its source.
//!
//! Feature sets are those that reach the backend with a current Linux guest and the default
//! options, if the backend offers them. A step that needs a protocol feature is left out if that
//! feature was not offered.

use straightline_virtio::features::*;
use straightline_virtio::vhost_user::Request;

/// One program's handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Version and files that the row is taken from.
    pub(crate) source: &'static str,
    /// The virtio features in SET_FEATURES, except `VHOST_USER_F_PROTOCOL_FEATURES`.
    pub(crate) features: u64,
    /// Features that it acknowledges only with several queue pairs.
    pub(crate) multiqueue: u64,
    pub(crate) protocol: u64,
    /// Requests that it has acknowledged once REPLY_ACK is negotiated.
    pub(crate) acks: Acks,
    pub(crate) counts: QueueNumUse,
    pub(crate) pairs: Pairs,
    /// True if its own addresses of guest memory are the guest's.
    pub(crate) same_addresses: bool,
    /// True if calls to the driver are bytes in a socket, not counts of an eventfd.
    pub(crate) call_by_socket: bool,
    /// Steps before the guest's driver has examined the device.
    pub(crate) connect: &'static [Step],
    /// Steps from the driver's choice of features to its DRIVER_OK.
    pub(crate) start: &'static [Step],
    /// Messages that follow when the driver asks for all of several queue pairs.
    pub(crate) all_pairs: &'static [Step],
    /// Messages after the program has lost the backend and found it again; empty if it does not
    /// reconnect. `all_pairs` follows, as before.
    pub(crate) again: &'static [Step],
    /// The positions of split rings that it then sends.
    pub(crate) again_at: RingBase,
}

/// The position of a ring that a frontend sends after it has lost its backend.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RingBase {
    /// At 0.
    Nowhere,
    /// At the used index.
    Used,
    /// The available index. The device does not take entries that were available before, unless a
    /// table of buffers in flight has them.
    Available,
}

/// The number that a program compares with the answer to GET_QUEUE_NUM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueNumUse {
    /// It does not ask.
    Never,
    /// The number of queue pairs. If there are fewer than the program was told to use, it fails to
    /// start.
    Pairs,
    /// The number of rings with packets. If there are fewer than the program was told to use, it
    /// fails to start. It may not name a ring beyond this number.
    Rings,
    /// The number of all rings. The device has exactly this number, and a driver that misses a ring
    /// does not probe.
    AllRings,
}

/// The source of the number of queue pairs. It also decides who executes commands of the control
/// queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairs {
    /// The user tells the program the number. The program executes commands itself.
    Own,
    /// The guest reads the number from our configuration space, and sends us its commands.
    Ours,
}

/// The requests that carry NEED_REPLY once REPLY_ACK is negotiated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Acks {
    /// All, from the SET_PROTOCOL_FEATURES on that negotiates it.
    All,
    /// All after that one.
    AllAfter,
    Only(&'static [Request]),
}

/// A step of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// SET_OWNER.
    Owner,
    /// GET_FEATURES.
    Features,
    /// GET_PROTOCOL_FEATURES and SET_PROTOCOL_FEATURES.
    Protocol,
    /// SET_PROTOCOL_FEATURES as before, without a query.
    ProtocolAgain,
    /// GET_QUEUE_NUM, and the comparison of its answer.
    QueueNum,
    /// GET_MAX_MEM_SLOTS. The number must not fall.
    MemSlots,
    /// SET_BACKEND_REQ_FD.
    BackendChannel,
    /// GET_CONFIG of these offsets and sizes, with these flags.
    Config(u32, &'static [(u32, u32)]),
    /// SET_FEATURES.
    SetFeatures,
    /// NET_SET_MTU, if the driver accepted the MTU.
    Mtu,
    /// SET_STATUS.
    SetStatus(u8),
    /// GET_STATUS, which must contain these bits.
    StatusHas(u8),
    /// GET_STATUS, and SET_STATUS with these bits added if one is missing.
    AddStatus(u8),
    /// SET_MEM_TABLE with all regions.
    MemTable,
    /// ADD_MEM_REG for each region, only the first time of each connection.
    AddRegions,
    /// ADD_MEM_REG for each region, every time.
    AddRegionsAgain,
    /// GET_INFLIGHT_FD and SET_INFLIGHT_FD.
    Inflight,
    /// For each ring in turn: those of the pair inside [`Step::Pairs`], otherwise all.
    Rings(&'static [RingStep]),
    /// For each queue pair in turn.
    Pairs(&'static [Step]),
    /// For the first queue pair only.
    First(&'static [Step]),
    /// For the last queue pair only.
    Last(&'static [Step]),
    /// The guest puts a packet into each transmit ring, and kicks.
    Post,
}

/// A step of a program for one ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RingStep {
    Num,
    Base,
    Addr,
    Call,
    Err,
    Kick,
    Enable,
    /// SET_VRING_ENABLE with 1 for the first pair, with 0 for the others.
    EnableFirstOnly,
    /// SET_VRING_ENABLE with 1 for the first pair, nothing for the others.
    EnableFirst,
}

use RingStep::{Addr, Base, Call, Enable, EnableFirst, EnableFirstOnly, Err, Kick, Num};
use Step::{
    AddRegions, AddRegionsAgain, AddStatus, BackendChannel, Config, Features, First, Inflight, Last, MemSlots,
    MemTable, Mtu, Owner, Post, Protocol, ProtocolAgain, QueueNum, Rings, SetFeatures, SetStatus, StatusHas,
};

/// The features that Linux' virtio-net driver and its rings accept of those that we may offer
/// (drivers/net/virtio_net.c `VIRTNET_FEATURES`, drivers/virtio/virtio_ring.c
/// `vring_transport_features`), UDP segmentation since 6.2.
const LINUX: u64 = LINUX_NET
    | VIRTIO_F_VERSION_1
    | VIRTIO_F_INDIRECT_DESC
    | VIRTIO_F_EVENT_IDX
    | VIRTIO_F_RING_PACKED
    | VIRTIO_F_ORDER_PLATFORM
    | VIRTIO_F_NOTIFICATION_DATA;
const LINUX_NET: u64 = OFFLOADS
    | VIRTIO_NET_F_MAC
    | VIRTIO_NET_F_STATUS
    | VIRTIO_NET_F_MRG_RXBUF
    | VIRTIO_NET_F_MTU
    | VIRTIO_NET_F_MQ
    | COMMANDS;
const OFFLOADS: u64 = VIRTIO_NET_F_CSUM
    | VIRTIO_NET_F_GUEST_CSUM
    | VIRTIO_NET_F_HOST_TSO4
    | VIRTIO_NET_F_HOST_TSO6
    | VIRTIO_NET_F_HOST_ECN
    | VIRTIO_NET_F_GUEST_TSO4
    | VIRTIO_NET_F_GUEST_TSO6
    | VIRTIO_NET_F_GUEST_ECN
    | USO;
const USO: u64 = VIRTIO_NET_F_HOST_USO | VIRTIO_NET_F_GUEST_USO4 | VIRTIO_NET_F_GUEST_USO6;
const COMMANDS: u64 = VIRTIO_NET_F_CTRL_VQ
    | VIRTIO_NET_F_CTRL_RX
    | VIRTIO_NET_F_CTRL_VLAN
    | VIRTIO_NET_F_CTRL_MAC_ADDR
    | VIRTIO_NET_F_CTRL_GUEST_OFFLOADS
    | VIRTIO_NET_F_GUEST_ANNOUNCE;

/// Device status bits (virtio 1.2, 2.1).
const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;

/// Flag of GET_CONFIG: writable fields.
const WRITABLE: u32 = 1;

pub(crate) const ROWS: [Row; 9] = [
    QEMU_7_2,
    QEMU_10_0,
    CLOUD_HYPERVISOR_40,
    CLOUD_HYPERVISOR_53,
    CLOUD_HYPERVISOR_MAIN,
    RUST_VMM,
    CROSVM,
    VIRTIO_USER,
    USER_MODE_LINUX,
];

/// It acknowledges every protocol feature that it knows, whether or not it uses it.
const QEMU_7_2: Row = Row {
    name: "QEMU 7.2",
    source: "7.2.22 (Debian 12): net/vhost-user.c vhost_user_start; hw/virtio/vhost-user.c vhost_user_backend_init; \
             hw/virtio/vhost.c vhost_dev_init, vhost_dev_start; hw/net/vhost_net.c user_feature_bits, vhost_net_start",
    features: VIRTIO_F_VERSION_1
        | VIRTIO_F_INDIRECT_DESC
        | VIRTIO_F_EVENT_IDX
        | VIRTIO_NET_F_MRG_RXBUF
        | VIRTIO_NET_F_MTU
        | VIRTIO_NET_F_GUEST_ANNOUNCE
        | OFFLOADS & !USO,
    multiqueue: VIRTIO_NET_F_MQ,
    // VHOST_USER_PROTOCOL_FEATURE_MASK without CONFIG, which its own network device does not use.
    protocol: ((1 << 17) - 1) & !VHOST_USER_PROTOCOL_F_CONFIG,
    acks: Acks::Only(&[Request::SetBackendReqFd, Request::AddMemReg, Request::NetSetMtu]),
    counts: QueueNumUse::Pairs,
    pairs: Pairs::Own,
    same_addresses: false,
    call_by_socket: false,
    // Then the device is made: virtio_net_set_queue_pairs.
    connect: &[Step::Pairs(&QEMU_CONNECT), Rings(&[EnableFirstOnly])],
    start: &[Mtu, Step::Pairs(&QEMU_7_2_START)],
    all_pairs: &[Rings(&[Enable])],
    again: &[Step::Pairs(&QEMU_CONNECT), Mtu, Step::Pairs(&QEMU_7_2_START)],
    again_at: RingBase::Used,
};

const QEMU_CONNECT: [Step; 7] =
    [Features, Protocol, First(&[QueueNum]), MemSlots, First(&[BackendChannel, Owner]), Features, Rings(&[Call, Err])];

const QEMU_7_2_START: [Step; 6] = [
    Rings(&[EnableFirst]),
    SetFeatures,
    AddStatus(FEATURES_OK),
    AddRegionsAgain,
    Rings(&[Num, Base, Addr, Kick, Call]),
    Last(&[AddStatus(ACKNOWLEDGE | DRIVER | DRIVER_OK)]),
];

const QEMU_10_0_START: [Step; 6] = [
    Rings(&[EnableFirst]),
    SetFeatures,
    AddStatus(FEATURES_OK),
    // vhost_user_per_device_request.
    AddRegions,
    Rings(&[Num, Base, Addr, Kick, Call]),
    Last(&[AddStatus(ACKNOWLEDGE | DRIVER | DRIVER_OK)]),
];

const QEMU_10_0: Row = Row {
    name: "QEMU 10.0",
    source: "10.0.13 (Debian 13): the same files",
    features: QEMU_7_2.features | OFFLOADS | VIRTIO_F_IN_ORDER | VIRTIO_F_NOTIFICATION_DATA,
    protocol: ((1 << 20) - 1) & !VHOST_USER_PROTOCOL_F_CONFIG & !(1 << 17),
    acks: Acks::Only(&[
        Request::SetBackendReqFd,
        Request::AddMemReg,
        Request::NetSetMtu,
        // vhost_user_set_vring_enable waits, so that the guest's next kick finds the ring enabled.
        Request::SetVringEnable,
    ]),
    start: &[Mtu, Step::Pairs(&QEMU_10_0_START)],
    again: &[Step::Pairs(&QEMU_CONNECT), Mtu, Step::Pairs(&QEMU_10_0_START)],
    ..QEMU_7_2
};

const CLOUD_HYPERVISOR_40: Row = Row {
    name: "Cloud Hypervisor v40.0",
    source: "virtio-devices/src/vhost_user/net.rs Net::new, activate; vu_common_ctrl.rs negotiate_features_vhost_user, \
             setup_vhost_user; crate vhost 0.11: get_queue_num, set_vring_num",
    // It keeps MAC, STATUS and the control queue to itself, but names the queue.
    features: VIRTIO_F_VERSION_1 | VIRTIO_F_EVENT_IDX | VIRTIO_NET_F_MRG_RXBUF | VIRTIO_NET_F_CTRL_VQ | OFFLOADS & !USO,
    multiqueue: VIRTIO_NET_F_MQ,
    protocol: VHOST_USER_PROTOCOL_F_MQ
        | VHOST_USER_PROTOCOL_F_LOG_SHMFD
        | VHOST_USER_PROTOCOL_F_REPLY_ACK
        | VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD
        | VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS,
    acks: Acks::AllAfter,
    counts: QueueNumUse::Rings,
    pairs: Pairs::Own,
    same_addresses: false,
    call_by_socket: false,
    connect: &[Owner, Features, Protocol, QueueNum],
    start: &[SetFeatures, MemTable, Rings(&[Num]), Inflight, Rings(&[Addr, Base, Call, Kick]), Post, Rings(&[Enable])],
    // All rings are enabled already; the command ends in its own thread.
    all_pairs: &[],
    again: &[
        Owner,
        Features,
        ProtocolAgain,
        SetFeatures,
        MemTable,
        Rings(&[Num]),
        Inflight,
        Rings(&[Addr, Base, Call, Kick]),
        Post,
        Rings(&[Enable]),
    ],
    again_at: RingBase::Available,
};

const CLOUD_HYPERVISOR_53: Row = Row {
    name: "Cloud Hypervisor v53.0",
    source: "the same files; crate vhost 0.16",
    features: CLOUD_HYPERVISOR_40.features
        | VIRTIO_F_INDIRECT_DESC
        | VIRTIO_F_IN_ORDER
        | VIRTIO_F_ORDER_PLATFORM
        | VIRTIO_F_NOTIFICATION_DATA,
    protocol: CLOUD_HYPERVISOR_40.protocol | VHOST_USER_PROTOCOL_F_DEVICE_STATE,
    ..CLOUD_HYPERVISOR_40
};

/// It takes MAC and MTU from our configuration space, and adds its own number of queue pairs.
const CLOUD_HYPERVISOR_MAIN: Row = Row {
    name: "Cloud Hypervisor main",
    source: "ae44c2971c83: the same files; crate vhost 0.17",
    features: CLOUD_HYPERVISOR_53.features | VIRTIO_NET_F_MAC | VIRTIO_NET_F_MTU,
    protocol: CLOUD_HYPERVISOR_53.protocol | VHOST_USER_PROTOCOL_F_CONFIG,
    connect: &[Owner, Features, Protocol, QueueNum, Config(WRITABLE, &[(0, 17)])],
    ..CLOUD_HYPERVISOR_53
};

/// A program on rust-vmm's crate that accepts everything the backend offers.
const RUST_VMM: Row = Row {
    name: "rust-vmm",
    source: "crate vhost 0.18: vhost/src/vhost_user/frontend.rs get_queue_num, set_vring_num, get_config",
    protocol: u64::MAX,
    connect: &[Owner, Features, Protocol, QueueNum, MemSlots, Config(0, &[(0, 12)])],
    start: &[SetFeatures, Inflight, MemTable, Rings(&[Num, Addr, Base, Call, Err, Kick]), Post, Rings(&[Enable])],
    all_pairs: &[],
    again: &[],
    again_at: RingBase::Nowhere,
    ..CLOUD_HYPERVISOR_53
};

const CROSVM: Row = Row {
    name: "crosvm",
    source: "f1e797a68dad: devices/src/virtio/vhost_user_frontend/mod.rs new, activate, activate_vring, read_config; \
             third_party/vmm_vhost/src/backend_client.rs; devices/src/virtio/mod.rs base_features",
    // Its features for all devices, and bits 0 to 23 and 50 to 63 for this one.
    features: VIRTIO_F_VERSION_1 | VIRTIO_F_EVENT_IDX | LINUX_NET,
    multiqueue: 0,
    protocol: VHOST_USER_PROTOCOL_F_CONFIG
        | VHOST_USER_PROTOCOL_F_MQ
        | VHOST_USER_PROTOCOL_F_BACKEND_REQ
        | VHOST_USER_PROTOCOL_F_DEVICE_STATE
        | VHOST_USER_PROTOCOL_F_REPLY_ACK,
    acks: Acks::Only(&[]),
    counts: QueueNumUse::AllRings,
    pairs: Pairs::Ours,
    same_addresses: false,
    call_by_socket: false,
    connect: &[Owner, Features, Protocol, BackendChannel, QueueNum],
    start: &[
        // The driver reads bytes and words, each with a message of its own.
        Config(WRITABLE, &[(10, 2), (8, 2), (10, 2), (0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 2)]),
        SetFeatures,
        MemTable,
        Rings(&[Num, Addr, Base, Call, Kick]),
        Post,
        Rings(&[Enable]),
    ],
    all_pairs: &[],
    again: &[],
    again_at: RingBase::Nowhere,
};

const VIRTIO_USER: Row = Row {
    name: "DPDK virtio-user",
    source: "v22.11 and 38f72e500b3b (26.11-rc0): drivers/net/virtio/virtio_user/vhost_user.c; virtio_user_dev.c \
             virtio_user_dev_init, virtio_user_start_device, virtio_user_handle_mq; virtio_user_ethdev.c set_status",
    features: VIRTIO_F_VERSION_1
        | VIRTIO_F_INDIRECT_DESC
        | VIRTIO_F_IN_ORDER
        | VIRTIO_F_ORDER_PLATFORM
        | VIRTIO_F_NOTIFICATION_DATA
        | VIRTIO_NET_F_MRG_RXBUF,
    // CTRL_VQ itself is removed.
    multiqueue: VIRTIO_NET_F_MQ | VIRTIO_NET_F_CTRL_RX | VIRTIO_NET_F_CTRL_VLAN | VIRTIO_NET_F_CTRL_MAC_ADDR,
    protocol: VHOST_USER_PROTOCOL_F_MQ | VHOST_USER_PROTOCOL_F_REPLY_ACK | VHOST_USER_PROTOCOL_F_STATUS,
    acks: Acks::Only(&[Request::SetMemTable, Request::SetStatus]),
    counts: QueueNumUse::Never,
    pairs: Pairs::Own,
    same_addresses: true,
    call_by_socket: false,
    connect: &[Owner, Features, Protocol],
    start: &VIRTIO_USER_START,
    all_pairs: &[Rings(&[Enable])],
    // As a server (`server=1`): virtio_user_dev_server_reconnect.
    again: &[
        Features,
        Protocol,
        Rings(&[Call]),
        SetFeatures,
        SetStatus(ACKNOWLEDGE | DRIVER | FEATURES_OK),
        MemTable,
        Rings(&[Num, Base, Addr, Kick]),
        Rings(&[EnableFirst]),
        SetStatus(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK),
    ],
    again_at: RingBase::Nowhere,
};

const VIRTIO_USER_START: [Step; 8] = [
    Rings(&[Call]),
    SetFeatures,
    SetStatus(ACKNOWLEDGE | DRIVER | FEATURES_OK),
    StatusHas(FEATURES_OK),
    MemTable,
    Rings(&[Num, Base, Addr, Kick]),
    Rings(&[EnableFirst]),
    SetStatus(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK),
];

const USER_MODE_LINUX: Row = Row {
    name: "User Mode Linux",
    source: "6.1 (Debian 12): arch/um/drivers/virtio_uml.c vhost_user_init, vhost_user_get_config, vu_setup_vq, \
             vu_find_vqs; arch/um/drivers/vhost_user.h VHOST_USER_SUPPORTED_PROTOCOL_F",
    features: LINUX & !USO,
    multiqueue: 0,
    protocol: VHOST_USER_PROTOCOL_F_REPLY_ACK | VHOST_USER_PROTOCOL_F_BACKEND_REQ | VHOST_USER_PROTOCOL_F_CONFIG,
    acks: Acks::All,
    counts: QueueNumUse::Never,
    pairs: Pairs::Ours,
    same_addresses: true,
    call_by_socket: true,
    connect: &[Owner, Features, Protocol, BackendChannel],
    start: &[
        // It reads from the start of the space, whatever the driver reads.
        Config(0, &[(0, 12)]),
        SetFeatures,
        Config(0, &[(0, 10), (0, 12), (0, 6), (0, 8)]),
        MemTable,
        Rings(&[Call, Num, Base, Addr]),
        Rings(&[Kick, Enable]),
    ],
    all_pairs: &[],
    again: &[],
    again_at: RingBase::Nowhere,
};
