//! The server of the API: questions about a running switch, and requests that change it.
//!
//! [`ApiServer`] answers from a [`Source`]. Where it has a [`Control`], clients can change the
//! switch as well. The crate `straightline-api` has the types and the client.

mod closing;
mod connection;
mod interrupt;
mod lines;
mod pass_rights;
mod places;
mod server;

use std::any::Any;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use straightline_graph::Clock;

pub(crate) use closing::held_threads;
use lines::{HeldLines, one_per_line};
pub(crate) use places::refused_clients;
pub use server::{ApiError, ApiHandle, ApiServer};
pub use straightline_api::*;

/// The source of the answers. One client's thread at a time calls it, so it must not take long.
pub trait Source: Send + Sync {
    /// Returns the ports, in the configuration's order.
    fn ports(&self) -> Ports;
    /// Returns the use of the workers' time.
    fn runtime(&self) -> Runtime;
    /// Returns the dropped packets by reason.
    fn drops(&self) -> Drops;
    /// Returns the tables. A source that has none returns nothing.
    fn tables(&self) -> Tables {
        Tables::default()
    }
    /// Returns rows of a table, as many as the request asks for, but at most [`TableRequest::MOST`].
    ///
    /// # Errors
    /// There is no such table.
    fn table(&self, request: &TableRequest) -> Result<Table, Refusal> {
        let error = format!("no such table {:?}; the switch has none", request.table);
        Err(Refusal::new(ErrorCode::UnknownTable, error).about(&request.table))
    }
    /// Returns flows of a bridge. A source that has none returns nothing.
    ///
    /// # Errors
    /// There is no such bridge, or the filter is wrong.
    fn flows(&self, request: &FlowsRequest) -> Result<Flows, Refusal> {
        Ok(Flows { bridge: request.bridge.clone(), ..Flows::default() })
    }
    /// Returns the meters of a bridge. A source that has none returns nothing.
    ///
    /// # Errors
    /// There is no such bridge.
    fn meters(&self, request: &MetersRequest) -> Result<Meters, Refusal> {
        Ok(Meters { bridge: request.bridge.clone(), ..Meters::default() })
    }
    /// Returns the way of a packet through the flow tables of a bridge.
    ///
    /// # Errors
    /// There is no such bridge, it has no tables, or the packet is wrong.
    fn trace_flow(&self, request: &TraceFlow) -> Result<FlowTrace, Refusal> {
        let _ = request;
        Err(Refusal::new(ErrorCode::Refused, "this program has no flow tables"))
    }
    /// Returns the rules that decide about a packet.
    ///
    /// # Errors
    /// There is no such port, it has no groups, or the packet is wrong.
    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, Refusal> {
        let _ = request;
        Err(Refusal::new(ErrorCode::Refused, "this program has no groups"))
    }
    /// Returns the groups of the switch and of its ports. A source that has none returns nothing.
    fn groups(&self) -> Groups {
        Groups::default()
    }
    /// Returns the addresses of sets and of groups. A source that has none returns nothing.
    ///
    /// # Errors
    /// There is no such set.
    fn sets(&self, request: &SetsRequest) -> Result<Sets, Refusal> {
        let _ = request;
        Ok(Sets::default())
    }
    /// Returns the connections of ports with groups, or of a bridge's flows. A source that has none returns
    /// nothing.
    ///
    /// # Errors
    /// There is no such port or bridge, or it has no groups or flows.
    fn connections(&self, request: &ConnectionsRequest) -> Result<Connections, Refusal> {
        let _ = request;
        Ok(Connections::default())
    }
    /// Returns remotes of a tunnel.
    ///
    /// # Errors
    /// There is no such tunnel.
    fn remotes(&self, request: &RemotesRequest) -> Result<Remotes, Refusal> {
        Ok(Remotes { tunnel: request.tunnel.clone(), ..Remotes::default() })
    }
    /// Returns stations of owners in a bridge.
    ///
    /// # Errors
    /// There is no such bridge.
    fn stations(&self, request: &StationsRequest) -> Result<Stations, Refusal> {
        Ok(Stations { bridge: request.bridge.clone(), ..Stations::default() })
    }
    /// Returns bindings of IP and MAC addresses.
    ///
    /// # Errors
    /// There is no such bridge.
    fn bindings(&self, request: &BindingsRequest) -> Result<Bindings, Refusal> {
        let _ = request;
        Ok(Bindings::default())
    }
    /// Returns the addresses that the bridges know.
    fn fdb(&self) -> Fdb;
    /// Returns the next hops of the underlays.
    fn neighbours(&self) -> Neighbours;
    /// Returns the status of the whole switch.
    fn status(&self) -> Status;
    /// Returns the traffic of the last two minutes. A source that keeps none returns nothing.
    fn history(&self) -> History {
        History::default()
    }
    /// Returns the kept events after this number.
    fn events(&self, since: u64) -> Events;
    /// Returns the kept events after this number and all further ones as a stream of JSON lines, and
    /// the number of the newest event.
    ///
    /// # Errors
    /// The process has no free descriptor.
    fn follow_events(&self, since: u64) -> Result<(Events, Box<dyn Stream>), Refusal>;
}

