//! The sections of the file: their keys, their readers, and the values that they become.

pub(crate) mod bridge_port;
pub(crate) mod dscp;
pub(crate) mod firewall;
pub(crate) mod flows;
pub(crate) mod group;
pub(crate) mod kind;
pub(crate) mod needs;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod permissions;
pub(crate) mod port;
pub(crate) mod port_groups;
pub(crate) mod port_list;
pub(crate) mod rate;
pub(crate) mod section;
pub(crate) mod source_check;
pub(crate) mod switch;
pub(crate) mod types;
pub(crate) mod underlay;
