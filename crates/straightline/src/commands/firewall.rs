//! `straightline firewall`: the groups of a running switch.

use straightline_api::{self as api, ExplainRequest, Request, table};

use super::query::print;
use crate::cli::Firewall;

pub(crate) fn execute(firewall: &Firewall) -> anyhow::Result<()> {
    let Firewall::Explain { port, packet, asking } = firewall;
    let request = ExplainRequest { port: port.clone(), packet: packet.clone() };
    let json = api::send(&asking.api, &Request::Explain(request))?;
    print(asking, &json, |json| Ok(table::explanation(&serde_json::from_str(json)?)))
}
