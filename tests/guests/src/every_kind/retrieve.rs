//! The guest as a retriever: its settings say how it lies.

use super::exports::mortise::plugin::retriever::{
    Assembly, Budget, Candidate, Context, Document, Guest as Retriever, Joint, Sizes, Span, Traits,
};
use super::mortise::plugin::types::Fault;
use super::{Guest, act_on_setting, setting};
use crate::behaviour::act;

impl Retriever for Guest {
    fn describe() -> Traits {
        act_on_setting("describe-work");
        let idle = setting("work").as_deref() == Some("none");
        Traits {
            chunk: !idle,
            rewrite: !idle,
            assemble: !idle,
        }
    }

    fn chunk(context: Context, document: Document, sizes: Sizes) -> Result<Vec<Span>, Fault> {
        act_on_setting("chunk");
        let text = &document.text;
        let all = text.len() as u32;
        let span = |start, end| Span { start, end };
        let lie = setting("spans");
        Ok(match lie.as_deref().unwrap_or(text) {
            "told?" => {
                return Err(Fault::Invalid(format!(
                    "{context:?} {document:?} {sizes:?}"
                )));
            }
            "invalid!" => return Err(Fault::Invalid("no such document".to_owned())),
            "unsupported!" => return Err(Fault::Unsupported("no such format".to_owned())),
            "internal!" => return Err(Fault::Internal("out of order".to_owned())),
            "none" => Vec::new(),
            "whole" => vec![span(0, all)],
            "beyond" => vec![span(0, all + 1)],
            "far" => vec![span(u32::MAX - 1, u32::MAX)],
            "empty" => vec![span(1, 1)],
            "backwards" => vec![span(all, 0)],
            "torn" => {
                let torn = (1..all).find(|at| !text.is_char_boundary(*at as usize));
                vec![span(0, torn.unwrap_or(all))]
            }
            "disorder" => vec![span(3, 4), span(0, 1)],
            "repeated" => vec![span(0, all), span(0, all)],
            "copies" => (3..all - 8).map(|at| span(at, at + 9)).collect(),
            "flood" => (0..sizes.max_chunks + 1)
                .map(|at| span(at, at + 1))
                .collect(),
            "bloat" => vec![span(0, 1); 2 << 20],
            command => {
                act(command);
                lines(text)
            }
        })
    }

    fn rewrite(context: Context, query: String) -> Result<Vec<String>, Fault> {
        act_on_setting("rewrite");
        let lie = setting("queries");
        Ok(match lie.as_deref().unwrap_or(&query) {
            "told?" => vec![format!("{context:?} {query}")],
            "invalid!" => return Err(Fault::Invalid("no such query".to_owned())),
            "internal!" => return Err(Fault::Internal("out of order".to_owned())),
            "none" => Vec::new(),
            "many" => vec![query; 9],
            "blank" => vec![query, " ".to_owned()],
            "essay" => vec!["q".repeat(16 * 1024 + 1)],
            "bloat" => vec!["q".repeat(16 << 20)],
            command => {
                act(command);
                // Each half of `one|other`.
                command.split('|').map(str::to_owned).collect()
            }
        })
    }

    fn assemble(
        context: Context,
        query: String,
        candidates: Vec<Candidate>,
        budget: Budget,
    ) -> Result<Assembly, Fault> {
        act_on_setting("assemble");
        let count = candidates.len() as u32;
        let lie = setting("choice");
        let chosen = match lie.as_deref().unwrap_or(&query) {
            "told?" => {
                let told = format!("{context:?} {candidates:?} {budget:?}");
                return Err(Fault::Invalid(told));
            }
            "internal!" => return Err(Fault::Internal("out of order".to_owned())),
            "beyond" => vec![count],
            "twice" => vec![0, 0],
            "greedy" => (0..count).collect(),
            "bloat" => vec![0; 4 << 20],
            "none" => Vec::new(),
            command => {
                act(command);
                last(&candidates, budget)
            }
        };
        let joint = Joint::Rule;
        Ok(Assembly { chosen, joint })
    }
}

/// Lines of a text that are not empty.
fn lines(text: &str) -> Vec<Span> {
    let mut start = 0;
    let mut spans = Vec::new();
    for line in text.split_inclusive('\n') {
        let end = start + line.len() as u32;
        if !line.trim().is_empty() {
            spans.push(Span { start, end });
        }
        start = end;
    }
    spans
}

/// The last candidate that has room.
fn last(candidates: &[Candidate], budget: Budget) -> Vec<u32> {
    let fits = |candidate: &Candidate| candidate.tokens <= budget.tokens && budget.passages > 0;
    let last = candidates.iter().rposition(fits);
    last.into_iter().map(|at| at as u32).collect()
}
