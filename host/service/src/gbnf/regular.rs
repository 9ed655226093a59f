//! Parts of a grammar that can be one lexeme.
//!
//! A lexeme is as long as it can be. That is right where the text never has to be read twice: each position of the part, a
//! character of a literal or a class, is followed by positions with different characters (Glushkov's automaton
//! is deterministic), and where the part may end, no character that may come behind it could also go on within it.

use super::chars;
use super::parse::{Grammar, RuleNode};
use super::sets::Set;

/// Positions of a lexeme.
const MAX_POSITIONS: usize = 200;
/// Rules within rules of a lexeme.
const MAX_NESTING: usize = 32;
/// Steps of all searches in one grammar.
const MAX_STEPS: usize = 500_000;

/// Steps that are left.
#[derive(Debug)]
pub(super) struct StepBudget(usize);

impl Default for StepBudget {
    fn default() -> Self {
        Self(MAX_STEPS)
    }
}

/// The node as one lexeme, if these characters may come behind it; `None` if it is none for certain.
pub(super) fn lexeme(
    grammar: &Grammar,
    node: &RuleNode,
    after: Set,
    budget: &mut StepBudget,
) -> Option<String> {
    // A lexeme has at least one character.
    let (node, optional) = match node {
        RuleNode::Repeat { node, min: 0, max } if *max != Some(0) => {
            let at_least_once = RuleNode::Repeat {
                node: node.clone(),
                min: 1,
                max: *max,
            };
            (at_least_once, "?")
        }
        node => (node.clone(), ""),
    };
    let mut automaton = Automaton {
        grammar,
        budget,
        sets: Vec::new(),
        follow: Vec::new(),
    };
    let part = automaton.part(&node, 0)?;
    let follow = automaton.follow;
    let sets = automaton.sets;
    let apart = |positions: &[usize]| {
        let mut seen = Set::default();
        positions.iter().all(|&position| {
            let new = !seen.meets(sets[position]);
            seen = seen | sets[position];
            new
        })
    };
    let goes_on = part.last.iter().flat_map(|&position| &follow[position]);
    let goes_on = goes_on.fold(Set::default(), |all, &position| all | sets[position]);
    let fits = !part.nullable
        && !part.last.is_empty()
        && apart(&part.first)
        && follow.iter().all(|positions| apart(positions))
        && !goes_on.meets(after);
    fits.then(|| {
        let mut regex = String::new();
        write(grammar, &node, &mut regex);
        match optional.is_empty() {
            true => format!("/{regex}/"),
            false => format!("(/{regex}/){optional}"),
        }
    })
}

/// Positions of a part that may come first and last.
struct Part {
    nullable: bool,
    first: Vec<usize>,
    last: Vec<usize>,
}

impl Part {
    const EMPTY: Self = Self {
        nullable: true,
        first: Vec::new(),
        last: Vec::new(),
    };
}

struct Automaton<'a> {
    grammar: &'a Grammar,
    budget: &'a mut StepBudget,
    /// Characters of each position.
    sets: Vec<Set>,
    /// Positions behind each.
    follow: Vec<Vec<usize>>,
}

impl Automaton<'_> {
    fn position(&mut self, set: Set) -> Option<Part> {
        let position = self.sets.len();
        self.sets.push(set);
        self.follow.push(Vec::new());
        (position < MAX_POSITIONS).then(|| Part {
            nullable: false,
            first: vec![position],
            last: vec![position],
        })
    }

    /// `None` for what is no lexeme: recursive or too large, or with a control token in it.
    fn part(&mut self, node: &RuleNode, nesting: usize) -> Option<Part> {
        self.budget.0 = self.budget.0.checked_sub(1)?;
        match node {
            RuleNode::Token(_) => None,
            RuleNode::Class(ranges) => self.position(Set::of(ranges)),
            RuleNode::Literal(text) => {
                let mut all = Part::EMPTY;
                for c in text.chars() {
                    let next = self.position(Set::of(&vec![(c.into(), c.into())]))?;
                    all = self.joined(all, next);
                }
                Some(all)
            }
            RuleNode::Rule(_) if nesting == MAX_NESTING => None,
            RuleNode::Rule(index) => {
                let grammar = self.grammar;
                self.part(&grammar.bodies[*index], nesting + 1)
            }
            RuleNode::Seq(parts) => {
                let mut all = Part::EMPTY;
                for part in parts {
                    let next = self.part(part, nesting)?;
                    all = self.joined(all, next);
                }
                Some(all)
            }
            RuleNode::Alt(parts) => {
                let mut all = Part {
                    nullable: false,
                    ..Part::EMPTY
                };
                for part in parts {
                    let part = self.part(part, nesting)?;
                    all.nullable |= part.nullable;
                    all.first.extend(part.first);
                    all.last.extend(part.last);
                }
                Some(all)
            }
            RuleNode::Repeat { node, min, max } => self.repeated(node, *min, *max, nesting),
        }
    }

    fn repeated(
        &mut self,
        node: &RuleNode,
        min: u32,
        max: Option<u32>,
        nesting: usize,
    ) -> Option<Part> {
        let copies = max.unwrap_or(min.max(1));
        let mut all = Part::EMPTY;
        for copy in 0..copies {
            let mut next = self.part(node, nesting)?;
            if max.is_none() && copy + 1 == copies {
                self.follows(&next.last, &next.first);
            }
            next.nullable |= copy >= min;
            all = self.joined(all, next);
        }
        Some(all)
    }

    fn follows(&mut self, last: &[usize], first: &[usize]) {
        let steps = last.len() * first.len();
        self.budget.0 = self.budget.0.saturating_sub(steps);
        for &position in last {
            for &next in first {
                // A repetition within a repetition leads back the same way twice.
                if !self.follow[position].contains(&next) {
                    self.follow[position].push(next);
                }
            }
        }
    }

    fn joined(&mut self, before: Part, behind: Part) -> Part {
        self.follows(&before.last, &behind.first);
        let mut first = before.first;
        if before.nullable {
            first.extend(&behind.first);
        }
        let mut last = behind.last;
        if behind.nullable {
            last.extend(before.last);
        }
        Part {
            nullable: before.nullable && behind.nullable,
            first,
            last,
        }
    }
}

/// A regular expression for a node that has an automaton.
fn write(grammar: &Grammar, node: &RuleNode, regex: &mut String) {
    match node {
        RuleNode::Literal(text) => regex.push_str(&chars::literal(text)),
        RuleNode::Class(ranges) => regex.push_str(&chars::class(ranges)),
        RuleNode::Rule(index) => {
            regex.push_str("(?:");
            write(grammar, &grammar.bodies[*index], regex);
            regex.push(')');
        }
        RuleNode::Token(_) => {}
        RuleNode::Seq(parts) => parts.iter().for_each(|part| write(grammar, part, regex)),
        RuleNode::Alt(parts) => {
            regex.push_str("(?:");
            for (at, part) in parts.iter().enumerate() {
                if at > 0 {
                    regex.push('|');
                }
                write(grammar, part, regex);
            }
            regex.push(')');
        }
        RuleNode::Repeat { node, min, max } => {
            regex.push_str("(?:");
            write(grammar, node, regex);
            regex.push(')');
            regex.push_str(&match (min, max) {
                (0, None) => "*".to_owned(),
                (1, None) => "+".to_owned(),
                (0, Some(1)) => "?".to_owned(),
                (min, None) => format!("{{{min},}}"),
                (min, Some(max)) => format!("{{{min},{max}}}"),
            });
        }
    }
}
