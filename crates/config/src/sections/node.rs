//! Configured nodes: the kinds of node, and the sections `[node.NAME]`.
//!
//! A kind is a name and a function. The function reads the keys of a section through
//! [`NodeSettings`] and makes the node. This node is the prototype: each place in each worker's
//! graph gets a clone of it.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use straightline_graph::{Node, NodeControl};
use straightline_nodes::Mirror;
use toml::Spanned;

use crate::Draft;
use crate::diagnostic::{Findings, Span};
use crate::key::{Absent, Key, Value};
use crate::sections::section::{Section, hint};

/// The kinds of node that a configuration may name: the built-in kind `mirror`, and those that a
/// program adds.
///
/// Patches and bridges are sections of their own, and no kinds.
///
/// ```
/// use straightline_graph::{Next, Node};
/// use straightline_packet::{Batch, Packets};
/// use straightline_config::{Config, Kinds, Machine};
///
/// #[derive(Clone)]
/// struct Pass { slowly: bool }
/// impl Node for Pass {
///     fn process(&mut self, _packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
///         next.extend(0, batch.ids());
///     }
/// }
///
/// let kinds = Kinds::new().with("pass", |settings| Pass { slowly: settings.boolean("slowly", false) });
/// let text = "[node.p]\nkind = \"pass\"\nslow = true\n";
/// let errors = Config::parse_with("f.toml", text, &Machine::this(), &kinds).unwrap_err();
/// assert!(errors.to_string().starts_with("f.toml:3: unknown key \"slow\" in node \"p\"; keys are kind, slowly"));
/// ```
#[derive(Clone)]
pub struct Kinds(Vec<(String, Arc<Make>)>);

/// The keys that nodes of all kinds have.
pub(crate) const KEYS: &[Key] = &[Key::new(
    "kind",
    Value::Text("name of a kind"),
    Absent::Required,
    "Kind of the node. Built in: `\"mirror\"`. A program that embeds the switch can add kinds of its own.",
    "\"mirror\"",
)];

/// The keys that only a mirror has.
pub(crate) const MIRROR_KEYS: &[Key] = &[Key::new(
    "to",
    Value::Text("port name"),
    Absent::Required,
    "Mirror port: the port that gets the copies, which may be a tunnel. It is in no patch and no bridge, has no \
     `nodes` and no `egress-nodes`, and carries no underlay.",
    "\"monitor\"",
)];

type Make = dyn Fn(&mut NodeSettings<'_, '_>) -> Arc<dyn Prototype> + Send + Sync;

impl Kinds {
    /// The built-in kinds.
    #[must_use]
    pub fn new() -> Self {
        Self(Vec::new()).with("mirror", |settings| {
            let copy = settings.output("to");
            Mirror::new(copy, settings.port(copy))
        })
    }

    /// Adds the kind that a file calls `name`, in place of a kind of that name. `make` reads the
    /// keys of a section and makes the node.
    ///
    /// In a port's list of nodes, edge 0 leads to the next node. Each call of
    /// [`NodeSettings::output`] gives the node one more edge.
    ///
    /// A node in `egress-nodes` may change packets: other ports do not see it, even if they share a
    /// flooded packet. In a bridge this takes some time for each packet, unless the node says that
    /// it changes nothing ([`Node::changes_packets`]).
    ///
    /// The node is cloned for each place in each worker's graph, and again whenever such a graph is
    /// made anew, as at a reload. Keep state that is remembered or shared behind an `Arc`. As long
    /// as the section does not change, all nodes are clones of the same prototype.
    #[must_use]
    pub fn with<N: Node + Clone + Sync + 'static>(
        mut self,
        name: &str,
        make: impl Fn(&mut NodeSettings<'_, '_>) -> N + Send + Sync + 'static,
    ) -> Self {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), Arc::new(move |settings| Arc::new(make(settings)))));
        self
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }
}

impl Default for Kinds {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kinds").field(&self.names()).finish()
    }
}

/// A node that others are cloned from.
trait Prototype: Send + Sync {
    fn another(&self) -> Box<dyn Node>;

