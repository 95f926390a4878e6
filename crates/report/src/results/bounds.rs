//! The bounds that a machine's memory sets, as `straightline lab machine` measures them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The bounds of a machine's memory, as one CPU sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryBounds {
    /// The CPU that measured.
    pub cpu: usize,
    /// The cache levels, nearest first, then memory.
    pub levels: Vec<LevelBounds>,
    /// The way of a line from this CPU to each other one that the process may use.
    pub lines: Vec<LineBounds>,
    /// The cost of lines that the first of the other CPUs has touched.
    #[serde(default)]
    pub touched: Vec<TouchedBounds>,
    /// Bounds that this machine cannot show, each with the reason.
    pub missing: Vec<String>,
}

/// The bounds of a cache level, or of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelBounds {
    /// `L1`, `L2`, `L3` or `memory`.
    pub name: String,
    /// Bytes of the level; of the buffer for memory.
    pub bytes: usize,
    /// Nanoseconds of a load that depends on the load before.
    pub latency_ns: f64,
    /// Gigabytes a second that are read and summed.
    pub read_gb_per_s: f64,
    /// Gigabytes a second that are copied.
    pub copy_gb_per_s: f64,
}

/// The way of a line to another CPU and back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LineBounds {
    /// The other CPU.
    pub cpu: usize,
    /// Where the other CPU is.
    pub place: String,
    /// Nanoseconds of a round trip.
    pub round_trip_ns: f64,
}

/// The cost of lines after another CPU has touched them all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TouchedBounds {
    /// Bytes of the buffer.
    pub bytes: usize,
    /// The other CPU's access to each line: `nothing`, `read` or `written`.
    pub touch: String,
    /// Nanoseconds to read a line.
    pub read_ns: f64,
    /// Nanoseconds to write a line.
    pub write_ns: f64,
}

impl fmt::Display for MemoryBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<8}{:>12}{:>14}{:>14}{:>14}", "level", "size", "latency", "read", "copy")?;
        for LevelBounds { name, bytes, latency_ns, read_gb_per_s, copy_gb_per_s } in &self.levels {
            let size = if *bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
            let latency = format!("{latency_ns:.1} ns");
            let [read, copy] = [read_gb_per_s, copy_gb_per_s].map(|rate| format!("{rate:.1} GB/s"));
            writeln!(f, "{name:<8}{size:>12}{latency:>14}{read:>14}{copy:>14}")?;
        }
        if !self.lines.is_empty() {
            writeln!(f, "\n{:<8}{:<16}{:>14}", "to CPU", "on", "round trip")?;
        }
        for LineBounds { cpu, place, round_trip_ns } in &self.lines {
            writeln!(f, "{cpu:<8}{place:<16}{:>14}", format!("{round_trip_ns:.0} ns"))?;
        }
        if let Some(other) = self.lines.first().filter(|_| !self.touched.is_empty()) {
            let touched = format!("CPU {} has", other.cpu);
            writeln!(f, "\n{:<12}{touched:<14}{:>16}{:>16}", "memory", "reading a line", "writing a line")?;
        }
        for TouchedBounds { bytes, touch, read_ns, write_ns } in &self.touched {
            let size = format!("{} KiB", bytes >> 10);
            let [read, write] = [read_ns, write_ns].map(|ns| format!("{ns:.1} ns"));
            writeln!(f, "{size:<12}{touch:<14}{read:>16}{write:>16}")?;
        }
        writeln!(f, "\nMeasured on CPU {}.", self.cpu)?;
        self.missing.iter().try_for_each(|missing| writeln!(f, "Not measured: {missing}."))
    }
}
