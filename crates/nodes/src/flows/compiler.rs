//! Compiles the flows of a bridge, again and again.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use straightline_classify::{Column, Compilation, Compiled, Rule, RuleId, Table, lookup_level};
use straightline_conntrack as conntrack;
use straightline_flow::{Action, Clauses, ConjunctionKey, Field, FieldTest, FlowEntry, FlowKey, FlowTables, Match};

use super::meters::{FlowCounters, FlowMeters};
use super::program::{CHUNK, CompiledFlow, CompiledTable, FlowPorts, FlowProgram, Step};

/// A flow that is compiled: its entry, and where it is.
#[derive(Debug)]
struct Known {
    entry: Arc<FlowEntry<FlowCounters>>,
    place: u32,
    /// `None`: it matches no packet, or it is a clause.
    rule: Option<RuleId>,
}

/// The combinations of a conjunction, which are compiled. They share a place.
#[derive(Debug)]
struct Joined {
    place: u32,
    rules: Vec<RuleId>,
}

/// The owner of a new rule.
enum Holder {
    Flow(FlowKey),
    Conjunction(ConjunctionKey),
}

/// The flows that are not compiled as they are now.
#[derive(Default)]
struct Differences<'f> {
    gone: Vec<FlowKey>,
    /// Those that are new, too.
    changed: Vec<&'f Arc<FlowEntry<FlowCounters>>>,
}

/// Changes of one table that are not made yet.
#[derive(Default)]
struct Pending {
    removed: Vec<RuleId>,
    added: Vec<(Holder, Rule)>,
}

/// Compiles flow tables again and again. The time of a change grows with the number of flows that have
/// changed, but for a comparison of all.
#[derive(Debug, Default)]
pub struct FlowCompiler {
    program: FlowProgram,
    /// The meters that compiled flows have.
    meters: FlowMeters,
    known: BTreeMap<FlowKey, Known>,
    joined: BTreeMap<ConjunctionKey, Joined>,
    tables: BTreeMap<u8, Table>,
    /// Places that are free again.
    free: Vec<u32>,
    /// Places that were given so far.
    places: u32,
}

/// Rules of a table that have changed so often that compiling all of them is worth while.
const MANY_CHANGES: usize = 64;

impl FlowCompiler {
    /// Returns the program of these flows, ports and meters.
    pub fn compile(&mut self, flows: &FlowTables<FlowCounters>, ports: FlowPorts, meters: &FlowMeters) -> FlowProgram {
        let Differences { gone, changed } = self.differences(flows, meters);
        let mut pending: BTreeMap<u8, Pending> = BTreeMap::new();
        let known = gone.iter().chain(changed.iter().map(|entry| &entry.flow.key));
        let before = known.filter_map(|key| self.known.get(key)).map(|known| &known.entry);
        let both = before.chain(changed.iter().copied());
        let conjunctions: BTreeSet<_> = both.flat_map(|entry| entry.flow.conjunctions().map(|(key, _)| key)).collect();
        for key in gone {
            self.remove(&key, &mut pending);
        }
        for entry in changed {
            self.put(entry, meters, &mut pending);
        }
        self.meters = meters.clone();
        if !conjunctions.is_empty() {
            let all = flows.conjunctions();
            for key in conjunctions {
                self.join(key, all.get(&key), &mut pending);
            }
        }
        for (number, changes) in pending {
            self.change(number, changes);
        }
        if *self.program.ports != ports {
            self.program.ports = Arc::new(ports);
        }
        self.program.clone()
    }

