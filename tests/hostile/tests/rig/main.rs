//! The attacks. The package's `lib.rs` describes them.

mod attacker;
#[path = "../../../../crates/switch/tests/common/mod.rs"]
mod common;
#[path = "../../../../crates/virtio/tests/virtio/guest.rs"]
#[expect(dead_code, reason = "shared with the tests of rings, which use all of it")]
mod memory;
mod network;
mod scene;
#[path = "../../../../crates/switch/tests/switch/tunnel_testbed.rs"]
mod tunnel_testbed;

mod address_space;
mod answers;
mod api;
mod backlog;
mod coalescing;
mod conflicts;
mod costly;
mod cve_2018_1059;
mod cve_2020_10722;
mod cve_2020_10723;
mod cve_2020_10725;
mod cve_2021_3839;
mod cve_2022_2132;
mod cve_2024_11614;
mod cve_2026_100236;
mod cve_2026_86561;
mod cve_2026_86563;
mod cve_2026_86565;
mod cve_2026_86566;
mod cve_2026_86567;
mod descriptors;
mod device_state;
mod devices;
mod held;
mod in_order;
mod logs;
mod lost_calls;
mod messages;
mod notifications;
mod once_control;
mod once_packed;
mod once_packets;
mod once_split;
mod orders;
mod packed;
mod pairs;
mod pairs_commands;
mod pairs_memory;
mod pairs_messages;
mod path_mtu;
mod peers;
mod remotes;
mod socket_files;
mod split;
mod spoofing;
mod tiny_buffers;
mod truncated;
mod zero_copy;
