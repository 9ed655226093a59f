//! Law of all formats: what a model writes is said or belongs to the format, in order, however it comes in pieces. Part of the
//! tests of the default parser and of its fuzz target, which hand in arbitrary bytes.

use std::collections::BTreeSet;

use mortise_output_parser::open;
use mortise_output_parser::style::Style;
use mortise_plugin_sdk::Model;
use mortise_plugin_sdk::formats::Format;
use mortise_plugin_sdk::output_parser::{Event, Setup, ToolChoice};
use serde_json::{Value, json};

/// Formats whose messages have headers, of which some text is dropped.
const HEADERS: [Format; 3] = [Format::Harmony, Format::Atem, Format::Inkling];

/// Texts that no specification has and that say nothing: what closes calls, and frames of answers.
const FRAMES: [&str; 5] = [
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "<response>",
];

/// A request and an answer that bytes stand for.
#[derive(Debug)]
pub(crate) struct Input {
    format: Format,
    opens: bool,
    tools: bool,
    pieces: Vec<String>,
}

/// Marks with which a format is written, without blanks at their ends.
fn marks(format: Format) -> Vec<&'static str> {
    let spec = format.spec();
    let all = spec.marks().chain([spec.reasoning.0, spec.reasoning.1]);
    let all = all.flat_map(|mark| mark.split("{}")).map(str::trim);
    let all: BTreeSet<&'static str> = all.filter(|mark| !mark.is_empty()).collect();
    all.into_iter().collect()
}

impl Input {
    /// The first bytes name a format, and what a request has. Of the rest, low ones are marks of the format and parts of
    /// calls, 127 is a cut, and the others are text.
    pub(crate) fn new(data: &[u8]) -> Option<Self> {
        let [which, flags, data @ ..] = data else {
            return None;
        };
        let formats: Vec<Format> = Format::all().collect();
        let format = formats[usize::from(*which) % formats.len()];
        let parts = [
            "time",
            "{}",
            "{\"name\": \"time\", \"arguments\": {}}",
            "get_weather",
            "[",
            "]",
            "(",
            ")",
            "\n",
        ];
        let all: Vec<&str> = marks(format).into_iter().chain(parts).collect();
        let mut pieces = Vec::new();
        let mut piece = Vec::new();
        for byte in data {
            match byte {
                127 => pieces.push(std::mem::take(&mut piece)),
                0..32 => piece.extend_from_slice(all[usize::from(*byte) % all.len()].as_bytes()),
                byte => piece.push(*byte),
            }
        }
        pieces.push(piece);
        Some(Self {
            format,
            opens: flags & 1 != 0,
            tools: flags & 2 != 0,
            pieces: pieces
                .iter()
                .map(|piece| String::from_utf8_lossy(piece).into_owned())
                .collect(),
        })
    }

    fn read<'a>(&self, style: &Style, pieces: impl Iterator<Item = &'a str>) -> Vec<Event> {
        let function = |name: &str| json!({"type": "function", "function": {"name": name}});
        let tools = match self.tools {
            true => json!([function("time"), function("get_weather")]),
            false => json!([]),
        };
        let setup = Setup {
            tools: tools.to_string(),
            tool_choice: ToolChoice::Auto,
            parallel: true,
            opens_reasoning: self.opens,
        };
        let mut parsing = open(style, &setup)
            .expect("good tools")
            .expect("reasoning is looked for");
        let mut events: Vec<Event> = pieces.flat_map(|piece| parsing.feed(piece)).collect();
        events.extend(parsing.close());
        joined(events)
    }

    /// Hold what is read of the bytes to the law.
    ///
    /// # Panics
    /// If it breaks it.
    pub(crate) fn check(&self) {
        let name = self.format.name();
        let settings = json!({"format": name, "reasoning": "think"});
        let model = Model {
            name: "a model".to_owned(),
            architecture: String::new(),
            chat_template: None,
            bos_token: String::new(),
            eos_token: String::new(),
            control_tokens: Vec::new(),
        };
        let style = Style::new(&serde_json::from_value(settings).expect("settings"), model);
        let whole = self.pieces.concat();
        let events = self.read(&style, [whole.as_str()].into_iter());
        let pieces = self.read(&style, self.pieces.iter().map(String::as_str));
        assert_eq!(pieces, events, "{name}, cut: {:?}", self.pieces);
        let mut said = String::new();
        let mut called = false;
        for event in &events {
            match event {
                Event::Content(text) | Event::Reasoning(text) => said.push_str(text),
                Event::CallBegin(call) => {
                    assert!(
                        self.tools && whole.contains(&call.name),
                        "{name}: {call:?} in {whole:?}"
                    );
                    called = true;
                }
                Event::CallArguments(more) => {
                    let value: Result<Value, _> = serde_json::from_str(&more.delta);
                    let ends = events.contains(&Event::CallEnd(more.index));
                    assert!(
                        !ends || value.is_ok_and(|value| value.is_object()),
                        "{name}: {more:?} in {whole:?}"
                    );
                }
                Event::CallEnd(_) => {}
            }
        }
        let drops_anything = called || HEADERS.contains(&self.format);
        let kept = match drops_anything {
            true => is_part(&said, &whole),
            false => is_all_but_marks(&said, &whole, &marks(self.format)),
        };
        assert!(kept, "{name}: {said:?} of {whole:?}, from {events:?}");
    }
}

/// Events with neighbours of a kind put together: how a text was cut may not show in them.
fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    for event in events {
        match (all.last_mut(), event) {
            (Some(Event::Content(last)), Event::Content(text)) => last.push_str(&text),
            (Some(Event::Reasoning(last)), Event::Reasoning(text)) => last.push_str(&text),
            (Some(Event::CallArguments(last)), Event::CallArguments(more)) => {
                last.delta.push_str(&more.delta)
            }
            (_, event) => all.push(event),
        }
    }
    all
}

/// True if `said` comes of a text by leaving characters out.
fn is_part(said: &str, whole: &str) -> bool {
    let mut left = whole.chars();
    said.chars().all(|c| left.any(|other| other == c))
}

/// True if `said` comes of a text by leaving out nothing but blanks and marks, or the beginning of one at its end.
fn is_all_but_marks(said: &str, whole: &str, marks: &[&str]) -> bool {
    // Places in `said` that a place in the text may stand for.
    let mut places = vec![BTreeSet::new(); whole.len() + 1];
    places[0].insert(0);
    for (at, c) in whole.char_indices() {
        let here = std::mem::take(&mut places[at]);
        let rest = &whole[at..];
        let next = at + c.len_utf8();
        for place in here {
            if said[place..].starts_with(c) {
                places[next].insert(place + c.len_utf8());
            }
            if c.is_whitespace() {
                places[next].insert(place);
            }
            for mark in marks.iter().chain(&FRAMES) {
                if rest.starts_with(mark) {
                    places[at + mark.len()].insert(place);
                } else if mark.starts_with(rest) {
                    places[whole.len()].insert(place);
                }
            }
        }
    }
    places[whole.len()].contains(&said.len())
}
