//! The Debian package: installed, run as its service is, upgraded, removed and purged.
//!
//! The package is installed into a copy of this machine's root, an overlay in a mount namespace. So
//! nothing is left behind. What the machine has of the package, of its users and of libvirt's is
//! removed from the copy first: the tests pass on a machine that uses the package. No service manager
//! runs there: the test reads the lines of the unit, and does what systemd would do.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

mod web;

use super::outside::document::{HostName, Place, sections};
use crate::guest::LinuxGuest;
use crate::lab::Lab;
use crate::machine::Need;
use crate::proc::{self, Proc};
use crate::runner::{Test, beside_others};
use crate::say::say;

const CONFIG: &str = "/etc/straightline/switch.toml";

const README: &str = include_str!("../../../../README.md");

pub(super) fn tests() -> Vec<Test> {
    beside_others(vec![
        Test::new("package", &[Need::Package], package),
        Test::new("package_qemu_folder", &[Need::Package, Need::Namespaces, Need::QemuNet], qemu_folder),
        Test::new("package_first_vm", &[Need::Package, Need::Namespaces, Need::Qemu], first_vm),
    ])
}

/// The section of the README that leads from the package to a VM that pings.
const FIRST_VM: &str = "A VM in five minutes";

/// Does what the README says, as a user pastes it.
fn first_vm(lab: &Lab) -> Result<()> {
    let root = Root::new(lab, Network::Own)?;
    let section = sections(README).into_iter().find(|section| section.title == FIRST_VM);
    let section = section.with_context(|| format!("the README has no section {FIRST_VM:?}"))?;
    let mut service = None;
    let mut guest: Option<LinuxGuest> = None;
    for (place, block) in &section.blocks {
        match place {
            Place::File(file) => {
                let file = file.strip_prefix("append to ").context("the README adds to the file of the package")?;
                root.append(file, &block.replace("\"you\"", "\"root\""))?;
            }
            Place::Host(HostName::Only) => {
                for line in block.lines().filter(|line| !line.starts_with('#')) {
                    if line.contains("apt-get install") {
                        root.sh(&format!("dpkg --install {}", lab.machine.package()?.display()))?;
                    } else if line == "sudo systemctl restart straightline" {
                        service = Some(root.start_service(lab)?);
                    } else if !line.starts_with("cargo xtask deb") {
                        root.sh(line.trim_start_matches("sudo "))?;
                    }
                }
            }
            Place::Terminal(HostName::Only) => {
                // The guest's system comes from files, and it runs without KVM.
                let mut command = block.replace("\\\n", " ");
                let disk = " -nographic -drive file=disk.qcow2,if=virtio";
                for (text, other) in [(disk, ""), ("accel=kvm", "accel=tcg"), (",netdev=n", ",netdev=n,vectors=0")] {
                    ensure!(command.matches(text).count() == 1, "the command of QEMU has not one `{text}`: {command}");
                    command = command.replace(text, other);
                }
                for file in [lab.machine.kernel()?, lab.machine.qemu_initrd()?] {
                    root.bind(&file.display().to_string())?;
                }
                let arguments: Vec<&str> = command.lines().skip(1).flat_map(str::split_whitespace).collect();
                guest = Some(LinuxGuest::start_machine(lab, 1, root.command(&arguments))?);
            }
            Place::Vm(1) => {
                let guest = guest.as_mut().context("the VM has not been started")?;
                guest.boot()?;
                for line in block.lines().skip(1) {
                    guest.sh(line)?;
                }
            }
            place => bail!("nothing is known about {place:?}"),
        }
    }
    ensure!(service.is_some() && guest.is_some(), "the section starts no service or no VM");
    let ports = root.sh("straightline ports")?;
    let heads = ports.lines().filter(|line| !line.is_empty() && !line.starts_with(' '));
    let links: Vec<&str> = heads.filter_map(|line| line.split_whitespace().last()).collect();
    ensure!(links == ["up", "up"], "not both links are up: {ports}");
    let offered = "COMPLETE=bash _CLAP_COMPLETE_INDEX=2 straightline -- straightline link ''";
    let offered = root.sh(offered)?;
    let names: Vec<&str> = offered.split_whitespace().filter(|word| !word.starts_with('-')).collect();
    let heads = ports.lines().filter(|line| !line.is_empty() && !line.starts_with(' '));
    let ports: Vec<&str> = heads.filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(names == ports, "the shell completes {names:?}, and the ports are {ports:?}");
    say!("  from the package to a VM that pings");
    Ok(())
}

