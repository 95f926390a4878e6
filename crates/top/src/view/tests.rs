use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use straightline_api::rates::{Sample, Timed};
use straightline_api::{DropCount, Drops, Link, Node, Packets, Port, Ports, Queue, Runtime, Status, Worker};

use super::*;
use crate::{Column, Output, Sort, TopOptions};

fn options() -> TopOptions {
    TopOptions {
        api: "api".into(),
        interval: Duration::from_secs(1),
        count: None,
        output: Output::Screen,
        sort: Sort::Worst,
        columns: Column::ALL.to_vec(),
    }
}

/// Returns the sample of a switch after these seconds, with `ports` ports of which the second is
/// down, and one drop a second.
fn sample(seconds: u32, ports: u32) -> Sample {
    let n = u64::from(seconds);
    let port = |index: u32| {
        let flow = Packets { packets: n * 1000 * u64::from(index), bytes: n * 1_000_000 * u64::from(index) };
        Port {
            name: format!("vm{index}"),
            kind: "vhost-user".to_owned(),
            link: if index == 1 { Link::Down } else { Link::Up },
            reason: (index == 1).then(|| "no frontend has connected yet".to_owned()),
            remedy: (index == 1).then(|| "Start the VM.".to_owned()),
            queues: vec![Queue { rx: flow, tx: flow, ..Queue::default() }],
            drops: [("too-big".to_owned(), if index == 0 { n } else { 0 })].into(),
            ..Port::default()
        }
    };
    let time = 1e9 + f64::from(seconds);
    let worker = |cpu| Worker {
        cpu: Some(cpu),
        busy_s: 0.5 * f64::from(seconds),
        empty_poll_s: 0.25 * f64::from(seconds),
        idle_s: 0.25 * f64::from(seconds),
        ..Worker::default()
    };
    let drops = DropCount {
        port: "vm0".to_owned(),
        reason: "too-big".to_owned(),
        count: n,
        meaning: "The packet is too long.".to_owned(),
        remedy: "Lower the guest's MTU.".to_owned(),
    };
    let runtime = Runtime {
        workers: vec![worker(2), worker(3)],
        nodes: vec![Node::new("patch", n, 32 * n, 640 * n)],
        cleared: None,
    };
    Sample {
        status: Timed {
            time,
            answer: Status { version: "9.9".to_owned(), uptime_s: f64::from(seconds), ..Status::default() },
        },
        ports: Timed { time, answer: Ports { ports: (0..ports).map(port).collect() } },
        runtime: Timed { time, answer: runtime },
        drops: Timed { time, answer: Drops { drops: vec![drops] } },
    }
}

fn app() -> App {
    let mut app = App::new(&options());
    (10..13).for_each(|seconds| app.take(Ok(sample(seconds, 3))));
    app
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = if key == '\t' { KeyCode::Tab } else { KeyCode::Char(key) };
        app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

/// Returns the lines of the screen.
fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, Theme::new(true))).unwrap();
    let buffer = terminal.backend().buffer();
    let cell = |x, y| buffer[(x, y)].symbol();
    (0..height).map(|y| (0..width).map(|x| cell(x, y)).collect::<String>().trim_end().to_owned()).collect()
}

#[test]
fn a_small_terminal_shows_one_view_with_the_worst_first() {
    let lines = screen(&app(), 80, 24);
    assert_eq!(lines[0], " straightline 9.9  up 12 s  2 of 3 ports up  over 1.0 s");
    assert!(
        lines[1].starts_with(" rx 3.00 k pkt/s, 24.0 M bit/s   tx 3.00 k pkt/s, 24.0 M bit/s  drops 1.0/s"),
        "{lines:#?}"
    );
    let expected = [
        "│ port  joined  link  rx pkt/s  rx bit/s  tx pkt/s  tx bit/s  drops/s  history │",
        "│▸vm0   up           0         0         0         0      1.0          │",
        "│ vm1   down    1.00 k    8.00 M    1.00 k    8.00 M        0        ██│",
        "│ vm2   up      2.00 k    16.0 M    2.00 k    16.0 M        0        ██│",
    ];
    for (line, expected) in lines[3..7].iter().zip(expected) {
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(line), squeezed(expected), "{lines:#?}");
    }
    let all = lines.join("\n");
    assert!(all.contains("too narrow for: kind ") && all.contains("1.0 drops/s, too-big: Lower the guest's MTU."));
    assert!(lines[23].starts_with(" q quit  tab view"), "{lines:#?}");
}

#[test]
fn the_chosen_port_shows_why_it_is_down() {
    let mut app = app();
    press(&mut app, "j");
    let all = screen(&app, 80, 24).join("\n");
    assert!(all.contains("down: no frontend has connected yet") && all.contains("Start the VM."), "{all}");
}

