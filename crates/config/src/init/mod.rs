//! Writes a first configuration for a machine.
//!
//! The result is a correct file for [`Facts`] about the machine: a bridge of two VMs. Settings that
//! take privileges, or that could cut the machine off its network, are commented out. Such a line
//! begins with `#` and no space; prose begins with `# `.

mod facts;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

pub use facts::{Facts, Nic};

/// Drivers with native XDP in Linux 6.12 (`ndo_bpf`), which run the program before the kernel makes
/// a packet buffer.
const NATIVE_XDP: &[&str] = &[
    "atlantic",
    "bnxt_en",
    "ena",
    "fec",
    "gve",
    "hv_netvsc",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ixgbe",
    "ixgbevf",
    "mlx4_core",
    "mlx4_en",
    "mlx5_core",
    "mvneta",
    "mvpp2",
    "nfp",
    "qede",
    "sfc",
    "thunder-nicvf",
    "virtio_net",
];

/// The most interfaces and bridges that the file proposes: a host of containers can have hundreds.
const MOST_PROPOSALS: usize = 8;

/// Returns a commented configuration for a machine.
#[must_use]
pub fn initial_configuration(facts: &Facts) -> String {
    let folder = facts.folder.display();
    let mut text = format!(
        "# The configuration of the switch, written by `straightline init`.\n\
         # Check it:      straightline check FILE\n\
         # Run it:        straightline run FILE\n\
         # About a key:   straightline check --explain KEY\n\
         # Lines with `#` and no space are settings that you may want: remove the `#`.\n\
         \n[switch]\n\
         # Where commands such as `straightline ports` reach the switch.\n\
         api = \"{folder}/api.sock\"\n"
    );
    workers(facts, &mut text);
    text += "\n# A bridge of two VMs. The switch makes a socket for each, to which QEMU connects.\n";
    for (number, name) in ["vm1", "vm2"].iter().enumerate() {
        let _ = write!(text, "[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{folder}/{name}.sock\"\n");
        match &facts.qemu_user {
            Some(user) if number == 0 => {
                let _ = writeln!(text, "# QEMU runs as {user} here. To give the socket to it takes root at the start.");
                let _ = writeln!(text, "#owner = \"{user}\"");
            }
            Some(user) => {
                let _ = writeln!(text, "#owner = \"{user}\"");
            }
            None => {}
        }
        text += "\n";
    }
    text += "[bridge.lan]\nports = [\"vm1\", \"vm2\"]\n";
    bridges(facts, &mut text);
    nics(facts, &mut text);
    text
}

/// Proposes a CPU for the worker, if the machine has isolated ones.
fn workers(facts: &Facts, text: &mut String) {
    let mut firsts: Vec<usize> = Vec::new();
    for (cpu, core) in facts.isolated.iter().zip(&facts.cores) {
        // Two workers on one core would share its execution units.
        if !core.iter().any(|sibling| firsts.contains(sibling)) {
            firsts.push(*cpu);
        }
    }
    let Some(all) = firsts.iter().map(|cpu| cpu.to_string()).reduce(|list, cpu| format!("{list}, {cpu}")) else {
        return;
    };
    let _ = writeln!(text, "# Isolated CPUs of this machine, one of each core: {all}.");
    match firsts.iter().find(|cpu| facts.allowed.contains(cpu)) {
        Some(cpu) => {
            let _ = writeln!(text, "workers = [{cpu}]");
        }
        None => {
            let first = firsts[0];
            text.push_str("# This process may not run on them now: start it with `taskset` or CPUAffinity=.\n");
            let _ = writeln!(text, "#workers = [{first}]");
        }
    }
}

/// Proposes a tap to the host's own networks.
fn bridges(facts: &Facts, text: &mut String) {
    text.push_str(
        "\n# The VMs' way to this machine: a tap takes CAP_NET_ADMIN. Add \"host\" to the bridge's ports.\n\
         #[port.host]\n#kind = \"tap\"\n#name = \"sl0\"\n#persist = true\n",
    );
    if let Some(first) = facts.bridges.first() {
        let all: Vec<_> = facts.bridges.iter().take(MOST_PROPOSALS).map(String::as_str).collect();
        let _ = writeln!(text, "# It joins a Linux bridge, and so the bridge's network. Here: {}.", all.join(", "));
        let _ = writeln!(text, "#bridge = \"{first}\"");
    }
}

/// Proposes a port for each NIC.
fn nics(facts: &Facts, text: &mut String) {
    for (number, nic) in facts.nics.iter().take(MOST_PROPOSALS).enumerate() {
        let Nic { name, driver, mac, has_default_route } = nic;
        let _ = writeln!(text, "\n# Interface {name}: driver {driver}, address {mac}.");
        text.push_str(if NATIVE_XDP.contains(&driver.as_str()) {
            "# AF_XDP probably runs in the driver (native mode), which is fast.\n"
        } else {
            "# AF_XDP probably runs in generic mode, which is slow.\n"
        });
        text.push_str(if *has_default_route {
            "# DANGER: it has this machine's default route, and the port would cut the machine off.\n"
        } else {
            "# The port takes all packets: the host itself cannot use the interface meanwhile.\n"
        });
        let _ = write!(text, "#[port.nic{number}]\n#kind = \"af-xdp\"\n#interface = \"{name}\"\n");
    }
    if facts.nics.len() > MOST_PROPOSALS {
        let _ = writeln!(text, "\n# This machine has {} more interfaces.", facts.nics.len() - MOST_PROPOSALS);
    }
}
