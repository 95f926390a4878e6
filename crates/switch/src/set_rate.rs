//! Limits that a client of the API sets. They hold until the next reload, when the file wins.

use straightline_packet::IgnorePoison;

use crate::Switch;
use crate::api::{ErrorCode, EventKind, RateRequest, RateSet, Refusal};
use crate::config::{PortRate, rate_text};

impl Switch {
    /// Sets a limit of a port.
    ///
    /// # Errors
    /// There is no such port, or the rate is not valid. Nothing is changed then.
    pub fn set_rate(&self, request: &RateRequest) -> Result<RateSet, Refusal> {
        let RateRequest { port: name, direction, rate, burst } = request;
        let refused = |error: String| Refusal::new(ErrorCode::Refused, error).about(name);
        let key = match direction.as_str() {
            "in" => "rate-in",
            "out" => "rate-out",
            other => {
                return Err(Refusal::new(ErrorCode::BadRequest, format!("direction {other:?}: it must be in or out")));
            }
        };
        let mut desired = self.desired.lock().ignore_poison();
        let before_all = self.running.now();
        before_all.place_of(name)?;
        let Some(port) = desired.port_mut(name) else {
            return Err(refused(format!("port {name:?} is about to end")));
        };
        if key == "rate-out" && before_all.config.underlays.iter().any(|underlay| underlay.port == *name) {
            return Err(refused(format!(
                "port {name:?} carries an underlay, which cannot be limited; limit its tunnels"
            )));
        }
        let new = match &rate[..] {
            [off] if off == "off" => None,
            [] => return Err(refused("no rate; give one such as \"1 Gbit/s\", or off".to_owned())),
            rates => {
                let shapes = key == "rate-in" && port.kind.can_wait();
                Some(PortRate::live(rates, burst, shapes, port.mtu).map_err(refused)?)
            }
        };
        let slot = if key == "rate-in" { &mut port.rate_in } else { &mut port.rate_out };
        let old = std::mem::replace(slot, new.clone());
        let changed = desired.with_dynamic_ports(&desired.config).and_then(|whole| self.change(&whole, &desired));
        if let Err(error) = changed {
            if let Some(port) = desired.port_mut(name) {
                *(if key == "rate-in" { &mut port.rate_in } else { &mut port.rate_out }) = old;
            }
            return Err(refused(format!("{error:#}")));
        }
        let config = &self.running.now().config;
        let text =
            |rate: &Option<PortRate>| rate.as_ref().map_or_else(String::new, |rate| rate_text(&config.limits(rate)));
        let until_reload = desired.config.port_index(name).is_some();
        let set =
            RateSet { port: name.clone(), key: key.to_owned(), before: text(&old), now: text(&new), until_reload };
        let shown = if set.now.is_empty() { "no limit" } else { &set.now };
        tracing::info!(port = name, "{key} set to {shown} by a command");
        let message = format!("port {name:?}: {key} set to {shown} by a command, until the next reload");
        let kind = EventKind::RateSet { port: name.clone(), key: key.to_owned(), rate: set.now.clone() };
        self.running.events.add(kind, message);
        Ok(set)
    }
}