#[test]
fn a_long_remedy_is_shown_to_its_last_word() {
    let mut sample = sample(13, 3);
    let remedy = format!("Start the VM, {}and look again.", "or another program with a vhost-user device, ".repeat(6));
    sample.ports.answer.ports[1].remedy = Some(remedy);
    let mut app = app();
    app.take(Ok(sample));
    press(&mut app, "j");
    let all = screen(&app, 80, 24).join("\n");
    assert!(all.contains("look again."), "{all}");
}

#[test]
fn the_tab_key_shows_the_other_views() {
    let mut app = app();
    let mut shown = Vec::new();
    for text in ["CPU 2", "cycles/packet", "The packet is too long.", "rx pkt/s"] {
        press(&mut app, "\t");
        let all = screen(&app, 80, 24).join("\n");
        assert!(all.contains(text), "{text}: {all}");
        shown.push(all);
    }
    // Half of the bar is busy, a quarter each empty and idle.
    let count = |mark| shown[0].lines().find(|line| line.contains("CPU 2")).unwrap().matches(mark).count();
    assert_eq!((count('█'), count('▒')), (2 * count('·'), count('·')));
}

#[test]
fn a_large_terminal_shows_everything() {
    for (width, height) in [(132, 40), (200, 60)] {
        let all = screen(&app(), width, height).join("\n");
        for text in ["Ports", "Workers", "Drops", "Nodes", "CPU 3", "cycles/packet", "since start", "kind"] {
            assert!(all.contains(text), "{text}: {all}");
        }
        assert!(!all.contains("too narrow"), "{all}");
    }
}

#[test]
fn a_tiny_terminal_says_what_is_missing() {
    let all = screen(&app(), 40, 12).join(" ");
    assert!(all.contains("40x12") && all.contains("60x16") && all.contains("--batch"), "{all}");
}

#[test]
fn no_size_and_no_key_panics() {
    let mut empty = App::new(&options());
    empty.take(Err("no switch".to_owned()));
    let mut many = App::new(&options());
    (10..13).for_each(|seconds| many.take(Ok(sample(seconds, 500))));
    for mut app in [empty, app(), many] {
        for keys in ["", "G", "\t", "G", "\t", "G", "\t", "G", "\t", "s", "c", "jjj ", "c", "?", "xp"] {
            press(&mut app, keys);
            for (width, height) in [(1, 1), (2, 30), (60, 16), (61, 17), (80, 24), (110, 34), (300, 16), (60, 100)] {
                screen(&app, width, height);
            }
        }
    }
}

#[test]
fn a_switch_that_stops_and_comes_back() {
    let mut app = app();
    app.take(Err("no switch listens on api".to_owned()));
    let all = screen(&app, 80, 24).join("\n");
    assert!(all.contains("no switch listens on api; waiting for it") && all.contains("vm2"), "{all}");
    let mut restarted = sample(1, 2);
    restarted.status.time += 60.0;
    app.take(Ok(restarted));
    let all = screen(&app, 80, 24).join("\n");
    assert!(!all.contains("waiting") && all.contains("rx - pkt/s") && !all.contains("vm2"), "{all}");
}

#[test]
fn curves_begin_with_what_the_switch_has_kept() {
    let mut app = App::new(&options());
    let mut first = sample(1, 2);
    first.ports.answer.ports[1].tunnel = Some(straightline_api::Tunnel::default());
    let curves = [("vm0", vec![8.0, 9.0]), ("vm1", vec![5.0]), ("gone", vec![7.0])];
    app.begin(curves.map(|(name, curve)| (name.to_owned(), curve)).into());
    app.take(Ok(first));
    app.take(Ok(sample(2, 2)));
    assert_eq!(app.history(Some("vm0")), &[8.0, 9.0, 0.0]);
    assert_eq!((app.history(Some("vm1")).len(), app.history(Some("gone")).len()), (2, 0));
    // The packets of tunnels are those of their underlay.
    assert_eq!(app.history(None).iter().copied().take(2).collect::<Vec<_>>(), [8.0, 9.0]);
}

#[test]
fn a_pause_keeps_the_numbers() {
    let mut app = app();
    press(&mut app, "p");
    app.take(Ok(sample(40, 1)));
    let all = screen(&app, 80, 24).join("\n");
    assert!(all.contains("PAUSED") && all.contains("up 12 s"), "{all}");
    press(&mut app, "p");
    app.take(Ok(sample(41, 1)));
    assert!(screen(&app, 80, 24)[0].contains("up 41 s"));
}

#[test]
fn columns_can_be_chosen() {
    let mut app = app();
    // The second column is the kind.
    press(&mut app, "cj c");
    assert!(!app.columns.contains(&Column::Kind) && app.popup.is_none());
    press(&mut app, "cj c");
    assert_eq!(app.columns, Column::ALL);
}
