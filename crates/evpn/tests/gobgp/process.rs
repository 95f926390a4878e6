//! Two whole processes, each between a real GoBGP and a switch of the test.

use std::fmt::Debug;
use std::path::Path;

use serde::de::DeserializeOwned;
use straightline_evpn::config::Config;
use straightline_evpn::process::{Question, RouteStatus, Routes, Status, ask, run_until};
use straightline_testing::wait_until;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::daemon::{ASN, Daemon, address};
use crate::scale;
use crate::switch::FakeSwitch;

const STATION: &str = "02:00:00:00:00:77";
const LATER: &str = "02:00:00:00:00:76";

/// A process that runs on a thread.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(folder: &TempDir, host: u8, daemon: &Daemon, switch: &FakeSwitch) -> Self {
        let own = address(host);
        let text = format!(
            "asn = {ASN}\nrouter-id = \"{own}\"\naddress = \"192.0.2.{host}\"\ngobgp = \"{}\"\napi = {:?}\nsocket = {:?}\n\
             [network.net]\nbridge = \"lan\"\ntunnel = \"vx0\"\nvni = 100\n",
            daemon.api,
            switch.path,
            socket(folder),
        );
        let config = Config::parse(&text, Path::new("evpn.toml")).expect("it is right");
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || run_until(config, async { drop(stopped.await) }).expect("it runs");
        Self { stop: Some(stop), thread: Some(std::thread::spawn(run)) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Running {
    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn socket(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("status.sock")
}

/// Waits until a process gives an answer that `wanted` accepts.
fn until<A: DeserializeOwned + Debug>(folder: &TempDir, what: &str, asked: Question, wanted: impl Fn(&A) -> bool) -> A {
    wait_until(what, || match ask::<A>(&socket(folder), asked) {
        Ok((answer, _)) if wanted(&answer) => Ok(answer),
        other => Err(other),
    })
}

pub(crate) fn until_status(folder: &TempDir, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
    until(folder, what, Question::Status, wanted)
}

/// A station is heard at one host, moves to the other one and back; each part dies and comes back.
pub(crate) fn processes(daemons: &mut [Daemon; 2], program: &Path) {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let switches = [0, 1].map(|at: usize| FakeSwitch::start(&folders[at].path().join("api.sock")));
    let start = |host: u8, daemon: &Daemon| {
        let at = usize::from(host) - 1;
        Running::start(&folders[at], host, daemon, &switches[at])
    };
    let mut running = [start(1, &daemons[0]), start(2, &daemons[1])];

    // The hosts find each other, then the station.
    switches[0].wait("the other host", |table| table.remotes.contains("192.0.2.2"));
    switches[1].wait("the other host", |table| table.remotes.contains("192.0.2.1"));
    switches[0].bind(STATION, "10.0.0.77");
    switches[0].hear(STATION);
    let at = |host: u8, sequence: u64| Some((format!("192.0.2.{host}"), sequence));
    let there = |switch: &FakeSwitch, host: u8, sequence: u64| {
        switch.wait("the station", |table| table.stations.get(STATION).cloned() == at(host, sequence))
    };
    there(&switches[1], 1, 0);
    let is_bound = |route: &RouteStatus| !route.sent && route.ip.as_deref() == Some("10.0.0.77");
    until(&folders[1], "its address", Question::Routes, |routes: &Routes| routes.routes.iter().any(is_bound));

    // It moves there: the first host then has it behind the second one. And back. A switch learns it once
    // its process has deleted the place at the other host.
    let learn = |switch: &FakeSwitch| {
        switch.wait("no other place", |table| !table.stations.contains_key(STATION));
        switch.hear(STATION);
    };
    switches[1].hear(STATION);
    there(&switches[0], 2, 1);
    learn(&switches[1]);
    switches[0].hear(STATION);
    there(&switches[1], 1, 2);
    learn(&switches[0]);

    // A switch that restarts gets everything again.
    switches[1].restart();
    there(&switches[1], 1, 2);

    // A new process keeps the sequence number of the one before, and its peers notice nothing.
    let deleted = switches[1].deleted();
    let [first, _second] = &mut running;
    first.stop();
    *first = start(1, &daemons[0]);
    until_status(&folders[0], "the station", |status| status.networks[0].here == 1);
    // What the peer noticed of the change would be there before a station that is heard now.
    switches[0].hear(LATER);
    let table = switches[1].wait("a later station", |table| table.stations.contains_key(LATER));
    assert_eq!((table.stations.get(STATION).cloned(), switches[1].deleted()), (at(1, 2), deleted));

    // A GoBGP that restarts gets everything again.
    let deleted = switches[0].deleted();
    let emptied = table.emptied;
    daemons[0].restart(program);
    switches[1].wait("the withdrawal", |table| table.emptied > emptied);
    there(&switches[1], 1, 2);
    switches[1].wait("the later station", |table| table.stations.contains_key(LATER));

    scale::one_station_after_the_other(&switches[0], &switches[1]);
    let known = switches[1].wait("the stations", |_| true).stations.len();

    // Its own switch has lost nothing meanwhile.
    until_status(&folders[0], "the other host", |status| status.gobgp.neighbours.iter().all(|one| one.up));
    switches[0].wait("the other host", |table| table.remotes.contains("192.0.2.2"));
    assert_eq!(switches[0].deleted(), deleted);

    // The switch is away: what it has goes on, and it is told what has changed meanwhile.
    switches[1].set_away(true);
    until_status(&folders[1], "the end", |status| !status.switch.up);
    switches[0].hear("02:00:00:00:00:78");
    until_status(&folders[1], "the second station", |status| status.networks[0].elsewhere == known + 1);
    switches[1].set_away(false);
    switches[1].wait("the second station", |table| table.stations.len() == known + 1);
    let status = until_status(&folders[1], "the switch", |status| status.switch.up);

    // A switch with a limit has what fits, and the process goes on.
    switches[1].set_limit(known + 2);
    for number in 10..40 {
        switches[0].hear(&format!("02:00:00:00:01:{number}"));
    }
    let is_full = |status: &Status| status.switch.refused >= 29 && status.networks[0].elsewhere == known + 31;
    until_status(&folders[1], "the refusals", is_full);
    switches[1].wait("a full table", |table| table.stations.len() == known + 2);
    switches[0].forget("02:00:00:00:00:78");
    switches[1].wait("the end of a station", |table| table.stations.len() == known + 1);
    assert!(status.gobgp.up && status.gobgp.neighbours.iter().all(|neighbour| neighbour.up), "{status:?}");
}