    fn may_change_packets(&self) -> bool;

    fn control_half(&self) -> Option<Arc<dyn NodeControl>>;
}

impl<N: Node + Clone + Sync + 'static> Prototype for N {
    fn another(&self) -> Box<dyn Node> {
        Box::new(self.clone())
    }

    fn may_change_packets(&self) -> bool {
        self.changes_packets()
    }

    fn control_half(&self) -> Option<Arc<dyn NodeControl>> {
        self.control()
    }
}

/// The keys of a section `[node.NAME]`, for its kind to read.
///
/// A key that is absent has its default. A key that is wrong has its default as well, and the
/// configuration is refused with an error at its line. A key that the kind does not read is
/// unknown.
pub struct NodeSettings<'a, 't> {
    name: &'a str,
    section: &'a Section<'a>,
    report: &'a mut Findings<'t>,
    read: Vec<Setting>,
    /// The outputs of the node, those of other tables of the section too.
    outputs: Vec<OutputSite>,
    /// Those outputs that this table names, by index.
    own: Vec<usize>,
}

/// A key that a kind has read.
#[derive(Clone, Debug)]
struct Setting {
    /// The key; those of a list of tables have their place in the list before it.
    key: String,
    value: String,
    /// The line of the file, as messages name it.
    place: String,
}

/// A setting has the same meaning on any line.
impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.value == other.value
    }
}

/// A key that names a port, to whose output a node has an edge.
pub(crate) struct OutputSite {
    pub(crate) key: String,
    pub(crate) port: String,
    pub(crate) span: Span,
}

