//! A stream that sends: makes the next packet and puts it into the port.

use anyhow::Context;
use straightline_guest::endpoints::TestPort;

use super::spec::StreamSpec;
use super::template::{self, Template, Varying};

/// The most different payloads for frames of one length. Different payloads reveal a packet with
/// the body of another one. With many lengths, there are fewer payloads for each: all frames
/// together must not fill the caches.
const VARIANTS: usize = 8;
const TEMPLATES: usize = 64;

/// A stream that sends.
#[derive(Clone, Debug)]
pub(super) struct Source {
    number: u16,
    /// The number of the next packet.
    pub(super) sequence: u64,
    varying: Vec<Varying>,
    templates: Vec<Template>,
    /// The index of each packet's template, in an order that repeats.
    order: Vec<usize>,
    at: usize,
    /// The port's number for the first template.
    first: usize,
    /// True if the next packet is already made in its template: the port had no free buffer for it.
    made: bool,
    /// The share of this stream in the packets of its port.
    pub(super) weight: u32,
}

impl Source {
    /// Makes stream `number`. The numbers of its templates begin at `first`.
    pub(super) fn new(spec: &StreamSpec, number: u16, first: usize) -> anyhow::Result<Source> {
        spec.check()?;
        let lens = spec.sizes.deal(spec.seed);
        let mut different = lens.clone();
        different.sort_unstable();
        different.dedup();
        let variants = (TEMPLATES / different.len().max(1)).clamp(1, VARIANTS);
        let varying = template::varying(spec);
        let mut templates = Vec::with_capacity(different.len() * variants);
        for (len, seed) in different.iter().flat_map(|len| (0..variants).map(move |variant| (*len, variant))) {
            let seed = spec.seed ^ u64::from(number) << 48 ^ u64::try_from(seed)? << 32 ^ u64::from(len);
            let template = Template::new(spec, usize::try_from(len)?, seed, &varying);
            templates.push(template.with_context(|| format!("stream {number}, `{spec}`"))?);
        }
        // The payloads of each length alternate.
        let times = if lens.len() == 1 { variants } else { 1 };
        let mut turns = vec![0; different.len()];
        let place = |len: u32| {
            let which = different.binary_search(&len).unwrap_or(0);
            turns[which] += 1;
            which * variants + (turns[which] - 1) % variants
        };
        let order = lens.repeat(times).into_iter().map(place).collect();
        Ok(Source { number, sequence: 0, varying, templates, order, at: 0, first, made: false, weight: spec.weight })
    }

    /// Returns the number of templates.
    pub(super) fn templates(&self) -> usize {
        self.templates.len()
    }

    /// Returns the mean length of the stream's frames.
    #[expect(clippy::cast_precision_loss, reason = "lengths are small")]
    pub(super) fn mean_len(&self) -> f64 {
        let all: usize = self.order.iter().map(|which| self.templates[*which].frame.len()).sum();
        all as f64 / self.order.len().max(1) as f64
    }

    /// Sends the next packet, which was due at `time`. Returns false if the port has no free
    /// buffer.
    #[inline]
    pub(super) fn send<P: TestPort>(&mut self, port: &mut P, time: u64) -> bool {
        let which = self.order[self.at];
        let template = &mut self.templates[which];
        if !self.made {
            template.make(&mut self.varying, self.number, self.sequence, time);
        }
        let sent = port.send(self.first + which, &template.header, &template.frame, &[template.patch()]);
        self.made = !sent;
        if sent {
            self.sequence += 1;
            self.at = if self.at + 1 < self.order.len() { self.at + 1 } else { 0 };
        }
        sent
    }
}
