//! The state of the screen: what was measured, and what the user has chosen. It knows neither the
//! terminal nor the switch.

use std::collections::{BTreeMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use straightline_api::rates::{PortRates, Rates, Sample};

use crate::batch::{busiest_nodes, worst_drops};
use crate::column::load;
use crate::{Column, Sort, TopOptions, past};

/// The number of intervals that the history keeps.
const HISTORY: usize = 300;

/// A view: the thing that is shown in detail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// The ports.
    #[default]
    Ports,
    /// The use of the workers' time.
    Workers,
    /// The nodes.
    Nodes,
    /// The drops by reason.
    Drops,
}

impl View {
    /// All views, in the order of the tab key.
    pub(crate) const ALL: [Self; 4] = [Self::Ports, Self::Workers, Self::Nodes, Self::Drops];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ports => "Ports",
            Self::Workers => "Workers",
            Self::Nodes => "Nodes",
            Self::Drops => "Drops",
        }
    }

    fn moved(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

/// A window above the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Popup {
    /// The keys.
    Help,
    /// The choice of columns, with the chosen line.
    Columns(usize),
}

/// The effect of a key outside of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// None.
    None,
    /// The program ends.
    Quit,
    /// The program stops until its shell continues it.
    Suspend,
}

/// The state of the screen.
pub(crate) struct App {
    pub(crate) rates: Option<Rates>,
    /// The reason why the last sample is missing.
    pub(crate) problem: Option<String>,
    pub(crate) view: View,
    pub(crate) sort: Sort,
    pub(crate) columns: Vec<Column>,
    pub(crate) paused: bool,
    pub(crate) popup: Option<Popup>,
    /// The number of intervals shown.
    pub(crate) shown: u64,
    /// The chosen row of each view.
    rows: [usize; 4],
    before: Option<Sample>,
    /// The recent load of each port in bits per second, newest last.
    history: BTreeMap<String, VecDeque<f64>>,
    total: VecDeque<f64>,
    /// The recent loads that the switch has kept, until the first sample tells what its ports are.
    kept: Vec<(String, Vec<f64>)>,
}

impl App {
    pub(crate) fn new(options: &TopOptions) -> Self {
        Self {
            rates: None,
            problem: None,
            view: View::default(),
            sort: options.sort,
            columns: options.columns.clone(),
            paused: false,
            popup: None,
            shown: 0,
            rows: [0; 4],
            before: None,
            history: BTreeMap::new(),
            total: VecDeque::new(),
            kept: Vec::new(),
        }
    }

    /// Begins the curves with the loads that the switch has kept, as `past::loads` returns them.
    pub(crate) fn begin(&mut self, kept: Vec<(String, Vec<f64>)>) {
        self.kept = kept;
    }

    /// Describes the limits of a port and their use, as the last sample has them.
    pub(crate) fn limits(&self, port: &str) -> Vec<String> {
        let ports = self.before.iter().flat_map(|sample| &sample.ports.answer.ports);
        let limits = ports.filter(|known| known.name == port).flat_map(|port| {
            let limits = [("rate in", &port.rate_in), ("rate out", &port.rate_out)];
            limits.map(|(key, limit)| limit.as_ref().map(|limit| format!("{key} {}", limit.describe())))
        });
        limits.flatten().collect()
    }

    /// Takes a sample, or the reason why there is none.
    pub(crate) fn take(&mut self, sample: Result<Sample, String>) {
        let now = match sample {
            Ok(now) => now,
            Err(problem) => {
                self.problem = Some(problem);
                return;
            }
        };
        self.problem = None;
        if !self.paused {
            let rates = self.before.as_ref().map_or_else(|| Rates::first(&now), |before| Rates::between(before, &now));
            self.begin_curves(&rates);
            if rates.interval_s.is_some() {
                self.remember(&rates);
                self.shown += 1;
            }
            self.rates = Some(rates);
        }
        self.before = Some(now);
    }

    fn begin_curves(&mut self, rates: &Rates) {
        let kept = std::mem::take(&mut self.kept);
        let is_counted = |name: &str| rates.ports.iter().any(|port| port.name == name && !port.is_tunnel);
        let counted = kept.iter().filter(|(name, _)| is_counted(name)).map(|(_, curve)| curve);
        self.total.extend(past::sum(counted));
        self.history.extend(kept.into_iter().map(|(name, curve)| (name, curve.into())));
    }

