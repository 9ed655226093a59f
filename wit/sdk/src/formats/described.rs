//! Reader of formats that are told by their marks alone.

use super::spec::{Described, JsonCalls, Writing};
use super::tags;
use crate::stream::{CallKeys, Text};

/// Read calls to the end of an answer.
pub(super) async fn read(text: &mut Text, described: &Described) {
    match &described.spec.writing {
        Writing::Tags(marks) => tags::read(text, marks, &[]).await,
        Writing::Python(python) => calls_of_python(text, python.section).await,
        _ => json(text, described).await,
    }
}

/// Calls of Python's kind, in brackets or one behind the other. Without a mark, they are all of an answer.
async fn calls_of_python(text: &mut Text, (open, close): (&str, &str)) {
    let mark = open.trim_end_matches('[').trim();
    let close = close.trim().trim_start_matches(']').trim_start();
    let listed = open.ends_with('[');
    if mark.is_empty() {
        if listed {
            text.python_calls().await;
        }
        return;
    }
    while text.content_until(mark).await {
        let mut read = match listed {
            true => text.python_calls().await,
            false => text.python_call().await,
        };
        while read.is_some() && !text.close(close).await {
            read = match listed {
                true => None,
                false => text.python_call().await,
            };
        }
    }
}

/// Marks around calls whose arguments are JSON, without blanks at their ends.
struct Around<'a> {
    /// Before the first call, and behind the last.
    section: (&'a str, &'a str),
    /// Before each call.
    open: &'a str,
    /// Between two calls.
    between: &'a str,
}

impl<'a> Around<'a> {
    fn of(described: &'a Described) -> Self {
        let (section, between) = match &described.spec.writing {
            Writing::Json(written) => (written.section, written.between.unwrap_or_default()),
            _ => (("", ""), ""),
        };
        let (first, last) = (section.0.trim(), section.1.trim());
        match &described.call {
            // The reader of objects knows lists.
            JsonCalls::Object { open, .. } => Self {
                section: (
                    first.trim_end_matches('[').trim_end(),
                    last.trim_start_matches(']').trim_start(),
                ),
                open: open.trim(),
                between: between.trim(),
            },
            JsonCalls::Named { open, .. } => Self {
                section: (first, last),
                open: open.trim(),
                between: between.trim(),
            },
        }
    }

    /// True if another call begins.
    async fn go_on(&self, text: &mut Text) -> bool {
        let here = text.position();
        if !self.between.is_empty() {
            text.follows(self.between).await;
        }
        text.space().await;
        let begins = match self.open {
            "" => text.is_at("{").await && (!self.section.0.is_empty() || !self.between.is_empty()),
            open => text.mark(open).await.is_some(),
        };
        if !begins {
            text.back_to(here);
        }
        begins
    }
}

/// Calls whose arguments are JSON. Without a mark, they are all of an answer.
async fn json(text: &mut Text, described: &Described) {
    let around = Around::of(described);
    let marks: Vec<&str> = [around.section.0, around.open]
        .into_iter()
        .filter(|mark| !mark.is_empty())
        .collect();
    if marks.is_empty() {
        alone(text, described).await;
        return;
    }
    while let Some(mark) = text.content_until_any(&marks).await {
        let is_section = mark == 0 && !around.section.0.is_empty();
        if is_section && !around.open.is_empty() && !text.follows(around.open).await {
            continue;
        }
        let mut read = call(text, &described.call).await;
        while read.is_some() && around.go_on(text).await {
            read = call(text, &described.call).await;
        }
        if read.is_some() && !around.section.1.is_empty() {
            text.close(around.section.1).await;
        }
    }
}

/// Calls without any mark: one object, or a list of them, with nothing in it that calls have not.
async fn alone(text: &mut Text, described: &Described) {
    let JsonCalls::Object { keys, .. } = &described.call else {
        return;
    };
    let keys = CallKeys {
        only: true,
        ..*keys
    };
    let mut read = text.json_calls(keys).await;
    while read.is_some() {
        let here = text.position();
        text.follows(Around::of(described).between).await;
        read = text.json_calls(keys).await;
        if read.is_none() {
            text.back_to(here);
        }
    }
}

/// A call behind its mark, with what closes it.
async fn call(text: &mut Text, calls: &JsonCalls) -> Option<()> {
    let close = match calls {
        JsonCalls::Object { keys, close, .. } => {
            text.json_calls(*keys).await?;
            close
        }
        JsonCalls::Named { middle, close, .. } => {
            let name = match (middle.is_empty(), middle.trim()) {
                (true, _) => text.identifier().await?,
                (false, "") => text.name_until(&[middle]).await?.0,
                (false, mark) => text.name_until(&[mark]).await?.0,
            };
            text.json_arguments(name.trim(), None).await?;
            close
        }
    };
    if !close.trim().is_empty() {
        text.close(close.trim()).await;
    }
    Some(())
}
