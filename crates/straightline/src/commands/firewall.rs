//! `straightline firewall`: the groups of a running switch.

use straightline_api::{self as api, ExplainRequest, Request, SetGroupRequest, SetGroupsRequest, SetsRequest, table};

use super::query::print;
use crate::cli::{Asking, Firewall};

pub(crate) fn execute(firewall: &Firewall) -> anyhow::Result<()> {
    match firewall {
        Firewall::Explain { port, packet, asking } => {
            let request = ExplainRequest { port: port.clone(), packet: packet.clone() };
            let json = api::send(&asking.api, &Request::Explain(request))?;
            print(asking, &json, |json| Ok(table::explanation(&serde_json::from_str(json)?)))
        }
        Firewall::List { asking } => {
            let json = api::send(&asking.api, &Request::Groups)?;
            print(asking, &json, |json| Ok(table::groups(&serde_json::from_str(json)?)))
        }
        Firewall::Sets { name, asking } => {
            let json = api::send(&asking.api, &Request::Sets(SetsRequest { name: name.clone() }))?;
            print(asking, &json, |json| Ok(table::sets(&serde_json::from_str(json)?)))
        }
        Firewall::Set { port, groups, asking } => {
            let request = SetGroupsRequest { port: port.clone(), groups: groups.clone() };
            let shown =
                if groups.is_empty() { "no groups: all its packets pass".to_owned() } else { groups.join(", ") };
            change(asking, &Request::SetGroups(request), &format!("{port}: {shown}\n"))
        }
        Firewall::Group { name, inbound, outbound, delete, asking } => {
            let [inbound, outbound] = [inbound, outbound].map(Clone::clone);
            let request = SetGroupRequest { name: name.clone(), inbound, outbound, delete: *delete };
            let what = if *delete { "deleted" } else { "set" };
            change(asking, &Request::SetGroup(request), &format!("group {name}: {what}\n"))
        }
    }
}

/// Sends a change, and prints what was done.
fn change(asking: &Asking, request: &Request, done: &str) -> anyhow::Result<()> {
    let json = api::send(&asking.api, request)?;
    print(asking, &json, |_| Ok(done.to_owned()))
}