/// Output that goes to one client until it leaves: one JSON line or binary record after another.
///
/// The client's thread calls it. What comes faster than the client reads, the stream keeps within bounds
/// of its own, and counts what it cannot keep.
pub trait Stream: Send {
    /// Returns when [`Self::fill`] has more. It is asked only while the client has read everything before.
    fn readiness(&self) -> Readiness<'_>;

    /// Appends what there is, up to [`MAX_FILL`] bytes and the rest of a record. It may be called when
    /// there is nothing. If it leaves nothing for the next call, it makes the descriptor unreadable, or
    /// sets a later time. Returns false at the end, after the last bytes.
    fn fill(&mut self, output: &mut Vec<u8>) -> bool;
}

/// The time at which a [`Stream`] has more.
#[derive(Clone, Copy, Debug)]
pub enum Readiness<'a> {
    /// While this descriptor is readable.
    Descriptor(BorrowedFd<'a>),
    /// From this time on, by the clock of the server.
    From(Instant),
}

/// The number of bytes after which [`Stream::fill`] appends no further record.
pub const MAX_FILL: usize = 64 << 10;

/// The side of a switch that changes it. One client's thread at a time calls it, and no other client
/// of the socket is answered meanwhile. An error is meant for the client, and means that nothing is changed.
pub trait Control: Send + Sync {
    /// Reads the configuration file again and applies it.
    ///
    /// # Errors
    /// The file has errors, or a change cannot be applied. The message may have several lines.
    fn reload(&self) -> Result<Changes, Refusal>;

    /// Reads the configuration file again and tells what [`Self::reload`] would change.
    ///
    /// # Errors
    /// The file has errors, or a change could not be applied. What only the attempt shows, such as a
    /// full system, is no error here.
    fn preview(&self) -> Result<Changes, Refusal>;

    /// Has the answer to `runtime` count from now on.
    fn clear_runtime(&self);

    /// Sets a port's link down, or allows it to be up again.
    ///
    /// # Errors
    /// There is no such port.
    fn set_link(&self, port: &str, up: bool) -> Result<(), Refusal>;

    /// Begins a capture of packets, which ends when the stream is dropped. The stream has the records
    /// of the crate `straightline-capture`. Captures show the contents of packets, so they are for
    /// those who may change the switch.
    ///
    /// # Errors
    /// The request is not valid, a port does not exist, or too many captures run.
    fn capture(&self, request: &CaptureRequest) -> Result<(Capture, Box<dyn Stream>), Refusal>;

    /// Begins a trace of packets, which ends when the stream is dropped. The stream has a
    /// [`TraceLine`] in each line, and ends after the last packet.
    ///
    /// # Errors
    /// The request is not valid, a port does not exist, or too many captures and traces run.
    fn trace(&self, request: &TraceRequest) -> Result<(Trace, Box<dyn Stream>), Refusal>;

    /// Sends echo requests of an underlay's own, one after the other. It ends when the stream is
    /// dropped. The stream has a [`PingLine`] in each line, and ends after the last request.
    ///
    /// # Errors
    /// The request is not valid, or the underlay does not exist or cannot send to the address.
    fn ping(&self, request: &PingRequest) -> Result<(Ping, Box<dyn Stream>), Refusal>;

