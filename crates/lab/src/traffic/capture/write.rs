//! Writes pcapng: one section, one interface, a block for each frame (draft-ietf-opsawg-pcapng).

use std::io::{self, Write};

/// The link type of Ethernet.
const ETHERNET: u32 = 1;

/// Writes frames to a pcapng file, little-endian and with nanoseconds.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
}

impl<W: Write> Writer<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(to: W) -> io::Result<Writer<W>> {
        let mut writer = Writer { to };
        // Section header block (4.1): the byte order, version 1.0, and an unknown length of the
        // section.
        writer.block(0x0a0d_0d0a, &[0x1a2b_3c4d, 1, u32::MAX, u32::MAX], &[], &[])?;
        // Interface description block (4.2). Frame lengths have no limit. The option if_tsresol (9)
        // has one byte: 10^-9 seconds. Then comes the end of options.
        let options = [9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        writer.block(1, &[ETHERNET, 0], &[], &options)?;
        Ok(writer)
    }

    /// Writes a frame with its time in nanoseconds since 1970.
    ///
    /// # Errors
    /// Writing failed, or the frame has 4 GiB or more.
    pub fn frame(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let [a, b, c, d, e, f, g, h] = at.to_be_bytes();
        let high = u32::from_be_bytes([a, b, c, d]);
        let low = u32::from_be_bytes([e, f, g, h]);
        // Enhanced packet block (4.3) of interface 0. The frame is captured in full.
        self.block(6, &[0, high, low, len, len], bytes, &[])
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Writes a block (3.1): words, then bytes padded to a multiple of four, then options.
    fn block(&mut self, kind: u32, words: &[u32], bytes: &[u8], options: &[u8]) -> io::Result<()> {
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        let len = 12 + 4 * words.len() + bytes.len() + padding + options.len();
        let len = u32::try_from(len).map_err(io::Error::other)?;
        for word in [kind, len].iter().chain(words) {
            self.to.write_all(&word.to_le_bytes())?;
        }
        self.to.write_all(bytes)?;
        self.to.write_all(&[0; 3][..padding])?;
        self.to.write_all(options)?;
        self.to.write_all(&len.to_le_bytes())
    }
}
