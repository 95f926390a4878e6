//! The rights that a configuration takes.

use crate::Config;

/// The rights that ports and the API take beyond those that every port has. A system call that works on any
/// path is allowed only where a port needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// A port connects to its frontend.
    pub connects: bool,
    /// A port's socket has an owner or group of its own.
    pub has_owner: bool,
    /// A port's socket has other permission bits than it is made with.
    pub sets_bits: bool,
    /// A port's socket is for another user or group than ours.
    pub gives_away: bool,
    /// A port has an interface of this machine, which the opener process opens.
    pub has_device: bool,
}

impl Needs {
    /// Returns the rights that the ports and the API of a configuration take.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let mut needs = Needs::default();
        let of_ports = config.ports.iter().map(|port| port.kind.needs());
        for part in of_ports.chain([config.switch.api_needs()]) {
            let Needs { connects, has_owner, sets_bits, gives_away, has_device } = part;
            needs.connects |= connects;
            needs.has_owner |= has_owner;
            needs.sets_bits |= sets_bits;
            needs.gives_away |= gives_away;
            needs.has_device |= has_device;
        }
        needs
    }
}
