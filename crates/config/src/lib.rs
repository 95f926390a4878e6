//! Reads and checks the configuration file, and turns it into plain values.
//!
//! [`Config::load`] reads a TOML file and reports all its errors at once. Each finding has its
//! line, names what is wrong, and says what would be right.
//!
//! A configuration that it returns is complete and consistent:
//!
//! * Every port that a patch or bridge names exists.
//! * No port is used twice.
//! * Every number is in its range.
//! * Every user and group has its id.
//!
//! Nothing is opened, bound or started here. [`Loaded::taken_sockets`] checks separately whether a
//! running process has a socket path, because a reload keeps the sockets that the switch has
//! itself. [`Loaded::missing_privileges`] checks separately whether this process may open the
//! interfaces, because another user may run the switch.
//!
//! ```
//! use straightline_config::{Config, Machine};
//!
//! let text = r#"
//! [port.vm1]
//! kind = "vhost-user"
//! socket = "/tmp/vm1.sock"
//!
//! [port.vm2]
//! kind = "vhost-user"
//! socket = "/tmp/vm2.sock"
//!
//! [patch.a]
//! ports = ["vm1", "vm9"]
//! "#;
//! let errors = Config::parse("switch.toml", text, &Machine::this()).unwrap_err();
//! assert!(errors.to_string().starts_with(
//!     r#"switch.toml:11: port "vm9" in patch "a": no such port; ports are vm1, vm2"#
//! ));
//! ```

mod address;
mod cross;
mod diagnostic;
mod file;
mod init;
mod key;
mod keys;
mod mac;
mod machine;
mod nodes;
mod on_machine;
mod privileges;
mod sections;
mod unread;
mod users;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub use straightline_firewall::{Definitions, Group, PortGroups};
pub use straightline_flow::{Meter, MeterUnit};
pub use straightline_nodes::{IpPrefix, MacLimit, MacPrefix, NativeVlan, PortRules, PortVlans, StormLimits, VlanRole};
pub use straightline_port::socket_path;
pub use straightline_underlay::{Address, Cookie, L2tpOver, Network, PathMtuErrors, TunnelKind};

pub use diagnostic::{ConfigErrors, Diagnostic};
pub use init::{Facts, Nic, initial_configuration};
pub use keys::{Explanation, UnknownKey, explain, explain_all, schema};
pub use mac::{Mac, MacError};
pub use machine::{Machine, parse_cpu_list};
pub use nodes::NumaNodes;
pub use on_machine::{Interfaces, OnMachine};
pub use privileges::capabilities_needed;
pub use sections::firewall::TIMEOUTS;
pub use sections::kind::{
    AfPacketConfig, AfXdpConfig, Exclusive, KindSettings, Mode, Offloads, PortKind, RemoteStatic, TapConfig,
    TunnelSettings, VhostUserConfig, note,
};
pub use sections::needs::Needs;
pub use sections::node::{Kinds, NodeConfig, NodeSettings};
pub use sections::port_list::PortList;
pub use sections::rate::rate_text;
pub use sections::section::is_name;
pub use sections::types::{
    BridgeConfig, Config, Copies, FirewallConfig, FlowsConfig, Idle, Mechanism, PatchConfig, PortConfig, PortNetwork,
    PortRate, RateConfig, SandboxConfig, SetConfig, SourceCheckConfig, StaticBinding, StaticEntry, SwitchConfig,
    UnderlayConfig, WhenFull, Windows,
};
pub use users::seal_names;

use diagnostic::{Findings, Span};
use file::{MOST_BYTES, ReadFile};
use privileges::DeviceSite;
use sections::section::Section;
use sections::{firewall, group, kind, network, node, port, rate, section, switch, underlay};
use socket_path::{SocketPathError, SocketState};

/// A configuration that was read, with the warnings about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Warnings about settings that are legal but probably not meant, in the file's order.
    pub warnings: Vec<Diagnostic>,
    /// The text of the file.
    pub text: String,
    sockets: Vec<SocketSite>,
    devices: Vec<DeviceSite>,
}

/// A socket path on which the switch is to listen, with its place in the file.
#[derive(Clone, Debug)]
struct SocketSite {
    owner: String,
    path: PathBuf,
    site: Diagnostic,
}

impl Loaded {
    /// Returns an error for each socket path that this switch could not bind now. Either a running
    /// process uses the path, or a file of another kind is there. A socket file that a dead process
    /// left is no error.
    #[must_use]
    pub fn taken_sockets(&self) -> Vec<Diagnostic> {
        self.taken_sockets_beside(&Config::default())
    }

