//! A switch that was taken over: code of an attacker runs in its process. A process never leaves the
//! sandbox, so each attack is a process of its own (this program again).

mod files;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use straightline_switch::socket_maker;

/// The environment variable of the process that is taken over: its folder.
const TAKEN_OVER: &str = "STRAIGHTLINE_TEST_TAKEN_OVER";

/// The environment variable of the process that makes its sockets.
const MAKER: &str = "STRAIGHTLINE_TEST_SOCKET_MAKER";

fn main() -> ExitCode {
    if std::env::var_os(MAKER).is_some() {
        socket_maker::serve().expect("the end of the switch");
        return ExitCode::SUCCESS;
    }
    if let Some(folder) = std::env::var_os(TAKEN_OVER) {
        files::attack(Path::new(&folder)).expect("its output is read");
        return ExitCode::SUCCESS;
    }
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = vec![trial("files::files_of_others_stay_as_they_are", files::files_of_others_stay_as_they_are)];
    // It knows no times of tests, which `cargo xtask test` asks for.
    let arguments = Arguments::from_iter(std::env::args().filter(|argument| argument != "--report-time"));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Tells the result of an attacker's call, as a line of standard output.
fn tell<T>(what: &str, end: io::Result<T>) -> io::Result<()> {
    use io::Write;
    let end = match end {
        Ok(_) => "done".to_owned(),
        Err(error) => error.raw_os_error().map_or_else(|| error.to_string(), |number| number.to_string()),
    };
    let mut out = io::stdout();
    writeln!(out, "{what} = {end}")?;
    out.flush()
}
