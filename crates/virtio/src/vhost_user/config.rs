//! The configuration space of a virtio-net device (virtio 1.3, section 5.1.4).

/// The fields that a guest's driver can read about its network device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetConfig {
    /// MAC address; valid if `VIRTIO_NET_F_MAC` is offered.
    pub mac: [u8; 6],
    /// Link status, bit 0 for link up; valid if `VIRTIO_NET_F_STATUS` is offered.
    pub status: u16,
    /// Queue pairs; valid if `VIRTIO_NET_F_MQ` is offered.
    pub max_virtqueue_pairs: u16,
    /// Largest MTU; valid if `VIRTIO_NET_F_MTU` is offered.
    pub mtu: u16,
}

impl NetConfig {
    /// Bytes that can be read: the most that QEMU asks for (its `VHOST_USER_MAX_CONFIG_SIZE`).
    pub const LEN: usize = 256;
    /// Status bit: the link is up.
    pub const STATUS_LINK_UP: u16 = 1;

    /// Status bit: the driver must announce itself, and acknowledge by the control queue that it
    /// has.
    pub const STATUS_ANNOUNCE: u16 = 2;

    /// Returns the space as the driver sees it: little-endian, and zero behind the fields that we
    /// know.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[6..8].copy_from_slice(&self.status.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.max_virtqueue_pairs.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.mtu.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_virtio_says() {
        let config = NetConfig {
            mac: [0x52, 0x54, 0, 1, 2, 3],
            status: NetConfig::STATUS_LINK_UP,
            max_virtqueue_pairs: 4,
            mtu: 9000,
        };
        let bytes = config.to_bytes();
        assert_eq!(bytes[..12], [0x52, 0x54, 0, 1, 2, 3, 1, 0, 4, 0, 0x28, 0x23]);
        assert!(bytes[12..].iter().all(|byte| *byte == 0));
    }
}