fn package(lab: &Lab) -> Result<()> {
    let root = Root::new(lab, Network::OfMachine)?;
    let package = lab.machine.package()?;
    root.sh(&format!("dpkg --install {}", package.display()))?;
    root.sh("id straightline && straightline --version && test -s /usr/share/man/man1/straightline-run.1.gz")?;
    root.sh("test -s /usr/share/man/man5/straightline.toml.5.gz")?;
    root.sh(
        "cd /usr/share/doc/straightline && ls docs/images/*.png dist/grafana/straightline.json docs/benchmarks/*.md",
    )?;
    root.sh("bash -n /usr/share/bash-completion/completions/straightline")?;
    root.sh("test -x /usr/libexec/straightline-port && test -e /usr/share/qemu/vhost-user/50-straightline-net.json")?;
    let text = root.sh("cat /lib/systemd/system/straightline.service")?;
    let unit = Unit::parse(&text);
    if root.sh("command -v systemd-analyze").is_ok() {
        // The program of one unit comes from another package, which need not be installed.
        root.sh("test -x /usr/bin/gobgpd || ln -s /bin/true /usr/bin/gobgpd")?;
        // It ends with an error for findings, about units of others as well.
        let units =
            "straightline.service straightline-web.service straightline-evpn.service straightline-gobgpd.service";
        let findings = root.sh(&format!("systemd-analyze verify --man=no {units} 2>&1 || true"))?;
        let ours: Vec<&str> = findings.lines().filter(|line| line.contains("straightline")).collect();
        ensure!(ours.is_empty(), "systemd-analyze finds fault with the units: {ours:?}");
    }

    let user = root.runtime_folder(&unit)?;
    let folder = "/run/straightline";
    let manager = Manager::new(lab)?;
    let mut service = root.service(lab, &unit, Some(&manager))?;
    let ready = manager.wait("READY=1")?;
    ensure!(ready.contains("STATUS=0 of 0 ports up"), "the first status is {ready:?}");
    manager.wait("WATCHDOG=1")?;
    let owner = root.sh(&format!("stat -c %U {folder}/api.sock"))?;
    ensure!(owner.trim() == user, "the API's socket belongs to {owner}");
    root.sh("straightline status")?;
    web::serves_without_rights(lab, &root)?;

    // An edited file outlives the upgrade. A reload by `ExecReload=`, then one by signal.
    let port = r#"printf '[port.vm1]\nkind = "vhost-user"\nsocket = "/run/straightline/vm1.sock"\n'"#;
    root.sh(&format!("{port} >> {CONFIG}"))?;
    root.sh(unit.get("ExecReload")?)?;
    manager.wait("STATUS=0 of 1 ports up")?;
    service.signal(Signal::HUP)?;
    let reloading = manager.wait("RELOADING=1")?;
    ensure!(reloading.contains("MONOTONIC_USEC="), "systemd needs the time of the reload: {reloading:?}");
    manager.wait("READY=1")?;

    let newer = "sed -i 's/^Version: .*/&+newer/' /tmp/newer/DEBIAN/control";
    root.sh(&format!(
        "dpkg-deb -R {} /tmp/newer && {newer} && dpkg-deb -Zgzip -z1 -b /tmp/newer /tmp/newer.deb",
        package.display()
    ))?;
    root.sh("dpkg --install /tmp/newer.deb")?;
    let status = root.sh("straightline status")?;
    ensure!(service.ended()?.is_none(), "the upgrade has stopped the switch");
    ensure!(status.contains("of 1"), "the switch does not answer as before the upgrade: {status}");
    root.sh(&format!("grep -q vm1 {CONFIG}")).context("the upgrade has replaced the edited file")?;

    service.signal(Signal::TERM)?;
    manager.wait("STOPPING=1")?;
    let end = service.wait_end()?;
    ensure!(end.success(), "the service ended with {end}");
    root.sh(&format!("dpkg --remove straightline && test -e {CONFIG} && ! command -v straightline"))?;
    root.sh("dpkg --purge straightline && ! test -e /etc/straightline && ! test -e /run/straightline")?;
    say!("  installed, run, reloaded, upgraded, removed and purged");
    Ok(())
}

