//! Two embedded guests.

use anyhow::Context;
use straightline_config::PortConfig;
use straightline_guest::guest_mac;
use straightline_guest::{Guest, GuestOptions, Sequence, Stream};
use straightline_switch::Switch;
use tempfile::TempDir;

use super::{BURST, Ends, IMIX, config};

/// Packets under way in one direction: fewer than a ring has buffers.
const WINDOW: u64 = 192;

/// The guests, and the stream that each of them sends.
pub(super) struct Guests {
    ends: [(Guest, Stream); 2],
    title: String,
}

/// Starts a switch with two guests. Its sockets are in the folder.
pub(super) fn start() -> anyhow::Result<(TempDir, Switch, Guests)> {
    let folder = folder()?;
    let names = ["left", "right"];
    let sockets = names.map(|name| folder.path().join(name));
    let [left, right] = [0, 1].map(|at| PortConfig::vhost_user(names[at], &sockets[at]));
    let switch = Switch::start(&config([left, right]))?;
    let connect = |socket| Guest::connect(socket, &GuestOptions::default());
    let guests = Guests::new([connect(&sockets[0])?, connect(&sockets[1])?], "two guests".to_owned())?;
    Ok((folder, switch, guests))
}

/// Makes a folder for sockets.
pub(super) fn folder() -> anyhow::Result<TempDir> {
    tempfile::Builder::new().prefix("straightline-demo").tempdir().context("cannot make a folder for sockets")
}

impl Guests {
    /// Gives each of two guests the stream that it sends. The title describes the guests.
    pub(super) fn new([mut left, mut right]: [Guest; 2], title: String) -> anyhow::Result<Guests> {
        let macs = [guest_mac(1, 0), guest_mac(2, 0)];
        let streams = [
            Stream::prepare(&mut left, macs[0], macs[1], &IMIX)?,
            Stream::prepare(&mut right, macs[1], macs[0], &IMIX)?,
        ];
        let [one, other] = streams;
        Ok(Guests { ends: [(left, one), (right, other)], title })
    }
}

impl Ends for Guests {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn window(&self) -> u64 {
        WINDOW
    }

    fn send(&mut self, direction: usize, most: usize) -> anyhow::Result<usize> {
        let (guest, stream) = &mut self.ends[direction];
        let sent = (0..most).take_while(|_| stream.send(guest)).count();
        guest.flush();
        Ok(sent)
    }

    fn receive(&mut self, direction: usize, arrived: &mut Sequence) -> anyhow::Result<()> {
        let guest = &mut self.ends[1 - direction].0;
        let level = guest.level();
        guest.receive(BURST, |_, parts| arrived.note(level, parts));
        Ok(())
    }
}
