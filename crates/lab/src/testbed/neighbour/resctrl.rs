//! Cache allocation and memory bandwidth limits through the kernel's resctrl file system
//! (Documentation/filesystems/resctrl.rst). It sets which ways of the last-level cache a task may
//! fill, and how much of the memory's bandwidth it may take.
//!
//! A class of service is a folder. Its file `schemata` has the ways and the bandwidth, and its file
//! `tasks` has the tasks of the class. The default class, which has all tasks at first, is left
//! unchanged.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

/// The usual mount point.
pub const ROOT: &str = "/sys/fs/resctrl";

/// Folders of the resctrl file system that are not classes.
const NO_CLASSES: [&str; 3] = ["info", "mon_groups", "mon_data"];

/// The cache allocation of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    root: PathBuf,
    /// The mask of all ways.
    mask: u64,
    /// The fewest ways that a class can have.
    least: u32,
    /// The most classes, including the default class.
    classes: usize,
    /// The ids of the last-level caches.
    caches: Vec<String>,
    bandwidth: Option<Bandwidth>,
}

/// The limits of memory bandwidth.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bandwidth {
    /// The least value of a class. The processor chooses its unit: percent (Intel), or 1/8 GB/s (AMD).
    least: u32,
    /// The ids of the memory domains.
    domains: Vec<String>,
}

/// A class of service. Dropping this value removes the class, and its tasks return to the default
/// class.
#[derive(Debug)]
pub struct Class {
    path: PathBuf,
}

impl Allocation {
    /// Reads the resctrl file system that is mounted at `root`.
    ///
    /// # Errors
    /// No resctrl file system is mounted there, or this process may not use it. The error says what
    /// to do.
    pub fn open(root: &Path) -> anyhow::Result<Allocation> {
        let schemata = read(root, "schemata")?;
        if schemata.lines().any(|line| line.trim_start().starts_with("L3CODE:")) {
            bail!("{}: resctrl is mounted with `cdp` (code and data apart): mount it without `cdp`", root.display());
        }
        let Some(caches) = ids(&schemata, "L3:") else {
            bail!("{}: this processor's last-level cache cannot be divided (its `schemata` has no L3)", root.display());
        };
        ensure!(!caches.is_empty(), "{}: the line L3 of `schemata` names no cache", root.display());
        let mask = read(root, "info/L3/cbm_mask")?;
        let mask = u64::from_str_radix(mask.trim(), 16)
            .with_context(|| format!("info/L3/cbm_mask is {mask:?}; expected a hexadecimal mask"))?;
        let number = |name: &str| -> anyhow::Result<u32> {
            let text = read(root, name)?;
            text.trim().parse().with_context(|| format!("{name} is {text:?}; expected a number"))
        };
        let least = number("info/L3/min_cbm_bits")?;
        let classes = number("info/L3/num_closids")?;
        let domains = ids(&schemata, "MB:").filter(|domains| !domains.is_empty());
        let bandwidth = domains
            .map(|domains| anyhow::Ok(Bandwidth { least: number("info/MB/min_bandwidth")?, domains }))
            .transpose()?;
        Ok(Allocation { root: root.to_owned(), mask, least, classes: usize::try_from(classes)?, caches, bandwidth })
    }

    /// Returns whether the processor can limit the memory bandwidth of a class.
    #[must_use]
    pub fn limits_bandwidth(&self) -> bool {
        self.bandwidth.is_some()
    }

    /// Divides the ways into two parts: the fewest possible ways, and all others.
    ///
    /// # Errors
    /// There are too few ways for two classes.
    pub fn divide(&self) -> anyhow::Result<(u64, u64)> {
        let ways = self.mask.count_ones();
        ensure!(
            ways >= 2 * self.least && self.least > 0,
            "a cache of {ways} ways cannot be divided: each of two classes needs at least {}",
            self.least
        );
        // The ways of a mask are adjacent, so the lowest ones are too.
        let few = (0..64).map(|bit| 1 << bit).filter(|bit| self.mask & bit != 0).take(usize::try_from(self.least)?);
        let few: u64 = few.sum();
        Ok((few, self.mask & !few))
    }

    /// Makes a class with a new name, which may fill these ways of every last-level cache. If
    /// `is_limited`, the class gets the least memory bandwidth that a class can have.
    ///
    /// # Errors
    /// No class is free, this process may not make one, the kernel refuses the ways, or this
    /// processor cannot limit the bandwidth.
    pub fn class(&self, name: &str, ways: u64, is_limited: bool) -> anyhow::Result<Class> {
        let used = 1 + self.made()?;
        ensure!(used < self.classes, "no class of service is free: all {} are in use", self.classes);
        let path = self.root.join(name);
        fs::create_dir(&path).map_err(|error| refusal(&path, &error))?;
        let class = Class { path };
        let mut schemata = line("L3", &self.caches, &format!("{ways:x}"));
        if is_limited {
            let bandwidth = self.bandwidth.as_ref().context("this processor cannot limit memory bandwidth")?;
            schemata += &line("MB", &bandwidth.domains, &bandwidth.least.to_string());
        }
        if let Err(error) = write(&class.path.join("schemata"), &schemata) {
            let why = fs::read_to_string(self.root.join("info/last_cmd_status")).unwrap_or_default();
            return Err(error.context(format!("the kernel refuses {schemata:?}: {}", why.trim())));
        }
        Ok(class)
    }

