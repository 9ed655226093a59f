//! Pages of the reference about models: families and classes that are computed, and formats of tool calls and of prompts.

use std::fmt::Write as _;
use std::fs;

use mortise_plugin_sdk::formats::{Format, Writing};

use crate::book::{MADE, root};

fn source(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a source")
}

/// The text between two marks.
fn between<'a>(text: &'a str, open: &str, close: &str) -> &'a str {
    let (_, rest) = text.split_once(open).unwrap_or_else(|| panic!("no {open}"));
    rest.split(close).next().unwrap_or_default()
}

/// Texts in quotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('"').skip(1).step_by(2).collect()
}

/// Classes of decoders, each with the class of models that also see, if there is one.
fn decoders() -> Vec<(String, Option<String>)> {
    let text = source("host/model/src/spec/families.rs");
    let seeing = |rest: &str| {
        let own = rest.split("class: \"").next().unwrap_or_default();
        own.split_once("seeing_class: Some(\"")
            .map(|(_, name)| name.split('"').next().unwrap_or_default().to_owned())
    };
    let classes = text.split("\n    class: \"").skip(1);
    let nested = text.split("\n        class: \"").skip(1);
    let mut found: Vec<(String, Option<String>)> = classes
        .chain(nested)
        .map(|rest| {
            let (name, rest) = rest.split_once('"').expect("a name");
            (name.to_owned(), seeing(rest))
        })
        .collect();
    found.sort();
    found
}

/// Classes of encoders, and whether they rank.
fn encoders() -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for path in [
        "host/model/src/encoder/spec.rs",
        "host/model/src/encoder/modern_spec.rs",
    ] {
        let text = source(path);
        let table = between(&text, "const CLASSES: [", "];");
        let (_, table) = table.split_once("= [").expect("a table");
        for row in table.split('(').skip(1) {
            let name = quoted(row)[0].to_owned();
            found.push((name, row.contains("true")));
        }
    }
    found
}

/// Architectures of GGUF files with the classes that they are read as.
fn gguf() -> Vec<(String, String)> {
    let text = source("host/model/src/gguf/config/mod.rs");
    let table = between(&text, "const ARCHITECTURES: &[(&str, &str)] = &[", "];");
    let names = quoted(table);
    let pairs = names
        .chunks(2)
        .map(|pair| (pair[0].to_owned(), pair[1].to_owned()));
    pairs.collect()
}

/// The page of families.
pub(crate) fn families() -> String {
    let (decoders, encoders, gguf) = (decoders(), encoders(), gguf());
    let all = mortise_model::Architecture::all();
    let names: Vec<&str> = all.map(mortise_model::Architecture::name).collect();
    assert_eq!(decoders.len(), names.len(), "{decoders:?}");
    let mut page = format!(
        "# Model families\n\n{MADE}\n[Models](../models.md) says what each asks for and which files are read. A class without its head \
         (`…Model`) and one with a head for labels (`…ForSequenceClassification`) are those of the same family.\n\n\
         ## Models that generate\n\n| class in `config.json` | also the text part of | `general.architecture` of GGUF |\n|---|---|---|\n"
    );
    for (class, seeing) in &decoders {
        assert!(names.contains(&&class[..]), "{class}");
        let files = gguf.iter().filter(|(_, of)| of == class);
        let files: Vec<String> = files.map(|(name, _)| format!("`{name}`")).collect();
        let seeing = seeing
            .as_ref()
            .map_or(String::new(), |name| format!("`{name}`"));
        let _ = writeln!(page, "| `{class}` | {seeing} | {} |", files.join(", "));
    }
    page.push_str(
        "\n`llama` is also that of Mistral's and Mixtral's files, and `olmo2` that of OLMo 3's.\n\n\
         ## Models of embeddings and of rank\n\n| class in `config.json` | makes | `general.architecture` of GGUF |\n|---|---|---|\n",
    );
    for (class, ranks) in &encoders {
        let files = gguf.iter().filter(|(_, of)| of == class);
        let files: Vec<String> = files.map(|(name, _)| format!("`{name}`")).collect();
        let makes = if *ranks { "scores of pairs" } else { "vectors" };
        let _ = writeln!(page, "| `{class}` | {makes} | {} |", files.join(", "));
    }
    page
}

fn marks(marks: &[&str]) -> String {
    let shown = marks.iter().filter(|mark| !mark.trim().is_empty());
    let shown = shown.map(|mark| format!("`{}`", mark.replace('\n', "\\n").replace('|', "\\|")));
    shown.collect::<Vec<_>>().join(" ")
}

/// The page of formats.
pub(crate) fn formats() -> String {
    let mut page = format!(
        "# Formats of calls and prompts\n\n{MADE}\n## Tool calls\n\nThe [output parser](../plugins/output-parser.md) reads and forces these, by the \
         name in its setting `format`; without one the model's files tell. A call's look comes first in the description, then who writes it. \
         `mortise parse --formats` lists them.\n\n| name | calls | told by architectures | calls begin with | reasoning between | arguments |\n|---|---|---|---|---|---|\n"
    );
    let mut count = 0;
    for spec in Format::all().map(Format::spec) {
        count += 1;
        let arguments = match spec.writing {
            Writing::Json(_) => "one JSON object",
            Writing::Tags(_) => "between tags, each by itself",
            Writing::Python(_) => "Python",
            Writing::Literals(_) => "bare keys, quotes of its own",
            Writing::Nested(_) => "between nested tags",
            Writing::Free => "not forced by a grammar",
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {arguments} |",
            spec.name,
            spec.about.replace('|', "\\|"),
            marks(spec.architectures),
            marks(spec.opens),
            marks(&[spec.reasoning.0, spec.reasoning.1]),
        );
    }
    assert!(count > 40, "{count} formats");
    page.push_str(
        "\n## Prompts\n\nA model's own [chat template](../plugins/chat-template.md) decides. Where its files have none, one of these serves, if the tokenizer has \
         its control tokens; the one of the architecture is tried first.\n\n| name | control tokens | first for architectures |\n|---|---|---|\n",
    );
    let text = source("host/service/src/default_template.rs");
    let table = between(&text, "const FORMATS: [DefaultTemplate; 3] = [", "\n];");
    let rows: Vec<&str> = table.split("DefaultTemplate {").skip(1).collect();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let field = |name: &str| marks(&quoted(between(row, name, "],")));
        let name = quoted(between(row, "name: ", ","))[0];
        let _ = writeln!(
            page,
            "| `{name}` | {} | {} |",
            field("tokens: &["),
            field("architectures: &[")
        );
    }
    page
}
