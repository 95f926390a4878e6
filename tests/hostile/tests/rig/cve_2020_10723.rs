//! CVE-2020-10723: a ring's index was checked with 32 bits, but used with 16.

use hostile::scene::Scene;
use straightline_virtio::vhost_user::{Message, Request, RingAddresses};

use crate::messages::{addresses, frontend, number, state};

/// Requests that name a ring in a "vring state description".
const STATES: [Request; 4] =
    [Request::SetVringNum, Request::SetVringBase, Request::SetVringEnable, Request::GetVringBase];

/// Requests that name a ring in a number, with bit 8 for "no descriptor".
const NUMBERS: [Request; 3] = [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr];

/// Returns every message that names a ring, for this index.
pub(crate) fn all_that_name(index: u32) -> Vec<Message> {
    let good = RingAddresses { desc: 0x1000, avail: 0x2000, used: 0x3000 };
    let mut messages = vec![addresses(index, good)];
    messages.extend(STATES.map(|request| state(request, index, 1)));
    // In a number, bit 8 means "no descriptor", so an index with that bit cannot be sent.
    if index & 1 << 8 == 0 {
        messages.extend(NUMBERS.map(|request| number(request, u64::from(index) | 1 << 8)));
    }
    messages
}

/// Sends a message for a ring that does not exist. It requests no acknowledgement, so a refusal
/// closes the connection, and `ports` shows the reason.
pub(crate) fn is_refused(scene: &Scene, message: &Message) {
    let client = frontend(scene);
    client.send_raw(message, &[]).expect("it is there");
    scene.rig.wait_down(0, "; there are ");
    let why = scene.rig.port(0).reason.expect("it is down");
    let request = Request::from_code(message.request).expect("known");
    assert!(why.starts_with(&format!("{request} for ring ")), "{why}");
}

#[test]
fn cve_2020_10723_a_ring_s_index_beyond_16_bits() {
    let mut scene = Scene::new();
    for k in 0..2 {
        for high in [0x1_0000, 0x100_0000, 0x8000_0000_u32] {
            let mut messages = all_that_name(high + k);
            messages.extend(NUMBERS.map(|request| number(request, u64::from(high) << 16 | u64::from(k) | 1 << 8)));
            for message in messages {
                is_refused(&scene, &message);
                scene.victims.go_on();
            }
            scene.recovers("an index that is too long");
        }
    }
    scene.end();
}
