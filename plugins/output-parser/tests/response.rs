//! Answers by response templates, against `transformers`: `tests/parsers/make_response.py` wrote what they mean.

use std::collections::HashMap;

use mortise_output_parser::constraint::constraint;
use mortise_output_parser::response::Reader;
use mortise_output_parser::style::{Reason, Settings, Style};
use mortise_plugin_sdk::output_parser::{Event, Finish, Session as _, Setup, ToolChoice};
use mortise_plugin_sdk::{ControlToken, Model};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct File {
    templates: HashMap<String, Value>,
    tools: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    name: String,
    opens: bool,
    text: String,
    /// None where `transformers` raises.
    answer: Option<Meant>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Meant {
    content: String,
    reasoning: String,
    calls: Vec<(String, Value)>,
}

fn file() -> File {
    serde_json::from_str(include_str!("../../../tests/parsers/response.json")).unwrap()
}

fn reader(template: &Value) -> &'static Reader {
    let none = std::iter::empty();
    Box::leak(Box::new(Reader::new(&template.to_string(), none).unwrap()))
}

fn setup(tools: &Value, opens_reasoning: bool) -> Setup {
    Setup {
        tools: tools.to_string(),
        tool_choice: ToolChoice::Auto,
        parallel: true,
        opens_reasoning,
    }
}

fn read<'a>(
    reader: &'static Reader,
    setup: &Setup,
    pieces: impl Iterator<Item = &'a str>,
) -> Meant {
    let mut session = reader.open(setup).unwrap();
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(session.feed(piece, &[]).unwrap());
    }
    events.extend(session.close(Finish::Stop).unwrap());
    let (mut meant, mut arguments) = (Meant::default(), Vec::new());
    for event in events {
        match event {
            Event::Content(text) => meant.content.push_str(&text),
            Event::Reasoning(text) => meant.reasoning.push_str(&text),
            Event::CallBegin(call) => {
                assert_eq!(call.index as usize, meant.calls.len());
                meant.calls.push((call.name, Value::Null));
                arguments.push(String::new());
            }
            Event::CallArguments(more) => arguments[more.index as usize].push_str(&more.delta),
            Event::CallEnd(index) => {
                let text = &arguments[index as usize];
                meant.calls[index as usize].1 = serde_json::from_str(text).unwrap();
            }
        }
    }
    meant
}

/// Meaning of an answer by `transformers`; where it raises, all of the text is content.
fn meant(case: &Case) -> Meant {
    let text = || Meant {
        content: case.text.clone(),
        ..Meant::default()
    };
    let meant = case.answer.as_ref();
    meant.map_or_else(text, |meant| Meant {
        content: meant.content.clone(),
        reasoning: meant.reasoning.clone(),
        calls: meant.calls.clone(),
    })
}

#[test]
fn feature_s14_answers_by_response_templates_are_those_of_transformers() {
    let file = file();
    assert!(file.cases.len() > 30 && file.templates.len() > 6);
    for case in &file.cases {
        let reader = reader(&file.templates[&case.template]);
        let setup = setup(&file.tools, case.opens);
        let (name, meant) = (format!("{}: {}", case.template, case.name), meant(case));
        assert_eq!(
            read(reader, &setup, [case.text.as_str()].into_iter()),
            meant,
            "{name}"
        );
        let each = case.text.split_inclusive(|_| true);
        assert_eq!(
            read(reader, &setup, each),
            meant,
            "{name}, character by character"
        );
        for (at, _) in case.text.char_indices() {
            let (first, second) = case.text.split_at(at);
            let found = read(reader, &setup, [first, second].into_iter());
            assert_eq!(found, meant, "{name}, cut at {at}");
        }
    }
}

/// Texts and line breaks that stand around calls stay, calls of undeclared tools are content with their marks, and what
/// stands outside of all regions is content too. `transformers` keeps the last of several regions and drops the rest.
#[test]
fn nothing_is_lost_where_a_template_has_no_place_for_it() {
    let file = file();
    let texts = [
        (
            "chatml",
            "One. <tool_call>{\"name\": \"time\"}</tool_call>\nTwo.",
            "One.\nTwo.",
            1,
        ),
        (
            "chatml",
            "A <tool_call>{\"name\": \"nobody\"}</tool_call> B",
            "",
            0,
        ),
        (
            "chatml",
            "<tool_call>[1, {\"name\": \"time\"}]</tool_call>",
            "",
            0,
        ),
        ("chatml", "A <tool_call>{\"name\": \"time\", ", "", 0),
        ("actions", "Words without marks.", "", 0),
        (
            "actions",
            "<|START_ACTION|>{\"tool_name\": \"time\"}<|END_ACTION|>",
            "",
            0,
        ),
        (
            "channels",
            "<|start|>assistant<|channel|>final<|message|>A<|end|> B",
            "A B",
            0,
        ),
    ];
    for (template, text, content, calls) in texts {
        let reader = reader(&file.templates[template]);
        let found = read(reader, &setup(&file.tools, false), [text].into_iter());
        let content = if content.is_empty() { text } else { content };
        assert_eq!(found.content, content, "{text}");
        assert_eq!(found.calls.len(), calls, "{text}");
        // Without tools, calls are words.
        let found = read(reader, &setup(&json!([]), false), [text].into_iter());
        assert!(found.calls.is_empty());
    }
}

