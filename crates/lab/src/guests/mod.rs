//! Guests under measurement.
//!
//! | file | holds |
//! |---|---|
//! | `reflector` | a guest with the least possible cost, which measures any backends it is connected to |
//! | `forward` | a guest with testpmd's forward modes |
//! | `touch` | the accesses of both to the bytes of a packet |

pub mod forward;
pub mod reflector;
pub mod touch;
