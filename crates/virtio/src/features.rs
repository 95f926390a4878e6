//! Feature bits by their names in the specifications, and the short names that operators see.
//!
//! Three kinds of bits share the two 64-bit masks of this file:
//! - `VIRTIO_F_*` and `VIRTIO_NET_F_*` (virtio 1.3, sections 6 and 5.1.3), negotiated with the
//!   guest's driver;
//! - `VHOST_F_LOG_ALL` and `VHOST_USER_F_PROTOCOL_FEATURES`, which travel in the same mask but are
//!   negotiated between the frontend and the backend only;
//! - `VHOST_USER_PROTOCOL_F_*`, a mask of their own, negotiated with the frontend.
//!
//! Every constant is a mask of one bit, so that masks can be joined with `|`.
//!
//! ```
//! use straightline_virtio::features::{VIRTIO_F_VERSION_1, VIRTIO_NET_F_CSUM, list, names};
//!
//! let acked = VIRTIO_NET_F_CSUM | VIRTIO_F_VERSION_1;
//! assert_eq!(names(acked).collect::<Vec<_>>(), ["csum", "version-1"]);
//! assert_eq!(list(names(acked)), "csum, version-1");
//! ```

/// Defines a mask for each feature, and a table of the short names by bit.
macro_rules! feature_bits {
    ($table:ident; $($bit:literal $name:ident $short:literal $doc:literal;)+) => {
        $(
            #[doc = $doc]
            pub const $name: u64 = 1 << $bit;
        )+

        /// Short names by bit. A bit that no specification names is `bit-N`.
        const $table: [&str; 64] = {
            let mut table = UNNAMED;
            $(table[$bit] = $short;)+
            table
        };
    };
}

