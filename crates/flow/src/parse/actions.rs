//! The actions of a flow, as text.

use super::error::FlowError;
use super::refused;
use super::subfield::subfield;
use super::value::{self, limited};
use super::words::{Word, words};
use crate::action::{Action, Ct, CtZone, Spelling, ct_state};
use crate::field::{Field, Subfield, VLAN_PRESENT};
use crate::flow::{MAX_ACTIONS, TABLES};
use crate::matching::Match;
use crate::numbers::MAX_METER;
use crate::ports::PortNames;
use crate::prerequisite::Prerequisite;

/// Reads the actions of a flow with this condition.
pub(super) fn read(
    text: &str,
    table: Option<u8>,
    condition: &Match,
    ports: &dyn PortNames,
) -> Result<Vec<Action>, FlowError> {
    let words = words(text)?;
    let is_drop = |word: &Word<'_>| word.text.eq_ignore_ascii_case("drop");
    if let Some(word) = words.iter().find(|word| is_drop(word)) {
        return if words.len() == 1 { Ok(Vec::new()) } else { Err(word.wrong("stands beside others: write it alone")) };
    }
    let has_tag = condition.meets(Prerequisite::Vlan);
    let mut reader = ActionReader { table, condition, ports, has_tag, actions: Vec::new() };
    for word in &words {
        reader.check_order(*word)?;
        reader.read(*word)?;
        if reader.actions.len() > MAX_ACTIONS {
            return Err(word.wrong(format!("is one action too many: a flow has at most {MAX_ACTIONS}")));
        }
    }
    Ok(reader.actions)
}

struct ActionReader<'a> {
    table: Option<u8>,
    condition: &'a Match,
    ports: &'a dyn PortNames,
    /// The packet has a VLAN tag at this place of the list.
    has_tag: bool,
    actions: Vec<Action>,
}

