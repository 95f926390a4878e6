//! A port whose frames return at once. It shows the generator's limit with nothing between its
//! ports.

use std::collections::VecDeque;

use straightline_virtio::net_header::NetHeader;

use straightline_guest::endpoints::{Received, TestPort};

/// Number of buffers in the port's ring, as in a usual virtio ring.
const BUFFERS: usize = 256;

/// A port that stores each frame as a real port does, in a buffer that may already hold the
/// template. Then the frame is received again.
#[derive(Debug, Default)]
pub struct Echo {
    free: VecDeque<Buffer>,
    made: usize,
    sent: VecDeque<Buffer>,
}

#[derive(Debug, Default)]
struct Buffer {
    template: Option<usize>,
    header: NetHeader,
    bytes: Vec<u8>,
}

impl Received for Buffer {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn header(&self) -> NetHeader {
        self.header
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> usize {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        len
    }
}

impl TestPort for Echo {
    fn free_buffers(&mut self) -> usize {
        BUFFERS - self.sent.len()
    }

    fn send(&mut self, template: usize, header: &NetHeader, frame: &[u8], patches: &[(usize, &[u8])]) -> bool {
        let mut buffer = match self.free.pop_front() {
            Some(buffer) if self.made == BUFFERS => buffer,
            spare => {
                self.free.extend(spare);
                if self.made == BUFFERS {
                    return false;
                }
                self.made += 1;
                Buffer::default()
            }
        };
        if buffer.template != Some(template) {
            buffer.bytes.clear();
            buffer.bytes.extend_from_slice(frame);
            (buffer.template, buffer.header) = (Some(template), *header);
        }
        for (at, patch) in patches {
            if let Some(place) = buffer.bytes.get_mut(*at..at + patch.len()) {
                place.copy_from_slice(patch);
            }
        }
        self.sent.push_back(buffer);
        true
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&dyn Received)) -> anyhow::Result<usize> {
        let mut count = 0;
        while count < most {
            let Some(buffer) = self.sent.pop_front() else { break };
            each(&buffer);
            self.free.push_back(buffer);
            count += 1;
        }
        Ok(count)
    }
}