/// A port that connects to a QEMU of libvirt.
const CLIENT: &str = "\
[switch]
api = \"/run/straightline/api.sock\"
[port.vm1]
kind = \"vhost-user\"
socket = \"/run/straightline/qemu/vm1.sock\"
mode = \"client\"
[bridge.lan]
ports = [\"vm1\"]
";

/// libvirt's QEMU listens in the folder that the service makes, and the switch connects to it by the
/// folder's group, also after a crash.
fn qemu_folder(lab: &Lab) -> Result<()> {
    let root = Root::new(lab, Network::Own)?;
    root.sh(&format!("dpkg --install {}", lab.machine.package()?.display()))?;
    root.write(CONFIG, CLIENT)?;
    // Without libvirt there is no folder, and doctor says how to make it.
    let service = root.start_service(lab)?;
    let missing = root.sh("straightline doctor --json | grep -o '\"symptom\":\"[^\"]*qemu is missing\".*'")?;
    ensure!(missing.contains("install -d -o libvirt-qemu -g straightline -m 2750"), "doctor says {missing}");
    drop(service);
    root.sh("adduser --system --group --no-create-home --quiet libvirt-qemu")?;
    let mut service = root.start_service(lab)?;
    let made = root.sh("stat -c '%U %G %a' /run/straightline/qemu")?;
    ensure!(made.trim() == "libvirt-qemu straightline 2750", "the folder is {made}");

    let qemu = |umask: &str| {
        let machine = "qemu-system-x86_64 -machine none -nodefaults -nographic -monitor none -serial none";
        let net = "-chardev socket,id=c,path=/run/straightline/qemu/vm1.sock,server=on,wait=off \
                   -netdev vhost-user,id=n,chardev=c";
        let user = "setpriv --reuid=libvirt-qemu --regid=libvirt-qemu --clear-groups";
        let command = root.command(&["sh", "-c", &format!("umask {umask}; exec {user} {machine} {net}")]);
        Proc::start("qemu", command, &lab.log("qemu"))
    };
    let wait_for = |what: &str, text: &str| {
        proc::until(what, || Ok(root.sh("straightline ports --json")?.contains(text).then_some(())))
    };
    // A QEMU that was not started by libvirt keeps the group from its socket.
    let private = qemu("0022")?;
    wait_for("the switch may not connect", "\"cause\":\"connect-denied\"")?;
    let fix = root.sh("straightline doctor --json | grep -o 'start the VM again under `umask 0002`'")?;
    ensure!(!fix.is_empty(), "doctor does not say how to start QEMU");
    drop(private);
    let shared = qemu("0002")?;
    let connected = "a frontend is connected";
    wait_for("the switch connects", connected)?;
    service.signal(Signal::KILL)?;
    service.wait_end()?;
    let service = root.start_service(lab)?;
    wait_for("the switch connects again after a crash", connected)?;
    drop((shared, service));
    say!("  libvirt's QEMU listens, and the switch connects");
    Ok(())
}

/// The network of a [`Root`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    /// That of this machine.
    OfMachine,
    /// A namespace of its own.
    Own,
}

