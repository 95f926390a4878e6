//! Many clients, and clients that misbehave: the server's memory stays flat, and it goes on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use straightline_testing::wait_until;

use super::{Time, Web};

/// The growth in KiB that allocation patterns may cause. It is less than one body for each client
/// of a round.
const SLACK: u64 = 8 << 10;

const ROUNDS: usize = 3;

/// The requests of a poll to the switch.
const POLL: usize = 7;

const KEPT: &str = "GET /api/all HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Reads one reply from a connection that stays open.
fn read_reply(stream: &mut BufReader<TcpStream>) -> usize {
    let mut line = String::new();
    let mut length = 0;
    while line != "\r\n" {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the server has closed the connection");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    length
}

/// One round: 1000 scrapes, 100 watching pages, clients that never read, and clients that vanish.
fn round(web: &Web) {
    let scrapes = AtomicUsize::new(0);
    let stuck: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(web.address).unwrap();
            // Requests whose replies are never read.
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write_all(KEPT.repeat(2000).as_bytes());
            stream
        })
        .collect();
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                while scrapes.fetch_add(1, Ordering::Relaxed) < 1000 {
                    assert_eq!(web.get("/metrics").status, 200);
                }
            });
        }
        threads.spawn(|| {
            let connect = || BufReader::new(TcpStream::connect(web.address).unwrap());
            let mut pages: Vec<_> = (0..100).map(|_| connect()).collect();
            for _ in 0..5 {
                pages.iter_mut().for_each(|page| page.get_mut().write_all(KEPT.as_bytes()).unwrap());
                pages.iter_mut().for_each(|page| assert!(read_reply(page) > 100));
            }
        });
        threads.spawn(|| {
            for at in 0..200 {
                let mut stream = TcpStream::connect(web.address).unwrap();
                // Some leave in the middle of a request, some before the reply.
                let request = if at % 2 == 0 { &KEPT[..20] } else { KEPT };
                stream.write_all(request.as_bytes()).unwrap();
            }
        });
    });
    drop(stuck);
}

/// Returns the memory of this process in KiB: that of the server, and little of the clients.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn many_clients_cost_no_memory_and_few_polls() {
    let time = Time::new();
    let web = Web::start_with(|server| time.set(server));
    let switch = web.switch();
    let mut first = None;
    for _ in 0..ROUNDS {
        round(&web);
        let first = *first.get_or_insert_with(memory);
        // The server may not yet have noticed that all clients are gone.
        wait_until("the server has no more memory than after the first round", || {
            let now = memory();
            if now < first + SLACK { Ok(()) } else { Err(format!("{now} KiB, after the first round {first} KiB")) }
        });
        time.advance(Duration::from_secs(1));
    }
    // A poll serves all clients of a moment. One more begins if a client asks in the moment in which one ends.
    let asked = switch.asked.load(Ordering::Relaxed);
    assert!(asked <= 2 * POLL * ROUNDS, "{asked} requests to the switch in {ROUNDS} moments");
    assert_eq!(web.get("/").status, 200);
}
