//! Who loads the switch: our own guest or generator as a program of its own, or testpmd with two virtio-user ports.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::options::{Cell, Guest, Load, Options, Size};
use super::switches::{Running, large_buffers};
use crate::lab::Lab;
use crate::machine::two_cpus;
use crate::proc::{self, Proc};
use crate::testpmd::Testpmd;

/// What a guest has seen. Our own one says just these.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Seen {
    /// Million packets received a second, by both ports together.
    pub(super) mpps: f64,
    /// Gigabits of their frames a second.
    pub(super) gbit_per_s: f64,
    /// What it took for a packet itself.
    #[serde(default)]
    pub(super) guest_cycles_per_packet: Option<f64>,
    /// Packets that never came back.
    #[serde(default)]
    pub(super) lost: Option<u64>,
}

/// Before a trial is measured.
const WARM_UP: Duration = Duration::from_secs(1);

/// Loads a switch that has been started.
pub(super) fn measure(
    lab: &Lab,
    options: &Options,
    switch: &mut Running<'_>,
    copies_nothing: bool,
    cell: &Cell,
) -> Result<Seen> {
    match cell.guest {
        Guest::Own => own(lab, options, switch, copies_nothing, cell),
        Guest::Generator if copies_nothing => {
            bail!("the generator checks what comes, and this switch copies nothing: load it by --guest own")
        }
        Guest::Generator => generator(lab, options, switch, cell),
        Guest::Testpmd => testpmd(lab, options, switch, cell),
    }
}

/// `straightline lab loop`, which sees to it itself that the trial counts.
fn own(lab: &Lab, options: &Options, switch: &mut Running<'_>, copies_nothing: bool, cell: &Cell) -> Result<Seen> {
    switch.go()?;
    let mut command = ours(lab, options, cell, "loop")?;
    command.args(["--load", if cell.load == Load::Loop { "loop" } else { "flood" }]);
    // So large buffers that rings of 1024 would take more memory than a machine has caches for.
    let bursts = if cell.size == Size::Segments { 2 } else { options.bursts };
    command.args(["--bursts", &bursts.to_string()]);
    match cell.size {
        Size::Bytes(len) => command.args(["--size", &len.to_string()]),
        Size::Imix => command.args(["--size", "imix"]),
        Size::Segments => command.args(["--segments", "--queue-size", "256"]),
    };
    command.args(copies_nothing.then_some("--no-verify"));
    let out = said(lab, options, command)?;
    serde_json::from_str(&out).with_context(|| format!("the guest wrote {out}"))
}

/// `straightline lab patch-external`: as much as there is room for, of which each packet is checked. It sees to it itself that
/// the trial counts.
fn generator(lab: &Lab, options: &Options, switch: &mut Running<'_>, cell: &Cell) -> Result<Seen> {
    #[derive(Deserialize)]
    struct Sample {
        metrics: BTreeMap<String, f64>,
        invalid: Option<String>,
    }

    switch.go()?;
    let mut command = ours(lab, options, cell, "patch-external")?;
    command.args(["--max", "--rounds", "1", "--size", &cell.size.to_string()]);
    let out = said(lab, options, command)?;
    let sample: Sample = serde_json::from_str(&out).with_context(|| format!("the generator wrote {out}"))?;
    ensure!(sample.invalid.is_none(), "not a valid trial: {}", sample.invalid.unwrap_or_default());
    let figure = |name: &str| sample.metrics.get(name).copied();
    let needed = |name: &str| figure(name).with_context(|| format!("the generator says nothing of {name}: {out}"));
    let (mpps, gbit_per_s) = (needed("mpps")?, needed("gbit_per_s")?);
    Ok(Seen { mpps, gbit_per_s, guest_cycles_per_packet: None, lost: None })
}