    /// Sets a limit of a port, until the next reload.
    ///
    /// # Errors
    /// There is no such port, or the rate is not valid.
    fn set_rate(&self, request: &RateRequest) -> Result<RateSet, Refusal> {
        let _ = request;
        Err(Refusal::new(ErrorCode::Refused, "this program sets no rates"))
    }

    /// Changes flows of a bridge: all lines of `text`, or none.
    ///
    /// # Errors
    /// The first line that is wrong or not possible.
    fn change_flows(&self, request: &ChangeFlows, text: &str) -> Result<FlowsChanged, Refusal> {
        let _ = (request, text);
        Err(Refusal::new(ErrorCode::Refused, "this program has no flow tables"))
    }

    /// Sets the groups of a port that has none in the file.
    ///
    /// # Errors
    /// There is no such port or group, or the file has groups for it.
    fn set_groups(&self, request: &SetGroupsRequest) -> Result<(), Refusal> {
        let _ = request;
        Err(Refusal::new(ErrorCode::Refused, "this program has no groups"))
    }

    /// Adds, changes or deletes a group that is not in the file.
    ///
    /// # Errors
    /// A rule is wrong, the file has the group, or a port has one that is to be deleted.
    fn set_group(&self, request: &SetGroupRequest) -> Result<(), Refusal> {
        let _ = request;
        Err(Refusal::new(ErrorCode::Refused, "this program has no groups"))
    }

    /// Changes remotes of an owner in a tunnel: all of `remotes`, or none.
    ///
    /// # Errors
    /// The first remote that is wrong or not possible.
    fn change_remotes(&self, request: &ChangeRemotes, remotes: &[String]) -> Result<EntriesChanged, Refusal> {
        let _ = (request, remotes);
        Err(Refusal::new(ErrorCode::Refused, "this program has no tunnels"))
    }

    /// Changes stations of an owner in a bridge: all of `stations`, or none.
    ///
    /// # Errors
    /// The first station that is wrong or not possible.
    fn change_stations(&self, request: &ChangeStations, stations: &[NewStation]) -> Result<EntriesChanged, Refusal> {
        let _ = (request, stations);
        Err(Refusal::new(ErrorCode::Refused, "this program has no bridges"))
    }

    /// Begins a stream of stations, bindings and links: a [`NetworkEvent`] in each line. An owner has its
    /// lease until the stream is dropped.
    ///
    /// # Errors
    /// There is no such bridge, the owner has no valid name, or there are too many.
    fn subscribe(&self, request: &SubscribeRequest) -> Result<(Subscribed, Box<dyn Stream>), Refusal> {
        let _ = request;
        Err(Refusal::new(ErrorCode::Refused, "this program has no networks"))
    }

    /// Adds, changes or deletes a meter of a bridge.
    ///
    /// # Errors
    /// The meter is not valid, or the change is not possible.
    fn change_meter(&self, request: &ChangeMeter) -> Result<(), Refusal> {
        let _ = request;
        Err(Refusal::new(ErrorCode::Refused, "this program has no flow tables"))
    }

    /// Adds a port until the returned guard is dropped.
    ///
    /// # Errors
    /// The request or the socket is not valid.
    fn add_dynamic_port(&self, port_request: &PortRequest, socket: OwnedFd) -> Result<DynamicPortGuard, Refusal>;
}

/// A guard that removes a dynamic port when it is dropped.
pub type DynamicPortGuard = Box<dyn Any + Send>;

/// The two sides of a switch that requests reach.
#[derive(Clone)]
pub(crate) struct RequestHandler {
    /// The right that all clients of the socket have.
    pub(crate) right: Right,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) control: Option<Arc<dyn Control>>,
    /// Says when an answer was made.
    pub(crate) clock: Clock,
}

/// An answer.
struct Reply {
    /// Writes the answer line, without its newline. A large answer takes long, so nobody waits for it: the
    /// handler is free by then.
    write_line: Box<dyn FnOnce() -> Result<String, Refusal>>,
    /// The thing that the client has from now on.
    held: Held,
}

