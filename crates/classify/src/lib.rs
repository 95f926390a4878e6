//! Packet classifier: finds the best rule for each packet of a batch.
//!
//! A [`Rule`] has a test for some of the fields of a packet ([`Column`]): one value, a range, a
//! prefix or a mask. Of all rules that match a packet, the one with the greatest priority wins, and
//! the first of the list within a priority. Lookups take the keys of up to [`MAX_KEYS`] packets as
//! [`Keys`], an array for each field.
//!
//! Only rules make structure: no packet does. So each [`Structure`] has a bound of the work for the
//! worst packet, which its [`Statistics`] tell. In OvS's tuple space search, packets create masks
//! until the switch stands still (CVE-2019-25076; [arXiv 2011.09107]).
//!
//! ```
//! use straightline_classify::{Column, Dead, Key, Keys, Level, NONE, Rule, Rules, Scan, Structure};
//!
//! let rules: Rules = [
//!     Rule::new(1, 100).ipv4_dst([10, 0, 0, 0].into(), 8),
//!     Rule::new(2, 200).ipv4_dst([10, 1, 0, 0].into(), 16).exact(Column::Protocol, 6).range(Column::DstPort, 80, 443),
//! ]
//! .into_iter()
//! .collect();
//! let scan = Scan::new(&rules, Level::detect());
//!
//! let packet = Key::default().with(Column::EtherType, 0x0800).with(Column::IpDst3, 0x0a01_0203);
//! let web = packet.with(Column::Protocol, 6).with(Column::DstPort, 80);
//! let foreign = packet.with(Column::IpDst3, 0x0b00_0001);
//! let keys: Keys = [packet, web, foreign].iter().collect();
//! let mut best = [NONE; 256];
//! scan.lookup(&keys, &Dead::default(), &mut best);
//! let results: Vec<_> = best[..3].iter().map(|&rank| rules.get(rank).map(Rule::result)).collect();
//! assert_eq!(results, [Some(100), Some(200), None]);
//! ```
//!
//! # Map
//! | file | holds |
//! |---|---|
//! | `column.rs`, `keys.rs` | the fields; the keys of a batch |
//! | `rule.rs` | rules, and their order by rank |
//! | `structure.rs` | the trait of all structures, and their statistics |
//! | `linear.rs` | the reference implementation, for tests |
//! | `scan.rs` | a list that vectors scan |
//! | `bits/` | bit vectors with aggregation |
//! | `forest/` | cut trees |
//! | `table.rs` | a table that changes while lookups run |
//! | `dispatch.rs` | loops for each instruction set; the only `unsafe` code |
//! | `workload/` | sets of rules and traces for tests and benches, by a seed |
//!
//! The crate does not parse packets. It starts no thread, and does no I/O.
//!
//! [arXiv 2011.09107]: https://arxiv.org/abs/2011.09107

mod bits;
mod column;
mod dispatch;
mod forest;
mod keys;
mod linear;
mod rule;
mod scan;
mod structure;
mod table;
pub mod workload;

pub use bits::BitVectors;
pub use column::{COLUMNS, Column};
pub use dispatch::lookup_level;
pub use forest::Forest;
pub use keys::{Key, Keys, MAX_KEYS};
pub use linear::Linear;
pub use rule::{NONE, Rank, Rule, Rules, Test};
pub use scan::Scan;
pub use straightline_simd::Level;
pub use structure::{Best, Dead, Statistics, Structure};
pub use table::{Compilation, Compiled, MOST_ADDED, MOST_SCANNED, RuleId, Snapshot, Table, compile};
