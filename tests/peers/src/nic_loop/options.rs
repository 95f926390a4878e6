//! The command line, and the axes of a trial.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use clap::Args;

use crate::measure::{self, CommonOptions, Peers, SwitchKind};
use crate::tunnels::{MTU, Path};

const ABOUT: &str = "\
Measure two Linux guests (User Mode Linux) on one switch with one worker, in rounds. Each packet of 1500
bytes leaves the switch by AF_XDP at one end of a veth pair and comes back by AF_XDP at the other end. The
guests leave checksums to the switch, and iperf3 sends one stream, plain and in L2TPv3. The table has the
rate, what a second of the worker's time moves, the share of what the kernel's AF_XDP alone could move in
it, and the ratios of L2TPv3 to plain. It needs root. Run nothing else on the machine meanwhile.";

const SWITCHES: &str = "\
Switches:
  bound         the kernel's AF_XDP rings alone at the same pair, with one copy of each frame
  NAME=PROGRAM  a Straightline binary. The same argument may add keys of [switch], of the vhost-user
                ports, of the AF_XDP ports, of the tunnels, of the patches:
                'sse2=target/release/straightline simd=\"sse2\"'
Default: bound, and target/release/straightline with simd = scalar, sse2, avx2, avx512";

/// The switches of this comparison.
#[derive(Debug)]
pub(super) struct Switches;

impl Peers for Switches {
    const KNOWN: &'static [(&'static str, SwitchKind)] = &[("bound", SwitchKind::Kernel)];
    const DEFAULT: &'static [&'static str] = &[
        "bound",
        "scalar=target/release/straightline simd=\"scalar\"",
        "sse2=target/release/straightline simd=\"sse2\"",
        "avx2=target/release/straightline simd=\"avx2\"",
        "avx512=target/release/straightline simd=\"avx512\"",
    ];
    const ROUNDS: &'static str = "6";
}

/// The axes of a trial besides the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoopCell {
    pub(super) path: Path,
}

impl LoopCell {
    /// Plain, and the tunnel that is compared with it.
    pub(super) const ALL: [Self; 2] = [Self { path: Path::Plain }, Self { path: Path::L2tpv3 }];

    /// Returns the length of a frame on the wire, without its frame check sequence.
    pub(super) fn frame_len(self) -> u32 {
        const ETHERNET: u32 = 14;
        // Ethernet, IPv6, the session and the cookie of 8 bytes (RFC 3931, 4.1.1).
        const L2TPV3: u32 = ETHERNET + 40 + 4 + 8;
        let inner = MTU + ETHERNET;
        if self.path == Path::L2tpv3 { inner + L2TPV3 } else { inner }
    }
}

impl measure::Cell for LoopCell {
    fn axes(&self) -> BTreeMap<String, String> {
        [("path".to_owned(), self.path.name().to_owned())].into()
    }
}

impl fmt::Display for LoopCell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.path.name())
    }
}

#[derive(Debug, Args)]
#[command(about = "Measure Linux guests whose packets loop through AF_XDP (`cargo xtask compare nic-loop`)")]
#[command(long_about = ABOUT, after_help = SWITCHES, args_override_self = true)]
#[command(override_usage = "cargo xtask compare nic-loop [OPTION...]")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(super) common: CommonOptions<Switches>,
    /// Time that iperf3 sends, twice for each path, in whole seconds
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) secs: u32,
}

/// Checks the options, and asks each program for its version.
pub(super) fn checked(mut options: Options) -> Result<Options> {
    options.common.check()?;
    options.common.identify_copying("Linux guests need them")?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let args = |line: &str| measure::parsed::<Options>(line);
        let all = args("").expect("a good command line");
        assert_eq!((all.common.rounds, all.common.switches.len(), all.secs), (6, 5, 2));
        let some = args("--switch|bound|--switch|x=bin/s simd=\"sse2\" idle=\"sleep\"|--secs|1").expect("good");
        assert_eq!((some.common.switches.len(), some.secs), (2, 1));
        for bad in ["--switch|ovs", "--secs|0", "--secs|0.5", "--rounds|0", "--fast"] {
            assert!(args(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn frames_in_the_tunnel_fit_the_wire() {
        let lens = LoopCell::ALL.map(LoopCell::frame_len);
        assert_eq!(lens, [1514, 1580]);
        assert!(lens.iter().all(|len| len - 14 <= crate::tunnels::UNDERLAY_MTU));
    }
}
