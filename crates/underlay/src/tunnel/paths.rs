//! The paths of a tunnel to its remotes. Clients of the API add and remove some while packets pass.
//!
//! A remote has one index for as long as it is a remote, because the table of stations and packets on
//! their way name it so. Workers read the paths of a tunnel that takes remotes by RCU, once for a
//! batch; those of other tunnels never change.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;
use straightline_packet::{IgnorePoison, Packets, Rcu, RcuCell};

use super::Path;
use super::remotes::RemoteIndex;

/// The most remotes of a tunnel: those of the configuration and those of clients.
pub(crate) const MOST_REMOTES: usize = 1024;

/// The paths to all remotes, at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    /// The paths, by the index of their remote. `None`: nobody has the index.
    list: Vec<Option<Arc<Path>>>,
    /// Senders choose addresses, so the hash is seeded.
    indices: HashMap<IpAddr, RemoteIndex, RandomState>,
}

/// The paths of a tunnel.
#[derive(Debug)]
pub(crate) struct TunnelPaths {
    /// The paths of the configuration.
    fixed: Paths,
    /// The paths of a tunnel that takes remotes.
    changing: Option<Changing>,
}

#[derive(Debug)]
struct Changing {
    now: Mutex<Arc<Paths>>,
    published: RcuCell<Arc<Paths>>,
}

impl Paths {
    fn of(paths: impl IntoIterator<Item = Path>) -> Self {
        let mut all = Paths::default();
        paths.into_iter().for_each(|path| _ = all.add(Arc::new(path)));
        all
    }

    /// Adds a path. Returns `false` if its remote is there already, or there are too many.
    pub(crate) fn add(&mut self, path: Arc<Path>) -> bool {
        let free = self.list.iter().position(Option::is_none).unwrap_or(self.list.len());
        let Some(index) = u16::try_from(free).ok().filter(|_| free < MOST_REMOTES) else { return false };
        if self.indices.contains_key(&path.remote) {
            return false;
        }
        self.indices.insert(path.remote, RemoteIndex(index));
        if free == self.list.len() {
            self.list.push(Some(path));
        } else {
            self.list[free] = Some(path);
        }
        true
    }

    /// Removes the path to a remote.
    pub(crate) fn remove(&mut self, remote: IpAddr) {
        if let Some(RemoteIndex(index)) = self.indices.remove(&remote) {
            self.list[usize::from(index)] = None;
        }
    }

    /// Returns the path of an index.
    #[inline]
    pub(crate) fn get(&self, index: u16) -> Option<&Path> {
        self.list.get(usize::from(index))?.as_deref()
    }

    /// Returns the index of a remote.
    pub(crate) fn index(&self, remote: IpAddr) -> Option<RemoteIndex> {
        self.indices.get(&remote).copied()
    }

    /// Returns the path to a remote.
    pub(crate) fn to(&self, remote: IpAddr) -> Option<&Path> {
        self.get(self.index(remote)?.0)
    }

    /// Returns the indices of all remotes.
    pub(crate) fn indices(&self) -> impl Iterator<Item = RemoteIndex> {
        (0..).zip(&self.list).filter(|(_, path)| path.is_some()).map(|(index, _)| RemoteIndex(index))
    }

    /// Returns the paths, by index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.list.iter().flatten().map(|path| &**path)
    }

    /// Returns whether there is no remote.
    pub(crate) fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Returns the address of a remote.
    pub(crate) fn address(&self, RemoteIndex(index): RemoteIndex) -> Option<IpAddr> {
        self.get(index).map(|path| path.remote)
    }
}

impl TunnelPaths {
    /// Creates the paths of a tunnel. With the workers' `rcu`, it takes remotes.
    pub(crate) fn new(paths: impl IntoIterator<Item = Path>, rcu: Option<&Rcu>) -> Self {
        let fixed = Paths::of(paths);
        let changing = rcu.map(|rcu| {
            let now = Arc::new(fixed.clone());
            let published = RcuCell::new(rcu);
            published.swap(Some(Box::new(Arc::clone(&now))));
            Changing { now: Mutex::new(now), published }
        });
        TunnelPaths { fixed, changing }
    }

    /// Returns the paths as a worker uses them in this turn.
    #[inline]
    pub(crate) fn load<'a, 't: 'a>(&'a self, packets: &Packets<'t>) -> &'a Paths {
        match &self.changing {
            None => &self.fixed,
            Some(changing) => changing.published.load(packets).map_or(&self.fixed, |paths| paths),
        }
    }

    /// Returns the paths of the configuration.
    pub(crate) fn fixed(&self) -> &Paths {
        &self.fixed
    }

    /// Returns the paths as they are now.
    pub(crate) fn now(&self) -> Arc<Paths> {
        match &self.changing {
            None => Arc::new(self.fixed.clone()),
            Some(changing) => Arc::clone(&changing.now.lock().ignore_poison()),
        }
    }

    /// Publishes other paths, and waits until no worker uses those before. `begin` runs before a worker
    /// sees them. It must not be called within a turn, and by one thread at a time.
    pub(crate) fn publish(&self, paths: Paths, begin: impl FnOnce()) {
        let Some(changing) = &self.changing else { return };
        let paths = Arc::new(paths);
        // A worker may hold this lock in its turn, so it is free while control waits for turns.
        *changing.now.lock().ignore_poison() = Arc::clone(&paths);
        begin();
        changing.published.swap(Some(Box::new(paths)));
    }
}
