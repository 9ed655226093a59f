//! Formats: how they are told and listed, and that parser and grammar agree on each.

#[path = "../../../tests/parsers/answers.rs"]
#[allow(dead_code)] // Cuts are tried elsewhere.
mod answers;
mod grammars;
#[path = "../../../tests/templates/published.rs"]
mod published;
#[path = "grammars/runs.rs"]
mod runs;

use std::collections::BTreeMap;

use answers::{answer, setup};
use grammars::{model, style, takes};
use mortise_output_parser::constraint::constraint;
use mortise_output_parser::open;
use mortise_output_parser::style::{Reason, Settings, Style};
use mortise_plugin_sdk::formats::{Format, Sign, Writing};
use mortise_plugin_sdk::output_parser::{Setup, ToolChoice};
use mortise_plugin_sdk::{ControlToken, Fault};
use serde_json::{Value, json};

fn forced(setup: Setup) -> Setup {
    Setup {
        tool_choice: ToolChoice::Required,
        ..setup
    }
}

/// Texts that models write freely are allowed where a call is forced.
#[test]
fn feature_s14_the_grammar_takes_what_is_written() {
    for case in answers::read(include_str!("../../../tests/parsers/written.json")) {
        let style = style(&case.format, "none", false);
        // Gaps and quotes that a grammar leaves out are not wrong; it writes one way of several.
        let same_way = ["a name with a dot", "no arguments"]
            .iter()
            .any(|end| case.name.ends_with(end));
        let unlike = [
            "command-r",
            "minimax-m1",
            "sarashina",
            "glm",
            "atem",
            "ernie",
            "granite-20b",
            "harmony",
            "inkling",
        ];
        let writing = &style.format.spec().writing;
        let free = matches!(writing, Writing::Free);
        let quoted = matches!(writing, Writing::Python(_)) && !case.name.ends_with("no arguments");
        if !same_way || free || quoted || unlike.contains(&case.format.as_str()) {
            continue;
        }
        let setup = forced(setup("auto", false, false));
        let source = constraint(&style, &setup, None).unwrap().unwrap();
        assert!(
            takes(&style, &source, &case.text),
            "{}: {:?}\n{source:?}",
            case.name,
            case.text
        );
    }
}

