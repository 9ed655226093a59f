//! The cases of `tests/parsers`, whole and in pieces.

#[path = "../../../tests/parsers/answers.rs"]
mod answers;

use answers::{Answer, Case, answer, expected, pieces, setup};
use mortise_output_parser::open;
use mortise_output_parser::style::Style;
use mortise_plugin_sdk::Model;
use mortise_plugin_sdk::output_parser::{CallArguments, CallBegin, Event, Setup, ToolChoice};
use mortise_plugin_sdk::stream::Parsing;
use proptest::prelude::*;
use serde_json::json;

fn cases() -> Vec<Case> {
    answers::read(include_str!("../../../tests/parsers/cases.json"))
}

fn style(format: &str, reasoning: &str) -> Style {
    let settings = json!({"format": format, "reasoning": reasoning});
    let model = Model {
        name: "a model".to_owned(),
        architecture: String::new(),
        chat_template: None,
        bos_token: String::new(),
        eos_token: String::new(),
        control_tokens: Vec::new(),
    };
    Style::new(&serde_json::from_value(settings).unwrap(), model)
}

fn session(format: &str, choice: &str, parallel: bool, opens: bool) -> Parsing {
    let setup = setup(choice, parallel, opens);
    open(&style(format, "think"), &setup).unwrap().unwrap()
}

fn parse<'a>(case: &Case, pieces: impl Iterator<Item = &'a str>) -> Answer {
    let session = session(&case.format, &case.choice, case.parallel, case.opens);
    answer(session, pieces)
}

#[test]
fn whole_answers() {
    for case in cases() {
        let found = parse(&case, std::iter::once(case.text.as_str()));
        assert_eq!(found, expected(&case), "{}", case.name);
    }
}

#[test]
fn character_by_character() {
    for case in cases() {
        let found = parse(&case, case.text.split_inclusive(|_| true));
        assert_eq!(found, expected(&case), "{}", case.name);
    }
}

/// The default parser reads every format as the SDK does, with its settings.
#[test]
fn feature_s14_every_format_can_be_chosen_by_name() {
    for case in answers::read(include_str!("../../../tests/parsers/written.json")) {
        let found = parse(&case, case.text.split_inclusive(|_| true)).compact();
        assert_eq!(found, expected(&case).compact(), "{}", case.name);
    }
}

/// No blank waits for a call where none can come.
#[test]
fn blanks_leave_at_once_where_no_call_can_come() {
    let mut session = session("hermes", "none", true, false);
    let content = |text: &str| [Event::Content(text.to_owned())];
    for piece in ["A", " ", "word", "\n\n", "more <tool_call>", " "] {
        assert_eq!(session.feed(piece), content(piece));
    }
    assert!(session.close().is_empty());
}

/// A call is passed on when its arguments are known to be JSON.
#[test]
fn arguments_come_when_they_are_whole() {
    let mut session = session("hermes", "auto", true, false);
    for piece in [
        "<tool_call>\n{\"name\": \"time\", ",
        "\"arguments\": {\"a",
        "\": 1",
    ] {
        assert!(session.feed(piece).is_empty());
    }
    let events = session.feed("}}\n</tool_call>");
    assert!(
        matches!(
            &events[..],
            [Event::CallBegin(_), Event::CallArguments(all), Event::CallEnd(0)]
                if all.delta == "{\"a\": 1}"
        ),
        "{events:?}"
    );
    assert!(session.close().is_empty());
}

/// Arguments of a call that ends are JSON that every reader takes, however deep they nest; deeper ones stay content.
#[test]
fn arguments_that_nest_too_deep_stay_content() {
    for depth in [10, 60, 62, 63, 64, 65, 100, 101, 127, 128, 1000] {
        let arguments = format!(
            "{{\"a\": {}{}}}",
            "[".repeat(depth - 1),
            "]".repeat(depth - 1)
        );
        let text =
            format!("<tool_call>{{\"name\": \"time\", \"arguments\": {arguments}}}</tool_call>");
        let found = answer(
            session("hermes", "auto", true, false),
            std::iter::once(text.as_str()),
        );
        match found.calls.first() {
            Some(call) => assert!(depth <= 64 && call.arguments == arguments, "{depth}"),
            None => assert!(depth > 64 && found.content == text, "{depth}: {found:?}"),
        }
    }
}

/// Arguments of a forced call, which a grammar holds to JSON, are passed on as they come.
#[test]
fn arguments_of_forced_calls_stream_as_they_come() {
    let mut session = session("hermes", "time", true, false);
    assert!(
        session
            .feed("<tool_call>\n{\"name\": \"time\", ")
            .is_empty()
    );
    let begin = Event::CallBegin(CallBegin {
        index: 0,
        id: None,
        name: "time".to_owned(),
    });
    let arguments = |delta: &str| {
        let delta = delta.to_owned();
        Event::CallArguments(CallArguments { index: 0, delta })
    };
    assert_eq!(
        session.feed("\"arguments\": {\"a"),
        [begin, arguments("{\"a")]
    );
    assert_eq!(session.feed("\": 1"), [arguments("\": 1")]);
    assert_eq!(
        session.feed("}}\n</tool_call>"),
        [arguments("}"), Event::CallEnd(0)]
    );
    assert!(session.close().is_empty());
}

