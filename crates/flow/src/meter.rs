//! Meters: rates that flows share.

/// Greatest number of a meter.
pub const MAX_METER: u32 = 65_535;
