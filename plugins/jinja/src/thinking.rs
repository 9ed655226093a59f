//! Thinking that a request asks for, under the names and words of the template.
//!
//! Requests say whether and how long to think in the words of their API; templates have switches of their own. A switch that
//! the request gives itself, as an argument of the template, stays as it is.

use std::collections::HashSet;

use minijinja::Environment;
use serde_json::Value;

use crate::environment;
use crate::template::Arguments;

/// The argument by which the host says whether the request asks for thinking. Templates do not see it.
pub(crate) const ASKED: &str = "__thinking";
/// Efforts as requests name them, from the least to the most.
const EFFORTS: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];
/// Variables that switch thinking on and off.
const SWITCHES: [&str; 4] = [
    "enable_thinking",
    "thinking",
    "reasoning",
    "enable_reasoning",
];
/// A variable that does so by words.
const MODE: &str = "thinking_mode";
/// Tokens of thinking; 0 is none.
const BUDGET: &str = "thinking_budget";
/// Variables that hold an effort.
const LEVELS: [&str; 2] = ["reasoning_effort", "thinking_effort"];
/// Words of templates for no effort.
const OFF: [&str; 3] = ["none", "no_think", "off"];

/// Switches that a template reads.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    reads: HashSet<&'static str>,
    /// Efforts that a template refuses all others but, by the variable.
    words: Vec<(&'static str, Vec<String>)>,
}

impl Switches {
    /// The switches of the only template of an environment.
    pub(crate) fn of(environment: &Environment<'_>, source: &str) -> Self {
        let Ok(template) = environment.get_template(environment::NAME) else {
            return Self::default();
        };
        let undeclared = template.undeclared_variables(false);
        let known = SWITCHES.iter().chain(&LEVELS).chain([&MODE, &BUDGET]);
        let words = LEVELS
            .iter()
            .filter_map(|name| Some((*name, only_words(source, name)?)));
        Self {
            reads: known
                .filter(|name| undeclared.contains(**name))
                .copied()
                .collect(),
            words: words.collect(),
        }
    }

    /// Set what the request leaves to the server.
    pub(crate) fn set(&self, arguments: &mut Arguments, asked: bool) {
        let effort = arguments.get(LEVELS[0]).and_then(Value::as_str);
        let effort = effort.filter(|effort| EFFORTS.contains(effort) || OFF.contains(effort));
        let effort = effort.map(str::to_owned);
        let mut switched = false;
        for name in SWITCHES.iter().filter(|name| self.reads.contains(**name)) {
            switched = true;
            arguments.set_absent(name, asked.into());
        }
        if self.reads.contains(MODE) {
            switched = true;
            let mode = if asked { "enabled" } else { "disabled" };
            arguments.set_absent(MODE, mode.into());
        }
        if self.reads.contains(BUDGET) && !switched && !asked {
            arguments.set_absent(BUDGET, 0.into());
        }
        for name in LEVELS.iter().filter(|name| self.reads.contains(**name)) {
            let Some(effort) = &effort else {
                continue;
            };
            match self.word(name, effort) {
                Some(word) => arguments.set(name, word.into()),
                // It has no word for none: another switch says so.
                None if *name == LEVELS[0] => arguments.remove(name),
                None => {}
            }
        }
    }

    /// The word of the template that is nearest to an effort.
    fn word(&self, name: &str, effort: &str) -> Option<String> {
        let known = self.words.iter().find(|(known, _)| *known == name);
        let Some((_, words)) = known else {
            return (name == LEVELS[0] || effort != "none").then(|| effort.to_owned());
        };
        let is_known = |word: &&str| words.iter().any(|known| known == *word);
        if is_known(&effort) {
            return Some(effort.to_owned());
        }
        let nearest = match EFFORTS.iter().position(|word| *word == effort) {
            None => OFF.iter().copied().find(is_known),
            Some(at) => {
                let more = EFFORTS[at..].iter();
                let less = EFFORTS[..at].iter().rev();
                more.chain(less).copied().find(is_known)
            }
        };
        nearest.map(str::to_owned)
    }
}

/// The words in `NAME not in ['low', 'high']`, as templates check them that take no others.
fn only_words(source: &str, name: &str) -> Option<Vec<String>> {
    let test = format!("{name} not in [");
    let list = &source[source.find(&test)? + test.len()..];
    let list = &list[..list.find(']')?];
    let words = list
        .split(',')
        .map(|word| word.trim().trim_matches(['\'', '"']));
    Some(words.map(str::to_owned).collect())
}
