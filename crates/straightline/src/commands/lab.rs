//! `straightline lab loop`

use straightline_lab::poller::{self, Layout, Load, Options, Sizes};

use crate::cli::{Lab, LoadKind, Loop, OnOff, RingKind};
use crate::output;

/// A frame with as much payload as 45 segments of 1448 bytes have.
const SEGMENTS: u32 = 54 + 45 * 1448;

pub(crate) fn execute(lab: &Lab) -> anyhow::Result<()> {
    let Lab::Loop(args) = lab;
    let report = poller::run(&options(args))?;
    if args.json {
        output::answer(&format!("{}\n", serde_json::to_string(&report)?))
    } else {
        output::answer(&report.to_string())
    }
}

fn options(args: &Loop) -> Options {
    let sizes = args.size.clone().unwrap_or_else(|| Sizes::one(if args.segments { SEGMENTS } else { 64 }));
    Options {
        load: match args.load {
            LoadKind::Loop => Load::Loop,
            LoadKind::Flood => Load::Flood,
        },
        layout: match args.ring {
            RingKind::Split => Layout::Split,
            RingKind::Packed => Layout::Packed,
        },
        mergeable: args.mrg == OnOff::On,
        in_order: args.in_order,
        queue_size: args.queue_size,
        buffer_len: args.buffer_len,
        header_offset: args.header_offset,
        sizes,
        seed: args.seed,
        segments: args.segments,
        bursts: args.bursts,
        cpu: args.cpu,
        huge_pages: args.hugepages,
        verify: !args.no_verify,
        warm_up: args.warm_up,
        time: args.secs,
        ..Options::new(args.backends())
    }
}
