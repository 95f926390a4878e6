//! The rules for `unsafe`: it occurs only in the files that are listed here.

use std::collections::BTreeMap;

use crate::source;

/// Crates whose `lib.rs` must contain `#![forbid(unsafe_code)]`.
pub(super) const FORBID_UNSAFE: [&str; 3] = ["fdb", "nodes", "wire"];

/// The only files that may contain the keyword `unsafe`. Each has a safe interface, and a proof at
/// each use inside. Keep the list short and sorted.
pub(super) const UNSAFE_FILES: &[&str] = &[
    "crates/config/src/users.rs",
    "crates/graph/src/clock.rs",
    "crates/graph/src/port/peer.rs",
    "crates/graph/src/signal.rs",
    "crates/packet/src/double.rs",
    "crates/packet/src/segment.rs",
    "crates/packet/src/turn/mod.rs",
    "crates/packet/src/turn/rcu.rs",
    "crates/packet/tests/no_alloc.rs",
    "crates/packet/tests/turn/memory.rs",
    "crates/port/src/device/af_packet/socket.rs",
    "crates/port/src/device/af_xdp/rings.rs",
    "crates/port/src/device/bpf.rs",
    "crates/port/src/device/ethtool.rs",
    "crates/port/src/device/interface.rs",
    "crates/port/src/device/pool.rs",
    "crates/port/src/device/tun.rs",
    "crates/port/src/device/vectored.rs",
    "crates/simd-c/src/lib.rs",
    "crates/simd/benches/common/dirty.rs",
    "crates/simd/benches/common/mod.rs",
    "crates/simd/benches/common/peers.rs",
    "crates/simd/benches/kernels.rs",
    "crates/simd/benches/ratios.rs",
    "crates/simd/src/arch/aarch64.rs",
    "crates/simd/src/arch/word.rs",
    "crates/simd/src/arch/x86_64.rs",
    "crates/simd/src/generic.rs",
    "crates/simd/src/generic/tests.rs",
    "crates/simd/src/kernel.rs",
    "crates/simd/src/level.rs",
    "crates/simd/src/prefetch.rs",
    "crates/simd/src/run.rs",
    "crates/simd/src/vector.rs",
    "crates/simd/tests/simd/common.rs",
    "crates/simd/tests/simd/reference.rs",
    "crates/simd/tests/simd/shared.rs",
    "crates/switch/src/api/interrupt.rs",
    "crates/switch/src/api/pass_rights.rs",
    "crates/switch/src/sandbox/refusal.rs",
    "crates/switch/tests/common/allocations.rs",
    "crates/switch/tests/sandbox.rs",
    "crates/virtio/src/memory/area.rs",
    "crates/virtio/src/memory/fault.rs",
    "crates/virtio/src/memory/log.rs",
    "crates/virtio/src/memory/mod.rs",
    "crates/virtio/src/memory/region.rs",
    "crates/virtio/src/net_header/tests.rs",
    "crates/virtio/tests/memory_sigbus.rs",
    "tests/hostile/tests/rig/once_packets.rs",
];

/// Returns a violation if a crate root lacks `#![forbid(unsafe_code)]`.
pub(super) fn forbids_unsafe(name: &str, source: &str) -> Option<String> {
    let code: String = source::code_only(source).chars().filter(|c| !c.is_whitespace()).collect();
    let mut forbidden = code.split("#![forbid(").skip(1).filter_map(|rest| rest.split(')').next());
    let has = forbidden.any(|list| list.split(',').any(|lint| lint == "unsafe_code"));
    (!has).then(|| {
        format!("crates/{name}/src/lib.rs lacks `#![forbid(unsafe_code)]`: add it below the crate documentation")
    })
}

/// Returns the files with `unsafe` that are not `allowed`, and the entries of `allowed` that are
/// wrong.
pub(super) fn unsafe_elsewhere(sources: &BTreeMap<String, String>, allowed: &[&str]) -> Vec<String> {
    let mut violations = Vec::new();
    for (path, text) in sources {
        let lines = source::lines_with_word(text, "unsafe");
        let listed = allowed.contains(&path.as_str());
        if let (Some(line), false) = (lines.first(), listed) {
            violations.push(format!(
                "{path}:{line}: `unsafe` in a file that is not listed: write safe code, use the safe interface of \
                 a listed file, or list the file in xtask/src/rules/unsafe_code.rs (UNSAFE_FILES)"
            ));
        } else if lines.is_empty() && listed {
            violations.push(format!(
                "{path} contains no `unsafe`: remove it from UNSAFE_FILES in xtask/src/rules/unsafe_code.rs"
            ));
        }
    }
    for path in allowed.iter().filter(|path| !sources.contains_key(**path)) {
        violations
            .push(format!("{path} does not exist: remove it from UNSAFE_FILES in xtask/src/rules/unsafe_code.rs"));
    }
    if !allowed.is_sorted() {
        violations.push("UNSAFE_FILES in xtask/src/rules/unsafe_code.rs is not sorted: sort it by path".to_owned());
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidding_is_said_in_code() {
        assert_eq!(forbids_unsafe("wire", "//! Doc\n#![forbid(missing_docs, unsafe_code)]\n"), None);
        assert!(forbids_unsafe("wire", "// #![forbid(unsafe_code)]").is_some());
        assert!(forbids_unsafe("wire", "#![deny(unsafe_code)]").is_some());
    }

    #[test]
    fn unsafe_stands_where_it_is_listed() {
        let sources: BTreeMap<String, String> =
            [("a.rs", "unsafe {}"), ("b.rs", "fn f() {}\nunsafe fn g() {}"), ("c.rs", "// unsafe")]
                .map(|(path, text)| (path.to_owned(), text.to_owned()))
                .into();
        assert_eq!(unsafe_elsewhere(&sources, &["a.rs", "b.rs"]), [""; 0]);
        let found = unsafe_elsewhere(&sources, &["a.rs"]);
        assert!(found.len() == 1 && found[0].starts_with("b.rs:2: "), "{found:?}");
        assert_eq!(unsafe_elsewhere(&sources, &["a.rs", "b.rs", "c.rs"]).len(), 1);
        assert_eq!(unsafe_elsewhere(&sources, &["a.rs", "b.rs", "gone.rs"]).len(), 1);
        assert_eq!(unsafe_elsewhere(&sources, &["b.rs", "a.rs"]).len(), 1);
    }
}
