//! The client of a helper process.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use straightline_graph::Clock;
use straightline_packet::IgnorePoison;

use super::{Answer, Message};
use crate::device::{DeviceRequest, OpenCause, OpenError, OpenedDevice, Opener};
use crate::helper_channel::{Channel, HelperError, HelperProcess, HelperSandbox};

/// The time after which a silent helper counts as stuck. The kernel may take seconds to configure a
/// NIC.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time that each queue adds. A driver may stop and start the whole NIC for each.
const PATIENCE_FOR_QUEUE: Duration = Duration::from_secs(1);

/// The time that the end of the client waits for the helper, which restores settings.
const END_TIME: Duration = Duration::from_secs(2);

/// Opens interfaces by a helper process that has the privileges for it.
///
/// Dropping it ends the helper process.
#[derive(Debug)]
pub struct Helper {
    /// The interfaces that the helper may open, in the order of their numbers.
    requests: Vec<DeviceRequest>,
    process: HelperProcess,
    channel: Channel,
    /// The number of the last request to open. Held while the client waits for an answer.
    last_id: Mutex<u64>,
}

impl Helper {
    /// Begins the work with a helper process, which has the other end of `socket`. It may open the
    /// interfaces of `requests` from now on, and no others. Returns when the helper is in its
    /// sandbox.
    ///
    /// # Errors
    /// The helper has ended, does not answer, or cannot enter its sandbox.
    pub fn begin(
        socket: OwnedFd,
        requests: Vec<DeviceRequest>,
        sandbox: HelperSandbox,
        clock: Clock,
    ) -> Result<Self, HelperError> {
        // A helper that reads nothing must not hold us up for ever either.
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE)).map_err(io::Error::from)?;
        let channel = Channel::new(socket, clock);
        for request in &requests {
            channel.send(&Message::Add(request.clone()), &[])?;
        }
        channel.send(&Message::Begin(sandbox), &[])?;
        let answer = channel.receive_with(channel.end_of(PATIENCE), PATIENCE, &mut Vec::new())?;
        match answer {
            Answer::Begun(process) => Ok(Helper { requests, process, channel, last_id: Mutex::new(0) }),
            Answer::CannotBegin(why) => Err(HelperError::CannotBegin(why)),
            other => Err(HelperError::Invalid(format!("{other:?} instead of its first answer"))),
        }
    }

    /// Returns the facts about the helper process.
    pub fn process(&self) -> &HelperProcess {
        &self.process
    }

    /// Returns whether the helper process still serves.
    pub fn is_running(&self) -> bool {
        self.channel.is_open()
    }

    /// Returns the number by which the helper knows this interface with these settings.
    fn number(&self, request: &DeviceRequest) -> Result<usize, OpenError> {
        let name = request.interface();
        self.requests.iter().position(|known| known == request).ok_or_else(|| {
            let is_known = self.requests.iter().any(|known| known.interface() == name);
            let what = if is_known { "had other settings" } else { "was in no port" };
            let message = format!(
                "interface {name} {what} when the switch started, and the opener process opens only the interfaces \
                 and settings of the start; restart to apply"
            );
            OpenError::new(OpenCause::Denied, message)
        })
    }

    /// Asks the helper to open an interface, and waits for the answer.
    fn ask(&self, interface: usize) -> Result<Result<OpenedDevice, OpenError>, HelperError> {
        let mut last_id = self.last_id.lock().ignore_poison();
        *last_id += 1;
        let asked = *last_id;
        self.channel.send(&Message::Open { id: asked, interface }, &[])?;
        let patience = patience(&self.requests[interface]);
        let until = self.channel.end_of(patience);
        let (facts, count) = loop {
            let mut late = Vec::new();
            match self.channel.receive_with(until, patience, &mut late)? {
                Answer::Opened { id, facts, descriptors } if id == asked => break (facts, descriptors),
                Answer::Failed { id, error } if id == asked => return Ok(Err(error)),
                // Answers to a request that the client no longer waits for. Their descriptors are
                // closed here.
                Answer::Opened { .. } | Answer::Descriptors(_) | Answer::Failed { .. } => {}
                other => return Err(HelperError::Invalid(format!("{other:?}"))),
            }
        };
        let mut fds = Vec::new();
        while fds.len() < count {
            match self.channel.receive_with(until, patience, &mut fds)? {
                Answer::Descriptors(id) if id == asked => {}
                other => return Err(HelperError::Invalid(format!("{other:?} instead of descriptors"))),
            }
        }
        if fds.len() > count {
            return Err(HelperError::Invalid(format!("{} descriptors instead of {count}", fds.len())));
        }
        Ok(Ok(OpenedDevice { facts, fds }))
    }
}

/// Returns the time that opening an interface may take.
pub(super) fn patience(request: &DeviceRequest) -> Duration {
    PATIENCE + PATIENCE_FOR_QUEUE * u32::from(request.most_queues())
}

impl Opener for Helper {
    fn open(&self, request: &DeviceRequest) -> Result<OpenedDevice, OpenError> {
        let name = request.interface();
        let interface = self.number(request)?;
        let opened = self.ask(interface);
        opened.unwrap_or_else(|error| {
            let message = match error {
                HelperError::Ended => {
                    format!("interface {name} cannot be opened: the opener process has ended; restart the switch")
                }
                other => {
                    let error = other.to_string().replace("the other process", "the opener process");
                    format!("interface {name} cannot be opened: {error}; restart the switch if this lasts")
                }
            };
            Err(OpenError::new(OpenCause::Failed, message))
        })
    }

    fn close(&self, request: &DeviceRequest) {
        if let Ok(interface) = self.number(request) {
            // A helper that has ended restored the settings at its end, unless it was killed.
            let _ = self.channel.send(&Message::Close { interface }, &[]);
        }
    }

    fn check(&self, request: &DeviceRequest) -> Result<(), OpenError> {
        self.number(request).map(drop)
    }

    fn helper(&self) -> Option<&Helper> {
        Some(self)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.channel.end(END_TIME);
    }
}