#[test]
fn nothing_is_opened_where_nothing_needs_parsing() {
    let style = style("auto", "none");
    let empty = Setup {
        tools: "[]".to_owned(),
        tool_choice: ToolChoice::Auto,
        parallel: true,
        opens_reasoning: false,
    };
    let opens = |setup: &Setup| open(&style, setup).unwrap().is_some();
    assert!(!opens(&empty));
    assert!(!opens(&setup("none", true, false)));
    assert!(opens(&setup("auto", true, false)));
    assert!(opens(&setup("none", true, true)));
}

/// Characters looked at, again or for the first time, for each character of an answer.
const READS_A_CHARACTER: usize = 20;

#[test]
fn d2_time_is_linear() {
    let garbage = [
        "{\"name\":",
        "<tool_call>{\"name\":",
        "<tool_call>",
        "<tool_call>{\"name\":\"time\",\"arguments\":{\"a\":\"",
        "<think>",
        "{{{{[[[[",
        " \n",
        "<<<<<",
    ];
    for format in ["hermes", "llama3-json"] {
        for piece in garbage {
            let text = piece.repeat(100_000 / piece.len());
            let mut session = session(format, "auto", true, false);
            let mut answer = Answer::default();
            for (from, to) in (0..text.len()).step_by(4).map(|at| (at, at + 4)) {
                answer.take(session.feed(&text[from..to.min(text.len())]));
            }
            answer.take(session.close());
            let reads = session.reads();
            assert!(
                reads <= READS_A_CHARACTER * text.len(),
                "{format} reads {reads} times in {} bytes of {piece:?}",
                text.len()
            );
            assert!(
                !answer.calls.is_empty() || !answer.reasoning.is_empty() || answer.content == text
            );
        }
    }
}

proptest! {
    /// Arguments that are JSON with a few characters changed: a call that ends has arguments which are an
    /// object, any other text stays as it was, and cuts change neither.
    #[test]
    fn calls_that_end_have_json(
        changes in proptest::collection::vec(
            (any::<prop::sample::Index>(), proptest::sample::select(vec![
                "", "NaN", "\n", "\u{1}", ",", "\"", "\\", "{", "}", "[", "]", "1e9999", "\\ud800", "'", ":", "-",
            ])),
            0..4,
        ),
        cuts in proptest::collection::vec(0.0..1.0f64, 0..6),
        early in any::<bool>(),
    ) {
        let mut arguments = r#"{"a": [1.5, {"b": "x\ny"}], "c": {"d": null, "e": true}}"#.to_owned();
        for (at, change) in changes {
            let at = at.index(arguments.len());
            arguments.replace_range(at..=at, change);
        }
        let text = match early {
            true => format!("<tool_call>{{\"arguments\": {arguments}, \"name\": \"time\"}}</tool_call>"),
            false => format!("<tool_call>{{\"name\": \"time\", \"arguments\": {arguments}}}</tool_call>"),
        };
        let whole = answer(session("hermes", "auto", true, false), std::iter::once(text.as_str()));
        for call in &whole.calls {
            let value: Result<serde_json::Value, _> = serde_json::from_str(&call.arguments);
            prop_assert!(value.is_ok_and(|value| value.is_object()), "{call:?}");
        }
        if whole.calls.is_empty() {
            prop_assert_eq!(&whole.content, &text);
        }
        let pieces = pieces(&text, &cuts);
        let cut = answer(
            session("hermes", "auto", true, false),
            pieces.iter().map(String::as_str),
        );
        prop_assert_eq!(cut, whole);
    }

    #[test]
    fn d4_the_cut_does_not_matter(
        case in proptest::sample::select(cases()),
        cuts in proptest::collection::vec(0.0..1.0f64, 0..6),
    ) {
        let pieces = pieces(&case.text, &cuts);
        prop_assert_eq!(parse(&case, pieces.iter().map(String::as_str)), expected(&case));
    }

    #[test]
    fn no_text_is_lost_without_calls(
        parts in proptest::collection::vec(proptest::sample::select(vec![
            "<tool_call>", "</tool_call>", "{\"name\": \"", "rm", "\", ", "\"arguments\": ", "{}",
            "}", " ", "\n", "<think>", "</think>", "<|python_tag|>", "x", "é", ";", "\"", "<", "\\",
        ]), 0..20),
        format in proptest::sample::select(vec!["hermes", "llama3-json"]),
        cuts in proptest::collection::vec(0.0..1.0f64, 0..6),
    ) {
        // The text begins with a word, so that there is no reasoning, and names no declared tool.
        let case = Case {
            format: format.to_owned(),
            text: format!("a{}", parts.concat()),
            ..cases()[0].clone()
        };
        let whole = parse(&case, std::iter::once(case.text.as_str()));
        prop_assert_eq!(&whole.content, &case.text);
        let pieces = pieces(&case.text, &cuts);
        prop_assert_eq!(parse(&case, pieces.iter().map(String::as_str)), whole);
    }
}
