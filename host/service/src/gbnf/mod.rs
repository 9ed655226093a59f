//! Grammars in GBNF, the notation of llama.cpp, as grammars in llguidance's dialect of Lark.
//!
//! Lark's lexer takes the longest lexeme and never goes back, GBNF knows no lexemes. So each character class is a lexeme of
//! one character, unless it is certain that more can be one: a part without recursion, of which each character tells
//! where in it the text stands, and behind which no character may follow that could also go on within it
//! ([`regular`]). What the translation takes, the grammar takes; a few texts that the grammar takes are not written, where
//! one literal is the beginning of another way on.

mod chars;
mod limits;
mod parse;
mod regular;
mod sets;

pub(crate) use self::limits::MAX_REPETITION;
use self::parse::{Grammar, RuleNode};
use self::regular::{StepBudget, lexeme};
use self::sets::{Follows, Set};

/// Tells GBNF from Lark: what comes first is the head of a rule, `name ::=`.
pub(crate) fn is_gbnf(text: &str) -> bool {
    parse::begins_with_rule(text)
}

/// The grammar in Lark.
///
/// # Errors
/// With the reason, and the line, for what is no GBNF, is too large, or cannot be written in Lark.
pub(crate) fn to_lark(text: &str) -> Result<String, String> {
    let grammar = Grammar::parse(text)?;
    let follows = Follows::of(&grammar);
    let mut writer = Writer {
        grammar: &grammar,
        follows: &follows,
        budget: StepBudget::default(),
    };
    let mut lark = format!("start: r{}\n", grammar.root);
    for (index, body) in grammar.bodies.iter().enumerate() {
        let body = writer.node(body, follows.behind[index]);
        let body = match body.is_empty() {
            true => "\"\"".to_owned(),
            false => body,
        };
        lark.push_str(&format!("r{index}: {body}\n"));
    }
    Ok(lark)
}

struct Writer<'a> {
    grammar: &'a Grammar,
    follows: &'a Follows,
    budget: StepBudget,
}

impl Writer<'_> {
    /// An expression for a node behind which these characters may come.
    fn node(&mut self, node: &RuleNode, after: Set) -> String {
        if !matches!(node, RuleNode::Rule(_) | RuleNode::Literal(_))
            && let Some(lexeme) = lexeme(self.grammar, node, after, &mut self.budget)
        {
            return lexeme;
        }
        match node {
            RuleNode::Literal(text) => serde_json::Value::from(text.as_str()).to_string(),
            RuleNode::Class(ranges) => format!("/{}/", chars::class(ranges)),
            RuleNode::Rule(index) => format!("r{index}"),
            RuleNode::Token(token) => token.clone(),
            RuleNode::Alt(parts) => {
                let parts = parts.iter().map(|part| match self.node(part, after) {
                    empty if empty.is_empty() => "\"\"".to_owned(),
                    part => part,
                });
                format!("({})", parts.collect::<Vec<_>>().join(" | "))
            }
            RuleNode::Seq(parts) => self.sequence(parts, after),
            RuleNode::Repeat { node, min, max } => {
                let inner = match max {
                    Some(0 | 1) => self.node(node, after),
                    _ => self.node(node, after | self.follows.first(node).0),
                };
                match (inner.is_empty(), min, max) {
                    (true, ..) | (_, _, Some(0)) => String::new(),
                    (_, 0, None) => format!("({inner})*"),
                    (_, 1, None) => format!("({inner})+"),
                    (_, 0, Some(1)) => format!("({inner})?"),
                    (_, min, None) => format!("({inner}){{{min},}}"),
                    (_, min, Some(max)) => format!("({inner}){{{min},{max}}}"),
                }
            }
        }
    }

    fn sequence(&mut self, parts: &[RuleNode], after: Set) -> String {
        let mut written = Vec::with_capacity(parts.len());
        let mut behind = after;
        for part in parts.iter().rev() {
            let text = self.node(part, behind);
            if !text.is_empty() {
                written.push(text);
            }
            let (first, nullable) = self.follows.first(part);
            behind = match nullable {
                true => behind | first,
                false => first,
            };
        }
        written.reverse();
        written.join(" ")
    }
}

#[cfg(test)]
mod tests;