feature_bits! {
    FEATURE_NAMES;
    0 VIRTIO_NET_F_CSUM "csum" "Device handles packets with a partial checksum.";
    1 VIRTIO_NET_F_GUEST_CSUM "guest-csum" "Driver handles packets with a partial checksum.";
    2 VIRTIO_NET_F_CTRL_GUEST_OFFLOADS "ctrl-guest-offloads" "Offloads can be changed through the control queue.";
    3 VIRTIO_NET_F_MTU "mtu" "Device tells the largest MTU in its configuration space.";
    5 VIRTIO_NET_F_MAC "mac" "Device tells the MAC address in its configuration space.";
    6 VIRTIO_NET_F_GSO "gso" "Legacy: device handles packets with any segmentation type.";
    7 VIRTIO_NET_F_GUEST_TSO4 "guest-tso4" "Driver can receive TCP segmentation over IPv4.";
    8 VIRTIO_NET_F_GUEST_TSO6 "guest-tso6" "Driver can receive TCP segmentation over IPv6.";
    9 VIRTIO_NET_F_GUEST_ECN "guest-ecn" "Driver can receive TCP segmentation with ECN.";
    10 VIRTIO_NET_F_GUEST_UFO "guest-ufo" "Driver can receive UDP fragmentation.";
    11 VIRTIO_NET_F_HOST_TSO4 "host-tso4" "Device can receive TCP segmentation over IPv4.";
    12 VIRTIO_NET_F_HOST_TSO6 "host-tso6" "Device can receive TCP segmentation over IPv6.";
    13 VIRTIO_NET_F_HOST_ECN "host-ecn" "Device can receive TCP segmentation with ECN.";
    14 VIRTIO_NET_F_HOST_UFO "host-ufo" "Device can receive UDP fragmentation.";
    15 VIRTIO_NET_F_MRG_RXBUF "mrg-rxbuf" "Driver can merge receive buffers.";
    16 VIRTIO_NET_F_STATUS "status" "The configuration space has a link status.";
    17 VIRTIO_NET_F_CTRL_VQ "ctrl-vq" "There is a control queue.";
    18 VIRTIO_NET_F_CTRL_RX "ctrl-rx" "The control queue takes receive modes.";
    19 VIRTIO_NET_F_CTRL_VLAN "ctrl-vlan" "The control queue takes VLAN filters.";
    20 VIRTIO_NET_F_CTRL_RX_EXTRA "ctrl-rx-extra" "The control queue takes further receive modes.";
    21 VIRTIO_NET_F_GUEST_ANNOUNCE "guest-announce" "Driver can announce itself after a migration.";
    22 VIRTIO_NET_F_MQ "mq" "Device has several queue pairs.";
    23 VIRTIO_NET_F_CTRL_MAC_ADDR "ctrl-mac-addr" "The control queue takes the MAC address.";
    24 VIRTIO_F_NOTIFY_ON_EMPTY "notify-on-empty" "Legacy: notify when the device runs out of buffers.";
    26 VHOST_F_LOG_ALL "log-all" "vhost: the backend logs its writes to guest memory.";
    27 VIRTIO_F_ANY_LAYOUT "any-layout" "Legacy: descriptors may be laid out in any way.";
    28 VIRTIO_F_INDIRECT_DESC "indirect-desc" "Driver may use indirect descriptors.";
    29 VIRTIO_F_EVENT_IDX "event-idx" "Notifications are suppressed by index.";
    30 VHOST_USER_F_PROTOCOL_FEATURES "protocol-features" "vhost-user: protocol features can be negotiated.";
    32 VIRTIO_F_VERSION_1 "version-1" "The driver follows virtio 1.0 or later.";
    33 VIRTIO_F_ACCESS_PLATFORM "access-platform" "Addresses go through an IOMMU.";
    34 VIRTIO_F_RING_PACKED "ring-packed" "The packed ring layout.";
    35 VIRTIO_F_IN_ORDER "in-order" "Buffers are used in the order in which they were made available.";
    36 VIRTIO_F_ORDER_PLATFORM "order-platform" "Memory accesses are ordered as the platform says.";
    37 VIRTIO_F_SR_IOV "sr-iov" "Device supports single root I/O virtualisation.";
    38 VIRTIO_F_NOTIFICATION_DATA "notification-data" "Notifications carry the available index.";
    39 VIRTIO_F_NOTIF_CONFIG_DATA "notif-config-data" "Notifications carry data that the device chose.";
    40 VIRTIO_F_RING_RESET "ring-reset" "A queue can be reset alone.";
    41 VIRTIO_F_ADMIN_VQ "admin-vq" "There are administration queues.";
    51 VIRTIO_NET_F_DEVICE_STATS "device-stats" "Device tells statistics through the control queue.";
    52 VIRTIO_NET_F_VQ_NOTF_COAL "vq-notf-coal" "Notification coalescing for each queue.";
    53 VIRTIO_NET_F_NOTF_COAL "notf-coal" "Notification coalescing.";
    54 VIRTIO_NET_F_GUEST_USO4 "guest-uso4" "Driver can receive UDP segmentation over IPv4.";
    55 VIRTIO_NET_F_GUEST_USO6 "guest-uso6" "Driver can receive UDP segmentation over IPv6.";
    56 VIRTIO_NET_F_HOST_USO "host-uso" "Device can receive UDP segmentation.";
    57 VIRTIO_NET_F_HASH_REPORT "hash-report" "Device reports the hash of a packet.";
    59 VIRTIO_NET_F_GUEST_HDRLEN "guest-hdrlen" "Driver gives the exact header length.";
    60 VIRTIO_NET_F_RSS "rss" "Device spreads packets over queues by hash.";
    61 VIRTIO_NET_F_RSC_EXT "rsc-ext" "Device reports coalesced segments.";
    62 VIRTIO_NET_F_STANDBY "standby" "Device stands by for another with the same MAC address.";
    63 VIRTIO_NET_F_SPEED_DUPLEX "speed-duplex" "Device tells speed and duplex.";
}

feature_bits! {
    PROTOCOL_NAMES;
    0 VHOST_USER_PROTOCOL_F_MQ "mq" "GET_QUEUE_NUM: several queue pairs.";
    1 VHOST_USER_PROTOCOL_F_LOG_SHMFD "log-shmfd" "The dirty log is a shared file.";
    2 VHOST_USER_PROTOCOL_F_RARP "rarp" "SEND_RARP: announce a guest after its migration.";
    3 VHOST_USER_PROTOCOL_F_REPLY_ACK "reply-ack" "Any request can ask for an acknowledgement.";
    4 VHOST_USER_PROTOCOL_F_NET_MTU "net-mtu" "NET_SET_MTU: the frontend tells the MTU.";
    5 VHOST_USER_PROTOCOL_F_BACKEND_REQ "backend-req" "A second socket for requests by the backend.";
    6 VHOST_USER_PROTOCOL_F_CROSS_ENDIAN "cross-endian" "SET_VRING_ENDIAN: legacy rings of the other byte order.";
    7 VHOST_USER_PROTOCOL_F_CRYPTO_SESSION "crypto-session" "Sessions of crypto devices.";
    8 VHOST_USER_PROTOCOL_F_PAGEFAULT "pagefault" "Postcopy migration.";
    9 VHOST_USER_PROTOCOL_F_CONFIG "config" "GET_CONFIG and SET_CONFIG: the configuration space.";
    10 VHOST_USER_PROTOCOL_F_BACKEND_SEND_FD "backend-send-fd" "The backend may send file descriptors.";
    11 VHOST_USER_PROTOCOL_F_HOST_NOTIFIER "host-notifier" "Doorbells mapped into the guest.";
    12 VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD "inflight-shmfd" "Buffers in flight are tracked in a shared file.";
    13 VHOST_USER_PROTOCOL_F_RESET_DEVICE "reset-device" "RESET_DEVICE.";
    14 VHOST_USER_PROTOCOL_F_INBAND_NOTIFICATIONS "inband-notifications" "Kicks and calls as messages.";
    15 VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS "configure-mem-slots" "Memory regions are added and removed one by one.";
    16 VHOST_USER_PROTOCOL_F_STATUS "status" "SET_STATUS and GET_STATUS: the device status.";
    17 VHOST_USER_PROTOCOL_F_XEN_MMAP "xen-mmap" "Memory regions of Xen.";
    18 VHOST_USER_PROTOCOL_F_SHARED_OBJECT "shared-object" "Shared buffers by UUID.";
    19 VHOST_USER_PROTOCOL_F_DEVICE_STATE "device-state" "The backend's state migrates with the guest.";
    20 VHOST_USER_PROTOCOL_F_SHMEM "shmem" "Shared memory regions of the backend.";
}