/// A command of our laboratory, at the switch's two sockets.
fn ours(lab: &Lab, options: &Options, cell: &Cell, name: &str) -> Result<Command> {
    let (cpu, _) = two_cpus()?;
    let mut command = Command::new(&options.program);
    command.args(["lab", name, "--json", "--backend"]).arg(lab.socket("a")).arg("--backend").arg(lab.socket("b"));
    command.args(["--ring", if cell.ring.packed { "packed" } else { "split" }]);
    command.args(["--mrg", if cell.ring.mergeable { "on" } else { "off" }, "--cpu", &cpu.to_string()]);
    command.args(["--secs", &options.secs.to_string(), "--warm-up", &WARM_UP.as_secs().to_string()]);
    command.args(cell.ring.in_order.then_some("--in-order"));
    command.args(options.huge_pages.then_some("--hugepages"));
    Ok(command)
}

/// What such a command prints until its end.
fn said(lab: &Lab, options: &Options, command: Command) -> Result<String> {
    let mut guest = Proc::start("guest", command, &lab.log("guest"))?;
    let limit = WARM_UP + Duration::from_secs_f64(options.secs) + Duration::from_secs(40);
    let status = guest.wait_end(limit)?;
    // Its last words are on their way.
    std::thread::sleep(Duration::from_millis(50));
    let (out, err) = guest.texts();
    ensure!(status.success(), "{}", err.trim().trim_start_matches("error: "));
    Ok(out)
}

/// testpmd: whether the trial counts is for us to see.
fn testpmd(lab: &Lab, options: &Options, switch: &mut Running<'_>, cell: &Cell) -> Result<Seen> {
    let Size::Bytes(len) = cell.size else { bail!("testpmd sends frames of one length") };
    let ring = &cell.ring;
    let devices = ["a", "b"].map(|port| {
        let mut device = format!("net_virtio_user{{}},path={},queue_size=1024", lab.socket(port).display());
        let arguments = [
            (ring.packed, ",packed_vq=1"),
            (!ring.mergeable, ",mrg_rxbuf=0"),
            (ring.in_order, ",in_order=1"),
            (ring.vectorized, ",vectorized=1"),
        ];
        device.extend(arguments.iter().filter(|(set, _)| *set).map(|(_, argument)| *argument));
        device
    });
    let mut args = vec![format!("--txpkts={len}"), "--total-num-mbufs=16384".to_owned()];
    args.push(format!("--txd={}", 1024));
    args.push(format!("--rxd={}", 1024));
    if cell.load == Load::Flood {
        args.push("--forward-mode=flowgen".to_owned());
    }
    args.extend(large_buffers(cell).map(str::to_owned));
    let mut guest = Testpmd::spawn(lab, "guest", &devices, &args, 1)?;
    guest.wait_links()?;
    // Until the switch has seen the rings of both ports.
    proc::pause(Duration::from_secs(1))?;
    switch.go()?;
    proc::pause(Duration::from_millis(500))?;
    match cell.load {
        Load::Loop => guest.command(&format!("start tx_first {}", options.bursts), "packet forwarding")?,
        Load::Flood => guest.command("start", "packet forwarding")?,
    };
    proc::pause(WARM_UP)?;
    guest.rates()?;
    proc::pause(Duration::from_secs_f64(options.secs))?;
    let rates = guest.rates()?;
    guest.quit()?;
    let [(a, a_bits), (b, b_bits)] = rates;
    ensure!(
        a > 0.0 && b > 0.0 && a.min(b) >= 0.2 * a.max(b),
        "not a valid trial: {a} and {b} packets a second came by the two ports"
    );
    let seen = (a_bits + b_bits) / 8.0 / (a + b);
    // flowgen sends 4 bytes less; where a length is not possible testpmd takes 64 without a word.
    ensure!((seen - f64::from(len)).abs() <= 8.0, "not a valid trial: frames of {seen:.0} bytes came, not of {len}");
    Ok(Seen { mpps: (a + b) / 1e6, gbit_per_s: (a_bits + b_bits) / 1e9, guest_cycles_per_packet: None, lost: None })
}