impl fmt::Debug for NodeSettings<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSettings")
            .field("of", &self.section.title())
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl NodeSettings<'_, '_> {
    /// Returns the name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// Reads a number in this range.
    pub fn integer<T>(&mut self, key: &str, range: RangeInclusive<T>, default: T) -> T
    where
        T: TryFrom<i64> + PartialOrd + fmt::Display,
    {
        let value = self.section.integer(key, range, self.report).map_or(default, Spanned::into_inner);
        self.note(key, &value);
        value
    }

    /// Reads true or false.
    pub fn boolean(&mut self, key: &str, default: bool) -> bool {
        let value = self.section.boolean(key, self.report).map_or(default, Spanned::into_inner);
        self.note(key, &value);
        value
    }

    /// Reads a text.
    pub fn text(&mut self, key: &str, default: &str) -> String {
        let text = self.section.text(key, &format!("{key} = {default:?}"), self.report);
        let value = text.map_or(default, Spanned::into_inner).to_owned();
        self.note(key, &value);
        value
    }

    /// Reads the name of a port and gives the node an edge to that port's output. The key must be
    /// there. Returns the number of the edge: 1 for the first one.
    ///
    /// The output delivers copies: the packets also go on along edge 0, or are dropped. The port is
    /// in no patch and no bridge.
    pub fn output(&mut self, key: &str) -> usize {
        let example = format!("{key} = \"vm1\"");
        let text = self.section.text(key, &example, self.report);
        let (port, span) = text.map_or_else(Default::default, |text| ((*text.get_ref()).to_owned(), text.span()));
        self.note(key, &port);
        self.own.push(self.outputs.len());
        self.outputs.push(OutputSite { key: key.to_owned(), port, span });
        self.outputs.len()
    }

    /// Returns the name of the port that an edge leads to; empty for an edge that leads to none.
    #[must_use]
    pub fn port(&self, edge: usize) -> &str {
        let site = edge.checked_sub(1).and_then(|at| self.outputs.get(at));
        site.map_or("", |site| &site.port)
    }

    /// Reads a list of texts. It is empty if the key is absent.
    pub fn texts(&mut self, key: &str) -> Vec<String> {
        let texts = self.section.texts(key, &format!("{key} = [\"one\", \"two\"]"), self.report);
        let texts = texts.map_or_else(Vec::new, Spanned::into_inner);
        let texts: Vec<_> = texts.into_iter().map(|text| text.into_inner().to_owned()).collect();
        self.note(key, &format_args!("{texts:?}"));
        texts
    }

    /// Reads a list of tables, such as rules: `rules = [{ port = 80 }, { port = 443 }]`, or a section
    /// `[[node.NAME.rules]]` for each. `read` reads the keys of one table, as a kind reads those of its
    /// section. The list is empty if the key is absent.
    pub fn tables<R>(&mut self, key: &str, mut read: impl FnMut(&mut NodeSettings<'_, '_>) -> R) -> Vec<R> {
        let sections = self.section.sections(key, &format!("{key} = [{{ ... }}, {{ ... }}]"), self.report);
        let mut tables = Vec::new();
        self.note(key, &sections.len());
        for (at, section) in sections.iter().enumerate() {
            let outputs = std::mem::take(&mut self.outputs);
            let mut inner = NodeSettings {
                name: self.name,
                section,
                report: self.report,
                read: Vec::new(),
                outputs,
                own: Vec::new(),
            };
            tables.push(read(&mut inner));
            inner.finish(&[]);
            let NodeSettings { read, outputs, .. } = inner;
            self.outputs = outputs;
            let whole = |inner: &str| format!("{key}[{at}].{inner}");
            self.read.extend(read.into_iter().map(|setting| Setting { key: whole(&setting.key), ..setting }));
        }
        tables
    }

    /// Refuses the value of a key. The reason follows "in node ...: " in the message.
    pub fn refuse(&mut self, key: &str, why: &str) {
        let span = self.span(key);
        self.report.error(&span, format!("{key} in {}: {why}", self.section.title()));
    }

    /// Refuses keys that were not read, and edges without a port. Keys of inner tables are checked already.
    fn finish(&mut self, others: &[&str]) {
        let read = self.read.iter().filter(|setting| !setting.key.contains('['));
        let keys: Vec<_> = others.iter().copied().chain(read.map(|setting| setting.key.as_str())).collect();
        self.section.only_names(&keys, self.report);
        let sites = self.own.iter().map(|&at| &self.outputs[at]);
        for site in sites.filter(|site| self.section.get(&site.key).is_none()) {
            self.section.missing(&site.key, &format!("{} = \"vm1\"", site.key), self.report);
        }
    }

    /// Returns the place of a key, or of the section if the key is absent.
    fn span(&self, key: &str) -> Span {
        self.section.get(key).map_or(self.section.span().clone(), Spanned::span)
    }

    fn note(&mut self, key: &str, value: &dyn fmt::Display) {
        let place = place(self.report, &self.span(key));
        self.read.push(Setting { key: key.to_owned(), value: value.to_string(), place });
    }
}

/// Returns a line of the file as messages name it.
fn place(report: &Findings<'_>, span: &Span) -> String {
    let site = report.site(span);
    site.line.map_or_else(|| site.file.clone(), |line| format!("{}:{line}", site.file))
}

/// A section `[node.NAME]`: a node that ports can name in `nodes` and `egress-nodes`.
#[derive(Clone)]
pub struct NodeConfig {
    /// The name, unique among nodes.
    pub name: String,
    /// The name of the kind.
    pub kind: String,
    /// The keys that its kind has read. `None` for a node that was made by hand: its settings are
    /// unknown.
    settings: Option<Vec<Setting>>,
    /// The line of the section, as messages name it; empty for a node that was made by hand.
    place: String,
    /// The names of the ports to whose outputs edges 1 and up lead.
    outputs: Vec<String>,
    prototype: Arc<dyn Prototype>,
}

