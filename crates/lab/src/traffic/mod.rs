//! Traffic: packets that a generator sends and checks, capture files, and frame lengths.
//!
//! | file | holds |
//! |---|---|
//! | `generator` | packets at a rate, and the check of what returns |
//! | `capture` | frames from and to capture files |
//! | `counted` | the end of a measurement by packets |
//! | `sizes` | frame lengths and their weights |

pub mod capture;
mod counted;
pub mod generator;
mod sizes;

pub use counted::Counted;
pub use sizes::Sizes;
