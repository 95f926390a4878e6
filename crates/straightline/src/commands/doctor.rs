//! `straightline doctor [CONFIG]`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use straightline_api::{DEFAULT_PATH, Port};
use straightline_config::{Config, Diagnostic, Interfaces, Kinds, PortConfig};
use straightline_doctor::facts::{Configured, ConfiguredPort};
use straightline_doctor::{checks, gather};
use straightline_graph::Permissions;

use crate::cli::Doctor;
use crate::output::{self, Reported};

/// Prints the findings. It fails if a check does.
pub(crate) fn execute(args: &Doctor, kinds: &Kinds) -> anyhow::Result<()> {
    let configured = args.config.as_deref().map(|path| configured(path, kinds));
    let in_file = configured.as_ref().and_then(|file| file.api.clone());
    let api = args.api.clone().or(in_file).unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
    let report = checks::run(&gather::facts(&api, &args.evpn, configured));
    if args.json {
        output::answer(&format!("{}\n", serde_json::to_string(&report)?))?;
    } else {
        let stdout = std::io::stdout();
        let has_colours = stdout.is_terminal() && anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
        output::answer(&report.text(args.all, has_colours))?;
    }
    match report.exit_code(args.strict) {
        0 => Ok(()),
        // The findings are the message.
        _ => Err(Reported.into()),
    }
}

/// Reads a configuration file.
pub(super) fn configured(path: &Path, kinds: &Kinds) -> Configured {
    let file = Configured { path: path.to_owned(), ..Configured::default() };
    match Config::load_with(path, kinds) {
        Err(errors) => Configured { errors: errors.0.iter().map(line).collect(), api: likely_api(path), ..file },
        Ok(loaded) => {
            let here = loaded.on_machine(&Interfaces::of_this_machine(), &Config::default());
            Configured {
                errors: here.errors.iter().map(line).collect(),
                warnings: loaded.warnings.iter().chain(&here.warnings).map(line).collect(),
                missing_privileges: loaded.missing_privileges().map(|missing| missing.message),
                api: loaded.config.switch.api.clone(),
                ports: loaded.config.ports.iter().map(|port| configured_port(&loaded.config, port)).collect(),
                ..file
            }
        }
    }
}

/// Returns the `api` of `[switch]` in a file that has errors: the switch may run since before they
/// were made.
fn likely_api(path: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(path).ok()?;
    let (_, section) = text.split_once("[switch]")?;
    let lines = section.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    let of_key =
        |line: &str| line.strip_prefix("api")?.trim_start().strip_prefix('=').map(|rest| rest.trim().to_owned());
    let value = lines.filter_map(of_key).next()?;
    let quote = value.chars().next().filter(|first| ['"', '\''].contains(first))?;
    value[1..].split_once(quote).map(|(path, _)| PathBuf::from(path))
}

/// Returns a finding without the excerpt of the file, which takes lines of its own.
fn line(finding: &Diagnostic) -> String {
    Diagnostic { excerpt: String::new(), ..finding.clone() }.to_string()
}

/// Returns a port of the configuration as the API would describe it.
fn configured_port(config: &Config, port: &PortConfig) -> ConfiguredPort {
    let described = Port { joined: config.joined(&port.name), ..port.described() };
    let Permissions { owner, group, mode } = port.kind.permissions();
    ConfiguredPort { port: described, owner, group, perms: mode.unwrap_or(0) }
}
