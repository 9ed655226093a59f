//! The grammars that are written, tried with llguidance.

mod grammars;

use grammars::{model, style, takes};
use mortise_output_parser::constraint::constraint;
use mortise_output_parser::style::{Settings, Style};
use mortise_plugin_sdk::formats::Format;
use mortise_plugin_sdk::output_parser::{GrammarSource, Setup, ToolChoice};
use mortise_plugin_sdk::{ControlToken, Fault};
use serde_json::json;

fn setup(choice: &ToolChoice, parallel: bool, opens: bool) -> Setup {
    let tools = json!([
        {"type": "function", "function": {"name": "get_weather", "parameters": {
            "properties": {"city": {"type": "string"}}, "required": ["city"],
            "additionalProperties": false}}},
        {"type": "function", "function": {"name": "time"}},
    ]);
    Setup {
        tools: tools.to_string(),
        tool_choice: choice.clone(),
        parallel,
        opens_reasoning: opens,
    }
}

/// Message of a refusal.
fn refused(style: &Style, setup: &Setup, wanted: Option<GrammarSource>) -> String {
    match constraint(style, setup, wanted) {
        Err(Fault::Invalid(message)) => message,
        other => panic!("not refused as the caller's: {other:?}"),
    }
}

fn check(style: &Style, setup: &Setup, wanted: Option<GrammarSource>, yes: &[&str], no: &[&str]) {
    let source = constraint(style, setup, wanted).unwrap().unwrap();
    for text in yes {
        assert!(
            takes(style, &source, text),
            "should take {text:?}\n{source:?}"
        );
    }
    for text in no {
        assert!(
            !takes(style, &source, text),
            "should refuse {text:?}\n{source:?}"
        );
    }
}

const WEATHER: &str =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>";
const TIME: &str = "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";

#[test]
fn forced_calls() {
    for control in [true, false] {
        let style = style("hermes", "none", control);
        let both = format!("{WEATHER}\n{TIME}");
        let required = setup(&ToolChoice::Required, true, false);
        check(
            &style,
            &required,
            None,
            &[WEATHER, TIME, &both],
            &[
                "Hello",
                "",
                "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
                "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>",
                "<tool_call>\n{\"name\": \"time\", \"arguments\": {\"x\": 1}}\n</tool_call>",
            ],
        );
        check(
            &style,
            &setup(&ToolChoice::Required, false, false),
            None,
            &[TIME],
            &[&both],
        );
        let named = setup(&ToolChoice::Named("time".to_owned()), false, false);
        check(&style, &named, None, &[TIME], &[WEATHER]);
    }
}

