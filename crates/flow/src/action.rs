//! Actions: the work of a flow on the packets that match it.

use crate::field::{Field, Subfield};

/// Number of a port within a bridge, as `in_port` and `output` have it. Names become numbers when a
/// flow is read, by the reader of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNumber(pub u16);

impl PortNumber {
    /// Greatest number of a port. OpenFlow reserves the greater ones.
    pub const MAX: Self = Self(0xfeff);
    /// The port by which the packet came, as a value in a register.
    pub const IN_PORT: Self = Self(0xfff8);
}

/// Way in which text writes a change of a field. It does not change the action's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spelling {
    /// `load:…->NXM_…[…]`, with the bits as they are named there.
    Load(Subfield),
    /// `mod_dl_src`, `mod_vlan_vid` and so on, for a change of all bits of some fields.
    Mod,
}

/// An action. They run in the order of the flow's list. A flow without actions drops its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sends the packet, as it is now, to a port. It does nothing if the packet came by that port,
    /// or if the bridge has no such port.
    Output(PortNumber),
    /// The same, to the port whose number is in bits of a field.
    OutputField(Subfield),
    /// Sends the packet to the port by which it came ([`Field::InPort`]).
    InPort,
    /// Gives the packet to the bridge, which learns and forwards.
    Normal,
    /// Sends the packet to all ports of the bridge but the one by which it came.
    Flood,
    /// Does the same as [`Self::Flood`]: no port of ours is left out of floods.
    All,
    /// Sets bits of a whole field.
    ///
    /// In [`Field::VlanTci`], setting the bit [`VLAN_PRESENT`](crate::VLAN_PRESENT) makes a tag with
    /// the type 0x8100 if the packet has none; other bits of the new tag are 0. Clearing it removes
    /// the first tag. If a mask does not have the bit, a packet without a tag stays as it is.
    SetField {
        /// A whole field ([`Field::whole`]).
        field: Field,
        /// Value. Bits outside of the mask are 0.
        value: u128,
        /// The bits to set.
        mask: u128,
        /// Way to write the action.
        spelling: Spelling,
    },
    /// Copies bits from one field to another. Both have the same number of bits.
    Move {
        /// Where the bits come from.
        from: Subfield,
        /// Where they go.
        to: Subfield,
    },
    /// Subtracts 1 from the time to live. If it is 0 or 1, the packet's processing ends.
    DecTtl,
    /// Puts a VLAN tag before all others, with this type: 0x8100 or 0x88a8. Priority and identifier
    /// are those of the tag that was first, or 0.
    PushVlan(u16),
    /// Removes the first VLAN tag, if there is one.
    StripVlan,
    /// Continues with the flow that the packet matches in a later table. It is the last action.
    GotoTable(u8),
    /// Runs the actions of the flow that the packet matches, and then goes on with this list.
    Resubmit {
        /// The value of [`Field::InPort`] in the search only; the packet's own if there is none.
        port: Option<PortNumber>,
        /// The table to search in; the flow's own if there is none.
        table: Option<u8>,
    },
    /// Makes the flow the clause of a conjunction. Such a flow has only these actions. The flow with
    /// [`Field::ConjId`] matches packets that match a flow for each clause.
    Conjunction {
        /// Value of [`Field::ConjId`].
        id: u32,
        /// Number of the clause, from 0.
        clause: u8,
        /// Number of clauses, from 2 to 64.
        clauses: u8,
    },
    /// Drops the packet if a meter's rate is exceeded.
    Meter(u32),
    /// Finds the packet's connection.
    Ct(Ct),
    /// Forgets the connection that was found: its state and zone are 0 again.
    CtClear,
}

/// A search for the connection of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ct {
    /// A connection that is new is known from now on. Without it, each of its packets is new.
    pub commit: bool,
    /// The table in which the packet goes on, with [`Field::CtState`] and [`Field::CtZone`] set. It is the
    /// last action then. In all other places both are 0 behind the search.
    pub table: Option<u8>,
    /// The zone. A connection in one zone is none in another.
    pub zone: CtZone,
}

/// The zone of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CtZone {
    /// This number.
    Number(u16),
    /// The number in 16 bits of a field.
    Field(Subfield),
}

/// The bits of [`Field::CtState`].
pub mod ct_state {
    /// `new`: the packet may begin a connection, or only one side has sent packets of it.
    pub const NEW: u8 = 0x01;
    /// `est`: both sides have sent packets.
    pub const ESTABLISHED: u8 = 0x02;
    /// `rel`: an ICMP error about a packet of a known connection.
    pub const RELATED: u8 = 0x04;
    /// `rpl`: the packet comes from the side that did not open the connection.
    pub const REPLY: u8 = 0x08;
    /// `inv`: the packet belongs to no connection, and begins none.
    pub const INVALID: u8 = 0x10;
    /// `trk`: the packet has passed [`Action::Ct`](crate::Action::Ct).
    pub const TRACKED: u8 = 0x20;
}
