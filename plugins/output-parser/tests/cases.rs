//! The cases of `tests/parsers`, whole and in pieces.

use mortise_output_parser::session::{self, Event};
use mortise_output_parser::style::{Model, Setup, Style, ToolChoice};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default = "hermes")]
    format: String,
    #[serde(default = "auto")]
    choice: String,
    #[serde(default = "yes")]
    parallel: bool,
    #[serde(default)]
    opens: bool,
    text: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    reasoning: String,
    #[serde(default)]
    calls: Vec<Vec<Option<String>>>,
}

fn hermes() -> String {
    "hermes".to_owned()
}

fn auto() -> String {
    "auto".to_owned()
}

fn yes() -> bool {
    true
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../../tests/parsers/cases.json")).unwrap()
}

/// What the events of an answer come to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    content: String,
    reasoning: String,
    calls: Vec<Call>,
}

#[derive(Debug, PartialEq, Eq)]
struct Call {
    name: String,
    arguments: String,
    id: Option<String>,
    ended: bool,
}

impl Answer {
    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Content(text) => self.content.push_str(&text),
                Event::Reasoning(text) => {
                    assert!(self.content.is_empty() && self.calls.is_empty());
                    self.reasoning.push_str(&text);
                }
                Event::CallBegin { index, id, name } => {
                    assert_eq!(index as usize, self.calls.len());
                    self.calls.push(Call {
                        name,
                        arguments: String::new(),
                        id,
                        ended: false,
                    });
                }
                Event::CallArguments { index, delta } => {
                    assert_eq!(index as usize + 1, self.calls.len());
                    let call = self.calls.last_mut().unwrap();
                    assert!(!call.ended && !delta.is_empty());
                    call.arguments.push_str(&delta);
                }
                Event::CallEnd { index } => {
                    assert_eq!(index as usize + 1, self.calls.len());
                    let call = self.calls.last_mut().unwrap();
                    assert!(!call.ended);
                    call.ended = true;
                }
            }
        }
    }
}

fn expected(case: &Case) -> Answer {
    Answer {
        content: case.content.clone(),
        reasoning: case.reasoning.clone(),
        calls: case
            .calls
            .iter()
            .map(|call| Call {
                name: call[0].clone().unwrap(),
                arguments: call[1].clone().unwrap(),
                id: call.get(2).cloned().flatten(),
                ended: call.get(3).is_none(),
            })
            .collect(),
    }
}

fn setup(choice: &str, parallel: bool, opens: bool) -> Setup {
    let tools = json!([
        {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "time"}},
    ]);
    let choice = match choice {
        "none" => ToolChoice::None,
        "auto" => ToolChoice::Auto,
        name => ToolChoice::Named(name.to_owned()),
    };
    Setup::new(&tools.to_string(), &choice, parallel, opens).unwrap()
}

fn style(format: &str) -> Style {
    let settings = json!({"format": format, "reasoning": "think"}).to_string();
    Style::new(&settings, Model::default()).unwrap()
}

fn parse<'a>(case: &Case, pieces: impl Iterator<Item = &'a str>) -> Answer {
    let setup = setup(&case.choice, case.parallel, case.opens);
    let mut session = session::open(&style(&case.format), &setup).unwrap();
    let mut answer = Answer::default();
    for piece in pieces {
        answer.take(session.feed(piece));
    }
    answer.take(session.close());
    answer
}

/// Cut `text` where `cuts`, fractions of its characters, say.
fn pieces(text: &str, cuts: &[f64]) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let mut ends: Vec<usize> = cuts
        .iter()
        .map(|cut| (cut * characters.len() as f64) as usize)
        .chain([0, characters.len()])
        .collect();
    ends.sort_unstable();
    let parts = ends.windows(2);
    parts
        .map(|ends| characters[ends[0]..ends[1]].iter().collect())
        .collect()
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

#[test]
fn arguments_stream_as_they_come() {
    let mut session = session::open(&style("hermes"), &setup("auto", true, false)).unwrap();
    assert!(
        session
            .feed("<tool_call>\n{\"name\": \"time\", ")
            .is_empty()
    );
    let begin = Event::CallBegin {
        index: 0,
        id: None,
        name: "time".to_owned(),
    };
    let arguments = |delta: &str| Event::CallArguments {
        index: 0,
        delta: delta.to_owned(),
    };
    assert_eq!(
        session.feed("\"arguments\": {\"a"),
        [begin, arguments("{\"a")]
    );
    assert_eq!(session.feed("\": 1"), [arguments("\": 1")]);
    assert_eq!(
        session.feed("}}\n</tool_call>"),
        [arguments("}"), Event::CallEnd { index: 0 }]
    );
    assert!(session.close().is_empty());
}

#[test]
fn nothing_is_opened_where_nothing_needs_parsing() {
    let settings = r#"{"reasoning": "none"}"#;
    let style = Style::new(settings, Model::default()).unwrap();
    let empty = Setup::new("[]", &ToolChoice::Auto, true, false).unwrap();
    assert!(session::open(&style, &empty).is_none());
    assert!(session::open(&style, &setup("none", true, false)).is_none());
    assert!(session::open(&style, &setup("auto", true, false)).is_some());
    assert!(session::open(&style, &setup("none", true, true)).is_some());
}

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
            let text = piece.repeat(1_000_000 / piece.len());
            let start = std::time::Instant::now();
            let mut session = session::open(&style(format), &setup("auto", true, false)).unwrap();
            let mut answer = Answer::default();
            for (from, to) in (0..text.len()).step_by(4).map(|at| (at, at + 4)) {
                answer.take(session.feed(&text[from..to.min(text.len())]));
            }
            answer.take(session.close());
            // Twenty times what it takes on an idle machine.
            let taken = start.elapsed();
            println!("{format} {piece:?}: {taken:?}");
            assert!(taken.as_millis() < 2_000, "{format} {piece}: {taken:?}");
            assert!(
                !answer.calls.is_empty() || !answer.reasoning.is_empty() || answer.content == text
            );
        }
    }
}

proptest! {
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
