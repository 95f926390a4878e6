//! Bindings of IP addresses in bridges.

use super::Check;

/// The number of refused claims from which two stations probably have one address. A VM that moves makes
/// a few.
const MANY: u64 = 10;

pub(super) const BINDINGS: Check = Check {
    name: "bindings",
    passes: "each IP address has one station, and each binding found a place",
    absent: "no bridge has bindings of IP addresses",
    run: |facts, outcome| {
        let Some(switch) = outcome.known("the bindings", &facts.switch) else { return };
        for table in &switch.tables.tables {
            let Some(bridge) = table.table.strip_prefix("bindings:") else { continue };
            let count = |counter: &str| table.counters.get(counter).copied().unwrap_or(0);
            let refused = count("refused");
            let elsewhere = count("bound-elsewhere");
            if refused > 0 {
                outcome.warn(
                    format!("bridge {bridge}: {refused} bindings found no place"),
                    "the port of these stations has filled its share; questions for them are flooded",
                    format!("look for a VM that claims many IP addresses, or raise `limit` in [bridge.{bridge}]"),
                );
            }
            if elsewhere >= MANY {
                outcome.warn(
                    format!("bridge {bridge}: stations claimed an IP address of another one {elsewhere} times"),
                    "two machines may have one IP address, or a VM claims the address of another one",
                    format!("compare: straightline bindings {bridge}"),
                );
            }
            if refused == 0 && elsewhere < MANY {
                outcome.pass();
            }
        }
    },
};