/// A model that says anything the grammar allows, and has no idea: nothing but calls come of it, whole and
/// with arguments that are valid.
#[test]
fn feature_s14_what_the_grammar_allows_is_read_as_calls() {
    let only = std::env::var("MORTISE_FORMAT").ok();
    let mut all: Vec<String> = Vec::new();
    for format in Format::all() {
        if only.as_deref().is_some_and(|only| only != format.name()) {
            continue;
        }
        let style = style(format.name(), "none", false);
        let setup = forced(setup("auto", true, false));
        let source = match constraint(&style, &setup, None) {
            Ok(source) => source.unwrap(),
            Err(Fault::Invalid(message)) => {
                assert!(matches!(format.spec().writing, Writing::Free), "{message}");
                assert!(message.contains(format.name()), "{message}");
                continue;
            }
            Err(other) => panic!("{other:?}"),
        };
        let run = runs::run(&style, &setup, &source);
        let (read, runs) = (run.read, runs::count());
        println!(
            "{}: {read} of {runs} runs ended, {} failed",
            format.name(),
            run.failed.len()
        );
        let failed = run.failed.into_iter().take(3);
        all.extend(failed.map(|text| format!("{}: {text}", format.name())));
        assert!(read > 0, "{} never comes to an end", format.name());
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// A text goes on to its closing mark, be that a token, hold one, or be spelled out.
#[test]
fn feature_s14_texts_between_tags_end_at_their_mark() {
    for control in [true, false] {
        for (format, yes, no) in [
            (
                "glm",
                "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>a </b\n\"</arg_value>\n\
                 <arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
                "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
            ),
            (
                "deepseek-dsml",
                "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" \
                 string=\"true\">a </b\n</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3\
                 </｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
                "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"rm\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
            ),
        ] {
            let style = style(format, "none", control);
            let setup = forced(setup("auto", true, false));
            let source = constraint(&style, &setup, None).unwrap().unwrap();
            assert!(takes(&style, &source, yes), "{control} {yes}\n{source:?}");
            assert!(!takes(&style, &source, no), "{control} {no}");
            let parsing = open(&style, &setup).unwrap().unwrap();
            let found = answer(parsing, std::iter::once(yes));
            assert_eq!(found.calls.len(), 1, "{found:?}");
        }
    }
}

#[test]
fn feature_s14_the_format_is_told_by_template_tokens_and_architecture() {
    let token = |text: &str| ControlToken {
        id: 1,
        text: text.to_owned(),
        special: true,
    };
    let of = |template: &str, tokens: &[&str], architecture: &str| {
        let tokens = tokens.iter().map(|text| token(text)).collect();
        Style::new(&Settings::default(), model(template, architecture, tokens))
    };
    // The template decides before tokens that many models have, and those before the architecture.
    let by_template = of("<tool_call>{{ name }}<arg_key>", &["[TOOL_CALLS]"], "qwen3");
    assert_eq!(by_template.format, Format::Glm);
    assert_eq!(
        by_template.reason,
        Reason::Files(Sign::Template(&["<arg_key>"]))
    );
    let by_token = of("{{ messages }}", &["<|tool_call_start|>"], "qwen3");
    assert_eq!(by_token.format, Format::Lfm2);
    assert!(by_token.keep_special_tokens());
    let by_architecture = of("{{ messages }}", &[], "gpt_oss");
    assert_eq!(by_architecture.format, Format::Harmony);
    assert_eq!(by_architecture.reason, Reason::Files(Sign::Architecture));
    // LFM2 shows its tools between marks, and calls only in the model's answers.
    assert_eq!(
        of("<|tool_list_start|>{{ tools }}", &[], "").format,
        Format::Lfm2
    );
    let unknown = of("{% for tool in tools %}{{ tool }}{% endfor %}", &[], "new");
    assert_eq!(
        (unknown.format, unknown.is_unknown()),
        (Format::Hermes, true)
    );
    assert!(!of("{{ messages }}", &[], "new").is_unknown());
    let named: Settings = serde_json::from_value(json!({"format": "seed-oss"})).unwrap();
    let named = Style::new(&named, model("<tool_call>", "", Vec::new()));
    assert_eq!(
        (named.format, named.reason),
        (Format::SeedOss, Reason::Settings)
    );
    let wrong = serde_json::from_value::<Settings>(json!({"format": "qwen"})).unwrap_err();
    assert!(wrong.to_string().contains("qwen-coder"), "{wrong}");
}

#[test]
fn feature_s14_settings_list_all_formats() {
    let schema: Value = serde_json::from_str(include_str!("../settings.schema.json")).unwrap();
    let list = |key: &str| -> Vec<String> {
        serde_json::from_value(schema["properties"]["format"][key].clone()).unwrap()
    };
    let (names, about) = (list("enum"), list("enumDescriptions"));
    assert_eq!(names[0], "auto");
    assert_eq!(names.len(), about.len());
    let listed: Vec<(&str, &str)> = names
        .iter()
        .zip(&about)
        .skip(1)
        .map(|(n, a)| (&**n, &**a))
        .collect();
    let known: Vec<(&str, &str)> = Format::all().map(|f| (f.name(), f.spec().about)).collect();
    assert_eq!(listed, known);
}

/// Names that would not come back as they went out are refused where a call is forced.
#[test]
fn feature_s14_names_that_a_format_cannot_write_are_refused() {
    let style = style("qwen-coder", "none", false);
    let tools = |name: &str, parameters: Value| Setup {
        tools: json!([{"type": "function", "function": {"name": name, "parameters": parameters}}])
            .to_string(),
        ..forced(setup("auto", true, false))
    };
    for (setup, expected) in [
        (tools("a>b", json!({})), "the name `a>b` of a tool"),
        (
            tools("f", json!({"properties": {"a b": {}}})),
            "the parameter `a b`",
        ),
        (
            tools("f", json!({"anyOf": [{}]})),
            "have `anyOf` at the top",
        ),
    ] {
        let Err(Fault::Invalid(message)) = constraint(&style, &setup, None) else {
            panic!("not refused: {expected}");
        };
        assert!(
            message.contains(expected) && message.contains("qwen-coder"),
            "{message}"
        );
    }
}

/// Templates whose turns are not read as they were written, with the number of turns and the reason.
const UNREAD: &[(&str, usize, &str)] = &[
    (
        "vllm__tool_chat_template_functiongemma.jinja",
        1,
        "a number is written as a text",
    ),
    (
        "vllm__tool_chat_template_gemma3_pythonic.jinja",
        1,
        "there is no comma between two arguments",
    ),
    (
        "vllm__tool_chat_template_llama3.2_pythonic.jinja",
        4,
        "texts have no quotes",
    ),
    (
        "vllm__tool_chat_template_llama4_json.jinja",
        1,
        "an object behind a text is text",
    ),
    (
        "vllm__tool_chat_template_llama4_pythonic.jinja",
        3,
        "numbers have quotes, those in texts no escapes; a list behind a text is text",
    ),
    (
        "vllm__tool_chat_template_phi4_mini.jinja",
        3,
        "calls of the past lack the mark that the template asks for",
    ),
    (
        "vllm__tool_chat_template_toolace.jinja",
        4,
        "texts have no quotes",
    ),
];

/// Round trip: what a published template writes where its model calls tools is read as those calls, by the format
/// that the template tells of.
#[test]
fn feature_s14_what_published_templates_write_is_read_back() {
    let test = "feature_s14_what_published_templates_write_is_read_back";
    let Some((folder, document)) = published::published(env!("CARGO_TARGET_TMPDIR"), test) else {
        return;
    };
    let mut unread: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut read = 0;
    for (name, facts) in document["templates"].as_object().unwrap() {
        let template = std::fs::read_to_string(folder.join(name)).unwrap();
        let tokens = facts["control_tokens"].as_array().unwrap().iter();
        let tokens = tokens.zip(1000..).map(|(token, id)| ControlToken {
            id,
            text: token["text"].as_str().unwrap().to_owned(),
            special: token["special"].as_bool().unwrap(),
        });
        let style = Style::new(&Settings::default(), model(&template, "", tokens.collect()));
        for (turn, written) in facts["turns"].as_object().unwrap() {
            let meant = &document["turns"][turn];
            let setup = setup("auto", true, written["opens"].as_bool().unwrap());
            let text = written["text"].as_str().unwrap();
            let parsing = open(&style, &setup).unwrap().unwrap();
            let found = answer(parsing, std::iter::once(text));
            let calls: Vec<(String, Value)> = (found.calls.iter())
                .map(|call| {
                    (
                        call.name.clone(),
                        serde_json::from_str(&call.arguments).unwrap(),
                    )
                })
                .collect();
            let expected: Vec<(String, Value)> = (meant["calls"].as_array().unwrap().iter())
                .map(|call| {
                    let text = |at: usize| call[at].as_str().unwrap();
                    (text(0).to_owned(), serde_json::from_str(text(1)).unwrap())
                })
                .collect();
            // Some templates leave out what is said beside a call.
            let said = found.content.trim();
            let content = meant["content"].as_str().unwrap();
            if calls == expected && (said == content || said.is_empty()) {
                read += 1;
            } else {
                let format = style.format.name();
                let line = format!("{turn} as {format}: {text:?}\n    {found:?}");
                unread.entry(name).or_default().push(line);
            }
        }
    }
    let counts: Vec<(&str, usize)> = unread
        .iter()
        .map(|(name, all)| (*name, all.len()))
        .collect();
    let expected: Vec<(&str, usize)> = UNREAD
        .iter()
        .map(|(name, count, _)| (*name, *count))
        .collect();
    assert_eq!(counts, expected, "{read} are read\n{unread:#?}");
    assert!(read > 250, "{read}");
}
