//! `peers conntrack`: measures what nf_conntrack and a policy of nftables cost the kernel for a packet, in rounds.
//!
//! | file | holds |
//! |---|---|
//! | `options` | the command line, and the axes of a trial |
//! | `kernel` | the namespace that forwards, and its packets |

mod kernel;
mod options;

use std::path::PathBuf;

use anyhow::Result;
use straightline_lab::rounds::Measured;
use straightline_lab::rounds::table::{self, Row};
use straightline_report::results::Sample;

use crate::machine::{Machine, Need};
use crate::measure::{Candidate, Cell as _, NO_VALID_TRIAL, TrialPlan, require};
use options::ConntrackCell;
pub(crate) use options::Options;

/// Packets of a trial that only shows that packets and rules are as meant.
const FEW: u32 = 1000;

/// Runs all trials. Returns true if each of them is valid.
pub(crate) fn run(options: Options) -> Result<bool> {
    let options = options::checked(options)?;
    let common = &options.common;
    let machine = Machine { switch: PathBuf::new(), cache: common.cache.clone(), long: false };
    require(&machine, Need::Nftables, "run as root, with nft installed")?;
    let switches = &common.switches[..];
    let cells = ConntrackCell::ALL;
    let out = common.out.as_deref();
    let near = common.near;
    let plan = TrialPlan { scenario: "conntrack", rounds: common.rounds, switches, cells: &cells, out, near };
    let done = plan.run(|_, &cell| {
        let ns = kernel::nanoseconds(cell, options.packets)?;
        Ok(Measured {
            metrics: [("ns_per_packet".to_owned(), ns)].into(),
            summary: format!("{ns:.0} ns a packet"),
            ..Measured::default()
        })
    })?;
    println!("Medians (smallest-largest).\n\n{}", markdown(switches, &done.samples));
    Ok(done.judge())
}

/// Makes a short trial of each kind.
pub(crate) fn check() -> Result<()> {
    ConntrackCell::ALL.into_iter().try_for_each(|cell| kernel::nanoseconds(cell, FEW).map(drop))
}

/// Returns a table with a row for each cell: nanoseconds a packet, and those beyond forwarding in the same round.
fn markdown(switches: &[Candidate], samples: &[Sample]) -> String {
    let mut rows = Vec::new();
    for switch in switches {
        let series = |cell: ConntrackCell| {
            let row = Row::new(samples, &cell.axes(), [switch.name.as_str()])?;
            row.series("ns_per_packet").into_iter().next()
        };
        let forward = series(ConntrackCell::Forward).unwrap_or_default();
        for cell in ConntrackCell::ALL {
            let own = series(cell).unwrap_or_default();
            let of_round = |round| forward.iter().find(|(other, _)| *other == round).map(|(_, ns)| *ns);
            let more: Vec<_> = own.iter().filter_map(|(round, ns)| Some((*round, ns - of_round(*round)?))).collect();
            let shown = [own, more]
                .map(|series| table::spread(&series, table::fixed(0)).unwrap_or_else(|| NO_VALID_TRIAL.to_owned()));
            rows.push([cell.to_string()].into_iter().chain(shown).collect());
        }
    }
    table::markdown(&["a packet that is", "ns", "more than forwarded"], &rows)
}