const UNNAMED: [&str; 64] = [
    "bit-0", "bit-1", "bit-2", "bit-3", "bit-4", "bit-5", "bit-6", "bit-7", "bit-8", "bit-9", "bit-10", "bit-11",
    "bit-12", "bit-13", "bit-14", "bit-15", "bit-16", "bit-17", "bit-18", "bit-19", "bit-20", "bit-21", "bit-22",
    "bit-23", "bit-24", "bit-25", "bit-26", "bit-27", "bit-28", "bit-29", "bit-30", "bit-31", "bit-32", "bit-33",
    "bit-34", "bit-35", "bit-36", "bit-37", "bit-38", "bit-39", "bit-40", "bit-41", "bit-42", "bit-43", "bit-44",
    "bit-45", "bit-46", "bit-47", "bit-48", "bit-49", "bit-50", "bit-51", "bit-52", "bit-53", "bit-54", "bit-55",
    "bit-56", "bit-57", "bit-58", "bit-59", "bit-60", "bit-61", "bit-62", "bit-63",
];

/// Returns the short names of virtio and vhost features, lowest bit first.
pub fn names(features: u64) -> impl Iterator<Item = &'static str> {
    set_bits(features, &FEATURE_NAMES)
}

/// Returns the short names of vhost-user protocol features, lowest bit first.
pub fn protocol_names(protocol_features: u64) -> impl Iterator<Item = &'static str> {
    set_bits(protocol_features, &PROTOCOL_NAMES)
}

/// Joins names for a message: `csum, mac`, or `none`.
pub fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let joined = names.collect::<Vec<_>>().join(", ");
    if joined.is_empty() { "none".to_owned() } else { joined }
}

fn set_bits(mask: u64, table: &'static [&'static str; 64]) -> impl Iterator<Item = &'static str> {
    table.iter().enumerate().filter(move |(bit, _)| mask >> bit & 1 == 1).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_specification() {
        // virtio 1.3, 5.1.3 and 6; vhost-user "Protocol features".
        assert_eq!(VIRTIO_NET_F_MRG_RXBUF, 1 << 15);
        assert_eq!(VIRTIO_NET_F_HOST_USO, 1 << 56);
        assert_eq!(VIRTIO_F_RING_PACKED, 1 << 34);
        assert_eq!(VHOST_USER_F_PROTOCOL_FEATURES, 0x4000_0000);
        assert_eq!(VHOST_USER_PROTOCOL_F_STATUS, 0x1_0000);
    }

    #[test]
    fn names_come_in_order_and_unknown_bits_by_number() {
        let mask = VIRTIO_F_IN_ORDER | VIRTIO_NET_F_GUEST_TSO4 | 1 << 4 | VIRTIO_F_EVENT_IDX;
        assert_eq!(names(mask).collect::<Vec<_>>(), ["bit-4", "guest-tso4", "event-idx", "in-order"]);
        assert_eq!(names(0).count(), 0);
        assert_eq!(names(u64::MAX).count(), 64);
        assert_eq!(list(names(0)), "none");
        assert_eq!(list(protocol_names(0b1001)), "mq, reply-ack");
    }

    #[test]
    fn names_are_unique() {
        for bit in 0..64 {
            let name = FEATURE_NAMES[bit];
            let protocol_name = PROTOCOL_NAMES[bit];
            assert_eq!(FEATURE_NAMES.iter().filter(|other| **other == name).count(), 1);
            assert_eq!(PROTOCOL_NAMES.iter().filter(|other| **other == protocol_name).count(), 1);
        }
    }
}