/// The thing that a client has for as long as it stays connected.
enum Held {
    Nothing,
    /// Lines for the next `change-flows`.
    Lines(HeldLines),
    DynamicPort(#[expect(dead_code, reason = "dropping it removes the port")] DynamicPortGuard),
    Stream(Box<dyn Stream>),
}

impl RequestHandler {
    /// Answers a request of a client that has `held`.
    fn answer(&self, request: &Request, fd: Option<OwnedFd>, held: &Held) -> Result<Reply, Refusal> {
        if !self.right.includes(request.command()) {
            return Err(read_only());
        }
        let source = &self.source;
        match request {
            Request::Status => self.good(source.status()),
            Request::Ports => self.good(source.ports()),
            Request::Fdb => self.good(source.fdb()),
            Request::Neighbours => self.good(source.neighbours()),
            Request::Tables => self.good(source.tables()),
            Request::Table(request) => self.good(source.table(request)?),
            Request::Runtime => self.good(source.runtime()),
            Request::ClearRuntime => {
                self.control()?.clear_runtime();
                self.good(Done {})
            }
            Request::Drops => self.good(source.drops()),
            Request::History => self.good(source.history()),
            Request::Events(EventsRequest { since, follow: false }) => self.good(source.events(*since)),
            Request::Events(EventsRequest { since, follow: true }) => {
                self.begin_stream(held, || source.follow_events(*since))
            }
            Request::Reload(ReloadRequest { dry_run: false }) => self.good(self.control()?.reload()?),
            Request::Reload(ReloadRequest { dry_run: true }) => self.good(self.control()?.preview()?),
            Request::Link(LinkRequest { port, up }) => {
                self.control()?.set_link(port, *up)?;
                self.good(Done {})
            }
            Request::Rate(request) => self.good(self.control()?.set_rate(request)?),
            Request::Flows(request) => self.good(source.flows(request)?),
            Request::Meters(request) => self.good(source.meters(request)?),
            Request::TraceFlow(request) => self.good(source.trace_flow(request)?),
            Request::Explain(request) => self.good(source.explain(request)?),
            Request::Groups => self.good(source.groups()),
            Request::Sets(request) => self.good(source.sets(request)?),
            Request::Connections(request) => self.good(source.connections(request)?),
            Request::SetGroups(request) => {
                self.control()?.set_groups(request)?;
                self.good(Done {})
            }
            Request::SetGroup(request) => {
                self.control()?.set_group(request)?;
                self.good(Done {})
            }
            Request::Remotes(request) => self.good(source.remotes(request)?),
            Request::Stations(request) => self.good(source.stations(request)?),
            Request::Bindings(request) => self.good(source.bindings(request)?),
            Request::ChangeRemotes(request) if request.more => self.hold_entries(&request.remotes, held),
            Request::ChangeRemotes(request) => {
                let remotes = all_entries(held, &request.remotes)?;
                self.good(self.control()?.change_remotes(request, &remotes)?)
            }
            Request::ChangeStations(request) if request.more => self.hold_entries(&request.stations, held),
            Request::ChangeStations(request) => {
                let stations = all_entries(held, &request.stations)?;
                self.good(self.control()?.change_stations(request, &stations)?)
            }
            Request::Subscribe(request) => self.begin_stream(held, || self.control()?.subscribe(request)),
            Request::FlowLines(FlowLines { text }) => self.hold_lines(text, held),
            Request::ChangeFlows(request) => {
                let before = if let Held::Lines(lines) = held { lines.take() } else { String::new() };
                self.good(self.control()?.change_flows(request, &(before + &request.text))?)
            }
            Request::ChangeMeter(request) => {
                self.control()?.change_meter(request)?;
                self.good(Done {})
            }
            Request::Capture(capture) => self.begin_stream(held, || self.control()?.capture(capture)),
            Request::Trace(trace) => self.begin_stream(held, || self.control()?.trace(trace)),
            Request::Ping(ping) => self.begin_stream(held, || self.control()?.ping(ping)),
            Request::Port(port_request) => {
                let control = self.control()?;
                let bad = |error| Refusal::new(ErrorCode::BadRequest, error);
                if matches!(held, Held::DynamicPort(_)) {
                    return Err(bad("port: this connection has a port already; open a connection for each port"));
                }
                let no_socket = "port: no socket came with the request; send it as a descriptor (SCM_RIGHTS)";
                let guard = control.add_dynamic_port(port_request, fd.ok_or_else(|| bad(no_socket))?)?;
                Ok(Reply { held: Held::DynamicPort(guard), ..self.good(Done {})? })
            }
        }
    }

