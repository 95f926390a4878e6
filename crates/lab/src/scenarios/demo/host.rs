//! Two network namespaces of this machine, each with a tap of the switch.

use std::fmt::Write;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;

use anyhow::Context;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressHeader, AddressMessage};
use rustix::net::netdevice::name_to_index;
use straightline_config::{Offloads, PortConfig, PortKind, TapConfig};
use straightline_guest::{Sequence, netlink};
use straightline_port::device::{DeviceRequest, Devices, Direct, OpenCause, OpenError, OpenedDevice, Opener};
use straightline_switch::Switch;

use super::{BURST, Ends, IMIX, config};
use crate::testbed::namespace::{self, Namespace};

/// The taps, their addresses, and the length of the addresses' prefix.
const TAPS: [&str; 2] = ["sl0", "sl1"];
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
const PREFIX: u8 = 24;

const UDP_PORT: u16 = 7000;

/// Packets under way in one direction. As many fit into the receive buffer of a UDP socket, whose
/// default is 208 KiB: a packet takes at most 2.5 KiB there.
const WINDOW: u64 = 64;

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;

/// The two namespaces as senders and receivers: a UDP socket in each.
pub(super) struct Hosts {
    sockets: [UdpSocket; 2],
    /// The number of the next packet in each direction.
    next: [u64; 2],
}

/// Makes two namespaces, and starts a switch with a tap in each.
pub(super) fn start() -> anyhow::Result<(Switch, Hosts)> {
    let namespaces = Arc::new(namespaces()?);
    let devices =
        Devices::new(Arc::new(InNamespaces { namespaces: Arc::clone(&namespaces), direct: Direct::default() }))?;
    let switch = Switch::start_with(&config(TAPS.map(tap)), Some(devices))?;
    let socket = |end: usize| {
        let made = namespaces[end].run(|| {
            set_address(TAPS[end], ADDRESSES[end])?;
            let socket = UdpSocket::bind((ADDRESSES[end], UDP_PORT))?;
            socket.connect((ADDRESSES[1 - end], UDP_PORT))?;
            socket.set_nonblocking(true)?;
            anyhow::Ok(socket)
        })?;
        made.with_context(|| format!("cannot use the tap {} in its network namespace", TAPS[end]))
    };
    Ok((switch, Hosts { sockets: [socket(0)?, socket(1)?], next: [0; 2] }))
}

/// Makes two network namespaces. A user who may not do that gets a user namespace first.
fn namespaces() -> anyhow::Result<[Namespace; 2]> {
    let both = || Ok([Namespace::new()?, Namespace::new()?]);
    let refused = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
    let made = match both() {
        Err(error) if refused(&error) => namespace::enter_user_namespace().and_then(|()| both()),
        made => made,
    };
    made.with_context(|| {
        let mut text = "demo --host needs two network namespaces, and this user may not make them: run `sudo \
                        straightline demo --host`"
            .to_owned();
        for (setting, forbids, allows) in [
            ("kernel.unprivileged_userns_clone", "0", "1"),
            ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
            ("user.max_user_namespaces", "0", "1000"),
        ] {
            let now = fs::read_to_string(format!("/proc/sys/{}", setting.replace('.', "/")));
            if now.is_ok_and(|now| now.trim() == forbids) {
                let _ = write!(text, ", or `sudo sysctl {setting}={allows}`");
            }
        }
        text
    })
}

/// Opens each tap in its namespace.
#[derive(Debug)]
struct InNamespaces {
    namespaces: Arc<[Namespace; 2]>,
    direct: Direct,
}

impl InNamespaces {
    fn of(&self, request: &DeviceRequest) -> &Namespace {
        &self.namespaces[usize::from(request.interface() == TAPS[1])]
    }
}

impl Opener for InNamespaces {
    fn open(&self, request: &DeviceRequest) -> Result<OpenedDevice, OpenError> {
        let opened = self.of(request).run(|| self.direct.open(request));
        opened.unwrap_or_else(|error| Err(OpenError::new(OpenCause::Failed, error.to_string())))
    }

    fn close(&self, request: &DeviceRequest) {
        // If no thread can be started, the settings end with the namespace.
        let _ = self.of(request).run(|| self.direct.close(request));
    }
}

fn tap(name: &str) -> PortConfig {
    let kind = PortKind::Tap(TapConfig {
        name: name.to_owned(),
        queues: 1,
        offloads: Offloads::default(),
        persist: false,
        owner: None,
        group: None,
        bridge: None,
    });
    PortConfig { kind, ..PortConfig::vhost_user(name, "") }
}

/// Gives an interface of the thread's namespace an address.
fn set_address(name: &str, address: Ipv4Addr) -> anyhow::Result<()> {
    let index = name_to_index(UdpSocket::bind("0.0.0.0:0")?, name)?;
    let mut message = AddressMessage::default();
    message.header =
        AddressHeader { family: AddressFamily::Inet, prefix_len: PREFIX, index, ..AddressHeader::default() };
    let address = IpAddr::V4(address);
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    netlink::ask(libc::RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE, &message).map(drop)
}

impl Ends for Hosts {
    fn title(&self) -> String {
        let [one, other] = ADDRESSES;
        format!("two network namespaces ({one} and {other}) with taps")
    }

    fn window(&self) -> u64 {
        WINDOW
    }

    fn send(&mut self, direction: usize, most: usize) -> anyhow::Result<usize> {
        let mut bytes = [0; 1514];
        for sent in 0..most {
            let number = self.next[direction];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            let len = usize::from(IMIX[usize::try_from(number)? % IMIX.len()]) - HEADERS;
            match self.sockets[direction].send(&bytes[..len]) {
                Ok(_) => self.next[direction] += 1,
                Err(error) if is_full(&error) => return Ok(sent),
                Err(error) => return Err(error).context("cannot send from a network namespace"),
            }
        }
        Ok(most)
    }

    fn receive(&mut self, direction: usize, arrived: &mut Sequence) -> anyhow::Result<()> {
        let mut bytes = [0; 1514];
        for _ in 0..BURST {
            match self.sockets[1 - direction].recv(&mut bytes) {
                Ok(len) => {
                    let number = bytes.first_chunk().filter(|_| len >= 8).context("a packet without a number came")?;
                    arrived.note_number(u64::from_be_bytes(*number), u64::try_from(len + HEADERS)?);
                }
                Err(error) if is_full(&error) => break,
                Err(error) => return Err(error).context("cannot receive in a network namespace"),
            }
        }
        Ok(())
    }
}

/// Returns whether a socket has to be tried again later.
fn is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}
