//! Sets of rules and traces, for tests and benches. The same seed always gives the same ones.
//!
//! Nobody may publish real sets, so ClassBench (Taylor and Turner, 2007) describes them by
//! distributions and generates sets from these. This module does the same with parameters of our
//! own, in `parameters/`, whose form and shapes follow that paper.

mod generate;
mod parameters;
mod random;
mod trace;

pub use generate::{Family, SetKind, explosion, rules};
pub use random::Random;
pub use trace::{Locality, explosion_trace, misses, trace};
