//! The sandbox of the opener process.

use caps::CapsHashSet;
use straightline_port::device::DeviceRequest;
use straightline_port::{HelperProcess, HelperSandbox};

use super::{capabilities, helper, landlock, opener_calls};
use crate::config::capabilities_needed;

/// Returns the capabilities that opening these interfaces takes.
pub(crate) fn needed_by_all(requests: &[DeviceRequest]) -> CapsHashSet {
    requests.iter().flat_map(capabilities_needed).copied().collect()
}

/// Gives up all rights that opening these interfaces does not take.
///
/// # Errors
/// A mechanism that the configuration names is missing.
pub(crate) fn enter(requests: &[DeviceRequest], sandbox: &HelperSandbox) -> Result<HelperProcess, String> {
    let kept = capabilities::keep_only(needed_by_all(requests))?;
    let opens_taps = requests.iter().any(|request| matches!(request, DeviceRequest::Tap(_)));
    helper::enter(&kept, sandbox, || landlock::enter_opener(opens_taps), || opener_calls::list(requests))
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use caps::{CapSet, Capability};
    use rustix::fs::{Access, Mode as RawMode, OFlags, open};
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};
    use straightline_port::device::{AfPacketRequest, TapOffloads, TapRequest};

    use super::*;
    use crate::config::Mechanism;

    fn tap() -> DeviceRequest {
        let offloads = TapOffloads { csum: false, tso: false, uso: false };
        let name = "sl0".to_owned();
        let mac = None;
        let owner = None;
        let group = None;
        let bridge = None;
        DeviceRequest::Tap(TapRequest {
            name,
            queues: 1,
            mtu: 1500,
            mac,
            offloads,
            persist: false,
            owner,
            group,
            bridge,
        })
    }

    fn packet() -> DeviceRequest {
        DeviceRequest::AfPacket(AfPacketRequest { interface: "lo".to_owned(), queues: 1 })
    }

    /// Runs `try_it` on a thread in the sandbox of these interfaces. All mechanisms apply to single
    /// threads.
    fn in_sandbox<T: Send + 'static>(
        requests: Vec<DeviceRequest>,
        try_it: impl FnOnce(HelperProcess) -> T + Send + 'static,
    ) -> T {
        let mechanisms = Mechanism::ALL.map(|mechanism| mechanism.as_str().to_owned()).into();
        let run = move || try_it(enter(&requests, &HelperSandbox { mechanisms, required: true }).expect("the sandbox"));
        std::thread::spawn(run).join().expect("no panic")
    }

    fn make_socket(family: AddressFamily) -> Result<(), i32> {
        socket(family, SocketType::DGRAM, None).map(drop).map_err(Errno::raw_os_error)
    }

    fn code<T>(result: io::Result<T>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn capabilities_are_those_of_the_kinds() {
        let may = caps::read(None, CapSet::Permitted).unwrap();
        let kept = |requests: &[DeviceRequest], expected: &[Capability]| {
            let process = in_sandbox(requests.to_vec(), |process| process);
            let mut expected: Vec<_> =
                expected.iter().filter(|one| may.contains(one)).map(ToString::to_string).collect();
            expected.sort();
            assert_eq!(process.capabilities, expected);
            assert_eq!(process.mechanisms, ["capabilities", "landlock", "seccomp"]);
        };
        kept(&[], &[]);
        kept(&[tap()], &[Capability::CAP_NET_ADMIN]);
        kept(&[packet()], &[Capability::CAP_NET_RAW]);
        kept(&[tap(), packet()], &[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]);
    }

    #[test]
    fn nothing_but_interfaces_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("live");
        let _live = UnixListener::bind(&path).unwrap();
        let pid = rustix::process::getpid();
        in_sandbox(vec![tap()], move |_| {
            let denied = Some(libc::EACCES);
            let refused = Some(libc::EPERM);
            assert_eq!(code(File::open("/etc/passwd")), denied);
            assert_eq!(code(OpenOptions::new().write(true).open("/dev/null")), denied);
            assert_eq!(code(File::create("/tmp/straightline-opener")), refused);
            assert_eq!(code(UnixStream::connect(&path)), refused);
            // Datagrams need no connection.
            let datagrams = UnixDatagram::unbound().expect("a socket for requests about interfaces");
            assert_eq!(code(datagrams.send_to(b"x", &path)), refused);
            // A program that does not exist: if the call is not refused, it fails all the same.
            assert_eq!(Command::new("/nonexistent").exec().raw_os_error(), refused);
            assert_eq!(code(rustix::process::test_kill_process(pid).map_err(Into::into)), refused);
            assert_eq!(code(rustix::fs::access("/etc", Access::EXISTS).map_err(Into::into)), refused);
        });
        let open_tun = || open("/dev/net/tun", OFlags::RDWR | OFlags::CLOEXEC, RawMode::empty()).map(drop);
        let before = open_tun();
        assert_eq!(in_sandbox(vec![tap()], move |_| open_tun()), before, "with a tap");
        assert_eq!(in_sandbox(vec![packet()], move |_| open_tun()), Err(Errno::ACCESS), "without");
    }

    #[test]
    fn a_kind_that_is_not_configured_cannot_be_opened() {
        let families = || [AddressFamily::INET, AddressFamily::PACKET, AddressFamily::XDP].map(make_socket);
        let refused = Err(libc::EPERM);
        assert_eq!(in_sandbox(vec![tap()], move |_| families()), [refused; 3]);
        let [inet, packets, xdp] = in_sandbox(vec![packet()], move |_| families());
        // Without root the kernel refuses packet sockets too.
        let has_raw = caps::has_cap(None, CapSet::Permitted, Capability::CAP_NET_RAW).unwrap();
        assert_eq!((inet, packets.is_ok(), xdp), (refused, has_raw, refused));
        assert_eq!(in_sandbox(vec![packet()], |_| make_socket(AddressFamily::UNIX)), Ok(()));
    }

    /// The class of these requests has those that type into a terminal (TIOCSTI).
    #[test]
    fn requests_to_other_devices_are_refused() {
        let file = File::open("/dev/null").unwrap();
        in_sandbox(vec![tap()], move |_| {
            assert_eq!(rustix::io::ioctl_fionbio(&file, true), Err(Errno::PERM));
        });
    }
}
