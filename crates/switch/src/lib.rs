//! The switch as a library: it turns a configuration into a running switch that answers questions
//! about itself.
//!
//! * `plan` assigns ports and domains to workers.
//! * [`Switch`] starts, reloads and stops.
//! * [`api`] answers questions over a Unix socket.
//! * [`sandbox`] gives up the privileges that the process does not need.
//! * [`opener`] is the process that keeps the privileges to open network interfaces.
//! * [`socket_maker`] is the process that keeps the privileges to give sockets to other users.
//!
//! It does not look at packets one by one: ports, nodes and graphs are other crates.
//!
//! ```
//! use straightline_switch::Switch;
//! use straightline_switch::config::{Config, PatchConfig, PortConfig, WhenFull};
//!
//! # fn main() -> anyhow::Result<()> {
//! let dir = std::env::temp_dir().join(format!("switch-doc-{}", std::process::id()));
//! std::fs::create_dir_all(&dir)?;
//! let config = Config {
//!     ports: vec![PortConfig::vhost_user("a", dir.join("a")), PortConfig::vhost_user("b", dir.join("b"))].into(),
//!     patches: vec![PatchConfig {
//!         name: "x".to_owned(),
//!         ports: ["a".to_owned(), "b".to_owned()],
//!         full: WhenFull::Drop,
//!     }],
//!     ..Config::default()
//! };
//! let switch = Switch::start(&config)?;
//! let ports = switch.source().ports();
//! assert_eq!(ports.ports[0].reason.as_deref(), Some("no frontend has connected yet"));
//! switch.stop();
//! # std::fs::remove_dir(dir)?;
//! # Ok(())
//! # }
//! ```

pub mod api;
mod capture;
mod captures;
mod changes;
mod config_file;
mod default_mac;
mod descriptors;
mod domain_graph;
mod dynamic_port;
mod entries;
mod events;
mod firewall;
mod flows;
mod keeper;
mod log_writer;
mod networks;
mod node_chain;
mod open_port;
pub mod opener;
mod ping;
mod plan;
mod reload;
mod running;
pub mod sandbox;
mod set_rate;
pub mod socket_maker;
mod source;
mod switch;
mod tables;
mod trace;
mod traffic;
mod user_names;
mod watchdog;
mod watcher;

pub use straightline_config as config;

pub use descriptors::{descriptor_shortage, raise_descriptor_limit};
pub use dynamic_port::{DynamicPort, GivenSocket};
pub use flows::flow_accesses;
pub use keeper::Keeper;
pub use log_writer::LogWriter;
pub use switch::{StartOptions, Switch};

/// The program's version, as `status` shows it. A build that copies no packets says so here.
pub const VERSION: &str = if straightline_packet::COPIES {
    env!("CARGO_PKG_VERSION")
} else {
    concat!(env!("CARGO_PKG_VERSION"), " bench-no-copies: NO PACKET IS COPIED, FOR MEASUREMENTS ONLY")
};
