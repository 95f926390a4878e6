//! `straightline runtime`

use std::thread;
use std::time::Duration;

use straightline_api::rates::{Rates, Sample};
use straightline_api::{self as api, Command, Request, table};

use super::query::print;
use crate::cli::Runtime;
use crate::output;

/// Shows how the workers spent their time: since the start, since the last `--clear`, or in an
/// interval.
pub(crate) fn execute(args: &Runtime) -> anyhow::Result<()> {
    let Runtime { interval, clear, asking } = args;
    if *clear {
        return Ok(api::send(&asking.api, &Request::ClearRuntime).map(drop)?);
    }
    let Some(seconds) = interval else {
        let json = api::request(&asking.api, Command::Runtime)?;
        return print(asking, &json, |json| Ok(table::runtime(&serde_json::from_str(json)?)));
    };
    let before = Sample::ask(&asking.api)?;
    thread::sleep(Duration::from_secs_f64(*seconds));
    let now = Sample::ask(&asking.api)?;
    let passed = now.runtime.answer.after_answer(&before.runtime.answer);
    if asking.json {
        return output::answer(&format!("{}\n", serde_json::to_string(&passed)?));
    }
    let total = Rates::between(&before, &now).total;
    output::answer(&format!("{}{}", table::total(&total), table::runtime(&passed)))
}
