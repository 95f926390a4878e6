//! Two embedded guests.

use anyhow::Context;
use straightline_switch::Switch;
use straightline_switch::config::PortConfig;
use straightline_wire::MacAddr;
use tempfile::TempDir;

use super::{BURST, Ends, config};
use crate::traffic::IMIX;
use crate::{Guest, GuestOptions, Sequence, Stream};

/// Packets under way in one direction: fewer than a ring has buffers.
const WINDOW: u64 = 192;

const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

/// The guests, and the stream that each of them sends.
pub(super) struct Guests([(Guest, Stream); 2]);

/// Starts a switch with two guests. Its sockets are in the folder.
pub(super) fn start() -> anyhow::Result<(TempDir, Switch, Guests)> {
    let folder =
        tempfile::Builder::new().prefix("straightline-demo").tempdir().context("cannot make a folder for sockets")?;
    let names = ["left", "right"];
    let sockets = names.map(|name| folder.path().join(name));
    let [left, right] = [0, 1].map(|at| PortConfig::vhost_user(names[at], &sockets[at]));
    let switch = Switch::start(&config([left, right]))?;
    let connect = |from: usize| {
        let mut guest = Guest::connect(&sockets[from], &GuestOptions::default())?;
        let stream = Stream::prepare(&mut guest, MACS[from], MACS[1 - from], &IMIX)?;
        anyhow::Ok((guest, stream))
    };
    let guests = Guests([connect(0)?, connect(1)?]);
    Ok((folder, switch, guests))
}

impl Ends for Guests {
    fn title(&self) -> String {
        "two guests".to_owned()
    }

    fn window(&self) -> u64 {
        WINDOW
    }

    fn send(&mut self, direction: usize, most: usize) -> anyhow::Result<usize> {
        let (guest, stream) = &mut self.0[direction];
        let sent = (0..most).take_while(|_| stream.send(guest)).count();
        guest.flush();
        Ok(sent)
    }

    fn receive(&mut self, direction: usize, arrived: &mut Sequence) -> anyhow::Result<()> {
        let guest = &mut self.0[1 - direction].0;
        let level = guest.level();
        guest.receive(BURST, |_, parts| arrived.note(level, parts));
        Ok(())
    }
}
