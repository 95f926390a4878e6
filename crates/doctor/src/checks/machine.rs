//! The machine: what takes CPU time from the switch.

use super::{Check, CheckOutcome};
use crate::facts::{Cpu, Facts};

/// The share of a CPU's time that a hypervisor may take away from a worker.
const STEAL: f64 = 0.05;

pub(super) const QUOTA: Check = Check {
    name: "cgroup-quota",
    passes: "no control group limits the CPU time of the switch",
    absent: "",
    run: |facts, outcome| {
        let Some(process) = outcome.known("the control groups of the switch", &facts.process) else { return };
        let workers = facts.switch.as_ref().map_or(1, |switch| switch.status.workers);
        match outcome.known(format!("the CPU quota of process {}", process.pid), &process.quota) {
            None => {}
            Some(None) => outcome.pass(),
            Some(Some(quota)) => {
                #[expect(clippy::cast_precision_loss, reason = "a number of threads")]
                let is_short = quota.cpus < workers as f64 || quota.throttled > 0;
                if is_short {
                    outcome.warn(
                        format!("a control group gives the switch {:.1} CPUs for {workers} workers", quota.cpus),
                        format!("the group had to wait in {} periods; packets wait with it", quota.throttled),
                        "remove `CPUQuota=` from the systemd unit, or the CPU limit of the container",
                    )
                } else {
                    outcome.pass()
                }
            }
        }
    },
};

/// Returns the CPUs of the workers; all CPUs if no worker is pinned.
fn cpus<'f>(facts: &'f Facts, outcome: &mut CheckOutcome) -> Vec<(usize, &'f Cpu)> {
    let Some(cpus) = outcome.known("the CPUs", &facts.machine.cpus) else { return Vec::new() };
    let runtime = facts.switch.as_ref().map(|switch| &switch.after.workers[..]).unwrap_or_default();
    let pinned: Vec<_> = runtime.iter().filter_map(|worker| worker.cpu).collect();
    let is_concerned = |cpu: &usize| pinned.is_empty() || pinned.contains(cpu);
    cpus.iter().filter(|(cpu, _)| is_concerned(cpu)).map(|(cpu, machine)| (*cpu, machine)).collect()
}

pub(super) const STEAL_TIME: Check = Check {
    name: "steal",
    passes: "the hypervisor leaves the CPUs to this machine",
    absent: "",
    run: |facts, outcome| {
        for (cpu, machine) in cpus(facts, outcome) {
            match outcome.known(format!("CPU {cpu}"), &machine.steal) {
                Some(&steal) if steal > STEAL => outcome.warn(
                    format!("CPU {cpu} was taken away for {:.0} % of the time", 100.0 * steal),
                    "this machine is a VM, and its hypervisor has more to run than CPUs",
                    "rent a dedicated CPU, or end other VMs of the hypervisor",
                ),
                Some(_) => outcome.pass(),
                None => {}
            }
        }
    },
};

pub(super) const GOVERNOR: Check = Check {
    name: "governor",
    passes: "the CPUs run at full speed (governor `performance`)",
    absent: "",
    run: |facts, outcome| {
        let mut slow = Vec::new();
        for (cpu, machine) in cpus(facts, outcome) {
            match outcome.known(format!("CPU {cpu}"), &machine.governor) {
                Some(governor) if governor == "performance" => outcome.pass(),
                Some(governor) => slow.push(format!("CPU {cpu}: {governor}")),
                None => {}
            }
        }
        if !slow.is_empty() {
            outcome.warn(
                "the frequency governor may slow the workers' CPUs down",
                slow.join(", "),
                "cpupower frequency-set --governor performance",
            );
        }
    },
};
