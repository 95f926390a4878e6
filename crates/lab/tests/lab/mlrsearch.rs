//! The search finds what PyPI's MLRsearch finds, on the same loss curves (`mlrsearch/record.py`
//! recorded its results).

use std::time::Duration;

use serde::Deserialize;
use straightline_lab::trial::search::{Goal, GoalResult, Limits, Measured, Trial, search};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchInput {
    min_load: f64,
    max_load: f64,
    goals: Vec<Goals>,
    curves: Vec<Curve>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Goals {
    name: String,
    loss_ratios: Vec<f64>,
    exceed_ratio: f64,
    relative_width: f64,
    initial_trial_duration: f64,
    final_trial_duration: f64,
    duration_sum: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
    #[serde(default)]
    jitter: f64,
    #[serde(default)]
    seed: u64,
    outage_every: Option<u64>,
    #[serde(default)]
    outage_loss: f64,
    #[serde(default)]
    stray: f64,
    goals: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Answers {
    package: String,
    answers: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    curve: String,
    goals: String,
    loss_ratio: f64,
    lower: Option<f64>,
    upper: Option<f64>,
    throughput: Option<f64>,
    trials: usize,
}

/// As in record.py.
fn unit(seed: u64, n: u64) -> f64 {
    let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

impl Curve {
    fn loss(&self, load: f64) -> f64 {
        let first = self.points[0];
        let last = self.points[self.points.len() - 1];
        let within = self.points.windows(2).find(|pair| load <= pair[1].0);
        match within {
            _ if load <= first.0 => first.1,
            Some(pair) => pair[0].1 + (pair[1].1 - pair[0].1) * (load - pair[0].0) / (pair[1].0 - pair[0].0),
            None => last.1,
        }
    }

    /// As in record.py.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of packets")]
    fn measure(&self, trial: Trial, n: u64) -> Measured {
        let sent = (trial.load * trial.duration.as_secs_f64() + 0.5).floor();
        let jitter = 1.0 + self.jitter * (2.0 * unit(self.seed, n) - 1.0);
        let mut loss = self.loss(trial.load * jitter);
        if self.outage_every.is_some_and(|every| n.is_multiple_of(every)) {
            loss = loss.max(self.outage_loss);
        }
        let stray = unit(self.seed + 1, n) < sent * self.stray;
        Measured {
            sent: sent as u64,
            lost: (sent * loss + 0.5).floor() as u64 + u64::from(stray),
            ..Measured::default()
        }
    }
}

fn read() -> (SearchInput, Answers) {
    let given = serde_json::from_str(include_str!("../mlrsearch/curves.json")).expect("curves");
    let answers = serde_json::from_str(include_str!("../mlrsearch/answers.json")).expect("answers");
    (given, answers)
}

/// Checks that both bounds agree, or that the same one is missing: no farther off than the goal's
/// width and the curve's jitter.
fn agree(ours: &GoalResult, theirs: &Answer, curve: &Curve) {
    let wanted = format!("{} at {}", theirs.goals, theirs.loss_ratio);
    let close = |name: &str, ours: Option<f64>, theirs: Option<f64>, by: f64| match (ours, theirs) {
        (None, None) => (),
        (Some(ours), Some(theirs)) if (ours - theirs).abs() <= by * ours.max(theirs) => (),
        _ => panic!("{}, {}: {name} {ours:?}, not {theirs:?}", curve.name, wanted),
    };
    // If both are right, each bound is within a width of the point where the curve crosses the
    // goal.
    let by = ours.goal.width + 2.0 * curve.jitter;
    close("lower", ours.lower, theirs.lower, by);
    close("upper", ours.upper, theirs.upper, by);
    // Between loads within that distance, the loss may differ by up to the loss ratio.
    close("throughput", ours.throughput, theirs.throughput, by + ours.goal.loss_ratio);
    let regular = theirs.lower.is_some() && theirs.upper.is_some();
    assert_eq!(ours.irregular.is_none(), regular, "{}: {ours:?}", curve.name);
}

#[test]
fn answers_are_those_of_the_package() {
    let (given, Answers { package, answers }) = read();
    assert_eq!(package, "MLRsearch 1.2.1");
    let limits = Limits::new(given.min_load, given.max_load);
    let mut ours = 0;
    let mut theirs = 0;
    let mut compared = 0;
    for curve in &given.curves {
        for goals in given.goals.iter().filter(|g| curve.goals.as_ref().is_none_or(|names| names.contains(&g.name))) {
            let wanted: Vec<Goal> = goals
                .loss_ratios
                .iter()
                .map(|&loss_ratio| Goal {
                    name: goals.name.clone(),
                    loss_ratio,
                    exceed_ratio: goals.exceed_ratio,
                    width: goals.relative_width,
                    initial_trial: Duration::from_secs_f64(goals.initial_trial_duration),
                    final_trial: Duration::from_secs_f64(goals.final_trial_duration),
                    duration_sum: Duration::from_secs_f64(goals.duration_sum),
                })
                .collect();
            let mut n = 0;
            let mut measure = |trial| {
                n += 1;
                Ok(curve.measure(trial, n))
            };
            let found = search(&wanted, &limits, &mut measure, &mut |_| {}).expect("goals that make sense");
            assert_eq!((found.stopped, found.results.len()), (None, wanted.len()));
            ours += found.trials;
            for result in &found.results {
                let same = |answer: &&Answer| {
                    (&answer.curve, &answer.goals, answer.loss_ratio)
                        == (&curve.name, &goals.name, result.goal.loss_ratio)
                };
                let answer = answers.iter().find(same).expect("an answer");
                if result.goal.loss_ratio == goals.loss_ratios[0] {
                    theirs += answer.trials;
                }
                agree(result, answer, curve);
                compared += 1;
            }
        }
    }
    assert_eq!(compared, answers.len());
    // No rule limits the number of trials, but the user has to wait for them.
    assert!(ours <= theirs * 3 / 2, "{ours} trials, where the package needs {theirs}");
}