impl ActionReader<'_> {
    /// Checks the rules about which actions may stand behind which.
    fn check_order(&self, word: Word<'_>) -> Result<(), FlowError> {
        let is_conjunction = word.key.eq_ignore_ascii_case("conjunction");
        match self.actions.last() {
            Some(Action::Ct(Ct { table: Some(table), .. })) => {
                Err(word.wrong(format!("stands behind `ct(…,table={table})`: write that last")))
            }
            Some(Action::GotoTable(_)) => Err(word.wrong("stands behind `goto_table`: write `goto_table` last")),
            Some(Action::Conjunction { .. }) if !is_conjunction => {
                Err(word.wrong("stands beside `conjunction`: a flow with `conjunction` has no other actions"))
            }
            Some(last) if is_conjunction && !matches!(last, Action::Conjunction { .. }) => {
                Err(word.wrong("stands beside other actions: a flow with `conjunction` has no other actions"))
            }
            _ => Ok(()),
        }
    }

    fn read(&mut self, word: Word<'_>) -> Result<(), FlowError> {
        let key = word.key.to_ascii_lowercase();
        let action = match key.as_str() {
            "output" => return self.read_output(word, word.needed()?),
            "in_port" | "normal" | "flood" | "all" => return self.read_output(word, word.text),
            "load" => return self.read_load(word),
            "set_field" => return self.read_set_field(word),
            "move" => self.read_move(word)?,
            "mod_dl_src" => self.modify(word, Field::EthSrc)?,
            "mod_dl_dst" => self.modify(word, Field::EthDst)?,
            "mod_nw_src" => self.modify(word, Field::IpSrc)?,
            "mod_nw_dst" => self.modify(word, Field::IpDst)?,
            "mod_tp_src" => self.modify(word, Field::TpSrc)?,
            "mod_tp_dst" => self.modify(word, Field::TpDst)?,
            "mod_nw_tos" => self.modify(word, Field::IpTos)?,
            "mod_nw_ecn" => load(Subfield::all(Field::IpEcn), limited(word, word.needed()?, 3)?),
            "mod_nw_ttl" => load(Subfield::all(Field::IpTtl), limited(word, word.needed()?, 255)?),
            "mod_vlan_vid" | "set_vlan_vid" => self.tag(0, limited(word, word.needed()?, 0xfff)?),
            "mod_vlan_pcp" | "set_vlan_pcp" => self.tag(13, limited(word, word.needed()?, 7)?),
            "strip_vlan" | "pop_vlan" => {
                alone(word)?;
                self.has_tag = false;
                Action::StripVlan
            }
            "push_vlan" => self.read_push_vlan(word)?,
            "dec_ttl" => {
                alone(word)?;
                Action::DecTtl
            }
            "goto_table" => self.read_goto(word)?,
            "resubmit" => self.read_resubmit(word)?,
            "conjunction" => read_conjunction(word)?,
            "meter" => self.read_meter(word)?,
            "ct" => self.read_ct(word)?,
            "ct_clear" => {
                alone(word)?;
                Action::CtClear
            }
            _ => match refused::action(word) {
                Some(refusal) => return Err(refusal),
                None => return self.read_output(word, word.text).map_err(|_| unknown(word)),
            },
        };
        self.actions.push(action);
        Ok(())
    }

    fn read_output(&mut self, word: Word<'_>, text: &str) -> Result<(), FlowError> {
        let action = match text.to_ascii_lowercase().as_str() {
            "in_port" => Action::InPort,
            "normal" => Action::Normal,
            "flood" => Action::Flood,
            "all" => Action::All,
            _ => {
                let is_field = Field::find(text.split('[').next().unwrap_or(text)).is_some();
                if is_field && self.ports.number(text).is_none() {
                    let from = subfield(word, text)?;
                    self.check_prerequisite(word, from.field)?;
                    Action::OutputField(from)
                } else {
                    Action::Output(value::port(word, text, self.ports)?)
                }
            }
        };
        self.actions.push(action);
        Ok(())
    }

    /// Reads `load:VALUE->FIELD[BITS]`.
    fn read_load(&mut self, word: Word<'_>) -> Result<(), FlowError> {
        let (value, to) = arrow(word)?;
        let to = subfield(word, to)?;
        self.check_writable(word, to.field)?;
        if to.field == Field::IpTos && to.mask() & 0xfc == 0 {
            return Err(word.wrong("has the bits of ECN: use `NXM_NX_IP_ECN`"));
        }
        let greatest = u128::MAX >> (128 - to.bits);
        let value = match value::number(value) {
            Some(value) if value <= greatest => value,
            Some(_) => return Err(word.wrong(format!("has a value that does not fit into {} bits", to.bits))),
            None => return Err(word.wrong("has no number before `->`: write `load:0x1->NXM_NX_REG0[]`")),
        };
        self.push_loads(to, value, to.mask());
        Ok(())
    }

    /// Reads `set_field:VALUE[/MASK]->FIELD`.
    fn read_set_field(&mut self, word: Word<'_>) -> Result<(), FlowError> {
        let (text, name) = arrow(word)?;
        let found = match name {
            "tp_src" => Some(Field::TcpSrc),
            "tp_dst" => Some(Field::TcpDst),
            _ => Field::find(name),
        };
        let field = found.ok_or_else(|| refused::subfield(word, name))?;
        self.check_writable(word, field)?;
        let (value, mask) = value::field(word, field, text, self.ports)?;
        if mask.is_some() && !field.is_maskable() {
            return Err(word.wrong(format!("has a mask, which `{name}` cannot have: write one value")));
        }
        let greatest = field.greatest();
        let mask = mask.unwrap_or(greatest);
        let is_complete = mask == greatest;
        let present = u128::from(VLAN_PRESENT);
        match field {
            Field::IpTos if value & 3 != 0 => {
                return Err(word.wrong("sets the bits of ECN: use a multiple of 4, and `nw_ecn` for these bits"));
            }
            Field::VlanVid if is_complete => {
                let action = self.tag(0, value & !present);
                self.actions.push(action);
            }
            Field::VlanVid => self.push_loads(Subfield::all(field), value, mask & !present),
            Field::VlanPcp => {
                let action = self.tag(13, value);
                self.actions.push(action);
            }
            Field::VlanTci if is_complete && value & present != 0 => {
                let number = self.tag(0, value & 0xfff);
                let priority = self.tag(13, value >> 13);
                self.actions.extend([number, priority]);
            }
            Field::VlanTci if is_complete => {
                self.has_tag = false;
                self.actions.push(Action::StripVlan);
            }
            Field::EthSrc
            | Field::EthDst
            | Field::IpSrc
            | Field::IpDst
            | Field::IpTos
            | Field::IpDscp
            | Field::TcpSrc
            | Field::TcpDst
            | Field::UdpSrc
            | Field::UdpDst
                if is_complete =>
            {
                self.actions.push(modify(field, value));
            }
            _ => self.push_loads(Subfield::all(field), value, mask),
        }
        Ok(())
    }

    /// Appends an action for each run of bits in the mask, of at most 64 bits each: so does OvS, and
    /// text has no other form for them. The value begins at the subfield, the mask at the field.
    fn push_loads(&mut self, within: Subfield, value: u128, mask: u128) {
        let value = value << within.offset;
        let mut rest = mask;
        while rest != 0 {
            let first = rest.trailing_zeros();
            let run = (rest >> first).trailing_ones().min(64);
            #[expect(clippy::cast_possible_truncation, reason = "places in 128 bits")]
            let to = Subfield { field: within.field, offset: first as u8, bits: run as u8 };
            self.actions.push(load(to, to.of(value)));
            rest &= !to.mask();
        }
        let whole = within.whole();
        if whole.field == Field::VlanTci && mask & u128::from(VLAN_PRESENT) != 0 {
            self.has_tag = value & u128::from(VLAN_PRESENT) != 0;
        }
    }

    fn read_move(&mut self, word: Word<'_>) -> Result<Action, FlowError> {
        let (from, to) = arrow(word)?;
        let from = subfield(word, from)?;
        let to = subfield(word, to)?;
        if from.bits != to.bits {
            return Err(word.wrong(format!("moves {} bits to {}: take as many on both sides", from.bits, to.bits)));
        }
        self.check_prerequisite(word, from.field)?;
        self.check_writable(word, to.field)?;
        Ok(Action::Move { from, to })
    }

    /// Reads the value of a `mod_…` action.
    fn modify(&self, word: Word<'_>, field: Field) -> Result<Action, FlowError> {
        let (value, mask) = value::field(word, field, word.needed()?, self.ports)?;
        if mask.is_some() {
            return Err(word.wrong("has a mask: use `set_field` or `load` for some of the bits"));
        }
        if field == Field::IpTos && value & 3 != 0 {
            return Err(word.wrong("sets the bits of ECN: use a multiple of 4, and `mod_nw_ecn` for these bits"));
        }
        Ok(modify(field, value))
    }

    /// Returns the action that sets a part of the tag, and makes a tag if there is none.
    fn tag(&mut self, place: u32, value: u128) -> Action {
        self.has_tag = true;
        let part: u128 = if place == 0 { 0xfff } else { 0xe000 };
        let present = u128::from(VLAN_PRESENT);
        Action::SetField {
            field: Field::VlanTci,
            value: (value << place) | present,
            mask: part | present,
            spelling: Spelling::Mod,
        }
    }

    fn read_push_vlan(&mut self, word: Word<'_>) -> Result<Action, FlowError> {
        let tag = match value::number(word.needed()?) {
            Some(0x8100) => 0x8100,
            Some(0x88a8) => 0x88a8,
            _ => return Err(word.wrong("is no type of a VLAN tag: use 0x8100 or 0x88a8")),
        };
        self.has_tag = true;
        Ok(Action::PushVlan(tag))
    }

    fn read_goto(&self, word: Word<'_>) -> Result<Action, FlowError> {
        let table = table_number(word, word.needed()?)?;
        let is_later = self.table.is_none_or(|own| own < table);
        if is_later {
            return Ok(Action::GotoTable(table));
        }
        Err(word.wrong(format!("leads to the own or an earlier table: use a later one, or `resubmit(,{table})`")))
    }

    fn read_resubmit(&self, word: Word<'_>) -> Result<Action, FlowError> {
        let text = word.needed()?;
        let is_call = word.text[word.key.len()..].starts_with('(');
        let (port, table) = if is_call { text.split_once(',').unwrap_or((text, "")) } else { (text, "") };
        let port = port.trim();
        let table = table.trim();
        if port.is_empty() && table.is_empty() {
            return Err(word.wrong("names neither port nor table: write `resubmit(,2)`"));
        }
        let is_own = port.is_empty() || port.eq_ignore_ascii_case("in_port");
        let port = if is_own { None } else { Some(value::port(word, port, self.ports)?) };
        let table = if table.is_empty() { None } else { Some(table_number(word, table)?) };
        Ok(Action::Resubmit { port, table })
    }

    fn read_meter(&self, word: Word<'_>) -> Result<Action, FlowError> {
        if !self.actions.is_empty() {
            return Err(word.wrong("stands behind another action: write `meter` first, and once"));
        }
        let greatest = u128::from(MAX_METER);
        let number = limited(word, word.needed()?, greatest)?;
        match u32::try_from(number) {
            Ok(number @ 1..) => Ok(Action::Meter(number)),
            _ => Err(word.wrong(format!("is out of range: use 1 to {greatest}"))),
        }
    }

    /// Reads `ct(commit,table=N,zone=N)`.
    fn read_ct(&self, word: Word<'_>) -> Result<Action, FlowError> {
        let mut ct = Ct { commit: false, table: None, zone: CtZone::Number(0) };
        for argument in words(word.value.unwrap_or_default())? {
            match argument.key.to_ascii_lowercase().as_str() {
                "commit" if argument.value.is_none() => ct.commit = true,
                "table" => ct.table = Some(table_number(word, argument.needed()?)?),
                "zone" => ct.zone = self.zone(word, argument.needed()?)?,
                _ => return Err(refused::ct(word, argument)),
            }
        }
        self.check_prerequisite(word, Field::IpProto)?;
        let invalid = u128::from(ct_state::INVALID);
        if ct.commit && self.condition.get(Field::CtState).0 & invalid != 0 {
            return Err(word.wrong("has `commit`, but the match has `+inv`: an invalid packet begins no connection"));
        }
        Ok(Action::Ct(ct))
    }

    fn zone(&self, word: Word<'_>, text: &str) -> Result<CtZone, FlowError> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let zone = limited(word, text, u16::MAX.into())?;
            return u16::try_from(zone).map(CtZone::Number).map_err(|_| word.wrong("is out of range"));
        }
        let from = subfield(word, text)?;
        self.check_prerequisite(word, from.field)?;
        if from.bits != 16 {
            return Err(word.wrong(format!("takes its zone from {} bits: take 16", from.bits)));
        }
        Ok(CtZone::Field(from))
    }

    fn check_writable(&self, word: Word<'_>, field: Field) -> Result<(), FlowError> {
        if !field.is_writable() {
            return Err(word.wrong(format!("changes `{}`, which can only be matched", field.name())));
        }
        self.check_prerequisite(word, field)
    }

    /// Checks that all packets of the match have a field.
    fn check_prerequisite(&self, word: Word<'_>, field: Field) -> Result<(), FlowError> {
        let needed = match field {
            Field::VlanVid | Field::VlanPcp => Prerequisite::Vlan,
            other => other.prerequisite(),
        };
        let is_met = if needed == Prerequisite::Vlan { self.has_tag } else { self.condition.meets(needed) };
        if is_met {
            return Ok(());
        }
        let push = if needed == Prerequisite::Vlan { ", or `push_vlan` before it" } else { "" };
        Err(word.wrong(format!("needs {} in the match{push}", needed.words())))
    }
}