    /// Checks as [`Self::taken_sockets`] does, for a process that runs the configuration `running`.
    /// The sockets of that configuration are its own.
    #[must_use]
    pub fn taken_sockets_beside(&self, running: &Config) -> Vec<Diagnostic> {
        let of_ports = running.ports.iter().filter_map(|port| port.kind.socket());
        let ours: HashSet<&Path> = running.switch.api_sockets().map(PathBuf::as_path).chain(of_ports).collect();
        self.taken_among(|path| !ours.contains(path), |_| false)
    }

    /// Checks as [`Self::taken_sockets`] does, beside a switch that runs. `is_held` says of a path at
    /// which a process listens whether that switch does, for the same purpose.
    #[must_use]
    pub fn taken_sockets_unless(&self, is_held: impl Fn(&Path) -> bool) -> Vec<Diagnostic> {
        self.taken_among(|_| true, is_held)
    }

    fn taken_among(&self, is_wanted: impl Fn(&Path) -> bool, is_held: impl Fn(&Path) -> bool) -> Vec<Diagnostic> {
        let taken = |socket: &SocketSite| {
            let path = socket.path.display();
            let why = match socket_path::state(&socket.path) {
                Ok(SocketState::Free | SocketState::Stale) => return None,
                Ok(SocketState::Live) if is_held(&socket.path) => return None,
                Ok(SocketState::Live) => {
                    "a running process has it open; stop that process or choose another path".into()
                }
                Ok(SocketState::NotASocket) => {
                    "a file that is not a socket has this path; remove it or choose another path".into()
                }
                Err(error) => format!("cannot find out whether it is free: {error}"),
            };
            Some(socket.site.with_message(format!("socket \"{path}\" of {}: {why}", socket.owner)))
        };
        self.sockets.iter().filter(|socket| is_wanted(&socket.path)).filter_map(taken).collect()
    }
}

impl Loaded {
    /// Compares the configuration with the interfaces of this machine, beside a switch that runs the
    /// configuration `running`.
    #[must_use]
    pub fn on_machine(&self, interfaces: &Interfaces, running: &Config) -> OnMachine {
        on_machine::compare(&self.config, &self.devices, interfaces, running)
    }

    /// Returns a finding if this process lacks privileges to open the interfaces of the
    /// configuration, with the commands that give them.
    #[must_use]
    pub fn missing_privileges(&self) -> Option<Diagnostic> {
        privileges::missing(&self.devices)
    }
}

impl Config {
    /// Reads and checks the file at `path`, for the machine that this process runs on.
    ///
    /// # Errors
    /// The file cannot be read, or has errors: all of them.
    pub fn load(path: &Path) -> Result<Loaded, ConfigErrors> {
        Self::load_with(path, &Kinds::default())
    }

    /// Reads and checks a file as [`Self::load`] does. Nodes may be of these kinds.
    ///
    /// # Errors
    /// Fails as [`Self::load`] does.
    pub fn load_with(path: &Path, kinds: &Kinds) -> Result<Loaded, ConfigErrors> {
        Self::load_hinted(path, kinds, |_| "")
    }

    /// Reads and checks a file as [`Self::load_with`] does. If the file cannot be read, `hint` adds to
    /// the message.
    ///
    /// # Errors
    /// Fails as [`Self::load`] does.
    pub fn load_hinted(
        path: &Path,
        kinds: &Kinds,
        hint: impl Fn(&io::Error) -> &'static str,
    ) -> Result<Loaded, ConfigErrors> {
        let file = path.display().to_string();
        let ReadFile { bytes, writers } = match file::read(path) {
            Ok(read) if read.bytes.len() as u64 > MOST_BYTES => {
                let message = format!("it has more than {} MiB, so it is no configuration", MOST_BYTES >> 20);
                return Err(ConfigErrors(vec![Diagnostic::of_file(&file, message)]));
            }
            Ok(read) => read,
            Err(error) => {
                let hint = if error.kind() == io::ErrorKind::NotFound {
                    "; `straightline init` writes a first one"
                } else {
                    hint(&error)
                };
                return Err(ConfigErrors(vec![Diagnostic::of_file(&file, format!("cannot read it: {error}{hint}"))]));
            }
        };
        match String::from_utf8(bytes) {
            Ok(text) => {
                let mut loaded = Self::parse_with(&file, &text, &Machine::this(), kinds)?;
                if let Some(writers) = writers {
                    let message = format!(
                        "{writers} may write it, and so decide what the switch does as root; make root its owner, and \
                         take the right to write from others (`chmod go-w`)"
                    );
                    loaded.warnings.insert(0, Diagnostic::of_file(&file, message));
                }
                Ok(loaded)
            }
            Err(error) => {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
                let message = "not UTF-8; a TOML file is UTF-8 text".to_owned();
                Err(ConfigErrors(vec![Diagnostic { line: Some(line), ..Diagnostic::of_file(&file, message) }]))
            }
        }
    }

