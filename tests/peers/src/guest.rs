//! A Linux guest on a vhost-user socket. It takes commands over its console, and ends with its
//! value. A network namespace can take its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::initrd::{BRIDGE, CONSOLE, IPV6, MARK, TUNNELS};
use crate::lab::{Lab, Scene};
use crate::machine::UML_MIB;
use crate::net::Namespace;
use crate::proc::{PATIENCE, Proc};

/// The kind of machine that runs the guest's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestKind {
    /// User Mode Linux: a kernel as a process. It runs at nearly native speed and boots in about
    /// two seconds.
    Uml,
    /// QEMU under software emulation.
    Qemu(Qemu),
    /// No guest, but a shell in a network namespace of this machine, with the same console.
    Namespace,
}

/// Options of a QEMU guest: additional properties of its socket, of its network backend and of its
/// device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Qemu {
    pub(crate) chardev: &'static str,
    pub(crate) netdev: &'static str,
    pub(crate) device: &'static str,
}

/// Limit of the wait for the state of a guest, for the report of a failure: the guest may hang.
const REPORT: Duration = Duration::from_secs(5);

/// A command that a guest is running.
pub(crate) struct RunningCommand {
    id: u32,
    /// Position in the output at which the answer begins.
    mark: usize,
    command: String,
}

/// A running guest with the address 10.77.0.`number`.
pub(crate) struct LinuxGuest {
    proc: Proc,
    kind: GuestKind,
    /// Name of its interface.
    pub(crate) interface: String,
    /// The guest's number, 1 to 9: the last part of its IP and MAC addresses.
    pub(crate) number: u8,
    commands: u32,
    scene: Scene,
    /// Log of its state, for the report of a failure.
    log: PathBuf,
}

impl Drop for LinuxGuest {
    /// Keeps the state of the switch and of the guest for the report, if the test has failed.
    fn drop(&mut self) {
        if !self.scene.is_open() {
            return;
        }
        self.scene.keep();
        let before = self.proc.state();
        let counters = match self.kind {
            GuestKind::Namespace => format!("{COUNTERS}; ss -tinm"),
            GuestKind::Uml | GuestKind::Qemu(_) => format!("{COUNTERS}; cat /proc/interrupts; dmesg | tail -n 5"),
        };
        // The output goes to the guest's log. A guest that hangs or has ended cannot answer.
        let answer = self.run_within(REPORT, &counters).map_or_else(|error| format!("{error:#}"), |_| String::new());
        // If writing fails, only the report of a failed test is less complete.
        let _ = fs::write(&self.log, format!("{before}\n{}\n{answer}\n", self.proc.state()));
    }
}

/// Prints the counters of a guest's kernel.
const COUNTERS: &str =
    "grep -E '^(Ip|Icmp|Udp|Tcp):' /proc/net/snmp; cat /proc/net/dev /proc/net/softnet_stat; ip neigh";

impl LinuxGuest {
    /// Starts a guest whose network device is the vhost-user socket of `port`. Does not wait until
    /// it has booted.
    pub(crate) fn start(lab: &Lab, kind: GuestKind, number: u8, port: &str) -> Result<Self> {
        let command = match kind {
            GuestKind::Uml => uml(lab, &[lab.socket(port)])?,
            GuestKind::Qemu(more) => qemu(&lab.socket(port), more, &lab.machine.kernel()?, &lab.machine.qemu_initrd()?),
            GuestKind::Namespace => bail!("a namespace has an interface, and no port: use `in_namespace`"),
        };
        Self::spawn(lab, kind, number, command)
    }

    /// Starts a guest whose network device is a tap, which the guest opens itself. `run` makes a
    /// command that runs a program where the tap is.
    pub(crate) fn start_on_tap(
        lab: &Lab,
        kind: GuestKind,
        number: u8,
        run: impl Fn(&str) -> Command,
        tap: &str,
    ) -> Result<Self> {
        let command = match kind {
            GuestKind::Uml => {
                uml_with(lab, run("setarch"), &[format!("vec0:transport=tap,ifname={tap},depth=128,gro=1")])?
            }
            GuestKind::Qemu(more) => {
                let mut command =
                    qemu_machine(run(QEMU), &lab.machine.kernel()?, &lab.machine.qemu_initrd()?, more.device);
                command.args(["-netdev", &format!("tap,id=n,ifname={tap},script=no,downscript=no")]);
                command
            }
            GuestKind::Namespace => bail!("a namespace has an interface already: use `in_namespace`"),
        };
        Self::spawn(lab, kind, number, command)
    }