    /// Keeps text of a connection for its next `change-flows`.
    fn hold_lines(&self, text: &str, held: &Held) -> Result<Reply, Refusal> {
        self.hold(text, 0, held, |_| self.good(Done {}))
    }

    /// Keeps entries of a connection for its next change.
    fn hold_entries(&self, entries: &[impl Serialize], held: &Held) -> Result<Reply, Refusal> {
        let (text, count) = one_per_line(entries)?;
        self.hold(&text, count, held, |held| self.good(EntriesChanged { held, ..EntriesChanged::default() }))
    }

    /// Keeps text of a connection, with so many entries. `reply` gets the number of all.
    fn hold(
        &self,
        text: &str,
        entries: u64,
        held: &Held,
        reply: impl FnOnce(u64) -> Result<Reply, Refusal>,
    ) -> Result<Reply, Refusal> {
        self.control()?;
        match held {
            Held::Lines(lines) => reply(lines.push(text, entries)?),
            Held::Nothing => {
                let lines = HeldLines::default();
                let count = lines.push(text, entries)?;
                Ok(Reply { held: Held::Lines(lines), ..reply(count)? })
            }
            _ => Err(Refusal::new(ErrorCode::BadRequest, "this connection has a port or a stream; open another one")),
        }
    }

    fn control(&self) -> Result<&dyn Control, Refusal> {
        self.control.as_deref().ok_or_else(read_only)
    }

    /// Returns an answer without anything else.
    fn good<T: Serialize + 'static>(&self, answer: T) -> Result<Reply, Refusal> {
        #[derive(Serialize)]
        struct Good<T> {
            ok: Timed<T>,
        }
        let ok = Timed { time: since_epoch(self.clock.time_of_day()), answer };
        let write_line = move || {
            serde_json::to_string(&Good { ok }).map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))
        };
        Ok(Reply { write_line: Box::new(write_line), held: Held::Nothing })
    }

    /// Returns an answer with a stream, if this connection may have one.
    fn begin_stream<T: Serialize + 'static>(
        &self,
        held: &Held,
        begin: impl FnOnce() -> Result<(T, Box<dyn Stream>), Refusal>,
    ) -> Result<Reply, Refusal> {
        if !matches!(held, Held::Nothing) {
            let error = "this connection has a port; open a connection for each stream";
            return Err(Refusal::new(ErrorCode::BadRequest, error));
        }
        let (answer, stream) = begin()?;
        Ok(Reply { held: Held::Stream(stream), ..self.good(answer)? })
    }
}

/// Returns the entries that a connection has sent before, and these.
fn all_entries<T: DeserializeOwned + Clone>(held: &Held, last: &[T]) -> Result<Vec<T>, Refusal> {
    let before = if let Held::Lines(lines) = held { lines.take() } else { String::new() };
    let parse = |line: &str| serde_json::from_str(line);
    let entries: Result<Vec<T>, _> = before.lines().map(parse).collect();
    let wrong =
        |error| Refusal::new(ErrorCode::BadRequest, format!("this connection has sent other text before: {error}"));
    let mut entries = entries.map_err(wrong)?;
    entries.extend_from_slice(last);
    Ok(entries)
}

fn read_only() -> Refusal {
    let error = "this socket only answers questions; nothing can be changed through it";
    Refusal::new(ErrorCode::ReadOnly, error)
}

/// Returns the line of an error, without its newline.
fn failure(refusal: &Refusal) -> String {
    // Only a map with keys that are no strings could fail to serialise.
    serde_json::to_string(refusal).unwrap_or_else(|_| "{\"error\":\"internal\",\"code\":\"internal\"}".to_owned())
}

/// An answer with the time at which it was made. From two answers a client can compute a rate.
#[derive(Serialize)]
struct Timed<T> {
    time: f64,
    #[serde(flatten)]
    answer: T,
}

/// Returns seconds since the epoch, to the microsecond.
pub(crate) fn since_epoch(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests;