    /// Reads and checks `text`, the content of a configuration file. Messages call it `file`.
    ///
    /// # Errors
    /// The text has errors: all of them, in their order.
    pub fn parse(file: &str, text: &str, machine: &Machine) -> Result<Loaded, ConfigErrors> {
        Self::parse_with(file, text, machine, &Kinds::default())
    }

    /// Reads and checks `text` as [`Self::parse`] does. Nodes may be of these kinds.
    ///
    /// # Errors
    /// Fails as [`Self::parse`] does.
    pub fn parse_with(file: &str, text: &str, machine: &Machine, kinds: &Kinds) -> Result<Loaded, ConfigErrors> {
        let mut report = Findings::new(file, text);
        let (root, mut syntax) = DeTable::parse_recoverable(text);
        unread::drop_keys_of_repeated_sections(text, &mut syntax);
        let most = syntax.iter().take(MOST_SYNTAX_ERRORS);
        for error in most {
            let message = match error.message() {
                "duplicate key" => "this name or key is in the file twice; remove one".to_owned(),
                other => format!("not TOML: {other}"),
            };
            report.error(&error.span().unwrap_or(0..0), message);
        }
        if let Some(error) = syntax.get(MOST_SYNTAX_ERRORS) {
            let more = syntax.len() - MOST_SYNTAX_ERRORS;
            report.error(
                &error.span().unwrap_or(0..0),
                format!("not TOML: and {more} more such errors; is this the right file?"),
            );
        }
        // After a syntax error, the parser's result is a guess, and findings about it would
        // mislead.
        if !syntax.is_empty() {
            return Err(report.into_errors());
        }

        let folder = Path::new(file).parent().map(Path::to_owned).unwrap_or_default();
        let mut draft = Draft { folder, ..Draft::default() };
        read(&root, machine, kinds, &mut report, &mut draft);
        cross::complete(&mut draft);
        cross::check(&draft, &mut report);
        if report.has_errors() {
            return Err(report.into_errors());
        }
        let sockets = draft.sockets.iter().filter(|socket| socket.ours).map(|socket| SocketSite {
            owner: socket.owner.clone(),
            path: socket.path.clone(),
            site: report.site(&socket.span),
        });
        let sockets = sockets.collect();
        let devices = draft.ports.iter().filter_map(|(port, spans)| {
            let request = port.kind.device(port.mtu, port.mac)?;
            Some(DeviceSite { port: port.name.clone(), request, site: report.site(&spans.name) })
        });
        let devices = devices.collect();
        Ok(Loaded {
            config: draft.into_config(),
            warnings: report.into_warnings(),
            text: text.to_owned(),
            sockets,
            devices,
        })
    }
}

/// The parts of a configuration that are read so far, with the places that later findings point at.
#[derive(Default)]
struct Draft {
    /// The folder of the file, at which relative paths of other files begin.
    folder: PathBuf,
    switch: SwitchConfig,
    ports: Vec<(PortConfig, port::PortSpans)>,
    underlays: Vec<(UnderlayConfig, underlay::UnderlaySpans)>,
    tunnels: Vec<kind::TunnelSite>,
    /// Each port with `steal = "address"`, as an index into the ports, with the place of the key.
    steals: Vec<(usize, Span)>,
    patches: Vec<PatchConfig>,
    /// The bridges, each with the place of the port in each static entry.
    bridges: Vec<(BridgeConfig, Vec<Span>)>,
    nodes: Vec<NodeConfig>,
    node_sites: Vec<node::NodeSite>,
    /// The shared rates, each with the place of its name.
    rates: Vec<(RateConfig, Span)>,
    groups: Vec<(Group, group::GroupSpans)>,
    /// The sets, each with the place of its name.
    sets: Vec<(SetConfig, Span)>,
    firewall: FirewallConfig,
    /// Patches and bridges, including patches with a wrong number of ports.
    networks: Vec<network::Network>,
    /// All socket paths, in the file's order.
    sockets: Vec<DraftSocket>,
    /// The folders of sockets that cannot be used, and have an error.
    bad_folders: HashSet<String>,
    /// The interfaces of ports, in the file's order.
    interfaces: Vec<DraftInterface>,
    unread: unread::Unread,
}