#[test]
fn forced_calls_of_llama() {
    let style = style("llama3-json", "none", false);
    let one = r#"{"name": "get_weather", "parameters": {"city": "Ulm"}}"#;
    let two = format!("{one}; {}", r#"{"name": "time", "parameters": {}}"#);
    let required = setup(&ToolChoice::Required, true, false);
    check(
        &style,
        &required,
        None,
        &[one, &two],
        &["x", r#"{"name": "time"}"#, WEATHER],
    );
}

#[test]
fn reasoning_comes_before_forced_calls() {
    for control in [true, false] {
        let style = style("hermes", "think", control);
        let required = setup(&ToolChoice::Required, false, false);
        let thought = format!("<think>\nWell, <b>.\n</think>\n\n{TIME}");
        check(
            &style,
            &required,
            None,
            &[TIME, &thought],
            &["<think>a</think>b"],
        );
        let opened = setup(&ToolChoice::Required, false, true);
        let rest = format!("Well.\n</think>\n\n{TIME}");
        check(&style, &opened, None, &[&rest], &[TIME, "Well.</think>b"]);
    }
}

#[test]
fn a_wanted_format_passes_or_is_wrapped() {
    let style = style("hermes", "think", true);
    let none = |opens| setup(&ToolChoice::None, true, opens);
    let wanted = GrammarSource::JsonSchema(json!({"type": "integer"}).to_string());
    assert_eq!(
        constraint(&style, &none(false), Some(wanted.clone())).unwrap(),
        Some(wanted.clone())
    );
    check(
        &style,
        &none(true),
        Some(wanted),
        &["a\n</think>\n\n12", "</think>7"],
        &["12", "</think>x"],
    );
    let regex = GrammarSource::Regex(r"a/b\/c|\d+".to_owned());
    check(
        &style,
        &none(true),
        Some(regex),
        &["</think>a/b/c", "</think>42"],
        &["</think>a"],
    );
    let lark = GrammarSource::Lark("start: item+\nitem: \"x\" | \"{\"".to_owned());
    check(
        &style,
        &none(true),
        Some(lark),
        &["</think>x{x"],
        &["</think>y"],
    );
    check(
        &style,
        &none(true),
        Some(GrammarSource::JsonObject),
        &["</think>{\"a\": [1]}"],
        &["</think>[]"],
    );
}

#[test]
fn calls_or_the_wanted_format() {
    let style = style("hermes", "none", true);
    let auto = setup(&ToolChoice::Auto, true, false);
    let wanted = GrammarSource::JsonSchema(json!({"type": "object"}).to_string());
    check(
        &style,
        &auto,
        Some(wanted),
        &[TIME, "{\"a\": 1}"],
        &["Hello", "[1]"],
    );
    assert_eq!(constraint(&style, &auto, None).unwrap(), None);
}

#[test]
fn what_cannot_hold_is_refused() {
    let style = style("hermes", "none", true);
    let required = setup(&ToolChoice::Required, true, false);
    let message = refused(&style, &required, Some(GrammarSource::JsonObject));
    assert!(message.contains("`response_format` cannot be combined"));
    let auto = setup(&ToolChoice::Auto, true, false);
    let broken = GrammarSource::JsonSchema("{".to_owned());
    assert!(refused(&style, &auto, Some(broken)).contains("JSON schema"));
    for (tools, choice, expected) in [
        ("{}", ToolChoice::Auto, "`tools` must be a JSON array"),
        ("[]", ToolChoice::Required, "`tools` is empty"),
        (
            "[]",
            ToolChoice::Named("x".to_owned()),
            "names the tool `x`",
        ),
        (
            "[{}]",
            ToolChoice::Auto,
            "`tools[0].function` must be an object",
        ),
        (
            r#"[{"function": {"name": ""}}]"#,
            ToolChoice::Auto,
            "`tools[0].function.name`",
        ),
        (
            r#"[{"function": {"name": "a", "parameters": 1}}]"#,
            ToolChoice::Auto,
            "`tools[0].function.parameters`",
        ),
        (
            r#"[{"function": {"name": "a"}}, {"function": {"name": "a"}}]"#,
            ToolChoice::Auto,
            "`tools[1].function.name` is `a`, which an earlier tool has",
        ),
    ] {
        let setup = Setup {
            tools: tools.to_owned(),
            tool_choice: choice,
            parallel: true,
            opens_reasoning: false,
        };
        let message = refused(&style, &setup, None);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn the_format_follows_from_the_models_files() {
    let token = |text: &str, special| ControlToken {
        id: 1,
        text: text.to_owned(),
        special,
    };
    let style = |template: &str, architecture: &str, tokens: Vec<ControlToken>| {
        Style::new(&Settings::default(), model(template, architecture, tokens))
    };
    let qwen = style(
        "<tool_call> </think>",
        "qwen3",
        vec![token("<tool_call>", false)],
    );
    assert_eq!((qwen.format, qwen.reasons), (Format::Hermes, true));
    assert!(!qwen.keep_special_tokens());
    let llama = style(
        "ipython \"parameters\"",
        "llama",
        vec![token("<|python_tag|>", true)],
    );
    assert_eq!((llama.format, llama.reasons), (Format::Llama3Json, false));
    assert!(llama.keep_special_tokens());
    let hermes_on_llama = style("<tool_call>", "llama", vec![token("<|python_tag|>", true)]);
    assert_eq!(hermes_on_llama.format, Format::Hermes);
    assert!(serde_json::from_str::<Settings>(r#"{"format": "x"}"#).is_err());
    assert!(serde_json::from_str::<Settings>(r#"{"fromat": "auto"}"#).is_err());
}

#[test]
fn arguments_hold_only_what_was_declared() {
    let style = style("hermes", "none", true);
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "where": {"type": "object", "properties": {"street": {"type": "string"}}},
            "free": {"type": "object"},
            "open": {"type": "object", "properties": {}, "additionalProperties": true},
        },
    });
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
    let setup = Setup {
        tools: tools.to_string(),
        ..setup(&ToolChoice::Required, false, false)
    };
    let source = constraint(&style, &setup, None).unwrap().unwrap();
    let call = |arguments: &str| {
        format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>")
    };
    for (arguments, expected) in [
        (r#"{"city": "Paris"}"#, true),
        (r#"{"city": "Paris", "made_up": 1}"#, false),
        (r#"{"where": {"street": "x"}}"#, true),
        (r#"{"where": {"made_up": "x"}}"#, false),
        (r#"{"free": {"anything": "x"}}"#, true),
        (r#"{"open": {"anything": "x"}}"#, true),
    ] {
        assert_eq!(
            takes(&style, &source, &call(arguments)),
            expected,
            "{arguments}"
        );
    }
}
