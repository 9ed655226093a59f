//! Cases of what models write and what it means, and what a parser's events come to. Part of the tests of
//! the SDK and of the default parser.

use mortise_plugin_sdk::output_parser::{Event, Setup, ToolChoice};
use mortise_plugin_sdk::stream::Parsing;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    #[serde(default = "hermes")]
    pub(crate) format: String,
    #[serde(default = "auto")]
    pub(crate) choice: String,
    #[serde(default = "yes")]
    pub(crate) parallel: bool,
    #[serde(default)]
    pub(crate) opens: bool,
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) reasoning: String,
    /// Name, arguments, then the id or null, then `open` if the call does not end.
    #[serde(default)]
    pub(crate) calls: Vec<Vec<Option<String>>>,
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

/// The cases of a file beside this one.
pub(crate) fn read(file: &str) -> Vec<Case> {
    serde_json::from_str(file).unwrap()
}

fn tools() -> Value {
    let stop = json!({"properties": {
        "n": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    }});
    let weather = json!({"type": "object", "$defs": {"stop": stop}, "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "hourly": {"type": "boolean"},
        "units": {"type": ["string", "null"]},
        "places": {"type": "array"},
        "options": {"type": "object"},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/stop"}},
    }});
    let route = json!({"type": "object", "properties": {
        "from": {"type": "string"},
        "to": {"type": "string"},
    }});
    json!([
        {"type": "function", "function": {"name": "get_weather", "parameters": weather}},
        {"type": "function", "function": {"name": "time"}},
        {"type": "function", "function": {"name": "maps.find_route", "parameters": route}},
    ])
}

/// A request with three tools, `get_weather`, `time` and `maps.find_route`. `choice`: `none`, `auto` or the name of one.
pub(crate) fn setup(choice: &str, parallel: bool, opens_reasoning: bool) -> Setup {
    Setup {
        tools: tools().to_string(),
        tool_choice: match choice {
            "none" => ToolChoice::None,
            "auto" => ToolChoice::Auto,
            name => ToolChoice::Named(name.to_owned()),
        },
        parallel,
        opens_reasoning,
    }
}

/// Sum of the events of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Call>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) id: Option<String>,
    pub(crate) ended: bool,
}

impl Answer {
    pub(crate) fn take(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Content(text) => self.content.push_str(&text),
                Event::Reasoning(text) => self.reasoning.push_str(&text),
                Event::CallBegin(begin) => {
                    assert_eq!(begin.index as usize, self.calls.len());
                    self.calls.push(Call {
                        name: begin.name,
                        arguments: String::new(),
                        id: begin.id,
                        ended: false,
                    });
                }
                Event::CallArguments(more) => {
                    assert_eq!(more.index as usize + 1, self.calls.len());
                    let call = self.calls.last_mut().unwrap();
                    assert!(!call.ended && !more.delta.is_empty());
                    call.arguments.push_str(&more.delta);
                }
                Event::CallEnd(index) => {
                    assert_eq!(index as usize + 1, self.calls.len());
                    let call = self.calls.last_mut().unwrap();
                    assert!(!call.ended);
                    assert!(
                        serde_json::from_str::<Value>(&call.arguments)
                            .unwrap()
                            .is_object()
                    );
                    call.ended = true;
                }
            }
        }
    }
}

/// Answer that a case expects.
pub(crate) fn expected(case: &Case) -> Answer {
    let calls = case.calls.iter().map(|call| Call {
        name: call[0].clone().unwrap(),
        arguments: call[1].clone().unwrap(),
        id: call.get(2).cloned().flatten(),
        ended: call.get(3).is_none(),
    });
    Answer {
        content: case.content.clone(),
        reasoning: case.reasoning.clone(),
        calls: calls.collect(),
    }
}

impl Answer {
    /// Compact the arguments of calls to JSON without blanks and with sorted keys, since formats differ in those.
    pub(crate) fn compact(mut self) -> Self {
        for call in &mut self.calls {
            if let Ok(Value::Object(mut arguments)) = serde_json::from_str(&call.arguments) {
                arguments.sort_keys();
                call.arguments = Value::Object(arguments).to_string();
            }
        }
        self
    }
}

/// Answer that a session makes of a text in pieces.
pub(crate) fn answer<'a>(mut parsing: Parsing, pieces: impl Iterator<Item = &'a str>) -> Answer {
    let mut answer = Answer::default();
    for piece in pieces {
        answer.take(parsing.feed(piece));
    }
    answer.take(parsing.close());
    answer
}

/// Cut `text` where `cuts`, fractions of its characters, say.
pub(crate) fn pieces(text: &str, cuts: &[f64]) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let places = cuts
        .iter()
        .map(|cut| (cut * characters.len() as f64) as usize);
    let mut ends: Vec<usize> = places.chain([0, characters.len()]).collect();
    ends.sort_unstable();
    let parts = ends.windows(2);
    parts
        .map(|ends| characters[ends[0]..ends[1]].iter().collect())
        .collect()
}
