//! Remedies that differ by the program that runs the VM.

use crate::facts::{PortFacts, Program};

impl PortFacts {
    /// Returns the program of the port's VM, if it is known.
    pub(super) fn program(&self) -> Option<&Program> {
        self.peers.iter().flatten().next().map(|peer| &peer.program)
    }

    /// Returns the remedy for a link that is down: one for the VM's program where there is such, else
    /// the one of the switch.
    pub(super) fn remedy(&self) -> Option<String> {
        let own = self.program().zip(self.port.cause.as_deref()).and_then(|(program, cause)| remedy(cause, program));
        own.map(str::to_owned).or_else(|| self.port.remedy.clone())
    }
}

/// Returns the remedy for a cause that takes an option of the program.
fn remedy(cause: &str, program: &Program) -> Option<&'static str> {
    let remedy = match (cause, program) {
        ("frontend-left", Program::Other(_)) => return None,
        ("frontend-left", program) => connects_again(program),
        ("legacy-driver", Program::Qemu) => {
            "boot the guest, or add `disable-legacy=on,disable-modern=off` to QEMU's -device"
        }
        ("iommu", Program::Qemu) => "remove `iommu_platform=on` from QEMU's -device",
        ("iommu", Program::CloudHypervisor) => "remove `iommu=on` from --net of Cloud Hypervisor",
        _ => return None,
    };
    Some(remedy)
}

/// Returns how the VM's network comes back after a restart of the switch.
pub(super) fn connects_again(program: &Program) -> &'static str {
    match program {
        Program::Qemu => "add `reconnect-ms=1000` to QEMU's -chardev (`reconnect=1` before QEMU 9.2)",
        Program::CloudHypervisor => {
            "if the VM has no network after a minute, restart it with `vhost_mode=server` in --net, and set \
             `mode = \"client\"` at the port"
        }
        // It cannot listen, and it ends with its connection, with status 0.
        Program::Crosvm => "have crosvm started again whenever it ends, such as by systemd with `Restart=always`",
        Program::Uml => "start the VM again after a restart of the switch: User Mode Linux connects only once",
        Program::Other(_) => "let the VM listen if its program can, and set `mode = \"client\"` in the port's section",
    }
}

/// Returns how the VM comes to this number of queue pairs.
pub(super) fn more_pairs(program: &Program, port: &str, pairs: u32) -> String {
    let ours = format!("set `queues = {pairs}` in [port.{port}]");
    match program {
        Program::Qemu => format!("{ours}, and add `queues={pairs}` to QEMU's -netdev"),
        Program::CloudHypervisor => format!("{ours}, and `num_queues={}` in --net", 2 * pairs),
        // The guest reads the number from the port.
        Program::Crosvm | Program::Uml => ours,
        Program::Other(_) => format!("{ours}, and the same number in the VM's options"),
    }
}

/// Returns how the VM comes to rings of this size.
pub(super) fn larger_rings(program: Option<&Program>, entries: u32) -> String {
    match program {
        Some(Program::Qemu) => format!("add `rx_queue_size={entries}` to QEMU's -device"),
        Some(Program::CloudHypervisor) => format!("set `queue_size={entries}` in --net"),
        _ => format!("give the VM's device rings of {entries} entries (QEMU: `rx_queue_size={entries}`)"),
    }
}
