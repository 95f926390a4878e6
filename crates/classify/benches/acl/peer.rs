//! DPDK's `rte_acl`, by its program `dpdk-test-acl`.

use std::cell::RefCell;
use std::fmt::Write;
use std::fs;
use std::process::Command;

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
    last: RefCell<String>,
}

impl Files {
    /// Returns the line of the last run that has its cycles.
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
    pub(crate) fn write(&self, rules: &Rules, trace: &[Key]) -> Files {
        let folder = TempDir::new().expect("a temporary folder");
        let text: String = rules.as_slice().iter().map(line).collect();
        fs::write(folder.path().join("rules"), text).expect("the folder is ours");
        let mut text = String::new();
        for key in trace {
            let values = [Column::IpSrc3, Column::IpDst3, Column::SrcPort, Column::DstPort, Column::Protocol];
            let [src, dst, sport, dport, protocol] = values.map(|column| key.get(column));
            writeln!(text, "{src} {dst} {sport} {dport} {protocol}").expect("text");
        }
        fs::write(folder.path().join("trace"), text).expect("the folder is ours");
        Files { folder, last: RefCell::default() }
    }

    /// Returns the cycles of a packet.
    ///
    /// # Panics
    /// If the program fails. Its output says why.
    pub(crate) fn run(&self, files: &Files, keys: usize, cpu: usize) -> f64 {
        let path = |name: &str| files.folder.path().join(name).display().to_string();
        let output = Command::new("dpdk-test-acl")
            .args(["-l", &cpu.to_string(), "--no-pci", "--in-memory", "--", "--alg=avx512x16", "--verbose=1"])
            .args(["--tracestep=256", &format!("--iter={PASSES}"), &format!("--tracenum={keys}")])
            .args([format!("--rulesf={}", path("rules")), format!("--tracef={}", path("trace"))])
            .output()
            .expect("the program was found");
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| line.contains("cycles/pkt"));
        let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
        line.clone_into(&mut files.last.borrow_mut());
        let word = line.split(" cycles/pkt").next().and_then(|before| before.split_whitespace().next_back());
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no cycles in {line}"))
    }
}

/// Returns a rule as a line of the program's file.
fn line(rule: &Rule) -> String {
    let span = |column: Column| {
        let range = rule.tests().iter().find_map(|&(at, test)| match test {
            Test::Range { low, high } if at == column => Some((low, high)),
            _ => None,
        });
        range.unwrap_or((0, column.greatest()))
    };
    let prefix = |column: Column| {
        let (low, high) = span(column);
        let [a, b, c, d] = low.to_be_bytes();
        format!("{a}.{b}.{c}.{d}/{}", (low ^ high).leading_zeros())
    };
    let ports = |column: Column| {
        let (low, high) = span(column);
        format!("{low} : {high}")
    };
    let protocol = match span(Column::Protocol) {
        (0, 0xff) => "0x00/0x00".to_owned(),
        (one, _) => format!("0x{one:02x}/0xff"),
    };
    let src = prefix(Column::IpSrc3);
    let dst = prefix(Column::IpDst3);
    format!("@{src} {dst} {} {} {protocol}\n", ports(Column::SrcPort), ports(Column::DstPort))
}
