//! Fuzz target: text of rules and flows, and a policy of them.
//!
//! Input: a rule or a flow in each line.
//!
//! Invariants:
//! - A rule and a flow that is written reads back the same.
//! - A policy of the rules decides about each flow as the first rule that matches alone does. An answer to a
//!   rule with `stateless` passes by it only if no rule denies the answer.

use straightline_firewall::{
    Action, Definitions, Direction, Flow, Group, Level, Origin, Policy, PortGroups, Rule, parse_rule, shadowed_rules,
};

use crate::reached;

/// Most rules of a direction: each is compiled alone, too.
const MOST_RULES: usize = 16;

/// Runs one input.
pub(crate) fn fuzz(data: &[u8]) {
    // As much of the input as is text.
    run(data.utf8_chunks().next().map_or("", |chunk| chunk.valid()));
}

fn run(text: &str) {
    let mut group = Group { name: "own".to_owned(), ..Group::default() };
    let mut flows = Vec::new();
    for line in text.lines() {
        for direction in Direction::BOTH {
            match parse_rule(direction, line) {
                Ok(rule) => {
                    let written = rule.to_string();
                    assert_eq!(parse_rule(direction, &written).as_ref(), Ok(&rule), "{written}");
                    reached("a rule");
                    let rules = match direction {
                        Direction::In => &mut group.inbound,
                        Direction::Out => &mut group.outbound,
                    };
                    if rules.len() < MOST_RULES {
                        rules.push(rule);
                    }
                }
                Err(error) => drop(error.to_string()),
            }
        }
        if let Ok(flow) = line.parse::<Flow>() {
            let written = flow.to_string();
            assert_eq!(written.parse().as_ref(), Ok(&flow), "{written}");
            reached("a flow");
            flows.push(flow);
        }
    }
    if group.all_rules().next().is_none() || flows.is_empty() {
        return;
    }
    let Some(policy) = policy(&group) else { return reached("an unknown name") };
    let port = PortGroups { groups: vec![group.name.clone()], ..PortGroups::default() };
    let definitions = Definitions::new([group.clone()], []);
    let shadowed = shadowed_rules(&port, &definitions).expect("the policy was compiled");
    let each = Direction::BOTH.map(|direction| group.rules(direction).iter().map(alone).collect::<Vec<_>>());
    let any = alone(&parse_rule(Direction::Out, "any to any").expect("a rule"));
    for flow in &flows {
        let decided = policy.rule(policy.explain(flow));
        assert!(shadowed.iter().all(|hidden| hidden.rule != *decided), "{decided} is hidden, and decides");
        // About an answer, the rule with `stateless` may decide that allows its question: where no rule of the
        // network decides, and none that denies.
        let question = flow.question().filter(|_| decided.stateless);
        if question.is_some() {
            reached("an answer without a connection");
            assert!(matches(&any, flow), "{flow}");
            let first = group.outbound.iter().zip(&each[1]).find(|(_, rule)| matches(rule, flow));
            assert!(first.is_none_or(|(rule, _)| rule.action == Action::Allow), "{flow}");
        }
        let asked = question.unwrap_or(*flow);
        let each = if asked.direction == Direction::In { &each[0] } else { &each[1] };
        let first = (1..).zip(each).find(|(_, rule)| matches(rule, &asked));
        match &decided.origin {
            Origin::Network => reached("a rule of the network"),
            Origin::Group(_, number) => {
                assert_eq!(first.map(|(number, _)| number), Some(*number), "{flow}");
                reached("a rule that decides");
            }
            Origin::Default => {
                assert!(first.is_none(), "{flow}");
                reached("a flow without a rule");
            }
        }
    }
}

/// Returns the policy of one rule, which allows.
fn alone(rule: &Rule) -> Policy {
    let mut group = Group { name: "own".to_owned(), ..Group::default() };
    let rule = Rule { action: Action::Allow, ..rule.clone() };
    match rule.direction {
        Direction::In => group.inbound.push(rule),
        Direction::Out => group.outbound.push(rule),
    }
    policy(&group).expect("the rule was compiled beside others")
}

/// Returns whether the rule of a policy matches a flow that no rule of the network decides about.
fn matches(policy: &Policy, flow: &Flow) -> bool {
    matches!(policy.rule(policy.explain(flow)).origin, Origin::Group(..))
}

fn policy(group: &Group) -> Option<Policy> {
    let port = PortGroups { groups: vec![group.name.clone()], ..PortGroups::default() };
    Policy::compile(&port, &Definitions::new([group.clone()], []), Level::Scalar).ok()
}