    /// Returns the number of existing classes.
    fn made(&self) -> anyhow::Result<usize> {
        let mut made = 0;
        for entry in fs::read_dir(&self.root).map_err(|error| refusal(&self.root, &error))? {
            let entry = entry?;
            let is_none = NO_CLASSES.iter().any(|known| entry.file_name() == *known);
            made += usize::from(entry.file_type()?.is_dir() && !is_none);
        }
        Ok(made)
    }
}

impl Class {
    /// Puts a task into the class.
    ///
    /// # Errors
    /// There is no such task, or this process may not move it.
    pub fn take(&self, task: u32) -> anyhow::Result<()> {
        // One task per write.
        write(&self.path.join("tasks"), &format!("{task}\n"))
    }
}

impl Drop for Class {
    fn drop(&mut self) {
        // A process that may make the class may also remove it.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Returns the ids in the line of `schemata` with this beginning; `None` without such a line.
fn ids(schemata: &str, beginning: &str) -> Option<Vec<String>> {
    let line = schemata.lines().find_map(|line| line.trim_start().strip_prefix(beginning))?;
    Some(line.split(';').filter_map(|part| Some(part.split_once('=')?.0.trim().to_owned())).collect())
}

/// Returns a line of `schemata` that gives all these ids one value.
fn line(resource: &str, ids: &[String], value: &str) -> String {
    let parts: Vec<_> = ids.iter().map(|id| format!("{id}={value}")).collect();
    format!("{resource}:{}\n", parts.join(";"))
}

fn read(root: &Path, name: &str) -> anyhow::Result<String> {
    let path = root.join(name);
    fs::read_to_string(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound if name == "schemata" => anyhow::anyhow!(
            "{}: resctrl is not mounted there. If the processor can divide its last-level cache (`cat_l3` among the \
             flags in /proc/cpuinfo), run `mount -t resctrl resctrl {}` as root",
            root.display(),
            root.display()
        ),
        ErrorKind::NotFound if name.starts_with("info/L3") => {
            anyhow::anyhow!(
                "{}: this processor's last-level cache cannot be divided (there is no {name})",
                root.display()
            )
        }
        _ => refusal(&path, &error),
    })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    // The kernel has made the file together with the folder.
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    // This must be one write, because the kernel parses each write separately.
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| refusal(path, &error))
}