fn model(template: &str) -> Model {
    let tokens = ["<tool_call>", "</tool_call>", "<|im_end|>"]
        .iter()
        .zip(300..);
    let tokens = tokens.map(|(text, id)| ControlToken {
        id,
        text: (*text).to_owned(),
        special: true,
    });
    Model {
        name: "a model".to_owned(),
        architecture: String::new(),
        chat_template: Some(template.to_owned()),
        bos_token: String::new(),
        eos_token: String::new(),
        control_tokens: tokens.collect(),
    }
}

/// A template of the style of Hermes, and one that writes nothing about calls.
const HERMES: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}\
    <tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments if c.function.arguments is string \
    else c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}\
    <|im_start|>assistant\n{% endif %}";
const PLAIN: &str =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

#[test]
fn a_model_with_a_response_template_is_read_by_it() {
    let file = file();
    let text = file.templates["chatml"].to_string();
    let style = Style::of_files(&Settings::default(), model(HERMES), Some(&text));
    assert_eq!(
        (style.reason.clone(), style.reasons),
        (Reason::Response, true)
    );
    assert!(style.keep_special_tokens() && style.refused.is_none());

    // The grammar of the format that the chat template shows forces calls, since both read the same.
    let forced = Setup {
        tool_choice: ToolChoice::Named("time".to_owned()),
        ..setup(&file.tools, false)
    };
    assert!(constraint(&style, &forced, None).unwrap().is_some());
    // Nothing shows that they do.
    let style = Style::of_files(&Settings::default(), model(PLAIN), Some(&text));
    let refused = constraint(&style, &forced, None).unwrap_err();
    assert!(
        format!("{refused:?}").contains("response_template"),
        "{refused:?}"
    );

    // An operator who names a format knows better.
    let settings: Settings = serde_json::from_value(json!({"format": "qwen-coder"})).unwrap();
    let style = Style::of_files(&settings, model(HERMES), Some(&text));
    assert_eq!(style.format.name(), "qwen-coder");
    assert!(style.response.is_none());
}

#[test]
fn a_template_that_cannot_be_followed_is_told_of_and_left() {
    let field = |field: Value| json!({"start_anchor": "a", "fields": {"content": field}});
    let wrong = [
        json!([]),
        json!({"fields": {"content": {}}}),
        json!({"start_anchor": "a", "fields": {}}),
        json!({"start_anchor": "a", "version": 2, "fields": {"content": {}}}),
        json!({"start_anchor": "a", "fields": {"content": {}, "thinking": {}}}),
        field(json!({"opens": "x"})),
        field(json!({"open": "x", "open_pattern": "y"})),
        field(json!({"open": ""})),
        field(json!({"open_pattern": "(?<=a)b"})),
        field(json!({"open_pattern": "(?P<x>a)"})),
        field(json!({"content": "yaml"})),
        field(json!({"join": ","})),
        field(json!({"transform": {"a": "b {content}"}})),
        field(json!({"transform_each": true})),
        field(json!({"content": "xml-inline", "content_args": {"tag_pattern": "a"}})),
    ];
    for template in wrong {
        let style = Style::of_files(
            &Settings::default(),
            model(HERMES),
            Some(&template.to_string()),
        );
        assert!(
            style.refused.is_some() && style.response.is_none(),
            "{template}"
        );
        assert_eq!(style.format.name(), "hermes");
    }
}

proptest! {
    /// Cuts change nothing, and what is said is of the text, whatever it is.
    #[test]
    fn texts_of_marks_are_read_alike_in_any_pieces(
        which in 0..7usize,
        parts in prop::collection::vec((0..14usize, any::<bool>()), 0..24),
        opens in any::<bool>(),
    ) {
        let file = file();
        let mut names: Vec<&String> = file.templates.keys().collect();
        names.sort();
        let marks = ["<think>", "</think>", "<tool_call>", "</tool_call>", "{\"name\": \"time\"}", "<|im_end|>", " ", "\n", "x ü",
            "<|channel|>final<|message|>", "<|end|>", "<|START_ACTION|>", "<response>\n", "<"];
        let parts: Vec<&str> = parts.iter().map(|(at, whole)| {
            let mark = marks[at % marks.len()];
            if *whole { mark } else { &mark[..1] }
        }).collect();
        let whole = parts.concat();
        let reader = reader(&file.templates[names[which % names.len()]]);
        let setup = setup(&file.tools, opens);
        let found = read(reader, &setup, [whole.as_str()].into_iter());
        prop_assert_eq!(&read(reader, &setup, parts.into_iter()), &found);
        prop_assert_eq!(&read(reader, &setup, whole.split_inclusive(|_| true)), &found);
        prop_assert!(found.content.len() + found.reasoning.len() <= whole.len() + 3 * found.content.matches(" / ").count());
    }
}
