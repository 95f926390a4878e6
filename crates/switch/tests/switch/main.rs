//! The entire switch, with guests at its ports: in one program, which links once.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod af_packet;
mod af_xdp;
mod bridge;
mod capture;
mod client;
mod coalesced_outer;
mod coalescing;
mod control_queue;
mod delivery;
mod dirty_log;
mod egress;
mod frontends;
mod full;
mod kept_graphs;
mod layouts;
mod links;
mod lost_calls;
mod mirror;
mod offloads;
mod one_copy;
mod outer;
mod ping;
mod queues;
mod rules;
mod segments;
mod set_down;
mod slots;
mod stalls;
mod tables;
mod tap;
mod trace;
mod tunnel_testbed;
mod tunnels;
mod turn_costs;
mod vanished;
mod workers;
