//! The configuration of a switch with patches between pairs of ports.

use std::path::PathBuf;

use straightline_config::{Config, Idle, PatchConfig, PortConfig, WhenFull};
use straightline_wire::FrameLimit;

/// The MTU of all ports. It is large enough for the frames of any experiment.
pub(crate) const MTU: u16 = 9216;

/// The length of the longest frame that passes.
pub(crate) const LONGEST: u32 = FrameLimit::new(MTU).bytes();

/// Returns the configuration of a switch with a port for each of these sockets and with the patches
/// of [`patched_ports`].
pub(crate) fn patched(cpu: usize, sockets: &[PathBuf]) -> Config {
    let port = |(at, socket)| PortConfig { mtu: MTU, ..PortConfig::vhost_user(format!("p{at}"), socket) };
    patched_ports(cpu, sockets.iter().enumerate().map(port).collect())
}

/// Returns the configuration of a switch with these ports and a patch for each two of them. Its one
/// worker runs on this CPU and never sleeps.
pub(crate) fn patched_ports(cpu: usize, ports: Vec<PortConfig>) -> Config {
    let pairs = ports.chunks_exact(2).enumerate();
    let patches = pairs.map(|(at, pair)| PatchConfig {
        name: format!("patch{at}"),
        ports: [pair[0].name.clone(), pair[1].name.clone()],
        full: WhenFull::Drop,
    });
    let mut config = Config { patches: patches.collect(), ports: ports.into(), ..Config::default() };
    (config.switch.workers, config.switch.idle) = (vec![cpu], Idle::Spin);
    config
}
