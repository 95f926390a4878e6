//! The requests about flow tables, and their answers.

use serde::{Deserialize, Serialize};

/// The arguments of the request `flows`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowsRequest {
    /// The name of the bridge.
    pub bridge: String,
    /// Only flows that this match covers, in the words of `ovs-ofctl dump-flows`. Empty: all.
    #[serde(default)]
    pub filter: String,
    /// Ports have names in the texts, not numbers.
    #[serde(default)]
    pub names: bool,
    /// Only flows behind this place are of interest: `next` of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most flows of the answer.
    #[serde(default = "FlowsRequest::default_limit")]
    pub limit: u32,
}

impl FlowsRequest {
    /// The most flows of an answer, whatever the request asks for.
    pub const MOST: u32 = 10_000;

    fn default_limit() -> u32 {
        1000
    }

    /// Returns the request for the first flows of a bridge.
    #[must_use]
    pub fn new(bridge: impl Into<String>) -> Self {
        let limit = Self::default_limit();
        Self { bridge: bridge.into(), filter: String::new(), names: false, after: None, limit }
    }
}

/// A flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Flow {
    /// The flow as `ovs-ofctl dump-flows` prints it.
    pub text: String,
    /// The flow as `ovs-ofctl --no-stats dump-flows` prints it.
    pub short: String,
    /// The table.
    pub table: u8,
    /// The priority.
    pub priority: u16,
    /// The condition, without the priority.
    #[serde(rename = "match")]
    pub condition: String,
    /// The actions.
    pub actions: String,
    /// The cookie.
    pub cookie: u64,
    /// `file` or `api`: the maker, who alone may change the flow.
    pub owner: String,
    /// The packets that it has matched. One that is still to be segmented counts once.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The seconds since it was added.
    pub duration: f64,
    /// The seconds since its last packet, or since it was added.
    pub idle: f64,
    /// The seconds without a packet after which it ends; 0 for never.
    pub idle_timeout: u64,
    /// The seconds after which it ends; 0 for never.
    pub hard_timeout: u64,
}

/// The answer to `flows`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Flows {
    /// The name of the bridge.
    pub bridge: String,
    /// The flows: by table, then by priority, the greatest first. A flow that comes or goes between two
    /// requests is in the second answer or not; all others are in exactly one answer.
    pub flows: Vec<Flow>,
    /// The number of all flows of the bridge.
    pub total: u64,
    /// Most reads of memory, of a cache line each, that the search in one of the bridge's tables takes. No
    /// packet takes more.
    #[serde(default)]
    pub accesses: u64,
    /// The place of the last flow, if there may be flows behind it: the next request has it as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The arguments of the request `flow-lines`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowLines {
    /// Text that belongs before that of the connection's next `change-flows`. Its last line may end in
    /// the next text.
    pub text: String,
}

/// The arguments of the request `change-flows`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChangeFlows {
    /// The name of the bridge.
    pub bridge: String,
    /// `add`, `modify`, `modify-strict`, `delete`, `delete-strict` or `replace`.
    pub command: String,
    /// A flow in each line, behind the text of `flow-lines`.
    #[serde(default)]
    pub text: String,
}

/// The answer to `change-flows`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowsChanged {
    /// The number of added flows, those that replaced another one among them.
    pub added: u64,
    /// The number of flows with new actions.
    pub modified: u64,
    /// The number of deleted flows.
    pub deleted: u64,
    /// The number of flows of the configuration file that the change meant, and left alone.
    pub kept: u64,
}

/// The arguments of the request `meters`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MetersRequest {
    /// The name of the bridge.
    pub bridge: String,
}

/// A meter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowMeter {
    /// The meter as `ovs-ofctl dump-meters` prints it, in two lines.
    pub text: String,
    /// The number.
    pub meter: u32,
    /// `file` or `api`: the maker, who alone may change the meter.
    pub owner: String,
    /// The number of flows that use the meter.
    #[serde(default)]
    pub flows: u64,
    /// The number of packets that have passed. A packet that is still to be segmented counts as its
    /// segments.
    #[serde(default)]
    pub packets: u64,
    /// Bytes of the frames that have passed, without check sequences.
    #[serde(default)]
    pub bytes: u64,
    /// The number of packets that were dropped.
    #[serde(default)]
    pub dropped: u64,
}

/// The answer to `meters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Meters {
    /// The name of the bridge.
    pub bridge: String,
    /// The meters by number.
    pub meters: Vec<FlowMeter>,
}

/// The arguments of the request `change-meter`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChangeMeter {
    /// The name of the bridge.
    pub bridge: String,
    /// `add`, `modify` or `delete`.
    pub command: String,
    /// The meter in the words of `ovs-ofctl`; for `delete` its number is enough.
    pub meter: String,
}

/// The arguments of the request `trace-flow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TraceFlow {
    /// The name of the bridge.
    pub bridge: String,
    /// The packet, as a match: fields that it does not name are 0.
    pub packet: String,
}

/// The answer to `trace-flow`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowTrace {
    /// The name of the bridge.
    pub bridge: String,
    /// The packet's way: a line for each table, rule and action.
    pub lines: Vec<String>,
}
