//! GoBGP daemons on addresses of the loopback interface that are this process's own.

use std::fmt::Debug;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use straightline_evpn::Route;
use straightline_evpn::gobgp::{Address, Event, Events, GoBgp, Told};
use straightline_testing::PATIENCE;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// The AS of all daemons.
pub(crate) const ASN: u32 = 65000;

/// Returns the programs to test: those that `STRAIGHTLINE_GOBGPD` names, separated by colons, or
/// Debian's. Says so if there is none.
pub(crate) fn programs(test: &str) -> Vec<PathBuf> {
    let named = std::env::var_os("STRAIGHTLINE_GOBGPD");
    let programs: Vec<PathBuf> = match &named {
        Some(paths) => std::env::split_paths(paths).collect(),
        None => Path::new("/usr/bin/gobgpd").exists().then(|| "/usr/bin/gobgpd".into()).into_iter().collect(),
    };
    if programs.is_empty() {
        let _ = writeln!(std::io::stdout(), "\nskipped {test}: there is no gobgpd (apt-get install gobgpd)");
    }
    programs
}

/// A daemon, with a neighbour.
pub(crate) struct Daemon {
    child: Child,
    folder: TempDir,
    pub(crate) api: Address,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

thread_local! {
    /// A number of this test: each test has a thread.
    static TEST: u8 = {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Returns an address of this process and test.
pub(crate) fn address(host: u8) -> String {
    let [.., a, b] = std::process::id().to_be_bytes();
    format!("127.{}.{b}.{}", 1 + a % 250, TEST.with(|test| 10 * test + host))
}

impl Daemon {
    /// Starts a daemon at the address `own`, with these neighbours.
    pub(crate) fn start(program: &Path, own: u8, others: &[u8]) -> Self {
        let number = own;
        let own = address(own);
        let mut text = format!(
            "[global.config]\nas = {ASN}\nrouter-id = \"{own}\"\nport = 1790\nlocal-address-list = [\"{own}\"]\n"
        );
        for other in others {
            // Connections from both sides at once close each other, and each try takes some seconds.
            let is_passive = number > *other;
            let other = address(*other);
            let _ = write!(
                text,
                "[[neighbors]]\n[neighbors.config]\npeer-as = {ASN}\nneighbor-address = \"{other}\"\n\
                 [neighbors.transport.config]\nlocal-address = \"{own}\"\nremote-port = 1790\n\
                 passive-mode = {is_passive}\n\
                 [neighbors.timers.config]\nconnect-retry = 1\nidle-hold-time-after-reset = 1\n\
                 [[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"l2vpn-evpn\"\n"
            );
        }
        Self::with_configuration(program, &text)
    }

    /// Starts a daemon with this configuration.
    pub(crate) fn with_configuration(program: &Path, text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("gobgpd.toml");
        fs::write(&config, text).expect("a file");
        let socket = folder.path().join("api.sock");
        Self { child: spawn(program, folder.path()), folder, api: Address::Unix(socket) }
    }

    /// Kills the daemon and starts it again.
    pub(crate) fn restart(&mut self, program: &Path) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(self.folder.path().join("api.sock"));
        self.child = spawn(program, self.folder.path());
    }

    /// Connects once the daemon listens.
    pub(crate) async fn connect(&self) -> GoBgp {
        wait_until("the daemon answers", async || {
            let gobgp = GoBgp::connect(&self.api).await.map_err(|error| format!("{error}\n{}", self.log()))?;
            // Its AS is set once it has read its configuration.
            if gobgp.asn() == ASN { Ok(gobgp) } else { Err(self.log()) }
        })
        .await
    }

    /// Returns the daemon's log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

fn spawn(program: &Path, folder: &Path) -> Child {
    let log = File::create(folder.join("log")).expect("a file");
    Command::new(program)
        .arg("-f")
        .arg(folder.join("gobgpd.toml"))
        .args(["--pprof-disable", "--log-plain", "--api-hosts"])
        .arg(format!("unix://{}", folder.join("api.sock").display()))
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(Stdio::from(log))
        .spawn()
        .expect("gobgpd starts")
}

/// Asks again and again until there is a value. The same as `straightline_testing::wait_until`, for a
/// question that waits for an answer itself.
pub(crate) async fn wait_until<T, E: Debug>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let mut last = None;
    let wait = async {
        loop {
            match ask().await {
                Ok(value) => return value,
                Err(why) => last = Some(why),
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("timed out before {what}: {last:?}"))
}

/// Waits for an event that `wanted` accepts.
pub(crate) async fn until<T>(events: &mut Events, what: &str, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    let wait = async {
        loop {
            for event in events.next().await.expect("the watch goes on") {
                if let Some(found) = wanted(event) {
                    return found;
                }
            }
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("timed out before {what}"))
}

/// Returns the routes of a daemon's table.
pub(crate) async fn table(gobgp: &GoBgp) -> Vec<Route> {
    let mut listing = gobgp.list().await.expect("a table");
    let told = listing.next(usize::MAX).await.expect("paths");
    let route = |told| match told {
        Told::Route(route) | Told::Own(route) => route,
        other => panic!("{other:?}"),
    };
    told.into_iter().map(route).collect()
}
