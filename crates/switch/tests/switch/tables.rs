//! Tables: what bridges and nodes know, across reloads and in pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use straightline_api::{Cell, EventKind, Row, TableRequest};
use straightline_config::{BridgeConfig, Config, Kinds, Machine, SourceCheckConfig};
use straightline_graph::{Next, Node, NodeControl, Rows, TableEvent, TableView, Unprepared};
use straightline_guest::GuestOptions;
use straightline_packet::{Batch, Packets, Reason};
use straightline_switch::api::{ErrorCode, TableSummary};
use straightline_testing::{BROADCAST, Rig, bridge, frame, mac, patch, rig, send, take, wait_event, wait_until};

/// Passes so many packets, and no more: a node with rules, a counter, a table and events.
#[derive(Clone)]
struct Quota(Arc<QuotaControl>);

#[derive(Debug)]
struct QuotaControl {
    name: String,
    most: u64,
    used: AtomicU64,
    is_told: AtomicBool,
}

impl Node for Quota {
    fn process(&mut self, packets: &mut Packets<'_>, batch: &Batch, next: &mut Next<'_>) {
        for &id in batch.ids() {
            if self.0.used.load(Ordering::Relaxed) < self.0.most {
                self.0.used.fetch_add(1, Ordering::Relaxed);
                next.push(0, id);
            } else {
                packets.discard(id, Reason::Node);
            }
        }
    }

    fn control(&self) -> Option<Arc<dyn NodeControl>> {
        Some(Arc::clone(&self.0) as _)
    }
}

impl NodeControl for QuotaControl {
    fn prepare(&self, before: Option<&dyn NodeControl>) -> Result<(), Unprepared> {
        let used = before.and_then(<dyn NodeControl>::downcast::<Self>);
        let used = used.map_or(0, |before| before.used.load(Ordering::Relaxed));
        if used > self.most {
            return Err(Unprepared::of_key("most", format!("{used} packets have passed; it must be at least {used}")));
        }
        Ok(())
    }

