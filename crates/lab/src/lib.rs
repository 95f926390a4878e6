//! The laboratory: traffic through a switch, and measurements of it.
//!
//! The laboratory uses the switch like any other program: it speaks vhost-user and reads the
//! switch's API. Guests and ports come from `straightline-guest`, samples and reports from
//! `straightline-report`. It is not a part of the switch, and only the command line imports it.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | the CPUs of this machine, and its description for results |
//! | [`folder`] | folders of results: written sample by sample, read, combined, reported |
//! | [`traffic`] | packets at a rate and the check of what returns; capture files; frame lengths |
//! | [`trial`] | one measurement, its validity, and the search for the highest rate that passes |
//! | [`rounds`] | interleaved rounds, their samples and tables: the engine of everything below, and of comparisons |
//! | [`guests`] | guests under measurement: one with the least possible cost, one with testpmd's forward modes |
//! | [`testbed`] | switches and endpoints around a device under test; tunnels, namespaces, a noisy neighbour |
//! | [`scenarios`] | PVP, VM to VM, third-party backends, loads over a long time, the demo |
//! | [`experiments`] | experiments, each of which varies one thing |
//!
//! `convert` and `names` are helpers of all modules. A module imports modules above it in this
//! table only.

mod convert;
pub mod experiments;
pub mod folder;
pub mod guests;
pub mod machine;
mod names;
pub mod rounds;
pub mod scenarios;
pub mod testbed;
pub mod traffic;
pub mod trial;
