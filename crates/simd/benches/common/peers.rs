//! Third-party kernels: the copies of libc and DPDK, and the checksum by a 64-bit chain of
//! additions with carry.

#![expect(unsafe_code, reason = "a safe interface around it, with a proof beside each use")]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use super::Job;

/// Copies by `memcpy` of libc.
///
/// # Safety
/// As for `ptr::copy_nonoverlapping`.
#[inline(always)]
pub unsafe fn memcpy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::memcpy(dst.cast(), src.cast(), len) };
}

/// Loop over jobs. The arguments are destination, source, jobs and number of jobs.
type Loop = unsafe extern "C" fn(*mut u8, *const u8, *const Job, usize);

/// Returns a loop over `rte_memcpy` of DPDK, which is inlined C code. It is compiled here, for this
/// machine, if the headers and a compiler are installed.
pub fn rte_memcpy() -> Option<Loop> {
    match build() {
        Ok(function) => Some(function),
        Err(why) => {
            println!("skipped rte_memcpy (Debian: libdpdk-dev, gcc, pkg-config): {}", why.trim());
            None
        }
    }
}

fn build() -> Result<Loop, String> {
    let said = |command: &mut Command| -> Result<String, String> {
        let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    };
    let flags = said(Command::new("pkg-config").args(["--cflags", "libdpdk"]))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/common/rte_memcpy.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rte_memcpy.{}.so", std::process::id()));
    let mut compile = Command::new("cc");
    // The last `-march` option takes effect. DPDK's own option is for the oldest machine that DPDK
    // supports.
    compile.args(["-O3", "-shared", "-fPIC"]).args(flags.split_whitespace()).arg("-march=native");
    said(compile.arg("-o").arg(&library).arg(source))?;
    let path = CString::new(library.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the two strings end with zero; the library has no constructors of its own and is
    // never closed.
    let function = unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        if handle.is_null() { handle } else { libc::dlsym(handle, c"bench_rte_memcpy".as_ptr()) }
    };
    // The library stays mapped.
    std::fs::remove_file(&library).map_err(|error| error.to_string())?;
    if function.is_null() {
        return Err("the library that was just built cannot be loaded".to_owned());
    }
    // SAFETY: the function of this type in rte_memcpy.c.
    Ok(unsafe { std::mem::transmute::<*mut libc::c_void, Loop>(function) })
}

/// Returns the sum of words in the machine's byte order. One iteration of the chain adds eight
/// words of 64 bits.
///
/// # Safety
/// `src` is readable for `len` bytes.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
pub unsafe fn adc_chain(mut src: *const u8, mut len: usize) -> u64 {
    use std::arch::asm;

    let mut acc = 0u64;
    // SAFETY: each step reads no more bytes than are left.
    unsafe {
        while len >= 64 {
            asm!(
                "add {a}, [{p}]", "adc {a}, [{p} + 8]", "adc {a}, [{p} + 16]", "adc {a}, [{p} + 24]",
                "adc {a}, [{p} + 32]", "adc {a}, [{p} + 40]", "adc {a}, [{p} + 48]", "adc {a}, [{p} + 56]", "adc {a}, 0",
                a = inout(reg) acc, p = in(reg) src, options(nostack, readonly));
            (src, len) = (src.wrapping_add(64), len - 64);
        }
        if len >= 32 {
            asm!(
                "add {a}, [{p}]", "adc {a}, [{p} + 8]", "adc {a}, [{p} + 16]", "adc {a}, [{p} + 24]", "adc {a}, 0",
                a = inout(reg) acc, p = in(reg) src, options(nostack, readonly));
            (src, len) = (src.wrapping_add(32), len - 32);
        }
        if len >= 16 {
            asm!("add {a}, [{p}]", "adc {a}, [{p} + 8]", "adc {a}, 0",
                a = inout(reg) acc, p = in(reg) src, options(nostack, readonly));
            (src, len) = (src.wrapping_add(16), len - 16);
        }
    }
    // SAFETY: as above.
    acc_tail(acc, unsafe { std::slice::from_raw_parts(src, len) })
}

#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn adc_chain(src: *const u8, len: usize) -> u64 {
    // SAFETY: the caller's promise.
    let (words, rest) = unsafe { std::slice::from_raw_parts(src, len) }.as_chunks::<8>();
    acc_tail(words.iter().fold(0, |acc, &word| add(acc, u64::from_ne_bytes(word))), rest)
}

/// Adds the last bytes, fewer than 16.
#[inline(always)]
fn acc_tail(mut acc: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for &word in words {
        acc = add(acc, u64::from_ne_bytes(word));
    }
    let (words, rest) = rest.as_chunks::<4>();
    for &word in words {
        acc = add(acc, u64::from(u32::from_ne_bytes(word)));
    }
    let (words, rest) = rest.as_chunks::<2>();
    for &word in words {
        acc = add(acc, u64::from(u16::from_ne_bytes(word)));
    }
    rest.iter().fold(acc, |acc, &byte| add(acc, u64::from(u16::from_ne_bytes([byte, 0]))))
}

#[inline(always)]
fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u64::from(carry)
}

/// Folds as [`Sum`](straightline_simd::Sum) does, so that both kernels do the same work.
#[inline(always)]
pub fn fold(acc: u64) -> u16 {
    let acc = (acc & 0xffff_ffff) + (acc >> 32);
    let acc = (acc & 0xffff) + (acc >> 16);
    let acc = (acc & 0xffff) + (acc >> 16);
    let acc = (acc & 0xffff) + (acc >> 16);
    u16::try_from(acc).unwrap_or(u16::MAX)
}
