//! A running switch: its workers, and how they start and stop.

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use straightline_graph::{
    Clock, EpollWaiter, Graph, Mailbox, NodeStats, PortControl, Signals, Worker, WorkerStats, stop_all, wait_for_ends,
};
use straightline_packet::{Arena, IgnorePoison, Rcu};
use straightline_port::device::Devices;

use crate::api::{Source, Status};
use crate::config::{Config, Idle};
use crate::dynamic_port::{ClientGroups, DesiredConfig};
use crate::open_port::{DevicesOnce, settings};
use crate::plan::{PlanNodes, plan};
use crate::running::{Running, Snapshot};
use crate::tables::Tables;
use crate::watchdog::WatchdogThread;
use crate::watcher::WatcherThread;

/// A switch that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Switch {
    pub(crate) running: Arc<Running>,
    pub(crate) rcu: Rcu,
    pub(crate) handles: Vec<WorkerHandle>,
    /// Held while something is changed.
    pub(crate) desired: Mutex<DesiredConfig>,
    /// Ports that are in no graph any more and have begun to stop.
    ending: Mutex<Vec<Arc<dyn PortControl>>>,
    failure: Arc<Failure>,
    /// The device ports.
    pub(crate) devices: DevicesOnce,
    _watchdog: WatchdogThread,
    _watcher: WatcherThread,
}

/// The things that a switch is started with, beside its configuration.
#[derive(Debug, Default)]
pub struct StartOptions {
    /// Opens interfaces. Without it the switch opens them itself, with the privileges of this process.
    pub devices: Option<Arc<Devices>>,
    /// The clock of all control code and of the ages in tables. A test moves it. Rates, and the counters
    /// of workers' time, use the time-stamp counter.
    pub clock: Clock,
}

/// Records whether a bug has ended a worker, and calls the registered function.
#[derive(Default)]
struct Failure(Mutex<Failed>);

#[derive(Default)]
struct Failed {
    has_failed: bool,
    tell: Option<Box<dyn FnOnce() + Send>>,
}

/// Control's side of a worker thread.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) waiter: Arc<EpollWaiter>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// Starts a checked configuration. When it returns, all sockets listen.
    ///
    /// # Errors
    /// The part that could not be opened or started: a socket or a thread. Nothing runs then.
    pub fn start(config: &Config) -> anyhow::Result<Switch> {
        Self::start_with(config, None)
    }

    /// Starts as [`Self::start`] does, and opens interfaces by `devices`. Without it the switch
    /// opens them itself, with the privileges of this process.
    ///
    /// # Errors
    /// As those of [`Self::start`].
    pub fn start_with(config: &Config, devices: Option<Arc<Devices>>) -> anyhow::Result<Switch> {
        Self::start_by(config, StartOptions { devices, ..StartOptions::default() })
    }

    /// Starts as [`Self::start`] does, with these options.
    ///
    /// # Errors
    /// As those of [`Self::start`].
    pub fn start_by(config: &Config, options: StartOptions) -> anyhow::Result<Switch> {
        let StartOptions { devices, clock } = options;
        // The switch starts empty and changes to its configuration as it later changes to any
        // other.
        let nothing = Config { switch: config.switch.clone(), ..Config::default() };
        let plan = plan(&nothing, None, &PlanNodes::default());
        let rcu = Rcu::new();
        let mut handles = Vec::new();
        let mut workers = Vec::new();
        let mut node_stats = Vec::new();
        for worker in &plan.workers {
            let graph = Graph::new();
            let stats = Arc::new(WorkerStats { cpu: worker.cpu, ..WorkerStats::default() });
            node_stats.push((Arc::clone(&stats), graph.stats()));
            let waiter = Arc::new(EpollWaiter::new().context("cannot make a worker's epoll set")?);
            let arena = Arena::new(rcu.reader(), settings(config), Vec::new());
            let idle = match config.switch.idle {
                Idle::Sleep => straightline_graph::Idle::Sleep,
                Idle::Spin => straightline_graph::Idle::Spin,
            };
            let thread = Worker::new(graph, arena, Arc::clone(&waiter), stats, idle).with_clock(clock.clone());
            workers.push((worker.cpu, thread));
            handles.push(WorkerHandle { mailbox: Arc::default(), waiter, thread: None });
        }
        let now = Snapshot {
            clock: clock.clone(),
            config: nothing,
            client_groups: ClientGroups::default(),
            domains: vec![Vec::new(); plan.workers.len()],
            plan,
            ports: Vec::new(),
            drops: Vec::new(),
            tables: Tables::default(),
            workers: node_stats,
        };
        let failure = Arc::default();
        let running = Arc::new(Running::new(now, notifications(&workers), devices.clone()));
        let watched = workers.iter().map(|(_, worker)| worker.progress()).collect();
        let watchdog = WatchdogThread::start(watched, Arc::clone(&running.stalls), running.events.clone(), clock)?;
        let watcher = WatcherThread::start(Arc::clone(&running))?;
        let desired = Mutex::default();
        let ending = Mutex::default();
        let devices = DevicesOnce::new(devices);
        let mut switch =
            Switch { running, rcu, handles, desired, ending, failure, devices, _watchdog: watchdog, _watcher: watcher };
        for (at, (cpu, worker)) in workers.into_iter().enumerate() {
            let failure = Arc::clone(&switch.failure);
            switch.handles[at].spawn(at, cpu, worker, failure)?;
        }
        switch.reload(config)?;
        Ok(switch)
    }

    /// Returns the source of all answers about the switch while it runs.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.running) as Arc<dyn Source>
    }

    /// Returns the configuration that the switch runs.
    pub fn config(&self) -> Config {
        self.running.now().config.clone()
    }

    /// Returns the counters of every node, in the order in which packets pass them, for programs
    /// that embed the switch.
    pub fn nodes(&self) -> Vec<Arc<NodeStats>> {
        self.running.now().workers.iter().flat_map(|(_, nodes)| nodes.iter().cloned()).collect()
    }

    /// Calls `tell`, on any thread, when a bug has ended a worker. Its ports pass no packets any
    /// more, and only a restart helps.
    pub fn on_failure(&self, tell: impl FnOnce() + Send + 'static) {
        let mut failed = self.failure.lock();
        if failed.has_failed {
            drop(failed);
            return tell();
        }
        failed.tell = Some(Box::new(tell));
    }

    /// Returns whether a bug has ended a worker.
    pub fn has_failed(&self) -> bool {
        self.failure.lock().has_failed
    }

    /// Stops the switch: links go down, sockets are removed, threads end. Returns the names of
    /// ports whose thread is left behind because a frontend holds it.
    pub fn stop(mut self) -> Vec<String> {
        self.end()
    }

    pub(crate) fn ending(&self) -> MutexGuard<'_, Vec<Arc<dyn PortControl>>> {
        self.ending.lock().ignore_poison()
    }

    /// Waits for the ports that have begun to stop, for all of them together at most for `limit`.
    /// Ports that a frontend holds for longer are waited for again later.
    pub(crate) fn wait_for_ending(&self, limit: Duration) {
        let ending = std::mem::take(&mut *self.ending());
        let ports: Vec<_> = ending.iter().map(|port| &**port).collect();
        wait_for_ends(&ports, limit, &self.running.clock);
        self.ending().extend(ending.into_iter().filter(|port| !port.has_ended()));
    }

    fn end(&mut self) -> Vec<String> {
        self.desired.lock().ignore_poison().refuse_frontends();
        // Ports stop first, while workers still run, so that a port can wait for the turns that use
        // it.
        let now = self.running.now();
        let ending = std::mem::take(&mut *self.ending());
        let left = stop_all(now.ports.iter().chain(&ending).map(|port| &**port), &self.running.clock);
        for handle in &self.handles {
            handle.mailbox.stop();
            handle.waiter.wake();
        }
        for handle in &mut self.handles {
            if handle.thread.take().is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("a worker's thread had panicked");
            }
        }
        left
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.end();
    }
}