/// Removes the package, its files and users, and libvirt's user from the copy of the root, as if nobody
/// had installed them. Scripts of the installed package do not run: they might be of any version.
const FORGET: &str = "\
# The index of manual pages takes longer than all else that dpkg does.
rm -f /var/lib/man-db/auto-update
rm -f /var/lib/dpkg/info/straightline.*inst /var/lib/dpkg/info/straightline.*rm
for package in straightline straightline-dbgsym; do
    if dpkg-query --show $package >/dev/null 2>&1; then
        dpkg --purge --force-depends --force-remove-reinstreq $package || exit 1
    fi
done
# Settings, units of an administrator, notes of systemd, and an installation by hand.
rm -rf $(find /etc /var/lib/systemd -maxdepth 4 -name 'straightline*' -prune) /var/lib/straightline*
rm -f /usr/local/bin/straightline /usr/local/libexec/straightline-port
sed -E -i '/^(straightline|straightline-read|straightline-bgp|libvirt-qemu):/d' /etc/passwd /etc/group /etc/shadow
if test -e /etc/gshadow; then sed -E -i '/^(straightline|straightline-read|straightline-bgp|libvirt-qemu):/d' /etc/gshadow; fi
";

/// Folders of programs in the copy of the root.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A copy of the machine's root in a mount namespace, which ends with its process. Nothing of the
/// package is in it.
struct Root {
    holder: Proc,
    path: String,
    network: Network,
}

impl Root {
    fn new(lab: &Lab, network: Network) -> Result<Self> {
        // The folder of sockets is on a real file system or a tmpfs: an overlay takes either. Every user may open
        // the device of taps, as udev sets it; some machines leave it to root.
        let base = lab.socket("root").with_extension("");
        let path = base.display().to_string();
        let script = format!(
            "mkdir {path} && mount -t tmpfs none {path} && mkdir {path}/up {path}/work {path}/root && \
             mount -t overlay overlay -o lowerdir=/,upperdir={path}/up,workdir={path}/work {path}/root && \
             for one in proc sys dev; do mount --rbind /$one {path}/root/$one || exit 1; done && \
             mount -t tmpfs none {path}/root/run && mount -t tmpfs none {path}/root/tmp && \
             mount -t tmpfs none {path}/root/dev/net && mknod -m 666 {path}/root/dev/net/tun c 10 200 && \
             echo mounted && exec sleep 3600"
        );
        let mut command = Command::new("unshare");
        if network == Network::Own {
            command.arg("--net");
        }
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        let mut holder = Proc::start("root", command, &lab.log("root"))?;
        holder.wait_text("the copy of the root is mounted", 0, |text| text.contains("mounted").then_some(()))?;
        let root = Self { holder, path: format!("{path}/root"), network };
        root.sh(FORGET).context("the package of this machine cannot be removed from the copy of its root")?;
        root.bind(&lab.machine.package()?.display().to_string())?;
        Ok(root)
    }

    /// Makes a file visible that lies below another mount than the root's.
    fn bind(&self, file: &str) -> Result<()> {
        let root = &self.path;
        let id = self.holder.id();
        let copy = format!("mkdir -p \"$(dirname {root}{file})\" && cp {file} {root}{file}");
        let (code, _, err) = proc::run(Command::new("nsenter").args(["-t", &id.to_string(), "-m", "sh", "-c", &copy]))?;
        ensure!(code == Some(0), "cannot copy {file}: {err}");
        Ok(())
    }

    fn command(&self, program: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-m"]);
        if self.network == Network::Own {
            command.arg("-n");
        }
        command.args(["chroot", &self.path]).args(program);
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8").env("PATH", PATH);
        command
    }

    fn sh(&self, script: &str) -> Result<String> {
        let (code, out, err) = proc::run(&mut self.command(&["sh", "-c", script]))?;
        ensure!(code == Some(0), "`{script}` ended with {code:?}: {out}{err}");
        Ok(out)
    }