/// Returns the action `load`.
fn load(to: Subfield, value: u128) -> Action {
    let whole = to.whole();
    // The DSCP alone has a place in the field that text calls `nw_tos`.
    let mask = if to.field == Field::IpTos { whole.mask() & 0xfc } else { whole.mask() };
    let value = (value << whole.offset) & mask;
    Action::SetField { field: whole.field, value, mask, spelling: Spelling::Load(to) }
}

/// Returns the action `mod_…` for all bits of a field.
fn modify(field: Field, value: u128) -> Action {
    let whole = Subfield::all(field).whole();
    let mask = if whole.field == Field::IpTos { whole.mask() & 0xfc } else { whole.mask() };
    Action::SetField { field: whole.field, value: value << whole.offset, mask, spelling: Spelling::Mod }
}

fn read_conjunction(word: Word<'_>) -> Result<Action, FlowError> {
    let wrong = || word.wrong("is no clause: write `conjunction(ID,1/2)`, with 2 to 64 clauses");
    let (id, clause) = word.needed()?.split_once(',').ok_or_else(wrong)?;
    let (clause, clauses) = clause.split_once('/').ok_or_else(wrong)?;
    let id = value::number(id.trim()).and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong)?;
    let clause = value::number(clause.trim()).and_then(|clause| u8::try_from(clause).ok()).ok_or_else(wrong)?;
    let clauses = value::number(clauses.trim()).and_then(|clauses| u8::try_from(clauses).ok()).ok_or_else(wrong)?;
    if !(2..=64).contains(&clauses) || !(1..=clauses).contains(&clause) {
        return Err(wrong());
    }
    Ok(Action::Conjunction { id, clause: clause - 1, clauses })
}

fn arrow(word: Word<'_>) -> Result<(&str, &str), FlowError> {
    let both = word.needed()?.split_once("->");
    both.ok_or_else(|| word.wrong(format!("has no `->`: write `{}:…->FIELD`", word.key)))
}

fn alone(word: Word<'_>) -> Result<(), FlowError> {
    match word.value {
        None | Some("") => Ok(()),
        Some(_) => Err(word.wrong(format!("has a value: write `{}` alone", word.key))),
    }
}

/// Reads the number of a table.
pub(super) fn table_number(word: Word<'_>, text: &str) -> Result<u8, FlowError> {
    let number = limited(word, text, u128::from(TABLES) - 1)?;
    u8::try_from(number).map_err(|_| word.wrong("is out of range"))
}

fn unknown(word: Word<'_>) -> FlowError {
    word.wrong("is neither an action nor a port of the bridge: see the list in docs/flows.md")
}
