//! Flow tables in the words of `ovs-ofctl`.
//!
//! A [`Flow`] has a [`Match`], which packets meet or do not, and a list of [`Action`]s. A [`Field`] is
//! a part of a packet, or of what the switch knows about it: its port, its registers.
//!
//! ```
//! use straightline_flow::{Field, Match};
//!
//! let mut web = Match::new().with(Field::EthType, 0x0800).with(Field::IpProto, 6).with(Field::TcpDst, 80);
//! assert!(web.meets(Field::TcpDst.prerequisite()));
//! web.set(Field::IpDst, 0x0a00_0000, 0xff00_0000);
//! assert_eq!(web.get(Field::TpDst), (80, 0xffff), "all protocols share the field of ports");
//! ```
//!
//! The crate knows no packets: `straightline-nodes` reads and changes them. It starts no thread and
//! does no I/O; times are arguments.
#![forbid(unsafe_code)]

mod action;
mod field;
mod flow;
mod matching;
mod meter;
mod numbers;
mod parse;
mod ports;
mod prerequisite;
mod tables;
mod text;
mod trace;

pub use action::{Action, Ct, CtZone, PortNumber, Spelling, ct_state};
pub use field::{Field, Format, Subfield, VLAN_PRESENT};
pub use flow::{DEFAULT_PRIORITY, Flow, FlowCommand, FlowKey, FlowMod, MAX_ACTIONS, TABLES};
pub use matching::{FieldTest, Match};
pub use meter::{Meter, MeterUnit, parse_meter, parse_meter_number};
pub use numbers::MAX_METER;
pub use parse::{FlowError, MAX_LINE, parse_flow, parse_flows, parse_line};
pub use ports::{NoPortNames, PortNames, PortTable};
pub use prerequisite::Prerequisite;
pub use tables::{
    Clauses, ConjunctionKey, Expiry, FlowChanges, FlowCount, FlowEntry, FlowTables, MAX_COMBINATIONS, MAX_FLOWS,
    MAX_METERS, NoCount, Owner,
};
pub use text::{FlowStatistics, FlowWriter};
