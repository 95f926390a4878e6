//! Listening sockets of ports, and their files.

pub(crate) mod closing;
pub(crate) mod listener;
pub mod socket_file;
pub mod socket_path;
