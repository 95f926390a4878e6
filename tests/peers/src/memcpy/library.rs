//! DPDK's vhost library, built with each copy.
//!
//! The library is built as Debian builds it: with its flags, and for its oldest processor
//! (`platform=generic`). Only the header that each copy puts before the library's files differs
//! ([`DpdkCopy::header`]). All else, such as testpmd, is Debian's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{DpdkCopy, disassembly, source};
use crate::measure::{long_output_of, output_of};

/// The library's file, in the build's folder and as programs load it.
const BUILT: &str = "lib/librte_vhost.so.23.0";
const LOADED: &str = "librte_vhost.so.23";

/// The library that Debian ships.
const SHIPPED: &str = "/usr/lib/x86_64-linux-gnu/librte_vhost.so.23";

/// A library with one of the copies.
pub(super) struct Library {
    pub(super) copy: DpdkCopy,
    pub(super) path: PathBuf,
    /// The instructions by which the copy was found in it.
    pub(super) proof: String,
}

/// Builds a library for each copy, unless it is there, and checks that it has the copy.
pub(super) fn make(folder: &Path, copies: &[DpdkCopy]) -> Result<Vec<Library>> {
    let version = source::installed()?;
    let source = source::make(folder, &version)?;
    let libraries = copies.iter().map(|&copy| {
        let path =
            build(folder, &version, &source, copy).with_context(|| format!("the library with {}", copy.name()))?;
        let text = disassembled(&path)?;
        let mut proof = disassembly::check(&text, copy).with_context(|| path.display().to_string())?;
        if copy == DpdkCopy::Sse {
            proof += &format!("; {}", like_the_shipped_one(&text)?);
        }
        Ok(Library { copy, path, proof })
    });
    libraries.collect()
}

/// Says whether the library that Debian ships copies by as many of the telling instructions.
/// (Without symbols its functions are unknown.)
fn like_the_shipped_one(ours: &str) -> Result<String> {
    let shifts = |text: &str| -> usize { disassembly::marks(text).values().map(|marks| marks.shifts).sum() };
    let own = shifts(ours);
    let shipped = shifts(&disassembled(Path::new(SHIPPED))?);
    let verdict = if own == shipped { "as in" } else { "other than in" };
    Ok(format!("{own} palignr in all, {verdict} the shipped library ({shipped})"))
}

fn disassembled(path: &Path) -> Result<String> {
    output_of(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(path))
}

/// Returns the library with this copy.
fn build(folder: &Path, version: &str, source: &Path, copy: DpdkCopy) -> Result<PathBuf> {
    let own = folder.join("libraries").join(version).join(copy.name());
    let path = own.join(LOADED);
    let header = format!("/* {} */\n{}", copy.name(), copy.header());
    let made_with = own.join("copy.h");
    if path.exists() && fs::read_to_string(&made_with).is_ok_and(|there| there == header) {
        return Ok(path);
    }
    let build = folder.join("build").join(version);
    fs::create_dir_all(&own)?;
    fs::write(source.join("straightline_copy.h"), &header)?;
    if !build.join("build.ninja").exists() {
        configure(source, &build)?;
    }
    long_output_of(Command::new("ninja").arg("-C").arg(&build).arg(BUILT))?;
    fs::copy(build.join(BUILT), &path)?;
    fs::write(&made_with, &header)?;
    Ok(path)
}

/// Configures the build with Debian's flags (`debian/rules`). Only targets that the library needs
/// are built.
fn configure(source: &Path, build: &Path) -> Result<()> {
    let flags = |name: &str| {
        let mut ask = Command::new("dpkg-buildflags");
        let ask = ask.env("DEB_BUILD_MAINT_OPTIONS", "hardening=+all").args(["--get", name]).current_dir(source);
        Ok::<_, anyhow::Error>(output_of(ask)?.trim().to_owned())
    };
    let mut meson = Command::new("meson");
    meson.env("CFLAGS", format!("{} {}", flags("CFLAGS")?, flags("CPPFLAGS")?)).env("LDFLAGS", flags("LDFLAGS")?);
    meson.args([
        "setup",
        "--buildtype=plain",
        "--default-library=shared",
        "-Dplatform=generic",
        "-Denable_apps=test-pmd",
    ]);
    long_output_of(meson.arg("-Ddisable_drivers=*/*").arg(build).arg(source))
        .context("install meson, ninja-build, python3-pyelftools, libnuma-dev and dpkg-dev")?;
    Ok(())
}