    /// Sets the connections that the flows of further programs search for.
    pub fn set_connections(&mut self, connections: Option<Arc<conntrack::Table>>) {
        self.program.connections = connections;
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> Option<&Arc<conntrack::Table>> {
        self.program.connections.as_ref()
    }

    /// Compares all flows with those that are compiled. Both are in the order of their keys.
    fn differences<'f>(&self, flows: &'f FlowTables<FlowCounters>, meters: &FlowMeters) -> Differences<'f> {
        let has_other_meters = !self.meters.is_same(meters);
        let is_metered = |entry: &FlowEntry<FlowCounters>| {
            entry.flow.actions.iter().any(|action| matches!(action, Action::Meter(_)))
        };
        let mut differences = Differences::default();
        let mut known = self.known.values().peekable();
        'entries: for entry in flows.entries() {
            while let Some(other) = known.peek() {
                if Arc::ptr_eq(&other.entry, entry) {
                    known.next();
                    if has_other_meters && is_metered(entry) {
                        break;
                    }
                    continue 'entries;
                }
                match other.entry.flow.key.cmp(&entry.flow.key) {
                    Ordering::Less => differences.gone.push(other.entry.flow.key.clone()),
                    Ordering::Equal => {
                        if other.entry.flow.is_clause() != entry.flow.is_clause() {
                            differences.gone.push(entry.flow.key.clone());
                        }
                        known.next();
                        break;
                    }
                    Ordering::Greater => break,
                }
                known.next();
            }
            differences.changed.push(entry);
        }
        differences.gone.extend(known.map(|other| other.entry.flow.key.clone()));
        differences
    }

    fn remove(&mut self, key: &FlowKey, pending: &mut BTreeMap<u8, Pending>) {
        let Some(known) = self.known.remove(key) else { return };
        self.set(known.place, None);
        self.free.push(known.place);
        pending.entry(key.table).or_default().removed.extend(known.rule);
    }

    /// Compiles a flow that is new, or that has changed.
    fn put(&mut self, entry: &Arc<FlowEntry<FlowCounters>>, meters: &FlowMeters, pending: &mut BTreeMap<u8, Pending>) {
        let key = &entry.flow.key;
        let known = self.known.get_mut(key);
        let steps = entry.flow.actions.iter().filter_map(|&action| Step::of(action, key.table, meters)).collect();
        let compiled = Arc::new(CompiledFlow::new(steps, entry.counters.clone()));
        let place = match known {
            Some(known) => {
                known.entry = Arc::clone(entry);
                known.place
            }
            None => {
                let place = self.new_place();
                self.known.insert(key.clone(), Known { entry: Arc::clone(entry), place, rule: None });
                let rule = rule(&key.condition, rank(key.priority), place).filter(|_| !entry.flow.is_clause());
                let holder = || Holder::Flow(key.clone());
                pending.entry(key.table).or_default().added.extend(rule.map(|rule| (holder(), rule)));
                place
            }
        };
        self.set(place, Some(compiled));
    }

    /// Compiles the combinations of a conjunction in place of those before. `None`: it has no clauses any more.
    fn join(&mut self, key: ConjunctionKey, clauses: Option<&Clauses<'_>>, pending: &mut BTreeMap<u8, Pending>) {
        let changes = pending.entry(key.table).or_default();
        let before = self.joined.remove(&key);
        let combinations = clauses.map(Clauses::combinations).unwrap_or_default();
        let place = before.as_ref().map(|before| before.place);
        changes.removed.extend(before.into_iter().flat_map(|before| before.rules));
        if combinations.is_empty() {
            if let Some(place) = place {
                self.set(place, None);
                self.free.push(place);
            }
            return;
        }
        let place = place.unwrap_or_else(|| self.new_place());
        let rules = combinations.into_iter().filter_map(|combination| {
            // The search that follows has the conjunction, so it does not find it again.
            let first = combination.with(Field::ConjId, 0);
            Some((Holder::Conjunction(key), rule(&first, joined_rank(key.priority), place)?))
        });
        changes.added.extend(rules);
        let steps = Box::new([Step::Join(key.id)]);
        self.set(place, Some(Arc::new(CompiledFlow::new(steps, FlowCounters::default()))));
        self.joined.insert(key, Joined { place, rules: Vec::new() });
    }

    fn new_place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        })
    }

    fn set(&mut self, place: u32, flow: Option<Arc<CompiledFlow>>) {
        let place = place as usize;
        while self.program.flows.len() <= place / CHUNK {
            self.program.flows.push(Arc::new([const { None }; CHUNK]));
        }
        // A program that workers have may share the chunk.
        Arc::make_mut(&mut self.program.flows[place / CHUNK])[place % CHUNK] = flow;
    }

    fn change(&mut self, number: u8, changes: Pending) {
        let table = self.tables.entry(number).or_insert_with(|| Table::new(lookup_level()));
        let Pending { removed, added } = changes;
        let (holders, rules): (Vec<_>, Vec<_>) = added.into_iter().unzip();
        let ids = table.change(&removed, rules);
        for (holder, id) in holders.iter().zip(ids) {
            match holder {
                Holder::Flow(key) => {
                    if let Some(known) = self.known.get_mut(key) {
                        known.rule = Some(id);
                    }
                }
                Holder::Conjunction(key) => {
                    if let Some(joined) = self.joined.get_mut(key) {
                        joined.rules.push(id);
                    }
                }
            }
        }
        self.show(number);
    }

    /// Shows a table's present rules in the program.
    fn show(&mut self, number: u8) {
        let Some(table) = self.tables.get(&number) else { return };
        let at = usize::from(number);
        let tables = &mut self.program.tables;
        tables.resize(tables.len().max(at + 1), None);
        tables[at] = CompiledTable::new(table).map(Arc::new);
    }

    /// Returns the most reads of memory that the search in one of the tables takes for any packet.
    #[must_use]
    pub fn accesses(&self) -> usize {
        self.tables.values().map(|table| table.snapshot().statistics().accesses).max().unwrap_or(0)
    }

    /// Returns a table whose rules have changed often, to be compiled by [`Compilation::run`] while packets
    /// pass, and then handed to [`Self::adopt`].
    #[must_use]
    pub fn stale(&self) -> Option<(u8, Compilation)> {
        let (number, table) = self.tables.iter().max_by_key(|(_, table)| table.changes())?;
        (table.changes() >= MANY_CHANGES).then(|| (*number, table.compile()))
    }

    /// Takes compiled rules of a table in. Changes since then stay. Returns the program.
    pub fn adopt(&mut self, number: u8, compiled: Compiled) -> FlowProgram {
        if let Some(table) = self.tables.get_mut(&number) {
            table.adopt(compiled);
            self.show(number);
        }
        self.program.clone()
    }
}

