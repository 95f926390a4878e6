//! The condition of a flow, as text.

use super::error::FlowError;
use super::refused;
use super::value::{self, limited};
use super::words::Word;
use crate::field::{Field, VLAN_PRESENT};
use crate::matching::Match;
use crate::numbers::{ARP, ICMP, ICMPV6, RARP, SHORT_FORMS};
use crate::ports::PortNames;

/// The bits of [`Field::CtState`] that have a name.
const CT_STATE_BITS: u128 = 0xff;

/// A test of a word, before all words are known.
struct Given<'a> {
    word: Word<'a>,
    field: Field,
    value: u128,
    mask: u128,
}

/// The tests of a flow's words.
#[derive(Default)]
pub(super) struct ConditionReader<'a>(Vec<Given<'a>>);

impl<'a> ConditionReader<'a> {
    /// Reads a word. Its key must be a field or a short form.
    pub(super) fn read(&mut self, word: Word<'a>, ports: &dyn PortNames) -> Result<(), FlowError> {
        let key = word.key;
        if let Some((_, ether_type, protocol)) = SHORT_FORMS.iter().find(|(name, ..)| *name == key) {
            if word.value.is_some() {
                return Err(word.wrong(format!("has a value: write `{key}` alone")));
            }
            self.push(word, Field::EthType, (*ether_type).into(), None);
            if let Some(protocol) = protocol {
                self.push(word, Field::IpProto, (*protocol).into(), None);
            }
            return Ok(());
        }
        match key {
            "dl_vlan" | "dl_vlan_pcp" | "vlan_pcp" | "vlan_vid" => return self.read_vlan(word),
            _ => {}
        }
        let Some(field) = Field::find(key).filter(|field| field.names().contains(&key)) else {
            return Err(refused::field(word));
        };
        let (value, mask) = value::field(word, field, word.needed()?, ports)?;
        if mask.is_some() && !field.is_maskable() {
            return Err(word.wrong(format!("has a mask, which `{key}` cannot have: write one value")));
        }
        if field == Field::IpTos && value & 3 != 0 {
            return Err(word.wrong("sets the bits of ECN: use a multiple of 4, and `nw_ecn` for these bits"));
        }
        if field == Field::ArpOp && value > 0xff {
            return Err(word.wrong("is out of range: use 0 to 255"));
        }
        if field == Field::CtState && value > CT_STATE_BITS {
            return Err(word.wrong(format!("is out of range: use 0 to {CT_STATE_BITS:#x}")));
        }
        let mask = match field {
            Field::IpTos => Some(0xfc),
            // No packet has other bits.
            Field::CtState => mask.map(|mask| if mask == field.greatest() { mask } else { mask & CT_STATE_BITS }),
            _ => mask,
        };
        self.push(word, field, value, mask);
        Ok(())
    }

    /// Reads a part of the VLAN tag, which says that there is a tag.
    fn read_vlan(&mut self, word: Word<'a>) -> Result<(), FlowError> {
        let present = u128::from(VLAN_PRESENT);
        let text = word.needed()?;
        let (value, mask) = match word.key {
            "dl_vlan" if value::number(text) == Some(0xffff) => (0, 0xffff),
            "dl_vlan" => (present | limited(word, text, 0xfff)?, present | 0xfff),
            "vlan_vid" => {
                let (value, mask) = value::field(word, Field::VlanVid, text, &crate::ports::NoPortNames)?;
                if mask.is_none() && value & present == 0 {
                    let tagged = value | present;
                    let meant = format!("matches packets without a tag: use `dl_vlan={value}`, `vlan_vid={tagged:#x}`");
                    return Err(word.wrong(meant + ", or `vlan_tci=0` for packets without a tag"));
                }
                (value, mask.unwrap_or(present | 0xfff))
            }
            _ => (present | (limited(word, text, 7)? << 13), present | 0xe000),
        };
        self.push(word, Field::VlanTci, value, Some(mask));
        Ok(())
    }

    fn push(&mut self, word: Word<'a>, field: Field, value: u128, mask: Option<u128>) {
        self.0.push(Given { word, field, value, mask: mask.unwrap_or(field.greatest()) });
    }

    /// Returns the condition of all words.
    pub(super) fn finish(mut self) -> Result<Match, FlowError> {
        self.resolve_names();
        let mut condition = Match::new();
        for given in &self.0 {
            let (value, mask) = condition.get(given.field);
            if (value ^ given.value) & mask & given.mask != 0 {
                let problem = format!("contradicts an earlier word, which sets `{}` too: keep one", given.field.name());
                return Err(given.word.wrong(problem));
            }
            condition.set(given.field, given.value, given.mask);
        }
        for given in &self.0 {
            let needed = given.field.prerequisite();
            if given.mask != 0 && !condition.meets(needed) {
                return Err(given.word.wrong(format!("needs {} in the same match", needed.words())));
            }
        }
        // A later fragment is a fragment: one form for both.
        if condition.get(Field::IpFrag) == (3, 3) {
            condition.take(Field::IpFrag);
            condition.set(Field::IpFrag, 2, 2);
        }
        Ok(condition)
    }

    /// Gives the names that several protocols share the field of this match's protocol.
    fn resolve_names(&mut self) {
        let last = |field| self.0.iter().rev().find(|given| given.field == field).map(|given| given.value);
        let ether_type = last(Field::EthType);
        let is_arp = [ARP, RARP].iter().any(|known| ether_type == Some((*known).into()));
        let is_icmp = last(Field::IpProto).is_some_and(|number| number == ICMP.into() || number == ICMPV6.into());
        for given in &mut self.0 {
            given.field = match given.field {
                Field::IpSrc if is_arp => Field::ArpSpa,
                Field::IpDst if is_arp => Field::ArpTpa,
                Field::IpProto if is_arp => Field::ArpOp,
                // A type of ICMP has 8 bits; a greater number stays a port, which ICMP lacks.
                Field::TpSrc if is_icmp && given.value <= 0xff => Field::IcmpType,
                Field::TpDst if is_icmp && given.value <= 0xff => Field::IcmpCode,
                field => field,
            };
            if is_arp && given.field == Field::ArpOp {
                given.mask = Field::ArpOp.greatest();
            }
            given.mask &= given.field.greatest();
        }
    }
}