    /// Writes a file of the root.
    fn write(&self, file: &str, text: &str) -> Result<()> {
        self.sh(&format!("cat > {file} <<'END'\n{text}END\n")).map(drop)
    }

    /// Appends to a file of the root.
    fn append(&self, file: &str, text: &str) -> Result<()> {
        self.sh(&format!("cat >> {file} <<'END'\n{text}END\n")).map(drop)
    }

    /// Does what systemd does for `RuntimeDirectory=` and `ExecStartPre=`. Returns the service's user.
    fn runtime_folder(&self, unit: &Unit) -> Result<String> {
        let user = unit.get("User")?;
        let group = unit.get("Group")?;
        let mode = unit.get("RuntimeDirectoryMode")?;
        self.sh(&format!("install -d -o {user} -g {group} -m {mode} /run/{}", unit.get("RuntimeDirectory")?))?;
        // With all privileges (`+`).
        self.sh(unit.get("ExecStartPre")?.trim_start_matches('+'))?;
        Ok(user.to_owned())
    }

    /// Starts the service as a service manager would, and waits until it answers.
    fn start_service(&self, lab: &Lab) -> Result<Proc> {
        let unit = Unit::parse(&self.sh("cat /lib/systemd/system/straightline.service")?);
        self.runtime_folder(&unit)?;
        let mut service = self.service(lab, &unit, None)?;
        proc::until("the service answers", || {
            if let Some(end) = service.ended()? {
                bail!("the service ended with {end}");
            }
            Ok(self.sh("straightline status").ok())
        })?;
        Ok(service)
    }

    /// Starts the service as the unit says, with a watchdog of two seconds.
    fn service(&self, lab: &Lab, unit: &Unit, manager: Option<&Manager>) -> Result<Proc> {
        let capabilities: Vec<String> = unit
            .get("AmbientCapabilities")?
            .split(' ')
            .map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()))
            .collect();
        let capabilities = capabilities.join(",");
        let mut arguments = vec!["setpriv", "--clear-groups", "--no-new-privs"];
        let user = format!("--reuid={}", unit.get("User")?);
        let group = format!("--regid={}", unit.get("Group")?);
        let inherited = format!("--inh-caps={capabilities}");
        let ambient = format!("--ambient-caps={capabilities}");
        arguments.extend([&user, &group, &inherited, &ambient].map(String::as_str));
        arguments.extend(unit.get("ExecStart")?.split(' '));
        let mut command = self.command(&arguments);
        if let Some(manager) = manager {
            command.env("NOTIFY_SOCKET", &manager.name).env("WATCHDOG_USEC", "2000000");
        }
        Proc::start("service", command, &lab.log("service"))
    }
}

/// The settings of a unit's file, in its order.
struct Unit(Vec<(String, String)>);

impl Unit {
    fn parse(text: &str) -> Self {
        let settings = text.lines().filter(|line| !line.starts_with(['#', '[']));
        Self(settings.filter_map(|line| line.split_once('=')).map(|(key, value)| (key.into(), value.into())).collect())
    }

    fn get(&self, key: &str) -> Result<&str> {
        let found = self.0.iter().rfind(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).with_context(|| format!("the unit has no {key}="))
    }

    /// Returns the values of all lines with this key.
    fn all(&self, key: &str) -> Vec<&str> {
        self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }
}

/// The service manager's end of the socket.
struct Manager {
    socket: UnixDatagram,
    name: String,
}

impl Manager {
    fn new(lab: &Lab) -> Result<Self> {
        // An abstract address: the service sees another root.
        let name = lab.socket("notify").display().to_string();
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, name: format!("@{name}") })
    }

    /// Waits for a message that contains `text`. Returns the message.
    fn wait(&self, text: &str) -> Result<String> {
        proc::until(&format!("the message {text}"), || {
            let mut buffer = [0; 4096];
            while let Ok(length) = self.socket.recv(&mut buffer) {
                let message = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
                if message.contains(text) {
                    return Ok(Some(message));
                }
            }
            Ok(None)
        })
    }
}
