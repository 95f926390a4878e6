//! Queues and features of a network interface, by ethtool's `ioctl`; and socket options that belong
//! to an interface.
//!
//! Structures are arrays of 32-bit words, with fields at the places that
//! `include/uapi/linux/ethtool.h` gives them.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::interface;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// The string set that has the names of features.
const ETH_SS_FEATURES: u32 = 4;
/// Words of a feature's name (`ETH_GSTRING_LEN`).
const NAME_WORDS: usize = 8;
/// Most features that are expected. Linux has 64 at most.
const MAX_FEATURES: usize = 512;

/// Requests about one interface of the process's network namespace.
#[derive(Debug)]
pub(crate) struct Ethtool {
    socket: OwnedFd,
    name: String,
}

/// The number of receive and transmit queues that an interface uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channels {
    pub(crate) rx: u32,
    pub(crate) tx: u32,
}

impl Ethtool {
    /// Opens a socket for requests about the interface of this name.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        // A socket of any family takes these requests, and this one reaches no network.
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Ethtool { socket, name: name.to_owned() })
    }

    /// Opens a socket for requests about the interface of this index, whatever its name is now.
    pub(crate) fn of_index(ifindex: u32) -> io::Result<Self> {
        let mut ethtool = Self::new("")?;
        ethtool.name = index_to_name(&ethtool.socket, ifindex)?;
        Ok(ethtool)
    }

    /// Returns the number of queues in use. A driver that does not say has one.
    pub(crate) fn channels(&self) -> Channels {
        let mut words = [0; 9];
        words[0] = ETHTOOL_GCHANNELS;
        let [_, _, _, _, _, rx, tx, _, combined] = match self.call(&mut words) {
            Ok(()) => words,
            Err(_) => [0; 9],
        };
        Channels { rx: rx.saturating_add(combined).max(1), tx: tx.saturating_add(combined).max(1) }
    }

    /// Turns features off that are on. Returns the features that were turned off. Names that the
    /// interface does not have are skipped.
    pub(crate) fn turn_off(&self, names: &[&str]) -> io::Result<Features> {
        let (all, active) = self.features()?;
        let bits = names.iter().filter_map(|name| all.iter().position(|known| known == name));
        let on: Vec<usize> =
            bits.filter(|&bit| active.get(bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1)).collect();
        let changed = Features { bits: on, count: all.len() };
        self.set_features(&changed, false)?;
        Ok(changed)
    }

    /// Turns features on again at the interface of this index, which may have another name now.
    pub(crate) fn turn_on_again(&mut self, ifindex: u32, features: &Features) -> io::Result<()> {
        self.name = index_to_name(&self.socket, ifindex)?;
        self.set_features(features, true)
    }

    /// Returns the names of all features, and the bits of those that are on.
    fn features(&self) -> io::Result<(Vec<String>, Vec<u32>)> {
        let mask = 1_u64 << ETH_SS_FEATURES;
        let [low, high] = halves(mask);
        let mut words = [ETHTOOL_GSSET_INFO, 0, low, high, 0];
        self.call(&mut words)?;
        let count = usize::try_from(words[4]).unwrap_or(0).min(MAX_FEATURES);
        let mut words = vec![0; 3 + count * NAME_WORDS];
        (words[0], words[1], words[2]) = (ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count.try_into().unwrap_or(0));
        self.call(&mut words)?;
        let names = words[3..].chunks(NAME_WORDS).map(text).collect();
        let blocks = count.div_ceil(32);
        let mut words = vec![0; 2 + blocks * 4];
        (words[0], words[1]) = (ETHTOOL_GFEATURES, blocks.try_into().unwrap_or(0));
        self.call(&mut words)?;
        // A block has the words available, requested, active, never changed.
        let active = words[2..].chunks(4).filter_map(|block| block.get(2).copied()).collect();
        Ok((names, active))
    }

    fn set_features(&self, features: &Features, on: bool) -> io::Result<()> {
        if features.bits.is_empty() {
            return Ok(());
        }
        let blocks = features.count.div_ceil(32);
        let mut words = vec![0; 2 + blocks * 2];
        (words[0], words[1]) = (ETHTOOL_SFEATURES, blocks.try_into().unwrap_or(0));
        for &bit in &features.bits {
            // A block has the words valid, requested.
            let at = 2 + bit / 32 * 2;
            words[at] |= 1 << (bit % 32);
            words[at + 1] |= u32::from(on) << (bit % 32);
        }
        self.call(&mut words)
    }

    /// Sends a command. Its structure is in `words`, which has space for all that the kernel writes
    /// for this command.
    fn call(&self, words: &mut [u32]) -> io::Result<()> {
        let mut request = interface::request(&self.name)?;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: the data are a structure of the command in its first word, with the lengths that
        // its fields state. The structure and the request outlive the call.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Features of an interface that were turned off.
#[derive(Clone, Debug, Default)]
pub(crate) struct Features {
    bits: Vec<usize>,
    /// The number of features that the kernel knows.
    count: usize,
}

impl Features {
    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }
}

/// Returns the two words of a 64-bit field, in memory order.
fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// Returns the text in these words, up to its first NUL.
fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The packets that an interface receives beside those for its own address, for broadcast and for
/// the kernel's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reception {
    /// All packets: promiscuous mode.
    All,
    /// Those for all groups.
    Multicast,
}

/// Opens a socket that makes the interface receive these packets too for as long as it is open. So
/// the interface receives packets for addresses of guests and of the switch. The socket itself
/// receives nothing.
pub(crate) fn receive_too(ifindex: u32, reception: Reception) -> io::Result<OwnedFd> {
    let mode = match reception {
        Reception::All => libc::PACKET_MR_PROMISC,
        Reception::Multicast => libc::PACKET_MR_ALLMULTI,
    };
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let membership = libc::packet_mreq {
        mr_ifindex: libc::c_int::try_from(ifindex).map_err(|_| io::ErrorKind::InvalidInput)?,
        mr_type: libc::c_ushort::try_from(mode).map_err(|_| io::ErrorKind::InvalidInput)?,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    Ok(socket)
}

/// Sets how many packets one `sendto` on an AF_XDP socket sends at most
/// (`XDP_MAX_TX_SKB_BUDGET`, Linux 6.17). The default is 32.
pub(crate) fn set_send_budget(socket: &OwnedFd, packets: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_XDP, 9, &packets)
}

/// Sets a socket option whose value is plain data of the C ABI.
fn set_option<T: Copy>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the value has `len` bytes and outlives the call, which only reads them.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_one_queue_and_a_missing_one_no_features() {
        let loopback = Ethtool::new("lo").expect("a socket");
        assert_eq!(loopback.channels(), Channels { rx: 1, tx: 1 });
        assert!(loopback.turn_off(&["no-such-feature"]).expect("lo has features").is_empty());
        let missing = Ethtool::new("sl-missing").expect("a socket");
        assert_eq!(missing.turn_off(&["rx-lro"]).expect_err("missing").raw_os_error(), Some(libc::ENODEV));
    }
}
