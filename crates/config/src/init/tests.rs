//! Configurations of machines that tests invent.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::super::{Config, Machine};
use super::{Facts, Nic, initial_configuration};

/// Checks a configuration as it is, and with all proposed settings.
fn check(facts: &Facts) -> String {
    let text = initial_configuration(facts);
    let machine = Machine::with_cpus((0..8).collect(), facts.allowed.clone());
    let loaded = Config::parse("switch.toml", &text, &machine).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert!(loaded.warnings.is_empty(), "{:?}\n{text}", loaded.warnings);

    let is_setting = |line: &str| line.starts_with('#') && !line.starts_with("# ");
    let all: String = text
        .lines()
        .map(|line| if is_setting(line) { &line[1..] } else { line })
        .flat_map(|line| [line, "\n"])
        .collect();
    let machine = Machine::with_cpus((0..8).collect(), (0..8).collect());
    Config::parse("switch.toml", &all, &machine).unwrap_or_else(|errors| panic!("{errors}\n{all}"));
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    text
}

fn facts() -> Facts {
    Facts { allowed: vec![0, 1], folder: std::env::temp_dir(), ..Facts::default() }
}

#[test]
fn a_container_without_sys() {
    let empty = tempfile::tempdir().unwrap();
    let found = Facts::below(empty.path());
    assert_eq!(found, Facts::default());
    let text = check(&Facts { allowed: vec![0], folder: std::env::temp_dir(), ..found });
    for absent in ["workers", "owner", "nic0", "\n#bridge ="] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
}

#[test]
fn a_laptop() {
    let nic = Nic { name: "wlan0".into(), driver: "iwlwifi".into(), has_default_route: true, ..Nic::default() };
    let text = check(&Facts { nics: vec![nic], ..facts() });
    assert!(text.contains("generic mode") && text.contains("DANGER"), "{text}");
    assert!(text.contains("\n#[port.nic0]\n"), "{text}");
}

#[test]
fn a_server_with_isolated_cpus() {
    let server = Facts { isolated: vec![2, 3, 6], cores: vec![vec![2, 6], vec![3, 7], vec![2, 6]], ..facts() };
    let text = check(&server);
    assert!(text.contains("one of each core: 2, 3.") && text.contains("\n#workers = [2]\n"), "{text}");
    let text = check(&Facts { allowed: vec![0, 3], ..server });
    assert!(text.contains("\nworkers = [3]\n"), "{text}");
}

#[test]
fn a_host_of_many_interfaces() {
    let nics = (0..20).map(|number| Nic { name: format!("eth{number}"), ..Nic::default() }).collect();
    let bridges = (0..300).map(|number| format!("br{number}")).collect();
    let text = initial_configuration(&Facts { nics, bridges, ..facts() });
    assert!(text.contains("12 more interfaces") && !text.contains("nic8"), "{text}");
    assert!(text.contains("Here: br0, br1,") && !text.contains("br8"), "{text}");
}

#[test]
fn facts_are_read_from_files() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sys/class/net/eth0/address", "52:54:00:00:00:01\n");
    write("sys/class/net/eth0/device/vendor", "0x8086\n");
    symlink(Path::new("../../../bus/pci/drivers/ixgbe"), root.path().join("sys/class/net/eth0/device/driver")).unwrap();
    write("sys/class/net/br0/bridge/stp_state", "0\n");
    write("sys/class/net/a\"b/device/vendor", "0x8086\n");
    write("sys/class/net/lo/address", "00:00:00:00:00:00\n");
    write("proc/net/route", "Iface\tDestination\tGateway\neth1\t0002A8C0\t0\neth0\t00000000\t0102A8C0\n");
    write("etc/passwd", "root:x:0:0::/root:/bin/sh\nlibvirt-qemu:x:64055:994::/var/lib/libvirt:/usr/sbin/nologin\n");
    write("sys/devices/system/cpu/isolated", "2-3\n");
    write("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2,6\n");
    let expected = Facts {
        nics: vec![Nic {
            name: "eth0".into(),
            driver: "ixgbe".into(),
            mac: "52:54:00:00:00:01".into(),
            has_default_route: true,
        }],
        bridges: vec!["br0".into()],
        qemu_user: Some("libvirt-qemu".into()),
        isolated: vec![2, 3],
        allowed: vec![],
        cores: vec![vec![2, 6], vec![3]],
        folder: PathBuf::new(),
    };
    assert_eq!(Facts::below(root.path()), expected);
}

#[test]
fn this_machine() {
    let facts = Facts::of_this_machine();
    assert!(!facts.allowed.is_empty() && !facts.folder.starts_with("/tmp"), "{facts:?}");
    // The folder of the service need not be there.
    let facts = Facts { folder: std::env::temp_dir(), ..facts };
    Config::parse("switch.toml", &initial_configuration(&facts), &Machine::this()).unwrap();
}