    /// Starts a User Mode Linux guest with a device for each of `ports`.
    pub(crate) fn start_uml(lab: &Lab, number: u8, ports: &[&str]) -> Result<Self> {
        let sockets: Vec<PathBuf> = ports.iter().map(|port| lab.socket(port)).collect();
        Self::spawn(lab, GuestKind::Uml, number, uml(lab, &sockets)?)
    }

    /// Starts a User Mode Linux guest with devices of its own drivers, each as an argument of its
    /// command line. `run` runs `setarch`, for example in a network namespace.
    pub(crate) fn start_with_devices(lab: &Lab, number: u8, run: Command, devices: &[String]) -> Result<Self> {
        Self::spawn(lab, GuestKind::Uml, number, uml_with(lab, run, devices)?)
    }

    /// Starts a QEMU guest by a command that makes its machine and its network device. This adds the
    /// guest's system, as files that the command can see.
    pub(crate) fn start_machine(lab: &Lab, number: u8, mut command: Command) -> Result<Self> {
        system(&mut command, &lab.machine.kernel()?, &lab.machine.qemu_initrd()?);
        Self::spawn(lab, GuestKind::Qemu(Qemu::default()), number, command)
    }

    fn spawn(lab: &Lab, kind: GuestKind, number: u8, command: Command) -> Result<Self> {
        Self::spawn_as(lab, kind, number, &format!("guest{number}"), command)
    }

    fn spawn_as(lab: &Lab, kind: GuestKind, number: u8, name: &str, command: Command) -> Result<Self> {
        let proc = Proc::start(name, command, &lab.log(name))?;
        let log = lab.log(&format!("{name}-state.log"));
        Ok(Self { proc, kind, interface: "eth0".to_owned(), number, commands: 0, scene: lab.scene(), log })
    }

    /// Starts a shell in a network namespace. It takes the place of a guest whose network device is
    /// `interface`.
    pub(crate) fn in_namespace(lab: &Lab, namespace: &Namespace, number: u8, interface: &str) -> Result<Self> {
        let mut command = namespace.command("busybox");
        // Like a guest it has a /tmp of its own: `ip netns exec` has made a mount namespace.
        let begin = format!("mount -t tmpfs -o size=90% tmp /tmp; echo; echo '{MARK}up'");
        command.args(["sh", "-c", &format!("{begin}\n{CONSOLE}")]);
        let mut guest = Self::spawn(lab, GuestKind::Namespace, number, command)?;
        interface.clone_into(&mut guest.interface);
        Ok(guest)
    }

    /// Starts a QEMU guest with additional options. With `-incoming` it does not boot, but
    /// continues a migrated guest.
    pub(crate) fn start_qemu(lab: &Lab, more: Qemu, number: u8, port: &str, options: &[String]) -> Result<Self> {
        let mut command = qemu(&lab.socket(port), more, &lab.machine.kernel()?, &lab.machine.qemu_initrd()?);
        command.args(options);
        Self::spawn_as(lab, GuestKind::Qemu(more), number, &format!("guest{number}-{port}"), command)
    }

    /// Waits until the guest has booted, and sets its interface's addresses and MTU.
    pub(crate) fn configure(&mut self, mtu: u32) -> Result<()> {
        self.boot()?;
        self.address(Some(mtu))
    }

    /// Waits until the guest has booted.
    pub(crate) fn boot(&mut self) -> Result<()> {
        let up = format!("{MARK}up\n");
        self.proc.wait_text("its boot", 0, |text| text.contains(&up).then_some(()))?;
        // User Mode Linux names the devices of its own driver vecN.
        let rename = "[ ! -e /sys/class/net/vec0 ] || ip link set vec0 name eth0";
        let name = &self.interface;
        let look = format!("{rename}; [ -e /sys/class/net/{name} ] || {{ dmesg | tail -n 20; exit 1; }}");
        let (status, output) = self.run(&look)?;
        if status != 0 {
            bail!("guest {} has no network device: its driver failed (see its log):\n{output}", self.number);
        }
        Ok(())
    }