/// An interface of a port, with its owner as messages name it.
struct DraftInterface {
    owner: String,
    name: String,
    span: Span,
}

/// Checks the path of a socket at which the switch listens. A folder that cannot be used is one
/// mistake, reported for the first socket in it.
fn check_socket(draft: &mut Draft, report: &mut Findings<'_>, path: &Path, owner: &str, span: &Span) {
    let Err(why) = socket_path::check(path) else { return };
    let is_new = match &why {
        SocketPathError::Folder { folder, .. } => draft.bad_folders.insert(folder.clone()),
        _ => true,
    };
    if is_new {
        report.error(span, format!("socket {:?} of {owner}: {why}", path.display().to_string()));
    }
}

/// A socket path, with its owner as messages name it.
struct DraftSocket {
    owner: String,
    path: PathBuf,
    /// True if the switch listens at the path, false if it connects to it.
    ours: bool,
    span: Span,
}

impl Draft {
    fn into_config(self) -> Config {
        Config {
            switch: self.switch,
            ports: self.ports.into_iter().map(|(port, _)| port).collect(),
            underlays: self.underlays.into_iter().map(|(underlay, _)| underlay).collect(),
            patches: self.patches,
            bridges: self.bridges.into_iter().map(|(bridge, _)| bridge).collect(),
            nodes: self.nodes,
            rates: self.rates.into_iter().map(|(rate, _)| rate).collect(),
            groups: self.groups.into_iter().map(|(group, _)| group).collect(),
            sets: self.sets.into_iter().map(|(set, _)| set).collect(),
            firewall: self.firewall,
        }
    }
}

/// The most errors that are told about a file that is no TOML.
const MOST_SYNTAX_ERRORS: usize = 10;

/// The names of the sections of a file.
const SECTIONS: &[&str] =
    &["switch", "port", "underlay", "patch", "bridge", "node", "rate", "group", "set", "firewall"];

/// Names of sections. A file has each of them at most once.
const SINGLE_SECTIONS: &[&str] = &["switch", "firewall"];

fn read(
    root: &toml::Spanned<DeTable<'_>>,
    machine: &Machine,
    kinds: &Kinds,
    report: &mut Findings<'_>,
    draft: &mut Draft,
) {
    let root = Section::root(root);
    for (key, value) in root.entries() {
        if let Some(family) = SECTIONS.iter().find(|family| **family == key.get_ref().as_ref()) {
            draft.unread.note(family, value);
        }
        match key.get_ref().as_ref() {
            "switch" => {
                if let Some(section) = Section::open("[switch]".to_owned(), key, value, report) {
                    switch::read(&section, machine, report, draft);
                }
            }
            "port" => {
                for (name, section) in section::named("port", value, report) {
                    port::read(name, &section, report, draft);
                }
            }
            "underlay" => {
                for (name, section) in section::named("underlay", value, report) {
                    underlay::read(name, &section, report, draft);
                }
            }
            "patch" => {
                for (name, section) in section::named("patch", value, report) {
                    network::read_patch(name, &section, report, draft);
                }
            }
            "bridge" => {
                for (name, section) in section::named("bridge", value, report) {
                    network::read_bridge(name, &section, report, draft);
                }
            }
            "node" => {
                for (name, section) in section::named("node", value, report) {
                    node::read(name, &section, kinds, report, draft);
                }
            }
            "rate" => {
                for (name, section) in section::named("rate", value, report) {
                    rate::read_section(name, &section, report, draft);
                }
            }
            "group" => {
                for (name, section) in section::named("group", value, report) {
                    group::read_group(name, &section, report, draft);
                }
            }
            "set" => {
                for (name, section) in section::named("set", value, report) {
                    group::read_set(name, &section, report, draft);
                }
            }
            "firewall" => {
                if let Some(section) = Section::open("[firewall]".to_owned(), key, value, report) {
                    firewall::read(&section, report, draft);
                }
            }
            other if switch::KEYS.iter().any(|key| key.name == other) => {
                report.error(&key.span(), format!("{other:?} is outside any section; move it below [switch]"));
            }
            other => {
                let hint = section::hint(other, SECTIONS, "sections");
                report.error(&key.span(), format!("unknown section {other:?}; {hint}"));
                let names = value.get_ref().as_table().into_iter().flat_map(|table| table.keys());
                draft.unread.names.extend(names.map(|name| name.get_ref().as_ref().to_owned()));
            }
        }
    }
    draft.sockets.sort_by_key(|socket| socket.span.start);
    draft.interfaces.sort_by_key(|interface| interface.span.start);
}

#[cfg(test)]
mod tests;
