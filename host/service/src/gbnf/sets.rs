//! Characters that a part may begin with, and that may come behind it. Characters beyond ASCII count as one.

use std::ops::BitOr;

use super::chars::Ranges;
use super::parse::{Grammar, RuleNode};

/// A set of characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Set {
    ascii: u128,
    beyond: bool,
}

impl Set {
    pub(super) fn of(ranges: &Ranges) -> Self {
        let mut set = Self::default();
        for &(from, to) in ranges {
            for code in from..=to.min(127) {
                set.ascii |= 1 << code;
            }
            set.beyond |= to > 127;
        }
        set
    }

    pub(super) fn meets(self, other: Self) -> bool {
        self.ascii & other.ascii != 0 || (self.beyond && other.beyond)
    }
}

impl BitOr for Set {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            ascii: self.ascii | other.ascii,
            beyond: self.beyond || other.beyond,
        }
    }
}

/// First characters of each rule, and characters behind it.
#[derive(Debug, Default)]
pub(super) struct Follows {
    /// With whether the rule takes the empty text.
    firsts: Vec<(Set, bool)>,
    pub(super) behind: Vec<Set>,
}

impl Follows {
    pub(super) fn of(grammar: &Grammar) -> Self {
        let count = grammar.bodies.len();
        let mut follows = Self {
            firsts: vec![Default::default(); count],
            behind: vec![Set::default(); count],
        };
        loop {
            let mut changed = false;
            for (index, body) in grammar.bodies.iter().enumerate().rev() {
                let first = follows.first(body);
                changed |= first != follows.firsts[index];
                follows.firsts[index] = first;
            }
            if !changed {
                break;
            }
        }
        loop {
            let before = follows.behind.clone();
            for (index, body) in grammar.bodies.iter().enumerate() {
                follows.pass(body, follows.behind[index]);
            }
            if before == follows.behind {
                return follows;
            }
        }
    }

    /// First characters of a node, and whether it takes the empty text. Control tokens are no characters.
    pub(super) fn first(&self, node: &RuleNode) -> (Set, bool) {
        match node {
            RuleNode::Literal(text) => {
                let first = text.chars().next().map(u32::from);
                let ranges: Ranges = first.map(|code| (code, code)).into_iter().collect();
                (Set::of(&ranges), first.is_none())
            }
            RuleNode::Class(ranges) => (Set::of(ranges), false),
            RuleNode::Rule(index) => self.firsts[*index],
            RuleNode::Token(_) => (Set::default(), false),
            RuleNode::Alt(parts) => parts.iter().fold((Set::default(), false), |all, part| {
                let (first, nullable) = self.first(part);
                (all.0 | first, all.1 || nullable)
            }),
            RuleNode::Seq(parts) => {
                let mut set = Set::default();
                for part in parts {
                    let (first, nullable) = self.first(part);
                    set = set | first;
                    if !nullable {
                        return (set, false);
                    }
                }
                (set, true)
            }
            RuleNode::Repeat { node, min, max } => {
                let (first, nullable) = self.first(node);
                match max {
                    Some(0) => (Set::default(), true),
                    _ => (first, nullable || *min == 0),
                }
            }
        }
    }

    /// Note what comes behind the rules in a node.
    fn pass(&mut self, node: &RuleNode, after: Set) {
        match node {
            RuleNode::Rule(index) => self.behind[*index] = self.behind[*index] | after,
            RuleNode::Literal(_) | RuleNode::Class(_) | RuleNode::Token(_) => {}
            RuleNode::Alt(parts) => parts.iter().for_each(|part| self.pass(part, after)),
            RuleNode::Seq(parts) => {
                let mut behind = after;
                for part in parts.iter().rev() {
                    self.pass(part, behind);
                    let (first, nullable) = self.first(part);
                    behind = match nullable {
                        true => behind | first,
                        false => first,
                    };
                }
            }
            RuleNode::Repeat { node, max, .. } => {
                let again = match max {
                    Some(0 | 1) => Set::default(),
                    _ => self.first(node).0,
                };
                self.pass(node, after | again);
            }
        }
    }
}
