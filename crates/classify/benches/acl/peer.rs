//! DPDK's `rte_acl`, by its program `dpdk-test-acl`.

use std::cell::RefCell;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use straightline_classify::workload::Family;
use straightline_classify::{Column, Key, Rule, Rules, Test};
use tempfile::TempDir;

/// Free huge pages of 2 MiB that the program needs for 10 000 rules.
const HUGE_PAGES: u32 = 256;

/// Passes over the trace.
const PASSES: u32 = 60;

/// The installed program.
pub(crate) struct Peer(());

/// Rules and keys in the program's formats.
pub(crate) struct Files {
    folder: TempDir,
    family: Family,
    /// Line of the last run that has its cycles, or its last line.
    last: RefCell<String>,
}

impl Files {
    /// Returns the line of the last run that has its cycles. A run that failed has its last line.
    pub(crate) fn last_line(&self) -> String {
        self.last.borrow().clone()
    }
}

impl Peer {
    /// Returns the program.
    ///
    /// # Errors
    /// It cannot run here, for this reason.
    pub(crate) fn find() -> Result<Self, &'static str> {
        let output = Command::new("dpdk-test-acl").args(["--no-huge", "--no-pci", "-m", "64", "--in-memory"]).output();
        output.map_err(|_| "no dpdk-test-acl")?;
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let free = memory.lines().find_map(|line| line.strip_prefix("HugePages_Free:")?.trim().parse().ok());
        if free.unwrap_or(0) < HUGE_PAGES { Err("too few huge pages are free") } else { Ok(Self(())) }
    }

    /// Writes rules and keys.
    pub(crate) fn write(&self, rules: &Rules, family: Family, trace: &[Key]) -> Files {
        let folder = TempDir::new().expect("a temporary folder");
        let text: String = rules.as_slice().iter().map(|rule| line(rule, family)).collect();
        fs::write(folder.path().join("rules"), text).expect("the folder is ours");
        let mut text = String::new();
        for key in trace {
            let [src, dst] = [Column::IP_SRC, Column::IP_DST].map(|columns| match family {
                Family::V4 => key.get(columns[3]).to_string(),
                Family::V6 => groups(columns.map(|column| key.get(column))),
            });
            let values = [Column::SrcPort, Column::DstPort, Column::Protocol];
            let [sport, dport, protocol] = values.map(|column| key.get(column));
            writeln!(text, "{src} {dst} {sport} {dport} {protocol}").expect("text");
        }
        fs::write(folder.path().join("trace"), text).expect("the folder is ours");
        Files { folder, family, last: RefCell::default() }
    }

    /// Returns the cycles of a packet; none if the program cannot compile the rules.
    pub(crate) fn run(&self, files: &Files, keys: usize, cpu: usize) -> Option<f64> {
        let path = |name: &str| files.folder.path().join(name).display().to_string();
        let output = Command::new("dpdk-test-acl")
            .args(["-l", &cpu.to_string(), "--no-pci", "--in-memory", "--", "--alg=avx512x16", "--verbose=1"])
            .args(["--tracestep=256", &format!("--iter={PASSES}"), &format!("--tracenum={keys}")])
            .args([format!("--rulesf={}", path("rules")), format!("--tracef={}", path("trace"))])
            .args((files.family == Family::V6).then_some("--ipv6"))
            .output()
            .expect("the program was found");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|line| line.contains("cycles/pkt"));
        line.or(errors.lines().next_back()).unwrap_or_default().clone_into(&mut files.last.borrow_mut());
        let before = line?.split(" cycles/pkt").next()?;
        before.split_whitespace().next_back()?.parse().ok()
    }
}

/// Returns a rule as a line of the program's file.
fn line(rule: &Rule, family: Family) -> String {
    let span = |column: Column| {
        let range = rule.tests().iter().find_map(|&(at, test)| match test {
            Test::Range { low, high } if at == column => Some((low, high)),
            _ => None,
        });
        range.unwrap_or((0, column.greatest()))
    };
    let prefix = |columns: [Column; 4]| match family {
        Family::V4 => {
            let (low, high) = span(columns[3]);
            let [a, b, c, d] = low.to_be_bytes();
            format!("{a}.{b}.{c}.{d}/{}", (low ^ high).leading_zeros())
        }
        Family::V6 => {
            let spans = columns.map(span);
            let bits: u32 = spans.map(|(low, high)| (low ^ high).leading_zeros()).iter().sum();
            format!("{}/{bits}", groups(spans.map(|(low, _)| low)))
        }
    };
    let ports = |column: Column| {
        let (low, high) = span(column);
        format!("{low} : {high}")
    };
    let protocol = match span(Column::Protocol) {
        (0, 0xff) => "0x00/0x00".to_owned(),
        (one, _) => format!("0x{one:02x}/0xff"),
    };
    let src = prefix(Column::IP_SRC);
    let dst = prefix(Column::IP_DST);
    format!("@{src} {dst} {} {} {protocol}\n", ports(Column::SrcPort), ports(Column::DstPort))
}

/// Returns an address of IPv6 with all its groups: the program reads no other form.
fn groups(words: [u32; 4]) -> String {
    words.map(|word| format!("{:x}:{:x}", word >> 16, word & 0xffff)).join(":")
}