/// Makes an error that explains the kernel's error, with what to do.
fn refusal(path: &Path, error: &io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => "; only root may divide the cache",
        ErrorKind::StorageFull => "; no class of service is free",
        ErrorKind::AlreadyExists => {
            "; another run has a class of this name, or has left it behind: remove it with rmdir"
        }
        ErrorKind::ReadOnlyFilesystem => "; it is mounted read-only",
        _ => "",
    };
    anyhow::anyhow!("{}: {error}{hint}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resctrl tree made of ordinary files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["info/L3", "info/MB", "mon_groups", "mon_data"] {
            fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        for (name, text) in files {
            fs::write(root.path().join(name), text).expect("a file");
        }
        root
    }

    const GOOD: [(&str, &str); 5] = [
        ("schemata", "    MB:0=2048;1=2048\n    L3:0=ffff;1=ffff\n"),
        ("info/L3/cbm_mask", "ffff\n"),
        ("info/L3/min_cbm_bits", "1\n"),
        ("info/L3/num_closids", "16\n"),
        ("info/MB/min_bandwidth", "10\n"),
    ];

    /// The valid tree with one file changed.
    fn with(name: &str, text: &str) -> tempfile::TempDir {
        let root = tree(&GOOD);
        fs::write(root.path().join(name), text).expect("a file");
        root
    }

    fn refused(root: &Path) -> String {
        format!("{:#}", Allocation::open(root).expect_err("it cannot be used"))
    }

    #[test]
    fn a_class_is_written_as_the_kernel_wants_it() {
        let root = tree(&GOOD);
        let allocation = Allocation::open(root.path()).expect("it is good");
        assert_eq!(allocation.divide().expect("16 ways"), (1, 0xfffe));
        let class = allocation.class("x", 0xfff0, false).expect("a class");
        let file = |name: &str| fs::read_to_string(root.path().join("x").join(name)).expect("a file");
        assert_eq!(file("schemata"), "L3:0=fff0;1=fff0\n");
        class.take(77).expect("a task");
        assert_eq!(file("tasks"), "77\n");
        let twice = allocation.class("x", 1, false).expect_err("it is there").to_string();
        assert!(twice.contains("remove it with rmdir"), "{twice}");
        // The kernel removes the folder of a class with its content. Here the folder must be empty.
        fs::remove_file(root.path().join("x/schemata")).expect("a file");
        fs::remove_file(root.path().join("x/tasks")).expect("a file");
        drop(class);
        assert!(!root.path().join("x").exists());
    }

    #[test]
    fn bandwidth_is_limited_where_the_processor_can() {
        let root = tree(&GOOD);
        let allocation = Allocation::open(root.path()).expect("it is good");
        assert!(allocation.limits_bandwidth());
        let _class = allocation.class("x", 3, true).expect("a class");
        let schemata = fs::read_to_string(root.path().join("x/schemata")).expect("a file");
        assert_eq!(schemata, "L3:0=3;1=3\nMB:0=10;1=10\n");
        let root = with("schemata", "L3:0=ffff\n");
        let allocation = Allocation::open(root.path()).expect("it is good");
        assert!(!allocation.limits_bandwidth());
        let error = allocation.class("x", 3, true).expect_err("there is no MB").to_string();
        assert!(error.contains("cannot limit memory bandwidth"), "{error}");
        assert!(refused(with("info/MB/min_bandwidth", "x\n").path()).contains("info/MB/min_bandwidth is \"x\\n\""));
    }

    #[test]
    fn ways_are_those_of_the_mask() {
        let root = with("info/L3/cbm_mask", "7f0\n");
        fs::write(root.path().join("info/L3/min_cbm_bits"), "2\n").expect("a file");
        assert_eq!(Allocation::open(root.path()).expect("it is good").divide().expect("7 ways"), (0x30, 0x7c0));
        let root = with("info/L3/cbm_mask", "7\n");
        fs::write(root.path().join("info/L3/min_cbm_bits"), "2\n").expect("a file");
        let error = Allocation::open(root.path()).expect("it is good").divide().expect_err("3 ways").to_string();
        assert!(error.contains("a cache of 3 ways cannot be divided: each of two classes needs at least 2"), "{error}");
    }

    #[test]
    fn what_is_missing_is_said_with_what_would_work() {
        let root = tempfile::tempdir().expect("a folder");
        let why = refused(root.path());
        assert!(why.contains("resctrl is not mounted there") && why.contains("mount -t resctrl"), "{why}");
        let why = refused(tree(&GOOD[..1]).path());
        assert!(why.contains("cannot be divided (there is no info/L3/cbm_mask)"), "{why}");
        let why = refused(with("schemata", "    MB:0=100\n").path());
        assert!(why.contains("its `schemata` has no L3"), "{why}");
        let why = refused(with("schemata", "L3CODE:0=ff\nL3DATA:0=ff\n").path());
        assert!(why.contains("mounted with `cdp`"), "{why}");
        let why = refused(with("schemata", "L3:\n").path());
        assert!(why.contains("names no cache"), "{why}");
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        assert!(refused(with("info/L3/cbm_mask", "fgh\n").path()).contains("info/L3/cbm_mask is \"fgh\\n\""));
        assert!(refused(with("info/L3/min_cbm_bits", "\n").path()).contains("info/L3/min_cbm_bits is \"\\n\""));
        assert!(refused(with("info/L3/num_closids", "-1").path()).contains("info/L3/num_closids is \"-1\""));
    }

    #[test]
    fn classes_run_out() {
        let root = with("info/L3/num_closids", "3\n");
        let allocation = Allocation::open(root.path()).expect("it is good");
        let _one = allocation.class("a", 1, false).expect("the second");
        let _two = allocation.class("b", 1, false).expect("the third");
        let error = allocation.class("c", 1, false).expect_err("there are three").to_string();
        assert!(error.contains("no class of service is free: all 3 are in use"), "{error}");
        assert!(!root.path().join("c").exists());
    }

    #[test]
    fn a_class_that_is_refused_leaves_nothing() {
        let root = tree(&GOOD);
        let allocation = Allocation::open(root.path()).expect("it is good");
        fs::write(root.path().join("info/last_cmd_status"), "Mask out of range\n").expect("a file");
        // The name is not valid, so the folder is not made.
        let error = format!("{:#}", allocation.class("a/b", 1, false).expect_err("no such folder"));
        assert!(error.contains("a/b"), "{error}");
        assert_eq!(allocation.made().expect("a folder"), 0);
    }

    #[test]
    fn the_kernels_words_are_explained() {
        let said = |kind: ErrorKind| refusal(Path::new("/x"), &io::Error::from(kind)).to_string();
        assert!(said(ErrorKind::PermissionDenied).ends_with("only root may divide the cache"));
        assert!(said(ErrorKind::StorageFull).ends_with("no class of service is free"));
        assert!(said(ErrorKind::ReadOnlyFilesystem).ends_with("mounted read-only"));
        assert!(said(ErrorKind::InvalidInput).starts_with("/x: "));
    }
}
