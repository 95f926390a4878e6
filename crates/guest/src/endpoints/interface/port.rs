//! The port: opens the interface, and tells its state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use straightline_graph::{DeviceFacts, EpollWaiter, PortControl};
use straightline_packet::{Drops, Rcu};
use straightline_port::device::{
    AfPacketRequest, AfXdpRequest, DevicePort, DevicePortConfig, DeviceRequest, Devices, Steal, TapOffloads,
    TapRequest, ZeroCopy,
};
use straightline_virtio::net_header::NetHeader;

use super::name::{Interface, InterfaceKind};
use super::turns::{PORT, Turns};
use crate::endpoints::{Receiver, TestPort};

/// The most queues of an interface that the port serves.
const QUEUES: u16 = 64;

/// The largest MTU of the port. The interface may have a smaller one.
const MTU: u16 = 9216;

/// Time that the link of an interface may take to come up after it was opened. A network card may
/// reset its link then.
const LINK_TIME: Duration = Duration::from_secs(3);

/// Waits until `are_settled` returns true, at most 3 s: the open interfaces are up.
pub fn wait_for_links(are_settled: impl Fn() -> bool) {
    let end = Instant::now() + LINK_TIME;
    while !are_settled() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A port on an interface of this machine.
#[derive(Debug)]
pub struct InterfacePort {
    interface: Interface,
    turns: Turns,
    control: DevicePort,
    /// The devices' thread serves the port as long as this value lives.
    _devices: Arc<Devices>,
}

impl InterfacePort {
    /// Opens an interface for frames of at most `longest` bytes. `mtu` is the MTU that such frames
    /// need.
    ///
    /// # Errors
    /// The interface cannot be opened, is down, or has a smaller MTU. The error says what to do.
    pub fn open(interface: &Interface, longest: u32, mtu: u32) -> anyhow::Result<InterfacePort> {
        let rcu = Rcu::new();
        let drops = Arc::new(Drops::default());
        let devices = Devices::direct().context("cannot make the thread of devices")?;
        let config = DevicePortConfig {
            name: interface.to_string(),
            request: request(interface, mtu),
            mtu: MTU,
            queues: QUEUES,
        };
        // Nobody waits for the interface: the caller polls.
        let waiter = Arc::new(EpollWaiter::new()?);
        let control = DevicePort::open(config, PORT, Arc::clone(&drops), &rcu, waiter, &devices)
            .with_context(|| interface.to_string())?;
        let turns = Turns::new(control.for_worker(0), &rcu, drops, longest)?;
        let mut port = InterfacePort { interface: interface.clone(), turns, control, _devices: devices };
        wait_for_links(|| {
            let status = port.control.status();
            status.up || status.device.is_none()
        });
        port.check()?;
        let facts = port.facts();
        ensure!(
            facts.mtu >= mtu,
            "{interface}: frames of {longest} bytes need an MTU of {mtu}, and the interface has {}: use `ip link set \
             dev {} mtu {mtu}`, or shorter frames",
            facts.mtu,
            interface.name
        );
        Ok(port)
    }

    /// Returns the interface.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns a description for people: the interface, its driver, mode, MTU and queues.
    #[must_use]
    pub fn description(&self) -> String {
        let DeviceFacts { driver, mode, zero_copy, queues, mtu, .. } = self.facts();
        let words = [driver, mode].into_iter().filter(|word| !word.is_empty());
        let copies = if zero_copy { "zero-copy" } else { "copy mode" };
        let words = words.chain((self.interface.kind == InterfaceKind::AfXdp).then(|| copies.to_owned()));
        let words: Vec<_> = words.chain([format!("MTU {mtu}"), format!("queues {queues}")]).collect();
        format!("{}: {}", self.interface, words.join(", "))
    }

    fn facts(&self) -> DeviceFacts {
        self.control.status().device.map(|device| device.facts).unwrap_or_default()
    }
}

fn request(interface: &Interface, mtu: u32) -> DeviceRequest {
    let name = interface.name.clone();
    let mtu = u16::try_from(mtu).unwrap_or(MTU).clamp(1500, MTU);
    match interface.kind {
        InterfaceKind::Tap => DeviceRequest::Tap(TapRequest {
            name,
            queues: 1,
            mtu,
            mac: None,
            offloads: TapOffloads { csum: true, tso: true, uso: true },
            persist: false,
            owner: None,
            group: None,
            bridge: None,
        }),
        InterfaceKind::AfPacket => DeviceRequest::AfPacket(AfPacketRequest { interface: name, queues: 1 }),
        InterfaceKind::AfXdp => DeviceRequest::AfXdp(AfXdpRequest {
            interface: name,
            queues: None,
            steal: Steal::All,
            zero_copy: ZeroCopy::Allow,
            mtu,
        }),
    }
}

impl TestPort for InterfacePort {
    fn free_buffers(&mut self) -> usize {
        self.turns.free_buffers()
    }

    #[inline]
    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
        self.turns.put(template, header, frame, patches)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.turns.flush();
        Ok(())
    }

    fn receive(&mut self, most: usize, each: &mut impl Receiver) -> anyhow::Result<usize> {
        Ok(self.turns.receive(most, each))
    }

    fn wake(&mut self) {
        self.turns.send_rest();
    }

    fn check(&mut self) -> anyhow::Result<()> {
        let status = self.control.status();
        ensure!(status.up, "{}: {}", self.interface, status.reason);
        Ok(())
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        let ours = self.control.drops().nonzero().map(|(reason, count)| (reason.name(), count));
        let kernel = self.control.status().device.map(|device| device.kernel_drops).unwrap_or_default();
        ours.chain(kernel).collect()
    }
}
