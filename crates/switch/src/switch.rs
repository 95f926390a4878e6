//! A running switch: its workers, and how they start and stop.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::Context;
use straightline_graph::{Graph, Mailbox, NodeStats, Worker, WorkerStats};
use straightline_packet::{Arena, Gate};
use straightline_port::Sleeper;

use crate::api::Source;
use crate::assembly::settings;
use crate::config::{Config, Idle};
use crate::lease::Wanted;
use crate::plan::plan;
use crate::source::{Now, Running};

/// A switch that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Switch {
    pub(crate) running: Arc<Running>,
    pub(crate) gate: Gate,
    pub(crate) crew: Vec<Hand>,
    /// Held while something is changed.
    pub(crate) wanted: Mutex<Wanted>,
}

/// A worker, as control reaches it.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) sleeper: Arc<Sleeper>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// Starts a checked configuration. When it returns, all sockets listen.
    ///
    /// # Errors
    /// What could not be had: a socket, a thread. Nothing is left running then.
    pub fn start(config: &Config) -> anyhow::Result<Switch> {
        // It begins with nothing and comes to its configuration as it will come to every other.
        let nothing = Config { switch: config.switch.clone(), ..Config::default() };
        let plan = plan(&nothing, None);
        let gate = Gate::new();
        let mut crew = Vec::new();
        let mut workers = Vec::new();
        let mut figures = Vec::new();
        for worker in &plan.workers {
            let graph = Graph::new();
            let stats = Arc::new(WorkerStats { cpu: worker.cpu, ..WorkerStats::default() });
            figures.push((Arc::clone(&stats), graph.stats()));
            let sleeper = Arc::new(Sleeper::new().context("cannot make a worker's epoll set")?);
            let arena = Arena::new(gate.member(), settings(config), Vec::new());
            let idle = match config.switch.idle {
                Idle::Sleep => straightline_graph::Idle::Sleep,
                Idle::Spin => straightline_graph::Idle::Spin,
            };
            workers.push((worker.cpu, Worker::new(graph, arena, Arc::clone(&sleeper), stats, idle)));
            crew.push(Hand { mailbox: Arc::default(), sleeper, thread: None });
        }
        let now =
            Now { config: nothing, plan, ports: Vec::new(), drops: Vec::new(), fdbs: Vec::new(), workers: figures };
        let mut switch = Switch { running: Arc::new(Running::new(now)), gate, crew, wanted: Mutex::default() };
        for (at, (cpu, worker)) in workers.into_iter().enumerate() {
            switch.crew[at].spawn(at, cpu, worker)?;
        }
        switch.reload(config)?;
        Ok(switch)
    }

    /// What can be asked of it while it runs.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.running) as Arc<dyn Source>
    }

    /// The configuration that it runs.
    pub fn config(&self) -> Config {
        self.running.now().config.clone()
    }

    /// The figures of every node, in the order of a packet's way, for whoever embeds the switch.
    pub fn nodes(&self) -> Vec<Arc<NodeStats>> {
        self.running.now().workers.iter().flat_map(|(_, nodes)| nodes.iter().cloned()).collect()
    }

    /// Stops it: links go down, sockets are removed, threads end.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Ports first: workers still run, so that a port can wait for the turns that use it.
        for port in &self.running.now().ports {
            port.stop();
        }
        for hand in &self.crew {
            hand.mailbox.stop();
            hand.sleeper.ring();
        }
        for hand in &mut self.crew {
            if hand.thread.take().is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("a worker's thread had panicked");
            }
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.end();
    }
}

impl Hand {
    fn spawn(&mut self, at: usize, cpu: Option<usize>, mut worker: Worker) -> anyhow::Result<()> {
        let mailbox = Arc::clone(&self.mailbox);
        let thread = std::thread::Builder::new()
            .name(format!("worker {at}"))
            .spawn(move || {
                if let Some(cpu) = cpu
                    && let Err(error) = pin(cpu)
                {
                    tracing::warn!(worker = at, "cannot pin it to CPU {cpu}: {error}");
                }
                worker.run(&mailbox);
            })
            .context("cannot start a worker's thread")?;
        self.thread = Some(thread);
        Ok(())
    }
}

fn pin(cpu: usize) -> Result<(), rustix::io::Errno> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
}
