//! `straightline init`

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use straightline_config::{Facts, initial_configuration};

use crate::cli::Init;
use crate::output;

/// Writes a configuration for this machine.
pub(crate) fn execute(args: &Init) -> anyhow::Result<()> {
    let facts = Facts::of_this_machine();
    let text = initial_configuration(&facts);
    if !facts.folder.is_dir() {
        let folder = facts.folder.display();
        let hint = format!("there is no folder {folder} for sockets yet; make it: sudo install -d -o $USER {folder}");
        output::message("warning", &hint);
    }
    if args.stdout || args.output == Path::new("-") {
        return output::answer(&text);
    }
    let name = args.output.display();
    let mut options = OpenOptions::new();
    options.write(true).create(args.force).truncate(args.force).create_new(!args.force);
    let mut file = match options.open(&args.output) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            anyhow::bail!("{name}: the file exists; name another one by --output, or overwrite it by --force")
        }
        opened => opened.with_context(|| format!("cannot write {name}"))?,
    };
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {name}"))?;
    output::answer(&format!("{name} is written. Run the switch: straightline run {name}\n"))
}