impl WorkerHandle {
    fn spawn(
        &mut self,
        at: usize,
        cpu: Option<usize>,
        mut worker: Worker,
        failure: Arc<Failure>,
    ) -> anyhow::Result<()> {
        let mailbox = Arc::clone(&self.mailbox);
        let thread = std::thread::Builder::new()
            .name(format!("worker {at}"))
            .spawn(move || {
                let _reporter = FailureReporter { failure, at };
                if let Some(cpu) = cpu
                    && let Err(error) = pin(cpu)
                {
                    tracing::warn!(worker = at, "cannot pin the worker to CPU {cpu}: {error}");
                }
                worker.settle();
                worker.run(&mailbox);
            })
            .context("cannot start a worker's thread")?;
        self.thread = Some(thread);
        Ok(())
    }
}

impl Failure {
    fn lock(&self) -> MutexGuard<'_, Failed> {
        self.0.lock().ignore_poison()
    }
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Failure").field(&self.lock().has_failed).finish()
    }
}

/// Reports a failure when the worker's thread unwinds.
struct FailureReporter {
    failure: Arc<Failure>,
    at: usize,
}

impl Drop for FailureReporter {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        tracing::error!(
            worker = self.at,
            "the worker has ended because of a bug; its ports pass no packets until a restart"
        );
        let tell = {
            let mut failed = self.failure.lock();
            failed.has_failed = true;
            failed.tell.take()
        };
        if let Some(tell) = tell {
            tell();
        }
    }
}

/// Returns how guests will be notified. Contexts are made now, because other users may take all
/// that the system has.
fn notifications(workers: &[(Option<usize>, Worker)]) -> &'static str {
    let control = Signals::prepare_control();
    if control && workers.iter().all(|(_, worker)| worker.signals_itself()) {
        return Status::AIO;
    }
    tracing::warn!(
        "the system has no asynchronous requests left (fs.aio-max-nr) or none at all: guests are notified by helper \
         threads, which costs more; a restart tries again"
    );
    Status::HELPER_THREAD
}

fn pin(cpu: usize) -> Result<(), rustix::io::Errno> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
}
