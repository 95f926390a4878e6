//! An attacker on a bridge with snooping, which joins invented multicast groups and forges messages about
//! them.

use std::net::Ipv4Addr;

use hostile::scene::measure_gap;
use straightline_config::BridgeConfig;
use straightline_guest::{Guest, GuestOptions};
use straightline_switch::api::{EventKind, Row, TableRequest};
use straightline_testing::multicast::{data, join, message, packet, query};
use straightline_testing::{Rig, Victims, arrived, bridge, noise, patch, rig, send, take, wait_event, wait_until};
use straightline_wire::{IpProtocol, igmp};

/// The group that the quiet guest has joined.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

/// Ports 0 (the attacker's), 1 (a quiet guest's) and 2 (a querier's) are on one bridge. Ports 3 and 4, the
/// victims', are patched. All have one worker.
struct Lan {
    rig: Rig,
    attacker: Guest,
    quiet: Guest,
    querier: Guest,
    victims: Victims,
}

impl Lan {
    fn new() -> Lan {
        let rig = rig(5, |config| {
            config.bridges.push(BridgeConfig { snooping: true, ..bridge(3) });
            config.patches.push(patch(3, 4));
        });
        let [attacker, quiet, querier] = [0, 1, 2].map(|port| rig.guest(port, &GuestOptions::default()));
        let victims = Victims::start(&rig, 3, 4);
        let mut lan = Lan { rig, attacker, quiet, querier, victims };
        send(&mut lan.querier, &query());
        take(&mut lan.quiet, 1);
        take(&mut lan.attacker, 1);
        lan
    }

    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        let mut after = None;
        loop {
            let request = TableRequest { after, ..TableRequest::new("snooping:lan") };
            let page = self.rig.switch.source().table(&request).expect("the table");
            rows.extend(page.rows.into_iter().filter_map(|row| match row {
                Row::GroupMember(row) => Some((row.group, row.port)),
                _ => None,
            }));
            after = page.next;
            if after.is_none() {
                return rows;
            }
        }
    }

    fn has(&self, group: &str, port: &str) -> bool {
        self.rows().contains(&(group.to_owned(), port.to_owned()))
    }

    /// The quiet guest joins a group, and gets the packets of this group only.
    fn serves_the_quiet_guest(&mut self) {
        let joined = join(GROUP);
        wait_until("the report has reached the querier", || {
            // Hosts repeat reports, because one may find no free buffer behind those of others.
            send(&mut self.quiet, &joined);
            arrived(&mut self.querier).iter().any(|(_, frame)| *frame == joined)
        });
        assert!(self.has(&GROUP.to_string(), "p1"));
        assert!(!self.has("all", "p1"), "it has a place of its own");
        let other = data(Ipv4Addr::new(239, 4, 4, 4));
        wait_until("packets to other groups do not reach it", || {
            send(&mut self.querier, &other);
            // Packets of one sender arrive in order, so the other one would have arrived before.
            send(&mut self.querier, &data(GROUP));
            let mut got = Vec::new();
            wait_until("the packet to its group reaches it", || {
                got.extend(arrived(&mut self.quiet).into_iter().map(|(_, frame)| frame));
                got.contains(&data(GROUP))
            });
            got.len() == 1
        });
    }
}

/// The attacker joins many more groups than the table has places. A quiet guest still has its own.
#[test]
fn invented_groups() {
    let mut lan = Lan::new();
    measure_gap(&lan.victims, "invented groups", || {
        for n in 0..hostile::repeats(20_000, 2_000_000) {
            let [.., a, b, c] = n.to_be_bytes();
            let frame = join(Ipv4Addr::new(239, a | 0x10, b, c));
            send(&mut lan.attacker, &frame);
            arrived(&mut lan.querier);
        }
    });
    wait_event(
        &lan.rig.switch,
        "a full share is an event",
        |kind| matches!(kind, EventKind::GroupsRefused { port, .. } if port == "p0"),
    );
    assert!(lan.has("all", "p0"), "the attacker gets all groups");
    lan.serves_the_quiet_guest();
    lan.victims.go_on();
    lan.victims.finish();
}

/// Messages with every length, with noise in place of their fields, and in the name of others.
#[test]
fn forged_messages() {
    let mut lan = Lan::new();
    let Lan { attacker, quiet, querier, victims, .. } = &mut lan;
    measure_gap(victims, "forged messages", || {
        // All others take what they get.
        let mut attack = |frame: &[u8]| {
            send(attacker, frame);
            arrived(quiet);
            arrived(querier);
        };
        for n in 0..hostile::repeats(4000, 400_000) {
            let len = n % 600;
            let mut payload = noise(n as u64, len);
            let kind = [0x11, 0x12, 0x16, 0x17, 0x22][n % 5];
            if let Some(first) = payload.first_mut() {
                *first = kind;
            }
            if n % 2 == 0 && len >= 8 {
                // The checksum is right.
                payload[2..4].fill(0);
                let checksum = !straightline_wire::checksum::sum(&payload);
                payload[2..4].copy_from_slice(&checksum.to_be_bytes());
            }
            let to = if n % 3 == 0 { igmp::ALL_HOSTS } else { GROUP };
            attack(&packet(to, IpProtocol::IGMP, &payload));
        }
        // It leaves the group of the other guest, again and again.
        for _ in 0..100 {
            attack(&message(igmp::ALL_ROUTERS, igmp::Repr::Leave(GROUP)));
        }
    });
    lan.serves_the_quiet_guest();
    lan.victims.go_on();
    lan.victims.finish();
}
