//! A host for a test: a network namespace of the test's own thread, with its interfaces.
//!
//! Threads that the test starts afterwards share the namespace, and so does the switch. The
//! namespace ends with them, and nothing is left to be removed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

use rustix::thread::UnshareFlags;
use straightline_config::{AfPacketConfig, Offloads, PortConfig, PortKind, TapConfig};

/// A network namespace.
pub struct Host(());

impl Host {
    /// Moves the thread into a namespace of its own, without IPv6 on its interfaces. Returns `None`
    /// and reports a skip if the thread may not do that.
    pub fn new(test: &str) -> Option<Host> {
        #[expect(deprecated, reason = "a thread may have a network namespace of its own")]
        let entered = rustix::thread::unshare(UnshareFlags::NEWNET);
        if let Err(error) = entered {
            skip(test, &format!("it needs a network namespace of its own: {error}"));
            return None;
        }
        for name in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
            std::fs::write(&path, "1").unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        let host = Host(());
        host.ip("link set lo up");
        Some(host)
    }

    /// Runs `ip` with these arguments, which must succeed.
    pub fn ip(&self, arguments: &str) -> String {
        self.run("ip", arguments)
    }

    /// Runs a program with these arguments, which must succeed.
    pub fn run(&self, program: &str, arguments: &str) -> String {
        let output = Command::new(program).args(arguments.split(' ')).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        let _ = write!(text, "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} {arguments}: {text}");
        text
    }
}

/// Reports that this machine cannot run a test, in the line that `cargo xtask test` counts as a
/// skip. On a machine of continuous integration, `cargo xtask test` then fails.
pub fn skip(test: &str, why: &str) {
    // `println!` is not used, because libtest captures it. The newline comes first, because libtest
    // may have begun a line already.
    let _ = writeln!(std::io::stdout(), "\nskipped {test}: {why}");
}

/// A port of another kind than vhost-user.
fn port(name: &str, kind: PortKind) -> PortConfig {
    PortConfig { name: name.to_owned(), kind, ..PortConfig::vhost_user("", "") }
}

/// A tap of one queue with all offloads.
pub fn tap(name: &str) -> PortConfig {
    tap_with(name, |_| {})
}

/// A tap with other keys.
pub fn tap_with(name: &str, change: impl FnOnce(&mut TapConfig)) -> PortConfig {
    let mut config = TapConfig {
        name: name.to_owned(),
        queues: 1,
        offloads: Offloads::default(),
        persist: false,
        owner: None,
        group: None,
        bridge: None,
    };
    change(&mut config);
    port(name, PortKind::Tap(config))
}

/// A packet socket.
pub fn af_packet(interface: &str, queues: u16) -> PortConfig {
    port(interface, PortKind::AfPacket(AfPacketConfig { interface: interface.to_owned(), queues }))
}
