//! `straightline evpn`

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use serde::de::DeserializeOwned;
use straightline_evpn::config::Config;
use straightline_evpn::process::{self, Question, ask};
use tracing_subscriber::EnvFilter;

use crate::cli::{Evpn, EvpnAsking, EvpnCommand};
use crate::output;

pub(crate) fn execute(args: &Evpn) -> anyhow::Result<()> {
    match (&args.command, &args.config) {
        (Some(EvpnCommand::Check { config }), _) => {
            Config::load(config)?;
            output::answer("ok\n")
        }
        (Some(EvpnCommand::Generate { config, output: path }), _) => {
            let text = Config::load(config)?.gobgpd()?;
            match path {
                None => output::answer(&text),
                Some(path) => write(path, &text).with_context(|| format!("cannot write {}", path.display())),
            }
        }
        (Some(EvpnCommand::Status(asking)), _) => print(asking, Question::Status, process::status_text),
        (Some(EvpnCommand::Routes(asking)), _) => print(asking, Question::Routes, process::routes_text),
        (None, Some(config)) => run(Config::load(config)?),
        // Clap asks for one of them.
        (None, None) => Ok(()),
    }
}

/// Runs until SIGTERM or SIGINT. Prints `ready` once it answers questions.
fn run(config: Config) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,straightline=info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(io::stderr).init();
    let socket = config.socket.clone().unwrap_or_default();
    let mut printed = Ok(());
    process::run(config, || printed = output::answer("ready\n"))
        .with_context(|| format!("cannot run; its socket is {}", socket.display()))?;
    printed
}

/// Writes a file that others cannot read: it has the keys of sessions.
fn write(path: &Path, text: &str) -> io::Result<()> {
    // A file that is there already keeps its mode, so it is replaced.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn print<A: DeserializeOwned>(asking: &EvpnAsking, question: Question, text: fn(&A) -> String) -> anyhow::Result<()> {
    let (answer, json) = ask::<A>(&asking.socket, question)?;
    output::answer(&if asking.json { json } else { text(&answer) })
}
