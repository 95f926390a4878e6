//! The node's loops in C (`loops.c`), compiled for this machine when they are first used.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, anyhow, ensure};

use super::loops::Loop;
use super::pool::Line;

const SOURCE: &str = include_str!("loops.c");

/// A loop of `loops.c`: lines, the lines of words and of heads of each packet, number of packets,
/// distance.
type Function = unsafe extern "C" fn(*mut Line, *const u32, *const u32, usize, usize);

/// Shape of a loop in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    OneByOne,
    TwoAtOnce,
    FourAtOnce,
}

/// Build of the loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Build {
    /// As releases are built.
    Optimised,
    /// Without optimisation, as the seed's plugin was built.
    Debug,
}

/// The compiled loops.
struct Loops {
    one: Function,
    two: Function,
    four: Function,
}

/// Returns the version of this machine's C compiler, if it has one.
pub(super) fn compiler() -> Option<String> {
    let output = Command::new("cc").arg("--version").output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

/// Returns a loop in C. A distance of 0 turns its prefetches off.
///
/// # Errors
/// The loops cannot be compiled or loaded.
pub(super) fn in_c(build: Build, shape: Shape, distance: usize) -> anyhow::Result<Loop> {
    static OPTIMISED: OnceLock<Result<Loops, String>> = OnceLock::new();
    static DEBUG: OnceLock<Result<Loops, String>> = OnceLock::new();
    let (loops, level) = match build {
        Build::Optimised => (&OPTIMISED, "-O3"),
        Build::Debug => (&DEBUG, "-O0"),
    };
    let loops = loops.get_or_init(|| compiled(level).map_err(|error| format!("{error:#}"))).as_ref();
    let loops = loops.map_err(|error| anyhow!("the loops in C: {error}"))?;
    let function = match shape {
        Shape::OneByOne => loops.one,
        Shape::TwoAtOnce => loops.two,
        Shape::FourAtOnce => loops.four,
    };
    Ok(Box::new(move |batch| {
        let (lines, words, heads) = batch.into_parts();
        // SAFETY: `loops.c` reads `words.len()` indexes of both kinds, and there are as many. It touches
        // these words, and the line with the head to which the words lead. `Pool::batch` has checked
        // that both are in `lines`, which nobody else has now. The code keeps no pointer.
        unsafe { function(lines.as_mut_ptr(), words.as_ptr(), heads.as_ptr(), words.len(), distance) };
    }))
}

fn compiled(level: &str) -> anyhow::Result<Loops> {
    let folder = tempfile::tempdir().context("cannot make a folder for them")?;
    let source = folder.path().join("loops.c");
    let library = folder.path().join("loops.so");
    fs::write(&source, SOURCE).context("cannot write them")?;
    let mut compile = Command::new("cc");
    compile.args([level, "-march=native", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
    let output = compile.arg(&library).arg(&source).output().context("cannot run cc (Debian: gcc)")?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr).trim());
    let path = CString::new(library.as_os_str().as_bytes())?;
    // SAFETY: the string ends with zero. The library has no constructors, and is never closed.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    ensure!(!handle.is_null(), "the library that was just compiled cannot be loaded");
    let function = |name: &CStr| -> anyhow::Result<Function> {
        // SAFETY: the library is open, and the string ends with zero.
        let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
        ensure!(!function.is_null(), "the library has no {name:?}");
        // SAFETY: `loops.c` has functions of this type under these names.
        Ok(unsafe { std::mem::transmute::<*mut libc::c_void, Function>(function) })
    };
    // The library stays mapped when its file is gone.
    Ok(Loops { one: function(c"cold_one")?, two: function(c"cold_two")?, four: function(c"cold_four")? })
}

#[cfg(test)]
mod tests {
    use super::super::pool::{Pool, SLOT, WordsPlace};
    use super::*;

    #[test]
    fn each_loop_handles_each_packet_once() {
        let shapes = [Shape::OneByOne, Shape::TwoAtOnce, Shape::FourAtOnce];
        for (build, shape) in [Build::Optimised, Build::Debug].into_iter().flat_map(|b| shapes.map(|s| (b, s))) {
            for distance in [0, 4] {
                let handle = in_c(build, shape, distance).expect("a C compiler (Debian: gcc), as for `simd-c`");
                for packets in [0, 1, 2, 3, 4, 5, 9, 256] {
                    let mut pool = Pool::new(packets, SLOT, WordsPlace::Apart);
                    for at in 0..packets as usize {
                        pool.enter(at);
                        pool.write_head(at, 3);
                    }
                    handle(pool.batch(0..packets as usize));
                    pool.check(3).unwrap_or_else(|error| panic!("{build:?} {shape:?} {distance}: {error}"));
                }
            }
        }
    }
}
