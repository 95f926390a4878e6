//! Dynamic ports: ports that a client of the API adds for as long as it stays connected.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{Shutdown, shutdown};
use straightline_api::nearest_first;
use straightline_packet::IgnorePoison;
use straightline_port::{ClosedApart, raised};

use crate::Switch;
use crate::api::EventKind;
use crate::config::{Config, Group, Mode, PortConfig, PortKind, VhostUserConfig, is_name};
use crate::descriptors;

/// The desired state of a switch: the configuration of its file, and the dynamic ports in that
/// configuration's bridges.
#[derive(Debug, Default)]
pub(crate) struct DesiredConfig {
    pub(crate) config: Config,
    entries: Vec<Entry>,
    /// Bridges that clients gave flow tables to.
    pub(crate) flow_bridges: BTreeSet<String>,
    /// Groups of clients. The file's group of a name wins.
    pub(crate) groups: BTreeMap<String, Group>,
    /// The groups that clients gave to ports, by the port's name. The file's win.
    pub(crate) port_groups: BTreeMap<String, Vec<String>>,
}

/// The names of groups that clients have set, and of ports whose groups clients have set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientGroups {
    pub(crate) groups: BTreeSet<String>,
    pub(crate) ports: BTreeSet<String>,
}

#[derive(Debug)]
struct Entry {
    port: PortConfig,
    bridge: String,
    socket: Arc<ClosedApart<OwnedFd>>,
    is_own: bool,
}

/// The socket of a dynamic port: a Unix socket that listens, or one that is connected to a frontend.
#[derive(Debug)]
pub struct GivenSocket {
    /// The socket.
    pub socket: OwnedFd,
    /// Whether nobody uses the socket after the port.
    pub is_own: bool,
}

impl From<OwnedFd> for GivenSocket {
    /// Returns a socket that others may use after the port.
    fn from(socket: OwnedFd) -> Self {
        GivenSocket { socket, is_own: false }
    }
}

impl Entry {
    /// Refuses all further connections, if the socket listens and nobody uses it after the port.
    /// Call it before the port's connection ends: a frontend that connects again at once would
    /// reach a listener that is about to go.
    fn refuse(&self) {
        if self.is_own && socket_acceptconn(&**self.socket).unwrap_or(false) {
            // The socket listens, so this cannot fail.
            let _ = shutdown(&**self.socket, Shutdown::Both);
        }
    }
}

impl DesiredConfig {
    /// Returns the port of this name: one of the file, or a dynamic one.
    pub(crate) fn port_mut(&mut self, name: &str) -> Option<&mut PortConfig> {
        match self.config.port_index(name) {
            Some(at) => self.config.ports.get_mut(at),
            None => self.entries.iter_mut().map(|entry| &mut entry.port).find(|port| port.name == name),
        }
    }

    /// Returns the dynamic port of this name.
    pub(crate) fn added_port_mut(&mut self, name: &str) -> Option<&mut PortConfig> {
        self.entries.iter_mut().map(|entry| &mut entry.port).find(|port| port.name == name)
    }

    /// Returns whether a port carries the packets of tunnels.
    pub(crate) fn carries_underlay(&self, port: &str) -> bool {
        self.config.underlays.iter().any(|underlay| underlay.port == port)
    }

    /// Returns `config` with the dynamic ports in it, and with the flow tables and groups of clients. A
    /// port whose bridge is gone is in no bridge.
    pub(crate) fn with_dynamic_ports(&self, config: &Config) -> anyhow::Result<Config> {
        let mut whole = config.clone();
        for entry in &self.entries {
            let name = &entry.port.name;
            ensure!(
                config.port_index(name).is_none(),
                "port \"{name}\": a port of this name was added with `straightline port`; end that command or \
                 choose another name"
            );
            whole.ports.push(entry.port.clone());
            if let Some(bridge) = whole.bridges.iter_mut().find(|bridge| bridge.name == entry.bridge) {
                bridge.ports.push(name.clone());
            }
        }
        for (name, group) in &self.groups {
            if !whole.groups.iter().any(|known| known.name == *name) {
                whole.groups.push(group.clone());
            }
        }
        for port in whole.ports.iter_mut().filter(|port| port.groups.is_empty()) {
            port.groups = self.port_groups.get(&port.name).cloned().unwrap_or_default();
        }
        for bridge in whole.bridges.iter_mut().filter(|bridge| self.flow_bridges.contains(&bridge.name)) {
            bridge.flows.get_or_insert_default();
        }
        Ok(whole)
    }

    /// Returns the groups that clients have set, and the ports that have theirs from clients. The file's
    /// win.
    pub(crate) fn client_groups(&self) -> ClientGroups {
        let is_of_file = |name: &&String| self.config.groups.iter().any(|group| group.name == **name);
        let has_in_file =
            |name: &&String| self.config.ports.iter().any(|port| port.name == **name && !port.groups.is_empty());
        let added = self.entries.iter().map(|entry| &entry.port.name);
        ClientGroups {
            groups: self.groups.keys().filter(|name| !is_of_file(name)).cloned().collect(),
            ports: self.port_groups.keys().chain(added).filter(|name| !has_in_file(name)).cloned().collect(),
        }
    }

