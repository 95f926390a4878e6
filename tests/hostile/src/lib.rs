//! The hostile rig: guests and frontends that attack a running switch.
//!
//! Every class of bug that was published against a vhost backend has a test here, at message,
//! memory and ring level. The test's name has the CVE. `SECURITY.md` has a table of them with their
//! outcomes. Beside each attack, two guests (the victims) on other ports of the *same worker*
//! exchange numbered packets, and lose none. At most half of the victims' ring entries are in
//! flight. Only the attacked port stops or drops packets, with a reason that operators see.
//!
//! | path | contents |
//! |---|---|
//! | `src/attacker.rs`, `src/scene.rs` | a guest whose rings are written by hand; its good neighbour and the victims |
//! | `tests/rig` | the attacks, one module for each published bug and for each kind of rule that a guest can break |
//! | `tests/rig/network.rs` | the scene of attackers on an underlay's network and behind a tunnel's remote |
//! | `tests/rig/once*` | every field that a driver owns is read once: in a double of guest memory each byte changes after its first read (feature `memory-double` of `packet` and `virtio`) |
//! | `tests/leaks` | each attack many times: descriptors, memory and threads do not increase |
//! | `bugs` | the published bugs as patches; `cargo xtask bugs` applies each of them and checks that its test fails |
//!
//! `STRAIGHTLINE_LONG=1` (`cargo xtask test --long`) selects the long run, with more repetitions.

pub mod attacker;
pub mod scene;

/// Returns whether this is the long run.
pub fn is_long() -> bool {
    std::env::var_os("STRAIGHTLINE_LONG").is_some_and(|long| long == "1")
}

/// Returns the number of repetitions: `goal` in the long run, `short` otherwise.
pub fn repeats(short: usize, goal: usize) -> usize {
    if is_long() { goal } else { short }
}
