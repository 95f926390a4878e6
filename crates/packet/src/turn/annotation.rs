//! The annotation of a packet: facts that its nodes hand on.
//!
//! | fact | set by | lives until |
//! |---|---|---|
//! | layout, flow hash | the first question for it | the head changes: its bytes, its begin or its length |
//! | VLAN, connection | a node | the packet comes from another port ([`Packets::set_port`]), as after a tunnel |
//! | mark | a node | the packet ends |
//!
//! - **Parsed facts** are those of the head as it is now. [`Slot::change`] forgets them, and is the
//!   one way to a head. A packet that nobody asks about is not parsed.
//! - **Set facts** belong to the packet. They are gone when it goes back to its ring (`full = "wait"`):
//!   it comes again as a new packet. Enclosed nodes may change them for their output alone
//!   ([`KeptPackets`](crate::KeptPackets)). A form must not ([`ChangedPackets`](crate::ChangedPackets)).
//!
//! Parsed facts lie in arrays beside the slots, by the slot's index. Set facts, and the bits that say
//! what was parsed, are words of the slot.

use straightline_wire::{Layout, WireError, flow_hash, flow_hash_of, plain_flow};

use super::Packets;
use crate::slot::{PacketVlan, Parsed, Slot};
use crate::{MAX_BATCH, PacketId};

/// Facts that were parsed from heads. An entry is valid if its slot says so.
pub(super) struct Annotations {
    layouts: [Result<Layout, WireError>; MAX_BATCH],
    flow_hashes: [u32; MAX_BATCH],
}

impl Default for Annotations {
    fn default() -> Self {
        Annotations { layouts: [Err(WireError::Truncated); MAX_BATCH], flow_hashes: [0; MAX_BATCH] }
    }
}

impl Packets<'_> {
    /// Returns the layout of the packet's head: its tags, its type, and the offsets of its headers. It
    /// is parsed when it is first asked for, and again after the head has changed.
    ///
    /// # Errors
    /// As [`Layout::parse`]: the head has no whole Ethernet header with its tags.
    #[inline]
    pub fn layout(&mut self, id: PacketId) -> Result<Layout, WireError> {
        let slot = &mut self.slots[id.index()];
        let layout = &mut self.annotations.layouts[id.index()];
        if !slot.has_parsed(Parsed::LAYOUT) {
            *layout = Layout::parse(slot.head());
            slot.note_parsed(Parsed::LAYOUT);
        }
        *layout
    }

    /// Returns the hash of the packet's flow ([`flow_hash`]). It is computed when it is first asked
    /// for, and again after the head has changed.
    #[inline]
    pub fn flow_hash(&mut self, id: PacketId) -> u32 {
        let slot = &self.slots[id.index()];
        if slot.has_parsed(Parsed::FLOW_HASH) {
            return self.annotations.flow_hashes[id.index()];
        }
        let hash = plain_flow(slot.head()).map_or_else(|| self.flow_hash_of_other(id), |flow| flow.hash);
        self.annotations.flow_hashes[id.index()] = hash;
        self.slots[id.index()].note_parsed(Parsed::FLOW_HASH);
        hash
    }

    #[inline(never)]
    fn flow_hash_of_other(&mut self, id: PacketId) -> u32 {
        let layers = self.layout(id).and_then(|layout| layout.layers);
        flow_hash_of(self.head(id), layers.ok())
    }

    /// Returns the VLAN of the bridge that the packet is in, if a node has set one. It says nothing
    /// about tags in the packet: these are in [`Self::layout`].
    #[inline]
    pub fn vlan(&self, id: PacketId) -> Option<PacketVlan> {
        self.slots[id.index()].facts.vlan
    }

    /// Sets the VLAN of the bridge that the packet is in.
    #[inline]
    pub fn set_vlan(&mut self, id: PacketId, vlan: Option<PacketVlan>) {
        self.slots[id.index()].facts.vlan = vlan;
    }

    /// Returns the identity of the packet's connection; 0 if no node has set one.
    #[inline]
    pub fn connection(&self, id: PacketId) -> u32 {
        self.slots[id.index()].facts.connection
    }

    /// Sets the identity of the packet's connection; 0 for none.
    #[inline]
    pub fn set_connection(&mut self, id: PacketId, connection: u32) {
        self.slots[id.index()].facts.connection = connection;
    }

    /// Returns the mark that a node has put on the packet for later nodes; 0 for none.
    #[inline]
    pub fn mark_of(&self, id: PacketId) -> u32 {
        self.slots[id.index()].facts.mark
    }

    /// Puts a mark on the packet; 0 for none.
    #[inline]
    pub fn set_mark(&mut self, id: PacketId, mark: u32) {
        self.slots[id.index()].facts.mark = mark;
    }

    /// Returns whether the packet's parsed facts are those of its head as it is now. They always are,
    /// unless the switch has a bug; debug builds check it after each node.
    #[must_use]
    pub fn is_annotation_fresh(&self, id: PacketId) -> bool {
        let Annotations { layouts, flow_hashes } = &*self.annotations;
        let slot: &Slot = &self.slots[id.index()];
        let at = id.index();
        let has_layout = slot.has_parsed(Parsed::LAYOUT);
        let has_hash = slot.has_parsed(Parsed::FLOW_HASH);
        (!has_layout || layouts[at] == Layout::parse(slot.head()))
            && (!has_hash || flow_hashes[at] == flow_hash(slot.head()))
    }
}
