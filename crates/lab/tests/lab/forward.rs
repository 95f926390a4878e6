//! The generator's ports and the guest that forwards, against our own switch: in every layout, with
//! frames in one buffer and in several, each packet returns as the mode makes it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use straightline_guest::endpoints::{EventLoop, Layout, PortOptions, Received, TestPort, VhostPort};
use straightline_lab::guests::forward::{self, ForwardOptions, ForwardReport, Mode, Touch};
use straightline_testing::{Rig, patch, rig, wait_until};
use straightline_virtio::net_header::NetHeader;

/// Patches between ports 0 and 1, and between 2 and 3.
fn two_patches() -> Rig {
    rig(4, |config| {
        config.ports.iter_mut().for_each(|port| port.mtu = 9216);
        config.patches = vec![patch(0, 1), patch(2, 3)];
    })
}

/// A running guest, with its stop flag.
struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<(ForwardReport, anyhow::Result<()>)>>,
}

impl Running {
    fn start(rig: &Rig, ports: &[usize], options: &ForwardOptions) -> Running {
        let backends: Vec<PathBuf> = ports.iter().map(|&port| rig.socket(port).clone()).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let options = options.clone();
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                forward::run(&backends, &options, &EventLoop { stop: Some(&stop), ..EventLoop::default() })
            })
        };
        ports.iter().for_each(|&port| rig.wait_up(port));
        Running { stop, thread }
    }

    fn stop(self) -> ForwardReport {
        self.stop.store(true, Ordering::Relaxed);
        let (report, ended) = self.thread.join().expect("the guest").expect("a guest");
        ended.expect("a sound backend");
        report
    }
}

/// Frames of these lengths, each with bytes of its own.
fn frames(lens: &[usize]) -> Vec<Vec<u8>> {
    let byte = |n: usize, at: usize| u8::try_from((at * 7 + n * 13 + at / 256) % 256).expect("a byte");
    lens.iter().enumerate().map(|(n, &len)| (0..len).map(|at| byte(n, at)).collect()).collect()
}

/// Sends all frames through one port, repeatedly, each with its number at offset 20, until `rounds`
/// of them have come through the other, in order and as `expect` makes them.
fn exchange([from, to]: [&mut VhostPort; 2], frames: &[Vec<u8>], rounds: usize, expect: impl Fn(&[u8]) -> Vec<u8>) {
    let total = rounds * frames.len();
    let mut sent = 0;
    let mut came = 0;
    let numbered = |n: usize| {
        let mut frame = frames[n % frames.len()].clone();
        frame[20..28].copy_from_slice(&n.to_be_bytes());
        frame
    };
    wait_until("all have come", || {
        loop {
            // Fewer under way than any ring has buffers.
            while sent < total && sent < came + 8 {
                let template = sent % frames.len();
                if !from.send(template, &NetHeader::default(), &frames[template], &[(20, &sent.to_be_bytes())]) {
                    break;
                }
                sent += 1;
            }
            from.flush().expect("a sound backend");
            let packets = to.receive(32, &mut |packet: &dyn Received| {
                let mut bytes = vec![0; packet.len()];
                assert_eq!(packet.read(0, &mut bytes), bytes.len());
                assert!(bytes == expect(&numbered(came)), "packet {came} of {} bytes", bytes.len());
                came += 1;
            });
            if packets.expect("a sound backend") == 0 {
                break;
            }
        }
        from.wake();
        to.wake();
        if came < total { Err(format!("{came} of {total} have come, {sent} are sent")) } else { Ok(()) }
    });
}

/// The generator's ports 0 and 3, and the guest on 1 and 2.
fn through(options: &ForwardOptions, lens: &[usize], expect: impl Fn(&[u8]) -> Vec<u8>) -> ForwardReport {
    let rig = two_patches();
    let guest = Running::start(&rig, &[1, 2], options);
    let mut generator = [0, 3].map(|port| {
        let longest = 9216;
        let port = VhostPort::connect(rig.socket(port), &PortOptions { longest, ..options.ports.clone() });
        port.expect("a port")
    });
    [0, 3].iter().for_each(|&port| rig.wait_up(port));
    let frames = frames(lens);
    let [a, b] = &mut generator;
    exchange([a, b], &frames, 20, &expect);
    exchange([b, a], &frames, 20, &expect);
    let total = u64::try_from(20 * lens.len()).expect("a count");
    let bytes = 20 * u64::try_from(lens.iter().sum::<usize>()).expect("a count");
    for port in &generator {
        let counters = port.counters();
        assert_eq!((counters.rx_packets, counters.tx_packets), (total, total));
        assert_eq!((counters.rx_bytes, counters.tx_bytes), (bytes, bytes));
    }
    let report = guest.stop();
    for port in &report.ports {
        assert_eq!((port.rx_packets, port.tx_packets, port.dropped), (total, total, 0), "{report:?}");
        assert_eq!((port.rx_bytes, port.tx_bytes, port.too_long), (bytes, bytes, 0), "{report:?}");
    }
    assert!(report.secs > 0.0, "{report:?}");
    rig.no_drops();
    report
}

