//! The MAC address that a guest reads where the configuration names none.
//!
//! A driver that reads 00:00:00:00:00:00 from its configuration space uses it, and the bridge drops
//! every packet of its guest. So the switch offers an address of its own. Like systemd's persistent
//! addresses (`MACAddressPolicy=persistent`), it is a hash of the machine's id and the port's name.
//! So it survives restarts, and differs between machines and between ports.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

/// First input of the hash. It makes sure that the machine's id cannot be learned from an address
/// (machine-id(5)).
const PURPOSE: &[u8] = b"straightline default MAC address";

static MACHINE: OnceLock<Vec<u8>> = OnceLock::new();

/// Reads the machine's id. Called before the sandbox is entered, which forbids it later.
pub(crate) fn read_machine_id() {
    MACHINE.get_or_init(|| {
        let is_id = |id: &Vec<u8>| !id.trim_ascii().is_empty();
        let read = |path| std::fs::read(path).ok().filter(is_id);
        // Containers often have no id. Their host name is used instead: it usually outlives a
        // restart.
        read("/etc/machine-id")
            .or_else(|| read("/var/lib/dbus/machine-id"))
            .unwrap_or_else(|| rustix::system::uname().nodename().to_bytes().to_vec())
    });
}

/// Returns the address of a port: unicast and locally administered (IEEE 802, 8.4).
pub(crate) fn default_mac(port: &str) -> [u8; 6] {
    read_machine_id();
    hash(MACHINE.get().map_or(&[], Vec::as_slice), port)
}

fn hash(machine: &[u8], port: &str) -> [u8; 6] {
    let digest = Sha256::new().chain_update(PURPOSE).chain_update(machine.trim_ascii()).chain_update([0]);
    let [a, b, c, d, e, f, ..] = digest.chain_update(port).finalize().0;
    [a & 0xfc | 0x02, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_local_unicast_and_stay_the_same() {
        let address = hash(b"0123456789abcdef\n", "vm1");
        assert_eq!(address, hash(b"0123456789abcdef", "vm1"), "the same after a restart");
        assert_ne!(address, hash(b"0123456789abcdef", "vm2"));
        assert_ne!(address, hash(b"0123456789abcdee", "vm1"));
        for port in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            assert_eq!(hash(b"id", port)[0] & 3, 2, "{port}");
        }
        assert_eq!(default_mac("vm1"), default_mac("vm1"));
    }
}
