//! The answers as OpenMetrics (`docs/metrics.md` has the names, which are an interface).

mod classic;
mod table;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

use crate::answers::{Answers, Polled};
pub(crate) use classic::classic;

/// The media type of OpenMetrics.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type of the older text format of Prometheus.
pub(crate) const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric: a row of the table.
struct Family {
    /// The name, with `straightline_` in front and the unit behind, without `_total` and `_info`.
    name: &'static str,
    kind: Kind,
    unit: Option<&'static str>,
    /// The names of the labels, in the order of the samples' values.
    labels: &'static [&'static str],
    help: &'static str,
    samples: fn(&Answers, &mut Samples),
}

/// The types of metrics that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Info,
}

/// The samples of one metric.
#[derive(Debug, Default)]
struct Samples {
    rows: Vec<(Vec<String>, Number)>,
    /// The row of each set of labels.
    places: HashMap<Vec<String>, usize>,
}

/// A sample's value.
#[derive(Clone, Copy, Debug)]
enum Number {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self::Whole(value.try_into().unwrap_or(u64::MAX))
    }
}

impl Samples {
    /// Adds a sample with these values of its labels. Samples with the same labels are summed up,
    /// because a scraper refuses the whole text if a sample is there twice.
    fn add<const N: usize>(&mut self, labels: [&str; N], value: impl Into<Number>) {
        let labels = Vec::from(labels.map(str::to_owned));
        let value = value.into();
        match self.places.get(&labels) {
            Some(&place) => self.rows[place].1 = self.rows[place].1.plus(value),
            None => {
                self.places.insert(labels.clone(), self.rows.len());
                self.rows.push((labels, value));
            }
        }
    }
}

/// Renders the metrics of a poll. A switch that does not answer has `straightline_up 0` and nothing
/// else.
pub(crate) fn render(polled: &Arc<Polled>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(Arc::clone(polled))));
    let mut output = String::new();
    text::encode(&mut output, &registry)?;
    Ok(output)
}

/// The collector of one scrape.
#[derive(Debug)]
struct Scrape(Arc<Polled>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut up = Samples::default();
        up.add([], self.0.is_ok());
        table::UP.encode(&mut encoder, &up)?;
        if let Ok(answers) = &*self.0 {
            for family in table::FAMILIES {
                let mut samples = Samples::default();
                (family.samples)(answers, &mut samples);
                family.encode(&mut encoder, &samples)?;
            }
        }
        Ok(())
    }
}

impl Family {
    fn encode(&self, encoder: &mut DescriptorEncoder, samples: &Samples) -> fmt::Result {
        if samples.rows.is_empty() {
            return Ok(());
        }
        let name = format!("straightline_{}", self.name);
        let unit = self.unit.map(|unit| Unit::Other(unit.to_owned()));
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Info => MetricType::Info,
        };
        let mut metric = encoder.encode_descriptor(&name, self.help, unit.as_ref(), kind)?;
        for (values, number) in &samples.rows {
            let labels: Vec<_> = self.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
            if self.kind == Kind::Info {
                metric.encode_info(&labels)?;
            } else if labels.is_empty() {
                number.encode(self.kind, &mut metric)?;
            } else {
                number.encode(self.kind, &mut metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Number {
    #[expect(clippy::cast_precision_loss, reason = "whole and real samples are in different metrics")]
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => Self::Whole(one.saturating_add(other)),
            (Self::Real(one), Self::Real(other)) => Self::Real(one + other),
            (Self::Whole(whole), Self::Real(real)) | (Self::Real(real), Self::Whole(whole)) => {
                Self::Real(whole as f64 + real)
            }
        }
    }

    fn encode(self, kind: Kind, metric: &mut MetricEncoder) -> fmt::Result {
        const NONE: Option<&Exemplar<NoLabelSet, f64>> = None;
        match (self, kind) {
            (Self::Whole(value), Kind::Counter) => metric.encode_counter(&value, NONE),
            (Self::Real(value), Kind::Counter) => metric.encode_counter(&value, NONE),
            (Self::Whole(value), _) => metric.encode_gauge(&value),
            (Self::Real(value), _) => metric.encode_gauge(&value),
        }
    }
}

#[cfg(test)]
mod tests;
