//! Captures that we write, read by a third-party program (tshark).

use std::fmt::Write as _;
use std::fs::File;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use straightline_capture::pcapng::Writer;
use straightline_lab::traffic::capture::Captured;

use crate::lab::Lab;
use crate::machine::Need;
use crate::runner::Test;
use crate::say::say;

pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("capture_opens_in_tshark", &[Need::Tshark], opens_in_tshark).beside_others()]
}

fn opens_in_tshark(lab: &Lab) -> Result<()> {
    // Lengths that need each size of padding, and times with nanoseconds.
    let frames: Vec<Captured> = (0_u8..8)
        .map(|n| {
            let bytes =
                [&[2, 0, 0, 0, 0, n, 2, 0, 0, 0, 1, n, 0x88, 0xb5][..], &vec![n; 46 + usize::from(n) * 201]].concat();
            Captured { at: 1_795_262_400_000_000_001 + u64::from(n) * 1_000_000_007, bytes }
        })
        .collect();
    let path = lab.log("frames.pcapng");
    let mut writer = Writer::of_frames(File::create(&path)?)?;
    for frame in &frames {
        writer.frame(frame.at, &frame.bytes)?;
    }
    let fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "eth.src", "-e", "data.data"];
    let output = Command::new("tshark").arg("-r").arg(&path).args(fields).output().context("tshark")?;
    ensure!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let mut wanted = String::new();
    for Captured { at, bytes } in &frames {
        let hex: String = bytes[14..].iter().map(|byte| format!("{byte:02x}")).collect();
        let secs = at / 1_000_000_000;
        let nanos = at % 1_000_000_000;
        let last = bytes[11];
        writeln!(wanted, "{secs}.{nanos:09}\t{}\t02:00:00:00:01:{last:02x}\t{hex}", bytes.len())?;
    }
    let found = String::from_utf8(output.stdout)?;
    ensure!(found == wanted, "tshark read\n{found}and the capture contains\n{wanted}");
    say!("  tshark read all {} frames as they were written", frames.len());
    Ok(())
}