/// Returns the rank of a flow's rule. It wins over combinations of its priority.
fn rank(priority: u16) -> u32 {
    2 * u32::from(priority) + 1
}

/// Returns the rank of the combinations of a conjunction.
fn joined_rank(priority: u16) -> u32 {
    2 * u32::from(priority)
}

/// Returns the rule of a condition; `None` if no packet matches it.
fn rule(condition: &Match, rank: u32, result: u32) -> Option<Rule> {
    let rule = Rule::new(rank, result);
    condition.tests().iter().try_fold(rule, add_test)
}

fn add_test(mut rule: Rule, test: &FieldTest) -> Option<Rule> {
    let FieldTest { field, value, mask } = *test;
    let columns = columns(field)?;
    let mut left = columns.iter().map(|column| column.bits()).sum::<u32>();
    // A value that no column has is that of no packet.
    if left < 128 && value >> left != 0 {
        return None;
    }
    for &column in columns {
        left -= column.bits();
        let part = |bits: u128| u32::try_from(bits >> left & u128::from(column.greatest())).unwrap_or(0);
        rule = rule.masked(column, part(value), part(mask));
    }
    Some(rule)
}

/// Returns the columns of a whole field, the first bits first; `None` if no packet has it.
fn columns(field: Field) -> Option<&'static [Column]> {
    Some(match field {
        Field::ConjId => &[Column::Conjunction],
        Field::PktMark => &[Column::Mark],
        Field::CtState => &[Column::ConnectionState],
        Field::CtZone => &[Column::ConnectionZone],
        Field::Reg0 => &[Column::Reg0],
        Field::Reg1 => &[Column::Reg1],
        Field::Reg2 => &[Column::Reg2],
        Field::Reg3 => &[Column::Reg3],
        Field::Reg4 => &[Column::Reg4],
        Field::Reg5 => &[Column::Reg5],
        Field::Reg6 => &[Column::Reg6],
        Field::Reg7 => &[Column::Reg7],
        Field::InPort => &[Column::InPort],
        Field::VlanTci => &[Column::Vlan],
        Field::EthSrc => &[Column::EthSrcHigh, Column::EthSrcLow],
        Field::EthDst => &[Column::EthDstHigh, Column::EthDstLow],
        Field::EthType => &[Column::EtherType],
        Field::IpSrc | Field::ArpSpa => &[Column::IpSrc3],
        Field::IpDst | Field::ArpTpa => &[Column::IpDst3],
        Field::Ipv6Src => &Column::IP_SRC,
        Field::Ipv6Dst => &Column::IP_DST,
        Field::Ipv6Label => &[Column::FlowLabel],
        Field::IpProto | Field::ArpOp => &[Column::Protocol],
        Field::IpTos => &[Column::Tos],
        Field::IpTtl => &[Column::Ttl],
        Field::IpFrag => &[Column::Fragment],
        Field::ArpSha | Field::NdSll => &[Column::ShaHigh, Column::ShaLow],
        Field::ArpTha | Field::NdTll => &[Column::ThaHigh, Column::ThaLow],
        Field::TpSrc => &[Column::SrcPort],
        Field::TpDst => &[Column::DstPort],
        Field::TcpFlags => &[Column::TcpFlags],
        Field::IcmpType => &[Column::IcmpType],
        Field::IcmpCode => &[Column::IcmpCode],
        Field::NdTarget => &Column::ND_TARGET,
        Field::VlanVid
        | Field::VlanPcp
        | Field::IpDscp
        | Field::IpEcn
        | Field::TcpSrc
        | Field::TcpDst
        | Field::UdpSrc
        | Field::UdpDst
        | Field::SctpSrc
        | Field::SctpDst
        | Field::Icmpv6Type
        | Field::Icmpv6Code => return None,
    })
}