    /// Sets the interface's addresses, and its MTU if one is given.
    pub(crate) fn address(&mut self, mtu: Option<u32>) -> Result<()> {
        let mac = self.mac();
        let ip = self.ip();
        let name = &self.interface;
        let mtu = mtu.map_or(String::new(), |mtu| format!(" mtu {mtu}"));
        self.sh(&format!(
            "ip link set {name} address {mac}{mtu} && ip addr add {ip}/24 broadcast 10.77.0.255 dev {name} \
             && ip link set {name} up"
        ))?;
        Ok(())
    }

    /// Starts guests on ports, lets them boot at the same time, and sets their addresses.
    pub(crate) fn boot_all(lab: &Lab, kind: GuestKind, mtu: u32, ports: &[&str]) -> Result<Vec<Self>> {
        let mut guests = Vec::new();
        for (number, port) in (1..).zip(ports) {
            guests.push(Self::start(lab, kind, number, port)?);
        }
        for guest in &mut guests {
            guest.configure(mtu)?;
        }
        Ok(guests)
    }

    /// Starts and configures two guests on the ports `a` and `b`.
    pub(crate) fn boot_pair(lab: &Lab, kind: GuestKind, mtu: u32) -> Result<[Self; 2]> {
        let pair = Self::boot_all(lab, kind, mtu, &["a", "b"])?;
        pair.try_into().ok().context("two ports make two guests")
    }

    /// Returns the guest's IP address.
    pub(crate) fn ip(&self) -> String {
        format!("10.77.0.{}", self.number)
    }

    /// Returns the guest's IPv6 address, if it was [added](Self::add_ip6).
    pub(crate) fn ip6(&self) -> String {
        format!("fd77::{}", self.number)
    }

    /// Returns the guest's MAC address.
    pub(crate) fn mac(&self) -> String {
        format!("02:77:00:00:00:0{}", self.number)
    }

    /// Returns true if the guest runs under software emulation, where everything takes longer.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self.kind, GuestKind::Qemu(_))
    }

    /// Loads the guest's modules for IPv6.
    pub(crate) fn load_ip6(&mut self) -> Result<()> {
        for module in IPV6 {
            self.sh(&format!("[ ! -e /mod/{module}.ko ] || insmod /mod/{module}.ko"))?;
        }
        Ok(())
    }

    /// Loads the modules of a User Mode Linux guest for tunnels, after those for IPv6.
    pub(crate) fn load_tunnels(&mut self) -> Result<()> {
        self.load_ip6()?;
        let modules = TUNNELS.join(" ");
        self.sh(&format!("for module in {modules}; do insmod /mod/$module.ko || exit 1; done"))?;
        Ok(())
    }

    /// Loads the modules of a User Mode Linux guest for bridges with VLANs. The guest sends no IPv6
    /// packets of its own.
    pub(crate) fn load_bridge(&mut self) -> Result<()> {
        self.load_tunnels()?;
        self.sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 && sysctl -qw net.ipv6.conf.default.disable_ipv6=1")?;
        self.sh(&format!("insmod /mod/{BRIDGE}.ko"))?;
        Ok(())
    }

    /// Adds the guest's IPv6 address to its interface.
    pub(crate) fn add_ip6(&mut self) -> Result<()> {
        self.load_ip6()?;
        // Without duplicate address detection the address is valid at once.
        let name = &self.interface;
        let ip = self.ip6();
        self.sh(&format!("sysctl -qw net.ipv6.conf.{name}.accept_dad=0 && ip -6 addr add {ip}/64 dev {name}"))?;
        Ok(())
    }

    /// Runs a shell command in the guest, and returns its status and output.
    pub(crate) fn run(&mut self, command: &str) -> Result<(i32, String)> {
        self.run_within(PATIENCE, command)
    }

    /// Runs a shell command in the guest, with another limit.
    pub(crate) fn run_within(&mut self, limit: Duration, command: &str) -> Result<(i32, String)> {
        let begun = self.begin(command)?;
        self.end_within(limit, &begun)
    }

    /// Starts a shell command in the guest. The guest runs no other command until its
    /// [end](Self::end).
    pub(crate) fn begin(&mut self, command: &str) -> Result<RunningCommand> {
        // The console's line discipline accepts 4095 characters a line.
        if command.contains('\n') || command.len() > 3500 {
            bail!("cannot send a command of several lines or more than 3500 bytes to a guest's console: {command}");
        }
        self.commands += 1;
        let id = self.commands;
        let mark = self.proc.mark();
        self.proc.send_line(&format!("{id} {command}"))?;
        Ok(RunningCommand { id, mark, command: command.to_owned() })
    }

    /// Waits for the end of a command, and returns its status and output.
    pub(crate) fn end(&mut self, begun: &RunningCommand) -> Result<(i32, String)> {
        self.end_within(PATIENCE, begun)
    }

    fn end_within(&mut self, limit: Duration, begun: &RunningCommand) -> Result<(i32, String)> {
        let end = format!("{MARK}{} ", begun.id);
        let what = format!("the end of `{}`", begun.command);
        self.proc.wait_text_within(limit, &what, begun.mark, |text| {
            let (output, rest) = text.split_once(&end)?;
            let (status, _) = rest.split_once('\n')?;
            Some((status.trim().parse().ok()?, output.trim().to_owned()))
        })
    }

    /// Runs a shell command that must succeed, and returns its output.
    pub(crate) fn sh(&mut self, command: &str) -> Result<String> {
        self.sh_within(PATIENCE, command)
    }

    /// Runs a shell command that must succeed, with another limit.
    pub(crate) fn sh_within(&mut self, limit: Duration, command: &str) -> Result<String> {
        let (status, output) = self.run_within(limit, command)?;
        if status != 0 {
            bail!("guest {}: `{command}` ended with status {status}: {output}", self.number);
        }
        Ok(output)
    }
}

