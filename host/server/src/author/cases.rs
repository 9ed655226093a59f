//! Golden cases: files that say what goes in and what must come out.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use mortise_plugin::Kind;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Subject;
use crate::cli::PluginTestArgs;
use crate::config::BindingKind;
use crate::offline::print;
use crate::workbench::Workbench;

/// Places at which a parser's text is cut in two; longer texts are cut at the first ones.
const MAX_CUTS: usize = 2000;

/// Sizes of the pieces in which a parser is fed; 0 is the model's tokens.
const PIECES: [usize; 6] = [0, 1, 2, 3, 5, 17];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    #[serde(default)]
    kind: Option<BindingKind>,
    #[serde(default)]
    pub(super) settings: Map<String, Value>,
    pub(super) input: Value,
    #[serde(default)]
    expect: Option<Value>,
    #[serde(default)]
    error: Option<String>,
}

impl Case {
    pub(super) fn kind(&self, subject: &Subject) -> anyhow::Result<Kind> {
        subject.kind(self.kind.map(Kind::from))
    }
}

/// The cases in a folder, in the order of their names.
pub(super) fn read_cases(folder: &Path) -> anyhow::Result<Vec<(String, Case)>> {
    let unreadable = || format!("cannot read the cases in `{}`", folder.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("there are no cases (*.json) in `{}`", folder.display());
    }
    let read = files.into_iter().map(|path| {
        let wrong = || format!("the case `{}`", path.display());
        let text = std::fs::read_to_string(&path).with_context(wrong)?;
        let case: Case = serde_json::from_str(&text).with_context(wrong)?;
        if case.expect.is_some() == case.error.is_some() {
            bail!(
                "the case `{}` needs one of `expect` and `error`",
                path.display()
            );
        }
        let name = path.file_stem().unwrap_or_default();
        Ok((name.to_string_lossy().into_owned(), case))
    });
    read.collect()
}

/// `mortise plugin test`: a line for each case, and a failure if any failed.
pub(crate) fn test(args: &PluginTestArgs) -> anyhow::Result<()> {
    let subject = Subject::load(&args.plugin)?;
    let common = super::settings_of(&args.plugin)?;
    let cases = read_cases(&args.cases)?;
    let mut failed = 0;
    for (name, case) in &cases {
        let outcome = run(&subject, &args.plugin.file, &common, case);
        match outcome {
            Ok(()) => print(&format!("ok      {name}\n"))?,
            Err(error) => {
                failed += 1;
                print(&format!("FAILED  {name}: {error:#}\n"))?;
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} cases failed", cases.len());
    }
    print(&format!("{} cases passed\n", cases.len()))
}

/// The settings of the command line under those of the case.
pub(super) fn merged(common: &Value, case: &Case) -> Value {
    let mut settings = common.as_object().cloned().unwrap_or_default();
    settings.extend(case.settings.clone());
    Value::Object(settings)
}

fn run(subject: &Subject, file: &Path, common: &Value, case: &Case) -> anyhow::Result<()> {
    let kind = case.kind(subject)?;
    // A plugin may refuse its settings, which is an outcome as well.
    let bench = match (subject.bench(file, &merged(common, case)), &case.error) {
        (Err(error), Some(expected)) => return contains(&error, expected),
        (bench, _) => bench?,
    };
    let said = bench.ask(kind, case.input.clone());
    match (said, &case.error, &case.expect) {
        (Err(error), Some(expected), _) => contains(&error, expected),
        (Ok(said), Some(expected), _) => {
            bail!("should fail with \"{expected}\"; it gave {said}")
        }
        (said, None, expected) => {
            let said = said?;
            if let Some(problem) = expected.as_ref().and_then(|e| difference("", e, &said)) {
                bail!(problem);
            }
            match kind {
                Kind::OutputParser => check_pieces(&bench, &case.input, &said),
                Kind::ChatTemplate | Kind::Grammar | Kind::Policy | Kind::Tool => Ok(()),
            }
        }
    }
}

fn contains(error: &anyhow::Error, expected: &str) -> anyhow::Result<()> {
    let text = format!("{error:#}");
    match text.contains(expected) {
        true => Ok(()),
        false => bail!("should fail with \"{expected}\"; it failed with \"{text}\""),
    }
}

/// However the text is cut, the events add up to the same.
fn check_pieces(bench: &Workbench, input: &Value, whole: &Value) -> anyhow::Result<()> {
    let length = input["text"]
        .as_str()
        .map_or(0, |text| text.chars().count());
    let sizes = PIECES.iter().map(|size| ("chunk", *size));
    let cuts = (1..length.min(MAX_CUTS)).map(|at| ("split", at));
    for (key, value) in sizes.chain(cuts) {
        let mut input = input.clone();
        input[key] = json!(value);
        let said = bench.ask(Kind::OutputParser, input)?;
        if said["events"] != whole["events"] {
            let how = match (key, value) {
                ("chunk", 0) => "as tokens".to_owned(),
                ("chunk", size) => format!("in pieces of {size} characters"),
                (_, at) => format!("in two pieces, cut after {at} characters"),
            };
            bail!(
                "fed {how} it gives {}, and in one piece {}",
                said["events"],
                whole["events"]
            );
        }
    }
    Ok(())
}

/// Where `said` lacks what `expected` names: objects may hold more, all else must be equal.
fn difference(place: &str, expected: &Value, said: &Value) -> Option<String> {
    match (expected, said) {
        (Value::Object(expected), Value::Object(said)) => {
            expected.iter().find_map(|(key, value)| {
                let place = format!("{place}.{key}");
                match said.get(key) {
                    Some(said) => difference(&place, value, said),
                    None => Some(format!("{place} is missing; it should be {value}")),
                }
            })
        }
        (Value::Array(expected), Value::Array(said)) if expected.len() == said.len() => {
            let pairs = expected.iter().zip(said).enumerate();
            pairs
                .filter_map(|(index, (expected, said))| {
                    difference(&format!("{place}[{index}]"), expected, said)
                })
                .next()
        }
        (expected, said) if expected == said => None,
        (expected, said) => Some(format!("{place} is {said}; it should be {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_expected_must_be_there_and_more_may_be() {
        let said = json!({"a": {"b": 1, "c": [1, {"d": 2, "e": 3}]}, "f": null});
        let differs = |expected| difference("", &expected, &said);
        assert_eq!(differs(json!({"a": {"c": [1, {"d": 2}]}})), None);
        assert_eq!(differs(json!({"f": null})), None);
        let found = |expected: Value, place: &str| {
            let text = differs(expected).expect("a difference");
            assert!(text.starts_with(place), "{text}");
        };
        found(json!({"a": {"b": 2}}), ".a.b is 1");
        found(json!({"a": {"x": 2}}), ".a.x is missing");
        found(json!({"a": {"c": [1]}}), ".a.c is [1");
        found(json!({"a": {"c": [1, {"e": 4}]}}), ".a.c[1].e is 3");
        found(json!({"a": []}), ".a is {");
    }
}
