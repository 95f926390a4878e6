//! The attacker changes owners and permission bits of files that are not the switch's. A switch that
//! gives its sockets to other users has the most rights: another process has these in its place.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown, lchown};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, chmodat, chownat, fchmod};
use straightline_config::Config;
use straightline_switch::{Switch, sandbox, socket_maker};

use super::{MAKER, TAKEN_OVER, tell};

/// The user to whom the attacked file belongs.
const VICTIM: u32 = 4242;

/// The calls of the attacker. Each would change the file.
const ATTACKS: [&str; 8] =
    ["chown", "lchown", "fchown", "fchownat", "chmod", "fchmod", "fchmodat", "fchmod, special bits"];

/// The test, in which root is needed for a switch that has these rights to give up.
pub(crate) fn files_of_others_stay_as_they_are() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(io::stdout(), "\nskipped files_of_others_stay_as_they_are: only root can give a socket away");
        return;
    }
    // Without the filter of system calls, only the lack of the right is left.
    for switch in ["", "sandbox = [\"capabilities\"]"] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "secret").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its bits");
        chown(&file, Some(VICTIM), Some(VICTIM)).expect("its owner");
        let program = folder.path().join("program");
        fs::write(&program, "#!/bin/sh\n").expect("a file of the switch's user");
        let before = facts(&file);
        let (ends, status) = attacked(folder.path(), switch);
        for field in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            let line = format!("{field}:\t0000000000000000\n");
            assert!(status.contains(&line), "{field} of the switch, [{switch}]: {status}");
        }
        assert_eq!(facts(&file), before, "[{switch}]: {ends}");
        for attack in ATTACKS {
            let line = format!("{attack} = {}\n", libc::EPERM);
            assert!(ends.contains(&line), "{attack}, [{switch}]: {ends}");
        }
        // The switch may change its own files, but without the filter only.
        let is_special = facts(&program).2 & 0o7000 != 0;
        assert_eq!(is_special, !switch.is_empty(), "[{switch}]: {ends}");
        assert!(ends.contains("a socket for another user = done\n"), "[{switch}]: {ends}");
    }
}

fn facts(file: &Path) -> (u32, u32, u32) {
    let metadata = fs::metadata(file).expect("the file");
    (metadata.uid(), metadata.gid(), metadata.mode())
}

/// Has a switch with these keys taken over. Returns the ends of its calls, and its lines in /proc
/// meanwhile.
fn attacked(folder: &Path, switch: &str) -> (String, String) {
    let at = folder.display();
    let port = format!("[port.p]\nkind = \"vhost-user\"\nsocket = \"{at}/own/p\"\nowner = \"1\"\n");
    fs::create_dir(folder.join("own")).expect("a folder");
    fs::write(folder.join("own/c.toml"), format!("[switch]\n{switch}\n{port}[bridge.b]\nports = [\"p\"]\n"))
        .expect("a configuration");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(TAKEN_OVER, folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut text = String::new();
    // It has entered the sandbox, and waits.
    out.read_line(&mut text).expect("a line");
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("a process");
    drop(child.stdin.take());
    out.read_to_string(&mut text).expect("lines");
    let end = child.wait().expect("its end");
    assert!(end.success(), "{end}: {text}");
    (text, status)
}

/// The process that is taken over. It tries all calls at a file of which it has a descriptor, as a
/// frontend may send it one.
pub(crate) fn attack(folder: &Path) -> io::Result<()> {
    let file = folder.join("own/c.toml");
    let config = Config::load(&file).expect("a good configuration").config;
    let path = folder.join("file");
    let sent = File::open(&path)?;
    let own = File::open(folder.join("program"))?;
    let mut maker = Command::new(std::env::current_exe()?);
    maker.env(MAKER, "").stderr(Stdio::null());
    socket_maker::start(&config, maker, &straightline_graph::Clock::real()).expect("the process that makes sockets");
    sandbox::enter(&config, &file).expect("the sandbox");
    tell("in the sandbox", Ok(()))?;
    io::stdin().read_line(&mut String::new())?;

    let running = Switch::start(&config);
    let made = running.as_ref().ok().and_then(|_| fs::metadata(folder.join("own/p")).ok());
    let is_given = made.is_some_and(|made| made.uid() == 1);
    tell("a socket for another user", if is_given { Ok(()) } else { Err(io::Error::other(format!("{running:?}"))) })?;
    let user = Uid::from_raw(1);
    let group = Gid::from_raw(1);
    let bits = Mode::from_raw_mode(0o666);
    tell("chown", chown(&path, Some(1), None))?;
    tell("lchown", lchown(&path, Some(1), None))?;
    tell("fchown", fchown(&sent, None, Some(1)))?;
    tell("fchownat", chownat(CWD, &path, Some(user), Some(group), AtFlags::empty()).map_err(Into::into))?;
    tell("chmod", fs::set_permissions(&path, fs::Permissions::from_mode(0o666)))?;
    tell("fchmod", fchmod(sent.as_fd(), bits).map_err(Into::into))?;
    tell("fchmodat", chmodat(CWD, &path, bits, AtFlags::empty()).map_err(Into::into))?;
    tell("fchmod, special bits", sent.set_permissions(fs::Permissions::from_mode(0o4755)))?;
    tell("fchmod of its own program", own.set_permissions(fs::Permissions::from_mode(0o4755)))
}