    /// Returns the socket that the client handed over for a dynamic port.
    pub(crate) fn socket(&self, name: &str) -> Option<Arc<ClosedApart<OwnedFd>>> {
        self.entries.iter().find(|entry| entry.port.name == name).map(|entry| Arc::clone(&entry.socket))
    }

    /// Has the dynamic ports take no further connection. Call it before the switch ends.
    pub(crate) fn refuse_frontends(&self) {
        self.entries.iter().for_each(Entry::refuse);
    }
}

/// A port that was added to a running switch. Dropping it removes the port.
#[derive(Debug)]
pub struct DynamicPort {
    /// The port does not keep its switch: a thread of the API that is left behind may have it.
    switch: Weak<Switch>,
    name: String,
}

impl Switch {
    /// Adds a port to a bridge until the returned value is dropped. Reloads leave it alone.
    /// `label` is the name of its socket in answers.
    ///
    /// # Errors
    /// The name is not valid or is taken, there is no such bridge, or the socket cannot be served.
    /// Nothing is changed then.
    pub fn add_dynamic_port(
        self: &Arc<Self>,
        name: &str,
        bridge: &str,
        socket: impl Into<GivenSocket>,
        label: impl Into<PathBuf>,
    ) -> anyhow::Result<DynamicPort> {
        self.add_guarded_port(name, bridge, socket, label, &[])
    }

    /// Adds a port with groups, as [`Self::add_dynamic_port`] does.
    ///
    /// # Errors
    /// As there; or a group does not exist.
    pub fn add_guarded_port(
        self: &Arc<Self>,
        name: &str,
        bridge: &str,
        socket: impl Into<GivenSocket>,
        label: impl Into<PathBuf>,
        groups: &[String],
    ) -> anyhow::Result<DynamicPort> {
        ensure!(is_name(name), "port {name:?}: not a valid name; use 1 to 32 of A-Z a-z 0-9 _ . -");
        let mut desired = self.desired.lock().ignore_poison();
        if !desired.config.bridges.iter().any(|known| known.name == bridge) {
            let known: Vec<_> = desired.config.bridges.iter().map(|bridge| bridge.name.as_str()).collect();
            bail!("bridge {bridge:?}: no such bridge; bridges are {}", known.join(", "));
        }
        let taken = self.running.now().config.port_index(name).is_some();
        ensure!(!taken, "port {name:?}: the switch has a port of this name already");
        let mut port = PortConfig::vhost_user(name, "");
        port.groups = groups.to_vec();
        port.kind = PortKind::VhostUser(VhostUserConfig { mode: Mode::Given, ..VhostUserConfig::new(label) });
        descriptors::check_reserve(&port).with_context(|| format!("port {name:?}"))?;
        let GivenSocket { socket, is_own } = socket.into();
        // A killed switch closes high descriptors first, and so the listener before connections.
        let socket = Arc::new(ClosedApart::new(raised(socket)));
        desired.entries.push(Entry { port, bridge: bridge.to_owned(), socket, is_own });
        let changed = desired.with_dynamic_ports(&desired.config).and_then(|whole| self.change(&whole, &desired));
        if let Err(error) = changed {
            desired.entries.pop();
            return Err(error);
        }
        tracing::info!(port = name, "added to bridge {bridge:?} until its client disconnects");
        let message = format!("port {name:?} added to bridge {bridge:?} until its client disconnects");
        self.running.events.add(EventKind::PortAdded { port: name.to_owned() }, message);
        Ok(DynamicPort { switch: Arc::downgrade(self), name: name.to_owned() })
    }

    /// Sets a port's link down, or allows it to be up again.
    ///
    /// # Errors
    /// There is no such port.
    pub fn set_link(&self, port: &str, up: bool) -> anyhow::Result<()> {
        // The lock is held so that no port of this name is made anew at the same time.
        let _desired = self.desired.lock().ignore_poison();
        let now = self.running.now();
        let known = || nearest_first(port, now.config.ports.iter().map(|port| port.name.as_str()));
        let at =
            now.config.port_index(port).with_context(|| format!("no such port {port:?}; ports are {}", known()))?;
        now.ports[at].set_link(up);
        tracing::info!(port, "set {} by the administrator", if up { "up" } else { "down" });
        Ok(())
    }
}

impl Drop for DynamicPort {
    fn drop(&mut self) {
        // With the switch its ports have ended.
        let Some(switch) = self.switch.upgrade() else { return };
        let mut desired = switch.desired.lock().ignore_poison();
        if let Some(at) = desired.entries.iter().position(|entry| entry.port.name == self.name) {
            desired.entries.remove(at).refuse();
        }
        let changed = desired.with_dynamic_ports(&desired.config).and_then(|whole| switch.change(&whole, &desired));
        // The call does not wait for the port's thread. Many dynamic ports may end at once, and a
        // wait would delay the API's other clients.
        switch.wait_for_ending(Duration::ZERO);
        match changed {
            Ok(_) => {
                tracing::info!(port = self.name, "removed: its client has disconnected");
                let message = format!("port {:?} removed: its client has disconnected", self.name);
                switch.running.events.add(EventKind::PortRemoved { port: self.name.clone() }, message);
            }
            Err(error) => tracing::error!(port = self.name, "cannot be removed: {error:#}"),
        }
    }
}