impl NodeConfig {
    /// Creates a node that no configuration file has.
    pub fn new<N: Node + Clone + Sync + 'static>(name: impl Into<String>, kind: impl Into<String>, node: N) -> Self {
        let name = name.into();
        let kind = kind.into();
        Self { name, kind, settings: None, place: String::new(), outputs: Vec::new(), prototype: Arc::new(node) }
    }

    /// Adds an edge to the output of a port, as [`NodeSettings::output`] does. The first one is
    /// edge 1.
    #[must_use]
    pub fn with_output(mut self, port: impl Into<String>) -> Self {
        self.outputs.push(port.into());
        self
    }

    /// The names of the ports to whose outputs edges 1 and up lead.
    pub fn outputs(&self) -> &[String] {
        &self.outputs
    }

    /// Clones the node for a graph.
    pub fn another(&self) -> Box<dyn Node> {
        self.prototype.another()
    }

    /// Returns the control half of the node, if it has one.
    pub fn control(&self) -> Option<Arc<dyn NodeControl>> {
        self.prototype.control_half()
    }

    /// Returns an error about a key of the section, or about the section: the line, the key and the
    /// reason.
    pub fn refusal(&self, key: Option<&str>, why: &str) -> String {
        let setting = self.settings.iter().flatten().find(|setting| Some(setting.key.as_str()) == key);
        let place = setting.map_or(self.place.as_str(), |setting| &setting.place);
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        let key = key.map_or_else(String::new, |key| format!("{key} in "));
        format!("{place}{key}node {:?}: {why}", self.name)
    }

    /// Returns whether the node may change or drop packets.
    pub fn changes_packets(&self) -> bool {
        self.prototype.may_change_packets()
    }

    /// Returns the kind and its keys, as messages show them.
    pub fn describe(&self) -> String {
        let settings = self.settings.iter().flatten();
        let settings = settings.map(|Setting { key, value, .. }| format!(", {key} {value}"));
        self.kind.clone() + &settings.collect::<String>()
    }
}

impl fmt::Debug for NodeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeConfig").field("name", &self.name).field("is", &self.describe()).finish_non_exhaustive()
    }
}

/// Nodes are equal if they are cloned from the same prototype, or were read from sections with
/// equal contents.
impl PartialEq for NodeConfig {
    fn eq(&self, other: &Self) -> bool {
        let reads_the_same = self.settings.is_some() && self.settings == other.settings;
        self.name == other.name
            && self.kind == other.kind
            && self.outputs == other.outputs
            && (reads_the_same || Arc::ptr_eq(&self.prototype, &other.prototype))
    }
}

impl Eq for NodeConfig {}

/// A section as later checks see it, even if its kind could not make a node of it.
pub(crate) struct NodeSite {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) outputs: Vec<OutputSite>,
}

pub(crate) fn read(name: &str, section: &Section<'_>, kinds: &Kinds, report: &mut Findings<'_>, draft: &mut Draft) {
    let outputs = read_kind(name, section, kinds, report, draft);
    draft.node_sites.push(NodeSite { name: name.to_owned(), span: section.span().clone(), outputs });
}

/// Reads the keys of a section as its kind asks for them. Returns the node's outputs.
fn read_kind(
    name: &str,
    section: &Section<'_>,
    kinds: &Kinds,
    report: &mut Findings<'_>,
    draft: &mut Draft,
) -> Vec<OutputSite> {
    let names = kinds.names();
    let example = format!("kind = {:?}", names.first().unwrap_or(&"..."));
    if section.get("kind").is_none() {
        section.missing("kind", &example, report);
    }
    let Some(kind) = section.text("kind", &example, report) else { return Vec::new() };
    let word = *kind.get_ref();
    let Some((_, make)) = kinds.0.iter().find(|(known, _)| known == word) else {
        let known = hint(word, &names, "known");
        report.error(&kind.span(), format!("kind {word:?} in {}: unknown; {known}", section.title()));
        return Vec::new();
    };
    let mut settings = NodeSettings { name, section, report, read: Vec::new(), outputs: Vec::new(), own: Vec::new() };
    let prototype = make(&mut settings);
    settings.finish(&["kind"]);
    let NodeSettings { read, outputs: sites, .. } = settings;
    let place = place(report, section.span());
    let kind = word.to_owned();
    let outputs = sites.iter().map(|site| site.port.clone()).collect();
    draft.nodes.push(NodeConfig { name: name.to_owned(), kind, settings: Some(read), place, outputs, prototype });
    sites
}