    fn commit(&self, before: &dyn NodeControl) {
        if let Some(before) = before.downcast::<Self>() {
            self.used.store(before.used.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn rows(&self, _: &TableView<'_>, rows: &mut Rows) {
        let fields = [("most".to_owned(), Cell::from(self.most))].into();
        rows.add(|| "0".to_owned(), || Row::Node { fields });
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("used", self.used.load(Ordering::Relaxed))]
    }

    fn events(&self, _: &TableView<'_>) -> Vec<TableEvent> {
        let is_full = self.used.load(Ordering::Relaxed) >= self.most;
        if !is_full || self.is_told.swap(true, Ordering::Relaxed) {
            return Vec::new();
        }
        let kind = EventKind::Node { node: self.name.clone() };
        vec![TableEvent { source: self.name.clone(), kind, message: format!("node {:?} is full", self.name) }]
    }
}

/// Returns the nodes of a file with this quota.
fn with_quota(config: &Config, most: u64) -> Config {
    let kinds = Kinds::new().with("quota", |settings| {
        let name = settings.name().to_owned();
        let most = settings.integer("most", 0..=u64::from(u32::MAX), 0);
        Quota(Arc::new(QuotaControl { name, most, used: AtomicU64::new(0), is_told: AtomicBool::new(false) }))
    });
    let text = format!("[node.q]\nkind = \"quota\"\nmost = {most}\n");
    let nodes = Config::parse_with("q.toml", &text, &Machine::this(), &kinds).expect("a configuration").config.nodes;
    Config { nodes, ..config.clone() }
}

fn tables(rig: &Rig) -> Vec<TableSummary> {
    rig.switch.source().tables().tables
}

fn counter(rig: &Rig, table: &str, counter: &str) -> u64 {
    let tables = tables(rig);
    let table = tables.iter().find(|known| known.table == table).unwrap_or_else(|| panic!("{tables:?}"));
    table.counters[counter]
}

#[test]
fn a_node_of_a_program_keeps_its_state_across_a_reload_or_refuses_it() {
    let rig = rig(2, |config| {
        *config = with_quota(config, 3);
        config.ports[0].nodes = vec!["q".to_owned()];
        config.patches.push(patch(0, 1));
    });
    let mut source = rig.guest(0, &GuestOptions::default());
    let mut sink = rig.guest(1, &GuestOptions::default());
    for packet in 0..2 {
        send(&mut source, &frame(mac(2), mac(1), 100, packet));
        assert_eq!(take(&mut sink, 1).len(), 1);
    }
    assert_eq!(counter(&rig, "node:q", "used"), 2);
    let config = rig.switch.config();
    let error = rig.switch.reload(&with_quota(&config, 1)).expect_err("two have passed");
    let expected = "q.toml:3: most in node \"q\": 2 packets have passed; it must be at least 2";
    assert_eq!(error.to_string(), expected);
    assert_eq!(rig.switch.config(), config, "nothing has changed");
    rig.switch.reload(&with_quota(&config, 4)).expect("more is possible");
    let page = rig.switch.source().table(&TableRequest::new("node:q")).expect("the table");
    assert_eq!(page.rows, [Row::Node { fields: [("most".to_owned(), Cell::Number(4))].into() }]);
    assert_eq!((page.total, page.next), (1, None));
    for packet in 2..6 {
        send(&mut source, &frame(mac(2), mac(1), 100, packet));
    }
    assert_eq!(take(&mut sink, 2).len(), 2);
    rig.wait_drops(0, "node", 2);
    assert_eq!(counter(&rig, "node:q", "used"), 4);
    wait_event(&rig.switch, "it tells that it is full", |kind| *kind == EventKind::Node { node: "q".to_owned() });
}

#[test]
fn a_bridge_shows_its_stations_in_pages_and_keeps_them_when_its_ports_change() {
    let rig = rig(3, |config| {
        config.ports[1].source_check = Some(SourceCheckConfig::default());
        config.ports[1].mac = Some(mac(9).to_string().parse().expect("an address"));
        config.bridges.push(bridge(2));
    });
    let mut guest = rig.guest(0, &GuestOptions::default());
    for station in 1..=7 {
        send(&mut guest, &frame(BROADCAST, mac(station), 100, 0));
    }
    let lan = |after: Option<String>, limit| {
        rig.switch.source().table(&TableRequest { after, limit, ..TableRequest::new("bridge:lan") }).expect("the table")
    };
    wait_until("all are learned", || lan(None, 1).total == 7);
    let stations = |rows: &[Row]| -> Vec<String> {
        let station = |row: &Row| match row {
            Row::Station(entry) => (entry.port == "p0" && entry.vlan == 1).then(|| entry.mac.clone()),
            _ => None,
        };
        rows.iter().filter_map(station).collect()
    };
    let all = |limit| {
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = lan(after, limit);
            assert!(page.rows.len() <= limit as usize);
            seen.extend(stations(&page.rows));
            after = page.next;
            if after.is_none() {
                return seen;
            }
        }
    };
    let expected: Vec<_> = (1..=7).map(|station| mac(station).to_string()).collect();
    assert_eq!(all(3), expected);
    let names: Vec<_> = tables(&rig).into_iter().map(|table| (table.table, table.rows)).collect();
    assert_eq!(names, [("bridge:lan".to_owned(), 7), ("source-check:p1".to_owned(), 1)]);
    // The table has other members, so it has a successor.
    let mut config = rig.switch.config();
    config.bridges[0] = BridgeConfig { ports: bridge(3).ports, ..config.bridges[0].clone() };
    rig.switch.reload(&config).expect("a further port");
    assert_eq!(all(1000), expected);
    let refusal = rig.switch.source().table(&TableRequest::new("bridge:lam")).expect_err("no table");
    assert_eq!((refusal.code, refusal.culprit.as_deref()), (ErrorCode::UnknownTable, Some("bridge:lam")));
    assert_eq!(refusal.error, "no such table \"bridge:lam\"; tables are bridge:lan, source-check:p1");
}
