//! `straightline web`

use std::io;

use straightline_web::{Server, WebOptions, confine};
use tracing_subscriber::EnvFilter;

use crate::cli::Web;
use crate::output;

/// Serves until SIGTERM or SIGINT. Prints the page's address once it serves.
pub(crate) fn execute(args: Web) -> anyhow::Result<()> {
    let Web { listen, allow_host, api, evpn } = args;
    let options = WebOptions { listen, api, allow_hosts: allow_host, evpn };
    let switch = options.api.clone();
    let findings = move || serde_json::to_string(&straightline_doctor::report(&switch)).ok();
    let server = Server::bind(&options)?.with_findings(findings);
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,straightline=info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(io::stderr).init();
    let address = server.address();
    if !address.ip().is_loopback() {
        let warning = format!("{address} can be reached from other machines, and the server asks for no password");
        output::message("warning", &warning);
    }
    for note in confine(&options.api) {
        tracing::info!("sandbox: {note}");
    }
    let mut printed = Ok(());
    server.run(|| printed = output::answer(&format!("listening on http://{address}/\n")))?;
    printed
}
