//! The loop of a helper process.

use std::os::fd::OwnedFd;

use straightline_graph::Clock;

use super::{Answer, MAX_REQUESTS, Message};
use crate::device::{DeviceRequest, OpenCause, OpenError, Opener};
use crate::helper_channel::{Channel, HelperError, HelperProcess, HelperSandbox, MAX_DESCRIPTORS};

/// The helper process's end of the work: it has received the interfaces that it may open.
#[derive(Debug)]
pub struct HelperServer {
    channel: Channel,
    requests: Vec<DeviceRequest>,
    sandbox: HelperSandbox,
}

impl HelperServer {
    /// Receives the interfaces and the sandbox from the client, which has the other end of
    /// `socket`.
    ///
    /// # Errors
    /// The client has ended, or is none.
    pub fn receive(socket: OwnedFd) -> Result<Self, HelperError> {
        let channel = Channel::new(socket, Clock::real());
        let mut requests = Vec::new();
        loop {
            match channel.receive()? {
                Message::Add(request) if requests.len() < MAX_REQUESTS => requests.push(request),
                Message::Add(_) => return Err(HelperError::Invalid(format!("more than {MAX_REQUESTS} interfaces"))),
                Message::Begin(sandbox) => return Ok(HelperServer { channel, requests, sandbox }),
                other => return Err(HelperError::Invalid(format!("{other:?} before the beginning"))),
            }
        }
    }

    /// Returns the interfaces that the process may open.
    pub fn requests(&self) -> &[DeviceRequest] {
        &self.requests
    }

    /// Returns the sandbox that the process is to enter before it serves.
    pub fn sandbox(&self) -> &HelperSandbox {
        &self.sandbox
    }

    /// Tells the client why the process cannot serve.
    pub fn refuse(self, why: impl Into<String>) {
        // If the client has ended, nobody wants to know.
        let _ = self.channel.send(&Answer::CannotBegin(why.into()), &[]);
    }

    /// Serves the client until it ends, then restores the interfaces' settings. From now on the
    /// client is not trusted.
    pub fn serve(self, process: HelperProcess, opener: &dyn Opener) {
        let mut is_open = vec![false; self.requests.len()];
        if self.channel.send(&Answer::Begun(process), &[]).is_ok() {
            while self.serve_message(opener, &mut is_open).is_ok() {}
        }
        let open = self.requests.iter().zip(&is_open).filter(|(_, is_open)| **is_open);
        open.for_each(|(request, _)| opener.close(request));
    }

    /// Serves one message. Fails if the client has ended.
    fn serve_message(&self, opener: &dyn Opener, is_open: &mut [bool]) -> Result<(), HelperError> {
        match self.channel.receive() {
            Ok(Message::Open { id, interface }) => self.open(id, interface, opener, is_open),
            Ok(Message::Close { interface }) => {
                if is_open.get_mut(interface).is_some_and(std::mem::take) {
                    opener.close(&self.requests[interface]);
                }
                Ok(())
            }
            Ok(Message::Add(_) | Message::Begin(_)) => {
                self.refuse_message("the configuration's interfaces are settled already")
            }
            Err(HelperError::Invalid(why)) => self.refuse_message(&why),
            Err(error) => Err(error),
        }
    }

    fn open(&self, id: u64, interface: usize, opener: &dyn Opener, is_open: &mut [bool]) -> Result<(), HelperError> {
        let Some(request) = self.requests.get(interface) else {
            let message = format!("no interface of the configuration has number {interface}");
            let error = OpenError::new(OpenCause::Denied, message);
            return self.channel.send(&Answer::Failed { id, error }, &[]);
        };
        // The settings are restored first: another start from the changed settings would take
        // these for the interface's own.
        if std::mem::take(&mut is_open[interface]) {
            opener.close(request);
        }
        let opened = match opener.open(request) {
            Ok(opened) => opened,
            Err(error) => return self.channel.send(&Answer::Failed { id, error }, &[]),
        };
        is_open[interface] = true;
        self.channel.send(&Answer::Opened { id, facts: opened.facts, descriptors: opened.fds.len() }, &[])?;
        for fds in opened.fds.chunks(MAX_DESCRIPTORS) {
            self.channel.send(&Answer::Descriptors(id), fds)?;
        }
        Ok(())
    }

    fn refuse_message(&self, why: &str) -> Result<(), HelperError> {
        self.channel.send(&Answer::Refused(why.to_owned()), &[])
    }
}