fn swapped(frame: &[u8]) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..]].concat()
}

#[test]
fn everything_comes_through_in_one_buffer() {
    for layout in [Layout::Split, Layout::Packed] {
        for (mergeable, in_order) in [(true, false), (false, false), (true, true)] {
            for header_offset in [52, 0, 17] {
                let ports = PortOptions { layout, mergeable, in_order, header_offset, buffer_len: 10_240, ..ports() };
                let options = ForwardOptions { ports, ..ForwardOptions::default() };
                through(&options, &[60, 64, 65, 1514, 9000], <[u8]>::to_vec);
            }
        }
    }
}

#[test]
fn everything_comes_through_in_several_buffers() {
    for layout in [Layout::Split, Layout::Packed] {
        for (buffer_len, in_order) in [(2048, false), (256, false), (256, true), (100, false)] {
            let ports = PortOptions { layout, in_order, buffer_len, longest: 9216, queue_size: 256, ..ports() };
            for mode in [Mode::Io, Mode::MacSwap] {
                let options = ForwardOptions { mode, ports: ports.clone(), ..ForwardOptions::default() };
                let expect = if mode == Mode::Io { <[u8]>::to_vec } else { swapped };
                through(&options, &[60, 1514, 88, 2036, 2037, 4000, 100, 9000], expect);
            }
        }
    }
}

#[test]
fn what_is_touched_is_touched_in_every_buffer() {
    for touch in [Touch::Header, Touch::Read, Touch::Edit] {
        let ports = PortOptions { buffer_len: 500, longest: 9216, ..ports() };
        let options = ForwardOptions { mode: Mode::MacSwap, touch, ports, ..ForwardOptions::default() };
        let expect = |frame: &[u8]| {
            let mut frame = swapped(frame);
            if touch == Touch::Edit {
                frame[14..].iter_mut().for_each(|byte| *byte = !*byte);
            }
            frame
        };
        through(&options, &[60, 1514, 5000], expect);
    }
}

fn ports() -> PortOptions {
    PortOptions { queue_size: 64, ..PortOptions::default() }
}

#[test]
fn a_guest_of_one_port_sends_back() {
    for layout in [Layout::Split, Layout::Packed] {
        // A switch of its own: another one may still report the previous guest's link as up.
        let rig = two_patches();
        let options = ForwardOptions { ports: PortOptions { layout, ..ports() }, ..ForwardOptions::default() };
        let guest = Running::start(&rig, &[1], &options);
        let mut generator = VhostPort::connect_all(&[rig.socket(0).clone()], &options.ports).expect("a port");
        rig.wait_up(0);
        let port = &mut generator[0];
        assert_eq!(port.free_buffers(), 64);
        for n in 0..200_u8 {
            assert!(port.send(0, &NetHeader::default(), &[7; 60], &[(30, &[n, n])]));
            port.flush().expect("a sound backend");
            let back = wait_until("the packet returns", || {
                let mut back = Vec::new();
                let packets = port.receive(1, &mut |packet: &dyn Received| {
                    back.resize(packet.len(), 0);
                    packet.read(0, &mut back);
                });
                packets.expect("a sound backend");
                port.wake();
                (!back.is_empty()).then_some(back)
            });
            assert_eq!(back, [&[7; 30][..], &[n, n], &[7; 28]].concat());
        }
        assert_eq!(guest.stop().ports.len(), 1);
    }
}

