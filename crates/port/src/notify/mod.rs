//! Notifications: kicks that wake workers, and calls that never hold one up.

pub(crate) mod call_cost;
pub(crate) mod call_helper;
pub(crate) mod kick_routing;
pub(crate) mod notifier;
