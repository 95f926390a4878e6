//! CVE-2022-2132: a chain shorter than the header, or a header split over descriptors, caused an
//! endless copy.

use hostile::attacker::Layout;
use hostile::scene::{Down, Dropped, Ring, Scene, valid};
use straightline_testing::{frame, mac, send, take};
use straightline_virtio::ring::{Descriptor, NEXT, WRITE};

#[test]
fn cve_2022_2132_a_header_cut_at_every_byte() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let guest = scene.attacker();
        let addr = guest.buffer_address(Ring::Transmit, 0);
        let table = guest.buffer_address(Ring::Transmit, 1);
        let bytes = frame(mac(2), mac(1), 1000, 7);
        guest.write_memory(addr, &[0; 12]);
        guest.write_memory(addr + 12, &bytes);
        let part = |from: u32, to: u32| Descriptor { addr: addr + u64::from(from), len: to - from, flags: 0, next: 0 };
        let mut cuts: Vec<Vec<Descriptor>> = (1..=30).map(|cut| vec![part(0, cut), part(cut, 1012)]).collect();
        cuts.extend((1..12).map(|cut| vec![part(0, cut), part(cut, 12), part(12, 1012)]));
        cuts.push((0..12).map(|at| part(at, at + 1)).chain([part(12, 1012)]).collect());
        // Empty descriptors between them have no effect.
        cuts.push(vec![part(0, 0), part(0, 5), part(5, 5), part(5, 12), part(12, 12), part(12, 1012), part(0, 0)]);
        for chain in &cuts {
            for indirect in [false, true] {
                if indirect {
                    guest.publish(Ring::Transmit, &[guest.table(table, chain)])
                } else {
                    guest.publish(Ring::Transmit, chain)
                }
                assert!(take(&mut scene.good, 1)[0].1 == bytes, "{layout:?}, {chain:?}, indirect: {indirect}");
                guest.wait_used(Ring::Transmit);
            }
        }
        drop(guest);
        scene.recovers("a header over several descriptors");
        scene.end();
    }
}

#[test]
fn cve_2022_2132_a_buffer_cut_at_every_byte() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        let guest = scene.attacker();
        for cut in 1..=30 {
            let addr = guest.buffer_address(Ring::Receive, 0);
            let part =
                |from: u32, to: u32| Descriptor { addr: addr + u64::from(from), len: to - from, flags: WRITE, next: 0 };
            guest.publish(Ring::Receive, &[part(0, cut), part(cut, 2000)]);
            let bytes = frame(mac(1), mac(2), 700, cut.into());
            send(&mut scene.good, &bytes);
            guest.wait_used(Ring::Receive);
            assert_eq!(guest.last_written(Ring::Receive), 712);
            assert!(guest.read_memory(addr + 12, 700).expect("its own") == bytes, "{layout:?}, cut at {cut}");
        }
        drop(guest);
        scene.recovers("a buffer over several descriptors");
        scene.end();
    }
}

#[test]
fn cve_2022_2132_chains_shorter_than_a_header() {
    for layout in Layout::BOTH {
        let mut scene = Scene::with_layout(layout);
        for len in 0..=12 {
            for count in 1..=4 {
                let reason = if len < 12 { "short-chain" } else { "runt" };
                scene.sends(&format!("{len} bytes in {count} descriptors"), &Dropped(reason), |guest| {
                    let valid = valid(guest, Ring::Transmit);
                    let mut chain = vec![Descriptor { len: 0, ..valid }; count - 1];
                    chain.push(Descriptor { len, ..valid });
                    guest.publish(Ring::Transmit, &chain);
                });
            }
        }
        scene.end();
    }
}

#[test]
fn cve_2022_2132_chains_without_an_end() {
    let mut scene = Scene::with_layout(Layout::Packed);
    for len in [0, 1, 4000] {
        scene.sends("every descriptor goes on", &Down("it loops"), |guest| {
            let more = Descriptor { len, flags: NEXT, ..valid(guest, Ring::Transmit) };
            guest.publish(Ring::Transmit, &[more; 16]);
        });
        scene.receives("every descriptor goes on", &Down("it loops"), |guest| {
            let more = Descriptor { len, flags: NEXT | WRITE, ..valid(guest, Ring::Receive) };
            guest.publish(Ring::Receive, &[more; 16]);
        });
    }
    scene.end();
}
