//! The processes that have a tap open.

use std::fs;

use super::host::Host;
use crate::facts::Holder;

impl Host {
    /// Returns the processes of this network namespace that have a tap open, as far as this user may
    /// see their descriptors.
    pub(super) fn tap_holders(&self, tap: &str) -> Vec<Holder> {
        let own = fs::read_link(self.path("proc/self/ns/net")).ok();
        let has_tap = |pid: &u32| {
            let folder = format!("proc/{pid}/fdinfo");
            let Ok(descriptors) = self.numbers(&folder) else { return false };
            // The same name may be another interface in another namespace.
            let is_here = fs::read_link(self.path(&format!("proc/{pid}/ns/net"))).ok() == own;
            is_here && descriptors.iter().any(|fd| self.is_of_tap(&format!("{folder}/{fd}"), tap))
        };
        let holders = self.numbers("proc").unwrap_or_default().into_iter().filter(has_tap);
        let name = |pid| self.line(&format!("proc/{pid}/comm")).unwrap_or_else(|_| "a program".to_owned());
        holders.map(|pid| Holder { pid, name: name(pid) }).collect()
    }

    /// Returns whether a descriptor is a queue of the tap (drivers/net/tun.c, tun_chr_show_fdinfo).
    fn is_of_tap(&self, fdinfo: &str, tap: &str) -> bool {
        let Ok(text) = self.read(fdinfo) else { return false };
        text.lines().any(|line| line.strip_prefix("iff:").is_some_and(|name| name.trim() == tap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_tap_is_named() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/12/fdinfo/0", "pos:\t0\nflags:\t02\n");
        write("proc/12/fdinfo/9", "pos:\t0\nflags:\t02\nmnt_id:\t24\nino:\t5\niff:\ttap0\n");
        write("proc/12/comm", "openvpn\n");
        write("proc/13/fdinfo/9", "iff:\ttap01\n");
        let host = Host::new(root.path());
        assert_eq!(host.tap_holders("tap0"), [Holder { pid: 12, name: "openvpn".to_owned() }]);
        assert_eq!(host.tap_holders("tap"), []);
    }
}
