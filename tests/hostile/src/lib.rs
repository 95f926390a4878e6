//! The hostile rig: guests and frontends whose only purpose is to attack, against the switch as it runs.
//!
//! Every class of bug that was published against a vhost backend is a test here, with its CVE in the name, at message,
//! memory and ring level; `SECURITY.md` has the table of them with their outcomes. Beside each attack a pair of guests on
//! other ports of the *same worker* exchanges numbered packets, never more under way than half of its rings, and loses
//! none; only the attacked port stops or drops, for a reason that operators see.
//!
//! | where | what |
//! |---|---|
//! | `tests/rig` | the attacks, one module for each published bug and for each kind of rule that a guest can break |
//! | `tests/rig/once*` | every field that a driver owns is read once: in a double of guest memory each byte changes after its first read (feature `memory-double` of `packet` and `virtio`) |
//! | `tests/leaks` | each attack again and again: descriptors, memory and threads stay as they were |
//! | `bugs` | the published bugs as patches; `cargo xtask bugs` puts in one after the other and sees its test turn red |
//!
//! `STRAIGHTLINE_LONG=1` (`cargo xtask test --long`) repeats as often as the rig's goal says; else it is less.

/// How often something is done: `goal` times in the long run, `short` times otherwise.
pub fn repeats(short: usize, goal: usize) -> usize {
    if std::env::var_os("STRAIGHTLINE_LONG").is_some_and(|long| long == "1") { goal } else { short }
}