#[test]
fn what_is_longer_than_was_said_is_counted() {
    let rig = two_patches();
    let options = ForwardOptions { ports: PortOptions { buffer_len: 1600, ..ports() }, ..ForwardOptions::default() };
    let guest = Running::start(&rig, &[1], &options);
    let mut generator =
        VhostPort::connect(rig.socket(0), &PortOptions { longest: 4000, ..options.ports.clone() }).expect("a port");
    rig.wait_up(0);
    // Two frames are in several buffers; the third is not, and returns.
    for (template, len) in [4000, 1600, 1000].into_iter().enumerate() {
        assert!(generator.send(template, &NetHeader::default(), &vec![1; len], &[]));
    }
    generator.flush().expect("a sound backend");
    let mut lens = Vec::new();
    wait_until("a packet returns", || {
        generator.receive(9, &mut |packet: &dyn Received| lens.push(packet.len())).expect("a sound backend") > 0
    });
    assert_eq!(lens, [1000]);
    let report = guest.stop();
    assert_eq!((report.ports[0].rx_packets, report.ports[0].tx_packets, report.ports[0].too_long), (3, 1, 2));
    // The generator's port reports frames that it was not made for.
    assert!(!generator.send(9, &NetHeader::default(), &[1; 4001], &[]));
    let error = generator.flush().expect_err("too long").to_string();
    assert!(error.contains("4000") && error.contains("4001"), "{error}");
}

#[test]
fn one_guest_sends_and_another_counts() {
    let rig = two_patches();
    let sender = ForwardOptions { mode: Mode::TxOnly, size: 100, ports: ports(), ..ForwardOptions::default() };
    let counter = ForwardOptions { mode: Mode::RxOnly, ..sender.clone() };
    let sender = Running::start(&rig, &[0, 2], &sender);
    let counter = Running::start(&rig, &[1, 3], &counter);
    let passed = |port: usize| rig.port(port).queues.first().map_or(0, |queue| queue.tx.packets);
    wait_until("packets pass", || passed(1) > 1000 && passed(3) > 1000);
    let sent = sender.stop();
    let counted = counter.stop();
    for (sent, counted) in sent.ports.iter().zip(&counted.ports) {
        assert!(sent.tx_packets >= counted.rx_packets && counted.rx_packets > 0, "{sent:?} {counted:?}");
        assert_eq!((sent.tx_bytes, counted.rx_bytes), (100 * sent.tx_packets, 100 * counted.rx_packets));
        assert_eq!((sent.rx_packets, counted.tx_packets), (0, 0));
    }
    assert_eq!((sent.mode, counted.mode), ("txonly", "rxonly"));
}

#[test]
fn a_guest_that_only_receives_touches_what_it_is_told_to() {
    for touch in [Touch::Header, Touch::Read, Touch::Edit] {
        let rig = two_patches();
        let sender = ForwardOptions { mode: Mode::TxOnly, size: 1514, ports: ports(), ..ForwardOptions::default() };
        let ports = PortOptions { buffer_len: 500, ..ports() };
        let reader = ForwardOptions { mode: Mode::RxOnly, touch, ports, ..ForwardOptions::default() };
        let sender = Running::start(&rig, &[0], &sender);
        let reader = Running::start(&rig, &[1], &reader);
        wait_until("packets pass", || rig.port(1).queues.first().is_some_and(|queue| queue.tx.packets > 300));
        sender.stop();
        let read = reader.stop();
        assert_eq!(read.notes, [("packets touched", read.ports[0].rx_packets)], "{touch}");
        assert!(read.ports[0].rx_packets > 0, "{read:?}");
    }
    let rig = two_patches();
    for mode in [Mode::TxOnly, Mode::FlowGen] {
        let options = ForwardOptions { mode, touch: Touch::Read, ports: ports(), ..ForwardOptions::default() };
        let refused = forward::run(&[rig.socket(0).clone()], &options, &EventLoop::default());
        let why = refused.map(|_| ()).expect_err("it looks at nothing").to_string();
        assert!(why.contains(mode.name()) && why.contains("rxonly"), "{why}");
    }
}

#[test]
fn a_backend_that_goes_away_is_said_and_the_figures_are_there() {
    let rig = two_patches();
    let sender = ForwardOptions { mode: Mode::TxOnly, size: 100, ports: ports(), ..ForwardOptions::default() };
    let guest = Running::start(&rig, &[1], &sender);
    // A link is up before the guest has sent its last message.
    wait_until("it sends", || rig.port(1).queues.first().is_some_and(|queue| queue.rx.packets > 0));
    rig.switch.stop();
    let (report, ended) = guest.thread.join().expect("the guest").expect("a guest");
    assert_eq!(report.ports.len(), 1);
    assert!(ended.expect_err("it has gone").to_string().contains("closed the connection"));
}
