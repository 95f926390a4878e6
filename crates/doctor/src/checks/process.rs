//! The process of the switch: descriptors and sandbox.

use straightline_api::Link;

use super::Check;

/// Descriptors of a frontend's link: connection, memory regions, log and others.
const EACH_LINK: u64 = 32;

/// Descriptors of a queue pair: a kick and a call for each ring.
const EACH_PAIR: u64 = 4;

/// Descriptors that should stay free.
const SPARE: u64 = 64;

pub(super) const DESCRIPTORS: Check = Check {
    name: "descriptors",
    passes: "the switch can open enough descriptors",
    absent: "",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the descriptors", &facts.switch) else { return };
        let Some(free) = switch.status.fds_free else {
            let why = crate::facts::Unknown::new("the switch has no /proc, or another version");
            return outcome.unknown("the free descriptors", &why);
        };
        let down = facts.ports.iter().filter(|port| port.port.link == Link::Down && port.port.has_frontend());
        let need: u64 = down
            .map(|port| {
                let pairs = port.port.queue_pairs.and_then(|pairs| pairs.offered).unwrap_or(1);
                EACH_LINK + EACH_PAIR * u64::from(pairs)
            })
            .sum();
        let limit = match facts.process.as_ref().map(|process| &process.descriptor_limit) {
            Ok(Ok(Some(limit))) => format!("the limit (NOFILE) is {limit}; "),
            _ => String::new(),
        };
        let fix = "set `LimitNOFILE=65536` in the systemd unit, or `ulimit -Hn 65536` before the start";
        let symptom = format!("the switch can open {free} more descriptors");
        let detail = format!("{limit}the ports that are down take about {need}");
        match free {
            _ if free < need || free == 0 => outcome.fail(symptom, detail, fix),
            _ if free < need + SPARE => outcome.warn(symptom, detail, fix),
            _ => outcome.pass(),
        }
    },
};

pub(super) const PROGRAM: Check = Check {
    name: "program",
    passes: "the program gives no capabilities to every user",
    absent: "",
    run: |facts, outcome| {
        let Some(program) = outcome.known("the program's file", &facts.program) else { return };
        if !program.has_capabilities || program.mode & 0o001 == 0 {
            return outcome.pass();
        }
        let path = program.path.display();
        // A change of the group takes the capabilities away.
        outcome.warn(
            format!("every user may execute {path}, which has capabilities of its own (setcap)"),
            "each of them can open network interfaces and read all their packets with a configuration of their own",
            format!(
                "sudo setcap -r {path}, and set `AmbientCapabilities=` in the systemd unit; or allow one group only: \
                 sudo chmod 0750 {path}"
            ),
        );
    },
};

pub(super) const SANDBOX: Check = Check {
    name: "sandbox",
    passes: "capabilities, Landlock and seccomp confine the switch",
    absent: "",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the sandbox", &facts.switch) else { return };
        let lacks = |part: &&str| !switch.status.sandbox.iter().any(|own| own == part);
        let missing: Vec<_> = ["capabilities", "landlock", "seccomp"].into_iter().filter(lacks).collect();
        if missing.is_empty() {
            outcome.pass()
        } else {
            outcome.warn(
                format!("the sandbox works without {}", missing.join(", ")),
                "the kernel lacks it, or `sandbox` in [switch] leaves it out",
                "remove `sandbox` from [switch]; for Landlock, boot a kernel with `lsm=landlock,...`",
            )
        }
    },
};

pub(super) const REFUSED: Check = Check {
    name: "refused-calls",
    passes: "the sandbox has refused no system call",
    absent: "",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the refused system calls", &facts.switch) else { return };
        match switch.status.refused_calls {
            0 => outcome.pass(),
            count => outcome.fail(
                format!("the sandbox has refused {count} system calls"),
                "a fault of the switch, or an attack; its log names the calls",
                "report the log's line `refused system call` as a bug",
            ),
        }
    },
};
