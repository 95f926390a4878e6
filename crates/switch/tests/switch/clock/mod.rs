//! Timers of a switch, tested in process: a test moves the clock, and waits for nothing but events.

mod bridge;
mod connections;
mod control;