/// Returns the command for User Mode Linux. For vhost-user it needs two settings. Address
/// randomisation must be off, or it counts the gap below its heap as guest memory. Its memory must
/// be on a tmpfs, so that other processes can map it.
fn uml(lab: &Lab, sockets: &[PathBuf]) -> Result<Command> {
    let devices: Vec<String> =
        sockets.iter().map(|socket| format!("virtio_uml.device={}:1", socket.display())).collect();
    uml_with(lab, Command::new("setarch"), &devices)
}

/// Completes a command that runs `setarch`: with User Mode Linux and these devices.
fn uml_with(lab: &Lab, mut command: Command, devices: &[String]) -> Result<Command> {
    let initrd = lab.machine.uml_initrd()?;
    command
        .env("LD_PRELOAD", lab.machine.uml_preload()?)
        .args(["-R", "linux.uml", &format!("mem={UML_MIB}M"), "quiet"])
        .arg(format!("initrd={}", initrd.display()))
        .args(["con=null", "con0=fd:0,fd:1", "ssl=null"])
        .args(devices)
        .env("TMPDIR", "/dev/shm");
    Ok(command)
}

const QEMU: &str = "qemu-system-x86_64";

fn qemu(socket: &Path, Qemu { chardev, netdev, device }: Qemu, kernel: &Path, initrd: &Path) -> Command {
    let mut command = qemu_machine(Command::new(QEMU), kernel, initrd, device);
    command
        .arg("-chardev")
        .arg(format!("socket,id=c,path={}{chardev}", socket.display()))
        .arg("-netdev")
        .arg(format!("vhost-user,id=n,chardev=c{netdev}"));
    command
}

/// Completes a command that runs QEMU: with everything but the network backend `n`.
fn qemu_machine(mut command: Command, kernel: &Path, initrd: &Path, device: &str) -> Command {
    command
        .args(["-machine", "q35,memory-backend=m", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1"])
        // The size must not be a multiple of 256 KiB. With such a size, QEMU 7.2 loses writes of
        // its own software emulation in a migration.
        .args(["-m", "786440K", "-object", "memory-backend-memfd,id=m,size=786440K,share=on"])
        .arg("-device")
        // romfile= (empty): the ROM would look for a network to boot from.
        // vectors=0: QEMU 7.2 crashes with MSI-X on a vhost-user device under software emulation.
        .arg(format!("virtio-net-pci,netdev=n,vectors=0,romfile={device}"));
    system(&mut command, kernel, initrd);
    command
}

/// Completes a command that runs QEMU: with the guest's system and its console.
fn system(command: &mut Command, kernel: &Path, initrd: &Path) {
    command.args(["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initrd);
    command.args(["-append", "console=ttyS0 panic=-1 quiet"]);
}
