//! Proof of a derived format: other renderings of the same template must read back as what went in.

use mortise_plugin_sdk::formats::{Described, Format};
use mortise_plugin_sdk::output_parser::{Event, Finish, Session as _, Setup, ToolChoice};
use mortise_plugin_sdk::stream::Parsing;
use mortise_plugin_sdk::tools::Tools;
use serde_json::{Value, json};

use crate::response::Reader;

use super::probe::{ALFA, BETA, Call, KEY_1, KEY_2, Probe};

/// An answer as a format reads it.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    content: String,
    reasoning: String,
    /// Names with arguments as text.
    calls: Vec<(String, String)>,
}

/// True if a format reads what the template writes: a call with values of all kinds, two calls, words and a call, and
/// words alone.
pub(super) fn holds(probe: &Probe, described: &Described) -> bool {
    // Read with a copy that lives as long as the reader needs, once for each format that is tried.
    let kept: &'static Described = Box::leak(Box::new(*described));
    let marked = !described.spec.opens.is_empty();
    reads_back(probe, marked, &|text| read(probe, kept, text))
}

/// True if a format of the list reads what the template writes.
pub(super) fn holds_listed(probe: &Probe, format: Format) -> bool {
    let spec = format.spec();
    let marked = !spec.opens.is_empty();
    reads_back(probe, marked, &|text| {
        answer(probe, format, spec.reasoning, text)
    })
}

/// True if a response template reads what the chat template writes.
pub(super) fn holds_response(probe: &Probe, reader: &'static Reader) -> bool {
    reads_back(probe, true, &|text| {
        let mut session = reader.open(&setup(probe)).ok()?;
        let mut events = session.feed(text, &[]).ok()?;
        events.extend(session.close(Finish::Stop).ok()?);
        said(events)
    })
}

fn reads_back(probe: &Probe, marked: bool, read: &dyn Fn(&str) -> Option<Answer>) -> bool {
    let reads = |text: Option<String>, content: &str, calls: &[Call]| {
        text.and_then(|text| read(&text))
            .is_some_and(|answer| is(&answer, content, calls))
    };
    let all = [(BETA, awkward())];
    let two = [(ALFA, json!({KEY_1: "a, b"})), (ALFA, json!({}))];
    let other = [
        (ALFA, json!({KEY_2: "x", KEY_1: "y = [1]"})),
        (BETA, json!({"count": 3})),
    ];
    let several = probe.writes_several();
    let said = "Let me see.";
    reads(probe.calls("", &all), "", &all)
        && reads(probe.calls("", &two[..1]), "", &two[..1])
        && reads(probe.calls("", &two[1..]), "", &two[1..])
        && (!several || reads(probe.calls("", &two), "", &two))
        && (!several || reads(probe.calls("", &other), "", &other))
        && (!marked || said_and_called(probe, read, said, &two[..1]))
        && reads(probe.words(said), said, &[])
}

/// Arguments of every type, with what formats stumble over.
fn awkward() -> Value {
    json!({
        KEY_2: "Zürich \"a\" 'b' <c> {d} \\ 1,2\nend",
        "count": -42,
        "ratio": 1.5,
        "flag": true,
        "tags": ["x y", "z"],
        "inner": {"deep": [1, {"er": "v"}]},
    })
}

/// Words before a call are read, or the template leaves them out.
fn said_and_called(
    probe: &Probe,
    read: &dyn Fn(&str) -> Option<Answer>,
    said: &str,
    calls: &[Call],
) -> bool {
    let text = probe.calls(said, calls);
    let answer = text.and_then(|text| read(&text));
    answer.is_some_and(|answer| is(&answer, said, calls) || is(&answer, "", calls))
}

fn is(answer: &Answer, content: &str, calls: &[Call]) -> bool {
    let same = |(found, meant): (&(String, String), &Call)| {
        let arguments = serde_json::from_str::<Value>(&found.1);
        found.0 == meant.0 && arguments.is_ok_and(|arguments| arguments == meant.1)
    };
    answer.content.trim() == content
        && answer.calls.len() == calls.len()
        && answer.calls.iter().zip(calls).all(same)
}

fn read(probe: &Probe, described: &'static Described, text: &str) -> Option<Answer> {
    answer(
        probe,
        Format::Described(described),
        described.spec.reasoning,
        text,
    )
}

fn answer(
    probe: &Probe,
    format: Format,
    thought: (&'static str, &'static str),
    text: &str,
) -> Option<Answer> {
    let tools = Tools::allowed(&setup(probe)).ok()?;
    let mut parsing = Parsing::new(tools, false, async move |text| {
        format.read_reasoning(text, thought).await;
        format.read_calls(text).await;
    });
    let mut events = parsing.feed(text);
    events.extend(parsing.close());
    said(events)
}

fn setup(probe: &Probe) -> Setup {
    Setup {
        tools: probe.tools.clone(),
        tool_choice: ToolChoice::Auto,
        parallel: true,
        opens_reasoning: false,
    }
}

fn said(events: Vec<Event>) -> Option<Answer> {
    let mut answer = Answer::default();
    for event in events {
        match event {
            Event::Content(text) => answer.content.push_str(&text),
            Event::Reasoning(text) => answer.reasoning.push_str(&text),
            Event::CallBegin(call) => answer.calls.push((call.name, String::new())),
            Event::CallArguments(more) => answer.calls.last_mut()?.1.push_str(&more.delta),
            Event::CallEnd(_) => {}
        }
    }
    Some(answer)
}

/// True if marks of reasoning read back what the template writes.
pub(super) fn reads_reasoning(probe: &Probe, marks: (&'static str, &'static str)) -> bool {
    let Some((text, thought, said)) = probe.thought() else {
        return false;
    };
    // Of the formats, one without marks of reasoning of its own.
    let answer = answer(probe, Format::Hermes, marks, &text);
    answer.is_some_and(|answer| answer.reasoning.trim() == thought && answer.content.trim() == said)
}