    fn remember(&mut self, rates: &Rates) {
        fn push(history: &mut VecDeque<f64>, load: f64) {
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(load);
        }
        // Ports that are gone leave nothing, so memory stays flat while ports come and go.
        self.history.retain(|name, _| rates.ports.iter().any(|port| port.name == *name));
        for port in &rates.ports {
            push(self.history.entry(port.name.clone()).or_default(), load(port));
        }
        push(&mut self.total, rates.total.rx.bits_per_s + rates.total.tx.bits_per_s);
    }

    /// Returns the recent load of a port, or of all ports.
    pub(crate) fn history(&self, port: Option<&str>) -> &VecDeque<f64> {
        static EMPTY: VecDeque<f64> = VecDeque::new();
        port.map_or(&self.total, |port| self.history.get(port).unwrap_or(&EMPTY))
    }

    /// Returns the ports in the chosen order.
    pub(crate) fn ports(&self) -> Vec<PortRates> {
        let mut ports = self.rates.as_ref().map_or_else(Vec::new, |rates| rates.ports.clone());
        self.sort.apply(&mut ports);
        ports
    }

    /// Returns the chosen row of a view, which has this many.
    pub(crate) fn row(&self, view: View, rows: usize) -> usize {
        self.rows[view as usize].min(rows.saturating_sub(1))
    }

    fn rows_of(&self, view: View) -> usize {
        let Some(rates) = &self.rates else { return 0 };
        match view {
            View::Ports => rates.ports.len(),
            View::Workers => rates.workers.len(),
            View::Nodes => busiest_nodes(rates).len(),
            View::Drops => worst_drops(rates).len(),
        }
    }

    /// Applies a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Effect {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Effect::Quit,
                KeyCode::Char('z') => Effect::Suspend,
                _ => Effect::None,
            };
        }
        if key.code == KeyCode::Char('q') {
            return Effect::Quit;
        }
        match self.popup {
            Some(Popup::Columns(at)) => self.choose_columns(at, key.code),
            Some(Popup::Help) => self.popup = None,
            None => self.command(key.code),
        }
        Effect::None
    }

    fn command(&mut self, code: KeyCode) {
        let rows = self.rows_of(self.view);
        let row = self.row(self.view, rows);
        let last = rows.saturating_sub(1);
        match code {
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.view = self.view.moved(1),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => self.view = self.view.moved(View::ALL.len() - 1),
            KeyCode::Down | KeyCode::Char('j') => self.rows[self.view as usize] = (row + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.rows[self.view as usize] = row.saturating_sub(1),
            KeyCode::PageDown => self.rows[self.view as usize] = (row + 10).min(last),
            KeyCode::PageUp => self.rows[self.view as usize] = row.saturating_sub(10),
            KeyCode::Home | KeyCode::Char('g') => self.rows[self.view as usize] = 0,
            KeyCode::End | KeyCode::Char('G') => self.rows[self.view as usize] = last,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('c') => self.popup = Some(Popup::Columns(0)),
            KeyCode::Char('?') | KeyCode::F(1) => self.popup = Some(Popup::Help),
            _ => {}
        }
    }

    fn choose_columns(&mut self, at: usize, code: KeyCode) {
        let last = Column::ALL.len() - 1;
        match code {
            KeyCode::Down | KeyCode::Char('j') => self.popup = Some(Popup::Columns((at + 1).min(last))),
            KeyCode::Up | KeyCode::Char('k') => self.popup = Some(Popup::Columns(at.saturating_sub(1))),
            KeyCode::Char(' ') => {
                let toggled = Column::ALL[at];
                match self.columns.iter().position(|column| *column == toggled) {
                    // A table without columns shows nothing.
                    Some(_) if self.columns.len() == 1 => {}
                    Some(found) => drop(self.columns.remove(found)),
                    None => {
                        // Columns that come back take their place in the default order.
                        let place = |column: &Column| Column::ALL.iter().position(|other| other == column);
                        let next = self.columns.iter().position(|other| place(other) > place(&toggled));
                        self.columns.insert(next.unwrap_or(self.columns.len()), toggled);
                    }
                }
            }
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('c') => self.popup = None,
            _ => {}
        }
    }
}
